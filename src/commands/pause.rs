//! Pause and resume (`runs.md` §7).

use super::Error;
use super::lane::RunCommand;
use crate::app::App;
use crate::domain::{AccountId, PublicId, refusal};
use crate::engine::mint::Mint;
use crate::engine::pause;
use crate::store::{First, Locked, RunTarget};

use super::schedule::PASS;

struct Pause {
    target: RunTarget,
    force: bool,
}

impl RunCommand for Pause {
    type Answer = ();
    type Refusal = refusal::Pause;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Run
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<(), refusal::Pause> {
        pause::pause(&mut locked.graph, self.force)
    }

    fn no_run(&self) -> refusal::Pause {
        refusal::Pause::NotFound
    }
}

struct Resume {
    target: RunTarget,
}

impl RunCommand for Resume {
    type Answer = ();
    type Refusal = refusal::Resume;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Ready(PASS)
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<(), refusal::Resume> {
        pause::resume(&mut locked.graph)
    }

    fn no_run(&self) -> refusal::Resume {
        refusal::Resume::NotFound
    }
}

/// Pauses a run; by force also what the kernel is at.
///
/// # Errors
/// `not_found`, `not_pausable`, or a fault.
pub async fn pause(
    app: &App,
    account: AccountId,
    run: PublicId,
    force: bool,
) -> Result<(), Error<refusal::Pause>> {
    let target = RunTarget { account, run };
    app.lanes.execute(Pause { target, force }).await.map(|_| ())
}

/// Resumes a paused run.
///
/// # Errors
/// `not_found`, `not_resumable`, or a fault.
pub async fn resume(
    app: &App,
    account: AccountId,
    run: PublicId,
) -> Result<(), Error<refusal::Resume>> {
    let target = RunTarget { account, run };
    app.lanes.execute(Resume { target }).await.map(|_| ())
}
