//! When one claim's clock is to be moved. Pure: instants in, instants out.
//!
//! Deadlines are the database's; this side only paces. A window is counted from the moment the
//! request that opened it was **first sent**, which is never later than the grant, so the extension
//! is never late by clock skew or a slow answer.

use std::time::Duration;

use tokio::time::Instant;

/// The most one extension may ask for (`executor.md` §10).
const LONGEST_MS: u64 = 3_600_000;
/// The budget of a row that names none (`executor.md` §5).
const DEFAULT_MS: u64 = 600_000;
/// The least one extension asks for when longer ones are refused.
const SHORTEST_MS: u64 = 1_000;

/// One claim's clock as its holder sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    ends: Instant,
    /// What an extension asks for.
    pub(super) ask_ms: u64,
    due: Option<Instant>,
}

impl Lease {
    /// A lease opened by a request first sent at `sent`. `budget_ms` is the row's own budget,
    /// `announced_ms` what this runner announced for the tool.
    pub(super) fn new(sent: Instant, budget_ms: Option<u64>, announced_ms: Option<u64>) -> Self {
        let budget = budget_ms.unwrap_or(DEFAULT_MS).max(1);
        let ask_ms = budget
            .min(announced_ms.unwrap_or(LONGEST_MS))
            .min(LONGEST_MS);
        let mut lease = Self {
            ends: sent + Duration::from_millis(budget),
            ask_ms,
            due: None,
        };
        lease.plan();
        lease
    }

    /// When to extend; `None`: no more.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// An extension sent at `sent` was granted.
    pub(super) fn extended(&mut self, sent: Instant) {
        self.ends = sent + Duration::from_millis(self.ask_ms);
        self.plan();
    }

    /// The extension was longer than the row allows: ask for less, at once.
    pub(super) fn too_long(&mut self, now: Instant) {
        let less = (self.ask_ms / 2).max(SHORTEST_MS.min(self.ask_ms));
        self.due = (less < self.ask_ms).then_some(now);
        self.ask_ms = less;
    }

    /// Nobody answered: again after `wait`, while it can still help.
    pub(super) fn unanswered(&mut self, now: Instant, wait: Duration) {
        self.due = (now < self.ends).then_some(now + wait);
    }

    /// The kernel will not move this clock any more.
    pub(super) fn give_up(&mut self) {
        self.due = None;
    }

    /// At two thirds of a window of `ask_ms` that ends where this one does. A longer first window
    /// (an authored budget may be days) is not shortened by extending it early.
    fn plan(&mut self) {
        self.due = Some(self.ends - Duration::from_millis(self.ask_ms) / 3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn the_clock_is_moved_at_two_thirds_of_its_window() {
        let t0 = Instant::now();
        let mut lease = Lease::new(t0, Some(60_000), None);
        assert_eq!((lease.due(), lease.ask_ms), (Some(t0 + 40 * S), 60_000));
        lease.extended(t0 + 41 * S);
        assert_eq!(lease.due(), Some(t0 + 81 * S));
    }

    #[test]
    fn it_never_asks_for_more_than_announced_or_an_hour_and_never_shortens() {
        let t0 = Instant::now();
        let announced = Lease::new(t0, Some(60_000), Some(30_000));
        assert_eq!(announced.ask_ms, 30_000);
        assert_eq!(announced.due(), Some(t0 + 50 * S));
        let days = Lease::new(t0, Some(7 * 86_400_000), None);
        assert_eq!(days.ask_ms, 3_600_000);
        let left = t0 + 7 * 86_400 * S - days.due().unwrap();
        assert!(left < Duration::from_millis(days.ask_ms));
    }

    #[test]
    fn a_refused_length_is_halved_until_it_is_pointless() {
        let now = Instant::now();
        let mut lease = Lease::new(now, Some(3_000), None);
        lease.too_long(now);
        assert_eq!((lease.ask_ms, lease.due()), (1_500, Some(now)));
        lease.too_long(now);
        assert_eq!((lease.ask_ms, lease.due()), (1_000, Some(now)));
        lease.too_long(now);
        assert_eq!(lease.due(), None);
    }

    #[test]
    fn without_an_answer_it_is_tried_until_the_deadline() {
        let t0 = Instant::now();
        let mut lease = Lease::new(t0, Some(60_000), None);
        lease.unanswered(t0 + 40 * S, S);
        assert_eq!(lease.due(), Some(t0 + 41 * S));
        lease.unanswered(t0 + 60 * S, S);
        assert_eq!(lease.due(), None);
    }
}
