//! Runs: inserting one with its graph, the document, the list (`runs.md` §3, §6).

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::rows;
use super::tx::{Batch, Tx};
use super::views::{ExecutorRef, TaskView};
use super::{Error, Sql, Store};
use crate::domain::event::{ATTENTION_KEYS, Event, turn_status};
use crate::domain::json::Canonical;
use crate::domain::time::At;
use crate::domain::words::{ApprovalMode, AttentionReason, RunStatus};
use crate::domain::{
    AccountId, ExecutorId, MemberId, PublicId, RunId, TaskNo, Timestamp, WorkspaceId,
};
use crate::engine::author::Placed;
use crate::engine::compile::RouteVerdict;
use crate::engine::eligibility::{PrincipalFacts, is_eligible};

/// What a member may do in a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Whether it may write there.
    pub may_write: bool,
}

static STANDING: Sql = Sql::new(
    "runs.standing",
    "SELECT w.workspace_id, (g.access = 'write' AND w.archived_at IS NULL) AS may_write
       FROM workspaces w
       JOIN grants g ON g.account_id = w.account_id AND g.workspace_id = w.workspace_id AND g.member_id = $3
      WHERE w.account_id = $1 AND w.public_id = $2",
    &[Type::INT8, Type::UUID, Type::INT8],
);

/// What creating needs to know: the database's time, a run id, and the creator as a principal.
static BIRTH: Sql = Sql::new(
    "runs.birth",
    "SELECT nexus_now() AS now, nextval('run_id_seq') AS run_id, m.member_id AS principal_id, m.kind AS principal_kind,
            m.controlling_human_id, CASE WHEN m.kind = 'agent' THEN m.member_id END AS declaring_agent_id
       FROM members m WHERE m.account_id = $1 AND m.member_id = $2",
    &[Type::INT8, Type::INT8],
);

