//! The inbox and its claims: open work only, whatever the history (`executor.md` §6, §8;
//! `architecture.md` §4, §8).
//!
//! A claim is the one write to a graph that takes no run lock: a guarded update of one park row
//! (or of a set of them). Pages of parks are taken first, then one probe a table, so that no plan
//! reads an account. What is listed and what is claimable is the engine's rule
//! (`engine::eligibility`); where a statement must narrow by it, [`claimable`] is its twin.
//!
//! By concern: [`list`] pages, [`single`] claims of one row, [`batch`] claims of many, [`proof`]
//! claim reads.

use std::collections::BTreeMap;

use serde::Serialize;
use tokio_postgres::Row;

use super::rows;
use super::views::{AddressedTo, ExecutorRef};
use super::{Error, Sql, Store};
use crate::domain::json::Canonical;
use crate::domain::time::At;
use crate::domain::words::{ParkKind, Role};
use crate::domain::{ExecutorId, ParkNo, PublicId, RunId, TaskKey, TaskNo, Timestamp};
use crate::engine::claim;
use crate::engine::eligibility::PrincipalFacts;
use crate::engine::facts::Caller;

/// A row as an executor sees it (`executor.md` §6).
#[derive(Debug, Clone, Serialize)]
pub struct InboxRow {
    /// What it is.
    pub kind: ParkKind,
    /// Its run.
    pub run_public_id: PublicId,
    /// Its workspace.
    pub workspace_public_id: PublicId,
    /// Its conversation; null when it has none.
    pub conversation_public_id: Option<PublicId>,
    /// Its parent run; null when it has none.
    pub parent_public_id: Option<PublicId>,
    /// Its key.
    pub task_key: TaskKey,
    /// The served tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// How the model spelled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_alias: Option<String>,
    /// The input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_input: Option<Canonical>,
    /// The provider's pairing id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The accepted runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<ExecutorRef>,
    /// On a `skill`: on whose behalf its document is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// What a question asks: `prompt`, and `options` and `multi` where written.
    #[serde(flatten)]
    pub question: BTreeMap<&'static str, Canonical>,
    /// On an approval: what the call may do, as it was shown to whoever decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_profile: Option<Canonical>,
    /// Since when; an approval has not started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<At>,
    /// The one clock.
    pub deadline_at: At,
    /// The budget; never moves.
    pub timeout_ms: i64,
    /// Whether anyone claimed it in this generation.
    pub claimed: bool,
    /// Whom it is for.
    pub addressed_to: AddressedTo,
}

/// On whose behalf a `skill` reads its document (`executor.md` §6).
#[derive(Debug, Clone, Serialize)]
pub struct Scope {
    /// The run's workspace.
    pub workspace_public_id: PublicId,
    /// Its conversation; null when it has none.
    pub conversation_public_id: Option<PublicId>,
    /// The human behind the run's answering principal.
    pub user_public_id: PublicId,
}

/// A claim that was granted or recovered.
#[derive(Debug)]
pub struct Granted {
    /// The executable row.
    pub row: InboxRow,
    /// Its new deadline, exactly.
    pub deadline_at: Timestamp,
    /// Its place in the inbox.
    pub park_no: ParkNo,
    /// Inner run id and number in it, to pair grants with tokens.
    pub at: (RunId, TaskNo),
    /// Whether its run has a failure that may hold it now (`engine.md` §7).
    pub may_hold: bool,
}

