//! An operation's work goes on in the background (`operations.md` §5.4).

use std::collections::BTreeSet;

use super::request::Delivery;
use super::{Receipt, Recorded, accepted};
use crate::domain::TaskNo;
use crate::domain::json::Value;
use crate::engine::facts::Task;
use crate::engine::graph::Graph;

/// Releases an operation and, if it is a join, what it waits for; their rows are loaded. Released
/// again, the choice is another one.
///
/// # Errors
/// `unknown_operation`.
pub(super) fn release(
    graph: &mut Graph,
    parent: &Task,
    position: i32,
    key: &str,
    delivery: Delivery,
) -> Result<Receipt, Recorded> {
    let operation = accepted(graph, parent.no, key)?;
    let mut released = BTreeSet::from([operation.position]);
    let mut todo = vec![operation.position];
    while let Some(at) = todo.pop() {
        let sources = graph.operation_at(parent.no, at).map(|o| o.sources.clone());
        for source in sources.unwrap_or_default() {
            if released.insert(source) {
                todo.push(source);
            }
        }
    }
    let mut keys = Vec::new();
    for at in released {
        let Some(operation) = graph.operation_at(parent.no, at) else {
            continue;
        };
        keys.push(Value::from(operation.key.as_str()));
        let is_first = operation.released.is_none() && !operation.background;
        // What was observed is known; what is left of it still goes on.
        if is_first {
            graph.write_operation((parent.no, at), |o| o.released = Some(position));
        }
        let rows = graph.authored_by_operation(parent.no, at);
        let open: Vec<TaskNo> = rows
            .iter()
            .filter(|t| !t.status.is_terminal())
            .map(|t| t.no)
            .collect();
        for no in open {
            graph.put_into_background(no, delivery.lifetime, delivery.wake.unwrap_or(parent.wake));
        }
    }
    Ok(Receipt {
        more: vec![("released_operations", Value::Array(keys))],
        background: true,
        ..Receipt::empty()
    })
}
