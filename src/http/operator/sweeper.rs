//! The operator's views of replicas and sweeping (`admission.md` §6).
//!
//! The one door that knows the sweeper: somebody asks for what otherwise a timer starts.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value as Json_, json};

use crate::app::App;
use crate::domain::Value;
use crate::domain::time::At;
use crate::http::ApiError;
use crate::http::auth::Operator;
use crate::http::body::Body;
use crate::store::{leases, replicas};
use crate::sweeper::{Sweeper, duties};

/// `GET /replicas`, `GET /sweeper`, `POST /sweeper/run`.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/operator_api/v1/replicas", get(list_replicas))
        .route("/operator_api/v1/sweeper", get(read_sweeper))
        .route("/operator_api/v1/sweeper/run", post(run_sweep))
}

/// The replicas that were heard of in the last minutes.
async fn list_replicas(_: Operator, State(app): State<App>) -> Result<Json<Json_>, ApiError> {
    let replicas = replicas::list(&app.store).await?;
    let rows: Vec<Json_> = replicas
        .into_iter()
        .map(|r| {
            json!({
                "id": r.id, "version": r.version, "roles": r.roles,
                "heartbeat_at": At(r.heartbeat_at), "draining": r.draining,
            })
        })
        .collect();
    Ok(Json(json!({ "replicas": rows })))
}

/// Who leads what, and what each sweep did last.
async fn read_sweeper(_: Operator, State(app): State<App>) -> Result<Json<Json_>, ApiError> {
    let leases = leases::list(&app.store).await?;
    let sweeps = leases::sweeps(&app.store).await?;
    let leases: Vec<Json_> = leases
        .into_iter()
        .map(|l| {
            json!({
                "name": l.name, "holder": l.holder, "token": l.token,
                "expires_at": At(l.expires_at),
            })
        })
        .collect();
    let sweeps: Vec<Json_> = sweeps
        .into_iter()
        .map(|s| {
            json!({
                "name": s.name, "last_run_at": At(s.last_run_at), "rows": s.rows,
                "lag_seconds": seconds(s.lag_ms),
            })
        })
        .collect();
    Ok(Json(json!({ "leases": leases, "sweeps": sweeps })))
}

/// Seconds with three places; a lag is far below what a double holds exactly.
#[allow(clippy::cast_precision_loss, reason = "see above")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// Forces one cycle of a sweep, here and now, whoever leads.
async fn run_sweep(
    _: Operator,
    State(app): State<App>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Json_>), ApiError> {
    let sweep = sweep_of(&body)?;
    let forcing = {
        let sweep = sweep.clone();
        // A cycle that has begun runs to its end, whether or not somebody still waits for it.
        tokio::spawn(async move { Sweeper::of(&app).force(&sweep).await })
    };
    let rows = forcing
        .await
        .map_err(|_| {
            ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal_error",
                "an internal error",
            )
        })??
        .ok_or_else(unknown_sweep)?;
    Ok((
        StatusCode::ACCEPTED,
        Json(json!({ "sweep": sweep, "rows": rows })),
    ))
}

fn sweep_of(body: &crate::domain::Object) -> Result<String, ApiError> {
    if let Some((name, _)) = body.iter().find(|(name, _)| name.as_str() != "sweep") {
        return Err(
            ApiError::unprocessable("unknown_fields", "the body takes `sweep` alone")
                .with("parameter", name.as_str()),
        );
    }
    match body.get("sweep") {
        Some(Value::Str(name)) => Ok(name.clone()),
        Some(_) => Err(unknown_sweep()),
        None => Err(ApiError::parameter_missing("sweep")),
    }
}

/// The sweeps that may be forced, by name.
pub fn sweeps() -> Vec<&'static str> {
    duties::names()
}

fn unknown_sweep() -> ApiError {
    let names = sweeps().join(", ");
    ApiError::parameter_invalid("sweep", format!("sweep takes one of: {names}"))
}
