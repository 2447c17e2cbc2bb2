//! Resources of the member plane (`runs.md` §3, §6, §13; `steps.md` §8).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::present;
use crate::client::words::{RunStatus, TaskKind, TaskStatus};
use crate::domain::{Timestamp, Value};

/// A run, as a full read shows it (`runs.md` §6).
#[derive(Debug, Clone, Deserialize)]
pub struct Run {
    /// Its id.
    pub public_id: String,
    /// Its state.
    pub status: RunStatus,
    /// When it was authored.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// When it was started.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Since when it is paused.
    #[serde(default)]
    pub paused_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default)]
    pub completed_at: Option<Timestamp>,
    /// Why it was canceled, when for a reason.
    #[serde(default)]
    pub failure_reason: Option<String>,
    /// The key of its answer.
    #[serde(default)]
    pub deliverable_task_key: Option<String>,
    /// How it treats model-origin calls.
    #[serde(default)]
    pub approval_mode: Option<String>,
    /// How prompts are made.
    #[serde(default)]
    pub prompt_mechanism: Option<String>,
    /// The runner that unrouted runner calls go to.
    #[serde(default)]
    pub default_runner: Option<Value>,
    /// Whether it asks for a person.
    #[serde(default)]
    pub attention: Option<Attention>,
    /// Counts of tasks by status, and `total`.
    #[serde(default)]
    pub task_progress: BTreeMap<String, u64>,
    /// Its tasks in authoring order.
    #[serde(default)]
    pub tasks: Vec<Task>,
    /// The turn it answers, on a standalone run.
    #[serde(default)]
    pub turn: Option<Turn>,
    /// Since when its details are gone.
    #[serde(default)]
    pub details_pruned_at: Option<Timestamp>,
}

/// One row of a run list.
#[derive(Debug, Clone, Deserialize)]
pub struct RunListRow {
    /// Its id.
    pub public_id: String,
    /// Its state.
    pub status: RunStatus,
    /// Why it was canceled, when for a reason.
    #[serde(default)]
    pub failure_reason: Option<String>,
    /// Whether it asks for a person.
    #[serde(default)]
    pub attention: Option<Attention>,
    /// When it was authored.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

/// Why a run asks for a person (`runs.md` §7.2).
#[derive(Debug, Clone, Deserialize)]
pub struct Attention {
    /// The reason's word.
    pub reason: String,
    /// The rows concerned, at most 32.
    #[serde(default)]
    pub blocked_task_keys: Vec<String>,
    /// How many more there are.
    #[serde(default)]
    pub blocked_task_overflow: Option<u64>,
}

/// The turn of a standalone run.
#[derive(Debug, Clone, Deserialize)]
pub struct Turn {
    /// Its state.
    pub status: String,
    /// Why it failed.
    #[serde(default)]
    pub failure_reason_key: Option<String>,
}

/// A task (`steps.md` §8): what every read shows, and what the single read adds.
#[derive(Debug, Clone, Deserialize)]
pub struct Task {
    /// Its key.
    pub key: String,
    /// What it is.
    pub kind: TaskKind,
    /// Its state.
    pub status: TaskStatus,
    /// Whether the reply waits for it.
    #[serde(default)]
    pub lifetime: Option<String>,
    /// What a late result does.
    #[serde(default)]
    pub wake: Option<String>,
    /// What its failure does.
    #[serde(default)]
    pub on_failure: Option<String>,
    /// How it shows.
    #[serde(default)]
    pub visibility: Option<String>,
    /// The keys it depends on; empty for a root.
    #[serde(default)]
    pub after: Vec<String>,
    /// Those of them that have not settled.
    #[serde(default)]
    pub waiting_on: Vec<String>,
    /// A person's stamp on its failure.
    #[serde(default)]
    pub failure_resolution: Option<String>,
    /// The model that ran.
    #[serde(default)]
    pub model: Option<Value>,
    /// The tool that ran.
    #[serde(default)]
    pub tool_name: Option<String>,
    /// What the model called it.
    #[serde(default)]
    pub tool_alias: Option<String>,
    /// What it came to.
    #[serde(default)]
    pub result: Option<Value>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<TaskError>,
    /// The runner it was accepted for.
    #[serde(default)]
    pub target: Option<ExecutorRef>,
    /// Whom it was delivered to.
    #[serde(default)]
    pub addressed_to: Option<AddressedTo>,
    /// Who took it.
    #[serde(default)]
    pub claimed_by: Option<ExecutorRef>,
    /// How it was approved.
    #[serde(default)]
    pub approval: Option<Value>,
    /// When a background answer was delivered.
    #[serde(default)]
    pub result_delivered_at: Option<Timestamp>,
    /// Whether a completed call says it errored.
    #[serde(default)]
    pub is_error: Option<bool>,
    /// When it started.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When it settled.
    #[serde(default)]
    pub completed_at: Option<Timestamp>,
    /// Its clock, while parked.
    #[serde(default)]
    pub deadline_at: Option<Timestamp>,
    /// Single read: a question's or round's text.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Single read: a question's choices.
    #[serde(default)]
    pub options: Option<Vec<String>>,
    /// Single read: whether several may be chosen.
    #[serde(default)]
    pub multi: Option<bool>,
    /// Single read: what a wait observes.
    #[serde(default)]
    pub wait: Option<Value>,
    /// Single read: a call's input.
    #[serde(default)]
    pub tool_input: Option<Value>,
    /// Single read: the text a model reads.
    #[serde(default)]
    pub output: Option<Value>,
    /// A beginning of that text.
    #[serde(default)]
    pub output_preview: Option<String>,
    /// Single read: the blocks a result holds.
    #[serde(default)]
    pub content: Option<Value>,
    /// Single read: the structured value; presence is a fact, `null` included.
    #[serde(default, deserialize_with = "present")]
    pub structured_content: Option<Value>,
    /// Single read: a result's title.
    #[serde(default)]
    pub title: Option<String>,
    /// Single read: a result's metadata.
    #[serde(default)]
    pub metadata: Option<Value>,
}

/// Why a task failed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TaskError {
    /// The error's key (`runs.md` §16).
    pub key: String,
    /// More words.
    #[serde(default)]
    pub detail: Option<String>,
}

