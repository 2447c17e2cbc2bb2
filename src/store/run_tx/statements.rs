//! The statements that lock runs and read slices of their graphs.
//!
//! Each takes arrays of what is wanted, of one run or of many, and begins with a `focus`: the rows it
//! is about. A tail macro says what is read of them: slices with outgoing edges, rows alone, or the
//! edges into them.
//!
//! A row is looked up by its number as a range of one in the order of that number: on a small table
//! all indexes that begin alike cost the same, and a plan that took another one (measured: by key)
//! would walk the whole run for each row until the next analysis. No other index has that order. Edges
//! into a row are found by expressions, for the same reason (migration 6).

use tokio_postgres::types::Type;

use crate::store::Sql;
use crate::store::rows::{executor_columns, park_columns, run_columns, task_columns};

/// From `focus` (account_id, run_id, public_id, task_no) to rows: the focus itself, and the heads of
/// its outgoing edges beside those edges.
macro_rules! slice_tail {
    () => {
        concat!(
            " slice AS (
                SELECT f.*, NULL::int AS from_no, NULL::int AS edge_ordinal, NULL::boolean AS structural,
                       NULL::int AS edge_source, NULL::text AS edge_state
                  FROM focus f
                UNION ALL
                SELECT f.account_id, f.run_id, f.public_id, e.to_no, e.from_no, e.ordinal, e.structural, e.source, e.state
                  FROM focus f
                 CROSS JOIN LATERAL (SELECT * FROM edges e WHERE e.account_id = f.account_id AND e.run_id = f.run_id
                                        AND e.from_no >= f.task_no AND e.from_no <= f.task_no ORDER BY e.from_no OFFSET 0) e)
             SELECT s.account_id, s.public_id AS run_public_id, s.from_no, s.edge_ordinal, s.structural, s.edge_source, s.edge_state, ",
            task_columns!(), ", ", park_columns!(), ", x.digest AS stored_digest,
                    CASE WHEN t.trace_end > 0 AND s.from_no IS NULL THEN EXISTS (
                        SELECT 1 FROM task_operations o WHERE o.account_id = s.account_id AND o.run_id = s.run_id
                           AND o.parent_no = s.task_no AND (o.observed_position IS NULL OR o.n_open > 0)
                           AND o.released_position IS NULL AND NOT o.background) ELSE false END AS unfinished
               FROM slice s
              CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = s.account_id AND t.run_id = s.run_id
                                     AND t.task_no >= s.task_no AND t.task_no <= s.task_no ORDER BY t.task_no OFFSET 0) t
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

/// From `focus` to the edges into it.
macro_rules! into_tail {
    () => {
        " SELECT f.account_id, f.public_id AS run_public_id, f.task_no, e.from_no, e.state
            FROM (SELECT DISTINCT account_id, run_id, public_id, task_no FROM focus) f
            LEFT JOIN LATERAL (SELECT * FROM edges e WHERE e.account_id + 0 = f.account_id
                                    AND e.run_id + 0 = f.run_id AND e.to_no + 0 = f.task_no OFFSET 0) e ON true"
    };
}

/// From `focus` to rows with their parks, without edges.
macro_rules! rows_tail {
    () => {
        concat!(
            " SELECT f.account_id, f.public_id AS run_public_id, ", task_columns!(), ", ", park_columns!(), "
               FROM (SELECT DISTINCT account_id, run_id, public_id, task_no FROM focus) f
              CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = f.account_id AND t.run_id = f.run_id
                                     AND t.task_no >= f.task_no AND t.task_no <= f.task_no ORDER BY t.task_no OFFSET 0) t
               LEFT JOIN LATERAL (SELECT * FROM parks p WHERE p.account_id = f.account_id AND p.run_id = f.run_id
                                     AND p.task_no = f.task_no OFFSET 0) p ON true
               LEFT JOIN LATERAL (SELECT c.public_id FROM executors c WHERE c.account_id = f.account_id
                                     AND c.executor_id = p.claimant_id OFFSET 0) pc ON p.claimant_id IS NOT NULL
              ORDER BY f.task_no"
        )
    };
}

/// A failed row, and what was skipped behind it through edges that a skip closed.
macro_rules! skipped_focus {
    () => {
        "WITH RECURSIVE focus AS (
            SELECT r.account_id, r.run_id, r.public_id, t.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS w(account_id, public_id, key)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.key = w.key OFFSET 0) t
            UNION
            SELECT f.account_id, f.run_id, f.public_id, t.task_no
              FROM focus f
             CROSS JOIN LATERAL (SELECT e.to_no FROM edges e WHERE e.account_id = f.account_id AND e.run_id = f.run_id
                                    AND e.from_no >= f.task_no AND e.from_no <= f.task_no AND e.state = 'skip' ORDER BY e.from_no OFFSET 0) e
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = f.account_id AND t.run_id = f.run_id
                                    AND t.task_no >= e.to_no AND t.task_no <= e.to_no AND t.status = 'skipped' ORDER BY t.task_no OFFSET 0) t)"
    };
}

