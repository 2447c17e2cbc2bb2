//! The loaded slice of one run, and everything that a decision does to it.
//!
//! A command decides on the slice with [`Graph::settle`] and its like; [`Graph::advance`] carries
//! the consequences to rest: edges are released (`engine.md` §5), ready rows start, the run ends
//! or asks for a person (§7). Where the slice ends, `advance` names what it must see next; the
//! shell loads it and calls again, so that a settle reads no more than what it touches (L6).
//!
//! | file | job |
//! |---|---|
//! | `mod` | what is loaded, and the one place that changes rows |
//! | `settle` | settling, releasing, skipping, a barrier's arithmetic |
//! | `race` | what a settled barrier does: its snapshot, its losers, failures it takes over |
//! | `observe` | waits: what they see, and when |
//! | `owner` | the work of claimed calls: what ends with them, what they have not finished |
//! | `rest` | carrying a command to rest: what starts, whether the run ends or asks for a person |
//!
//! Does not know: SQL, clocks (its `now` is a fact), who else is in the batch.
//!
//! Invariants, kept by construction: one place changes a row's status and the run's counters
//! ([`Graph::write`], INV-4, INV-35); a terminal row is never written by a settle (INV-1); the work
//! list is first in, first out, and its order decides nothing but the order of narration (INV-10).

mod observe;
mod owner;
mod race;
mod rest;
mod settle;

pub(in crate::engine) use observe::envelope;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use chrono::TimeDelta;

use super::approval::Rules;
use super::author::NewTask;
use super::facts::{
    Attention, Candidate, Edge, Host, Operation, Park, Rest, Run, Seen, Selection, Task, TaskError,
};
use super::settlement::{is_candidate, is_unresolved};
use crate::domain::event::{ApprovalFact, Event, Resolver, TaskStatusItem};
use crate::domain::hint::Hint;
use crate::domain::idempotency::Receipt;
use crate::domain::json::{Canonical, Value};
use crate::domain::words::{
    AttentionReason, EdgeState, FailureResolution, Holder, Lifetime, RunStatus, TaskKind,
    TaskStatus, Wake,
};
use crate::domain::{PublicId, TaskNo, Timestamp, UploadId};

/// The most rows that one pass over what is ready starts.
pub const PASS: i64 = 64;

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
    /// Rows that are ready, as many as one pass starts.
    Ready,
    /// What is structurally behind these rows, up to barriers.
    Behind(Vec<TaskNo>),
    /// Everything structurally upstream of these barriers, up to where their arms begin, with all
    /// outgoing edges; and what the races among their sources selected.
    Arms(Vec<TaskNo>),
    /// The parks of these rows, locked, so that no claim slips in between.
    Parks(Vec<TaskNo>),
    /// Some of the run's parks: up to so many of each kind that rest is judged by.
    Rests(usize),
    /// The keys of all rows that rest for an approver, or for a person without a token.
    Resting(AttentionReason),
    /// The declaring agent's application, if it has one.
    Host,
    /// The run's approval rules, and these calls' inputs.
    Rules(Vec<TaskNo>),
    /// The parked waits that observe these rows.
    Watchers(Vec<TaskNo>),
    /// These rows, what stands for them now, and the bodies of what that came to.
    Observed(Vec<TaskNo>),
    /// All edges into these rows.
    Into(Vec<TaskNo>),
    /// The open work that these calls' operations authored and did not put into the background, of
    /// each such operation all rows, with their edges and parks.
    Attached(Vec<TaskNo>),
    /// These rows and everything structurally upstream of them that the same call authored, with all
    /// outgoing edges and parks; and what the joins among them selected.
    Upstream(Vec<TaskNo>),
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
    /// A barrier's snapshot, canonical.
    pub selection: Option<String>,
}

impl NewResult {
    /// A result without anything in it.
    pub fn empty(task: TaskNo, generation: i32) -> Self {
        Self {
            task,
            generation,
            content: None,
            structured: None,
            title: None,
            metadata: None,
            digest: None,
            selection: None,
        }
    }
}

/// How far the clocks of a run's parks moved, and whether they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clocks {
    /// By so many microseconds later: the pause that they did not see.
    pub later_us: i64,
}

