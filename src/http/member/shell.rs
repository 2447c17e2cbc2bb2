//! A run's default runner, and its end: `PUT …/default_runner`, `DELETE …` (`runs.md` §7, §10).

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, put};

use super::runs::{RunAnswer, commanded, document};
use crate::app::App;
use crate::commands;
use crate::commands::default_runner;
use crate::domain::json::{Object, Value};
use crate::domain::{PublicId, refusal};
use crate::http::answer::Answer;
use crate::http::auth::MemberCaller;
use crate::http::body::Body;
use crate::http::error::ApiError;
use crate::http::path::PathOf;
use crate::http::refusals::Refused as _;

/// Its routes.
pub fn routes() -> Router<App> {
    let run = "/agent_api/v1/workspaces/{workspace}/runs/{run}";
    Router::new()
        .route(run, delete(delete_run))
        .route(&format!("{run}/default_runner"), put(put_default_runner))
}

async fn delete_run(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let (_, run, _) = commanded(&app, &caller, &workspace, &run).await?;
    commands::delete::delete(&app, caller.account, run).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `{"default_runner":{"executor_public_id": uuid|null}}`: both names are required, so that nothing
/// is cleared by leaving something out.
fn wanted(body: &Object) -> Result<Option<PublicId>, ApiError> {
    let root = match body.get("default_runner") {
        None | Some(Value::Null) => return Err(ApiError::parameter_missing("default_runner")),
        Some(root) => root.as_object().ok_or_else(|| {
            ApiError::parameter_invalid("default_runner", "default_runner must be an object")
        })?,
    };
    match root.get("executor_public_id") {
        None => Err(ApiError::parameter_missing("executor_public_id")),
        Some(Value::Null) => Ok(None),
        // What is no id names no runner.
        Some(Value::Str(id)) => id
            .parse()
            .map(Some)
            .map_err(|_| refusal::DefaultRunner::RunnerNotFound.answer()),
        Some(_) => Err(ApiError::parameter_invalid(
            "executor_public_id",
            "executor_public_id takes a public id, or null for none",
        )),
    }
}

async fn put_default_runner(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
    Body(body): Body,
) -> Result<Answer<RunAnswer>, ApiError> {
    let (standing, run, _) = commanded(&app, &caller, &workspace, &run).await?;
    default_runner::set(&app, caller.account, run, wanted(&body)?).await?;
    document(&app, &caller, standing, run).await
}
