//! What an envelope compiles to: rows in placement order, and what the door does with them.
//!
//! Invariants (`compile` keeps them, the property tests check them): every [`Ref::New`] points to
//! an earlier row of the same list, except a row's `barrier`, which is placed after its members;
//! one edge per pair; keys are unique and none is taken; the answer and the mainline's tail are
//! attached rows.

use std::collections::BTreeMap;

use serde::Serialize;

use super::context::{ModelContext, ModelDefaults};
use super::text::object_text;
use crate::domain::ids::{PublicId, TaskKey, TaskNo};
use crate::domain::json::{Canonical, Value};
use crate::domain::steps::{Mirror, Selector, WaitRefusal};
use crate::domain::words::{
    AuthoredBy, EdgeState, Holder, JoinMode, Lifetime, Losers, Mark, OnFailure, TaskKind,
    Visibility, Wake,
};

/// A row that another row waits on or reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ref {
    /// The row at that index of [`Compiled::rows`].
    New(usize),
    /// A row the run already has.
    Existing(TaskNo),
}

/// One edge into a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// What it waits on.
    pub from: Ref,
    /// Whether written order made it; otherwise `after` or `results` did.
    pub structural: bool,
    /// What it is born as (`engine.md` §5): open from any new row, and from an existing one by
    /// its settlement, except that a reference to a terminal row is met.
    pub state: EdgeState,
}

/// One row to insert.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its key: written or minted.
    pub key: TaskKey,
    /// Its kind.
    pub kind: TaskKind,
    /// Who wrote it.
    pub authored_by: AuthoredBy,
    /// On model rows only.
    pub mark: Option<Mark>,
    /// Whether the envelope does not wait for it.
    pub detached: bool,
    /// Resolved.
    pub lifetime: Lifetime,
    /// Resolved.
    pub wake: Wake,
    /// Resolved.
    pub on_failure: OnFailure,
    /// On model rows only: the policy of the fans it expands into.
    pub fan_on_failure: Option<OnFailure>,
    /// Resolved.
    pub visibility: Visibility,
    /// The nearest race it was placed in, as an index of a later row.
    pub barrier: Option<usize>,
    /// The mainline round it continues: none or one.
    pub input_from: Vec<Ref>,
    /// The results it reads, in declaration order, one entry a row.
    pub result_from: Vec<Ref>,
    /// What it waits on: written order first, then `after`, then `results`.
    pub edges: Vec<Edge>,
    /// What it does.
    pub work: Work,
}

/// What a row does.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Calls a tool.
    Tool(ToolCall),
    /// Asks a model.
    Model(Box<ModelRound>),
    /// Asks a person.
    Ask(Question),
    /// Observes other work.
    Wait(Observation),
    /// Ends a race.
    Join(Barrier),
}

/// A tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The served execution name.
    pub name: String,
    /// A storable object within the bound; `{}` when none was written.
    pub input: Canonical,
    /// The authored clock, ms.
    pub timeout_ms: Option<i64>,
    /// The Runner it is for, frozen here. None: resolved at start, never to a Runner.
    pub target: Option<PublicId>,
    /// The child-authoring context it was given.
    pub model_defaults: Option<Box<ModelDefaults>>,
}

/// A model round.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRound {
    /// The model.
    pub model: Selector,
    /// Not blank.
    pub prompt: String,
    /// The files beside the prompt, in order; empty when none were written.
    pub attachments: Vec<PublicId>,
    /// The rest of the request surface.
    pub context: ModelContext,
}

impl ModelRound {
    /// The authored definition as one canonical object: `model`, `prompt`, `attachments` and the
    /// members of [`ModelContext::parts`].
    pub fn definition(&self) -> Canonical {
        let mut parts = self.context.parts();
        parts.insert("model", storable(&self.model.to_value()));
        parts.insert("prompt", storable(&self.prompt.as_str().into()));
        if !self.attachments.is_empty() {
            parts.insert("attachments", storable(&ids(&self.attachments)));
        }
        object_text(&parts)
    }
}

/// The text of a value whose parts were checked when the step was read.
pub(super) fn storable(value: &Value) -> Canonical {
    value.canonical().expect("checked when the step was read")
}

/// Ids as an array of texts.
pub(super) fn ids(list: &[PublicId]) -> Value {
    Value::Array(list.iter().map(|id| id.to_string().into()).collect())
}

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Not blank.
    pub prompt: String,
    /// The choices, in order, when there are any.
    pub options: Option<Vec<String>>,
    /// Whether several may be taken, when that was said.
    pub multi: Option<bool>,
    /// The authored clock, ms.
    pub timeout_ms: Option<i64>,
    /// The bearer of its token, or, on what no member wrote, a person.
    pub holder: Holder,
}

impl Question {
    /// The question as one canonical object: `prompt`, and `options` and `multi` where written.
    pub fn definition(&self) -> Canonical {
        let mut parts = BTreeMap::new();
        parts.insert("prompt", storable(&self.prompt.as_str().into()));
        if let Some(options) = &self.options {
            let options = options.iter().map(|o| o.as_str().into()).collect();
            parts.insert("options", storable(&Value::Array(options)));
        }
        if let Some(multi) = self.multi {
            parts.insert("multi", storable(&multi.into()));
        }
        object_text(&parts)
    }
}

