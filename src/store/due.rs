//! What the sweeper has to look at: pages of due rows, in the order they came due
//! (`admission.md` §8). Reads, and one write that only moves the moment of the next look.
//!
//! Knows which index gives due rows without reading history. Does not know what settling means:
//! that is a command's, under the run lock.
//!
//! Invariants:
//! - the clock is a scalar sub-select: a volatile function beside the column could not bound the
//!   index scan, and each tick would read every open park;
//! - the due order is read from the index, never sorted: with stale statistics the planner would
//!   collect a whole backlog for each page (measured), so other ways cost too much for that
//!   transaction;
//! - conditions on other columns than the index's come after the page: every scanned row is paid
//!   for;
//! - [`postpone`] never waits for a row lock, so it cannot join a deadlock.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::tx::{Batch, Tx};
use super::{Error, Sql, Store};
use crate::domain::{AccountId, ExecutorId, ParkNo, PublicId, RunId, TaskNo, Timestamp};

/// Which share of the rows a sweeper looks after: `run_shard mod of = index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub index: u32,
    /// A power of two up to 64.
    pub of: u32,
}

impl Part {
    /// All rows.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    pub(super) fn numbers(self) -> (i32, i32) {
        // Both are at most 64.
        (
            i32::try_from(self.of).unwrap_or(1),
            i32::try_from(self.index).unwrap_or(0),
        )
    }
}

/// A place in the due order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueKey {
    /// When the row came due.
    pub due_at: Timestamp,
    /// Breaks ties.
    pub park: ParkNo,
}

/// A park whose time to be looked at has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DuePark {
    /// Its account.
    pub account: AccountId,
    /// Its run.
    pub run: RunId,
    /// Its run, as commands know it; none when the run is gone.
    pub run_id: Option<PublicId>,
    /// Its task.
    pub task: TaskNo,
    /// Its place in the order.
    pub key: DueKey,
    /// Whether its deadline has moved later since: not due yet after all.
    pub postponed: bool,
    /// How long ago it came due.
    pub late: Duration,
}

/// A run that is owed a scheduling pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwedRun {
    /// Its account.
    pub account: AccountId,
    /// The run.
    pub run: RunId,
    /// The run, as commands know it.
    pub run_id: PublicId,
}

// For the transaction alone, so it works through a transaction pooler.
static IN_ORDER: Sql = Sql::new(
    "due.in_order",
    "SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true),
            set_config('enable_seqscan', 'off', true), set_config('enable_incremental_sort', 'off', true),
            set_config('jit', 'off', true)",
    &[],
);

static PARKS: Sql = Sql::new(
    "due.parks",
    "SELECT p.*, r.public_id
       FROM (SELECT account_id, run_id, task_no, park_no, due_at,
                    deadline_at > (SELECT nexus_now()) AS postponed,
                    (extract(epoch FROM (SELECT nexus_now()) - due_at) * 1000)::bigint AS late_ms
               FROM parks
              WHERE NOT clock_frozen AND due_at <= (SELECT nexus_now())
                AND (due_at, park_no) > (coalesce($1, '-infinity'::timestamptz), $2)
                AND run_shard % $3 = $4
              ORDER BY due_at, park_no LIMIT $5) p
       LEFT JOIN LATERAL (SELECT public_id FROM runs
                           WHERE account_id = p.account_id AND run_id = p.run_id LIMIT 1) r ON true",
    &[
        Type::TIMESTAMPTZ,
        Type::INT8,
        Type::INT4,
        Type::INT4,
        Type::INT8,
    ],
);

// The last row of a window of the due order, if the order goes on behind it.
static WINDOW: Sql = Sql::new(
    "due.window",
    "SELECT due_at, park_no FROM parks
      WHERE NOT clock_frozen AND due_at <= (SELECT nexus_now())
        AND (due_at, park_no) > (coalesce($1, '-infinity'::timestamptz), $2)
      ORDER BY due_at, park_no OFFSET $3 LIMIT 1",
    &[Type::TIMESTAMPTZ, Type::INT8, Type::INT8],
);

