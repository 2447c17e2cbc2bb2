//! Sweeping: what nobody asked for in time is done here, by whichever replica leads a partition
//! (`admission.md` §7-§10).
//!
//! Knows leases, duties and pace. Does not know any rule of settling: each duty finds rows and asks
//! a command, which derives everything again under the run lock.
//!
//! Invariants:
//! - leadership saves work and is never the safety argument: two leaders are harmless;
//! - a leader stops before its lease can end: no batch begins once 8/10 of its time have passed on
//!   the monotonic clock since the last renewal was **asked for**, and each batch first reads the
//!   lease row;
//! - the loops live through any error of the database and any panic of a duty;
//! - nothing that a duty remembers (cursors, failures) is needed: a new leader starts without it.

mod backoff;
pub mod duties;
mod lead;
mod lease;
mod pace;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::App;
use crate::store::due::Part;
use crate::store::{self, Store, leases};

pub use duties::{Duty, Pass};
pub use lead::Cx;
pub use lease::Hold;
pub use pace::Pace;
pub use settle::{Commands, Settle, Settled};

/// Batches a sweep may run before it lets the next one have its turn.
const BATCHES_A_TURN: usize = 20;

/// A replica's part in sweeping: stands for partitions, leads those it gets, until it is stopped.
#[derive(Clone)]
pub struct Sweeper {
    store: Store,
    settle: Arc<dyn Settle>,
    holder: Uuid,
    pace: Pace,
}

impl Sweeper {
    /// The sweeper of a replica.
    pub fn of(app: &App) -> Self {
        Self::new(
            app.store.clone(),
            Arc::new(Commands::new(app.clone())),
            app.replica_id,
            Pace::new(app.config.sweeper.ttl),
        )
    }

    /// A sweeper that settles by these commands.
    pub fn new(store: Store, settle: Arc<dyn Settle>, holder: Uuid, pace: Pace) -> Self {
        Self {
            store,
            settle,
            holder,
            pace,
        }
    }

    /// Runs until stopped; then ends the batches under way and gives its leases back.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let standing = tokio::spawn(lease::stand(self.clone(), stop.clone()));
            if standing.await.is_ok() || stop.is_cancelled() {
                return;
            }
            tracing::error!("standing for sweeping panicked; again soon");
            tokio::time::sleep(self.pace.retry()).await;
        }
    }

    /// Runs one cycle of a sweep now, over all rows, whoever leads: rows it acted on, or none when
    /// there is no such sweep. A cycle is bounded like a leader's turn.
    ///
    /// # Errors
    /// A fault of the database.
    pub async fn force(&self, sweep: &str) -> Result<Option<usize>, store::Error> {
        let Some(mut duty) = duties::all().into_iter().find(|d| d.name() == sweep) else {
            return Ok(None);
        };
        let cx = Cx {
            store: self.store.clone(),
            settle: self.settle.clone(),
            part: Part::WHOLE,
            hold: Hold::unbounded(),
        };
        let mut rows = 0;
        let mut lag = Duration::ZERO;
        for _ in 0..BATCHES_A_TURN {
            let pass = duty.run(&cx).await?;
            rows += pass.rows;
            lag = lag.max(pass.lag);
            if !pass.more {
                break;
            }
        }
        leases::swept(&self.store, sweep, "forced", rows, lag).await?;
        Ok(Some(rows))
    }
}
