//! The executor plane: one delivery address, its inbox, its claims.

mod attachments;
mod commit;
mod inbox;
mod progress;
mod uploads;

use axum::Router;

use crate::app::App;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new()
        .merge(inbox::routes())
        .merge(commit::routes())
        .merge(uploads::routes())
        .merge(attachments::routes())
        .merge(progress::routes())
}
