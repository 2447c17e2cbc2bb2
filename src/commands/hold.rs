//! Hold: whether a failure holds its run, asked once a call of it was claimed (`engine.md` §7).
//!
//! A person hears of a failure as soon as every park that remains is a claimed call. A claim takes no
//! run lock, so it cannot judge that itself: after its commit it asks for this pass. Like a hint it
//! never fails the claim, and a lost one costs time: the sweeper finds the run (`ready`).
//!
//! Invariant: at most one pass a run and replica waits to begin. It leaves the set of those before it
//! looks at the parks, so a claim that finds it there is seen by it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use super::lane::{Lanes, RunCommand};
use super::{Error, Gone};
use crate::domain::words::RunStatus;
use crate::domain::{AccountId, PublicId};
use crate::engine::mint::Mint;
use crate::store::{self, First, Locked, RunTarget};

/// The passes of one replica. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Holds {
    lanes: Lanes,
    asked: Arc<Mutex<HashSet<RunTarget>>>,
}

struct Judge {
    target: RunTarget,
    holds: Holds,
}

impl RunCommand for Judge {
    /// Whether the run went on without a hold until now.
    type Answer = bool;
    type Refusal = Gone;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Run
    }

    /// Carrying the run to rest judges it.
    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<bool, Gone> {
        self.holds.begun(&self.target);
        Ok(locked.graph.run.status == RunStatus::Running)
    }

    fn no_run(&self) -> Gone {
        Gone
    }
}

impl Holds {
    /// Passes that go through these lanes.
    pub fn new(lanes: Lanes) -> Self {
        Self {
            lanes,
            asked: Arc::default(),
        }
    }

    fn asked(&self) -> MutexGuard<'_, HashSet<RunTarget>> {
        self.asked
            .lock()
            .expect("no one panics while holding the set of passes")
    }

    fn begun(&self, target: &RunTarget) {
        self.asked().remove(target);
    }

    /// Asks for a pass over that run, behind the caller's back.
    pub fn ask(&self, account: AccountId, run: PublicId) {
        let target = RunTarget { account, run };
        if !self.asked().insert(target) {
            return;
        }
        let holds = self.clone();
        tokio::spawn(async move {
            if let Err(fault) = holds.judge(account, run).await {
                tracing::debug!(%fault, "a hold is judged later");
            }
        });
    }

    /// Judges whether a failure holds that run; answers how many runs were looked at that went on.
    ///
    /// # Errors
    /// A fault.
    pub async fn judge(&self, account: AccountId, run: PublicId) -> Result<usize, store::Error> {
        let target = RunTarget { account, run };
        let judge = Judge {
            target,
            holds: self.clone(),
        };
        let judged = self.lanes.execute(judge).await;
        self.begun(&target);
        match judged {
            Ok(done) => Ok(usize::from(done.answer)),
            Err(Error::Refused(Gone)) => Ok(0),
            Err(Error::Fault(fault)) => Err(fault),
        }
    }
}
