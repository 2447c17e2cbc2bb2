//! Extend: the one clock of a live claim, moved (`executor.md` §10).

use super::Error;
use super::lane::{Done, RunCommand};
use crate::app::App;
use crate::domain::refusal::Extend as Refusal;
use crate::domain::words::ExecutorStatus;
use crate::domain::{PublicId, TaskKey, Timestamp};
use crate::engine::extend::{self, Request};
use crate::engine::mint::{self, Mint};
use crate::store::credentials::ExecutorCaller;
use crate::store::{First, Locked, RunTarget};

struct Extend {
    target: RunTarget,
    key: TaskKey,
    caller: ExecutorCaller,
    request: Request,
}

impl RunCommand for Extend {
    type Answer = Timestamp;
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

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<Timestamp, Refusal> {
        let caller = locked
            .callers
            .get(&self.caller.id)
            .filter(|c| c.epoch == self.caller.epoch && c.executor.status == ExecutorStatus::Active)
            .copied()
            .ok_or(Refusal::NotClaimant);
        let no = locked
            .graph
            .task_by_key(self.key.as_str())
            .map(|t| t.no)
            .ok_or(Refusal::NotFound)?;
        let caller = caller?;
        extend::decide(&mut locked.graph, no, &caller, &self.request)
    }

    fn no_run(&self) -> Refusal {
        Refusal::NotFound
    }
}

/// Extends; answers the new deadline, on the wall.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn extend(
    app: &App,
    caller: ExecutorCaller,
    run: PublicId,
    key: TaskKey,
    token: &str,
    timeout_ms: i64,
) -> Result<Timestamp, Error<Refusal>> {
    let target = RunTarget {
        account: caller.account,
        run,
    };
    let request = Request {
        token: mint::token_digest(token),
        timeout_ms,
    };
    let Done { answer, .. } = app
        .lanes
        .execute(Extend {
            target,
            key,
            caller,
            request,
        })
        .await?;
    Ok(answer)
}
