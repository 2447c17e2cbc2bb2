//! The configuration: one struct a concern; the only reader of the environment
//! (`operating.md` §3).
//!
//! A wrong or missing value stops the start with one line that names the variable and what it
//! takes. Secrets are masked wherever the configuration is shown.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::store::Statements;

/// A value that stops the start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {problem}")]
pub struct Error {
    /// The variable.
    pub variable: String,
    /// What it takes, or what was wrong.
    pub problem: String,
}

impl Error {
    /// A value that stops the start.
    pub fn new(variable: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            variable: variable.into(),
            problem: problem.into(),
        }
    }
}

/// Where values come from: the environment, over the optional file, under the flags.
#[derive(Debug, Clone, Default)]
pub struct Source {
    values: BTreeMap<String, String>,
}

impl Source {
    /// The process environment.
    pub fn environment() -> Self {
        Self {
            values: std::env::vars().collect(),
        }
    }

    /// These values.
    pub fn of(values: impl IntoIterator<Item = (String, String)>) -> Self {
        Self {
            values: values.into_iter().collect(),
        }
    }

    /// A file of `NAME=value` lines; `#` begins a comment line.
    ///
    /// # Errors
    /// When it cannot be read, or a line has no `=`.
    pub fn file(path: &std::path::Path) -> Result<Self, Error> {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| Error::new(name(), e.to_string()))?;
        let mut values = BTreeMap::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, value) = line
                .split_once('=')
                .ok_or_else(|| Error::new(name(), format!("line {} takes NAME=value", i + 1)))?;
            values.insert(key.trim().to_owned(), value.trim().to_owned());
        }
        Ok(Self { values })
    }

    /// These values over those of `below`.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        let mut values = below.values;
        values.extend(self.values);
        Self { values }
    }

    /// Sets one value.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// The value, unless it is unset or blank.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .map(|v| v.trim())
            .filter(|v| !v.is_empty())
    }

    /// The names of all values, set or blank.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    fn parsed<T: FromStr>(&self, name: &str, default: T, takes: &str) -> Result<T, Error> {
        match self.get(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Error::new(name, format!("takes {takes}, not `{text}`"))),
        }
    }

    fn ranged(&self, name: &str, default: u64, low: u64, high: u64) -> Result<u64, Error> {
        let takes = format!("a whole number from {low} to {high}");
        let n = self.parsed(name, default, &takes)?;
        if (low..=high).contains(&n) {
            Ok(n)
        } else {
            Err(Error::new(name, format!("takes {takes}, not `{n}`")))
        }
    }
}

/// The whole configuration of `nexus serve`.
#[derive(Debug, Clone)]
pub struct Config {
    /// The database.
    pub database: Database,
    /// Redis, when there is one.
    pub redis: Option<Redis>,
    /// Listeners and HTTP limits.
    pub http: Http,
    /// What this replica does.
    pub roles: Roles,
    /// Background pacing.
    pub sweeper: Sweeper,
    /// Where captures and uploads live.
    pub blobs: Blobs,
    /// Logs.
    pub log: Log,
    /// The bootstrap operator bearer.
    pub operator_token: Option<SecretString>,
    /// Whether `POST /test_clock` moves the database's clock. Never in production.
    pub test_clock: bool,
    /// How long a graceful stop may take.
    pub drain: Duration,
}

/// How to reach Postgres.
#[derive(Clone)]
pub struct Database {
    /// Connections of the pool.
    pub connect: tokio_postgres::Config,
    /// The connection for migrations, past a pooler.
    pub direct: tokio_postgres::Config,
    /// The most pooled connections.
    pub pool: usize,
    /// Named or unnamed statements.
    pub statements: Statements,
    /// TLS, when the URL asks for it.
    pub tls: Option<Tls>,
    shown: String,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("url", &self.shown)
            .field("pool", &self.pool)
            .field("statements", &self.statements)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// What TLS verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// A CA file instead of the system's roots.
    pub root_cert: Option<String>,
}

