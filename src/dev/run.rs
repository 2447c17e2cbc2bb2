//! `nexus dev`, what `make run` runs after building: private servers, the schema, a replica, a
//! demo account, a runner, one demo run live in the terminal; then it stays up until Ctrl-C
//! (`operating.md` §1).
//!
//! Everything it starts it also stops, whatever ends it.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::demo::{self, Demo, Patience};
use super::services::{Profile, RedisNeed, Services, ServicesConfig, StartError};
use crate::cli::watch::Mode;
use crate::client::{self, Client};
use crate::config::{self, Config, Source};
use crate::engine::mint::Mint;
use crate::runner::{self, Runner, tools};
use crate::serve::Server;
use crate::store::migrate::{self, MigrateError};

/// The arguments of `nexus dev`.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Where the private servers and their data live
    #[arg(long, default_value = ".nexus/dev", value_name = "FOLDER")]
    pub dir: PathBuf,
    /// Where the API listens; a free port when that one is taken
    #[arg(
        long,
        env = "NEXUS_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    pub listen: SocketAddr,
    /// Where metrics are; a free port when that one is taken
    #[arg(
        long,
        env = "NEXUS_ADMIN_LISTEN",
        default_value = "127.0.0.1:9090",
        value_name = "ADDRESS"
    )]
    pub admin_listen: SocketAddr,
    /// Do not execute the demo run
    #[arg(long)]
    pub no_demo: bool,
    /// Stop once the demo run has ended, instead of staying up
    #[arg(long)]
    pub once: bool,
}

/// Why `nexus dev` ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The private servers.
    #[error("the servers did not start")]
    Services(#[from] StartError),
    /// The schema.
    #[error("the schema could not be made")]
    Migrate(#[from] MigrateError),
    /// The configuration.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The demo account or run.
    #[error("the demo failed")]
    Demo(#[from] client::Error),
    /// The demo runner.
    #[error("the demo runner ended")]
    Runner(#[from] runner::Error),
    /// The system.
    #[error("the system refused")]
    System(#[from] std::io::Error),
}

/// Runs until Ctrl-C.
///
/// # Errors
/// [`Error`]; what was started is stopped.
pub async fn run(arguments: Arguments) -> Result<(), Error> {
    let folder = arguments.dir.clone();
    let wanted = ServicesConfig::from_environment(folder, Profile::Dev, RedisNeed::Optional);
    println!(
        "starting PostgreSQL and Redis under {} …",
        arguments.dir.display()
    );
    let services = Services::start(wanted).await?;
    let outcome = with_services(&arguments, &services).await;
    services.stop().await;
    outcome
}

async fn with_services(arguments: &Arguments, services: &Services) -> Result<(), Error> {
    let operator = std::env::var("NEXUS_OPERATOR_TOKEN")
        .ok()
        .filter(|token| !token.is_empty())
        .unwrap_or_else(|| format!("dev-{}", Mint::new().base62(32)));
    let config = configuration(arguments, services, &operator)?;
    migrate::migrate(&config.database).await?;
    if config.redis.is_none() {
        println!("no Redis on this machine: hints stay within this process");
    }
    let server = Server::start_here(config).await?;
    server.ready().await;
    let outcome = with_server(arguments, &server, &operator).await;
    server.graceful_stop().await;
    outcome
}

/// The environment of a replica over the private servers; logs only what is wrong, so that the
/// live tree stays readable.
fn configuration(
    arguments: &Arguments,
    services: &Services,
    operator: &str,
) -> Result<Config, Error> {
    let mut source = Source::environment();
    source.set("NEXUS_DATABASE_URL", services.database_url());
    if let Some(redis) = services.redis_url() {
        source.set("NEXUS_REDIS_URL", redis);
    }
    source.set("NEXUS_LISTEN", free(arguments.listen).to_string());
    source.set(
        "NEXUS_ADMIN_LISTEN",
        free(arguments.admin_listen).to_string(),
    );
    source.set("NEXUS_OPERATOR_TOKEN", operator);
    if source.get("NEXUS_LOG").is_none() {
        source.set("NEXUS_LOG", "warn");
    }
    // Nobody waits for balancers on a laptop.
    if source.get("NEXUS_DRAIN_SECONDS").is_none() {
        source.set("NEXUS_DRAIN_SECONDS", "1");
    }
    let config = Config::from_source(&source)?;
    crate::telemetry::init(&config.log)?;
    Ok(config)
}

/// The address, or a free port beside it when somebody has it already.
fn free(wanted: SocketAddr) -> SocketAddr {
    match std::net::TcpListener::bind(wanted) {
        Ok(_) => wanted,
        Err(_) => SocketAddr::new(wanted.ip(), 0),
    }
}

async fn with_server(arguments: &Arguments, server: &Server, operator: &str) -> Result<(), Error> {
    let base_url = format!("http://{}", server.addr);
    let operator_client = Client::new(&base_url, operator)?;
    let demo = demo::provision(&operator_client, operator).await?;
    let notes = arguments.dir.join("notes");
    std::fs::create_dir_all(&notes)?;
    let runner = tools::write_note(
        tools::builtin(
            Runner::builder(Client::new(&base_url, &demo.executors.runner.token)?).concurrency(16),
        ),
        notes,
    )
    .build()?;
    let (stop_runner, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(runner.serve(async move {
        let _ = stopped.await;
    }));
    let outcome = at_work(arguments, server, &demo, serving).await;
    drop(stop_runner);
    outcome
}

async fn at_work(
    arguments: &Arguments,
    server: &Server,
    demo: &Demo,
    mut serving: tokio::task::JoinHandle<Result<runner::Report, runner::Error>>,
) -> Result<(), Error> {
    let stop = super::stop_requested();
    tokio::pin!(stop);
    let shown = async {
        if !arguments.no_demo {
            demo::announced(demo).await?;
            println!();
            demo::run_demo(demo, Patience::USUAL, Mode::Tree).await?;
        }
        print_guide(demo, server);
        if arguments.once {
            Ok(())
        } else {
            std::future::pending::<Result<(), Error>>().await
        }
    };
    tokio::select! {
        outcome = shown => outcome,
        stopped = &mut stop => Ok(stopped?),
        ended = &mut serving => match ended {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(panic) => Err(std::io::Error::other(panic).into()),
        },
    }
}

/// What a newcomer does next.
fn print_guide(demo: &Demo, server: &Server) {
    let bold = |text: &str| {
        if std::io::stdout().is_terminal() {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    };
    println!(
        "\n{}",
        bold("Nexus is up. Ctrl-C stops it and all that it started.")
    );
    println!(
        "  API       {}   (metrics http://{}/metrics)",
        demo.base_url, server.admin_addr
    );
    println!("  operator  {}", demo.operator_token);
    println!("\n{}", bold("For the examples of README.md:"));
    println!("  export NEXUS_BASE_URL={}", demo.base_url);
    println!("  export NEXUS_WORKSPACE={}", demo.workspace_public_id);
    println!("  export NEXUS_TOKEN={}", demo.human.token);
    println!("  export NEXUS_RUNNER={}", demo.executors.runner.public_id);
    println!(
        "  export NEXUS_PROVIDER_TOKEN={}",
        demo.executors.tool_provider.token
    );
}
