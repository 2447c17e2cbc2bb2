//! Committing a claimed call's final result (`executor.md` §11).

use super::eligibility::is_eligible;
use super::facts::{Caller, Capture, Task, TaskError};
use super::graph::{Graph, NewResult, Outcome};
use super::resolve;
use crate::domain::payload::{self, Payload, Submission};
use crate::domain::refusal::{self, Commit as Refusal, CommitClaim};
use crate::domain::words::{ExecutorStatus, Outcome as Word, RunStatus, TaskKind, TaskStatus};
use crate::domain::{ExecutorId, TaskNo};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// SHA-256 of the claim token; none when it was not given.
    pub token: Option<[u8; 32]>,
    /// What was submitted.
    pub submission: Submission,
    /// The uploads that its links name, as far as they exist.
    pub captures: Vec<Capture>,
}

/// Decides a commit on the row `no`; `stored` is the digest of an accepted commit. Success of any
/// kind is answered with the row as it then stands.
///
/// # Errors
/// The protocol's refusals, in its order. `result_unstorable` also settles the row.
pub fn decide(
    graph: &mut Graph,
    no: Option<TaskNo>,
    caller: &Caller,
    stored: Option<&[u8]>,
    request: &Request,
) -> Result<TaskNo, Refusal> {
    let task = no
        .and_then(|no| graph.task(no))
        .ok_or(CommitClaim::NotFound)?;
    if matches!(
        task.kind,
        TaskKind::Model | TaskKind::Join | TaskKind::Delegation
    ) {
        return Err(CommitClaim::NotFound.into());
    }
    let no = task.no;
    prove_standing(graph, task, caller)?;
    if task.kind == TaskKind::Await {
        return answer(graph, no, caller, request);
    }
    if task.status.is_terminal() {
        // An earlier command of the same batch may have stored it.
        let stored = graph.digest_stored_now(task).map(|d| &d[..]).or(stored);
        return answer_settled(task, stored, request).map_err(Into::into);
    }
    if task.status.is_unstarted() {
        return Err(CommitClaim::TaskNotRunning.into());
    }
    let park = graph.park(no).ok_or(CommitClaim::TaskNotRunning)?;
    let token_fits = park.claim.as_ref().is_some_and(|claim| {
        claim.by == caller.id
            && request
                .token
                .is_some_and(|token| same(&claim.digest, &token))
    });
    if !token_fits {
        return Err(CommitClaim::StaleClaim.into());
    }
    if graph.run.force_stopped && graph.run.status == RunStatus::Canceling {
        return Err(CommitClaim::ExecutionStopped.into());
    }
    if super::expire::is_due(graph, park) {
        // The deadline wins: the body is discarded, and the row settles as the sweep would.
        super::expire::settle_due(graph, no);
        return Ok(no);
    }
    let fails = request.submission.outcome == Some(Word::Failed);
    if !fails && graph.is_unfinished(no) {
        return Err(CommitClaim::PendingChildren.into());
    }
    match proven(request, caller) {
        Ok(payload) => settle(graph, no, &payload, request),
        Err(payload::Refusal::ResultUnstorable(reason)) => {
            let error = Outcome::error("result_unstorable", Some(reason.to_string()));
            graph.settle(no, TaskStatus::Failed, error);
            return Err(payload::Refusal::ResultUnstorable(reason).into());
        }
        Err(refusal) => return Err(refusal.into()),
    }
    Ok(no)
}

/// A question is answered by the application that it is addressed to (`executor.md` §16); the
/// token is not looked at.
fn answer(
    graph: &mut Graph,
    no: TaskNo,
    caller: &Caller,
    request: &Request,
) -> Result<TaskNo, Refusal> {
    let own = request.captures.iter();
    let own = own.filter(|c| c.creator == Some(caller.id)).copied();
    let answer = resolve::Request {
        token: None,
        by: None,
        submission: request.submission.clone(),
        captures: own.collect(),
    };
    resolve::application(graph, no, &answer).map_err(|refusal| match refusal {
        refusal::Answer::Payload(refusal) => refusal.into(),
        refusal::Answer::Ask(refusal::AnswerAsk::NotFound) => CommitClaim::NotFound.into(),
        refusal::Answer::Ask(_) => CommitClaim::TaskNotRunning.into(),
    })
}

