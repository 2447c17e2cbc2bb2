//! The executor plane: one delivery address, its inbox, its claims.

mod commit;
mod inbox;

use axum::Router;

use crate::app::App;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new().merge(inbox::routes()).merge(commit::routes())
}
