//! The commit doors: one result (`executor.md` §11), or several at once, each judged as alone.

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use serde::Serialize;

use super::inbox::token_member;
use crate::app::App;
use crate::commands::commit::Entry;
use crate::commands::{claim, commit, lane};
use crate::domain::json::{Object, Value};
use crate::domain::{PublicId, TaskKey};
use crate::http::answer::{Answer, ok};
use crate::http::auth::ExecutorCaller;
use crate::http::body::{Body, MAX_ESCAPED_BODY};
use crate::http::error::ApiError;
use crate::http::params;
use crate::http::path::PathOf;
use crate::store::views::TaskView;

/// The most entries of one batch of commits: a transaction's worth.
pub const COMMITS: usize = lane::BATCH;
/// How deep in a batch an entry stands: within the body and its list.
const ENTRY_LEVEL: usize = 2;

/// Its routes.
pub fn routes() -> Router<App> {
    let bound = DefaultBodyLimit::max(MAX_ESCAPED_BODY);
    Router::new()
        .route(
            "/agent_api/v1/executor/inbox/{run}/{task}/commit",
            post(commit_claim).layer(bound),
        )
        .route(
            "/agent_api/v1/executor/inbox/commits",
            post(commit_many).layer(bound),
        )
}

#[derive(Debug, Serialize)]
struct Committed {
    task: TaskView,
}

async fn commit_claim(
    caller: ExecutorCaller,
    State(app): State<App>,
    PathOf((run, task)): PathOf<(String, String)>,
    Body(body): Body,
) -> Result<Answer<Committed>, ApiError> {
    let (run, task) = (params::public_id(&run)?, params::task_key(&task)?);
    let task = match entry(run, &task, &body) {
        Ok(entry) => commit::commit(&app, &caller, entry).await?,
        Err(malformed) => {
            // 404 comes before the shape of the request.
            claim::exists(&app, &caller, run, &task).await?;
            return Err(malformed);
        }
    };
    Ok(ok(Committed { task }))
}

fn entry<'a>(run: PublicId, key: &TaskKey, body: &'a Object) -> Result<Entry<'a>, ApiError> {
    check_is_error(body)?;
    let token = token_member(body)?;
    Ok(Entry {
        run,
        key: key.clone(),
        token,
        body,
    })
}

#[derive(Debug, Serialize)]
struct Results {
    results: Vec<EntryResult>,
}

/// What one entry came to: the status and the members that its own commit would answer.
#[derive(Debug, Serialize)]
struct EntryResult {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

impl From<Result<TaskView, ApiError>> for EntryResult {
    fn from(outcome: Result<TaskView, ApiError>) -> Self {
        match outcome {
            Ok(task) => Self {
                status: StatusCode::OK.as_u16(),
                task: Some(task),
                error: None,
            },
            Err(refused) => Self {
                status: refused.status.as_u16(),
                task: None,
                error: Some(refused.to_value()),
            },
        }
    }
}

/// Several commits at once: each is judged as if it came alone, in the order of the list; those of
/// one run settle together (`architecture.md` §5).
async fn commit_many(
    caller: ExecutorCaller,
    State(app): State<App>,
    Body(body): Body<ENTRY_LEVEL>,
) -> Result<Answer<Results>, ApiError> {
    let mut results: Vec<Option<Result<TaskView, ApiError>>> = Vec::new();
    let (mut entries, mut places) = (Vec::new(), Vec::new());
    for (at, given) in given(&body)?.iter().enumerate() {
        match addressed(at, given) {
            Ok((run, key, body)) => match entry(run, &key, body) {
                Ok(entry) => {
                    entries.push(entry);
                    places.push(at);
                    results.push(None);
                }
                Err(malformed) => {
                    let absent = claim::exists(&app, &caller, run, &key).await.err();
                    results.push(Some(Err(absent.map_or(malformed, ApiError::from))));
                }
            },
            Err(malformed) => results.push(Some(Err(malformed))),
        }
    }
    let answers = commit::commit_all(&app, &caller, entries).await?;
    for (at, answer) in places.into_iter().zip(answers) {
        results[at] = Some(answer.map_err(ApiError::from));
    }
    let results = results.into_iter().flatten().map(EntryResult::from);
    Ok(ok(Results {
        results: results.collect(),
    }))
}

/// The entries: 1 to [`COMMITS`].
fn given(body: &Object) -> Result<&[Value], ApiError> {
    let commits = body
        .get("commits")
        .filter(|v| !v.is_null())
        .ok_or_else(|| ApiError::parameter_missing("commits"))?;
    commits
        .as_array()
        .filter(|entries| (1..=COMMITS).contains(&entries.len()))
        .ok_or_else(|| {
            let takes = format!("commits must be an array of 1 to {COMMITS} entries");
            ApiError::parameter_invalid("commits", takes)
        })
}

/// Which row an entry is about, and its body. A name that cannot be one is of nothing, as in a path.
fn addressed(at: usize, entry: &Value) -> Result<(PublicId, TaskKey, &Object), ApiError> {
    let body = entry.as_object().ok_or_else(|| {
        let takes = format!("commits[{at}] must be an object");
        ApiError::parameter_invalid(&format!("commits[{at}]"), takes)
    })?;
    let text = |name: &'static str| match body.get(name).filter(|v| !v.is_null()) {
        Some(Value::Str(text)) => Ok(text.as_str()),
        Some(_) => Err(ApiError::parameter_invalid(
            name,
            format!("commits[{at}].{name} must be a string"),
        )),
        None => Err(ApiError::parameter_missing(name)),
    };
    let (run, key) = (text("run_public_id")?, text("task_key")?);
    Ok((params::public_id(run)?, params::task_key(key)?, body))
}

fn check_is_error(body: &Object) -> Result<(), ApiError> {
    match body.get("is_error") {
        None | Some(Value::Bool(_)) => Ok(()),
        Some(_) => Err(ApiError::parameter_invalid(
            "is_error",
            "is_error must be a boolean",
        )),
    }
}
