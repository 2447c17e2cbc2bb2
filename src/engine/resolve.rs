//! Answering a question (`runs.md` §8.2, `executor.md` §16): by whoever bears its token, by a
//! person on the member plane, or by the addressed agent application. The first answer settles it.

use super::facts::{Capture, Task};
use super::graph::{Graph, NewResult, Outcome};
use crate::domain::TaskNo;
use crate::domain::event::Resolver;
use crate::domain::payload::{self, Payload, Submission};
use crate::domain::refusal::{Answer as Refusal, AnswerAsk};
use crate::domain::words::{Holder, Outcome as Word, TaskKind, TaskStatus};

/// What is answered.
#[derive(Debug, Clone)]
pub struct Request {
    /// SHA-256 of the resolution token, when one was given.
    pub token: Option<[u8; 32]>,
    /// Who answers.
    pub by: Option<Resolver>,
    /// The answer.
    pub submission: Submission,
    /// The uploads that its links name, as far as they exist and the answerer staged them.
    pub captures: Vec<Capture>,
}

/// Decides an answer on the member plane. A question that has settled is answered as it stands.
///
/// # Errors
/// `task_not_running`, `stale_claim`, or why the payload is refused; the park stands.
pub fn member(graph: &mut Graph, no: TaskNo, request: &Request) -> Result<TaskNo, Refusal> {
    let task = graph.task(no).ok_or(AnswerAsk::NotFound)?;
    if task.kind != TaskKind::Await {
        return Err(AnswerAsk::TaskNotRunning.into());
    }
    prove_token(task, request.token.as_ref())?;
    settle(graph, no, request)
}

/// Decides an answer of the addressed agent application, whose standing was proven.
///
/// # Errors
/// `task_not_running`, or why the payload is refused; the park stands.
pub fn application(graph: &mut Graph, no: TaskNo, request: &Request) -> Result<TaskNo, Refusal> {
    settle(graph, no, request)
}

/// The bearer's token is the question's own; a question without one takes none; what the kernel
/// holds is nobody's to answer.
fn prove_token(task: &Task, given: Option<&[u8; 32]>) -> Result<(), AnswerAsk> {
    use subtle::ConstantTimeEq as _;
    let fits = match (task.holder, given) {
        (Some(Holder::Token), Some(given)) => task
            .resolution_digest
            .as_ref()
            .is_some_and(|kept| bool::from(kept.ct_eq(&given[..]))),
        (Some(Holder::Person), None) => true,
        _ => false,
    };
    if fits {
        Ok(())
    } else {
        Err(AnswerAsk::StaleClaim)
    }
}

fn settle(graph: &mut Graph, no: TaskNo, request: &Request) -> Result<TaskNo, Refusal> {
    let task = graph.task(no).ok_or(AnswerAsk::NotFound)?;
    if task.status.is_terminal() {
        return Ok(no);
    }
    let generation = task.generation;
    let Some(park) = graph.park(no) else {
        return Err(AnswerAsk::TaskNotRunning.into());
    };
    if super::expire::is_due(graph, park) {
        super::expire::settle_due(graph, no);
        return Ok(no);
    }
    let payload = proven(request)?;
    let (status, outcome) = match payload.outcome {
        Word::Completed => (TaskStatus::Completed, Outcome::default()),
        Word::Failed => (
            TaskStatus::Failed,
            Outcome::error("await_failed", payload.failure_detail()),
        ),
    };
    if let Some(who) = request.by.clone() {
        graph.resolved_by(no, who);
    }
    graph.settle(no, status, outcome);
    let mut result = NewResult::empty(no, generation);
    result.content = payload.content;
    result.structured = payload.structured;
    graph.store_result(result);
    for capture in &request.captures {
        if payload.links.iter().any(|l| l.upload == capture.public_id) {
            graph.changes.bound.push((no, capture.id));
        }
    }
    Ok(no)
}

fn proven(request: &Request) -> Result<Payload, payload::Refusal> {
    for link in request.submission.links.as_ref().map_err(Clone::clone)? {
        if !request.captures.iter().any(|c| c.public_id == link.upload) {
            return Err(payload::Refusal::UnknownResultUpload { at: link.at });
        }
    }
    request.submission.payload.clone()
}
