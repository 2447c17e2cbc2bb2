//! An executor leaves (`executor.md` §19): rows that were addressed to it and that nobody claimed
//! fail, whatever the run's state, paused runs included. Claimed rows keep their own deadline and
//! profile; pool rows name no executor and stay.

use super::expire;
use super::graph::{Graph, Outcome};
use crate::domain::words::{ParkKind, TaskStatus};
use crate::domain::{ExecutorId, TaskNo};

/// Fails the row, if it is still an unclaimed call of that executor.
pub fn fail_unclaimed(graph: &mut Graph, no: TaskNo, executor: ExecutorId) -> bool {
    let waits_for_it = graph.park(no).is_some_and(|park| {
        park.kind == ParkKind::ToolCall && park.executor == Some(executor) && park.claim.is_none()
    });
    if !waits_for_it {
        return false;
    }
    if graph
        .park(no)
        .is_some_and(|park| expire::is_due(graph, park))
    {
        // The deadline wins (INV-23).
        return expire::settle_due(graph, no);
    }
    let why = Outcome::error("executor_revoked", None);
    graph.settle(no, TaskStatus::Failed, why)
}
