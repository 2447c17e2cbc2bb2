//! Stopping a run (`runs.md` §7). By force every row that has not settled is canceled and claimants
//! are told; gracefully, what has started may finish and keeps its result. Nothing is dispatched
//! afterwards (INV-25).

use super::expire;
use super::graph::{Graph, Outcome};
use crate::domain::TaskNo;
use crate::domain::refusal;
use crate::domain::words::RunStatus;
use crate::domain::words::TaskStatus;

/// Decides a forced stop. Every open row of the run is loaded, its park locked.
///
/// # Errors
/// `already_terminal`.
pub fn force(graph: &mut Graph, failure_reason: Option<String>) -> Result<(), refusal::Stop> {
    if let Some(answer) = of_ended(graph) {
        return answer;
    }
    let was_pending = graph.run.status == RunStatus::Pending;
    graph.run.force_stopped = true;
    graph.run.failure_reason = failure_reason;
    begin(graph);
    cancel(graph, |_| true);
    if was_pending {
        graph.set_run_status(RunStatus::Canceled);
    }
    Ok(())
}

/// Decides a graceful stop: unstarted rows are canceled now, the rest is waited for. Repeated, it
/// changes nothing. Every open row of the run is loaded, its park locked.
///
/// # Errors
/// `already_terminal`.
pub fn graceful(graph: &mut Graph) -> Result<(), refusal::Stop> {
    if let Some(answer) = of_ended(graph) {
        return answer;
    }
    match graph.run.status {
        RunStatus::Canceling => return Ok(()),
        RunStatus::Pending => return force(graph, None),
        _ => {}
    }
    begin(graph);
    cancel(graph, TaskStatus::is_unstarted);
    Ok(())
}

/// Forces a drain that has gone on for too long (`runs.md` §7); whether it was one that had.
pub fn force_drain(graph: &mut Graph, longest_ms: i64) -> bool {
    let since = graph.run.canceling_since;
    let long = since.is_some_and(|at| (graph.now - at).num_milliseconds() >= longest_ms);
    let drains = graph.run.status == RunStatus::Canceling && !graph.run.force_stopped;
    if !(drains && long) {
        return false;
    }
    let reason = graph.run.failure_reason.clone();
    force(graph, reason).is_ok()
}

/// The answer of a run that has ended: its published answer and status stand.
fn of_ended(graph: &mut Graph) -> Option<Result<(), refusal::Stop>> {
    match graph.run.status {
        RunStatus::Completed if graph.run.stopped_at.is_none() => {
            graph.run.stopped_at = Some(graph.now);
            graph.changes.run = true;
            Some(Ok(()))
        }
        RunStatus::Completed | RunStatus::Canceled => Some(Err(refusal::Stop::AlreadyTerminal)),
        _ => None,
    }
}

fn begin(graph: &mut Graph) {
    // From paused, the clock debt is paid first.
    graph.start_clocks();
    graph.run.stopped_at = Some(graph.now);
    graph.changes.run = true;
    if !matches!(graph.run.status, RunStatus::Pending | RunStatus::Canceling) {
        graph.set_run_status(RunStatus::Canceling);
    }
}

/// Cancels those open rows. Of all of them, one whose clock has run out settles its expiry (INV-23):
/// that an effect may have happened (`uncertain`) is not lost.
fn cancel(graph: &mut Graph, which: impl Fn(TaskStatus) -> bool) {
    let open = graph.tasks().filter(|t| !t.status.is_terminal());
    let open: Vec<(TaskNo, bool)> = open.map(|t| (t.no, which(t.status))).collect();
    for (no, cancels) in open {
        let due = graph.park(no).is_some_and(|p| expire::is_due(graph, p));
        if cancels || due {
            let why = Outcome::error("run_canceled", None);
            expire::or_cancel(graph, no, why);
        }
    }
}
