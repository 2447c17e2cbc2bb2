//! `credentials`: tokens that have been dead for thirty days are deleted (`admission.md` §8).

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::super::lead::Cx;
use super::{Duty, Pass};
use crate::domain::AccountId;
use crate::store::{Error, retention};

const BATCH: i64 = 500;

/// The duty.
#[derive(Default)]
pub struct Credentials {
    /// Where the last window ended.
    after: Option<(AccountId, i64)>,
}

impl Duty for Credentials {
    fn name(&self) -> &'static str {
        "credentials"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn deletes(&self) -> bool {
        true
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        async move {
            let after = self.after.unwrap_or((AccountId(0), 0));
            let (tokens, next) = retention::tokens(&cx.store, cx.part, after, BATCH).await?;
            self.after = next;
            let operators = retention::operator_tokens(&cx.store, cx.part, BATCH).await?;
            Ok(Pass {
                rows: tokens + operators,
                more: next.is_some() || i64::try_from(operators).is_ok_and(|n| n == BATCH),
                lag: Duration::ZERO,
            })
        }
        .boxed()
    }
}
