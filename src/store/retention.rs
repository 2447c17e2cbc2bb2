//! Deletes of what is too old: bounded statements over nothing that work depends on
//! (`admission.md` §8). None takes a run lock; all skip rows that somebody holds.
//!
//! Invariants: the age is judged by the database's clock in the statement itself, after the row is
//! held; a file is marked here, its bytes go, then its row (a command's work), so
//! whatever dies in between leaves a marked row, which the next look finds.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::due::Part;
use super::uploads::BlobRef;
use super::{Error, Sql, Store};
use crate::domain::{AccountId, PublicId, RunId, Timestamp, UploadId};

/// What one bounded delete did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleted {
    /// Rows deleted.
    pub rows: usize,
    /// How far past its age the oldest was.
    pub late: Duration,
}

static RECEIPTS: Sql = Sql::new(
    "retention.receipts",
    "WITH gone AS (
         DELETE FROM receipts WHERE ctid = ANY (ARRAY(
             SELECT ctid FROM receipts
              WHERE created_at < (SELECT nexus_now()) - interval '24 hours' AND receipt_id % $1 = $2
              ORDER BY created_at LIMIT $3 FOR UPDATE SKIP LOCKED))
         RETURNING created_at)
     SELECT count(*) AS rows,
            coalesce(extract(epoch FROM nexus_now() - interval '24 hours' - min(created_at)) * 1000, 0)::bigint AS late_ms
       FROM gone",
    &[Type::INT4, Type::INT4, Type::INT8],
);

// From now on nothing completes, binds or reads them. Those that an earlier look marked and nobody took
// away are met again.
static UPLOADS: Sql = Sql::new(
    "retention.uploads",
    "WITH due AS MATERIALIZED (
         SELECT account_id, upload_id FROM uploads
          WHERE bound_at IS NULL AND created_at < (SELECT nexus_now()) - interval '1 day'
            AND upload_id % $1 = $2 AND (created_at, upload_id) > (coalesce($3, '-infinity'::timestamptz), $4)
          ORDER BY created_at, upload_id LIMIT $5 FOR UPDATE SKIP LOCKED)
     UPDATE uploads u SET reclaimed_at = coalesce(u.reclaimed_at, nexus_now()) FROM due d
      WHERE u.account_id = d.account_id AND u.upload_id = d.upload_id
     RETURNING u.account_id, u.upload_id, u.public_id, u.store, u.created_at,
               (extract(epoch FROM nexus_now() - interval '1 day' - u.created_at) * 1000)::bigint AS late_ms",
    &[
        Type::INT4,
        Type::INT4,
        Type::TIMESTAMPTZ,
        Type::INT8,
        Type::INT8,
    ],
);

// Dead since: revoked, expired, of a revoked executor, or replaced by a token of a later epoch.
// Tokens are few and have no index by age: the sweep walks the key in windows.
static TOKENS: Sql = Sql::new(
    "retention.tokens",
    "WITH page AS MATERIALIZED (
         SELECT k.account_id, k.token_id, k.revoked_at, k.expires_at, k.credential_epoch,
                k.member_id, k.executor_id
           FROM tokens k WHERE (k.account_id, k.token_id) > ($1, $2)
          ORDER BY k.account_id, k.token_id LIMIT $5),
     gone AS (
         DELETE FROM tokens k USING page p
          WHERE k.account_id = p.account_id AND k.token_id = p.token_id AND p.token_id % $3 = $4
            AND least(p.revoked_at, p.expires_at,
                      (SELECT e.revoked_at FROM executors e
                        WHERE e.account_id = p.account_id AND e.executor_id = p.executor_id),
                      (SELECT min(n.created_at) FROM tokens n
                        WHERE n.account_id = p.account_id AND n.executor_id = p.executor_id
                          AND n.credential_epoch > p.credential_epoch),
                      (SELECT min(n.created_at) FROM tokens n
                        WHERE n.account_id = p.account_id AND n.executor_id IS NULL
                          AND n.member_id = p.member_id AND n.credential_epoch > p.credential_epoch))
                < nexus_now() - interval '30 days'
         RETURNING 1)
     SELECT (SELECT count(*) FROM gone) AS rows, count(*) AS scanned,
            (array_agg(account_id ORDER BY account_id DESC, token_id DESC))[1] AS last_account,
            (array_agg(token_id ORDER BY account_id DESC, token_id DESC))[1] AS last_token
       FROM page",
    &[Type::INT8, Type::INT8, Type::INT4, Type::INT4, Type::INT8],
);

