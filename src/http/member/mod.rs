//! The member plane: humans and agents.

mod runs;

use axum::Router;

use crate::app::App;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new().merge(runs::routes())
}
