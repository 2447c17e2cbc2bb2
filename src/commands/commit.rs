//! Commit: a claimed call's final result (`executor.md` §11).

use super::Error;
use super::lane::{Done, RunCommand};
use crate::app::App;
use crate::domain::json::Object;
use crate::domain::payload::Submission;
use crate::domain::refusal::{Commit as Refusal, CommitClaim};
use crate::domain::{PublicId, TaskKey, TaskNo};
use crate::engine::commit::{self, Request};
use crate::engine::mint::{self, Mint};
use crate::store::credentials::ExecutorCaller;
use crate::store::views::TaskView;
use crate::store::{First, Locked, RunTarget};

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
        let caller = *locked
            .callers
            .get(&self.caller.id)
            .filter(|c| c.epoch == self.caller.epoch)
            .ok_or(CommitClaim::NotEligible)?;
        let no = locked.graph.task_by_key(self.key.as_str()).map(|t| t.no);
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
    let links = match &submission.payload {
        Ok(payload) => payload.links.iter().map(|link| link.upload).collect(),
        Err(_) => Vec::new(),
    };
    let captures = app.store.captures(caller.account, &links).await?;
    let target = RunTarget {
        account: caller.account,
        run,
    };
    let request = Request {
        token: token.map(mint::token_digest),
        submission,
        captures,
    };
    let Done { task, .. } = app
        .lanes
        .execute(Commit {
            target,
            key,
            caller,
            request,
        })
        .await?;
    task.ok_or_else(|| Error::Refused(CommitClaim::NotFound.into()))
}
