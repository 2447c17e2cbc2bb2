//! Postgres, the only truth: all SQL of Nexus lives here.
//!
//! Knows the schema and how to read and write it in few statements. Does not know HTTP, Redis, or
//! any rule: what to write was decided by the engine (`style.md`, "The store").
//!
//! Invariants:
//! - the lock is a value: only [`Store::lock_runs`] makes a [`RunTx`], and every write to a graph
//!   takes one. The claim's guarded update of one park row is the one exception
//!   (`architecture.md` §4);
//! - a connection goes back to the pool only when it is known to be outside a transaction, and no
//!   error spoke against it;
//! - time is the database's: decisions read it through the SQL function `nexus_now()` after the
//!   lock is held.

pub mod accounts;
pub mod apply;
pub mod births;
pub mod credentials;
pub mod due;
pub mod error;
pub mod executors;
pub mod feeds;
pub mod grants;
pub mod inbox;
pub mod leases;
pub mod leaving;
pub mod members;
pub mod migrate;
pub mod operations;
pub mod page;
mod pooled;
pub mod presence;
pub mod reads;
pub mod replicas;
pub mod retention;
mod rows;
pub mod run_tx;
pub mod runs;
pub mod served_tools;
pub mod shell;
pub mod sql;
pub mod test_clock;
pub mod test_databases;
pub mod tokens;
pub mod tombstones;
pub mod tx;
pub mod uploads;
pub mod views;
pub mod workspaces;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};

pub use error::{Error, Remedy};
pub use run_tx::{Append, First, Held, Locked, OperationFirst, RunTarget, RunTx};
pub use sql::{Sql, Statements};

use crate::config;
use pooled::Pooled;

/// What a store did: for the tests that count statements and round trips.
#[derive(Debug, Default)]
pub struct Meter {
    statements: AtomicU64,
    round_trips: AtomicU64,
    rows: AtomicU64,
}

/// One reading of a [`Meter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Statements sent, BEGIN and COMMIT included.
    pub statements: u64,
    /// Times the program waited for the server; a pipelined batch is one.
    pub round_trips: u64,
    /// Rows read.
    pub rows: u64,
}

impl Meter {
    pub(crate) fn sent(&self, statements: u64) {
        self.statements.fetch_add(statements, Ordering::Relaxed);
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// What was sent and read so far.
    pub fn reading(&self) -> Reading {
        Reading {
            statements: self.statements.load(Ordering::Relaxed),
            round_trips: self.round_trips.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
        }
    }
}

/// The database, pooled. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pool: Pool,
    statements: Statements,
    meter: Arc<Meter>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("statements", &self.statements)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// A pool over the configured database. Connects lazily: a database that is away now is not
    /// an error here.
    ///
    /// # Errors
    /// When the pool cannot be built (a TLS set-up that cannot work).
    pub fn new(config: &config::Database) -> Result<Self, config::Error> {
        let manager_config = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let pg = config.connect.clone();
        let manager = match config.tls_connector()? {
            Some(tls) => Manager::from_config(pg, tls, manager_config),
            None => Manager::from_config(pg, tokio_postgres::NoTls, manager_config),
        };
        let pool = Pool::builder(manager)
            .max_size(config.pool)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(Duration::from_secs(5)))
            .create_timeout(Some(Duration::from_secs(5)))
            .recycle_timeout(Some(Duration::from_secs(5)))
            .build()
            .map_err(|e| config::Error::new("NEXUS_DB_POOL", e.to_string()))?;
        Ok(Self {
            pool,
            statements: config.statements,
            meter: Arc::default(),
        })
    }

    /// The same database with a meter of its own: for what a replica does by itself.
    #[must_use]
    pub fn metered_apart(&self) -> Self {
        Self {
            meter: Arc::default(),
            ..self.clone()
        }
    }

    /// What this store sent and read so far.
    pub fn meter(&self) -> Reading {
        self.meter.reading()
    }

    /// How many connections the pool holds, and how many of them are free.
    pub fn pool_status(&self) -> (usize, usize) {
        let status = self.pool.status();
        (status.size, status.available)
    }

    /// A connection for reads and single statements; never for a transaction over a graph.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(crate) async fn conn(&self) -> Result<Conn, Error> {
        let object = Pooled::new(self.pool.get().await?);
        Ok(Conn {
            object,
            statements: self.statements,
            meter: self.meter.clone(),
        })
    }

    /// Whether the database answers, and how far its schema is.
    ///
    /// # Errors
    /// [`Error::Unavailable`] and its like.
    pub async fn ping(&self) -> Result<(), Error> {
        self.conn().await?.execute(&PING, &[]).await.map(|_| ())
    }

    /// The version the schema is at, as [`migrate::Standing`] tells it; 0 when no migration ran.
    ///
    /// # Errors
    /// [`Error::Unavailable`] and its like.
    pub async fn schema_version(&self) -> Result<i32, Error> {
        let conn = self.conn().await?;
        if conn.query_one(&SCHEMA_EXISTS, &[]).await?.get(0) {
            let rows = conn.query(&SCHEMA_VERSIONS, &[]).await?;
            let ran: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
            Ok(migrate::version_of(&ran))
        } else {
            Ok(0)
        }
    }

    /// The database's time.
    ///
    /// # Errors
    /// [`Error::Unavailable`] and its like.
    pub async fn now(&self) -> Result<crate::domain::Timestamp, Error> {
        let row = self.conn().await?.query_one(&NOW, &[]).await?;
        Ok(row.get(0))
    }
}

