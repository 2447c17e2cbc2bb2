//! The `nexus` binary: arguments, configuration, then the library.

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use nexus::config::{self, Config, Source};
use nexus::serve::options;
use nexus::store::migrate;
use nexus::telemetry::{self, chain};

/// Many small, short-lived allocations on many threads: measurably better than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a command came to (`conventions.md` §1).
const FAILED: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // Two providers could be linked; this is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let command = Command::new("nexus")
        .version(env!("CARGO_PKG_VERSION"))
        .about("The server-side kernel on which agent applications run their work")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(options::serve_command())
        .subcommand(options::migrate_command());
    let outcome = match command.get_matches().subcommand() {
        Some(("serve", matches)) => serve(matches),
        Some(("migrate", matches)) => migrate(matches),
        _ => Ok(ExitCode::from(USAGE)),
    };
    outcome.unwrap_or_else(|problem| {
        eprintln!("nexus: {problem}");
        ExitCode::from(USAGE)
    })
}

fn serve(matches: &ArgMatches) -> Result<ExitCode, config::Error> {
    let source = options::source(matches, Source::environment())?;
    let config = Config::from_source(&source)?;
    if matches.get_flag("print-config") {
        print!("{}", options::shown(&source));
        return Ok(ExitCode::SUCCESS);
    }
    runtime()?.block_on(nexus::serve::serve(config))?;
    Ok(ExitCode::SUCCESS)
}

fn migrate(matches: &ArgMatches) -> Result<ExitCode, config::Error> {
    let source = options::source(matches, Source::environment())?;
    let database = config::database(&source)?;
    telemetry::init(&config::log(&source)?)?;
    let check = matches.get_flag("check");
    let standing = runtime()?.block_on(async {
        if check {
            migrate::check(&database).await
        } else {
            migrate::migrate(&database).await
        }
    });
    match standing {
        Ok(standing) => {
            let (current, known) = (standing.current, standing.known);
            println!("the schema is at version {current}; this program knows {known}");
            Ok(if standing.is_ready() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(FAILED)
            })
        }
        Err(error) => {
            eprintln!("nexus: {}", chain(&error));
            Ok(ExitCode::from(FAILED))
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, config::Error> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| config::Error::new("nexus", format!("cannot start threads: {e}")))
}
