//! What a settled barrier does (`engine.md` §6): its snapshot, the walk that ends its losers, and
//! the failures it takes over.
//!
//! The arms of a race are the rows whose nearest races lead to it; scheduling obeys every edge,
//! cancellation follows structural placement only. A failure may be taken over from before the arms
//! too: from wherever structural edges lead to the race.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Graph, NewResult, Outcome, Want};
use crate::domain::json::{Object, Value};
use crate::domain::words::{EdgeState, FailureResolution, JoinMode, Losers, OnFailure, TaskStatus};
use crate::domain::{TaskKey, TaskNo};
use crate::engine::expire;
use crate::engine::facts::{Selection, Task};
use crate::engine::settlement::is_unresolved;

impl Graph {
    /// Takes the snapshots of barriers that settled, then walks their losers.
    pub(super) fn end_races(&mut self) -> Option<Want> {
        let unseen: Vec<TaskNo> = self
            .barriers
            .iter()
            .copied()
            .filter(|no| !self.arms.contains(no) && !self.changes.tasks_new.contains_key(no))
            .filter(|no| !is_operations(self.loaded(*no)))
            .collect();
        if !unseen.is_empty() {
            return Some(Want::Arms(unseen));
        }
        if let Some(want) = self.unseen_of_joins() {
            return Some(want);
        }
        // Every snapshot of one settle is taken before any of its losers are walked.
        // An inner one is placed, and so numbered, before the one around it: what it selected is known.
        let mut barriers = std::mem::take(&mut self.barriers);
        barriers.sort_unstable();
        for no in barriers {
            self.take_snapshot(no);
            let losers = self.loaded(no).join.map(|j| j.losers);
            if losers == Some(Losers::Cancel) {
                self.walks.push(no);
                self.walk_due = true;
            }
        }
        // The races of one command are walked together, so that their order decides nothing: who
        // lives in the branch of one may be lost with another's.
        if self.walk_due {
            let lost = self.losers();
            let held = self.unlocked_parks(&lost);
            if !held.is_empty() {
                return Some(Want::Parks(held));
            }
            self.walk_due = false;
            for no in lost {
                let why = Outcome::error("join_loser_canceled", None);
                expire::or_cancel(self, no, why);
            }
        }
        None
    }

    /// What must be seen of joins of operations: their sources, and what stands before those.
    fn unseen_of_joins(&self) -> Option<Want> {
        let joins = self.barriers.iter().copied();
        let joins = joins.filter(|no| is_operations(self.loaded(*no)));
        let joins: Vec<TaskNo> = joins.collect();
        let unread = joins.iter().copied();
        let unread: Vec<TaskNo> = unread.filter(|no| !self.into.contains_key(no)).collect();
        if !unread.is_empty() {
            return Some(Want::Into(unread));
        }
        let sources = joins.iter().flat_map(|no| self.tails_of(*no));
        let unseen: BTreeSet<TaskNo> = sources.filter(|no| !self.has_upstream(*no)).collect();
        (!unseen.is_empty()).then(|| Want::Upstream(unseen.into_iter().collect()))
    }

    fn take_snapshot(&mut self, no: TaskNo) {
        if is_operations(self.loaded(no)) {
            return self.take_join(no);
        }
        let tails: Vec<TaskNo> = self.tails_by_edges(no);
        let mut outcomes = Object::new();
        let mut winners = Vec::new();
        for tail in tails {
            let source = self.loaded(tail);
            let key = self.authored_key(source);
            outcomes.insert(key.as_str().to_owned(), word_of(source).into());
            if source.status == TaskStatus::Completed {
                winners.push((source.settle_seq, tail, key));
            }
        }
        winners.sort();
        let mut selected: Vec<TaskKey> = Vec::new();
        for (_, tail, key) in winners {
            match self.selections.get(&tail) {
                Some(inner) => selected.extend(inner.selected.iter().cloned()),
                None => selected.push(key),
            }
        }
        self.keep_snapshot(no, outcomes, selected);
    }

