//! Who listens to what in this process.
//!
//! Does not know Redis; it only tells, through a queue of wanted channels, what should be attached.
//!
//! Invariants:
//! - a listener that was let go on before its channel was attached, or whose channel was attached
//!   when the link broke, is owed a [`Message::Resynced`], and hears it when the channel is attached;
//! - [`Listener::hear`] runs under this lock: it must not call back, and must not wait.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::{ATTACH_WITHIN, Channel, Message};

/// Hears messages. Must return at once; must not use the bus from within.
pub trait Listener: Send + Sync {
    /// Takes one message.
    fn hear(&self, message: &Message);
}

enum Standing {
    /// Hears everything.
    Attached,
    /// Waits to be told that it does.
    Waiting(oneshot::Sender<()>),
    /// Goes on without, and will hear `Resynced`.
    Owed,
}

struct Entry {
    id: u64,
    listener: Arc<dyn Listener>,
    standing: Standing,
}

#[derive(Default)]
struct Registry {
    next: u64,
    up: bool,
    channels: HashMap<Channel, Vec<Entry>>,
    /// What the link is subscribed to, listened to or not.
    attached: HashSet<Channel>,
}

/// The registry.
pub(super) struct Hub {
    registry: Mutex<Registry>,
    /// None: in process, where every channel is attached by its nature.
    wanted: Option<mpsc::UnboundedSender<Channel>>,
}

impl Hub {
    pub(super) fn in_process() -> Self {
        Self {
            registry: Mutex::default(),
            wanted: None,
        }
    }

    pub(super) fn over_redis() -> (Self, mpsc::UnboundedReceiver<Channel>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let hub = Self {
            registry: Mutex::default(),
            wanted: Some(sender),
        };
        (hub, receiver)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // A listener that panicked leaves the registry whole.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listen(
        hub: &Arc<Self>,
        channel: Channel,
        listener: Arc<dyn Listener>,
    ) -> (Listening, Attachment) {
        let mut registry = hub.registry();
        registry.next += 1;
        let id = registry.next;
        let mut pending = None;
        let standing = match &hub.wanted {
            None => Standing::Attached,
            Some(_) if registry.attached.contains(&channel) => Standing::Attached,
            Some(wanted) => {
                // The link's end of the queue lives as long as the bus does.
                let _ = wanted.send(channel);
                if registry.up {
                    let (sender, receiver) = oneshot::channel();
                    pending = Some(receiver);
                    Standing::Waiting(sender)
                } else {
                    Standing::Owed
                }
            }
        };
        registry.channels.entry(channel).or_default().push(Entry {
            id,
            listener,
            standing,
        });
        let listening = Listening {
            hub: hub.clone(),
            channel,
            id,
        };
        (listening, Attachment(pending))
    }

    /// Hands a message to the listeners of its channel.
    pub(super) fn deliver(&self, channel: Channel, message: &Message) {
        if let Some(entries) = self.registry().channels.get(&channel) {
            for entry in entries {
                entry.listener.hear(message);
            }
        }
    }

    /// Channels that somebody listens to.
    pub(super) fn listened(&self) -> Vec<Channel> {
        self.registry().channels.keys().copied().collect()
    }

    /// Which of these are listened to and not attached.
    pub(super) fn unattached(&self, among: &[Channel]) -> Vec<Channel> {
        let registry = self.registry();
        let mut seen = HashSet::new();
        among
            .iter()
            .copied()
            .filter(|c| registry.channels.contains_key(c) && !registry.attached.contains(c))
            .filter(|c| seen.insert(*c))
            .collect()
    }

    /// Forgets, and gives, the attached channels that nobody listens to any more.
    pub(super) fn release_idle(&self) -> Vec<Channel> {
        let mut registry = self.registry();
        let Registry {
            channels, attached, ..
        } = &mut *registry;
        attached.extract_if(|c| !channels.contains_key(c)).collect()
    }

    /// The link serves from now on.
    pub(super) fn up(&self) {
        self.registry().up = true;
    }

    /// These channels deliver from now on.
    pub(super) fn attach(&self, channels: &[Channel]) {
        let mut registry = self.registry();
        let registry = &mut *registry;
        for channel in channels {
            registry.attached.insert(*channel);
            for entry in registry.channels.get_mut(channel).into_iter().flatten() {
                let owed = match std::mem::replace(&mut entry.standing, Standing::Attached) {
                    Standing::Attached => false,
                    // A waiter that is gone may have read before this.
                    Standing::Waiting(waiter) => waiter.send(()).is_err(),
                    Standing::Owed => true,
                };
                if owed {
                    entry.listener.hear(&Message::Resynced);
                }
            }
        }
    }

