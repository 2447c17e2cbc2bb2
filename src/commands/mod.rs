//! Commands: one file a verb, each one transaction. A file says only what to load and which
//! decision to ask; the [`lane`] runs commands alone or in batches.
//!
//! Knows the engine, the store and the bus. Does not know axum, status codes, SQL.
//!
//! Invariants: a command runs to its end once it has begun, whoever hung up; hints leave after the
//! commit and never fail it.

pub mod announce;
pub mod claim;
pub mod commit;
pub mod create;
pub mod discover;
pub mod expire;
pub mod extend;
pub mod inbox;
pub mod lane;
pub mod provision;
pub mod revoke;
pub mod schedule;
pub mod start;
pub mod stop;
pub(crate) mod transaction;

use crate::store;

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
