//! Reads of one run: its graph, its phases, its transcript, a round's request (`runs.md` §9).
//!
//! None takes a lock, and each asks the same number of statements whatever the run's size.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use serde::Serialize;

use super::runs::standing;
use crate::app::App;
use crate::domain::reads::graph::{self, GraphView};
use crate::domain::reads::phases::{self, Phases, Spend};
use crate::domain::reads::transcript::Round;
use crate::domain::{PublicId, RunId, TaskKey, cursor};
use crate::http::answer::{Answer, ok};
use crate::http::auth::MemberCaller;
use crate::http::error::ApiError;
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::store::reads::{self, Found, PageOf};

/// Its routes.
pub fn routes() -> Router<App> {
    let run = "/agent_api/v1/workspaces/{workspace}/runs/{run}";
    Router::new()
        .route(&format!("{run}/graph"), get(read_graph))
        .route(&format!("{run}/phases"), get(read_phases))
        .route(&format!("{run}/transcript"), get(read_transcript))
        .route(&format!("{run}/tasks/{{task}}/request"), get(read_request))
}

/// A run that the caller can read; what it cannot is absent.
async fn readable(
    app: &App,
    caller: &MemberCaller,
    workspace: &str,
    run: &str,
) -> Result<(PublicId, RunId), ApiError> {
    let (_, standing) = standing(app, caller, workspace).await?;
    let run = params::public_id(run)?;
    let found = app
        .store
        .run_find(caller.account, standing.workspace, run)
        .await?;
    Ok((run, found.ok_or_else(ApiError::not_found)?))
}

async fn read_graph(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
) -> Result<Answer<GraphView>, ApiError> {
    let (_, run) = readable(&app, &caller, &workspace, &run).await?;
    let stored = reads::graph(&app.store, caller.account, run).await?;
    Ok(ok(graph::view(&stored.rows, stored.deliverable)))
}

async fn read_phases(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
) -> Result<Answer<Phases>, ApiError> {
    let (_, run) = readable(&app, &caller, &workspace, &run).await?;
    let stored = reads::phases(&app.store, caller.account, run).await?;
    // No round has been paid for: usage receipts come with the model rounds.
    Ok(ok(phases::view(
        &stored.receipts,
        &stored.rows,
        Spend::default(),
    )))
}

#[derive(Debug, Serialize)]
struct Older {
    next_before: Option<String>,
    has_older: bool,
}

#[derive(Debug, Serialize)]
struct Transcript {
    rounds: Vec<Round>,
    pagination: Older,
}

async fn read_transcript(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
    params: Params,
) -> Result<Answer<Transcript>, ApiError> {
    let (public_id, run) = readable(&app, &caller, &workspace, &run).await?;
    // The name of the list, which its cursors carry; a prefix that is no key is no call.
    let prefix: Option<TaskKey> = params.get("prefix").map(params::task_key).transpose()?;
    let list = match &prefix {
        Some(call) => format!("transcript:before:{public_id}:{call}"),
        None => format!("transcript:before:{public_id}"),
    };
    let before: Option<TaskKey> = params.cursor("before", &list)?;
    let wanted = PageOf {
        before: before.as_ref(),
        limit: params.integer("limit", 100, 1..=200)?,
        prefix: prefix.as_ref(),
    };
    match reads::transcript(&app.store, caller.account, run, wanted).await? {
        Found::NoSuchCall => Err(ApiError::not_found()),
        Found::NoSuchPlace => Err(ApiError::parameter_invalid(
            "before",
            "before must be a cursor that this list returned",
        )),
        Found::Page(page) => {
            let oldest = page.oldest.filter(|_| page.has_older);
            Ok(ok(Transcript {
                rounds: page.rounds,
                pagination: Older {
                    next_before: oldest.map(|key| cursor::write(&list, key)),
                    has_older: page.has_older,
                },
            }))
        }
    }
}

/// What a round sent to its provider; nothing is sealed before model rounds run.
async fn read_request(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run, task)): PathOf<(String, String, String)>,
) -> Result<Answer<()>, ApiError> {
    let (_, run) = readable(&app, &caller, &workspace, &run).await?;
    let key = params::task_key(&task)?;
    let kind = reads::kind(&app.store, caller.account, run, &key).await?;
    kind.ok_or_else(ApiError::not_found)?;
    Err(ApiError::new(
        StatusCode::NOT_FOUND,
        "request_not_sealed",
        "the task has not sent a request to a provider",
    ))
}
