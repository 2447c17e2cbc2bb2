//! Operations of a claimed call: how it starts child work, changes it, and reads its outcomes
//! (`operations.md`).
//!
//! | file | job |
//! |---|---|
//! | `mod` | who may, when; acceptance with its replay |
//! | `request` | what a request asks for, member by member |
//! | `context`, `scope` | the frozen context: how it is made, what it lets a call author |
//! | `batch` | a batch becomes rows of the run |
//! | `replace`, `cancel`, `join`, `release` | the kinds that change or gather earlier work |
//! | `observe` | the next outcome, sealed once |
//!
//! Acceptance judges everything before it writes anything: a refused request leaves no row, and is
//! itself recorded. Child rows are ordinary rows of the run, without an edge to their owner.
//!
//! Does not know: SQL, HTTP, how a wait for the next outcome is told.

mod batch;
mod cancel;
pub mod context;
mod join;
pub mod observe;
mod release;
mod replace;
mod request;
mod scope;

use std::collections::BTreeMap;

use subtle::ConstantTimeEq as _;

use super::compile::Catalogue;
use super::eligibility::is_eligible;
use super::expire;
use super::facts::{Caller, Operation, Response, Task};
use super::graph::Graph;
use super::mint::Mint;
use crate::domain::json::{Canonical, Value, parse};
use crate::domain::operation::{Refusal as Recorded, Submitted};
use crate::domain::refusal;
use crate::domain::words::{RunStatus, TaskKind, TaskStatus};
use crate::domain::{ExecutorId, PublicId, TaskNo};

pub use request::{Asked, Delivery, Until};
pub use scope::Scope;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// SHA-256 of the claim token.
    pub token: [u8; 32],
    /// The operation.
    pub submitted: Submitted,
    /// What it asks for, or why that is refused.
    pub asked: Result<Asked, Recorded>,
    /// What the call may author.
    pub scope: Scope,
    /// The row that holds that scope's context.
    pub context_of: Option<TaskNo>,
    /// The inner ids of the scope's Runners, as far as they exist.
    pub runners: BTreeMap<PublicId, ExecutorId>,
    /// What is known of models.
    pub catalogue: Catalogue,
    /// The rows above the call: its owner, that one's owner, and so on.
    pub ancestors: Vec<TaskNo>,
}

/// An accepted operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// Its event.
    pub event: Value,
    /// Whether it was accepted before.
    pub replayed: bool,
}

/// What the carrying out of a kind says of itself.
struct Receipt {
    task_keys: Vec<String>,
    results: Vec<TaskNo>,
    result_task_keys: Vec<String>,
    steps: Value,
    keys: Value,
    /// Members that only some kinds have.
    more: Vec<(&'static str, Value)>,
    background: bool,
    sources: Vec<i32>,
}

impl Receipt {
    /// Of a kind that allocates nothing.
    fn empty() -> Self {
        Self {
            task_keys: Vec::new(),
            results: Vec::new(),
            result_task_keys: Vec::new(),
            steps: Value::Array(Vec::new()),
            keys: Value::Object(Default::default()),
            more: Vec::new(),
            background: false,
            sources: Vec::new(),
        }
    }

    fn to_value(&self) -> Value {
        let mut members = vec![
            ("task_keys", texts(&self.task_keys)),
            ("result_task_keys", texts(&self.result_task_keys)),
            ("steps", self.steps.clone()),
            ("keys", self.keys.clone()),
            ("background", self.background.into()),
        ];
        members.extend(self.more.iter().cloned());
        let members = members.into_iter().map(|(name, v)| (name.to_owned(), v));
        Value::Object(members.collect())
    }
}

fn texts(list: &[String]) -> Value {
    Value::Array(list.iter().map(|text| text.as_str().into()).collect())
}

/// Decides an acceptance on the row `no`, in the order of `operations.md` §1: proof, replay, then
/// whether the call may author work now.
///
/// # Errors
/// The protocol's refusals. What is wrong with the request itself is recorded, and no error.
pub fn accept(
    graph: &mut Graph,
    no: TaskNo,
    caller: &Caller,
    request: &Request,
    mint: &mut Mint,
) -> Result<Accepted, refusal::Accept> {
    use refusal::Accept as Refusal;
    let task = graph.task(no).filter(|t| t.kind == TaskKind::Tool);
    let task = task.ok_or(Refusal::NotFound)?;
    if !is_claimant(graph, task, caller.id, &request.token) {
        return Err(Refusal::NotClaimant);
    }
    let submitted = &request.submitted;
    if let Some(stored) = graph.operation(no, &submitted.key) {
        if stored.digest[..] != submitted.digest[..] {
            return Err(Refusal::OperationMismatch);
        }
        return Ok(Accepted {
            event: event(stored),
            replayed: true,
        });
    }
    if !is_eligible(&caller.executor, &graph.run.principal) {
        return Err(Refusal::NotEligible);
    }
    match standing(graph, task) {
        Standing::NotAuthorized => return Err(Refusal::NotAuthorized),
        Standing::Stopped => return Err(Refusal::ExecutionStopped),
        Standing::Settled => return Err(Refusal::TaskNotRunning),
        Standing::Expired => return Err(Refusal::ClaimExpired),
        Standing::Live => {}
    }
    match graph.run.status {
        RunStatus::Canceling => return Err(Refusal::ExecutionStopped),
        RunStatus::Paused | RunStatus::NeedsAttention => return Err(Refusal::ExecutionPaused),
        _ => {}
    }
    let position = task.trace_end + 1;
    let parent = task.clone();
    let made = request
        .asked
        .clone()
        .and_then(|asked| carry_out(graph, &parent, position, &asked, request, mint));
    let stored = "what was made of storable values is storable";
    let canonical = |value: Value| value.canonical().expect(stored).into_string();
    let (response, made) = match made {
        Ok(made) => (Response::Receipt(canonical(made.to_value())), made),
        Err(refused) => (
            Response::Refusal(canonical(refused.to_value())),
            Receipt::empty(),
        ),
    };
    let operation = Operation {
        parent: no,
        position,
        key: submitted.key.clone(),
        kind: submitted.kind,
        request: submitted.request.as_str().to_owned(),
        digest: submitted.digest.to_vec(),
        response,
        background: made.background,
        released: None,
        observed: None,
        outcome: None,
        results: made.results,
        sources: made.sources,
    };
    let event = event(&operation);
    graph.insert_operation(operation);
    graph.write(no, |task| task.trace_end = position);
    Ok(Accepted {
        event,
        replayed: false,
    })
}

fn carry_out(
    graph: &mut Graph,
    parent: &Task,
    position: i32,
    asked: &Asked,
    request: &Request,
    mint: &mut Mint,
) -> Result<Receipt, Recorded> {
    match asked {
        Asked::Work {
            steps,
            single,
            background,
        } => {
            let hang = batch::Hang::fresh(parent, *background);
            let plan = batch::plan(graph, parent, request, steps, *single, hang)?;
            Ok(batch::place(graph, parent, position, plan, request, mint))
        }
        Asked::Replace {
            operation,
            tasks,
            steps,
        } => replace::replace(
            graph,
            parent,
            position,
            (operation, tasks, steps),
            request,
            mint,
        ),
        Asked::Cancel { operation, tasks } => {
            cancel::cancel(graph, parent, operation, tasks.as_deref())
        }
        Asked::Join {
            operations,
            until,
            losers,
        } => join::join(graph, parent, position, (operations, *until, *losers), mint),
        Asked::Release {
            operation,
            delivery,
        } => release::release(graph, parent, position, operation, *delivery),
    }
}

/// An earlier operation of the call that was accepted.
fn accepted<'a>(graph: &'a Graph, parent: TaskNo, key: &str) -> Result<&'a Operation, Recorded> {
    let operation = graph.operation(parent, key);
    operation.filter(|o| o.receipt().is_some()).ok_or_else(|| {
        Recorded::new(
            "unknown_operation",
            format!("{key} is no accepted operation of this task"),
        )
    })
}

