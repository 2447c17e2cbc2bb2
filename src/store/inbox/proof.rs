//! Claim reads: whether a token is of the latest claim, and whether that claim lives
//! (`executor.md` §9).

use tokio_postgres::types::Type;

use super::{Error, ExecutorId, PublicId, RunId, Sql, Store, TaskKey, TaskNo, Timestamp, rows};
use crate::domain::AccountId;
use crate::domain::words::{TaskKind, TaskStatus};

/// Whether the token is of the latest claim, and whether that claim is still live.
static READ_CLAIM: Sql = Sql::new(
    "inbox.read_claim",
    "SELECT nexus_now() AS now, t.kind, t.status, t.tool_name, p.claimant_id AS live_by, p.claim_digest AS live_digest,
            t.claimed_by_id AS settled_by, t.claim_digest AS settled_digest, r.run_id, t.task_no,
            (p.deadline_at <= CASE WHEN r.status = 'paused' THEN r.paused_at ELSE nexus_now() END) AS elapsed
       FROM (SELECT * FROM runs r WHERE r.account_id = $1 AND r.public_id = $2 AND r.deleted_at IS NULL OFFSET 0) r
      CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id AND t.key = $3 OFFSET 0) t
       LEFT JOIN LATERAL (SELECT * FROM parks p WHERE p.account_id = t.account_id AND p.run_id = t.run_id
                             AND p.task_no = t.task_no OFFSET 0) p ON true",
    &[Type::INT8, Type::UUID, Type::TEXT],
);

static RUN_EXISTS: Sql = Sql::new(
    "inbox.run_exists",
    "SELECT EXISTS (SELECT FROM runs WHERE account_id = $1 AND public_id = $2 AND deleted_at IS NULL)",
    &[Type::INT8, Type::UUID],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&READ_CLAIM, &RUN_EXISTS];

/// What a claim read is judged on.
#[derive(Debug)]
pub struct ClaimState {
    /// Inner id of the run.
    pub run: RunId,
    /// Number in the run.
    pub task: TaskNo,
    /// The row's kind.
    pub kind: TaskKind,
    /// The row's state.
    pub status: TaskStatus,
    /// The claimant of the latest claim.
    pub by: Option<ExecutorId>,
    /// The digest of its token.
    pub digest: Option<Vec<u8>>,
    /// Whether its deadline has passed on the run's clock, or there is none any more.
    pub elapsed: bool,
    /// The served name of its tool, on tool calls.
    pub tool_name: Option<String>,
    /// The database's time.
    pub now: Timestamp,
}

impl Store {
    /// The two sides of a claim read: the task's claim (live or final), and its row.
    ///
    /// # Errors
    /// A fault.
    pub async fn read_claim(
        &self,
        account: AccountId,
        run: PublicId,
        key: &TaskKey,
    ) -> Result<Option<ClaimState>, Error> {
        let conn = self.conn().await?;
        let row = conn
            .query_opt(&READ_CLAIM, &[&account.0, &run.0, &key.as_str()])
            .await?;
        row.map(|row| {
            let live: Option<i64> = row.get("live_by");
            let (by, digest) = if live.is_some() {
                (live, row.get("live_digest"))
            } else {
                (row.get("settled_by"), row.get("settled_digest"))
            };
            Ok(ClaimState {
                run: RunId(row.get("run_id")),
                task: TaskNo(row.get("task_no")),
                kind: rows::word(&row, "tasks", "kind")?,
                status: rows::word(&row, "tasks", "status")?,
                by: by.map(ExecutorId),
                digest,
                elapsed: row.get::<_, Option<bool>>("elapsed").unwrap_or(true),
                tool_name: row.get("tool_name"),
                now: row.get("now"),
            })
        })
        .transpose()
    }

    /// Whether there is such a run in the account.
    ///
    /// # Errors
    /// A fault.
    pub async fn run_exists(&self, account: AccountId, run: PublicId) -> Result<bool, Error> {
        let conn = self.conn().await?;
        let row = conn.query_one(&RUN_EXISTS, &[&account.0, &run.0]).await?;
        Ok(row.get(0))
    }
}
