//! Schedule: a level-triggered pass over one run's ready rows (`admission.md` §8, `ready`).

use super::lane::{Done, RunCommand};
use super::{Error, Gone};
use crate::app::App;
use crate::domain::{AccountId, PublicId};
use crate::engine::mint::Mint;
use crate::store::{self, First, Locked, RunTarget};

pub(super) use crate::engine::graph::PASS;

struct Schedule {
    target: RunTarget,
}

impl RunCommand for Schedule {
    type Answer = i32;
    type Refusal = Gone;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Ready(PASS)
    }

    /// The loaded rows are ready already; carrying the run to rest starts them.
    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<i32, Gone> {
        Ok(locked.graph.run.counts.ready)
    }

    fn no_run(&self) -> Gone {
        Gone
    }
}

/// Starts what is ready; answers how many rows were.
///
/// # Errors
/// A fault.
pub async fn schedule(app: &App, account: AccountId, run: PublicId) -> Result<usize, store::Error> {
    let target = RunTarget { account, run };
    match app.lanes.execute(Schedule { target }).await {
        Ok(Done { answer, .. }) => Ok(usize::try_from(answer).unwrap_or(0)),
        Err(Error::Fault(fault)) => Err(fault),
        Err(Error::Refused(Gone)) => Ok(0),
    }
}
