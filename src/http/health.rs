//! `/livez`, `/readyz`: no bearer (`conventions.md` §14).

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::app::App;

/// The event loop answers; touches nothing else. Names the replica.
pub async fn livez(State(app): State<App>) -> Response {
    Json(json!({"status": "ok", "replica_id": app.replica_id})).into_response()
}

/// 200 iff the database answers within 1 s, its schema is ready, and this replica is not draining.
/// Redis away is still 200, and says `"redis":"degraded"`.
pub async fn readyz(State(app): State<App>) -> Response {
    let draining = app.draining.is_cancelled();
    let check = tokio::time::timeout(
        std::time::Duration::from_secs(1),
        app.store.schema_version(),
    );
    let schema = check.await.ok().and_then(Result::ok);
    let database = match schema {
        None => "unavailable",
        Some(version) if version < crate::store::migrate::known_version() => "schema_outdated",
        Some(_) => "ok",
    };
    let ready = database == "ok" && !draining;
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut body = json!({
        "status": if ready { "ready" } else if draining { "draining" } else { "not_ready" },
        "database": database,
        "redis": app.bus.health(),
        "replica_id": app.replica_id,
    });
    if app.config.test_clock {
        body["test_clock"] = json!("on: decisions use a clock that tests move");
    }
    (status, Json(body)).into_response()
}
