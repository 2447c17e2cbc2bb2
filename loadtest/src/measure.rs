//! Counting and timing: units of work, latencies by verb, throughput over time, a live line.
//!
//! Two ways of loading, and what a latency means in each:
//! - *closed*: N runners, each begins its next unit when the last one is done. Rates are at
//!   saturation; latencies are service times under that load and hide the queue in front of it;
//! - *open* (`--rate`): unit number i is due at i / rate, whoever is busy. Its latency counts from
//!   when it was due, so a stall is charged to all that it delayed (no coordinated omission).
//!
//! Invariants: warm-up units are done but not measured; a unit that failed is counted as an error,
//! never as done; what a time limit leaves over is done unmeasured, so that checks see a whole.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::report::{Latency, Point};
use hdrhistogram::Histogram;

/// How much, how long, how fast.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Units of work, warm-up included.
    pub units: usize,
    /// How many of them are warm-up.
    pub warm_up: usize,
    /// When measuring ends at the latest.
    pub at_most: Duration,
    /// Units a second when the load is open.
    pub rate: Option<f64>,
}

impl Load {
    /// That many units, a tenth of them warm-up.
    pub fn of(units: usize, at_most: Duration) -> Self {
        Self {
            units,
            warm_up: units / 10,
            at_most,
            rate: None,
        }
    }
}

/// One scenario's work, shared by its runners.
pub struct Work {
    load: Load,
    begun: AtomicUsize,
    done: AtomicUsize,
    measured: AtomicUsize,
    errors: AtomicUsize,
    over: AtomicBool,
    started: Instant,
    window: OnceLock<Instant>,
}

/// One unit to do.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    /// Its number.
    pub no: usize,
    /// From when its latency counts.
    pub due: Instant,
    /// Whether it counts.
    pub measured: bool,
}

/// What one runner saw.
#[derive(Default)]
pub struct Seen {
    verbs: BTreeMap<&'static str, Histogram<u64>>,
    /// When its last measured unit was done.
    last: Option<Instant>,
}

impl Seen {
    /// Notes how long a verb took, until now.
    pub fn took(&mut self, verb: &'static str, since: Instant, unit: Unit) {
        self.lasted(verb, since.elapsed(), unit);
    }

    /// Notes how long a verb took.
    pub fn lasted(&mut self, verb: &'static str, time: Duration, unit: Unit) {
        if unit.measured {
            self.verbs
                .entry(verb)
                .or_insert_with(|| {
                    // Up to an hour, in microseconds; what is longer counts as an hour.
                    Histogram::new_with_bounds(1, 3_600_000_000, 3)
                        .expect("the bounds are in order")
                })
                .saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
    }
}

impl Work {
    /// Work of that size; its clock runs from now.
    pub fn new(load: Load) -> Arc<Self> {
        Arc::new(Self {
            load,
            begun: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            measured: AtomicUsize::new(0),
            errors: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            started: Instant::now(),
            window: OnceLock::new(),
        })
    }

    /// The next unit, when it is due; `None` when all are given out.
    pub async fn next(&self) -> Option<Unit> {
        let no = self.begun.fetch_add(1, Ordering::Relaxed);
        self.at(no, no).await
    }

    /// The unit of that number among those of one runner; `order` is its place among all.
    pub async fn at(&self, no: usize, order: usize) -> Option<Unit> {
        if order >= self.load.units {
            return None;
        }
        let now = Instant::now();
        let mut due = now;
        if let Some(rate) = self.load.rate {
            due = self.started + Duration::from_secs_f64(order as f64 / rate);
            tokio::time::sleep_until(due.into()).await;
        }
        let warm = order < self.load.warm_up;
        if !warm && self.window.get().is_none() {
            let _ = self.window.set(Instant::now());
        }
        if now.duration_since(self.started) > self.load.at_most {
            self.over.store(true, Ordering::Relaxed);
        }
        Some(Unit {
            no,
            due,
            measured: !warm && !self.over.load(Ordering::Relaxed),
        })
    }

    /// `count` units that were just taken together, as one; `None` when there are none.
    pub async fn take(&self, count: usize) -> Option<Unit> {
        if count == 0 {
            return None;
        }
        let no = self.begun.fetch_add(count, Ordering::Relaxed);
        self.at(no, no.min(self.load.units.saturating_sub(1))).await
    }

    /// That a unit is done; `count` when it stood for several.
    pub fn done(&self, unit: Unit, count: usize, seen: &mut Seen) {
        self.done.fetch_add(count, Ordering::Relaxed);
        if unit.measured {
            self.measured.fetch_add(count, Ordering::Relaxed);
            seen.last = Some(Instant::now());
        }
    }

    /// That a unit failed.
    pub fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }
}

