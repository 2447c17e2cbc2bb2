//! Rows become facts: one place for each table that the engine reads.
//!
//! What does not fit a domain type is [`Error::Inconsistent`], never a default.

use std::fmt::Display;
use std::str::FromStr;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::Error;
use crate::domain::event::ApprovalFact;
use crate::domain::json::{Value, parse};
use crate::domain::{
    AccountId, ExecutorId, MemberId, PublicId, RunId, TaskKey, TaskNo, WorkspaceId,
};
use crate::engine::eligibility::{ExecutorFacts, PrincipalFacts};
use crate::engine::facts::{
    Addressed, Attention, Claim, Counts, Edge, Join, LiveClaim, Park, Run, Selection, Source, Task,
    TaskError,
};

/// A word of a closed vocabulary.
pub(super) fn word<T: FromStr>(
    row: &Row,
    table: &'static str,
    column: &'static str,
) -> Result<T, Error> {
    let text: &str = row.get(column);
    text.parse()
        .map_err(|_| Error::inconsistent(table, column, text))
}

/// A word, where the column is not null.
pub(super) fn word_opt<T: FromStr>(
    row: &Row,
    table: &'static str,
    column: &'static str,
) -> Result<Option<T>, Error> {
    let text: Option<&str> = row.get(column);
    text.map(|t| t.parse().map_err(|_| Error::inconsistent(table, column, t)))
        .transpose()
}

fn required<'a, T: FromSql<'a>>(
    row: &'a Row,
    table: &'static str,
    column: &'static str,
    key: impl Display,
) -> Result<T, Error> {
    let value: Option<T> = row.get(column);
    value.ok_or_else(|| Error::inconsistent(table, column, key))
}

/// The columns of a run that the engine sees, from `r`, with its principal (`pm`) and standing.
macro_rules! run_columns {
    () => {
        "r.account_id, r.run_id, r.public_id AS run_public_id, r.workspace_id, r.principal_id, r.declaring_agent_id,
         r.status AS run_status, r.revision, r.deliverable_no, r.mainline_tail_no, r.approval_mode,
         r.n_tasks, r.n_open, r.n_ready, r.n_started, r.n_approval, r.n_unresolved, r.n_undelivered,
         r.n_rounds, r.n_running, r.n_awaiting, r.n_waits, (r.approval_rules IS NOT NULL) AS has_rules,
         r.settle_seq AS run_settle_seq, r.event_seq, r.schedulable, r.attention_reason, r.attention_keys,
         r.failure_reason, r.force_stopped, r.started_at AS run_started_at, r.paused_at, r.canceling_since,
         r.stopped_at, r.completed_at AS run_completed_at,
         pm.kind AS principal_kind, pm.controlling_human_id,
         (EXISTS (SELECT 1 FROM grants g JOIN members cm ON cm.account_id = g.account_id AND cm.member_id = g.member_id
                   JOIN workspaces w ON w.account_id = g.account_id AND w.workspace_id = g.workspace_id
                  WHERE g.account_id = r.account_id AND g.workspace_id = r.workspace_id AND g.member_id = r.creator_id
                    AND g.access = 'write' AND cm.status = 'active' AND w.archived_at IS NULL)) AS creator_may_write"
    };
}
pub(super) use run_columns;

/// A run, from [`run_columns`].
pub(super) fn run(row: &Row) -> Result<Run, Error> {
    let account = AccountId(row.get("account_id"));
    let id = RunId(row.get("run_id"));
    let reason = word_opt(row, "runs", "attention_reason")?;
    let keys: Option<&str> = row.get("attention_keys");
    let keys: Vec<String> = keys
        .map(serde_json::from_str)
        .transpose()
        .map_err(|_| Error::inconsistent("runs", "attention_keys", id.0))?
        .unwrap_or_default();
    Ok(Run {
        account,
        id,
        public_id: PublicId(row.get("run_public_id")),
        workspace: WorkspaceId(row.get("workspace_id")),
        principal: principal(row)?,
        creator_may_write: row.get("creator_may_write"),
        status: word(row, "runs", "run_status")?,
        revision: row.get("revision"),
        deliverable: row.get::<_, Option<i32>>("deliverable_no").map(TaskNo),
        mainline_tail: row.get::<_, Option<i32>>("mainline_tail_no").map(TaskNo),
        approval_mode: word(row, "runs", "approval_mode")?,
        has_rules: row.get("has_rules"),
        counts: Counts {
            tasks: row.get("n_tasks"),
            open: row.get("n_open"),
            ready: row.get("n_ready"),
            started: row.get("n_started"),
            approval: row.get("n_approval"),
            unresolved: row.get("n_unresolved"),
            undelivered: row.get("n_undelivered"),
            rounds: row.get("n_rounds"),
            running: row.get("n_running"),
            awaiting: row.get("n_awaiting"),
            waits: row.get("n_waits"),
        },
        settle_seq: row.get("run_settle_seq"),
        event_seq: row.get("event_seq"),
        schedulable: row.get("schedulable"),
        attention: reason.map(|reason| Attention {
            reason,
            keys: keys.into_iter().map(TaskKey::trusted).collect(),
        }),
        failure_reason: row.get("failure_reason"),
        force_stopped: row.get("force_stopped"),
        started_at: row.get("run_started_at"),
        paused_at: row.get("paused_at"),
        canceling_since: row.get("canceling_since"),
        stopped_at: row.get("stopped_at"),
        completed_at: row.get("run_completed_at"),
    })
}

