//! What operations of claimed calls come to: their rows, and what they changed of others
//! (`operations.md` §2).

use uuid::Uuid;

use super::statements::{
    BACKGROUNDED, EDGES_GONE, OPERATION_RESULTS, OPERATION_UPLOADS, OPERATIONS, OPERATIONS_NEW,
    OPERATIONS_OPEN, OPERATIONS_PENDING, READS_MOVED,
};
use super::{Rows, missing};
use crate::domain::{TaskNo, Timestamp};
use crate::engine::facts::{Operation, Response, Run};
use crate::engine::graph::Graph;
use crate::store::Error;
use crate::store::births::{numbers, words};
use crate::store::tx::Batch;

/// The columns; [`Rows::nos`] are the calls'.
#[derive(Default)]
pub(super) struct Operations {
    new: New,
    results: Results,
    changed: Changed,
    open: Counted,
    pending: Counted,
    uploads: Rows,
    upload_ids: Vec<Uuid>,
    edges_gone: Rows,
    edges_gone_to: Vec<i32>,
    reads: Reads,
    backgrounded: Delivered,
}

#[derive(Default)]
struct New {
    at: Rows,
    positions: Vec<i32>,
    keys: Vec<String>,
    kinds: Vec<&'static str>,
    requests: Vec<String>,
    digests: Vec<Vec<u8>>,
    receipts: Vec<Option<String>>,
    refusals: Vec<Option<String>>,
    background: Vec<bool>,
    released: Vec<Option<i32>>,
    observed: Vec<Option<i32>>,
    outcomes: Vec<Option<String>>,
    open: Vec<i32>,
    pending: Vec<i32>,
    accepted_at: Vec<Timestamp>,
}

#[derive(Default)]
struct Results {
    at: Rows,
    positions: Vec<i32>,
    ordinals: Vec<i32>,
    tasks: Vec<Option<i32>>,
    sources: Vec<Option<i32>>,
}

#[derive(Default)]
struct Changed {
    at: Rows,
    positions: Vec<i32>,
    released: Vec<Option<i32>>,
    observed: Vec<Option<i32>>,
    outcomes: Vec<Option<String>>,
    observed_at: Vec<Timestamp>,
}

#[derive(Default)]
struct Counted {
    at: Rows,
    positions: Vec<i32>,
    more: Vec<i32>,
}

#[derive(Default)]
struct Reads {
    at: Rows,
    after_keys: Vec<String>,
    input_from: Vec<String>,
    result_from: Vec<String>,
}

#[derive(Default)]
struct Delivered {
    at: Rows,
    lifetimes: Vec<&'static str>,
    wakes: Vec<&'static str>,
}

impl Operations {
    pub(super) fn take(&mut self, graph: &Graph) -> Result<(), Error> {
        let (run, changes) = (&graph.run, &graph.changes);
        for (at, more) in &changes.operations_open {
            if *more != 0 && !changes.operations_new.contains(at) {
                self.open.at.row(run, at.0);
                self.open.positions.push(at.1);
                self.open.more.push(*more);
            }
        }
        for (no, more) in &changes.operations_pending {
            if *more != 0 && !changes.tasks_new.contains_key(no) {
                self.pending.at.row(run, *no);
                self.pending.more.push(*more);
            }
        }
        for at in &changes.operations_new {
            let operation = graph.operation_at(at.0, at.1);
            self.accepted(
                graph,
                operation.ok_or_else(|| missing("task_operations", at.0))?,
            );
        }
        for at in changes.operations.difference(&changes.operations_new) {
            let operation = graph.operation_at(at.0, at.1);
            let operation = operation.ok_or_else(|| missing("task_operations", at.0))?;
            let columns = &mut self.changed;
            columns.at.row(run, at.0);
            columns.positions.push(at.1);
            columns.released.push(operation.released);
            columns.observed.push(operation.observed);
            columns.outcomes.push(operation.outcome.clone());
            columns.observed_at.push(graph.now);
        }
        for (parent, upload) in &changes.sealed_uploads {
            self.uploads.row(run, *parent);
            self.upload_ids.push(upload.0);
        }
        for (from, to) in &changes.edges_gone {
            self.edges_gone.row(run, *from);
            self.edges_gone_to.push(to.0);
        }
        self.rows(graph)
    }

    fn rows(&mut self, graph: &Graph) -> Result<(), Error> {
        let (run, changes) = (&graph.run, &graph.changes);
        for no in &changes.reads_moved {
            let task = graph.task(*no).ok_or_else(|| missing("tasks", *no))?;
            self.reads.at.row(run, *no);
            self.reads.after_keys.push(words(&task.after_keys));
            self.reads.input_from.push(numbers(&task.input_from));
            self.reads.result_from.push(numbers(&task.result_from));
        }
        for no in &changes.backgrounded {
            let task = graph.task(*no).ok_or_else(|| missing("tasks", *no))?;
            self.backgrounded.at.row(run, *no);
            self.backgrounded.lifetimes.push(task.lifetime.as_str());
            self.backgrounded.wakes.push(task.wake.as_str());
        }
        Ok(())
    }

