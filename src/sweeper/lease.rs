//! Standing for partitions, and keeping what was granted (`admission.md` §7, §10).
//!
//! Invariants:
//! - belief ends before the lease can: see [`Hold`];
//! - a failed election or renewal is an error and nothing more: it neither keeps nor ends a belief,
//!   only time and the row do;
//! - a replica holds at most `ceil(partitions / live candidates) + 1` leases;
//! - a lease that is given back is given back by holder and token, so never somebody else's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lead;
use super::{Pace, Sweeper};
use crate::store::due::Part;
use crate::store::leases::{self, Field, Grant};
use crate::store::{Error, Store};
use crate::telemetry;
use crate::telemetry::chain;

/// A belief to hold a lease, with its end on the monotonic clock.
#[derive(Debug, Clone)]
pub struct Hold(Arc<Mutex<Option<Instant>>>);

impl Hold {
    /// Until that moment.
    pub fn until(end: Instant) -> Self {
        Self(Arc::new(Mutex::new(Some(end))))
    }

    /// For work that needs no lease: a cycle that somebody asked for.
    pub fn unbounded() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    /// Whether a batch may begin.
    pub fn stands(&self) -> bool {
        self.end().is_none_or(|end| Instant::now() < end)
    }

    fn extend(&self, end: Instant) {
        *self.lock() = Some(end);
    }

    /// From now on nothing new begins.
    fn give_up(&self) {
        self.extend(Instant::now());
    }

    fn end(&self) -> Option<Instant> {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }
}

