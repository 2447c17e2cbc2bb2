//! Applying what the engine decided: one statement a table, arrays unnested, all in the batch that
//! ends with COMMIT (`architecture.md` §5). Makes no choice of its own.
//!
//! Invariant: every statement states how many rows it must meet; another number aborts the
//! transaction in the server (`nexus_expect`), so a COMMIT sent behind it commits nothing.

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::births::Births;
use super::tx::Batch;
use super::{Error, Sql};
use crate::domain::json::Value;
use crate::domain::words::RunStatus;
use crate::domain::{TaskNo, Timestamp};
use crate::engine::facts::{Run, Task};
use crate::engine::graph::Graph;

/// `expected($n, 'what')`: closes a writable CTE `u` with the count it must have.
macro_rules! expected {
    ($param:literal, $what:literal) => {
        concat!(
            " RETURNING 1) SELECT nexus_expect((SELECT count(*) FROM u), ",
            $param,
            ", '",
            $what,
            "')"
        )
    };
}

// Rows of a graph are written by place: only whoever holds their run changes them, and a plan that
// joined them could walk the whole run for each row (see `run_tx`).
static TASKS: Sql = Sql::new(
    "apply.tasks",
    concat!(
        "WITH u AS (UPDATE tasks t SET status = v.status, generation = v.generation, remaining = v.remaining,
            addressed_role = v.addressed_role, addressed_executor_id = v.addressed_executor_id,
            approval_origin = v.approval_origin, approval_decided_at = v.approval_decided_at,
            approval_decided_by = (SELECT m.member_id FROM members m
                WHERE m.account_id = v.account_id AND m.public_id = v.approval_decided_by),
            join_successes = v.join_successes, join_pending = v.join_pending,
            started_at = v.started_at, claimed_by_id = v.claimed_by_id, claimed_at = v.claimed_at,
            claim_digest = v.claim_digest, failure_resolution = v.failure_resolution, error_key = v.error_key,
            error_detail = v.error_detail, is_error = v.is_error, race_absorbed = v.race_absorbed,
            settle_seq = v.settle_seq, completed_at = v.completed_at
           FROM (SELECT v.*, x.place FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::int[], $6::int[], $7::text[], $8::bigint[],
                $9::text[], $10::timestamptz[], $11::timestamptz[], $12::bigint[], $13::timestamptz[], $14::bytea[],
                $15::text[], $16::text[], $17::text[], $18::boolean[], $19::boolean[], $20::int[], $21::timestamptz[],
                $22::uuid[], $23::int[], $24::int[])
             AS v(account_id, run_id, task_no, status, generation, remaining, addressed_role, addressed_executor_id,
                approval_origin, approval_decided_at, started_at, claimed_by_id, claimed_at, claim_digest,
                failure_resolution, error_key, error_detail, is_error, race_absorbed, settle_seq, completed_at,
                approval_decided_by, join_successes, join_pending)
             CROSS JOIN LATERAL (SELECT x.ctid AS place FROM tasks x WHERE x.account_id = v.account_id AND x.run_id = v.run_id
                AND x.task_no >= v.task_no AND x.task_no <= v.task_no ORDER BY x.task_no OFFSET 0) x) v
          WHERE t.ctid = v.place",
        expected!("$25", "tasks")
    ),
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY,
        Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::TIMESTAMPTZ_ARRAY,
        Type::INT8_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::BYTEA_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::TEXT_ARRAY, Type::BOOL_ARRAY, Type::BOOL_ARRAY, Type::INT4_ARRAY, Type::TIMESTAMPTZ_ARRAY,
        Type::UUID_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT8,
    ],
);

static EDGES: Sql = Sql::new(
    "apply.edges",
    concat!(
        "WITH u AS (UPDATE edges e SET state = v.state
           FROM (SELECT v.state, x.place FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::text[])
                 AS v(account_id, run_id, from_no, to_no, state)
             CROSS JOIN LATERAL (SELECT x.ctid AS place FROM edges x WHERE x.account_id = v.account_id AND x.run_id = v.run_id
                AND x.from_no >= v.from_no AND x.from_no <= v.from_no AND x.to_no >= v.to_no AND x.to_no <= v.to_no
              ORDER BY x.from_no, x.to_no OFFSET 0) x) v
          WHERE e.ctid = v.place",
        expected!("$6", "edges")
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::INT8],
);

/// A claim takes no run lock, so the park's claim is compared with the one that was judged: if a
/// claim (or the recovery of one) slipped in between, the command is decided anew.
static PARKS_GONE: Sql = Sql::new(
    "apply.parks_gone",
    concat!(
        "WITH u AS (DELETE FROM parks p
          USING unnest($1::bigint[], $2::bigint[], $3::int[], $4::bytea[]) AS v(account_id, run_id, task_no, claim_digest)
          WHERE p.account_id = v.account_id AND p.run_id = v.run_id AND p.task_no = v.task_no
            AND p.claim_digest IS NOT DISTINCT FROM v.claim_digest",
        expected!("$5", "parks ended")
    ),
    &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT8,
    ],
);