static OPERATOR_TOKENS: Sql = Sql::new(
    "retention.operator_tokens",
    "DELETE FROM operator_tokens WHERE token_id = ANY (ARRAY(
         SELECT token_id FROM operator_tokens
          WHERE least(revoked_at, expires_at) < nexus_now() - interval '30 days' AND token_id % $1 = $2
          ORDER BY token_id LIMIT $3 FOR UPDATE SKIP LOCKED))",
    &[Type::INT4, Type::INT4, Type::INT8],
);

static REPLICAS: Sql = Sql::new(
    "retention.replicas",
    "WITH gone AS (
         DELETE FROM replicas WHERE replica_id = ANY (ARRAY(
             SELECT replica_id FROM replicas
              WHERE heartbeat_at < (SELECT nexus_now()) - interval '10 minutes'
              ORDER BY heartbeat_at LIMIT $1 FOR UPDATE SKIP LOCKED))
         RETURNING heartbeat_at)
     SELECT count(*) AS rows,
            coalesce(extract(epoch FROM nexus_now() - interval '10 minutes' - min(heartbeat_at)) * 1000, 0)::bigint AS late_ms
       FROM gone",
    &[Type::INT8],
);

// No index by age, which every settle would have to feed: the sweep walks the hosts that have items,
// from one to the next along the primary key, and looks at the oldest item of each. Items of a host
// are written under one lock, so their ages follow their numbers.
static EVENTS: Sql = Sql::new(
    "retention.events",
    "WITH RECURSIVE hosts AS (
         (SELECT e.account_id, e.host_id, e.created_at FROM run_events e WHERE (e.account_id, e.host_id) > ($1, $2)
           ORDER BY e.account_id, e.host_id, e.seq LIMIT 1)
         UNION ALL
         SELECT n.account_id, n.host_id, n.created_at FROM hosts h
          CROSS JOIN LATERAL (SELECT e.account_id, e.host_id, e.created_at FROM run_events e
                               WHERE (e.account_id, e.host_id) > (h.account_id, h.host_id)
                               ORDER BY e.account_id, e.host_id, e.seq LIMIT 1) n),
     page AS MATERIALIZED (SELECT * FROM hosts LIMIT $5),
     gone AS (
         DELETE FROM run_events WHERE ctid = ANY (ARRAY(
             SELECT o.ctid FROM page p
              CROSS JOIN LATERAL (SELECT e.ctid, e.created_at FROM run_events e
                                   WHERE e.account_id = p.account_id AND e.host_id = p.host_id ORDER BY e.seq LIMIT $6) o
              WHERE p.created_at < (SELECT nexus_now()) - interval '30 days' AND p.host_id % $3 = $4
                AND o.created_at < (SELECT nexus_now()) - interval '30 days' LIMIT $6))
         RETURNING created_at)
     SELECT (SELECT count(*) FROM gone) AS rows, count(*) AS scanned,
            (array_agg(account_id ORDER BY account_id DESC, host_id DESC))[1] AS last_account,
            (array_agg(host_id ORDER BY account_id DESC, host_id DESC))[1] AS last_host,
            coalesce((SELECT extract(epoch FROM nexus_now() - interval '30 days' - min(created_at)) * 1000 FROM gone), 0)::bigint
                AS late_ms
       FROM page",
    &[Type::INT8, Type::INT8, Type::INT4, Type::INT4, Type::INT8, Type::INT8],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &RECEIPTS,
    &EVENTS,
    &UPLOADS,
    &TOKENS,
    &OPERATOR_TOKENS,
    &REPLICAS,
];

fn deleted(row: &Row) -> Deleted {
    let late_ms: i64 = row.get("late_ms");
    Deleted {
        rows: rows(row),
        late: Duration::from_millis(u64::try_from(late_ms).unwrap_or(0)),
    }
}

fn rows(row: &Row) -> usize {
    usize::try_from(row.get::<_, i64>("rows")).unwrap_or(0)
}

/// Deletes receipts of more than 24 hours ago: their keys are new again (`conventions.md` §8).
///
/// # Errors
/// A fault of the database.
pub async fn receipts(store: &Store, part: Part, limit: i64) -> Result<Deleted, Error> {
    let (of, index) = part.numbers();
    let conn = store.conn().await?;
    let row = conn.query_one(&RECEIPTS, &[&of, &index, &limit]).await?;
    Ok(deleted(&row))
}

