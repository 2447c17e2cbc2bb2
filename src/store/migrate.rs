//! Migrations: embedded files, forward only, applied once each in order under an advisory lock on
//! a direct connection (`dependencies.md`: an own migrator, since six parallel starts broke others).
//!
//! Invariants:
//! - a shipped file never changes (its checksum is compared); whoever comes second waits, then finds
//!   nothing to do; numbers ascend, and may have gaps that a later release fills;
//! - each file is one transaction, but for a file that opens with [`APART`]: its statements run one
//!   by one outside a transaction, as `CREATE INDEX CONCURRENTLY` must, so each of them is harmless
//!   to repeat;
//! - no statement waits long for a lock: whoever comes to a table behind a waiting `ALTER TABLE` waits
//!   with it, so behind a long reader all traffic would pile up. It gives up soon, lets the others
//!   pass and tries again, a bounded number of times ([`Patience`]).

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::Error;
use crate::config;

/// One migration file.
#[derive(Debug)]
pub struct Migration {
    /// Its number, ascending.
    pub version: i32,
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub sql: &'static str,
}

/// Every migration, ascending.
pub static MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "foundation",
        sql: include_str!("../../migrations/0001_foundation.sql"),
    },
    Migration {
        version: 3,
        name: "lists",
        sql: include_str!("../../migrations/0003_lists.sql"),
    },
    Migration {
        version: 4,
        name: "reads",
        sql: include_str!("../../migrations/0004_reads.sql"),
    },
    Migration {
        version: 5,
        name: "graph",
        sql: include_str!("../../migrations/0005_graph.sql"),
    },
    Migration {
        version: 6,
        name: "holds",
        sql: include_str!("../../migrations/0006_holds.sql"),
    },
    Migration {
        version: 7,
        name: "operations",
        sql: include_str!("../../migrations/0007_operations.sql"),
    },
];

/// The first line of a file whose statements run one by one, each ended by a `;` at the end of a line.
const APART: &str = "-- nexus: statements apart\n";

impl Migration {
    /// What is executed at a time: the file, or its statements.
    fn steps(&self) -> Vec<&'static str> {
        if !self.runs_apart() {
            return vec![self.sql];
        }
        self.sql
            .split_inclusive(";\n")
            .map(str::trim)
            .filter(|step| !step.is_empty())
            .collect()
    }

    fn runs_apart(&self) -> bool {
        self.sql.starts_with(APART)
    }
}

/// How long a migration waits for a lock, and how often it tries again.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The longest wait for one lock; everybody who comes to that table meanwhile waits too.
    pub lock: Duration,
    /// Tries.
    pub tries: u32,
    /// The pause after the first try; it doubles up to [`Patience::LONGEST_PAUSE`].
    pub pause: Duration,
}

impl Patience {
    /// The longest pause between two tries.
    pub const LONGEST_PAUSE: Duration = Duration::from_secs(10);
}

impl Default for Patience {
    /// A second a lock, about ten minutes in all.
    fn default() -> Self {
        Self {
            lock: Duration::from_secs(1),
            tries: 60,
            pause: Duration::from_millis(500),
        }
    }
}

/// Why migrations did not run.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The database said no.
    #[error("the database refused")]
    Store(#[from] Error),
    /// A shipped file was changed after it ran.
    #[error("migration {version} ({name}) ran with another text: shipped files never change")]
    Changed {
        /// Number.
        version: i32,
        /// Name.
        name: &'static str,
    },
    /// Migration failed.
    #[error("migration {version} ({name}) failed")]
    Failed {
        /// Number.
        version: i32,
        /// Name.
        name: &'static str,
        /// The server's error.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A lock was not to be had.
    #[error(
        "migration {version} ({name}) got no lock in {tries} tries: a long transaction holds the \
         table; end it, then migrate again"
    )]
    Locked {
        /// Number.
        version: i32,
        /// Name.
        name: &'static str,
        /// Tries.
        tries: u32,
        /// The server's error.
        #[source]
        source: tokio_postgres::Error,
    },
    /// TLS set-up.
    #[error(transparent)]
    Config(#[from] config::Error),
}

/// Where the schema stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The version up to which everything that this program knows has run, or a newer one that ran
    /// behind it; 0 when nothing has.
    pub current: i32,
    /// The newest version this program knows.
    pub known: i32,
}

impl Standing {
    /// Whether this program can work on the schema: everything it knows has run. A newer schema
    /// is fine: migrations stay compatible with the previous release.
    pub fn is_ready(self) -> bool {
        self.current >= self.known
    }
}

