//! Commit: a claimed call's final result (`executor.md` §11).

use super::Error;
use super::lane::{Done, RunCommand};
use crate::app::App;
use crate::domain::json::Object;
use crate::domain::payload::Submission;
use crate::domain::refusal::{Commit as Refusal, CommitClaim};
use crate::domain::{PublicId, TaskKey, TaskNo};
use crate::engine::commit::{self, Request};
use crate::engine::facts::Capture;
use crate::engine::mint::{self, Mint};
use crate::store::credentials::ExecutorCaller;
use crate::store::views::TaskView;
use crate::store::{self, First, Locked, RunTarget};
use crate::telemetry::COMMITS;

#[derive(Clone)]
struct Commit {
    target: RunTarget,
    key: TaskKey,
    caller: ExecutorCaller,
    request: Request,
}

impl RunCommand for Commit {
    type Answer = TaskNo;
    type Refusal = Refusal;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Task {
            key: self.key.clone(),
            caller: self.caller.id,
        }
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<TaskNo, Refusal> {
        let caller = locked
            .callers
            .get(&self.caller.id)
            .filter(|c| c.epoch == self.caller.epoch)
            .copied()
            .ok_or(CommitClaim::NotEligible);
        let no = locked.graph.task_by_key(self.key.as_str()).map(|t| t.no);
        if no.is_none() {
            return Err(CommitClaim::NotFound.into());
        }
        let caller = caller?;
        let stored = no.and_then(|no| locked.digests.get(&no)).cloned();
        commit::decide(
            &mut locked.graph,
            no,
            &caller,
            stored.as_deref(),
            &self.request,
        )
    }

    fn no_run(&self) -> Refusal {
        CommitClaim::NotFound.into()
    }

    fn shows(&self, no: &TaskNo) -> Option<TaskNo> {
        Some(*no)
    }
}

/// Commits; answers the row as it then stands.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn commit(
    app: &App,
    caller: ExecutorCaller,
    run: PublicId,
    key: TaskKey,
    token: Option<&str>,
    body: &Object,
) -> Result<TaskView, Error<Refusal>> {
    let submission = Submission::read(body);
    let links: Vec<PublicId> = match &submission.links {
        Ok(links) => links.iter().map(|link| link.upload).collect(),
        Err(_) => Vec::new(),
    };
    let account = caller.account;
    let captures = captures(app, &caller, run, &key, &links).await?;
    let commit = Commit {
        target: RunTarget { account, run },
        key,
        caller,
        request: Request {
            token: token.map(mint::token_digest),
            submission,
            captures,
        },
    };
    match app.lanes.execute(commit.clone()).await {
        Err(Error::Fault(fault @ store::Error::Expectation(_))) => {
            look_again(app, commit, &links, fault).await
        }
        outcome => shown(outcome),
    }
}

/// The captures that a result links, as far as they exist: whether one that another executor staged
/// is shown by an outcome that the call observed is looked up only if there is one. It stays shown.
async fn captures(
    app: &App,
    caller: &ExecutorCaller,
    run: PublicId,
    key: &TaskKey,
    links: &[PublicId],
) -> Result<Vec<Capture>, store::Error> {
    let mut captures = app.store.captures(caller.account, links).await?;
    let foreign = captures.iter().filter(|c| c.creator != Some(caller.id));
    let foreign: Vec<PublicId> = foreign.map(|c| c.public_id).collect();
    if !foreign.is_empty() {
        let sealed = app
            .store
            .sealed_uploads(caller.account, run, key, &foreign)
            .await?;
        for capture in &mut captures {
            capture.sealed = sealed.contains(&capture.public_id);
        }
    }
    Ok(captures)
}

/// A write met other rows: if the sweep took a capture after it was read, nothing was committed, and
/// the decision is another one without it. Anything else stays the fault it is.
async fn look_again(
    app: &App,
    mut commit: Commit,
    links: &[PublicId],
    fault: store::Error,
) -> Result<TaskView, Error<Refusal>> {
    let (caller, run) = (&commit.caller, commit.target.run);
    let captures = captures(app, caller, run, &commit.key, links).await?;
    if captures.len() == commit.request.captures.len() {
        return Err(Error::Fault(fault));
    }
    commit.request.captures = captures;
    shown(app.lanes.execute(commit).await)
}

fn shown(outcome: Result<Done<TaskNo>, Error<Refusal>>) -> Result<TaskView, Error<Refusal>> {
    let word = match &outcome {
        Ok(_) => "accepted",
        Err(Error::Refused(_)) => "refused",
        Err(Error::Fault(_)) => "failed",
    };
    metrics::counter!(COMMITS, "outcome" => word).increment(1);
    outcome?
        .task
        .ok_or_else(|| Error::Refused(CommitClaim::NotFound.into()))
}