impl Database {
    /// Reads a libpq URL; `sslmode`, `sslrootcert` and `pgbouncer` are split off, since the
    /// driver's parser refuses their stricter values.
    ///
    /// # Errors
    /// Names the variable.
    pub fn from_url(
        variable: &str,
        url: &str,
        pool: usize,
        statements: Statements,
    ) -> Result<Self, Error> {
        let (connect, tls) = parse_url(variable, url)?;
        Ok(Self {
            direct: connect.clone(),
            connect,
            pool,
            statements,
            tls,
            shown: mask(url),
        })
    }

    /// The connector for TLS, or none for a plain connection.
    ///
    /// # Errors
    /// When the CA file cannot be read.
    pub fn tls_connector(&self) -> Result<Option<MakeRustlsConnect>, Error> {
        let Some(tls) = &self.tls else {
            return Ok(None);
        };
        let mut roots = rustls::RootCertStore::empty();
        if let Some(path) = &tls.root_cert {
            let bad = |e: String| Error::new("sslrootcert", format!("{path}: {e}"));
            let pem = std::fs::read(path).map_err(|e| bad(e.to_string()))?;
            for cert in pem_certificates(&pem) {
                roots.add(cert.into()).map_err(|e| bad(e.to_string()))?;
            }
            if roots.is_empty() {
                return Err(bad("holds no certificate".to_owned()));
            }
        } else {
            for cert in rustls_native_certs::load_native_certs().certs {
                // A root that does not parse is one less to trust, not a reason to stop.
                let _ = roots.add(cert);
            }
        }
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::new("sslmode", e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
        Ok(Some(MakeRustlsConnect::new(config)))
    }
}

/// DER bodies of the CERTIFICATE blocks of a PEM file.
fn pem_certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    use base64::Engine as _;
    let text = String::from_utf8_lossy(pem);
    text.split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .filter_map(|block| block.split("-----END CERTIFICATE-----").next())
        .filter_map(|body| {
            let body: String = body.split_whitespace().collect();
            base64::engine::general_purpose::STANDARD.decode(body).ok()
        })
        .collect()
}

/// What every connection starts with, unless the URL brings `options` of its own.
///
/// One kind of plan: nested loops over indexes. A prepared statement keeps the plan it was given
/// while the tables were nearly empty, where reading a table (or an index of it) whole to hash or
/// merge it is cheapest; an hour later the same plan reads all of history, until the next analysis
/// (measured: 640,000 rows to load one task among 100,000). Every statement has an index to go by.
/// And no compilation: the estimates of an unanalysed database make it begin for statements that
/// take a tenth of a millisecond.
const SESSION: &str = "-c statement_timeout=10s -c lock_timeout=5s -c idle_in_transaction_session_timeout=30s \
                       -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off";

fn parse_url(variable: &str, url: &str) -> Result<(tokio_postgres::Config, Option<Tls>), Error> {
    let takes = "takes a libpq URL such as postgres://user:password@host:5432/database";
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut kept = Vec::new();
    let mut mode = None;
    let mut root_cert = None;
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value.to_owned()),
            Some(("sslrootcert", value)) => root_cert = Some(value.to_owned()),
            Some(("pgbouncer", _)) => {}
            _ => kept.push(pair),
        }
    }
    let tls = match mode.as_deref() {
        None | Some("disable" | "allow" | "prefer") => None,
        Some("require" | "verify-ca" | "verify-full") => Some(Tls { root_cert }),
        Some(other) => {
            return Err(Error::new(
                variable,
                format!(
                    "sslmode takes disable, prefer, require, verify-ca or verify-full, not `{other}`"
                ),
            ));
        }
    };
    let text = if kept.is_empty() {
        base.to_owned()
    } else {
        format!("{base}?{}", kept.join("&"))
    };
    let mut config: tokio_postgres::Config =
        text.parse().map_err(|_| Error::new(variable, takes))?;
    config.ssl_mode(if tls.is_some() {
        tokio_postgres::config::SslMode::Require
    } else {
        tokio_postgres::config::SslMode::Disable
    });
    if config.get_hosts().is_empty() || config.get_user().is_none() {
        return Err(Error::new(variable, takes));
    }
    config
        .application_name("nexus")
        .connect_timeout(Duration::from_secs(5));
    config.keepalives_idle(Duration::from_secs(30));
    // A half-open connection is given up, not waited for.
    config.tcp_user_timeout(Duration::from_secs(15));
    if config.get_options().is_none() {
        config.options(SESSION);
    }
    Ok((config, tls))
}

