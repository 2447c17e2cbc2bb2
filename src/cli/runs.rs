//! `nexus runs …`: runs of a workspace, with a member's token.

use std::io::Read;
use std::path::PathBuf;

use clap::Subcommand;

use super::output::{fields, more, table, text};
use super::watch::render::{Look, Progress, render};
use super::watch::{self, Mode};
use super::{Context, Failure};
use crate::client::answers::{Answer, Run};
use crate::client::words::RunStatus;
use crate::client::{RunListQuery, idempotency_key};
use crate::domain::json::{self, Value};

/// What to do with runs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists runs, a page at a time
    List {
        /// Only these status words, joined by commas
        #[arg(long)]
        status: Option<String>,
        /// Only runs that ask for a person
        #[arg(long)]
        attention: bool,
        /// asc or desc
        #[arg(long)]
        order: Option<String>,
        /// Where the page begins
        #[arg(long)]
        after: Option<String>,
        /// 1 to 200
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Shows one run as a tree
    Show {
        /// The run
        run: String,
    },
    /// Follows one run live until it has ended; exit code 0 when it completed
    Watch {
        /// The run
        run: String,
    },
    /// Authors a run from a file that holds {"steps": …, "approval_mode": …}
    Create {
        /// The file; - reads standard input
        file: PathBuf,
        /// Start it
        #[arg(long)]
        start: bool,
        /// Start it and follow it
        #[arg(long)]
        watch: bool,
        /// An Idempotency-Key, at most 36 bytes; one is made when none is given
        #[arg(long)]
        key: Option<String>,
    },
    /// Starts a pending run
    Start {
        /// The run
        run: String,
    },
    /// Stops a run at once, or gracefully
    Stop {
        /// The run
        run: String,
        /// Let claimed work finish
        #[arg(long)]
        graceful: bool,
    },
    /// Pauses a run; claimed work may finish
    Pause {
        /// The run
        run: String,
        /// Abort running model steps too
        #[arg(long)]
        force: bool,
    },
    /// Resumes a paused run
    Resume {
        /// The run
        run: String,
    },
    /// Shows one task whole
    Task {
        /// The run
        run: String,
        /// The task's key
        key: String,
    },
    /// Prints a run's events, a page at a time
    Events {
        /// The run
        run: String,
        /// Where the page begins
        #[arg(long)]
        after: Option<String>,
        /// 1 to 200
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Prints a run's graph as a mermaid flowchart
    Graph {
        /// The run
        run: String,
    },
}

/// Does it.
///
/// # Errors
/// [`Failure`].
pub async fn run(context: &Context, command: Command) -> Result<(), Failure> {
    let client = context.client()?;
    let workspace = context.workspace()?;
    match command {
        Command::List {
            status,
            attention,
            order,
            after,
            limit,
        } => {
            let query = RunListQuery {
                status,
                attention: attention.then(|| "any".to_owned()),
                order,
                after,
                limit,
            };
            list(context, &query).await
        }
        Command::Show { run } => {
            let answer = client.run(workspace, &run).await?;
            shown(context, &answer)
        }
        Command::Watch { run } => watched(context, &run).await,
        Command::Create {
            file,
            start,
            watch,
            key,
        } => create(context, &file, start || watch, watch, key).await,
        Command::Start { run } => shown(context, &client.start_run(workspace, &run).await?),
        Command::Stop { run, graceful } => {
            let answer = client.stop_run(workspace, &run, Some(!graceful)).await?;
            shown(context, &answer)
        }
        Command::Pause { run, force } => {
            let answer = client.pause_run(workspace, &run, Some(force)).await?;
            shown(context, &answer)
        }
        Command::Resume { run } => shown(context, &client.resume_run(workspace, &run).await?),
        Command::Task { run, key } => task(context, &run, &key).await,
        Command::Events { run, after, limit } => {
            let after = after.as_deref();
            let answer = client.events(workspace, &run, after, limit).await?;
            context.out.answer(&answer, |page| {
                let rows = page.events.iter().map(|e| {
                    let payload = serde_json::to_string(&e.payload).unwrap_or_default();
                    [
                        Some(e.sequence.to_string()),
                        text(&e.created_at),
                        Some(e.kind.clone()),
                        Some(payload),
                    ]
                });
                let last = page.next_after.as_deref();
                table(["seq", "at", "type", "payload"], rows) + &more(last)
            })
        }
        Command::Graph { run } => {
            let answer = client.graph(workspace, &run).await?;
            context.out.answer(&answer, |graph| {
                let mermaid = graph.get("mermaid").and_then(Value::as_str);
                mermaid.unwrap_or_default().to_owned()
            })
        }
    }
}

async fn list(context: &Context, query: &RunListQuery) -> Result<(), Failure> {
    let client = context.client()?;
    let answer = client.list_runs(context.workspace()?, query).await?;
    context.out.answer(&answer, |page| {
        let rows = page.items.iter().map(|r| {
            [
                Some(r.public_id.clone()),
                Some(r.status.to_string()),
                r.attention.as_ref().map(|a| a.reason.clone()),
                text(&r.created_at),
            ]
        });
        let last = page.next_after.as_deref();
        table(["run", "status", "attention", "created"], rows) + &more(last)
    })
}

async fn create(
    context: &Context,
    file: &PathBuf,
    start: bool,
    follow: bool,
    key: Option<String>,
) -> Result<(), Failure> {
    let client = context.client()?;
    let workspace = context.workspace()?;
    let body = read(file)?;
    // The whole body of the door is taken too.
    let run = body.get("run").unwrap_or(&body);
    let key = key.unwrap_or_else(idempotency_key);
    let created = client.create_run(workspace, run, Some(&key)).await?;
    let id = created.run.public_id.clone();
    if !start {
        return context.out.answer(&created, |created| {
            fields(&[
                ("run", Some(created.run.public_id.clone())),
                ("status", Some(created.run.status.to_string())),
                ("tasks", Some(created.receipt.accepted_task_keys.join(", "))),
            ])
        });
    }
    let started = client.start_run(workspace, &id).await?;
    if follow {
        return watched(context, &id).await;
    }
    shown(context, &started)
}

fn read(file: &PathBuf) -> Result<Value, Failure> {
    let unreadable = |e: &dyn std::fmt::Display| {
        Failure::Usage(format!("{} cannot be read: {e}", file.display()))
    };
    let bytes = if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    let bytes = bytes.map_err(|e| unreadable(&e))?;
    json::parse(&bytes).map_err(|e| unreadable(&e))
}

fn shown(context: &Context, answer: &Answer<Run>) -> Result<(), Failure> {
    let now = watch::now();
    context.out.answer(answer, |run| {
        render(run, &Progress::new(), now, Look::PLAIN)
    })
}

async fn watched(context: &Context, run: &str) -> Result<(), Failure> {
    let mode = if context.out.json {
        Mode::Json
    } else {
        Mode::Tree
    };
    let client = context.client()?;
    let ended = watch::follow(&client, context.workspace()?, run, mode).await?;
    match ended.status {
        RunStatus::Completed => Ok(()),
        status => Err(Failure::Unsuccessful(format!("the run ended {status}"))),
    }
}

async fn task(context: &Context, run: &str, key: &str) -> Result<(), Failure> {
    let client = context.client()?;
    let answer = client.task(context.workspace()?, run, key).await?;
    context.out.answer(&answer, |task| {
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
            ("error", error.map(|e| e.key.clone())),
            ("detail", error.and_then(|e| e.detail.clone())),
            ("prompt", task.prompt.clone()),
            ("input", json(&task.tool_input)),
            ("title", task.title.clone()),
            ("output", json(&task.output)),
            ("structured", json(&task.structured_content)),
        ])
    })
}
