//! Attachments: files that are bound to a run, read by who holds a claim in it
//! (`executor.md` §9). No lock, no write; works while the run is paused.

use super::Error;
use super::claim::prove;
use crate::app::App;
use crate::domain::refusal::ReadClaim as Refusal;
use crate::domain::words::TaskStatus;
use crate::domain::{PublicId, TaskKey};
use crate::store::credentials::ExecutorCaller;
use crate::store::uploads::Bound;

/// A bound file, for the holder of a live claim.
///
/// # Errors
/// `not_found` (of the task, or of the file among those bound to its run), `not_claimant`,
/// `claim_inactive` when the row settled or its deadline passed; or a fault.
pub async fn find(
    app: &App,
    caller: &ExecutorCaller,
    run: PublicId,
    key: &TaskKey,
    token: &str,
    upload: PublicId,
) -> Result<Bound, Error<Refusal>> {
    let state = prove(app, caller, run, key, token).await?;
    if state.status != TaskStatus::Dispatched || state.elapsed {
        return Err(Error::Refused(Refusal::ClaimInactive));
    }
    let bound = app
        .store
        .upload_bound(caller.account, state.run, upload)
        .await?;
    bound.ok_or(Error::Refused(Refusal::NotFound))
}
