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

/// A commit as it came in.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The run.
    pub run: PublicId,
    /// The row.
    pub key: TaskKey,
    /// The claim's proof.
    pub token: Option<&'a str>,
    /// The body; members that are no part of a result are passed over.
    pub body: &'a Object,
}

impl Entry<'_> {
    fn read(self, caller: &ExecutorCaller) -> Commit {
        Commit {
            target: RunTarget {
                account: caller.account,
                run: self.run,
            },
            key: self.key,
            caller: caller.clone(),
            request: Request {
                token: self.token.map(mint::token_digest),
                submission: Submission::read(self.body),
                captures: Vec::new(),
            },
        }
    }
}

impl Commit {
    /// The uploads that its content names.
    fn links(&self) -> impl Iterator<Item = PublicId> {
        let links = self.request.submission.links.as_deref().unwrap_or_default();
        links.iter().map(|link| link.upload)
    }
}

/// Commits; answers the row as it then stands.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn commit(
    app: &App,
    caller: &ExecutorCaller,
    entry: Entry<'_>,
) -> Result<TaskView, Error<Refusal>> {
    let mut commit = entry.read(caller);
    commit.request.captures = captures(app, caller, commit.links().collect()).await?;
    prove_sealed(app, &mut commit).await?;
    let outcome = app.lanes.execute(commit.clone()).await;
    finished(app, commit, outcome).await
}

/// Commits several, as if each came alone and in this order: one read of all captures, and a
/// transaction a lane. One answer each, in that order; none touches another's.
///
/// # Errors
/// A fault before any was begun.
pub async fn commit_all(
    app: &App,
    caller: &ExecutorCaller,
    entries: Vec<Entry<'_>>,
) -> Result<Vec<Result<TaskView, Error<Refusal>>>, store::Error> {
    let mut commits: Vec<Commit> = entries.into_iter().map(|e| e.read(caller)).collect();
    let links = commits.iter().flat_map(Commit::links).collect();
    let known = captures(app, caller, links).await?;
    for commit in &mut commits {
        let own: Vec<PublicId> = commit.links().collect();
        let named = known.iter().filter(|c| own.contains(&c.public_id));
        commit.request.captures = named.cloned().collect();
        prove_sealed(app, commit).await?;
    }
    let outcomes = app.lanes.execute_all(commits.clone()).await;
    let mut answers = Vec::with_capacity(outcomes.len());
    for (commit, outcome) in commits.into_iter().zip(outcomes) {
        answers.push(finished(app, commit, outcome).await);
    }
    Ok(answers)
}

async fn captures(
    app: &App,
    caller: &ExecutorCaller,
    mut links: Vec<PublicId>,
) -> Result<Vec<Capture>, store::Error> {
    links.sort_unstable();
    links.dedup();
    app.store.captures(caller.account, &links).await
}

/// Whether a capture that another executor staged is shown by an outcome that the call observed: looked
/// up only if there is one. It stays shown.
async fn prove_sealed(app: &App, commit: &mut Commit) -> Result<(), store::Error> {
    let caller = &commit.caller;
    let foreign = commit.request.captures.iter();
    let foreign = foreign.filter(|c| c.creator != Some(caller.id));
    let foreign: Vec<PublicId> = foreign.map(|c| c.public_id).collect();
    if foreign.is_empty() {
        return Ok(());
    }
    let (account, run) = (caller.account, commit.target.run);
    let sealed = app
        .store
        .sealed_uploads(account, run, &commit.key, &foreign)
        .await?;
    for capture in &mut commit.request.captures {
        capture.sealed = sealed.contains(&capture.public_id);
    }
    Ok(())
}

/// The answer. A write that met other rows is looked at again: if the sweep took a capture after it
/// was read, nothing was committed, and the decision is another one without it. Anything else stays
/// the fault it is.
async fn finished(
    app: &App,
    mut commit: Commit,
    outcome: Result<Done<TaskNo>, Error<Refusal>>,
) -> Result<TaskView, Error<Refusal>> {
    let Err(Error::Fault(fault @ store::Error::Expectation(_))) = outcome else {
        return shown(outcome);
    };
    let found = captures(app, &commit.caller, commit.links().collect()).await?;
    if found.len() == commit.request.captures.len() {
        return shown(Err(Error::Fault(fault)));
    }
    commit.request.captures = found;
    prove_sealed(app, &mut commit).await.map_err(Error::Fault)?;
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
