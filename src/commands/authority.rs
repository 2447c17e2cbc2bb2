//! Authority lost: a creator or account that the operator suspended has its live runs stopped, with
//! reason `authority_lost` (the specification's ruling on standing).
//!
//! Begun at once behind the suspension; what that leaves (a crash, a fault) the sweep goes on with,
//! since the suspension is written down until no live run is left.

use super::{Error, stop};
use crate::app::App;
use crate::domain::RunId;
use crate::store;
use crate::store::leaving::Lost;
use crate::telemetry::chain;

/// Runs stopped between two looks, at most.
const PAGE: usize = 64;

/// Looks of one call.
const LOOKS: usize = 4;

/// The reason of such a cancel.
pub const REASON: &str = "authority_lost";

/// Begins to stop them, behind the request.
pub fn lost(app: &App, lost: Lost) {
    let app = app.clone();
    tokio::spawn(async move {
        loop {
            match settle(&app, lost, PAGE).await {
                Ok(0) => return,
                Ok(_) => {}
                Err(fault) => {
                    tracing::warn!(
                        error = chain(&fault),
                        "runs of a suspended party wait for the sweep"
                    );
                    return;
                }
            }
        }
    });
}

/// Stops up to `limit` live runs under a suspension; answers how many. A run that cannot be stopped
/// now hides none behind it, within [`LOOKS`].
///
/// # Errors
/// The first fault, if nothing was stopped; what was stopped stays stopped.
pub async fn settle(app: &App, lost: Lost, limit: usize) -> Result<usize, store::Error> {
    let mut stopped = 0;
    let mut after = RunId(0);
    let mut first_fault = None;
    let mut is_over = false;
    for _ in 0..LOOKS {
        let page = app
            .store
            .lost_live_runs(lost, after, PAGE.min(limit))
            .await?;
        for (id, run) in &page {
            match stop::force(app, lost.account, *run, Some(REASON.to_owned())).await {
                Ok(()) => stopped += 1,
                // Somebody stopped it, or it ended: nothing is left to do.
                Err(Error::Refused(_)) => {}
                Err(Error::Fault(fault)) => first_fault = first_fault.or(Some(fault)),
            }
            after = *id;
        }
        is_over = page.len() < PAGE.min(limit);
        if is_over || stopped >= limit {
            break;
        }
    }
    match first_fault {
        Some(fault) if stopped == 0 => Err(fault),
        // A run that a request under way started meanwhile is found by the next look.
        None if stopped == 0 && is_over => app.store.lost_settled(lost).await.map(|()| 0),
        _ => Ok(stopped),
    }
}
