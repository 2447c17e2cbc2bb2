//! Reads of a claimed call's operations that take no lock: its frozen scope, a page of its trace,
//! whether there is something to observe (`operations.md` §3, §6).

use std::collections::BTreeMap;

use tokio_postgres::types::Type;

use super::{Error, Sql, Store, rows};
use crate::domain::json::Value;
use crate::domain::{AccountId, ExecutorId, PublicId, RunId, TaskKey, TaskNo};

/// A call's frozen context, where it is kept, and what stands above the call.
static SCOPE: Sql = Sql::new(
    "operations.scope",
    "SELECT t.task_no, coalesce(t.context_no, CASE WHEN i.context IS NOT NULL THEN t.task_no END) AS context_of,
            coalesce(h.context, i.context) AS context,
            ARRAY(WITH RECURSIVE above AS (
                    SELECT t.owner_no AS no WHERE t.owner_no IS NOT NULL
                    UNION
                    SELECT o.owner_no FROM above a
                     CROSS JOIN LATERAL (SELECT o.owner_no FROM tasks o WHERE o.account_id = r.account_id AND o.run_id = r.run_id
                                            AND o.task_no = a.no AND o.owner_no IS NOT NULL OFFSET 0) o)
                  SELECT no FROM above) AS ancestors
       FROM (SELECT * FROM runs r WHERE r.account_id = $1 AND r.public_id = $2 AND r.deleted_at IS NULL OFFSET 0) r
      CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id AND t.key = $3 OFFSET 0) t
       LEFT JOIN LATERAL (SELECT i.context FROM task_inputs i WHERE i.account_id = r.account_id AND i.run_id = r.run_id
                             AND i.task_no = t.task_no OFFSET 0) i ON true
       LEFT JOIN LATERAL (SELECT h.context FROM task_inputs h WHERE h.account_id = r.account_id AND h.run_id = r.run_id
                             AND h.task_no = t.context_no OFFSET 0) h ON true",
    &[Type::INT8, Type::UUID, Type::TEXT],
);

static RUNNERS: Sql = Sql::new(
    "operations.runners",
    "SELECT public_id, executor_id FROM executors WHERE account_id = $1 AND public_id = ANY ($2)",
    &[Type::INT8, Type::UUID_ARRAY],
);

/// A page of a call's trace: acceptances and observations by position, with the trace's end.
static TRACE: Sql = Sql::new(
    "operations.trace",
    "SELECT e.*, t.trace_end
       FROM (SELECT t.trace_end FROM tasks t WHERE t.account_id = $1 AND t.run_id = $2 AND t.task_no = $3) t
       LEFT JOIN LATERAL (
            SELECT * FROM (
                (SELECT o.position AS at, o.operation_key, o.request, o.receipt, o.refusal, NULL::text AS outcome
                   FROM task_operations o WHERE o.account_id = $1 AND o.run_id = $2 AND o.parent_no = $3 AND o.position > $4
                  ORDER BY o.position LIMIT $5)
                UNION ALL
                (SELECT o.observed_position, o.operation_key, NULL, NULL, NULL, o.outcome
                   FROM task_operations o WHERE o.account_id = $1 AND o.run_id = $2 AND o.parent_no = $3
                    AND o.observed_position > $4
                  ORDER BY o.observed_position LIMIT $5)) e
             ORDER BY e.at LIMIT $5) e ON true
      ORDER BY e.at",
    &[Type::INT8, Type::INT8, Type::INT4, Type::INT4, Type::INT8],
);

/// Whether an observation would have an answer: something is ready, the trace went on, or the call
/// is no longer at work.
static OBSERVABLE: Sql = Sql::new(
    "operations.observable",
    "SELECT t.status <> 'dispatched' OR t.trace_end > $4 OR r.status IN ('completed', 'canceled') OR r.force_stopped
            OR EXISTS (SELECT 1 FROM task_operations o WHERE o.account_id = $1 AND o.run_id = $2 AND o.parent_no = $3
                          AND o.observed_position IS NULL AND o.released_position IS NULL AND o.n_pending = 0)
       FROM tasks t
       JOIN runs r ON r.account_id = t.account_id AND r.run_id = t.run_id
      WHERE t.account_id = $1 AND t.run_id = $2 AND t.task_no = $3",
    &[Type::INT8, Type::INT8, Type::INT4, Type::INT4],
);

/// Those of these captures that outcomes which the call observed show.
static SEALED: Sql = Sql::new(
    "operations.sealed",
    "SELECT u.public_id
       FROM (SELECT * FROM runs r WHERE r.account_id = $1 AND r.public_id = $2 OFFSET 0) r
      CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id AND t.key = $3 OFFSET 0) t
      CROSS JOIN unnest($4::uuid[]) AS v(public_id)
       JOIN uploads u ON u.public_id = v.public_id AND u.account_id = r.account_id
       JOIN task_operation_uploads x ON x.account_id = r.account_id AND x.run_id = r.run_id AND x.parent_no = t.task_no
        AND x.upload_id = u.upload_id",
    &[Type::INT8, Type::UUID, Type::TEXT, Type::UUID_ARRAY],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&SCOPE, &RUNNERS, &TRACE, &OBSERVABLE, &SEALED];

