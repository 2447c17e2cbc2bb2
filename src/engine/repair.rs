//! What a person does about a failure (`engine.md` §7, `runs.md` §8.3): retry runs the row again,
//! abandon lets it go. Either first opens again what the failure's skip had closed.
//!
//! The row is loaded with everything downstream that its skip reached, and all edges into that; what
//! an earlier command of the same transaction skipped is asked for as it is opened again.

use super::graph::Graph;
use super::settlement::is_candidate;
use crate::domain::TaskNo;
use crate::domain::refusal;
use crate::domain::words::{FailureResolution, OnFailure, RunStatus, TaskKind};

/// Whether the run takes a person's word about its failures; one that has not started has none yet.
fn is_adjudicable(graph: &Graph) -> bool {
    !matches!(
        graph.run.status,
        RunStatus::Canceling | RunStatus::Canceled | RunStatus::Completed
    )
}

/// Decides a retry: the same row, one generation later, waiting; a held run goes on.
///
/// # Errors
/// `not_adjudicable`, `not_retryable`.
pub fn retry(graph: &mut Graph, no: TaskNo) -> Result<(), refusal::Retry> {
    let task = graph.task(no).ok_or(refusal::Retry::NotFound)?;
    let retryable =
        is_candidate(task) && !matches!(task.kind, TaskKind::Join | TaskKind::Delegation);
    let skipped = task.on_failure == OnFailure::Propagate;
    if !is_adjudicable(graph) {
        return Err(refusal::Retry::NotAdjudicable);
    }
    if !retryable {
        return Err(refusal::Retry::NotRetryable);
    }
    if skipped {
        graph.reopen(no);
    }
    graph.revive(no);
    graph.end_hold();
    Ok(())
}

/// Decides an abandon: the failure is stamped, its dependents go on, joins count anew.
///
/// # Errors
/// `not_adjudicable`, `not_abandonable`.
pub fn abandon(graph: &mut Graph, no: TaskNo) -> Result<(), refusal::Abandon> {
    let task = graph.task(no).ok_or(refusal::Abandon::NotFound)?;
    let skipped = task.on_failure == OnFailure::Propagate;
    if !is_adjudicable(graph) {
        return Err(refusal::Abandon::NotAdjudicable);
    }
    if !is_candidate(task) {
        return Err(refusal::Abandon::NotAbandonable);
    }
    graph.write(no, |task| {
        task.failure_resolution = Some(FailureResolution::Abandoned);
    });
    graph.narrate_task(no);
    if skipped {
        graph.reopen(no);
    }
    graph.release_again(no);
    graph.end_hold();
    Ok(())
}
