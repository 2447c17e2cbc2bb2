//! What a tool is given and what it gives back.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::operations::{self, Op, OperationError, Operations, Outcome, Until};
use crate::client::answers::{InboxRow, Upload};
use crate::client::{Client, Commit, Error};
use crate::domain::Value;
use crate::domain::words::Outcome as Word;

/// A handler. Any `Fn(Ctx, Value) -> impl Future<Output = Output>` is one.
pub trait Tool: Send + Sync + 'static {
    /// Executes one call; `input` is the exact tool input. A panic becomes `outcome: failed`.
    fn call(&self, ctx: Ctx, input: Value) -> BoxFuture<'static, Output>;
}

impl<F, Fut> Tool for F
where
    F: Fn(Ctx, Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Output> + Send + 'static,
{
    fn call(&self, ctx: Ctx, input: Value) -> BoxFuture<'static, Output> {
        Box::pin(self(ctx, input))
    }
}

/// What a handler tells people while it works; only the newest is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) text_tail: Option<String>,
    pub(super) structured: Option<Value>,
}

/// One call's surroundings. Cheap to clone.
#[derive(Clone)]
pub struct Ctx {
    pub(super) row: Arc<InboxRow>,
    pub(super) client: Client,
    pub(super) canceled: CancellationToken,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) operations: Operations,
}

impl Ctx {
    /// The run.
    pub fn run_public_id(&self) -> &str {
        &self.row.run_public_id
    }

    /// The task.
    pub fn task_key(&self) -> &str {
        &self.row.task_key
    }

    /// The whole inbox row, as claimed.
    pub fn row(&self) -> &InboxRow {
        &self.row
    }

    /// Shows `text` as the call's progress. Never waits: frames are spaced, and of several within
    /// one space only the last is sent.
    pub fn progress(&self, text: impl Into<String>) {
        self.progress_with(Some(text.into()), None);
    }

    /// Shows progress with a structured value.
    pub fn progress_with(&self, text_tail: Option<String>, structured: Option<Value>) {
        self.progress.send_replace(Progress {
            text_tail,
            structured,
        });
    }

    /// Stages a capture; name it in the result with [`Output::with_link`].
    ///
    /// # Errors
    /// [`Error`]. A repeat makes another capture; unbound ones are reclaimed after a day.
    pub async fn upload(&self, filename: &str, bytes: Bytes) -> Result<Upload, Error> {
        let answer = self.client.upload(filename, bytes).await?;
        Ok(answer.into_inner())
    }

    /// The same call as a handler sees it that is started again: its operations from the first on. For
    /// programs that keep a claim across a crash of theirs.
    #[must_use]
    pub fn restarted(&self) -> Self {
        Self {
            operations: self.operations.restarted(),
            ..self.clone()
        }
    }

    /// The doors of this call's own child work.
    pub fn operations(&self) -> &Operations {
        &self.operations
    }

    async fn done(&self, request: Value) -> Result<Outcome, OperationError> {
        self.operations.start(request).await?.outcome().await
    }

    /// Calls a tool of this call's scope, and waits for its outcome.
    ///
    /// # Errors
    /// [`OperationError`]; a call that failed is an outcome.
    pub async fn tool(&self, name: &str, input: Value) -> Result<Outcome, OperationError> {
        self.done(operations::call(name, input)).await
    }

    /// Starts a call, to be waited for later.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn start(&self, name: &str, input: Value) -> Result<Op, OperationError> {
        self.operations.start(operations::call(name, input)).await
    }

    /// Asks a model; `input` has the members of a model step.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn model(&self, input: Value) -> Result<Outcome, OperationError> {
        self.done(operations::request("model", input)).await
    }

    /// Asks a person.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn ask(&self, prompt: &str, options: &[&str]) -> Result<Outcome, OperationError> {
        let mut input = vec![("prompt".to_owned(), Value::from(prompt))];
        if !options.is_empty() {
            let options = options.iter().map(|option| Value::from(*option));
            input.push(("options".to_owned(), Value::Array(options.collect())));
        }
        let input = Value::Object(input.into_iter().collect());
        self.done(operations::request("ask", input)).await
    }

    /// Waits for a task of the run.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn wait(&self, task: &str) -> Result<Outcome, OperationError> {
        let input = Value::from([("task", task.into())]);
        self.done(operations::request("wait", input)).await
    }

    /// Starts a batch of steps, written as a run's.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn steps(&self, steps: Value) -> Result<Op, OperationError> {
        self.operations
            .start(operations::request("steps", steps))
            .await
    }

    /// Waits until all of them ended; their results in the order of their ends.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn join(&self, ops: &[&Op]) -> Result<Outcome, OperationError> {
        self.done(operations::join(ops, Until::All, false)).await
    }

    /// Waits for so many successes of them, and cancels the rest.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn race(&self, ops: &[&Op], until: Until) -> Result<Outcome, OperationError> {
        self.done(operations::join(ops, until, true)).await
    }

    /// Launches a batch that outlives this call.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn background(&self, steps: Value) -> Result<Op, OperationError> {
        let input = Value::from([("steps", steps)]);
        self.operations
            .start(operations::request("background", input))
            .await
    }

    /// Lets an operation's work go on without this call.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn release(&self, op: &Op) -> Result<(), OperationError> {
        let input = Value::from([("operation_key", op.key().into())]);
        self.done(operations::request("background", input))
            .await
            .map(drop)
    }

    /// Puts other steps in the place of tasks that have not started.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn replace(
        &self,
        op: &Op,
        tasks: &[&str],
        steps: Value,
    ) -> Result<Op, OperationError> {
        let tasks = tasks.iter().map(|task| Value::from(*task)).collect();
        let input = Value::from([
            ("operation_key", op.key().into()),
            ("tasks", Value::Array(tasks)),
            ("steps", steps),
        ]);
        self.operations
            .start(operations::request("replace", input))
            .await
    }

    /// Ends an operation's work.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn cancel(&self, op: &Op) -> Result<Outcome, OperationError> {
        let input = Value::from([("operation_key", op.key().into())]);
        self.done(operations::request("cancel", input)).await
    }

    /// The token that is canceled once the result is no longer wanted.
    pub fn canceled(&self) -> &CancellationToken {
        &self.canceled
    }
}