/// One partition that this replica leads.
struct Led {
    of: u32,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Stands for partitions until stopped.
pub(super) async fn stand(sweeper: Sweeper, stop: CancellationToken) {
    let mut led = BTreeMap::new();
    while !stop.is_cancelled() {
        if let Err(fault) = look(&sweeper, &mut led, &stop).await {
            tracing::warn!(
                error = chain(&fault),
                "standing for sweeping failed; again soon"
            );
        }
        metrics::gauge!(telemetry::LEASES_HELD).set(f64::from(count(&led)));
        tokio::select! {
            () = tokio::time::sleep(sweeper.pace.poll()) => {}
            () = stop.cancelled() => {}
        }
    }
    for one in led.values() {
        one.stop.cancel();
    }
    for one in led.into_values() {
        // It gives its lease back and logs its own failures.
        let _ = one.task.await;
    }
    metrics::gauge!(telemetry::LEASES_HELD).set(0.0);
}

fn count(led: &BTreeMap<u32, Led>) -> u32 {
    u32::try_from(led.len()).unwrap_or(u32::MAX)
}

/// One look at the field: lets go of what is too much, takes what is free.
async fn look(
    sweeper: &Sweeper,
    led: &mut BTreeMap<u32, Led>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    led.retain(|_, one| !one.task.is_finished());
    let field = within(sweeper.pace, leases::field(&sweeper.store)).await?;
    metrics::gauge!(telemetry::LEASE_AGE).set(age(&field, sweeper.pace).as_secs_f64());
    let share = field.partitions.div_ceil(field.candidates) + 1;
    for (partition, one) in &*led {
        if one.of != field.partitions || *partition >= field.partitions {
            one.stop.cancel();
        }
    }
    let standing = led.values().filter(|one| !one.stop.is_cancelled()).count();
    let surplus = standing.saturating_sub(usize::try_from(share).unwrap_or(usize::MAX));
    for one in led
        .values()
        .rev()
        .filter(|one| !one.stop.is_cancelled())
        .take(surplus)
    {
        one.stop.cancel();
    }
    for partition in 0..field.partitions {
        if count(led) >= share {
            break;
        }
        if !led.contains_key(&partition) && is_free(&field, partition) {
            let stop = stop.child_token();
            if let Some(one) = take(sweeper, partition, field.partitions, stop).await? {
                led.insert(partition, one);
            }
        }
    }
    Ok(())
}

fn is_free(field: &Field, partition: u32) -> bool {
    let name = leases::partition_name(partition);
    field
        .leases
        .iter()
        .find(|l| l.name == name)
        .is_none_or(|l| l.expires_at < field.now)
}

/// How long the worst partition was not renewed.
fn age(field: &Field, pace: Pace) -> Duration {
    let ttl = chrono::Duration::from_std(pace.ttl()).unwrap_or_default();
    (0..field.partitions)
        .filter_map(|p| {
            let name = leases::partition_name(p);
            let lease = field.leases.iter().find(|l| l.name == name)?;
            (field.now - (lease.expires_at - ttl)).to_std().ok()
        })
        .max()
        .unwrap_or_default()
}

/// Asks for a partition's lease and, granted, begins to lead.
async fn take(
    sweeper: &Sweeper,
    partition: u32,
    of: u32,
    stop: CancellationToken,
) -> Result<Option<Led>, Error> {
    let name = leases::partition_name(partition);
    // Before asking, so that belief ends before the lease whatever the answer took.
    let asked = Instant::now();
    let acquiring = leases::acquire(&sweeper.store, &name, sweeper.holder, sweeper.pace.ttl());
    let Some(grant) = within(sweeper.pace, acquiring).await? else {
        return Ok(None);
    };
    tracing::info!(
        lease = grant.name,
        token = grant.token,
        "leads a sweep partition"
    );
    let hold = Hold::until(asked + sweeper.pace.self_fence());
    let part = Part {
        index: partition,
        of,
    };
    let task = tokio::spawn(keep(sweeper.clone(), grant, hold, part, stop.clone()));
    Ok(Some(Led { of, stop, task }))
}

/// Leads until stopped or replaced, renewing all along; then gives the lease back.
async fn keep(sweeper: Sweeper, grant: Grant, hold: Hold, part: Part, stop: CancellationToken) {
    let over = stop.child_token();
    let mut leading = tokio::spawn(lead::lead(
        sweeper.clone(),
        grant.clone(),
        hold.clone(),
        part,
        over.clone(),
    ));
    let ended = tokio::select! {
        () = renew(&sweeper.store, &grant, &hold, sweeper.pace) => {
            tracing::warn!(lease = grant.name, token = grant.token, "was replaced as leader");
            false
        }
        outcome = &mut leading => {
            if outcome.is_err() {
                tracing::error!(lease = grant.name, "leading panicked; stands anew");
            }
            true
        }
        () = stop.cancelled() => false,
    };
    over.cancel();
    hold.give_up();
    if !ended {
        // What is under way may end; what does not is harmless to the next leader.
        let _ = tokio::time::timeout(sweeper.pace.hand_over(), &mut leading).await;
    }
    give_back(&sweeper, &grant).await;
}

/// Renews until the lease is somebody else's.
async fn renew(store: &Store, grant: &Grant, hold: &Hold, pace: Pace) {
    let mut wait = pace.renew();
    loop {
        tokio::time::sleep(wait).await;
        let asked = Instant::now();
        wait = match within(pace, leases::renew(store, grant, pace.ttl())).await {
            Ok(true) => {
                hold.extend(asked + pace.self_fence());
                pace.renew()
            }
            Ok(false) => return,
            Err(fault) => {
                tracing::warn!(
                    lease = grant.name,
                    error = chain(&fault),
                    "a renewal failed; again soon"
                );
                pace.retry()
            }
        };
    }
}

async fn give_back(sweeper: &Sweeper, grant: &Grant) {
    match within(sweeper.pace, leases::release(&sweeper.store, grant)).await {
        Ok(()) => sweeper.settle.nudge().await,
        Err(fault) => {
            tracing::debug!(
                error = chain(&fault),
                "a lease was not given back; it ends by itself"
            );
        }
    }
}

/// A statement of leadership must not hang: a half-open connection would otherwise answer nothing
/// until the kernel gives it up.
async fn within<T>(pace: Pace, asking: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(pace.renew(), asking).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(Error::Unavailable(Box::new(elapsed))),
    }
}
