//! Sweeper leases: rows with a holder, a fencing token and an end, on the database's clock
//! (`admission.md` §7). Also what sweeps leave behind for people to see.
//!
//! Knows the lease protocol's statements. Does not know: when to stand, renew or stop
//! (`sweeper::lease`).
//!
//! Invariants:
//! - a lease changes hands only when it has ended, and its token then rises by one;
//! - renewing and releasing match holder **and** token, never the holder alone.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Error, Sql, Store};
use crate::domain::Timestamp;

/// What every lease of a sweeper partition is called: `sweep:0`, `sweep:1`, ….
pub const PARTITION_PREFIX: &str = "sweep:";

/// A lease that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The lease.
    pub name: String,
    /// Who holds it.
    pub holder: Uuid,
    /// The fencing token.
    pub token: i64,
}

/// What a holder finds when it looks at its lease before a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// Whether holder and token still stand.
    pub ours: bool,
    /// Into how many partitions sweeping is divided now.
    pub partitions: u32,
    /// The database's time.
    pub now: Timestamp,
}

/// One lease, as seen by candidates and people.
#[derive(Debug, Clone)]
pub struct Lease {
    /// Its name.
    pub name: String,
    /// Who held it last.
    pub holder: Uuid,
    /// The fencing token.
    pub token: i64,
    /// When it ends, unless renewed.
    pub expires_at: Timestamp,
}

/// What a candidate needs to know to stand.
#[derive(Debug, Clone)]
pub struct Field {
    /// Into how many partitions sweeping is divided.
    pub partitions: u32,
    /// Live replicas that stand too, at least one.
    pub candidates: u32,
    /// The database's time.
    pub now: Timestamp,
    /// Every lease that was ever granted.
    pub leases: Vec<Lease>,
}

/// What one sweep did last.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Its name.
    pub name: String,
    /// When it ran last, in any partition.
    pub last_run_at: Timestamp,
    /// Rows of that cycle.
    pub rows: i64,
    /// How far it is behind, in milliseconds; the worst partition counts.
    pub lag_ms: i64,
}

static ACQUIRE: Sql = Sql::new(
    "leases.acquire",
    "INSERT INTO sweeper_leases AS l (name, holder, token, expires_at)
     VALUES ($1, $2, 1, nexus_now() + $3 * interval '1 millisecond')
     ON CONFLICT (name) DO UPDATE
        SET holder = excluded.holder, token = l.token + 1,
            expires_at = nexus_now() + $3 * interval '1 millisecond'
      WHERE l.expires_at < nexus_now()
     RETURNING token",
    &[Type::TEXT, Type::UUID, Type::INT8],
);

static RENEW: Sql = Sql::new(
    "leases.renew",
    "UPDATE sweeper_leases SET expires_at = nexus_now() + $4 * interval '1 millisecond'
      WHERE name = $1 AND holder = $2 AND token = $3",
    &[Type::TEXT, Type::UUID, Type::INT8, Type::INT8],
);

static RELEASE: Sql = Sql::new(
    "leases.release",
    "UPDATE sweeper_leases SET expires_at = nexus_now()
      WHERE name = $1 AND holder = $2 AND token = $3",
    &[Type::TEXT, Type::UUID, Type::INT8],
);

static FENCE: Sql = Sql::new(
    "leases.fence",
    "SELECT EXISTS (SELECT FROM sweeper_leases WHERE name = $1 AND holder = $2 AND token = $3) AS ours,
            s.partitions, nexus_now() AS now
       FROM sweeper_settings s",
    &[Type::TEXT, Type::UUID, Type::INT8],
);

static FIELD: Sql = Sql::new(
    "leases.field",
    "SELECT s.partitions, nexus_now() AS now,
            (SELECT count(*) FROM replicas
              WHERE heartbeat_at > nexus_now() - interval '30 seconds'
                AND NOT draining AND 'sweeper' = ANY (roles)) AS candidates
       FROM sweeper_settings s",
    &[],
);

static LEASES: Sql = Sql::new(
    "leases.list",
    "SELECT name, holder, token, expires_at FROM sweeper_leases ORDER BY length(name), name",
    &[],
);

// A sweep's row is its name and partition; `forced` is a cycle that somebody asked for.
static SWEPT: Sql = Sql::new(
    "leases.swept",
    "INSERT INTO sweeps (name, last_run_at, rows, lag_ms) VALUES ($1, nexus_now(), $2, $3)
     ON CONFLICT (name) DO UPDATE
        SET last_run_at = excluded.last_run_at, rows = excluded.rows, lag_ms = excluded.lag_ms",
    &[Type::TEXT, Type::INT8, Type::INT8],
);

static SWEEPS: Sql = Sql::new(
    "leases.sweeps",
    "SELECT split_part(w.name, '/', 1) AS name, max(w.last_run_at) AS last_run_at,
            (array_agg(w.rows ORDER BY w.last_run_at DESC))[1] AS rows, max(w.lag_ms) AS lag_ms
       FROM sweeps w, sweeper_settings s
      WHERE split_part(w.name, '/', 2) = 'forced'
         OR split_part(w.name, '/', 2)::int < s.partitions
      GROUP BY 1 ORDER BY 1",
    &[],
);

