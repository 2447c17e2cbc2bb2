//! The `nexus` binary: arguments, configuration, then the library.

use std::process::ExitCode;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};
use nexus::config::{self, Config, Source};
use nexus::dev::test_services;
use nexus::serve::options;
use nexus::store::migrate;
use nexus::telemetry::{self, chain};

/// Many small, short-lived allocations on many threads: measurably better than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a command came to (`conventions.md` §1).
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// The commands of a server are dispatched here, by the first argument; a person's are
/// [`nexus::cli`]'s, whose global flags mean nothing to a server.
fn main() -> ExitCode {
    // Two providers could be linked; this is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let first = std::env::args().nth(1);
    let outcome = match first.as_deref() {
        Some("serve") => serve(&matches_of(options::serve_command())),
        Some("migrate") => migrate(&matches_of(options::migrate_command())),
        Some("test-services") => services(),
        _ => return nexus::cli::main(),
    };
    outcome.unwrap_or_else(|problem| {
        eprintln!("nexus: {problem}");
        ExitCode::from(USAGE)
    })
}

/// What follows the subcommand.
fn matches_of(command: Command) -> ArgMatches {
    let shown = format!("nexus {}", command.get_name());
    command
        .version(env!("CARGO_PKG_VERSION"))
        .bin_name(shown)
        .get_matches_from(std::env::args_os().skip(1))
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

fn services() -> Result<ExitCode, config::Error> {
    let about = "One PostgreSQL and one Redis for a whole test run";
    let command = Command::new("test-services").about(about);
    let matches = matches_of(test_services::Arguments::augment_args(command));
    match test_services::Arguments::from_arg_matches(&matches) {
        Ok(arguments) => Ok(runtime()?.block_on(test_services::main(arguments))),
        Err(usage) => usage.exit(),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, config::Error> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| config::Error::new("nexus", format!("cannot start threads: {e}")))
}