/// What a call may author, as stored.
#[derive(Debug, Clone)]
pub struct StoredScope {
    /// The row that keeps it; none: nobody does.
    pub context_of: Option<TaskNo>,
    /// `{tools, model_defaults, environment?}`.
    pub context: Option<Value>,
    /// The rows above the call.
    pub ancestors: Vec<TaskNo>,
}

/// One event of a trace.
#[derive(Debug, Clone)]
pub struct TraceEvent {
    /// Its position.
    pub position: i32,
    /// The operation's key.
    pub key: String,
    /// Of an acceptance: the request, and its receipt or its refusal.
    pub accepted: Option<(Value, Result<Value, Value>)>,
    /// Of an observation: `{outcome}` or `{refusal}`.
    pub observed: Option<Value>,
}

/// A page of a trace.
#[derive(Debug, Clone)]
pub struct TracePage {
    /// In order.
    pub events: Vec<TraceEvent>,
    /// The end of the whole trace.
    pub end: i32,
}

impl Store {
    /// A call's frozen scope; none when there is no such row.
    ///
    /// # Errors
    /// A fault.
    pub async fn operation_scope(
        &self,
        account: AccountId,
        run: PublicId,
        key: &TaskKey,
    ) -> Result<Option<StoredScope>, Error> {
        let conn = self.conn().await?;
        let row = conn
            .query_opt(&SCOPE, &[&account.0, &run.0, &key.as_str()])
            .await?;
        row.map(|row| {
            let context: Option<String> = row.get("context");
            let context = context.map(|text| rows::json(&text, "task_inputs", "context"));
            let ancestors: Vec<i32> = row.get("ancestors");
            Ok(StoredScope {
                context_of: row.get::<_, Option<i32>>("context_of").map(TaskNo),
                context: context.transpose()?,
                ancestors: ancestors.into_iter().map(TaskNo).collect(),
            })
        })
        .transpose()
    }

    /// The inner ids of executors, as far as they exist; asks nothing when none is named.
    ///
    /// # Errors
    /// A fault.
    pub async fn executor_ids(
        &self,
        account: AccountId,
        ids: &[PublicId],
    ) -> Result<BTreeMap<PublicId, ExecutorId>, Error> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let conn = self.conn().await?;
        let found = conn.query(&RUNNERS, &[&account.0, &ids]).await?;
        let pair = |row: &tokio_postgres::Row| (PublicId(row.get(0)), ExecutorId(row.get(1)));
        Ok(found.iter().map(pair).collect())
    }

    /// A page of a call's trace beyond `after`.
    ///
    /// # Errors
    /// A fault.
    pub async fn trace(
        &self,
        account: AccountId,
        run: RunId,
        task: TaskNo,
        after: i32,
        limit: i64,
    ) -> Result<TracePage, Error> {
        const T: &str = "task_operations";
        let conn = self.conn().await?;
        let found = conn
            .query(&TRACE, &[&account.0, &run.0, &task.0, &after, &limit])
            .await?;
        let end = found.first().map_or(0, |row| row.get("trace_end"));
        let mut events = Vec::new();
        for row in &found {
            let Some(position) = row.get::<_, Option<i32>>("at") else {
                continue;
            };
            let json = |column: &'static str| {
                let text: Option<&str> = row.get(column);
                text.map(|text| rows::json(text, T, column)).transpose()
            };
            let response = match (json("receipt")?, json("refusal")?) {
                (Some(receipt), _) => Some(Ok(receipt)),
                (None, refusal) => refusal.map(Err),
            };
            events.push(TraceEvent {
                position,
                key: row.get("operation_key"),
                accepted: json("request")?.zip(response),
                observed: json("outcome")?,
            });
        }
        Ok(TracePage { events, end })
    }

    /// Whether an observation behind `after` would have an answer now.
    ///
    /// # Errors
    /// A fault.
    pub async fn is_observable(
        &self,
        account: AccountId,
        run: RunId,
        task: TaskNo,
        after: i32,
    ) -> Result<bool, Error> {
        let conn = self.conn().await?;
        let row = conn
            .query_opt(&OBSERVABLE, &[&account.0, &run.0, &task.0, &after])
            .await?;
        Ok(row.is_none_or(|row| row.get(0)))
    }

    /// Those of these captures that the call's observed outcomes show.
    ///
    /// # Errors
    /// A fault.
    pub async fn sealed_uploads(
        &self,
        account: AccountId,
        run: PublicId,
        key: &TaskKey,
        ids: &[PublicId],
    ) -> Result<Vec<PublicId>, Error> {
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let conn = self.conn().await?;
        let found = conn
            .query(&SEALED, &[&account.0, &run.0, &key.as_str(), &ids])
            .await?;
        Ok(found.iter().map(|row| PublicId(row.get(0))).collect())
    }
}
