//! Another batch for tasks that have not started (`operations.md` §5.2): all of it or nothing, one
//! winner against dispatch.
//!
//! The new batch waits on what stood before the replaced rows; whoever waited for those waits for its
//! tips. Joins follow operations, and are left alone.

use std::collections::{BTreeMap, BTreeSet};

use super::batch::{self, Hang};
use super::{Receipt, Recorded, Request, attached, named};
use crate::domain::json::{Value, parse};
use crate::domain::steps::Bounds;
use crate::domain::words::{EdgeState, TaskKind, TaskStatus};
use crate::domain::{TaskKey, TaskNo};
use crate::engine::append::standing;
use crate::engine::compile::{Ref, StandingRow};
use crate::engine::expire;
use crate::engine::facts::{Edge, Task};
use crate::engine::graph::{Graph, Outcome};
use crate::engine::mint::Mint;

/// Replaces rows of an operation of the call. All its rows are loaded, the edges out of and into
/// them, and the rows at the other ends.
///
/// # Errors
/// `unknown_operation`, `operation_released`, `unknown_task`, `invalid_input`, `task_already_started`,
/// `invalid_replacement`, and what refuses a batch.
pub(super) fn replace(
    graph: &mut Graph,
    parent: &Task,
    position: i32,
    (key, tasks, steps): (&str, &[String], &Value),
    request: &Request,
    mint: &mut Mint,
) -> Result<Receipt, Recorded> {
    let operation = attached(graph, parent.no, key)?.clone();
    let selected = named(graph, &operation, tasks)?;
    let rows = graph.authored_by_operation(parent.no, operation.position);
    let rows: Vec<TaskNo> = rows.iter().map(|t| t.no).collect();
    let consumers = consumers(graph, &selected);
    let started = selected
        .iter()
        .chain(&consumers)
        .filter_map(|no| graph.task(*no))
        .find(|t| !t.status.is_unstarted() || expires(graph, t));
    if let Some(task) = started {
        let message = format!("{} has started, or ended: cancel it instead", task.key);
        return Err(Recorded::new("task_already_started", message));
    }
    check_races(graph, &rows, &selected)?;
    let mut hang = Hang::fresh(parent, None);
    hang.waits_on = predecessors(graph, &selected);
    hang.surviving = surviving(graph, &operation, &rows, &selected);
    let plan = batch::plan(graph, parent, request, steps, None, hang)?;
    let tips = plan_tips(&plan.compiled.rows);
    for no in &consumers {
        check_bounds(graph, *no, &selected, tips)?;
    }
    // Nothing is refused from here on.
    let mut receipt = batch::place(graph, parent, position, plan, request, mint);
    let tips = receipt.results.clone();
    for no in &consumers {
        rewire(graph, *no, &selected, &tips);
    }
    let mut replaced = Vec::new();
    for no in selected {
        let why = Outcome::error("operation_replaced", None);
        graph.settle(no, TaskStatus::Canceled, why);
        replaced.extend(graph.task(no).map(|t| Value::from(t.key.as_str())));
    }
    receipt
        .more
        .push(("replaced_task_keys", Value::Array(replaced)));
    Ok(receipt)
}

/// Whether a row rests for an approver past its deadline: the deadline wins (`engine.md` §10).
fn expires(graph: &Graph, task: &Task) -> bool {
    let park = graph.park(task.no);
    park.is_some_and(|park| expire::is_due(graph, park))
}

/// Who waits for the selected rows and is not one of them; joins follow operations, not rows.
fn consumers(graph: &Graph, selected: &[TaskNo]) -> BTreeSet<TaskNo> {
    let edges = selected.iter().flat_map(|no| graph.edges_of(*no));
    let heads = edges.filter(|e| e.source.is_none()).map(|e| e.to);
    heads.filter(|no| !selected.contains(no)).collect()
}

/// A race goes with its members.
fn check_races(graph: &Graph, rows: &[TaskNo], selected: &[TaskNo]) -> Result<(), Recorded> {
    for no in rows {
        let Some(task) = graph.task(*no) else {
            continue;
        };
        let Some(race) = task.barrier.filter(|race| rows.contains(race)) else {
            continue;
        };
        if selected.contains(no) != selected.contains(&race) {
            let message = format!("{} and its race are replaced together", task.key);
            return Err(Recorded::new("invalid_replacement", message));
        }
    }
    Ok(())
}

/// What the selected rows wait on outside themselves.
fn predecessors(graph: &Graph, selected: &[TaskNo]) -> Vec<StandingRow> {
    let tails = selected.iter().flat_map(|no| graph.tails_of(*no));
    let outside: BTreeSet<TaskNo> = tails.filter(|no| !selected.contains(no)).collect();
    outside
        .into_iter()
        .filter_map(|no| standing(graph, no))
        .collect()
}

