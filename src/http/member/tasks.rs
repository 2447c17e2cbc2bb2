//! What a member does about one task: resolution, retry, abandon, approve, deny, cancel
//! (`runs.md` §8).

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;

use super::runs::{TaskAnswer, require_write, resolver, seen};
use crate::app::App;
use crate::commands::{approve, cancel, repair, resolve};
use crate::domain::json::Value;
use crate::domain::payload::Submission;
use crate::domain::{PublicId, RunId, TaskKey};
use crate::http::answer::{Answer, ok};
use crate::http::auth::MemberCaller;
use crate::http::body::{Body, MAX_ESCAPED_BODY};
use crate::http::error::ApiError;
use crate::http::params;
use crate::http::path::PathOf;
use crate::store::reads;

/// Its routes.
pub fn routes() -> Router<App> {
    let task = "/agent_api/v1/workspaces/{workspace}/runs/{run}/tasks/{task}";
    Router::new()
        .route(
            &format!("{task}/resolution"),
            post(resolve_task).layer(DefaultBodyLimit::max(MAX_ESCAPED_BODY)),
        )
        .route(&format!("{task}/retry"), post(retry_task))
        .route(&format!("{task}/abandon"), post(abandon_task))
        .route(&format!("{task}/approve"), post(approve_task))
        .route(&format!("{task}/deny"), post(deny_task))
        .route(&format!("{task}/cancel"), post(cancel_task))
}

type Place = (String, String, String);

/// A task that a command is about.
struct Target {
    run: PublicId,
    run_id: RunId,
    key: TaskKey,
}

/// The task of a command: its run is seen in that workspace, and writable. Whether there is such a
/// task is seen by the command; who may not write is told first that there is none.
async fn target(
    app: &App,
    caller: &MemberCaller,
    (workspace, run, task): &Place,
) -> Result<Target, ApiError> {
    let (standing, run, run_id) = seen(app, caller, workspace, run).await?;
    let key = params::task_key(task)?;
    let target = Target { run, run_id, key };
    match require_write(standing) {
        Ok(_) => Ok(target),
        Err(refusal) => Err(target.refused(app, caller, refusal).await),
    }
}

impl Target {
    /// What the caller is told in place of the command: absence comes before standing and before what
    /// is wrong with the body (`conventions.md` §4).
    async fn refused(&self, app: &App, caller: &MemberCaller, refusal: ApiError) -> ApiError {
        match reads::kind(&app.store, caller.account, self.run_id, &self.key).await {
            Ok(Some(_)) => refusal,
            Ok(None) => ApiError::not_found(),
            Err(fault) => fault.into(),
        }
    }
}

/// The row as it now stands.
async fn shown(
    app: &App,
    caller: &MemberCaller,
    target: &Target,
) -> Result<Answer<TaskAnswer>, ApiError> {
    let store = &app.store;
    let task = store.task_detail(caller.account, target.run_id, &target.key);
    Ok(ok(TaskAnswer {
        task: task.await?.ok_or_else(ApiError::not_found)?,
    }))
}

async fn resolve_task(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf(at): PathOf<Place>,
    Body(body): Body,
) -> Result<Answer<TaskAnswer>, ApiError> {
    let target = target(&app, &caller, &at).await?;
    let token = match body.get("resolution_token") {
        None | Some(Value::Null) => None,
        Some(Value::Str(token)) => Some(token.as_str()),
        Some(_) => {
            let takes = "resolution_token must be a text";
            let refusal = ApiError::parameter_invalid("resolution_token", takes);
            return Err(target.refused(&app, &caller, refusal).await);
        }
    };
    let submission = Submission::read(&body);
    let by = resolver(&caller);
    let answer = resolve::resolve(
        &app,
        caller.account,
        target.run,
        target.key.clone(),
        token,
        by,
        submission,
    );
    answer.await?;
    shown(&app, &caller, &target).await
}

async fn retry_task(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf(at): PathOf<Place>,
    Body(body): Body,
) -> Result<Answer<TaskAnswer>, ApiError> {
    let target = target(&app, &caller, &at).await?;
    let with_model = body.get("model").is_some_and(|v| !v.is_null());
    repair::retry(
        &app,
        caller.account,
        target.run,
        target.key.clone(),
        with_model,
    )
    .await?;
    shown(&app, &caller, &target).await
}

async fn abandon_task(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf(at): PathOf<Place>,
    Body(_): Body,
) -> Result<Answer<TaskAnswer>, ApiError> {
    let target = target(&app, &caller, &at).await?;
    repair::abandon(&app, caller.account, target.run, target.key.clone()).await?;
    shown(&app, &caller, &target).await
}

async fn approve_task(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf(at): PathOf<Place>,
    Body(_): Body,
) -> Result<Answer<TaskAnswer>, ApiError> {
    let target = target(&app, &caller, &at).await?;
    decide(app, caller, target, approve::Decision::Approve).await
}

async fn deny_task(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf(at): PathOf<Place>,
    Body(body): Body,
) -> Result<Answer<TaskAnswer>, ApiError> {
    let target = target(&app, &caller, &at).await?;
    let reason = match body.get("reason") {
        None | Some(Value::Null) => None,
        // The database cannot hold U+0000: it is no text.
        Some(Value::Str(reason)) if !reason.contains('\0') => Some(reason.clone()),
        Some(_) => {
            let takes = "reason must be a text without U+0000";
            let refusal = ApiError::parameter_invalid("reason", takes);
            return Err(target.refused(&app, &caller, refusal).await);
        }
    };
    decide(app, caller, target, approve::Decision::Deny(reason)).await
}

async fn decide(
    app: App,
    caller: MemberCaller,
    target: Target,
    decision: approve::Decision,
) -> Result<Answer<TaskAnswer>, ApiError> {
    let by = approve::Decider {
        kind: caller.kind,
        public_id: caller.public_id,
    };
    approve::decide(
        &app,
        caller.account,
        target.run,
        target.key.clone(),
        by,
        decision,
    )
    .await?;
    shown(&app, &caller, &target).await
}

async fn cancel_task(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf(at): PathOf<Place>,
    Body(_): Body,
) -> Result<Answer<TaskAnswer>, ApiError> {
    let target = target(&app, &caller, &at).await?;
    cancel::cancel(&app, caller.account, target.run, target.key.clone()).await?;
    shown(&app, &caller, &target).await
}
