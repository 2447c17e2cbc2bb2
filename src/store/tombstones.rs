//! The rows of runs that were deleted thirty days ago, reclaimed (`admission.md` §8, `tombstones`).
//!
//! Children first, each statement bounded in rows, whatever the runs hold: a run's own row goes last,
//! so what is left after a crash is found again. No run lock: nothing writes to a deleted run.
//!
//! Invariant: a file is given up with the last run that shows it, and only while its row is held, so
//! that a commit which binds it again waits; its bytes go by the sweep of unbound ones.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::due::Part;
use super::retention::Deleted;
use super::tx::{Batch, Tx};
use super::{Error, Sql, Store};

static DUE: Sql = Sql::new(
    "tombstones.due",
    "SELECT account_id, run_id,
            (extract(epoch FROM nexus_now() - interval '30 days' - deleted_at) * 1000)::bigint AS late_ms
       FROM runs
      WHERE deleted_at IS NOT NULL AND deleted_at < (SELECT nexus_now()) - interval '30 days' AND run_id % $1 = $2
      ORDER BY deleted_at LIMIT $3",
    &[Type::INT4, Type::INT4, Type::INT8],
);

/// Rows of a table that belong to these runs, at most $3.
macro_rules! children {
    ($name:literal, $table:literal, $run:literal) => {
        Sql::new(
            concat!("tombstones.", $name),
            concat!(
                "DELETE FROM ", $table, " WHERE ctid = ANY (ARRAY(
                    SELECT c.ctid FROM unnest($1::bigint[], $2::bigint[]) AS d(account_id, run_id)
                     CROSS JOIN LATERAL (SELECT c.ctid FROM ", $table, " c WHERE c.account_id = d.account_id
                                            AND c.", $run, " = d.run_id LIMIT $3 OFFSET 0) c LIMIT $3))"
            ),
            &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8],
        )
    };
}

/// Every table that holds rows of a run, but for the bindings of files and the run itself.
#[rustfmt::skip]
static CHILDREN: [Sql; 12] = [
    children!("parks", "parks", "run_id"),
    children!("waits", "waits", "run_id"),
    children!("open_failures", "open_failures", "run_id"),
    children!("edges", "edges", "run_id"),
    children!("task_results", "task_results", "run_id"),
    children!("task_inputs", "task_inputs", "run_id"),
    children!("task_operation_uploads", "task_operation_uploads", "run_id"),
    children!("task_operation_results", "task_operation_results", "run_id"),
    children!("task_operations", "task_operations", "run_id"),
    children!("tasks", "tasks", "run_id"),
    children!("run_events", "run_events", "host_id"),
    children!("receipts", "receipts", "run_id"),
];

/// Bindings of these runs, with the rows of their files held; what somebody holds is left out.
static FILES_HELD: Sql = Sql::new(
    "tombstones.files_held",
    "SELECT b.account_id, b.run_id, b.upload_id, b.task_no
       FROM unnest($1::bigint[], $2::bigint[]) AS d(account_id, run_id)
      CROSS JOIN LATERAL (SELECT * FROM upload_bindings b WHERE b.account_id = d.account_id AND b.run_id = d.run_id
                           LIMIT $3 OFFSET 0) b
       JOIN uploads u ON u.account_id = b.account_id AND u.upload_id = b.upload_id
      LIMIT $3 FOR UPDATE OF u SKIP LOCKED",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8],
);

/// Behind the locks, so that it sees what was bound before them.
static FILES_UNBOUND: Sql = Sql::new(
    "tombstones.files_unbound",
    "WITH held AS MATERIALIZED (
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[]) AS h(account_id, run_id, upload_id, task_no)),
     gone AS (
        DELETE FROM upload_bindings b USING held h
         WHERE b.account_id = h.account_id AND b.run_id = h.run_id AND b.upload_id = h.upload_id AND b.task_no = h.task_no)
     UPDATE uploads u SET bound_at = NULL
       FROM (SELECT DISTINCT account_id, upload_id FROM held) f
      WHERE u.account_id = f.account_id AND u.upload_id = f.upload_id
        AND NOT EXISTS (SELECT FROM upload_bindings b
                         WHERE b.account_id = u.account_id AND b.upload_id = u.upload_id
                           AND (b.run_id, b.task_no) NOT IN (SELECT h.run_id, h.task_no FROM held h
                                 WHERE h.account_id = b.account_id AND h.upload_id = b.upload_id))",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY],
);

