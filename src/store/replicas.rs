//! The replicas that are up: for people to see, and for spreading leases; never proof that work is
//! lost (`admission.md` §10).

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Error, Sql, Store};
use crate::domain::Timestamp;

/// One replica.
#[derive(Debug, Clone)]
pub struct Replica {
    /// Its id, new at each start.
    pub id: Uuid,
    /// The program's version.
    pub version: String,
    /// What it does: `api`, `worker`, `sweeper`.
    pub roles: Vec<String>,
    /// When it last said so.
    pub heartbeat_at: Timestamp,
    /// Whether it is stopping.
    pub draining: bool,
}

static HEARTBEAT: Sql = Sql::new(
    "replicas.heartbeat",
    "INSERT INTO replicas (replica_id, version, roles, heartbeat_at, draining)
     VALUES ($1, $2, $3, nexus_now(), $4)
     ON CONFLICT (replica_id) DO UPDATE
        SET heartbeat_at = excluded.heartbeat_at, draining = excluded.draining",
    &[Type::UUID, Type::TEXT, Type::TEXT_ARRAY, Type::BOOL],
);

static LIST: Sql = Sql::new(
    "replicas.list",
    "SELECT replica_id, version, roles, heartbeat_at, draining FROM replicas ORDER BY replica_id",
    &[],
);

static REMOVE: Sql = Sql::new(
    "replicas.remove",
    "DELETE FROM replicas WHERE replica_id = $1",
    &[Type::UUID],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&HEARTBEAT, &LIST, &REMOVE];

/// Says that this replica is up.
///
/// # Errors
/// A fault of the database.
pub async fn heartbeat(
    store: &Store,
    id: Uuid,
    version: &str,
    roles: &[&str],
    draining: bool,
) -> Result<(), Error> {
    let conn = store.conn().await?;
    conn.execute(&HEARTBEAT, &[&id, &version, &roles, &draining])
        .await?;
    Ok(())
}

/// Every replica that was heard of in the last minutes, oldest first.
///
/// # Errors
/// A fault of the database.
pub async fn list(store: &Store) -> Result<Vec<Replica>, Error> {
    let rows = store.conn().await?.query(&LIST, &[]).await?;
    Ok(rows
        .iter()
        .map(|row| Replica {
            id: row.get("replica_id"),
            version: row.get("version"),
            roles: row.get("roles"),
            heartbeat_at: row.get("heartbeat_at"),
            draining: row.get("draining"),
        })
        .collect())
}

/// Says that this replica is gone.
///
/// # Errors
/// A fault of the database: the row is then deleted by age.
pub async fn remove(store: &Store, id: Uuid) -> Result<(), Error> {
    store.conn().await?.execute(&REMOVE, &[&id]).await?;
    Ok(())
}