/// What came of a scenario's work.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Units a second, in the measured window.
    pub rate: f64,
    /// Measured units.
    pub units: usize,
    /// The window.
    pub seconds: f64,
    /// Units that failed.
    pub errors: usize,
    /// By verb.
    pub latencies: BTreeMap<String, Latency>,
    /// Throughput over time.
    pub series: Vec<Point>,
}

/// Runs these runners over the work, with a live line named `what`.
///
/// # Errors
/// The first fault of a runner.
pub async fn run<F>(
    what: &str,
    work: Arc<Work>,
    runners: impl IntoIterator<Item = F>,
) -> Result<Outcome, crate::error::Error>
where
    F: Future<Output = Result<Seen, crate::error::Error>> + Send + 'static,
{
    let tasks: Vec<_> = runners.into_iter().map(tokio::spawn).collect();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let watching = tokio::spawn(watch(what.to_owned(), work.clone(), stopped));
    let mut all = Seen::default();
    let mut fault = None;
    for task in tasks {
        match task.await {
            Ok(Ok(seen)) => {
                for (verb, histogram) in seen.verbs {
                    match all.verbs.get_mut(verb) {
                        Some(known) => known
                            .add(&histogram)
                            .expect("histograms of one precision add up"),
                        None => {
                            all.verbs.insert(verb, histogram);
                        }
                    }
                }
                all.last = all.last.max(seen.last);
            }
            Ok(Err(e)) => fault = fault.or(Some(e)),
            Err(e) => {
                fault = fault.or(Some(crate::error::Error::Setup(format!(
                    "a runner ended: {e}"
                ))));
            }
        }
    }
    let _ = stop.send(());
    let series = watching.await.unwrap_or_default();
    if let Some(fault) = fault {
        return Err(fault);
    }
    let units = work.measured.load(Ordering::Relaxed);
    let window = work.window.get().copied().unwrap_or(work.started);
    let end = all.last.unwrap_or_else(Instant::now);
    let seconds = end.saturating_duration_since(window).as_secs_f64();
    Ok(Outcome {
        rate: if seconds > 0.0 {
            units as f64 / seconds
        } else {
            0.0
        },
        units,
        seconds,
        errors: work.errors.load(Ordering::Relaxed),
        latencies: all
            .verbs
            .iter()
            .map(|(verb, h)| ((*verb).to_owned(), Latency::of(h)))
            .collect(),
        series,
    })
}

/// The live line, four times a second, and the series it is made of.
async fn watch(
    what: String,
    work: Arc<Work>,
    mut stopped: tokio::sync::oneshot::Receiver<()>,
) -> Vec<Point> {
    const EVERY: Duration = Duration::from_millis(250);
    let terminal = std::io::stderr().is_terminal();
    let mut series = Vec::new();
    let (mut before, mut at) = (0, Instant::now());
    loop {
        let ended = tokio::select! {
            () = tokio::time::sleep(EVERY) => false,
            _ = &mut stopped => true,
        };
        let done = work.done.load(Ordering::Relaxed);
        let span = at.elapsed().as_secs_f64();
        if span > 0.05 {
            series.push(Point {
                seconds: work.started.elapsed().as_secs_f64(),
                rate: done.saturating_sub(before) as f64 / span,
            });
        }
        (before, at) = (done, Instant::now());
        if terminal {
            let rate = series.last().map_or(0.0, |p| p.rate);
            let (all, errors) = (work.load.units, work.errors.load(Ordering::Relaxed));
            eprint!("\r\x1b[K{what}: {done}/{all}, {rate:.0}/s, {errors} errors");
        }
        if ended {
            if terminal {
                eprint!("\r\x1b[K");
            }
            return series;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An open load charges a stall to every unit that it delayed (coordinated omission).
    #[tokio::test]
    async fn a_stall_is_charged_to_all_that_it_delayed() {
        let mut load = Load::of(20, Duration::from_secs(5));
        (load.warm_up, load.rate) = (0, Some(200.0));
        let work = Work::new(load);
        let shared = work.clone();
        let runner = async move {
            let mut seen = Seen::default();
            while let Some(unit) = shared.next().await {
                if unit.no == 0 {
                    tokio::time::sleep(Duration::from_millis(100)).await; // the stall
                }
                seen.took("unit", unit.due, unit);
                shared.done(unit, 1, &mut seen);
            }
            Ok(seen)
        };
        let outcome = run("stall", work, [runner]).await.unwrap();
        let latency = &outcome.latencies["unit"];
        assert_eq!(latency.count, 20);
        // Units were due every 5 ms; half of them within the stall's second half or before.
        assert!(latency.p50 >= 40.0, "{latency:?}");
    }
}