    /// The snapshot of a join of operations (`operations.md` §7): its sources in the order of their
    /// ends, those that count, a nested join replaced by its results.
    fn take_join(&mut self, no: TaskNo) {
        let join = self.loaded(no);
        let mode = join.join.map(|j| j.mode);
        let mut sources: Vec<(i32, Vec<TaskNo>)> = vec![(0, Vec::new()); join.sources.len()];
        let mut outcomes = Object::new();
        for tail in self.tails_by_edges(no) {
            let row = self.loaded(tail);
            let at = self.edge(tail, no).and_then(|edge| edge.source);
            let at = at.and_then(|at| sources.get_mut(usize::try_from(at).ok()?));
            if let Some((ended, rows)) = at {
                let end = row.settle_seq.filter(|_| row.status.is_terminal());
                *ended = (*ended).max(end.unwrap_or(i32::MAX));
                rows.push(tail);
            }
            outcomes.insert(row.key.as_str().to_owned(), word_of(row).into());
        }
        let succeeded = |rows: &[TaskNo]| {
            let mut rows = rows.iter().map(|no| self.loaded(*no));
            rows.all(|t| t.status == TaskStatus::Completed)
        };
        // Ties go by acceptance, the order of the sources.
        sources.retain(|(_, rows)| mode == Some(JoinMode::All) || succeeded(rows));
        sources.sort_by_key(|(ended, _)| *ended);
        let mut selected: Vec<TaskKey> = Vec::new();
        for row in sources.into_iter().flat_map(|(_, rows)| rows) {
            let row = self.loaded(row);
            let nested = is_operations(row) && row.status != TaskStatus::Canceled;
            match self.selections.get(&row.no).filter(|_| nested) {
                Some(inner) => {
                    selected.extend(inner.selected.iter().cloned());
                    if row.status != TaskStatus::Completed {
                        selected.push(row.key.clone());
                    }
                }
                None => selected.push(row.key.clone()),
            }
        }
        self.keep_snapshot(no, outcomes, selected);
    }

    fn keep_snapshot(&mut self, no: TaskNo, outcomes: Object, selected: Vec<TaskKey>) {
        let barrier = self.loaded(no);
        let joined = match barrier.join {
            Some(join) if join.mode == JoinMode::Quorum => Value::from(i64::from(join.k)),
            Some(join) => join.mode.as_str().into(),
            None => Value::Null,
        };
        let keys = selected.iter().map(|k| Value::from(k.as_str()));
        let text = Value::from([
            ("joined", joined),
            ("outcomes", Value::Object(outcomes)),
            ("selected", Value::Array(keys.collect())),
        ]);
        let text = text.canonical().expect("keys and words are storable");
        let text = text.into_string();
        let mut result = NewResult::empty(no, barrier.generation);
        result.selection = Some(text.clone());
        self.store_result(result);
        self.selections.insert(no, Selection { selected, text });
    }

    /// The authored key: that of the row which this one stands for.
    fn authored_key(&self, task: &Task) -> TaskKey {
        let authored = self.tasks.get(&task.lineage);
        authored.map_or_else(|| task.key.clone(), |t| t.key.clone())
    }

    /// The sources of a barrier, in placement order.
    fn tails_by_edges(&self, no: TaskNo) -> Vec<TaskNo> {
        let tails = self.edges.values().flatten().filter(|e| e.to == no);
        let mut tails: Vec<(i32, TaskNo)> = tails.map(|e| (e.ordinal, e.from)).collect();
        tails.sort_unstable();
        tails.into_iter().map(|(_, from)| from).collect()
    }

    /// Whether the row ends with that race once nothing waits for it: one of its arms, or, before a
    /// join of operations, attached work of the same call.
    fn is_of_race(&self, task: &Task, race: TaskNo) -> bool {
        let join = self.loaded(race);
        if is_operations(join) {
            return task.owner == join.owner && !task.background;
        }
        self.is_in_arms(task, race)
    }

