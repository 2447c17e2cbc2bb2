//! `tombstones`: the rows of runs that were deleted thirty days ago are reclaimed (`runs.md` §14).

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::super::lead::Cx;
use super::{Duty, Pass};
use crate::store::{Error, tombstones};

/// Runs of one pass.
const BATCH: i64 = 100;

/// The duty.
pub struct Tombstones;

impl Duty for Tombstones {
    fn name(&self) -> &'static str {
        "tombstones"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn deletes(&self) -> bool {
        true
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        async move {
            let (gone, more) = tombstones::reclaim(&cx.store, cx.part, BATCH).await?;
            Ok(Pass {
                rows: gone.rows,
                more,
                lag: gone.late,
            })
        }
        .boxed()
    }
}
