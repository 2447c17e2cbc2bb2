//! What `make run` and `make test` need beyond a Rust toolchain (`operating.md` §1).
//!
//! - [`demo`] provisions a demo account and runs a demo run in it, over HTTP.
//! - [`run`] is `nexus dev`: all of it together, live in the terminal.
//! - [`services`] finds PostgreSQL and Redis server programs and runs private copies of them.
//! - [`test_services`] keeps such copies alive for a whole test run.
//!
//! Does not know: the schema, the protocol, HTTP. It opens connections only to see that a server
//! answers; what killed tests left behind is dropped by the store.

pub mod demo;
pub mod run;
pub mod services;
pub mod test_services;

use tokio::signal::unix::{SignalKind, signal};

/// Waits until somebody asks this program to stop: Ctrl-C, `kill`, or a closed terminal.
///
/// From the first call on these signals no longer end the program by themselves.
///
/// # Errors
/// The system refused to install a handler.
pub async fn stop_requested() -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    Ok(())
}