static PARKS_NEW: Sql = Sql::new(
    "apply.parks_new",
    "INSERT INTO parks (account_id, run_id, task_no, kind, executor_id, pool_name, deadline_at, due_at, timeout_ms,
            announced_timeout_ms, effect_profile, replayable, generation, started_at, run_shard, clock_frozen)
     SELECT v.account_id, v.run_id, v.task_no, v.kind, v.executor_id, v.pool_name, v.deadline_at, v.deadline_at,
            v.timeout_ms, v.announced_timeout_ms, v.effect_profile, v.replayable, v.generation, v.started_at, v.run_shard,
            v.clock_frozen
       FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::bigint[], $6::text[], $7::timestamptz[],
            $8::bigint[], $9::bigint[], $10::text[], $11::boolean[], $12::int[], $13::timestamptz[], $14::smallint[],
            $15::boolean[])
         WITH ORDINALITY AS v(account_id, run_id, task_no, kind, executor_id, pool_name, deadline_at, timeout_ms,
            announced_timeout_ms, effect_profile, replayable, generation, started_at, run_shard, clock_frozen, ord)
      ORDER BY v.ord",
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY,
        Type::TIMESTAMPTZ_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::BOOL_ARRAY,
        Type::INT4_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::INT2_ARRAY, Type::BOOL_ARRAY,
    ],
);

/// Observations that are parked, by what they observe.
static WAITS_NEW: Sql = Sql::new(
    "apply.waits_new",
    "INSERT INTO waits (account_id, run_id, task_no, observes_no)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[])",
    &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
    ],
);

static WAITS_GONE: Sql = Sql::new(
    "apply.waits_gone",
    concat!(
        "WITH u AS (DELETE FROM waits w
          USING unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[]) AS v(account_id, run_id, task_no, observes_no)
          WHERE w.account_id = v.account_id AND w.run_id = v.run_id AND w.observes_no = v.observes_no
            AND w.task_no = v.task_no",
        expected!("$5", "waits ended")
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT8],
);

/// A pause stops the clocks of a run's parks; a resume, or a stop, moves them by what it took and
/// sets them going. Before any park is written singly.
static CLOCKS: Sql = Sql::new(
    "apply.clocks",
    "UPDATE parks p SET clock_frozen = v.frozen, deadline_at = p.deadline_at + v.later, due_at = p.due_at + v.later
       FROM (SELECT w.account_id, w.run_id, w.frozen, w.later_us * interval '1 microsecond' AS later
               FROM unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::bigint[]) AS w(account_id, run_id, frozen, later_us)) v
      WHERE p.account_id = v.account_id AND p.run_id = v.run_id",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::BOOL_ARRAY, Type::INT8_ARRAY],
);

/// A clock that moved later leaves `due_at` alone: the sweeper moves it when it meets the row, and
/// the update stays HOT. One that moved earlier must be seen earlier.
static PARKS_LATER: Sql = Sql::new(
    "apply.parks_later",
    concat!(
        "WITH u AS (UPDATE parks p SET deadline_at = v.deadline_at
           FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::timestamptz[]) AS v(account_id, run_id, task_no, deadline_at)
          WHERE p.account_id = v.account_id AND p.run_id = v.run_id AND p.task_no = v.task_no",
        expected!("$5", "parks extended")
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::INT8],
);

static PARKS_EARLIER: Sql = Sql::new(
    "apply.parks_earlier",
    concat!(
        "WITH u AS (UPDATE parks p SET deadline_at = v.deadline_at, due_at = least(p.due_at, v.deadline_at)
           FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::timestamptz[]) AS v(account_id, run_id, task_no, deadline_at)
          WHERE p.account_id = v.account_id AND p.run_id = v.run_id AND p.task_no = v.task_no",
        expected!("$5", "parks shortened")
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::INT8],
);

static RESULTS: Sql = Sql::new(
    "apply.results",
    "INSERT INTO task_results (account_id, run_id, task_no, generation, content, structured, title, metadata, digest, selection)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::bytea[], $10::text[])",
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::BYTEA_ARRAY, Type::TEXT_ARRAY,
    ],
);

/// Binding a capture stamps it, so that no sweep reclaims it; a capture that a sweep took first
/// aborts the commit, and the retry is told `unknown_result_upload`.
static UPLOADS_BOUND: Sql = Sql::new(
    "apply.uploads_bound",
    concat!(
        "WITH b AS (INSERT INTO upload_bindings (account_id, run_id, upload_id, task_no)
            SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[]) ON CONFLICT DO NOTHING),
         u AS (UPDATE uploads SET bound_at = coalesce(bound_at, nexus_now())
          WHERE (account_id, upload_id) IN (SELECT DISTINCT * FROM unnest($1::bigint[], $3::bigint[]))
            AND reclaimed_at IS NULL",
        expected!("$5", "uploads bound")
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT8],
);