/// Runners by public id, and which of the named tools each announces.
static RUNNERS: Sql = Sql::new(
    "runs.runners",
    concat!(
        "SELECT ", rows::executor_columns!(), ",
            ARRAY(SELECT s.name FROM served_tools s WHERE s.account_id = e.account_id AND s.executor_id = e.executor_id
                     AND s.name = ANY($3)) AS serves
           FROM executors e LEFT JOIN members ea ON ea.account_id = e.account_id AND ea.member_id = e.agent_id
          WHERE e.account_id = $1 AND e.public_id = ANY($2)"
    ),
    &[Type::INT8, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

static RECEIPT: Sql = Sql::new(
    "runs.receipt",
    "SELECT c.fingerprint, c.body, r.public_id, c.created_at + interval '24 hours' < nexus_now() AS expired
       FROM receipts c
      CROSS JOIN LATERAL (SELECT r.public_id FROM runs r WHERE r.account_id = c.account_id AND r.run_id = c.run_id OFFSET 0) r
      WHERE c.account_id = $1 AND c.door = 'run_create' AND c.scope_id = $2 AND c.caller_id = $3 AND c.key = $4",
    &[Type::INT8, Type::INT8, Type::INT8, Type::TEXT],
);

/// An expired key is new again.
static RECEIPT_EXPIRE: Sql = Sql::new(
    "runs.receipt_expire",
    "DELETE FROM receipts WHERE account_id = $1 AND door = 'run_create' AND scope_id = $2 AND caller_id = $3 AND key = $4
        AND created_at + interval '24 hours' < nexus_now()",
    &[Type::INT8, Type::INT8, Type::INT8, Type::TEXT],
);

static INSERT_RECEIPT: Sql = Sql::new(
    "runs.insert_receipt",
    "INSERT INTO receipts (account_id, door, scope_id, caller_id, key, fingerprint, run_id, body, created_at)
     VALUES ($1, 'run_create', $2, $3, $4, $5, $6, $7, $8)",
    &[
        Type::INT8, Type::INT8, Type::INT8, Type::TEXT, Type::BYTEA, Type::INT8, Type::TEXT, Type::TIMESTAMPTZ,
    ],
);

static INSERT_RUN: Sql = Sql::new(
    "runs.insert_run",
    "INSERT INTO runs (account_id, run_id, public_id, workspace_id, creator_id, principal_id, declaring_agent_id, status,
            deliverable_no, mainline_tail_no, approval_mode, prompt_mechanism, default_runner_id, model_selection,
            fallback_models, n_tasks, n_open, n_ready, event_seq, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', $8, $9, $10, $11, $12, $13, $14, $15, $15, $16, $17, $18)",
    &[
        Type::INT8, Type::INT8, Type::UUID, Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::INT4, Type::INT4,
        Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT, Type::TEXT, Type::INT4, Type::INT4, Type::INT8,
        Type::TIMESTAMPTZ,
    ],
);

static INSERT_TASKS: Sql = Sql::new(
    "runs.insert_tasks",
    "INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, mark, detached, lifetime, wake,
            on_failure, fan_on_failure, visibility, barrier_no, lineage_no, tip_no, input_from, result_from, after_keys,
            remaining, tool_name, timeout_ms, target_executor_id, holder, join_mode, join_k, join_losers,
            join_successes, join_pending)
     SELECT $1, $2, v.task_no, v.key, v.kind, 'queued', v.authored_by, v.mark, v.detached, v.lifetime, v.wake,
            v.on_failure, v.fan_on_failure, v.visibility, v.barrier_no, v.task_no, v.task_no,
            v.input_from::int[], v.result_from::int[], v.after_keys::text[], v.remaining, v.tool_name, v.timeout_ms,
            v.target_executor_id, v.holder, v.join_mode, v.join_k, v.join_losers, v.join_successes, v.join_pending
       FROM unnest($3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::boolean[], $9::text[], $10::text[],
            $11::text[], $12::text[], $13::text[], $14::int[], $15::text[], $16::text[], $17::text[], $18::int[],
            $19::text[], $20::bigint[], $21::bigint[], $22::text[], $23::text[], $24::int[], $25::text[], $26::int[],
            $27::int[])
         AS v(task_no, key, kind, authored_by, mark, detached, lifetime, wake, on_failure, fan_on_failure, visibility,
            barrier_no, input_from, result_from, after_keys, remaining, tool_name, timeout_ms, target_executor_id,
            holder, join_mode, join_k, join_losers, join_successes, join_pending)",
    &[
        Type::INT8, Type::INT8, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::BOOL_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY,
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY,
        Type::INT4_ARRAY, Type::INT4_ARRAY,
    ],
);

static INSERT_INPUTS: Sql = Sql::new(
    "runs.insert_inputs",
    "INSERT INTO task_inputs (account_id, run_id, task_no, tool_input, definition, context)
     SELECT $1, $2, * FROM unnest($3::int[], $4::text[], $5::text[], $6::text[])",
    &[
        Type::INT8,
        Type::INT8,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
    ],
);

static INSERT_EDGES: Sql = Sql::new(
    "runs.insert_edges",
    "INSERT INTO edges (account_id, run_id, from_no, to_no, ordinal, structural, state)
     SELECT $1, $2, * FROM unnest($3::int[], $4::int[], $5::int[], $6::boolean[], $7::text[])",
    &[
        Type::INT8,
        Type::INT8,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::BOOL_ARRAY,
        Type::TEXT_ARRAY,
    ],
);

static INSERT_EVENTS: Sql = Sql::new(
    "runs.insert_events",
    "INSERT INTO run_events (account_id, host_id, seq, type, payload, created_at)
     SELECT $1, $2, v.seq, v.type, v.payload, $6 FROM unnest($3::bigint[], $4::text[], $5::text[]) AS v(seq, type, payload)",
    &[Type::INT8, Type::INT8, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TIMESTAMPTZ],
);

static DOCUMENT: Sql = Sql::new(
    "runs.document",
    "SELECT r.run_id, r.public_id, r.status, r.failure_reason, r.attention_reason, r.attention_keys, r.approval_mode,
            r.prompt_mechanism, r.created_at, r.started_at, r.paused_at, r.completed_at, d.key AS deliverable_key,
            e.public_id AS runner_public_id, e.display_name AS runner_name
       FROM runs r
       LEFT JOIN LATERAL (SELECT d.key FROM tasks d WHERE d.account_id = r.account_id AND d.run_id = r.run_id
                             AND d.task_no = r.deliverable_no OFFSET 0) d ON true
       LEFT JOIN executors e ON e.account_id = r.account_id AND e.executor_id = r.default_runner_id
      WHERE r.account_id = $1 AND r.workspace_id = $2 AND r.public_id = $3 AND r.deleted_at IS NULL",
    &[Type::INT8, Type::INT8, Type::UUID],
);

static LIST_ASC: Sql = Sql::new(
    "runs.list_asc",
    "SELECT r.public_id, r.status, r.failure_reason, r.attention_reason, r.created_at FROM runs r
      WHERE r.account_id = $1 AND r.workspace_id = $2 AND r.deleted_at IS NULL AND r.public_id > $3
        AND (cardinality($4::text[]) = 0 OR r.status = ANY($4)) AND (NOT $5 OR r.attention_reason IS NOT NULL)
      ORDER BY r.public_id LIMIT $6",
    &[Type::INT8, Type::INT8, Type::UUID, Type::TEXT_ARRAY, Type::BOOL, Type::INT8],
);

static LIST_DESC: Sql = Sql::new(
    "runs.list_desc",
    "SELECT r.public_id, r.status, r.failure_reason, r.attention_reason, r.created_at FROM runs r
      WHERE r.account_id = $1 AND r.workspace_id = $2 AND r.deleted_at IS NULL AND r.public_id < $3
        AND (cardinality($4::text[]) = 0 OR r.status = ANY($4)) AND (NOT $5 OR r.attention_reason IS NOT NULL)
      ORDER BY r.public_id DESC LIMIT $6",
    &[Type::INT8, Type::INT8, Type::UUID, Type::TEXT_ARRAY, Type::BOOL, Type::INT8],
);

static FIND: Sql = Sql::new(
    "runs.find",
    "SELECT run_id FROM runs WHERE account_id = $1 AND workspace_id = $2 AND public_id = $3 AND deleted_at IS NULL",
    &[Type::INT8, Type::INT8, Type::UUID],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &STANDING,
    &BIRTH,
    &RUNNERS,
    &RECEIPT,
    &RECEIPT_EXPIRE,
    &INSERT_RECEIPT,
    &INSERT_RUN,
    &INSERT_TASKS,
    &INSERT_INPUTS,
    &INSERT_EDGES,
    &INSERT_EVENTS,
    &DOCUMENT,
    &LIST_ASC,
    &LIST_DESC,
    &FIND,
];

/// The unique index that a second use of a create's key meets.
pub const CREATE_RECEIPT: &str = "receipts_account_id_door_scope_id_caller_id_key_key";

/// What creating needs to know.
#[derive(Debug)]
pub struct Birth {
    /// The database's time.
    pub now: Timestamp,
    /// The run's inner id.
    pub run: RunId,
    /// The creator, as a principal.
    pub principal: PrincipalFacts,
}

/// A runner that an envelope or a run names.
#[derive(Debug, Clone)]
pub struct Runner {
    /// Inner id.
    pub id: ExecutorId,
    /// Public id.
    pub public_id: PublicId,
    /// Whether it may do the principal's work.
    pub eligible: bool,
    /// Which of the named tools it announces.
    pub serves: Vec<String>,
}

impl Runner {
    /// What a route to it, for that tool, comes to.
    pub fn verdict(&self, tool: &str) -> RouteVerdict {
        if !self.eligible {
            RouteVerdict::NotEligible
        } else if self.serves.iter().any(|name| name == tool) {
            RouteVerdict::Served
        } else {
            RouteVerdict::NotServed
        }
    }
}

/// A stored receipt.
#[derive(Debug)]
pub struct StoredReceipt {
    /// What the key was used for.
    pub fingerprint: Vec<u8>,
    /// The run it made.
    pub run: PublicId,
    /// The receipt, as first answered.
    pub receipt: Canonical,
    /// Whether its 24 hours are over.
    pub expired: bool,
}

/// A run to insert.
#[derive(Debug)]
pub struct NewRun<'a> {
    /// Account.
    pub account: AccountId,
    /// Inner id.
    pub run: RunId,
    /// Public id.
    pub public_id: PublicId,
    /// Workspace.
    pub workspace: WorkspaceId,
    /// Creator.
    pub creator: MemberId,
    /// Creator, as a principal.
    pub principal: PrincipalFacts,
    /// Now.
    pub now: Timestamp,
    /// How model-origin calls are approved.
    pub approval_mode: ApprovalMode,
    /// As named; none when it was not.
    pub prompt_mechanism: Option<&'static str>,
    /// The default runner.
    pub default_runner: Option<ExecutorId>,
    /// The run's selection, canonical.
    pub model_selection: Option<String>,
    /// The run's fallback list, canonical.
    pub fallback_models: Option<String>,
    /// The graph.
    pub placed: &'a Placed,
    /// What is narrated at birth.
    pub events: Vec<Event>,
    /// Its receipt.
    pub receipt: NewReceipt,
}

