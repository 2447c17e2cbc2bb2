//! Tokens: one revoked by itself, and the operators' own.

use super::{Error, NOT_FOUND, announce_authority, mint_bearer};
use crate::app::App;
use crate::domain::words::Plane;
use crate::engine::mint::Mint;
use crate::store::Store;
use crate::store::tokens::{self, Token};

/// Ends one member's or executor's token, its owner's epoch untouched. Idempotent.
///
/// # Errors
/// There is no token of that look-up part; a fault of the database.
pub async fn revoke(app: &App, lookup: &str) -> Result<Token, Error> {
    let token = tokens::by_lookup(&app.store, lookup)
        .await?
        .ok_or(NOT_FOUND)?;
    tokens::revoke(&app.store, token.account, token.id).await?;
    announce_authority(app, [token.owner_public_id]).await;
    tokens::by_lookup(&app.store, lookup)
        .await?
        .ok_or(NOT_FOUND)
}

/// Mints an operator token: `nexus operator-token create`. Gives its text, this once.
///
/// # Errors
/// A fault of the database.
pub async fn create_operator(store: &Store, label: &str) -> Result<String, Error> {
    let minted = mint_bearer(&mut Mint::new(), Plane::Operator);
    tokens::operator_insert(store, &minted, label).await?;
    Ok(minted.text)
}

/// Ends an operator token, named by its look-up part (the 16 characters after `sk-nexus-o1-`).
///
/// # Errors
/// There is none; a fault of the database.
pub async fn revoke_operator(store: &Store, lookup: &str) -> Result<(), Error> {
    if tokens::operator_revoke(store, lookup).await? {
        Ok(())
    } else {
        Err(NOT_FOUND)
    }
}