/// Only what has no rows left: another leader may still be at them, or hold a file.
static RUNS: Sql = Sql::new(
    "tombstones.runs",
    "DELETE FROM runs r USING unnest($1::bigint[], $2::bigint[]) AS d(account_id, run_id)
      WHERE r.account_id = d.account_id AND r.run_id = d.run_id AND r.deleted_at IS NOT NULL
        AND NOT EXISTS (SELECT FROM upload_bindings c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM waits c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM parks c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM open_failures c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM edges c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM task_results c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM task_inputs c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM task_operation_uploads c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM task_operation_results c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM task_operations c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM tasks c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)
        AND NOT EXISTS (SELECT FROM run_events c WHERE c.account_id = d.account_id AND c.host_id = d.run_id)
        AND NOT EXISTS (SELECT FROM receipts c WHERE c.account_id = d.account_id AND c.run_id = d.run_id)",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &DUE,
    &CHILDREN[0],
    &CHILDREN[1],
    &CHILDREN[2],
    &CHILDREN[3],
    &CHILDREN[4],
    &CHILDREN[5],
    &CHILDREN[6],
    &CHILDREN[7],
    &CHILDREN[8],
    &CHILDREN[9],
    &CHILDREN[10],
    &CHILDREN[11],
    &FILES_HELD,
    &FILES_UNBOUND,
    &RUNS,
];

/// The most rows that one statement deletes.
pub const ROWS: i64 = 5000;

/// Reclaims rows of at most `limit` runs deleted thirty days ago, at most [`ROWS`] a table; and
/// whether more are due.
///
/// # Errors
/// A fault of the database; what was deleted stays deleted, the next pass goes on.
pub async fn reclaim(store: &Store, part: Part, limit: i64) -> Result<(Deleted, bool), Error> {
    let (of, index) = part.numbers();
    let conn = store.conn().await?;
    let due = conn.query(&DUE, &[&of, &index, &limit]).await?;
    let late = due.first().map_or(0, |row| row.get::<_, i64>("late_ms"));
    let mut deleted = Deleted {
        rows: 0,
        late: Duration::from_millis(u64::try_from(late).unwrap_or(0)),
    };
    if due.is_empty() {
        return Ok((deleted, false));
    }
    let accounts: Vec<i64> = due.iter().map(|row| row.get("account_id")).collect();
    let runs: Vec<i64> = due.iter().map(|row| row.get("run_id")).collect();
    for children in &CHILDREN {
        let rows = conn.execute(children, &[&accounts, &runs, &ROWS]).await?;
        deleted.rows += usize::try_from(rows).unwrap_or(usize::MAX);
        if i64::try_from(rows).is_ok_and(|n| n == ROWS) {
            return Ok((deleted, true));
        }
    }
    drop(conn);
    let files = unbind(store, &accounts, &runs).await?;
    deleted.rows += files;
    if i64::try_from(files).is_ok_and(|n| n == ROWS) {
        return Ok((deleted, true));
    }
    let conn = store.conn().await?;
    let gone = conn.execute(&RUNS, &[&accounts, &runs]).await?;
    deleted.rows += usize::try_from(gone).unwrap_or(usize::MAX);
    // Runs whose files somebody holds wait for the next look.
    Ok((
        deleted,
        gone > 0 && i64::try_from(due.len()).is_ok_and(|n| n == limit),
    ))
}

/// Gives up files of these runs; how many bindings went.
async fn unbind(store: &Store, accounts: &[i64], runs: &[i64]) -> Result<usize, Error> {
    let mut batch = Batch::new();
    batch.add(&FILES_HELD, vec![&accounts, &runs, &ROWS]);
    let (tx, mut answers) = Tx::begin_with(store.conn().await?, &batch).await?;
    let held = answers.pop().unwrap_or_default();
    if held.is_empty() {
        tx.rollback().await;
        return Ok(0);
    }
    let column = |name: &str| -> Vec<i64> { held.iter().map(|row| row.get(name)).collect() };
    let (accounts, runs, files) = (column("account_id"), column("run_id"), column("upload_id"));
    let tasks: Vec<i32> = held.iter().map(|row| row.get("task_no")).collect();
    let mut batch = Batch::new();
    batch.add(&FILES_UNBOUND, vec![&accounts, &runs, &files, &tasks]);
    tx.commit_with(&batch).await?;
    Ok(held.len())
}
