//! `authority`: live runs of suspended accounts and members are stopped (`authority_lost`), until
//! none is left.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::super::backoff::Backoff;
use super::super::lead::Cx;
use super::super::settle;
use super::{Duty, Pass};
use crate::store::Error;
use crate::store::leaving::Lost;

/// Suspensions looked at in one batch.
const PAGE: usize = 64;

/// Runs stopped of one suspension in one batch.
const RUNS: usize = 32;

/// The duty.
#[derive(Default)]
pub struct Authority {
    after: Option<Lost>,
    backoff: Backoff<Lost>,
}

impl Duty for Authority {
    fn name(&self) -> &'static str {
        "authority"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        self.batch(cx).boxed()
    }
}

impl Authority {
    async fn batch(&mut self, cx: &Cx) -> Result<Pass, Error> {
        let after = self.after.take();
        let page = cx.store.lost_authority(cx.part, after, PAGE).await?;
        if page.len() == PAGE {
            self.after = page.last().copied();
        }
        let now = Instant::now();
        let work: Vec<_> = page
            .into_iter()
            .filter(|lost| !self.backoff.rests(lost, now))
            .map(|lost| (lost, ()))
            .collect();
        let rows = settle::run(
            cx,
            "authority",
            &mut self.backoff,
            work,
            |settle, lost, ()| settle.lose(lost, RUNS),
        )
        .await;
        // A suspension whose minute is not over stops nothing: it is looked at each tick, not at once.
        Ok(Pass {
            rows,
            more: rows > 0 || self.after.is_some(),
            lag: Duration::ZERO,
        })
    }
}
