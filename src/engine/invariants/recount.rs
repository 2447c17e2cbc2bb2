//! A run recounted from nothing: what the statuses alone say that every edge, countdown, counter
//! and listed failure must be (INV-4, INV-6, L6). Whole-graph and naive on purpose.

use super::{World, place};
use crate::domain::TaskNo;
use crate::domain::words::{EdgeState, TaskKind, TaskStatus};
use crate::engine::facts::{Counts, Edge, Task};
use crate::engine::settlement::{Settlement, is_candidate, is_unresolved, settlement};

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
    let candidates = world.tasks.iter().filter(|t| is_candidate(t));
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
    match settlement(source) {
        Settlement::Pending => EdgeState::Open,
        Settlement::Success | Settlement::Resolved => EdgeState::Met,
        Settlement::Skip => EdgeState::Skip,
    }
}

fn counts(world: &World, remaining: &[i32]) -> Counts {
    let count = |of: &dyn Fn(&Task, i32) -> bool| {
        let rows = world.tasks.iter().zip(remaining);
        i32::try_from(rows.filter(|(t, r)| of(t, **r)).count()).unwrap_or(i32::MAX)
    };
    Counts {
        tasks: count(&|_, _| true),
        open: count(&|t, _| !t.status.is_terminal()),
        ready: count(&|t, remaining| {
            t.status == TaskStatus::Queued && remaining == 0 && t.kind != TaskKind::Join
        }),
        started: count(&|t, _| t.status.is_started()),
        approval: count(&|t, _| t.status == TaskStatus::NeedsApproval),
        unresolved: count(&|t, _| is_unresolved(t)),
        undelivered: world.run.counts.undelivered,
    }
}
