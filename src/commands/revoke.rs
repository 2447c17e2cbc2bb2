//! Revocation and shutdown of an executor converge in bounded batches (`executor.md` §19): one
//! command a run, under its lock, in paused runs too.

use super::lane::{Done, RunCommand};
use super::{Error, Gone};
use crate::app::App;
use crate::domain::hint::Hint;
use crate::domain::{AccountId, ExecutorId, TaskNo};
use crate::engine::mint::Mint;
use crate::engine::revoke;
use crate::store::{self, First, Locked, RunTarget};

struct Revoke {
    target: RunTarget,
    executor: ExecutorId,
    rows: Vec<TaskNo>,
}

impl RunCommand for Revoke {
    type Answer = usize;
    type Refusal = Gone;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Parked(self.rows.clone())
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<usize, Gone> {
        let mut failed = 0;
        for no in &self.rows {
            failed += usize::from(revoke::fail_unclaimed(
                &mut locked.graph,
                *no,
                self.executor,
            ));
        }
        Ok(failed)
    }

    fn no_run(&self) -> Gone {
        Gone
    }
}

/// Fails up to `limit` unclaimed rows of an executor that leaves; answers how many. When nothing
/// is left of it, marks it as gone.
///
/// # Errors
/// A fault.
pub async fn settle(
    app: &App,
    account: AccountId,
    executor: ExecutorId,
    limit: usize,
) -> Result<usize, store::Error> {
    let mut failed = 0;
    for (target, rows) in app
        .store
        .leaving_unclaimed(account, executor, limit)
        .await?
    {
        match app
            .lanes
            .execute(Revoke {
                target,
                executor,
                rows,
            })
            .await
        {
            Ok(Done { answer, .. }) => failed += answer,
            Err(Error::Refused(Gone)) => {}
            Err(Error::Fault(fault)) => return Err(fault),
        }
    }
    if let Some(subject) = app.store.leaving_done(account, executor).await? {
        app.bus
            .announce(vec![Hint::AuthorityChanged { subject }])
            .await;
    }
    Ok(failed)
}
