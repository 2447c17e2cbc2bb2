//! An in-memory store for one run. It loads exactly the slices that `store::run_tx` loads and
//! nothing else, so that a decision which needs another row fails; it writes exactly the columns
//! that `store::apply` writes, and every guarded write must meet its row.
//!
//! Does not know: rules. What a statement's WHERE or RETURNING says is here; what a decision says
//! is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fleet::Fleet;
use crate::domain::event::Event;
use crate::domain::hint::Hint;
use crate::domain::words::{ParkKind, RunStatus};
use crate::domain::{ExecutorId, TaskKey, TaskNo, Timestamp};
use crate::engine::claim;
use crate::engine::facts::{Caller, LiveClaim, Park, Task};
use crate::engine::graph::{Graph, Want};
use crate::engine::invariants::{Item, Narrated, StoredResult, World};

/// What a command sees at first: as `store::First`.
#[derive(Debug, Clone)]
pub(crate) enum First {
    Run,
    Task { key: TaskKey, caller: ExecutorId },
    Parked(Vec<TaskNo>),
    OpenRows,
    Ready(usize),
}

/// How much was handed out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// Rows, whatever their table.
    pub(crate) rows: usize,
    /// Round trips.
    pub(crate) loads: usize,
}

/// What the store knows of a park beside the engine's facts.
#[derive(Debug, Clone, Default, PartialEq)]
struct Beside {
    claim_key: Option<Vec<u8>>,
    due_at: Option<Timestamp>,
}

/// The rows.
#[derive(Debug, Clone)]
pub(crate) struct Db {
    /// What the invariants look at.
    pub(crate) world: World,
    /// Who is there.
    pub(crate) fleet: Fleet,
    /// Whether a transaction's slice is compared with the rows after it was applied.
    pub(crate) compares: bool,
    /// Raised by every write, so that nobody looks twice at rows that stand as they stood.
    pub(crate) version: u64,
    /// What was handed out so far.
    pub(crate) reads: Reads,
    /// What was told so far.
    pub(crate) hints: Vec<Hint>,
    /// Whole items, beside the invariants' view of them, if they are kept.
    pub(crate) events: Vec<Event>,
    pub(crate) keeps_events: bool,
    beside: BTreeMap<TaskNo, Beside>,
    out: Arc<BTreeMap<TaskNo, Vec<usize>>>,
    keys: Arc<BTreeMap<TaskKey, TaskNo>>,
    results: BTreeMap<(TaskNo, i32), Option<[u8; 32]>>,
}

/// The fault of a transaction whose parks were claimed or recovered under its hands: it is decided
/// anew (`store::Remedy::RunAgain`).
pub(crate) const AGAIN: &str = "decide again";

/// A transaction's slice: as `store::Locked`.
pub(crate) struct Locked {
    pub(crate) graph: Graph,
    pub(crate) callers: BTreeMap<ExecutorId, Caller>,
    pub(crate) digests: BTreeMap<TaskNo, Vec<u8>>,
}

/// A park that a claim wants to take, as it was judged.
#[derive(Debug, Clone)]
pub(crate) struct Taking {
    pub(crate) task: TaskNo,
    pub(crate) generation: i32,
    pub(crate) by: ExecutorId,
    pub(crate) epoch: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) digest: [u8; 32],
}

impl Db {
    pub(crate) fn new(world: World, fleet: Fleet) -> Self {
        let mut out: BTreeMap<TaskNo, Vec<usize>> = BTreeMap::new();
        for (at, edge) in world.edges.iter().enumerate() {
            out.entry(edge.from).or_default().push(at);
        }
        for list in out.values_mut() {
            list.sort_by_key(|at| world.edges[*at].to);
        }
        let keys = world.tasks.iter().map(|t| (t.key.clone(), t.no)).collect();
        Self {
            world,
            fleet,
            compares: true,
            version: 0,
            reads: Reads::default(),
            hints: Vec::new(),
            events: Vec::new(),
            keeps_events: false,
            beside: BTreeMap::new(),
            out: Arc::new(out),
            keys: Arc::new(keys),
            results: BTreeMap::new(),
        }
    }

    pub(crate) fn no(&self, key: &str) -> Option<TaskNo> {
        self.keys.get(&TaskKey::trusted(key.to_owned())).copied()
    }

    pub(crate) fn task(&self, no: TaskNo) -> &Task {
        &self.world.tasks[row(no)]
    }