/// The newest version this program knows.
pub fn known_version() -> i32 {
    MIGRATIONS.last().map_or(0, |m| m.version)
}

/// The version a schema is at, by the versions that ran. A known one that did not run counts, though
/// newer ones did: releases may land in another order than they are numbered.
pub(super) fn version_of(ran: &[i32]) -> i32 {
    let missing = MIGRATIONS.iter().position(|m| !ran.contains(&m.version));
    match missing {
        Some(0) => 0,
        Some(n) => MIGRATIONS[n - 1].version,
        None => ran.iter().copied().max().unwrap_or(0),
    }
}

/// An advisory lock key of our own: "nexusmig" in ASCII.
const LOCK: i64 = 0x6e65_7875_736d_6967;

/// A connection past any pooler.
pub(super) async fn direct(config: &config::Database) -> Result<Client, MigrateError> {
    let pg = &config.direct;
    let client = match config.tls_connector()? {
        Some(tls) => spawn_connection(pg.connect(tls).await),
        None => spawn_connection(pg.connect(tokio_postgres::NoTls).await),
    };
    Ok(client?)
}

fn spawn_connection<S, T>(
    connected: Result<(Client, tokio_postgres::Connection<S, T>), tokio_postgres::Error>,
) -> Result<Client, Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio_postgres::tls::TlsStream + Unpin + Send + 'static,
{
    let (client, connection) = connected?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the migration connection ended");
        }
    });
    Ok(client)
}

/// Applies what is due; safe when several start at once, and beside traffic.
///
/// # Errors
/// [`MigrateError`]; what ran before the failing file stays.
pub async fn migrate(config: &config::Database) -> Result<Standing, MigrateError> {
    migrate_with(config, Patience::default()).await
}

/// The same with another patience for locks.
///
/// # Errors
/// [`MigrateError`]; what ran before the failing file stays.
pub async fn migrate_with(
    config: &config::Database,
    patience: Patience,
) -> Result<Standing, MigrateError> {
    let client = direct(config).await?;
    client
        .batch_execute("SET lock_timeout = 0; SET statement_timeout = 0")
        .await
        .map_err(Error::from)?;
    lock(&client).await?;
    let outcome = apply_due(&client, patience).await;
    // The lock goes with the session in any case.
    let _ = client
        .execute("SELECT pg_advisory_unlock($1)", &[&LOCK])
        .await;
    outcome
}

/// Waits for whoever migrates now. By asking again: a statement that waits inside the server holds a
/// snapshot, and the other one's `CREATE INDEX CONCURRENTLY` would wait for its end.
async fn lock(client: &Client) -> Result<(), Error> {
    const ASK_EVERY: Duration = Duration::from_millis(100);
    let ask = "SELECT pg_try_advisory_lock($1)";
    while !client.query_one(ask, &[&LOCK]).await?.get::<_, bool>(0) {
        tokio::time::sleep(ASK_EVERY).await;
    }
    Ok(())
}

async fn apply_due(client: &Client, patience: Patience) -> Result<Standing, MigrateError> {
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations (
                version int PRIMARY KEY, name text NOT NULL, checksum bytea NOT NULL,
                applied_at timestamptz NOT NULL DEFAULT clock_timestamp())",
        )
        .await
        .map_err(Error::from)?;
    let rows = client
        .query("SELECT version, checksum FROM schema_migrations", &[])
        .await
        .map_err(Error::from)?;
    let ran: std::collections::BTreeMap<i32, Vec<u8>> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    for migration in MIGRATIONS {
        let checksum: [u8; 32] = Sha256::digest(migration.sql.as_bytes()).into();
        match ran.get(&migration.version) {
            Some(known) if known[..] == checksum => {}
            Some(_) => {
                return Err(MigrateError::Changed {
                    version: migration.version,
                    name: migration.name,
                });
            }
            None => apply(client, patience, migration, &checksum).await?,
        }
    }
    standing_of(client).await.map_err(Into::into)
}

async fn apply(
    client: &Client,
    patience: Patience,
    migration: &Migration,
    checksum: &[u8],
) -> Result<(), MigrateError> {
    if migration.runs_apart() {
        for step in migration.steps() {
            let wait = waits(step, patience);
            patiently(client, patience, migration, wait, Step::Apart(step)).await?;
        }
        note(client, migration, checksum)
            .await
            .map_err(Error::from)?;
    } else {
        let whole = Step::Whole(checksum);
        patiently(client, patience, migration, patience.lock, whole).await?;
    }
    tracing::info!(
        version = migration.version,
        name = migration.name,
        "migrated"
    );
    Ok(())
}