/// Steps 2 to 4: addressed here, may act, run's creator may write.
fn prove_standing(graph: &Graph, task: &Task, caller: &Caller) -> Result<(), CommitClaim> {
    let claimant = claimant(graph, task);
    let addressed = match task.addressed {
        Some(addressed) => match addressed.executor {
            Some(executor) => executor == caller.id,
            None => claimant == Some(caller.id),
        },
        None => task.target == Some(caller.id),
    };
    if !addressed {
        return Err(CommitClaim::NotAddressedHere);
    }
    let may_act = if claimant == Some(caller.id) {
        caller.executor.status == ExecutorStatus::Active
    } else {
        is_eligible(&caller.executor, &graph.run.principal)
    };
    if !may_act {
        return Err(CommitClaim::NotEligible);
    }
    if !graph.run.creator_may_write {
        return Err(CommitClaim::NotAuthorized);
    }
    Ok(())
}

fn claimant(graph: &Graph, task: &Task) -> Option<ExecutorId> {
    match graph.park(task.no) {
        Some(park) => park.claim.as_ref().map(|c| c.by),
        None => task.claim.as_ref().map(|c| c.by),
    }
}

/// Step 5: the final claim's exact retry gets the stored row; other content conflicts; a row that
/// settled without a commit is answered as it stands.
fn answer_settled(
    task: &Task,
    stored: Option<&[u8]>,
    request: &Request,
) -> Result<TaskNo, CommitClaim> {
    let final_claim = task.claim.as_ref().ok_or(CommitClaim::StaleClaim)?;
    if request
        .token
        .is_none_or(|token| !same(&final_claim.digest, &token))
    {
        return Err(CommitClaim::StaleClaim);
    }
    match stored {
        Some(digest) if request.submission.digest.is_none_or(|d| d[..] != *digest) => {
            Err(CommitClaim::FinalResultConflict)
        }
        _ => Ok(task.no),
    }
}

/// Step 11: the payload within its bounds, and every link a capture of this executor.
fn proven(request: &Request, caller: &Caller) -> Result<Payload, payload::Refusal> {
    for link in request.submission.links.as_ref().map_err(Clone::clone)? {
        let own = request
            .captures
            .iter()
            .any(|c| c.public_id == link.upload && (c.creator == Some(caller.id) || c.sealed));
        if !own {
            return Err(payload::Refusal::UnknownResultUpload { at: link.at });
        }
    }
    request.submission.payload.clone()
}

/// Step 12.
fn settle(graph: &mut Graph, no: TaskNo, payload: &Payload, request: &Request) {
    let generation = graph.task(no).map_or(0, |t| t.generation);
    let (status, outcome) = match payload.outcome {
        Word::Completed => (
            TaskStatus::Completed,
            Outcome {
                is_error: payload.is_error,
                ..Outcome::default()
            },
        ),
        Word::Failed => {
            let error = TaskError {
                key: "tool_failed".to_owned(),
                detail: payload.failure_detail(),
            };
            (
                TaskStatus::Failed,
                Outcome {
                    error: Some(error),
                    ..Outcome::default()
                },
            )
        }
    };
    graph.settle(no, status, outcome);
    graph.store_result(NewResult {
        task: no,
        generation,
        content: payload.content.clone(),
        structured: payload.structured.clone(),
        title: payload.title.clone(),
        metadata: payload.metadata.clone(),
        digest: request.submission.digest,
        selection: None,
    });
    for capture in &request.captures {
        if payload
            .links
            .iter()
            .any(|link| link.upload == capture.public_id)
        {
            graph.changes.bound.push((no, capture.id));
        }
    }
}

/// Whether a stored digest is that of the token; in constant time.
fn same(stored: &[u8], token: &[u8; 32]) -> bool {
    use subtle::ConstantTimeEq as _;
    stored.ct_eq(&token[..]).into()
}
