//! Start: a pending run begins to spend (`runs.md` §7).

use super::Error;
use super::lane::RunCommand;
use crate::app::App;
use crate::domain::refusal::Start as Refusal;
use crate::domain::words::RunStatus;
use crate::domain::{AccountId, PublicId};
use crate::engine::mint::Mint;
use crate::store::{First, Locked, RunTarget};

/// The most rows that start with the run; an envelope has at most 64.
const PASS: i64 = 64;

struct Start {
    target: RunTarget,
}

impl RunCommand for Start {
    type Answer = ();
    type Refusal = Refusal;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Ready(PASS)
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<(), Refusal> {
        if locked.graph.run.status != RunStatus::Pending {
            return Err(Refusal::NotStartable);
        }
        locked.graph.set_run_status(RunStatus::Running);
        Ok(())
    }

    fn no_run(&self) -> Refusal {
        Refusal::NotFound
    }
}

/// Starts a pending run and everything in it that waits for nothing.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn start(app: &App, account: AccountId, run: PublicId) -> Result<(), Error<Refusal>> {
    app.lanes
        .execute(Start {
            target: RunTarget { account, run },
        })
        .await
        .map(|_| ())
}
