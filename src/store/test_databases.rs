//! Databases that killed tests left behind: each test has one of its own, which it drops; one that is
//! killed cannot.
//!
//! Invariants: only names that the test harness mints are touched; one that somebody is connected to
//! stays, and so does a young one: its test may be about to connect.

use std::time::Duration;

use super::{Error, migrate};
use crate::config;

/// Names as the harness mints them, nobody inside, and made so long ago.
const LEFT_BEHIND: &str = "
    SELECT d.datname::text FROM pg_database d
     WHERE d.datname ~ '^nexus_test_[0-9a-z]{12}$'
       AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datid = d.oid)
       AND (pg_stat_file('base/' || d.oid || '/PG_VERSION')).modification
           <= clock_timestamp() - $1 * interval '1 second'
     ORDER BY 1";

/// Drops those that are at least so old, by any database of their server; answers how many.
///
/// # Errors
/// A server that cannot be reached, or that does not let this user look.
pub async fn reclaim(server: &config::Database, age: Duration) -> Result<usize, Error> {
    let client = migrate::direct(server).await.map_err(|fault| match fault {
        migrate::MigrateError::Store(fault) => fault,
        other => Error::Unavailable(Box::new(other)),
    })?;
    let rows = client.query(LEFT_BEHIND, &[&age.as_secs_f64()]).await?;
    let mut dropped = 0;
    for row in rows {
        let name: &str = row.get(0);
        // Without FORCE: it fails when somebody came meanwhile.
        let drop = format!("DROP DATABASE IF EXISTS {name}");
        dropped += usize::from(client.batch_execute(&drop).await.is_ok());
    }
    Ok(dropped)
}
