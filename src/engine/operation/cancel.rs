//! Ending an operation's work (`operations.md` §5.3).
//!
//! It says nothing about effects that have begun. What waits behind a canceled row goes by that row's
//! policy; the attached work of canceled calls ends with them.

use super::{Receipt, Recorded, accepted, named};
use crate::domain::TaskNo;
use crate::domain::json::Value;
use crate::domain::words::TaskStatus;
use crate::engine::expire;
use crate::engine::facts::Task;
use crate::engine::graph::{Graph, Outcome};
use crate::engine::settlement::OPERATION_CANCELED;

/// Cancels the named rows of an operation of the call, or all; those of its rows are loaded, their
/// parks locked.
///
/// # Errors
/// `unknown_operation`, `unknown_task`, `invalid_input`.
pub(super) fn cancel(
    graph: &mut Graph,
    parent: &Task,
    key: &str,
    tasks: Option<&[String]>,
) -> Result<Receipt, Recorded> {
    let operation = accepted(graph, parent.no, key)?;
    let targets = match tasks {
        Some(keys) => named(graph, operation, keys)?,
        None => {
            let rows = graph.authored_by_operation(parent.no, operation.position);
            rows.iter().map(|t| t.no).collect()
        }
    };
    let results = match tasks {
        None if !operation.results.is_empty() => operation.results.clone(),
        _ => targets.clone(),
    };
    let key_of = |graph: &Graph, no: &TaskNo| graph.task(*no).map(|t| t.key.to_string());
    let mut canceled = Vec::new();
    for no in targets {
        let why = Outcome::error(OPERATION_CANCELED, None);
        // The deadline wins: what has expired is told as that.
        let ended = expire::or_cancel(graph, no, why);
        let status = graph.task(no).map(|t| t.status);
        if ended && status == Some(TaskStatus::Canceled) {
            canceled.extend(key_of(graph, &no));
        }
    }
    let canceled = canceled.into_iter().map(Value::from).collect();
    Ok(Receipt {
        result_task_keys: results.iter().filter_map(|no| key_of(graph, no)).collect(),
        results,
        more: vec![("canceled_task_keys", Value::Array(canceled))],
        ..Receipt::empty()
    })
}