/// A receipt to insert.
#[derive(Debug)]
pub struct NewReceipt {
    /// The key; minted when the client gave none.
    pub key: String,
    /// What it was used for.
    pub fingerprint: [u8; 32],
    /// The receipt.
    pub body: Canonical,
}

impl Store {
    /// What the member may do in a workspace; none when it cannot see it.
    ///
    /// # Errors
    /// A fault.
    pub async fn standing(
        &self,
        account: AccountId,
        member: MemberId,
        workspace: PublicId,
    ) -> Result<Option<Standing>, Error> {
        let conn = self.conn().await?;
        let row = conn
            .query_opt(&STANDING, &[&account.0, &workspace.0, &member.0])
            .await?;
        Ok(row.map(|row| Standing {
            workspace: WorkspaceId(row.get("workspace_id")),
            may_write: row.get("may_write"),
        }))
    }

    /// Draws what a new run of this creator needs.
    ///
    /// # Errors
    /// A fault.
    pub async fn run_birth(&self, account: AccountId, creator: MemberId) -> Result<Birth, Error> {
        let row = self
            .conn()
            .await?
            .query_one(&BIRTH, &[&account.0, &creator.0])
            .await?;
        Ok(Birth {
            now: row.get("now"),
            run: RunId(row.get("run_id")),
            principal: rows::principal(&row)?,
        })
    }

