//! Runs: create, start, list, show, append, pause, resume, stop, task read (`runs.md`).

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;

use crate::app::App;
use crate::commands::{append, create, pause, start, stop};
use crate::domain::event::Resolver;
use crate::domain::idempotency::RUN_KEY_BYTES;
use crate::domain::json::{Canonical, Object, Value};
use crate::domain::words::RunStatus;
use crate::domain::{PublicId, RunId, cursor};
use crate::http::answer::{Answer, Pagination, idempotency_key, ok};
use crate::http::auth::MemberCaller;
use crate::http::body::{Body, MAX_ESCAPED_BODY};
use crate::http::error::ApiError;
use crate::http::params::{self, Params};
use crate::http::path::PathOf;
use crate::store::runs::{RunDocument, RunFilter, RunListed, Standing};
use crate::store::views::TaskDetail;

/// Its routes.
pub fn routes() -> Router<App> {
    let runs = "/agent_api/v1/workspaces/{workspace}/runs";
    Router::new()
        .route(
            runs,
            post(create_run)
                .layer(DefaultBodyLimit::max(MAX_ESCAPED_BODY))
                .get(list_runs),
        )
        .route(&format!("{runs}/{{run}}"), get(show_run))
        .route(&format!("{runs}/{{run}}/start"), post(start_run))
        .route(&format!("{runs}/{{run}}/stop"), post(stop_run))
        .route(&format!("{runs}/{{run}}/pause"), post(pause_run))
        .route(&format!("{runs}/{{run}}/resume"), post(resume_run))
        .route(
            &format!("{runs}/{{run}}/tasks"),
            post(append_steps).layer(DefaultBodyLimit::max(MAX_ESCAPED_BODY)),
        )
        .route(&format!("{runs}/{{run}}/tasks/{{task}}"), get(show_task))
        .merge(super::tasks::routes())
}

/// The caller's standing in a workspace of the path; one that it cannot see is absent.
pub(super) async fn standing(
    app: &App,
    caller: &MemberCaller,
    workspace: &str,
) -> Result<(PublicId, Standing), ApiError> {
    let id = params::public_id(workspace)?;
    let standing = app.store.standing(caller.account, caller.id, id).await?;
    Ok((id, standing.ok_or_else(ApiError::not_found)?))
}

pub(super) fn require_write(standing: Standing) -> Result<Standing, ApiError> {
    if standing.may_write {
        Ok(standing)
    } else {
        Err(ApiError::not_authorized())
    }
}

/// A run's document, wrapped.
#[derive(Debug, Serialize)]
pub(super) struct RunAnswer {
    run: RunDocument,
}

#[derive(Debug, Serialize)]
struct CreateAnswer {
    run: RunDocument,
    receipt: Canonical,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
}

