//! Settling a row and releasing what waited for it (`engine.md` §5), and what that does to the
//! arithmetic of a barrier (§6).

use std::collections::{BTreeSet, VecDeque};

use super::{Class, Graph, NewResult, Outcome, Want};
use crate::domain::hint::Hint;
use crate::domain::words::{EdgeState, JoinMode, TaskKind, TaskStatus};
use crate::domain::{PublicId, TaskNo};
use crate::engine::facts::{Claim, Edge, Join, Park, Source, Task};
use crate::engine::settlement::{Settlement, settlement};

impl Graph {
    // ---------------------------------------------------------------- parks

    /// Parks a row.
    pub fn insert_park(&mut self, park: Park) {
        let no = park.task;
        self.parks.insert(no, park);
        self.changes.parks_new.push(no);
    }

    /// Moves a park's clock.
    pub fn move_park(&mut self, no: TaskNo, deadline_at: crate::domain::Timestamp) {
        let park = self
            .parks
            .get_mut(&no)
            .expect("a park is loaded before it is moved");
        let earlier = deadline_at < park.deadline_at;
        park.deadline_at = deadline_at;
        *self.changes.parks_moved.entry(no).or_insert(false) |= earlier;
    }

    /// Ends a park.
    pub(in crate::engine) fn end_park(&mut self, no: TaskNo) -> Option<Park> {
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
            task.failure_resolution = outcome.resolution;
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
        self.granted.remove(&no);
        if self.loaded(no).trace_end > 0 && status != TaskStatus::Completed {
            self.ended.insert(no);
        }
        if self.run.counts.waits > 0 {
            self.moved.push(no);
        }
        let task = self.loaded(no);
        let is_barrier = task.kind == TaskKind::Join
            && matches!(status, TaskStatus::Completed | TaskStatus::Failed);
        // Whoever read a pending failure may just have stopped being there.
        let was_a_consumer = task.kind == TaskKind::Join
            || matches!(status, TaskStatus::Canceled | TaskStatus::Skipped);
        if is_barrier {
            self.barriers.push(no);
        }
        self.absorb_due |= was_a_consumer;
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

    // ---------------------------------------------------------------- releasing

    pub(super) fn drain_releases(&mut self) -> Option<Want> {
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

    /// A settled row's consequences follow again: a person's stamp gave its settlement a meaning.
    pub(in crate::engine) fn release_again(&mut self, no: TaskNo) {
        self.released.push_back(no);
        self.absorb_due = true;
    }

    /// Releases a settled row's outgoing edges; what it settles itself joins the work list.
    fn release(&mut self, no: TaskNo) {
        let meaning = settlement(self.loaded(no));
        if meaning == Settlement::Pending {
            // A halt failure keeps its edges open, but for joins that want every source ended; one that
            // nobody waits for may be a race's.
            self.absorb_due |= !self.is_waited_for(no);
            return self.count_ended(no);
        }
        let edges = self.edges.get(&no).map_or(&[][..], Vec::as_slice);
        let open = edges.iter().filter(|e| e.state == EdgeState::Open);
        for edge in open.copied().collect::<Vec<_>>() {
            self.close(edge, meaning);
        }
    }

    /// An operation's `all` join counts a failure that nobody decided about (`engine.md` §5).
    fn count_ended(&mut self, no: TaskNo) {
        let edges = self.edges_of(no).iter();
        let open = edges.filter(|e| e.state == EdgeState::Open && e.source.is_some());
        for edge in open.copied().collect::<Vec<_>>() {
            let mode = self.loaded(edge.to).join.map(|j| j.mode);
            if mode == Some(JoinMode::All) {
                self.close(edge, Settlement::Resolved);
            }
        }
    }

    fn close(&mut self, edge: Edge, meaning: Settlement) {
        let skips = meaning == Settlement::Skip;
        let state = if skips {
            EdgeState::Skip
        } else {
            EdgeState::Met
        };
        self.set_edge(edge.from, edge.to, state);
        self.write(edge.to, |head| head.remaining -= 1);
        let head = self.loaded(edge.to);
        if head.kind == TaskKind::Join {
            self.count(edge, meaning);
        } else if skips && head.status.is_unstarted() {
            self.settle(edge.to, TaskStatus::Skipped, Outcome::default());
        } else if Class::of(head).ready + Class::of(head).rounds > 0 {
            self.woken = true;
        }
    }

    // ---------------------------------------------------------------- barriers

    /// One source of a barrier is no longer pending; a barrier that has settled counts no more.
    fn count(&mut self, edge: Edge, meaning: Settlement) {
        let no = edge.to;
        if self.loaded(no).status != TaskStatus::Queued {
            return;
        }
        let success = meaning == Settlement::Success;
        self.write(no, |task| {
            let Some(join) = &mut task.join else { return };
            let ended = match edge.source.and_then(|at| source(&mut task.sources, at)) {
                None => Some(success),
                Some(source) => end_result(source, join.mode, success),
            };
            if let Some(success) = ended {
                join.pending -= 1;
                join.successes += i32::from(success);
            }
        });
        self.settle_decided(no);
    }

    /// Settles a barrier whose arithmetic has a verdict.
    pub(in crate::engine) fn settle_decided(&mut self, no: TaskNo) {
        let Some(join) = self.loaded(no).join else {
            return;
        };
        match verdict(&join) {
            None => {}
            Some(None) => drop(self.settle(no, TaskStatus::Completed, Outcome::default())),
            Some(Some(key)) => {
                self.settle(no, TaskStatus::Failed, Outcome::error(key, None));
            }
        }
    }

    /// A source of a barrier is pending again; only a barrier that is still open counts it.
    fn count_back(&mut self, edge: Edge) {
        if self.loaded(edge.to).status == TaskStatus::Queued {
            self.write(edge.to, |task| {
                let Some(join) = &mut task.join else { return };
                let pending = match edge.source.and_then(|at| source(&mut task.sources, at)) {
                    None => true,
                    Some(source) => reopen_result(source, join.mode),
                };
                join.pending += i32::from(pending);
            });
        }
    }

    /// A person let a failure go or runs it again: what its skip closed is opened, before anything
    /// else follows.
    pub(in crate::engine) fn reopen(&mut self, no: TaskNo) {
        self.reopened.push_back(no);
    }

    /// Opens the edges that failures' skips closed, and what was skipped for no other reason, and so
    /// on through it. Barriers that settled stop the walk.
    pub(super) fn open_skipped(&mut self) -> Option<Want> {
        while let Some(&first) = self.reopened.front() {
            if let Some(want) = self.unseen_of_skips(first) {
                return Some(want);
            }
            self.reopened.pop_front();
            let mut todo = VecDeque::from([first]);
            while let Some(no) = todo.pop_front() {
                let edges = self.edges_of(no).iter();
                let skips = edges.filter(|e| e.state == EdgeState::Skip).copied();
                for edge in skips.collect::<Vec<Edge>>() {
                    self.open_again(edge);
                    let skipped = self.loaded(edge.to).status == TaskStatus::Skipped;
                    if skipped && !self.has_skip_edge(edge.to) {
                        self.revive(edge.to);
                        todo.push_back(edge.to);
                    }
                }
            }
        }
        None
    }

    /// What must be seen of the rows that a skip reached from this one: their edges, both ways.
    fn unseen_of_skips(&self, first: TaskNo) -> Option<Want> {
        let (mut edges, mut into) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::from([first]);
        let mut todo = vec![first];
        while let Some(no) = todo.pop() {
            let Some(list) = self.edges.get(&no) else {
                edges.push(no);
                continue;
            };
            for edge in list.iter().filter(|e| e.state == EdgeState::Skip) {
                let skipped = self.loaded(edge.to).status == TaskStatus::Skipped;
                if skipped && seen.insert(edge.to) {
                    todo.push(edge.to);
                    if !self.into.contains_key(&edge.to) {
                        into.push(edge.to);
                    }
                }
            }
        }
        if !edges.is_empty() {
            return Some(Want::Edges(edges));
        }
        (!into.is_empty()).then_some(Want::Into(into))
    }

    /// Opens an edge that a skip had closed.
    fn open_again(&mut self, edge: Edge) {
        self.set_edge(edge.from, edge.to, EdgeState::Open);
        self.write(edge.to, |head| head.remaining += 1);
        if self.loaded(edge.to).kind == TaskKind::Join {
            self.count_back(edge);
        }
    }

    /// A row of which the edges in were loaded has a source that was skipped or failed it.
    fn has_skip_edge(&self, no: TaskNo) -> bool {
        let into = self.into.get(&no).map(|tails| tails.values());
        into.into_iter()
            .flatten()
            .any(|state| *state == EdgeState::Skip)
    }

    /// A row's outgoing edges, as far as they are loaded.
    pub(in crate::engine) fn edges_of(&self, no: TaskNo) -> &[Edge] {
        self.edges.get(&no).map_or(&[], Vec::as_slice)
    }

    /// The tails of the edges into a row, if they were asked for.
    pub(in crate::engine) fn tails_of(&self, no: TaskNo) -> impl Iterator<Item = TaskNo> + '_ {
        let into = self.into.get(&no);
        into.into_iter().flat_map(|tails| tails.keys().copied())
    }

    /// The same with what the edges have come to.
    pub(in crate::engine) fn tails_with_states(
        &self,
        no: TaskNo,
    ) -> impl Iterator<Item = (TaskNo, EdgeState)> + '_ {
        let into = self.into.get(&no);
        into.into_iter().flatten().map(|(no, state)| (*no, *state))
    }

