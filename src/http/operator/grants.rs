//! `workspaces/{id}/grants`: what members may do there.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::fields::Fields;
use super::workspaces::find;
use crate::app::App;
use crate::commands::provision::workspaces as commands;
use crate::domain::json::Value;
use crate::domain::words::Access;
use crate::http::ApiError;
use crate::http::auth::Operator;
use crate::http::body::Body;
use crate::http::list::{List, bad_cursor};
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::http::view;
use crate::store::grants::{self, Grant};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/operator_api/v1/workspaces/{workspace}/grants", get(list))
        .route(
            "/operator_api/v1/workspaces/{workspace}/grants/{member}",
            get(read).put(put).delete(delete),
        )
}

fn view(grant: &Grant) -> Value {
    Value::from([
        ("workspace_public_id", view::id(grant.workspace_public_id)),
        ("member_public_id", view::id(grant.member_public_id)),
        ("access", grant.access.as_str().into()),
        ("created_at", view::at(grant.created_at)),
    ])
}

async fn put(
    _: Operator,
    State(app): State<App>,
    PathOf((workspace, member)): PathOf<(String, String)>,
    body: Body,
) -> Result<Response, ApiError> {
    let workspace = find(&app, &workspace).await?;
    let member = params::public_id(&member)?;
    let mut fields = Fields::of(body);
    let access: Access = fields.word("access", "read or write")?;
    fields.finish()?;
    let (grant, is_new) = commands::grant(&app, &workspace, member, access).await?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(view::wrapped(status, "grant", view(&grant)))
}

async fn delete(
    _: Operator,
    State(app): State<App>,
    PathOf((workspace, member)): PathOf<(String, String)>,
) -> Result<Response, ApiError> {
    let workspace = find(&app, &workspace).await?;
    commands::withdraw(&app, &workspace, params::public_id(&member)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn read(
    _: Operator,
    State(app): State<App>,
    PathOf((workspace, member)): PathOf<(String, String)>,
) -> Result<Response, ApiError> {
    let workspace = find(&app, &workspace).await?;
    let member = params::public_id(&member)?;
    let grant = grants::read(&app.store, workspace.account, workspace.id, member)
        .await?
        .ok_or_else(ApiError::not_found)?;
    Ok(view::wrapped(StatusCode::OK, "grant", view(&grant)))
}

async fn list(
    _: Operator,
    State(app): State<App>,
    PathOf(workspace): PathOf<String>,
    params: Params,
) -> Result<Response, ApiError> {
    let workspace = find(&app, &workspace).await?;
    let list = List::read(&params, "grants", &workspace.public_id.to_string())?;
    let after = match list.after_id()? {
        Some(id) => {
            // The grant may be gone; its member never is.
            let member = crate::store::members::by_public_id(&app.store, id).await?;
            Some(member.ok_or_else(bad_cursor)?.id)
        }
        None => None,
    };
    let rows = grants::list(
        &app.store,
        workspace.account,
        workspace.id,
        after,
        list.order,
        list.fetch(),
    )
    .await?;
    Ok(list.answer("grants", rows, |g| g.member_public_id.to_string(), view))
}
