//! `replicas`: replicas that were silent for ten minutes are forgotten (`admission.md` §8).

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::super::lead::Cx;
use super::{Duty, Pass};
use crate::store::{Error, retention};

const BATCH: i64 = 500;

/// The duty.
pub struct Replicas;

impl Duty for Replicas {
    fn name(&self) -> &'static str {
        "replicas"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn deletes(&self) -> bool {
        true
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        async move {
            let gone = retention::replicas(&cx.store, BATCH).await?;
            Ok(Pass {
                rows: gone.rows,
                more: i64::try_from(gone.rows).is_ok_and(|n| n == BATCH),
                lag: gone.late,
            })
        }
        .boxed()
    }
}
