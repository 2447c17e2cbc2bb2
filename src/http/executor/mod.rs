//! The executor plane.

use axum::Router;

use crate::app::App;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new()
}
