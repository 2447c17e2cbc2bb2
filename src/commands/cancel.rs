//! A person ends a branch (`runs.md` §8.5).

use super::Error;
use super::lane::RunCommand;
use crate::app::App;
use crate::domain::refusal::Cancel as Refusal;
use crate::domain::{AccountId, PublicId, TaskKey};
use crate::engine::cancel;
use crate::engine::mint::Mint;
use crate::store::{First, Locked, RunTarget};

struct Cancel {
    target: RunTarget,
    key: TaskKey,
}

impl RunCommand for Cancel {
    type Answer = ();
    type Refusal = Refusal;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Branch(self.key.clone())
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<(), Refusal> {
        let task = locked.graph.task_by_key(self.key.as_str());
        let no = task.map(|t| t.no).ok_or(Refusal::NotFound)?;
        cancel::cancel(&mut locked.graph, no)
    }

    fn no_run(&self) -> Refusal {
        Refusal::NotFound
    }
}

/// Cancels the branch that a row stands in front of.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn cancel(
    app: &App,
    account: AccountId,
    run: PublicId,
    key: TaskKey,
) -> Result<(), Error<Refusal>> {
    let target = RunTarget { account, run };
    app.lanes.execute(Cancel { target, key }).await.map(|_| ())
}
