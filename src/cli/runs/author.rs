//! `nexus runs create` and `append`: steps from a file or standard input, a receipt for a person.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{shown, watched};
use crate::cli::output::fields;
use crate::cli::watch::render::{Known, answer_words, command};
use crate::cli::{Context, Failure};
use crate::client::answers::Receipt;
use crate::client::idempotency_key;
use crate::domain::json::{self, Object, Value};

/// Authors a run.
#[derive(Debug, Args)]
pub struct Create {
    /// {"steps": …, "approval_mode": …}, or an array of steps; - reads standard input
    file: PathBuf,
    /// bypass, ask or rules; over what the file says
    #[arg(long, value_name = "MODE")]
    approval_mode: Option<String>,
    /// Start it; with --json the create's answer is printed, which holds the questions' tokens
    #[arg(long)]
    start: bool,
    /// Start it and follow it
    #[arg(long)]
    watch: bool,
    /// An Idempotency-Key, at most 36 bytes; one is made when none is given
    #[arg(long)]
    key: Option<String>,
}

/// Appends to a run.
#[derive(Debug, Args)]
pub struct Append {
    /// The run
    run: String,
    /// {"steps": …, "resolve": …}, or an array of steps; - reads standard input
    #[arg(required_unless_present = "resolve")]
    file: Option<PathBuf>,
    /// Refuse unless the run is at this revision
    #[arg(long, value_name = "N")]
    expected_revision: Option<i64>,
    /// Answer a question with it, no token needed; may be repeated
    #[arg(long, value_name = "KEY[=TEXT]")]
    resolve: Vec<String>,
    /// An Idempotency-Key, at most 36 bytes; one is made when none is given
    #[arg(long)]
    key: Option<String>,
}

pub(super) async fn create(context: &Context, create: Create) -> Result<(), Failure> {
    let client = context.client()?;
    let workspace = context.workspace()?;
    let mut run = envelope(&create.file)?;
    if let Some(mode) = create.approval_mode {
        run.insert("approval_mode".to_owned(), mode.into());
    }
    let key = create.key.unwrap_or_else(idempotency_key);
    let run = Value::Object(run);
    let created = client.create_run(workspace, &run, Some(&key)).await?;
    let id = created.run.public_id.clone();
    if create.start || create.watch {
        let started = client.start_run(workspace, &id).await?;
        if create.watch {
            return watched(context, &id, created.receipt.resolution_tokens.clone()).await;
        }
        // Tokens are told this once, so a script gets the answer that holds them.
        if context.out.json {
            return context.out.answer(&created, |_| String::new());
        }
        shown(context, &started)?;
        return context.out.text(&questions(&id, &created.receipt));
    }
    context.out.answer(&created, |created| {
        let status = Some(created.run.status.to_string());
        receipt(&id, status, &created.receipt)
    })
}

pub(super) async fn append(context: &Context, append: Append) -> Result<(), Failure> {
    let client = context.client()?;
    let mut body = match &append.file {
        Some(file) => envelope(file)?,
        None => Object::from([("steps".to_owned(), Value::Array(Vec::new()))]),
    };
    if let Some(revision) = append.expected_revision {
        body.insert("expected_revision".to_owned(), revision.into());
    }
    if !append.resolve.is_empty() {
        let mut entries = match body.remove("resolve") {
            Some(Value::Array(entries)) => entries,
            _ => Vec::new(),
        };
        entries.extend(append.resolve.iter().map(|entry| resolved(entry)));
        body.insert("resolve".to_owned(), Value::Array(entries));
    }
    let key = append.key.unwrap_or_else(idempotency_key);
    let workspace = context.workspace()?;
    let body = Value::Object(body);
    let appended = client.append_tasks(workspace, &append.run, &body, Some(&key));
    let appended = appended.await?;
    context.out.answer(&appended, |appended| {
        receipt(&append.run, None, &appended.receipt)
    })
}

/// `gate` or `gate=yes`.
fn resolved(entry: &str) -> Value {
    match entry.split_once('=') {
        None => entry.into(),
        Some((task, content)) => Value::from([("task", task.into()), ("content", content.into())]),
    }
}

/// What the file holds, as the members of a body: an array is its `steps`, a `run` is opened.
fn envelope(file: &Path) -> Result<Object, Failure> {
    match read(file)? {
        steps @ Value::Array(_) => Ok(Object::from([("steps".to_owned(), steps)])),
        Value::Object(mut members) => match members.remove("run") {
            Some(Value::Object(run)) => Ok(run),
            Some(run) => {
                members.insert("run".to_owned(), run);
                Ok(members)
            }
            None => Ok(members),
        },
        _ => Err(Failure::Usage(format!(
            "{} holds neither an object nor an array of steps",
            file.display()
        ))),
    }
}

fn read(file: &Path) -> Result<Value, Failure> {
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

fn receipt(run: &str, status: Option<String>, receipt: &Receipt) -> String {
    let fields = fields(&[
        ("run", Some(run.to_owned())),
        ("status", status),
        ("tasks", Some(receipt.accepted_task_keys.join(", "))),
        ("answer", receipt.deliverable_task_key.clone()),
        ("revision", Some(receipt.revision.to_string())),
    ]);
    fields + &questions(run, receipt)
}

/// How each question of a receipt is answered.
fn questions(run: &str, receipt: &Receipt) -> String {
    let known = Known {
        tokens: receipt.resolution_tokens.clone(),
        ..Known::default()
    };
    let line = |key: &String| {
        let words = answer_words(run, key, &known);
        format!("to answer {key}:  {}\n", command(&known, &words))
    };
    receipt.resolution_tokens.keys().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolve_is_a_key_or_a_key_with_its_text() {
        assert_eq!(resolved("gate"), Value::from("gate"));
        let whole = resolved("gate=a=b");
        assert_eq!(whole.get("task").and_then(Value::as_str), Some("gate"));
        assert_eq!(whole.get("content").and_then(Value::as_str), Some("a=b"));
    }
}
