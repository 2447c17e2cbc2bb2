//! What a replica does for all its sockets together: reads their credentials again, tells what they
//! may have missed, clears presence marks, and sends them away when the replica stops.
//!
//! Invariants: one statement for all sockets, however many; a database that is away ends no socket
//! (nothing is committed then, so nothing is pushed), and the next pass is the retry.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::frames::Reason;
use super::outbound::Kind;
use super::registry::Registry;
use super::socket::{Caller, Feed, Socket};
use crate::bus;
use crate::store::feeds::{self, Position, Reading};
use crate::store::{Error, Store, credentials, presence};

/// How often credentials and access are read again.
const RECHECK_EVERY: Duration = Duration::from_secs(5);
/// The pause after a failed reading, and between two readings of what was missed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long closed subscriptions gather before their marks are cleared together.
const GATHER: Duration = Duration::from_millis(100);
/// Sockets that are asked about in one statement when something was missed.
const CHUNK: usize = 1000;
/// The longest pause between two sockets that are sent away.
const SLOWEST_LEAVING: Duration = Duration::from_millis(50);

/// Starts the duties of a replica.
pub(super) fn start(
    registry: &Arc<Registry>,
    store: &Store,
    draining: &CancellationToken,
    drain: Duration,
    stop: &CancellationToken,
) {
    let run = |duty: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        tokio::spawn(stop.clone().run_until_cancelled_owned(duty));
    };
    run(Box::pin(authority(registry.clone(), store.clone())));
    run(Box::pin(missed(registry.clone(), store.clone())));
    run(Box::pin(marks(registry.clone(), store.clone())));
    run(Box::pin(leaving(registry.clone(), draining.clone(), drain)));
}

fn failed(what: &str, error: &Error) {
    tracing::warn!(error = %error, "cable: {what} could not be read; trying again");
}

/// Credentials and access: at once where they are said to have changed, of everybody every few
/// seconds.
async fn authority(registry: Arc<Registry>, store: Store) {
    let mut every = tokio::time::interval(RECHECK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let outcome = tokio::select! {
            () = registry.authority.notified() => {
                let told = registry.take_rechecks();
                let outcome = recheck(&store, &told, Told::Changed).await;
                if outcome.is_err() {
                    // Still owed.
                    for socket in told {
                        registry.recheck(socket.id);
                    }
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                outcome
            }
            _ = every.tick() => match recheck(&store, &registry.sockets(), Told::Nothing).await {
                Ok(()) => readable(&store, &registry.feeds()).await,
                fault => fault,
            }
        };
        if let Err(error) = outcome {
            failed("credentials", &error);
        }
    }
}

/// Why credentials are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Time is up.
    Nothing,
    /// The authority of these sockets changed, or may have.
    Changed,
}