/// An [`InboxRow`] from a park `p` and the rows that [`row_joins`] finds for it.
macro_rules! row_columns {
    () => {
        "p.park_no, p.run_id, p.task_no, p.kind AS park_kind, p.started_at AS park_started_at, p.deadline_at,
         p.timeout_ms AS park_timeout_ms, p.claimed_at, p.executor_id AS park_executor_id,
         CASE WHEN p.kind = 'approval' THEN p.effect_profile END AS shown_profile,
         CASE WHEN p.kind = 'ask' THEN i.definition END AS question,
         r.public_id AS run_public_id, w.public_id AS workspace_public_id,
         t.key, t.tool_name, t.tool_alias, t.tool_call_id, t.addressed_role, t.addressed_executor_id, i.tool_input,
         ae.public_id AS addressed_public_id, te.public_id AS target_public_id, te.display_name AS target_name,
         sc.public_id AS scope_user_public_id, r.status = 'running' AND r.n_unresolved > 0 AS may_hold"
    };
}

/// One probe a table beside each park `p`.
macro_rules! row_joins {
    () => {
        "CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = p.account_id AND r.run_id = p.run_id OFFSET 0) r
         CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = p.account_id AND t.run_id = p.run_id
                                AND t.task_no = p.task_no OFFSET 0) t
         CROSS JOIN LATERAL (SELECT w.public_id FROM workspaces w WHERE w.account_id = p.account_id
                                AND w.workspace_id = r.workspace_id OFFSET 0) w
          LEFT JOIN LATERAL (SELECT i.tool_input, i.definition FROM task_inputs i WHERE i.account_id = p.account_id AND i.run_id = p.run_id
                                AND i.task_no = p.task_no OFFSET 0) i ON true
          LEFT JOIN LATERAL (SELECT e.public_id FROM executors e WHERE e.account_id = p.account_id
                                AND e.executor_id = t.addressed_executor_id OFFSET 0) ae ON true
          LEFT JOIN LATERAL (SELECT e.public_id, e.display_name FROM executors e WHERE e.account_id = p.account_id
                                AND e.executor_id = t.target_executor_id OFFSET 0) te ON true
          LEFT JOIN LATERAL (SELECT h.public_id FROM members m JOIN members h ON h.account_id = m.account_id
                                AND h.member_id = CASE m.kind WHEN 'agent' THEN m.controlling_human_id ELSE m.member_id END
                              WHERE t.tool_name = 'skill' AND p.kind = 'tool_call' AND m.account_id = p.account_id
                                AND m.member_id = r.principal_id OFFSET 0) sc ON true"
    };
}

/// What a claim is judged on, beside [`row_columns`] or alone: from r, t, p, its principal pm.
macro_rules! judged_columns {
    () => {
        "r.status AS run_status, r.force_stopped, r.deleted_at IS NOT NULL AS tombstoned, r.principal_id, r.declaring_agent_id,
         pm.kind AS principal_kind, pm.controlling_human_id,
         EXISTS (SELECT 1 FROM grants g JOIN members cm ON cm.account_id = g.account_id AND cm.member_id = g.member_id
                   JOIN workspaces gw ON gw.account_id = g.account_id AND gw.workspace_id = g.workspace_id
                  WHERE g.account_id = r.account_id AND g.workspace_id = r.workspace_id AND g.member_id = r.creator_id
                    AND g.access = 'write' AND cm.status = 'active' AND gw.archived_at IS NULL) AS creator_may_write,
         t.kind AS task_kind, t.status AS task_status, t.generation, p.claimant_id, p.claim_key"
    };
}

/// `engine::eligibility::is_claimable` over a park `p` and its run `r`: a page of claims must pass over
/// what is taken or halted inside the server. `tests/it/batches.rs` holds both against each other.
macro_rules! claimable {
    () => {
        "p.claimed_at IS NULL AND p.kind = 'tool_call' AND NOT p.clock_frozen
         AND r.status IN ('running', 'canceling') AND NOT r.force_stopped AND r.deleted_at IS NULL"
    };
}

pub mod batch;
pub mod list;
pub mod proof;
pub mod single;

pub use batch::{Claimant, Dealt, Slot, Used};
pub use list::Listed;
pub use proof::ClaimState;
pub use single::{Taking, Wanted};

