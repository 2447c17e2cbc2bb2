//! Who failed lately, so that one run's error stops neither its batch nor the next ones
//! (`admission.md` §8: after five failures it backs off to 60 s).
//!
//! Invariants: memory is bounded; forgetting is safe, it only means one more try.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// How many are remembered.
const CAPACITY: usize = 4096;

/// Tries without success before a pause.
const STRIKES: u32 = 5;

/// The pause after failures.
const AFTER_FAILURES: Duration = Duration::from_secs(60);

/// The pause after tries that changed nothing: the row may be held by a busy run, so not for long.
const AFTER_NOTHING: Duration = Duration::from_secs(5);

/// What one try came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Try {
    /// Something was done.
    Done,
    /// Nothing was to be done, or somebody holds the row.
    Nothing,
    /// An error, or a panic.
    Failed,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    strikes: u32,
    until: Option<Instant>,
    touched: Instant,
}

/// Tries, by whom they were for.
#[derive(Debug)]
pub(super) struct Backoff<K> {
    records: HashMap<K, Record>,
}

impl<K> Default for Backoff<K> {
    fn default() -> Self {
        Self {
            records: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq + Copy> Backoff<K> {
    /// Whether it is to be left alone now.
    pub(super) fn rests(&self, key: &K, now: Instant) -> bool {
        self.records
            .get(key)
            .and_then(|r| r.until)
            .is_some_and(|until| now < until)
    }

    /// Everybody that is to be left alone now.
    pub(super) fn resting(&self, now: Instant) -> Vec<K> {
        self.records
            .keys()
            .filter(|k| self.rests(k, now))
            .copied()
            .collect()
    }

    /// Notes a try.
    pub(super) fn note(&mut self, key: K, outcome: Try, now: Instant) {
        if outcome == Try::Done {
            self.records.remove(&key);
            return;
        }
        if self.records.len() >= CAPACITY && !self.records.contains_key(&key) {
            self.forget_half();
        }
        let record = self.records.entry(key).or_insert(Record {
            strikes: 0,
            until: None,
            touched: now,
        });
        record.strikes = record.strikes.saturating_add(1);
        record.touched = now;
        if record.strikes >= STRIKES {
            record.until = Some(
                now + if outcome == Try::Failed {
                    AFTER_FAILURES
                } else {
                    AFTER_NOTHING
                },
            );
        }
    }

    /// Makes room: those that were touched longest ago go.
    fn forget_half(&mut self) {
        let mut touched: Vec<Instant> = self.records.values().map(|r| r.touched).collect();
        touched.sort_unstable();
        let middle = touched[touched.len() / 2];
        self.records.retain(|_, r| r.touched > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn five_failures_pause_for_a_minute_and_a_success_forgets() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        for _ in 0..4 {
            backoff.note(1, Try::Failed, now);
            assert!(!backoff.rests(&1, now));
        }
        backoff.note(1, Try::Failed, now);
        assert_eq!(backoff.resting(now), [1]);
        assert!(backoff.rests(&1, after(now, 59)));
        assert!(!backoff.rests(&1, after(now, 61)));
        // One more failure is enough now: it has shown what it is.
        backoff.note(1, Try::Failed, after(now, 61));
        assert!(backoff.rests(&1, after(now, 62)));
        backoff.note(1, Try::Done, after(now, 63));
        assert!(!backoff.rests(&1, after(now, 63)));
    }

    #[test]
    fn tries_that_change_nothing_pause_shortly() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            backoff.note(1, Try::Nothing, now);
        }
        assert!(backoff.rests(&1, after(now, 4)));
        assert!(!backoff.rests(&1, after(now, 6)));
    }

    #[test]
    fn memory_is_bounded() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        for key in 0..3 * CAPACITY {
            backoff.note(key, Try::Failed, start + Duration::from_micros(key as u64));
        }
        assert!(backoff.records.len() <= CAPACITY);
        assert!(backoff.records.contains_key(&(3 * CAPACITY - 1)));
    }
}
