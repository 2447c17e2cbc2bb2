//! The statements that write what was decided, one a table.
//!
//! Invariant: every statement states how many rows it must meet; another number aborts the
//! transaction in the server (`nexus_expect`).

use tokio_postgres::types::Type;

use crate::store::Sql;

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
pub(super) static TASKS: Sql = Sql::new(
    "apply.tasks",
    concat!(
        "WITH u AS (UPDATE tasks t SET status = v.status, generation = v.generation, remaining = v.remaining,
            addressed_role = v.addressed_role, addressed_executor_id = v.addressed_executor_id,
            approval_origin = v.approval_origin, approval_decided_at = v.approval_decided_at,
            approval_decided_by = (SELECT m.member_id FROM members m
                WHERE m.account_id = v.account_id AND m.public_id = v.approval_decided_by),
            join_successes = v.join_successes, join_pending = v.join_pending, taken_over = v.taken_over,
            trace_end = v.trace_end, join_sources = v.join_sources::int[],
            started_at = v.started_at, claimed_by_id = v.claimed_by_id, claimed_at = v.claimed_at,
            claim_digest = v.claim_digest, failure_resolution = v.failure_resolution, error_key = v.error_key,
            error_detail = v.error_detail, is_error = v.is_error, race_absorbed = v.race_absorbed,
            settle_seq = v.settle_seq, completed_at = v.completed_at
           FROM (SELECT v.*, x.place FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::int[], $6::int[], $7::text[], $8::bigint[],
                $9::text[], $10::timestamptz[], $11::timestamptz[], $12::bigint[], $13::timestamptz[], $14::bytea[],
                $15::text[], $16::text[], $17::text[], $18::boolean[], $19::boolean[], $20::int[], $21::timestamptz[],
                $22::uuid[], $23::int[], $24::int[], $25::boolean[], $26::int[], $27::text[])
             AS v(account_id, run_id, task_no, status, generation, remaining, addressed_role, addressed_executor_id,
                approval_origin, approval_decided_at, started_at, claimed_by_id, claimed_at, claim_digest,
                failure_resolution, error_key, error_detail, is_error, race_absorbed, settle_seq, completed_at,
                approval_decided_by, join_successes, join_pending, taken_over, trace_end, join_sources)
             CROSS JOIN LATERAL (SELECT x.ctid AS place FROM tasks x WHERE x.account_id = v.account_id AND x.run_id = v.run_id
                AND x.task_no >= v.task_no AND x.task_no <= v.task_no ORDER BY x.task_no OFFSET 0) x) v
          WHERE t.ctid = v.place",
        expected!("$28", "tasks")
    ),
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY,
        Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::TIMESTAMPTZ_ARRAY,
        Type::INT8_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::BYTEA_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::TEXT_ARRAY, Type::BOOL_ARRAY, Type::BOOL_ARRAY, Type::INT4_ARRAY, Type::TIMESTAMPTZ_ARRAY,
        Type::UUID_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::BOOL_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY,
        Type::INT8,
    ],
);

pub(super) static EDGES: Sql = Sql::new(
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

/// Edges that a replacement took away.
pub(super) static EDGES_GONE: Sql = Sql::new(
    "apply.edges_gone",
    concat!(
        "WITH u AS (DELETE FROM edges e WHERE e.ctid = ANY (ARRAY(
            SELECT x.ctid FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[]) AS v(account_id, run_id, from_no, to_no)
             CROSS JOIN LATERAL (SELECT x.ctid FROM edges x WHERE x.account_id = v.account_id AND x.run_id = v.run_id
                AND x.from_no >= v.from_no AND x.from_no <= v.from_no AND x.to_no >= v.to_no AND x.to_no <= v.to_no
              ORDER BY x.from_no, x.to_no OFFSET 0) x))",
        expected!("$5", "edges taken away")
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT8],
);

/// Rows that wait for others and read others since a replacement.
pub(super) static READS_MOVED: Sql = Sql::new(
    "apply.reads_moved",
    concat!(
        "WITH u AS (UPDATE tasks t SET after_keys = v.after_keys::text[], input_from = v.input_from::int[],
            result_from = v.result_from::int[]
           FROM (SELECT v.*, x.place FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::text[], $6::text[])
                 AS v(account_id, run_id, task_no, after_keys, input_from, result_from)
             CROSS JOIN LATERAL (SELECT x.ctid AS place FROM tasks x WHERE x.account_id = v.account_id AND x.run_id = v.run_id
                AND x.task_no >= v.task_no AND x.task_no <= v.task_no ORDER BY x.task_no OFFSET 0) x) v
          WHERE t.ctid = v.place",
        expected!("$7", "reads moved")
    ),
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::INT8,
    ],
);

