//! `nexus runs …`: runs of a workspace, with a member's token.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Subcommand;

use super::output::{more, table, text};
use super::watch::render::{Known, Look, render};
use super::watch::{self, Mode};
use super::{Context, Failure};
use crate::client::RunListQuery;
use crate::client::answers::{Answer, Graph, Run};
use crate::client::words::RunStatus;

mod author;
mod drawing;
mod tasks;

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
    /// Authors a run from steps in a file
    Create(author::Create),
    /// Appends steps to a run, or answers its questions
    Append(author::Append),
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
    /// Deletes a run that is not live
    Delete {
        /// The run
        run: String,
    },
    /// One task: what it is, and what a person does about it
    #[command(flatten)]
    Task(tasks::Command),
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
    /// Prints a run's graph as a mermaid flowchart, or draws it
    Graph {
        /// The run
        run: String,
        /// Draw it into this file as SVG; - writes standard output
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
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
        Command::Watch { run } => watched(context, &run, BTreeMap::new()).await,
        Command::Create(create) => author::create(context, create).await,
        Command::Append(append) => author::append(context, append).await,
        Command::Task(command) => tasks::run(context, command).await,
        Command::Delete { run } => {
            let answer = client.delete_run(workspace, &run).await?;
            context
                .out
                .answer(&answer, |()| format!("run {run} deleted"))
        }
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
        Command::Graph { run, svg } => {
            let answer = client.graph(workspace, &run).await?;
            match svg {
                Some(file) => draw(context, answer.into_inner(), file).await,
                None => context.out.answer(&answer, |graph| graph.mermaid.clone()),
            }
        }
    }
}

/// Lays the graph out beside the runtime: it may take a moment.
async fn draw(context: &Context, graph: Graph, file: PathBuf) -> Result<(), Failure> {
    let (nodes, edges) = (graph.nodes.len(), graph.edges.len());
    if drawing::pieces(&graph) > drawing::MOST_PIECES {
        return Err(Failure::Usage(format!(
            "{nodes} tasks and {edges} edges are too many to lay out; without --svg the graph is \
             printed as mermaid"
        )));
    }
    let drawn = tokio::task::spawn_blocking(move || drawing::svg(&graph)).await;
    let drawn =
        drawn.map_err(|e| Failure::Unsuccessful(format!("the graph cannot be laid out: {e}")))?;
    if file.as_os_str() == "-" {
        return context.out.text(&drawn);
    }
    std::fs::write(&file, drawn)
        .map_err(|e| Failure::Usage(format!("{} cannot be written: {e}", file.display())))?;
    let said = format!("{nodes} tasks and {edges} edges drawn: {}", file.display());
    context.out.text(&said)
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

fn shown(context: &Context, answer: &Answer<Run>) -> Result<(), Failure> {
    let now = watch::now();
    context.out.answer(answer, |run| {
        render(run, &Known::default(), now, Look::PLAIN)
    })
}

/// Follows a run; `tokens` are those of the questions that the caller asked.
async fn watched(
    context: &Context,
    run: &str,
    tokens: BTreeMap<String, String>,
) -> Result<(), Failure> {
    let mode = if context.out.json {
        Mode::Json
    } else {
        Mode::Tree
    };
    let client = context.client()?;
    let known = Known {
        tokens,
        ..Known::default()
    };
    let followed = watch::follow(&client, context.workspace()?, run, mode, known, None);
    match followed.await?.status {
        RunStatus::Completed => Ok(()),
        status => Err(Failure::Unsuccessful(format!("the run ended {status}"))),
    }
}
