//! Expire: due rows of one run, settled by their frozen effect profiles. The sweeper calls this;
//! nobody else settles a deadline but the doors that meet one.

use super::lane::{Done, RunCommand};
use super::{Error, Gone};
use crate::app::App;
use crate::domain::{AccountId, PublicId, TaskNo};
use crate::engine::expire;
use crate::engine::mint::Mint;
use crate::store::{self, First, Locked, RunTarget};
use crate::telemetry::EXPIRIES;

struct Expire {
    target: RunTarget,
    rows: Vec<TaskNo>,
}

impl RunCommand for Expire {
    type Answer = usize;
    type Refusal = Gone;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Parked(self.rows.clone())
    }

    /// Every row is judged anew under the lock: settled, extended, claimed or paused meanwhile,
    /// it is left alone.
    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<usize, Gone> {
        Ok(self
            .rows
            .iter()
            .filter(|no| expire::expire(&mut locked.graph, **no))
            .count())
    }

    fn no_run(&self) -> Gone {
        Gone
    }
}

/// Settles those of the rows that are due; answers how many.
///
/// # Errors
/// A fault.
pub async fn expire(
    app: &App,
    account: AccountId,
    run: PublicId,
    rows: Vec<TaskNo>,
) -> Result<usize, store::Error> {
    let target = RunTarget { account, run };
    match app.lanes.execute(Expire { target, rows }).await {
        Ok(Done { answer, .. }) => {
            metrics::counter!(EXPIRIES).increment(answer as u64);
            Ok(answer)
        }
        Err(Error::Fault(fault)) => Err(fault),
        Err(Error::Refused(Gone)) => Ok(0),
    }
}
