//! Applying what the engine decided: one statement a table, arrays unnested, all in the batch that
//! ends with COMMIT (`architecture.md` §5). Makes no choice of its own.
//!
//! Invariant: every statement states how many rows it must meet; another number aborts the
//! transaction in the server (`nexus_expect`), so a COMMIT sent behind it commits nothing.

mod operations;
pub mod statements;

use uuid::Uuid;

use self::operations::Operations;
use self::statements::{
    CLOCKS, EDGES, EVENTS, FAILURES_GONE, FAILURES_NEW, PARKS_EARLIER, PARKS_GONE, PARKS_LATER,
    PARKS_NEW, RECEIPTS, RECEIPTS_EXPIRED, RESULTS, RUNS, TASKS, UPLOADS_BOUND, WAITS_GONE,
    WAITS_NEW,
};
use super::births::Births;
use super::tx::Batch;
use super::{Error, rows};
use crate::domain::json::Value;
use crate::domain::words::RunStatus;
use crate::domain::{TaskNo, Timestamp};
use crate::engine::facts::{Run, Task};
use crate::engine::graph::Graph;

/// Account, run and task of written rows.
#[derive(Default)]
struct Rows {
    accounts: Vec<i64>,
    runs: Vec<i64>,
    nos: Vec<i32>,
    count: i64,
}

impl Rows {
    fn row(&mut self, run: &Run, no: TaskNo) {
        self.accounts.push(run.account.0);
        self.runs.push(run.id.0);
        self.nos.push(no.0);
        self.count += 1;
    }
}

/// A struct of columns: one vector a column, named as the column.
macro_rules! columns {
    ($name:ident { $($column:ident: $type:ty),* $(,)? }) => {
        #[derive(Default)]
        struct $name { at: Rows, $($column: Vec<$type>,)* }
    };
}

columns!(TaskColumns {
    status: &'static str,
    generation: i32,
    remaining: i32,
    addressed_role: Option<&'static str>,
    addressed_executor: Option<i64>,
    approval_origin: Option<&'static str>,
    approval_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    claimed_by: Option<i64>,
    claimed_at: Option<Timestamp>,
    claim_digest: Option<Vec<u8>>,
    resolution: Option<&'static str>,
    error_key: Option<String>,
    error_detail: Option<String>,
    is_error: bool,
    race_absorbed: bool,
    settle_seq: Option<i32>,
    completed_at: Option<Timestamp>,
    decided_by: Option<Uuid>,
    join_successes: Option<i32>,
    join_pending: Option<i32>,
    taken_over: bool,
    trace_end: i32,
    join_sources: Option<String>,
});

columns!(WaitColumns { observes: i32 });

columns!(RunClocks {
    frozen: bool,
    later_us: i64,
});

columns!(ReceiptColumns {
    key: String,
    fingerprint: Vec<u8>,
    body: String,
    created_at: Timestamp,
});

