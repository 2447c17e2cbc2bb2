//! The member plane (`runs.md`, `executor.md` §4 discovery).

use serde::Serialize;

use super::answers::{
    Answer, Appended, EventPage, Graph, MachineExecutor, Page, Run, RunCreated, RunListRow, Task,
};
use super::error::Error;
use super::transport::{Call, Client, path};
use crate::domain::Value;

/// Which runs a list answers, and from where.
#[derive(Debug, Clone, Default)]
pub struct RunListQuery {
    /// A set of status words, joined by commas.
    pub status: Option<String>,
    /// `any`: only runs with a standing reason.
    pub attention: Option<String>,
    /// `asc` or `desc`.
    pub order: Option<String>,
    /// A page's cursor.
    pub after: Option<String>,
    /// 1 to 200.
    pub limit: Option<u32>,
}

fn runs(workspace: &str, rest: &[&str]) -> String {
    let mut segments = vec!["agent_api", "v1", "workspaces", workspace, "runs"];
    segments.extend(rest);
    path(&segments)
}

/// What a person answers a question with (`runs.md` §8.2).
#[derive(Debug, Clone, Default, Serialize)]
pub struct Resolution {
    /// The token of an authored question, from its receipt; none for one that a model asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution_token: Option<String>,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// `failed` when there will be no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

fn nothing() -> Value {
    Value::Object(Default::default())
}

/// `{"force": …}` when said.
#[derive(Serialize)]
struct Force {
    #[serde(skip_serializing_if = "Option::is_none")]
    force: Option<bool>,
}

impl Client {
    /// `POST R`: authors a run; `run` is the value of the body's `run` member. With a key (at most
    /// 36 bytes) the same call answers the same run.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_run(
        &self,
        workspace: &str,
        run: &Value,
        key: Option<&str>,
    ) -> Result<Answer<RunCreated>, Error> {
        let call = Call::post(runs(workspace, &[]))
            .json(&Value::from([("run", run.clone())]))?
            .idempotency_key(key)?;
        self.send(call).await?.whole()
    }

