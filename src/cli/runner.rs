//! `nexus runner`: the reference runner as a command.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Context, Failure};
use crate::runner::{Runner, Timing, profiles, tools};

/// How to run.
#[derive(Debug, Args)]
pub struct Command {
    /// How many calls may run at once
    #[arg(long, default_value_t = 4, value_name = "N")]
    concurrency: usize,
    /// Serve `name` with a shell command: input as JSON on its standard input, what it prints is
    /// the result, an exit status other than 0 is a result that errs. Announced as a write that may
    /// not be run twice. May be given several times.
    #[arg(long = "tool", value_name = "NAME=COMMAND", value_parser = named)]
    tools: Vec<(String, String)>,
    /// Where write_note writes
    #[arg(long, default_value = ".nexus/notes", value_name = "FOLDER")]
    notes_dir: PathBuf,
    /// Serve only what --tool names
    #[arg(long)]
    no_builtin: bool,
    /// How long calls may go on after Ctrl-C or SIGTERM
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    grace: u64,
}

fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
            Ok((name.to_owned(), command.to_owned()))
        }
        _ => Err("it looks like name=command".to_owned()),
    }
}

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// [`Failure`]; a dead credential among them.
pub async fn run(context: &Context, command: Command) -> Result<(), Failure> {
    log_to_stderr();
    let timing = Timing {
        grace: Duration::from_secs(command.grace),
        ..Timing::default()
    };
    let mut builder = Runner::builder(context.client()?)
        .concurrency(command.concurrency)
        .timing(timing);
    if !command.no_builtin {
        builder = tools::builtin(builder);
        builder = tools::write_note(builder, command.notes_dir);
    }
    for (name, line) in command.tools {
        builder = builder.tool(&name, profiles::UNKNOWN, tools::Command::new(line));
    }
    let runner = builder.build()?;
    let names = runner.announcement().tools.iter().map(|t| t.name.as_str());
    tracing::info!("serving {}", names.collect::<Vec<_>>().join(", "));
    let report = runner.serve(asked_to_end()).await?;
    tracing::info!(?report, "ended");
    Ok(())
}

/// Ready at the first Ctrl-C or SIGTERM; a second one ends the process at once.
async fn asked_to_end() {
    signaled().await;
    tokio::spawn(async {
        signaled().await;
        std::process::exit(130);
    });
}

async fn signaled() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                terminate.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}

/// Logs of a command go to standard error; `NEXUS_LOG` says how much.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("NEXUS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("nexus=info,warn"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_a_name_and_a_command() {
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(named("wc=wc -c"), pair("wc", "wc -c"));
        assert_eq!(named("x=A=1 env"), pair("x", "A=1 env"));
        for wrong in ["wc", "=wc", "wc=", "wc= "] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
    }
}