    pub(crate) fn task_mut(&mut self, no: TaskNo) -> &mut Task {
        &mut self.world.tasks[row(no)]
    }

    pub(crate) fn park(&self, no: TaskNo) -> Option<&Park> {
        let at = self
            .world
            .parks
            .binary_search_by_key(&no, |p| p.task)
            .ok()?;
        Some(&self.world.parks[at])
    }

    pub(crate) fn park_mut(&mut self, no: TaskNo) -> Option<&mut Park> {
        let at = self
            .world
            .parks
            .binary_search_by_key(&no, |p| p.task)
            .ok()?;
        Some(&mut self.world.parks[at])
    }

    /// Sets a park up by hand.
    pub(crate) fn plant(&mut self, park: Park) {
        self.insert_park(park);
    }

    // ---------------------------------------------------------------- loading

    /// `Store::lock_runs` on this run: the lock, the clock, and what the commands see at first.
    pub(crate) fn lock(&mut self, firsts: &[First]) -> Locked {
        self.reads.rows += 1;
        self.reads.loads += 1;
        let mut locked = Locked {
            graph: Graph::new(self.world.run.clone(), self.world.now),
            callers: BTreeMap::new(),
            digests: BTreeMap::new(),
        };
        let (mut parked, mut open, mut keys, mut limit) =
            (BTreeSet::new(), 0, Vec::new(), Vec::new());
        for first in firsts {
            match first {
                First::Run => {}
                First::Task { key, caller } => {
                    keys.extend(self.keys.get(key));
                    if let Some(caller) = self.fleet.caller(*caller) {
                        self.reads.rows += 1;
                        locked.callers.insert(caller.id, caller);
                    }
                }
                First::Parked(nos) => parked.extend(nos.iter().copied()),
                First::OpenRows => open += 1,
                First::Ready(n) => limit.push(*n),
            }
        }
        self.slice(&mut locked, &parked.into_iter().collect::<Vec<_>>(), false);
        // As the statements stand: one focus row for each command that asks, repeated or not.
        if open > 0 {
            let opens = self.world.tasks.iter().filter(|t| t.completed_at.is_none());
            let opens: Vec<TaskNo> = opens.map(|t| t.no).collect();
            self.slice(&mut locked, &opens.repeat(open), false);
        }
        self.slice(&mut locked, &keys, false);
        if let Some(most) = limit.iter().max() {
            let ready = self.ready_rows(*most);
            self.slice(&mut locked, &ready.repeat(limit.len()), true);
        }
        locked
    }

    fn ready_rows(&self, limit: usize) -> Vec<TaskNo> {
        use crate::domain::words::TaskStatus::Queued;
        let ready = self
            .world
            .tasks
            .iter()
            .filter(|t| t.status == Queued && t.remaining == 0);
        ready.map(|t| t.no).take(limit).collect()
    }

    /// `RunTx::load`.
    pub(crate) fn load(&mut self, locked: &mut Locked, want: &Want) {
        self.reads.loads += 1;
        match want {
            Want::Edges(nos) => {
                let nos: BTreeSet<TaskNo> = nos.iter().copied().collect();
                self.slice(locked, &nos.into_iter().collect::<Vec<_>>(), false);
            }
            Want::Row(no) => self.slice(locked, &[*no], false),
            Want::Downstream(nos) => {
                let focus = self.downstream(nos);
                self.slice(locked, &focus, false);
            }
            Want::Addressees(nos) => {
                for no in nos {
                    let found = self.fleet.addressees(self.task(*no));
                    self.reads.rows += found.len();
                    locked.graph.put_addressees(*no, found);
                }
            }
            Want::Failures => {
                self.reads.rows += self.world.failures.len();
                locked.graph.expect_failures();
                if !self.world.failures.is_empty() {
                    locked.graph.put_failures(self.world.failures.clone());
                }
            }
        }
    }

    /// The focus of `run_tx.load_downstream`: stored states decide, not what this transaction did.
    fn downstream(&self, from: &[TaskNo]) -> Vec<TaskNo> {
        let mut seen: BTreeSet<TaskNo> = from.iter().copied().collect();
        let mut todo: Vec<TaskNo> = from.to_vec();
        while let Some(no) = todo.pop() {
            for at in self.out.get(&no).into_iter().flatten() {
                let to = self.world.edges[*at].to;
                if self.task(to).status.is_unstarted() && seen.insert(to) {
                    todo.push(to);
                }
            }
        }
        seen.into_iter().collect()
    }

