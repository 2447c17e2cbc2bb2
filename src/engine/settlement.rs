//! What a row's state means to whoever waits for it (`engine.md` §4). The whole table.

use super::facts::Task;
use crate::domain::words::{FailureResolution, OnFailure, TaskStatus};

/// A row's meaning to a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// Not yet known: it runs, or its failure waits for a person.
    Pending,
    /// It succeeded.
    Success,
    /// It did not, and its consumers go on.
    Resolved,
    /// It did not, and its consumers are skipped.
    Skip,
}

/// The error key of a cancel by the owner's `cancel` operation.
pub const OPERATION_CANCELED: &str = "operation_canceled";

/// The settlement of a row.
pub fn settlement(task: &Task) -> Settlement {
    match task.status {
        TaskStatus::Completed => Settlement::Success,
        TaskStatus::Failed | TaskStatus::TimedOut | TaskStatus::Uncertain => failure(task),
        TaskStatus::Canceled if task.failure_resolution == Some(FailureResolution::Canceled) => {
            Settlement::Resolved
        }
        TaskStatus::Canceled if canceled_by_owner(task) && task.on_failure == OnFailure::Absorb => {
            Settlement::Resolved
        }
        TaskStatus::Canceled | TaskStatus::Skipped => Settlement::Skip,
        _ => Settlement::Pending,
    }
}

fn failure(task: &Task) -> Settlement {
    if task.failure_resolution.is_some() {
        return Settlement::Resolved;
    }
    match task.on_failure {
        OnFailure::Absorb => Settlement::Resolved,
        OnFailure::Propagate => Settlement::Skip,
        OnFailure::Halt if task.race_absorbed || task.taken_over => Settlement::Resolved,
        OnFailure::Halt => Settlement::Pending,
    }
}

fn canceled_by_owner(task: &Task) -> bool {
    task.error
        .as_ref()
        .is_some_and(|e| e.key == OPERATION_CANCELED)
}

/// Whether a person may retry or abandon the row (`runs.md` §7.2).
pub fn is_candidate(task: &Task) -> bool {
    matches!(
        task.status,
        TaskStatus::Failed | TaskStatus::TimedOut | TaskStatus::Uncertain
    ) && task.failure_resolution.is_none()
        && task.on_failure != OnFailure::Absorb
        && !task.race_absorbed
}

/// Whether the row is a failure that holds its run until a person decides. Work of an operation
/// holds it only while something of its batch waits behind it: else its owner's next observation,
/// or its owner's end, resolves it (`operations.md` §5.1).
pub fn is_unresolved(task: &Task) -> bool {
    let owners = task.owner.is_some() && task.is_tip;
    task.status.is_terminal() && !owners && settlement(task) == Settlement::Pending
}
