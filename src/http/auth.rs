//! Who asks: bearers become callers, one plane each (`conventions.md` §1, §2).
//!
//! Every failure is the same 401, with no hint whether the token is valid elsewhere. Authentication
//! reads the database on every request; there is no cache. Whoever is proven is charged
//! (`super::rate`) before anything else is read of the request.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

use super::error::ApiError;
use super::rate::{self, Credential};
use crate::app::App;
use crate::domain::credential::Bearer;
use crate::store::credentials;

pub use crate::store::credentials::{ExecutorCaller, MemberCaller};

/// The operator plane's caller.
#[derive(Debug, Clone, Copy)]
pub struct Operator;

fn bearer_text(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The bearer of a request, if it has the form of one.
pub fn bearer(headers: &HeaderMap) -> Option<Bearer> {
    bearer_text(headers).and_then(Bearer::parse)
}

impl FromRequestParts<App> for ExecutorCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let bearer = bearer(&parts.headers).ok_or_else(ApiError::unauthorized)?;
        let caller = credentials::executor(&app.store, &bearer)
            .await?
            .ok_or_else(ApiError::unauthorized)?;
        let credential = Credential::Token(caller.account, caller.token_id);
        rate::charge(&parts.extensions, credential).await?;
        Ok(caller)
    }
}

impl FromRequestParts<App> for MemberCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let bearer = bearer(&parts.headers).ok_or_else(ApiError::unauthorized)?;
        let caller = credentials::member(&app.store, &bearer)
            .await?
            .ok_or_else(ApiError::unauthorized)?;
        let credential = Credential::Token(caller.account, caller.token_id);
        rate::charge(&parts.extensions, credential).await?;
        Ok(caller)
    }
}

impl FromRequestParts<App> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let text = bearer_text(&parts.headers).ok_or_else(ApiError::unauthorized)?;
        let token = if app.is_bootstrap_operator(text) {
            None
        } else {
            let bearer = Bearer::parse(text).ok_or_else(ApiError::unauthorized)?;
            let known = credentials::operator(&app.store, &bearer).await?;
            Some(known.ok_or_else(ApiError::unauthorized)?)
        };
        rate::charge(&parts.extensions, Credential::Operator(token)).await?;
        Ok(Self)
    }
}
