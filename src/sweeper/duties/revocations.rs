//! `revocations`: rows of executors that were revoked or told to shut down settle, in recurring
//! bounded batches (`executor.md` §19).

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use tokio::time::Instant;

use super::super::backoff::Backoff;
use super::super::lead::Cx;
use super::super::settle;
use super::{Duty, Pass};
use crate::domain::{AccountId, ExecutorId};
use crate::store::Error;
use crate::store::due;

const PAGE: usize = 256;

/// Rows of one executor settled in one batch.
const ROWS: usize = 64;

/// The duty.
#[derive(Default)]
pub struct Revocations {
    after: Option<(AccountId, ExecutorId)>,
    backoff: Backoff<(AccountId, ExecutorId)>,
}

impl Duty for Revocations {
    fn name(&self) -> &'static str {
        "revocations"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        self.batch(cx).boxed()
    }
}

impl Revocations {
    async fn batch(&mut self, cx: &Cx) -> Result<Pass, Error> {
        let after = self.after.take().unwrap_or((AccountId(0), ExecutorId(0)));
        let page = due::leaving(&cx.store, cx.part, after, PAGE).await?;
        if page.len() == PAGE {
            self.after = page.last().copied();
        }
        let now = Instant::now();
        let work: Vec<_> = page
            .into_iter()
            .filter(|key| !self.backoff.rests(key, now))
            .map(|key| (key, ()))
            .collect();
        let rows = settle::run(
            cx,
            "revocations",
            &mut self.backoff,
            work,
            |settle, (account, executor), ()| settle.revoke(account, executor, ROWS),
        )
        .await;
        // An executor that waits for its claims to end settles nothing: it is looked at each tick,
        // not at once.
        Ok(Pass {
            rows,
            more: rows > 0 || self.after.is_some(),
            lag: Duration::ZERO,
        })
    }
}
