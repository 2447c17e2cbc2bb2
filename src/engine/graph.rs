//! The loaded slice of one run, and everything that a decision does to it.
//!
//! A command decides on the slice with [`Graph::settle`] and its like; [`Graph::advance`] carries
//! the consequences to rest: edges are released (`engine.md` §5), ready rows start, the run ends
//! or asks for a person (§7). Where the slice ends, `advance` names what it must see next; the
//! shell loads it and calls again, so that a settle reads no more than what it touches (L6).
//!
//! Does not know: SQL, clocks (its `now` is a fact), who else is in the batch.
//!
//! Invariants, kept by construction: one place changes a row's status and the run's counters
//! ([`Graph::write`], INV-4, INV-35); a terminal row is never written by a settle (INV-1); the work
//! list is first in, first out, and its order decides nothing but the order of narration (INV-10).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::facts::{Attention, Candidate, Claim, Edge, Park, Run, Task, TaskError};
use super::settlement::{Settlement, is_candidate, is_unresolved, settlement};
use crate::domain::event::{Event, TaskStatusItem};
use crate::domain::hint::Hint;
use crate::domain::json::Canonical;
use crate::domain::words::{
    AttentionReason, EdgeState, OnFailure, RunStatus, TaskKind, TaskStatus,
};
use crate::domain::{PublicId, TaskNo, Timestamp, UploadId};

/// What a decision must see before it can go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// The outgoing edges of these rows, with their heads.
    Edges(Vec<TaskNo>),
    /// Everything unsettled downstream of these rows: a skip is about to cascade.
    Downstream(Vec<TaskNo>),
    /// Who may be given these rows.
    Addressees(Vec<TaskNo>),
    /// This row.
    Row(TaskNo),
    /// The rows that a person may retry or abandon.
    Failures,
}

/// A result to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewResult {
    /// Whose.
    pub task: TaskNo,
    /// Of which generation.
    pub generation: i32,
    /// Blocks, canonical.
    pub content: Option<Canonical>,
    /// The structured value; `None` is absent, JSON null is `null`.
    pub structured: Option<Canonical>,
    /// Title.
    pub title: Option<String>,
    /// Metadata.
    pub metadata: Option<Canonical>,
    /// Of an accepted commit.
    pub digest: Option<[u8; 32]>,
}

/// What changed: data for the store to apply, one statement a table.
#[derive(Debug, Default)]
pub struct Changes {
    /// The run row was written.
    pub run: bool,
    /// Rows that were written.
    pub tasks: BTreeSet<TaskNo>,
    /// Edges that were written, by tail and head.
    pub edges: BTreeSet<(TaskNo, TaskNo)>,
    /// Parks made.
    pub parks_new: Vec<TaskNo>,
    /// Parks whose clock was moved; `true`: earlier than before, so the sweeper must look sooner.
    pub parks_moved: BTreeMap<TaskNo, bool>,
    /// Parks ended.
    pub parks_gone: Vec<TaskNo>,
    /// The claims that ended with them, by the digest that was judged: a park whose claim is another
    /// by now is not the one that was decided on.
    pub claims_gone: BTreeMap<TaskNo, Vec<u8>>,
    /// Results.
    pub results: Vec<NewResult>,
    /// Captures bound to a row's result.
    pub bound: Vec<(TaskNo, UploadId)>,
    /// Rows that became candidates of a person's retry or abandon.
    pub failures_new: BTreeSet<TaskNo>,
    /// Rows that no longer are.
    pub failures_gone: BTreeSet<TaskNo>,
    /// Narrated items with their numbers, in order.
    pub events: Vec<(i64, Event)>,
    /// What to tell after the commit.
    pub hints: Vec<Hint>,
}

impl Changes {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        !self.run
            && self.tasks.is_empty()
            && self.edges.is_empty()
            && self.parks_new.is_empty()
            && self.parks_moved.is_empty()
            && self.parks_gone.is_empty()
            && self.results.is_empty()
            && self.events.is_empty()
    }
}

/// The loaded slice of one run.
#[derive(Debug)]
pub struct Graph {
    /// The run.
    pub run: Run,
    /// The database's time, read after the lock was granted.
    pub now: Timestamp,
    /// What changed so far.
    pub changes: Changes,
    tasks: BTreeMap<TaskNo, Task>,
    parks: BTreeMap<TaskNo, Park>,
    edges: BTreeMap<TaskNo, Vec<Edge>>,
    addressees: BTreeMap<TaskNo, Vec<Candidate>>,
    ready: BTreeSet<TaskNo>,
    released: VecDeque<TaskNo>,
    failures: Option<Vec<TaskNo>>,
    narration: Narration,
}