/// What a call came to (seed: two axes on every answer).
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    content: Option<Value>,
    structured_content: Option<Value>,
    is_error: bool,
    outcome: Word,
    title: Option<String>,
    metadata: Option<Value>,
}

impl Output {
    /// It ran: `text` is what a model reads.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: Some(Value::Str(text.into())),
            structured_content: None,
            is_error: false,
            outcome: Word::Completed,
            title: None,
            metadata: None,
        }
    }

    /// It ran and errored: data that the model reads and can correct itself from.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            is_error: true,
            ..Self::text(text)
        }
    }

    /// It could not run at all: the task fails `tool_failed`, and its own policy decides.
    pub fn failed(text: impl Into<String>) -> Self {
        Self {
            outcome: Word::Failed,
            ..Self::text(text)
        }
    }

    /// Adds a structured value, never shown to a model.
    #[must_use]
    pub fn with_structured(mut self, value: Value) -> Self {
        self.structured_content = Some(value);
        self
    }

    /// Adds a title.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Adds metadata (an object).
    #[must_use]
    pub fn with_metadata(mut self, metadata: Value) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Adds a capture as a `resource_link` block after what is there.
    #[must_use]
    pub fn with_link(mut self, upload: &Upload) -> Self {
        let link = Value::from([
            ("type", "resource_link".into()),
            (
                "uri",
                format!("nexus://uploads/{}", upload.public_id).into(),
            ),
            ("name", upload.filename.as_str().into()),
        ]);
        let mut blocks = match self.content.take() {
            Some(Value::Array(blocks)) => blocks,
            Some(Value::Str(text)) => {
                vec![Value::from([
                    ("type", "text".into()),
                    ("text", text.into()),
                ])]
            }
            _ => Vec::new(),
        };
        blocks.push(link);
        self.content = Some(Value::Array(blocks));
        self
    }

    /// The commit of this result under `claim_token`.
    pub(super) fn into_commit(self, claim_token: String) -> Commit {
        Commit {
            claim_token: Some(claim_token),
            content: self.content,
            structured_content: self.structured_content,
            is_error: self.is_error.then_some(true),
            outcome: (self.outcome != Word::Completed).then_some(self.outcome),
            title: self.title,
            metadata: self.metadata,
        }
    }
}

/// Effect profiles that tools often have.
pub mod profiles {
    use crate::domain::effect_profile::{
        EffectKind, EffectProfile, EffectScope, Idempotency, Reconciliation,
    };

    /// Touches nothing: replayable.
    pub const PURE: EffectProfile = EffectProfile {
        kind: EffectKind::Pure,
        destructive: false,
        effect_scope: EffectScope::Closed,
        idempotency: Idempotency::Intrinsic,
        reconciliation: Reconciliation::None,
    };

    /// Looks only: replayable.
    pub const READ_ONLY: EffectProfile = EffectProfile {
        kind: EffectKind::ReadOnly,
        ..PURE
    };

    /// Writes in its own world, and twice is not once: not replayable.
    pub const WRITE: EffectProfile = EffectProfile {
        kind: EffectKind::Write,
        destructive: false,
        effect_scope: EffectScope::Closed,
        idempotency: Idempotency::None,
        reconciliation: Reconciliation::None,
    };

    /// A program nobody described: it may do anything, anywhere. Not replayable.
    pub const UNKNOWN: EffectProfile = EffectProfile {
        effect_scope: EffectScope::Open,
        ..WRITE
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_axes_and_links_reach_the_body() {
        let body = |output: Output| {
            let bytes = output.into_commit("t".to_owned()).body().unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        assert_eq!(
            body(Output::text("a")),
            r#"{"claim_token":"t","content":"a"}"#
        );
        assert_eq!(
            body(Output::error("a")),
            r#"{"claim_token":"t","content":"a","is_error":true}"#
        );
        assert_eq!(
            body(Output::failed("a")),
            r#"{"claim_token":"t","content":"a","outcome":"failed"}"#
        );
        let upload: Upload =
            serde_json::from_str(r#"{"public_id":"u","filename":"f.png"}"#).unwrap();
        assert_eq!(
            body(Output::text("a").with_link(&upload)),
            concat!(
                r#"{"claim_token":"t","content":[{"text":"a","type":"text"},"#,
                r#"{"name":"f.png","type":"resource_link","uri":"nexus://uploads/u"}]}"#
            )
        );
    }

    #[test]
    fn profiles_say_what_may_be_run_again() {
        assert!(profiles::PURE.is_replayable() && profiles::READ_ONLY.is_replayable());
        assert!(!profiles::WRITE.is_replayable() && !profiles::UNKNOWN.is_replayable());
    }
}
