//! Deletes of what is too old: bounded statements over nothing that work depends on
//! (`admission.md` §8). None takes a run lock; all skip rows that somebody holds.
//!
//! Invariants: the age is judged by the database's clock in the statement itself, after the row is
//! held; an upload's bytes go in the statement of its row, so neither is left without the other.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::due::Part;
use super::{Error, Sql, Store};
use crate::domain::AccountId;

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

// A batch is bounded by bytes as well as by rows: at least one upload, then up to 64 MiB, since a
// hundred large ones in one statement would meet its time-out for ever.
static UPLOADS: Sql = Sql::new(
    "retention.uploads",
    "WITH held AS MATERIALIZED (
         SELECT account_id, upload_id, byte_size, created_at FROM uploads
          WHERE bound_at IS NULL AND created_at < (SELECT nexus_now()) - interval '1 day'
            AND store = 'postgres' AND upload_id % $1 = $2
          ORDER BY created_at LIMIT $3 FOR UPDATE SKIP LOCKED),
     chosen AS (
         SELECT account_id, upload_id FROM (
             SELECT account_id, upload_id, byte_size,
                    sum(byte_size) OVER (ORDER BY created_at, upload_id) AS total FROM held) t
          WHERE total - byte_size < 67108864),
     gone AS (
         DELETE FROM uploads u USING chosen c
          WHERE u.account_id = c.account_id AND u.upload_id = c.upload_id
         RETURNING u.account_id, u.upload_id, u.created_at),
     bytes AS (
         DELETE FROM upload_chunks b USING gone g
          WHERE b.account_id = g.account_id AND b.upload_id = g.upload_id)
     SELECT count(*) AS rows, (SELECT count(*) FROM held) AS held,
            coalesce(extract(epoch FROM nexus_now() - interval '1 day' - min(created_at)) * 1000, 0)::bigint AS late_ms
       FROM gone",
    &[Type::INT4, Type::INT4, Type::INT8],
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

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&RECEIPTS, &UPLOADS, &TOKENS, &OPERATOR_TOKENS, &REPLICAS];

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

/// Deletes uploads that nothing was bound to for a day, with their bytes; and whether more are
/// due.
///
/// # Errors
/// A fault of the database.
pub async fn uploads(store: &Store, part: Part, limit: i64) -> Result<(Deleted, bool), Error> {
    let (of, index) = part.numbers();
    let conn = store.conn().await?;
    let row = conn.query_one(&UPLOADS, &[&of, &index, &limit]).await?;
    let gone = deleted(&row);
    let held: i64 = row.get("held");
    let more = held == limit || usize::try_from(held).is_ok_and(|held| held > gone.rows);
    Ok((gone, more))
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
