//! What a listener hears, and a queue of it for one waiting task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::hub::{Listener, Listening};
use crate::domain::hint::FeedItems;

/// What is heard on a channel. Texts are the frame's `message`, ready to send (`cable.md` §4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A row became listable for this executor.
    WorkAvailable {
        /// `{"event":{"type":"work_available",…}}`.
        message: Arc<str>,
    },
    /// A row that this executor claimed was canceled.
    WorkCanceled {
        /// `{"event":{"type":"work_canceled",…}}`.
        message: Arc<str>,
    },
    /// Credentials or standing of this executor or member changed: read them again.
    AuthorityChanged,
    /// One item of a feed.
    Feed(FeedMessage),
    /// A nudge to a background role.
    Wake,
    /// Messages may have been missed: read again what they are about.
    Resynced,
    /// This queue was full and messages were dropped: as [`Message::Resynced`].
    Lagged,
}

/// One item of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedMessage {
    /// Part of the feed.
    pub items: FeedItems,
    /// Whether a durable item is also one of the `lifecycle` part.
    pub lifecycle: bool,
    /// The position of a durable item.
    pub sequence: Option<i64>,
    /// `{"event":{…}}` or `{"frame":{…}}`.
    pub message: Arc<str>,
}

/// The most messages that wait for one task.
const QUEUE: usize = 64;

/// Messages of one channel, in order, for one task; dropped: no longer listened to.
#[derive(Debug)]
pub struct Subscription {
    queue: mpsc::Receiver<Message>,
    lagged: Arc<AtomicBool>,
    _listening: Listening,
}

impl Subscription {
    /// The next message. Cancel-safe: what was not returned is returned by the next call.
    pub async fn recv(&mut self) -> Message {
        if self.lagged.swap(false, Ordering::Relaxed) {
            return Message::Lagged;
        }
        match self.queue.recv().await {
            Some(message) => message,
            // The bus itself is gone: nothing will come any more.
            None => std::future::pending().await,
        }
    }

    /// A message that is there already.
    pub fn try_recv(&mut self) -> Option<Message> {
        if self.lagged.swap(false, Ordering::Relaxed) {
            return Some(Message::Lagged);
        }
        self.queue.try_recv().ok()
    }
}

struct Queue {
    sender: mpsc::Sender<Message>,
    lagged: Arc<AtomicBool>,
}

impl Listener for Queue {
    fn hear(&self, message: &Message) {
        if self.sender.try_send(message.clone()).is_err() {
            self.lagged.store(true, Ordering::Relaxed);
        }
    }
}

/// A listener that queues, and what makes its [`Subscription`].
pub(super) fn listener() -> (Arc<dyn Listener>, impl FnOnce(Listening) -> Subscription) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let lagged = Arc::new(AtomicBool::new(false));
    let listener = Arc::new(Queue {
        sender,
        lagged: lagged.clone(),
    });
    let make = move |listening| Subscription {
        queue,
        lagged,
        _listening: listening,
    };
    (listener, make)
}
