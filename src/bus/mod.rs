//! Hints between replicas over Redis, or within the process when no Redis is configured; rate
//! counters and cadence slots beside them (`architecture.md` §6).
//!
//! Knows Redis and the names of its channels and keys. Does not know SQL, sockets, or who is
//! allowed to hear what.
//!
//! Invariants:
//! - nothing here is truth: every caller goes on when Redis is away, fails over or is slow, and no
//!   call waits for Redis longer than a fraction of a second;
//! - one connection per replica; it subscribes only to channels that somebody here listens to;
//! - a listener hears either every message published after it was attached, or [`Message::Resynced`]
//!   after each gap;
//! - the work of one message is proportional to the listeners of its own channel.

mod channel;
mod counters;
mod hub;
mod link;
mod publisher;
mod subscription;
mod wire;

use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config;
use crate::domain::PublicId;
use crate::domain::hint::{Hint, WakeRole};

pub use channel::Channel;
pub use counters::Charge;
pub use hub::{Attachment, Listener, Listening};
pub use subscription::{FeedMessage, Message, Subscription};
pub use wire::work_available;

use counters::Local;
use hub::Hub;
use link::Link;
use publisher::Outbox;

/// How long a new listener waits for its channel to be attached before it goes on without.
const ATTACH_WITHIN: Duration = Duration::from_secs(2);
/// How long a counter waits for Redis before this replica counts by itself.
const COUNT_WITHIN: Duration = Duration::from_millis(250);

/// Hints, counters, slots. Cheap to clone; the last clone ends its background tasks.
#[derive(Clone)]
pub struct Bus(Arc<Inner>);

struct Inner {
    hub: Arc<Hub>,
    outbox: Outbox,
    link: Option<Arc<Link>>,
    local: Local,
    start: Once,
    parked: std::sync::Mutex<Option<Parked>>,
    _stop: DropGuard,
}

/// What the background tasks need, until they start.
struct Parked {
    hints: publisher::Inbox,
    wanted: Option<mpsc::UnboundedReceiver<Channel>>,
    stop: CancellationToken,
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus")
            .field("health", &self.state())
            .finish_non_exhaustive()
    }
}

impl Bus {
    /// A bus over the configured Redis, or within this process. Connects in the background: a Redis
    /// that is away now is no error.
    ///
    /// # Errors
    /// A URL that cannot work.
    pub fn new(redis: Option<&config::Redis>) -> Result<Self, config::Error> {
        let stop = CancellationToken::new();
        let (outbox, hints) = publisher::queue();
        let (hub, wanted, link) = match redis {
            None => (Arc::new(Hub::in_process()), None, None),
            Some(redis) => {
                let (hub, wanted) = Hub::over_redis();
                let hub = Arc::new(hub);
                let link = Arc::new(Link::new(redis, hub.clone())?);
                (hub, Some(wanted), Some(link))
            }
        };
        let bus = Self(Arc::new(Inner {
            hub,
            outbox,
            link,
            local: Local::default(),
            start: Once::new(),
            parked: std::sync::Mutex::new(Some(Parked {
                hints,
                wanted,
                stop: stop.clone(),
            })),
            _stop: stop.drop_guard(),
        }));
        if tokio::runtime::Handle::try_current().is_ok() {
            bus.start();
        }
        Ok(bus)
    }

    /// Starts the background tasks, once; needs a runtime, so a bus made outside of one starts with
    /// its first use.
    fn start(&self) {
        self.0.start.call_once(|| {
            let mut parked = self
                .0
                .parked
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            let Some(parked) = parked.take() else {
                return;
            };
            match (&self.0.link, parked.wanted) {
                (Some(link), Some(wanted)) => {
                    tokio::spawn(publisher::over_redis(
                        parked.hints,
                        link.clone(),
                        parked.stop.clone(),
                    ));
                    tokio::spawn(link.clone().run(wanted, parked.stop));
                }
                _ => {
                    tokio::spawn(publisher::in_process(
                        parked.hints,
                        self.0.hub.clone(),
                        parked.stop,
                    ));
                }
            }
        });
    }

    /// Tells what a committed transaction caused. Never waits and never fails the caller: hints go
    /// into a bounded queue, and what does not fit is dropped and counted
    /// (`nexus_bus_hints_dropped_total`); a lost hint is owed to nobody.
    pub async fn announce(&self, hints: Vec<Hint>) {
        self.start();
        self.0.outbox.put(hints);
    }

    /// `ok`, `degraded` (Redis is configured and cannot be used now), or `in_process`.
    pub fn health(&self) -> &'static str {
        self.start();
        self.state()
    }

    fn state(&self) -> &'static str {
        match &self.0.link {
            None => "in_process",
            Some(link) if link.is_up() => "ok",
            Some(_) => "degraded",
        }
    }

    /// Registers a listener on a channel until the [`Listening`] is dropped. Wait for the
    /// [`Attachment`] before reading the state that later messages are about: from then on nothing
    /// published is missed without a [`Message::Resynced`].
    pub fn listen(&self, channel: Channel, listener: Arc<dyn Listener>) -> (Listening, Attachment) {
        self.start();
        Hub::listen(&self.0.hub, channel, listener)
    }

    /// The hints of one executor's inbox: subscribe, then read the inbox, then wait. Answers once the
    /// channel is attached, or at once when Redis is away.
    pub async fn executor_hints(&self, executor: PublicId) -> Subscription {
        self.subscribe(Channel::Executor(executor)).await
    }

    /// The nudges of a background role.
    pub async fn wakes(&self, role: WakeRole) -> Subscription {
        self.subscribe(Channel::Wake(role)).await
    }

    /// The messages of one channel, queued for one task.
    pub async fn subscribe(&self, channel: Channel) -> Subscription {
        let (listener, make) = subscription::listener();
        let (listening, attachment) = self.listen(channel, listener);
        attachment.wait().await;
        make(listening)
    }

    /// Counts one request against fixed windows that begin with their first requests, one a key, in
    /// one round trip. A key names who and what is counted and holds ids or hashes, never token
    /// text. Counted in Redis by all replicas together; while Redis is away, by this one alone.
    pub async fn charge<const N: usize>(&self, keys: [&str; N], window: Duration) -> [Charge; N] {
        self.start();
        if let Some(link) = &self.0.link
            && let Some(charges) = counters::charge(link, keys, window).await
        {
            return charges;
        }
        keys.map(|key| self.0.local.charge(key, window))
    }

    /// Takes a slot that frees itself after `ttl`: true for the first asker within that time. In
    /// Redis for all replicas; while Redis is away, per process.
    pub async fn try_slot(&self, key: &str, ttl: Duration) -> bool {
        self.start();
        if let Some(link) = &self.0.link
            && let Some(taken) = counters::try_slot(link, key, ttl).await
        {
            return taken;
        }
        self.0.local.try_slot(key, ttl)
    }
}
