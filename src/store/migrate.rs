//! Migrations: embedded files, forward only, applied once each in order under an advisory lock on
//! a direct connection (`dependencies.md`: an own migrator, since six parallel starts broke others).
//!
//! Invariants: a shipped file never changes (its checksum is compared); each file is one
//! transaction; whoever comes second waits, then finds nothing to do.

use sha2::{Digest, Sha256};
use tokio_postgres::Client;

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
pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "foundation",
    sql: include_str!("../../migrations/0001_foundation.sql"),
}];

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
    /// TLS set-up.
    #[error(transparent)]
    Config(#[from] config::Error),
}

/// Where the schema stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The newest version that ran; 0 when none did.
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

/// An advisory lock key of our own: "nexusmig" in ASCII.
const LOCK: i64 = 0x6e65_7875_736d_6967;

async fn direct(config: &config::Database) -> Result<Client, MigrateError> {
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

/// Applies what is due; safe when several start at once.
///
/// # Errors
/// [`MigrateError`]; what ran before the failing file stays.
pub async fn migrate(config: &config::Database) -> Result<Standing, MigrateError> {
    let client = direct(config).await?;
    client
        .batch_execute("SET lock_timeout = 0; SET statement_timeout = 0")
        .await
        .map_err(Error::from)?;
    client
        .execute("SELECT pg_advisory_lock($1)", &[&LOCK])
        .await
        .map_err(Error::from)?;
    let outcome = apply_due(&client).await;
    // The lock goes with the session in any case.
    let _ = client
        .execute("SELECT pg_advisory_unlock($1)", &[&LOCK])
        .await;
    outcome
}

async fn apply_due(client: &Client) -> Result<Standing, MigrateError> {
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
            None => apply(client, migration, &checksum).await?,
        }
    }
    standing_of(client).await.map_err(Into::into)
}

async fn apply(
    client: &Client,
    migration: &Migration,
    checksum: &[u8],
) -> Result<(), MigrateError> {
    let failed = |source| MigrateError::Failed {
        version: migration.version,
        name: migration.name,
        source,
    };
    let applied = async {
        client.batch_execute("BEGIN").await?;
        client.batch_execute(migration.sql).await?;
        client
            .execute(
                "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
                &[&migration.version, &migration.name, &checksum],
            )
            .await?;
        client.batch_execute("COMMIT").await
    };
    if let Err(source) = applied.await {
        // The session must leave the failed transaction, or nothing more can be said through it.
        let _ = client.batch_execute("ROLLBACK").await;
        return Err(failed(source));
    }
    tracing::info!(
        version = migration.version,
        name = migration.name,
        "migrated"
    );
    Ok(())
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
    let row = client
        .query_one(
            "SELECT coalesce(max(version), 0) FROM schema_migrations",
            &[],
        )
        .await?;
    Ok(Standing {
        current: row.get(0),
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
