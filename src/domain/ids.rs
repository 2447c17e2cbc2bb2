//! Ids are types.
//!
//! Inner ids are numbers that never reach a wire, a log shown to clients or a Redis channel;
//! public ids are UUIDv7 and only looked up at the door (`conventions.md` §6).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! inner_id {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
    )*};
}

inner_id! {
    /// An account: the unit of placement. Every key leads with it.
    AccountId(i64);
    /// A workspace of an account.
    WorkspaceId(i64);
    /// A human or agent of an account.
    MemberId(i64);
    /// A delivery address.
    ExecutorId(i64);
    /// A run.
    RunId(i64);
    /// A task's number inside its run, from 1, in authoring order.
    TaskNo(i32);
    /// A park's number: the inbox cursor, drawn at dispatch.
    ParkNo(i64);
    /// An upload.
    UploadId(i64);
}

/// An id as clients see it: a UUID, lower case, hyphenated; any case is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublicId(pub Uuid);

impl fmt::Display for PublicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

/// Not a hyphenated UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID")]
pub struct NotAnId;

impl FromStr for PublicId {
    type Err = NotAnId;

    /// Only the hyphenated form: braces, URNs and bare hex are no ids here.
    fn from_str(text: &str) -> Result<Self, NotAnId> {
        if text.len() != 36 {
            return Err(NotAnId);
        }
        Uuid::try_parse(text).map(Self).map_err(|_| NotAnId)
    }
}

/// A task's key, unique in its run: `[A-Za-z0-9][A-Za-z0-9_-]{0,63}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TaskKey(String);

impl TaskKey {
    /// The most characters a key may have.
    pub const MAX: usize = 64;

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Takes a key that storage returned or the kernel minted.
    pub fn trusted(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Not a key: `[A-Za-z0-9][A-Za-z0-9_-]{0,63}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a key: 1 to 64 letters, digits, `_` or `-`, starting with a letter or digit")]
pub struct NotAKey;

impl FromStr for TaskKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let mut bytes = text.bytes();
        let head = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
        let tail = bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if head && tail && text.len() <= Self::MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAKey)
        }
    }
}