static OTHERS: Sql = Sql::new(
    "due.others",
    "SELECT w.account_id, w.run_id, w.task_no, w.park_no, w.due_at, w.postponed, w.late_ms, r.public_id
       FROM (SELECT account_id, run_id, task_no, park_no, due_at,
                    deadline_at > (SELECT nexus_now()) AS postponed,
                    (extract(epoch FROM (SELECT nexus_now()) - due_at) * 1000)::bigint AS late_ms,
                    row_number() OVER (PARTITION BY account_id ORDER BY due_at, park_no) AS rank
               FROM parks
              WHERE NOT clock_frozen AND due_at <= coalesce($3, (SELECT nexus_now()))
                AND (due_at, park_no) > (coalesce($1, '-infinity'::timestamptz), $2)
                AND run_shard % $4 = $5 AND account_id <> ALL ($6)) w
       LEFT JOIN LATERAL (SELECT public_id FROM runs
                           WHERE account_id = w.account_id AND run_id = w.run_id LIMIT 1) r ON true
      WHERE w.rank <= $7
      ORDER BY w.rank, w.due_at, w.park_no LIMIT $8",
    &[
        Type::TIMESTAMPTZ,
        Type::INT8,
        Type::TIMESTAMPTZ,
        Type::INT4,
        Type::INT4,
        Type::INT8_ARRAY,
        Type::INT8,
        Type::INT8,
    ],
);

static POSTPONE: Sql = Sql::new(
    "due.postpone",
    "WITH late AS MATERIALIZED (
         SELECT p.account_id, p.run_id, p.task_no
           FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bigint[]) AS k (account_id, run_id, task_no, park_no)
           JOIN parks p USING (account_id, run_id, task_no, park_no)
          WHERE NOT p.clock_frozen AND p.due_at < p.deadline_at AND p.deadline_at > nexus_now()
            FOR UPDATE OF p SKIP LOCKED)
     UPDATE parks p SET due_at = p.deadline_at FROM late
      WHERE p.account_id = late.account_id AND p.run_id = late.run_id AND p.task_no = late.task_no",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT8_ARRAY],
);

// Accounts by index skip scan, a few runs of each in turn: an account with a long list hides
// nobody. Runs that are backed off stay out of the page. An account without a run to show still
// shows itself, or the rotation would end at it.
static SCHEDULABLE: Sql = Sql::new(
    "due.schedulable",
    "WITH RECURSIVE a AS (
         (SELECT account_id, 1 AS n FROM runs WHERE schedulable AND account_id < $1
           ORDER BY account_id DESC, run_id LIMIT 1)
          UNION ALL
         (SELECT next.account_id, a.n + 1 FROM a CROSS JOIN LATERAL (
              SELECT account_id FROM runs WHERE schedulable AND account_id < a.account_id
               ORDER BY account_id DESC, run_id LIMIT 1) next
           WHERE a.n < 64))
     SELECT a.account_id, r.run_id, r.public_id
       FROM a LEFT JOIN LATERAL (
            SELECT run_id, public_id, row_number() OVER () AS rank FROM (
                SELECT run_id, public_id FROM runs
                 WHERE schedulable AND account_id >= a.account_id AND account_id <= a.account_id
                   AND run_id % $2 = $3 AND run_id <> ALL ($4)
                 ORDER BY account_id DESC, run_id LIMIT 64) o) r ON true
      ORDER BY r.rank, a.account_id LIMIT $5",
    &[
        Type::INT8,
        Type::INT4,
        Type::INT4,
        Type::INT8_ARRAY,
        Type::INT8,
    ],
);

static LEAVING: Sql = Sql::new(
    "due.leaving",
    "SELECT account_id, executor_id FROM executors
      WHERE ((revoked_at IS NOT NULL AND revoke_settled_at IS NULL)
             OR (shutdown_at IS NOT NULL AND shutdown_generation IS NULL))
        AND (account_id, executor_id) > ($1, $2) AND executor_id % $3 = $4
      ORDER BY account_id, executor_id LIMIT $5",
    &[Type::INT8, Type::INT8, Type::INT4, Type::INT4, Type::INT8],
);

/// Running runs with a failure that may hold them, behind one run, and whether it does as far as rows
/// tell: nothing is ready or at work in the kernel, and every park is a claimed call, a question whose
/// run says nothing yet, or an approval. Pages first, then a probe each.
static UNJUDGED: Sql = Sql::new(
    "due.unjudged",
    "WITH page AS MATERIALIZED (
        SELECT account_id, run_id, public_id, attention_reason, n_ready + n_rounds + n_running + n_waits AS alive FROM runs
         WHERE status = 'running' AND n_unresolved > 0 AND run_id > $1
         ORDER BY run_id LIMIT $4)
     SELECT p.account_id, p.run_id, p.public_id,
            p.alive = 0 AND p.run_id % $2 = $3
            AND NOT EXISTS (SELECT FROM parks q WHERE q.account_id = p.account_id AND q.run_id = p.run_id
                               AND (q.kind = 'tool_call' AND q.claimed_at IS NULL
                                    OR q.kind = 'ask' AND p.attention_reason IS NOT NULL)) AS owed
       FROM page p ORDER BY p.run_id",
    &[Type::INT8, Type::INT4, Type::INT4, Type::INT8],
);