    /// Those of the executors that are runners, judged for that principal.
    ///
    /// # Errors
    /// A fault.
    pub async fn runners(
        &self,
        account: AccountId,
        principal: &PrincipalFacts,
        ids: &[PublicId],
        tools: &[String],
    ) -> Result<Vec<Runner>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let rows = self
            .conn()
            .await?
            .query(&RUNNERS, &[&account.0, &ids, &tools])
            .await?;
        rows.iter()
            .map(|row| {
                let executor = rows::executor(row)?;
                let is_runner = executor.kind == crate::domain::words::ExecutorKind::Runner;
                Ok(Runner {
                    id: ExecutorId(row.get("executor_id")),
                    public_id: PublicId(row.get("executor_public_id")),
                    eligible: is_runner && is_eligible(&executor, principal),
                    serves: row.get("serves"),
                })
            })
            .collect()
    }

    /// The receipt of a create under that key.
    ///
    /// # Errors
    /// A fault.
    pub async fn create_receipt(
        &self,
        account: AccountId,
        workspace: WorkspaceId,
        caller: MemberId,
        key: &str,
    ) -> Result<Option<StoredReceipt>, Error> {
        let conn = self.conn().await?;
        let row = conn
            .query_opt(&RECEIPT, &[&account.0, &workspace.0, &caller.0, &key])
            .await?;
        Ok(row.map(|row| StoredReceipt {
            fingerprint: row.get("fingerprint"),
            run: PublicId(row.get("public_id")),
            receipt: Canonical::trusted(row.get("body")),
            expired: row.get("expired"),
        }))
    }

    /// Inserts a run with its graph, its birth events and its receipt, in one transaction.
    ///
    /// # Errors
    /// A fault; the refusal of [`CREATE_RECEIPT`] when a twin used the key first.
    pub async fn run_insert(&self, new: &NewRun<'_>) -> Result<(), Error> {
        let columns = Columns::of(new);
        let mut batch = Batch::new();
        let (account, run) = (&new.account.0, &new.run.0);
        let fingerprint = &new.receipt.fingerprint[..];
        let key = &new.receipt.key;
        let receipt = new.receipt.body.as_str();
        let (workspace, creator) = (&new.workspace.0, &new.creator.0);
        batch.add(&RECEIPT_EXPIRE, vec![account, workspace, creator, key]);
        // The receipt first: a twin waits here, before anything else is written.
        batch.add(
            &INSERT_RECEIPT,
            vec![
                account,
                workspace,
                creator,
                key,
                &fingerprint,
                run,
                &receipt,
                &new.now,
            ],
        );
        batch.add(
            &INSERT_RUN,
            vec![
                account,
                run,
                &new.public_id.0,
                workspace,
                creator,
                &columns.principal,
                &columns.declaring_agent,
                &columns.deliverable,
                &columns.mainline_tail,
                &columns.approval_mode,
                &new.prompt_mechanism,
                &columns.default_runner,
                &new.model_selection,
                &new.fallback_models,
                &columns.count,
                &columns.ready,
                &columns.event_seq,
                &new.now,
            ],
        );
        columns.fill(account, run, &new.now, &mut batch);
        let (tx, _) = Tx::begin_with(self.conn().await?, &batch).await?;
        tx.commit().await
    }

    /// A run's document; none when there is no such run in that workspace.
    ///
    /// # Errors
    /// A fault.
    pub async fn run_document(
        &self,
        account: AccountId,
        workspace: WorkspaceId,
        run: PublicId,
    ) -> Result<Option<RunDocument>, Error> {
        let conn = self.conn().await?;
        let row = conn
            .query_opt(&DOCUMENT, &[&account.0, &workspace.0, &run.0])
            .await?;
        drop(conn);
        let Some(row) = row else { return Ok(None) };
        let tasks = self.tasks_of_run(account, RunId(row.get("run_id"))).await?;
        RunDocument::of(&row, tasks).map(Some)
    }

    /// A page of a workspace's runs, by id.
    ///
    /// # Errors
    /// A fault.
    pub async fn run_list(
        &self,
        account: AccountId,
        workspace: WorkspaceId,
        wanted: &RunFilter,
    ) -> Result<Vec<RunListed>, Error> {
        let (sql, start) = if wanted.ascending {
            (&LIST_ASC, Uuid::nil())
        } else {
            (&LIST_DESC, Uuid::max())
        };
        let after = wanted.after.map_or(start, |id| id.0);
        let statuses: Vec<&str> = wanted.statuses.iter().map(|s| s.as_str()).collect();
        let conn = self.conn().await?;
        let rows = conn
            .query(
                sql,
                &[
                    &account.0,
                    &workspace.0,
                    &after,
                    &statuses,
                    &wanted.attention_only,
                    &wanted.limit,
                ],
            )
            .await?;
        rows.iter().map(RunListed::of).collect()
    }

    /// The inner id of a run in that workspace.
    ///
    /// # Errors
    /// A fault.
    pub async fn run_find(
        &self,
        account: AccountId,
        workspace: WorkspaceId,
        run: PublicId,
    ) -> Result<Option<RunId>, Error> {
        let conn = self.conn().await?;
        let row = conn
            .query_opt(&FIND, &[&account.0, &workspace.0, &run.0])
            .await?;
        Ok(row.map(|row| RunId(row.get(0))))
    }
}

