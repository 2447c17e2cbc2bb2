//! The mainline of a run, or one call's branch, as a page of rounds (`runs.md` §9, "transcript").
//!
//! Previews only: bodies are read one task at a time. Does not know how the chain is walked.

use serde::{Serialize, Serializer};

use crate::domain::time::At;
use crate::domain::words::{TaskStatus, Visibility};
use crate::domain::{Canonical, TaskKey};

/// The most calls that a round lists; the others are counted.
pub const CALL_ITEMS: i64 = 24;

/// The most bytes of a call's metadata; larger ones are read with the task.
pub const METADATA_BYTES: i32 = 4096;

fn shown<S: Serializer>(status: &TaskStatus, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(status.shown())
}

/// Why a round did not complete.
#[derive(Debug, Clone, Serialize)]
pub struct RoundError {
    /// The word.
    pub key: String,
    /// A sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A call that a round read.
#[derive(Debug, Clone, Serialize)]
pub struct Call {
    /// Key.
    pub task_key: TaskKey,
    /// Its pairing id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// As the model spelled it.
    pub name: String,
    /// The served name, when the model used another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// State, in the product's words.
    #[serde(serialize_with = "shown")]
    pub status: TaskStatus,
    /// Present, and true, when its result says it errored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Canonical>,
    /// The beginning of its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_preview: Option<String>,
    /// How many bytes its text has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<i64>,
    /// Once started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<At>,
    /// Once settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<At>,
}

/// The calls that a round read.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Calls {
    /// All of them.
    pub count: i64,
    /// The first [`CALL_ITEMS`], in call order.
    pub items: Vec<Call>,
}

/// A round.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    /// Key.
    pub task_key: TaskKey,
    /// Whether it is of the main thread.
    pub mainline: bool,
    /// State, in the product's words.
    #[serde(serialize_with = "shown")]
    pub status: TaskStatus,
    /// Visibility; never hidden.
    pub visibility: Visibility,
    /// The beginning of its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_preview: Option<String>,
    /// How many bytes its text has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_bytes: Option<i64>,
    /// Why it did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RoundError>,
    /// Once started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<At>,
    /// Once settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<At>,
    /// The calls it read.
    pub calls: Calls,
    /// Those of the listed calls that grew a branch: what `prefix` takes.
    pub branches: Vec<TaskKey>,
}

/// A page: rounds in reading order.
#[derive(Debug, Clone)]
pub struct Page {
    /// Oldest first; hidden ones left out.
    pub rounds: Vec<Round>,
    /// The oldest row that the page looked at, hidden or not.
    pub oldest: Option<TaskKey>,
    /// Whether rows stand before it.
    pub has_older: bool,
}