/// Items of one command, kept apart until it is at rest: the settled row, then what it released in
/// authoring order, then the run, then attention (`runs.md` §13).
#[derive(Debug, Default)]
struct Narration {
    first: Vec<Event>,
    rows: Vec<(TaskNo, Event)>,
    run: Vec<Event>,
    attention: Option<Event>,
    primary: Option<TaskNo>,
}

/// How a row settles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Why not.
    pub error: Option<TaskError>,
    /// A completed result that says it errored.
    pub is_error: bool,
}

impl Outcome {
    /// A failure with this word.
    pub fn error(key: &str, detail: Option<String>) -> Self {
        Self {
            error: Some(TaskError {
                key: key.to_owned(),
                detail,
            }),
            is_error: false,
        }
    }
}

/// Which counters a row stands in.
#[derive(PartialEq, Eq)]
struct Class {
    open: i32,
    ready: i32,
    started: i32,
    approval: i32,
    unresolved: i32,
    candidate: bool,
}

impl Class {
    fn of(task: &Task) -> Self {
        let queued = task.status == TaskStatus::Queued;
        Self {
            open: i32::from(!task.status.is_terminal()),
            ready: i32::from(queued && task.remaining == 0 && task.kind != TaskKind::Join),
            started: i32::from(task.status.is_started()),
            approval: i32::from(task.status == TaskStatus::NeedsApproval),
            unresolved: i32::from(is_unresolved(task)),
            candidate: is_candidate(task),
        }
    }
}

/// Where the edge to that head stands among a row's edges, which are kept by head.
fn edge_at(edges: &[Edge], to: TaskNo) -> Option<usize> {
    edges.binary_search_by_key(&to, |e| e.to).ok()
}

impl Graph {
    /// An empty slice of that run at that moment.
    pub fn new(run: Run, now: Timestamp) -> Self {
        Self {
            run,
            now,
            changes: Changes::default(),
            tasks: BTreeMap::new(),
            parks: BTreeMap::new(),
            edges: BTreeMap::new(),
            addressees: BTreeMap::new(),
            ready: BTreeSet::new(),
            released: VecDeque::new(),
            failures: None,
            narration: Narration::default(),
        }
    }

    // ---------------------------------------------------------------- what the shell loads

    /// Takes a row, unless the slice already holds (a later state of) it.
    pub fn put_task(&mut self, task: Task) {
        self.tasks.entry(task.no).or_insert(task);
    }

    /// Takes a row's park, unless the slice already knows better.
    pub fn put_park(&mut self, park: Park) {
        let known = self.changes.parks_gone.contains(&park.task);
        if !known {
            self.parks.entry(park.task).or_insert(park);
        }
    }

    /// Takes all outgoing edges of a row, unless the slice already holds (a later state of) them.
    /// Kept by head, which is authoring order, and each once: two commands of one batch may have
    /// asked for the same row, and a release counts what it walks.
    pub fn put_edges(&mut self, from: TaskNo, mut edges: Vec<Edge>) {
        edges.sort_by_key(|e| e.to);
        edges.dedup_by_key(|e| e.to);
        self.edges.entry(from).or_insert(edges);
    }

    /// Takes who might be given a row.
    pub fn put_addressees(&mut self, task: TaskNo, candidates: Vec<Candidate>) {
        self.addressees.insert(task, candidates);
    }

    /// Takes stored rows that a person may retry or abandon, beside what this transaction changed.
    pub fn put_failures(&mut self, stored: Vec<TaskNo>) {
        let failures = self.failures.get_or_insert_default();
        failures.extend(stored);
        failures.extend(self.changes.failures_new.iter().copied());
        failures.retain(|no| !self.changes.failures_gone.contains(no));
        failures.sort_unstable();
        failures.dedup();
    }

    /// The stored candidates have been read (there may be none).
    pub fn expect_failures(&mut self) {
        self.put_failures(Vec::new());
    }

    /// Marks a loaded row as one that may start now.
    pub fn consider_ready(&mut self, no: TaskNo) {
        if self.tasks.get(&no).is_some_and(|t| Class::of(t).ready == 1) {
            self.ready.insert(no);
        }
    }

    // ---------------------------------------------------------------- what is loaded

    /// A loaded row.
    pub fn task(&self, no: TaskNo) -> Option<&Task> {
        self.tasks.get(&no)
    }

    /// A loaded row's park.
    pub fn park(&self, no: TaskNo) -> Option<&Park> {
        self.parks.get(&no)
    }