/// An observation of other work; held by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The key as written.
    pub task: TaskKey,
    /// What that key means.
    pub target: WaitTarget,
    /// The run as written; none means this one.
    pub run_public_id: Option<PublicId>,
    /// The clock, ms; one hour when none was written.
    pub timeout_ms: i64,
}

impl Observation {
    /// The observation as one canonical object: `task`, `timeout_ms`, and `run_public_id` where
    /// written.
    pub fn definition(&self) -> Canonical {
        let mut parts = BTreeMap::new();
        parts.insert("task", storable(&self.task.as_str().into()));
        parts.insert("timeout_ms", storable(&self.timeout_ms.into()));
        if let Some(run) = &self.run_public_id {
            parts.insert("run_public_id", storable(&run.to_string().into()));
        }
        object_text(&parts)
    }
}

/// What a `wait` observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitTarget {
    /// A row of this run.
    Here(Ref),
    /// A row of another run, for the door to find.
    Elsewhere(PublicId),
    /// Itself: a cycle.
    Itself,
    /// Nothing: unknown in this run, or written later in this envelope.
    Nothing,
}

/// The row that ends a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    /// `any` or `quorum`.
    pub mode: JoinMode,
    /// How many successes end it: 1 under `any`.
    pub k: usize,
    /// What becomes of the rest.
    pub losers: Losers,
}

/// A compiled envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// The revision it produces.
    pub revision: i64,
    /// In placement order: members in written order, an inner barrier before an outer one.
    pub rows: Vec<Row>,
    /// The row that becomes the run's answer; none for an append of only detached steps, which
    /// moves nothing.
    pub answer: Option<usize>,
    /// The row that becomes the mainline's tail; none when no round was placed.
    pub mainline: Option<usize>,
    /// The receipt's `steps`.
    pub mirror: Vec<Mirror>,
}

impl Compiled {
    /// The receipt's `accepted_task_keys`: every row's key in placement order.
    pub fn accepted_task_keys(&self) -> impl Iterator<Item = &TaskKey> {
        self.rows.iter().map(|row| &row.key)
    }

    /// The asks whose receipt carries a `resolution_token`, as indices of `rows`.
    pub fn tokened(&self) -> impl Iterator<Item = usize> {
        let holds = |row: &Row| matches!(&row.work, Work::Ask(ask) if ask.holder == Holder::Token);
        let rows = self.rows.iter().enumerate();
        rows.filter(move |(_, row)| holds(row)).map(|(i, _)| i)
    }

    /// Whether a row continues that round: with the live tail it is the door's `tip_live`.
    pub fn continues(&self, round: TaskNo) -> bool {
        let reads = |row: &Row| row.input_from.contains(&Ref::Existing(round));
        self.rows.iter().any(reads)
    }

    /// Whether a row owes its result to the turn: after final delivery, `turn_already_delivered`.
    pub fn has_turn_work(&self) -> bool {
        self.rows.iter().any(|row| row.lifetime == Lifetime::Turn)
    }

    /// The first `wait` without a target, in placement order (`steps.md` §3.5). `elsewhere` says
    /// whether the door found an accessible task of that key in that run.
    ///
    /// # Errors
    /// [`WaitRefusal`], for the envelope as a whole.
    pub fn check_waits(
        &self,
        elsewhere: impl Fn(PublicId, &TaskKey) -> bool,
    ) -> Result<(), WaitRefusal> {
        for row in &self.rows {
            let Work::Wait(wait) = &row.work else {
                continue;
            };
            match wait.target {
                WaitTarget::Here(_) => {}
                WaitTarget::Elsewhere(run) if elsewhere(run, &wait.task) => {}
                WaitTarget::Itself => return Err(WaitRefusal::Cycle),
                WaitTarget::Elsewhere(_) | WaitTarget::Nothing => {
                    return Err(WaitRefusal::TargetNotFound);
                }
            }
        }
        Ok(())
    }

    /// The parts of the receipt that compiling decides (`runs.md` §3); the door adds
    /// `deliverable_task_key` when no answer moved, and the tokens.
    pub fn receipt(&self) -> ReceiptParts<'_> {
        ReceiptParts {
            accepted_task_keys: self.accepted_task_keys().collect(),
            steps: &self.mirror,
            deliverable_task_key: self.answer.map(|i| &self.rows[i].key),
            revision: self.revision,
        }
    }
}

/// See [`Compiled::receipt`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReceiptParts<'a> {
    /// Every row's key, in placement order.
    pub accepted_task_keys: Vec<&'a TaskKey>,
    /// The request tree by key.
    pub steps: &'a [Mirror],
    /// The new answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliverable_task_key: Option<&'a TaskKey>,
    /// The revision produced.
    pub revision: i64,
}