    /// Whether the row was placed in an arm of that race, at any depth.
    fn is_in_arms(&self, task: &Task, race: TaskNo) -> bool {
        let mut at = task.barrier;
        while let Some(no) = at {
            if no == race {
                return true;
            }
            at = self.tasks.get(&no).and_then(|t| t.barrier);
        }
        false
    }

    /// The rows of the ended races' arms that their end cancels: those that nothing live outside the
    /// walk waits for.
    fn losers(&self) -> Vec<TaskNo> {
        let races = self.walks.iter();
        let candidates: BTreeSet<TaskNo> = races.flat_map(|no| self.open_members(*no)).collect();
        // How many live consumers each has, and who would lose one with it.
        let mut live: BTreeMap<TaskNo, usize> = BTreeMap::new();
        let mut tails: BTreeMap<TaskNo, Vec<TaskNo>> = BTreeMap::new();
        for no in &candidates {
            let consumers = self.edges_of(*no).iter().map(|e| e.to);
            let consumers = consumers.filter(|to| !self.loaded(*to).status.is_terminal());
            let mut count = 0;
            for to in consumers {
                count += 1;
                tails.entry(to).or_default().push(*no);
            }
            live.insert(*no, count);
        }
        let mut idle: VecDeque<TaskNo> = live
            .iter()
            .filter(|(_, count)| **count == 0)
            .map(|(no, _)| *no)
            .collect();
        let mut lost = Vec::new();
        while let Some(no) = idle.pop_front() {
            lost.push(no);
            for tail in tails.get(&no).into_iter().flatten() {
                let count = live.get_mut(tail).expect("a tail is a candidate");
                *count -= 1;
                if *count == 0 {
                    idle.push_back(*tail);
                }
            }
        }
        lost.sort_unstable();
        lost
    }

    /// Every row structurally upstream of the barrier that has not settled, found through rows that
    /// have.
    fn open_members(&self, race: TaskNo) -> BTreeSet<TaskNo> {
        let mut into: BTreeMap<TaskNo, Vec<TaskNo>> = BTreeMap::new();
        for edge in self.edges.values().flatten().filter(|e| e.structural) {
            into.entry(edge.to).or_default().push(edge.from);
        }
        let mut seen = BTreeSet::new();
        let mut todo = vec![race];
        while let Some(no) = todo.pop() {
            for tail in into.get(&no).into_iter().flatten() {
                if self.is_of_race(self.loaded(*tail), race) && seen.insert(*tail) {
                    todo.push(*tail);
                }
            }
        }
        seen.retain(|no| !self.loaded(*no).status.is_terminal());
        seen
    }

    // ---------------------------------------------------------------- failures taken over

    /// Takes over the halt failures of settled races that nothing live consumes any more.
    pub(super) fn absorb_failures(&mut self) -> Option<Want> {
        if !self.absorb_due {
            return None;
        }
        if self.run.counts.unresolved == 0 {
            self.absorb_due = false;
            return None;
        }
        let Some(failures) = self.failures.clone() else {
            return Some(Want::Failures);
        };
        let unseen = failures
            .iter()
            .filter(|no| !self.tasks.contains_key(no) || !self.edges.contains_key(no));
        let mut unseen: Vec<TaskNo> = unseen.copied().collect();
        for no in &failures {
            unseen.extend(self.unseen_barrier(*no));
        }
        if !unseen.is_empty() {
            unseen.sort_unstable();
            unseen.dedup();
            return Some(Want::Edges(unseen));
        }
        let mut absorbed = Vec::new();
        for no in failures {
            match self.is_race_absorbed(no) {
                Ok(true) => absorbed.push(no),
                Ok(false) => {}
                Err(want) => return Some(want),
            }
        }
        self.absorb_due = false;
        for no in absorbed {
            self.write(no, |task| task.race_absorbed = true);
            self.release_again(no);
        }
        None
    }