/// A URL without its password.
pub(crate) fn mask(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return "***".to_owned();
    };
    match rest.split_once('@') {
        Some((user, host)) => {
            let user = user.split_once(':').map_or(user, |(name, _)| name);
            format!("{scheme}://{user}:***@{host}")
        }
        None => url.to_owned(),
    }
}

/// How to reach Redis.
#[derive(Clone)]
pub struct Redis {
    /// `redis://` or `rediss://`.
    pub url: SecretString,
    /// What keys and channels begin with.
    pub prefix: String,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis")
            .field("url", &mask(self.url.expose_secret()))
            .field("prefix", &self.prefix)
            .finish()
    }
}

/// Listeners and limits of HTTP.
#[derive(Debug, Clone)]
pub struct Http {
    /// The API.
    pub listen: SocketAddr,
    /// Metrics.
    pub admin_listen: SocketAddr,
    /// Origins that browsers may call from.
    pub cors_origins: Vec<String>,
    /// Requests a minute; none when off.
    pub rate_limits: Option<RateLimits>,
}

/// Budgets of requests a minute and credential, by family of resources (`conventions.md` §9).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// What is configured; the rest has its documented budget.
    named: BTreeMap<&'static str, u64>,
}

impl RateLimits {
    /// The family of whatever has none of its own; its budget is that of families without one.
    pub const DEFAULT: &str = "default";

    const BUDGET: u64 = 6_000;

    /// Every family, and its budget where that is not the default.
    const FAMILIES: &[(&str, Option<u64>)] = &[
        (Self::DEFAULT, None),
        ("awaits", None),
        ("cable", None),
        ("claim_status", Some(600)),
        ("conversations", None),
        ("executor", None),
        ("executors", None),
        ("models", None),
        ("operator", Some(600)),
        ("preview", Some(30)),
        ("progress", Some(10_000)),
        ("runs", None),
        ("uploads", None),
        ("workspaces", None),
    ];

    fn entry(name: &str) -> Option<(&'static str, Option<u64>)> {
        Self::FAMILIES
            .iter()
            .find(|(family, _)| *family == name)
            .copied()
    }

    /// The family of that name.
    pub fn family(name: &str) -> Option<&'static str> {
        Self::entry(name).map(|(family, _)| family)
    }

    /// What one credential may ask of a family in a minute.
    pub fn budget(&self, family: &str) -> u64 {
        self.named
            .get(family)
            .copied()
            .or_else(|| Self::entry(family)?.1)
            .or_else(|| self.named.get(Self::DEFAULT).copied())
            .unwrap_or(Self::BUDGET)
    }
}

/// What a replica does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Serves HTTP and cable.
    pub api: bool,
    /// Drives model calls and kernel tools.
    pub worker: bool,
    /// Stands for sweeper leadership.
    pub sweeper: bool,
}

impl Roles {
    /// The words, in order.
    pub fn words(self) -> Vec<&'static str> {
        [
            (self.api, "api"),
            (self.worker, "worker"),
            (self.sweeper, "sweeper"),
        ]
        .into_iter()
        .filter_map(|(on, word)| on.then_some(word))
        .collect()
    }
}

/// Background pacing.
#[derive(Debug, Clone, Copy)]
pub struct Sweeper {
    /// How long a sweeper lease lasts.
    pub ttl: Duration,
}

/// Names the place that keeps the bytes of files.
pub const BLOB_URL: &str = "NEXUS_BLOB_URL";

/// Where the bytes of files live.
#[derive(Debug, Clone)]
pub struct Blobs {
    /// Where new files go.
    pub place: Place,
    /// The `AWS_*` variables, for places in S3: region, keys, endpoint, as every AWS tool reads
    /// them.
    pub aws: BTreeMap<String, SecretString>,
}

