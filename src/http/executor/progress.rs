//! The progress door (`executor.md` §14).

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;

use crate::app::App;
use crate::commands::progress;
use crate::domain::progress::Frame;
use crate::http::auth::ExecutorCaller;
use crate::http::body::Body;
use crate::http::error::ApiError;
use crate::http::refusals::Refused as _;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new().route("/agent_api/v1/executor/progress", post(take))
}

/// 202 with an empty body, whether the frame was broadcast or dropped.
async fn take(
    caller: ExecutorCaller,
    State(app): State<App>,
    Body(body): Body,
) -> Result<StatusCode, ApiError> {
    let frame = match body.get("frame") {
        None => return Err(ApiError::parameter_missing("frame")),
        Some(frame) => Frame::read(frame).map_err(|refusal| refusal.answer())?,
    };
    progress::take(&app, &caller, frame).await?;
    Ok(StatusCode::ACCEPTED)
}
