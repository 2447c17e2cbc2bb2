//! The variables of `nexus serve` as flags and as keys of the optional file, and the masked print
//! of what they come to (`operating.md` §3).
//!
//! Invariants: flags win over the environment, the environment over the file; no secret is printed.

use std::path::Path;

use clap::{Arg, ArgMatches, Command};

use crate::config::{self, Source};

/// What is hidden of a value that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mask {
    Nothing,
    Password,
    Everything,
}

/// One variable.
#[derive(Debug)]
struct Variable {
    name: &'static str,
    default: &'static str,
    mask: Mask,
    help: &'static str,
}

const fn plain(name: &'static str, default: &'static str, help: &'static str) -> Variable {
    Variable {
        name,
        default,
        mask: Mask::Nothing,
        help,
    }
}

const fn url(name: &'static str, default: &'static str, help: &'static str) -> Variable {
    Variable {
        name,
        default,
        mask: Mask::Password,
        help,
    }
}

const fn secret(name: &'static str, help: &'static str) -> Variable {
    Variable {
        name,
        default: "",
        mask: Mask::Everything,
        help,
    }
}

static VARIABLES: &[Variable] = &[
    url(
        "NEXUS_DATABASE_URL",
        "",
        "Postgres: a libpq URL, TLS by sslmode (or DATABASE_URL)",
    ),
    url(
        "NEXUS_DATABASE_DIRECT_URL",
        "",
        "Postgres for migrations, past a pooler; the database URL unless set",
    ),
    plain("NEXUS_DB_POOL", "16", "the most pooled connections"),
    plain(
        "NEXUS_DB_STATEMENTS",
        "prepared",
        "prepared, or unnamed behind a transaction pooler older than PgBouncer 1.21",
    ),
    url(
        "NEXUS_REDIS_URL",
        "",
        "redis:// or rediss:// (or REDIS_URL); unset: in-process, one replica only",
    ),
    plain(
        "NEXUS_REDIS_PREFIX",
        "default",
        "what keys and channels begin with",
    ),
    plain("NEXUS_LISTEN", "127.0.0.1:8080", "where the API listens"),
    plain("NEXUS_ADMIN_LISTEN", "127.0.0.1:9090", "where metrics are"),
    plain(
        "NEXUS_ROLES",
        "api,worker,sweeper",
        "what this replica does",
    ),
    secret("NEXUS_OPERATOR_TOKEN", "a bootstrap operator bearer"),
    secret(
        "NEXUS_KEY_RING",
        "id:base64[,id:base64…]: keys for provider credentials; the first encrypts",
    ),
    plain(
        "NEXUS_DRAIN_SECONDS",
        "30",
        "how long a graceful stop may take, 0 to 600",
    ),
    plain("NEXUS_RETRY_BASE_MS", "10000", "provider back-off"),
    plain(
        "NEXUS_ATTEMPT_LEASE_MS",
        "30000",
        "lease of a model attempt",
    ),
    plain(
        "NEXUS_SWEEPER_TTL_MS",
        "10000",
        "lease of a sweeper partition",
    ),
    plain(
        "NEXUS_RATE_LIMITS",
        "",
        "off, or family=n,… requests a minute; the documented table unless set",
    ),
    plain(
        "NEXUS_CORS_ORIGINS",
        "",
        "exact origins that browsers may call from, by comma",
    ),
    plain(
        "NEXUS_LOG",
        "info",
        "a filter such as info or nexus=debug,warn",
    ),
    plain("NEXUS_LOG_FORMAT", "text", "text or json"),
    plain(
        "NEXUS_TEST_CLOCK",
        "0",
        "1: tests may move the clock; never in production",
    ),
    plain("OTEL_EXPORTER_OTLP_ENDPOINT", "", "where traces go"),
];

/// Names that the environment or the file may use instead.
static ALIASES: &[&str] = &["DATABASE_URL", "REDIS_URL"];

/// The subcommand `serve`, with a flag for every variable.
pub fn serve_command() -> Command {
    with_variables(Command::new("serve").about("Runs the server"), |_| true).arg(
        Arg::new("print-config")
            .long("print-config")
            .num_args(0)
            .help("Print the configuration, secrets masked, and exit"),
    )
}

/// The subcommand `migrate`, with the flags of the database.
pub fn migrate_command() -> Command {
    let about = "Brings the database's schema up to date";
    with_variables(Command::new("migrate").about(about), is_of_database).arg(
        Arg::new("check")
            .long("check")
            .num_args(0)
            .help("Change nothing; exit 1 when migrations are due"),
    )
}

/// The subcommand `operator-token`: the bearers of operators, straight in the database, for a
/// deployment that has none yet (`conventions.md` §1).
pub fn operator_token_command() -> Command {
    let json = Arg::new("json")
        .long("json")
        .num_args(0)
        .help("Print one JSON object");
    let label = Arg::new("label")
        .long("label")
        .value_name("TEXT")
        .default_value("")
        .help("Whose it is, for people");
    let lookup = Arg::new("lookup")
        .value_name("LOOKUP")
        .required(true)
        .help("The 16 characters behind `sk-nexus-o1-`");
    let create = Command::new("create")
        .about("Mints one and prints it, this once")
        .args([label, json.clone()]);
    let revoke = Command::new("revoke")
        .about("Ends one")
        .args([lookup, json]);
    Command::new("operator-token")
        .about("The operators' own tokens, straight in the database")
        .subcommand_required(true)
        .subcommands([create, revoke].map(|c| with_variables(c, is_of_database)))
}