/// A place that keeps the bytes of files; its text is the URL that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The database.
    Postgres,
    /// A bucket of S3, or of what speaks its protocol.
    S3 {
        /// The bucket.
        bucket: String,
        /// What object names begin with; may be empty.
        prefix: String,
    },
    /// A folder, shared by all replicas.
    File {
        /// An absolute path.
        path: String,
    },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Postgres => f.write_str("postgres"),
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Self::File { path } => write!(f, "file://{path}"),
        }
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let takes = || {
            Error::new(
                BLOB_URL,
                format!("takes postgres, s3://bucket/prefix or file:///path, not `{text}`"),
            )
        };
        if text == "postgres" {
            return Ok(Self::Postgres);
        }
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            let prefix = prefix.trim_matches('/');
            if bucket.is_empty() || !bucket.chars().all(is_name) || prefix.contains("//") {
                return Err(takes());
            }
            return Ok(Self::S3 {
                bucket: bucket.to_owned(),
                prefix: prefix.to_owned(),
            });
        }
        match text.strip_prefix("file://") {
            Some(path) if path.starts_with('/') && path.len() > 1 => Ok(Self::File {
                path: path.trim_end_matches('/').to_owned(),
            }),
            _ => Err(takes()),
        }
    }
}

/// How logs look.
#[derive(Debug, Clone)]
pub struct Log {
    /// A `tracing` filter.
    pub filter: String,
    /// One JSON object a line, for machines.
    pub json: bool,
}

impl Config {
    /// Reads the configuration.
    ///
    /// # Errors
    /// The first wrong or missing value, by name.
    pub fn from_source(source: &Source) -> Result<Self, Error> {
        Ok(Self {
            database: database(source)?,
            redis: redis(source)?,
            http: http(source)?,
            roles: roles(source)?,
            sweeper: Sweeper {
                ttl: Duration::from_millis(source.ranged(
                    "NEXUS_SWEEPER_TTL_MS",
                    10_000,
                    100,
                    600_000,
                )?),
            },
            blobs: blobs(source)?,
            log: log(source)?,
            operator_token: source
                .get("NEXUS_OPERATOR_TOKEN")
                .map(|t| t.to_owned().into()),
            test_clock: source.parsed::<u8>("NEXUS_TEST_CLOCK", 0, "0 or 1")? == 1,
            drain: Duration::from_secs(source.ranged("NEXUS_DRAIN_SECONDS", 30, 0, 600)?),
        })
    }
}

/// The database's part.
///
/// # Errors
/// Names the variable.
pub fn database(source: &Source) -> Result<Database, Error> {
    let (name, url) = ["NEXUS_DATABASE_URL", "DATABASE_URL"]
        .into_iter()
        .find_map(|name| source.get(name).map(|url| (name, url)))
        .ok_or_else(|| {
            Error::new(
                "NEXUS_DATABASE_URL",
                "is required: a libpq URL such as postgres://user:password@host:5432/database",
            )
        })?;
    let pool = usize::try_from(source.ranged("NEXUS_DB_POOL", 16, 1, 1000)?).unwrap_or(16);
    let statements = match source.get("NEXUS_DB_STATEMENTS") {
        None | Some("prepared") => Statements::Prepared,
        Some("unnamed") => Statements::Unnamed,
        Some(other) => {
            return Err(Error::new(
                "NEXUS_DB_STATEMENTS",
                format!("takes prepared or unnamed, not `{other}`"),
            ));
        }
    };
    let mut database = Database::from_url(name, url, pool, statements)?;
    if let Some(direct) = source.get("NEXUS_DATABASE_DIRECT_URL") {
        database.direct = parse_url("NEXUS_DATABASE_DIRECT_URL", direct)?.0;
    }
    Ok(database)
}

