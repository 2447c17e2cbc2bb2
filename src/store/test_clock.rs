//! The one clock, moved by tests (`operating.md` §4, `POST /test_clock`).
//!
//! Every decision reads time through the SQL function `nexus_now()`. [`enable`] replaces its body
//! by one that adds `test_clock.offset_ms`, for every replica of the database at once; in
//! production it stays the inlined `clock_timestamp()`.
//!
//! A `LANGUAGE sql` body: measured beside plpgsql it costs half as much per call inside one
//! statement and a tie for one call a statement. Being volatile it takes a snapshot of its own, so
//! a transaction that waited for a lock sees an offset moved meanwhile.
//!
//! Does not know who may move the clock: the door does.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::tx::Batch;
use super::{Error, Sql, Store};
use crate::domain::Timestamp;

// Two replicas that replace one function at a time fail with "tuple concurrently updated".
static SERIALISE: Sql = Sql::new(
    "test_clock.serialise",
    "SELECT pg_advisory_xact_lock(7955925892226904939)",
    &[],
);

static IS_ENABLED: Sql = Sql::new(
    "test_clock.is_enabled",
    "SELECT strpos(prosrc, 'test_clock') > 0 FROM pg_proc WHERE oid = 'nexus_now()'::regprocedure",
    &[],
);

static ENABLE: Sql = Sql::new(
    "test_clock.enable",
    "CREATE OR REPLACE FUNCTION nexus_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
     $$ SELECT clock_timestamp() + offset_ms * interval '1 millisecond' FROM test_clock $$",
    &[],
);

static ADVANCE: Sql = Sql::new(
    "test_clock.advance",
    "UPDATE test_clock SET offset_ms = offset_ms + $1 WHERE $1 >= 0",
    &[Type::INT8],
);

static NOW: Sql = Sql::new("test_clock.now", "SELECT nexus_now()", &[]);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&SERIALISE, &IS_ENABLED, &ENABLE, &ADVANCE, &NOW];

/// Makes the clock of this database one that [`advance`] moves. Idempotent; safe when several
/// replicas start at once.
///
/// # Errors
/// A fault of the database; a role that may not replace the function.
pub async fn enable(store: &Store) -> Result<(), Error> {
    let mut tx = store.conn().await?.begin().await?;
    tx.query(&SERIALISE, &[]).await?;
    let rows = tx.query(&IS_ENABLED, &[]).await?;
    let mut last = Batch::new();
    if !rows.first().is_some_and(|row| row.get(0)) {
        last.add(&ENABLE, vec![]);
    }
    tx.commit_with(&last).await.map(|_| ())
}

/// Moves the clock forward, for every replica; gives the new time. Without [`enable`] it moves
/// nothing.
///
/// # Errors
/// A fault of the database.
pub async fn advance(store: &Store, by: Duration) -> Result<Timestamp, Error> {
    let ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    let conn = store.conn().await?;
    conn.execute(&ADVANCE, &[&ms]).await?;
    Ok(conn.query_one(&NOW, &[]).await?.get(0))
}
