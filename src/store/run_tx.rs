//! The run lock as a value: one transaction over one run or a batch of them, and the slices of
//! their graphs that were loaded under it (`architecture.md` §4, §5).
//!
//! Lock order: runs ascending by (account, run), then parks ascending by task. A batch of several
//! runs leaves out those that somebody holds (`SKIP LOCKED`); one run alone waits.
//!
//! The clock is read after the lock is granted: the locking rows are materialised first, the
//! clock beside them is evaluated afterwards. The load is a statement of its own behind the lock,
//! since a statement that waits sees other tables as of before its wait.

use std::collections::BTreeMap;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::rows::{self, executor_columns, park_columns, run_columns, task_columns};
use super::tx::{Batch, Tx};
use super::views::{self, TaskView};
use super::{Error, Sql, Store, apply};
use crate::domain::feed;
use crate::domain::hint::{FeedItems, FeedKind, Hint};
use crate::domain::{AccountId, ExecutorId, PublicId, TaskKey, TaskNo};
use crate::engine::facts::{Caller, Candidate, Edge, Served};
use crate::engine::graph::{Graph, Want};

/// A run, by what a door knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunTarget {
    /// Its account.
    pub account: AccountId,
    /// Its public id.
    pub run: PublicId,
}

/// What a command must see at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// The run alone.
    Run,
    /// The row of that key, its park, its outgoing edges with their heads, and who calls.
    Task {
        /// The row.
        key: TaskKey,
        /// The caller.
        caller: ExecutorId,
    },
    /// These rows likewise, their parks locked, so that no claim slips in between.
    Parked(Vec<TaskNo>),
    /// Every row that has not settled, their parks locked, and the edges between them.
    OpenRows,
    /// The rows that are ready, at most so many.
    Ready(i64),
}

/// Whether to wait for a run that somebody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Leave it out.
    Skip,
    /// Wait, at most the lock time-out.
    Wait,
}

/// A locked run with what is loaded of it.
#[derive(Debug)]
pub struct Locked {
    /// The slice.
    pub graph: Graph,
    /// Callers, as they stand now.
    pub callers: BTreeMap<ExecutorId, Caller>,
    /// Digests of accepted commits of loaded rows.
    pub digests: BTreeMap<TaskNo, Vec<u8>>,
}

/// The run lock: an open transaction that holds it.
pub struct RunTx {
    tx: Tx,
    runs: BTreeMap<RunTarget, Locked>,
}

/// From `focus` (account_id, run_id, public_id, task_no) to rows: the focus itself, and the heads of
/// its outgoing edges beside those edges.
macro_rules! slice_tail {
    () => {
        concat!(
            " slice AS (
                SELECT f.*, NULL::int AS from_no, NULL::int AS edge_ordinal, NULL::boolean AS structural,
                       NULL::text AS edge_state
                  FROM focus f
                UNION ALL
                SELECT f.account_id, f.run_id, f.public_id, e.to_no, e.from_no, e.ordinal, e.structural, e.state
                  FROM focus f
                 CROSS JOIN LATERAL (SELECT * FROM edges e WHERE e.account_id = f.account_id AND e.run_id = f.run_id
                                        AND e.from_no = f.task_no OFFSET 0) e)
             SELECT s.account_id, s.public_id AS run_public_id, s.from_no, s.edge_ordinal, s.structural, s.edge_state, ",
            task_columns!(), ", ", park_columns!(), ", x.digest AS stored_digest
               FROM slice s
              CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = s.account_id AND t.run_id = s.run_id
                                     AND t.task_no = s.task_no OFFSET 0) t
               LEFT JOIN LATERAL (SELECT * FROM parks p WHERE p.account_id = s.account_id AND p.run_id = s.run_id
                                     AND p.task_no = s.task_no OFFSET 0) p ON s.from_no IS NULL
               LEFT JOIN LATERAL (SELECT x.digest FROM task_results x WHERE x.account_id = s.account_id AND x.run_id = s.run_id
                                     AND x.task_no = s.task_no AND x.generation = t.generation OFFSET 0) x
                      ON s.from_no IS NULL AND t.completed_at IS NOT NULL
               LEFT JOIN LATERAL (SELECT c.public_id FROM executors c WHERE c.account_id = s.account_id
                                     AND c.executor_id = p.claimant_id OFFSET 0) pc ON p.claimant_id IS NOT NULL
              ORDER BY s.from_no NULLS FIRST, s.task_no"
        )
    };
}

