//! The executor plane: one delivery address speaks (`executor.md`).
//!
//! Its first extractor is always [`ExecutorCaller`](super::auth::ExecutorCaller): a bearer of
//! another plane gets the one 401.

mod announcement;
mod attachments;
mod bootstrap;
mod commit;
mod inbox;
mod operations;
mod progress;
mod uploads;

/// The bounds of what these doors take.
pub mod limits {
    pub use super::commit::COMMITS;
    pub use super::inbox::{CLAIMS, PAGE, WAIT_MS};
    pub use super::operations::{LAST_POSITION, TRACE_PAGE};
}

use axum::Router;

use crate::app::App;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new()
        .merge(bootstrap::routes())
        .merge(announcement::routes())
        .merge(inbox::routes())
        .merge(commit::routes())
        .merge(operations::routes())
        .merge(uploads::routes())
        .merge(attachments::routes())
        .merge(progress::routes())
}
