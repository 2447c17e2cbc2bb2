//! A transaction of several statements, begun by a request: it runs to its end whether or not the
//! client still waits, and again when the database chose it to give way.
//!
//! For writes outside a run; commands on runs have lanes.

use std::future::Future;

use crate::store;

/// How often a transaction that had to give way is run again (`conventions.md` §3).
const RETRIES: usize = 3;

/// An error that may carry a fault of the store.
pub(crate) trait Failure: From<store::Error> + Send + 'static {
    /// The fault, if it is one.
    fn fault(&self) -> Option<&store::Error>;
}

impl Failure for store::Error {
    fn fault(&self) -> Option<&store::Error> {
        Some(self)
    }
}

/// Runs it in a task of its own: a dropped caller does not cut it.
pub(crate) async fn to_its_end<T, E, W, F>(work: W) -> Result<T, E>
where
    T: Send + 'static,
    E: Failure,
    W: Fn() -> F + Send + 'static,
    F: Future<Output = Result<T, E>> + Send,
{
    let task = tokio::spawn(async move {
        let mut left = RETRIES;
        loop {
            let done = work().await;
            if left == 0 || !gave_way(&done) {
                return done;
            }
            left -= 1;
        }
    });
    match task.await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(ended) => Err(store::Error::Unavailable(Box::new(ended)).into()),
        },
    }
}

fn gave_way<T, E: Failure>(done: &Result<T, E>) -> bool {
    let fault = done.as_ref().err().and_then(Failure::fault);
    fault.is_some_and(|f| f.remedy() == store::Remedy::RunAgain)
}
