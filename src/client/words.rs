//! Open vocabularies: the words a client knows, and `Other` for those it does not yet
//! (`executor.md` §1: unknown enum words in responses must be carried by clients).

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! open_words {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`")] $variant,)*
            /// A word this client does not know, as it came.
            Other(String),
        }

        impl $name {
            /// The word, as on the wire.
            pub fn as_str(&self) -> &str {
                match self { $(Self::$variant => $text,)* Self::Other(text) => text }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text { $($text => Self::$variant,)* _ => Self::Other(text.to_owned()) }
            }
        }

        impl FromStr for $name {
            type Err = Infallible;
            fn from_str(text: &str) -> Result<Self, Infallible> { Ok(Self::from(text)) }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.as_str()) }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Ok(Self::from(text.as_ref()))
            }
        }
    )*};
}

open_words! {
    /// Whether an account or member may act.
    Standing { Active = "active", Suspended = "suspended", }
    /// What a member is.
    MemberKind { Human = "human", Agent = "agent", }
    /// What a grant allows.
    Access { Read = "read", Write = "write", }
    /// What a delivery address is.
    ExecutorKind { AgentApplication = "agent_application", Runner = "runner", ToolProvider = "tool_provider", }
    /// Whether an executor still exists.
    ExecutorStatus { Active = "active", Revoked = "revoked", }
    /// Whose work a machine may do.
    AssignmentScope { UserPrivate = "user_private", AccountWide = "account_wide", }
    /// Whether somebody is at the address (`executor.md` §18).
    Presence { Online = "online", Offline = "offline", NotYetSeen = "not_yet_seen", }
    /// A run's state (`runs.md` §7.1).
    RunStatus {
        Pending = "pending", Running = "running", Paused = "paused", NeedsAttention = "needs_attention",
        Canceling = "canceling", Completed = "completed", Canceled = "canceled",
    }
    /// A task's state as clients see it (`runs.md` §8.1).
    TaskStatus {
        Waiting = "waiting", NeedsApproval = "needs_approval", Running = "running",
        Dispatched = "dispatched", AwaitingInput = "awaiting_input", Completed = "completed",
        Failed = "failed", Canceled = "canceled", TimedOut = "timed_out", Uncertain = "uncertain",
        Skipped = "skipped",
    }
    /// What a task is.
    TaskKind {
        Model = "model_task", Tool = "tool_task", Await = "await_task", Join = "join_task",
        Delegation = "delegation_task",
    }
    /// What an inbox row is (`executor.md` §6).
    InboxKind { ToolCall = "tool_call", Ask = "ask", Approval = "approval", }
}

impl RunStatus {
    /// Whether the run has ended for good. An unknown word counts as live.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Completed | Self::Canceled)
    }
}

impl TaskStatus {
    /// Whether the task has settled. An unknown word counts as live (`runs.md` §8.1).
    pub fn is_settled(&self) -> bool {
        matches!(
            self,
            Self::Completed
                | Self::Failed
                | Self::Canceled
                | Self::TimedOut
                | Self::Uncertain
                | Self::Skipped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words_read_back_and_unknown_ones_are_carried() {
        let known: TaskStatus = serde_json::from_str(r#""awaiting_input""#).unwrap();
        assert_eq!(known, TaskStatus::AwaitingInput);
        let new: TaskStatus = serde_json::from_str(r#""hibern\u0061ting""#).unwrap();
        assert_eq!(new, TaskStatus::Other("hibernating".to_owned()));
        assert_eq!(serde_json::to_string(&new).unwrap(), r#""hibernating""#);
        assert!(!new.is_settled());
    }
}
