//! What a run narrates: the durable items of its feed (`runs.md` §13).
//!
//! Numbered under the run lock, contiguous per host; the cable renders the same items.

use super::ids::{PublicId, TaskKey};
use super::json::{Canonical, Value};
use super::time::{At, Timestamp};
use super::words::{
    ApprovalOrigin, AttentionReason, FailureResolution, Lifetime, MemberKind, OnFailure, RunStatus,
    TaskKind, TaskStatus, Wake,
};

/// The most keys that an attention lists; the rest are counted.
pub const ATTENTION_KEYS: usize = 32;

/// An approval as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalFact {
    /// Where it came from.
    pub origin: ApprovalOrigin,
    /// Who decided, when a principal did.
    pub decided_by: Option<PublicId>,
    /// When.
    pub decided_at: Timestamp,
}

/// One item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The run's status was written.
    TurnStatus {
        /// The status.
        run_status: RunStatus,
        /// Of a reasoned cancel.
        failure_reason: Option<String>,
        /// The standing attention.
        attention_reason: Option<AttentionReason>,
    },
    /// A task's status was written, birth included.
    TaskStatus(Box<TaskStatusItem>),
    /// The attention reason or its keys changed.
    AttentionRequired {
        /// Why.
        reason: AttentionReason,
        /// All keys; at most [`ATTENTION_KEYS`] are shown.
        keys: Vec<TaskKey>,
    },
    /// A live claim's clock was moved.
    TaskDeadlineExtended {
        /// Whose.
        task_key: TaskKey,
        /// To when.
        deadline_at: Timestamp,
        /// By which executor.
        by: PublicId,
        /// The window asked for.
        timeout_ms: i64,
    },
    /// Whom later steps are routed to by default.
    DefaultRunnerChanged {
        /// The runner; none: nobody.
        executor_public_id: Option<PublicId>,
    },
}

/// A task as a status item shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatusItem {
    /// Key.
    pub task_key: TaskKey,
    /// Kind.
    pub kind: TaskKind,
    /// Lifetime.
    pub lifetime: Lifetime,
    /// Wake.
    pub wake: Wake,
    /// The status written.
    pub status: TaskStatus,
    /// Current dependency keys; none for a root.
    pub after: Vec<String>,
    /// Policy.
    pub on_failure: OnFailure,
    /// Of a failure.
    pub error_key: Option<String>,
    /// A person's stamp.
    pub failure_resolution: Option<FailureResolution>,
    /// Once decided.
    pub approval: Option<ApprovalFact>,
    /// Who answered, when a principal did.
    pub resolved_by: Option<Resolver>,
}

/// Who answered a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolver {
    /// What it is.
    pub kind: MemberKind,
    /// Its public id.
    pub public_id: PublicId,
    /// Its handle.
    pub handle: String,
}

impl Event {
    /// Its type word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TurnStatus { .. } => "turn_status",
            Self::TaskStatus(_) => "task_status",
            Self::AttentionRequired { .. } => "attention_required",
            Self::TaskDeadlineExtended { .. } => "task_deadline_extended",
            Self::DefaultRunnerChanged { .. } => "default_runner_changed",
        }
    }

    /// Its payload, canonical.
    pub fn payload(&self, run: PublicId) -> Canonical {
        let mut members = vec![("run_public_id", Value::from(run.to_string()))];
        match self {
            Self::TurnStatus {
                run_status,
                failure_reason,
                attention_reason,
            } => {
                members.push(("run_status", run_status.as_str().into()));
                members.push((
                    "status",
                    turn_status(*run_status, failure_reason.is_some()).into(),
                ));
                push(&mut members, "failure_reason", failure_reason.clone());
                push(
                    &mut members,
                    "attention_reason",
                    attention_reason.map(|r| r.as_str()),
                );
                let key = failure_reason.clone().or_else(|| {
                    (*run_status == RunStatus::NeedsAttention)
                        .then(|| attention_reason.map(|r| r.as_str().to_owned()))
                        .flatten()
                });
                push(&mut members, "failure_reason_key", key);
            }
            Self::TaskStatus(item) => task_status(&mut members, item),
            Self::AttentionRequired { reason, keys } => {
                members.push(("reason", reason.as_str().into()));
                attention_keys(&mut members, keys);
            }
            Self::TaskDeadlineExtended {
                task_key,
                deadline_at,
                by,
                timeout_ms,
            } => {
                members.push(("task_key", task_key.as_str().into()));
                members.push(("deadline_at", At(*deadline_at).to_string().into()));
                members.push(("by", by.to_string().into()));
                members.push(("timeout_ms", (*timeout_ms).into()));
            }
            Self::DefaultRunnerChanged { executor_public_id } => {
                let id = executor_public_id.map_or(Value::Null, |id| id.to_string().into());
                members.push(("executor_public_id", id));
            }
        }
        object(members)
            .canonical()
            .expect("words, keys, ids and numbers are storable")
    }
}

