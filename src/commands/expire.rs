//! Expiry: a due park settles by its frozen effect profile (`executor.md` §12).

use crate::app::App;
use crate::domain::{AccountId, RunId, TaskNo};
use crate::store;

/// Settles what is due among these tasks, re-checked under the run lock; rows settled.
///
/// # Errors
/// A fault of the database.
pub async fn expire(
    _app: &App,
    _account: AccountId,
    _run: RunId,
    _tasks: Vec<TaskNo>,
) -> Result<usize, store::Error> {
    Ok(0) // replaced at merge
}