static FAILURES_NEW: Sql = Sql::new(
    "apply.failures_new",
    "INSERT INTO open_failures (account_id, run_id, task_no)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[])",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY],
);

/// By place: these rows are never updated, and only whoever holds their run deletes them.
static FAILURES_GONE: Sql = Sql::new(
    "apply.failures_gone",
    concat!(
        "WITH u AS (DELETE FROM open_failures f WHERE f.ctid = ANY (ARRAY(
            SELECT x.ctid FROM unnest($1::bigint[], $2::bigint[], $3::int[]) AS v(account_id, run_id, task_no)
             CROSS JOIN LATERAL (SELECT x.ctid FROM open_failures x WHERE x.account_id = v.account_id AND x.run_id = v.run_id
                                    AND x.task_no = v.task_no OFFSET 0) x))",
        expected!("$4", "failures resolved")
    ),
    &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::INT8,
    ],
);

static EVENTS: Sql = Sql::new(
    "apply.events",
    "INSERT INTO run_events (account_id, host_id, seq, type, payload, created_at)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[])",
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ],
);

static RUNS: Sql = Sql::new(
    "apply.runs",
    concat!(
        "WITH u AS (UPDATE runs r SET status = v.status, revision = v.revision, deliverable_no = v.deliverable_no,
            mainline_tail_no = v.mainline_tail_no, n_tasks = v.n_tasks, n_open = v.n_open, n_ready = v.n_ready,
            n_started = v.n_started, n_approval = v.n_approval, n_unresolved = v.n_unresolved,
            n_undelivered = v.n_undelivered, settle_seq = v.settle_seq, event_seq = v.event_seq,
            schedulable = v.schedulable, attention_reason = v.attention_reason, attention_keys = v.attention_keys,
            failure_reason = v.failure_reason, force_stopped = v.force_stopped, started_at = v.started_at,
            paused_at = v.paused_at, canceling_since = v.canceling_since, stopped_at = v.stopped_at,
            completed_at = v.completed_at, n_rounds = v.n_rounds, n_running = v.n_running, n_awaiting = v.n_awaiting,
            n_waits = v.n_waits
           FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::int[], $5::int[], $6::int[], $7::int[], $8::int[],
                $9::int[], $10::int[], $11::int[], $12::int[], $13::int[], $14::int[], $15::bigint[], $16::boolean[],
                $17::text[], $18::text[], $19::text[], $20::boolean[], $21::timestamptz[], $22::timestamptz[],
                $23::timestamptz[], $24::timestamptz[], $25::timestamptz[], $26::int[], $27::int[], $28::int[], $29::int[])
             AS v(account_id, run_id, status, revision, deliverable_no, mainline_tail_no, n_tasks, n_open, n_ready,
                n_started, n_approval, n_unresolved, n_undelivered, settle_seq, event_seq, schedulable,
                attention_reason, attention_keys, failure_reason, force_stopped, started_at, paused_at,
                canceling_since, stopped_at, completed_at, n_rounds, n_running, n_awaiting, n_waits)
          WHERE r.account_id = v.account_id AND r.run_id = v.run_id",
        expected!("$30", "runs")
    ),
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY,
        Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY,
        Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT8_ARRAY, Type::BOOL_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::TEXT_ARRAY, Type::BOOL_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY,
        Type::INT4_ARRAY, Type::INT8,
    ],
);

/// Receipts of appends, shared by all callers of a run (`runs.md` §4); a key whose day is over is
/// new again.
static RECEIPTS_EXPIRED: Sql = Sql::new(
    "apply.receipts_expired",
    "DELETE FROM receipts c USING unnest($1::bigint[], $2::bigint[], $3::text[]) AS v(account_id, run_id, key)
      WHERE c.account_id = v.account_id AND c.door = 'run_append' AND c.scope_id = v.run_id AND c.caller_id = 0
        AND c.key = v.key AND c.created_at + interval '24 hours' < nexus_now()",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY],
);

static RECEIPTS: Sql = Sql::new(
    "apply.receipts",
    "INSERT INTO receipts (account_id, door, scope_id, caller_id, key, fingerprint, run_id, body, created_at)
     SELECT v.account_id, 'run_append', v.run_id, 0, v.key, v.fingerprint, v.run_id, v.body, v.created_at
       FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[], $5::text[], $6::timestamptz[])
         AS v(account_id, run_id, key, fingerprint, body, created_at)",
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::BYTEA_ARRAY, Type::TEXT_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &TASKS,
    &EDGES,
    &PARKS_GONE,
    &PARKS_NEW,
    &WAITS_NEW,
    &WAITS_GONE,
    &CLOCKS,
    &PARKS_LATER,
    &PARKS_EARLIER,
    &RESULTS,
    &UPLOADS_BOUND,
    &FAILURES_NEW,
    &FAILURES_GONE,
    &EVENTS,
    &RUNS,
    &RECEIPTS_EXPIRED,
    &RECEIPTS,
];

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
