//! The run lock as a value: one transaction over one run or a batch of them, and the slices of
//! their graphs that were loaded under it (`architecture.md` §4, §5).
//!
//! Lock order: runs ascending by (account, run), then parks ascending by task. A batch of several
//! runs leaves out those that somebody holds (`SKIP LOCKED`); one run alone waits.
//!
//! The clock is read after the lock is granted: the locking rows are materialised first, the
//! clock beside them is evaluated afterwards. The load is a statement of its own behind the lock,
//! since a statement that waits sees other tables as of before its wait.
//!
//! A row is looked up by its number as a range of one in the order of that number: on a small table
//! all indexes that begin alike cost the same, and a plan that took another one (measured: by key)
//! would walk the whole run for each row until the next analysis. No other index has that order. Edges
//! into a row are found by expressions, for the same reason (migration 6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::rows::{self, executor_columns, park_columns, run_columns, task_columns};
use super::tx::{Batch, Tx};
use super::views::{self, TaskView};
use super::{Error, Sql, Store, apply};
use crate::domain::feed;
use crate::domain::hint::{FeedItems, FeedKind, Hint};
use crate::domain::json::{self, Canonical, Value};
use crate::domain::words::{AttentionReason, EdgeState, ParkKind};
use crate::domain::{AccountId, ExecutorId, PublicId, TaskKey, TaskNo};
use crate::engine::approval::Rules;
use crate::engine::facts::{Caller, Candidate, Document, Edge, Host, Rest, Seen, Served};
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
    /// The row of that key, its park, its outgoing edges with their heads.
    Row(TaskKey),
    /// The row of that key with everything that its skip reached, and all edges into that.
    Repair(TaskKey),
    /// The row of that key with what stands structurally behind it and is no mainline round and no
    /// barrier, all edges into that, and the run's parks, locked.
    Branch(TaskKey),
    /// What an append must see.
    Append(Append),
}

/// The rows of these keys, those whose keys the envelope might be minted, the run's answer and its
/// mainline's tail, what stands for them now, and their parks; their edges are not read. And the
/// receipt under that key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Keys that the envelope or its resolves name.
    pub keys: Vec<String>,
    /// How many minted keys of each verb might be taken.
    pub minted: i32,
    /// The receipt's key.
    pub receipt: Option<String>,
}

/// A stored receipt of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAppend {
    /// Of what was accepted.
    pub fingerprint: Vec<u8>,
    /// The receipt.
    pub body: Canonical,
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
    /// Receipts of appends that were asked for and whose day is not over.
    pub receipts: BTreeMap<String, StoredAppend>,
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
                                        AND e.from_no >= f.task_no AND e.from_no <= f.task_no ORDER BY e.from_no OFFSET 0) e)
             SELECT s.account_id, s.public_id AS run_public_id, s.from_no, s.edge_ordinal, s.structural, s.edge_state, ",
            task_columns!(), ", ", park_columns!(), ", x.digest AS stored_digest
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

