//! Every interval of leadership, as a share of the lease's time (`admission.md` §7: 10 s, 3 s, 2 s,
//! 8 s).

use std::time::Duration;

use crate::engine::mint::Mint;

/// How fast leadership goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    ttl: Duration,
}

impl Pace {
    /// The pace of a lease of that time.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl }
    }

    /// How long a lease lasts.
    pub fn ttl(self) -> Duration {
        self.ttl
    }

    /// How often it is renewed.
    pub fn renew(self) -> Duration {
        self.ttl * 3 / 10
    }

    /// How soon a renewal that failed is tried again.
    pub fn retry(self) -> Duration {
        self.ttl / 20
    }

    /// When a leader that could not renew stops by itself.
    pub fn self_fence(self) -> Duration {
        self.ttl * 8 / 10
    }

    /// How long a leader that is told to stop waits for its batches before it gives its lease back
    /// all the same.
    pub fn hand_over(self) -> Duration {
        self.ttl * 2 / 10
    }

    /// When a candidate looks again: two tenths, a quarter more or less, so that candidates spread.
    pub fn poll(self) -> Duration {
        let [chance] = Mint::new().bytes::<1>();
        let poll = self.ttl * 2 / 10;
        poll * 3 / 4 + poll / 2 * u32::from(chance) / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_shares_of_the_lease() {
        let pace = Pace::new(Duration::from_secs(10));
        assert_eq!(pace.renew(), Duration::from_secs(3));
        assert_eq!(pace.self_fence(), Duration::from_secs(8));
        for _ in 0..100 {
            let poll = pace.poll();
            assert!(
                (Duration::from_millis(1500)..=Duration::from_millis(2500)).contains(&poll),
                "{poll:?}"
            );
        }
    }
}
