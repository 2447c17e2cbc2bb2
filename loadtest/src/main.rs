//! The command line of `nexus-loadtest`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nexus_loadtest::bench;
use nexus_loadtest::error::Error;
use nexus_loadtest::local::{self, Local};
use nexus_loadtest::report::{self, Finding, Report};
use nexus_loadtest::scenarios::{
    Size, chains, contention, fan_in, fleet, history, hot_run, lifecycle, limit, races,
};
use nexus_loadtest::world::Target;

/// Bounded load scenarios against a Nexus server, each checked afterwards.
///
/// Without --base-url it starts a private PostgreSQL, Redis and replica, and stops them again.
#[derive(Parser)]
#[command(name = "nexus-loadtest", version)]
struct Arguments {
    /// The server; several times for several replicas
    #[arg(long, global = true)]
    base_url: Vec<String>,
    /// An operator bearer of that server
    #[arg(
        long,
        global = true,
        env = "NEXUS_OPERATOR_TOKEN",
        hide_env_values = true
    )]
    operator_token: Option<String>,
    /// That server's database: runs are multiplied in its tables, and checks read all of them
    #[arg(
        long,
        global = true,
        env = "NEXUS_DATABASE_URL",
        hide_env_values = true
    )]
    database_url: Option<String>,
    /// The `nexus` to start where no server is given; the one beside this program by default
    #[arg(long, global = true)]
    server: Option<PathBuf>,
    /// Where private servers keep their data
    #[arg(long, global = true, default_value = ".nexus/loadtest")]
    dir: PathBuf,
    /// Write the report here, as JSON
    #[arg(long, global = true)]
    json: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// What the database can do without HTTP: the denominators
    Limit {
        #[command(flatten)]
        size: Size,
        /// Connections of the minimal lifecycle
        #[arg(long, default_value_t = 8)]
        connections: usize,
        /// Runs a transaction of the batched one
        #[arg(long, default_value_t = 32)]
        batch: usize,
    },
    /// Independent calls, claimed and committed
    Lifecycle {
        #[command(flatten)]
        size: Size,
        /// By inbox/claims, so many a call
        #[arg(long)]
        batch: Option<usize>,
        /// So many a second, whoever is busy (an open load)
        #[arg(long, conflicts_with = "batch")]
        rate: Option<f64>,
    },
    /// Runners racing for the same rows by single claims
    Contention {
        #[command(flatten)]
        size: Size,
    },
    /// Callers of inbox/claims on one inbox
    OneInbox {
        #[command(flatten)]
        size: Size,
        /// Rows a call
        #[arg(long, default_value_t = 16)]
        limit: usize,
    },
    /// One run with a wide fan
    HotRun {
        #[command(flatten)]
        size: Size,
        /// Calls of the run
        #[arg(long, default_value_t = 1000)]
        width: usize,
    },
    /// Fans of 32 with a follower
    FanIn {
        #[command(flatten)]
        size: Size,
    },
    /// Three calls in a row, end to end
    Chains {
        #[command(flatten)]
        size: Size,
    },
    /// Races of three calls
    Races {
        #[command(flatten)]
        size: Size,
    },
    /// Pushes across replicas: from a commit to the frame (the last of two replicas has the socket)
    Push {
        #[command(flatten)]
        size: Size,
    },
    /// Idle sockets, and all of them coming back at once
    Sockets {
        #[command(flatten)]
        size: Size,
        /// The replica's process, where it is not ours
        #[arg(long)]
        pid: Option<u32>,
    },
    /// One pool row at a time, claimed by every runner at one moment
    Herd {
        #[command(flatten)]
        size: Size,
        /// Rows
        #[arg(long, default_value_t = 20)]
        rounds: usize,
    },
    /// The same work before and after a long history
    History {
        #[command(flatten)]
        size: Size,
        /// Settled calls
        #[arg(long, default_value_t = 1_000_000)]
        settled: usize,
    },
    /// One, two, three replicas of our own
    Scale {
        #[command(flatten)]
        size: Size,
    },
    /// The set of `make bench`, on private servers
    Bench(bench::Options),
    /// Two reports, side by side
    Compare {
        /// The first
        a: PathBuf,
        /// The second
        b: PathBuf,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments).await {
        Ok(code) => code,
        Err(e) => {
            eprintln!("nexus-loadtest: {}", nexus::client::chain(&e));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    if let What::Compare { a, b } = &arguments.what {
        print!("{}", Report::read(a)?.compare(&Report::read(b)?));
        return Ok(ExitCode::SUCCESS);
    }
    let mut local = match arguments.base_url.is_empty() {
        true => {
            let program = match &arguments.server {
                Some(program) => program.clone(),
                None => local::beside()?,
            };
            Some(Local::start(&arguments.dir, &program).await?)
        }
        false => None,
    };
    let outcome = with_target(&arguments, local.as_mut()).await;
    if let Some(local) = local {
        local.stop().await;
    }
    let report = outcome?;
    if let Some(path) = &arguments.json {
        report.write(path)?;
    }
    Ok(if report.breaches().is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn target(arguments: &Arguments, local: Option<&Local>) -> Result<Target, Error> {
    if let Some(local) = local {
        return Ok(local.target());
    }
    let operator = arguments.operator_token.clone().ok_or_else(|| {
        Error::Setup("--base-url needs --operator-token (NEXUS_OPERATOR_TOKEN)".to_owned())
    })?;
    Ok(Target {
        urls: arguments.base_url.clone(),
        operator,
        database: arguments.database_url.clone(),
    })
}

async fn with_target(arguments: &Arguments, local: Option<&mut Local>) -> Result<Report, Error> {
    let findings = match (&arguments.what, local) {
        (What::Bench(options), Some(local)) => return bench::bench(local, options).await,
        (What::Scale { size }, Some(local)) => scale(local, *size).await?,
        (What::Bench(_) | What::Scale { .. }, None) => {
            return Err(Error::Setup(
                "this starts replicas of its own: leave --base-url away".to_owned(),
            ));
        }
        (what, mut local) => {
            if let (What::Push { .. }, Some(local)) = (what, local.as_deref_mut()) {
                local.replicate(2).await?;
            }
            let pid = local.as_ref().and_then(|l| l.pids().first().copied());
            findings(what, &target(arguments, local.map(|l| &*l))?, pid).await?
        }
    };
    for finding in &findings {
        print!("{}", report::text(finding));
    }
    Ok(Report {
        command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        findings,
        ..Report::default()
    })
}

/// The same load on one, two and three replicas.
async fn scale(local: &mut Local, size: Size) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for count in 1..=3 {
        local.replicate(count).await?;
        let mut finding = lifecycle::single(&local.target(), size, None).await?;
        finding.name = format!("scale/{count}");
        findings.push(finding);
    }
    Ok(findings)
}

async fn findings(
    what: &What,
    target: &Target,
    server: Option<u32>,
) -> Result<Vec<Finding>, Error> {
    Ok(match *what {
        What::Limit {
            size,
            connections,
            batch,
        } => vec![
            limit::minimal(target, size, connections).await?,
            limit::minimal(target, size, 1).await?,
            limit::batched(target, size, 4, batch).await?,
            limit::commands(target, size).await?,
        ],
        What::Lifecycle {
            size,
            batch: Some(batch),
            ..
        } => vec![lifecycle::batch(target, size, batch).await?],
        What::Lifecycle { size, rate, .. } => vec![lifecycle::single(target, size, rate).await?],
        What::Contention { size } => vec![contention::race(target, size).await?],
        What::OneInbox { size, limit } => vec![
            contention::one_inbox(target, size, 4, limit).await?,
            contention::one_inbox(target, size, size.runners, limit).await?,
        ],
        What::HotRun { size, width } => {
            let runs = size.units.div_ceil(width);
            vec![hot_run::hot_run(target, size, runs, width).await?]
        }
        What::FanIn { size } => vec![fan_in::fan_in(target, size).await?],
        What::Chains { size } => vec![chains::chains(target, size).await?],
        What::Races { size } => vec![races::races(target, size).await?],
        What::Push { size } => vec![fleet::push(target, size).await?],
        What::Sockets { size, pid } => {
            vec![fleet::sockets(target, size, size.units, pid.or(server)).await?]
        }
        What::Herd { size, rounds } => vec![fleet::herd(target, size, rounds).await?],
        What::History { size, settled } => {
            let (before, after) = history::history(target, size, settled).await?;
            vec![before, after]
        }
        What::Compare { .. } | What::Bench(_) | What::Scale { .. } => Vec::new(),
    })
}
