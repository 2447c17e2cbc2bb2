//! Commands: one file a verb, each one transaction. A file says only what to load and which
//! decision to ask; the [`lane`] runs commands alone or in batches.
//!
//! Knows the engine, the store and the bus. Does not know axum, status codes, SQL.
//!
//! Invariants: a command runs to its end once it has begun, whoever hung up; hints leave after the
//! commit and never fail it.

pub mod announce;
pub mod append;
pub mod approve;
pub mod attachment;
pub mod authority;
pub mod cancel;
pub mod claim;
pub mod claims;
pub mod commit;
mod contexts;
pub mod create;
pub mod default_runner;
pub mod delete;
pub mod discover;
pub mod expire;
pub mod extend;
pub mod hold;
pub mod inbox;
pub mod lane;
pub mod operations;
pub mod pause;
pub mod progress;
pub mod provision;
mod receipt;
pub mod repair;
pub mod resolve;
pub mod revoke;
mod routes;
pub mod schedule;
pub mod start;
pub mod stop;
pub(crate) mod transaction;
pub mod upload;

use crate::store::{self, Remedy};

/// How often a transaction that gave way is run again (`conventions.md` §3).
const RETRIES: usize = 3;

/// What a command may come to besides its answer.
#[derive(Debug)]
pub enum Error<R> {
    /// The protocol says no.
    Refused(R),
    /// The machinery failed.
    Fault(store::Error),
}

impl<R> From<store::Error> for Error<R> {
    fn from(fault: store::Error) -> Self {
        Self::Fault(fault)
    }
}

/// The run does not exist any more: there is nothing to do, which is no refusal to anybody.
struct Gone;

/// Does a transaction, again if it was chosen to give way, at most [`RETRIES`] times.
///
/// # Errors
/// Those of the last time.
async fn run_again<T, R, F>(mut work: impl FnMut() -> F) -> Result<T, Error<R>>
where
    F: Future<Output = Result<T, Error<R>>>,
{
    for _ in 0..RETRIES {
        match work().await {
            Err(Error::Fault(fault)) if fault.remedy() == Remedy::RunAgain => {}
            outcome => return outcome,
        }
    }
    work().await
}

/// Runs a piece of work to its end, even if whoever waits for it goes away: a dropped future
/// would leave a transaction in the middle.
///
/// # Errors
/// Those of the work; a panic inside it is [`store::Error::Unavailable`].
pub async fn to_the_end<T, R>(
    work: impl Future<Output = Result<T, Error<R>>> + Send + 'static,
) -> Result<T, Error<R>>
where
    T: Send + 'static,
    R: Send + 'static,
{
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(panic) => Err(Error::Fault(store::Error::Unavailable(Box::new(panic)))),
    }
}
