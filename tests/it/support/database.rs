//! One database a test, cloned from a template that is migrated once per server.
//!
//! The template is named by a hash of the migrations, so a changed schema makes a new one, and
//! several checkouts share a server. It is built under a name of its own and renamed when it is
//! whole: a build that died half-way is never taken for one.

use nexus::config;
use nexus::engine::mint::Mint;
use nexus::store::{Statements, migrate};
use sha2::{Digest, Sha256};
use tokio_postgres::{Client, NoTls};

/// An advisory lock of the maintenance database: "nexustpl" in ASCII.
const LOCK: i64 = 0x6e65_7875_7374_706c;

/// A database that lives as long as this value.
pub struct TestDatabase {
    maintenance: String,
    /// Its name.
    pub name: String,
    /// Its URL.
    pub url: String,
    dropped: bool,
}

/// The maintenance URL that tests are given.
fn maintenance_url() -> String {
    std::env::var("NEXUS_TEST_DATABASE_URL").unwrap_or_else(|_| {
        panic!(
            "NEXUS_TEST_DATABASE_URL is not set: run `make test`, which starts a private Postgres, \
             or set it to a maintenance URL such as postgres://postgres@127.0.0.1:5432/postgres"
        )
    })
}

/// The same server, another database.
fn with_database(url: &str, name: &str) -> String {
    let (base, query) = url
        .split_once('?')
        .map_or((url, None), |(b, q)| (b, Some(q)));
    let server = match base.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.split('/').next().unwrap_or(rest)),
        None => panic!("NEXUS_TEST_DATABASE_URL takes a postgres:// URL"),
    };
    match query {
        Some(query) => format!("{server}/{name}?{query}"),
        None => format!("{server}/{name}"),
    }
}

/// A plain connection, without the pool's time-outs.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .unwrap_or_else(|e| panic!("cannot connect to the test server: {e}; run `make test`"));
    tokio::spawn(connection);
    client
}

fn template_name() -> String {
    let mut sha = Sha256::new();
    for migration in migrate::MIGRATIONS {
        sha.update(migration.sql.as_bytes());
        sha.update([0]);
    }
    let hash = sha.finalize();
    let hex: String = hash.iter().take(8).map(|b| format!("{b:02x}")).collect();
    format!("nexus_template_{hex}")
}

async fn exists(client: &Client, name: &str) -> bool {
    client
        .query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&name])
        .await
        .expect("pg_database can be read")
        .is_some()
}

async fn run(client: &Client, sql: &str) {
    client
        .batch_execute(sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}

async fn ensure_template(client: &Client, maintenance: &str, template: &str) {
    if exists(client, template).await {
        return;
    }
    client
        .execute("SELECT pg_advisory_lock($1)", &[&LOCK])
        .await
        .expect("the template lock is granted");
    if !exists(client, template).await {
        build_template(client, maintenance, template).await;
    }
    client
        .execute("SELECT pg_advisory_unlock($1)", &[&LOCK])
        .await
        .expect("the template lock is given back");
}

async fn build_template(client: &Client, maintenance: &str, template: &str) {
    let building = format!("{template}_building");
    run(
        client,
        &format!("DROP DATABASE IF EXISTS {building} WITH (FORCE)"),
    )
    .await;
    run(client, &format!("CREATE DATABASE {building}")).await;
    let url = with_database(maintenance, &building);
    let database =
        config::Database::from_url("NEXUS_TEST_DATABASE_URL", &url, 1, Statements::Prepared)
            .expect("the maintenance URL was good enough to connect");
    migrate::migrate(&database)
        .await
        .unwrap_or_else(|e| panic!("the migrations do not run: {e:?}"));
    // Statistics of the empty tables, and nobody inside: a template with a guest cannot be cloned.
    let guest = connect(&url).await;
    run(&guest, "ANALYZE").await;
    drop(guest);
    run(
        client,
        &format!("ALTER DATABASE {building} WITH ALLOW_CONNECTIONS false"),
    )
    .await;
    client
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1",
            &[&building],
        )
        .await
        .expect("one's own backends can be ended");
    run(
        client,
        &format!("ALTER DATABASE {building} RENAME TO {template}"),
    )
    .await;
}

impl TestDatabase {
    /// A fresh clone.
    pub async fn create() -> Self {
        Self::create_on(maintenance_url()).await
    }

    /// A fresh clone on that server.
    pub async fn create_on(maintenance: String) -> Self {
        let client = connect(&maintenance).await;
        let template = template_name();
        ensure_template(&client, &maintenance, &template).await;
        let name = format!("nexus_test_{}", Mint::new().base62(12).to_lowercase());
        run(
            &client,
            &format!("CREATE DATABASE {name} TEMPLATE {template}"),
        )
        .await;
        Self {
            url: with_database(&maintenance, &name),
            maintenance,
            name,
            dropped: false,
        }
    }

    /// A connection for looking at rows and breaking things.
    pub async fn connect(&self) -> Client {
        connect(&self.url).await
    }

    /// Drops it, whoever is still connected.
    pub async fn remove(mut self) {
        self.dropped = true;
        remove(&self.maintenance, &self.name).await;
    }
}

async fn remove(maintenance: &str, name: &str) {
    let client = connect(maintenance).await;
    run(
        &client,
        &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
    )
    .await;
}

impl Drop for TestDatabase {
    /// A test that failed or forgot [`TestDatabase::remove`] leaves nothing behind either.
    fn drop(&mut self) {
        if self.dropped {
            return;
        }
        let (maintenance, name) = (self.maintenance.clone(), self.name.clone());
        let worker = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime for cleaning up")
                .block_on(remove(&maintenance, &name));
        });
        // A failure here would hide the test's own.
        let _ = worker.join();
    }
}
