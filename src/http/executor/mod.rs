//! The executor plane: one delivery address speaks (`executor.md`).
//!
//! Its first extractor is always [`ExecutorCaller`](super::auth::ExecutorCaller): a bearer of
//! another plane gets the one 401.

mod announcement;
mod bootstrap;
mod commit;
mod inbox;

use axum::Router;

use crate::app::App;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new()
        .merge(bootstrap::routes())
        .merge(announcement::routes())
        .merge(inbox::routes())
        .merge(commit::routes())
}