    /// The row of that key, if it is loaded.
    pub fn task_by_key(&self, key: &str) -> Option<&Task> {
        self.tasks.values().find(|t| t.key.as_str() == key)
    }

    /// Loaded rows, in authoring order.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// A loaded edge.
    pub fn edge(&self, from: TaskNo, to: TaskNo) -> Option<&Edge> {
        let edges = self.edges.get(&from)?;
        edges.get(edge_at(edges, to)?)
    }

    /// "Now" for the run's parks.
    pub fn run_now(&self) -> Timestamp {
        self.run.run_now(self.now)
    }

    fn loaded(&self, no: TaskNo) -> &Task {
        self.tasks
            .get(&no)
            .expect("a row is loaded before it is written")
    }

    // ---------------------------------------------------------------- the one place rows change

    /// Writes a row: the counters of the run and the list of open failures follow.
    pub fn write(&mut self, no: TaskNo, change: impl FnOnce(&mut Task)) {
        let task = self
            .tasks
            .get_mut(&no)
            .expect("a row is loaded before it is written");
        let before = Class::of(task);
        change(task);
        let after = Class::of(task);
        let counts = &mut self.run.counts;
        counts.open += after.open - before.open;
        counts.ready += after.ready - before.ready;
        counts.started += after.started - before.started;
        counts.approval += after.approval - before.approval;
        counts.unresolved += after.unresolved - before.unresolved;
        if before.candidate != after.candidate {
            let (to, from) = if after.candidate {
                (
                    &mut self.changes.failures_new,
                    &mut self.changes.failures_gone,
                )
            } else {
                (
                    &mut self.changes.failures_gone,
                    &mut self.changes.failures_new,
                )
            };
            if !from.remove(&no) {
                to.insert(no);
            }
            if let Some(failures) = &mut self.failures {
                failures.retain(|f| *f != no);
                if after.candidate {
                    failures.push(no);
                    failures.sort_unstable();
                }
            }
        }
        if after.ready == 1 {
            self.ready.insert(no);
        } else {
            self.ready.remove(&no);
        }
        self.changes.tasks.insert(no);
        self.changes.run |= before != after;
    }

    /// Writes a row's status and narrates it.
    pub fn set_status(&mut self, no: TaskNo, status: TaskStatus) {
        self.write(no, |task| task.status = status);
        self.narrate_task(no);
    }

    /// Narrates a row as it stands.
    pub fn narrate_task(&mut self, no: TaskNo) {
        let task = self.loaded(no);
        let event = Event::TaskStatus(Box::new(TaskStatusItem {
            task_key: task.key.clone(),
            kind: task.kind,
            lifetime: task.lifetime,
            wake: task.wake,
            status: task.status,
            after: task.after_keys.clone(),
            on_failure: task.on_failure,
            error_key: task.error.as_ref().map(|e| e.key.clone()),
            failure_resolution: task.failure_resolution,
            approval: task.approval.clone(),
        }));
        let primary = *self.narration.primary.get_or_insert(no);
        if primary == no {
            self.narration.first.push(event);
        } else {
            self.narration.rows.push((no, event));
        }
    }

    /// Narrates something about one row besides its status.
    pub fn narrate(&mut self, event: Event) {
        self.narration.first.push(event);
    }

    /// Writes the run's status and narrates it.
    pub fn set_run_status(&mut self, status: RunStatus) {
        self.run.status = status;
        self.changes.run = true;
        match status {
            RunStatus::Running if self.run.started_at.is_none() => {
                self.run.started_at = Some(self.now);
            }
            RunStatus::Completed | RunStatus::Canceled => self.run.completed_at = Some(self.now),
            RunStatus::Canceling => self.run.canceling_since = Some(self.now),
            _ => {}
        }
        if status.is_terminal() || matches!(status, RunStatus::Canceling) {
            self.run.attention = None;
        }
        let attention_reason = self.run.attention.as_ref().map(|a| a.reason);
        let failure_reason = self.run.failure_reason.clone();
        self.narration.run.push(Event::TurnStatus {
            run_status: status,
            failure_reason,
            attention_reason,
        });
    }

    /// Writes the standing attention; narrated when its reason or keys change.
    pub fn set_attention(&mut self, attention: Option<Attention>) {
        if self.run.attention == attention {
            return;
        }
        self.narration.attention = attention.clone().map(|a| Event::AttentionRequired {
            reason: a.reason,
            keys: a.keys,
        });
        self.run.attention = attention;
        self.changes.run = true;
    }

    // ---------------------------------------------------------------- parks

    /// Parks a row.
    pub fn insert_park(&mut self, park: Park) {
        let no = park.task;
        self.parks.insert(no, park);
        self.changes.parks_new.push(no);
    }

