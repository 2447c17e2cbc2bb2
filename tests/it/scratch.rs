//! What the tests of sweeping and of a replica's life share: a database, with a connection past every
//! server under test, and configurations for servers on free ports.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use nexus::config::{Config, Source};
use nexus::store::migrate;
use tokio_postgres::Client;

use crate::support::database::TestDatabase;
pub use crate::support::database::connect;

/// A database and a way into it.
pub struct Scratch {
    /// Its URL.
    pub url: String,
    /// A connection past every server under test.
    pub sql: Client,
    database: TestDatabase,
}

impl Scratch {
    /// A migrated database.
    pub async fn migrated() -> Self {
        let database = TestDatabase::create().await;
        Self {
            url: database.url.clone(),
            sql: database.connect().await,
            database,
        }
    }

    /// One that no migration has seen.
    pub async fn empty() -> Self {
        let scratch = Self::migrated().await;
        scratch
            .sql
            .batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            .await
            .unwrap();
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
        self.database.remove().await;
    }

    /// One number.
    pub async fn count(&self, sql: &str) -> i64 {
        self.sql.query_one(sql, &[]).await.unwrap().get(0)
    }
}

/// Polls until a condition holds; panics with the words after `limit`. Tells how long it took.
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
