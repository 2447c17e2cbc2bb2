//! `events`: items of a feed that are older than thirty days are deleted (`runs.md` §13, §14).
//! Sequences are never reused: the watermark is the run's.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::super::lead::Cx;
use super::{Duty, Pass};
use crate::domain::{AccountId, RunId};
use crate::store::{Error, retention};

/// Items of one pass, and hosts that it looks at.
const BATCH: i64 = 5000;
const HOSTS: i64 = 1000;

/// The duty.
#[derive(Default)]
pub struct Events {
    /// Where the last window of hosts ended.
    after: Option<(AccountId, RunId)>,
}

impl Duty for Events {
    fn name(&self) -> &'static str {
        "events"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn deletes(&self) -> bool {
        true
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        async move {
            let after = self.after.unwrap_or((AccountId(0), RunId(0)));
            let (gone, next) = retention::events(&cx.store, cx.part, after, HOSTS, BATCH).await?;
            let full = i64::try_from(gone.rows).is_ok_and(|n| n == BATCH);
            // A window with more than a batch is looked at again.
            if !full {
                self.after = next;
            }
            Ok(Pass {
                rows: gone.rows,
                more: full || next.is_some(),
                lag: gone.late,
            })
        }
        .boxed()
    }
}
