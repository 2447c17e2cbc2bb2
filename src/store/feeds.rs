//! Member feeds: who may read one, what it holds after a position, and what an inbox holds that a
//! socket may have missed being told of (`runs.md` §13, `cable.md` §3, `architecture.md` §6).
//!
//! A standalone run is its own host. Conversations have no table yet: no identifier can name one.

use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::credentials::MemberCaller;
use super::{Error, Sql, Store};
use crate::domain::feed::Item;
use crate::domain::{AccountId, ExecutorId, MemberId, PublicId, RunId, TaskKey};

static RUN: Sql = Sql::new(
    "feeds.run",
    "SELECT r.run_id, r.event_seq
       FROM runs r
       JOIN workspaces w ON w.account_id = r.account_id AND w.workspace_id = r.workspace_id
       JOIN grants g ON g.account_id = r.account_id AND g.workspace_id = r.workspace_id
      WHERE r.account_id = $1 AND r.public_id = $4 AND w.public_id = $3 AND g.member_id = $2
        AND r.deleted_at IS NULL",
    &[Type::INT8, Type::INT8, Type::UUID, Type::UUID],
);

static READABLE: Sql = Sql::new(
    "feeds.readable",
    "SELECT q.place
       FROM unnest($1::int8[], $2::int8[], $3::int8[]) WITH ORDINALITY
            AS q(account_id, member_id, run_id, place)
       JOIN runs r ON r.account_id = q.account_id AND r.run_id = q.run_id
       JOIN grants g ON g.account_id = r.account_id AND g.workspace_id = r.workspace_id
                    AND g.member_id = q.member_id
      WHERE r.deleted_at IS NULL",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY],
);

static WATERMARK: Sql = Sql::new(
    "feeds.watermark",
    "SELECT event_seq FROM runs WHERE account_id = $1 AND run_id = $2",
    &[Type::INT8, Type::INT8],
);

static PAGE: Sql = Sql::new(
    "feeds.page",
    "SELECT seq, type, payload, created_at FROM run_events
      WHERE account_id = $1 AND host_id = $2 AND seq > $3
      ORDER BY seq LIMIT $4",
    &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
);

static AFTER: Sql = Sql::new(
    "feeds.after",
    "SELECT q.place, e.seq, e.type, e.payload, e.created_at
       FROM unnest($1::int8[], $2::int8[], $3::int8[]) WITH ORDINALITY
            AS q(account_id, run_id, after, place)
      CROSS JOIN LATERAL (
            SELECT seq, type, payload, created_at FROM run_events
             WHERE account_id = q.account_id AND host_id = q.run_id AND seq > q.after
             ORDER BY seq LIMIT $4) e
      ORDER BY q.place, e.seq",
    &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8,
    ],
);

static OLDEST_WORK: Sql = Sql::new(
    "feeds.oldest_work",
    "SELECT q.place, p.kind, r.public_id, t.key, t.tool_name
       FROM unnest($1::int8[], $2::int8[]) WITH ORDINALITY AS q(account_id, executor_id, place)
      CROSS JOIN LATERAL (
            SELECT u.* FROM (
                (SELECT p.account_id, p.run_id, p.task_no, p.kind, p.park_no FROM parks p
                  WHERE p.account_id = q.account_id AND p.executor_id = q.executor_id
                    AND p.claimed_at IS NULL AND p.kind <> 'wait' AND NOT p.clock_frozen
                  ORDER BY p.park_no LIMIT 1)
                UNION ALL
                (SELECT p.account_id, p.run_id, p.task_no, p.kind, p.park_no
                   FROM served_tools s
                   JOIN parks p ON p.account_id = s.account_id AND p.pool_name = s.name
                               AND p.executor_id IS NULL
                  WHERE s.account_id = q.account_id AND s.executor_id = q.executor_id
                    AND p.claimed_at IS NULL AND p.kind <> 'wait' AND NOT p.clock_frozen
                  ORDER BY p.park_no LIMIT 1)) u
             ORDER BY u.park_no LIMIT 1) p
       JOIN runs r ON r.account_id = p.account_id AND r.run_id = p.run_id
       JOIN tasks t ON t.account_id = p.account_id AND t.run_id = p.run_id AND t.task_no = p.task_no
      WHERE r.deleted_at IS NULL",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&RUN, &READABLE, &WATERMARK, &PAGE, &AFTER, &OLDEST_WORK];

/// The most items of one host that [`after`] gives at once.
pub const BATCH: usize = 200;

/// A run's feed that a member may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFeed {
    /// The host.
    pub run: RunId,
    /// The highest committed position.
    pub watermark: i64,
}

/// A member's reading of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reading {
    /// Account.
    pub account: AccountId,
    /// Who reads.
    pub member: MemberId,
    /// What.
    pub run: RunId,
}

/// A host and the position after which its items are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Account.
    pub account: AccountId,
    /// Host.
    pub run: RunId,
    /// Exclusive.
    pub after: i64,
}

/// A page of a host's items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Ascending, strictly after the position asked for.
    pub items: Vec<Item>,
    /// The highest committed position; outlives the items.
    pub watermark: i64,
}