async fn create_run(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf(workspace): PathOf<String>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let (workspace_public_id, standing) = standing(&app, &caller, &workspace).await?;
    require_write(standing)?;
    let key = idempotency_key(&headers, RUN_KEY_BYTES)?;
    let workspace = standing.workspace;
    let account = caller.account;
    let request = create::Request {
        caller,
        workspace,
        workspace_public_id,
        body,
        key,
    };
    let created = create::create(&app, request).await?;
    let run = app
        .store
        .run_document(account, workspace, created.run)
        .await?;
    let run = run.ok_or_else(ApiError::not_found)?;
    let status = if created.replayed {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let replayed = created.replayed;
    let mut response = Answer(
        status,
        CreateAnswer {
            run,
            receipt: created.receipt,
            replayed,
        },
    )
    .into_response();
    response.headers_mut().insert(
        HeaderName::from_static("idempotency-replayed"),
        HeaderValue::from_static(if replayed { "true" } else { "false" }),
    );
    Ok(response)
}

#[derive(Debug, Serialize)]
struct Runs {
    runs: Vec<RunListed>,
    pagination: Pagination,
}

async fn list_runs(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf(workspace): PathOf<String>,
    params: Params,
) -> Result<Answer<Runs>, ApiError> {
    let (workspace_public_id, standing) = standing(&app, &caller, &workspace).await?;
    let ascending = match params.get("order") {
        None | Some("asc") => true,
        Some("desc") => false,
        Some(_) => {
            return Err(ApiError::parameter_invalid(
                "order",
                "order takes asc or desc",
            ));
        }
    };
    let attention_only = match params.get("attention") {
        None => false,
        Some("any") => true,
        Some(_) => {
            return Err(ApiError::parameter_invalid(
                "attention",
                "attention takes any",
            ));
        }
    };
    let limit = params.integer("limit", 100, 1..=200)?;
    let direction = if ascending { "asc" } else { "desc" };
    let list = format!("runs:{direction}:{workspace_public_id}");
    let filter = RunFilter {
        after: params.cursor("after", &list)?,
        ascending,
        statuses: statuses(&params)?,
        attention_only,
        limit,
    };
    let runs = app
        .store
        .run_list(caller.account, standing.workspace, &filter)
        .await?;
    let filled = i64::try_from(runs.len()).is_ok_and(|n| n == limit);
    let next_after = runs
        .last()
        .filter(|_| filled)
        .map(|run| cursor::write(&list, run.public_id));
    Ok(ok(Runs {
        runs,
        pagination: Pagination { next_after },
    }))
}

fn statuses(params: &Params) -> Result<Vec<RunStatus>, ApiError> {
    let Some(list) = params.get("status") else {
        return Ok(Vec::new());
    };
    list.split(',')
        .map(|word| {
            word.trim().parse().map_err(|_| {
                let words: Vec<&str> = RunStatus::ALL.iter().map(|s| s.as_str()).collect();
                ApiError::parameter_invalid("status", format!("status takes {}", words.join(", ")))
            })
        })
        .collect()
}

/// The answer of a read, and of every command that answers with the run.
pub(super) async fn document(
    app: &App,
    caller: &MemberCaller,
    standing: Standing,
    run: PublicId,
) -> Result<Answer<RunAnswer>, ApiError> {
    let run = app
        .store
        .run_document(caller.account, standing.workspace, run)
        .await?;
    Ok(ok(RunAnswer {
        run: run.ok_or_else(ApiError::not_found)?,
    }))
}

async fn show_run(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
) -> Result<Answer<RunAnswer>, ApiError> {
    let (_, standing) = standing(&app, &caller, &workspace).await?;
    document(&app, &caller, standing, params::public_id(&run)?).await
}

/// A run, seen in that workspace.
pub(super) async fn seen(
    app: &App,
    caller: &MemberCaller,
    workspace: &str,
    run: &str,
) -> Result<(Standing, PublicId, RunId), ApiError> {
    let (_, standing) = standing(app, caller, workspace).await?;
    let run = params::public_id(run)?;
    let id = app
        .store
        .run_find(caller.account, standing.workspace, run)
        .await?
        .ok_or_else(ApiError::not_found)?;
    Ok((standing, run, id))
}

/// The run of a command: seen in that workspace, and writable.
pub(super) async fn commanded(
    app: &App,
    caller: &MemberCaller,
    workspace: &str,
    run: &str,
) -> Result<(Standing, PublicId, RunId), ApiError> {
    let (standing, run, id) = seen(app, caller, workspace, run).await?;
    Ok((require_write(standing)?, run, id))
}

async fn start_run(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
    Body(_): Body,
) -> Result<Answer<RunAnswer>, ApiError> {
    let (standing, run, _) = commanded(&app, &caller, &workspace, &run).await?;
    start::start(&app, caller.account, run).await?;
    document(&app, &caller, standing, run).await
}

async fn stop_run(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
    Body(body): Body,
) -> Result<Answer<RunAnswer>, ApiError> {
    let (standing, run, _) = commanded(&app, &caller, &workspace, &run).await?;
    if flag(&body, "force", true)? {
        stop::force(&app, caller.account, run, None).await?;
    } else {
        stop::graceful(&app, caller.account, run).await?;
    }
    document(&app, &caller, standing, run).await
}

/// A boolean of the body; no word is coerced to one (`runs.md` §1).
fn flag(body: &Object, name: &'static str, default: bool) -> Result<bool, ApiError> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(ApiError::parameter_invalid(
            name,
            format!("{name} must be a boolean"),
        )),
    }
}

async fn pause_run(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
    Body(body): Body,
) -> Result<Answer<RunAnswer>, ApiError> {
    let (standing, run, _) = commanded(&app, &caller, &workspace, &run).await?;
    let force = flag(&body, "force", false)?;
    pause::pause(&app, caller.account, run, force).await?;
    document(&app, &caller, standing, run).await
}

async fn resume_run(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
    Body(_): Body,
) -> Result<Answer<RunAnswer>, ApiError> {
    let (standing, run, _) = commanded(&app, &caller, &workspace, &run).await?;
    pause::resume(&app, caller.account, run).await?;
    document(&app, &caller, standing, run).await
}

#[derive(Debug, Serialize)]
struct AppendAnswer {
    receipt: Canonical,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
}

async fn append_steps(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run)): PathOf<(String, String)>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let (_, run, _) = commanded(&app, &caller, &workspace, &run).await?;
    let key = idempotency_key(&headers, RUN_KEY_BYTES)?;
    let request = append::Request {
        account: caller.account,
        run,
        by: resolver(&caller),
        body,
        key,
    };
    let append::Appended { receipt, replayed } = append::append(&app, request).await?;
    let answer = AppendAnswer { receipt, replayed };
    let mut response = Answer(StatusCode::CREATED, answer).into_response();
    response.headers_mut().insert(
        HeaderName::from_static("idempotency-replayed"),
        HeaderValue::from_static(if replayed { "true" } else { "false" }),
    );
    Ok(response)
}

/// The caller, as the one who answered.
pub(super) fn resolver(caller: &MemberCaller) -> Resolver {
    Resolver {
        kind: caller.kind,
        public_id: caller.public_id,
        handle: caller.handle.clone(),
    }
}

#[derive(Debug, Serialize)]
pub(super) struct TaskAnswer {
    pub(super) task: TaskDetail,
}

async fn show_task(
    caller: MemberCaller,
    State(app): State<App>,
    PathOf((workspace, run, task)): PathOf<(String, String, String)>,
) -> Result<Answer<TaskAnswer>, ApiError> {
    let (_, standing) = standing(&app, &caller, &workspace).await?;
    let (run, key) = (params::public_id(&run)?, params::task_key(&task)?);
    let run = app
        .store
        .run_find(caller.account, standing.workspace, run)
        .await?
        .ok_or_else(ApiError::not_found)?;
    let task = app.store.task_detail(caller.account, run, &key).await?;
    Ok(ok(TaskAnswer {
        task: task.ok_or_else(ApiError::not_found)?,
    }))
}
