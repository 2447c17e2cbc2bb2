//! The client's one source of chance: jitter and idempotency keys.
//!
//! Nothing decided by the engine depends on it, so it does not come from `engine::mint`; it only
//! spreads callers in time and keeps their keys apart.

use std::time::Duration;

/// A fresh `Idempotency-Key`: 32 hex characters (fits the 36 bytes of run create and append).
#[allow(
    clippy::disallowed_methods,
    reason = "a client's key, minted outside the engine"
)]
pub fn key() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// A duration between half of `full` and `full`, so that many callers do not come back at once.
#[allow(
    clippy::disallowed_methods,
    reason = "pacing of a client, decides nothing"
)]
pub fn jittered(full: Duration) -> Duration {
    full.mul_f64(0.5 + 0.5 * rand::random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_between_half_and_all() {
        for _ in 0..1_000 {
            let d = jittered(Duration::from_millis(100));
            assert!(d >= Duration::from_millis(50) && d <= Duration::from_millis(100));
        }
    }

    #[test]
    fn keys_differ_and_fit_the_shortest_bound() {
        let (a, b) = (key(), key());
        assert_ne!(a, b);
        assert!(a.len() <= 36);
    }
}
