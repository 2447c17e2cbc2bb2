//! Retry and abandon: what a person does about a failure (`runs.md` §8.3).

use super::Error;
use super::lane::RunCommand;
use crate::app::App;
use crate::domain::words::TaskKind;
use crate::domain::{AccountId, PublicId, TaskKey, TaskNo, refusal};
use crate::engine::mint::Mint;
use crate::engine::repair;
use crate::store::{First, Locked, RunTarget};

fn number(locked: &Locked, key: &TaskKey) -> Option<TaskNo> {
    locked.graph.task_by_key(key.as_str()).map(|t| t.no)
}

struct Retry {
    target: RunTarget,
    key: TaskKey,
    /// Whether another model was asked for.
    with_model: bool,
}

impl RunCommand for Retry {
    type Answer = ();
    type Refusal = refusal::Retry;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Repair(self.key.clone())
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<(), refusal::Retry> {
        let no = number(locked, &self.key).ok_or(refusal::Retry::NotFound)?;
        let kind = locked.graph.task(no).map(|t| t.kind);
        if self.with_model && kind != Some(TaskKind::Model) {
            return Err(refusal::Retry::InvalidModel);
        }
        repair::retry(&mut locked.graph, no)
    }

    fn no_run(&self) -> refusal::Retry {
        refusal::Retry::NotFound
    }
}

struct Abandon {
    target: RunTarget,
    key: TaskKey,
}

impl RunCommand for Abandon {
    type Answer = ();
    type Refusal = refusal::Abandon;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Repair(self.key.clone())
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<(), refusal::Abandon> {
        let no = number(locked, &self.key).ok_or(refusal::Abandon::NotFound)?;
        repair::abandon(&mut locked.graph, no)
    }

    fn no_run(&self) -> refusal::Abandon {
        refusal::Abandon::NotFound
    }
}

/// Retries a failed row.
///
/// # Errors
/// [`refusal::Retry`], or a fault.
pub async fn retry(
    app: &App,
    account: AccountId,
    run: PublicId,
    key: TaskKey,
    with_model: bool,
) -> Result<(), Error<refusal::Retry>> {
    let target = RunTarget { account, run };
    let retry = Retry {
        target,
        key,
        with_model,
    };
    app.lanes.execute(retry).await.map(|_| ())
}

/// Lets a failure go.
///
/// # Errors
/// [`refusal::Abandon`], or a fault.
pub async fn abandon(
    app: &App,
    account: AccountId,
    run: PublicId,
    key: TaskKey,
) -> Result<(), Error<refusal::Abandon>> {
    let target = RunTarget { account, run };
    app.lanes.execute(Abandon { target, key }).await.map(|_| ())
}
