//! The operator plane: provisioning (`operating.md` §4). Its routes, and how its refusals look.
//!
//! Knows bodies, paths and views. Does not know: tables, transactions, or who uses what is
//! provisioned.

mod accounts;
mod executors;
mod fields;
mod grants;
mod members;
pub mod sweeper;
mod test_clock;
mod tokens;
mod workspaces;

/// The bounds of what these doors take.
pub mod limits {
    pub use super::sweeper::sweeps;
    pub use super::test_clock::MAX_MS as ADVANCE_MS;
}

use axum::Router;

use crate::app::App;
use crate::commands::provision;
use crate::domain::refusal::Provision;
use crate::domain::{AccountId, PublicId};
use crate::http::ApiError;
use crate::http::list::{List, bad_cursor};
use crate::http::params::{self, Params};
use crate::store::accounts as rows;
use crate::store::page::Page;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new()
        .merge(accounts::routes())
        .merge(workspaces::routes())
        .merge(grants::routes())
        .merge(members::routes())
        .merge(executors::routes())
        .merge(tokens::routes())
        .merge(test_clock::routes())
        .merge(sweeper::routes())
}

impl From<Provision> for ApiError {
    fn from(refusal: Provision) -> Self {
        let (code, message) = (refusal.code(), refusal.message());
        let error = match refusal {
            Provision::NotFound => Self::not_found(),
            Provision::HandleTaken
            | Provision::ExecutorKindMismatch
            | Provision::ExecutorScopeMismatch
            | Provision::ExecutorRevoked => Self::conflict(code, message),
            Provision::ControllerIsNoHuman
            | Provision::ManagerIsNoHuman
            | Provision::AgentIsNoAgent => Self::unprocessable(code, message),
        };
        match refusal.parameter() {
            Some(name) => error.with("parameter", name),
            None => error,
        }
    }
}

impl From<provision::Error> for ApiError {
    fn from(error: provision::Error) -> Self {
        match error {
            provision::Error::Refused(refusal) => refusal.into(),
            provision::Error::Fault(fault) => fault.into(),
        }
    }
}

/// `?account=<id>`: only that account's rows.
async fn account_filter(
    app: &App,
    params: &Params,
) -> Result<Option<(AccountId, PublicId)>, ApiError> {
    let Some(text) = params.get("account") else {
        return Ok(None);
    };
    let account = rows::by_public_id(&app.store, params::public_id(text)?)
        .await?
        .ok_or_else(ApiError::not_found)?;
    Ok(Some((account.id, account.public_id)))
}

/// A list of that kind over one account or all, and the page to fetch. `position` finds the row a
/// cursor names.
async fn page<F>(
    app: &App,
    params: &Params,
    kind: &str,
    position: impl FnOnce(String) -> F,
) -> Result<(List, Page), ApiError>
where
    F: Future<Output = Result<Option<(AccountId, i64)>, ApiError>>,
{
    let account = account_filter(app, params).await?;
    let host = account.map_or_else(|| "all".to_owned(), |(_, id)| id.to_string());
    let list = List::read(params, kind, &host)?;
    let after = match list.after() {
        Some(word) => Some(position(word.to_owned()).await?.ok_or_else(bad_cursor)?),
        None => None,
    };
    let page = Page {
        account: account.map(|(id, _)| id),
        after,
        order: list.order,
        limit: list.fetch(),
    };
    Ok((list, page))
}
