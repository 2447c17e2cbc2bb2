//! A person decides about a call that rests (`runs.md` §8.4).

use super::facts::Task;
use super::graph::{Graph, Outcome};
use crate::domain::event::ApprovalFact;
use crate::domain::payload::{DETAIL_BYTES, cut};
use crate::domain::refusal::Approval as Refusal;
use crate::domain::words::{ApprovalOrigin, MemberKind, RunStatus, TaskStatus};
use crate::domain::{PublicId, TaskNo};

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decider {
    /// What it is.
    pub kind: MemberKind,
    /// Its public id.
    pub public_id: PublicId,
}

impl Decider {
    fn fact(self, graph: &Graph) -> ApprovalFact {
        ApprovalFact {
            origin: match self.kind {
                MemberKind::Human => ApprovalOrigin::Human,
                MemberKind::Agent => ApprovalOrigin::Agent,
            },
            decided_by: Some(self.public_id),
            decided_at: graph.now,
        }
    }
}

/// Decides an approval. In a running run the call is sent on its way, if its target still serves
/// it under the profile that was shown; in a paused or held one it waits to start, and does not
/// cross the stage again.
///
/// # Errors
/// `not_adjudicable`; `not_awaiting_approval`, which also settles a call that has expired.
pub fn approve(graph: &mut Graph, no: TaskNo, by: Decider) -> Result<(), Refusal> {
    prove_resting(graph, no)?;
    let fact = by.fact(graph);
    if graph.run.status == RunStatus::Running {
        graph.grant(no, fact);
        return Ok(());
    }
    graph.end_park(no);
    graph.write(no, |task| {
        task.approval = Some(fact);
        task.addressed = None;
        task.status = TaskStatus::Queued;
    });
    graph.narrate_task(no);
    Ok(())
}

/// Decides a denial: the call fails by its policy.
///
/// # Errors
/// As [`approve`].
pub fn deny(
    graph: &mut Graph,
    no: TaskNo,
    by: Decider,
    reason: Option<&str>,
) -> Result<(), Refusal> {
    prove_resting(graph, no)?;
    let fact = by.fact(graph);
    graph.write(no, |task| task.approval = Some(fact));
    let detail = reason.map(|r| cut(r, DETAIL_BYTES).to_owned());
    let why = Outcome::error("approval_denied", detail);
    graph.settle(no, TaskStatus::Failed, why);
    Ok(())
}

fn prove_resting(graph: &mut Graph, no: TaskNo) -> Result<(), Refusal> {
    let task: &Task = graph.task(no).ok_or(Refusal::NotFound)?;
    let rests = task.status == TaskStatus::NeedsApproval;
    let adjudicable = matches!(
        graph.run.status,
        RunStatus::Running | RunStatus::Paused | RunStatus::NeedsAttention
    );
    if !adjudicable {
        return Err(Refusal::NotAdjudicable);
    }
    let park = graph.park(no).filter(|_| rests);
    let Some(park) = park else {
        return Err(Refusal::NotAwaitingApproval);
    };
    if super::expire::is_due(graph, park) {
        // The deadline wins: no fact is recorded, and the caller is told so.
        super::expire::settle_due(graph, no);
        return Err(Refusal::NotAwaitingApproval);
    }
    Ok(())
}
