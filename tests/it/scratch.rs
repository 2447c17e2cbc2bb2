//! A database of its own for each test, on the server that `NEXUS_TEST_DATABASE_URL` names.

use std::time::{Duration, Instant};

use nexus::config::{Config, Source};
use nexus::store::migrate;
use tokio_postgres::{Client, NoTls};

const DEFAULT_URL: &str = "postgres://postgres@127.0.0.1:6543/postgres";

/// A database that is dropped by [`Scratch::finish`].
pub struct Scratch {
    /// Its URL.
    pub url: String,
    /// A connection past every server under test.
    pub sql: Client,
    name: String,
}

fn server_url() -> String {
    std::env::var("NEXUS_TEST_DATABASE_URL").unwrap_or_else(|_| DEFAULT_URL.to_owned())
}

pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Scratch {
    /// An empty database.
    #[allow(clippy::disallowed_methods, reason = "a name that no other test has")]
    pub async fn empty() -> Self {
        let name = format!("nexus_it_{}", uuid::Uuid::new_v4().simple());
        let server = server_url();
        let admin = connect(&server).await;
        admin
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .unwrap();
        let (base, _) = server.rsplit_once('/').unwrap();
        let url = format!("{base}/{name}");
        let sql = connect(&url).await;
        Self { url, sql, name }
    }

    /// A migrated database.
    pub async fn migrated() -> Self {
        let scratch = Self::empty().await;
        scratch.migrate().await;
        scratch
    }

    pub async fn migrate(&self) {
        migrate::migrate(&self.config(&[]).database).await.unwrap();
    }

    /// A configuration on free ports, with these values over it.
    pub fn config(&self, values: &[(&str, &str)]) -> Config {
        let mut source = Source::default();
        source.set("NEXUS_DATABASE_URL", &self.url);
        source.set("NEXUS_LISTEN", "127.0.0.1:0");
        source.set("NEXUS_ADMIN_LISTEN", "127.0.0.1:0");
        source.set("NEXUS_DB_POOL", "8");
        source.set("NEXUS_OPERATOR_TOKEN", "operator");
        for (name, value) in values {
            source.set(name, *value);
        }
        Config::from_source(&source).unwrap()
    }

    /// Drops the database.
    pub async fn finish(self) {
        drop(self.sql);
        connect(&server_url())
            .await
            .batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name))
            .await
            .unwrap();
    }

    /// One number.
    pub async fn count(&self, sql: &str) -> i64 {
        self.sql.query_one(sql, &[]).await.unwrap().get(0)
    }
}

/// Polls until a condition holds; panics with the words after `limit`.
pub async fn eventually<F>(limit: Duration, what: &str, mut holds: impl FnMut() -> F) -> Duration
where
    F: Future<Output = bool>,
{
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}
