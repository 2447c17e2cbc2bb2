//! The doors of a claimed call's operations (`operations.md` §1).

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use serde::Serialize;

use super::inbox::{WAIT_MS, claim_token, integer, token_member};
use crate::app::App;
use crate::commands::{claim, operations};
use crate::domain::json::{Object, Value};
use crate::domain::operation::Submitted;
use crate::domain::{PublicId, TaskKey};
use crate::http::answer::{Answer, ok};
use crate::http::auth::ExecutorCaller;
use crate::http::body::Body;
use crate::http::error::ApiError;
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::http::refusals::Refused as _;

/// The most events of one page, and its default.
pub const TRACE_PAGE: (i64, i64) = (200, 100);
/// The last position there can be.
pub const LAST_POSITION: i64 = 2_147_483_647;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new()
        .route(
            "/agent_api/v1/executor/inbox/{run}/{task}/operations",
            get(trace).post(accept),
        )
        .route(
            "/agent_api/v1/executor/inbox/{run}/{task}/observation",
            post(observe),
        )
}

#[derive(Debug, Serialize)]
struct Trace {
    context: Value,
    trace: Vec<Value>,
    position: i32,
    next_after: Option<i32>,
}

#[derive(Debug, Serialize)]
struct Traced {
    operations: Trace,
}

async fn trace(
    caller: ExecutorCaller,
    State(app): State<App>,
    PathOf((run, task)): PathOf<(String, String)>,
    headers: HeaderMap,
    params: Params,
) -> Result<Answer<Traced>, ApiError> {
    let (run, task) = (params::public_id(&run)?, params::task_key(&task)?);
    let asked = read_page(&headers, &params);
    let (token, after, limit) = match asked {
        Ok(asked) => asked,
        Err(malformed) => return Err(unless_absent(&app, &caller, run, &task, malformed).await),
    };
    let page = operations::trace(&app, &caller, (run, &task), token, after, limit).await?;
    Ok(ok(Traced {
        operations: Trace {
            context: page.context,
            trace: page.events,
            position: page.position,
            next_after: page.next_after,
        },
    }))
}

fn read_page<'a>(headers: &'a HeaderMap, params: &Params) -> Result<(&'a str, i32, i64), ApiError> {
    let token = claim_token(headers)?;
    let after = params.integer("after", 0, 0..=LAST_POSITION)?;
    let limit = params.integer("limit", TRACE_PAGE.1, 1..=TRACE_PAGE.0)?;
    Ok((token, i32::try_from(after).unwrap_or(i32::MAX), limit))
}

/// 404 comes before the shape of the request.
async fn unless_absent(
    app: &App,
    caller: &ExecutorCaller,
    run: PublicId,
    task: &TaskKey,
    malformed: ApiError,
) -> ApiError {
    match claim::exists(app, caller, run, task).await {
        Ok(_) => malformed,
        Err(absent) => absent.into(),
    }
}

#[derive(Debug, Serialize)]
struct Accepted {
    operation: Value,
}

async fn accept(
    caller: ExecutorCaller,
    State(app): State<App>,
    PathOf((run, task)): PathOf<(String, String)>,
    Body(body): Body,
) -> Result<Answer<Accepted>, ApiError> {
    let (run, task) = (params::public_id(&run)?, params::task_key(&task)?);
    let (token, submitted) = match read_operation(&body) {
        Ok(read) => read,
        Err(malformed) => return Err(unless_absent(&app, &caller, run, &task, malformed).await),
    };
    let accepted = operations::accept(&app, caller, run, task, token, submitted).await?;
    let status = match accepted.replayed {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    };
    Ok(Answer(
        status,
        Accepted {
            operation: accepted.event,
        },
    ))
}

fn required_token(body: &Object) -> Result<&str, ApiError> {
    let token = token_member(body)?.filter(|token| !token.trim().is_empty());
    token.ok_or_else(|| ApiError::parameter_missing("claim_token"))
}

fn read_operation(body: &Object) -> Result<(&str, Submitted), ApiError> {
    let token = required_token(body)?;
    let operation = body
        .get("operation")
        .ok_or_else(|| ApiError::parameter_missing("operation"))?;
    let submitted = Submitted::read(operation).map_err(|malformed| malformed.answer())?;
    Ok((token, submitted))
}

#[derive(Debug, Serialize)]
struct Observed {
    observation: Option<Value>,
    position: i32,
}

async fn observe(
    caller: ExecutorCaller,
    State(app): State<App>,
    PathOf((run, task)): PathOf<(String, String)>,
    Body(body): Body,
) -> Result<Answer<Observed>, ApiError> {
    let (run, task) = (params::public_id(&run)?, params::task_key(&task)?);
    let (token, after, wait) = match read_observation(&body) {
        Ok(read) => read,
        Err(malformed) => return Err(unless_absent(&app, &caller, run, &task, malformed).await),
    };
    let observed = operations::observe(&app, caller, run, task, (token, after), wait).await?;
    Ok(ok(Observed {
        observation: observed.observation,
        position: observed.position,
    }))
}

fn read_observation(body: &Object) -> Result<(&str, i64, Duration), ApiError> {
    let token = required_token(body)?;
    let after = body.get("after").filter(|v| !v.is_null());
    let after = after.ok_or_else(|| ApiError::parameter_missing("after"))?;
    let after = after.as_i64().filter(|n| (0..=LAST_POSITION).contains(n));
    let after = after.ok_or_else(|| {
        let takes = format!("after must be an integer from 0 to {LAST_POSITION}");
        ApiError::parameter_invalid("after", takes)
    })?;
    let wait = integer(body, "wait_ms", 0, 0..=WAIT_MS)?;
    Ok((token, after, Duration::from_millis(wait.unsigned_abs())))
}
