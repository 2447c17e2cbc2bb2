//! Runs: inserting one with its graph, the document, the list (`runs.md` §3, §6).

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::births::Births;
use super::rows;
use super::tx::{Batch, Tx};
use super::views::{ExecutorRef, TaskView};
use super::{Error, Sql, Store};
use crate::domain::event::{ATTENTION_KEYS, Event, turn_status};
use crate::domain::json::Canonical;
use crate::domain::time::At;
use crate::domain::words::{ApprovalMode, AttentionReason, RunStatus, TaskKind};
use crate::domain::{AccountId, ExecutorId, MemberId, PublicId, RunId, Timestamp, WorkspaceId};
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
            fallback_models, n_tasks, n_open, n_ready, n_rounds, event_seq, created_at, approval_rules)
     VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', $8, $9, $10, $11, $12, $13, $14, $15, $15, $16, $17, $18, $19, $20)",
    &[
        Type::INT8, Type::INT8, Type::UUID, Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::INT4, Type::INT4,
        Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT, Type::TEXT, Type::INT4, Type::INT4, Type::INT4, Type::INT8,
        Type::TIMESTAMPTZ, Type::TEXT,
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

/// A page of a workspace's runs in some states: a page of each, each read from one stretch of an index,
/// then the first of them all. One statement, so one moment. All states named is every run: the same
/// road, since in the order of ids alone the planner took the index of the whole account.
macro_rules! list {
    ($only:literal, $beyond:literal, $order:literal) => {
        concat!(
            "SELECT p.* FROM unnest($4::text[]) AS s(status)
              CROSS JOIN LATERAL (
                SELECT r.public_id, r.status, r.failure_reason, r.attention_reason, r.created_at FROM runs r
                 WHERE r.account_id = $1 AND r.workspace_id = $2
                   AND CASE WHEN r.deleted_at IS NULL THEN r.status END = s.status",
            $only, " AND r.public_id ", $beyond, " $3 ORDER BY r.public_id ", $order, " LIMIT $5) p
              ORDER BY p.public_id ", $order, " LIMIT $5"
        )
    };
}

const LIST_TYPES: &[Type] = &[
    Type::INT8,
    Type::INT8,
    Type::UUID,
    Type::TEXT_ARRAY,
    Type::INT8,
];

static LIST_ASC: Sql = Sql::new("runs.list_asc", list!("", ">", ""), LIST_TYPES);
static LIST_DESC: Sql = Sql::new("runs.list_desc", list!("", "<", "DESC"), LIST_TYPES);

static ATTENTION_ASC: Sql = Sql::new(
    "runs.attention_asc",
    list!(" AND r.attention_reason IS NOT NULL", ">", ""),
    LIST_TYPES,
);
static ATTENTION_DESC: Sql = Sql::new(
    "runs.attention_desc",
    list!(" AND r.attention_reason IS NOT NULL", "<", "DESC"),
    LIST_TYPES,
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
    &INSERT_EVENTS,
    &DOCUMENT,
    &LIST_ASC,
    &LIST_DESC,
    &ATTENTION_ASC,
    &ATTENTION_DESC,
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
    /// The approval rules, canonical, if there are any.
    pub approval_rules: Option<String>,
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
                &columns.rounds,
                &columns.event_seq,
                &new.now,
                &new.approval_rules,
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
        let (sql, start) = match (wanted.attention_only, wanted.ascending) {
            (false, true) => (&LIST_ASC, Uuid::nil()),
            (false, false) => (&LIST_DESC, Uuid::max()),
            (true, true) => (&ATTENTION_ASC, Uuid::nil()),
            (true, false) => (&ATTENTION_DESC, Uuid::max()),
        };
        let after = wanted.after.map_or(start, |id| id.0);
        let (statuses, limit) = (wanted.words(), &wanted.limit);
        let conn = self.conn().await?;
        let rows = conn
            .query(sql, &[&account.0, &workspace.0, &after, &statuses, limit])
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

impl RunFilter {
    /// The states to look under, each once.
    fn words(&self) -> Vec<&'static str> {
        let wanted = |s: &&RunStatus| self.statuses.is_empty() || self.statuses.contains(s);
        let all = RunStatus::ALL.iter();
        all.filter(wanted).map(|s| s.as_str()).collect()
    }
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
    rounds: i32,
    births: Births,
    event_seqs: Vec<i64>,
    event_types: Vec<&'static str>,
    event_payloads: Vec<String>,
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
            let task = &new_task.task;
            c.count += 1;
            let is_free = task.remaining == 0;
            let startable = matches!(task.kind, TaskKind::Tool | TaskKind::Await);
            c.ready += i32::from(is_free && startable);
            c.rounds += i32::from(is_free && task.kind == TaskKind::Model);
            c.births.task(new.account.0, new.run.0, new_task);
        }
        for edge in &new.placed.edges {
            c.births.edge(new.account.0, new.run.0, edge);
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

    fn fill<'a>(
        &'a self,
        account: &'a i64,
        run: &'a i64,
        now: &'a Timestamp,
        batch: &mut Batch<'a>,
    ) {
        self.births.fill(batch);
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

/// What runners did to the outside for a run (`runs.md` §6).
#[derive(Debug, Clone, Serialize)]
pub struct RunnerEffects {
    /// Whether it is known.
    pub status: &'static str,
    /// By runner.
    pub runners: [ExecutorRef; 0],
    /// Why it is not.
    pub reason: &'static str,
}

/// Effects are not gathered yet; an empty list without a reason would say that there were none.
const RUNNER_EFFECTS: RunnerEffects = RunnerEffects {
    status: "unavailable",
    runners: [],
    reason: "not_collected",
};

/// The inputs that wait for a run's turn (`conversations.md` §4).
#[derive(Debug, Clone, Serialize)]
pub struct InputQueue {
    /// How many may wait.
    pub limit: u32,
    /// How many do.
    pub held: u32,
}

/// Nothing can be put into a waiting room yet.
const INPUT_QUEUE: InputQueue = InputQueue { limit: 16, held: 0 };

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
    /// What its runners did.
    pub runner_effects: RunnerEffects,
    /// Its waiting room.
    pub input_queue: InputQueue,
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
            runner_effects: RUNNER_EFFECTS,
            input_queue: INPUT_QUEUE,
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
