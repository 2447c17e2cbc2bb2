//! A run's progress as its authors wrote it: one phase a top-level step of each stored receipt
//! (`runs.md` §9, "phases").
//!
//! Rows that the kernel added count inside the phase of the row they extend. Does not know how long
//! receipts are kept: it is given those that stand, in write order.
//!
//! Invariants: a row counts in at most one phase; a phase's status is that of its worst row, worst
//! first: failed, needs_approval, awaiting_human, running, waiting, completed.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::domain::time::At;
use crate::domain::words::{AuthoredBy, FailureResolution, OnFailure, TaskStatus};
use crate::domain::{TaskKey, TaskNo, Value};

/// A row, as far as progress looks at it.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its number.
    pub no: TaskNo,
    /// Its key.
    pub key: TaskKey,
    /// State.
    pub status: TaskStatus,
    /// Who wrote it.
    pub authored_by: AuthoredBy,
    /// Its policy.
    pub on_failure: OnFailure,
    /// A person's stamp.
    pub failure_resolution: Option<FailureResolution>,
    /// Whether a settled race stands for its failure.
    pub race_absorbed: bool,
    /// Why it did not complete.
    pub error_key: Option<String>,
    /// Whether it is in an arm of a race.
    pub in_arm: bool,
    /// Whether it works beside the answer.
    pub detached: bool,
    /// Whether an edge leaves it.
    pub has_consumer: bool,
    /// The row it was expanded from, or the operation's owner.
    pub parent: Option<TaskNo>,
    /// The authored row it stands for; itself on an authored one.
    pub lineage: TaskNo,
    /// The first row it reads as history.
    pub continues: Option<TaskNo>,
    /// When its background answer was delivered.
    pub result_delivered_at: Option<At>,
}

impl Row {
    /// The row whose phase a row of the kernel's counts in.
    fn extends(&self) -> Option<TaskNo> {
        self.parent
            .or_else(|| (self.lineage != self.no).then_some(self.lineage))
            .or_else(|| {
                (self.authored_by != AuthoredBy::Author)
                    .then_some(self.continues)
                    .flatten()
            })
    }
}

/// A phase's state, worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PhaseStatus {
    /// Nothing of it is left to do.
    Completed,
    /// On its dependencies, or the scheduler.
    Waiting,
    /// Somebody works.
    Running,
    /// On a person.
    AwaitingHuman,
    /// On an approver.
    NeedsApproval,
    /// A failure stands, or its rows never run.
    Failed,
}

impl PhaseStatus {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::AwaitingHuman => "awaiting_human",
            Self::NeedsApproval => "needs_approval",
            Self::Failed => "failed",
        }
    }

    /// What a row says about its phase.
    fn of(row: &Row) -> Self {
        match row.status {
            TaskStatus::Completed => Self::Completed,
            TaskStatus::Queued => Self::Waiting,
            TaskStatus::Running | TaskStatus::Dispatched => Self::Running,
            TaskStatus::AwaitingInput => Self::AwaitingHuman,
            TaskStatus::NeedsApproval => Self::NeedsApproval,
            TaskStatus::Failed | TaskStatus::TimedOut | TaskStatus::Uncertain => {
                let let_go = row.failure_resolution.is_some() || row.race_absorbed;
                // A race goes on without an arm that failed: its barrier speaks for it.
                let stands = match row.on_failure {
                    OnFailure::Absorb => false,
                    OnFailure::Propagate => !row.in_arm,
                    OnFailure::Halt => true,
                };
                Self::failed_if(stands && !let_go)
            }
            TaskStatus::Canceled => Self::failed_if(
                row.failure_resolution.is_none()
                    && row.error_key.as_deref() == Some("run_canceled"),
            ),
            TaskStatus::Skipped => Self::failed_if(!row.in_arm && !row.race_absorbed),
        }
    }

    fn failed_if(failed: bool) -> Self {
        if failed {
            Self::Failed
        } else {
            Self::Completed
        }
    }
}

impl Serialize for PhaseStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

fn shown<S: Serializer>(status: &TaskStatus, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(status.shown())
}

/// A phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// The step's key; a fan's labels joined with ` · `.
    pub label: String,
    /// The keys its receipt names, in write order; a race's barrier last.
    pub keys: Vec<String>,
    /// Rows that settled.
    pub done: usize,
    /// Rows, the kernel's included.
    pub total: usize,
    /// Of its worst row.
    pub status: PhaseStatus,
}