/// Which runs a list shows.
#[derive(Debug, Clone)]
pub struct RunFilter {
    /// Strictly after this one, in the list's order.
    pub after: Option<PublicId>,
    /// Oldest first.
    pub ascending: bool,
    /// These states; none named: all.
    pub statuses: Vec<RunStatus>,
    /// Only those with a standing attention.
    pub attention_only: bool,
    /// At most so many.
    pub limit: i64,
}

#[derive(Default)]
struct Columns {
    principal: i64,
    declaring_agent: Option<i64>,
    deliverable: Option<i32>,
    mainline_tail: Option<i32>,
    approval_mode: &'static str,
    default_runner: Option<i64>,
    count: i32,
    ready: i32,
    event_seq: i64,
    nos: Vec<i32>,
    keys: Vec<String>,
    kinds: Vec<&'static str>,
    authored_by: Vec<&'static str>,
    marks: Vec<Option<&'static str>>,
    detached: Vec<bool>,
    lifetimes: Vec<&'static str>,
    wakes: Vec<&'static str>,
    on_failure: Vec<&'static str>,
    fan_on_failure: Vec<Option<&'static str>>,
    visibility: Vec<&'static str>,
    barriers: Vec<Option<i32>>,
    input_from: Vec<String>,
    result_from: Vec<String>,
    after_keys: Vec<String>,
    remaining: Vec<i32>,
    tool_names: Vec<Option<String>>,
    timeouts: Vec<Option<i64>>,
    targets: Vec<Option<i64>>,
    holders: Vec<Option<&'static str>>,
    join_modes: Vec<Option<&'static str>>,
    join_ks: Vec<Option<i32>>,
    join_losers: Vec<Option<&'static str>>,
    join_successes: Vec<Option<i32>>,
    join_pending: Vec<Option<i32>>,
    inputs: Vec<Option<String>>,
    definitions: Vec<Option<String>>,
    contexts: Vec<Option<String>>,
    edge_from: Vec<i32>,
    edge_to: Vec<i32>,
    edge_ordinals: Vec<i32>,
    edge_structural: Vec<bool>,
    edge_states: Vec<&'static str>,
    event_seqs: Vec<i64>,
    event_types: Vec<&'static str>,
    event_payloads: Vec<String>,
}

