//! `idempotency`: receipts past their day are deleted (`conventions.md` §8).

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::super::lead::Cx;
use super::{Duty, Pass};
use crate::store::{Error, retention};

const BATCH: i64 = 1000;

/// The duty.
pub struct Idempotency;

impl Duty for Idempotency {
    fn name(&self) -> &'static str {
        "idempotency"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(300)
    }

    fn deletes(&self) -> bool {
        true
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        async move {
            let gone = retention::receipts(&cx.store, cx.part, BATCH).await?;
            Ok(Pass {
                rows: gone.rows,
                more: i64::try_from(gone.rows).is_ok_and(|n| n == BATCH),
                lag: gone.late,
            })
        }
        .boxed()
    }
}
