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

/// Runs stopped between two looks.
const PAGE: usize = 64;

/// The reason of such a cancel.
pub const REASON: &str = "authority_lost";

/// Begins to stop them, behind the request.
pub fn lost(app: &App, lost: Lost) {
    let app = app.clone();
    tokio::spawn(async move {
        if let Err(fault) = settle(&app, lost).await {
            tracing::warn!(
                error = chain(&fault),
                "runs of a suspended party wait for the sweep"
            );
        }
    });
}

/// Stops every live run under a suspension; answers how many.
///
/// # Errors
/// A fault; what was stopped stays stopped.
pub async fn settle(app: &App, lost: Lost) -> Result<usize, store::Error> {
    let mut stopped = 0;
    let mut after = RunId(0);
    loop {
        let page = app.store.lost_live_runs(lost, after, PAGE).await?;
        for (id, run) in &page {
            match stop::force(app, lost.account, *run, Some(REASON.to_owned())).await {
                Ok(()) => stopped += 1,
                // Somebody stopped it, or it ended: nothing is left to do.
                Err(Error::Refused(_)) => {}
                Err(Error::Fault(fault)) => return Err(fault),
            }
            after = *id;
        }
        if page.len() < PAGE {
            break;
        }
    }
    // A run that a request under way started meanwhile is found by the next look.
    if stopped == 0 {
        app.store.lost_settled(lost).await?;
    }
    Ok(stopped)
}