/// A place in the order in which files are reclaimed.
pub type UploadKey = (Timestamp, UploadId);

/// Files that are marked as reclaimed.
#[derive(Debug)]
pub struct Reclaimed {
    /// The files.
    pub blobs: Vec<BlobRef>,
    /// How far past its age the oldest was.
    pub late: Duration,
    /// The last one's place, if more may follow.
    pub next: Option<UploadKey>,
}

/// Marks up to `limit` files that nothing was bound to for a day, behind that place: whoever still
/// writes one writes no further byte, and nobody binds it. Bytes and rows are still there.
///
/// # Errors
/// A fault of the database.
pub async fn uploads(
    store: &Store,
    part: Part,
    after: Option<UploadKey>,
    limit: i64,
) -> Result<Reclaimed, Error> {
    let (of, index) = part.numbers();
    let (created_at, id) = (after.map(|k| k.0), after.map_or(0, |k| k.1.0));
    let conn = store.conn().await?;
    let rows = conn
        .query(&UPLOADS, &[&of, &index, &created_at, &id, &limit])
        .await?;
    let key = |row: &Row| -> UploadKey { (row.get("created_at"), UploadId(row.get("upload_id"))) };
    let is_full = i64::try_from(rows.len()).is_ok_and(|n| n == limit);
    let late_ms: i64 = rows.iter().map(|r| r.get("late_ms")).max().unwrap_or(0);
    Ok(Reclaimed {
        next: rows.iter().map(key).max().filter(|_| is_full),
        late: Duration::from_millis(u64::try_from(late_ms).unwrap_or(0)),
        blobs: rows
            .iter()
            .map(|row| BlobRef {
                account: AccountId(row.get("account_id")),
                id: UploadId(row.get("upload_id")),
                public_id: PublicId(row.get("public_id")),
                store: row.get("store"),
            })
            .collect(),
    })
}

/// Deletes tokens that have been dead for 30 days, in a window of the table behind that place; and
/// where the window ended, if the table goes on.
///
/// # Errors
/// A fault of the database.
pub async fn tokens(
    store: &Store,
    part: Part,
    after: (AccountId, i64),
    limit: i64,
) -> Result<(usize, Option<(AccountId, i64)>), Error> {
    let (of, index) = part.numbers();
    let row = store
        .conn()
        .await?
        .query_one(&TOKENS, &[&after.0.0, &after.1, &of, &index, &limit])
        .await?;
    let full = row.get::<_, i64>("scanned") == limit;
    let next = full.then(|| (AccountId(row.get("last_account")), row.get("last_token")));
    Ok((rows(&row), next))
}

/// Deletes feed items older than thirty days of the hosts behind that place, at most `limit`; and where
/// the window of hosts ended, if they go on.
///
/// # Errors
/// A fault of the database.
pub async fn events(
    store: &Store,
    part: Part,
    after: (AccountId, RunId),
    hosts: i64,
    limit: i64,
) -> Result<(Deleted, Option<(AccountId, RunId)>), Error> {
    let (of, index) = part.numbers();
    let row = store
        .conn()
        .await?
        .query_one(
            &EVENTS,
            &[&after.0.0, &after.1.0, &of, &index, &hosts, &limit],
        )
        .await?;
    let full = row.get::<_, i64>("scanned") == hosts;
    let next = full.then(|| {
        (
            AccountId(row.get("last_account")),
            RunId(row.get("last_host")),
        )
    });
    Ok((deleted(&row), next))
}

/// Deletes operator tokens that have been dead for 30 days. Rows deleted.
///
/// # Errors
/// A fault of the database.
pub async fn operator_tokens(store: &Store, part: Part, limit: i64) -> Result<usize, Error> {
    let (of, index) = part.numbers();
    let conn = store.conn().await?;
    let rows = conn
        .execute(&OPERATOR_TOKENS, &[&of, &index, &limit])
        .await?;
    Ok(usize::try_from(rows).unwrap_or(usize::MAX))
}

/// Deletes replicas that said nothing for ten minutes.
///
/// # Errors
/// A fault of the database.
pub async fn replicas(store: &Store, limit: i64) -> Result<Deleted, Error> {
    let row = store.conn().await?.query_one(&REPLICAS, &[&limit]).await?;
    Ok(deleted(&row))
}
