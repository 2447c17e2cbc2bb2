//! Handlers that start child work of their own, against `make run`:
//!
//! ```sh
//! cargo run --example handlers -- fan-out   # ten calls, a race of two, a question, a capture
//! cargo run --example handlers -- race      # the first of three wins, the others are canceled
//! cargo run --example handlers -- approval  # a person in the middle of a handler
//! cargo run --example handlers -- resume    # cut in the middle, and gone on by replay
//! ```
//!
//! Paste the `export` lines of `make run` first. Each serves two tools as the tool provider, `work`
//! and its own, authors a run of the latter, and ends with the run. Questions are answered by the
//! example itself after a moment; or from another terminal by the command that it prints.

mod handlers;

use std::error::Error;
use std::time::Duration;

use nexus::client::{Client, Resolution};
use nexus::domain::Value;
use nexus::runner::{Ctx, Output, Runner, profiles};

/// What an example needs to know.
struct Setup {
    member: Client,
    provider: Client,
    workspace: String,
}

impl Setup {
    fn from_env() -> Result<Self, String> {
        let var = |name: &str| {
            std::env::var(name)
                .map_err(|_| format!("{name} is not set: paste the export lines of `make run`"))
        };
        let base = var("NEXUS_BASE_URL")?;
        let client = |token: String| Client::new(&base, &token).map_err(|e| e.to_string());
        Ok(Self {
            member: client(var("NEXUS_TOKEN")?)?,
            provider: client(var("NEXUS_PROVIDER_TOKEN")?)?,
            workspace: var("NEXUS_WORKSPACE")?,
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let which = std::env::args().nth(1).unwrap_or_default();
    let handler: fn(Ctx) -> handlers::Handling = match which.as_str() {
        "fan-out" => |ctx| Box::pin(handlers::fan_out(ctx)),
        "race" => |ctx| Box::pin(handlers::race(ctx)),
        "approval" => |ctx| Box::pin(handlers::approval(ctx)),
        "resume" => |ctx| Box::pin(handlers::resume(ctx)),
        _ => return Err("one of: fan-out, race, approval, resume".into()),
    };
    let setup = Setup::from_env()?;
    // One place: a handler that waits lends it to the child that it waits for.
    let runner = Runner::builder(setup.provider.clone())
        .concurrency(1)
        .tool("work", profiles::READ_ONLY, handlers::work)
        .tool(&which, profiles::WRITE, move |ctx: Ctx, _| async move {
            match handler(ctx).await {
                Ok(output) => output,
                Err(e) => Output::failed(e.to_string()),
            }
        })
        .build()?;
    let (done, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(runner.serve(async move { drop(ended.await) }));
    // Until it is announced, nobody serves the tool.
    tokio::time::sleep(Duration::from_secs(1)).await;
    follow(&setup, &which).await?;
    drop(done);
    println!("{:?}", serving.await??);
    Ok(())
}

/// Authors a run of one call, and follows it to its end.
async fn follow(setup: &Setup, tool: &str) -> Result<(), Box<dyn Error>> {
    let declared = Value::from([
        ("name", "work".into()),
        ("description", "Does a piece of work".into()),
    ]);
    let call = Value::from([
        ("key", "program".into()),
        ("name", tool.into()),
        (
            "model_defaults",
            Value::from([("tools", Value::Array(vec![declared]))]),
        ),
    ]);
    let run = Value::from([
        ("approval_mode", "bypass".into()),
        ("steps", Value::Array(vec![Value::from([("tool", call)])])),
    ]);
    let created = setup
        .member
        .create_run(&setup.workspace, &run, None)
        .await?;
    let id = created.run.public_id.clone();
    setup.member.start_run(&setup.workspace, &id).await?;
    println!("run {id}");
    let mut told = std::collections::HashMap::new();
    loop {
        let run = setup.member.run(&setup.workspace, &id).await?.into_inner();
        for task in &run.tasks {
            let status = task.status.to_string();
            if told.insert(task.key.clone(), status.clone()).as_ref() != Some(&status) {
                println!("  {} {status}", task.key);
            }
        }
        let asked = run
            .tasks
            .iter()
            .find(|t| t.status.to_string() == "awaiting_input");
        if let Some(question) = asked {
            println!("  nexus runs answer {id} {} --text yes", question.key);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let answer = Resolution {
                content: Some("yes".into()),
                ..Resolution::default()
            };
            let sent = setup
                .member
                .resolve_task(&setup.workspace, &id, &question.key, &answer);
            sent.await?;
        }
        let status = run.status.to_string();
        if ["completed", "canceled", "needs_attention"].contains(&status.as_str()) {
            println!("{status}");
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
