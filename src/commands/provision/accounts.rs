//! Accounts: made, suspended, resumed.

use super::{Error, NOT_FOUND, new_public_id};
use crate::app::App;
use crate::domain::PublicId;
use crate::domain::words::Standing;
use crate::store::accounts::{self, Account};

/// Makes an account of that name.
///
/// # Errors
/// A fault of the database.
pub async fn create(app: &App, name: &str) -> Result<Account, Error> {
    let public_id = new_public_id(app).await?;
    Ok(accounts::insert(&app.store, public_id, name).await?)
}

/// Suspends an account: from now on all its bearers are refused. Idempotent.
///
/// Its sockets are cut by each replica's re-check within 5 s (`cable.md` §5): one hint a member
/// and executor would be a storm.
///
/// # Errors
/// Not found; a fault of the database.
pub async fn suspend(app: &App, id: PublicId) -> Result<Account, Error> {
    set_status(app, id, Standing::Suspended).await
}

/// Resumes an account: its bearers are what they were. Idempotent.
///
/// # Errors
/// Not found; a fault of the database.
pub async fn resume(app: &App, id: PublicId) -> Result<Account, Error> {
    set_status(app, id, Standing::Active).await
}

async fn set_status(app: &App, id: PublicId, status: Standing) -> Result<Account, Error> {
    accounts::set_status(&app.store, id, status)
        .await?
        .ok_or(NOT_FOUND)
}
