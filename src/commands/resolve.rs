//! Resolution: a person, or whoever bears its token, answers a question (`runs.md` §8.2).

use super::Error;
use super::lane::RunCommand;
use crate::app::App;
use crate::domain::event::Resolver;
use crate::domain::payload::Submission;
use crate::domain::refusal::{Answer as Refusal, AnswerAsk};
use crate::domain::{AccountId, PublicId, TaskKey};
use crate::engine::mint::{Mint, token_digest};
use crate::engine::resolve;
use crate::store::{First, Locked, RunTarget};

struct Resolve {
    target: RunTarget,
    key: TaskKey,
    request: resolve::Request,
}

impl RunCommand for Resolve {
    type Answer = ();
    type Refusal = Refusal;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Row(self.key.clone())
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<(), Refusal> {
        let task = locked.graph.task_by_key(self.key.as_str());
        let no = task.map(|t| t.no).ok_or(AnswerAsk::NotFound)?;
        resolve::member(&mut locked.graph, no, &self.request).map(|_| ())
    }

    fn no_run(&self) -> Refusal {
        AnswerAsk::NotFound.into()
    }
}

/// Answers a question.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn resolve(
    app: &App,
    account: AccountId,
    run: PublicId,
    key: TaskKey,
    token: Option<&str>,
    by: Resolver,
    submission: Submission,
) -> Result<(), Error<Refusal>> {
    let target = RunTarget { account, run };
    let request = resolve::Request {
        token: token.map(token_digest),
        by: Some(by),
        submission,
        // Members stage no captures for questions.
        captures: Vec::new(),
    };
    let resolve = Resolve {
        target,
        key,
        request,
    };
    app.lanes.execute(resolve).await.map(|_| ())
}
