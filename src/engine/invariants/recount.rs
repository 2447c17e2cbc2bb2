//! A run recounted from nothing: what the statuses alone say that every edge, countdown, counter
//! and listed failure must be (INV-4, INV-6, L6). Whole-graph and naive on purpose; what a status
//! means (`engine.md` §4) is written down a second time here, so that a wrong rule in `settlement`
//! does not agree with itself.

use super::{World, place};
use crate::domain::TaskNo;
use crate::domain::words::{EdgeState, FailureResolution, Holder, OnFailure, TaskKind, TaskStatus};
use crate::engine::facts::{Counts, Edge, Task};

/// What the rows' statuses say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recount {
    /// Each edge's state, in the order of [`World::edges`].
    pub edges: Vec<EdgeState>,
    /// Each row's open incoming edges, in the order of [`World::tasks`].
    pub remaining: Vec<i32>,
    /// The run's counters; `undelivered` is not derived from these rows and stays as it is.
    pub counts: Counts,
    /// The rows that a person may retry or abandon, ascending.
    pub failures: Vec<TaskNo>,
}

/// Recounts a run whose edges stay inside it.
pub fn recount(world: &World) -> Recount {
    let edges: Vec<EdgeState> = world.edges.iter().map(|e| state(world, e)).collect();
    let mut remaining = vec![0; world.tasks.len()];
    for (edge, state) in world.edges.iter().zip(&edges) {
        if let Some(head) = place(world, edge.to).filter(|_| *state == EdgeState::Open) {
            remaining[head] += 1;
        }
    }
    let candidates = world.tasks.iter().filter(|t| may_be_mended(t));
    Recount {
        counts: counts(world, &remaining),
        failures: candidates.map(|t| t.no).collect(),
        edges,
        remaining,
    }
}

/// What an edge must have come to. A reference to a row that had settled when the edge was born is
/// met whatever the row came to (`engine.md` §5).
fn state(world: &World, edge: &Edge) -> EdgeState {
    let Some(source) = place(world, edge.from).map(|at| &world.tasks[at]) else {
        return edge.state;
    };
    let born_met = !edge.structural && edge.state == EdgeState::Met;
    if born_met && (source.status.is_terminal() || source.generation > 0) {
        return EdgeState::Met;
    }
    meaning(source)
}

fn has_failed(task: &Task) -> bool {
    matches!(
        task.status,
        TaskStatus::Failed | TaskStatus::TimedOut | TaskStatus::Uncertain
    )
}

/// Whether a failure was let go: by a person, or by a race that settled without it.
fn is_let_go(task: &Task) -> bool {
    task.failure_resolution.is_some() || task.race_absorbed
}

/// What an edge from the row comes to.
fn meaning(task: &Task) -> EdgeState {
    let by_owner = task
        .error
        .as_ref()
        .is_some_and(|e| e.key == "operation_canceled");
    let stamped = task.failure_resolution == Some(FailureResolution::Canceled);
    match (task.status, task.on_failure) {
        (TaskStatus::Completed, _) => EdgeState::Met,
        (TaskStatus::Skipped, _) => EdgeState::Skip,
        (TaskStatus::Canceled, _) if stamped => EdgeState::Met,
        (TaskStatus::Canceled, OnFailure::Absorb) if by_owner => EdgeState::Met,
        (TaskStatus::Canceled, _) => EdgeState::Skip,
        (_, _) if !has_failed(task) => EdgeState::Open,
        (_, OnFailure::Absorb) => EdgeState::Met,
        (_, OnFailure::Propagate) if task.failure_resolution.is_none() => EdgeState::Skip,
        (_, OnFailure::Halt) if !is_let_go(task) => EdgeState::Open,
        _ => EdgeState::Met,
    }
}

/// Whether the row is a failure that holds its run.
pub(super) fn holds(task: &Task) -> bool {
    has_failed(task) && meaning(task) == EdgeState::Open
}

/// Whether a person may retry or abandon the row.
pub(super) fn may_be_mended(task: &Task) -> bool {
    has_failed(task) && task.on_failure != OnFailure::Absorb && !is_let_go(task)
}

fn counts(world: &World, remaining: &[i32]) -> Counts {
    let mut counts = Counts {
        tasks: i32::try_from(world.tasks.len()).unwrap_or(i32::MAX),
        undelivered: world.run.counts.undelivered,
        ..Counts::default()
    };
    for (task, remaining) in world.tasks.iter().zip(remaining) {
        let free = task.status == TaskStatus::Queued && *remaining == 0;
        let starts = matches!(task.kind, TaskKind::Tool | TaskKind::Await);
        let waits = task.holder == Some(Holder::Kernel) && task.status == TaskStatus::Dispatched;
        for (count, of) in [
            (&mut counts.open, !task.status.is_terminal()),
            (&mut counts.ready, free && starts),
            (&mut counts.rounds, free && task.kind == TaskKind::Model),
            (&mut counts.running, task.status == TaskStatus::Running),
            (
                &mut counts.awaiting,
                task.status == TaskStatus::AwaitingInput,
            ),
            (&mut counts.waits, waits),
            (&mut counts.started, task.status.is_started()),
            (
                &mut counts.approval,
                task.status == TaskStatus::NeedsApproval,
            ),
            (&mut counts.unresolved, holds(task)),
        ] {
            *count += i32::from(of);
        }
    }
    counts
}