    /// `GET R`, one page.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_runs(
        &self,
        workspace: &str,
        query: &RunListQuery,
    ) -> Result<Answer<Page<RunListRow>>, Error> {
        let call = Call::get(runs(workspace, &[]))
            .query("status", query.status.as_deref())
            .query("attention", query.attention.as_deref())
            .query("order", query.order.as_deref())
            .query("after", query.after.as_deref())
            .query("limit", query.limit);
        self.send(call).await?.page("runs")
    }

    /// `GET R/{id}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn run(&self, workspace: &str, run: &str) -> Result<Answer<Run>, Error> {
        let call = Call::get(runs(workspace, &[run]));
        self.send(call).await?.wrapped("run")
    }

    /// `POST R/{id}/start`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn start_run(&self, workspace: &str, run: &str) -> Result<Answer<Run>, Error> {
        let call = Call::post(runs(workspace, &[run, "start"]));
        self.send(call).await?.wrapped("run")
    }

    /// `POST R/{id}/stop`; the server's default is `force: true`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn stop_run(
        &self,
        workspace: &str,
        run: &str,
        force: Option<bool>,
    ) -> Result<Answer<Run>, Error> {
        let call = Call::post(runs(workspace, &[run, "stop"])).json(&Force { force })?;
        self.send(call).await?.wrapped("run")
    }

    /// `POST R/{id}/pause`; the server's default is `force: false`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn pause_run(
        &self,
        workspace: &str,
        run: &str,
        force: Option<bool>,
    ) -> Result<Answer<Run>, Error> {
        let call = Call::post(runs(workspace, &[run, "pause"])).json(&Force { force })?;
        self.send(call).await?.wrapped("run")
    }

    /// `POST R/{id}/resume`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn resume_run(&self, workspace: &str, run: &str) -> Result<Answer<Run>, Error> {
        let call = Call::post(runs(workspace, &[run, "resume"]));
        self.send(call).await?.wrapped("run")
    }

    /// `DELETE R/{id}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn delete_run(&self, workspace: &str, run: &str) -> Result<Answer<()>, Error> {
        self.send(Call::delete(runs(workspace, &[run])))
            .await?
            .empty()
    }

    /// `POST R/{id}/tasks`: appends; `body` is `{steps, expected_revision?, resolve?}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn append_tasks(
        &self,
        workspace: &str,
        run: &str,
        body: &Value,
        key: Option<&str>,
    ) -> Result<Answer<Appended>, Error> {
        let call = Call::post(runs(workspace, &[run, "tasks"]))
            .json(body)?
            .idempotency_key(key)?;
        self.send(call).await?.whole()
    }

    /// `GET R/{id}/tasks/{key}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn task(&self, workspace: &str, run: &str, key: &str) -> Result<Answer<Task>, Error> {
        let call = Call::get(runs(workspace, &[run, "tasks", key]));
        self.send(call).await?.wrapped("task")
    }

    /// `POST R/{id}/tasks/{key}/resolution`: answers a question.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn resolve_task(
        &self,
        workspace: &str,
        run: &str,
        key: &str,
        resolution: &Resolution,
    ) -> Result<Answer<Task>, Error> {
        self.task_verb(workspace, run, key, "resolution", resolution)
            .await
    }

    /// `POST R/{id}/tasks/{key}/retry`; a failed model row may take another `model`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn retry_task(
        &self,
        workspace: &str,
        run: &str,
        key: &str,
        model: Option<&Value>,
    ) -> Result<Answer<Task>, Error> {
        let body = Value::Object(
            model
                .map(|model| ("model".to_owned(), model.clone()))
                .into_iter()
                .collect(),
        );
        self.task_verb(workspace, run, key, "retry", &body).await
    }

    /// `POST R/{id}/tasks/{key}/abandon`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn abandon_task(
        &self,
        workspace: &str,
        run: &str,
        key: &str,
    ) -> Result<Answer<Task>, Error> {
        self.task_verb(workspace, run, key, "abandon", &nothing())
            .await
    }

    /// `POST R/{id}/tasks/{key}/approve`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn approve_task(
        &self,
        workspace: &str,
        run: &str,
        key: &str,
    ) -> Result<Answer<Task>, Error> {
        self.task_verb(workspace, run, key, "approve", &nothing())
            .await
    }

    /// `POST R/{id}/tasks/{key}/deny`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn deny_task(
        &self,
        workspace: &str,
        run: &str,
        key: &str,
        reason: Option<&str>,
    ) -> Result<Answer<Task>, Error> {
        let reason = reason.map_or(Value::Null, Value::from);
        let body = Value::from([("reason", reason)]);
        self.task_verb(workspace, run, key, "deny", &body).await
    }

    /// `POST R/{id}/tasks/{key}/cancel`: ends a branch.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn cancel_task(
        &self,
        workspace: &str,
        run: &str,
        key: &str,
    ) -> Result<Answer<Task>, Error> {
        self.task_verb(workspace, run, key, "cancel", &nothing())
            .await
    }

    async fn task_verb(
        &self,
        workspace: &str,
        run: &str,
        key: &str,
        verb: &str,
        body: &impl Serialize,
    ) -> Result<Answer<Task>, Error> {
        let call = Call::post(runs(workspace, &[run, "tasks", key, verb])).json(body)?;
        self.send(call).await?.wrapped("task")
    }

    /// `GET R/{id}/events`: strictly after the cursor.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn events(
        &self,
        workspace: &str,
        run: &str,
        after: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Answer<EventPage>, Error> {
        let call = Call::get(runs(workspace, &[run, "events"]))
            .query("after", after)
            .query("limit", limit);
        self.send(call).await?.events()
    }

    /// `GET R/{id}/graph`: nodes, edges and a mermaid text.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn graph(&self, workspace: &str, run: &str) -> Result<Answer<Graph>, Error> {
        let call = Call::get(runs(workspace, &[run, "graph"]));
        self.send(call).await?.whole()
    }

    /// `GET R/{id}/phases`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn phases(&self, workspace: &str, run: &str) -> Result<Answer<Value>, Error> {
        let call = Call::get(runs(workspace, &[run, "phases"]));
        self.send(call).await?.whole()
    }

    /// `GET R/{id}/transcript`, newest page first; `prefix` names a call whose branch is read.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn transcript(
        &self,
        workspace: &str,
        run: &str,
        before: Option<&str>,
        limit: Option<u32>,
        prefix: Option<&str>,
    ) -> Result<Answer<Value>, Error> {
        let call = Call::get(runs(workspace, &[run, "transcript"]))
            .query("before", before)
            .query("limit", limit)
            .query("prefix", prefix);
        self.send(call).await?.whole()
    }

    /// `PUT R/{id}/default_runner`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_default_runner(
        &self,
        workspace: &str,
        run: &str,
        executor: Option<&str>,
    ) -> Result<Answer<Run>, Error> {
        let id = executor.map_or(Value::Null, Value::from);
        let inner = Value::from([("executor_public_id", id)]);
        let call = Call::put(runs(workspace, &[run, "default_runner"]))
            .json(&Value::from([("default_runner", inner)]))?
            .repeatable();
        self.send(call).await?.wrapped("run")
    }

    /// `GET /agent_api/v1/executors`: machines eligible for the caller, one page; `kind` is
    /// `runner` or `tool_provider`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn machines(
        &self,
        kind: Option<&str>,
        after: Option<&str>,
    ) -> Result<Answer<Page<MachineExecutor>>, Error> {
        let call = Call::get(path(&["agent_api", "v1", "executors"]))
            .query("kind", kind)
            .query("after", after);
        self.send(call).await?.page("executors")
    }

    /// `GET /agent_api/v1/executors/{id}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn machine(&self, executor: &str) -> Result<Answer<MachineExecutor>, Error> {
        let call = Call::get(path(&["agent_api", "v1", "executors", executor]));
        self.send(call).await?.wrapped("executor")
    }
}
