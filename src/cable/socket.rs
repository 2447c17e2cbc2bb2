//! What the rest of the replica holds of one socket: who it is, what waits to be written, whether it
//! is to end. The socket's own task (`connection.rs`) holds the rest.
//!
//! Invariant: everything here is quick and never waits, since it runs inside the bus and inside the
//! replica's duties.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::frames::{Items, Reason};
use super::outbound::{Body, Frame, Full, Kind, Queue};
use super::registry::Registry;
use crate::bus::{FeedMessage, Listener, Message};
use crate::domain::feed::Item;
use crate::domain::hint::FeedItems;
use crate::domain::{AccountId, PublicId};
use crate::store::credentials::{ExecutorCaller, MemberCaller};
use crate::store::feeds::{Position, Reading, RunFeed};
use crate::telemetry;

/// Who a socket speaks for.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    Executor(ExecutorCaller),
    Member(MemberCaller),
}

impl Caller {
    /// What its authority is announced under.
    pub(super) fn public_id(&self) -> PublicId {
        match self {
            Self::Executor(executor) => executor.public_id,
            Self::Member(member) => member.public_id,
        }
    }

    /// The token it was proven with.
    pub(super) fn token(&self) -> (AccountId, i64) {
        match self {
            Self::Executor(executor) => (executor.account, executor.token_id),
            Self::Member(member) => (member.account, member.token_id),
        }
    }
}

#[derive(Debug, Default)]
struct Outbound {
    queue: Queue,
    /// Identifier tokens of live inbox subscriptions: one, but for clients that spell it twice.
    inbox: Vec<Arc<str>>,
    closing: Option<Reason>,
}

/// One socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) id: u64,
    pub(super) caller: Caller,
    outbound: Mutex<Outbound>,
    bell: Notify,
    registry: Weak<Registry>,
}

impl Socket {
    pub(super) fn new(id: u64, caller: Caller, registry: Weak<Registry>) -> Self {
        Self {
            id,
            caller,
            outbound: Mutex::default(),
            bell: Notify::new(),
            registry,
        }
    }

    fn outbound(&self) -> MutexGuard<'_, Outbound> {
        self.outbound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be something to write, or the socket is to end.
    pub(super) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Ends the socket; the first reason stands.
    pub(super) fn close(&self, reason: Reason) {
        self.outbound().closing.get_or_insert(reason);
        self.bell.notify_one();
    }

    /// Why the socket is to end, if it is.
    pub(super) fn closing(&self) -> Option<Reason> {
        self.outbound().closing
    }

    /// Waits until the socket is to end. Takes the bell's ringing for itself.
    pub(super) async fn to_close(&self) -> Reason {
        loop {
            if let Some(reason) = self.closing() {
                return reason;
            }
            self.bell.notified().await;
        }
    }

    /// The next frames to write.
    pub(super) fn take(&self, frames: usize, bytes: usize) -> Vec<Frame> {
        self.outbound().queue.take(frames, bytes)
    }

    /// Rings if more waits.
    pub(super) fn ring_if_more(&self) {
        let outbound = self.outbound();
        if !outbound.queue.is_empty() || outbound.closing.is_some() {
            self.bell.notify_one();
        }
    }

    /// Forgets what waits: the socket ends.
    pub(super) fn discard(&self) {
        self.outbound().queue.clear();
    }

    fn put(&self, outbound: &mut Outbound, frame: Frame) {
        if outbound.closing.is_some() {
            return;
        }
        if let Err(Full) = outbound.queue.put(frame) {
            outbound.closing = Some(Reason::SlowConsumer);
        }
        let dropped = outbound.queue.take_dropped();
        if dropped > 0 {
            metrics::counter!(telemetry::CABLE_DROPPED).increment(dropped);
        }
        self.bell.notify_one();
    }

    /// Queues a push.
    pub(super) fn push(&self, kind: Kind, token: &Arc<str>, message: &Arc<str>) {
        self.put(&mut self.outbound(), Frame::push(kind, token, message));
    }

    /// Queues an answer to a subscribe.
    pub(super) fn answer(&self, token: &Arc<str>, body: Body) {
        let frame = Frame {
            kind: Kind::Kept,
            token: token.clone(),
            body,
        };
        self.put(&mut self.outbound(), frame);
    }

    /// Opens an inbox subscription: the confirmation goes out before its first message.
    pub(super) fn open_inbox(&self, token: &Arc<str>) {
        let mut outbound = self.outbound();
        let frame = Frame {
            kind: Kind::Kept,
            token: token.clone(),
            body: Body::Confirm,
        };
        self.put(&mut outbound, frame);
        outbound.inbox.push(token.clone());
    }

    /// Closes a subscription: nothing of it goes out any more.
    pub(super) fn forget(&self, token: &Arc<str>) {
        let mut outbound = self.outbound();
        outbound.inbox.retain(|t| t != token);
        outbound.queue.forget(token);
    }

    /// Pushes to every inbox subscription of this socket.
    pub(super) fn push_inbox(&self, kind: Kind, message: &Arc<str>) {
        let mut outbound = self.outbound();
        for at in 0..outbound.inbox.len() {
            let frame = Frame::push(kind, &outbound.inbox[at], message);
            self.put(&mut outbound, frame);
        }
    }

