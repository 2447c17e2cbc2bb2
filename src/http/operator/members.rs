//! `members`: humans and agents. A token is shown once, beside the member it is for.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};

use super::fields::Fields;
use crate::app::App;
use crate::commands::provision::members as commands;
use crate::domain::PublicId;
use crate::domain::json::Value;
use crate::domain::words::MemberKind;
use crate::http::ApiError;
use crate::http::auth::Operator;
use crate::http::body::Body;
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::http::view;
use crate::store::members::{self, Member};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/operator_api/v1/members", get(list).post(create))
        .route("/operator_api/v1/members/{member}", get(read))
        .route("/operator_api/v1/members/{member}/rotate", post(rotate))
        .route("/operator_api/v1/members/{member}/suspend", post(suspend))
        .route("/operator_api/v1/members/{member}/resume", post(resume))
}

fn view(member: &Member) -> Value {
    let human = member.controlling_human.map(|(_, id)| id);
    Value::from([
        ("public_id", view::id(member.public_id)),
        ("account_public_id", view::id(member.account_public_id)),
        ("kind", member.kind.as_str().into()),
        ("handle", member.handle.as_str().into()),
        (
            "display_name",
            view::or_null(member.display_name.as_deref(), Value::from),
        ),
        (
            "controlling_human_public_id",
            view::or_null(human, view::id),
        ),
        ("status", member.status.as_str().into()),
        (
            "credential_epoch",
            i64::from(member.credential_epoch).into(),
        ),
        ("created_at", view::at(member.created_at)),
    ])
}

fn answer(member: &Member) -> Response {
    view::wrapped(StatusCode::OK, "member", view(member))
}

fn with_token(member: &Member, token: String) -> Response {
    let body = Value::from([("member", view(member)), ("token", token.into())]);
    view::json(StatusCode::CREATED, &body)
}

fn new_member(body: Body) -> Result<commands::New, ApiError> {
    let mut fields = Fields::of(body);
    let kind = fields.word("kind", "human or agent")?;
    let handle = fields.handle("handle")?;
    let display_name = fields.optional_text("display_name", 200)?;
    let account = fields.id("account_public_id")?;
    let human = "controlling_human_public_id";
    let controlling_human: Option<PublicId> = match kind {
        MemberKind::Agent => Some(fields.id(human)?),
        MemberKind::Human => {
            fields.absent(human, "only an agent has a controlling_human_public_id")?;
            None
        }
    };
    fields.finish()?;
    Ok(commands::New {
        account,
        kind,
        handle,
        display_name,
        controlling_human,
    })
}

async fn create(_: Operator, State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let (member, token) = commands::create(&app, new_member(body)?).await?;
    Ok(with_token(&member, token))
}

/// The member that a path names; its absence comes before whatever the body says.
async fn find(app: &App, id: &str) -> Result<Member, ApiError> {
    members::by_public_id(&app.store, params::public_id(id)?)
        .await?
        .ok_or_else(ApiError::not_found)
}

async fn read(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
) -> Result<Response, ApiError> {
    Ok(answer(&find(&app, &id).await?))
}

async fn list(_: Operator, State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let position = async |word: String| {
        let Ok(id) = word.parse() else {
            return Ok(None);
        };
        let row = members::by_public_id(&app.store, id).await?;
        Ok(row.map(|m| (m.account, m.id.0)))
    };
    let (list, page) = super::page(&app, &params, "members", position).await?;
    let rows = members::list(&app.store, &page).await?;
    Ok(list.answer("members", rows, |m| m.public_id.to_string(), view))
}

async fn rotate(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let member = find(&app, &id).await?;
    Fields::of(body).finish()?;
    let (member, token) = commands::rotate(&app, member.public_id).await?;
    Ok(with_token(&member, token))
}

async fn suspend(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let member = find(&app, &id).await?;
    Fields::of(body).finish()?;
    Ok(answer(&commands::suspend(&app, member.public_id).await?))
}

async fn resume(
    _: Operator,
    State(app): State<App>,
    PathOf(id): PathOf<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let member = find(&app, &id).await?;
    Fields::of(body).finish()?;
    Ok(answer(&commands::resume(&app, member.public_id).await?))
}
