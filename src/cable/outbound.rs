//! What waits to be written to one socket, and what is dropped when too much does
//! (`cable.md` §6). Pure.
//!
//! Invariants: at most [`FRAMES`] frames and [`BYTES`] bytes wait; confirmations, `work_canceled`
//! and durable items are never dropped; of dropped `work_available` one of each subscription stays
//! as a nudge; what stays keeps its order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::frames;

/// The most frames that wait.
pub const FRAMES: usize = 512;
/// The most bytes they hold.
pub const BYTES: usize = 1 << 20;

/// What a frame is, as far as dropping goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Confirmations, rejections, `work_canceled`, durable items, transcript: kept.
    Kept,
    /// `work_available`: one is enough.
    WorkAvailable,
    /// `progress`: the latest is enough.
    Progress,
}

/// One frame. Its text is put together when it is written, so that the message is shared by all
/// sockets it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// The subscription's identifier token.
    pub token: Arc<str>,
    /// What it says.
    pub body: Body,
}

/// What a frame says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// `confirm_subscription`.
    Confirm,
    /// `reject_subscription`.
    Reject,
    /// A push.
    Push(Arc<str>),
}

impl Frame {
    /// A push of that kind.
    pub fn push(kind: Kind, token: &Arc<str>, message: &Arc<str>) -> Self {
        Self {
            kind,
            token: token.clone(),
            body: Body::Push(message.clone()),
        }
    }

    /// The text to write.
    pub fn text(&self) -> String {
        match &self.body {
            Body::Confirm => frames::confirm(&self.token),
            Body::Reject => frames::reject(&self.token),
            Body::Push(message) => frames::push(&self.token, message),
        }
    }

    /// The bytes it will be written as, about.
    fn weight(&self) -> usize {
        let body = match &self.body {
            Body::Confirm | Body::Reject => 32,
            Body::Push(message) => message.len(),
        };
        32 + self.token.len() + body
    }
}

/// There is no room, and nothing left that may be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// Frames that wait.
#[derive(Debug, Default)]
pub struct Queue {
    frames: VecDeque<Frame>,
    bytes: usize,
    dropped: u64,
}

impl Queue {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// How many frames wait, and how many bytes they hold.
    #[cfg(test)]
    fn size(&self) -> (usize, usize) {
        (self.frames.len(), self.bytes)
    }

    /// Frames dropped since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Adds a frame, dropping others, or itself, as §6 says.
    ///
    /// # Errors
    /// [`Full`]: the reader is too slow.
    pub fn put(&mut self, frame: Frame) -> Result<(), Full> {
        let weight = frame.weight();
        if !self.fits(weight) {
            self.drop_progress();
        }
        if !self.fits(weight) {
            self.drop_work_available();
        }
        if self.fits(weight) {
            self.bytes += weight;
            self.frames.push_back(frame);
            return Ok(());
        }
        match frame.kind {
            Kind::Progress => {}
            Kind::WorkAvailable if self.holds_nudge(&frame.token) => {}
            Kind::WorkAvailable | Kind::Kept => return Err(Full),
        }
        self.dropped += 1;
        Ok(())
    }

    fn fits(&self, weight: usize) -> bool {
        // A single frame of any size passes, or a large durable item could never be sent.
        self.frames.is_empty() || (self.frames.len() < FRAMES && self.bytes + weight <= BYTES)
    }

    fn holds_nudge(&self, token: &Arc<str>) -> bool {
        self.frames
            .iter()
            .any(|f| f.kind == Kind::WorkAvailable && f.token == *token)
    }

    fn drop_progress(&mut self) {
        self.keep(|frame| frame.kind != Kind::Progress);
    }

    fn drop_work_available(&mut self) {
        let mut nudged: Vec<Arc<str>> = Vec::new();
        self.keep(|frame| {
            if frame.kind != Kind::WorkAvailable {
                return true;
            }
            let first = !nudged.contains(&frame.token);
            if first {
                nudged.push(frame.token.clone());
            }
            first
        });
    }

    fn keep(&mut self, mut keep: impl FnMut(&Frame) -> bool) {
        let (mut bytes, mut dropped) = (self.bytes, 0);
        self.frames.retain(|frame| {
            let kept = keep(frame);
            if !kept {
                bytes -= frame.weight();
                dropped += 1;
            }
            kept
        });
        self.bytes = bytes;
        self.dropped += dropped;
    }

    /// Forgets the pushes of a subscription that ended.
    pub fn forget(&mut self, token: &Arc<str>) {
        let dropped = self.dropped;
        self.keep(|frame| frame.token != *token || !matches!(frame.body, Body::Push(_)));
        self.dropped = dropped;
    }

