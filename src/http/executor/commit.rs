//! The commit door (`executor.md` §11).

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use serde::Serialize;

use super::inbox::token_member;
use crate::app::App;
use crate::commands::{claim, commit};
use crate::domain::json::{Object, Value};
use crate::http::answer::{Answer, ok};
use crate::http::auth::ExecutorCaller;
use crate::http::body::{Body, MAX_ESCAPED_BODY};
use crate::http::error::ApiError;
use crate::http::params;
use crate::http::path::PathOf;
use crate::store::views::TaskView;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new().route(
        "/agent_api/v1/executor/inbox/{run}/{task}/commit",
        post(commit_claim).layer(DefaultBodyLimit::max(MAX_ESCAPED_BODY)),
    )
}

#[derive(Debug, Serialize)]
struct Committed {
    task: TaskView,
}

async fn commit_claim(
    caller: ExecutorCaller,
    State(app): State<App>,
    PathOf((run, task)): PathOf<(String, String)>,
    Body(body): Body,
) -> Result<Answer<Committed>, ApiError> {
    let (run, task) = (params::public_id(&run)?, params::task_key(&task)?);
    let shape = check_is_error(&body).and_then(|()| token_member(&body));
    let token = match shape {
        Ok(token) => token,
        Err(malformed) => {
            // 404 comes before the shape of the request.
            claim::exists(&app, &caller, run, &task).await?;
            return Err(malformed);
        }
    };
    let task = commit::commit(&app, caller, run, task, token, &body).await?;
    Ok(ok(Committed { task }))
}

fn check_is_error(body: &Object) -> Result<(), ApiError> {
    match body.get("is_error") {
        None | Some(Value::Bool(_)) => Ok(()),
        Some(_) => Err(ApiError::parameter_invalid(
            "is_error",
            "is_error must be a boolean",
        )),
    }
}