fn inbox_row(row: &Row) -> Result<InboxRow, Error> {
    let id = |column: &str| row.get::<_, Option<uuid::Uuid>>(column).map(PublicId);
    let role: Option<Role> = rows::word_opt(row, "tasks", "addressed_role")?;
    let key: String = row.get("key");
    let workspace_public_id = PublicId(row.get("workspace_public_id"));
    let conversation_public_id = None;
    let kind: ParkKind = rows::word(row, "parks", "park_kind")?;
    let started_at = At(row.get("park_started_at"));
    Ok(InboxRow {
        kind,
        question: question(row)?,
        effect_profile: row
            .get::<_, Option<String>>("shown_profile")
            .map(Canonical::trusted),
        run_public_id: PublicId(row.get("run_public_id")),
        workspace_public_id,
        conversation_public_id,
        parent_public_id: None,
        tool_name: row.get("tool_name"),
        tool_alias: row.get("tool_alias"),
        tool_input: row
            .get::<_, Option<String>>("tool_input")
            .map(Canonical::trusted),
        tool_call_id: row.get("tool_call_id"),
        target: id("target_public_id").map(|executor_public_id| ExecutorRef {
            executor_public_id,
            display_name: row.get("target_name"),
        }),
        scope: id("scope_user_public_id").map(|user_public_id| Scope {
            workspace_public_id,
            conversation_public_id,
            user_public_id,
        }),
        started_at: (kind != ParkKind::Approval).then_some(started_at),
        deadline_at: At(row.get("deadline_at")),
        timeout_ms: row.get("park_timeout_ms"),
        claimed: row.get::<_, Option<Timestamp>>("claimed_at").is_some(),
        addressed_to: AddressedTo {
            role: role.ok_or_else(|| Error::inconsistent("tasks", "addressed_role", &key))?,
            executor_public_id: id("addressed_public_id"),
        },
        task_key: TaskKey::trusted(key),
    })
}

fn question(row: &Row) -> Result<BTreeMap<&'static str, Canonical>, Error> {
    let mut shown = BTreeMap::new();
    if let Some(text) = row.get::<_, Option<&str>>("question") {
        let definition = rows::json(text, "task_inputs", "definition")?;
        for name in ["prompt", "options", "multi"] {
            let value = definition.get(name).and_then(|v| v.canonical().ok());
            shown.extend(value.map(|v| (name, v)));
        }
    }
    Ok(shown)
}

fn facts(row: &Row, caller: Caller, park: Option<ParkKind>) -> Result<claim::Facts, Error> {
    let principal: PrincipalFacts = rows::principal(row)?;
    Ok(claim::Facts {
        principal,
        creator_may_write: row.get("creator_may_write"),
        run_status: rows::word(row, "runs", "run_status")?,
        force_stopped: row.get("force_stopped"),
        task: TaskNo(row.get("task_no")),
        kind: rows::word(row, "tasks", "task_kind")?,
        status: rows::word(row, "tasks", "task_status")?,
        generation: row.get("generation"),
        addressed: rows::addressed(row)?,
        park,
        claim: row
            .get::<_, Option<i64>>("claimant_id")
            .map(|by| claim::Held {
                by: ExecutorId(by),
                key: row.get("claim_key"),
            }),
        caller,
    })
}

fn caller_of(row: &Row, announces: bool) -> Result<Caller, Error> {
    Ok(Caller {
        id: ExecutorId(row.get("executor_id")),
        public_id: PublicId(row.get("executor_public_id")),
        executor: rows::executor(row)?,
        epoch: row.get("credential_epoch"),
        announces,
    })
}

fn granted(row: &Row) -> Result<Granted, Error> {
    Ok(Granted {
        deadline_at: row.get("deadline_at"),
        park_no: ParkNo(row.get("park_no")),
        at: (RunId(row.get("run_id")), TaskNo(row.get("task_no"))),
        may_hold: row.get("may_hold"),
        row: inbox_row(row)?,
    })
}