    fn has_inbox(&self) -> bool {
        !self.outbound().inbox.is_empty()
    }
}

/// A socket hears its own executor's or member's channel.
impl Listener for Socket {
    fn hear(&self, message: &Message) {
        match message {
            Message::WorkAvailable { message } => self.push_inbox(Kind::WorkAvailable, message),
            Message::WorkCanceled { message } => self.push_inbox(Kind::Kept, message),
            Message::AuthorityChanged => {
                if let Some(registry) = self.registry.upgrade() {
                    registry.recheck(self.id);
                }
            }
            // A change of authority that was missed is found by the next regular reading.
            Message::Resynced | Message::Lagged => {
                if self.has_inbox()
                    && let Some(registry) = self.registry.upgrade()
                {
                    registry.nudge(self.id);
                }
            }
            Message::Feed(_) | Message::Wake => {}
        }
    }
}

#[derive(Debug, Default)]
struct Course {
    /// Confirmed: messages go out.
    open: bool,
    /// The highest position heard or read.
    cursor: i64,
    /// Messages were missed: durable items are withheld until they have been read again.
    behind: bool,
    /// The highest position withheld.
    withheld: i64,
    /// The highest position that was read again: its message may still be under way.
    replayed: i64,
}

/// One subscription to a run's feed.
#[derive(Debug)]
pub(super) struct Feed {
    socket: Arc<Socket>,
    token: Arc<str>,
    items: Items,
    host: PublicId,
    pub(super) reading: Reading,
    course: Mutex<Course>,
    this: Weak<Self>,
}

impl Feed {
    pub(super) fn new(
        socket: Arc<Socket>,
        token: Arc<str>,
        items: Items,
        host: PublicId,
        reading: Reading,
        found: RunFeed,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            socket,
            token,
            items,
            host,
            reading,
            course: Mutex::new(Course {
                cursor: found.watermark,
                ..Course::default()
            }),
            this: this.clone(),
        })
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Confirms, then lets messages go out.
    pub(super) fn open(&self) {
        let mut course = self.course();
        self.socket.answer(&self.token, Body::Confirm);
        course.open = true;
    }

    /// Lets nothing out any more.
    pub(super) fn shut(&self) {
        self.course().open = false;
        self.socket.forget(&self.token);
    }

    /// Where to read again from, while something was missed.
    pub(super) fn behind(&self) -> Option<Position> {
        let course = self.course();
        (course.open && course.behind).then_some(Position {
            account: self.reading.account,
            run: self.reading.run,
            after: course.cursor,
        })
    }

    /// Sends what was read again after `from`; gives whether more is to be read.
    pub(super) fn catch_up(&self, from: Position, items: &[Item], whole: bool) -> bool {
        let mut course = self.course();
        if !course.open || !course.behind || course.cursor != from.after {
            return course.open && course.behind;
        }
        for item in items {
            course.cursor = item.sequence;
            course.replayed = item.sequence;
            let wanted = match self.items {
                Items::Events => true,
                Items::Lifecycle => crate::domain::feed::is_lifecycle(&item.r#type),
                Items::Transcript | Items::Progress => false,
            };
            if wanted {
                let message: Arc<str> = item.run_message(self.host).into_string().into();
                self.socket.push(Kind::Kept, &self.token, &message);
            }
        }
        course.behind = !whole || course.withheld > course.cursor;
        course.behind
    }

    fn hear_item(&self, item: &FeedMessage) {
        let mut course = self.course();
        if !course.open {
            return;
        }
        let sequence = item.sequence.unwrap_or(0);
        let (wanted, kind) = match (self.items, item.items) {
            (Items::Events, FeedItems::Events) => (true, Kind::Kept),
            (Items::Lifecycle, FeedItems::Events) => (item.lifecycle, Kind::Kept),
            (Items::Transcript, FeedItems::Transcript) => (true, Kind::Kept),
            (Items::Progress, FeedItems::Progress) => (true, Kind::Progress),
            _ => (false, Kind::Kept),
        };
        if course.behind && item.items == FeedItems::Events {
            course.withheld = course.withheld.max(sequence);
            return;
        }
        if item.sequence.is_some_and(|at| at <= course.replayed) {
            return;
        }
        course.cursor = course.cursor.max(sequence);
        if wanted {
            self.socket.push(kind, &self.token, &item.message);
        }
    }

    fn missed(&self) {
        if !matches!(self.items, Items::Events | Items::Lifecycle) {
            return;
        }
        let mut course = self.course();
        if course.open && !course.behind {
            course.behind = true;
            course.withheld = 0;
            if let Some(registry) = self.socket.registry.upgrade() {
                registry.behind(self.this.clone());
            }
        }
    }
}

