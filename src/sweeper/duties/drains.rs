//! `drains`: graceful stops that have gone on for a day are forced (`runs.md` §7).

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

const PAGE: usize = 64;

/// The duty.
#[derive(Default)]
pub struct Drains {
    backoff: Backoff<(AccountId, RunId)>,
}

impl Duty for Drains {
    fn name(&self) -> &'static str {
        "drains"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        self.batch(cx).boxed()
    }
}

impl Drains {
    async fn batch(&mut self, cx: &Cx) -> Result<Pass, Error> {
        let resting = self.backoff.resting(Instant::now());
        let resting: Vec<RunId> = resting.into_iter().map(|(_, run)| run).collect();
        let page = due::drains(&cx.store, cx.part, &resting, PAGE).await?;
        let more = page.len() == PAGE;
        let work = page
            .into_iter()
            .map(|owed| ((owed.account, owed.run), owed.run_id))
            .collect();
        let rows = settle::run(
            cx,
            "drains",
            &mut self.backoff,
            work,
            |settle, (account, _), run| settle.drain(account, run),
        );
        Ok(Pass {
            rows: rows.await,
            more,
            lag: Duration::ZERO,
        })
    }
}
