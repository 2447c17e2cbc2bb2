//! From committed hints to channels: a bounded queue, one task.
//!
//! Invariants: putting never waits; what does not fit, and what Redis does not take, is dropped and
//! counted; hints of one process leave in the order they were put.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::hub::Hub;
use super::link::Link;
use super::wire;
use crate::domain::hint::Hint;
use crate::telemetry;

/// The most hints that wait.
const HINTS: usize = 32_768;
/// The most bytes they hold.
const BYTES: usize = 32 << 20;
/// The most hints of one pipeline.
const BATCH: usize = 512;

/// Where hints are put.
pub(super) struct Outbox {
    sender: mpsc::Sender<Hint>,
    bytes: Arc<AtomicUsize>,
}

/// Where the publisher takes them.
pub(super) struct Inbox {
    receiver: mpsc::Receiver<Hint>,
    bytes: Arc<AtomicUsize>,
}

pub(super) fn queue() -> (Outbox, Inbox) {
    let (sender, receiver) = mpsc::channel(HINTS);
    let bytes = Arc::new(AtomicUsize::new(0));
    let outbox = Outbox {
        sender,
        bytes: bytes.clone(),
    };
    (outbox, Inbox { receiver, bytes })
}

fn dropped(why: &'static str, count: usize) {
    if count > 0 {
        metrics::counter!(telemetry::HINTS_DROPPED, "why" => why).increment(count as u64);
    }
}

impl Outbox {
    pub(super) fn put(&self, hints: Vec<Hint>) {
        let mut lost = 0;
        for hint in hints {
            let weight = wire::weight(&hint);
            let fits = self.bytes.fetch_add(weight, Ordering::Relaxed) + weight <= BYTES;
            if !fits || self.sender.try_send(hint).is_err() {
                self.bytes.fetch_sub(weight, Ordering::Relaxed);
                lost += 1;
            }
        }
        dropped("queue_full", lost);
    }
}

impl Inbox {
    /// The hints that wait, at least one; none when the bus is gone.
    async fn take(&mut self, stop: &CancellationToken) -> Option<Vec<Hint>> {
        let mut hints = Vec::new();
        tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            _ = self.receiver.recv_many(&mut hints, BATCH) => {}
        }
        if hints.is_empty() {
            return None;
        }
        let weight = hints.iter().map(wire::weight).sum();
        self.bytes.fetch_sub(weight, Ordering::Relaxed);
        let mut wakes = HashSet::new();
        hints.retain(|hint| match hint {
            // Of equal nudges that wait together one is enough.
            Hint::Wake(role) => wakes.insert(*role),
            _ => true,
        });
        Some(hints)
    }
}

/// Hands hints to the listeners of this process.
pub(super) async fn in_process(mut inbox: Inbox, hub: Arc<Hub>, stop: CancellationToken) {
    while let Some(hints) = inbox.take(&stop).await {
        for hint in &hints {
            let (channel, message) = wire::message(hint);
            hub.deliver(channel, &message);
        }
        // Delivering is synchronous: let others of this thread run between batches.
        tokio::task::yield_now().await;
    }
}

/// Publishes hints, pipelined.
pub(super) async fn over_redis(mut inbox: Inbox, link: Arc<Link>, stop: CancellationToken) {
    while let Some(hints) = inbox.take(&stop).await {
        let Some(mut connection) = link.connection() else {
            dropped("redis_away", hints.len());
            continue;
        };
        let mut pipe = redis::pipe();
        for hint in &hints {
            let (channel, message) = wire::message(hint);
            if let Some(text) = wire::encode(&message) {
                let name = link.names().channel(channel);
                pipe.cmd("PUBLISH").arg(name).arg(text).ignore();
            }
        }
        match pipe.query_async::<()>(&mut connection).await {
            Ok(()) => {
                metrics::counter!(telemetry::HINTS_PUBLISHED).increment(hints.len() as u64);
            }
            Err(error) => {
                dropped("redis_error", hints.len());
                link.suspect(&error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hint::{FeedItems, FeedKind, WakeRole};
    use crate::domain::{Canonical, PublicId};

    fn frame(bytes: usize) -> Hint {
        Hint::Feed {
            kind: FeedKind::Run,
            host: PublicId(uuid::Uuid::nil()),
            items: FeedItems::Progress,
            message: Canonical::trusted("x".repeat(bytes)),
        }
    }

    #[tokio::test]
    async fn the_queue_is_bounded_by_count_and_by_bytes_and_frees_what_it_gives() {
        let (outbox, mut inbox) = queue();
        let stop = CancellationToken::new();
        outbox.put((0..40).map(|_| frame(1 << 20)).collect());
        assert_eq!(inbox.receiver.len(), 31);
        inbox.take(&stop).await.unwrap();
        assert_eq!(outbox.bytes.load(Ordering::Relaxed), 0);
        outbox.put(vec![Hint::Wake(WakeRole::Worker); HINTS + 10]);
        assert_eq!(inbox.receiver.len(), HINTS);
    }

    #[tokio::test]
    async fn equal_nudges_that_wait_together_become_one() {
        let (outbox, mut inbox) = queue();
        let (worker, sweeper) = (Hint::Wake(WakeRole::Worker), Hint::Wake(WakeRole::Sweeper));
        outbox.put(vec![worker.clone(), sweeper.clone(), worker.clone()]);
        let taken = inbox.take(&CancellationToken::new()).await.unwrap();
        assert_eq!(taken, [worker, sweeper]);
    }
}