/// … whose results are not given away.
fn attached<'a>(graph: &'a Graph, parent: TaskNo, key: &str) -> Result<&'a Operation, Recorded> {
    let operation = accepted(graph, parent, key)?;
    if operation.background || operation.released.is_some() {
        return Err(Recorded::new(
            "operation_released",
            format!("{key} goes on in the background"),
        ));
    }
    Ok(operation)
}

/// The rows that keys of an operation name, by local or by task key.
fn named(graph: &Graph, operation: &Operation, keys: &[String]) -> Result<Vec<TaskNo>, Recorded> {
    let rows = graph.authored_by_operation(operation.parent, operation.position);
    let receipt = operation.receipt().and_then(|r| parse(r.as_bytes()).ok());
    let locals = receipt.as_ref().and_then(|r| r.get("keys"));
    let mut found: Vec<TaskNo> = Vec::new();
    for key in keys {
        let allocated = locals.and_then(|keys| keys.get(key)?.as_str());
        let key_of_row = allocated.unwrap_or(key);
        let row = rows.iter().find(|t| t.key.as_str() == key_of_row);
        let row = row.ok_or_else(|| {
            let message = format!("{key} is no task of {}", operation.key);
            Recorded::new("unknown_task", message)
        })?;
        if found.contains(&row.no) {
            let message = format!("input.tasks names {key} twice");
            return Err(Recorded::new("invalid_input", message));
        }
        found.push(row.no);
    }
    Ok(found)
}

/// Whether the caller holds the last claim of the row, or held it when the row settled.
pub(super) fn is_claimant(graph: &Graph, task: &Task, by: ExecutorId, token: &[u8; 32]) -> bool {
    let fits = |holder: ExecutorId, digest: &[u8]| holder == by && digest.ct_eq(&token[..]).into();
    match graph.park(task.no) {
        Some(park) => park.claim.as_ref().is_some_and(|c| fits(c.by, &c.digest)),
        None => task.claim.as_ref().is_some_and(|c| fits(c.by, &c.digest)),
    }
}

/// Whether a claimed call may go on, as far as new work and observations agree.
enum Standing {
    NotAuthorized,
    Stopped,
    Settled,
    Expired,
    Live,
}

fn standing(graph: &Graph, task: &Task) -> Standing {
    if !graph.run.creator_may_write {
        return Standing::NotAuthorized;
    }
    let stopped = graph.run.status.is_terminal()
        || graph.run.force_stopped
        || task.status == TaskStatus::Canceled;
    if stopped {
        return Standing::Stopped;
    }
    let park = graph.park(task.no);
    let Some(park) = park.filter(|_| task.status == TaskStatus::Dispatched) else {
        return Standing::Settled;
    };
    if expire::is_due(graph, park) {
        return Standing::Expired;
    }
    Standing::Live
}

/// An acceptance as the trace shows it (`operations.md` §3, §4).
pub fn event(operation: &Operation) -> Value {
    let (name, response) = match &operation.response {
        Response::Receipt(receipt) => ("receipt", receipt),
        Response::Refusal(refusal) => ("refusal", refusal),
    };
    let stored = |text: &str| Canonical::trusted(text.to_owned()).value();
    Value::from([
        ("type", "operation".into()),
        ("position", i64::from(operation.position).into()),
        ("key", operation.key.as_str().into()),
        ("request", stored(&operation.request)),
        (name, stored(response)),
    ])
}