/// A row that an executor could claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// `tool_call`, `ask` or `approval`.
    pub kind: String,
    /// Its run.
    pub run: PublicId,
    /// Its task.
    pub task_key: TaskKey,
    /// The tool, on tool calls and approvals.
    pub tool_name: Option<String>,
}

fn item(row: &Row) -> Item {
    Item {
        sequence: row.get("seq"),
        r#type: row.get("type"),
        payload: row.get("payload"),
        created_at: row.get("created_at"),
    }
}

/// The place of a row in the list asked about.
fn place(row: &Row) -> usize {
    let place: i64 = row.get("place");
    usize::try_from(place).unwrap_or(0).saturating_sub(1)
}

/// The feed of a run under its workspace, if the member may read it: none for what is missing,
/// foreign, concealed or deleted alike.
///
/// # Errors
/// A fault of the database.
pub async fn run(
    store: &Store,
    caller: &MemberCaller,
    workspace: PublicId,
    run: PublicId,
) -> Result<Option<RunFeed>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(
            &RUN,
            &[&caller.account.0, &caller.id.0, &workspace.0, &run.0],
        )
        .await?;
    Ok(row.map(|row| RunFeed {
        run: RunId(row.get("run_id")),
        watermark: row.get("event_seq"),
    }))
}

/// Which of these readings are still allowed: one answer each, in order, of one statement.
///
/// # Errors
/// A fault of the database.
pub async fn readable(store: &Store, readings: &[Reading]) -> Result<Vec<bool>, Error> {
    let mut readable = vec![false; readings.len()];
    if readings.is_empty() {
        return Ok(readable);
    }
    let accounts: Vec<i64> = readings.iter().map(|r| r.account.0).collect();
    let members: Vec<i64> = readings.iter().map(|r| r.member.0).collect();
    let runs: Vec<i64> = readings.iter().map(|r| r.run.0).collect();
    let conn = store.conn().await?;
    for row in conn.query(&READABLE, &[&accounts, &members, &runs]).await? {
        if let Some(slot) = readable.get_mut(place(&row)) {
            *slot = true;
        }
    }
    Ok(readable)
}

/// A page of a run's items strictly after a position, ascending, at most `limit` of them. The
/// watermark is read after the items, so it is never below the last of them.
///
/// # Errors
/// A fault of the database.
pub async fn page(
    store: &Store,
    account: AccountId,
    run: RunId,
    after: i64,
    limit: i64,
) -> Result<Page, Error> {
    let conn = store.conn().await?;
    let rows = conn
        .query(&PAGE, &[&account.0, &run.0, &after, &limit])
        .await?;
    let watermark = conn
        .query_opt(&WATERMARK, &[&account.0, &run.0])
        .await?
        .map_or(0, |row| row.get("event_seq"));
    Ok(Page {
        items: rows.iter().map(item).collect(),
        watermark,
    })
}

/// The items after each of these positions, ascending, at most [`BATCH`] of each: one answer each,
/// in order, of one statement. Asks nobody's leave.
///
/// # Errors
/// A fault of the database.
pub async fn after(store: &Store, positions: &[Position]) -> Result<Vec<Arc<[Item]>>, Error> {
    let mut found: Vec<Vec<Item>> = vec![Vec::new(); positions.len()];
    if !positions.is_empty() {
        let accounts: Vec<i64> = positions.iter().map(|p| p.account.0).collect();
        let runs: Vec<i64> = positions.iter().map(|p| p.run.0).collect();
        let after: Vec<i64> = positions.iter().map(|p| p.after).collect();
        let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
        let conn = store.conn().await?;
        for row in conn
            .query(&AFTER, &[&accounts, &runs, &after, &limit])
            .await?
        {
            if let Some(items) = found.get_mut(place(&row)) {
                items.push(item(&row));
            }
        }
    }
    Ok(found.into_iter().map(Into::into).collect())
}

/// The oldest open row of each of these executors' inboxes, if any: one answer each, in order, of
/// one statement. A nudge, not a listing: what may be claimed is judged by the claim.
///
/// # Errors
/// A fault of the database.
pub async fn oldest_work(
    store: &Store,
    executors: &[(AccountId, ExecutorId)],
) -> Result<Vec<Option<Work>>, Error> {
    let mut found = vec![None; executors.len()];
    if executors.is_empty() {
        return Ok(found);
    }
    let accounts: Vec<i64> = executors.iter().map(|(account, _)| account.0).collect();
    let ids: Vec<i64> = executors.iter().map(|(_, executor)| executor.0).collect();
    let conn = store.conn().await?;
    for row in conn.query(&OLDEST_WORK, &[&accounts, &ids]).await? {
        let public_id: Uuid = row.get("public_id");
        if let Some(slot) = found.get_mut(place(&row)) {
            *slot = Some(Work {
                kind: row.get("kind"),
                run: PublicId(public_id),
                task_key: TaskKey::trusted(row.get("key")),
                tool_name: row.get("tool_name"),
            });
        }
    }
    Ok(found)
}
