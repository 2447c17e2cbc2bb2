//! The command line: what a person types (`operating.md` §2), and its exit codes
//! (`conventions.md` §1): 0 done, 1 failed, 2 usage, 3 not found, 4 conflict.
//!
//! Every command is a function of its arguments and a [`Context`]; it talks to a server through
//! [`crate::client`] only. With `--json` a command prints the server's answer byte for byte.

pub mod admin;
pub mod demo;
pub mod inbox;
mod output;
pub mod refused;
pub mod runner;
pub mod runs;
pub mod watch;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use self::output::Output;
use crate::client::{Client, Error, RetryPolicy};

/// Nexus: durable task graphs, executed by runner fleets.
#[derive(Debug, Parser)]
#[command(name = "nexus", version, propagate_version = true)]
pub struct Cli {
    /// Where the server is and who asks.
    #[command(flatten)]
    pub connection: Connection,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where the server is and who asks.
#[derive(Debug, Clone, Args)]
pub struct Connection {
    /// The server's base URL.
    #[arg(
        long,
        global = true,
        env = "NEXUS_BASE_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub base_url: String,
    /// The bearer: a member's for runs, an executor's for runner.
    #[arg(
        long,
        global = true,
        env = "NEXUS_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,
    /// The operator's bearer, for admin.
    #[arg(
        long,
        global = true,
        env = "NEXUS_OPERATOR_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub operator_token: Option<String>,
    /// The workspace that runs are in.
    #[arg(long, global = true, env = "NEXUS_WORKSPACE", value_name = "ID")]
    pub workspace: Option<String>,
    /// Print the server's answers as JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs: list, show, watch, create, start, stop, …
    #[command(subcommand)]
    Runs(runs::Command),
    /// What waits for a person, or (with --executor) an executor's inbox
    Inbox(inbox::Command),
    /// Provisioning and observation, with the operator's token
    #[command(subcommand)]
    Admin(admin::Command),
    /// The reference runner: serves tools with an executor's token
    Runner(runner::Command),
    /// The demo account
    #[command(subcommand)]
    Demo(demo::Command),
}

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Error),
    /// Something needed was not given, or cannot be used.
    #[error("{0}")]
    Usage(String),
    /// It was done, and came to no good: the run was canceled, say.
    #[error("{0}")]
    Unsuccessful(String),
    /// The runner ended.
    #[error(transparent)]
    Runner(#[from] crate::runner::Error),
    /// Standard output is gone.
    #[error("standard output cannot be written: {0}")]
    Output(#[from] std::io::Error),
}

impl Failure {
    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Call(Error::Setup(_)) => 2,
            Self::Call(e) if e.status() == Some(404) => 3,
            Self::Call(e) if e.status() == Some(409) => 4,
            _ => 1,
        }
    }
}

/// What a command works with.
pub struct Context {
    connection: Connection,
    out: Output,
}

impl Context {
    /// For these flags.
    pub fn new(connection: Connection) -> Self {
        let out = Output {
            json: connection.json,
            quiet: false,
        };
        Self { connection, out }
    }

    /// A client with `--token`.
    ///
    /// # Errors
    /// [`Failure::Usage`] when there is none.
    pub fn client(&self) -> Result<Client, Failure> {
        self.with(self.connection.token.as_deref(), "--token or NEXUS_TOKEN")
    }

    /// A client with the operator's token.
    ///
    /// # Errors
    /// [`Failure::Usage`] when there is none.
    pub fn operator(&self) -> Result<Client, Failure> {
        let token = self.connection.operator_token.as_deref();
        self.with(token, "--operator-token or NEXUS_OPERATOR_TOKEN")
    }

    /// A person waits: what is safe to repeat is repeated for a few seconds, no longer.
    fn with(&self, token: Option<&str>, how: &str) -> Result<Client, Failure> {
        let token = token.ok_or_else(|| Failure::Usage(format!("a token is needed: {how}")))?;
        let client = Client::new(&self.connection.base_url, token)?;
        Ok(client.with_retry(RetryPolicy {
            attempts: 4,
            within: Duration::from_secs(5),
            ..RetryPolicy::default()
        }))
    }

    /// The workspace.
    ///
    /// # Errors
    /// [`Failure::Usage`] when there is none.
    pub fn workspace(&self) -> Result<&str, Failure> {
        let workspace = self.connection.workspace.as_deref();
        workspace.ok_or_else(|| {
            Failure::Usage("a workspace is needed: --workspace or NEXUS_WORKSPACE".to_owned())
        })
    }
}

/// Does what the arguments say, on a runtime of its own; answers the exit code.
pub fn main(cli: Cli) -> ExitCode {
    let json = cli.connection.json;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(e) => Err(Failure::Unsuccessful(format!("no runtime: {e}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            match refused::envelope(&failure).filter(|_| json) {
                Some(envelope) => eprintln!("{envelope}"),
                None => eprintln!("nexus: {}", refused::explain(&failure)),
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Does what was parsed.
///
/// # Errors
/// [`Failure`].
pub async fn run(cli: Cli) -> Result<(), Failure> {
    dispatch(&Context::new(cli.connection), cli.command).await
}

/// Does what somebody could have typed behind `nexus`, as `connection`, and prints nothing.
///
/// # Errors
/// [`Failure`]; [`Failure::Usage`] when nobody could.
pub async fn perform(connection: Connection, words: &[String]) -> Result<(), Failure> {
    let typed = std::iter::once("nexus").chain(words.iter().map(String::as_str));
    let cli = Cli::try_parse_from(typed).map_err(|e| Failure::Usage(e.to_string()))?;
    let mut context = Context::new(connection);
    context.out.quiet = true;
    dispatch(&context, cli.command).await
}

async fn dispatch(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Runs(command) => runs::run(context, command).await,
        Command::Inbox(command) => inbox::run(context, command).await,
        Command::Admin(command) => admin::run(context, command).await,
        Command::Runner(command) => runner::run(context, command).await,
        Command::Demo(command) => demo::run(context, command).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::domain::Value;

    fn api(status: u16) -> Failure {
        Failure::Call(Error::Api {
            status,
            code: "x".to_owned(),
            message: String::new(),
            retry_after: None,
            body: Box::new(Value::Null),
        })
    }

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn exit_codes_are_those_of_the_conventions() {
        assert_eq!(api(404).exit_code(), 3);
        assert_eq!(api(409).exit_code(), 4);
        assert_eq!(api(500).exit_code(), 1);
        assert_eq!(Failure::Usage(String::new()).exit_code(), 2);
        assert_eq!(Failure::Unsuccessful(String::new()).exit_code(), 1);
    }

    /// Tokens are base64url: they may begin with a dash.
    #[test]
    fn a_resolution_token_may_begin_with_a_dash() {
        let typed = "nexus runs answer r gate yes --resolution-token -abc --token t";
        let cli = Cli::try_parse_from(typed.split(' ')).unwrap();
        assert_eq!(cli.connection.token.as_deref(), Some("t"));
        assert!(format!("{:?}", cli.command).contains("Some(\"-abc\")"));
    }

    #[test]
    fn flags_may_follow_the_command() {
        let cli = Cli::try_parse_from([
            "nexus",
            "runs",
            "watch",
            "01a",
            "--json",
            "--workspace",
            "w",
            "--token",
            "t",
        ]);
        let cli = cli.unwrap();
        assert!(cli.connection.json);
        assert_eq!(cli.connection.workspace.as_deref(), Some("w"));
        assert!(Cli::try_parse_from(["nexus", "runs", "wotch"]).is_err());
    }
}
