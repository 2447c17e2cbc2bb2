//! `ready`: runs that are owed a scheduling pass get it; repairs wakes that were lost
//! (`admission.md` §8). Among those: a call was claimed, and nobody judged whether a failure holds its
//! run now (`engine.md` §7).

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use tokio::time::Instant;

use super::super::backoff::Backoff;
use super::super::lead::Cx;
use super::super::settle;
use super::{Duty, Pass};
use crate::domain::{AccountId, RunId};
use crate::store::Error;
use crate::store::due;

const PAGE: usize = 256;

/// The duty.
#[derive(Default)]
pub struct Ready {
    /// The lowest account of the last page; accounts below it are next.
    below: Option<AccountId>,
    /// Whether this rotation over the accounts did something.
    progress: bool,
    backoff: Backoff<(AccountId, RunId)>,
    /// The last run of the last page of those that a failure may hold.
    judged: Option<RunId>,
    holds: Backoff<(AccountId, RunId)>,
}

impl Duty for Ready {
    fn name(&self) -> &'static str {
        "ready"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        self.batch(cx).boxed()
    }
}

impl Ready {
    async fn batch(&mut self, cx: &Cx) -> Result<Pass, Error> {
        let resting: Vec<RunId> = self
            .backoff
            .resting(Instant::now())
            .into_iter()
            .map(|(_, run)| run)
            .collect();
        let (page, last) = due::schedulable(&cx.store, cx.part, self.below, &resting, PAGE).await?;
        self.below = last;
        let work = page
            .into_iter()
            .map(|owed| ((owed.account, owed.run), owed.run_id))
            .collect();
        let rows = settle::run(
            cx,
            "ready",
            &mut self.backoff,
            work,
            |settle, (account, _), run| settle.schedule(account, run),
        )
        .await;
        let (held, more_holds) = self.hold(cx).await?;
        self.progress |= rows > 0;
        // A rotation over all accounts ends with an empty page; another follows at once while it
        // pays, since each takes only some runs of an account.
        let more = last.is_some() || std::mem::take(&mut self.progress);
        Ok(Pass {
            rows: rows + held,
            more: more || more_holds,
            lag: Duration::ZERO,
        })
    }

    /// Judges a page of runs; says how many, and whether another page follows.
    async fn hold(&mut self, cx: &Cx) -> Result<(usize, bool), Error> {
        let (page, last) = due::unjudged(&cx.store, cx.part, self.judged, PAGE).await?;
        self.judged = last;
        let now = Instant::now();
        let work = page
            .into_iter()
            .map(|owed| ((owed.account, owed.run), owed.run_id))
            .filter(|(key, _)| !self.holds.rests(key, now))
            .collect();
        let held = settle::run(
            cx,
            "ready",
            &mut self.holds,
            work,
            |settle, (account, _), run| settle.hold(account, run),
        );
        Ok((held.await, last.is_some()))
    }
}