static PING: Sql = Sql::new("ping", "SELECT 1", &[]);
static NOW: Sql = Sql::new("now", "SELECT nexus_now()", &[]);

static SCHEMA_EXISTS: Sql = Sql::new(
    "schema_exists",
    "SELECT to_regclass('schema_migrations') IS NOT NULL",
    &[],
);
static SCHEMA_VERSIONS: Sql = Sql::new(
    "schema_versions",
    "SELECT version FROM schema_migrations",
    &[],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&PING, &NOW, &SCHEMA_EXISTS, &SCHEMA_VERSIONS];

/// One pooled connection, outside a transaction.
pub(crate) struct Conn {
    object: Pooled,
    statements: Statements,
    meter: Arc<Meter>,
}

impl Conn {
    pub(crate) async fn query(
        &self,
        sql: &'static Sql,
        params: sql::Params<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        self.meter.sent(1);
        let answer = sql::query(&self.object, self.statements, sql, params).await;
        let rows = self.object.judged(answer)?;
        self.meter.read(rows.len());
        Ok(rows)
    }

    pub(crate) async fn query_opt(
        &self,
        sql: &'static Sql,
        params: sql::Params<'_>,
    ) -> Result<Option<tokio_postgres::Row>, Error> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// For statements that always give a row (aggregates, INSERT … RETURNING of one row).
    pub(crate) async fn query_one(
        &self,
        sql: &'static Sql,
        params: sql::Params<'_>,
    ) -> Result<tokio_postgres::Row, Error> {
        self.query_opt(sql, params)
            .await?
            .ok_or_else(|| Error::inconsistent("-", sql.name, "a statement that gives one row"))
    }

    /// Rows changed.
    pub(crate) async fn execute(
        &self,
        sql: &'static Sql,
        params: sql::Params<'_>,
    ) -> Result<u64, Error> {
        self.meter.sent(1);
        let answer = sql::execute(&self.object, self.statements, sql, params).await;
        self.object.judged(answer)
    }

    /// Turns this connection into a transaction; what is dropped uncommitted is closed, not pooled.
    pub(crate) async fn begin(self) -> Result<tx::Tx, Error> {
        tx::Tx::begin(self.object, self.statements, self.meter).await
    }

    pub(crate) fn into_parts(self) -> (Pooled, Statements, Arc<Meter>) {
        (self.object, self.statements, self.meter)
    }
}
