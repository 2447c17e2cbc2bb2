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
use crate::domain::json::{Value, parse};
use crate::domain::words::{
    AttentionReason, EdgeState, Mark, ParkKind, RunStatus, TaskKind, TaskStatus,
};
use crate::domain::{ExecutorId, TaskKey, TaskNo, Timestamp};
use crate::engine::approval::Rules;
use crate::engine::claim;
use crate::engine::facts::{Caller, Edge, LiveClaim, Park, Rest, Seen, Selection, Task};
use crate::engine::graph::{Graph, PASS, Want};
use crate::engine::invariants::{Item, Narrated, StoredResult, World};

/// What a command sees at first: as `store::First`.
#[derive(Debug, Clone)]
pub(crate) enum First {
    Run,
    Task { key: TaskKey, caller: ExecutorId },
    Parked(Vec<TaskNo>),
    OpenRows,
    Ready(usize),
    Row(TaskKey),
    Repair(TaskKey),
    Branch(TaskKey),
    Append(Append),
}

/// As `store::Append`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Append {
    pub(crate) keys: Vec<String>,
    pub(crate) minted: i32,
    pub(crate) receipt: Option<String>,
}

/// A row's stored bodies.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Bodies {
    pub(crate) digest: Option<[u8; 32]>,
    pub(crate) content: Option<String>,
    pub(crate) structured: Option<String>,
    pub(crate) selection: Option<String>,
}

/// What a row was authored with: a call's input, what the other verbs say.
pub(crate) type Authored = (Option<String>, Option<String>);

/// A receipt as it is kept: fingerprint and body.
pub(crate) type Kept = (Vec<u8>, String);

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
    frozen: bool,
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
    /// Outgoing edges by row, in the order of their heads.
    out: Arc<BTreeMap<TaskNo, Vec<usize>>>,
    /// Incoming edges by row.
    into: Arc<BTreeMap<TaskNo, Vec<usize>>>,
    keys: Arc<BTreeMap<TaskKey, TaskNo>>,
    pub(crate) authored: Arc<BTreeMap<TaskNo, Authored>>,
    pub(crate) rules: Option<Arc<Rules>>,
    /// Parked observations: what they observe, and they.
    waits: BTreeSet<(TaskNo, TaskNo)>,
    receipts: BTreeMap<String, Kept>,
    results: BTreeMap<(TaskNo, i32), Bodies>,
}

/// The fault of a transaction whose parks were claimed or recovered under its hands: it is decided
/// anew (`store::Remedy::RunAgain`).
pub(crate) const AGAIN: &str = "decide again";