/// An SQL array literal of numbers: a column of arrays cannot be unnested as one.
fn numbers(nos: &[TaskNo]) -> String {
    let list: Vec<String> = nos.iter().map(|no| no.0.to_string()).collect();
    format!("{{{}}}", list.join(","))
}

impl Columns {
    fn of(new: &NewRun<'_>) -> Self {
        let mut c = Self {
            principal: new.principal.member.0,
            declaring_agent: new.principal.declaring_agent.map(|m| m.0),
            deliverable: new.placed.deliverable.map(|no| no.0),
            mainline_tail: new.placed.mainline_tail.map(|no| no.0),
            approval_mode: new.approval_mode.as_str(),
            default_runner: new.default_runner.map(|e| e.0),
            ..Self::default()
        };
        for new_task in &new.placed.tasks {
            c.task(new_task);
        }
        for edge in &new.placed.edges {
            c.edge_from.push(edge.from.0);
            c.edge_to.push(edge.to.0);
            c.edge_ordinals.push(edge.ordinal);
            c.edge_structural.push(edge.structural);
            c.edge_states.push(edge.state.as_str());
        }
        for event in &new.events {
            c.event_seq += 1;
            c.event_seqs.push(c.event_seq);
            c.event_types.push(event.kind());
            c.event_payloads
                .push(event.payload(new.public_id).into_string());
        }
        c
    }