static LOCK_WAIT: Sql = Sql::new(
    "run_tx.lock_wait",
    concat!(
        "WITH r AS MATERIALIZED (
            SELECT * FROM runs WHERE account_id = $1 AND public_id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE)
         SELECT nexus_now() AS now, ", run_columns!(), "
           FROM r JOIN members pm ON pm.account_id = r.account_id AND pm.member_id = r.principal_id"
    ),
    &[Type::INT8, Type::UUID],
);

static LOCK_SKIP: Sql = Sql::new(
    "run_tx.lock_skip",
    concat!(
        "WITH r AS MATERIALIZED (
            SELECT r.* FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id
                                    AND r.deleted_at IS NULL FOR NO KEY UPDATE SKIP LOCKED) r)
         SELECT nexus_now() AS now, ", run_columns!(), "
           FROM r JOIN members pm ON pm.account_id = r.account_id AND pm.member_id = r.principal_id"
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY],
);

/// Rows by key, with their outgoing edges and the heads of those.
static LOAD_KEYS: Sql = Sql::new(
    "run_tx.load_keys",
    concat!(
        "WITH focus AS MATERIALIZED (
            SELECT r.account_id, r.run_id, r.public_id, t.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS w(account_id, public_id, key)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.key = w.key OFFSET 0) t),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

/// The same by number.
static LOAD_NOS: Sql = Sql::new(
    "run_tx.load_nos",
    concat!(
        "WITH focus AS MATERIALIZED (
            SELECT DISTINCT r.account_id, r.run_id, r.public_id, w.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// Everything unsettled downstream of these rows, and all their outgoing edges.
static LOAD_DOWNSTREAM: Sql = Sql::new(
    "run_tx.load_downstream",
    concat!(
        "WITH RECURSIVE focus AS (
            SELECT r.account_id, r.run_id, r.public_id, w.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
            UNION
            SELECT f.account_id, f.run_id, f.public_id, t.task_no
              FROM focus f
             CROSS JOIN LATERAL (SELECT e.to_no FROM edges e WHERE e.account_id = f.account_id AND e.run_id = f.run_id
                                    AND e.from_no = f.task_no OFFSET 0) e
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = f.account_id AND t.run_id = f.run_id
                                    AND t.task_no = e.to_no AND t.status IN ('queued', 'needs_approval') OFFSET 0) t),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// Every unsettled row of the runs, and all their outgoing edges. Reads the runs' rows: for
/// commands that end a run.
static LOAD_OPEN: Sql = Sql::new(
    "run_tx.load_open",
    concat!(
        "WITH focus AS MATERIALIZED (
            SELECT r.account_id, r.run_id, r.public_id, t.task_no
              FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.completed_at IS NULL OFFSET 0) t),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY],
);

/// Ready rows, in authoring order. Reads the run's rows: for the scheduling pass alone, which a
/// run owes only when more became ready at once than one command starts.
static LOAD_READY: Sql = Sql::new(
    "run_tx.load_ready",
    concat!(
        "WITH focus AS MATERIALIZED (
            SELECT r.account_id, r.run_id, r.public_id, t.task_no
              FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.status = 'queued' AND t.remaining = 0 ORDER BY t.task_no LIMIT $3 OFFSET 0) t),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT8],
);

/// Locks parks before they are read, so that the decision and a claim meet on the row. Of the runs
/// this transaction holds alone: a run that was left out of the batch is somebody else's, and its
/// parks are neither waited for nor kept from its holder. (Locking a run again that is held by
/// oneself is free; one that became free meanwhile is kept until the end, which harms nobody.)
static LOCK_PARKS: Sql = Sql::new(
    "run_tx.lock_parks",
    "WITH r AS MATERIALIZED (
        SELECT r.account_id, r.run_id, w.task_no FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
         CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id
                                FOR NO KEY UPDATE SKIP LOCKED) r
         ORDER BY r.account_id, r.run_id, w.task_no)
     SELECT p.task_no FROM r
      CROSS JOIN LATERAL (SELECT p.task_no FROM parks p WHERE p.account_id = r.account_id AND p.run_id = r.run_id
                             AND p.task_no = r.task_no FOR UPDATE) p",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// The same of every park of the runs.