    /// The next frames, in order: at most `frames` of them and about `bytes`, at least one if any.
    pub fn take(&mut self, frames: usize, bytes: usize) -> Vec<Frame> {
        let mut taken = Vec::new();
        let mut weight = 0;
        while taken.len() < frames && weight < bytes {
            let Some(frame) = self.frames.pop_front() else {
                break;
            };
            weight += frame.weight();
            taken.push(frame);
        }
        self.bytes -= weight;
        if self.frames.is_empty() {
            // An idle socket holds no buffer.
            self.frames = VecDeque::new();
        }
        taken
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.frames = VecDeque::new();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, token: &str, message: &str) -> Frame {
        Frame::push(kind, &token.into(), &message.into())
    }

    fn texts(queue: &mut Queue) -> Vec<String> {
        queue
            .take(usize::MAX, usize::MAX)
            .iter()
            .map(|f| match &f.body {
                Body::Push(message) => message.to_string(),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn queued_progress_goes_first_and_the_latest_is_queued() {
        let mut queue = Queue::default();
        queue.put(frame(Kind::Kept, "e", "event")).unwrap();
        queue.put(frame(Kind::WorkAvailable, "i", "work")).unwrap();
        for n in 0..FRAMES {
            queue
                .put(frame(Kind::Progress, "p", &n.to_string()))
                .unwrap();
        }
        assert!(queue.size().0 <= FRAMES);
        let left = texts(&mut queue);
        assert_eq!(left[..2], ["event", "work"]);
        assert_eq!(left.last().unwrap(), &(FRAMES - 1).to_string());
        assert_eq!(queue.take_dropped() as usize + left.len(), FRAMES + 2);
    }

    #[test]
    fn then_work_available_but_one_of_each_subscription_stays() {
        let mut queue = Queue::default();
        for n in 0..FRAMES {
            let token = if n % 2 == 0 { "i" } else { "j" };
            queue
                .put(frame(Kind::WorkAvailable, token, &n.to_string()))
                .unwrap();
        }
        queue.put(frame(Kind::Kept, "i", "canceled")).unwrap();
        assert_eq!(texts(&mut queue), ["0", "1", "canceled"]);
        assert_eq!(queue.take_dropped() as usize, FRAMES - 2);
    }

    #[test]
    fn what_must_not_be_dropped_makes_a_slow_consumer() {
        let mut queue = Queue::default();
        for n in 0..FRAMES {
            queue.put(frame(Kind::Kept, "e", &n.to_string())).unwrap();
        }
        assert_eq!(queue.put(frame(Kind::Kept, "e", "one more")), Err(Full));
        // Progress is lossy: no reason to cut the reader.
        assert_eq!(queue.put(frame(Kind::Progress, "p", "x")), Ok(()));
        // The first nudge is owed, as nothing else tells of work.
        assert_eq!(queue.put(frame(Kind::WorkAvailable, "i", "x")), Err(Full));
        assert_eq!(texts(&mut queue).len(), FRAMES);
    }

    #[test]
    fn bytes_are_bounded_and_accounted_for() {
        let mut queue = Queue::default();
        let tail = "x".repeat(60_000);
        for _ in 0..2_000 {
            queue.put(frame(Kind::Progress, "p", &tail)).unwrap();
            assert!(queue.size().1 <= BYTES);
        }
        queue.put(frame(Kind::Kept, "i", "canceled")).unwrap();
        assert_eq!(texts(&mut queue).last().unwrap(), "canceled");
        assert_eq!(queue.size(), (0, 0));
        // One frame of any size passes.
        let large = "x".repeat(2 * BYTES);
        queue.put(frame(Kind::Kept, "e", &large)).unwrap();
        assert_eq!(queue.put(frame(Kind::Kept, "e", "next")), Err(Full));
        queue.clear();
        assert_eq!(queue.size(), (0, 0));
    }

    #[test]
    fn an_unsubscribed_stream_leaves_nothing_behind() {
        let mut queue = Queue::default();
        let token: Arc<str> = "i".into();
        queue.put(frame(Kind::Kept, "i", "a")).unwrap();
        queue.put(frame(Kind::Kept, "j", "b")).unwrap();
        queue
            .put(Frame {
                kind: Kind::Kept,
                token: token.clone(),
                body: Body::Confirm,
            })
            .unwrap();
        queue.forget(&token);
        assert_eq!(texts(&mut queue), ["b", "Confirm"]);
        assert_eq!(queue.take_dropped(), 0);
    }

    #[test]
    fn a_batch_is_bounded_by_count_and_bytes() {
        let mut queue = Queue::default();
        for n in 0..10 {
            queue.put(frame(Kind::Kept, "e", &n.to_string())).unwrap();
        }
        assert_eq!(queue.take(3, usize::MAX).len(), 3);
        assert_eq!(queue.take(100, 1).len(), 1);
        assert_eq!(queue.size().0, 6);
    }
}
