//! Starting a ready row: the approval stage, the addressee, the park (`engine.md` §3, §10,
//! `executor.md` §5, `runs.md` §12).

use super::approval::Verdict;
use super::eligibility::is_eligible;
use super::facts::{Addressed, Candidate, Park, Served, Task};
use super::graph::{Graph, Outcome};
use crate::domain::event::ApprovalFact;
use crate::domain::hint::Hint;
use crate::domain::time::plus_ms;
use crate::domain::words::{ExecutorKind, Holder, ParkKind, Role, TaskKind, TaskStatus};
use crate::domain::{ExecutorId, PublicId, TaskNo};

/// A tool call's budget when neither its author nor its executor names one.
pub const DEFAULT_TIMEOUT_MS: i64 = 600_000;

/// The tool that reads a Runner's document.
const SKILL: &str = "skill";

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

/// An authored question's or observation's clock when none was written: one hour.
pub const DEFAULT_AWAIT_MS: i64 = 3_600_000;

/// The longest that one park of an await, or of a call that rests for an approver, lasts.
pub const LONGEST_REST_MS: i64 = 86_400_000;

/// Whether starting the row asks the declaring agent's application: a question without a token.
pub fn asks_host(task: &Task) -> bool {
    task.kind == TaskKind::Await && task.holder == Some(Holder::Person)
}

/// Starts a ready row; `verdict` is what the approval stage says of a call.
pub fn start(graph: &mut Graph, no: TaskNo, candidates: &[Candidate], verdict: Option<Verdict>) {
    let Some(task) = graph.task(no) else { return };
    match task.kind {
        TaskKind::Tool => match task.approval.clone() {
            // Approved while the run could not start it: it does not cross the stage again.
            Some(fact) => send(graph, no, fact, candidates),
            None => cross(graph, no, candidates, verdict.unwrap_or(Verdict::Park)),
        },
        TaskKind::Await => start_await(graph, no),
        // Rounds wait for a worker, barriers are never started, delegations are born running.
        TaskKind::Model | TaskKind::Join | TaskKind::Delegation => {}
    }
}

/// Every call crosses the stage, and the crossing is narrated even when nobody is asked.
fn cross(graph: &mut Graph, no: TaskNo, candidates: &[Candidate], verdict: Verdict) {
    graph.set_status(no, TaskStatus::NeedsApproval);
    match verdict {
        Verdict::Deny(reason) => {
            let why = Outcome::error("approval_denied", reason);
            graph.settle(no, TaskStatus::Failed, why);
        }
        Verdict::Park => rest(graph, no, candidates),
        Verdict::Grant(origin) => {
            let fact = ApprovalFact {
                origin,
                decided_by: None,
                decided_at: graph.now,
            };
            send(graph, no, fact, candidates);
        }
    }
}

/// Sends a granted call to where it goes, if there is such a place.
fn send(graph: &mut Graph, no: TaskNo, fact: ApprovalFact, candidates: &[Candidate]) {
    let task = graph.task(no).expect("a row that starts is loaded");
    let Some(address) = address(task, &graph.run.principal, candidates) else {
        let why = Outcome::error("tool_not_served", None);
        graph.settle(no, TaskStatus::Failed, why);
        return;
    };
    graph.write(no, |task| task.approval = Some(fact));
    dispatch(graph, no, address);
}

/// A person approved a resting call: its frozen target is looked at again. Another profile makes
/// it rest again, for the new one and with a fresh clock (`runs.md` §8.4).
pub fn approved(graph: &mut Graph, no: TaskNo, fact: ApprovalFact, candidates: &[Candidate]) {
    let task = graph.task(no).expect("an approved row is loaded");
    let address = address(task, &graph.run.principal, candidates);
    let shown = graph.park(no).and_then(|p| p.effect_profile.clone());
    let changed = address
        .as_ref()
        .is_some_and(|a| Some(&a.frozen.effect_profile) != shown.as_ref());
    graph.end_park(no);
    if changed {
        rest(graph, no, candidates);
    } else {
        send(graph, no, fact, candidates);
    }
}