/// A row, and what stands structurally behind it, up to mainline rounds and barriers.
macro_rules! branch_focus {
    () => {
        "WITH RECURSIVE focus AS (
            SELECT r.account_id, r.run_id, r.public_id, t.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS w(account_id, public_id, key)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.key = w.key OFFSET 0) t
            UNION
            SELECT f.account_id, f.run_id, f.public_id, t.task_no
              FROM focus f
             CROSS JOIN LATERAL (SELECT e.to_no FROM edges e WHERE e.account_id = f.account_id AND e.run_id = f.run_id
                                    AND e.from_no >= f.task_no AND e.from_no <= f.task_no AND e.structural ORDER BY e.from_no OFFSET 0) e
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = f.account_id AND t.run_id = f.run_id
                                    AND t.task_no >= e.to_no AND t.task_no <= e.to_no AND t.mark IS DISTINCT FROM 'round'
                                    AND t.kind <> 'join_task' ORDER BY t.task_no OFFSET 0) t)"
    };
}

pub(super) static LOCK_WAIT: Sql = Sql::new(
    "run_tx.lock_wait",
    concat!(
        "WITH r AS MATERIALIZED (
            SELECT * FROM runs WHERE account_id = $1 AND public_id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE)
         SELECT nexus_now() AS now, ", run_columns!(), "
           FROM r JOIN members pm ON pm.account_id = r.account_id AND pm.member_id = r.principal_id"
    ),
    &[Type::INT8, Type::UUID],
);

pub(super) static LOCK_SKIP: Sql = Sql::new(
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

/// Those of these runs that do not exist.
pub(super) static ABSENT: Sql = Sql::new(
    "run_tx.absent",
    "SELECT w.account_id, w.public_id AS run_public_id FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
       LEFT JOIN LATERAL (SELECT true AS found FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id
                             AND r.deleted_at IS NULL OFFSET 0) r ON true
      WHERE r.found IS NULL",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY],
);

/// Rows by key, with their outgoing edges and the heads of those.
pub(super) static LOAD_KEYS: Sql = Sql::new(
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
pub(super) static LOAD_NOS: Sql = Sql::new(
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

/// Everything unsettled downstream of these rows up to barriers, and all their outgoing edges.
pub(super) static LOAD_DOWNSTREAM: Sql = Sql::new(
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
                                    AND e.from_no >= f.task_no AND e.from_no <= f.task_no ORDER BY e.from_no OFFSET 0) e
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = f.account_id AND t.run_id = f.run_id
                                    AND t.task_no >= e.to_no AND t.task_no <= e.to_no AND t.status IN ('queued', 'needs_approval')
                                    AND t.kind <> 'join_task' ORDER BY t.task_no OFFSET 0) t),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// What is structurally behind these rows, up to barriers.
pub(super) static LOAD_BEHIND: Sql = Sql::new(
    "run_tx.load_behind",
    concat!(
        "WITH RECURSIVE focus AS (
            SELECT r.account_id, r.run_id, r.public_id, w.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
            UNION
            SELECT f.account_id, f.run_id, f.public_id, t.task_no
              FROM focus f
             CROSS JOIN LATERAL (SELECT e.to_no FROM edges e WHERE e.account_id = f.account_id AND e.run_id = f.run_id
                                    AND e.from_no >= f.task_no AND e.from_no <= f.task_no AND e.structural ORDER BY e.from_no OFFSET 0) e
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = f.account_id AND t.run_id = f.run_id
                                    AND t.task_no >= e.to_no AND t.task_no <= e.to_no
                                    AND t.kind <> 'join_task' ORDER BY t.task_no OFFSET 0) t),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// Every unsettled row of the runs, and all their outgoing edges. Reads the runs' rows: for
/// commands that end a run.
pub(super) static LOAD_OPEN: Sql = Sql::new(
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
pub(super) static LOAD_READY: Sql = Sql::new(
    "run_tx.load_ready",
    concat!(
        "WITH focus AS MATERIALIZED (
            SELECT r.account_id, r.run_id, r.public_id, t.task_no
              FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.status = 'queued' AND t.remaining = 0
                                    AND t.kind IN ('tool_task', 'await_task') ORDER BY t.task_no LIMIT $3 OFFSET 0) t),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT8],
);