/// What changed: data for the store to apply, one statement a table.
#[derive(Debug, Default)]
pub struct Changes {
    /// The run row was written.
    pub run: bool,
    /// Receipts of accepted appends.
    pub receipts: Vec<Receipt>,
    /// Rows that an envelope adds, as they were born.
    pub tasks_new: BTreeMap<TaskNo, NewTask>,
    /// Rows that were written.
    pub tasks: BTreeSet<TaskNo>,
    /// Edges that an envelope adds.
    pub edges_new: BTreeSet<(TaskNo, TaskNo)>,
    /// Edges that were written, by tail and head.
    pub edges: BTreeSet<(TaskNo, TaskNo)>,
    /// Parks made.
    pub parks_new: Vec<TaskNo>,
    /// Parks whose clock was moved; `true`: earlier than before, so the sweeper must look sooner.
    pub parks_moved: BTreeMap<TaskNo, bool>,
    /// The clocks of all the run's parks were stopped or set going: whether they stand is the run's
    /// status.
    pub clocks: Option<Clocks>,
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
    /// Operations that were accepted.
    pub operations_new: BTreeSet<(TaskNo, i32)>,
    /// Operations that were observed or released.
    pub operations: BTreeSet<(TaskNo, i32)>,
    /// How many more rows of an operation are open.
    pub operations_open: BTreeMap<(TaskNo, i32), i32>,
    /// Rows of operations that ended (-1) or are open again (1).
    pub operations_pending: BTreeMap<TaskNo, i32>,
    /// Captures that a sealed outcome shows, by the call that observed it.
    pub sealed_uploads: Vec<(TaskNo, PublicId)>,
    /// Edges that a replacement took away.
    pub edges_gone: BTreeSet<(TaskNo, TaskNo)>,
    /// Stored rows whose reads and dependency keys a replacement moved.
    pub reads_moved: BTreeSet<TaskNo>,
    /// Stored rows that were put into the background, or whose delivery changed there.
    pub backgrounded: BTreeSet<TaskNo>,
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
            && self.clocks.is_none()
            && self.tasks_new.is_empty()
            && self.results.is_empty()
            && self.operations_new.is_empty()
            && self.operations.is_empty()
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
    /// Edges that an envelope adds, until their tail is loaded.
    hung: BTreeMap<(TaskNo, TaskNo), Edge>,
    /// Edges into rows, where they were asked for.
    into: BTreeMap<TaskNo, BTreeMap<TaskNo, EdgeState>>,
    addressees: BTreeMap<TaskNo, Vec<Candidate>>,
    ready: BTreeSet<TaskNo>,
    released: VecDeque<TaskNo>,
    /// Failures that a person let go or runs again, whose skips are not opened yet.
    reopened: VecDeque<TaskNo>,
    failures: Option<Vec<TaskNo>>,
    narration: Narration,
    /// Barriers that settled and have no snapshot yet.
    barriers: Vec<TaskNo>,
    /// Barriers of this command whose losers are cancelled.
    walks: Vec<TaskNo>,
    /// Another one has joined them.
    walk_due: bool,
    /// Barriers whose arms are loaded.
    arms: BTreeSet<TaskNo>,
    /// What races selected, where it is known.
    selections: BTreeMap<TaskNo, Selection>,
    /// Rows whose parks are loaded and locked.
    locked_parks: BTreeSet<TaskNo>,
    /// A failure may have lost its last live consumer.
    absorb_due: bool,
    /// Something became ready by a settle or a repair: a hold ends.
    woken: bool,
    /// A hold has ended: what became ready under it is owed a pass.
    pass_owed: bool,
    /// Calls that a person approved, to be sent on their way.
    granted: BTreeMap<TaskNo, ApprovalFact>,
    host: Option<Option<Host>>,
    rules: Option<Arc<Rules>>,
    inputs: BTreeMap<TaskNo, Value>,
    rests: Option<Vec<(TaskNo, Rest)>>,
    resting: BTreeSet<AttentionReason>,
    /// Rows that settled, whose watchers are not looked for yet.
    moved: Vec<TaskNo>,
    /// Waits to be judged.
    watching: BTreeSet<TaskNo>,
    seen: BTreeMap<TaskNo, Seen>,
    /// Operations, by their call and position.
    operations: BTreeMap<(TaskNo, i32), Operation>,
    /// Calls that had unfinished or unobserved work when they were loaded.
    unfinished: BTreeSet<TaskNo>,
    /// Calls that ended without publishing, whose attached work is not canceled yet.
    ended: BTreeSet<TaskNo>,
    /// Calls whose open work is loaded.
    attached: BTreeSet<TaskNo>,
    /// Rows whose upstream is loaded.
    upstream: BTreeSet<TaskNo>,
    /// By how much the clocks of parks that are loaded later were moved in this transaction.
    clocks_later_us: i64,
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
    resolver: Option<(TaskNo, Resolver)>,
}