async fn recheck(store: &Store, sockets: &[Arc<Socket>], told: Told) -> Result<(), Error> {
    if sockets.is_empty() {
        return Ok(());
    }
    let mut by_token: BTreeMap<_, Vec<&Arc<Socket>>> = BTreeMap::new();
    for socket in sockets {
        by_token
            .entry(socket.caller.token())
            .or_default()
            .push(socket);
    }
    let tokens: Vec<_> = by_token.keys().copied().collect();
    let standing = credentials::standing(store, &tokens).await?;
    for (sockets, stands) in by_token.values().zip(standing) {
        for socket in sockets {
            match (&socket.caller, stands, told) {
                (_, false, _) => socket.close(Reason::Unauthorized),
                // Its credential stands, so what changed is what it may read: every subscribe after
                // the reconnect reads that anew.
                (Caller::Member(_), true, Told::Changed) => socket.close(Reason::Remote),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Ends the sockets of members that lost access to what they read.
async fn readable(store: &Store, feeds: &[Arc<Feed>]) -> Result<(), Error> {
    let mut by_reading: HashMap<Reading, Vec<&Arc<Feed>>> = HashMap::new();
    for feed in feeds {
        by_reading.entry(feed.reading).or_default().push(feed);
    }
    let readings: Vec<Reading> = by_reading.keys().copied().collect();
    let readable = feeds::readable(store, &readings).await?;
    for (reading, readable) in readings.iter().zip(readable) {
        if !readable {
            for feed in by_reading.get(reading).into_iter().flatten() {
                feed.socket().close(Reason::Remote);
            }
        }
    }
    Ok(())
}

/// What sockets may have missed while Redis was away: executors are nudged if their inbox holds
/// open work, feeds are read again from where they were.
async fn missed(registry: Arc<Registry>, store: Store) {
    loop {
        registry.missed.notified().await;
        let nudged = registry.take_nudges();
        for sockets in nudged.chunks(CHUNK) {
            if let Err(error) = nudge(&store, sockets).await {
                failed("missed work", &error);
                for socket in sockets {
                    registry.nudge(socket.id);
                }
            }
        }
        let behind = registry.take_behind();
        for feeds in behind.chunks(CHUNK) {
            match catch_up(&store, feeds).await {
                Ok(left) => left
                    .into_iter()
                    .for_each(|f| registry.behind(Arc::downgrade(f))),
                Err(error) => {
                    failed("missed events", &error);
                    for feed in feeds {
                        registry.behind(Arc::downgrade(feed));
                    }
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
        // Redis that comes and goes must not turn into readings without a pause.
        if !nudged.is_empty() {
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
}

async fn nudge(store: &Store, sockets: &[Arc<Socket>]) -> Result<(), Error> {
    let asked: Vec<(&Arc<Socket>, _)> = sockets
        .iter()
        .filter_map(|socket| match &socket.caller {
            Caller::Executor(executor) => Some((socket, (executor.account, executor.id))),
            Caller::Member(_) => None,
        })
        .collect();
    let executors: Vec<_> = asked.iter().map(|(_, executor)| *executor).collect();
    let work = feeds::oldest_work(store, &executors).await?;
    for ((socket, _), work) in asked.iter().zip(work) {
        if let Some(work) = work {
            let message = bus::work_available(
                &work.kind,
                work.run,
                work.task_key.as_str(),
                work.tool_name.as_deref(),
            );
            socket.push_inbox(Kind::WorkAvailable, &message);
        }
    }
    Ok(())
}

/// One round for each of these feeds; gives those that are still behind. Feeds at the same place of
/// the same host share a reading.
async fn catch_up<'a>(store: &Store, feeds: &'a [Arc<Feed>]) -> Result<Vec<&'a Arc<Feed>>, Error> {
    let mut by_position: HashMap<Position, Vec<&Arc<Feed>>> = HashMap::new();
    for feed in feeds {
        if let Some(position) = feed.behind() {
            by_position.entry(position).or_default().push(feed);
        }
    }
    let positions: Vec<Position> = by_position.keys().copied().collect();
    let found = feeds::after(store, &positions).await?;
    let mut left = Vec::new();
    for (position, items) in positions.iter().zip(found) {
        for feed in by_position.get(position).into_iter().flatten() {
            if feed.catch_up(*position, &items, items.len() < feeds::BATCH) {
                left.push(*feed);
            }
        }
    }
    Ok(left)
}

/// Clears the presence marks of closed subscriptions, many at a time.
async fn marks(registry: Arc<Registry>, store: Store) {
    loop {
        registry.presence.notified().await;
        tokio::time::sleep(GATHER).await;
        let marks = registry.take_left();
        if let Err(error) = presence::clear(&store, &marks).await {
            failed("presence", &error);
            registry.put_back(marks);
            registry.presence.notify_one();
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
}

/// When the replica stops: sends its sockets away one after the other, spread over half the drain
/// time, so that they do not all come back to the others at once.
async fn leaving(registry: Arc<Registry>, draining: CancellationToken, drain: Duration) {
    draining.cancelled().await;
    let mut changes = registry.count.subscribe();
    loop {
        // A handshake that was under way when draining began may still come in.
        changes.mark_unchanged();
        let sockets = registry.sockets();
        let count = u32::try_from(sockets.len()).unwrap_or(u32::MAX).max(1);
        let pause = (drain / 2 / count).min(SLOWEST_LEAVING);
        let mut next = tokio::time::Instant::now();
        for socket in sockets {
            socket.close(Reason::ServerRestart);
            next += pause;
            tokio::time::sleep_until(next).await;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}