/// Rows that were put into the background.
pub(super) static BACKGROUNDED: Sql = Sql::new(
    "apply.backgrounded",
    concat!(
        "WITH u AS (UPDATE tasks t SET background = true, detached = true, lifetime = v.lifetime, wake = v.wake
           FROM (SELECT v.*, x.place FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::text[])
                 AS v(account_id, run_id, task_no, lifetime, wake)
             CROSS JOIN LATERAL (SELECT x.ctid AS place FROM tasks x WHERE x.account_id = v.account_id AND x.run_id = v.run_id
                AND x.task_no >= v.task_no AND x.task_no <= v.task_no ORDER BY x.task_no OFFSET 0) x) v
          WHERE t.ctid = v.place",
        expected!("$6", "rows put into the background")
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT8],
);

/// How many rows of operations that stood before are open.
pub(super) static OPERATIONS_OPEN: Sql = Sql::new(
    "apply.operations_open",
    concat!(
        "WITH u AS (UPDATE task_operations o SET n_open = o.n_open + v.more
           FROM (SELECT v.*, x.place FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::int[])
                 AS v(account_id, run_id, parent_no, position, more)
             CROSS JOIN LATERAL (SELECT x.ctid AS place FROM task_operations x WHERE x.account_id = v.account_id
                AND x.run_id = v.run_id AND x.parent_no = v.parent_no AND x.position = v.position OFFSET 0) x) v
          WHERE o.ctid = v.place",
        expected!("$6", "operations counted")
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT8],
);

/// How many of the rows that operations report are open: by the rows that ended, or are open again.
/// Before new operations are inserted, which come with what they report.
pub(super) static OPERATIONS_PENDING: Sql = Sql::new(
    "apply.operations_pending",
    "UPDATE task_operations o SET n_pending = o.n_pending + v.more
       FROM (SELECT x.account_id, x.run_id, x.parent_no, x.position, sum(v.more)::int AS more
               FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[]) AS v(account_id, run_id, task_no, more)
              CROSS JOIN LATERAL (SELECT * FROM task_operation_results x WHERE x.account_id = v.account_id
                                     AND x.run_id = v.run_id AND x.task_no = v.task_no OFFSET 0) x
              GROUP BY 1, 2, 3, 4) v
      WHERE o.account_id = v.account_id AND o.run_id = v.run_id AND o.parent_no = v.parent_no AND o.position = v.position",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY],
);

pub(super) static OPERATIONS_NEW: Sql = Sql::new(
    "apply.operations_new",
    "INSERT INTO task_operations (account_id, run_id, parent_no, position, operation_key, kind, request, request_digest,
            receipt, refusal, background, released_position, observed_position, outcome, n_open, n_pending, accepted_at,
            observed_at)
     SELECT v.*, CASE WHEN v.observed_position IS NOT NULL THEN v.accepted_at END
       FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::text[], $6::text[], $7::text[], $8::bytea[],
            $9::text[], $10::text[], $11::boolean[], $12::int[], $13::int[], $14::text[], $15::int[], $16::int[],
            $17::timestamptz[])
         AS v(account_id, run_id, parent_no, position, operation_key, kind, request, request_digest, receipt, refusal,
            background, released_position, observed_position, outcome, n_open, n_pending, accepted_at)",
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::TEXT_ARRAY, Type::BYTEA_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::BOOL_ARRAY, Type::INT4_ARRAY,
        Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::TIMESTAMPTZ_ARRAY,
    ],
);

pub(super) static OPERATION_RESULTS: Sql = Sql::new(
    "apply.operation_results",
    "INSERT INTO task_operation_results (account_id, run_id, parent_no, position, ordinal, task_no, source_position)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::int[], $6::int[], $7::int[])",
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY,
        Type::INT4_ARRAY,
    ],
);

/// Operations that were observed or released.
pub(super) static OPERATIONS: Sql = Sql::new(
    "apply.operations",
    concat!(
        "WITH u AS (UPDATE task_operations o SET released_position = v.released_position,
            observed_position = v.observed_position, outcome = v.outcome,
            observed_at = CASE WHEN v.observed_position IS NOT NULL THEN coalesce(o.observed_at, v.at) END
           FROM (SELECT v.*, x.place FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::int[], $6::int[],
                    $7::text[], $8::timestamptz[])
                 AS v(account_id, run_id, parent_no, position, released_position, observed_position, outcome, at)
             CROSS JOIN LATERAL (SELECT x.ctid AS place FROM task_operations x WHERE x.account_id = v.account_id
                AND x.run_id = v.run_id AND x.parent_no = v.parent_no AND x.position = v.position OFFSET 0) x) v
          WHERE o.ctid = v.place",
        expected!("$9", "operations")
    ),
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY,
        Type::TEXT_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::INT8,
    ],
);

