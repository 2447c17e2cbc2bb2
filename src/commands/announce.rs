//! Announce: an executor says anew everything it serves (`executor.md` §4).
//!
//! All three lists change together or not at all. Rows that are dispatched keep what was frozen.

use super::transaction::to_its_end;
use crate::app::App;
use crate::domain::announcement::Announcement;
use crate::store::credentials::ExecutorCaller;
use crate::store::executors::{self, Executor};
use crate::store::{Error, served_tools};

/// Replaces what the caller serves; gives the executor as it is now. None, and nothing changed,
/// when its credential died after it was proven.
///
/// # Errors
/// A fault of the database.
pub async fn announce(
    app: &App,
    caller: &ExecutorCaller,
    announcement: Announcement,
) -> Result<Option<Executor>, Error> {
    let (app, caller) = (app.clone(), caller.clone());
    to_its_end(move || replace(app.clone(), caller.clone(), announcement.clone())).await
}

async fn replace(
    app: App,
    caller: ExecutorCaller,
    announcement: Announcement,
) -> Result<Option<Executor>, Error> {
    let mut tx = app.store.conn().await?.begin().await?;
    let (account, id, epoch) = (caller.account, caller.id, caller.epoch);
    if !served_tools::replace(&mut tx, account, id, epoch, &announcement).await? {
        tx.rollback().await;
        return Ok(None);
    }
    let executor = executors::read(&mut tx, account, id).await?;
    tx.commit().await?;
    Ok(Some(executor))
}
