//! Leading one partition: each duty has its turns, each batch looks at the fence first.
//!
//! Rotas run side by side: each duty that settles work has one of its own, so that however much there
//! is of one kind, or however long one settle takes, the others go on (a due park is settled whatever
//! leaves or was suspended); those that delete what is old share one.
//!
//! Invariants:
//! - an error of a batch ends that turn and nothing else;
//! - a full batch goes on at once, and after twenty the next duty has its turn;
//! - deletes pause between batches, and rest while settling lags.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lease::Hold;
use super::settle::Settle;
use super::{BATCHES_A_TURN, Sweeper, duties::Duty};
use crate::domain::Timestamp;
use crate::store::due::Part;
use crate::store::leases::{self, Grant};
use crate::store::{Error, Store};
use crate::telemetry;
use crate::telemetry::chain;

/// Deletes pause so long between two batches.
const DELETE_PAUSE: Duration = Duration::from_millis(200);

/// Deletes rest while a settling sweep is further behind than that.
const LAG_LIMIT: Duration = Duration::from_secs(5);

/// How often a turn that met errors is tried again, at most.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// What a duty is given.
#[derive(Clone)]
pub struct Cx {
    /// The database.
    pub store: Store,
    /// The commands.
    pub settle: Arc<dyn Settle>,
    /// The rows to look after.
    pub part: Part,
    /// The lease, as far as it can be relied on.
    pub hold: Hold,
}

/// Leads a partition until stopped, or until the lease or the division changed.
pub(super) async fn lead(
    sweeper: Sweeper,
    grant: Grant,
    hold: Hold,
    part: Part,
    stop: CancellationToken,
) {
    let cx = Cx {
        store: sweeper.store,
        settle: sweeper.settle,
        part,
        hold,
    };
    let lags = Lags::default();
    // A rota ends by itself only when the lease is gone, for all; each ends its batch first.
    let over = stop.child_token();
    let settling = super::duties::settling().into_iter().map(|duty| vec![duty]);
    let rotas = settling.chain([super::duties::deleting()]);
    let running = rotas.enumerate().map(|(i, duties)| {
        let mut rota = Rota::new(
            cx.clone(),
            grant.clone(),
            duties,
            lags.clone(),
            over.clone(),
        );
        rota.watches_clock = i == 0;
        let over = over.clone();
        async move {
            rota.run().await;
            over.cancel();
        }
    });
    futures_util::future::join_all(running).await;
}