/// Captures that observed outcomes show; one that is gone is shown by nobody.
pub(super) static OPERATION_UPLOADS: Sql = Sql::new(
    "apply.operation_uploads",
    "INSERT INTO task_operation_uploads (account_id, run_id, parent_no, upload_id)
     SELECT v.account_id, v.run_id, v.parent_no, u.upload_id
       FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::uuid[]) AS v(account_id, run_id, parent_no, public_id)
       JOIN uploads u ON u.public_id = v.public_id AND u.account_id = v.account_id
         ON CONFLICT DO NOTHING",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::UUID_ARRAY],
);

/// A claim takes no run lock, so the park's claim is compared with the one that was judged: if a
/// claim (or the recovery of one) slipped in between, the command is decided anew.
pub(super) static PARKS_GONE: Sql = Sql::new(
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

pub(super) static PARKS_NEW: Sql = Sql::new(
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
pub(super) static WAITS_NEW: Sql = Sql::new(
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

pub(super) static WAITS_GONE: Sql = Sql::new(
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
pub(super) static CLOCKS: Sql = Sql::new(
    "apply.clocks",
    "UPDATE parks p SET clock_frozen = v.frozen, deadline_at = p.deadline_at + v.later, due_at = p.due_at + v.later
       FROM (SELECT w.account_id, w.run_id, w.frozen, w.later_us * interval '1 microsecond' AS later
               FROM unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::bigint[]) AS w(account_id, run_id, frozen, later_us)) v
      WHERE p.account_id = v.account_id AND p.run_id = v.run_id",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::BOOL_ARRAY, Type::INT8_ARRAY],
);

/// A clock that moved later leaves `due_at` alone: the sweeper moves it when it meets the row, and
/// the update stays HOT. One that moved earlier must be seen earlier.
pub(super) static PARKS_LATER: Sql = Sql::new(
    "apply.parks_later",
    concat!(
        "WITH u AS (UPDATE parks p SET deadline_at = v.deadline_at
           FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::timestamptz[]) AS v(account_id, run_id, task_no, deadline_at)
          WHERE p.account_id = v.account_id AND p.run_id = v.run_id AND p.task_no = v.task_no",
        expected!("$5", "parks extended")
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::INT8],
);

pub(super) static PARKS_EARLIER: Sql = Sql::new(
    "apply.parks_earlier",
    concat!(
        "WITH u AS (UPDATE parks p SET deadline_at = v.deadline_at, due_at = least(p.due_at, v.deadline_at)
           FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::timestamptz[]) AS v(account_id, run_id, task_no, deadline_at)
          WHERE p.account_id = v.account_id AND p.run_id = v.run_id AND p.task_no = v.task_no",
        expected!("$5", "parks shortened")
    ),
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TIMESTAMPTZ_ARRAY, Type::INT8],
);

pub(super) static RESULTS: Sql = Sql::new(
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
pub(super) static UPLOADS_BOUND: Sql = Sql::new(
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

pub(super) static FAILURES_NEW: Sql = Sql::new(
    "apply.failures_new",
    "INSERT INTO open_failures (account_id, run_id, task_no)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[])",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY],
);

/// By place: these rows are never updated, and only whoever holds their run deletes them.
pub(super) static FAILURES_GONE: Sql = Sql::new(
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

pub(super) static EVENTS: Sql = Sql::new(
    "apply.events",
    "INSERT INTO run_events (account_id, host_id, seq, type, payload, created_at)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[])",
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ],
);

pub(super) static RUNS: Sql = Sql::new(
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
pub(super) static RECEIPTS_EXPIRED: Sql = Sql::new(
    "apply.receipts_expired",
    "DELETE FROM receipts c USING unnest($1::bigint[], $2::bigint[], $3::text[]) AS v(account_id, run_id, key)
      WHERE c.account_id = v.account_id AND c.door = 'run_append' AND c.scope_id = v.run_id AND c.caller_id = 0
        AND c.key = v.key AND c.created_at + interval '24 hours' < nexus_now()",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY],
);

pub(super) static RECEIPTS: Sql = Sql::new(
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
    &EDGES_GONE,
    &READS_MOVED,
    &BACKGROUNDED,
    &OPERATIONS_OPEN,
    &OPERATIONS_PENDING,
    &OPERATIONS_NEW,
    &OPERATION_RESULTS,
    &OPERATIONS,
    &OPERATION_UPLOADS,
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
