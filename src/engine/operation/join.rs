//! A wait for several operations (`operations.md` §7): a row whose sources are operations, each one
//! source however many results it has.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::request::Until;
use super::{Receipt, Recorded, attached};
use crate::domain::words::{EdgeState, JoinMode, Losers, TaskKind};
use crate::domain::{TaskKey, TaskNo};
use crate::engine::author::{self, NewTask};
use crate::engine::facts::{Edge, Join, Source, Task};
use crate::engine::graph::Graph;
use crate::engine::mint::Mint;
use crate::engine::settlement::{Settlement, settlement};

/// Joins operations of the call, whose rows are loaded with their edges; the join may settle at once.
///
/// # Errors
/// `unknown_operation`, `operation_released`.
pub(super) fn join(
    graph: &mut Graph,
    parent: &Task,
    position: i32,
    (operations, until, losers): (&[String], Until, Losers),
    mint: &mut Mint,
) -> Result<Receipt, Recorded> {
    let mut sources = Vec::new();
    for key in operations {
        let operation = attached(graph, parent.no, key)?;
        sources.push((operation.position, operation.results.clone()));
    }
    let (mode, k) = match until {
        Until::All => (JoinMode::All, sources.len()),
        Until::Any => (JoinMode::Any, 1),
        Until::Quorum(k) => (JoinMode::Quorum, usize::try_from(k).unwrap_or(usize::MAX)),
    };
    let no = TaskNo(graph.run.counts.tasks + 1);
    let key = TaskKey::trusted(mint.public_id(graph.now).to_string());
    let mut edges: BTreeMap<TaskNo, Edge> = BTreeMap::new();
    let mut counted = Vec::new();
    for (at, (_, results)) in sources.iter().enumerate() {
        let mut source = Source::default();
        for result in results {
            let Some(row) = graph.task(*result) else {
                continue;
            };
            let ordinal = i32::try_from(edges.len()).unwrap_or(i32::MAX);
            let edge = Edge {
                from: *result,
                to: no,
                ordinal,
                structural: true,
                source: i32::try_from(at).ok(),
                state: state(row, mode),
            };
            // A row that two sources report is counted by the first.
            let Entry::Vacant(vacant) = edges.entry(*result) else {
                continue;
            };
            vacant.insert(edge);
            match (edge.state, settlement(row)) {
                (EdgeState::Open, _) => source.open += 1,
                (_, Settlement::Success) => {}
                _ => source.failed += 1,
            }
        }
        counted.push(source);
    }
    let decided = |source: &Source| match mode {
        JoinMode::All => source.open == 0,
        _ => source.open == 0 || source.failed > 0,
    };
    let successes = counted
        .iter()
        .filter(|s| s.open == 0 && s.failed == 0)
        .count();
    let pending = counted.iter().filter(|s| !decided(s)).count();
    let open = edges
        .values()
        .filter(|e| e.state == EdgeState::Open)
        .count();
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let task = Task {
        remaining: count(open),
        join: Some(Join {
            mode,
            k: count(k),
            losers,
            successes: count(successes),
            pending: count(pending),
        }),
        sources: counted,
        after_keys: keys_of(graph, edges.keys()),
        lifetime: parent.lifetime,
        wake: parent.wake,
        barrier: parent.barrier,
        owner: Some(parent.no),
        operation: Some(position),
        is_tip: true,
        ..author::blank(no, key.clone(), TaskKind::Join, parent.authored_by)
    };
    graph.insert_task(NewTask {
        task,
        tool_input: None,
        definition: None,
        context: None,
    });
    for edge in edges.into_values() {
        graph.hang(edge);
    }
    graph.settle_decided(no);
    Ok(Receipt {
        task_keys: vec![key.to_string()],
        results: vec![no],
        result_task_keys: vec![key.to_string()],
        sources: sources.into_iter().map(|(position, _)| position).collect(),
        ..Receipt::empty()
    })
}

fn state(row: &Task, mode: JoinMode) -> EdgeState {
    match settlement(row) {
        Settlement::Pending if row.status.is_terminal() && mode == JoinMode::All => EdgeState::Met,
        Settlement::Pending => EdgeState::Open,
        Settlement::Skip => EdgeState::Skip,
        Settlement::Success | Settlement::Resolved => EdgeState::Met,
    }
}

fn keys_of<'a>(graph: &Graph, nos: impl Iterator<Item = &'a TaskNo>) -> Vec<String> {
    let keys = nos.filter_map(|no| graph.task(*no));
    keys.map(|t| t.key.to_string()).collect()
}
