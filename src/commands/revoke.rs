//! Revocation and shutdown of an executor converge in bounded batches (`executor.md` §19).

use crate::app::App;
use crate::domain::{AccountId, ExecutorId};
use crate::store;

/// Settles up to `limit` rows of an executor that leaves; rows settled.
///
/// # Errors
/// A fault of the database.
pub async fn settle(
    _app: &App,
    _account: AccountId,
    _executor: ExecutorId,
    _limit: usize,
) -> Result<usize, store::Error> {
    Ok(0) // replaced at merge
}
