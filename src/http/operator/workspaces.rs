//! `workspaces`.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use super::fields::Fields;
use crate::app::App;
use crate::commands::provision::workspaces as commands;
use crate::domain::json::Value;
use crate::http::ApiError;
use crate::http::auth::Operator;
use crate::http::body::Body;
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::http::view;
use crate::store::workspaces::{self, Workspace};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/operator_api/v1/workspaces", get(list).post(create))
        .route("/operator_api/v1/workspaces/{workspace}", get(read))
}

fn view(workspace: &Workspace) -> Value {
    Value::from([
        ("public_id", view::id(workspace.public_id)),
        ("account_public_id", view::id(workspace.account_public_id)),
        ("name", workspace.name.as_str().into()),
        (
            "archived_at",
            view::or_null(workspace.archived_at, view::at),
        ),
        ("created_at", view::at(workspace.created_at)),
    ])
}

/// The workspace that a path names.
pub(super) async fn find(app: &App, id: &str) -> Result<Workspace, ApiError> {
    workspaces::by_public_id(&app.store, params::public_id(id)?)
        .await?
        .ok_or_else(ApiError::not_found)
}

async fn create(_: Operator, State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let mut fields = Fields::of(body);
    let name = fields.text("name", 200)?;
    let account = fields.id("account_public_id")?;
    fields.finish()?;
    let workspace = commands::create(&app, account, &name).await?;
    Ok(view::wrapped(
        StatusCode::CREATED,
        "workspace",
        view(&workspace),
    ))
}

async fn read(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
) -> Result<Response, ApiError> {
    let workspace = find(&app, &id).await?;
    Ok(view::wrapped(StatusCode::OK, "workspace", view(&workspace)))
}

async fn list(_: Operator, State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let position = async |word: String| {
        let Ok(id) = word.parse() else {
            return Ok(None);
        };
        let row = workspaces::by_public_id(&app.store, id).await?;
        Ok(row.map(|w| (w.account, w.id.0)))
    };
    let (list, page) = super::page(&app, &params, "workspaces", position).await?;
    let rows = workspaces::list(&app.store, &page).await?;
    Ok(list.answer("workspaces", rows, |w| w.public_id.to_string(), view))
}