/// How far settling sweeps are behind.
#[derive(Debug, Clone, Default)]
struct Lags(Arc<std::sync::Mutex<std::collections::BTreeMap<&'static str, Duration>>>);

impl Lags {
    fn set(&self, sweep: &'static str, lag: Duration) {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
            .insert(sweep, lag);
    }

    fn worst(&self) -> Duration {
        let lags = self
            .0
            .lock()
            .expect("no code panics while it holds this lock");
        lags.values().copied().max().unwrap_or_default()
    }
}

struct Entry {
    duty: Box<dyn Duty>,
    next: Instant,
    errors: u32,
}

/// Duties that take turns.
struct Rota {
    cx: Cx,
    grant: Grant,
    entries: Vec<Entry>,
    lags: Lags,
    stop: CancellationToken,
    /// One rota of a lead watches the clock, or each step would count twice.
    watches_clock: bool,
    /// The last reading, and when it was taken on the monotonic clock.
    seen: Option<(Timestamp, Instant)>,
}

/// Why a batch may not begin.
enum Barred {
    /// Not now: the lease cannot be relied on, or the database is away.
    Waits(Option<Error>),
    /// Not any more.
    Over,
}

/// What a turn came to.
enum Turn {
    /// Nothing more to do before the next tick.
    Done,
    /// More to do.
    More,
    /// It met an error, or could not begin.
    Stuck,
    /// The lease is gone.
    Over,
}

impl Rota {
    fn new(
        cx: Cx,
        grant: Grant,
        duties: Vec<Box<dyn Duty>>,
        lags: Lags,
        stop: CancellationToken,
    ) -> Self {
        let entries = duties
            .into_iter()
            .map(|duty| Entry {
                duty,
                next: Instant::now(),
                errors: 0,
            })
            .collect();
        Self {
            cx,
            grant,
            entries,
            lags,
            stop,
            watches_clock: false,
            seen: None,
        }
    }

    async fn run(mut self) {
        while !self.stop.is_cancelled() {
            for i in 0..self.entries.len() {
                if self.stop.is_cancelled() {
                    return;
                }
                if Instant::now() < self.entries[i].next {
                    continue;
                }
                let turn = self.turn(i).await;
                if matches!(turn, Turn::Over) {
                    return;
                }
                self.plan(i, &turn);
            }
            let next = self.entries.iter().map(|e| e.next).min();
            let next = next.unwrap_or_else(|| Instant::now() + ERROR_PAUSE);
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    fn plan(&mut self, i: usize, turn: &Turn) {
        let entry = &mut self.entries[i];
        let stuck = matches!(turn, Turn::Stuck);
        entry.errors = if stuck { entry.errors + 1 } else { 0 };
        let wait = match turn {
            Turn::More if entry.duty.deletes() => DELETE_PAUSE,
            Turn::More => Duration::ZERO,
            Turn::Stuck => {
                let pause = Duration::from_millis(100) * 2u32.saturating_pow(entry.errors.min(5));
                pause.min(ERROR_PAUSE).min(entry.duty.tick())
            }
            Turn::Done | Turn::Over => entry.duty.tick(),
        };
        entry.next = Instant::now() + wait;
    }

    /// One turn of one duty.
    async fn turn(&mut self, i: usize) -> Turn {
        let (name, deletes) = (self.entries[i].duty.name(), self.entries[i].duty.deletes());
        if deletes && self.lags.worst() > LAG_LIMIT {
            return Turn::Stuck;
        }
        let batches = if deletes { 1 } else { BATCHES_A_TURN };
        let mut rows = 0;
        let mut lag = Duration::ZERO;
        let mut more = false;
        for _ in 0..batches {
            match self.fence().await {
                Ok(()) => {}
                Err(Barred::Over) => return Turn::Over,
                Err(Barred::Waits(fault)) => return stuck(name, fault.as_ref()),
            }
            match self.entries[i].duty.run(&self.cx).await {
                Ok(pass) => {
                    rows += pass.rows;
                    lag = lag.max(pass.lag);
                    more = pass.more;
                }
                Err(fault) => return stuck(name, Some(&fault)),
            }
            if !more || self.stop.is_cancelled() {
                break;
            }
        }
        self.note(name, deletes, rows, lag).await;
        if more { Turn::More } else { Turn::Done }
    }

    async fn note(&self, name: &'static str, deletes: bool, rows: usize, lag: Duration) {
        if deletes {
            count(name, "deleted", rows);
        } else {
            self.lags.set(name, lag);
        }
        metrics::gauge!(telemetry::SWEEP_LAG, "sweep" => name).set(lag.as_secs_f64());
        let partition = self.cx.part.index.to_string();
        if let Err(fault) = leases::swept(&self.cx.store, name, &partition, rows, lag).await {
            tracing::debug!(sweep = name, error = chain(&fault), "a cycle was not noted");
        }
    }

    /// What each batch first looks at: the clock here, then the lease row.
    async fn fence(&mut self) -> Result<(), Barred> {
        if !self.cx.hold.stands() {
            return Err(Barred::Waits(None));
        }
        let fence = leases::fence(&self.cx.store, &self.grant)
            .await
            .map_err(|fault| Barred::Waits(Some(fault)))?;
        if !fence.ours || fence.partitions != self.cx.part.of {
            return Err(Barred::Over);
        }
        if self.watches_clock {
            self.watch_clock(fence.now);
        }
        Ok(())
    }

    /// Database time that steps back is logged and counted; nothing is compensated
    /// (`admission.md` §9).
    fn watch_clock(&mut self, now: Timestamp) {
        let read_at = Instant::now();
        if let Some((seen, seen_at)) = self.seen {
            let passed = chrono::Duration::from_std(read_at - seen_at).unwrap_or_default();
            let back = seen + passed - now;
            if back > chrono::Duration::seconds(1) {
                let back_ms = back.num_milliseconds();
                tracing::warn!(back_ms, "the database's clock stepped back");
                metrics::counter!(telemetry::CLOCK_STEPS).increment(1);
            }
        }
        self.seen = Some((now, read_at));
    }
}

fn stuck(sweep: &'static str, fault: Option<&Error>) -> Turn {
    if let Some(fault) = fault {
        tracing::warn!(sweep, error = chain(fault), "a sweep failed; again soon");
    }
    Turn::Stuck
}

/// Counts rows of a sweep by what became of them.
pub(super) fn count(sweep: &'static str, result: &'static str, rows: usize) {
    metrics::counter!(telemetry::SWEEP_ROWS, "sweep" => sweep, "result" => result)
        .increment(rows as u64);
}