/// The keys that an attention shows, and how many it only counts.
pub fn attention_keys(members: &mut Vec<(&'static str, Value)>, keys: &[TaskKey]) {
    let shown = keys
        .iter()
        .take(ATTENTION_KEYS)
        .map(|k| Value::from(k.as_str()))
        .collect::<Vec<_>>();
    members.push(("blocked_task_keys", Value::Array(shown)));
    if let Some(rest) = keys.len().checked_sub(ATTENTION_KEYS).filter(|n| *n > 0) {
        let rest = i64::try_from(rest).unwrap_or(i64::MAX);
        members.push(("blocked_task_overflow", rest.into()));
    }
}

/// A standalone run's turn word (`runs.md` §6).
pub fn turn_status(run: RunStatus, reasoned: bool) -> &'static str {
    match run {
        RunStatus::Pending => "pending",
        RunStatus::Running | RunStatus::Paused | RunStatus::Canceling => "running",
        RunStatus::NeedsAttention => "failed",
        RunStatus::Completed => "completed",
        RunStatus::Canceled if reasoned => "failed",
        RunStatus::Canceled => "canceled",
    }
}

fn task_status(members: &mut Vec<(&'static str, Value)>, item: &TaskStatusItem) {
    members.push(("task_key", item.task_key.as_str().into()));
    members.push(("kind", item.kind.as_str().into()));
    members.push(("lifetime", item.lifetime.as_str().into()));
    members.push(("wake", item.wake.as_str().into()));
    members.push(("status", item.status.shown().into()));
    if !item.after.is_empty() {
        let after = item
            .after
            .iter()
            .map(|k| Value::from(k.as_str()))
            .collect::<Vec<_>>();
        members.push(("after", Value::Array(after)));
    }
    members.push(("on_failure", item.on_failure.as_str().into()));
    push(members, "error_key", item.error_key.clone());
    push(
        members,
        "failure_resolution",
        item.failure_resolution.map(|r| r.as_str()),
    );
    push(members, "approval", item.approval.as_ref().map(approval));
    let resolver = item.resolved_by.as_ref().map(|who| {
        Value::from([
            ("kind", who.kind.as_str().into()),
            ("public_id", who.public_id.to_string().into()),
            ("handle", who.handle.as_str().into()),
        ])
    });
    push(members, "resolved_by", resolver);
}

/// An approval fact as reads and events show it.
pub fn approval(fact: &ApprovalFact) -> Value {
    let mut members = vec![("origin", Value::from(fact.origin.as_str()))];
    push(
        &mut members,
        "decided_by",
        fact.decided_by.map(|id| id.to_string()),
    );
    members.push(("decided_at", At(fact.decided_at).to_string().into()));
    object(members)
}

fn push(
    members: &mut Vec<(&'static str, Value)>,
    name: &'static str,
    value: Option<impl Into<Value>>,
) {
    if let Some(value) = value {
        members.push((name, value.into()));
    }
}

fn object(members: Vec<(&'static str, Value)>) -> Value {
    Value::Object(
        members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}
