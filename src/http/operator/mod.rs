//! The operator plane.

use axum::Router;

pub mod sweeper;

use crate::app::App;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new().merge(sweeper::routes())
}
