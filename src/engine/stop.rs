//! Stopping a run by force (`runs.md` §7): every row that has not settled is canceled, claimants
//! are told, and nothing is dispatched afterwards (INV-25).

use super::graph::{Graph, Outcome};
use crate::domain::TaskNo;
use crate::domain::refusal;
use crate::domain::words::{RunStatus, TaskStatus};

/// Decides a forced stop. Every open row of the run is loaded.
///
/// # Errors
/// `already_terminal`.
pub fn force(graph: &mut Graph, failure_reason: Option<String>) -> Result<(), refusal::Stop> {
    match graph.run.status {
        RunStatus::Canceled => return Err(refusal::Stop::AlreadyTerminal),
        RunStatus::Completed if graph.run.stopped_at.is_some() => {
            return Err(refusal::Stop::AlreadyTerminal);
        }
        RunStatus::Completed => {
            // The published answer and status stand.
            graph.run.stopped_at = Some(graph.now);
            graph.changes.run = true;
            return Ok(());
        }
        _ => {}
    }
    let was_pending = graph.run.status == RunStatus::Pending;
    graph.run.force_stopped = true;
    graph.run.stopped_at = Some(graph.now);
    graph.run.failure_reason = failure_reason;
    graph.run.paused_at = None;
    if !was_pending && graph.run.status != RunStatus::Canceling {
        graph.set_run_status(RunStatus::Canceling);
    }
    let open: Vec<TaskNo> = graph
        .tasks()
        .filter(|t| !t.status.is_terminal())
        .map(|t| t.no)
        .collect();
    for no in open {
        graph.settle(
            no,
            TaskStatus::Canceled,
            Outcome::error("run_canceled", None),
        );
    }
    if was_pending {
        graph.set_run_status(RunStatus::Canceled);
    }
    Ok(())
}