/// Work beside the answer: the end of a detached chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Background {
    /// Key.
    pub key: TaskKey,
    /// State, in the product's words.
    #[serde(serialize_with = "shown")]
    pub status: TaskStatus,
    /// When its result was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_delivered_at: Option<At>,
}

/// What models used. A run that called none used nothing, at no price.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Spend {
    /// Tokens read.
    pub input_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
    /// Of those read, from a cache.
    pub cache_read_tokens: i64,
    /// To six places; null without input.
    pub cache_hit_rate: Option<String>,
    /// Null unless every priced receipt agrees on the unit.
    pub cost_amount: Option<String>,
    /// That unit.
    pub cost_unit: Option<String>,
    /// The same by model.
    pub by_model: Vec<Value>,
}

/// The read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phases {
    /// In write order.
    pub phases: Vec<Phase>,
    /// The first that is not completed.
    pub current: Option<usize>,
    /// Detached tips, in authoring order.
    pub background: Vec<Background>,
    /// What models used.
    pub spend: Spend,
}

/// A step of a receipt: the keys that name it, and the barriers among its rows.
#[derive(Default)]
struct Step {
    leaves: Vec<String>,
    barriers: Vec<String>,
}

impl Step {
    /// Reads a key, a group `{"parallel", "key"?}`, or a sequence of such.
    fn read(&mut self, step: &Value) {
        if let Some(key) = step.as_str() {
            self.leaves.push(key.to_owned());
        }
        let members = step.get("parallel").unwrap_or(step).as_array();
        for member in members.into_iter().flatten() {
            self.read(member);
        }
        // A barrier is placed after its members.
        self.barriers
            .extend(step.get("key").and_then(Value::as_str).map(str::to_owned));
    }

    fn phase(self) -> Phase {
        Phase {
            label: self.leaves.join(" · "),
            keys: self.leaves.into_iter().chain(self.barriers).collect(),
            done: 0,
            total: 0,
            status: PhaseStatus::Completed,
        }
    }
}

/// The phases of a receipt; a receipt of another kind has none.
fn phases_of(receipt: &Value) -> impl Iterator<Item = Phase> {
    let steps = receipt.get("steps").and_then(Value::as_array);
    steps.into_iter().flatten().map(|step| {
        let mut read = Step::default();
        read.read(step);
        read.phase()
    })
}

/// Which phase each row counts in.
fn places(phases: &[Phase], rows: &[Row]) -> BTreeMap<TaskNo, usize> {
    let named: BTreeMap<&str, usize> = phases
        .iter()
        .enumerate()
        .flat_map(|(i, phase)| phase.keys.iter().map(move |key| (key.as_str(), i)))
        .collect();
    let by_no: BTreeMap<TaskNo, &Row> = rows.iter().map(|row| (row.no, row)).collect();
    let mut places: BTreeMap<TaskNo, Option<usize>> = BTreeMap::new();
    for row in rows {
        let mut way = Vec::new();
        let mut at = Some(row.no);
        let mut place = None;
        while let Some(row) = at.and_then(|no| by_no.get(&no)) {
            if let Some(known) = places.get(&row.no) {
                place = *known;
                break;
            }
            // Met again on its own way: it extends nothing.
            places.insert(row.no, None);
            way.push(row.no);
            if let Some(phase) = named.get(row.key.as_str()) {
                place = Some(*phase);
                break;
            }
            at = row.extends();
        }
        places.extend(way.into_iter().map(|no| (no, place)));
    }
    places
        .into_iter()
        .filter_map(|(no, place)| Some((no, place?)))
        .collect()
}

/// Projects rows in authoring order and the receipts that stand, in write order.
pub fn view(receipts: &[Value], rows: &[Row], spend: Spend) -> Phases {
    let mut phases: Vec<Phase> = receipts.iter().flat_map(phases_of).collect();
    let places = places(&phases, rows);
    for row in rows {
        if let Some(phase) = places.get(&row.no).and_then(|i| phases.get_mut(*i)) {
            phase.total += 1;
            phase.done += usize::from(row.status.is_terminal());
            phase.status = phase.status.max(PhaseStatus::of(row));
        }
    }
    Phases {
        current: phases
            .iter()
            .position(|phase| phase.status != PhaseStatus::Completed),
        background: rows
            .iter()
            .filter(|row| row.detached && !row.has_consumer)
            .map(|row| Background {
                key: row.key.clone(),
                status: row.status,
                result_delivered_at: row.result_delivered_at,
            })
            .collect(),
        phases,
        spend,
    }
}

#[cfg(test)]
mod tests;