/// How a row settles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Why not.
    pub error: Option<TaskError>,
    /// A completed result that says it errored.
    pub is_error: bool,
    /// A person's stamp on it.
    pub resolution: Option<FailureResolution>,
}

impl Outcome {
    /// A failure with this word.
    pub fn error(key: &str, detail: Option<String>) -> Self {
        Self {
            error: Some(TaskError {
                key: key.to_owned(),
                detail,
            }),
            ..Self::default()
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
    rounds: i32,
    running: i32,
    awaiting: i32,
    waits: i32,
    candidate: bool,
}

impl Class {
    fn of(task: &Task) -> Self {
        let ready = task.status == TaskStatus::Queued && task.remaining == 0;
        let startable = matches!(task.kind, TaskKind::Tool | TaskKind::Await);
        let is_wait = task.kind == TaskKind::Await && task.holder == Some(Holder::Kernel);
        Self {
            open: i32::from(!task.status.is_terminal()),
            ready: i32::from(ready && startable),
            started: i32::from(task.status.is_started()),
            approval: i32::from(task.status == TaskStatus::NeedsApproval),
            unresolved: i32::from(is_unresolved(task)),
            rounds: i32::from(ready && task.kind == TaskKind::Model),
            running: i32::from(task.status == TaskStatus::Running),
            awaiting: i32::from(task.status == TaskStatus::AwaitingInput),
            waits: i32::from(is_wait && task.status == TaskStatus::Dispatched),
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
            hung: BTreeMap::new(),
            addressees: BTreeMap::new(),
            ready: BTreeSet::new(),
            released: VecDeque::new(),
            reopened: VecDeque::new(),
            failures: None,
            narration: Narration::default(),
            into: BTreeMap::new(),
            barriers: Vec::new(),
            walks: Vec::new(),
            walk_due: false,
            arms: BTreeSet::new(),
            selections: BTreeMap::new(),
            locked_parks: BTreeSet::new(),
            absorb_due: false,
            woken: false,
            pass_owed: false,
            granted: BTreeMap::new(),
            host: None,
            rules: None,
            inputs: BTreeMap::new(),
            rests: None,
            resting: BTreeSet::new(),
            moved: Vec::new(),
            watching: BTreeSet::new(),
            seen: BTreeMap::new(),
            operations: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            ended: BTreeSet::new(),
            attached: BTreeSet::new(),
            upstream: BTreeSet::new(),
            clocks_later_us: 0,
        }
    }

    // ---------------------------------------------------------------- what the shell loads

    /// Takes a row, unless the slice already holds (a later state of) it.
    pub fn put_task(&mut self, task: Task) {
        self.tasks.entry(task.no).or_insert(task);
    }

    /// Takes a row's park, unless the slice already knows better.
    pub fn put_park(&mut self, mut park: Park) {
        park.deadline_at += TimeDelta::microseconds(self.clocks_later_us);
        let known = self.changes.parks_gone.contains(&park.task);
        if !known {
            self.parks.entry(park.task).or_insert(park);
        }
    }

    /// Takes the parks of these rows as they are now that they are locked: a claim may have come
    /// since they were read.
    pub fn put_locked_parks(&mut self, rows: &[TaskNo], parks: Vec<Park>) {
        for mut park in parks {
            let no = park.task;
            let touched = self.changes.parks_new.contains(&no)
                || self.changes.parks_moved.contains_key(&no)
                || self.changes.parks_gone.contains(&no);
            if !touched {
                park.deadline_at += TimeDelta::microseconds(self.clocks_later_us);
                self.parks.insert(no, park);
            }
        }
        self.locked_parks.extend(rows);
    }

    /// Takes all outgoing edges of a row, unless the slice already holds (a later state of) them.
    /// Kept by head, which is authoring order, and each once: two commands of one batch may have
    /// asked for the same row, and a release counts what it walks.
    pub fn put_edges(&mut self, from: TaskNo, mut edges: Vec<Edge>) {
        if self.edges.contains_key(&from) {
            return;
        }
        // An envelope of this transaction may have hung rows behind it before it was read.
        let new = self.changes.edges_new.range((from, TaskNo(i32::MIN))..);
        let new = new.take_while(|(tail, _)| *tail == from);
        edges.extend(new.filter_map(|pair| self.hung.get(pair)));
        edges.sort_by_key(|e| e.to);
        edges.dedup_by_key(|e| e.to);
        self.edges.insert(from, edges);
    }

    /// Takes all edges into a row, but for what this transaction made of those that it has loaded.
    pub fn put_into(&mut self, to: TaskNo, tails: Vec<(TaskNo, EdgeState)>) {
        let now = |(from, stored)| {
            let state = self.edge(from, to).map_or(stored, |e| e.state);
            (from, state)
        };
        let tails = tails.into_iter().map(now).collect();
        self.into.entry(to).or_insert(tails);
    }

    /// The arms of these barriers are loaded, with what races among their sources selected.
    pub fn put_arms(&mut self, barriers: &[TaskNo], selections: Vec<(TaskNo, Selection)>) {
        self.arms.extend(barriers);
        for (no, selection) in selections {
            self.selections.entry(no).or_insert(selection);
        }
    }

    /// Takes the agent application of the run, if there is one.
    pub fn put_host(&mut self, host: Option<Host>) {
        self.host = Some(host);
    }

    /// The agent application of the run, if there is one and it was looked for.
    pub fn host(&self) -> Option<Host> {
        self.host.flatten()
    }

    /// A person approved this resting call: it is sent on its way.
    pub fn grant(&mut self, no: TaskNo, fact: ApprovalFact) {
        self.granted.insert(no, fact);
    }

    /// Takes the run's rules and these calls' inputs.
    pub fn put_rules(&mut self, rules: Arc<Rules>, inputs: Vec<(TaskNo, Value)>) {
        self.rules = Some(rules);
        self.inputs.extend(inputs);
    }

    /// Takes stored parks that rest is judged by.
    pub fn put_rests(&mut self, rests: Vec<(TaskNo, Rest)>) {
        self.rests = Some(rests);
    }

    /// Stored rows that are ready are loaded, as many as one pass starts.
    pub fn put_ready(&mut self) {
        self.pass_owed = false;
    }

    /// All stored rows that rest for that reason are loaded.
    pub fn put_resting(&mut self, reason: AttentionReason) {
        self.resting.insert(reason);
    }

    /// Takes the bodies of a row's result.
    pub fn put_seen(&mut self, no: TaskNo, seen: Seen) {
        self.seen.insert(no, seen);
    }

    /// A loaded wait is to be judged.
    pub fn watch(&mut self, wait: TaskNo) {
        self.watching.insert(wait);
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
        match self.edges.get(&from) {
            Some(edges) => edges.get(edge_at(edges, to)?),
            None => self.hung.get(&(from, to)),
        }
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
        if let (Some(owner), Some(operation)) = (task.owner, task.operation)
            && before.open != after.open
        {
            let more = after.open - before.open;
            *self
                .changes
                .operations_open
                .entry((owner, operation))
                .or_default() += more;
            *self.changes.operations_pending.entry(no).or_default() += more;
            if more > 0 {
                self.unfinished.insert(owner);
            }
        }
        let counts = &mut self.run.counts;
        counts.open += after.open - before.open;
        counts.ready += after.ready - before.ready;
        counts.started += after.started - before.started;
        counts.approval += after.approval - before.approval;
        counts.unresolved += after.unresolved - before.unresolved;
        counts.rounds += after.rounds - before.rounds;
        counts.running += after.running - before.running;
        counts.awaiting += after.awaiting - before.awaiting;
        counts.waits += after.waits - before.waits;
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
            resolved_by: self.resolver_of(no),
        }));
        let primary = *self.narration.primary.get_or_insert(no);
        if primary == no {
            self.narration.first.push(event);
        } else {
            self.narration.rows.push((no, event));
        }
    }

    /// The settle of that row that follows was somebody's answer.
    pub fn resolved_by(&mut self, no: TaskNo, who: Resolver) {
        self.narration.resolver = Some((no, who));
    }

    fn resolver_of(&self, no: TaskNo) -> Option<Resolver> {
        let (of, who) = self.narration.resolver.as_ref()?;
        (*of == no).then(|| who.clone())
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
        let failure_reason = self.run.failure_reason.clone();
        self.narration.run.push(Event::TurnStatus {
            run_status: status,
            failure_reason,
            attention_reason: None, // told once the command is at rest
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

    // ---------------------------------------------------------------- what an envelope adds

    /// Adds a row, queued, behind the edges that [`Graph::hang`] adds.
    pub fn insert_task(&mut self, new: NewTask) {
        let task = new.task.clone();
        let no = task.no;
        let class = Class::of(&task);
        let counts = &mut self.run.counts;
        counts.tasks += 1;
        counts.open += class.open;
        counts.ready += class.ready;
        counts.rounds += class.rounds;
        self.edges.insert(no, Vec::new());
        self.into.insert(no, BTreeMap::new());
        self.tasks.insert(no, task);
        // What the store cannot tell yet.
        let text = |c: &Option<Canonical>| c.as_ref().map(|c| c.as_str().to_owned());
        let seen = Seen {
            tool_input: text(&new.tool_input),
            definition: text(&new.definition),
            ..Seen::default()
        };
        self.seen.insert(no, seen);
        if let Some(input) = &new.tool_input {
            self.inputs.insert(no, input.value());
        }
        if class.ready == 1 {
            self.ready.insert(no);
        }
        self.changes.tasks_new.insert(no, new);
        self.changes.run = true;
        self.narrate_task(no);
    }

    /// Adds an edge to a row that the same envelope adds; the head's countdown knows of it.
    pub fn hang(&mut self, edge: Edge) {
        self.changes.edges_new.insert((edge.from, edge.to));
        if let Some(into) = self.into.get_mut(&edge.to) {
            into.insert(edge.from, edge.state);
        }
        match self.edges.get_mut(&edge.from) {
            Some(edges) => {
                let at = edges.partition_point(|e| e.to < edge.to);
                edges.insert(at, edge);
            }
            None => drop(self.hung.insert((edge.from, edge.to), edge)),
        }
    }

    /// A row of a call's work is delivered as that says from now on, and its call waits for it no more.
    pub fn put_into_background(&mut self, no: TaskNo, lifetime: Lifetime, wake: Wake) {
        self.write(no, |task| {
            task.background = true;
            task.detached = true;
            task.lifetime = lifetime;
            task.wake = wake;
        });
        self.changes.backgrounded.insert(no);
    }

    /// A stored row's reads and dependency keys were moved.
    pub fn reads_moved(&mut self, no: TaskNo) {
        self.changes.reads_moved.insert(no);
    }

    /// Takes away an edge to a row that has not started; its countdown is the caller's to set.
    pub fn unhang(&mut self, from: TaskNo, to: TaskNo) {
        if let Some(edges) = self.edges.get_mut(&from)
            && let Some(at) = edge_at(edges, to)
        {
            edges.remove(at);
        }
        self.hung.remove(&(from, to));
        if let Some(into) = self.into.get_mut(&to) {
            into.remove(&from);
        }
        self.changes.edges.remove(&(from, to));
        if !self.changes.edges_new.remove(&(from, to)) {
            self.changes.edges_gone.insert((from, to));
        }
    }

    /// Writes what an edge has come to.
    fn set_edge(&mut self, from: TaskNo, to: TaskNo, state: EdgeState) {
        let edges = self
            .edges
            .get_mut(&from)
            .expect("edges are loaded before they are written");
        let at = edge_at(edges, to).expect("a written edge is one of them");
        edges[at].state = state;
        if let Some(into) = self.into.get_mut(&to) {
            into.insert(from, state);
        }
        self.changes.edges.insert((from, to));
    }

    // ---------------------------------------------------------------- clocks

    /// Stops the clocks of all parks: from now on "now" is this moment.
    pub fn stop_clocks(&mut self) {
        self.run.paused_at = Some(self.now);
        self.changes.clocks.get_or_insert_default();
    }

    /// Sets them going again: every deadline moves by what the pause took (INV-24).
    pub fn start_clocks(&mut self) {
        let Some(since) = self.run.paused_at.take() else {
            return;
        };
        // Times are kept to the microsecond; so is what they are moved by.
        let later_us = (self.now - since).num_microseconds().unwrap_or(0);
        for park in self.parks.values_mut() {
            park.deadline_at += TimeDelta::microseconds(later_us);
        }
        self.clocks_later_us += later_us;
        self.changes.clocks.get_or_insert_default().later_us += later_us;
        self.changes.run = true;
    }
}
