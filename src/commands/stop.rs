//! Stop (`runs.md` §7): by force everything that has not settled is canceled; gracefully, what has
//! started may finish. And the end of a drain that goes on for too long.

use super::Error;
use super::lane::RunCommand;
use crate::app::App;
use crate::domain::refusal::Stop as Refusal;
use crate::domain::{AccountId, PublicId};
use crate::engine::mint::Mint;
use crate::engine::stop;
use crate::store::{self, First, Locked, RunTarget};

/// The longest that a graceful stop waits for what has started: 24 h.
const LONGEST_DRAIN_MS: i64 = 86_400_000;

enum How {
    /// With the reason of a reasoned cancel.
    Force(Option<String>),
    Graceful,
    /// Only if it drains, and has for too long.
    LongDrain,
}

struct Stop {
    target: RunTarget,
    how: How,
}

impl RunCommand for Stop {
    type Answer = ();
    type Refusal = Refusal;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::OpenRows
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<(), Refusal> {
        match &self.how {
            How::Force(reason) => stop::force(&mut locked.graph, reason.clone()),
            How::Graceful => stop::graceful(&mut locked.graph),
            How::LongDrain => {
                stop::force_drain(&mut locked.graph, LONGEST_DRAIN_MS);
                Ok(())
            }
        }
    }

    fn no_run(&self) -> Refusal {
        Refusal::NotFound
    }
}

/// Stops a run by force; `reason` is of a reasoned cancel.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn force(
    app: &App,
    account: AccountId,
    run: PublicId,
    reason: Option<String>,
) -> Result<(), Error<Refusal>> {
    execute(app, account, run, How::Force(reason)).await
}

/// Stops a run gracefully.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn graceful(app: &App, account: AccountId, run: PublicId) -> Result<(), Error<Refusal>> {
    execute(app, account, run, How::Graceful).await
}

/// Forces a drain that has gone on for too long; any other run is left alone. How many were.
///
/// # Errors
/// A fault.
pub async fn long_drain(
    app: &App,
    account: AccountId,
    run: PublicId,
) -> Result<usize, store::Error> {
    match execute(app, account, run, How::LongDrain).await {
        Ok(()) => Ok(1),
        Err(Error::Refused(_)) => Ok(0),
        Err(Error::Fault(fault)) => Err(fault),
    }
}

async fn execute(
    app: &App,
    account: AccountId,
    run: PublicId,
    how: How,
) -> Result<(), Error<Refusal>> {
    let target = RunTarget { account, run };
    app.lanes.execute(Stop { target, how }).await.map(|_| ())
}