/// Locks parks before they are read, so that the decision and a claim meet on the row. Of the runs
/// this transaction holds alone: a run that was left out of the batch is somebody else's, and its
/// parks are neither waited for nor kept from its holder. (Locking a run again that is held by
/// oneself is free; one that became free meanwhile is kept until the end, which harms nobody.)
pub(super) static LOCK_PARKS: Sql = Sql::new(
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
pub(super) static LOCK_ALL_PARKS: Sql = Sql::new(
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

pub(super) static LOAD_CALLERS: Sql = Sql::new(
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
/// declaring agent's application or a provider. The rows are loaded, or not yet inserted: what is
/// asked of them comes along.
pub(super) static LOAD_ADDRESSEES: Sql = Sql::new(
    "run_tx.load_addressees",
    concat!(
        "SELECT w.account_id, w.public_id AS run_public_id, w.task_no, ", executor_columns!(), ",
                s.effect_profile, s.replayable, s.timeout_ms AS announced_timeout_ms,
                CASE WHEN k.tool_input IS NOT NULL THEN e.documents END AS skill_documents, k.tool_input AS skill_input
           FROM unnest($1::bigint[], $2::uuid[], $3::int[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[])
             AS w(account_id, public_id, task_no, tool_name, target_executor_id, declaring_agent_id, run_id, new_input)
          CROSS JOIN LATERAL (
                SELECT s.* FROM served_tools s WHERE w.target_executor_id IS NOT NULL AND s.account_id = w.account_id
                   AND s.executor_id = w.target_executor_id AND s.name = w.tool_name
                UNION ALL
                SELECT s.* FROM served_tools s WHERE w.target_executor_id IS NULL AND s.account_id = w.account_id
                   AND s.name = w.tool_name) s
           JOIN executors e ON e.account_id = s.account_id AND e.executor_id = s.executor_id AND e.status = 'active'
            AND (w.target_executor_id IS NOT NULL OR e.kind = 'tool_provider'
                 OR (e.kind = 'agent_application' AND e.agent_id = w.declaring_agent_id))
           LEFT JOIN members ea ON ea.account_id = e.account_id AND ea.member_id = e.agent_id
           LEFT JOIN LATERAL (SELECT i.tool_input FROM task_inputs i WHERE w.tool_name = 'skill' AND w.new_input IS NULL
                                 AND w.target_executor_id IS NOT NULL AND i.account_id = w.account_id
                                 AND i.run_id = w.run_id AND i.task_no = w.task_no
                              UNION ALL
                              SELECT w.new_input WHERE w.new_input IS NOT NULL) k ON true
          ORDER BY w.task_no, e.executor_id"
    ),
    &[
        Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY,
        Type::INT8_ARRAY, Type::TEXT_ARRAY,
    ],
);

pub(super) static LOAD_FAILURES: Sql = Sql::new(
    "run_tx.load_failures",
    "SELECT r.account_id, r.public_id AS run_public_id, f.task_no
       FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
      CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
      CROSS JOIN LATERAL (SELECT f.task_no FROM open_failures f WHERE f.account_id = r.account_id AND f.run_id = r.run_id OFFSET 0) f
      ORDER BY f.task_no",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY],
);

pub(super) static LOAD_REPAIR: Sql = Sql::new(
    "run_tx.load_repair",
    concat!(skipped_focus!(), ",", slice_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

pub(super) static LOAD_REPAIR_INTO: Sql = Sql::new(
    "run_tx.load_repair_into",
    concat!(skipped_focus!(), into_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

/// Edges into rows, by number.
pub(super) static LOAD_INTO: Sql = Sql::new(
    "run_tx.load_into",
    concat!(
        "WITH focus AS MATERIALIZED (
            SELECT r.account_id, r.run_id, r.public_id, w.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r)",
        into_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

pub(super) static LOAD_BRANCH: Sql = Sql::new(
    "run_tx.load_branch",
    concat!(branch_focus!(), ",", slice_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

pub(super) static LOAD_BRANCH_INTO: Sql = Sql::new(
    "run_tx.load_branch_into",
    concat!(branch_focus!(), into_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

/// The arms of barriers: upstream along structural edges, through rows whose nearest race is this
/// one or one inside it (`inside`: the races that a row's tails may belong to, outermost first).
pub(super) static LOAD_ARMS: Sql = Sql::new(
    "run_tx.load_arms",
    concat!(
        "WITH RECURSIVE up AS (
            SELECT r.account_id, r.run_id, r.public_id, w.task_no, ARRAY[w.task_no] AS inside
              FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
            UNION
            SELECT u.account_id, u.run_id, u.public_id, t.task_no,
                   u.inside[1:array_position(u.inside, t.barrier_no)]
                   || CASE WHEN t.kind = 'join_task' THEN ARRAY[t.task_no] ELSE '{}'::int[] END
              FROM up u
             CROSS JOIN LATERAL (SELECT e.from_no FROM edges e WHERE e.account_id + 0 = u.account_id
                                    AND e.run_id + 0 = u.run_id AND e.to_no + 0 = u.task_no AND e.structural OFFSET 0) e
             CROSS JOIN LATERAL (SELECT t.task_no, t.kind, t.barrier_no FROM tasks t WHERE t.account_id = u.account_id
                                    AND t.run_id = u.run_id AND t.task_no >= e.from_no AND t.task_no <= e.from_no ORDER BY t.task_no OFFSET 0) t
             WHERE t.barrier_no = ANY (u.inside)),
         focus AS (SELECT DISTINCT account_id, run_id, public_id, task_no FROM up),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// What the races among the sources of these barriers selected.
pub(super) static LOAD_SELECTIONS: Sql = Sql::new(
    "run_tx.load_selections",
    "SELECT w.account_id, w.public_id AS run_public_id, e.from_no AS task_no, x.selection
       FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
      CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
      CROSS JOIN LATERAL (SELECT e.from_no FROM edges e WHERE e.account_id + 0 = r.account_id
                                    AND e.run_id + 0 = r.run_id AND e.to_no + 0 = w.task_no OFFSET 0) e
      CROSS JOIN LATERAL (SELECT t.generation FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                             AND t.task_no >= e.from_no AND t.task_no <= e.from_no AND t.kind = 'join_task' AND t.completed_at IS NOT NULL ORDER BY t.task_no OFFSET 0) t
      CROSS JOIN LATERAL (SELECT x.selection FROM task_results x WHERE x.account_id = r.account_id AND x.run_id = r.run_id
                             AND x.task_no = e.from_no AND x.generation = t.generation AND x.selection IS NOT NULL OFFSET 0) x",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// A few parks of each kind that rest is judged by: unclaimed calls, questions, observations.
pub(super) static LOAD_RESTS: Sql = Sql::new(
    "run_tx.load_rests",
    "SELECT r.account_id, r.public_id AS run_public_id, p.task_no, p.kind
       FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, most)
      CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
      CROSS JOIN (VALUES ('tool_call'), ('ask'), ('wait')) k(kind)
      CROSS JOIN LATERAL (SELECT p.task_no, p.kind FROM parks p WHERE p.account_id = r.account_id AND p.run_id = r.run_id
                             AND p.kind = k.kind AND p.claimed_at IS NULL LIMIT w.most OFFSET 0) p",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// The rows that rest for an approver (`approval`), or for a person without a token (`ask`).
pub(super) static LOAD_RESTING: Sql = Sql::new(
    "run_tx.load_resting",
    concat!(
        "WITH focus AS MATERIALIZED (
            SELECT r.account_id, r.run_id, r.public_id, p.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS w(account_id, public_id, kind)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT p.task_no FROM parks p WHERE p.account_id = r.account_id AND p.run_id = r.run_id
                                    AND p.kind = w.kind OFFSET 0) p)",
        rows_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

/// The application of the agent that declares the run.
pub(super) static LOAD_HOST: Sql = Sql::new(
    "run_tx.load_host",
    "SELECT r.account_id, r.public_id AS run_public_id, e.executor_id, e.public_id AS executor_public_id
       FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
      CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
      CROSS JOIN LATERAL (SELECT * FROM executors e WHERE e.account_id = r.account_id AND e.agent_id = r.declaring_agent_id
                             AND e.status = 'active' OFFSET 0) e
       JOIN members a ON a.account_id = e.account_id AND a.member_id = e.agent_id AND a.status = 'active'",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY],
);

/// The run's rules, and these calls' inputs.
pub(super) static LOAD_RULES: Sql = Sql::new(
    "run_tx.load_rules",
    "SELECT r.account_id, r.public_id AS run_public_id, w.task_no, i.tool_input,
            CASE WHEN row_number() OVER (PARTITION BY r.account_id, r.run_id) = 1 THEN r.approval_rules END AS approval_rules
       FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
      CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
       LEFT JOIN LATERAL (SELECT i.tool_input FROM task_inputs i WHERE i.account_id = r.account_id AND i.run_id = r.run_id
                             AND i.task_no = w.task_no OFFSET 0) i ON true",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// The parked waits that observe these rows.
pub(super) static LOAD_WATCHERS: Sql = Sql::new(
    "run_tx.load_watchers",
    concat!(
        "WITH focus AS MATERIALIZED (
            SELECT DISTINCT r.account_id, r.run_id, r.public_id, a.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT a.task_no FROM waits a WHERE a.account_id = r.account_id AND a.run_id = r.run_id
                                    AND a.observes_no = w.task_no OFFSET 0) a),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// Rows, what stands for them now, and what races among those selected, with bodies.
macro_rules! observed_focus {
    () => {
        "WITH named AS MATERIALIZED (
            SELECT DISTINCT r.account_id, r.run_id, r.public_id, n.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT t.task_no, t.tip_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.task_no >= w.task_no AND t.task_no <= w.task_no ORDER BY t.task_no OFFSET 0) t
             CROSS JOIN LATERAL (VALUES (t.task_no), (t.tip_no)) n(task_no)),
         focus AS MATERIALIZED (
            SELECT n.account_id, n.run_id, n.public_id, n.task_no FROM named n
            UNION
            SELECT n.account_id, n.run_id, n.public_id, v.task_no
              FROM named n
             CROSS JOIN LATERAL (SELECT t.generation FROM tasks t WHERE t.account_id = n.account_id AND t.run_id = n.run_id
                                    AND t.task_no >= n.task_no AND t.task_no <= n.task_no AND t.kind = 'join_task' ORDER BY t.task_no OFFSET 0) j
             CROSS JOIN LATERAL (SELECT x.selection FROM task_results x WHERE x.account_id = n.account_id AND x.run_id = n.run_id
                                    AND x.task_no = n.task_no AND x.generation = j.generation OFFSET 0) x
             CROSS JOIN LATERAL json_array_elements_text(x.selection::json -> 'selected') s(key)
             CROSS JOIN LATERAL (SELECT t.task_no, t.tip_no FROM tasks t WHERE t.account_id = n.account_id
                                    AND t.run_id = n.run_id AND t.key = s.key OFFSET 0) t
             CROSS JOIN LATERAL (VALUES (t.task_no), (t.tip_no)) v(task_no))"
    };
}

pub(super) static LOAD_OBSERVED: Sql = Sql::new(
    "run_tx.load_observed",
    concat!(observed_focus!(), rows_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// From `focus` to bodies.
macro_rules! bodies_tail {
    () => {
        " SELECT f.account_id, f.public_id AS run_public_id, f.task_no, i.tool_input, i.definition,
                 x.content, x.structured, x.selection
            FROM focus f
           CROSS JOIN LATERAL (SELECT t.generation FROM tasks t WHERE t.account_id = f.account_id AND t.run_id = f.run_id
                                  AND t.task_no >= f.task_no AND t.task_no <= f.task_no ORDER BY t.task_no OFFSET 0) t
            LEFT JOIN LATERAL (SELECT * FROM task_inputs i WHERE i.account_id = f.account_id AND i.run_id = f.run_id
                                  AND i.task_no = f.task_no OFFSET 0) i ON true
            LEFT JOIN LATERAL (SELECT * FROM task_results x WHERE x.account_id = f.account_id AND x.run_id = f.run_id
                                  AND x.task_no = f.task_no AND x.generation = t.generation OFFSET 0) x ON true"
    };
}

pub(super) static LOAD_BODIES: Sql = Sql::new(
    "run_tx.load_bodies",
    concat!(observed_focus!(), bodies_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// Rows by key, the answers and tails of their runs, what stands for them, and their parks.
pub(super) static LOAD_STANDING: Sql = Sql::new(
    "run_tx.load_standing",
    concat!(
        "WITH named AS MATERIALIZED (
            SELECT r.account_id, r.run_id, r.public_id, t.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS w(account_id, public_id, key)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.key = w.key OFFSET 0) t
            UNION
            SELECT r.account_id, r.run_id, r.public_id, v.task_no
              FROM (SELECT DISTINCT account_id, public_id FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)) w
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (VALUES (r.deliverable_no), (r.mainline_tail_no)) v(task_no)
             WHERE v.task_no IS NOT NULL
            UNION
            SELECT r.account_id, r.run_id, r.public_id, t.task_no
              FROM unnest($1::bigint[], $2::uuid[], $4::int[]) AS w(account_id, public_id, minted)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN (VALUES ('tool'), ('model'), ('ask'), ('wait'), ('parallel')) b(verb)
             CROSS JOIN LATERAL generate_series(1, w.minted) n(n)
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.key = 's' || (r.revision + 1)::text || '-' || b.verb || '-' || n.n::text OFFSET 0) t),
         focus AS MATERIALIZED (
            SELECT n.account_id, n.run_id, n.public_id, v.task_no
              FROM named n
             CROSS JOIN LATERAL (SELECT t.task_no, t.tip_no FROM tasks t WHERE t.account_id = n.account_id
                                    AND t.run_id = n.run_id AND t.task_no >= n.task_no AND t.task_no <= n.task_no ORDER BY t.task_no OFFSET 0) t
             CROSS JOIN LATERAL (VALUES (t.task_no), (t.tip_no)) v(task_no))",
        rows_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY],
);

/// Receipts of appends, whose day is not over.
pub(super) static LOAD_RECEIPTS: Sql = Sql::new(
    "run_tx.load_receipts",
    "SELECT w.account_id, w.public_id AS run_public_id, c.key, c.fingerprint, c.body
       FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS w(account_id, public_id, key)
      CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
      CROSS JOIN LATERAL (SELECT * FROM receipts c WHERE c.account_id = r.account_id AND c.door = 'run_append'
                             AND c.scope_id = r.run_id AND c.caller_id = 0 AND c.key = w.key
                             AND c.created_at + interval '24 hours' >= nexus_now() OFFSET 0) c",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

/// The operations of these keys of the calls of those keys, and those that joins among them wait for.
macro_rules! named_operations {
    () => {
        "WITH RECURSIVE ops AS (
            SELECT r.account_id, r.run_id, r.public_id, p.task_no AS parent_no, o.position
              FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[]) AS w(account_id, public_id, key, operation_key)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.key = w.key OFFSET 0) p
             CROSS JOIN LATERAL (SELECT o.position FROM task_operations o WHERE o.account_id = r.account_id AND o.run_id = r.run_id
                                    AND o.parent_no = p.task_no AND o.operation_key = w.operation_key OFFSET 0) o
            UNION
            SELECT a.account_id, a.run_id, a.public_id, a.parent_no, x.source_position
              FROM ops a
             CROSS JOIN LATERAL (SELECT x.source_position FROM task_operation_results x WHERE x.account_id = a.account_id
                                    AND x.run_id = a.run_id AND x.parent_no = a.parent_no AND x.position = a.position
                                    AND x.source_position IS NOT NULL OFFSET 0) x)"
    };
}

/// From `ops` to the rows that they authored or report.
macro_rules! operation_rows {
    () => {
        " rows AS MATERIALIZED (
            SELECT a.account_id, a.run_id, a.public_id, t.task_no
              FROM ops a
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = a.account_id AND t.run_id = a.run_id
                                    AND t.owner_no IS NOT NULL AND t.owner_no = a.parent_no AND t.operation_no = a.position OFFSET 0) t
            UNION
            SELECT a.account_id, a.run_id, a.public_id, x.task_no
              FROM ops a
             CROSS JOIN LATERAL (SELECT x.task_no FROM task_operation_results x WHERE x.account_id = a.account_id
                                    AND x.run_id = a.run_id AND x.parent_no = a.parent_no AND x.position = a.position
                                    AND x.task_no IS NOT NULL OFFSET 0) x)"
    };
}

/// From `ops` to operations with what they report and wait for.
macro_rules! operations_tail {
    () => {
        " SELECT a.account_id, a.public_id AS run_public_id, a.parent_no, o.position, o.operation_key, o.kind, o.request,
                 o.request_digest, o.receipt, o.refusal, o.background, o.released_position, o.observed_position, o.outcome,
                 ARRAY(SELECT x.task_no FROM task_operation_results x WHERE x.account_id = a.account_id AND x.run_id = a.run_id
                          AND x.parent_no = a.parent_no AND x.position = a.position AND x.task_no IS NOT NULL
                        ORDER BY x.ordinal) AS results,
                 ARRAY(SELECT x.source_position FROM task_operation_results x WHERE x.account_id = a.account_id AND x.run_id = a.run_id
                          AND x.parent_no = a.parent_no AND x.position = a.position AND x.source_position IS NOT NULL
                        ORDER BY x.ordinal) AS sources
            FROM (SELECT DISTINCT account_id, run_id, public_id, parent_no, position FROM ops) a
           CROSS JOIN LATERAL (SELECT * FROM task_operations o WHERE o.account_id = a.account_id AND o.run_id = a.run_id
                                  AND o.parent_no = a.parent_no AND o.position = a.position OFFSET 0) o"
    };
}

pub(super) static LOAD_OPERATIONS: Sql = Sql::new(
    "run_tx.load_operations",
    concat!(named_operations!(), operations_tail!()),
    &[
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
    ],
);

/// The parks of their rows.
pub(super) static LOCK_OPERATION_PARKS: Sql = Sql::new(
    "run_tx.lock_operation_parks",
    concat!(
        named_operations!(), ",", operation_rows!(),
        " SELECT p.task_no FROM rows f
            JOIN parks p ON p.account_id = f.account_id AND p.run_id = f.run_id AND p.task_no = f.task_no
           ORDER BY p.account_id, p.run_id, p.task_no FOR UPDATE OF p"
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY],
);

/// Their rows, and what those wait on.
pub(super) static LOAD_OPERATION_ROWS: Sql = Sql::new(
    "run_tx.load_operation_rows",
    concat!(
        named_operations!(), ",", operation_rows!(), ",
         focus AS MATERIALIZED (
            SELECT * FROM rows
            UNION
            SELECT f.account_id, f.run_id, f.public_id, e.from_no
              FROM rows f
             CROSS JOIN LATERAL (SELECT e.from_no FROM edges e WHERE e.account_id + 0 = f.account_id
                                    AND e.run_id + 0 = f.run_id AND e.to_no + 0 = f.task_no OFFSET 0) e),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY],
);

/// The edges into their rows, and into who waits for those.
pub(super) static LOAD_OPERATION_INTO: Sql = Sql::new(
    "run_tx.load_operation_into",
    concat!(
        named_operations!(), ",", operation_rows!(), ",
         focus AS MATERIALIZED (
            SELECT * FROM rows
            UNION
            SELECT f.account_id, f.run_id, f.public_id, e.to_no
              FROM rows f
             CROSS JOIN LATERAL (SELECT e.to_no FROM edges e WHERE e.account_id = f.account_id AND e.run_id = f.run_id
                                    AND e.from_no >= f.task_no AND e.from_no <= f.task_no ORDER BY e.from_no OFFSET 0) e)",
        into_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY],
);

/// Of the calls of those keys: the first operation observed beyond a position, and the first that is
/// ready.
macro_rules! observable {
    () => {
        "WITH RECURSIVE ops AS (
            SELECT r.account_id, r.run_id, r.public_id, p.task_no AS parent_no, o.position
              FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::int[]) AS w(account_id, public_id, key, after)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.key = w.key OFFSET 0) p
             CROSS JOIN LATERAL (
                (SELECT o.position FROM task_operations o WHERE o.account_id = r.account_id AND o.run_id = r.run_id
                    AND o.parent_no = p.task_no AND o.observed_position > w.after ORDER BY o.observed_position LIMIT 1)
                UNION
                (SELECT o.position FROM task_operations o WHERE o.account_id = r.account_id AND o.run_id = r.run_id
                    AND o.parent_no = p.task_no AND o.observed_position IS NULL AND o.released_position IS NULL
                    AND o.n_pending = 0 ORDER BY o.position LIMIT 1)) o),
         reported AS (
            SELECT a.account_id, a.run_id, a.public_id, v.task_no
              FROM ops a
             CROSS JOIN LATERAL (SELECT x.task_no FROM task_operation_results x WHERE x.account_id = a.account_id
                                    AND x.run_id = a.run_id AND x.parent_no = a.parent_no AND x.position = a.position
                                    AND x.task_no IS NOT NULL OFFSET 0) x
             CROSS JOIN LATERAL (SELECT t.task_no, t.tip_no FROM tasks t WHERE t.account_id = a.account_id AND t.run_id = a.run_id
                                    AND t.task_no >= x.task_no AND t.task_no <= x.task_no ORDER BY t.task_no OFFSET 0) t
             CROSS JOIN LATERAL (VALUES (t.task_no), (t.tip_no)) v(task_no)
            UNION
            SELECT n.account_id, n.run_id, n.public_id, v.task_no
              FROM reported n
             CROSS JOIN LATERAL (SELECT t.generation FROM tasks t WHERE t.account_id = n.account_id AND t.run_id = n.run_id
                                    AND t.task_no >= n.task_no AND t.task_no <= n.task_no AND t.kind = 'join_task' ORDER BY t.task_no OFFSET 0) j
             CROSS JOIN LATERAL (SELECT x.selection FROM task_results x WHERE x.account_id = n.account_id AND x.run_id = n.run_id
                                    AND x.task_no = n.task_no AND x.generation = j.generation OFFSET 0) x
             CROSS JOIN LATERAL json_array_elements_text(x.selection::json -> 'selected') s(key)
             CROSS JOIN LATERAL (SELECT t.task_no, t.tip_no FROM tasks t WHERE t.account_id = n.account_id
                                    AND t.run_id = n.run_id AND t.key = s.key OFFSET 0) t
             CROSS JOIN LATERAL (VALUES (t.task_no), (t.tip_no)) v(task_no))"
    };
}

pub(super) static LOAD_OBSERVABLE: Sql = Sql::new(
    "run_tx.load_observable",
    concat!(observable!(), operations_tail!()),
    &[
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT4_ARRAY,
    ],
);

pub(super) static LOAD_OBSERVABLE_ROWS: Sql = Sql::new(
    "run_tx.load_observable_rows",
    concat!(
        observable!(),
        ",",
        operation_rows!(),
        ",
         focus AS MATERIALIZED (SELECT * FROM rows UNION SELECT * FROM reported)",
        rows_tail!()
    ),
    &[
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT4_ARRAY,
    ],
);

pub(super) static LOAD_OBSERVABLE_BODIES: Sql = Sql::new(
    "run_tx.load_observable_bodies",
    concat!(
        observable!(),
        ", focus AS MATERIALIZED (SELECT * FROM reported)",
        bodies_tail!()
    ),
    &[
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT4_ARRAY,
    ],
);

/// The open attached work of calls, with all rows of its operations.
pub(super) static LOAD_ATTACHED: Sql = Sql::new(
    "run_tx.load_attached",
    concat!(
        "WITH focus AS MATERIALIZED (
            SELECT r.account_id, r.run_id, r.public_id, t.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT o.position FROM task_operations o WHERE o.account_id = r.account_id AND o.run_id = r.run_id
                                    AND o.parent_no = w.task_no AND (o.observed_position IS NULL OR o.n_open > 0)
                                    AND o.released_position IS NULL AND NOT o.background AND o.n_open > 0 OFFSET 0) o
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                    AND t.owner_no IS NOT NULL AND t.owner_no = w.task_no AND t.operation_no = o.position OFFSET 0) t),",
        slice_tail!()
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// Rows and what stands structurally before them of the same owner's work.
macro_rules! upstream_focus {
    () => {
        "WITH RECURSIVE up AS (
            SELECT r.account_id, r.run_id, r.public_id, w.task_no
              FROM unnest($1::bigint[], $2::uuid[], $3::int[]) AS w(account_id, public_id, task_no)
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
            UNION
            SELECT u.account_id, u.run_id, u.public_id, t.task_no
              FROM up u
             CROSS JOIN LATERAL (SELECT t.owner_no FROM tasks t WHERE t.account_id = u.account_id AND t.run_id = u.run_id
                                    AND t.task_no >= u.task_no AND t.task_no <= u.task_no ORDER BY t.task_no OFFSET 0) own
             CROSS JOIN LATERAL (SELECT e.from_no FROM edges e WHERE e.account_id + 0 = u.account_id
                                    AND e.run_id + 0 = u.run_id AND e.to_no + 0 = u.task_no AND e.structural OFFSET 0) e
             CROSS JOIN LATERAL (SELECT t.task_no, t.owner_no FROM tasks t WHERE t.account_id = u.account_id
                                    AND t.run_id = u.run_id AND t.task_no >= e.from_no AND t.task_no <= e.from_no ORDER BY t.task_no OFFSET 0) t
             WHERE t.owner_no = own.owner_no),
         focus AS MATERIALIZED (SELECT DISTINCT account_id, run_id, public_id, task_no FROM up)"
    };
}

pub(super) static LOAD_UPSTREAM: Sql = Sql::new(
    "run_tx.load_upstream",
    concat!(upstream_focus!(), ",", slice_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// What the joins among them selected.
pub(super) static LOAD_UPSTREAM_SELECTIONS: Sql = Sql::new(
    "run_tx.load_upstream_selections",
    concat!(
        upstream_focus!(),
        " SELECT f.account_id, f.public_id AS run_public_id, f.task_no, x.selection
            FROM focus f
           CROSS JOIN LATERAL (SELECT t.generation FROM tasks t WHERE t.account_id = f.account_id AND t.run_id = f.run_id
                                  AND t.task_no >= f.task_no AND t.task_no <= f.task_no AND t.kind = 'join_task'
                                  AND t.completed_at IS NOT NULL ORDER BY t.task_no OFFSET 0) t
           CROSS JOIN LATERAL (SELECT x.selection FROM task_results x WHERE x.account_id = f.account_id AND x.run_id = f.run_id
                                  AND x.task_no = f.task_no AND x.generation = t.generation AND x.selection IS NOT NULL OFFSET 0) x"
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &LOCK_WAIT,
    &LOCK_SKIP,
    &ABSENT,
    &LOAD_KEYS,
    &LOAD_NOS,
    &LOAD_DOWNSTREAM,
    &LOAD_BEHIND,
    &LOAD_OPEN,
    &LOAD_READY,
    &LOCK_PARKS,
    &LOCK_ALL_PARKS,
    &LOAD_CALLERS,
    &LOAD_ADDRESSEES,
    &LOAD_FAILURES,
    &LOAD_REPAIR,
    &LOAD_REPAIR_INTO,
    &LOAD_BRANCH,
    &LOAD_BRANCH_INTO,
    &LOAD_INTO,
    &LOAD_ARMS,
    &LOAD_SELECTIONS,
    &LOAD_RESTS,
    &LOAD_RESTING,
    &LOAD_HOST,
    &LOAD_RULES,
    &LOAD_WATCHERS,
    &LOAD_OBSERVED,
    &LOAD_BODIES,
    &LOAD_STANDING,
    &LOAD_RECEIPTS,
    &LOAD_OPERATIONS,
    &LOCK_OPERATION_PARKS,
    &LOAD_OPERATION_ROWS,
    &LOAD_OPERATION_INTO,
    &LOAD_OBSERVABLE,
    &LOAD_OBSERVABLE_ROWS,
    &LOAD_OBSERVABLE_BODIES,
    &LOAD_ATTACHED,
    &LOAD_UPSTREAM,
    &LOAD_UPSTREAM_SELECTIONS,
];
