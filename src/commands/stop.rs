//! Stop, by force: everything that has not settled is canceled (`runs.md` §7).

use super::Error;
use super::lane::RunCommand;
use crate::app::App;
use crate::domain::refusal::Stop as Refusal;
use crate::domain::{AccountId, PublicId};
use crate::engine::mint::Mint;
use crate::engine::stop;
use crate::store::{First, Locked, RunTarget};

struct Stop {
    target: RunTarget,
    reason: Option<String>,
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
        stop::force(&mut locked.graph, self.reason.clone())
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
    let target = RunTarget { account, run };
    app.lanes.execute(Stop { target, reason }).await.map(|_| ())
}
