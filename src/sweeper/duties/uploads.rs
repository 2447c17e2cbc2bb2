//! `uploads`: files that nothing was bound to for a day are reclaimed, row and bytes
//! (`executor.md` §13).

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::super::lead::Cx;
use super::{Duty, Pass};
use crate::store::{Error, retention};

const BATCH: i64 = 500;

/// The duty.
pub struct Uploads;

impl Duty for Uploads {
    fn name(&self) -> &'static str {
        "uploads"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn deletes(&self) -> bool {
        true
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        async move {
            let (gone, more) = retention::uploads(&cx.store, cx.part, BATCH).await?;
            Ok(Pass {
                rows: gone.rows,
                more,
                lag: gone.late,
            })
        }
        .boxed()
    }
}
