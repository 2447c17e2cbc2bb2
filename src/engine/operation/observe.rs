//! The next outcome of a call's operations (`operations.md` §6): the lowest operation that is ready is
//! sealed by value, once, and told ever after.

use super::{Standing, is_claimant, standing};
use crate::domain::json::{Canonical, Value};
use crate::domain::payload::linked_upload;
use crate::domain::refusal::Observe as Refusal;
use crate::domain::words::{ExecutorStatus, OperationKind, TaskKind, TaskStatus};
use crate::domain::{PublicId, TaskNo};
use crate::engine::facts::{Caller, Operation, Response, Task};
use crate::engine::graph::{Graph, envelope};
use crate::engine::settlement::{Settlement, settlement};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// SHA-256 of the claim token.
    pub token: [u8; 32],
    /// The end of the trace as the caller knows it.
    pub after: i64,
}

/// The answer: an event of the trace, or none, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// `{type, position, key, outcome | refusal}`.
    pub observation: Option<Value>,
    /// Its position; the trace's end if there is none.
    pub position: i32,
}

/// Decides an observation on the row `no`. Of its operations the first that was observed beyond
/// `after` is loaded, and the first that is ready, with the rows that it reports and their bodies.
///
/// # Errors
/// The protocol's refusals, in its order.
pub fn observe(
    graph: &mut Graph,
    no: TaskNo,
    caller: &Caller,
    request: &Request,
) -> Result<Observed, Refusal> {
    let task = graph.task(no).filter(|t| t.kind == TaskKind::Tool);
    let task = task.ok_or(Refusal::NotFound)?;
    if !is_claimant(graph, task, caller.id, &request.token) {
        return Err(Refusal::NotClaimant);
    }
    if caller.executor.status != ExecutorStatus::Active {
        return Err(Refusal::NotEligible);
    }
    match standing(graph, task) {
        Standing::NotAuthorized => return Err(Refusal::NotAuthorized),
        Standing::Stopped => return Err(Refusal::ExecutionStopped),
        Standing::Settled => return Err(Refusal::TaskNotRunning),
        Standing::Expired => return Err(Refusal::ClaimExpired),
        Standing::Live => {}
    }
    let end = task.trace_end;
    if request.after < i64::from(end) {
        let beyond = graph
            .operations_of(no)
            .filter_map(|o| Some((o.observed?, o)));
        let beyond = beyond.filter(|(at, _)| i64::from(*at) > request.after);
        return match beyond.min_by_key(|(at, _)| *at) {
            Some((position, operation)) => Ok(Observed {
                observation: Some(event(operation, position)),
                position,
            }),
            None => Err(Refusal::OperationPositionChanged),
        };
    }
    if request.after > i64::from(end) {
        return Err(Refusal::OperationPositionChanged);
    }
    let ready = graph.operations_of(no).find(|o| is_ready(graph, o));
    let Some(ready) = ready.cloned() else {
        return Ok(Observed {
            observation: None,
            position: end,
        });
    };
    Ok(seal(graph, &ready, end + 1))
}

/// Whether an operation's outcome is known and waits to be observed.
fn is_ready(graph: &Graph, operation: &Operation) -> bool {
    let waits = operation.observed.is_none() && operation.released.is_none();
    waits
        && operation.results.iter().all(|no| {
            let tip = graph.task(*no).and_then(|t| graph.task(t.tip));
            tip.is_some_and(|t| t.status.is_terminal())
        })
}

fn seal(graph: &mut Graph, operation: &Operation, position: i32) -> Observed {
    let body = body(graph, operation);
    for upload in shown_uploads(&body) {
        graph
            .changes
            .sealed_uploads
            .push((operation.parent, upload));
    }
    let text = body.canonical().expect("stored values are storable again");
    let at = (operation.parent, operation.position);
    graph.write_operation(at, |o| {
        o.observed = Some(position);
        o.outcome = Some(text.into_string());
    });
    graph.write(operation.parent, |task| task.trace_end = position);
    // What it reports is known to its owner now: a failure of it holds nothing.
    let rows = graph.authored_by_operation(operation.parent, operation.position);
    let failed: Vec<TaskNo> = rows
        .into_iter()
        .filter(|t| t.status.is_terminal() && settlement(t) == Settlement::Pending)
        .map(|t| t.no)
        .collect();
    for no in failed {
        graph.take_over(no);
    }
    let sealed = graph.operation_at(at.0, at.1).expect("it was just written");
    Observed {
        observation: Some(event(sealed, position)),
        position,
    }
}

/// The captures that the contents of an outcome link, at any depth of its envelopes.
fn shown_uploads(body: &Value) -> Vec<PublicId> {
    let mut found = Vec::new();
    let mut todo: Vec<&Value> = body.get("outcome").into_iter().collect();
    while let Some(envelope) = todo.pop() {
        for list in ["results", "selected"] {
            let inside = envelope.get(list).and_then(Value::as_array);
            todo.extend(inside.unwrap_or_default());
        }
        let blocks = envelope.get("content").and_then(Value::as_array);
        let links = blocks.unwrap_or_default().iter().filter_map(linked_upload);
        found.extend(links);
    }
    found
}