    /// A terminal row becomes a new, unstarted generation (`engine.md` §3).
    pub(in crate::engine) fn revive(&mut self, no: TaskNo) {
        self.write(no, |task| {
            task.status = TaskStatus::Queued;
            task.generation += 1;
            task.addressed = None;
            task.approval = None;
            task.started_at = None;
            task.claim = None;
            task.failure_resolution = None;
            task.error = None;
            task.is_error = false;
            task.settle_seq = None;
            task.completed_at = None;
        });
        if !self.changes.tasks_new.contains_key(&no) {
            self.seen.remove(&no);
        }
        self.narrate_task(no);
        self.woken = true;
    }

    /// A hold is over, if one stands: what is ready may start, and rest is judged anew.
    pub(in crate::engine) fn end_hold(&mut self) {
        use crate::domain::words::RunStatus;
        if self.run.status == RunStatus::NeedsAttention {
            self.set_run_status(RunStatus::Running);
            self.pass_owed = true;
        }
    }
}

fn source(sources: &mut [Source], at: i32) -> Option<&mut Source> {
    sources.get_mut(usize::try_from(at).ok()?)
}

/// One more result of a source ended; whether that decides the source, and how. Under `all` a source
/// is decided once all its results ended; else with its first failure or its last success.
fn end_result(source: &mut Source, mode: JoinMode, success: bool) -> Option<bool> {
    source.open -= 1;
    let had_failed = source.failed > 0;
    source.failed += i32::from(!success);
    match mode {
        JoinMode::All => (source.open == 0).then_some(source.failed == 0),
        _ if had_failed => None,
        _ if !success => Some(false),
        _ => (source.open == 0).then_some(true),
    }
}

/// A failed result of a source is pending again; whether the source is, with it.
fn reopen_result(source: &mut Source, mode: JoinMode) -> bool {
    let was_decided = match mode {
        JoinMode::All => source.open == 0,
        _ => source.failed == 1,
    };
    source.open += 1;
    source.failed -= 1;
    was_decided
}

/// What the arithmetic says: nothing yet, success, or a failure's word.
fn verdict(join: &Join) -> Option<Option<&'static str>> {
    match join.mode {
        // Operations only: settled once every source is, failures and cancels included.
        JoinMode::All => (join.pending == 0).then_some(None),
        _ if join.successes >= join.k => Some(None),
        _ if join.successes + join.pending >= join.k => None,
        JoinMode::Any => Some(Some("join_starved")),
        JoinMode::Quorum => Some(Some("quorum_unreachable")),
    }
}