/// Those of these runs that do not exist.
static ABSENT: Sql = Sql::new(
    "run_tx.absent",
    "SELECT w.account_id, w.public_id AS run_public_id FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
       LEFT JOIN LATERAL (SELECT true AS found FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id
                             AND r.deleted_at IS NULL OFFSET 0) r ON true
      WHERE r.found IS NULL",
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

/// Everything unsettled downstream of these rows up to barriers, and all their outgoing edges.
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
                                    AND e.from_no >= f.task_no AND e.from_no <= f.task_no ORDER BY e.from_no OFFSET 0) e
             CROSS JOIN LATERAL (SELECT t.task_no FROM tasks t WHERE t.account_id = f.account_id AND t.run_id = f.run_id
                                    AND t.task_no >= e.to_no AND t.task_no <= e.to_no AND t.status IN ('queued', 'needs_approval')
                                    AND t.kind <> 'join_task' ORDER BY t.task_no OFFSET 0) t),",
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
/// declaring agent's application or a provider. The rows are loaded, or not yet inserted: what is
/// asked of them comes along.
static LOAD_ADDRESSEES: Sql = Sql::new(
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

static LOAD_FAILURES: Sql = Sql::new(
    "run_tx.load_failures",
    "SELECT r.account_id, r.public_id AS run_public_id, f.task_no
       FROM unnest($1::bigint[], $2::uuid[]) AS w(account_id, public_id)
      CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
      CROSS JOIN LATERAL (SELECT f.task_no FROM open_failures f WHERE f.account_id = r.account_id AND f.run_id = r.run_id OFFSET 0) f
      ORDER BY f.task_no",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY],
);

static LOAD_REPAIR: Sql = Sql::new(
    "run_tx.load_repair",
    concat!(skipped_focus!(), ",", slice_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

static LOAD_REPAIR_INTO: Sql = Sql::new(
    "run_tx.load_repair_into",
    concat!(skipped_focus!(), into_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

/// Edges into rows, by number.
static LOAD_INTO: Sql = Sql::new(
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

static LOAD_BRANCH: Sql = Sql::new(
    "run_tx.load_branch",
    concat!(branch_focus!(), ",", slice_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

static LOAD_BRANCH_INTO: Sql = Sql::new(
    "run_tx.load_branch_into",
    concat!(branch_focus!(), into_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

/// The arms of barriers: upstream along structural edges, through rows whose nearest race is this
/// one or one inside it (`inside`: the races that a row's tails may belong to, outermost first).
static LOAD_ARMS: Sql = Sql::new(
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
static LOAD_SELECTIONS: Sql = Sql::new(
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
static LOAD_RESTS: Sql = Sql::new(
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
static LOAD_RESTING: Sql = Sql::new(
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
static LOAD_HOST: Sql = Sql::new(
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
static LOAD_RULES: Sql = Sql::new(
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
static LOAD_WATCHERS: Sql = Sql::new(
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

static LOAD_OBSERVED: Sql = Sql::new(
    "run_tx.load_observed",
    concat!(observed_focus!(), rows_tail!()),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

static LOAD_BODIES: Sql = Sql::new(
    "run_tx.load_bodies",
    concat!(
        observed_focus!(),
        " SELECT f.account_id, f.public_id AS run_public_id, f.task_no, i.tool_input, i.definition,
                 x.content, x.structured, x.selection
            FROM focus f
           CROSS JOIN LATERAL (SELECT t.generation FROM tasks t WHERE t.account_id = f.account_id AND t.run_id = f.run_id
                                  AND t.task_no >= f.task_no AND t.task_no <= f.task_no ORDER BY t.task_no OFFSET 0) t
            LEFT JOIN LATERAL (SELECT * FROM task_inputs i WHERE i.account_id = f.account_id AND i.run_id = f.run_id
                                  AND i.task_no = f.task_no OFFSET 0) i ON true
            LEFT JOIN LATERAL (SELECT * FROM task_results x WHERE x.account_id = f.account_id AND x.run_id = f.run_id
                                  AND x.task_no = f.task_no AND x.generation = t.generation OFFSET 0) x ON true"
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// Rows by key, the answers and tails of their runs, what stands for them, and their parks.
static LOAD_STANDING: Sql = Sql::new(
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
static LOAD_RECEIPTS: Sql = Sql::new(
    "run_tx.load_receipts",
    "SELECT w.account_id, w.public_id AS run_public_id, c.key, c.fingerprint, c.body
       FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS w(account_id, public_id, key)
      CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
      CROSS JOIN LATERAL (SELECT * FROM receipts c WHERE c.account_id = r.account_id AND c.door = 'run_append'
                             AND c.scope_id = r.run_id AND c.caller_id = 0 AND c.key = w.key
                             AND c.created_at + interval '24 hours' >= nexus_now() OFFSET 0) c",
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &LOCK_WAIT,
    &LOCK_SKIP,
    &ABSENT,
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
    tools: Vec<Option<String>>,
    targets: Vec<Option<i64>>,
    agents: Vec<Option<i64>>,
    run_ids: Vec<Option<i64>>,
    new_inputs: Vec<Option<String>>,
    failures: Wanted,
    repairs: Wanted,
    branches: Wanted,
    standing: Wanted,
    receipts: Wanted,
    arms: Wanted,
    parks: Wanted,
    rests: Wanted,
    resting: Wanted,
    hosts: Wanted,
    rules: Wanted,
    watchers: Wanted,
    observed: Wanted,
    into: Wanted,
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
    Into,
    Rows,
    Selections,
    LockedParks,
    Rests,
    Resting,
    Hosts,
    Rules,
    Watchers,
    Bodies,
    Receipts,
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
            First::Row(key) => self.keys.key(target, key),
            First::Repair(key) => self.repairs.key(target, key),
            First::Branch(key) => self.branches.key(target, key),
            First::Append(append) => {
                // A run whose envelope names nothing still has an answer: no key is empty.
                let keys = append.keys.iter().map(String::as_str).chain([""]);
                for (at, key) in keys.enumerate() {
                    self.standing.run(target);
                    self.standing.keys.push(key.to_owned());
                    self.standing
                        .nos
                        .push(if at == 0 { append.minted } else { 0 });
                }
                if let Some(key) = &append.receipt {
                    self.receipts.run(target);
                    self.receipts.keys.push(key.clone());
                }
            }
        }
    }

    fn want(&mut self, target: &RunTarget, want: &Want, locked: Option<&Locked>) {
        match want {
            Want::Edges(nos) => self.nos.nos(target, nos),
            Want::Row(no) => self.nos.nos(target, &[*no]),
            Want::Downstream(nos) => self.downstream.nos(target, nos),
            Want::Addressees(nos) => {
                self.addressees.nos(target, nos);
                for no in nos {
                    let task = locked.and_then(|l| l.graph.task(*no));
                    self.tools.push(task.and_then(|t| t.tool_name.clone()));
                    self.targets.push(task.and_then(|t| t.target).map(|e| e.0));
                    let agent = locked.and_then(|l| l.graph.run.principal.declaring_agent);
                    self.agents.push(agent.map(|m| m.0));
                    self.run_ids.push(locked.map(|l| l.graph.run.id.0));
                    let skill = task.is_some_and(|t| {
                        t.tool_name.as_deref() == Some("skill") && t.target.is_some()
                    });
                    let new = locked.and_then(|l| l.graph.changes.tasks_new.get(no));
                    let input = new.filter(|_| skill).and_then(|n| n.tool_input.as_ref());
                    self.new_inputs.push(input.map(|i| i.as_str().to_owned()));
                }
            }
            Want::Failures => self.failures.run(target),
            Want::Arms(nos) => self.arms.nos(target, nos),
            Want::Parks(nos) => self.parks.nos(target, nos),
            Want::Rests(most) => {
                self.rests.run(target);
                self.rests
                    .nos
                    .push(i32::try_from(*most).unwrap_or(i32::MAX));
            }
            Want::Resting(reason) => {
                self.resting.run(target);
                self.resting
                    .keys
                    .push(resting_kind(*reason).as_str().to_owned());
            }
            Want::Host => self.hosts.run(target),
            Want::Rules(nos) => self.rules.nos(target, nos),
            Want::Watchers(nos) => self.watchers.nos(target, nos),
            Want::Observed(nos) => self.observed.nos(target, nos),
            Want::Into(nos) => self.into.nos(target, nos),
        }
    }

    fn fill<'a>(&'a self, batch: &mut Batch<'a>) -> Vec<Read> {
        let mut reads = Vec::new();
        let by_key: [(Read, &'static Sql, &'a Wanted); 7] = [
            (Read::Slice, &LOAD_KEYS, &self.keys),
            (Read::Slice, &LOAD_REPAIR, &self.repairs),
            (Read::Into, &LOAD_REPAIR_INTO, &self.repairs),
            (Read::Slice, &LOAD_BRANCH, &self.branches),
            (Read::Into, &LOAD_BRANCH_INTO, &self.branches),
            (Read::Receipts, &LOAD_RECEIPTS, &self.receipts),
            (Read::Resting, &LOAD_RESTING, &self.resting),
        ];
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
        add(Read::Locks, &LOCK_ALL_PARKS, &self.branches, false);
        add(Read::Locks, &LOCK_PARKS, &self.parks, true);
        add(Read::Slice, &LOAD_NOS, &self.parked, true);
        add(Read::Slice, &LOAD_NOS, &self.nos, true);
        add(Read::Slice, &LOAD_DOWNSTREAM, &self.downstream, true);
        add(Read::Slice, &LOAD_OPEN, &self.open, false);
        add(Read::Failures, &LOAD_FAILURES, &self.failures, false);
        add(Read::Slice, &LOAD_ARMS, &self.arms, true);
        add(Read::Selections, &LOAD_SELECTIONS, &self.arms, true);
        add(Read::LockedParks, &LOAD_NOS, &self.parks, true);
        add(Read::Rests, &LOAD_RESTS, &self.rests, true);
        add(Read::Hosts, &LOAD_HOST, &self.hosts, false);
        add(Read::Rules, &LOAD_RULES, &self.rules, true);
        add(Read::Watchers, &LOAD_WATCHERS, &self.watchers, true);
        add(Read::Rows, &LOAD_OBSERVED, &self.observed, true);
        add(Read::Bodies, &LOAD_BODIES, &self.observed, true);
        add(Read::Into, &LOAD_INTO, &self.into, true);
        let calls = &self.addressees;
        if !calls.accounts.is_empty() {
            batch.add(
                &LOAD_ADDRESSEES,
                vec![
                    &calls.accounts,
                    &calls.runs,
                    &calls.nos,
                    &self.tools,
                    &self.targets,
                    &self.agents,
                    &self.run_ids,
                    &self.new_inputs,
                ],
            );
            reads.push(Read::Addressees);
        }
        let standing = &self.standing;
        if !standing.accounts.is_empty() {
            let w = standing;
            batch.add(&LOAD_STANDING, vec![&w.accounts, &w.runs, &w.keys, &w.nos]);
            reads.push(Read::Rows);
        }
        for (read, sql, wanted) in by_key {
            if !wanted.accounts.is_empty() {
                batch.add(sql, vec![&wanted.accounts, &wanted.runs, &wanted.keys]);
                reads.push(read);
            }
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

impl Store {
    /// Those of these runs that do not exist: what [`Store::lock_runs`] left out is these, or held.
    ///
    /// # Errors
    /// A fault.
    pub async fn absent_runs(&self, runs: &[RunTarget]) -> Result<BTreeSet<RunTarget>, Error> {
        let accounts: Vec<i64> = runs.iter().map(|t| t.account.0).collect();
        let ids: Vec<uuid::Uuid> = runs.iter().map(|t| t.run.0).collect();
        let conn = self.conn().await?;
        let rows = conn.query(&ABSENT, &[&accounts, &ids]).await?;
        Ok(rows.iter().map(target_of).collect())
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
            loads.want(target, want, self.runs.get(target));
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
                receipts: BTreeMap::new(),
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
                Read::Into => self.take_into(rows)?,
                Read::Rows | Read::Resting => self.take_rows(rows)?,
                Read::Selections => self.take_selections(rows)?,
                Read::LockedParks => self.take_locked_parks(rows)?,
                Read::Rests => self.take_rests(rows)?,
                Read::Hosts => self.take_hosts(rows),
                Read::Rules => self.take_rules(rows)?,
                Read::Watchers => {
                    self.take_slice(rows, false)?;
                    self.take_watchers(rows);
                }
                Read::Bodies => self.take_bodies(rows)?,
                Read::Receipts => self.take_receipts(rows),
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
                document: document(row),
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

impl RunTx {
    fn take_into(&mut self, rows: &[Row]) -> Result<(), Error> {
        let mut found: BTreeMap<(RunTarget, TaskNo), Vec<(TaskNo, EdgeState)>> = BTreeMap::new();
        for row in rows {
            let at = (target_of(row), TaskNo(row.get("task_no")));
            let into = found.entry(at).or_default();
            if let Some(from) = row.get::<_, Option<i32>>("from_no") {
                into.push((TaskNo(from), rows::word(row, "edges", "state")?));
            }
        }
        for ((target, no), into) in found {
            if let Some(locked) = self.runs.get_mut(&target) {
                locked.graph.put_into(no, into);
            }
        }
        Ok(())
    }

    fn take_rows(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            if let Some(locked) = self.runs.get_mut(&target_of(row)) {
                let task = rows::task(row)?;
                if let Some(park) = rows::park(row, task.no)? {
                    locked.graph.put_park(park);
                }
                locked.graph.put_task(task);
            }
        }
        Ok(())
    }

    fn take_selections(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            if let Some(locked) = self.runs.get_mut(&target_of(row)) {
                let no = TaskNo(row.get("task_no"));
                let selection = rows::selection(row, no)?;
                locked.graph.put_arms(&[], vec![(no, selection)]);
            }
        }
        Ok(())
    }

    fn take_locked_parks(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            let of_itself = row.get::<_, Option<i32>>("from_no").is_none();
            if let Some(locked) = self.runs.get_mut(&target_of(row)).filter(|_| of_itself) {
                let no = TaskNo(row.get("task_no"));
                let park = rows::park(row, no)?;
                locked
                    .graph
                    .put_locked_parks(&[no], park.into_iter().collect());
            }
        }
        self.take_slice(rows, false)
    }

    fn take_rests(&mut self, rows: &[Row]) -> Result<(), Error> {
        let mut found: BTreeMap<RunTarget, Vec<(TaskNo, Rest)>> = BTreeMap::new();
        for row in rows {
            let rest = match rows::word(row, "parks", "kind")? {
                ParkKind::ToolCall => Rest::Unclaimed,
                ParkKind::Ask => Rest::Question,
                ParkKind::Wait | ParkKind::Approval => Rest::Wait,
            };
            let no = TaskNo(row.get("task_no"));
            found.entry(target_of(row)).or_default().push((no, rest));
        }
        for (target, rests) in found {
            if let Some(locked) = self.runs.get_mut(&target) {
                locked.graph.put_rests(rests);
            }
        }
        Ok(())
    }

    fn take_hosts(&mut self, rows: &[Row]) {
        for row in rows {
            if let Some(locked) = self.runs.get_mut(&target_of(row)) {
                locked.graph.put_host(Some(Host {
                    id: ExecutorId(row.get("executor_id")),
                    public_id: PublicId(row.get("executor_public_id")),
                }));
            }
        }
    }

    fn take_rules(&mut self, rows: &[Row]) -> Result<(), Error> {
        let mut inputs: BTreeMap<RunTarget, Vec<(TaskNo, Value)>> = BTreeMap::new();
        let mut rules: BTreeMap<RunTarget, Rules> = BTreeMap::new();
        for row in rows {
            let (target, no) = (target_of(row), TaskNo(row.get("task_no")));
            if let Some(text) = row.get::<_, Option<&str>>("approval_rules") {
                let value = rows::json(text, "runs", "approval_rules")?;
                let read = Rules::read(&value)
                    .map_err(|e| Error::inconsistent("runs", "approval_rules", e))?;
                rules.insert(target, read.0);
            }
            let inputs = inputs.entry(target).or_default();
            // A row that this transaction adds has none yet: the slice knows it.
            if let Some(input) = row.get::<_, Option<&str>>("tool_input") {
                inputs.push((no, rows::json(input, "task_inputs", "tool_input")?));
            }
        }
        for (target, inputs) in inputs {
            if let Some(locked) = self.runs.get_mut(&target) {
                let rules = rules.remove(&target).unwrap_or_default();
                locked.graph.put_rules(Arc::new(rules), inputs);
            }
        }
        Ok(())
    }

    fn take_receipts(&mut self, rows: &[Row]) {
        for row in rows {
            if let Some(locked) = self.runs.get_mut(&target_of(row)) {
                let stored = StoredAppend {
                    fingerprint: row.get("fingerprint"),
                    body: Canonical::trusted(row.get("body")),
                };
                locked.receipts.insert(row.get("key"), stored);
            }
        }
    }

    fn take_watchers(&mut self, rows: &[Row]) {
        for row in rows {
            let of_itself = row.get::<_, Option<i32>>("from_no").is_none();
            if let Some(locked) = self.runs.get_mut(&target_of(row)).filter(|_| of_itself) {
                locked.graph.watch(TaskNo(row.get("task_no")));
            }
        }
    }

    fn take_bodies(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            if let Some(locked) = self.runs.get_mut(&target_of(row)) {
                let no = TaskNo(row.get("task_no"));
                if row.get::<_, Option<&str>>("selection").is_some() {
                    let selection = rows::selection(row, no)?;
                    locked.graph.put_arms(&[], vec![(no, selection)]);
                }
                locked.graph.put_seen(
                    no,
                    Seen {
                        content: row.get("content"),
                        structured: row.get("structured"),
                        tool_input: row.get("tool_input"),
                        definition: row.get("definition"),
                    },
                );
            }
        }
        Ok(())
    }
}

/// What kind of park the rows of a reason have.
fn resting_kind(reason: AttentionReason) -> ParkKind {
    match reason {
        AttentionReason::AwaitingHuman => ParkKind::Ask,
        _ => ParkKind::Approval,
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

/// Which document a `skill` names (`input.name`), and which are announced; none on other tools.
fn document(row: &Row) -> Option<Document> {
    let name_of = |value: &Value| Some(value.as_object()?.get("name")?.as_str()?.to_owned());
    let input: Option<String> = row.get("skill_input");
    let announced: Option<String> = row.get("skill_documents");
    let announced = json::parse(announced?.as_bytes()).ok();
    let announced = announced.as_ref().and_then(Value::as_array);
    Some(Document {
        named: json::parse(input?.as_bytes())
            .ok()
            .as_ref()
            .and_then(name_of),
        announced: announced
            .into_iter()
            .flatten()
            .filter_map(name_of)
            .collect(),
    })
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
        Want::Arms(nos) => locked.graph.put_arms(nos, Vec::new()),
        Want::Parks(nos) => locked.graph.put_locked_parks(nos, Vec::new()),
        Want::Rests(_) => locked.graph.put_rests(Vec::new()),
        Want::Resting(reason) => locked.graph.put_resting(*reason),
        Want::Host => locked.graph.put_host(None),
        Want::Rules(_)
        | Want::Watchers(_)
        | Want::Observed(_)
        | Want::Into(_)
        | Want::Edges(_)
        | Want::Downstream(_)
        | Want::Row(_) => {}
    }
}
