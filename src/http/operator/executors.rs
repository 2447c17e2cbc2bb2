//! `executors`: delivery addresses (`executor.md` §2). A credential is shown once.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};

use super::fields::Fields;
use crate::app::App;
use crate::commands::provision::executors as commands;
use crate::domain::json::Value;
use crate::domain::words::{AssignmentScope, ExecutorKind};
use crate::http::ApiError;
use crate::http::auth::Operator;
use crate::http::body::Body;
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::http::view;
use crate::store::executors::{self, Executor};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/operator_api/v1/executors", get(list).post(create))
        .route("/operator_api/v1/executors/{executor}", get(read))
        .route("/operator_api/v1/executors/{executor}/rotate", post(rotate))
        .route("/operator_api/v1/executors/{executor}/revoke", post(revoke))
        .route(
            "/operator_api/v1/executors/{executor}/shutdown",
            post(shutdown),
        )
}

fn view(executor: &Executor) -> Value {
    let is_application = executor.kind == ExecutorKind::AgentApplication;
    let owner = view::id(executor.owner.1);
    let (manager, agent, identifier) = if is_application {
        (Value::Null, owner, Value::Null)
    } else {
        let identifier = executor.registration_identifier.as_str().into();
        (owner, Value::Null, identifier)
    };
    let scope = executor.assignment_scope.map(AssignmentScope::as_str);
    let epoch = i64::from;
    Value::from([
        ("public_id", view::id(executor.public_id)),
        ("account_public_id", view::id(executor.account_public_id)),
        ("kind", executor.kind.as_str().into()),
        ("status", executor.status.as_str().into()),
        ("display_name", executor.display_name.as_str().into()),
        ("credential_epoch", epoch(executor.credential_epoch).into()),
        ("manager_public_id", manager),
        ("agent_public_id", agent),
        ("registration_identifier", identifier),
        ("assignment_scope", view::or_null(scope, Value::from)),
        ("shutdown_at", view::or_null(executor.shutdown_at, view::at)),
        (
            "shutdown_generation",
            view::or_null(executor.shutdown_generation.map(epoch), Value::from),
        ),
        ("revoked_at", view::or_null(executor.revoked_at, view::at)),
        (
            "announced_at",
            view::or_null(executor.announced_at, view::at),
        ),
        ("presence", executor.presence.as_str().into()),
        (
            "last_seen_at",
            view::or_null(executor.last_seen_at, view::at),
        ),
        (
            "connected_at",
            view::or_null(executor.connected_at, view::at),
        ),
        ("created_at", view::at(executor.created_at)),
    ])
}

fn answer(status: StatusCode, executor: &Executor) -> Response {
    view::wrapped(status, "executor", view(executor))
}

fn with_credential(status: StatusCode, paired: &commands::Paired) -> Response {
    let credential = Value::from([
        ("token", paired.credential.token.as_str().into()),
        (
            "credential_epoch",
            i64::from(paired.credential.credential_epoch).into(),
        ),
    ]);
    let body = Value::from([
        ("executor", view(&paired.executor)),
        ("credential", credential),
    ]);
    view::json(status, &body)
}

fn new_executor(body: Body) -> Result<commands::New, ApiError> {
    let mut fields = Fields::of(body);
    let kind = fields.word("kind", "agent_application, runner or tool_provider")?;
    let display_name = fields.text("display_name", 200)?;
    // Any executor may carry one; an application's key is its agent, whatever the installer says.
    let registration_identifier = fields.optional_text("registration_identifier", 200)?;
    let new = if kind == ExecutorKind::AgentApplication {
        fields.absent(
            "manager_public_id",
            "an agent_application belongs to an agent: send agent_public_id",
        )?;
        fields.absent(
            "assignment_scope",
            "only a runner or tool_provider has an assignment_scope",
        )?;
        commands::New::Application {
            agent: fields.id("agent_public_id")?,
            display_name,
        }
    } else {
        fields.absent(
            "agent_public_id",
            "a runner or tool_provider has a manager: send manager_public_id",
        )?;
        commands::New::Machine {
            kind,
            assignment_scope: fields
                .optional_word("assignment_scope", "user_private or account_wide")?,
            manager: fields.id("manager_public_id")?,
            registration_identifier,
            display_name,
        }
    };
    fields.finish()?;
    Ok(new)
}

async fn create(_: Operator, State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let paired = commands::create(&app, new_executor(body)?).await?;
    let status = if paired.is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(with_credential(status, &paired))
}

/// The executor that a path names; its absence comes before whatever the body says.
async fn find(app: &App, id: &str) -> Result<Executor, ApiError> {
    executors::by_public_id(&app.store, params::public_id(id)?)
        .await?
        .ok_or_else(ApiError::not_found)
}

async fn read(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
) -> Result<Response, ApiError> {
    Ok(answer(StatusCode::OK, &find(&app, &id).await?))
}

async fn list(_: Operator, State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let position = async |word: String| {
        let Ok(id) = word.parse() else {
            return Ok(None);
        };
        let row = executors::by_public_id(&app.store, id).await?;
        Ok(row.map(|e| (e.account, e.id.0)))
    };
    let (list, page) = super::page(&app, &params, "executors", position).await?;
    let rows = executors::list(&app.store, &page).await?;
    Ok(list.answer("executors", rows, |e| e.public_id.to_string(), view))
}

async fn rotate(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let executor = find(&app, &id).await?;
    Fields::of(body).finish()?;
    let paired = commands::rotate(&app, executor.public_id).await?;
    Ok(with_credential(StatusCode::CREATED, &paired))
}

async fn revoke(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let executor = find(&app, &id).await?;
    Fields::of(body).finish()?;
    let executor = commands::revoke(&app, executor.public_id).await?;
    Ok(answer(StatusCode::OK, &executor))
}

async fn shutdown(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let executor = find(&app, &id).await?;
    Fields::of(body).finish()?;
    let executor = commands::shutdown(&app, executor.public_id).await?;
    Ok(answer(StatusCode::ACCEPTED, &executor))
}
