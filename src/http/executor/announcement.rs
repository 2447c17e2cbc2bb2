//! `PUT /executor/announcement`: replaces everything this address serves (`executor.md` §4).
//! Answers the bootstrap body; what was announced is not readable on this plane.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::put;

use super::bootstrap;
use crate::app::App;
use crate::commands::announce;
use crate::domain::announcement::{self, Refused};
use crate::http::ApiError;
use crate::http::auth::ExecutorCaller;
use crate::http::body::Body;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/agent_api/v1/executor/announcement", put(replace))
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        match refused {
            Refused::ToolsMissing => Self::parameter_missing("tools"),
            Refused::Unstorable { part, .. } => Self::parameter_invalid(part, message),
            Refused::Invalid(_) | Refused::Reserved(_) | Refused::TooLarge { .. } => {
                Self::unprocessable(refused.code(), message)
            }
        }
    }
}

async fn replace(
    caller: ExecutorCaller,
    State(app): State<App>,
    body: Body,
) -> Result<Response, ApiError> {
    let announcement = announcement::parse(&body.0)?;
    let executor = announce::announce(&app, &caller, announcement)
        .await?
        .ok_or_else(ApiError::unauthorized)?;
    Ok(bootstrap::answer(&executor))
}
