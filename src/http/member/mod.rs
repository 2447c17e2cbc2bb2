//! The member plane: a human or an agent speaks.
//!
//! Its first extractor is always [`MemberCaller`](super::auth::MemberCaller): a bearer of another
//! plane gets the one 401.

mod events;
mod executors;
mod reads;
mod runs;
mod shell;
mod tasks;
mod workspaces;

use axum::Router;

use crate::app::App;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new()
        .merge(events::routes())
        .merge(executors::routes())
        .merge(reads::routes())
        .merge(runs::routes())
        .merge(shell::routes())
        .merge(workspaces::routes())
}