columns!(EdgeColumns { to: i32, state: &'static str, });

columns!(ParkColumns {
    kind: &'static str,
    executor: Option<i64>,
    pool: Option<String>,
    deadline_at: Timestamp,
    timeout_ms: i64,
    announced_timeout_ms: Option<i64>,
    effect_profile: Option<String>,
    replayable: bool,
    generation: i32,
    started_at: Timestamp,
    shard: i16,
    frozen: bool,
});

columns!(ClockColumns {
    deadline_at: Timestamp,
});

columns!(ResultColumns {
    generation: i32,
    content: Option<String>,
    structured: Option<String>,
    title: Option<String>,
    metadata: Option<String>,
    digest: Option<Vec<u8>>,
    selection: Option<String>,
});

#[derive(Default)]
struct EventColumns {
    accounts: Vec<i64>,
    hosts: Vec<i64>,
    seqs: Vec<i64>,
    kinds: Vec<&'static str>,
    payloads: Vec<String>,
    at: Vec<Timestamp>,
}

columns!(RunColumns {
    status: &'static str,
    revision: i32,
    deliverable: Option<i32>,
    mainline_tail: Option<i32>,
    tasks: i32,
    open: i32,
    ready: i32,
    started: i32,
    approval: i32,
    unresolved: i32,
    undelivered: i32,
    settle_seq: i32,
    event_seq: i64,
    schedulable: bool,
    attention_reason: Option<&'static str>,
    attention_keys: Option<String>,
    failure_reason: Option<String>,
    force_stopped: bool,
    started_at: Option<Timestamp>,
    paused_at: Option<Timestamp>,
    canceling_since: Option<Timestamp>,
    stopped_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    rounds: i32,
    running: i32,
    awaiting: i32,
    waits: i32,
});

/// What the changes of one or many runs come to, column by column.
#[derive(Default)]
pub(super) struct Applied {
    births: Births,
    operations: Operations,
    receipts: ReceiptColumns,
    tasks: TaskColumns,
    edges: EdgeColumns,
    parks_gone: Rows,
    claims_gone: Vec<Option<Vec<u8>>>,
    parks_new: ParkColumns,
    waits_new: WaitColumns,
    waits_gone: WaitColumns,
    clocks: RunClocks,
    later: ClockColumns,
    earlier: ClockColumns,
    results: ResultColumns,
    bound: Rows,
    bound_uploads: Vec<i64>,
    bound_distinct: i64,
    failures_new: Rows,
    failures_gone: Rows,
    events: EventColumns,
    runs: RunColumns,
}

/// A run's shard, 0 to 63: six bits of a hash of its id.
pub fn run_shard(run: Uuid) -> i16 {
    // A UUIDv7 ends in random bits: they are the hash.
    i16::from(run.as_bytes()[15] & 63)
}

impl Applied {
    pub(super) fn of<'g>(graphs: impl Iterator<Item = &'g Graph>) -> Result<Self, Error> {
        let mut applied = Self::default();
        for graph in graphs.filter(|g| !g.changes.is_empty()) {
            applied.take(graph)?;
        }
        Ok(applied)
    }

    fn take(&mut self, graph: &Graph) -> Result<(), Error> {
        let (run, changes) = (&graph.run, &graph.changes);
        for receipt in &changes.receipts {
            let columns = &mut self.receipts;
            columns.at.row(run, TaskNo(0));
            columns.key.push(receipt.key.clone());
            columns.fingerprint.push(receipt.fingerprint.clone());
            columns.body.push(receipt.body.as_str().to_owned());
            columns.created_at.push(graph.now);
        }
        for new in changes.tasks_new.values() {
            self.births.task(run.account.0, run.id.0, new);
        }
        for (from, to) in &changes.edges_new {
            let edge = graph
                .edge(*from, *to)
                .ok_or_else(|| missing("edges", *from))?;
            self.births.edge(run.account.0, run.id.0, edge);
        }
        for no in &changes.tasks {
            let task = graph.task(*no).ok_or_else(|| missing("tasks", *no))?;
            self.task(run, task);
        }
        for (from, to) in changes.edges.difference(&changes.edges_new) {
            let edge = graph
                .edge(*from, *to)
                .ok_or_else(|| missing("edges", *from))?;
            self.edges.at.row(run, *from);
            self.edges.to.push(to.0);
            self.edges.state.push(edge.state.as_str());
        }
        self.operations.take(graph)?;
        self.parks(graph)?;
        for result in &changes.results {
            let columns = &mut self.results;
            columns.at.row(run, result.task);
            columns.generation.push(result.generation);
            columns
                .content
                .push(result.content.as_ref().map(|c| c.as_str().to_owned()));
            columns
                .structured
                .push(result.structured.as_ref().map(|c| c.as_str().to_owned()));
            columns.title.push(result.title.clone());
            columns
                .metadata
                .push(result.metadata.as_ref().map(|c| c.as_str().to_owned()));
            columns.digest.push(result.digest.map(|d| d.to_vec()));
            columns.selection.push(result.selection.clone());
        }
        for (no, upload) in &changes.bound {
            self.bound.row(run, *no);
            if !self.bound_uploads.contains(&upload.0) {
                self.bound_distinct += 1;
            }
            self.bound_uploads.push(upload.0);
        }
        for no in &changes.failures_new {
            self.failures_new.row(run, *no);
        }
        for no in &changes.failures_gone {
            self.failures_gone.row(run, *no);
        }
        for (seq, event) in &changes.events {
            let columns = &mut self.events;
            columns.accounts.push(run.account.0);
            columns.hosts.push(run.id.0);
            columns.seqs.push(*seq);
            columns.kinds.push(event.kind());
            columns
                .payloads
                .push(event.payload(run.public_id).into_string());
            columns.at.push(graph.now);
        }
        self.run(run);
        Ok(())
    }

    fn task(&mut self, run: &Run, task: &Task) {
        let columns = &mut self.tasks;
        columns.at.row(run, task.no);
        columns.status.push(task.status.as_str());
        columns.generation.push(task.generation);
        columns.remaining.push(task.remaining);
        columns
            .addressed_role
            .push(task.addressed.map(|a| a.role.as_str()));
        columns
            .addressed_executor
            .push(task.addressed.and_then(|a| a.executor).map(|e| e.0));
        columns
            .approval_origin
            .push(task.approval.as_ref().map(|a| a.origin.as_str()));
        columns
            .approval_at
            .push(task.approval.as_ref().map(|a| a.decided_at));
        columns.started_at.push(task.started_at);
        columns.claimed_by.push(task.claim.as_ref().map(|c| c.by.0));
        columns.claimed_at.push(task.claim.as_ref().map(|c| c.at));
        columns
            .claim_digest
            .push(task.claim.as_ref().map(|c| c.digest.clone()));
        columns
            .resolution
            .push(task.failure_resolution.map(|r| r.as_str()));
        columns
            .error_key
            .push(task.error.as_ref().map(|e| e.key.clone()));
        columns
            .error_detail
            .push(task.error.as_ref().and_then(|e| e.detail.clone()));
        columns.is_error.push(task.is_error);
        columns.race_absorbed.push(task.race_absorbed);
        columns.settle_seq.push(task.settle_seq);
        columns.completed_at.push(task.completed_at);
        let decided_by = task.approval.as_ref().and_then(|a| a.decided_by);
        columns.decided_by.push(decided_by.map(|id| id.0));
        columns.join_successes.push(task.join.map(|j| j.successes));
        columns.join_pending.push(task.join.map(|j| j.pending));
        columns.taken_over.push(task.taken_over);
        columns.trace_end.push(task.trace_end);
        columns.join_sources.push(rows::sources_text(&task.sources));
    }

    /// A park of an observation has a row in `waits` for as long as it stands.
    fn wait(graph: &Graph, columns: &mut WaitColumns, no: TaskNo) {
        let observed = graph.task(no).and_then(|t| t.observes);
        if let Some(observed) = observed {
            columns.at.row(&graph.run, no);
            columns.observes.push(observed.0);
        }
    }

    fn parks(&mut self, graph: &Graph) -> Result<(), Error> {
        let (run, changes) = (&graph.run, &graph.changes);
        if let Some(clocks) = changes.clocks {
            self.clocks.at.row(run, TaskNo(0));
            self.clocks.frozen.push(run.status == RunStatus::Paused);
            self.clocks.later_us.push(clocks.later_us);
        }
        for no in &changes.parks_gone {
            Self::wait(graph, &mut self.waits_gone, *no);
            self.parks_gone.row(run, *no);
            self.claims_gone.push(changes.claims_gone.get(no).cloned());
        }
        for no in &changes.parks_new {
            let park = graph.park(*no).ok_or_else(|| missing("parks", *no))?;
            Self::wait(graph, &mut self.waits_new, *no);
            let columns = &mut self.parks_new;
            columns.at.row(run, *no);
            columns.frozen.push(run.status == RunStatus::Paused);
            columns.kind.push(park.kind.as_str());
            columns.executor.push(park.executor.map(|e| e.0));
            columns.pool.push(park.pool_name.clone());
            columns.deadline_at.push(park.deadline_at);
            columns.timeout_ms.push(park.timeout_ms);
            columns.announced_timeout_ms.push(park.announced_timeout_ms);
            columns.effect_profile.push(park.effect_profile.clone());
            columns.replayable.push(park.replayable);
            columns.generation.push(park.generation);
            columns.started_at.push(park.started_at);
            columns.shard.push(run_shard(run.public_id.0));
        }
        for (no, earlier) in &changes.parks_moved {
            let park = graph.park(*no).ok_or_else(|| missing("parks", *no))?;
            let columns = if *earlier {
                &mut self.earlier
            } else {
                &mut self.later
            };
            columns.at.row(run, *no);
            columns.deadline_at.push(park.deadline_at);
        }
        Ok(())
    }

    fn run(&mut self, run: &Run) {
        let columns = &mut self.runs;
        columns.at.row(run, TaskNo(0));
        columns.status.push(run.status.as_str());
        columns.revision.push(run.revision);
        columns.deliverable.push(run.deliverable.map(|no| no.0));
        columns.mainline_tail.push(run.mainline_tail.map(|no| no.0));
        columns.tasks.push(run.counts.tasks);
        columns.open.push(run.counts.open);
        columns.ready.push(run.counts.ready);
        columns.started.push(run.counts.started);
        columns.approval.push(run.counts.approval);
        columns.unresolved.push(run.counts.unresolved);
        columns.undelivered.push(run.counts.undelivered);
        columns.settle_seq.push(run.settle_seq);
        columns.event_seq.push(run.event_seq);
        columns.schedulable.push(run.schedulable);
        columns
            .attention_reason
            .push(run.attention.as_ref().map(|a| a.reason.as_str()));
        columns.attention_keys.push(run.attention.as_ref().map(|a| {
            let keys = a
                .keys
                .iter()
                .map(|k| Value::from(k.as_str()))
                .collect::<Vec<_>>();
            Value::Array(keys)
                .canonical()
                .expect("keys are storable")
                .into_string()
        }));
        columns.failure_reason.push(run.failure_reason.clone());
        columns.force_stopped.push(run.force_stopped);
        columns.started_at.push(run.started_at);
        columns.paused_at.push(run.paused_at);
        columns.canceling_since.push(run.canceling_since);
        columns.stopped_at.push(run.stopped_at);
        columns.completed_at.push(run.completed_at);
        columns.rounds.push(run.counts.rounds);
        columns.running.push(run.counts.running);
        columns.awaiting.push(run.counts.awaiting);
        columns.waits.push(run.counts.waits);
    }

    /// Adds the statements that have rows to write, in lock order: parks before tasks is not
    /// needed (all stand behind the run lock), runs last so that its row is written once.
    pub(super) fn fill<'a>(&'a self, batch: &mut Batch<'a>) {
        let c = &self.receipts;
        if c.at.count > 0 {
            batch.add(&RECEIPTS_EXPIRED, vec![&c.at.accounts, &c.at.runs, &c.key]);
            batch.add(
                &RECEIPTS,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.key,
                    &c.fingerprint,
                    &c.body,
                    &c.created_at,
                ],
            );
        }
        self.births.fill(batch);
        self.fill_tasks(batch);
        self.operations.fill(batch);
        self.fill_parks(batch);
        self.fill_bodies(batch);
        self.fill_runs(batch);
    }

    fn fill_tasks<'a>(&'a self, batch: &mut Batch<'a>) {
        let c = &self.tasks;
        if c.at.count > 0 {
            batch.add(
                &TASKS,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.status,
                    &c.generation,
                    &c.remaining,
                    &c.addressed_role,
                    &c.addressed_executor,
                    &c.approval_origin,
                    &c.approval_at,
                    &c.started_at,
                    &c.claimed_by,
                    &c.claimed_at,
                    &c.claim_digest,
                    &c.resolution,
                    &c.error_key,
                    &c.error_detail,
                    &c.is_error,
                    &c.race_absorbed,
                    &c.settle_seq,
                    &c.completed_at,
                    &c.decided_by,
                    &c.join_successes,
                    &c.join_pending,
                    &c.taken_over,
                    &c.trace_end,
                    &c.join_sources,
                    &c.at.count,
                ],
            );
        }
        let c = &self.edges;
        if c.at.count > 0 {
            batch.add(
                &EDGES,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.to,
                    &c.state,
                    &c.at.count,
                ],
            );
        }
        for (sql, rows) in [(&FAILURES_GONE, &self.failures_gone)] {
            if rows.count > 0 {
                batch.add(
                    sql,
                    vec![&rows.accounts, &rows.runs, &rows.nos, &rows.count],
                );
            }
        }
        let rows = &self.failures_new;
        if rows.count > 0 {
            batch.add(&FAILURES_NEW, vec![&rows.accounts, &rows.runs, &rows.nos]);
        }
    }

    fn fill_parks<'a>(&'a self, batch: &mut Batch<'a>) {
        let c = &self.clocks;
        if c.at.count > 0 {
            batch.add(
                &CLOCKS,
                vec![&c.at.accounts, &c.at.runs, &c.frozen, &c.later_us],
            );
        }
        let c = &self.waits_gone;
        if c.at.count > 0 {
            batch.add(
                &WAITS_GONE,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.observes,
                    &c.at.count,
                ],
            );
        }
        let c = &self.waits_new;
        if c.at.count > 0 {
            batch.add(
                &WAITS_NEW,
                vec![&c.at.accounts, &c.at.runs, &c.at.nos, &c.observes],
            );
        }
        let rows = &self.parks_gone;
        if rows.count > 0 {
            batch.add(
                &PARKS_GONE,
                vec![
                    &rows.accounts,
                    &rows.runs,
                    &rows.nos,
                    &self.claims_gone,
                    &rows.count,
                ],
            );
        }
        let c = &self.parks_new;
        if c.at.count > 0 {
            batch.add(
                &PARKS_NEW,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.kind,
                    &c.executor,
                    &c.pool,
                    &c.deadline_at,
                    &c.timeout_ms,
                    &c.announced_timeout_ms,
                    &c.effect_profile,
                    &c.replayable,
                    &c.generation,
                    &c.started_at,
                    &c.shard,
                    &c.frozen,
                ],
            );
        }
        for (sql, c) in [(&PARKS_LATER, &self.later), (&PARKS_EARLIER, &self.earlier)] {
            if c.at.count > 0 {
                batch.add(
                    sql,
                    vec![
                        &c.at.accounts,
                        &c.at.runs,
                        &c.at.nos,
                        &c.deadline_at,
                        &c.at.count,
                    ],
                );
            }
        }
    }

    fn fill_bodies<'a>(&'a self, batch: &mut Batch<'a>) {
        let c = &self.results;
        if c.at.count > 0 {
            batch.add(
                &RESULTS,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.at.nos,
                    &c.generation,
                    &c.content,
                    &c.structured,
                    &c.title,
                    &c.metadata,
                    &c.digest,
                    &c.selection,
                ],
            );
        }
        let rows = &self.bound;
        if rows.count > 0 {
            batch.add(
                &UPLOADS_BOUND,
                vec![
                    &rows.accounts,
                    &rows.runs,
                    &self.bound_uploads,
                    &rows.nos,
                    &self.bound_distinct,
                ],
            );
        }
        let c = &self.events;
        if !c.seqs.is_empty() {
            batch.add(
                &EVENTS,
                vec![&c.accounts, &c.hosts, &c.seqs, &c.kinds, &c.payloads, &c.at],
            );
        }
    }

    fn fill_runs<'a>(&'a self, batch: &mut Batch<'a>) {
        let c = &self.runs;
        if c.at.count > 0 {
            batch.add(
                &RUNS,
                vec![
                    &c.at.accounts,
                    &c.at.runs,
                    &c.status,
                    &c.revision,
                    &c.deliverable,
                    &c.mainline_tail,
                    &c.tasks,
                    &c.open,
                    &c.ready,
                    &c.started,
                    &c.approval,
                    &c.unresolved,
                    &c.undelivered,
                    &c.settle_seq,
                    &c.event_seq,
                    &c.schedulable,
                    &c.attention_reason,
                    &c.attention_keys,
                    &c.failure_reason,
                    &c.force_stopped,
                    &c.started_at,
                    &c.paused_at,
                    &c.canceling_since,
                    &c.stopped_at,
                    &c.completed_at,
                    &c.rounds,
                    &c.running,
                    &c.awaiting,
                    &c.waits,
                    &c.at.count,
                ],
            );
        }
    }
}

fn missing(table: &'static str, no: TaskNo) -> Error {
    Error::inconsistent(
        table,
        "task_no",
        format!("task {}: changed but not in the slice", no.0),
    )
}
