//! Approve and deny (`runs.md` §8.4).

use super::Error;
use super::lane::RunCommand;
use crate::app::App;
use crate::domain::refusal::Approval as Refusal;
use crate::domain::{AccountId, PublicId, TaskKey};
use crate::engine::approve;
pub use crate::engine::approve::Decider;
use crate::engine::mint::Mint;
use crate::store::{First, Locked, RunTarget};

/// What is decided.
#[derive(Debug, Clone)]
pub enum Decision {
    /// The call may run.
    Approve,
    /// It may not, for this reason.
    Deny(Option<String>),
}

struct Decide {
    target: RunTarget,
    key: TaskKey,
    by: Decider,
    decision: Decision,
}

impl RunCommand for Decide {
    type Answer = ();
    type Refusal = Refusal;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Row(self.key.clone())
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<(), Refusal> {
        let graph = &mut locked.graph;
        let task = graph.task_by_key(self.key.as_str());
        let no = task.map(|t| t.no).ok_or(Refusal::NotFound)?;
        match &self.decision {
            Decision::Approve => approve::approve(graph, no, self.by),
            Decision::Deny(reason) => approve::deny(graph, no, self.by, reason.as_deref()),
        }
    }

    fn no_run(&self) -> Refusal {
        Refusal::NotFound
    }
}

/// Decides about a resting call.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn decide(
    app: &App,
    account: AccountId,
    run: PublicId,
    key: TaskKey,
    by: Decider,
    decision: Decision,
) -> Result<(), Error<Refusal>> {
    let target = RunTarget { account, run };
    let decide = Decide {
        target,
        key,
        by,
        decision,
    };
    app.lanes.execute(decide).await.map(|_| ())
}