    fn task(&mut self, new: &crate::engine::author::NewTask) {
        let task = &new.task;
        self.count += 1;
        let can_start = task.remaining == 0 && task.join.is_none();
        self.ready += i32::from(can_start);
        self.nos.push(task.no.0);
        self.keys.push(task.key.as_str().to_owned());
        self.kinds.push(task.kind.as_str());
        self.authored_by.push(task.authored_by.as_str());
        self.marks.push(task.mark.map(|m| m.as_str()));
        self.detached.push(task.detached);
        self.lifetimes.push(task.lifetime.as_str());
        self.wakes.push(task.wake.as_str());
        self.on_failure.push(task.on_failure.as_str());
        self.fan_on_failure
            .push(task.fan_on_failure.map(|p| p.as_str()));
        self.visibility.push(task.visibility.as_str());
        self.barriers.push(task.barrier.map(|no| no.0));
        self.input_from.push(numbers(&task.input_from));
        self.result_from.push(numbers(&task.result_from));
        // Quoted, since a bare `null` would be no text; keys have neither quotes nor backslashes.
        let quoted: Vec<String> = task.after_keys.iter().map(|k| format!("\"{k}\"")).collect();
        self.after_keys.push(format!("{{{}}}", quoted.join(",")));
        self.remaining.push(task.remaining);
        self.tool_names.push(task.tool_name.clone());
        self.timeouts.push(task.timeout_ms);
        self.targets.push(task.target.map(|e| e.0));
        self.holders.push(task.holder.map(|h| h.as_str()));
        self.join_modes.push(task.join.map(|j| j.mode.as_str()));
        self.join_ks.push(task.join.map(|j| j.k));
        self.join_losers.push(task.join.map(|j| j.losers.as_str()));
        self.join_successes.push(task.join.map(|j| j.successes));
        self.join_pending.push(task.join.map(|j| j.pending));
        let text = |c: &Option<Canonical>| c.as_ref().map(|c| c.as_str().to_owned());
        self.inputs.push(text(&new.tool_input));
        self.definitions.push(text(&new.definition));
        self.contexts.push(text(&new.context));
    }

    fn fill<'a>(
        &'a self,
        account: &'a i64,
        run: &'a i64,
        now: &'a Timestamp,
        batch: &mut Batch<'a>,
    ) {
        batch.add(
            &INSERT_TASKS,
            vec![
                account,
                run,
                &self.nos,
                &self.keys,
                &self.kinds,
                &self.authored_by,
                &self.marks,
                &self.detached,
                &self.lifetimes,
                &self.wakes,
                &self.on_failure,
                &self.fan_on_failure,
                &self.visibility,
                &self.barriers,
                &self.input_from,
                &self.result_from,
                &self.after_keys,
                &self.remaining,
                &self.tool_names,
                &self.timeouts,
                &self.targets,
                &self.holders,
                &self.join_modes,
                &self.join_ks,
                &self.join_losers,
                &self.join_successes,
                &self.join_pending,
            ],
        );
        batch.add(
            &INSERT_INPUTS,
            vec![
                account,
                run,
                &self.nos,
                &self.inputs,
                &self.definitions,
                &self.contexts,
            ],
        );
        if !self.edge_from.is_empty() {
            batch.add(
                &INSERT_EDGES,
                vec![
                    account,
                    run,
                    &self.edge_from,
                    &self.edge_to,
                    &self.edge_ordinals,
                    &self.edge_structural,
                    &self.edge_states,
                ],
            );
        }
        batch.add(
            &INSERT_EVENTS,
            vec![
                account,
                run,
                &self.event_seqs,
                &self.event_types,
                &self.event_payloads,
                now,
            ],
        );
    }
}

/// A run's standing attention, as shown.
#[derive(Debug, Clone, Serialize)]
pub struct AttentionView {
    /// Why.
    pub reason: AttentionReason,
    /// At most 32 keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_task_keys: Option<Vec<String>>,
    /// How many more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_task_overflow: Option<usize>,
}

/// A standalone run's turn.
#[derive(Debug, Clone, Serialize)]
pub struct Turn {
    /// Its word.
    pub status: &'static str,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason_key: Option<String>,
}

