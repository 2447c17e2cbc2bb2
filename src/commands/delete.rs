//! Delete: a run that is not live is hidden from every surface now (`runs.md` §7). Its rows are
//! reclaimed by a sweep, thirty days later.

use super::{Error, run_again, to_the_end};
use crate::app::App;
use crate::domain::refusal::Delete as Refusal;
use crate::domain::{AccountId, PublicId};
use crate::store::RunTarget;
use crate::store::shell::{self, Deletion};

/// Deletes a run.
///
/// # Errors
/// [`Refusal`], or a fault; nothing is written on either.
pub async fn delete(app: &App, account: AccountId, run: PublicId) -> Result<(), Error<Refusal>> {
    let app = app.clone();
    let target = RunTarget { account, run };
    to_the_end(async move { run_again(|| delete_once(&app, target)).await }).await
}

async fn delete_once(app: &App, target: RunTarget) -> Result<(), Error<Refusal>> {
    match shell::delete(&app.store, target).await? {
        Deletion::Done => Ok(()),
        Deletion::Live => Err(Error::Refused(Refusal::RunBusy)),
        Deletion::Absent => Err(Error::Refused(Refusal::NotFound)),
    }
}
