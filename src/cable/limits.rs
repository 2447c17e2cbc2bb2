//! What one client may do, and whether it still answers (`cable.md` §5, §6). Pure but for the
//! moments it is told.

use std::time::Duration;

use tokio::time::Instant;

/// Frames a client may send per second.
const FRAMES_PER_SECOND: u32 = 50;
/// A stock client that reconnects subscribes to all its streams at once: so many `subscribe` frames
/// of a socket's life are not held against the frames of a second.
const FREE_SUBSCRIBES: u32 = 64;
/// Unparsable frames that are ignored.
const JUNK: u8 = 15;
/// Unanswered pings after which an opted-in client is gone.
const UNANSWERED: u8 = 3;

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// A `subscribe`.
    Subscribe,
    /// Any other frame of the protocol.
    Other,
    /// No frame of the protocol.
    Junk,
}

/// What a client has used up.
#[derive(Debug)]
pub struct Allowance {
    window: Instant,
    frames: u32,
    free_subscribes: u32,
    junk: u8,
}

impl Allowance {
    /// A fresh one.
    pub fn new(now: Instant) -> Self {
        Self {
            window: now,
            frames: 0,
            free_subscribes: FREE_SUBSCRIBES,
            junk: 0,
        }
    }

    /// Charges one frame; false when it is one too many.
    pub fn charge(&mut self, now: Instant, incoming: Incoming) -> bool {
        if now.duration_since(self.window) >= Duration::from_secs(1) {
            self.window = now;
            self.frames = 0;
        }
        match incoming {
            Incoming::Subscribe if self.free_subscribes > 0 => {
                self.free_subscribes -= 1;
                return true;
            }
            Incoming::Subscribe | Incoming::Other => {}
            Incoming::Junk => self.junk = self.junk.saturating_add(1),
        }
        self.frames += 1;
        self.frames <= FRAMES_PER_SECOND && self.junk <= JUNK
    }
}

/// What a moment for a ping brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// Send a ping.
    Ping,
    /// The client opted in and stopped answering.
    PongTimeout,
}

/// The channel action `pong`: the first one opts in, from then on three unanswered pings end the
/// socket. Pings are counted, not time.
#[derive(Debug, Default)]
pub struct Pongs {
    /// Unanswered pings, once opted in.
    unanswered: Option<u8>,
}

impl Pongs {
    /// A pong came.
    pub fn pong(&mut self) {
        self.unanswered = Some(0);
    }

    /// The subscription that pongs are sent on is gone.
    pub fn opt_out(&mut self) {
        self.unanswered = None;
    }

    /// The moment for a ping. `reading` is whether the client's frames are being read: a pong that
    /// waits unread is no silence.
    pub fn beat(&mut self, reading: bool) -> Beat {
        match &mut self.unanswered {
            Some(n) if *n >= UNANSWERED && reading => return Beat::PongTimeout,
            Some(n) if reading => *n += 1,
            _ => {}
        }
        Beat::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_never_pongs_is_never_cut() {
        let mut pongs = Pongs::default();
        for _ in 0..1000 {
            assert_eq!(pongs.beat(true), Beat::Ping);
        }
    }

    #[test]
    fn one_that_ponged_is_cut_after_three_unanswered_pings() {
        let mut pongs = Pongs::default();
        pongs.pong();
        for _ in 0..10 {
            assert_eq!(pongs.beat(true), Beat::Ping);
            assert_eq!(pongs.beat(true), Beat::Ping);
            pongs.pong();
        }
        let beats: Vec<_> = (0..4).map(|_| pongs.beat(true)).collect();
        assert_eq!(
            beats,
            [Beat::Ping, Beat::Ping, Beat::Ping, Beat::PongTimeout]
        );
        pongs.opt_out();
        assert_eq!(pongs.beat(true), Beat::Ping);
    }

    #[test]
    fn pings_sent_while_nothing_is_read_do_not_count() {
        let mut pongs = Pongs::default();
        pongs.pong();
        for _ in 0..10 {
            assert_eq!(pongs.beat(false), Beat::Ping);
        }
        assert_eq!(pongs.beat(true), Beat::Ping);
    }

    #[test]
    fn the_sixteenth_unparsable_frame_is_one_too_many() {
        let mut now = Instant::now();
        let mut allowance = Allowance::new(now);
        for _ in 0..15 {
            now += Duration::from_secs(1);
            assert!(allowance.charge(now, Incoming::Junk));
        }
        assert!(!allowance.charge(now + Duration::from_secs(1), Incoming::Junk));
    }

    #[test]
    fn fifty_frames_a_second_and_a_reconnect_with_64_streams_are_allowed() {
        let now = Instant::now();
        let mut allowance = Allowance::new(now);
        for _ in 0..64 {
            assert!(allowance.charge(now, Incoming::Subscribe));
        }
        for _ in 0..50 {
            assert!(allowance.charge(now, Incoming::Other));
        }
        assert!(!allowance.charge(now, Incoming::Other));
        let later = now + Duration::from_secs(1);
        for _ in 0..50 {
            assert!(allowance.charge(later, Incoming::Subscribe));
        }
        assert!(!allowance.charge(later, Incoming::Subscribe));
    }
}
