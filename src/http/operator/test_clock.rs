//! `test_clock`: moves the one clock of the database, only under `NEXUS_TEST_CLOCK=1`
//! (`operating.md` §4).

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;

use super::fields::Fields;
use crate::app::App;
use crate::domain::json::Value;
use crate::http::ApiError;
use crate::http::auth::Operator;
use crate::http::body::Body;
use crate::http::view;
use crate::store::test_clock;

/// Ten years: far beyond every deadline, far within a timestamp.
pub const MAX_MS: i64 = 315_360_000_000;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/operator_api/v1/test_clock", post(advance))
}

async fn advance(_: Operator, State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    if !app.config.test_clock {
        return Err(ApiError::not_found());
    }
    let mut fields = Fields::of(body);
    let ms = fields.integer("advance_ms", 0..=MAX_MS)?;
    fields.finish()?;
    test_clock::enable(&app.store).await?;
    let by = Duration::from_millis(u64::try_from(ms).unwrap_or_default());
    let now = test_clock::advance(&app.store, by).await?;
    let clock = Value::from([("now", view::at(now))]);
    Ok(view::wrapped(StatusCode::OK, "test_clock", clock))
}