fn redis(source: &Source) -> Result<Option<Redis>, Error> {
    let found = ["NEXUS_REDIS_URL", "REDIS_URL"]
        .into_iter()
        .find_map(|name| source.get(name).map(|url| (name, url)));
    let Some((name, url)) = found else {
        return Ok(None);
    };
    if !["redis://", "rediss://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
    {
        return Err(Error::new(name, "takes a redis:// or rediss:// URL"));
    }
    Ok(Some(Redis {
        url: url.to_owned().into(),
        prefix: source
            .get("NEXUS_REDIS_PREFIX")
            .unwrap_or("default")
            .to_owned(),
    }))
}

fn blobs(source: &Source) -> Result<Blobs, Error> {
    let place = source.get(BLOB_URL).unwrap_or("postgres").parse()?;
    let aws = source
        .values
        .iter()
        .filter(|(name, value)| name.starts_with("AWS_") && !value.trim().is_empty())
        .map(|(name, value)| (name.clone(), value.trim().to_owned().into()))
        .collect();
    Ok(Blobs { place, aws })
}

fn http(source: &Source) -> Result<Http, Error> {
    let takes = "an address such as 127.0.0.1:8080";
    let default = SocketAddr::from(([127, 0, 0, 1], 8080));
    let admin = SocketAddr::from(([127, 0, 0, 1], 9090));
    Ok(Http {
        listen: source.parsed("NEXUS_LISTEN", default, takes)?,
        admin_listen: source.parsed("NEXUS_ADMIN_LISTEN", admin, takes)?,
        cors_origins: cors_origins(source)?,
        rate_limits: rate_limits(source)?,
    })
}

/// Exact origins, as browsers write them: a scheme, a host, perhaps a port.
fn cors_origins(source: &Source) -> Result<Vec<String>, Error> {
    let name = "NEXUS_CORS_ORIGINS";
    let is_origin = |origin: &str| {
        let graphic = origin.bytes().all(|b| b.is_ascii_graphic());
        let lower = !origin.bytes().any(|b| b.is_ascii_uppercase());
        let parts = origin.split_once("://");
        let exact = parts.is_some_and(|(scheme, host)| {
            !scheme.is_empty() && !host.is_empty() && !host.contains(['/', '*', '?', '#', '@'])
        });
        graphic && lower && exact
    };
    let Some(list) = source.get(name) else {
        return Ok(Vec::new());
    };
    list.split(',')
        .map(str::trim)
        .map(|origin| {
            let takes = "takes exact origins such as https://app.example:8443, by comma, not";
            is_origin(origin)
                .then(|| origin.to_owned())
                .ok_or_else(|| Error::new(name, format!("{takes} `{origin}`")))
        })
        .collect()
}

fn rate_limits(source: &Source) -> Result<Option<RateLimits>, Error> {
    let name = "NEXUS_RATE_LIMITS";
    let read = |pair: &str| {
        let (family, n) = pair.split_once('=')?;
        let n = n.trim().parse().ok().filter(|n| *n > 0)?;
        Some((RateLimits::family(family.trim())?, n))
    };
    match source.get(name) {
        Some("off") => Ok(None),
        None => Ok(Some(RateLimits::default())),
        Some(list) => {
            let named = list
                .split(',')
                .map(|pair| {
                    read(pair).ok_or_else(|| {
                        let families: Vec<_> =
                            RateLimits::FAMILIES.iter().map(|(name, _)| *name).collect();
                        let families = families.join(", ");
                        let takes = format!(
                            "takes `off` or family=n,… (1 or more a minute; {families}), not `{pair}`"
                        );
                        Error::new(name, takes)
                    })
                })
                .collect::<Result<_, _>>()?;
            Ok(Some(RateLimits { named }))
        }
    }
}

fn roles(source: &Source) -> Result<Roles, Error> {
    let name = "NEXUS_ROLES";
    let list = source.get(name).unwrap_or("api,worker,sweeper");
    let mut roles = Roles {
        api: false,
        worker: false,
        sweeper: false,
    };
    for word in list.split(',').map(str::trim) {
        match word {
            "api" => roles.api = true,
            "worker" => roles.worker = true,
            "sweeper" => roles.sweeper = true,
            other => {
                return Err(Error::new(
                    name,
                    format!("takes api, worker, sweeper, not `{other}`"),
                ));
            }
        }
    }
    Ok(roles)
}

/// The logs' part.
///
/// # Errors
/// Names the variable.
pub fn log(source: &Source) -> Result<Log, Error> {
    let json = match source.get("NEXUS_LOG_FORMAT") {
        None | Some("text") => false,
        Some("json") => true,
        Some(other) => {
            return Err(Error::new(
                "NEXUS_LOG_FORMAT",
                format!("takes text or json, not `{other}`"),
            ));
        }
    };
    Ok(Log {
        filter: source.get("NEXUS_LOG").unwrap_or("info").to_owned(),
        json,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_and_named_by_one_text() {
        for (text, named) in [
            ("postgres", "postgres"),
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("s3://bucket/a/b/", "s3://bucket/a/b"),
            ("file:///var/lib/nexus/", "file:///var/lib/nexus"),
        ] {
            let place: Place = text.parse().unwrap();
            assert_eq!(place.to_string(), named);
            assert_eq!(named.parse::<Place>(), Ok(place));
        }
        for text in [
            "",
            "s3",
            "s3://",
            "s3:///a",
            "s3://a b",
            "s3://b/a//c",
            "file://a",
            "file:///",
            "gs://b",
        ] {
            let refused = text.parse::<Place>().unwrap_err();
            assert_eq!(refused.variable, BLOB_URL, "{text}");
        }
    }

    fn http_of(name: &str, value: &str) -> Result<Http, Error> {
        http(&Source::of([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn budgets_are_those_of_the_table_unless_named() {
        let of = |value: &str, family: &str| {
            let http = http_of("NEXUS_RATE_LIMITS", value).unwrap();
            http.rate_limits.map(|limits| limits.budget(family))
        };
        for (family, budget) in [
            ("default", 6_000),
            ("runs", 6_000),
            ("executor", 6_000),
            ("claim_status", 600),
            ("progress", 10_000),
            ("preview", 30),
            ("operator", 600),
        ] {
            assert_eq!(of("", family), Some(budget), "{family}");
            assert_eq!(of("off", family), None);
        }
        let named = "default=7, runs=3,operator=9";
        assert_eq!(of(named, "runs"), Some(3));
        assert_eq!(of(named, "executor"), Some(7));
        assert_eq!(of(named, "operator"), Some(9));
        assert_eq!(of(named, "claim_status"), Some(600));
        for wrong in [
            "on", "runs", "runs=", "runs=0", "runs=-1", "rums=1", "runs=1,",
        ] {
            let refused = http_of("NEXUS_RATE_LIMITS", wrong).unwrap_err();
            assert_eq!(refused.variable, "NEXUS_RATE_LIMITS", "{wrong}");
        }
    }

    #[test]
    fn origins_are_exact() {
        let read = |value: &str| http_of("NEXUS_CORS_ORIGINS", value).map(|h| h.cors_origins);
        let listed = read("https://app.example, http://localhost:5173,tauri://x").unwrap();
        assert_eq!(
            listed,
            ["https://app.example", "http://localhost:5173", "tauri://x"]
        );
        assert!(read("").unwrap().is_empty());
        for wrong in [
            "*",
            "null",
            "app.example",
            "https://*.example",
            "https://app.example/",
            "https://App.example",
            "https://",
            "https://a,",
        ] {
            assert_eq!(
                read(wrong).unwrap_err().variable,
                "NEXUS_CORS_ORIGINS",
                "{wrong}"
            );
        }
    }

    #[test]
    fn keys_of_s3_are_read_and_never_shown() {
        let source = Source::of([
            ("NEXUS_BLOB_URL".to_owned(), "s3://bucket/p".to_owned()),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), "hush".to_owned()),
        ]);
        let blobs = blobs(&source).unwrap();
        assert_eq!(blobs.aws["AWS_SECRET_ACCESS_KEY"].expose_secret(), "hush");
        assert!(!format!("{blobs:?}").contains("hush"));
    }
}
