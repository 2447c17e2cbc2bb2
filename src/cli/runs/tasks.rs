//! What a person does about one task: answer, approve, deny, retry, abandon, cancel (`runs.md` §8).

use clap::{Args, Subcommand};

use crate::cli::output::{fields, text};
use crate::cli::{Context, Failure};
use crate::client::Resolution;
use crate::client::answers::{Answer, Task};
use crate::domain::Value;

/// Which task.
#[derive(Debug, Args)]
pub struct At {
    /// The run
    run: String,
    /// The task's key
    key: String,
}

/// What to do about it.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Shows one task whole
    Task {
        /// Which
        #[command(flatten)]
        at: At,
    },
    /// Answers a question
    Answer {
        /// Which
        #[command(flatten)]
        at: At,
        /// The answer
        #[arg(required_unless_present = "failed")]
        text: Option<String>,
        /// The question's token, from the receipt; none for a question that a model asked
        #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
        resolution_token: Option<String>,
        /// There will be no answer: the question fails
        #[arg(long)]
        failed: bool,
    },
    /// Lets a call begin that waits for approval
    Approve {
        /// Which
        #[command(flatten)]
        at: At,
    },
    /// Refuses a call that waits for approval
    Deny {
        /// Which
        #[command(flatten)]
        at: At,
        /// What the reader of its failure is told
        #[arg(long)]
        reason: Option<String>,
    },
    /// Executes a failed task again
    Retry {
        /// Which
        #[command(flatten)]
        at: At,
        /// Of a failed model task: {"model"?, "reasoning_enabled"?, "reasoning_effort"?}
        #[arg(long, value_name = "JSON")]
        model: Option<String>,
    },
    /// Gives a failed task up: what follows it goes on
    Abandon {
        /// Which
        #[command(flatten)]
        at: At,
    },
    /// Ends the branch of a task
    Cancel {
        /// Which
        #[command(flatten)]
        at: At,
    },
}

pub(super) async fn run(context: &Context, command: Command) -> Result<(), Failure> {
    let client = context.client()?;
    let workspace = context.workspace()?;
    let answer = match command {
        Command::Task { at } => client.task(workspace, &at.run, &at.key).await,
        Command::Answer {
            at,
            text,
            resolution_token,
            failed,
        } => {
            let resolution = Resolution {
                resolution_token,
                content: text.map(Value::from),
                outcome: failed.then(|| "failed".to_owned()),
            };
            let answer = client.resolve_task(workspace, &at.run, &at.key, &resolution);
            answer.await
        }
        Command::Approve { at } => client.approve_task(workspace, &at.run, &at.key).await,
        Command::Deny { at, reason } => {
            let denied = client.deny_task(workspace, &at.run, &at.key, reason.as_deref());
            denied.await
        }
        Command::Retry { at, model } => {
            let model = model.as_deref().map(parsed).transpose()?;
            let retried = client.retry_task(workspace, &at.run, &at.key, model.as_ref());
            retried.await
        }
        Command::Abandon { at } => client.abandon_task(workspace, &at.run, &at.key).await,
        Command::Cancel { at } => client.cancel_task(workspace, &at.run, &at.key).await,
    };
    shown(context, &answer?)
}

fn parsed(text: &str) -> Result<Value, Failure> {
    let parsed = crate::domain::json::parse(text.as_bytes());
    parsed.map_err(|e| Failure::Usage(format!("--model is no JSON: {e}")))
}

fn shown(context: &Context, answer: &Answer<Task>) -> Result<(), Failure> {
    context.out.answer(answer, |task| {
        let json = |value: &Option<Value>| {
            let value = value.as_ref()?;
            serde_json::to_string(value).ok()
        };
        let error = task.error.as_ref();
        fields(&[
            ("task", Some(task.key.clone())),
            ("kind", Some(task.kind.to_string())),
            ("status", Some(task.status.to_string())),
            ("tool", task.tool_name.clone()),
            ("model", json(&task.model)),
            (
                "after",
                (!task.after.is_empty()).then(|| task.after.join(", ")),
            ),
            (
                "claimed by",
                task.claimed_by
                    .as_ref()
                    .map(|c| c.executor_public_id.clone()),
            ),
            ("started", text(&task.started_at)),
            ("deadline", text(&task.deadline_at)),
            ("completed", text(&task.completed_at)),
            ("approval", json(&task.approval)),
            ("error", error.map(|e| e.key.clone())),
            ("detail", error.and_then(|e| e.detail.clone())),
            ("resolution", task.failure_resolution.clone()),
            ("prompt", task.prompt.clone()),
            ("options", task.options.as_ref().map(|o| o.join(", "))),
            ("input", json(&task.tool_input)),
            ("title", task.title.clone()),
            ("output", json(&task.output)),
            ("structured", json(&task.structured_content)),
            ("selection", json(&task.result)),
        ])
    })
}