    /// A focus with the heads of its outgoing edges: `slice_tail!` and `RunTx::take_slice`.
    fn slice(&mut self, locked: &mut Locked, focus: &[TaskNo], ready: bool) {
        let mut edges: BTreeMap<TaskNo, Vec<_>> = BTreeMap::new();
        let mut heads = Vec::new();
        for no in focus {
            let task = &self.world.tasks[row(*no)];
            self.reads.rows += 1;
            let list = edges.entry(*no).or_default();
            for at in self.out.get(no).into_iter().flatten() {
                let edge = self.world.edges[*at];
                list.push(edge);
                heads.push(edge.to);
                self.reads.rows += 1;
            }
            if let Some(digest) = self.stored_digest(task) {
                locked.digests.insert(*no, digest);
            }
            if let Some(park) = self.park(*no) {
                locked.graph.put_park(park.clone());
            }
            locked.graph.put_task(task.clone());
            if ready {
                locked.graph.consider_ready(*no);
            }
        }
        for no in heads {
            locked.graph.put_task(self.task(no).clone());
        }
        for (from, mut list) in edges {
            list.sort_by_key(|e| e.to);
            locked.graph.put_edges(from, list);
        }
    }

    fn stored_digest(&self, task: &Task) -> Option<Vec<u8>> {
        task.completed_at?;
        let digest = self.results.get(&(task.no, task.generation))?;
        digest.map(|d| d.to_vec())
    }

    // ---------------------------------------------------------------- applying

    /// `RunTx::commit`.
    ///
    /// # Errors
    /// [`AGAIN`], and nothing is written, if a claim changed since it was judged; else the guarded
    /// write that did not meet its row, or the change that no statement writes.
    pub(crate) fn apply(&mut self, locked: Locked) -> Result<(), String> {
        let Locked { graph, .. } = locked;
        self.claims_are_as_judged(&graph)?;
        if !graph.changes.is_empty() {
            self.version += 1;
            self.apply_tasks(&graph)?;
            self.apply_parks(&graph)?;
            self.apply_bodies(&graph)?;
            self.apply_run(&graph);
        }
        if self.compares {
            self.compare(&graph)?;
        }
        if self.keeps_events {
            self.hints.extend(graph.changes.hints);
        }
        Ok(())
    }

    /// `apply.parks_gone`: an ended park must have the claim that was decided on.
    fn claims_are_as_judged(&self, graph: &Graph) -> Result<(), String> {
        for no in &graph.changes.parks_gone {
            let stored = self.park(*no).and_then(|p| p.claim.as_ref());
            if stored.map(|c| &c.digest) != graph.changes.claims_gone.get(no) {
                return Err(AGAIN.to_owned());
            }
        }
        Ok(())
    }

    fn apply_tasks(&mut self, graph: &Graph) -> Result<(), String> {
        for no in &graph.changes.tasks {
            let new = graph
                .task(*no)
                .ok_or(format!("row {} changed unloaded", no.0))?
                .clone();
            let stored = self.task_mut(*no);
            stored.status = new.status;
            stored.generation = new.generation;
            stored.remaining = new.remaining;
            stored.addressed = new.addressed;
            stored.approval = new.approval;
            stored.started_at = new.started_at;
            stored.claim = new.claim;
            stored.failure_resolution = new.failure_resolution;
            stored.error = new.error;
            stored.is_error = new.is_error;
            stored.race_absorbed = new.race_absorbed;
            stored.settle_seq = new.settle_seq;
            stored.completed_at = new.completed_at;
        }
        for (from, to) in &graph.changes.edges {
            let new = graph
                .edge(*from, *to)
                .ok_or(format!("edge {}→{} changed unloaded", from.0, to.0))?;
            let out = self.out.get(from).map_or(&[][..], Vec::as_slice);
            let at = out.binary_search_by_key(to, |at| self.world.edges[*at].to);
            let at = at.map_err(|_| format!("no edge {}→{}", from.0, to.0))?;
            self.world.edges[out[at]].state = new.state;
        }
        for no in &graph.changes.failures_gone {
            let at = self.world.failures.iter().position(|f| f == no);
            self.world
                .failures
                .remove(at.ok_or(format!("{} was no open failure", no.0))?);
        }
        for no in &graph.changes.failures_new {
            match self.world.failures.binary_search(no) {
                Ok(_) => return Err(format!("{} is an open failure already", no.0)),
                Err(at) => self.world.failures.insert(at, *no),
            }
        }
        Ok(())
    }