/// Parks a call on whoever approves it.
fn rest(graph: &mut Graph, no: TaskNo, candidates: &[Candidate]) {
    let task = graph.task(no).expect("a row that rests is loaded");
    let Some(address) = address(task, &graph.run.principal, candidates) else {
        let why = Outcome::error("tool_not_served", None);
        graph.settle(no, TaskStatus::Failed, why);
        return;
    };
    let (generation, tool_name) = (task.generation, task.tool_name.clone());
    let now = graph.now;
    address_to_host(graph, no);
    graph.insert_park(Park {
        task: no,
        kind: ParkKind::Approval,
        executor: graph.host().map(|h| h.id),
        pool_name: None,
        deadline_at: plus_ms(now, LONGEST_REST_MS),
        timeout_ms: LONGEST_REST_MS,
        announced_timeout_ms: None,
        effect_profile: Some(address.frozen.effect_profile),
        replayable: address.frozen.replayable,
        generation,
        started_at: now,
        claim: None,
    });
    tell_host(graph, no, ParkKind::Approval, tool_name);
}

fn start_await(graph: &mut Graph, no: TaskNo) {
    let task = graph.task(no).expect("a row that starts is loaded");
    let (generation, holder) = (task.generation, task.holder.unwrap_or(Holder::Token));
    let authored = task.timeout_ms.unwrap_or(DEFAULT_AWAIT_MS);
    let timeout_ms = authored.min(LONGEST_REST_MS);
    let now = graph.now;
    let (status, kind) = match holder {
        Holder::Token => (TaskStatus::Dispatched, ParkKind::Ask),
        Holder::Person => (TaskStatus::AwaitingInput, ParkKind::Ask),
        Holder::Kernel => (TaskStatus::Dispatched, ParkKind::Wait),
    };
    let host = (holder == Holder::Person).then(|| graph.host()).flatten();
    if holder == Holder::Person {
        address_to_host(graph, no);
    }
    graph.write(no, |task| task.started_at = Some(now));
    graph.set_status(no, status);
    graph.insert_park(Park {
        task: no,
        kind,
        executor: host.map(|h| h.id),
        pool_name: None,
        deadline_at: plus_ms(now, timeout_ms),
        timeout_ms,
        announced_timeout_ms: None,
        effect_profile: None,
        replayable: false,
        generation,
        started_at: now,
        claim: None,
    });
    if holder == Holder::Person {
        tell_host(graph, no, ParkKind::Ask, None);
    }
    if holder == Holder::Kernel {
        graph.watch(no);
    }
}

fn address_to_host(graph: &mut Graph, no: TaskNo) {
    let addressed = graph.host().map(|host| Addressed {
        role: Role::AgentApplication,
        executor: Some(host.id),
    });
    graph.write(no, |task| task.addressed = addressed);
}

fn tell_host(graph: &mut Graph, no: TaskNo, kind: ParkKind, tool_name: Option<String>) {
    let Some(host) = graph.host() else { return };
    let task_key = graph.task(no).expect("a parked row is loaded").key.clone();
    let hint = Hint::WorkAvailable {
        executor: host.public_id,
        kind,
        run: graph.run.public_id,
        task_key,
        tool_name,
    };
    graph.changes.hints.push(hint);
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
        let mut chosen = candidates.iter().filter(serving);
        let chosen = chosen.find(|c| c.id == target && serves_document(task, c))?;
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

/// A `skill` must also find the document that it names; other tools need none.
fn serves_document(task: &Task, target: &Candidate) -> bool {
    if task.tool_name.as_deref() != Some(SKILL) {
        return true;
    }
    target.document.as_ref().is_some_and(|document| {
        let named = document.named.as_ref();
        named.is_some_and(|name| document.announced.contains(name))
    })
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
