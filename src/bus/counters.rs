//! Rate counters and cadence slots: in Redis for all replicas together, in the process while Redis
//! is away (`conventions.md` §9, `executor.md` §14). Neither is truth.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::COUNT_WITHIN;
use super::link::Link;

/// What a window holds after one more request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// Requests of this window, this one included.
    pub count: u64,
    /// How long until the window ends.
    pub resets_in: Duration,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}

/// Charges in Redis; none when it does not answer in time.
pub(super) async fn charge<const N: usize>(
    link: &Link,
    keys: [&str; N],
    window: Duration,
) -> Option<[Charge; N]> {
    let mut pipe = redis::pipe();
    pipe.atomic();
    for key in keys {
        let name = link.names().rate(key);
        pipe.cmd("SET")
            .arg(&name)
            .arg(0)
            .arg("PX")
            .arg(millis(window))
            .arg("NX")
            .ignore()
            .cmd("INCR")
            .arg(&name)
            .cmd("PTTL")
            .arg(&name);
    }
    let answers: Vec<i64> = link.ask(COUNT_WITHIN, &pipe).await?;
    let charges: Vec<Charge> = answers
        .chunks_exact(2)
        .map(|answer| Charge {
            count: answer[0].unsigned_abs(),
            resets_in: u64::try_from(answer[1]).map_or(window, Duration::from_millis),
        })
        .collect();
    charges.try_into().ok()
}

/// Takes a slot in Redis; none when it does not answer in time.
pub(super) async fn try_slot(link: &Link, key: &str, ttl: Duration) -> Option<bool> {
    let mut pipe = redis::pipe();
    pipe.cmd("SET")
        .arg(link.names().rate(key))
        .arg(1)
        .arg("PX")
        .arg(millis(ttl))
        .arg("NX");
    let (set,): (Option<String>,) = link.ask(COUNT_WITHIN, &pipe).await?;
    Some(set.is_some())
}

#[derive(Debug, Clone, Copy)]
struct Window {
    count: u64,
    ends: Instant,
}

/// Counters of this process.
#[derive(Debug, Default)]
pub(super) struct Local {
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    by_key: HashMap<String, Window>,
    /// How many keys there may be before ended windows are cleared out.
    clear_at: usize,
}

impl Local {
    pub(super) fn charge(&self, key: &str, window: Duration) -> Charge {
        let now = Instant::now();
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.by_key.len() >= windows.clear_at {
            windows.by_key.retain(|_, w| w.ends > now);
            windows.clear_at = (windows.by_key.len() * 2).max(1024);
        }
        let fresh = Window {
            count: 0,
            ends: now + window,
        };
        let entry = match windows.by_key.get_mut(key) {
            Some(entry) => entry,
            None => windows.by_key.entry(key.to_owned()).or_insert(fresh),
        };
        if entry.ends <= now {
            *entry = fresh;
        }
        entry.count += 1;
        Charge {
            count: entry.count,
            resets_in: entry.ends - now,
        }
    }

    pub(super) fn try_slot(&self, key: &str, ttl: Duration) -> bool {
        self.charge(key, ttl).count == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_local_window_counts_and_ends() {
        let local = Local::default();
        let minute = Duration::from_secs(60);
        assert_eq!(local.charge("a", minute).count, 1);
        tokio::time::advance(Duration::from_secs(20)).await;
        let second = local.charge("a", minute);
        assert_eq!((second.count, second.resets_in.as_secs()), (2, 40));
        assert_eq!(local.charge("b", minute).count, 1);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(local.charge("a", minute).count, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_local_slot_frees_itself() {
        let local = Local::default();
        let quarter = Duration::from_millis(250);
        assert!(local.try_slot("k", quarter));
        assert!(!local.try_slot("k", quarter));
        tokio::time::advance(quarter).await;
        assert!(local.try_slot("k", quarter));
    }

    #[tokio::test(start_paused = true)]
    async fn ended_windows_are_forgotten() {
        let local = Local::default();
        for n in 0..5000 {
            local.charge(&n.to_string(), Duration::from_millis(1));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(local.windows.lock().unwrap().by_key.len() <= 1024);
    }
}
