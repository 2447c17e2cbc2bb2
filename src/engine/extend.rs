//! Extending a live claim (`executor.md` §10): the same clock moved, bounded and narrated.

use subtle::ConstantTimeEq as _;

use super::facts::Caller;
use super::graph::Graph;
use crate::domain::event::Event;
use crate::domain::refusal;
use crate::domain::time::plus_ms;
use crate::domain::words::{ParkKind, TaskKind, TaskStatus};
use crate::domain::{TaskNo, Timestamp};

/// The longest extension when the executor announced nothing shorter.
pub const LONGEST_EXTENSION_MS: i64 = 3_600_000;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// SHA-256 of the claim token.
    pub token: [u8; 32],
    /// The new window from now.
    pub timeout_ms: i64,
}

/// Decides an extension.
///
/// # Errors
/// The protocol's refusals, in its order.
pub fn decide(
    graph: &mut Graph,
    no: TaskNo,
    caller: &Caller,
    request: &Request,
) -> Result<Timestamp, refusal::Extend> {
    let task = graph.task(no).ok_or(refusal::Extend::NotFound)?;
    if matches!(
        task.kind,
        TaskKind::Model | TaskKind::Join | TaskKind::Delegation
    ) {
        return Err(refusal::Extend::NotFound);
    }
    let park = graph
        .park(no)
        .filter(|p| p.kind == ParkKind::ToolCall && task.status == TaskStatus::Dispatched)
        .ok_or(refusal::Extend::NotExtendable)?;
    let claim = park.claim.as_ref().ok_or(refusal::Extend::NotExtendable)?;
    let ended = graph.run.status.is_terminal() || graph.run.force_stopped;
    if ended || graph.run_now() >= park.deadline_at {
        return Err(refusal::Extend::NotExtendable);
    }
    if claim.by != caller.id || !bool::from(claim.digest.ct_eq(&request.token[..])) {
        return Err(refusal::Extend::NotClaimant);
    }
    let bound = park
        .announced_timeout_ms
        .unwrap_or(LONGEST_EXTENSION_MS)
        .min(LONGEST_EXTENSION_MS);
    if request.timeout_ms > bound {
        return Err(refusal::Extend::ExtensionTooLong { bound_ms: bound });
    }
    let deadline_at = plus_ms(graph.run_now(), request.timeout_ms);
    let task_key = task.key.clone();
    graph.move_park(no, deadline_at);
    let shown = graph.run.on_the_wall(deadline_at, graph.now);
    graph.narrate(Event::TaskDeadlineExtended {
        task_key,
        deadline_at: shown,
        by: caller.public_id,
        timeout_ms: request.timeout_ms,
    });
    Ok(shown)
}
