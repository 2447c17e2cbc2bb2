//! Every route, by plane.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::get;

use super::{ApiError, accept, body, cors, guard, health, rate, request_id};
use crate::app::App;

/// The whole API of one replica.
pub fn router(app: App) -> Router {
    let origins = cors::Origins::new(&app.config.http);
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .merge(super::openapi::routes())
        .merge(super::executor::routes())
        .merge(super::member::routes())
        .merge(super::operator::routes())
        .merge(crate::cable::routes())
        .fallback(async || ApiError::not_found())
        .method_not_allowed_fallback(async || {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this resource has no such verb",
            )
        })
        .layer(DefaultBodyLimit::max(body::MAX_BODY))
        .layer(middleware::from_fn(accept::layer))
        .layer(middleware::from_fn_with_state(
            rate::Limiter::new(&app),
            rate::layer,
        ))
        .layer(middleware::from_fn_with_state(
            origins.clone(),
            cors::preflight,
        ))
        .layer(middleware::from_fn_with_state(
            guard::Guard::new(&app),
            guard::layer,
        ))
        .layer(middleware::from_fn_with_state(origins, cors::layer))
        .layer(middleware::from_fn(request_id::layer))
        .with_state(app)
}
