//! Expiry: what a passed deadline makes of a parked row (`executor.md` §12). The sweep, every door
//! that meets a late answer and every cancel share this one function.

use super::facts::Park;
use super::graph::{Graph, Outcome};
use crate::domain::TaskNo;
use crate::domain::words::{ParkKind, RunStatus, TaskStatus};

/// Whether the park's clock has run out. Equal is late.
pub fn is_due(graph: &Graph, park: &Park) -> bool {
    graph.run_now() >= park.deadline_at
}

/// Settles the row by its frozen effect profile, if it is parked and due and the run is not
/// paused. Anything else (settled, claimed anew, extended, another generation) is left alone.
pub fn expire(graph: &mut Graph, no: TaskNo) -> bool {
    let Some(park) = graph.park(no) else {
        return false;
    };
    if graph.run.status == RunStatus::Paused || !is_due(graph, park) {
        return false;
    }
    settle_due(graph, no)
}

/// Settles a parked row as expired; its clock has been judged.
pub fn settle_due(graph: &mut Graph, no: TaskNo) -> bool {
    let Some(park) = graph.park(no) else {
        return false;
    };
    let (status, outcome) = verdict(park);
    graph.settle(no, status, outcome)
}

/// Ends a row that somebody cancels: one whose clock has run out settles its expiry instead, so that
/// order of arrival cannot matter (INV-23).
pub fn or_cancel(graph: &mut Graph, no: TaskNo, why: Outcome) -> bool {
    if graph.park(no).is_some_and(|park| is_due(graph, park)) {
        return settle_due(graph, no);
    }
    graph.settle(no, TaskStatus::Canceled, why)
}

/// The table.
fn verdict(park: &Park) -> (TaskStatus, Outcome) {
    match park.kind {
        ParkKind::ToolCall if park.claim.is_some() && !park.replayable => (
            TaskStatus::Uncertain,
            Outcome::error(
                "tool_uncertain",
                Some(
                    "The claim ran out without a result: its effect may have happened.".to_owned(),
                ),
            ),
        ),
        ParkKind::ToolCall => (TaskStatus::TimedOut, Outcome::error("tool_timeout", None)),
        ParkKind::Ask | ParkKind::Wait => {
            (TaskStatus::TimedOut, Outcome::error("await_timeout", None))
        }
        ParkKind::Approval => (
            TaskStatus::TimedOut,
            Outcome::error("approval_expired", None),
        ),
    }
}