static PARTITION: Sql = Sql::new(
    "leases.partition",
    "UPDATE sweeper_settings SET partitions = $1",
    &[Type::INT4],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &ACQUIRE, &RENEW, &RELEASE, &FENCE, &FIELD, &LEASES, &SWEPT, &SWEEPS, &PARTITION,
];

/// The name of a partition's lease.
pub fn partition_name(partition: u32) -> String {
    format!("{PARTITION_PREFIX}{partition}")
}

/// Takes a lease that has ended, or that nobody ever held; none when somebody holds it.
///
/// # Errors
/// A fault of the database.
pub async fn acquire(
    store: &Store,
    name: &str,
    holder: Uuid,
    ttl: Duration,
) -> Result<Option<Grant>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&ACQUIRE, &[&name, &holder, &millis(ttl)])
        .await?;
    Ok(row.map(|row| Grant {
        name: name.to_owned(),
        holder,
        token: row.get("token"),
    }))
}

/// Lengthens a lease; false: it is somebody else's now.
///
/// # Errors
/// A fault of the database: the lease may or may not have been lengthened.
pub async fn renew(store: &Store, grant: &Grant, ttl: Duration) -> Result<bool, Error> {
    let rows = store
        .conn()
        .await?
        .execute(
            &RENEW,
            &[&grant.name, &grant.holder, &grant.token, &millis(ttl)],
        )
        .await?;
    Ok(rows == 1)
}

/// Ends a lease now, so that another may take it at once.
///
/// # Errors
/// A fault of the database.
pub async fn release(store: &Store, grant: &Grant) -> Result<(), Error> {
    let conn = store.conn().await?;
    conn.execute(&RELEASE, &[&grant.name, &grant.holder, &grant.token])
        .await?;
    Ok(())
}

/// Looks at a lease before a batch.
///
/// # Errors
/// A fault of the database.
pub async fn fence(store: &Store, grant: &Grant) -> Result<Fence, Error> {
    let row = store
        .conn()
        .await?
        .query_one(&FENCE, &[&grant.name, &grant.holder, &grant.token])
        .await?;
    Ok(Fence {
        ours: row.get("ours"),
        partitions: partitions_of(&row)?,
        now: row.get("now"),
    })
}

/// What a candidate needs to know.
///
/// # Errors
/// A fault of the database.
pub async fn field(store: &Store) -> Result<Field, Error> {
    let conn = store.conn().await?;
    let row = conn.query_one(&FIELD, &[]).await?;
    let leases = conn.query(&LEASES, &[]).await?;
    let candidates: i64 = row.get("candidates");
    Ok(Field {
        partitions: partitions_of(&row)?,
        candidates: u32::try_from(candidates).unwrap_or(u32::MAX).max(1),
        now: row.get("now"),
        leases: leases.iter().map(lease).collect(),
    })
}

/// Every lease, by name.
///
/// # Errors
/// A fault of the database.
pub async fn list(store: &Store) -> Result<Vec<Lease>, Error> {
    let rows = store.conn().await?.query(&LEASES, &[]).await?;
    Ok(rows.iter().map(lease).collect())
}

/// Notes a cycle of a sweep: `partition` is its number, or `forced`.
///
/// # Errors
/// A fault of the database.
pub async fn swept(
    store: &Store,
    sweep: &str,
    partition: &str,
    rows: usize,
    lag: Duration,
) -> Result<(), Error> {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    let name = format!("{sweep}/{partition}");
    let conn = store.conn().await?;
    conn.execute(&SWEPT, &[&name, &rows, &millis(lag)]).await?;
    Ok(())
}

/// What every sweep did last, by name.
///
/// # Errors
/// A fault of the database.
pub async fn sweeps(store: &Store) -> Result<Vec<Sweep>, Error> {
    let rows = store.conn().await?.query(&SWEEPS, &[]).await?;
    Ok(rows
        .iter()
        .map(|row| Sweep {
            name: row.get("name"),
            last_run_at: row.get("last_run_at"),
            rows: row.get("rows"),
            lag_ms: row.get("lag_ms"),
        })
        .collect())
}

/// Divides sweeping into that many partitions: a power of two up to 64; leaders follow within a
/// tick.
///
/// # Errors
/// A fault of the database; another number is refused by the schema.
pub async fn set_partitions(store: &Store, partitions: u32) -> Result<(), Error> {
    let n = i32::try_from(partitions).unwrap_or(i32::MAX);
    store.conn().await?.execute(&PARTITION, &[&n]).await?;
    Ok(())
}

fn lease(row: &Row) -> Lease {
    Lease {
        name: row.get("name"),
        holder: row.get("holder"),
        token: row.get("token"),
        expires_at: row.get("expires_at"),
    }
}

fn partitions_of(row: &Row) -> Result<u32, Error> {
    let n: i32 = row.get("partitions");
    u32::try_from(n)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| Error::inconsistent("sweeper_settings", "partitions", n))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
