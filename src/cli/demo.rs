//! `nexus demo`: the demo account of a running server (`operating.md` §2).

use super::{Context, Failure};
use crate::dev::demo;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Makes the demo account unless it is there, with new tokens; prints one JSON object
    Provision,
}

/// Does it.
///
/// # Errors
/// [`Failure`].
pub async fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Provision => {
            let operator = context.operator()?;
            let token = context
                .connection
                .operator_token
                .as_deref()
                .unwrap_or_default();
            let demo = demo::provision(&operator, token).await?;
            println!("{}", serde_json::to_string(&demo).expect("texts serialise"));
            Ok(())
        }
    }
}