/// A transaction's slice: as `store::Locked`.
pub(crate) struct Locked {
    pub(crate) graph: Graph,
    pub(crate) callers: BTreeMap<ExecutorId, Caller>,
    pub(crate) digests: BTreeMap<TaskNo, Vec<u8>>,
    pub(crate) receipts: BTreeMap<String, Kept>,
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
        let mut into: BTreeMap<TaskNo, Vec<usize>> = BTreeMap::new();
        for (at, edge) in world.edges.iter().enumerate() {
            out.entry(edge.from).or_default().push(at);
            into.entry(edge.to).or_default().push(at);
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
            into: Arc::new(into),
            keys: Arc::new(keys),
            authored: Arc::default(),
            rules: None,
            waits: BTreeSet::new(),
            receipts: BTreeMap::new(),
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
            receipts: BTreeMap::new(),
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
                First::Row(key) => keys.extend(self.keys.get(key)),
                First::Repair(key) => self.load_repair(&mut locked, key),
                First::Branch(key) => self.load_branch(&mut locked, key),
                First::Append(append) => self.load_standing(&mut locked, append),
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

    fn edges_at<'d>(
        &'d self,
        index: &'d BTreeMap<TaskNo, Vec<usize>>,
        no: TaskNo,
    ) -> impl Iterator<Item = &'d Edge> {
        let at = index.get(&no).into_iter().flatten();
        at.map(|at| &self.world.edges[*at])
    }

    fn out_of(&self, no: TaskNo) -> impl Iterator<Item = &Edge> {
        self.edges_at(&self.out, no)
    }

    fn edges_into(&self, no: TaskNo) -> impl Iterator<Item = &Edge> {
        self.edges_at(&self.into, no)
    }

    /// Rows reached from these, as stored states say.
    fn reach(&self, from: &[TaskNo], goes: impl Fn(&Edge, &Task) -> bool) -> Vec<TaskNo> {
        let mut seen: BTreeSet<TaskNo> = from.iter().copied().collect();
        let mut todo: Vec<TaskNo> = from.to_vec();
        while let Some(no) = todo.pop() {
            for edge in self.out_of(no) {
                if goes(edge, self.task(edge.to)) && seen.insert(edge.to) {
                    todo.push(edge.to);
                }
            }
        }
        seen.into_iter().collect()
    }

    /// `run_tx.load_repair` and `run_tx.load_repair_into`.
    fn load_repair(&mut self, locked: &mut Locked, key: &TaskKey) {
        let Some(no) = self.keys.get(key).copied() else {
            return;
        };
        let focus = self.reach(&[no], |edge, head| {
            edge.state == EdgeState::Skip && head.status == TaskStatus::Skipped
        });
        self.slice(locked, &focus, false);
        self.put_into(locked, &focus);
    }

    /// `run_tx.load_branch` and `run_tx.load_branch_into`.
    fn load_branch(&mut self, locked: &mut Locked, key: &TaskKey) {
        let Some(no) = self.keys.get(key).copied() else {
            return;
        };
        let focus = self.reach(&[no], |edge, head| {
            edge.structural && head.mark != Some(Mark::Round) && head.kind != TaskKind::Join
        });
        self.slice(locked, &focus, false);
        self.put_into(locked, &focus);
    }

    fn put_into(&mut self, locked: &mut Locked, focus: &[TaskNo]) {
        for no in focus {
            let tails: Vec<_> = self.edges_into(*no).map(|e| (e.from, e.state)).collect();
            self.reads.rows += tails.len().max(1);
            locked.graph.put_into(*no, tails);
        }
    }

    /// `run_tx.load_standing` and `run_tx.load_receipts`.
    fn load_standing(&mut self, locked: &mut Locked, append: &Append) {
        let run = &self.world.run;
        let mut named: BTreeSet<TaskNo> = run
            .deliverable
            .into_iter()
            .chain(run.mainline_tail)
            .collect();
        named.extend(append.keys.iter().filter_map(|key| self.no(key)));
        for verb in ["tool", "model", "ask", "wait", "parallel"] {
            let keys = (1..=append.minted).map(|n| format!("s{}-{verb}-{n}", run.revision + 1));
            named.extend(keys.filter_map(|key| self.no(&key)));
        }
        let focus = self.with_tips(named);
        self.put_rows(locked, &focus);
        let kept = append
            .receipt
            .as_ref()
            .and_then(|key| Some((key.clone(), self.receipts.get(key)?.clone())));
        locked.receipts.extend(kept);
    }

    fn is_stored(&self, no: TaskNo) -> bool {
        row(no) < self.world.tasks.len()
    }

    fn with_tips(&self, named: BTreeSet<TaskNo>) -> BTreeSet<TaskNo> {
        let tips: Vec<TaskNo> = named.iter().map(|no| self.task(*no).tip).collect();
        named.into_iter().chain(tips).collect()
    }

    /// `rows_tail!`: rows with their parks, without edges.
    fn put_rows(&mut self, locked: &mut Locked, focus: &BTreeSet<TaskNo>) {
        for no in focus {
            self.reads.rows += 1;
            if let Some(park) = self.park(*no) {
                locked.graph.put_park(park.clone());
            }
            locked.graph.put_task(self.task(*no).clone());
        }
    }

    /// The focus of `run_tx.load_arms`.
    fn arms(&self, barriers: &[TaskNo]) -> Vec<TaskNo> {
        let mut seen: BTreeSet<(TaskNo, Vec<TaskNo>)> =
            barriers.iter().map(|no| (*no, vec![*no])).collect();
        let mut todo: Vec<(TaskNo, Vec<TaskNo>)> = seen.iter().cloned().collect();
        while let Some((no, inside)) = todo.pop() {
            for edge in self.edges_into(no).filter(|e| e.structural) {
                let tail = self.task(edge.from);
                let Some(at) = inside.iter().position(|i| Some(*i) == tail.barrier) else {
                    continue;
                };
                let mut within = inside[..=at].to_vec();
                if tail.kind == TaskKind::Join {
                    within.push(tail.no);
                }
                let next = (tail.no, within);
                if seen.insert(next.clone()) {
                    todo.push(next);
                }
            }
        }
        let focus: BTreeSet<TaskNo> = seen.into_iter().map(|(no, _)| no).collect();
        focus.into_iter().collect()
    }

    /// A settled barrier's stored snapshot.
    pub(crate) fn selection(&self, no: TaskNo) -> Option<Selection> {
        let text = self.bodies(no)?.selection.clone()?;
        let value = parse(text.as_bytes()).expect("stored texts are JSON");
        let keys = value
            .get("selected")
            .and_then(Value::as_array)
            .unwrap_or_default();
        let keys = keys.iter().filter_map(Value::as_str);
        let selected = keys.map(|k| TaskKey::trusted(k.to_owned())).collect();
        Some(Selection { selected, text })
    }

    pub(crate) fn bodies(&self, no: TaskNo) -> Option<&Bodies> {
        self.results.get(&(no, self.task(no).generation))
    }

    /// `run_tx.load_observed` and `run_tx.load_bodies`.
    fn load_observed(&mut self, locked: &mut Locked, nos: &[TaskNo]) {
        let named = self.with_tips(
            nos.iter()
                .copied()
                .filter(|no| self.is_stored(*no))
                .collect(),
        );
        let mut focus = named.clone();
        for no in named
            .iter()
            .filter(|no| self.task(**no).kind == TaskKind::Join)
        {
            let keys = self.selection(*no).map_or_else(Vec::new, |s| s.selected);
            let chosen: BTreeSet<TaskNo> = keys
                .iter()
                .filter_map(|key| self.no(key.as_str()))
                .collect();
            focus.extend(self.with_tips(chosen));
        }
        self.put_rows(locked, &focus);
        for no in &focus {
            self.reads.rows += 1;
            if let Some(selection) = self.selection(*no) {
                locked.graph.put_arms(&[], vec![(*no, selection)]);
            }
            let bodies = self.bodies(*no).cloned().unwrap_or_default();
            let (tool_input, definition) = self.authored.get(no).cloned().unwrap_or_default();
            locked.graph.put_seen(
                *no,
                Seen {
                    content: bodies.content,
                    structured: bodies.structured,
                    tool_input,
                    definition,
                },
            );
        }
    }

    /// `run_tx.load_rests`: a few unclaimed parks of each kind but approvals.
    fn rests(&self, most: usize) -> Vec<(TaskNo, Rest)> {
        let mut found = Vec::new();
        for (kind, rest) in [
            (ParkKind::ToolCall, Rest::Unclaimed),
            (ParkKind::Ask, Rest::Question),
            (ParkKind::Wait, Rest::Wait),
        ] {
            let parks = self
                .world
                .parks
                .iter()
                .filter(|p| p.kind == kind && p.claim.is_none());
            found.extend(parks.take(most).map(|p| (p.task, rest)));
        }
        found
    }

    fn ready_rows(&self, limit: usize) -> Vec<TaskNo> {
        let ready = self.world.tasks.iter().filter(|t| {
            t.status == TaskStatus::Queued
                && t.remaining == 0
                && matches!(t.kind, TaskKind::Tool | TaskKind::Await)
        });
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
            Want::Behind(nos) => {
                let focus = self.reach(nos, |edge, head| {
                    edge.structural && head.kind != TaskKind::Join
                });
                self.slice(locked, &focus, false);
            }
            Want::Addressees(nos) => {
                for no in nos {
                    // By what the slice says: rows that this transaction adds are not stored.
                    let task = locked.graph.task(*no).expect("a row that starts is loaded");
                    let found = self.fleet.addressees(task);
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
            // The simulated runners author no work.
            Want::Attached(nos) => locked.graph.put_attached(nos),
            Want::Upstream(nos) => locked.graph.put_upstream(nos),
            Want::Ready => {
                locked.graph.put_ready();
                let ready = self.ready_rows(usize::try_from(PASS).expect("few"));
                self.slice(locked, &ready, true);
            }
            Want::Into(nos) => {
                let nos: BTreeSet<TaskNo> = nos.iter().copied().collect();
                self.put_into(locked, &nos.into_iter().collect::<Vec<_>>());
            }
            Want::Arms(nos) => {
                locked.graph.put_arms(nos, Vec::new());
                let focus = self.arms(nos);
                self.slice(locked, &focus, false);
                let tails: Vec<TaskNo> = nos
                    .iter()
                    .flat_map(|no| self.edges_into(*no))
                    .map(|e| e.from)
                    .collect();
                let chosen: Vec<_> = tails
                    .iter()
                    .filter_map(|no| Some((*no, self.selection(*no)?)))
                    .collect();
                self.reads.rows += chosen.len();
                locked.graph.put_arms(&[], chosen);
            }
            Want::Parks(nos) => {
                let parks: Vec<Park> = nos
                    .iter()
                    .filter_map(|no| self.park(*no).cloned())
                    .collect();
                self.reads.rows += parks.len();
                locked.graph.put_locked_parks(nos, parks);
                self.slice(locked, nos, false);
            }
            Want::Rests(most) => {
                let found = self.rests(*most);
                self.reads.rows += found.len();
                locked.graph.put_rests(found);
            }
            Want::Resting(reason) => {
                locked.graph.put_resting(*reason);
                let kind = match reason {
                    AttentionReason::AwaitingHuman => ParkKind::Ask,
                    _ => ParkKind::Approval,
                };
                let parks = self.world.parks.iter().filter(|p| p.kind == kind);
                let focus: BTreeSet<TaskNo> = parks.map(|p| p.task).collect();
                self.put_rows(locked, &focus);
            }
            Want::Host => {
                self.reads.rows += 1;
                locked.graph.put_host(self.fleet.host());
            }
            Want::Rules(nos) => {
                let input = |no: &TaskNo| {
                    let text = self.authored.get(no).and_then(|a| a.0.as_deref());
                    let value = parse(text.unwrap_or("{}").as_bytes());
                    (*no, value.expect("stored texts are JSON"))
                };
                let stored = nos.iter().filter(|no| self.is_stored(**no));
                let inputs = stored.map(input).collect::<Vec<_>>();
                self.reads.rows += inputs.len();
                locked
                    .graph
                    .put_rules(self.rules.clone().unwrap_or_default(), inputs);
            }
            Want::Watchers(nos) => {
                let lowest = TaskNo(i32::MIN);
                let of = |no: TaskNo| {
                    let waits = self.waits.range((no, lowest)..);
                    waits.take_while(move |(of, _)| *of == no)
                };
                let waits = nos.iter().flat_map(|no| of(*no));
                let waits: Vec<TaskNo> = waits.map(|(_, wait)| *wait).collect();
                self.slice(locked, &waits, false);
                for wait in waits {
                    locked.graph.watch(wait);
                }
            }
            Want::Observed(nos) => self.load_observed(locked, nos),
        }
    }

    /// The focus of `run_tx.load_downstream`: stored states decide, not what this transaction did.
    fn downstream(&self, from: &[TaskNo]) -> Vec<TaskNo> {
        self.reach(from, |_, head| {
            head.status.is_unstarted() && head.kind != TaskKind::Join
        })
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
        let bodies = self.results.get(&(task.no, task.generation))?;
        bodies.digest.map(|d| d.to_vec())
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
            self.apply_births(&graph)?;
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

    /// Rows as they were born, edges as they stand.
    fn apply_births(&mut self, graph: &Graph) -> Result<(), String> {
        for (no, new) in &graph.changes.tasks_new {
            if row(*no) != self.world.tasks.len() {
                return Err(format!(
                    "row {} is born behind {}",
                    no.0,
                    self.world.tasks.len()
                ));
            }
            let twice = Arc::make_mut(&mut self.keys).insert(new.task.key.clone(), *no);
            if twice.is_some() {
                return Err(format!("a second row {}", new.task.key));
            }
            if new.task.status != TaskStatus::Queued {
                return Err(format!(
                    "{} is born {}: not written",
                    new.task.key, new.task.status
                ));
            }
            let text = |c: &Option<crate::domain::json::Canonical>| {
                c.as_ref().map(|c| c.as_str().to_owned())
            };
            let authored = (text(&new.tool_input), text(&new.definition));
            Arc::make_mut(&mut self.authored).insert(*no, authored);
            self.world.tasks.push(new.task.clone());
        }
        for (from, to) in &graph.changes.edges_new {
            let edge = *graph
                .edge(*from, *to)
                .ok_or(format!("edge {}→{} born unloaded", from.0, to.0))?;
            let at = self.world.edges.len();
            self.world.edges.push(edge);
            let edges = &self.world.edges;
            let list = Arc::make_mut(&mut self.out).entry(*from).or_default();
            match list.binary_search_by_key(to, |at| edges[*at].to) {
                Ok(_) => return Err(format!("a second edge {}→{}", from.0, to.0)),
                Err(place) => list.insert(place, at),
            }
            Arc::make_mut(&mut self.into)
                .entry(*to)
                .or_default()
                .push(at);
        }
        for receipt in &graph.changes.receipts {
            let kept = (
                receipt.fingerprint.clone(),
                receipt.body.as_str().to_owned(),
            );
            if self.receipts.insert(receipt.key.clone(), kept).is_some() {
                return Err(format!("a second receipt under {}", receipt.key));
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
            if let (Some(join), Some(new)) = (&mut stored.join, new.join) {
                join.successes = new.successes;
                join.pending = new.pending;
            }
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
        let frozen = graph.run.status == RunStatus::Paused;
        if let Some(clocks) = graph.changes.clocks {
            let later = chrono::TimeDelta::microseconds(clocks.later_us);
            for park in &mut self.world.parks {
                park.deadline_at += later;
                let beside = self.beside.entry(park.task).or_default();
                beside.frozen = frozen;
                beside.due_at = beside.due_at.map(|at| at + later);
            }
        }
        for no in &graph.changes.parks_gone {
            if let Some(observed) = graph.task(*no).and_then(|t| t.observes)
                && !self.waits.remove(&(observed, *no))
            {
                return Err(format!("no wait of {} to end", no.0));
            }
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
            self.beside.entry(*no).or_default().frozen = frozen;
            if let Some(observed) = graph.task(*no).and_then(|t| t.observes) {
                self.waits.insert((observed, *no));
            }
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
            frozen: false,
        };
        self.beside.insert(no, beside);
    }

    fn apply_bodies(&mut self, graph: &Graph) -> Result<(), String> {
        for result in &graph.changes.results {
            let new = StoredResult {
                task: result.task,
                generation: result.generation,
                digest: result.digest,
                selection: result.selection.clone(),
            };
            let text = |c: &Option<crate::domain::json::Canonical>| {
                c.as_ref().map(|c| c.as_str().to_owned())
            };
            let bodies = Bodies {
                digest: result.digest,
                content: text(&result.content),
                structured: text(&result.structured),
                selection: result.selection.clone(),
            };
            let twice = self.results.insert((new.task, new.generation), bodies);
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
        let frozen = self.world.run.status == RunStatus::Paused;
        for park in &self.world.parks {
            if self
                .beside
                .get(&park.task)
                .is_some_and(|b| b.frozen != frozen)
            {
                return Err(format!("the clock of {} stands: {}", park.task.0, !frozen));
            }
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

    /// The sweeper's scan: parks whose `due_at` has come, while their clocks run. What the
    /// scan sees may be stale when it is acted on.
    pub(crate) fn due(&self) -> Vec<TaskNo> {
        let due = |no: &TaskNo| {
            let beside = self.beside.get(no).filter(|b| !b.frozen);
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
