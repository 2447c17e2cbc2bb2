//! A tool that is a program: `--tool name=command`.
//!
//! The command runs in `sh -c`, in a process group of its own. It reads the input as one JSON text
//! on its standard input; what it prints is the result a model reads. An exit status other than 0
//! is a result that errs (`is_error`), with what it printed on both outputs; a program that cannot
//! be started is `outcome: failed`. When the call is canceled the whole group is ended.

use std::process::Stdio;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command as Process};

use crate::domain::Value;
use crate::runner::{Ctx, Output, Tool};

/// The most of each output that is kept: the kernel takes results up to 1 MiB.
const KEPT: usize = 400_000;
/// How long a group may take to end after it was asked to.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// A program as a tool.
#[derive(Debug, Clone)]
pub struct Command {
    line: String,
}

impl Command {
    /// The shell command `line`.
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into() }
    }
}

impl Tool for Command {
    fn call(&self, ctx: Ctx, input: Value) -> BoxFuture<'static, Output> {
        let line = self.line.clone();
        Box::pin(async move {
            let started = start(&line, &ctx);
            match started {
                Ok(child) => attend(child, &ctx, &input).await,
                Err(e) => Output::failed(format!("the command cannot be started: {e}")),
            }
        })
    }
}

fn start(line: &str, ctx: &Ctx) -> std::io::Result<Child> {
    Process::new("sh")
        .args(["-c", line])
        .env("NEXUS_RUN", ctx.run_public_id())
        .env("NEXUS_TASK", ctx.task_key())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

async fn attend(mut child: Child, ctx: &Ctx, input: &Value) -> Output {
    let text = serde_json::to_vec(input).unwrap_or_default();
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read its input has not failed.
            let _ = stdin.write_all(&text).await;
        }
    };
    let group = child.id();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let work = async {
        let ((), out, err) = tokio::join!(feed, kept(stdout), kept(stderr));
        (child.wait().await, out, err)
    };
    let mut work = std::pin::pin!(work);
    let (status, out, err) = tokio::select! {
        done = &mut work => done,
        () = ctx.canceled().cancelled() => {
            signal(group, "-TERM").await;
            if tokio::time::timeout(TERM_GRACE, &mut work).await.is_err() {
                signal(group, "-KILL").await;
            }
            return Output::error("canceled");
        }
    };
    match status {
        Ok(status) if status.success() => Output::text(out),
        Ok(status) => Output::error(format!("{}{}({status})", line(&out), line(&err))),
        Err(e) => Output::failed(format!("the command was lost: {e}")),
    }
}

/// The text as whole lines.
fn line(text: &str) -> String {
    match text.trim_end() {
        "" => String::new(),
        text => format!("{text}\n"),
    }
}

/// Signals the whole group; this program itself may not (no `unsafe`), so it asks `kill`.
async fn signal(group: Option<u32>, signal: &str) {
    if let Some(group) = group {
        let target = format!("-{group}");
        let kill = Process::new("kill").args([signal, "--", &target]).status();
        if let Err(e) = kill.await {
            tracing::warn!("a canceled command cannot be ended: {e}");
        }
    }
}

/// All of an output is read, [`KEPT`] bytes of it are kept; what is no text is replaced, U+0000
/// too, since no result may carry it.
async fn kept(output: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut output) = output else {
        return String::new();
    };
    let mut bytes = Vec::new();
    let mut more = false;
    let mut piece = [0; 8192];
    while let Ok(n @ 1..) = output.read(&mut piece).await {
        let room = KEPT.saturating_sub(bytes.len()).min(n);
        bytes.extend_from_slice(&piece[..room]);
        more |= room < n;
    }
    let mut text = String::from_utf8_lossy(&bytes).replace('\0', "\u{FFFD}");
    if more {
        text.push_str("\n[cut here]");
    }
    text
}