/// `{outcome}` or `{refusal}`.
fn body(graph: &Graph, operation: &Operation) -> Value {
    let receipt = match &operation.response {
        Response::Refusal(refusal) => {
            let refusal = Canonical::trusted(refusal.clone()).value();
            return Value::from([("refusal", refusal)]);
        }
        Response::Receipt(receipt) => Canonical::trusted(receipt.clone()).value(),
    };
    let results = operation.results.iter();
    let results = results.filter_map(|no| graph.task(*no));
    let outcome = match operation.kind {
        OperationKind::Background => launched(graph.run.public_id, receipt),
        OperationKind::Join => {
            let rows = results.flat_map(|join| joined(graph, join));
            Value::from([("results", Value::Array(rows.collect()))])
        }
        OperationKind::Steps | OperationKind::Replace | OperationKind::Cancel => {
            let rows = results.map(|row| entry(graph, row));
            Value::from([("results", Value::Array(rows.collect()))])
        }
        OperationKind::Tool | OperationKind::Model | OperationKind::Ask | OperationKind::Wait => {
            results
                .map(|row| entry(graph, row))
                .next()
                .unwrap_or(Value::Null)
        }
    };
    Value::from([("outcome", outcome)])
}

/// A background launch answers with its acknowledgement.
fn launched(run: PublicId, receipt: Value) -> Value {
    let mut members = vec![
        ("run_public_id", run.to_string().into()),
        ("task_key", Value::Null),
        ("status", TaskStatus::Completed.shown().into()),
        ("is_error", false.into()),
        ("error", Value::Null),
        ("output_present", false.into()),
        ("output", Value::Null),
        ("content", Value::Null),
        ("structured_content_present", true.into()),
    ];
    if let Some(released) = receipt.get("released_operations") {
        members.push(("released_operations", released.clone()));
    }
    members.push(("structured_content", receipt));
    let members = members.into_iter().map(|(name, v)| (name.to_owned(), v));
    Value::Object(members.collect())
}

/// What a row's name stands for now.
fn tip<'a>(graph: &'a Graph, row: &'a Task) -> &'a Task {
    graph.task(row.tip).unwrap_or(row)
}

/// One result. Of a race the entry is the first that was selected, or its failure, with all of them
/// beside it.
fn entry(graph: &Graph, row: &Task) -> Value {
    let run = graph.run.public_id;
    let row = tip(graph, row);
    let own = |row: &Task| envelope(run, row, &graph.seen_of(row.no));
    let is_race = row.kind == TaskKind::Join && row.status != TaskStatus::Canceled;
    if !is_race {
        return own(row);
    }
    let selected: Vec<Value> = selected(graph, row);
    let first = match (row.status, selected.first()) {
        (TaskStatus::Completed, Some(first)) => first.clone(),
        _ => own(row),
    };
    let Value::Object(mut members) = first else {
        return first;
    };
    members.insert("selected".to_owned(), Value::Array(selected));
    Value::Object(members)
}

/// The envelopes of what a race or a join selected, in its order.
fn selected(graph: &Graph, join: &Task) -> Vec<Value> {
    let run = graph.run.public_id;
    let selection = graph.selection_of(join.no);
    let keys = selection.map(|s| s.selected.as_slice()).unwrap_or_default();
    let rows = keys
        .iter()
        .filter_map(|key| graph.task_by_key(key.as_str()));
    rows.map(|row| {
        let row = tip(graph, row);
        if row.kind == TaskKind::Join && row.sources.is_empty() {
            return entry(graph, row);
        }
        envelope(run, row, &graph.seen_of(row.no))
    })
    .collect()
}

/// What a join reports: what it selected, then its own failure; canceled, itself alone.
fn joined(graph: &Graph, join: &Task) -> Vec<Value> {
    let own = || envelope(graph.run.public_id, join, &graph.seen_of(join.no));
    match join.status {
        TaskStatus::Canceled => vec![own()],
        TaskStatus::Completed => selected(graph, join),
        _ => selected(graph, join).into_iter().chain([own()]).collect(),
    }
}

/// An observation as the trace shows it.
pub fn event(operation: &Operation, position: i32) -> Value {
    let body = operation.outcome.clone().unwrap_or_else(|| "{}".to_owned());
    let mut members = Canonical::trusted(body)
        .value()
        .as_object()
        .cloned()
        .unwrap_or_default();
    members.insert("type".to_owned(), "observation".into());
    members.insert("position".to_owned(), i64::from(position).into());
    members.insert("key".to_owned(), operation.key.as_str().into());
    Value::Object(members)
}

/// The context as the trace shows it (`operations.md` §3).
pub fn context(stored: Option<&Value>) -> Value {
    stored.cloned().unwrap_or_else(|| {
        Value::from([
            ("tools", Value::Array(Vec::new())),
            ("model_defaults", Value::Object(Default::default())),
        ])
    })
}