/// The rows that the new batch may name: those that are neither replaced nor behind what is.
fn surviving(
    graph: &Graph,
    operation: &crate::engine::facts::Operation,
    rows: &[TaskNo],
    selected: &[TaskNo],
) -> BTreeMap<TaskKey, StandingRow> {
    let mut behind: BTreeSet<TaskNo> = selected.iter().copied().collect();
    let mut todo: Vec<TaskNo> = selected.to_vec();
    while let Some(no) = todo.pop() {
        for edge in graph.edges_of(no) {
            if behind.insert(edge.to) {
                todo.push(edge.to);
            }
        }
    }
    let mut surviving = BTreeMap::new();
    for no in rows.iter().filter(|no| !behind.contains(no)) {
        if let (Some(task), Some(row)) = (graph.task(*no), standing(graph, *no)) {
            surviving.insert(task.key.clone(), row);
        }
    }
    let receipt = operation.receipt().and_then(|r| parse(r.as_bytes()).ok());
    let locals = receipt.as_ref().and_then(|r| r.get("keys")?.as_object());
    for (local, key) in locals.into_iter().flatten() {
        let key = key.as_str().map(|key| TaskKey::trusted(key.to_owned()));
        let row = key.and_then(|key| surviving.get(&key).cloned());
        if let (Some(row), Ok(local)) = (row, local.parse()) {
            surviving.insert(local, row);
        }
    }
    surviving
}

/// How many rows the batch ends on.
fn plan_tips(rows: &[crate::engine::compile::Row]) -> usize {
    let waited: BTreeSet<usize> = rows
        .iter()
        .flat_map(|row| &row.edges)
        .filter_map(|edge| match edge.from {
            Ref::New(at) => Some(at),
            Ref::Existing(_) => None,
        })
        .collect();
    rows.len() - waited.len()
}

/// A consumer's dependencies and reads stay within their bounds with the new tips in it.
fn check_bounds(
    graph: &Graph,
    no: TaskNo,
    selected: &[TaskNo],
    tips: usize,
) -> Result<(), Recorded> {
    let bounds = Bounds::CLIENT;
    let Some(task) = graph.task(no) else {
        return Ok(());
    };
    let dependencies = graph
        .tails_of(no)
        .filter(|no| !selected.contains(no))
        .count()
        + tips;
    let reads = task.input_from.iter().chain(&task.result_from);
    let reads_replaced = reads.clone().any(|no| selected.contains(no));
    let reads =
        reads.filter(|no| !selected.contains(no)).count() + if reads_replaced { tips } else { 0 };
    if dependencies > bounds.dependencies || reads > bounds.reads {
        let message = format!(
            "{} would wait on {dependencies} rows and read {reads}; at most {} and {}",
            task.key, bounds.dependencies, bounds.reads
        );
        return Err(Recorded::new("invalid_steps", message));
    }
    Ok(())
}

/// The consumer waits for the tips instead, and reads them where it read what they replace.
fn rewire(graph: &mut Graph, no: TaskNo, selected: &[TaskNo], tips: &[TaskNo]) {
    let is_structural = selected
        .iter()
        .filter_map(|from| graph.edge(*from, no))
        .any(|edge| edge.structural);
    let first = selected
        .iter()
        .filter_map(|from| graph.edge(*from, no))
        .map(|edge| edge.ordinal)
        .min()
        .unwrap_or(0);
    for from in selected {
        if graph.edge(*from, no).is_some() {
            graph.unhang(*from, no);
        }
    }
    for tip in tips {
        // What the batch came to at birth is judged like any edge: its rows are all new, so open.
        graph.hang(Edge {
            from: *tip,
            to: no,
            ordinal: first,
            structural: is_structural,
            source: None,
            state: EdgeState::Open,
        });
    }
    let keys: BTreeMap<TaskNo, String> = graph.tasks().map(|t| (t.no, t.key.to_string())).collect();
    let open = graph
        .tails_with_states(no)
        .filter(|(_, state)| *state == EdgeState::Open)
        .count();
    let gone: Vec<String> = selected
        .iter()
        .filter_map(|s| keys.get(s).cloned())
        .collect();
    let new: Vec<String> = tips.iter().filter_map(|t| keys.get(t).cloned()).collect();
    graph.write(no, |task| {
        task.remaining = i32::try_from(open).unwrap_or(i32::MAX);
        in_place(&mut task.after_keys, &gone, &new);
        in_place(&mut task.input_from, selected, tips);
        in_place(&mut task.result_from, selected, tips);
        if task.kind == TaskKind::Join
            && let Some(join) = &mut task.join
        {
            join.pending = task.remaining;
        }
    });
    graph.reads_moved(no);
}

/// Puts the new entries where the first of the old ones was, without repeats.
fn in_place<T: Clone + PartialEq>(list: &mut Vec<T>, old: &[T], new: &[T]) {
    let Some(at) = list.iter().position(|entry| old.contains(entry)) else {
        return;
    };
    let tail = list.split_off(at);
    let rest = tail.into_iter().filter(|entry| !old.contains(entry));
    for entry in new.iter().cloned().chain(rest) {
        if !list.contains(&entry) {
            list.push(entry);
        }
    }
}