    /// Moves a park's clock.
    pub fn move_park(&mut self, no: TaskNo, deadline_at: Timestamp) {
        let park = self
            .parks
            .get_mut(&no)
            .expect("a park is loaded before it is moved");
        let earlier = deadline_at < park.deadline_at;
        park.deadline_at = deadline_at;
        *self.changes.parks_moved.entry(no).or_insert(false) |= earlier;
    }

    fn end_park(&mut self, no: TaskNo) -> Option<Park> {
        let park = self.parks.remove(&no)?;
        self.changes.parks_moved.remove(&no);
        if let Some(i) = self.changes.parks_new.iter().position(|p| *p == no) {
            self.changes.parks_new.remove(i);
        } else {
            self.changes.parks_gone.push(no);
            if let Some(claim) = &park.claim {
                self.changes.claims_gone.insert(no, claim.digest.clone());
            }
        }
        Some(park)
    }

    // ---------------------------------------------------------------- settling

    /// Settles a row: the guarded status write of `engine.md` §5. A row that is terminal already
    /// is left alone (L3: idle).
    pub fn settle(&mut self, no: TaskNo, status: TaskStatus, outcome: Outcome) -> bool {
        if self.loaded(no).status.is_terminal() {
            return false;
        }
        debug_assert!(status.is_terminal());
        let park = self.end_park(no);
        let claim = park.and_then(|p| p.claim);
        if status == TaskStatus::Canceled
            && let Some(claim) = &claim
        {
            self.tell_canceled(no, claim.by_public);
        }
        self.run.settle_seq += 1;
        let settle_seq = self.run.settle_seq;
        let now = self.now;
        self.write(no, |task| {
            task.status = status;
            task.error = outcome.error;
            task.is_error = outcome.is_error;
            task.settle_seq = Some(settle_seq);
            task.completed_at = Some(now);
            task.claim = claim.map(|c| Claim {
                by: c.by,
                at: c.at,
                digest: c.digest,
            });
        });
        self.changes.run = true;
        self.narrate_task(no);
        self.released.push_back(no);
        true
    }

    fn tell_canceled(&mut self, no: TaskNo, claimant: PublicId) {
        let hint = Hint::WorkCanceled {
            executor: claimant,
            run: self.run.public_id,
            task_key: self.loaded(no).key.clone(),
        };
        self.changes.hints.push(hint);
    }

    /// Stores a result beside a settle.
    pub fn store_result(&mut self, result: NewResult) {
        self.changes.results.push(result);
    }

    /// The digest of the result that this transaction stored for the row as it now stands: what the
    /// rows that were loaded cannot know yet.
    pub fn digest_stored_now(&self, task: &Task) -> Option<&[u8; 32]> {
        let of_row = |r: &&NewResult| r.task == task.no && r.generation == task.generation;
        self.changes.results.iter().find(of_row)?.digest.as_ref()
    }

    /// Releases a settled row's outgoing edges; what it settles itself joins the work list.
    fn release(&mut self, no: TaskNo) {
        let meaning = settlement(self.loaded(no));
        if meaning == Settlement::Pending {
            return; // a halt failure keeps its edges open
        }
        let open: Vec<Edge> = self
            .edges
            .get(&no)
            .map(|edges| {
                edges
                    .iter()
                    .filter(|e| e.state == EdgeState::Open)
                    .copied()
                    .collect()
            })
            .unwrap_or_default();
        for edge in open {
            match meaning {
                Settlement::Skip => self.skip_along(edge),
                _ => self.meet(edge, EdgeState::Met),
            }
        }
    }

    fn meet(&mut self, edge: Edge, state: EdgeState) {
        let edges = self
            .edges
            .get_mut(&edge.from)
            .expect("released edges are loaded");
        let at = edge_at(edges, edge.to).expect("a released edge is one of them");
        edges[at].state = state;
        self.changes.edges.insert((edge.from, edge.to));
        self.write(edge.to, |head| head.remaining -= 1);
    }

    fn skip_along(&mut self, edge: Edge) {
        self.meet(edge, EdgeState::Skip);
        if self.loaded(edge.to).status.is_unstarted() {
            self.settle(edge.to, TaskStatus::Skipped, Outcome::default());
        }
    }

    // ---------------------------------------------------------------- to rest

