//! The workspaces that the caller can read, with what it may do there.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use crate::app::App;
use crate::domain::json::Value;
use crate::http::ApiError;
use crate::http::auth::MemberCaller;
use crate::http::list::{List, bad_cursor};
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::http::view;
use crate::store::page::Page;
use crate::store::workspaces::{self, Readable};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/agent_api/v1/workspaces", get(list))
        .route("/agent_api/v1/workspaces/{workspace}", get(read))
}

fn view(readable: &Readable) -> Value {
    let workspace = &readable.workspace;
    Value::from([
        ("public_id", view::id(workspace.public_id)),
        ("name", workspace.name.as_str().into()),
        ("access", readable.access.as_str().into()),
        (
            "archived_at",
            view::or_null(workspace.archived_at, view::at),
        ),
        ("created_at", view::at(workspace.created_at)),
    ])
}

async fn list(
    caller: MemberCaller,
    State(app): State<App>,
    params: Params,
) -> Result<Response, ApiError> {
    let list = List::read(&params, "readable", &caller.public_id.to_string())?;
    let after = match list.after_id()? {
        Some(id) => {
            // The grant may be gone since; the workspace's place in the order is not.
            let row = workspaces::by_public_id(&app.store, id).await?;
            let row = row.filter(|w| w.account == caller.account);
            Some(row.map(|w| (w.account, w.id.0)).ok_or_else(bad_cursor)?)
        }
        None => None,
    };
    let page = Page {
        account: Some(caller.account),
        after,
        order: list.order,
        limit: list.fetch(),
    };
    let rows = workspaces::list_readable(&app.store, caller.account, caller.id, &page).await?;
    let word = |r: &Readable| r.workspace.public_id.to_string();
    Ok(list.answer("workspaces", rows, word, view))
}

async fn read(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
) -> Result<Response, ApiError> {
    let id = params::public_id(&id)?;
    let readable = workspaces::readable(&app.store, caller.account, caller.id, id)
        .await?
        .ok_or_else(ApiError::not_found)?;
    Ok(view::wrapped(StatusCode::OK, "workspace", view(&readable)))
}
