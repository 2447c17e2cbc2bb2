//! Discovery: the machines that the caller may route work to, with what they serve
//! (`executor.md` §4). Never filtered by presence.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use crate::app::App;
use crate::commands::discover::{self, Machine};
use crate::domain::announcement::Tool;
use crate::domain::json::Value;
use crate::domain::words::{AssignmentScope, ExecutorKind};
use crate::domain::{Canonical, PublicId};
use crate::http::ApiError;
use crate::http::auth::MemberCaller;
use crate::http::list::{List, bad_cursor};
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::http::view;
use crate::store::executors;
use crate::store::page::Page;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/agent_api/v1/executors", get(list))
        .route("/agent_api/v1/executors/{executor}", get(read))
}

/// A tool as it was announced: what was left out stays out.
fn tool(tool: &Tool) -> Value {
    let profile = tool.effect_profile.to_canonical().value();
    let optional = [
        ("timeout_ms", tool.timeout_ms.map(Value::from)),
        ("description", tool.description.as_deref().map(Value::from)),
        (
            "input_schema",
            tool.input_schema.as_ref().map(Canonical::value),
        ),
    ];
    let required = [
        ("name", Value::from(tool.name.as_str())),
        ("effect_profile", profile),
    ];
    let present = optional
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)));
    Value::Object(
        required
            .into_iter()
            .chain(present)
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

fn view(machine: &Machine) -> Value {
    let executor = &machine.announced.executor;
    let scope = executor.assignment_scope.map(AssignmentScope::as_str);
    Value::from([
        ("public_id", view::id(executor.public_id)),
        ("kind", executor.kind.as_str().into()),
        ("display_name", executor.display_name.as_str().into()),
        ("assignment_scope", view::or_null(scope, Value::from)),
        (
            "served_tools",
            Value::Array(machine.tools.iter().map(tool).collect()),
        ),
        ("environment", machine.announced.environment.value()),
        ("served_documents", machine.announced.documents.value()),
        ("presence", executor.presence.as_str().into()),
        (
            "last_seen_at",
            view::or_null(executor.last_seen_at, view::at),
        ),
        (
            "connected_at",
            view::or_null(executor.connected_at, view::at),
        ),
    ])
}

fn kind(params: &Params) -> Result<ExecutorKind, ApiError> {
    match params.get("kind") {
        None => Err(ApiError::parameter_missing("kind")),
        Some("runner") => Ok(ExecutorKind::Runner),
        Some("tool_provider") => Ok(ExecutorKind::ToolProvider),
        Some(_) => Err(ApiError::parameter_invalid(
            "kind",
            "kind must be runner or tool_provider",
        )),
    }
}

async fn list(
    caller: MemberCaller,
    State(app): State<App>,
    params: Params,
) -> Result<Response, ApiError> {
    let kind = kind(&params)?;
    let host = format!("{kind}/{}", caller.public_id);
    let list = List::read(&params, "machines", &host)?;
    let after = match list.after_id()? {
        Some(id) => Some(position(&app, &caller, id).await?),
        None => None,
    };
    let page = Page {
        account: Some(caller.account),
        after,
        order: list.order,
        limit: list.limit,
    };
    let (machines, next) = discover::list(&app, &caller, kind, page).await?;
    let rows = machines.iter().map(view).collect();
    let next = next.map(|id| id.to_string());
    Ok(list.page("executors", rows, next.as_deref()))
}

/// A cursor's row may have lost its eligibility since; its place stays.
async fn position(
    app: &App,
    caller: &MemberCaller,
    id: PublicId,
) -> Result<(crate::domain::AccountId, i64), ApiError> {
    executors::by_public_id(&app.store, id)
        .await?
        .filter(|row| row.account == caller.account)
        .map(|row| (row.account, row.id.0))
        .ok_or_else(bad_cursor)
}

async fn read(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
) -> Result<Response, ApiError> {
    let machine = discover::read(&app, &caller, params::public_id(&id)?)
        .await?
        .ok_or_else(ApiError::not_found)?;
    Ok(view::wrapped(StatusCode::OK, "executor", view(&machine)))
}