/// What is repeated until it gets its locks.
#[derive(Clone, Copy)]
enum Step<'a> {
    /// One statement.
    Apart(&'a str),
    /// The file, and the note that it ran, in one transaction.
    Whole(&'a [u8]),
}

async fn take(
    client: &Client,
    migration: &Migration,
    step: Step<'_>,
) -> Result<(), tokio_postgres::Error> {
    match step {
        Step::Apart(statement) => client.batch_execute(statement).await,
        Step::Whole(checksum) => {
            client.batch_execute("BEGIN").await?;
            client.batch_execute(migration.sql).await?;
            note(client, migration, checksum).await?;
            client.batch_execute("COMMIT").await
        }
    }
}

/// Writes down that it ran.
async fn note(
    client: &Client,
    migration: &Migration,
    checksum: &[u8],
) -> Result<(), tokio_postgres::Error> {
    let sql = "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)";
    client
        .execute(sql, &[&migration.version, &migration.name, &checksum])
        .await
        .map(|_| ())
}

/// How long a statement may wait: one that is made to run beside traffic stands in nobody's way.
fn waits(step: &str, patience: Patience) -> Duration {
    if step.contains(" CONCURRENTLY ") {
        Duration::ZERO
    } else {
        patience.lock
    }
}

/// Takes a step until it gets its locks; `wait` of zero is for ever.
async fn patiently(
    client: &Client,
    patience: Patience,
    migration: &Migration,
    wait: Duration,
    step: Step<'_>,
) -> Result<(), MigrateError> {
    let (version, name) = (migration.version, migration.name);
    let set = format!("SET lock_timeout = {}", wait.as_millis());
    client.batch_execute(&set).await.map_err(Error::from)?;
    let mut pause = patience.pause;
    let mut tries = 0;
    loop {
        let Err(source) = take(client, migration, step).await else {
            return Ok(());
        };
        // The session must leave the failed transaction, or nothing more can be said through it.
        let _ = client.batch_execute("ROLLBACK").await;
        tries += 1;
        if source.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) {
            return Err(MigrateError::Failed {
                version,
                name,
                source,
            });
        }
        if tries >= patience.tries {
            return Err(MigrateError::Locked {
                version,
                name,
                tries,
                source,
            });
        }
        tracing::info!(version, name, tries, "waits for a lock; tries again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Patience::LONGEST_PAUSE);
    }
}

async fn standing_of(client: &Client) -> Result<Standing, Error> {
    let known = known_version();
    let exists: bool = client
        .query_one("SELECT to_regclass('schema_migrations') IS NOT NULL", &[])
        .await?
        .get(0);
    if !exists {
        return Ok(Standing { current: 0, known });
    }
    let rows = client
        .query("SELECT version FROM schema_migrations", &[])
        .await?;
    let ran: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    Ok(Standing {
        current: version_of(&ran),
        known,
    })
}

/// Where the schema stands; writes nothing.
///
/// # Errors
/// When the database cannot be reached.
pub async fn check(config: &config::Database) -> Result<Standing, MigrateError> {
    let client = direct(config).await?;
    Ok(standing_of(&client).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ascend_and_files_apart_fall_into_statements() {
        assert!(MIGRATIONS.is_sorted_by(|a, b| a.version < b.version));
        let apart = Migration {
            version: 1,
            name: "apart",
            sql: "-- nexus: statements apart\n-- why\nALTER TABLE a\n  ADD b int;\n\nCREATE INDEX CONCURRENTLY c ON a (b);\n",
        };
        let steps = apart.steps();
        assert_eq!(steps.len(), 2);
        assert!(steps[0].ends_with("ADD b int;"));
        assert_eq!(steps[1], "CREATE INDEX CONCURRENTLY c ON a (b);");
        let patience = Patience::default();
        assert_eq!(waits(steps[0], patience), patience.lock);
        assert_eq!(waits(steps[1], patience), Duration::ZERO);
    }

    #[test]
    fn a_known_version_that_did_not_run_counts_though_newer_ones_did() {
        let all: Vec<i32> = MIGRATIONS.iter().map(|m| m.version).collect();
        assert_eq!(version_of(&[]), 0);
        assert_eq!(version_of(&all), known_version());
        assert_eq!(version_of(&all[1..]), 0);
        let newer = [&all[..], &[1000]].concat();
        assert_eq!(version_of(&newer), 1000, "a newer schema is fine");
    }
}