    /// Carries the consequences of what was decided. Returns what must be seen before it can go
    /// on, or nothing when the run is at rest.
    pub fn advance(&mut self) -> Option<Want> {
        loop {
            if let Some(want) = self.drain_releases() {
                return Some(want);
            }
            if self.may_start() && !self.ready.is_empty() {
                if let Some(want) = self.start_ready() {
                    return Some(want);
                }
                continue;
            }
            if let Some(want) = self.judge_rest() {
                return Some(want);
            }
            if self.released.is_empty() {
                if self.run.schedulable && self.run.counts.ready == 0 {
                    self.run.schedulable = false;
                    self.changes.run = true;
                }
                self.close_narration();
                return None;
            }
        }
    }

    fn drain_releases(&mut self) -> Option<Want> {
        while let Some(&no) = self.released.front() {
            if !self.edges.contains_key(&no) {
                return Some(self.want_edges(no));
            }
            self.released.pop_front();
            self.release(no);
        }
        None
    }

    fn want_edges(&self, first: TaskNo) -> Want {
        // A skip runs down the graph: see all of its way at once, not a level at a time. Rows that
        // release otherwise are read apart: what stands behind them is not touched.
        let skips = |no: TaskNo| settlement(self.loaded(no)) == Settlement::Skip;
        let alike = skips(first);
        let released = self.released.iter().copied();
        let unseen = released.filter(|no| !self.edges.contains_key(no) && skips(*no) == alike);
        if alike {
            Want::Downstream(unseen.collect())
        } else {
            Want::Edges(unseen.collect())
        }
    }

    /// Whether ready rows may start: nothing new starts in a run that is held or stopping.
    fn may_start(&self) -> bool {
        self.run.status == RunStatus::Running
    }

    fn start_ready(&mut self) -> Option<Want> {
        let unseen: Vec<TaskNo> = self
            .ready
            .iter()
            .copied()
            .filter(|no| {
                self.loaded(*no).kind == TaskKind::Tool && !self.addressees.contains_key(no)
            })
            .collect();
        if !unseen.is_empty() {
            return Some(Want::Addressees(unseen));
        }
        for no in std::mem::take(&mut self.ready) {
            let candidates = self.addressees.remove(&no).unwrap_or_default();
            super::start::start(self, no, &candidates);
        }
        None
    }

    /// Judges quiescence (`engine.md` §7) once nothing more can start.
    fn judge_rest(&mut self) -> Option<Want> {
        let counts = self.run.counts;
        match self.run.status {
            RunStatus::Canceling if counts.started == 0 && counts.open == 0 => {
                self.set_run_status(RunStatus::Canceled);
                None
            }
            RunStatus::Running if counts.ready > 0 => {
                // Ready rows that are not loaded, or that no pass of this transaction may start.
                self.changes.run |= !self.run.schedulable;
                self.run.schedulable = true;
                None
            }
            RunStatus::Running if counts.started == 0 => self.judge_quiescence(),
            _ => None,
        }
    }

    fn judge_quiescence(&mut self) -> Option<Want> {
        if self.run.counts.unresolved > 0 {
            return self.hold(AttentionReason::HaltFailure);
        }
        if self.run.counts.approval > 0 {
            return None;
        }
        let Some(answer) = self.run.deliverable else {
            return self.hold(AttentionReason::DeliverableUnresolved);
        };
        let Some(task) = self.tasks.get(&answer) else {
            return Some(Want::Row(answer));
        };
        if task.status == TaskStatus::Completed {
            self.set_run_status(RunStatus::Completed);
            return None;
        }
        self.hold(AttentionReason::DeliverableUnresolved)
    }

    fn hold(&mut self, reason: AttentionReason) -> Option<Want> {
        let Some(failures) = self.failures.clone() else {
            return Some(Want::Failures);
        };
        let unseen = failures
            .iter()
            .copied()
            .filter(|no| !self.tasks.contains_key(no));
        let unseen: Vec<TaskNo> = unseen.collect();
        if !unseen.is_empty() {
            return Some(Want::Edges(unseen));
        }
        let keys = failures
            .iter()
            .map(|no| self.loaded(*no))
            .filter(|t| reason != AttentionReason::HaltFailure || t.on_failure == OnFailure::Halt)
            .map(|t| t.key.clone())
            .collect();
        self.set_attention(Some(Attention { reason, keys }));
        self.set_run_status(RunStatus::NeedsAttention);
        None
    }

    fn close_narration(&mut self) {
        let Narration {
            first,
            mut rows,
            run,
            attention,
            ..
        } = std::mem::take(&mut self.narration);
        rows.sort_by_key(|(no, _)| *no);
        let items = first
            .into_iter()
            .chain(rows.into_iter().map(|(_, e)| e))
            .chain(run)
            .chain(attention);
        for event in items {
            self.run.event_seq += 1;
            self.changes.run = true;
            self.changes.events.push((self.run.event_seq, event));
        }
    }
}
