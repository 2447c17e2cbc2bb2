//! `tokens`: which bearers exist, and the end of one by itself. Never anything that would let one
//! be used: a token is named by its look-up part.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};

use super::fields::Fields;
use crate::app::App;
use crate::commands::provision::tokens as commands;
use crate::domain::credential::LOOKUP_LEN;
use crate::domain::json::Value;
use crate::http::ApiError;
use crate::http::auth::Operator;
use crate::http::body::Body;
use crate::http::params::Params;
use crate::http::path::PathOf;
use crate::http::view;
use crate::store::tokens::{self, Token};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/operator_api/v1/tokens", get(list))
        .route("/operator_api/v1/tokens/{token}", get(read))
        .route("/operator_api/v1/tokens/{token}/revoke", post(revoke))
}

fn view(token: &Token) -> Value {
    let is_current = token.credential_epoch == token.owner_epoch;
    Value::from([
        ("lookup", token.lookup.as_str().into()),
        ("account_public_id", view::id(token.account_public_id)),
        ("plane", token.plane.as_str().into()),
        ("owner_public_id", view::id(token.owner_public_id)),
        ("credential_epoch", i64::from(token.credential_epoch).into()),
        ("current", is_current.into()),
        ("expires_at", view::or_null(token.expires_at, view::at)),
        ("revoked_at", view::or_null(token.revoked_at, view::at)),
        ("last_used_at", view::or_null(token.last_used_at, view::at)),
        ("created_at", view::at(token.created_at)),
    ])
}

/// The token that a path names; a text of another form names none.
async fn find(app: &App, lookup: &str) -> Result<Token, ApiError> {
    let has_form = lookup.len() == LOOKUP_LEN && lookup.bytes().all(|b| b.is_ascii_alphanumeric());
    if !has_form {
        return Err(ApiError::not_found());
    }
    tokens::by_lookup(&app.store, lookup)
        .await?
        .ok_or_else(ApiError::not_found)
}

async fn read(
    _: Operator,
    State(app): State<App>,
    PathOf(lookup): PathOf<String>,
) -> Result<Response, ApiError> {
    let token = find(&app, &lookup).await?;
    Ok(view::wrapped(StatusCode::OK, "token", view(&token)))
}

async fn list(_: Operator, State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let position = async |word: String| {
        let has_form = word.bytes().all(|b| b.is_ascii_alphanumeric());
        if !has_form {
            return Ok(None);
        }
        let row = tokens::by_lookup(&app.store, &word).await?;
        Ok(row.map(|k| (k.account, k.id)))
    };
    let (list, page) = super::page(&app, &params, "tokens", position).await?;
    let rows = tokens::list(&app.store, &page).await?;
    Ok(list.answer("tokens", rows, |k| k.lookup.clone(), view))
}

async fn revoke(
    _: Operator,
    State(app): State<App>,
    PathOf(lookup): PathOf<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let token = find(&app, &lookup).await?;
    Fields::of(body).finish()?;
    let token = commands::revoke(&app, &token.lookup).await?;
    Ok(view::wrapped(StatusCode::OK, "token", view(&token)))
}