/// A run's document (`runs.md` §6).
#[derive(Debug, Clone, Serialize)]
pub struct RunDocument {
    /// Id.
    pub public_id: PublicId,
    /// State.
    pub status: RunStatus,
    /// Since when it exists.
    pub created_at: At,
    /// Started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<At>,
    /// Paused since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<At>,
    /// Ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<At>,
    /// Of a reasoned cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The answer's key.
    pub deliverable_task_key: Option<String>,
    /// How model-origin calls are approved.
    pub approval_mode: ApprovalMode,
    /// As named.
    pub prompt_mechanism: Option<String>,
    /// The default runner.
    pub default_runner: Option<ExecutorRef>,
    /// The standing attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionView>,
    /// Counts by status.
    pub task_progress: std::collections::BTreeMap<&'static str, usize>,
    /// Rows, in authoring order.
    pub tasks: Vec<TaskView>,
    /// The turn.
    pub turn: Turn,
}

fn attention(row: &Row, keys: bool) -> Result<Option<AttentionView>, Error> {
    let Some(reason) = rows::word_opt(row, "runs", "attention_reason")? else {
        return Ok(None);
    };
    if !keys {
        return Ok(Some(AttentionView {
            reason,
            blocked_task_keys: None,
            blocked_task_overflow: None,
        }));
    }
    let text: Option<&str> = row.get("attention_keys");
    let mut all: Vec<String> = text
        .map(serde_json::from_str)
        .transpose()
        .map_err(|_| Error::inconsistent("runs", "attention_keys", "a run"))?
        .unwrap_or_default();
    let overflow = all.len().checked_sub(ATTENTION_KEYS).filter(|n| *n > 0);
    all.truncate(ATTENTION_KEYS);
    Ok(Some(AttentionView {
        reason,
        blocked_task_keys: Some(all),
        blocked_task_overflow: overflow,
    }))
}

impl RunDocument {
    fn of(row: &Row, tasks: Vec<TaskView>) -> Result<Self, Error> {
        let at = |column: &str| row.get::<_, Option<Timestamp>>(column).map(At);
        let status: RunStatus = rows::word(row, "runs", "status")?;
        let failure_reason: Option<String> = row.get("failure_reason");
        let attention = attention(row, true)?;
        let failure_reason_key = failure_reason.clone().or_else(|| {
            attention
                .as_ref()
                .filter(|_| status == RunStatus::NeedsAttention)
                .map(|a| a.reason.as_str().to_owned())
        });
        let mut task_progress = std::collections::BTreeMap::from([("total", tasks.len())]);
        for task in &tasks {
            *task_progress.entry(task.status.shown()).or_insert(0) += 1;
        }
        Ok(Self {
            public_id: PublicId(row.get("public_id")),
            status,
            created_at: At(row.get("created_at")),
            started_at: at("started_at"),
            paused_at: at("paused_at").filter(|_| status == RunStatus::Paused),
            completed_at: at("completed_at"),
            turn: Turn {
                status: turn_status(status, failure_reason.is_some()),
                failure_reason_key,
            },
            failure_reason,
            deliverable_task_key: row.get("deliverable_key"),
            approval_mode: rows::word(row, "runs", "approval_mode")?,
            prompt_mechanism: row.get("prompt_mechanism"),
            default_runner: row
                .get::<_, Option<Uuid>>("runner_public_id")
                .map(|id| ExecutorRef {
                    executor_public_id: PublicId(id),
                    display_name: row.get("runner_name"),
                }),
            attention,
            task_progress,
            tasks,
        })
    }
}

/// A run as lists show it.
#[derive(Debug, Clone, Serialize)]
pub struct RunListed {
    /// Id.
    pub public_id: PublicId,
    /// State.
    pub status: RunStatus,
    /// Of a reasoned cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The standing attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionView>,
    /// Since when it exists.
    pub created_at: At,
}

impl RunListed {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            public_id: PublicId(row.get("public_id")),
            status: rows::word(row, "runs", "status")?,
            failure_reason: row.get("failure_reason"),
            attention: attention(row, false)?,
            created_at: At(row.get("created_at")),
        })
    }
}
