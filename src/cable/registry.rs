//! The sockets of one replica, and what its duties owe them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Notify, Semaphore, watch};

use super::socket::{Caller, Feed, Socket};
use crate::store::presence::Mark;
use crate::telemetry;

/// Handshakes and subscribes that read the database at once: a storm of reconnects must leave
/// connections for claims and commits.
const AT_ONCE: usize = 4;

#[derive(Debug, Default)]
struct Debts {
    /// Sockets whose credentials are to be read at once.
    recheck: HashSet<u64>,
    /// Sockets whose inbox may hold work that they were not told of.
    nudge: HashSet<u64>,
    /// Feeds that missed items.
    behind: Vec<Weak<Feed>>,
    /// Presence marks of closed subscriptions.
    left: Vec<Mark>,
}

/// Sockets by id, and debts.
#[derive(Debug)]
pub(super) struct Registry {
    next: AtomicU64,
    sockets: Mutex<HashMap<u64, Arc<Socket>>>,
    /// Open feed subscriptions, for the regular reading of access.
    feeds: Mutex<HashMap<u64, Vec<Arc<Feed>>>>,
    debts: Mutex<Debts>,
    pub(super) authority: Notify,
    pub(super) missed: Notify,
    pub(super) presence: Notify,
    pub(super) count: watch::Sender<usize>,
    pub(super) gate: Semaphore,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    pub(super) fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            sockets: Mutex::default(),
            feeds: Mutex::default(),
            debts: Mutex::default(),
            authority: Notify::new(),
            missed: Notify::new(),
            presence: Notify::new(),
            count: watch::Sender::new(0),
            gate: Semaphore::new(AT_ONCE),
        }
    }

    pub(super) fn enter(self: &Arc<Self>, caller: Caller) -> Arc<Socket> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let socket = Arc::new(Socket::new(id, caller, Arc::downgrade(self)));
        let mut sockets = lock(&self.sockets);
        sockets.insert(id, socket.clone());
        self.counted(sockets.len());
        socket
    }

    pub(super) fn leave(&self, id: u64) {
        lock(&self.feeds).remove(&id);
        let mut sockets = lock(&self.sockets);
        sockets.remove(&id);
        let count = sockets.len();
        if sockets.capacity() > 1024 && count < sockets.capacity() / 8 {
            sockets.shrink_to_fit();
        }
        self.counted(count);
    }

    fn counted(&self, count: usize) {
        self.count.send_replace(count);
        metrics::gauge!(telemetry::CABLE_SOCKETS).set(u32::try_from(count).unwrap_or(u32::MAX));
    }

    pub(super) fn sockets(&self) -> Vec<Arc<Socket>> {
        lock(&self.sockets).values().cloned().collect()
    }

    fn some(&self, ids: &HashSet<u64>) -> Vec<Arc<Socket>> {
        let sockets = lock(&self.sockets);
        ids.iter()
            .filter_map(|id| sockets.get(id).cloned())
            .collect()
    }

    pub(super) fn feed_opened(&self, feed: &Arc<Feed>) {
        lock(&self.feeds)
            .entry(feed.socket().id)
            .or_default()
            .push(feed.clone());
    }

    pub(super) fn feed_shut(&self, feed: &Arc<Feed>) {
        let mut feeds = lock(&self.feeds);
        if let Some(of_socket) = feeds.get_mut(&feed.socket().id) {
            of_socket.retain(|f| !Arc::ptr_eq(f, feed));
            if of_socket.is_empty() {
                feeds.remove(&feed.socket().id);
            }
        }
    }

    pub(super) fn feeds(&self) -> Vec<Arc<Feed>> {
        lock(&self.feeds).values().flatten().cloned().collect()
    }

    pub(super) fn recheck(&self, id: u64) {
        lock(&self.debts).recheck.insert(id);
        self.authority.notify_one();
    }

    pub(super) fn take_rechecks(&self) -> Vec<Arc<Socket>> {
        let ids = std::mem::take(&mut lock(&self.debts).recheck);
        self.some(&ids)
    }

    pub(super) fn nudge(&self, id: u64) {
        lock(&self.debts).nudge.insert(id);
        self.missed.notify_one();
    }

    pub(super) fn take_nudges(&self) -> Vec<Arc<Socket>> {
        let ids = std::mem::take(&mut lock(&self.debts).nudge);
        self.some(&ids)
    }

    pub(super) fn behind(&self, feed: Weak<Feed>) {
        lock(&self.debts).behind.push(feed);
        self.missed.notify_one();
    }

    pub(super) fn take_behind(&self) -> Vec<Arc<Feed>> {
        std::mem::take(&mut lock(&self.debts).behind)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    pub(super) fn left(&self, mark: Mark) {
        lock(&self.debts).left.push(mark);
        self.presence.notify_one();
    }

    pub(super) fn take_left(&self) -> Vec<Mark> {
        std::mem::take(&mut lock(&self.debts).left)
    }

    pub(super) fn put_back(&self, marks: Vec<Mark>) {
        lock(&self.debts).left.extend(marks);
    }
}