    fn apply_parks(&mut self, graph: &Graph) -> Result<(), String> {
        for no in &graph.changes.parks_gone {
            let at = self.world.parks.binary_search_by_key(no, |p| p.task);
            self.world
                .parks
                .remove(at.map_err(|_| format!("no park of {} to end", no.0))?);
            self.beside.remove(no);
        }
        for no in &graph.changes.parks_new {
            let park = graph.park(*no).ok_or(format!("no new park of {}", no.0))?;
            if self.park(*no).is_some() {
                return Err(format!("row {} is parked already", no.0));
            }
            if park.claim.is_some() {
                return Err(format!("the park of {} is born claimed: not written", no.0));
            }
            self.insert_park(park.clone());
        }
        for (no, earlier) in &graph.changes.parks_moved {
            let moved = graph
                .park(*no)
                .ok_or(format!("no park of {} to move", no.0))?
                .deadline_at;
            let stored = self
                .park_mut(*no)
                .ok_or(format!("no park of {} to move", no.0))?;
            stored.deadline_at = moved;
            let due_at = &mut self.beside.entry(*no).or_default().due_at;
            if *earlier {
                *due_at = due_at.map(|d| d.min(moved));
            }
            if due_at.is_some_and(|d| d > moved) {
                return Err(format!("the sweeper would look at {} too late", no.0));
            }
        }
        Ok(())
    }

    fn insert_park(&mut self, park: Park) {
        let (no, due_at) = (park.task, park.deadline_at);
        let at = self.world.parks.binary_search_by_key(&no, |p| p.task);
        self.world.parks.insert(at.unwrap_or_else(|at| at), park);
        let beside = Beside {
            claim_key: None,
            due_at: Some(due_at),
        };
        self.beside.insert(no, beside);
    }

    fn apply_bodies(&mut self, graph: &Graph) -> Result<(), String> {
        for result in &graph.changes.results {
            let new = StoredResult {
                task: result.task,
                generation: result.generation,
                digest: result.digest,
            };
            let twice = self.results.insert((new.task, new.generation), new.digest);
            if twice.is_some() {
                return Err(format!("a second result of {}", new.task.0));
            }
            self.world.results.push(new);
        }
        for (seq, event) in &graph.changes.events {
            let expected = self
                .world
                .items
                .last()
                .map_or(self.world.run.event_seq, |i| i.seq)
                + 1;
            if *seq != expected {
                return Err(format!("item {seq} where {expected} comes next"));
            }
            self.world.items.push(Item {
                seq: *seq,
                what: Narrated::from(event),
            });
            if self.keeps_events {
                self.events.push(event.clone());
            }
        }
        Ok(())
    }

    fn apply_run(&mut self, graph: &Graph) {
        let new = graph.run.clone();
        let stored = &mut self.world.run;
        stored.status = new.status;
        stored.revision = new.revision;
        stored.deliverable = new.deliverable;
        stored.mainline_tail = new.mainline_tail;
        stored.counts = new.counts;
        stored.settle_seq = new.settle_seq;
        stored.event_seq = new.event_seq;
        stored.schedulable = new.schedulable;
        stored.attention = new.attention;
        stored.failure_reason = new.failure_reason;
        stored.force_stopped = new.force_stopped;
        stored.started_at = new.started_at;
        stored.paused_at = new.paused_at;
        stored.canceling_since = new.canceling_since;
        stored.stopped_at = new.stopped_at;
        stored.completed_at = new.completed_at;
    }

    /// What the slice says now is what is stored now: nothing changed without being written.
    fn compare(&self, graph: &Graph) -> Result<(), String> {
        if graph.run != self.world.run {
            return Err(format!("the run was changed unwritten: {:?}", graph.run));
        }
        for task in graph.tasks() {
            if task != self.task(task.no) {
                return Err(format!("row {} was changed unwritten: {task:?}", task.no.0));
            }
            if let Some(park) = graph.park(task.no)
                && !self.park(task.no).is_some_and(|now| same_park(now, park))
            {
                return Err(format!("the park of {} was changed unwritten", task.no.0));
            }
            for at in self.out.get(&task.no).into_iter().flatten() {
                let stored = &self.world.edges[*at];
                let known = graph.edge(stored.from, stored.to);
                if known.is_some_and(|e| e != stored) {
                    return Err(format!("edge {}→{} unwritten", stored.from.0, stored.to.0));
                }
            }
        }
        Ok(())
    }

