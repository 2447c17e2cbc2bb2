//! `accounts`.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};

use super::fields::Fields;
use crate::app::App;
use crate::commands::provision::accounts as commands;
use crate::domain::json::Value;
use crate::http::ApiError;
use crate::http::auth::Operator;
use crate::http::body::Body;
use crate::http::list::{List, bad_cursor};
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::http::view;
use crate::store::accounts::{self, Account};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/operator_api/v1/accounts", get(list).post(create))
        .route("/operator_api/v1/accounts/{account}", get(read))
        .route("/operator_api/v1/accounts/{account}/suspend", post(suspend))
        .route("/operator_api/v1/accounts/{account}/resume", post(resume))
}

fn view(account: &Account) -> Value {
    Value::from([
        ("public_id", view::id(account.public_id)),
        ("name", account.name.as_str().into()),
        ("status", account.status.as_str().into()),
        ("created_at", view::at(account.created_at)),
    ])
}

fn answer(status: StatusCode, account: &Account) -> Response {
    view::wrapped(status, "account", view(account))
}

async fn create(_: Operator, State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let mut fields = Fields::of(body);
    let name = fields.text("name", 200)?;
    fields.finish()?;
    let account = commands::create(&app, &name).await?;
    Ok(answer(StatusCode::CREATED, &account))
}

/// The account that a path names; its absence comes before whatever the body says.
async fn find(app: &App, id: &str) -> Result<Account, ApiError> {
    accounts::by_public_id(&app.store, params::public_id(id)?)
        .await?
        .ok_or_else(ApiError::not_found)
}

async fn read(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
) -> Result<Response, ApiError> {
    Ok(answer(StatusCode::OK, &find(&app, &id).await?))
}

async fn list(_: Operator, State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let list = List::read(&params, "accounts", "all")?;
    let after = match list.after_id()? {
        Some(id) => {
            let account = accounts::by_public_id(&app.store, id).await?;
            Some(account.ok_or_else(bad_cursor)?.id)
        }
        None => None,
    };
    let rows = accounts::list(&app.store, after, list.order, list.fetch()).await?;
    Ok(list.answer("accounts", rows, |a| a.public_id.to_string(), view))
}

async fn suspend(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let account = find(&app, &id).await?;
    Fields::of(body).finish()?;
    let account = commands::suspend(&app, account.public_id).await?;
    Ok(answer(StatusCode::OK, &account))
}

async fn resume(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let account = find(&app, &id).await?;
    Fields::of(body).finish()?;
    let account = commands::resume(&app, account.public_id).await?;
    Ok(answer(StatusCode::OK, &account))
}
