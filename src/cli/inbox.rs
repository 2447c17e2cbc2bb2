//! `nexus inbox`: what waits for somebody.
//!
//! With a member's token: the workspace's runs that ask for a person, and the tasks concerned. With
//! `--executor` and an executor's token: the rows addressed to that executor.

use clap::Args;

use super::output::{line, more, table, text};
use super::{Context, Failure};
use crate::client::answers::Run;
use crate::client::{Answer, RunListQuery};
use crate::domain::Value;

/// Whose inbox.
#[derive(Debug, Args)]
pub struct Command {
    /// The inbox of the executor whose token is given
    #[arg(long)]
    executor: bool,
    /// Where the page begins
    #[arg(long)]
    after: Option<String>,
}

/// Prints it.
///
/// # Errors
/// [`Failure`].
pub async fn run(context: &Context, command: Command) -> Result<(), Failure> {
    if command.executor {
        executor(context, command.after.as_deref()).await
    } else {
        person(context, command.after).await
    }
}

async fn executor(context: &Context, after: Option<&str>) -> Result<(), Failure> {
    let client = context.client()?;
    let answer = client.inbox(after, None, None).await?;
    context.out.answer(&answer, |page| {
        let rows = page.items.iter().map(|row| {
            [
                Some(row.kind.to_string()),
                Some(row.run_public_id.clone()),
                Some(row.task_key.clone()),
                row.tool_name.clone().or_else(|| row.prompt.clone()),
                Some(if row.claimed { "claimed" } else { "" }.to_owned()),
                text(&row.deadline_at),
            ]
        });
        let headings = ["kind", "run", "task", "tool", "claimed", "deadline"];
        table(headings, rows) + &more(page.next_after.as_deref())
    })
}

async fn person(context: &Context, after: Option<String>) -> Result<(), Failure> {
    let client = context.client()?;
    let workspace = context.workspace()?;
    let query = RunListQuery {
        attention: Some("any".to_owned()),
        after,
        ..RunListQuery::default()
    };
    let listed = client.list_runs(workspace, &query).await?;
    let mut runs: Vec<Answer<Run>> = Vec::new();
    for row in &listed.items {
        match client.run(workspace, &row.public_id).await {
            Ok(run) => runs.push(run),
            // Deleted since it was listed.
            Err(e) if e.status() == Some(404) => {}
            Err(e) => return Err(e.into()),
        }
    }
    if context.out.json {
        let whole = runs.iter().filter_map(|r| r.json().get("run").cloned());
        let next = listed.next_after.clone().map_or(Value::Null, Value::from);
        let body = Value::from([
            ("runs", Value::Array(whole.collect())),
            ("pagination", Value::from([("next_after", next)])),
        ]);
        return line(&serde_json::to_string(&body).unwrap_or_default());
    }
    let rows = runs.iter().flat_map(|run| waiting(run));
    let headings = ["run", "reason", "task", "what"];
    line(&(table(headings, rows) + &more(listed.next_after.as_deref())))
}

/// A line a blocked task, or one for the run when no task is to blame.
fn waiting(run: &Run) -> Vec<[Option<String>; 4]> {
    let Some(attention) = &run.attention else {
        return Vec::new();
    };
    let row = |key: Option<&String>| {
        let task = key.and_then(|key| run.tasks.iter().find(|t| t.key == *key));
        let what = task.map(|t| {
            let error = t.error.as_ref().map(|e| e.key.clone());
            let name = t.tool_name.clone();
            [name, error, Some(t.status.to_string())]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" ")
        });
        [
            Some(run.public_id.clone()),
            Some(attention.reason.clone()),
            key.cloned(),
            what,
        ]
    };
    if attention.blocked_task_keys.is_empty() {
        return vec![row(None)];
    }
    attention
        .blocked_task_keys
        .iter()
        .map(|key| row(Some(key)))
        .collect()
}