    // ---------------------------------------------------------------- claims

    /// `inbox.claim_facts`: read without a lock.
    pub(crate) fn claim_facts(&self, key: &str, caller: ExecutorId) -> Option<claim::Facts> {
        let no = self.no(key)?;
        let (task, run) = (self.task(no), &self.world.run);
        let park = self.park(no);
        let mut caller = self.fleet.caller(caller)?;
        caller.announces = self.fleet.announces(caller.id, task.tool_name.as_deref());
        Some(claim::Facts {
            principal: run.principal,
            creator_may_write: run.creator_may_write,
            run_status: run.status,
            force_stopped: run.force_stopped,
            task: no,
            kind: task.kind,
            status: task.status,
            generation: task.generation,
            addressed: task.addressed,
            park: park.map(|p| p.kind),
            claim: park.and_then(|p| p.claim.as_ref()).map(|c| claim::Held {
                by: c.by,
                key: self.beside.get(&no).and_then(|b| b.claim_key.clone()),
            }),
            caller,
        })
    }

    /// `inbox.grant_one`: the guarded update. False: zero rows.
    pub(crate) fn grant(&mut self, taking: &Taking) -> bool {
        let run = &self.world.run;
        let open = matches!(run.status, RunStatus::Running | RunStatus::Canceling);
        let Some(caller) = self.fleet.caller(taking.by) else {
            return false;
        };
        let able = self.fleet.may_take(taking.by) && caller.epoch == taking.epoch;
        if !open || run.force_stopped || !able {
            return false;
        }
        let now = self.world.now;
        let Some(park) = self.park_mut(taking.task) else {
            return false;
        };
        let free = park.kind == ParkKind::ToolCall
            && park.claim.is_none()
            && park.generation == taking.generation;
        if !free {
            return false;
        }
        park.deadline_at = crate::domain::time::plus_ms(now, park.timeout_ms);
        park.claim = Some(LiveClaim {
            by: taking.by,
            by_public: caller.public_id,
            at: now,
            digest: taking.digest.to_vec(),
        });
        self.beside.entry(taking.task).or_default().claim_key = taking.key.clone();
        self.version += 1;
        true
    }

    /// `inbox.recover`: a new token for a claim that stands.
    pub(crate) fn recover(&mut self, taking: &Taking) -> bool {
        let key = self
            .beside
            .get(&taking.task)
            .and_then(|b| b.claim_key.clone());
        let Some(park) = self.park_mut(taking.task) else {
            return false;
        };
        let same = park.generation == taking.generation;
        match &mut park.claim {
            Some(claim) if same && claim.by == taking.by && key == taking.key => {
                claim.digest = taking.digest.to_vec();
                self.version += 1;
                true
            }
            _ => false,
        }
    }

    /// Moves a park's clock by a pause, as a resume will.
    pub(crate) fn delay(&mut self, no: TaskNo, ms: i64) {
        if let Some(park) = self.park_mut(no) {
            park.deadline_at = crate::domain::time::plus_ms(park.deadline_at, ms);
        }
        if let Some(due_at) = self.beside.get_mut(&no).and_then(|b| b.due_at.as_mut()) {
            *due_at = crate::domain::time::plus_ms(*due_at, ms);
        }
    }

    /// The sweeper's scan: parks whose `due_at` has come, while their clocks run. What the
    /// scan sees may be stale when it is acted on.
    pub(crate) fn due(&self) -> Vec<TaskNo> {
        if self.world.run.status == RunStatus::Paused {
            return Vec::new();
        }
        let due = |no: &TaskNo| {
            let beside = self.beside.get(no);
            beside
                .and_then(|b| b.due_at)
                .is_some_and(|d| d <= self.world.now)
        };
        self.world
            .parks
            .iter()
            .map(|p| p.task)
            .filter(due)
            .collect()
    }
}

/// Rows are numbered from 1 without gaps.
fn row(no: TaskNo) -> usize {
    usize::try_from(no.0 - 1).expect("numbers begin with 1")
}

/// Whether a park is as it was read, but for its token: a claim takes no run lock, so its holder may
/// recover it beside a command that leaves the park alone.
fn same_park(now: &Park, read: &Park) -> bool {
    let mut now = now.clone();
    if let (Some(claim), Some(known)) = (&mut now.claim, &read.claim) {
        claim.digest.clone_from(&known.digest);
    }
    now == *read
}