static LOCK_ALL_PARKS: Sql = Sql::new(
    "run_tx.lock_all_parks",
    "WITH r AS MATERIALIZED (
        SELECT r.account_id, r.run_id FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
         CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id
                                FOR NO KEY UPDATE SKIP LOCKED) r
         ORDER BY r.account_id, r.run_id)
     SELECT p.task_no FROM r
      CROSS JOIN LATERAL (SELECT p.task_no FROM parks p WHERE p.account_id = r.account_id AND p.run_id = r.run_id
                           ORDER BY p.task_no FOR UPDATE) p",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY],
);

static LOAD_CALLERS: Sql = Sql::new(
    "run_tx.load_callers",
    concat!(
        "SELECT e.account_id, ",
        executor_columns!(),
        "
           FROM unnest($1::bigint[], $2::bigint[]) AS w(account_id, executor_id)
          CROSS JOIN LATERAL (SELECT * FROM executors e WHERE e.account_id = w.account_id
                                 AND e.executor_id = w.executor_id OFFSET 0) e
           LEFT JOIN members ea ON ea.account_id = e.account_id AND ea.member_id = e.agent_id"
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY],
);

/// Who may be given a tool row: its frozen target, or whoever announces its name and is the
/// declaring agent's application or a provider.
static LOAD_ADDRESSEES: Sql = Sql::new(
    "run_tx.load_addressees",
    concat!(
        "SELECT w.account_id, w.public_id AS run_public_id, w.task_no, ", executor_columns!(), ",
                s.effect_profile, s.replayable, s.timeout_ms AS announced_timeout_ms
           FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
          CROSS JOIN LATERAL (SELECT r.run_id, r.declaring_agent_id FROM runs r WHERE r.account_id = w.account_id
                                 AND r.public_id = w.public_id OFFSET 0) r
          CROSS JOIN LATERAL (SELECT t.tool_name, t.target_executor_id FROM tasks t WHERE t.account_id = w.account_id
                                 AND t.run_id = r.run_id AND t.task_no = w.task_no OFFSET 0) t
          CROSS JOIN LATERAL (
                SELECT s.* FROM served_tools s WHERE t.target_executor_id IS NOT NULL AND s.account_id = w.account_id
                   AND s.executor_id = t.target_executor_id AND s.name = t.tool_name
                UNION ALL
                SELECT s.* FROM served_tools s WHERE t.target_executor_id IS NULL AND s.account_id = w.account_id
                   AND s.name = t.tool_name) s
           JOIN executors e ON e.account_id = s.account_id AND e.executor_id = s.executor_id AND e.status = 'active'
            AND (t.target_executor_id IS NOT NULL OR e.kind = 'tool_provider'
                 OR (e.kind = 'agent_application' AND e.agent_id = r.declaring_agent_id))
           LEFT JOIN members ea ON ea.account_id = e.account_id AND ea.member_id = e.agent_id
          ORDER BY w.task_no, e.executor_id"
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

static LOAD_FAILURES: Sql = Sql::new(
    "run_tx.load_failures",
    "SELECT r.account_id, r.public_id AS run_public_id, f.task_no
       FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
      CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
      CROSS JOIN LATERAL (SELECT f.task_no FROM open_failures f WHERE f.account_id = r.account_id AND f.run_id = r.run_id OFFSET 0) f
      ORDER BY f.task_no",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &LOCK_WAIT,
    &LOCK_SKIP,
    &LOAD_KEYS,
    &LOAD_NOS,
    &LOAD_DOWNSTREAM,
    &LOAD_OPEN,
    &LOAD_READY,
    &LOCK_PARKS,
    &LOCK_ALL_PARKS,
    &LOAD_CALLERS,
    &LOAD_ADDRESSEES,
    &LOAD_FAILURES,
];

/// Columns of one kind of load, one entry a wanted row.
#[derive(Default)]
struct Wanted {
    accounts: Vec<i64>,
    runs: Vec<uuid::Uuid>,
    keys: Vec<String>,
    nos: Vec<i32>,
}

impl Wanted {
    fn run(&mut self, target: &RunTarget) {
        self.accounts.push(target.account.0);
        self.runs.push(target.run.0);
    }

    fn key(&mut self, target: &RunTarget, key: &TaskKey) {
        self.run(target);
        self.keys.push(key.as_str().to_owned());
    }

    fn nos(&mut self, target: &RunTarget, nos: &[TaskNo]) {
        for no in nos {
            self.run(target);
            self.nos.push(no.0);
        }
    }
}

/// Everything that one load reads, kind by kind.
#[derive(Default)]
struct Loads {
    callers: Wanted,
    caller_ids: Vec<i64>,
    keys: Wanted,
    parked: Wanted,
    nos: Wanted,
    downstream: Wanted,
    open: Wanted,
    ready: Wanted,
    ready_limit: i64,
    addressees: Wanted,
    failures: Wanted,
}

/// What the rows of one statement of a load are.
#[derive(Clone, Copy)]
enum Read {
    Locks,
    Slice,
    Ready,
    Callers,
    Addressees,
    Failures,
}

impl Loads {
    fn first(&mut self, target: &RunTarget, first: &First) {
        match first {
            First::Run => {}
            First::Task { key, caller } => {
                self.keys.key(target, key);
                self.callers.accounts.push(target.account.0);
                self.caller_ids.push(caller.0);
            }
            First::Parked(nos) => self.parked.nos(target, nos),
            First::OpenRows => self.open.run(target),
            First::Ready(limit) => {
                self.ready.run(target);
                self.ready_limit = self.ready_limit.max(*limit);
            }
        }
    }

    fn want(&mut self, target: &RunTarget, want: &Want) {
        match want {
            Want::Edges(nos) => self.nos.nos(target, nos),
            Want::Row(no) => self.nos.nos(target, &[*no]),
            Want::Downstream(nos) => self.downstream.nos(target, nos),
            Want::Addressees(nos) => self.addressees.nos(target, nos),
            Want::Failures => self.failures.run(target),
        }
    }

    fn fill<'a>(&'a self, batch: &mut Batch<'a>) -> Vec<Read> {
        let mut reads = Vec::new();
        let mut add = |read: Read, sql: &'static Sql, wanted: &'a Wanted, by_no: bool| {
            if wanted.accounts.is_empty() {
                return;
            }
            if by_no {
                batch.add(sql, vec![&wanted.accounts, &wanted.runs, &wanted.nos]);
            } else {
                batch.add(sql, vec![&wanted.accounts, &wanted.runs]);
            }
            reads.push(read);
        };
        add(Read::Locks, &LOCK_PARKS, &self.parked, true);
        add(Read::Locks, &LOCK_ALL_PARKS, &self.open, false);
        add(Read::Slice, &LOAD_NOS, &self.parked, true);
        add(Read::Slice, &LOAD_NOS, &self.nos, true);
        add(Read::Slice, &LOAD_DOWNSTREAM, &self.downstream, true);
        add(Read::Slice, &LOAD_OPEN, &self.open, false);
        add(Read::Addressees, &LOAD_ADDRESSEES, &self.addressees, true);
        add(Read::Failures, &LOAD_FAILURES, &self.failures, false);
        if !self.keys.accounts.is_empty() {
            let keys = &self.keys;
            batch.add(&LOAD_KEYS, vec![&keys.accounts, &keys.runs, &keys.keys]);
            reads.push(Read::Slice);
        }
        if !self.ready.accounts.is_empty() {
            let ready = &self.ready;
            batch.add(
                &LOAD_READY,
                vec![&ready.accounts, &ready.runs, &self.ready_limit],
            );
            reads.push(Read::Ready);
        }
        if !self.callers.accounts.is_empty() {
            batch.add(
                &LOAD_CALLERS,
                vec![&self.callers.accounts, &self.caller_ids],
            );
            reads.push(Read::Callers);
        }
        reads
    }
}

impl Store {
    /// Locks runs and loads what their commands must see at first: one round trip. Runs that do
    /// not exist, or that somebody holds while `held` says skip, are not in the answer.
    ///
    /// # Errors
    /// A fault; a lock that was waited for too long is [`Error::Timeout`].
    pub async fn lock_runs(
        &self,
        wanted: &[(RunTarget, Vec<First>)],
        held: Held,
    ) -> Result<RunTx, Error> {
        let mut loads = Loads::default();
        for (target, firsts) in wanted {
            for first in firsts {
                loads.first(target, first);
            }
        }
        let accounts: Vec<i64> = wanted.iter().map(|(t, _)| t.account.0).collect();
        let runs: Vec<uuid::Uuid> = wanted.iter().map(|(t, _)| t.run.0).collect();
        let mut batch = Batch::new();
        if let ([(one, _)], Held::Wait) = (wanted, held) {
            batch.add(&LOCK_WAIT, vec![&one.account.0, &one.run.0]);
        } else {
            batch.add(&LOCK_SKIP, vec![&accounts, &runs]);
        }
        let reads = loads.fill(&mut batch);
        let (tx, mut answers) = Tx::begin_with(self.conn().await?, &batch).await?;
        let mut run_tx = RunTx {
            tx,
            runs: BTreeMap::new(),
        };
        for row in answers.remove(0) {
            run_tx.take_run(&row)?;
        }
        run_tx.take(&reads, &answers)?;
        Ok(run_tx)
    }
}

impl RunTx {
    /// A locked run.
    pub fn locked(&mut self, target: &RunTarget) -> Option<&mut Locked> {
        self.runs.get_mut(target)
    }

    /// Whether any run was locked.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Loads what decisions must see next: one round trip.
    ///
    /// # Errors
    /// A fault.
    pub async fn load(&mut self, wants: &[(RunTarget, Want)]) -> Result<(), Error> {
        let mut loads = Loads::default();
        for (target, want) in wants {
            loads.want(target, want);
        }
        let mut batch = Batch::new();
        let reads = loads.fill(&mut batch);
        let answers = self.tx.run(&batch).await?;
        // What was asked for and has no rows is known to be empty.
        for (target, want) in wants {
            if let Some(locked) = self.runs.get_mut(target) {
                seen(locked, want);
            }
        }
        self.take(&reads, &answers)
    }

    /// Applies what was decided, reads the views that answers need, and commits: one round trip.
    ///
    /// # Errors
    /// A fault; then nothing was committed, unless the connection broke.
    pub async fn commit(self, views: &[(RunTarget, TaskNo)]) -> Result<Vec<TaskView>, Error> {
        let applied = apply::Applied::of(self.runs.values().map(|l| &l.graph))?;
        let nos: Vec<i32> = views.iter().map(|(_, no)| no.0).collect();
        let accounts: Vec<i64> = views.iter().map(|(t, _)| t.account.0).collect();
        let runs: Vec<uuid::Uuid> = views.iter().map(|(t, _)| t.run.0).collect();
        let mut batch = Batch::new();
        applied.fill(&mut batch);
        if !views.is_empty() {
            batch.add(&views::TASKS_BY_NO, vec![&accounts, &runs, &nos]);
        }
        if batch.is_empty() {
            self.tx.rollback().await;
            return Ok(Vec::new());
        }
        let mut answers = self.tx.commit_with(&batch).await?;
        if views.is_empty() {
            return Ok(Vec::new());
        }
        answers
            .pop()
            .unwrap_or_default()
            .iter()
            .map(TaskView::from_row)
            .collect()
    }

    /// What to tell once this is committed.
    pub fn hints(&self) -> Vec<Hint> {
        self.runs
            .values()
            .flat_map(|locked| hints_of(&locked.graph))
            .collect()
    }

    /// Gives the locks back without writing.
    pub async fn rollback(self) {
        self.tx.rollback().await;
    }

    fn take_run(&mut self, row: &Row) -> Result<(), Error> {
        let run = rows::run(row)?;
        let target = RunTarget {
            account: run.account,
            run: run.public_id,
        };
        let graph = Graph::new(run, row.get("now"));
        self.runs.insert(
            target,
            Locked {
                graph,
                callers: BTreeMap::new(),
                digests: BTreeMap::new(),
            },
        );
        Ok(())
    }

    fn take(&mut self, reads: &[Read], answers: &[Vec<Row>]) -> Result<(), Error> {
        for (read, rows) in reads.iter().zip(answers) {
            match read {
                Read::Locks => {}
                Read::Slice => self.take_slice(rows, false)?,
                Read::Ready => self.take_slice(rows, true)?,
                Read::Callers => self.take_callers(rows)?,
                Read::Addressees => self.take_addressees(rows)?,
                Read::Failures => self.take_failures(rows),
            }
        }
        Ok(())
    }

    fn take_slice(&mut self, rows: &[Row], ready: bool) -> Result<(), Error> {
        let mut edges: BTreeMap<(RunTarget, TaskNo), Vec<Edge>> = BTreeMap::new();
        for row in rows {
            let target = target_of(row);
            let Some(locked) = self.runs.get_mut(&target) else {
                continue;
            };
            let task = rows::task(row)?;
            let no = task.no;
            match row.get::<_, Option<i32>>("from_no").map(TaskNo) {
                Some(from) => {
                    edges
                        .entry((target, from))
                        .or_default()
                        .push(rows::edge(row, from, no)?);
                }
                None => {
                    edges.entry((target, no)).or_default();
                    if let Some(digest) = row.get::<_, Option<Vec<u8>>>("stored_digest") {
                        locked.digests.insert(no, digest);
                    }
                    if let Some(park) = rows::park(row, no)? {
                        locked.graph.put_park(park);
                    }
                }
            }
            locked.graph.put_task(task);
            if ready && row.get::<_, Option<i32>>("from_no").is_none() {
                locked.graph.consider_ready(no);
            }
        }
        for ((target, from), list) in edges {
            if let Some(locked) = self.runs.get_mut(&target) {
                locked.graph.put_edges(from, list);
            }
        }
        Ok(())
    }

    fn take_callers(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            let account = AccountId(row.get("account_id"));
            let caller = Caller {
                id: ExecutorId(row.get("executor_id")),
                public_id: PublicId(row.get("executor_public_id")),
                executor: rows::executor(row)?,
                epoch: row.get("credential_epoch"),
                announces: false,
            };
            for (_, locked) in self.runs.iter_mut().filter(|(t, _)| t.account == account) {
                locked.callers.insert(caller.id, caller);
            }
        }
        Ok(())
    }

    fn take_addressees(&mut self, rows: &[Row]) -> Result<(), Error> {
        let mut found: BTreeMap<(RunTarget, TaskNo), Vec<Candidate>> = BTreeMap::new();
        for row in rows {
            let candidate = Candidate {
                id: ExecutorId(row.get("executor_id")),
                public_id: PublicId(row.get("executor_public_id")),
                executor: rows::executor(row)?,
                serves: Some(Served {
                    effect_profile: row.get("effect_profile"),
                    replayable: row.get("replayable"),
                    timeout_ms: row.get("announced_timeout_ms"),
                }),
            };
            found
                .entry((target_of(row), TaskNo(row.get("task_no"))))
                .or_default()
                .push(candidate);
        }
        for ((target, no), candidates) in found {
            if let Some(locked) = self.runs.get_mut(&target) {
                locked.graph.put_addressees(no, candidates);
            }
        }
        Ok(())
    }

    fn take_failures(&mut self, rows: &[Row]) {
        let mut found: BTreeMap<RunTarget, Vec<TaskNo>> = BTreeMap::new();
        for row in rows {
            found
                .entry(target_of(row))
                .or_default()
                .push(TaskNo(row.get("task_no")));
        }
        for (target, failures) in found {
            if let Some(locked) = self.runs.get_mut(&target) {
                locked.graph.put_failures(failures);
            }
        }
    }
}

/// Whom to tell of what, and the run's new feed items.
fn hints_of(graph: &Graph) -> impl Iterator<Item = Hint> + '_ {
    let run = graph.run.public_id;
    let items = graph.changes.events.iter().map(move |(sequence, event)| {
        let item = feed::Item {
            sequence: *sequence,
            r#type: event.kind().to_owned(),
            payload: event.payload(run).into_string(),
            created_at: graph.now,
        };
        Hint::Feed {
            kind: FeedKind::Run,
            host: run,
            items: FeedItems::Events,
            message: item.run_message(run),
        }
    });
    graph.changes.hints.iter().cloned().chain(items)
}

fn target_of(row: &Row) -> RunTarget {
    RunTarget {
        account: AccountId(row.get("account_id")),
        run: PublicId(row.get("run_public_id")),
    }
}

/// Marks a want as seen, before its rows (if any) are taken.
fn seen(locked: &mut Locked, want: &Want) {
    match want {
        Want::Addressees(nos) => {
            for no in nos {
                locked.graph.put_addressees(*no, Vec::new());
            }
        }
        Want::Failures => locked.graph.expect_failures(),
        Want::Edges(_) | Want::Downstream(_) | Want::Row(_) => {}
    }
}
