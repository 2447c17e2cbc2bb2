//! Resources of the executor plane (`executor.md`).

use serde::Deserialize;
use serde_json::value::RawValue;

use super::member::{AddressedTo, ExecutorRef, Task};
use crate::client::Error;
use crate::client::words::{AssignmentScope, ExecutorKind, ExecutorStatus, InboxKind, Presence};
use crate::domain::{Timestamp, Value};

/// A delivery address.
#[derive(Debug, Clone, Deserialize)]
pub struct Executor {
    /// Its id; survives re-pairing.
    pub public_id: String,
    /// What it is.
    pub kind: ExecutorKind,
    /// Whether it still exists.
    pub status: ExecutorStatus,
    /// What people read.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Which credential is current.
    #[serde(default)]
    pub credential_epoch: Option<i64>,
    /// Whether somebody is there.
    #[serde(default)]
    pub presence: Option<Presence>,
    /// When somebody last was.
    #[serde(default)]
    pub last_seen_at: Option<Timestamp>,
    /// Since when somebody is.
    #[serde(default)]
    pub connected_at: Option<Timestamp>,
    /// Operator reads: the machine's registration key.
    #[serde(default)]
    pub registration_identifier: Option<String>,
    /// Operator reads: whose work it may do.
    #[serde(default)]
    pub assignment_scope: Option<AssignmentScope>,
}

/// A credential that is shown this once.
#[derive(Clone, Deserialize)]
pub struct Credential {
    /// The bearer on the executor plane.
    pub token: String,
    /// Its epoch.
    pub credential_epoch: i64,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential(epoch {})", self.credential_epoch)
    }
}

/// An executor beside a new credential (`executor.md` §2).
#[derive(Debug, Clone, Deserialize)]
pub struct ExecutorCredential {
    /// The executor.
    pub executor: Executor,
    /// Its new credential; every older one is dead.
    pub credential: Credential,
}

/// What bootstrap and announcement answer (`executor.md` §3).
#[derive(Debug, Clone, Deserialize)]
pub struct ExecutorBootstrap {
    /// Which address the credential is.
    pub executor: Executor,
    /// When presence was read.
    #[serde(default)]
    pub measured_at: Option<Timestamp>,
}

/// A machine as members discover it (`executor.md` §4).
#[derive(Debug, Clone, Deserialize)]
pub struct MachineExecutor {
    /// Its id.
    pub public_id: String,
    /// What it is.
    #[serde(default)]
    pub kind: Option<ExecutorKind>,
    /// What people read.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Whose work it does.
    #[serde(default)]
    pub assignment_scope: Option<AssignmentScope>,
    /// The tools it announced.
    #[serde(default)]
    pub served_tools: Option<Value>,
    /// Its environment.
    #[serde(default)]
    pub environment: Option<Value>,
    /// The documents it announced.
    #[serde(default)]
    pub served_documents: Option<Value>,
    /// Whether somebody is there.
    #[serde(default)]
    pub presence: Option<Presence>,
    /// When somebody last was.
    #[serde(default)]
    pub last_seen_at: Option<Timestamp>,
    /// Since when somebody is.
    #[serde(default)]
    pub connected_at: Option<Timestamp>,
}

/// One inbox row (`executor.md` §6).
#[derive(Debug, Clone, Deserialize)]
pub struct InboxRow {
    /// What it is.
    pub kind: InboxKind,
    /// Its run.
    pub run_public_id: String,
    /// Its workspace.
    #[serde(default)]
    pub workspace_public_id: Option<String>,
    /// Its conversation, when it has one.
    #[serde(default)]
    pub conversation_public_id: Option<String>,
    /// Its parent, when it is child work.
    #[serde(default)]
    pub parent_public_id: Option<String>,
    /// Its task.
    pub task_key: String,
    /// The tool.
    #[serde(default)]
    pub tool_name: Option<String>,
    /// Its input, exact.
    #[serde(default)]
    pub tool_input: Option<Value>,
    /// The model's id of the call.
    #[serde(default)]
    pub tool_call_id: Option<String>,
    /// What the model called the tool.
    #[serde(default)]
    pub tool_alias: Option<String>,
    /// The runner it was accepted for.
    #[serde(default)]
    pub target: Option<ExecutorRef>,
    /// Whose document a `skill` may read.
    #[serde(default)]
    pub scope: Option<Value>,
    /// A question's text.
    #[serde(default)]
    pub prompt: Option<String>,
    /// A question's choices.
    #[serde(default)]
    pub options: Option<Vec<String>>,
    /// Whether several may be chosen.
    #[serde(default)]
    pub multi: Option<bool>,
    /// When it was dispatched.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Its clock.
    #[serde(default)]
    pub deadline_at: Option<Timestamp>,
    /// Its budget; never moves.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether somebody took it in this generation.
    #[serde(default)]
    pub claimed: bool,
    /// Whom it is addressed to.
    #[serde(default)]
    pub addressed_to: Option<AddressedTo>,
    /// Approvals: the call's effects.
    #[serde(default)]
    pub effect_profile: Option<Value>,
}

/// What a claimant holds.
#[derive(Clone, Deserialize)]
pub struct Claim {
    /// The proof; opaque.
    pub claim_token: String,
    /// The one clock.
    pub deadline_at: Timestamp,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claim(until {})", self.deadline_at)
    }
}

/// A grant: the executable row beside its proof (`executor.md` §8).
#[derive(Debug, Clone, Deserialize)]
pub struct ClaimGrant {
    /// The row.
    pub task: InboxRow,
    /// The proof.
    pub claim: Claim,
}

/// What one entry of a batch of commits came to: the status and body of its own commit.
#[derive(Deserialize)]
pub(crate) struct CommitResult {
    status: u16,
    #[serde(default)]
    task: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Box<RawValue>>,
}

impl CommitResult {
    /// As the commit alone would be answered by `what`.
    pub(crate) fn outcome(self, what: &str) -> Result<Task, Error> {
        if (200..300).contains(&self.status) {
            let task = self.task.ok_or_else(|| "it shows no task".to_owned());
            let read = |task: Box<RawValue>| super::read(task.get().as_bytes());
            return task.and_then(read).map_err(|why| Error::Decode {
                what: what.to_owned(),
                why,
            });
        }
        let error = self.error.as_deref().map_or("null", RawValue::get);
        let body = format!(r#"{{"error":{error}}}"#);
        Err(Error::from_answer(self.status, None, body.as_bytes()))
    }
}

/// Whether a claim is alive (`executor.md` §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ClaimState {
    /// False once the row has settled in any way.
    pub active: bool,
}

/// A file (`executor.md` §9, §13).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Upload {
    /// Its id.
    pub public_id: String,
    /// Its name.
    #[serde(default)]
    pub filename: String,
    /// Its type, detected from its bytes.
    #[serde(default)]
    pub content_type: String,
    /// Its size.
    #[serde(default)]
    pub byte_size: u64,
    /// When it was staged.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}
