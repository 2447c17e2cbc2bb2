//! What the parts of a runner share: its client, its places, what is held, and the signals between
//! them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::courier::Courier;
use super::work::Tool;
use super::{Error, Report, Timing};
use crate::client::Client;

/// A served tool: the budget it announced, and its handler.
pub(super) type Served = (Option<u64>, Arc<dyn Tool>);

/// The shared middle of a runner.
pub(super) struct Hub {
    pub(super) client: Client,
    pub(super) tools: HashMap<String, Served>,
    pub(super) timing: Timing,
    pub(super) courier: Courier,
    /// Free places.
    pub(super) places: Arc<Semaphore>,
    /// Something may be claimable.
    pub(super) work: Notify,
    /// The inbox is to be read from the start: the subscription is attached (again), or will never
    /// be.
    pub(super) look: Notify,
    held: Mutex<HashMap<u64, Held>>,
    next_hold: AtomicU64,
    stop: CancellationToken,
    cut: CancellationToken,
    unauthorized: AtomicBool,
    pub(super) counts: Counts,
}

struct Held {
    run: String,
    task_key: String,
    check: Arc<Notify>,
}

/// What is counted for the report.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) claimed: AtomicU64,
    pub(super) committed: AtomicU64,
    pub(super) canceled: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) abandoned: AtomicU64,
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Hub {
    pub(super) fn new(
        client: Client,
        tools: HashMap<String, Served>,
        places: usize,
        timing: Timing,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            tools,
            timing,
            courier: Courier::new(),
            places: Arc::new(Semaphore::new(places)),
            work: Notify::new(),
            look: Notify::new(),
            held: Mutex::default(),
            next_hold: AtomicU64::new(0),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
            unauthorized: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    /// Takes no new work from now on.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Ready once no new work is taken.
    pub(super) async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Ends what still runs.
    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    /// Ready once what still runs is to end.
    pub(super) async fn cutting(&self) {
        self.cut.cancelled().await;
    }

    /// The credential is dead: no new work, and the runner ends.
    pub(super) fn unauthorized(&self) {
        self.unauthorized.store(true, Ordering::Release);
        self.stop();
    }

    pub(super) fn is_unauthorized(&self) -> bool {
        self.unauthorized.load(Ordering::Acquire)
    }

    /// What `serve` answers.
    pub(super) fn outcome(&self) -> Result<Report, Error> {
        if self.is_unauthorized() {
            return Err(Error::Unauthorized);
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(Report {
            claimed: read(&self.counts.claimed),
            committed: read(&self.counts.committed),
            canceled: read(&self.counts.canceled),
            refused: read(&self.counts.refused),
            abandoned: read(&self.counts.abandoned),
        })
    }

    /// Enters a claim, so that a cancellation of its row reaches it. One row may be held twice: a
    /// retry re-issues the key while the old handler still ends.
    pub(super) fn hold(self: &Arc<Self>, run: &str, task_key: &str) -> Hold {
        let id = self.next_hold.fetch_add(1, Ordering::Relaxed);
        let check = Arc::new(Notify::new());
        let held = Held {
            run: run.to_owned(),
            task_key: task_key.to_owned(),
            check: Arc::clone(&check),
        };
        self.held().insert(id, held);
        Hold {
            hub: Arc::clone(self),
            id,
            check,
        }
    }

    /// Has every held claim of this row read now.
    pub(super) fn check(&self, run: &str, task_key: &str) {
        for held in self.held().values() {
            if held.run == run && held.task_key == task_key {
                held.check.notify_one();
            }
        }
    }

    /// Has every held claim read now: frames may have been missed.
    pub(super) fn check_all(&self) {
        for held in self.held().values() {
            held.check.notify_one();
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One entered claim; dropped, it is forgotten.
pub(super) struct Hold {
    hub: Arc<Hub>,
    id: u64,
    /// Notified when the claim is to be read.
    pub(super) check: Arc<Notify>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.hub.held().remove(&self.id);
    }
}
