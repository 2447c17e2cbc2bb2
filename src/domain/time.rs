//! Points in time as the database gives them.
//!
//! Stored in microseconds and compared exactly; shown in whole seconds, floored
//! (`conventions.md` §6). Nothing here reads a clock.

use chrono::{DateTime, SubsecRound, Utc};
use serde::{Serialize, Serializer};

/// A point in time, UTC, microseconds.
pub type Timestamp = DateTime<Utc>;

/// A timestamp as a client sees it: `2030-01-02T03:04:05Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At(pub Timestamp);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}",
            self.0.trunc_subsecs(0).format("%Y-%m-%dT%H:%M:%SZ")
        )
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Adds milliseconds to a timestamp.
pub fn plus_ms(at: Timestamp, ms: i64) -> Timestamp {
    at + chrono::Duration::milliseconds(ms)
}
