//! The `nexus` binary: arguments, then the library.
//!
//! Commands that a process *is* (`serve`, `migrate`, `operator-token`, `dev`) read the configuration;
//! `openapi` prints a text; commands that a person types at a server (`runs`, `inbox`, `admin`, `runner`, `demo`) are `nexus::cli`.

use std::process::ExitCode;

use clap::{ArgMatches, Args as _, Command, CommandFactory as _, FromArgMatches as _};
use nexus::cli::{self, Cli};
use nexus::commands::provision::{self, tokens};
use nexus::config::{self, Config, Source};
use nexus::dev::{run, test_services};
use nexus::serve::options;
use nexus::store::{Store, migrate};
use nexus::telemetry::{self, chain};

/// Many small, short-lived allocations on many threads: measurably better than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a command came to (`conventions.md` §1).
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NOT_FOUND: u8 = 3;

fn main() -> ExitCode {
    // Two providers could be linked; this is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let own = own_commands();
    let is_own = std::env::args()
        .nth(1)
        .is_some_and(|word| own.iter().any(|command| command.get_name() == word));
    if is_own { run_own(own) } else { run_typed(own) }
}

/// What this process can be.
fn own_commands() -> Vec<Command> {
    vec![
        options::serve_command(),
        options::migrate_command(),
        options::operator_token_command(),
        Command::new("openapi").about("Prints the OpenAPI 3.1 document of all doors"),
        run::Arguments::augment_args(
            Command::new("dev")
                .about("Private servers, a replica, a runner and a demo run; until Ctrl-C"),
        ),
        test_services::Arguments::augment_args(
            Command::new("test-services")
                .about("One PostgreSQL and one Redis for a whole test run")
                .hide(true),
        ),
    ]
}

fn run_own(own: Vec<Command>) -> ExitCode {
    let matches = Command::new("nexus")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .subcommands(own)
        .get_matches();
    let outcome = match matches.subcommand() {
        Some(("serve", matches)) => serve(matches),
        Some(("migrate", matches)) => migrate(matches),
        Some(("operator-token", matches)) => operator_token(matches),
        Some(("openapi", _)) => openapi(),
        Some(("dev", matches)) => dev(matches),
        Some(("test-services", matches)) => test_servers(matches),
        _ => Ok(ExitCode::from(USAGE)),
    };
    outcome.unwrap_or_else(|problem| {
        eprintln!("nexus: {problem}");
        ExitCode::from(USAGE)
    })
}

/// Commands of the client; the own ones stand beside them in `--help`.
fn run_typed(own: Vec<Command>) -> ExitCode {
    let stubs = own.into_iter().map(|command| {
        let stub = Command::new(command.get_name().to_owned()).hide(command.is_hide_set());
        match command.get_about() {
            Some(about) => stub.about(about.clone()),
            None => stub,
        }
    });
    let matches = Cli::command().subcommands(stubs).get_matches();
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli::main(cli),
        Err(error) => error.exit(),
    }
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
        Err(error) => Ok(failed(&error)),
    }
}

/// Bootstrap: the first operator token of a deployment can be asked of no server.
fn operator_token(matches: &ArgMatches) -> Result<ExitCode, config::Error> {
    let Some((verb, matches)) = matches.subcommand() else {
        return Ok(ExitCode::from(USAGE));
    };
    let source = options::source(matches, Source::environment())?;
    let store = Store::new(&config::database(&source)?)?;
    let text = |name: &str| {
        let given = matches.try_get_one::<String>(name).ok().flatten();
        given.cloned().unwrap_or_default()
    };
    let outcome = runtime()?.block_on(async {
        match verb {
            "create" => tokens::create_operator(&store, &text("label"))
                .await
                .map(|token| ("token", token)),
            _ => tokens::revoke_operator(&store, &text("lookup"))
                .await
                .map(|()| ("revoked", text("lookup"))),
        }
    });
    match outcome {
        Ok((name, value)) if matches.get_flag("json") => {
            println!("{}", serde_json::json!({ name: value }));
            Ok(ExitCode::SUCCESS)
        }
        Ok((_, value)) => {
            println!("{value}");
            Ok(ExitCode::SUCCESS)
        }
        Err(provision::Error::Refused(_)) => {
            eprintln!("nexus: there is no operator token of that look-up part");
            Ok(ExitCode::from(NOT_FOUND))
        }
        Err(provision::Error::Fault(fault)) => Ok(failed(&fault)),
    }
}

/// What the server serves at `/openapi.json`, byte for byte.
fn openapi() -> Result<ExitCode, config::Error> {
    use std::io::Write as _;
    match std::io::stdout().write_all(nexus::http::openapi::text().as_bytes()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Ok(failed(&error)),
    }
}

fn dev(matches: &ArgMatches) -> Result<ExitCode, config::Error> {
    let arguments = run::Arguments::from_arg_matches(matches).unwrap_or_else(|e| e.exit());
    match runtime()?.block_on(run::run(arguments)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Ok(failed(&error)),
    }
}

fn test_servers(matches: &ArgMatches) -> Result<ExitCode, config::Error> {
    let arguments =
        test_services::Arguments::from_arg_matches(matches).unwrap_or_else(|e| e.exit());
    Ok(runtime()?.block_on(test_services::main(arguments)))
}

fn failed(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    eprintln!("nexus: {}", chain(error));
    ExitCode::from(FAILED)
}

fn runtime() -> Result<tokio::runtime::Runtime, config::Error> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| config::Error::new("nexus", format!("cannot start threads: {e}")))
}
