//! A person ends a branch (`engine.md` §7, `runs.md` §8.5): the one cancel that resolves, so that
//! whoever waits for the branch runs and reads it.
//!
//! The row is loaded with everything structurally behind it that is no mainline round and no
//! barrier, all edges into that, and the parks of all of it, locked.

use std::collections::{BTreeSet, VecDeque};

use super::expire;
use super::facts::Task;
use super::graph::{Graph, Outcome};
use crate::domain::TaskNo;
use crate::domain::refusal::Cancel as Refusal;
use crate::domain::words::{FailureResolution, Mark, TaskKind};

/// Decides a cancel of the branch that the row stands in front of.
///
/// # Errors
/// `not_adjudicable`, `not_a_branch`; `already_terminal`, which also settles a row that has expired.
pub fn cancel(graph: &mut Graph, no: TaskNo) -> Result<(), Refusal> {
    let task = graph.task(no).ok_or(Refusal::NotFound)?;
    if graph.run.status.is_terminal() {
        return Err(Refusal::NotAdjudicable);
    }
    if !may_be_a_branch(task) {
        return Err(Refusal::NotABranch);
    }
    if task.status.is_terminal() {
        return Err(Refusal::AlreadyTerminal);
    }
    if graph
        .park(no)
        .is_some_and(|park| expire::is_due(graph, park))
    {
        // The deadline wins: the row had settled, and the caller is told so.
        expire::settle_due(graph, no);
        return Err(Refusal::AlreadyTerminal);
    }
    for member in branch(graph, no) {
        let open = graph.task(member).is_some_and(|t| !t.status.is_terminal());
        if open {
            let why = Outcome {
                resolution: Some(FailureResolution::Canceled),
                ..Outcome::error("task_canceled", None)
            };
            expire::or_cancel(graph, member, why);
        }
    }
    Ok(())
}

fn may_be_a_branch(task: &Task) -> bool {
    task.mark != Some(Mark::Round) && task.kind != TaskKind::Join
}

/// The row and what is structurally behind it and behind nothing else.
fn branch(graph: &Graph, from: TaskNo) -> BTreeSet<TaskNo> {
    let mut members = BTreeSet::from([from]);
    let mut todo = VecDeque::from([from]);
    while let Some(no) = todo.pop_front() {
        for edge in graph.edges_of(no).iter().filter(|e| e.structural) {
            let inside = graph.task(edge.to).is_some_and(may_be_a_branch)
                && graph.tails_of(edge.to).all(|tail| members.contains(&tail));
            if inside && members.insert(edge.to) {
                todo.push_back(edge.to);
            }
        }
    }
    members
}
