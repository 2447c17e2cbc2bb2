//! How often and how fast a call that is safe to repeat is repeated (BR-076: waits asked for by a
//! server are honoured, but bounded; nothing is repeated for ever).

use std::time::Duration;

use chrono::DateTime;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

use super::chance::jittered;
use super::error::Error;

/// An explicit permission to repeat calls that are safe to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts, the first included.
    pub attempts: u32,
    /// No attempt begins later than this after the first.
    pub within: Duration,
    /// The wait before the second attempt; doubled for each later one.
    pub base: Duration,
    /// The longest wait, also when the server asks for more.
    pub longest: Duration,
}

impl Default for RetryPolicy {
    /// Eight attempts within a minute, waits from 100 ms to 10 s.
    fn default() -> Self {
        Self {
            attempts: 8,
            within: Duration::from_secs(60),
            base: Duration::from_millis(100),
            longest: Duration::from_secs(10),
        }
    }
}

impl RetryPolicy {
    /// The wait before the attempt after `made` attempts (at least 1): exponential with jitter,
    /// never shorter than the server asks for, never longer than [`longest`](Self::longest).
    pub fn wait(&self, made: u32, asked: Option<Duration>) -> Duration {
        let factor = 1u32 << made.saturating_sub(1).min(20);
        let own = jittered(self.base.saturating_mul(factor).min(self.longest));
        own.max(asked.unwrap_or_default()).min(self.longest)
    }

    /// The wait before another attempt, or nothing when `error` is final or the policy is spent:
    /// after `made` attempts, `elapsed` since the first began.
    pub fn next_wait(&self, error: &Error, made: u32, elapsed: Duration) -> Option<Duration> {
        if !error.is_transient() || made >= self.attempts {
            return None;
        }
        let wait = self.wait(made, error.retry_after());
        (elapsed + wait <= self.within).then_some(wait)
    }
}

/// What `Retry-After` asks for: whole seconds, or an HTTP date measured against the same answer's
/// `Date`. Junk and negative values ask for nothing.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let at = DateTime::parse_from_rfc2822(text).ok()?;
    let now = headers.get(DATE)?.to_str().ok()?;
    let now = DateTime::parse_from_rfc2822(now).ok()?;
    (at - now).to_std().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: reqwest::header::HeaderName = name.parse().unwrap();
            headers.insert(name, value.parse().unwrap());
        }
        retry_after(&headers).map(|d| d.as_secs())
    }

    #[test]
    fn br_076_retry_after_is_read_and_junk_asks_for_nothing() {
        assert_eq!(asked(&[("retry-after", "2")]), Some(2));
        assert_eq!(asked(&[("retry-after", "0")]), Some(0));
        assert_eq!(asked(&[("retry-after", "-1")]), None);
        assert_eq!(asked(&[("retry-after", "soon")]), None);
        assert_eq!(asked(&[]), None);
        let date = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
        let later = ("retry-after", "Wed, 21 Oct 2026 07:28:07 GMT");
        assert_eq!(asked(&[date, later]), Some(7));
        assert_eq!(asked(&[later]), None);
    }

    #[test]
    fn br_076_waits_grow_are_jittered_and_are_clamped() {
        let policy = RetryPolicy::default();
        let second = policy.wait(1, None);
        assert!(second >= policy.base / 2 && second <= policy.base);
        assert!(policy.wait(4, None) >= policy.base * 4);
        assert!(policy.wait(60, None) <= policy.longest);
        let asked = Some(Duration::from_secs(2));
        assert_eq!(policy.wait(1, asked), Duration::from_secs(2));
        let absurd = Some(Duration::from_secs(1_000_000_000));
        assert_eq!(policy.wait(1, absurd), policy.longest);
    }

    #[test]
    fn a_policy_ends_by_attempts_by_time_and_at_a_final_answer() {
        let policy = RetryPolicy {
            attempts: 3,
            within: Duration::from_secs(5),
            ..RetryPolicy::default()
        };
        let busy = Error::from_answer(503, None, b"");
        let early = Duration::ZERO;
        assert!(policy.next_wait(&busy, 2, early).is_some());
        assert!(policy.next_wait(&busy, 3, early).is_none());
        let refused = Error::from_answer(409, None, b"");
        assert!(policy.next_wait(&refused, 1, early).is_none());
        assert!(policy.next_wait(&busy, 1, policy.within).is_none());
    }
}
