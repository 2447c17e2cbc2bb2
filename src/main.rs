//! The `nexus` binary.

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "nexus")]
enum Arguments {
    /// One PostgreSQL and one Redis for a whole test run
    #[command(hide = true)]
    TestServices(nexus::dev::test_services::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    match Arguments::parse() {
        Arguments::TestServices(arguments) => nexus::dev::test_services::main(arguments).await,
    }
}