fn is_of_database(variable: &Variable) -> bool {
    variable.name.starts_with("NEXUS_D") && variable.mask == Mask::Password
}

fn with_variables(command: Command, wanted: impl Fn(&Variable) -> bool) -> Command {
    let config = Arg::new("NEXUS_CONFIG")
        .long("config")
        .value_name("FILE")
        .help("A file of NAME=value lines, below the environment and the flags [NEXUS_CONFIG]");
    VARIABLES
        .iter()
        .filter(|v| wanted(v))
        .fold(command.arg(config), |command, variable| {
            command.arg(
                Arg::new(variable.name)
                    .long(flag(variable.name))
                    .value_name("VALUE")
                    .hide_default_value(true)
                    .help(help(variable)),
            )
        })
}

/// `NEXUS_DB_POOL` is `--db-pool`.
fn flag(name: &str) -> String {
    name.strip_prefix("NEXUS_")
        .unwrap_or(name)
        .to_ascii_lowercase()
        .replace('_', "-")
}

fn help(variable: &Variable) -> String {
    if variable.default.is_empty() {
        format!("{} [{}]", variable.help, variable.name)
    } else {
        let (name, default) = (variable.name, variable.default);
        format!("{} [{name}, default {default}]", variable.help)
    }
}

/// The values of a command line over those of the environment over those of the file.
///
/// # Errors
/// A file that cannot be read, or that holds a name that means nothing.
pub fn source(matches: &ArgMatches, environment: Source) -> Result<Source, config::Error> {
    let mut flags = Source::default();
    for name in VARIABLES.iter().map(|v| v.name).chain(["NEXUS_CONFIG"]) {
        if let Ok(Some(value)) = matches.try_get_one::<String>(name) {
            flags.set(name, value);
        }
    }
    let source = flags.over(environment);
    match source.get("NEXUS_CONFIG").map(str::to_owned) {
        None => Ok(source),
        Some(path) => Ok(source.over(file(Path::new(&path))?)),
    }
}

fn file(path: &Path) -> Result<Source, config::Error> {
    let file = Source::file(path)?;
    let known = |name: &str| {
        VARIABLES.iter().any(|v| v.name == name)
            || ALIASES.contains(&name)
            || name.starts_with("OTEL_")
    };
    let strange = file.names().find(|name| !known(name)).map(str::to_owned);
    match strange {
        None => Ok(file),
        Some(name) => Err(config::Error::new(
            name,
            format!("is no variable of nexus serve (in {})", path.display()),
        )),
    }
}

/// Every variable with the value it comes to, as lines of such a file, secrets masked.
pub fn shown(source: &Source) -> String {
    let mut text = String::new();
    for variable in VARIABLES {
        let set = source.get(variable.name).or_else(|| match variable.name {
            "NEXUS_DATABASE_URL" => source.get("DATABASE_URL"),
            "NEXUS_REDIS_URL" => source.get("REDIS_URL"),
            _ => None,
        });
        let value = match (set, variable.mask) {
            (None, _) => variable.default.to_owned(),
            (Some(value), Mask::Nothing) => value.to_owned(),
            (Some(value), Mask::Password) => config::mask(value),
            (Some(_), Mask::Everything) => "***".to_owned(),
        };
        text.push_str(variable.name);
        text.push('=');
        text.push_str(&value);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Source {
        Source::of(
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        )
    }

    #[test]
    fn flags_win_over_the_environment() {
        let matches = serve_command()
            .try_get_matches_from(["serve", "--listen", "127.0.0.1:1", "--db-pool", "3"])
            .unwrap();
        let environment = pairs(&[("NEXUS_LISTEN", "127.0.0.1:2"), ("NEXUS_ROLES", "api")]);
        let source = source(&matches, environment).unwrap();
        assert_eq!(source.get("NEXUS_LISTEN"), Some("127.0.0.1:1"));
        assert_eq!(source.get("NEXUS_DB_POOL"), Some("3"));
        assert_eq!(source.get("NEXUS_ROLES"), Some("api"));
    }

    #[test]
    fn no_secret_is_shown() {
        let shown = shown(&pairs(&[
            ("DATABASE_URL", "postgres://u:hidden1@h/d"),
            ("NEXUS_REDIS_URL", "redis://u:hidden2@h"),
            ("NEXUS_OPERATOR_TOKEN", "hidden3"),
            ("NEXUS_KEY_RING", "a:hidden4"),
        ]));
        assert!(!shown.contains("hidden"), "{shown}");
        assert!(shown.contains("NEXUS_DATABASE_URL=postgres://u:***@h/d"));
        assert!(shown.contains("NEXUS_DRAIN_SECONDS=30"));
    }

    #[test]
    fn the_defaults_shown_are_those_that_are_used() {
        let database = ("NEXUS_DATABASE_URL", "postgres://u@h/d");
        let mut defaults = pairs(&[database]);
        for variable in VARIABLES.iter().filter(|v| !v.default.is_empty()) {
            defaults.set(variable.name, variable.default);
        }
        let stated = config::Config::from_source(&defaults).unwrap();
        let silent = config::Config::from_source(&pairs(&[database])).unwrap();
        assert_eq!(format!("{stated:?}"), format!("{silent:?}"));
    }
}
