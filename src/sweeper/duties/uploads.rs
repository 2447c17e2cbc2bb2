//! `uploads`: files that nothing was bound to for a day are reclaimed: marked, then their bytes go,
//! wherever they are, then their rows (`executor.md` §13).
//!
//! Invariants: a file whose place cannot be used hides none behind it: the page goes on, to the end of
//! the order, before it begins again.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::super::backoff::Backoff;
use super::super::lead::Cx;
use super::super::settle;
use super::{Duty, Pass};
use crate::domain::{AccountId, UploadId};
use crate::store::retention::UploadKey;
use crate::store::{Error, retention};

const BATCH: i64 = 500;

/// The duty.
#[derive(Default)]
pub struct Uploads {
    /// Where the last page ended, while the order goes on behind it.
    after: Option<UploadKey>,
    backoff: Backoff<(AccountId, UploadId)>,
}

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
            let marked = retention::uploads(&cx.store, cx.part, self.after, BATCH).await?;
            self.after = marked.next;
            let work = marked
                .blobs
                .into_iter()
                .map(|blob| ((blob.account, blob.id), blob))
                .collect();
            let rows = settle::run(cx, "uploads", &mut self.backoff, work, |settle, _, blob| {
                settle.reclaim(blob)
            })
            .await;
            Ok(Pass {
                rows,
                more: self.after.is_some(),
                lag: marked.late,
            })
        }
        .boxed()
    }
}
