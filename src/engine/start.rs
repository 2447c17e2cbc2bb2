//! Starting a ready row: the approval stage, the addressee, the park (`engine.md` §3, §10,
//! `executor.md` §5, `runs.md` §12).

use super::eligibility::is_eligible;
use super::facts::{Addressed, Candidate, Park, Served, Task};
use super::graph::{Graph, Outcome};
use crate::domain::event::ApprovalFact;
use crate::domain::hint::Hint;
use crate::domain::time::plus_ms;
use crate::domain::words::{
    ApprovalOrigin, AuthoredBy, ExecutorKind, ParkKind, Role, TaskKind, TaskStatus,
};
use crate::domain::{ExecutorId, PublicId, TaskNo};

/// A tool call's budget when neither its author nor its executor names one.
pub const DEFAULT_TIMEOUT_MS: i64 = 600_000;

/// Where a call goes, with what is frozen about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// As what, and to which one.
    pub addressed: Addressed,
    /// The tool whose providers form the pool.
    pub pool_name: Option<String>,
    /// Profile and announced time-out, frozen.
    pub frozen: Served,
    /// Whom to tell.
    pub audience: Vec<PublicId>,
}

/// Starts a ready row.
pub fn start(graph: &mut Graph, no: TaskNo, candidates: &[Candidate]) {
    // Model rounds wait for a worker; awaits and joins are not authored by this release's doors.
    if graph.task(no).is_some_and(|t| t.kind == TaskKind::Tool) {
        start_tool(graph, no, candidates);
    }
}

fn start_tool(graph: &mut Graph, no: TaskNo, candidates: &[Candidate]) {
    // Every tool call crosses the stage, and the crossing is narrated even when nobody is asked.
    graph.set_status(no, TaskStatus::NeedsApproval);
    let decided_at = graph.now;
    let task = graph.task(no).expect("a row that starts is loaded");
    let origin = match task.authored_by {
        AuthoredBy::Author => ApprovalOrigin::Author,
        AuthoredBy::Kernel => ApprovalOrigin::Kernel,
        AuthoredBy::Model => ApprovalOrigin::Mode,
    };
    let Some(address) = address(task, &graph.run.principal, candidates) else {
        graph.settle(
            no,
            TaskStatus::Failed,
            Outcome::error("tool_not_served", None),
        );
        return;
    };
    graph.write(no, |task| {
        task.approval = Some(ApprovalFact {
            origin,
            decided_by: None,
            decided_at,
        });
    });
    dispatch(graph, no, address);
}

/// Parks a granted call on its addressee.
fn dispatch(graph: &mut Graph, no: TaskNo, address: Address) {
    let now = graph.now;
    let task = graph.task(no).expect("a row that starts is loaded");
    let timeout_ms = task
        .timeout_ms
        .or(address.frozen.timeout_ms)
        .unwrap_or(DEFAULT_TIMEOUT_MS);
    let (generation, key, tool_name) = (task.generation, task.key.clone(), task.tool_name.clone());
    graph.write(no, |task| {
        task.addressed = Some(address.addressed);
        task.started_at = Some(now);
    });
    graph.set_status(no, TaskStatus::Dispatched);
    graph.insert_park(Park {
        task: no,
        kind: ParkKind::ToolCall,
        executor: address.addressed.executor,
        pool_name: address.pool_name,
        deadline_at: plus_ms(now, timeout_ms),
        timeout_ms,
        announced_timeout_ms: address.frozen.timeout_ms,
        effect_profile: Some(address.frozen.effect_profile),
        replayable: address.frozen.replayable,
        generation,
        started_at: now,
        claim: None,
    });
    let run = graph.run.public_id;
    graph.changes.hints.extend(
        address
            .audience
            .into_iter()
            .map(|executor| Hint::WorkAvailable {
                executor,
                kind: ParkKind::ToolCall,
                run,
                task_key: key.clone(),
                tool_name: tool_name.clone(),
            }),
    );
}

/// Where a call goes: its frozen target; else the declaring agent's own address; else the pool of
/// providers that announce it; else nowhere. A runner is never inferred from a name.
pub fn address(
    task: &Task,
    principal: &super::eligibility::PrincipalFacts,
    candidates: &[Candidate],
) -> Option<Address> {
    let serving = |c: &&Candidate| c.serves.is_some() && is_eligible(&c.executor, principal);
    if let Some(target) = task.target {
        let chosen = candidates.iter().filter(serving).find(|c| c.id == target)?;
        return to_one(chosen, Role::Runner);
    }
    let own = candidates
        .iter()
        .filter(serving)
        .find(|c| c.executor.kind == ExecutorKind::AgentApplication);
    if let Some(chosen) = own {
        return to_one(chosen, Role::AgentApplication);
    }
    let mut pool: Vec<&Candidate> = candidates
        .iter()
        .filter(serving)
        .filter(|c| c.executor.kind == ExecutorKind::ToolProvider)
        .collect();
    pool.sort_by_key(|c: &&Candidate| -> ExecutorId { c.id });
    to_pool(task, &pool)
}

fn to_one(chosen: &Candidate, role: Role) -> Option<Address> {
    Some(Address {
        addressed: Addressed {
            role,
            executor: Some(chosen.id),
        },
        pool_name: None,
        frozen: chosen.serves.clone()?,
        audience: vec![chosen.public_id],
    })
}

/// A pool freezes the profile of its first member that may not be run again, else of its first;
/// and the shortest announced time-out.
fn to_pool(task: &Task, pool: &[&Candidate]) -> Option<Address> {
    let served = || pool.iter().filter_map(|c| c.serves.as_ref());
    let profile = served()
        .find(|s| !s.replayable)
        .or_else(|| served().next())?;
    Some(Address {
        addressed: Addressed {
            role: Role::ToolProvider,
            executor: None,
        },
        pool_name: task.tool_name.clone(),
        frozen: Served {
            effect_profile: profile.effect_profile.clone(),
            replayable: profile.replayable,
            timeout_ms: served().filter_map(|s| s.timeout_ms).min(),
        },
        audience: pool.iter().map(|c| c.public_id).collect(),
    })
}