/// A run's answering principal, from `principal_id`, `principal_kind`, `controlling_human_id`,
/// `declaring_agent_id`.
pub(super) fn principal(row: &Row) -> Result<PrincipalFacts, Error> {
    Ok(PrincipalFacts {
        member: MemberId(row.get("principal_id")),
        kind: word(row, "members", "principal_kind")?,
        controlling_human: row
            .get::<_, Option<i64>>("controlling_human_id")
            .map(MemberId),
        declaring_agent: row
            .get::<_, Option<i64>>("declaring_agent_id")
            .map(MemberId),
    })
}

/// The columns of a task that the engine sees, from `t`.
macro_rules! task_columns {
    () => {
        "t.task_no, t.key, t.kind, t.status, t.generation, t.authored_by, t.mark, t.detached, t.lifetime, t.wake,
         t.on_failure, t.fan_on_failure, t.visibility, t.barrier_no, t.lineage_no, t.tip_no, t.input_from, t.result_from,
         t.after_keys, t.remaining, t.tool_name, t.timeout_ms, t.target_executor_id, t.holder,
         t.resolution_digest, t.observes_no, t.owner_no, t.operation_no, t.is_tip, t.background, t.taken_over,
         t.trace_end, t.context_no, t.tool_alias, t.join_sources,
         t.join_mode, t.join_k, t.join_losers, t.join_successes, t.join_pending,
         t.addressed_role, t.addressed_executor_id, t.approval_origin, t.approval_decided_at,
         CASE WHEN t.approval_decided_by IS NOT NULL THEN (SELECT m.public_id FROM members m
              WHERE m.account_id = t.account_id AND m.member_id = t.approval_decided_by) END AS approval_decided_by,
         t.started_at, t.claimed_by_id, t.claimed_at AS settled_claimed_at, t.claim_digest AS settled_claim_digest,
         t.failure_resolution, t.error_key, t.error_detail, t.is_error, t.race_absorbed, t.settle_seq, t.completed_at"
    };
}
pub(super) use task_columns;

/// A task, from [`task_columns`].
pub(super) fn task(row: &Row) -> Result<Task, Error> {
    const T: &str = "tasks";
    let no = TaskNo(row.get("task_no"));
    let numbers = |column: &str| -> Vec<TaskNo> {
        row.get::<_, Vec<i32>>(column)
            .into_iter()
            .map(TaskNo)
            .collect()
    };
    Ok(Task {
        no,
        key: TaskKey::trusted(row.get("key")),
        kind: word(row, T, "kind")?,
        status: word(row, T, "status")?,
        generation: row.get("generation"),
        authored_by: word(row, T, "authored_by")?,
        mark: word_opt(row, T, "mark")?,
        detached: row.get("detached"),
        lifetime: word(row, T, "lifetime")?,
        wake: word(row, T, "wake")?,
        on_failure: word(row, T, "on_failure")?,
        fan_on_failure: word_opt(row, T, "fan_on_failure")?,
        visibility: word(row, T, "visibility")?,
        barrier: row.get::<_, Option<i32>>("barrier_no").map(TaskNo),
        lineage: TaskNo(row.get("lineage_no")),
        tip: TaskNo(row.get("tip_no")),
        input_from: numbers("input_from"),
        result_from: numbers("result_from"),
        after_keys: row.get("after_keys"),
        remaining: row.get("remaining"),
        owner: row.get::<_, Option<i32>>("owner_no").map(TaskNo),
        operation: row.get("operation_no"),
        is_tip: row.get("is_tip"),
        background: row.get("background"),
        taken_over: row.get("taken_over"),
        trace_end: row.get("trace_end"),
        context_of: row.get::<_, Option<i32>>("context_no").map(TaskNo),
        tool_name: row.get("tool_name"),
        tool_alias: row.get("tool_alias"),
        timeout_ms: row.get("timeout_ms"),
        target: row
            .get::<_, Option<i64>>("target_executor_id")
            .map(ExecutorId),
        holder: word_opt(row, T, "holder")?,
        resolution_digest: row.get("resolution_digest"),
        observes: row.get::<_, Option<i32>>("observes_no").map(TaskNo),
        join: join(row, no)?,
        sources: sources(row),
        addressed: addressed(row)?,
        approval: approval(row)?,
        started_at: row.get("started_at"),
        claim: settled_claim(row, no)?,
        failure_resolution: word_opt(row, T, "failure_resolution")?,
        error: row
            .get::<_, Option<String>>("error_key")
            .map(|key| TaskError {
                key,
                detail: row.get("error_detail"),
            }),
        is_error: row.get("is_error"),
        race_absorbed: row.get("race_absorbed"),
        settle_seq: row.get("settle_seq"),
        completed_at: row.get("completed_at"),
    })
}