impl Listener for Feed {
    fn hear(&self, message: &Message) {
        match message {
            Message::Feed(item) => self.hear_item(item),
            Message::Resynced | Message::Lagged => self.missed(),
            Message::WorkAvailable { .. }
            | Message::WorkCanceled { .. }
            | Message::AuthorityChanged
            | Message::Wake => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::words::MemberKind;
    use crate::domain::{MemberId, RunId};

    fn feed_of(registry: &Arc<Registry>, items: Items) -> Arc<Feed> {
        let caller = Caller::Member(MemberCaller {
            account: AccountId(1),
            id: MemberId(2),
            public_id: PublicId(uuid::Uuid::nil()),
            kind: MemberKind::Human,
            handle: "ann".to_owned(),
            token_id: 3,
        });
        let reading = Reading {
            account: AccountId(1),
            member: MemberId(2),
            run: RunId(4),
        };
        let found = RunFeed {
            run: RunId(4),
            watermark: 9,
        };
        let host = PublicId(uuid::Uuid::nil());
        Feed::new(
            registry.enter(caller),
            "\"i\"".into(),
            items,
            host,
            reading,
            found,
        )
    }

    fn item(sequence: i64, r#type: &str) -> Item {
        Item {
            sequence,
            r#type: r#type.to_owned(),
            payload: "{}".to_owned(),
            created_at: chrono::DateTime::UNIX_EPOCH,
        }
    }

    fn live(item: &Item) -> Message {
        Message::Feed(FeedMessage {
            items: FeedItems::Events,
            lifecycle: crate::domain::feed::is_lifecycle(&item.r#type),
            sequence: Some(item.sequence),
            message: item
                .run_message(PublicId(uuid::Uuid::nil()))
                .into_string()
                .into(),
        })
    }

    /// The positions of what waits to be written, after the confirmation.
    fn written(feed: &Feed) -> Vec<i64> {
        let sequence = |frame: &Frame| match &frame.body {
            Body::Push(message) => {
                let value: serde_json::Value = serde_json::from_str(message).unwrap();
                value["event"]["sequence"].as_i64()
            }
            Body::Confirm | Body::Reject => None,
        };
        let frames = feed.socket().take(usize::MAX, usize::MAX);
        frames.iter().filter_map(sequence).collect()
    }

    #[test]
    fn a_feed_that_missed_items_hears_each_once_and_in_order() {
        let registry = Arc::new(Registry::new());
        let feed = feed_of(&registry, Items::Events);
        feed.hear(&live(&item(9, "usage")));
        assert_eq!(written(&feed), [0; 0], "nothing before the confirmation");
        feed.open();
        feed.hear(&live(&item(10, "usage")));
        assert_eq!(feed.behind(), None);

        feed.hear(&Message::Resynced);
        assert_eq!(registry.take_behind().len(), 1);
        let position = feed.behind().unwrap();
        assert_eq!(position.after, 10);
        // Announced while the missed ones are being read.
        feed.hear(&live(&item(13, "usage")));
        let missed = [item(11, "usage"), item(12, "usage")];
        assert!(feed.catch_up(position, &missed, true), "13 is still owed");
        let position = feed.behind().unwrap();
        assert_eq!(position.after, 12);
        assert!(!feed.catch_up(position, &[item(13, "usage")], true));
        // Its message was still under way.
        feed.hear(&live(&item(13, "usage")));
        feed.hear(&live(&item(14, "usage")));
        assert_eq!(written(&feed), [10, 11, 12, 13, 14]);
    }

    #[test]
    fn a_reading_that_gave_all_it_may_is_followed_by_another() {
        let registry = Arc::new(Registry::new());
        let feed = feed_of(&registry, Items::Lifecycle);
        feed.open();
        feed.hear(&Message::Resynced);
        feed.hear(&Message::Resynced);
        assert_eq!(registry.take_behind().len(), 1, "owed once");
        let first = feed.behind().unwrap();
        let items = [item(10, "usage"), item(11, "turn_status")];
        assert!(feed.catch_up(first, &items, false));
        // A reading from a place that was passed meanwhile is not written twice.
        assert!(feed.catch_up(first, &items, true));
        let second = feed.behind().unwrap();
        assert!(!feed.catch_up(second, &[item(12, "attention_required")], true));
        assert_eq!(written(&feed), [11, 12]);
    }

    #[test]
    fn a_feed_that_was_shut_owes_nothing() {
        let registry = Arc::new(Registry::new());
        let feed = feed_of(&registry, Items::Events);
        feed.open();
        feed.hear(&Message::Resynced);
        let position = feed.behind().unwrap();
        feed.shut();
        assert_eq!(feed.behind(), None);
        assert!(!feed.catch_up(position, &[item(10, "usage")], true));
        feed.hear(&live(&item(11, "usage")));
        assert_eq!(written(&feed), [0; 0]);
    }

    #[test]
    fn nothing_is_queued_behind_a_goodbye() {
        let registry = Arc::new(Registry::new());
        let feed = feed_of(&registry, Items::Events);
        feed.open();
        written(&feed);
        feed.socket().close(Reason::Unauthorized);
        feed.socket().close(Reason::ServerRestart);
        feed.hear(&live(&item(10, "usage")));
        assert_eq!(written(&feed), [0; 0]);
        assert_eq!(feed.socket().closing(), Some(Reason::Unauthorized));
    }
}