/// An executor by reference.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ExecutorRef {
    /// Its id.
    pub executor_public_id: String,
    /// What people read.
    #[serde(default)]
    pub display_name: Option<String>,
}

/// Whom a started row is addressed to: a role, and an executor unless it is a pool's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AddressedTo {
    /// The role.
    pub role: String,
    /// The executor.
    #[serde(default)]
    pub executor_public_id: Option<String>,
}

/// What create and append answer (`runs.md` §3).
#[derive(Clone, Deserialize)]
pub struct Receipt {
    /// The rows that were written.
    #[serde(default)]
    pub accepted_task_keys: Vec<String>,
    /// The request tree by key.
    #[serde(default)]
    pub steps: Option<Value>,
    /// The run's answer now.
    #[serde(default)]
    pub deliverable_task_key: Option<String>,
    /// The run's revision.
    pub revision: i64,
    /// One token per authored ask.
    #[serde(default)]
    pub resolution_tokens: BTreeMap<String, String>,
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receipt")
            .field("revision", &self.revision)
            .field("accepted_task_keys", &self.accepted_task_keys)
            .field("deliverable_task_key", &self.deliverable_task_key)
            .finish_non_exhaustive()
    }
}

/// What a create answers.
#[derive(Debug, Clone, Deserialize)]
pub struct RunCreated {
    /// The run.
    pub run: Run,
    /// Its seed receipt.
    pub receipt: Receipt,
    /// Whether this is an earlier create's answer.
    #[serde(default)]
    pub replayed: bool,
}

/// What an append answers.
#[derive(Debug, Clone, Deserialize)]
pub struct Appended {
    /// The receipt.
    pub receipt: Receipt,
    /// Whether this is an earlier append's answer.
    #[serde(default)]
    pub replayed: bool,
}

/// A run's graph (`runs.md` §9).
#[derive(Debug, Clone, Deserialize)]
pub struct Graph {
    /// In authoring order.
    pub nodes: Vec<GraphNode>,
    /// By head, then source.
    pub edges: Vec<GraphEdge>,
    /// A drawing.
    pub mermaid: String,
}

/// A node of a graph.
#[derive(Debug, Clone, Deserialize)]
pub struct GraphNode {
    /// Its key.
    pub key: String,
    /// What it is.
    pub kind: TaskKind,
    /// Its state.
    pub status: TaskStatus,
    /// Whether it is the run's answer.
    #[serde(default)]
    pub deliverable: bool,
    /// Why it did not complete.
    #[serde(default)]
    pub error_key: Option<String>,
    /// A barrier's terms.
    #[serde(default)]
    pub join: Option<JoinTerms>,
}

/// When a barrier is decided, and what becomes of the others.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct JoinTerms {
    /// `"any"`, `"all"` or how many.
    pub until: Value,
    /// `cancel` or `run_out`.
    #[serde(default)]
    pub losers: Option<String>,
}

/// An edge of a graph.
#[derive(Debug, Clone, Deserialize)]
pub struct GraphEdge {
    /// Its source's key.
    pub from: String,
    /// Its head's key.
    pub to: String,
    /// Whether position made it, not a name.
    #[serde(default)]
    pub structural: bool,
}

/// One narrated item of a run's feed (`runs.md` §13).
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    /// Its place, contiguous from 1.
    pub sequence: u64,
    /// Its cursor.
    pub cursor: String,
    /// Its type's word.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it says.
    pub payload: Value,
    /// When it was written.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

/// One page of a feed.
#[derive(Debug, Clone)]
pub struct EventPage {
    /// The items, strictly after the cursor, ascending.
    pub events: Vec<Event>,
    /// Where the next page begins; nothing when this page ends the feed for now.
    pub next_after: Option<String>,
    /// The highest committed sequence.
    pub watermark: Option<u64>,
}

impl EventPage {
    pub(in crate::client) fn read(body: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Wire {
            events: Vec<Event>,
            #[serde(default)]
            pagination: Pagination,
        }
        #[derive(Deserialize, Default)]
        struct Pagination {
            #[serde(default)]
            next_after: Option<String>,
            #[serde(default)]
            watermark: Option<u64>,
        }
        let wire: Wire = super::read(body)?;
        Ok(Self {
            events: wire.events,
            next_after: wire.pagination.next_after,
            watermark: wire.pagination.watermark,
        })
    }
}
