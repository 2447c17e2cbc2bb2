//! Progress: a frame is proven and handed to its host's feed, never stored (`executor.md` §14).
//!
//! One frame per call or process and [`CADENCE`] is looked at, before any row is read: the others
//! are dropped, whatever their token. A frame that is dropped or lost is owed to nobody.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::Error;
use super::claim::prove;
use crate::app::App;
use crate::domain::PublicId;
use crate::domain::hint::{FeedItems, FeedKind, Hint};
use crate::domain::progress::{Claim, Frame, Host};
use crate::domain::refusal::ReadClaim as Refusal;
use crate::store::credentials::ExecutorCaller;
use crate::store::inbox::ClaimState;

/// One frame per call or process within this time.
pub const CADENCE: Duration = Duration::from_millis(250);

/// Takes a frame: it is broadcast or dropped, and the answer does not tell which.
///
/// # Errors
/// `not_found` (an unknown task or host), `not_claimant`, or a fault.
pub async fn take(app: &App, caller: &ExecutorCaller, frame: Frame) -> Result<(), Error<Refusal>> {
    if !app
        .bus
        .try_slot(&slot(caller.public_id, &frame), CADENCE)
        .await
    {
        return Ok(());
    }
    let (host, state) = match &frame {
        Frame::Task { claim, .. } => {
            let state = proven(app, caller, claim).await?;
            if state.status.is_terminal() {
                return Ok(());
            }
            (claim.run, state)
        }
        Frame::Process { host, source, .. } => {
            let run = run_host(app, caller, *host).await?;
            (run, source_of(app, caller, source, run).await?)
        }
    };
    let message = frame.message(caller.public_id, state.now, state.tool_name);
    app.bus
        .announce(vec![Hint::Feed {
            kind: FeedKind::Run,
            host,
            items: FeedItems::Progress,
            message,
        }])
        .await;
    Ok(())
}

/// Names the slot of this executor and call or process; a hash, since a process is called by its
/// executor as it likes.
pub fn slot(executor: PublicId, frame: &Frame) -> String {
    let mut sha = Sha256::new();
    sha.update(executor.0.as_bytes());
    sha.update(frame.slot().as_bytes());
    let digest = sha.finalize();
    digest
        .iter()
        .fold("progress:".to_owned(), |mut text, byte| {
            text.push_str(&format!("{byte:02x}"));
            text
        })
}

async fn proven(
    app: &App,
    caller: &ExecutorCaller,
    claim: &Claim,
) -> Result<ClaimState, Error<Refusal>> {
    prove(app, caller, claim.run, &claim.task, &claim.token).await
}

/// The run whose feed a host's frames go to. Conversations are none yet.
async fn run_host(
    app: &App,
    caller: &ExecutorCaller,
    host: Host,
) -> Result<PublicId, Error<Refusal>> {
    match host {
        Host::Run(run) if app.store.run_exists(caller.account, run).await? => Ok(run),
        Host::Run(_) | Host::Conversation(_) => Err(Error::Refused(Refusal::NotFound)),
    }
}

/// The claim that started a process: this executor's, of a call of that host; settled or not.
async fn source_of(
    app: &App,
    caller: &ExecutorCaller,
    source: &Claim,
    host: PublicId,
) -> Result<ClaimState, Error<Refusal>> {
    if source.run != host {
        return Err(Error::Refused(Refusal::NotClaimant));
    }
    match proven(app, caller, source).await {
        Err(Error::Refused(_)) => Err(Error::Refused(Refusal::NotClaimant)),
        outcome => outcome,
    }
}