/// Graceful stops that have gone on for a day.
static DRAINS: Sql = Sql::new(
    "due.drains",
    "SELECT account_id, run_id, public_id FROM runs
      WHERE canceling_since IS NOT NULL AND completed_at IS NULL AND NOT force_stopped
        AND canceling_since <= nexus_now() - interval '24 hours'
        AND run_id % $1 = $2 AND run_id <> ALL ($3)
      ORDER BY canceling_since LIMIT $4",
    &[Type::INT4, Type::INT4, Type::INT8_ARRAY, Type::INT8],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &IN_ORDER,
    &DRAINS,
    &UNJUDGED,
    &PARKS,
    &WINDOW,
    &OTHERS,
    &POSTPONE,
    &SCHEDULABLE,
    &LEAVING,
];

fn due_park(row: &Row) -> DuePark {
    let late_ms: i64 = row.get("late_ms");
    DuePark {
        account: AccountId(row.get("account_id")),
        run: RunId(row.get("run_id")),
        run_id: row.get::<_, Option<uuid::Uuid>>("public_id").map(PublicId),
        task: TaskNo(row.get("task_no")),
        key: DueKey {
            due_at: row.get("due_at"),
            park: ParkNo(row.get("park_no")),
        },
        postponed: row.get("postponed"),
        late: Duration::from_millis(u64::try_from(late_ms).unwrap_or(0)),
    }
}

fn place(after: Option<DueKey>) -> (Option<Timestamp>, i64) {
    (after.map(|k| k.due_at), after.map_or(0, |k| k.park.0))
}

/// Reads by walking the index.
async fn in_order(
    store: &Store,
    sql: &'static Sql,
    params: Vec<&(dyn ToSql + Sync)>,
) -> Result<Vec<Row>, Error> {
    let mut batch = Batch::new();
    batch.add(&IN_ORDER, Vec::new());
    batch.add(sql, params);
    let (tx, mut answers) = Tx::begin_with(store.conn().await?, &batch).await?;
    tx.commit().await?;
    Ok(answers.pop().unwrap_or_default())
}

/// A page of due parks behind that place, in due order.
///
/// # Errors
/// A fault of the database.
pub async fn parks(
    store: &Store,
    part: Part,
    after: Option<DueKey>,
    limit: usize,
) -> Result<Vec<DuePark>, Error> {
    let (due_at, park) = place(after);
    let (of, index) = part.numbers();
    let limit = count(limit);
    let rows = in_order(store, &PARKS, vec![&due_at, &park, &of, &index, &limit]).await?;
    Ok(rows.iter().map(due_park).collect())
}

/// Due parks of other accounts than these, a few of each account, from a window of the due order
/// behind that place; and where the window ends, if the order goes on. So one account's backlog
/// costs the others a scan, never its settling.
///
/// # Errors
/// A fault of the database.
pub async fn parks_of_others(
    store: &Store,
    part: Part,
    after: Option<DueKey>,
    but: &[AccountId],
    each: usize,
    limit: usize,
) -> Result<(Vec<DuePark>, Option<DueKey>), Error> {
    /// Rows that one look may scan.
    const WINDOW_ROWS: i64 = 65_536;
    let (due_at, park) = place(after);
    let (of, index) = part.numbers();
    let but: Vec<i64> = but.iter().map(|a| a.0).collect();
    let window = in_order(store, &WINDOW, vec![&due_at, &park, &(WINDOW_ROWS - 1)]).await?;
    let end = window.first().map(|row| DueKey {
        due_at: row.get("due_at"),
        park: ParkNo(row.get("park_no")),
    });
    let until = end.map(|k| k.due_at);
    let rows = store
        .conn()
        .await?
        .query(
            &OTHERS,
            &[
                &due_at,
                &park,
                &until,
                &of,
                &index,
                &but,
                &count(each),
                &count(limit),
            ],
        )
        .await?;
    Ok((rows.iter().map(due_park).collect(), end))
}