    /// The nearest race above a pending failure that is not loaded.
    fn unseen_barrier(&self, no: TaskNo) -> Option<TaskNo> {
        let task = self.tasks.get(&no)?;
        if !is_unresolved(task) {
            return None;
        }
        let mut at = task.barrier;
        while let Some(no) = at {
            match self.tasks.get(&no) {
                None => return Some(no),
                Some(barrier) => at = barrier.barrier,
            }
        }
        None
    }

    /// Whether a pending halt failure stands upstream of a settled race, with no live consumer.
    fn is_race_absorbed(&self, no: TaskNo) -> Result<bool, Want> {
        let task = self.loaded(no);
        if !is_unresolved(task) || self.is_waited_for(no) {
            return Ok(false);
        }
        if self.is_in_an_ended_race(task) {
            return Ok(true);
        }
        if !self.may_be_upstream_since_now(no) {
            return Ok(false);
        }
        self.leads_to_an_ended_race(no)
    }

    /// Whether a live row waits for it. Who was born behind a failure reads it and waits no more.
    pub(super) fn is_waited_for(&self, no: TaskNo) -> bool {
        let mut waiting = self.edges_of(no).iter();
        waiting.any(|e| e.state == EdgeState::Open && !self.loaded(e.to).status.is_terminal())
    }

    /// Whether a race in whose arms the row was placed has ended.
    fn is_in_an_ended_race(&self, task: &Task) -> bool {
        let mut at = task.barrier;
        while let Some(barrier) = at.and_then(|no| self.tasks.get(&no)) {
            if is_ended_race(barrier) {
                return true;
            }
            at = barrier.barrier;
        }
        false
    }

    /// What stands before a race is not looked for each time: only once the failure is new, has lost a
    /// consumer, or a race has ended, in this transaction.
    fn may_be_upstream_since_now(&self, no: TaskNo) -> bool {
        let changed = &self.changes.tasks;
        let mut consumers = self.edges_of(no).iter().map(|e| e.to);
        changed.contains(&no)
            || consumers.any(|to| changed.contains(&to))
            || changed.iter().any(|no| is_ended_race(self.loaded(*no)))
    }

    /// Whether structural edges lead from a failure that nobody waits for to a race that has ended.
    /// Mostly all that is on the way has settled; but an open race may stand there, and who is behind it
    /// was skipped for another reason.
    fn leads_to_an_ended_race(&self, failure: TaskNo) -> Result<bool, Want> {
        let mut seen = BTreeSet::from([failure]);
        let (mut todo, mut unseen) = (vec![failure], Vec::new());
        while let Some(no) = todo.pop() {
            let Some(edges) = self.edges.get(&no) else {
                unseen.push(no);
                continue;
            };
            for edge in edges.iter().filter(|e| e.structural) {
                let head = self.loaded(edge.to);
                if is_ended_race(head) {
                    return Ok(true);
                }
                if seen.insert(head.no) {
                    todo.push(head.no);
                }
            }
        }
        if unseen.is_empty() {
            return Ok(false);
        }
        unseen.sort_unstable();
        Err(Want::Behind(unseen))
    }
}

fn is_ended_race(task: &Task) -> bool {
    let is_race = task.join.is_some_and(|j| j.mode != JoinMode::All);
    is_race && task.status.is_terminal()
}

/// Whether a row joins operations rather than the members of a group.
fn is_operations(task: &Task) -> bool {
    !task.sources.is_empty()
}

/// A source's word in a snapshot: its status, or what became of its failure.
fn word_of(task: &Task) -> &'static str {
    let failed = matches!(
        task.status,
        TaskStatus::Failed | TaskStatus::TimedOut | TaskStatus::Uncertain
    );
    match task.failure_resolution {
        Some(FailureResolution::Abandoned) => "abandoned",
        None if failed && (task.on_failure == OnFailure::Absorb || task.race_absorbed) => {
            "absorbed"
        }
        _ => task.status.shown(),
    }
}
