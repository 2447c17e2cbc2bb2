//! `GET /executor`: which delivery address this credential is (`executor.md` §3). Takes no input,
//! discloses no principal, never 404s.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use crate::app::App;
use crate::domain::json::Value;
use crate::http::ApiError;
use crate::http::auth::ExecutorCaller;
use crate::http::view;
use crate::store::executors::{self, Executor};

pub(super) fn routes() -> Router<App> {
    Router::new().route("/agent_api/v1/executor", get(read))
}

/// The bootstrap body.
pub(super) fn answer(executor: &Executor) -> Response {
    let shown = Value::from([
        ("public_id", view::id(executor.public_id)),
        ("kind", executor.kind.as_str().into()),
        ("status", executor.status.as_str().into()),
        ("display_name", executor.display_name.as_str().into()),
        (
            "credential_epoch",
            i64::from(executor.credential_epoch).into(),
        ),
        ("presence", executor.presence.as_str().into()),
        (
            "last_seen_at",
            view::or_null(executor.last_seen_at, view::at),
        ),
        (
            "connected_at",
            view::or_null(executor.connected_at, view::at),
        ),
    ]);
    let body = Value::from([
        ("executor", shown),
        ("measured_at", view::at(executor.measured_at)),
    ]);
    view::json(StatusCode::OK, &body)
}

async fn read(caller: ExecutorCaller, State(app): State<App>) -> Result<Response, ApiError> {
    let executor = executors::by_id(&app.store, caller.account, caller.id).await?;
    Ok(answer(&executor))
}
