//! The work of claimed calls (`operations.md` §2, §8, §9): what a call has not finished, and what
//! ends with it.
//!
//! Attached work is what a call's operations authored and did not put into the background, at any
//! depth. A call that ends without publishing takes it along; whoever is canceled so and is a call
//! with work of its own does the same.

use super::{Graph, Outcome, Want};
use crate::domain::TaskNo;
use crate::engine::expire;
use crate::engine::facts::{Operation, Task};
use crate::engine::settlement::{Settlement, settlement};

/// Why attached work is canceled.
const PARENT_SETTLED: &str = "parent_settled";

impl Graph {
    // ---------------------------------------------------------------- what the shell loads

    /// Takes an operation, unless the slice already holds (a later state of) it.
    pub fn put_operation(&mut self, operation: Operation) {
        let at = (operation.parent, operation.position);
        self.operations.entry(at).or_insert(operation);
    }

    /// A loaded call had unfinished or unobserved work.
    pub fn put_unfinished(&mut self, no: TaskNo) {
        self.unfinished.insert(no);
    }

    /// The open work of these calls is loaded.
    pub fn put_attached(&mut self, calls: &[TaskNo]) {
        self.attached.extend(calls);
    }

    /// What is upstream of these rows is loaded.
    pub fn put_upstream(&mut self, rows: &[TaskNo]) {
        self.upstream.extend(rows);
    }

    /// Whether what is upstream of that row is loaded.
    pub(super) fn has_upstream(&self, no: TaskNo) -> bool {
        self.upstream.contains(&no)
    }

    // ---------------------------------------------------------------- operations

    /// A loaded operation of a call, by its key.
    pub fn operation(&self, parent: TaskNo, key: &str) -> Option<&Operation> {
        let mut of_parent = self.operations_of(parent);
        of_parent.find(|o| o.key == key)
    }

    /// A loaded operation of a call, by its position.
    pub fn operation_at(&self, parent: TaskNo, position: i32) -> Option<&Operation> {
        self.operations.get(&(parent, position))
    }

    /// The loaded operations of a call, in order.
    pub fn operations_of(&self, parent: TaskNo) -> impl Iterator<Item = &Operation> {
        let range = (parent, i32::MIN)..=(parent, i32::MAX);
        self.operations.range(range).map(|(_, o)| o)
    }

    /// Adds an accepted operation.
    pub fn insert_operation(&mut self, operation: Operation) {
        let at = (operation.parent, operation.position);
        if !operation.background {
            self.unfinished.insert(operation.parent);
        }
        self.changes.operations_new.insert(at);
        self.operations.insert(at, operation);
    }

    /// Writes an operation: it was observed or released.
    pub fn write_operation(&mut self, at: (TaskNo, i32), change: impl FnOnce(&mut Operation)) {
        let operation = self.operations.get_mut(&at);
        change(operation.expect("an operation is loaded before it is written"));
        if !self.changes.operations_new.contains(&at) {
            self.changes.operations.insert(at);
        }
    }

    /// The rows that an operation authored, as far as they are loaded.
    pub fn authored_by_operation(&self, parent: TaskNo, position: i32) -> Vec<&Task> {
        let of_operation = |t: &&Task| t.owner == Some(parent) && t.operation == Some(position);
        self.tasks().filter(of_operation).collect()
    }

    /// Whether a call may not publish yet: an operation is not observed, or attached work not ended.
    /// What the same transaction finished may still count.
    pub fn is_unfinished(&self, no: TaskNo) -> bool {
        self.unfinished.contains(&no)
    }

    // ---------------------------------------------------------------- what ends with a call

    /// Ends the attached work of calls that ended without publishing.
    pub(super) fn end_attached(&mut self) -> Option<Want> {
        if self.ended.is_empty() {
            return None;
        }
        let unseen = self.ended.iter().filter(|no| !self.attached.contains(no));
        let unseen: Vec<TaskNo> = unseen.copied().collect();
        if !unseen.is_empty() {
            return Some(Want::Attached(unseen));
        }
        let is_attached =
            |t: &&Task| !t.background && t.owner.is_some_and(|no| self.ended.contains(&no));
        let attached = self.tasks().filter(is_attached);
        let (open, settled): (Vec<&Task>, Vec<&Task>) =
            attached.partition(|t| !t.status.is_terminal());
        let open: Vec<TaskNo> = open.iter().map(|t| t.no).collect();
        let pending = |t: &&&Task| settlement(t) == Settlement::Pending;
        let failed: Vec<TaskNo> = settled.iter().filter(pending).map(|t| t.no).collect();
        let held = self.unlocked_parks(&open);
        if !held.is_empty() {
            return Some(Want::Parks(held));
        }
        self.ended.clear();
        for no in open {
            let why = Outcome::error(PARENT_SETTLED, None);
            expire::or_cancel(self, no, why);
        }
        for no in failed {
            self.take_over(no);
        }
        None
    }

    /// A failure holds nothing any more: its owner observed it, or ended.
    pub(in crate::engine) fn take_over(&mut self, no: TaskNo) {
        self.write(no, |task| task.taken_over = true);
        self.release_again(no);
    }

    /// Those of these rows that are parked and whose parks are not locked yet.
    pub(super) fn unlocked_parks(&self, rows: &[TaskNo]) -> Vec<TaskNo> {
        let unlocked = |no: &TaskNo| {
            self.parks.contains_key(no)
                && !self.locked_parks.contains(no)
                && !self.changes.parks_new.contains(no)
        };
        rows.iter().copied().filter(unlocked).collect()
    }
}
