//! A run's feed, replayed (`runs.md` §13).

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use serde::Serialize;

use crate::app::App;
use crate::domain::feed;
use crate::domain::json::Canonical;
use crate::http::answer::{Answer, ok};
use crate::http::auth::MemberCaller;
use crate::http::error::ApiError;
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::store::feeds;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new().route(
        "/agent_api/v1/workspaces/{workspace}/runs/{run}/events",
        get(list),
    )
}

#[derive(Debug, Serialize)]
struct Pagination {
    next_after: Option<String>,
    watermark: i64,
}

#[derive(Debug, Serialize)]
struct Events {
    events: Vec<Canonical>,
    pagination: Pagination,
}

async fn list(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
    params: Params,
) -> Result<Answer<Events>, ApiError> {
    let (workspace, run) = (params::public_id(&workspace)?, params::public_id(&run)?);
    let found = feeds::run(&app.store, &caller, workspace, run).await?;
    let found = found.ok_or_else(ApiError::not_found)?;
    let after = params.cursor("after", &feed::list(run))?.unwrap_or(0);
    let limit = params.integer("limit", 100, 1..=200)?;
    let page = feeds::page(&app.store, caller.account, found.run, after, limit).await?;
    // An empty page keeps the reader's place: what comes next comes after it.
    let last = page.items.last().map_or(after, |item| item.sequence);
    let next_after = (last > 0 && last < page.watermark).then(|| feed::cursor(run, last));
    let events = page
        .items
        .iter()
        .map(|item| Canonical::trusted(item.of_run(run)))
        .collect();
    Ok(ok(Events {
        events,
        pagination: Pagination {
            next_after,
            watermark: page.watermark,
        },
    }))
}