fn join(row: &Row, no: TaskNo) -> Result<Option<Join>, Error> {
    let Some(mode) = word_opt(row, "tasks", "join_mode")? else {
        return Ok(None);
    };
    Ok(Some(Join {
        mode,
        k: required(row, "tasks", "join_k", no.0)?,
        losers: word(row, "tasks", "join_losers")?,
        successes: required(row, "tasks", "join_successes", no.0)?,
        pending: required(row, "tasks", "join_pending", no.0)?,
    }))
}

/// The sources of an operation's join, from `join_sources`: pairs of open and failed results.
fn sources(row: &Row) -> Vec<Source> {
    let counts: Option<Vec<i32>> = row.get("join_sources");
    let counts = counts.unwrap_or_default();
    let pairs = counts.chunks_exact(2);
    pairs
        .map(|pair| Source {
            open: pair[0],
            failed: pair[1],
        })
        .collect()
}

/// … as they are written.
pub(super) fn sources_text(sources: &[Source]) -> Option<String> {
    if sources.is_empty() {
        return None;
    }
    let counts = sources.iter().flat_map(|s| [s.open, s.failed]);
    let counts: Vec<String> = counts.map(|n| n.to_string()).collect();
    Some(format!("{{{}}}", counts.join(",")))
}

/// Whom a row is for, from `addressed_role` and `addressed_executor_id`.
pub(super) fn addressed(row: &Row) -> Result<Option<Addressed>, Error> {
    Ok(
        word_opt(row, "tasks", "addressed_role")?.map(|role| Addressed {
            role,
            executor: row
                .get::<_, Option<i64>>("addressed_executor_id")
                .map(ExecutorId),
        }),
    )
}

/// A decided approval, from `approval_origin`, `approval_decided_by` (public), `approval_decided_at`.
pub(super) fn approval(row: &Row) -> Result<Option<ApprovalFact>, Error> {
    let Some(origin) = word_opt(row, "tasks", "approval_origin")? else {
        return Ok(None);
    };
    Ok(Some(ApprovalFact {
        origin,
        decided_by: row
            .get::<_, Option<uuid::Uuid>>("approval_decided_by")
            .map(PublicId),
        decided_at: required(row, "tasks", "approval_decided_at", "an approval")?,
    }))
}

fn settled_claim(row: &Row, no: TaskNo) -> Result<Option<Claim>, Error> {
    let Some(by) = row.get::<_, Option<i64>>("claimed_by_id") else {
        return Ok(None);
    };
    Ok(Some(Claim {
        by: ExecutorId(by),
        at: required(row, "tasks", "settled_claimed_at", no.0)?,
        digest: required(row, "tasks", "settled_claim_digest", no.0)?,
    }))
}

/// The columns of a park that the engine sees, from `p`, with its claimant's public id (`pc`).
macro_rules! park_columns {
    () => {
        "p.kind AS park_kind, p.executor_id AS park_executor_id, p.pool_name, p.deadline_at,
         p.timeout_ms AS park_timeout_ms, p.announced_timeout_ms, p.effect_profile, p.replayable,
         p.generation AS park_generation, p.started_at AS park_started_at, p.claim_digest, p.claim_key,
         p.claimant_id, p.claimed_at, pc.public_id AS claimant_public_id"
    };
}
pub(super) use park_columns;