    /// The link is gone: nobody hears anything until it is back.
    pub(super) fn down(&self) {
        let mut registry = self.registry();
        registry.up = false;
        registry.attached.clear();
        for entry in registry.channels.values_mut().flatten() {
            // Dropping a waiter's sender lets it go on.
            entry.standing = Standing::Owed;
        }
    }

    fn leave(&self, channel: Channel, id: u64) {
        let left = {
            let mut registry = self.registry();
            let Some(entries) = registry.channels.get_mut(&channel) else {
                return;
            };
            let left = entries
                .iter()
                .position(|e| e.id == id)
                .map(|at| entries.swap_remove(at));
            if entries.is_empty() {
                registry.channels.remove(&channel);
            }
            left
        };
        drop(left);
    }
}

/// A listener's place; dropping it ends the listening. A channel without listeners is unsubscribed
/// a few seconds later, so that one poll after the other finds it attached.
pub struct Listening {
    hub: Arc<Hub>,
    channel: Channel,
    id: u64,
}

/// The moment from which a listener hears everything.
#[derive(Debug)]
pub struct Attachment(Option<oneshot::Receiver<()>>);

impl Attachment {
    /// Waits until the channel is attached; gives up at once when Redis is away, and after two
    /// seconds in any case. What is missed by going on early is made up for by a `Resynced`.
    pub async fn wait(self) {
        if let Some(pending) = self.0 {
            let _ = tokio::time::timeout(ATTACH_WITHIN, pending).await;
        }
    }
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listening").field(&self.channel).finish()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.hub.leave(self.channel, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::PublicId;
    use crate::domain::hint::WakeRole;

    #[derive(Default)]
    struct Ear(Mutex<Vec<Message>>);

    impl Listener for Ear {
        fn hear(&self, message: &Message) {
            self.0.lock().unwrap().push(message.clone());
        }
    }

    const CHANNEL: Channel = Channel::Wake(WakeRole::Worker);

    #[test]
    fn a_message_reaches_the_listeners_of_its_channel_only() {
        let hub = Arc::new(Hub::in_process());
        let (a, b) = (Arc::new(Ear::default()), Arc::new(Ear::default()));
        let _la = Hub::listen(&hub, CHANNEL, a.clone());
        let (lb, _) = Hub::listen(
            &hub,
            Channel::Executor(PublicId(uuid::Uuid::nil())),
            b.clone(),
        );
        hub.deliver(CHANNEL, &Message::Wake);
        assert_eq!(*a.0.lock().unwrap(), [Message::Wake]);
        assert!(b.0.lock().unwrap().is_empty());
        drop(lb);
        assert_eq!(hub.listened(), [CHANNEL]);
    }

    #[test]
    fn a_listener_that_went_on_early_hears_resynced_once_attached() {
        let (hub, mut wanted) = Hub::over_redis();
        let hub = Arc::new(hub);
        let ear = Arc::new(Ear::default());
        let _listening = Hub::listen(&hub, CHANNEL, ear.clone());
        assert_eq!(wanted.try_recv(), Ok(CHANNEL));
        assert_eq!(hub.unattached(&[CHANNEL, CHANNEL]), [CHANNEL]);
        hub.up();
        hub.attach(&[CHANNEL]);
        assert_eq!(*ear.0.lock().unwrap(), [Message::Resynced]);
        // And after each gap again.
        hub.down();
        hub.up();
        hub.attach(&[CHANNEL]);
        assert_eq!(ear.0.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_listener_that_waited_for_its_channel_missed_nothing() {
        let (hub, _wanted) = Hub::over_redis();
        let hub = Arc::new(hub);
        hub.up();
        let ear = Arc::new(Ear::default());
        let (listening, attachment) = Hub::listen(&hub, CHANNEL, ear.clone());
        let attach = {
            let hub = hub.clone();
            async move { hub.attach(&[CHANNEL]) }
        };
        tokio::join!(attachment.wait(), attach);
        assert!(ear.0.lock().unwrap().is_empty());
        // The channel is kept for the next listener, then let go.
        drop(listening);
        let (again, attachment) = Hub::listen(&hub, CHANNEL, ear);
        assert!(attachment.0.is_none());
        assert!(hub.release_idle().is_empty());
        drop(again);
        assert_eq!(hub.release_idle(), [CHANNEL]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_is_let_go_when_the_link_breaks() {
        let (hub, _wanted) = Hub::over_redis();
        let hub = Arc::new(hub);
        hub.up();
        let (_listening, attachment) = Hub::listen(&hub, CHANNEL, Arc::new(Ear::default()));
        let before = tokio::time::Instant::now();
        tokio::join!(attachment.wait(), async { hub.down() });
        assert_eq!(before.elapsed(), std::time::Duration::ZERO);
    }
}