/// Moves the next look at parks whose deadline moved later to that deadline, so that they leave the
/// page; rows that somebody holds, or that changed meanwhile, are left alone. Rows moved.
///
/// # Errors
/// A fault of the database.
pub async fn postpone(store: &Store, parks: &[DuePark]) -> Result<u64, Error> {
    let accounts: Vec<i64> = parks.iter().map(|p| p.account.0).collect();
    let runs: Vec<i64> = parks.iter().map(|p| p.run.0).collect();
    let tasks: Vec<i32> = parks.iter().map(|p| p.task.0).collect();
    let numbers: Vec<i64> = parks.iter().map(|p| p.key.park.0).collect();
    store
        .conn()
        .await?
        .execute(&POSTPONE, &[&accounts, &runs, &tasks, &numbers])
        .await
}

/// Runs that are owed a scheduling pass, of up to 64 accounts below that one (from the highest when
/// none is given), without those runs; and the lowest of these accounts, none when there is none
/// below.
///
/// # Errors
/// A fault of the database.
pub async fn schedulable(
    store: &Store,
    part: Part,
    below: Option<AccountId>,
    but: &[RunId],
    limit: usize,
) -> Result<(Vec<OwedRun>, Option<AccountId>), Error> {
    let (of, index) = part.numbers();
    let but: Vec<i64> = but.iter().map(|r| r.0).collect();
    let below = below.map_or(i64::MAX, |account| account.0);
    let limit = count(limit);
    let params: Vec<&(dyn ToSql + Sync)> = vec![&below, &of, &index, &but, &limit];
    let rows = in_order(store, &SCHEDULABLE, params).await?;
    let account = |row: &Row| AccountId(row.get("account_id"));
    let runs = rows
        .iter()
        .filter_map(|row| {
            Some(OwedRun {
                account: account(row),
                run: RunId(row.get::<_, Option<i64>>("run_id")?),
                run_id: PublicId(row.get("public_id")),
            })
        })
        .collect();
    Ok((runs, rows.iter().map(account).min()))
}

/// Runs whose graceful stop has gone on for a day, the oldest first, but for these.
///
/// # Errors
/// A fault of the database.
pub async fn drains(
    store: &Store,
    part: Part,
    but: &[RunId],
    limit: usize,
) -> Result<Vec<OwedRun>, Error> {
    let (of, index) = part.numbers();
    let but: Vec<i64> = but.iter().map(|r| r.0).collect();
    let limit = count(limit);
    let conn = store.conn().await?;
    let rows = conn.query(&DRAINS, &[&of, &index, &but, &limit]).await?;
    let owed = rows.iter().map(|row| OwedRun {
        account: AccountId(row.get("account_id")),
        run: RunId(row.get("run_id")),
        run_id: PublicId(row.get("public_id")),
    });
    Ok(owed.collect())
}

/// Runs that a failure may hold and nobody judged since their last call was claimed: those of a page
/// of runs behind `after`, and the last run of that page if another follows.
///
/// # Errors
/// A fault of the database.
pub async fn unjudged(
    store: &Store,
    part: Part,
    after: Option<RunId>,
    limit: usize,
) -> Result<(Vec<OwedRun>, Option<RunId>), Error> {
    let (of, index) = part.numbers();
    let most = count(limit);
    let conn = store.conn().await?;
    let after = after.map_or(0, |run| run.0);
    let rows = conn.query(&UNJUDGED, &[&after, &of, &index, &most]).await?;
    let last = rows.last().filter(|_| rows.len() == limit);
    let last = last.map(|row| RunId(row.get("run_id")));
    let owed = rows.iter().filter(|row| row.get("owed"));
    let owed = owed.map(|row| OwedRun {
        account: AccountId(row.get("account_id")),
        run: RunId(row.get("run_id")),
        run_id: PublicId(row.get("public_id")),
    });
    Ok((owed.collect(), last))
}

/// Executors whose revocation or shutdown still has rows to settle, behind that one.
///
/// # Errors
/// A fault of the database.
pub async fn leaving(
    store: &Store,
    part: Part,
    after: (AccountId, ExecutorId),
    limit: usize,
) -> Result<Vec<(AccountId, ExecutorId)>, Error> {
    let (of, index) = part.numbers();
    let rows = store
        .conn()
        .await?
        .query(
            &LEAVING,
            &[&after.0.0, &after.1.0, &of, &index, &count(limit)],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| {
            (
                AccountId(row.get("account_id")),
                ExecutorId(row.get("executor_id")),
            )
        })
        .collect())
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