/// A park, from [`park_columns`] of a left join.
pub(super) fn park(row: &Row, task: TaskNo) -> Result<Option<Park>, Error> {
    const T: &str = "parks";
    let Some(kind) = word_opt(row, T, "park_kind")? else {
        return Ok(None);
    };
    Ok(Some(Park {
        task,
        kind,
        executor: row
            .get::<_, Option<i64>>("park_executor_id")
            .map(ExecutorId),
        pool_name: row.get("pool_name"),
        deadline_at: required(row, T, "deadline_at", task.0)?,
        timeout_ms: required(row, T, "park_timeout_ms", task.0)?,
        announced_timeout_ms: row.get("announced_timeout_ms"),
        effect_profile: row.get("effect_profile"),
        replayable: required(row, T, "replayable", task.0)?,
        generation: required(row, T, "park_generation", task.0)?,
        started_at: required(row, T, "park_started_at", task.0)?,
        claim: live_claim(row, task)?,
    }))
}

fn live_claim(row: &Row, task: TaskNo) -> Result<Option<LiveClaim>, Error> {
    let Some(by) = row.get::<_, Option<i64>>("claimant_id") else {
        return Ok(None);
    };
    Ok(Some(LiveClaim {
        by: ExecutorId(by),
        by_public: PublicId(required(row, "parks", "claimant_public_id", task.0)?),
        at: required(row, "parks", "claimed_at", task.0)?,
        digest: required(row, "parks", "claim_digest", task.0)?,
    }))
}

/// An edge, from `from_no`, `to_no` (its head's `task_no`), `ordinal`, `structural`, `edge_source`, `edge_state`.
pub(super) fn edge(row: &Row, from: TaskNo, to: TaskNo) -> Result<Edge, Error> {
    Ok(Edge {
        from,
        to,
        ordinal: row.get("edge_ordinal"),
        structural: row.get("structural"),
        source: row.get("edge_source"),
        state: word(row, "edges", "edge_state")?,
    })
}

/// The columns that decide an executor's eligibility, from `e` and its agent (`ea`).
macro_rules! executor_columns {
    () => {
        "e.executor_id, e.public_id AS executor_public_id, e.kind AS executor_kind, e.status AS executor_status,
         e.credential_epoch, (e.shutdown_at IS NOT NULL) AS shutting_down, e.assignment_scope, e.manager_id, e.agent_id,
         coalesce(ea.status = 'active', false) AS agent_active,
         EXISTS (SELECT 1 FROM tokens k WHERE k.account_id = e.account_id AND k.executor_id = e.executor_id
                    AND k.credential_epoch = e.credential_epoch AND k.revoked_at IS NULL
                    AND (k.expires_at IS NULL OR k.expires_at > nexus_now())) AS has_usable_token"
    };
}
pub(super) use executor_columns;

/// What decides an executor's eligibility, from [`executor_columns`].
pub(super) fn executor(row: &Row) -> Result<ExecutorFacts, Error> {
    const T: &str = "executors";
    Ok(ExecutorFacts {
        kind: word(row, T, "executor_kind")?,
        status: word(row, T, "executor_status")?,
        has_usable_token: row.get("has_usable_token"),
        shutting_down: row.get("shutting_down"),
        scope: word_opt(row, T, "assignment_scope")?,
        manager: row.get::<_, Option<i64>>("manager_id").map(MemberId),
        agent: row.get::<_, Option<i64>>("agent_id").map(MemberId),
        agent_active: row.get("agent_active"),
    })
}

/// Stored JSON, which was canonical when it was written.
pub(super) fn json(text: &str, table: &'static str, column: &'static str) -> Result<Value, Error> {
    parse(text.as_bytes()).map_err(|e| Error::inconsistent(table, column, e))
}

/// What a race selected, from `selection`.
pub(super) fn selection(row: &Row, no: TaskNo) -> Result<Selection, Error> {
    const T: &str = "task_results";
    let text: String = required(row, T, "selection", no.0)?;
    let value = json(&text, T, "selection")?;
    let selected = value.get("selected").and_then(Value::as_array);
    let keys = selected.unwrap_or_default().iter().map(Value::as_str);
    let keys = keys.collect::<Option<Vec<_>>>();
    let keys = keys.ok_or_else(|| Error::inconsistent(T, "selection", no.0))?;
    Ok(Selection {
        selected: keys
            .into_iter()
            .map(|key| TaskKey::trusted(key.to_owned()))
            .collect(),
        text,
    })
}