    fn accepted(&mut self, graph: &Graph, operation: &Operation) {
        let run = &graph.run;
        let is_open = |no: &TaskNo| graph.task(*no).is_some_and(|t| !t.status.is_terminal());
        let authored = graph.authored_by_operation(operation.parent, operation.position);
        let open = authored.iter().filter(|t| !t.status.is_terminal()).count();
        let pending = operation.results.iter().filter(|no| is_open(no)).count();
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let (receipt, refusal) = match &operation.response {
            Response::Receipt(receipt) => (Some(receipt.clone()), None),
            Response::Refusal(refusal) => (None, Some(refusal.clone())),
        };
        let columns = &mut self.new;
        columns.at.row(run, operation.parent);
        columns.positions.push(operation.position);
        columns.keys.push(operation.key.clone());
        columns.kinds.push(operation.kind.as_str());
        columns.requests.push(operation.request.clone());
        columns.digests.push(operation.digest.clone());
        columns.receipts.push(receipt);
        columns.refusals.push(refusal);
        columns.background.push(operation.background);
        columns.released.push(operation.released);
        columns.observed.push(operation.observed);
        columns.outcomes.push(operation.outcome.clone());
        columns.open.push(count(open));
        columns.pending.push(count(pending));
        columns.accepted_at.push(graph.now);
        let results = operation.results.iter().map(|no| (Some(no.0), None));
        let sources = operation.sources.iter().map(|at| (None, Some(*at)));
        for (ordinal, (task, source)) in results.chain(sources).enumerate() {
            self.result(run, operation, count(ordinal), task, source);
        }
    }

    fn result(
        &mut self,
        run: &Run,
        operation: &Operation,
        ordinal: i32,
        task: Option<i32>,
        source: Option<i32>,
    ) {
        let columns = &mut self.results;
        columns.at.row(run, operation.parent);
        columns.positions.push(operation.position);
        columns.ordinals.push(ordinal);
        columns.tasks.push(task);
        columns.sources.push(source);
    }

    /// Adds the statements that have rows to write: counts of operations that stood before come
    /// before new ones.
    pub(super) fn fill<'a>(&'a self, batch: &mut Batch<'a>) {
        let c = &self.edges_gone;
        if c.count > 0 {
            let to = &self.edges_gone_to;
            batch.add(
                &EDGES_GONE,
                vec![&c.accounts, &c.runs, &c.nos, to, &c.count],
            );
        }
        let c = &self.reads;
        if c.at.count > 0 {
            batch.add(
                &READS_MOVED,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.after_keys,
                    &c.input_from,
                    &c.result_from,
                    &c.at.count,
                ],
            );
        }
        let c = &self.backgrounded;
        if c.at.count > 0 {
            batch.add(
                &BACKGROUNDED,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.lifetimes,
                    &c.wakes,
                    &c.at.count,
                ],
            );
        }
        let c = &self.open;
        if c.at.count > 0 {
            batch.add(
                &OPERATIONS_OPEN,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.positions,
                    &c.more,
                    &c.at.count,
                ],
            );
        }
        let c = &self.pending;
        if c.at.count > 0 {
            batch.add(
                &OPERATIONS_PENDING,
                vec![&c.at.accounts, &c.at.runs, &c.at.nos, &c.more],
            );
        }
        self.fill_new(batch);
        let c = &self.changed;
        if c.at.count > 0 {
            batch.add(
                &OPERATIONS,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.positions,
                    &c.released,
                    &c.observed,
                    &c.outcomes,
                    &c.observed_at,
                    &c.at.count,
                ],
            );
        }
        let c = &self.uploads;
        if c.count > 0 {
            batch.add(
                &OPERATION_UPLOADS,
                vec![&c.accounts, &c.runs, &c.nos, &self.upload_ids],
            );
        }
    }

    fn fill_new<'a>(&'a self, batch: &mut Batch<'a>) {
        let c = &self.new;
        if c.at.count > 0 {
            batch.add(
                &OPERATIONS_NEW,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.positions,
                    &c.keys,
                    &c.kinds,
                    &c.requests,
                    &c.digests,
                    &c.receipts,
                    &c.refusals,
                    &c.background,
                    &c.released,
                    &c.observed,
                    &c.outcomes,
                    &c.open,
                    &c.pending,
                    &c.accepted_at,
                ],
            );
        }
        let c = &self.results;
        if c.at.count > 0 {
            batch.add(
                &OPERATION_RESULTS,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.positions,
                    &c.ordinals,
                    &c.tasks,
                    &c.sources,
                ],
            );
        }
    }
}
