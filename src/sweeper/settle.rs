//! The commands that duties ask, behind a trait so that a test can count and disturb them; and the
//! running of a batch of them.
//!
//! Invariants: one settle in flight per key; four in flight per batch; an error or a panic of one
//! stops no other; nothing new is begun once the lease cannot be relied on.

use std::hash::Hash;
use std::panic::AssertUnwindSafe;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use tokio::time::Instant;

use super::backoff::{Backoff, Try};
use super::lead::Cx;
use crate::app::App;
use crate::commands;
use crate::domain::hint::{Hint, WakeRole};
use crate::domain::{AccountId, ExecutorId, PublicId, TaskNo};
use crate::store;
use crate::store::leaving::Lost;
use crate::store::uploads::BlobRef;
use crate::telemetry::chain;

/// Settles in flight within one batch.
const IN_FLIGHT: usize = 4;

/// What a settle gives: rows settled.
pub type Settled<'a> = BoxFuture<'a, Result<usize, store::Error>>;

/// The commands of sweeping. Each re-checks everything under the run lock.
pub trait Settle: Send + Sync + 'static {
    /// Settles what is due among these tasks of a run.
    fn expire(&self, account: AccountId, run: PublicId, tasks: Vec<TaskNo>) -> Settled<'_>;
    /// Starts what is ready in a run.
    fn schedule(&self, account: AccountId, run: PublicId) -> Settled<'_>;
    /// Judges whether a failure holds a run.
    fn hold(&self, _account: AccountId, _run: PublicId) -> Settled<'_> {
        std::future::ready(Ok(0)).boxed()
    }
    /// Settles up to `limit` rows of an executor that leaves.
    fn revoke(&self, account: AccountId, executor: ExecutorId, limit: usize) -> Settled<'_>;
    /// Stops up to `limit` live runs under a suspension.
    fn lose(&self, _lost: Lost, _limit: usize) -> Settled<'_> {
        std::future::ready(Ok(0)).boxed()
    }
    /// Takes away the bytes of a file that is marked as reclaimed, then its row.
    fn reclaim(&self, blob: BlobRef) -> Settled<'_>;
    /// Forces the graceful stop of a run that has gone on for too long.
    fn drain(&self, _account: AccountId, _run: PublicId) -> Settled<'_> {
        std::future::ready(Ok(0)).boxed()
    }
    /// Tells other candidates that a lease is free. A hint: nothing depends on it.
    fn nudge(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// The real ones.
pub struct Commands(App);

impl Commands {
    /// The commands of that replica.
    pub fn new(app: App) -> Self {
        Self(app)
    }
}

impl Settle for Commands {
    fn expire(&self, account: AccountId, run: PublicId, tasks: Vec<TaskNo>) -> Settled<'_> {
        commands::expire::expire(&self.0, account, run, tasks).boxed()
    }

    fn schedule(&self, account: AccountId, run: PublicId) -> Settled<'_> {
        commands::schedule::schedule(&self.0, account, run).boxed()
    }

    fn hold(&self, account: AccountId, run: PublicId) -> Settled<'_> {
        self.0.holds.judge(account, run).boxed()
    }

    fn revoke(&self, account: AccountId, executor: ExecutorId, limit: usize) -> Settled<'_> {
        commands::revoke::settle(&self.0, account, executor, limit).boxed()
    }

    fn lose(&self, lost: Lost, limit: usize) -> Settled<'_> {
        commands::authority::settle(&self.0, lost, limit).boxed()
    }

    fn reclaim(&self, blob: BlobRef) -> Settled<'_> {
        async move {
            commands::upload::reclaim(&self.0, &blob).await?;
            Ok(1)
        }
        .boxed()
    }

    fn drain(&self, account: AccountId, run: PublicId) -> Settled<'_> {
        commands::stop::long_drain(&self.0, account, run).boxed()
    }

    fn nudge(&self) -> BoxFuture<'_, ()> {
        self.0
            .bus
            .announce(vec![Hint::Wake(WakeRole::Sweeper)])
            .boxed()
    }
}

/// Runs a batch: `settle` once for each piece of work. Rows settled.
pub(super) async fn run<K, W>(
    cx: &Cx,
    sweep: &'static str,
    backoff: &mut Backoff<K>,
    work: Vec<(K, W)>,
    settle: impl for<'a> Fn(&'a dyn Settle, K, W) -> Settled<'a> + Sync,
) -> usize
where
    K: Hash + Eq + Copy + std::fmt::Debug + Send,
    W: Send,
{
    let settle = &settle;
    let outcomes: Vec<(K, Try, usize)> = stream::iter(work)
        .map(|(key, work)| async move {
            if !cx.hold.stands() {
                return None;
            }
            let tried = AssertUnwindSafe(settle(cx.settle.as_ref(), key, work)).catch_unwind();
            Some(outcome(sweep, key, tried.await))
        })
        .buffer_unordered(IN_FLIGHT)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let mut settled = 0;
    let mut failed = 0;
    let now = Instant::now();
    for (key, outcome, rows) in outcomes {
        backoff.note(key, outcome, now);
        settled += rows;
        failed += usize::from(outcome == Try::Failed);
    }
    super::lead::count(sweep, "settled", settled);
    super::lead::count(sweep, "failed", failed);
    settled
}

fn outcome<K: std::fmt::Debug>(
    sweep: &'static str,
    key: K,
    tried: std::thread::Result<Result<usize, store::Error>>,
) -> (K, Try, usize) {
    match tried {
        Ok(Ok(0)) => (key, Try::Nothing, 0),
        Ok(Ok(rows)) => (key, Try::Done, rows),
        Ok(Err(fault)) => {
            tracing::warn!(sweep, ?key, error = chain(&fault), "a settle failed");
            (key, Try::Failed, 0)
        }
        Err(_) => {
            tracing::error!(sweep, ?key, "a settle panicked");
            (key, Try::Failed, 0)
        }
    }
}
