//! What a run that is at rest asks of a person: the exact rule of holds and attention
//! (`engine.md` §7, `runs.md` §7.2).

use super::recount::{holds, may_be_mended};
use super::{Finding, View, Violation, World, ensure, view};
use crate::domain::TaskKey;
use crate::domain::words::{AttentionReason, ParkKind, RunStatus, TaskStatus};

/// The rows that a reason names.
pub(super) fn keys_of(view: &View<'_>, reason: AttentionReason) -> Vec<TaskKey> {
    let named = view.world.tasks.iter().filter(|t| match reason {
        AttentionReason::HaltFailure => holds(t),
        AttentionReason::DeliverableUnresolved => may_be_mended(t),
        AttentionReason::ApprovalRequired => t.status == TaskStatus::NeedsApproval,
        AttentionReason::AwaitingHuman => t.status == TaskStatus::AwaitingInput,
    });
    let mut keys: Vec<TaskKey> = named.map(|t| t.key.clone()).collect();
    keys.sort();
    keys
}

/// Whether a failure holds the run: nothing is ready or at work in the kernel, and no park but
/// claimed calls and questions remains. The second: whether a question remains.
fn failure_holds(view: &View<'_>) -> (bool, bool) {
    let counts = view.recount().counts;
    let idle = counts.ready + counts.rounds + counts.running + counts.waits == 0;
    let parks = || view.world.parks.iter();
    let waits = parks().any(|p| match p.kind {
        ParkKind::ToolCall => p.claim.is_none(),
        ParkKind::Wait => true,
        ParkKind::Ask | ParkKind::Approval => false,
    });
    let asks = parks().any(|p| p.kind == ParkKind::Ask);
    (idle && !waits && counts.unresolved > 0, asks)
}

/// What must hold of a run whenever a transaction over it has come to rest. A claim takes no run
/// lock: whoever grants the last one in a run with a failure has the run looked at.
///
/// # Errors
/// What was not judged.
pub fn rest_is_judged(world: &World) -> Result<(), Violation> {
    judged(&view(world)?)
}

pub(super) fn judged(view: &View<'_>) -> Result<(), Violation> {
    is_judged(view).map_err(|detail| Violation {
        name: "INV-16 rest_is_judged",
        detail,
    })
}

fn is_judged(view: &View<'_>) -> Finding {
    let run = &view.world.run;
    let counts = view.recount().counts;
    let (held, asks) = failure_holds(view);
    let reason = run.attention.as_ref().map(|a| a.reason);
    match run.status {
        RunStatus::Running => {
            ensure(!held || asks, || "a failure should hold the run".to_owned())?;
            ensure(!held || reason.is_some(), || {
                "a failure is told of beside a question".to_owned()
            })?;
        }
        RunStatus::NeedsAttention => {
            let (unresolved, parks) = (counts.unresolved > 0, !view.world.parks.is_empty());
            let wanted = if unresolved {
                AttentionReason::HaltFailure
            } else {
                AttentionReason::DeliverableUnresolved
            };
            ensure(reason == Some(wanted), || {
                format!("held for {reason:?}, not {wanted}")
            })?;
            let claimed = view.world.parks.iter().all(|p| match p.kind {
                ParkKind::ToolCall => p.claim.is_some(),
                ParkKind::Approval => true,
                ParkKind::Ask | ParkKind::Wait => false,
            });
            ensure(claimed && counts.running == 0, || {
                "held while somebody may still make work ready".to_owned()
            })?;
            ensure(unresolved || !parks, || {
                "held for an answer that may still come".to_owned()
            })?;
            return Ok(());
        }
        RunStatus::Paused => {}
        _ => return Ok(()),
    }
    let rests = counts.approval + counts.awaiting > 0;
    ensure(!rests || reason.is_some(), || {
        "somebody is waited for, and nobody is told".to_owned()
    })
}

/// From one command to the next: a reason stands while its rows are there; then comes the first of
/// the order. A hold's own reason comes before any other.
///
/// # Errors
/// Which reason should stand.
pub fn a_reason_stands(before: &World, after: &World) -> Result<(), Violation> {
    reasoned(before, &view(after)?)
}

pub(super) fn reasoned(before: &World, after: &View<'_>) -> Result<(), Violation> {
    reason_stands(before, after).map_err(|detail| Violation {
        name: "INV-35 a_reason_stands",
        detail,
    })
}

fn reason_stands(before: &World, view: &View<'_>) -> Finding {
    use AttentionReason::{ApprovalRequired, AwaitingHuman, HaltFailure};
    let run = &view.world.run;
    if !matches!(run.status, RunStatus::Running | RunStatus::Paused) {
        return Ok(());
    }
    let stands = |reason: AttentionReason| {
        reason != AttentionReason::DeliverableUnresolved && !keys_of(view, reason).is_empty()
    };
    let standing = before.run.attention.as_ref().map(|a| a.reason);
    let (held, asks) = failure_holds(view);
    let raised = held && asks && run.status == RunStatus::Running;
    let first = [ApprovalRequired, AwaitingHuman]
        .into_iter()
        .find(|r| stands(*r));
    let first = if raised { Some(HaltFailure) } else { first };
    let wanted = standing.filter(|r| stands(*r)).or(first);
    let is = run.attention.as_ref().map(|a| a.reason);
    ensure(is == wanted, || {
        format!("{is:?} stands after {standing:?}, not {wanted:?}")
    })
}
