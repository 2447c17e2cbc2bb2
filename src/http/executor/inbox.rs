//! The inbox's doors: list, claim one, claim many, read a claim, extend (`executor.md` §6-§10).

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use serde::Serialize;

use crate::app::App;
use crate::commands::claim::{self, Claimed};
use crate::commands::{extend, inbox};
use crate::domain::cursor;
use crate::domain::idempotency::KEY_BYTES;
use crate::domain::json::{Object, Value};
use crate::domain::time::At;
use crate::http::answer::{Answer, Pagination, idempotency_key, ok};
use crate::http::auth::ExecutorCaller;
use crate::http::body::Body;
use crate::http::error::ApiError;
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::store::inbox::InboxRow;

/// The most rows of one page, and its default.
pub const PAGE: (i64, i64) = (200, 50);
/// The longest a poll waits, in ms.
pub const WAIT_MS: i64 = 25_000;
/// The most rows of one batch of claims.
pub const CLAIMS: i64 = 64;
/// The list that inbox cursors belong to.
const LIST: &str = "inbox";

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/agent_api/v1/executor/inbox", get(list))
        .route("/agent_api/v1/executor/inbox/claims", post(claim_many))
        .route(
            "/agent_api/v1/executor/inbox/{run}/{task}/claim",
            post(claim_one).get(read_claim),
        )
        .route(
            "/agent_api/v1/executor/inbox/{run}/{task}/extend",
            post(extend_claim),
        )
}

#[derive(Debug, Serialize)]
struct Inbox {
    tasks: Vec<InboxRow>,
    pagination: Pagination,
}

async fn list(
    caller: ExecutorCaller,
    State(app): State<App>,
    params: Params,
) -> Result<Answer<Inbox>, ApiError> {
    let after = params.cursor("after", LIST)?.unwrap_or(0);
    let limit = params.integer("limit", PAGE.1, 1..=PAGE.0)?;
    let wait = params.integer("wait_ms", 0, 0..=WAIT_MS)?;
    let page = inbox::list(&app, &caller, after, limit, millis(wait)).await?;
    let next_after = page.next_after.map(|park| cursor::write(LIST, park));
    Ok(ok(Inbox {
        tasks: page.rows,
        pagination: Pagination { next_after },
    }))
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}

#[derive(Debug, Serialize)]
struct ClaimView {
    claim_token: String,
    deadline_at: At,
}

#[derive(Debug, Serialize)]
struct Grant {
    task: InboxRow,
    claim: ClaimView,
}

impl From<Claimed> for Grant {
    fn from(claimed: Claimed) -> Self {
        Self {
            task: claimed.row,
            claim: ClaimView {
                claim_token: claimed.token,
                deadline_at: At(claimed.deadline_at),
            },
        }
    }
}

async fn claim_one(
    caller: ExecutorCaller,
    State(app): State<App>,
    PathOf((run, task)): PathOf<(String, String)>,
    headers: HeaderMap,
    Body(_): Body,
) -> Result<Answer<Grant>, ApiError> {
    let (run, task) = (params::public_id(&run)?, params::task_key(&task)?);
    let key = match idempotency_key(&headers, KEY_BYTES) {
        Ok(key) => key,
        Err(malformed) => {
            // 404 comes before the shape of the request.
            claim::exists(&app, &caller, run, &task).await?;
            return Err(malformed);
        }
    };
    let claimed = claim::claim(&app, caller, run, task, key).await?;
    Ok(ok(claimed.into()))
}

#[derive(Debug, Serialize)]
struct Grants {
    claims: Vec<Grant>,
}

async fn claim_many(
    caller: ExecutorCaller,
    State(app): State<App>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Answer<Grants>, ApiError> {
    let key = idempotency_key(&headers, KEY_BYTES)?;
    let limit = integer(&body, "limit", 1, 1..=CLAIMS)?;
    let wait = integer(&body, "wait_ms", 0, 0..=WAIT_MS)?;
    let limit = usize::try_from(limit).unwrap_or(1);
    let claimed = inbox::claim_many(&app, &caller, limit, millis(wait), key).await?;
    Ok(ok(Grants {
        claims: claimed.into_iter().map(Grant::from).collect(),
    }))
}

/// An optional integer member within a range; `1.0` is none.
pub(super) fn integer(
    body: &Object,
    name: &'static str,
    default: i64,
    range: std::ops::RangeInclusive<i64>,
) -> Result<i64, ApiError> {
    match body.get(name).filter(|v| !v.is_null()) {
        None => Ok(default),
        Some(value) => value.as_i64().filter(|n| range.contains(n)).ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            let takes = format!("{name} must be an integer from {low} to {high}");
            ApiError::parameter_invalid(name, takes)
        }),
    }
}

/// The claim proof of a GET: the header alone counts.
pub(super) fn claim_token(headers: &HeaderMap) -> Result<&str, ApiError> {
    headers
        .get("claim-token")
        .map(|value| value.to_str().unwrap_or("?").trim())
        .filter(|token| !token.is_empty())
        .ok_or_else(|| ApiError::parameter_missing("Claim-Token"))
}

#[derive(Debug, Serialize)]
struct ClaimState {
    active: bool,
}

#[derive(Debug, Serialize)]
struct ReadClaim {
    claim: ClaimState,
}

async fn read_claim(
    caller: ExecutorCaller,
    State(app): State<App>,
    PathOf((run, task)): PathOf<(String, String)>,
    headers: HeaderMap,
) -> Result<Answer<ReadClaim>, ApiError> {
    let (run, task) = (params::public_id(&run)?, params::task_key(&task)?);
    let Ok(token) = claim_token(&headers) else {
        // 404 comes before the shape of the request.
        claim::exists(&app, &caller, run, &task).await?;
        return Err(ApiError::parameter_missing("Claim-Token"));
    };
    let active = claim::read(&app, &caller, run, &task, token).await?;
    Ok(ok(ReadClaim {
        claim: ClaimState { active },
    }))
}

#[derive(Debug, Serialize)]
struct Extended {
    claim: ClaimView,
}

async fn extend_claim(
    caller: ExecutorCaller,
    State(app): State<App>,
    PathOf((run, task)): PathOf<(String, String)>,
    Body(body): Body,
) -> Result<Answer<Extended>, ApiError> {
    let (run, task) = (params::public_id(&run)?, params::task_key(&task)?);
    let token = token_member(&body)?.unwrap_or_default().to_owned();
    let timeout_ms = match body.get("timeout_ms") {
        // However long: what is too long is judged behind the claim.
        Some(Value::Int(n)) => Some(n.saturated()).filter(|n| *n >= 1),
        _ => None,
    };
    let Some(timeout_ms) = timeout_ms else {
        claim::exists(&app, &caller, run, &task).await?;
        return Err(ApiError::unprocessable(
            "invalid_timeout_ms",
            "timeout_ms must be an integer of at least 1",
        ));
    };
    let deadline_at = extend::extend(&app, caller, run, task, &token, timeout_ms).await?;
    Ok(ok(Extended {
        claim: ClaimView {
            claim_token: token,
            deadline_at: At(deadline_at),
        },
    }))
}

/// The claim proof of a POST: a string, or absent.
pub(super) fn token_member(body: &Object) -> Result<Option<&str>, ApiError> {
    match body.get("claim_token").filter(|v| !v.is_null()) {
        None => Ok(None),
        Some(Value::Str(token)) => Ok(Some(token)),
        Some(_) => Err(ApiError::parameter_invalid(
            "claim_token",
            "claim_token must be a string",
        )),
    }
}
