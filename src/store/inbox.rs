//! The inbox and its claims: open work only, whatever the history (`executor.md` §6, §8;
//! `architecture.md` §4, §8).
//!
//! A claim is the one write to a graph that takes no run lock: a guarded update of one park row
//! (or of a set of them). Pages of parks are taken first, then one probe a table, so that no plan
//! reads an account.

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::rows::{self, executor_columns};
use super::views::{AddressedTo, ExecutorRef};
use super::{Error, Sql, Store};
use crate::domain::json::Canonical;
use crate::domain::time::At;
use crate::domain::words::{ParkKind, Role};
use crate::domain::{AccountId, ExecutorId, ParkNo, PublicId, RunId, TaskKey, TaskNo, Timestamp};
use crate::engine::claim;
use crate::engine::eligibility::PrincipalFacts;
use crate::engine::facts::Caller;

/// A row as an executor sees it (`executor.md` §6).
#[derive(Debug, Clone, Serialize)]
pub struct InboxRow {
    /// What it is.
    pub kind: ParkKind,
    /// Its run.
    pub run_public_id: PublicId,
    /// Its workspace.
    pub workspace_public_id: PublicId,
    /// Its conversation; null when it has none.
    pub conversation_public_id: Option<PublicId>,
    /// Its parent run; null when it has none.
    pub parent_public_id: Option<PublicId>,
    /// Its key.
    pub task_key: TaskKey,
    /// The served tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// How the model spelled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_alias: Option<String>,
    /// The input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_input: Option<Canonical>,
    /// The provider's pairing id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The accepted runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<ExecutorRef>,
    /// Since when.
    pub started_at: At,
    /// The one clock.
    pub deadline_at: At,
    /// The budget; never moves.
    pub timeout_ms: i64,
    /// Whether anyone claimed it in this generation.
    pub claimed: bool,
    /// Whom it is for.
    pub addressed_to: AddressedTo,
}

/// A row of the inbox with what its listing and its claim are judged on.
#[derive(Debug)]
pub struct Listed {
    /// Cursor.
    pub park_no: ParkNo,
    /// Inner id of its run.
    pub run: RunId,
    /// Number in its run.
    pub task: TaskNo,
    /// Whether it can be listed now: its run works and is not tombstoned, and no other member of
    /// the pool took it.
    pub listable: bool,
    /// What a claim of it would be judged on.
    pub facts: claim::Facts,
    /// The row.
    pub row: InboxRow,
}

/// A claim that was granted or recovered.
#[derive(Debug)]
pub struct Granted {
    /// The executable row.
    pub row: InboxRow,
    /// Its new deadline, exactly.
    pub deadline_at: Timestamp,
    /// Number in its run and inner run id, to pair grants with tokens.
    pub at: (RunId, TaskNo),
}

/// The unique index that a twin's key meets.
pub const CLAIMS_RECEIPT: &str = "receipts_account_id_door_scope_id_caller_id_key_key";

/// What proves, by whom and under which key a claim is taken.
#[derive(Debug, Clone, Copy)]
pub struct Taking<'a> {
    /// The claimant.
    pub caller: ExecutorId,
    /// Its epoch, which must still be current.
    pub epoch: i32,
    /// SHA-256 of the Idempotency-Key.
    pub key: Option<&'a [u8]>,
}

macro_rules! row_columns {
    () => {
        "p.park_no, p.run_id, p.task_no, p.kind AS park_kind, p.started_at AS park_started_at, p.deadline_at,
         p.timeout_ms AS park_timeout_ms, p.claimed_at, p.executor_id AS park_executor_id,
         r.public_id AS run_public_id, w.public_id AS workspace_public_id,
         t.key, t.tool_name, t.tool_alias, t.tool_call_id, t.addressed_role, t.addressed_executor_id, i.tool_input,
         ae.public_id AS addressed_public_id, te.public_id AS target_public_id, te.display_name AS target_name"
    };
}

macro_rules! row_joins {
    () => {
        "CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = p.account_id AND r.run_id = p.run_id OFFSET 0) r
         CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = p.account_id AND t.run_id = p.run_id
                                AND t.task_no = p.task_no OFFSET 0) t
         CROSS JOIN LATERAL (SELECT w.public_id FROM workspaces w WHERE w.account_id = p.account_id
                                AND w.workspace_id = r.workspace_id OFFSET 0) w
          LEFT JOIN LATERAL (SELECT i.tool_input FROM task_inputs i WHERE i.account_id = p.account_id AND i.run_id = p.run_id
                                AND i.task_no = p.task_no OFFSET 0) i ON true
          LEFT JOIN LATERAL (SELECT e.public_id FROM executors e WHERE e.account_id = p.account_id
                                AND e.executor_id = t.addressed_executor_id OFFSET 0) ae ON true
          LEFT JOIN LATERAL (SELECT e.public_id, e.display_name FROM executors e WHERE e.account_id = p.account_id
                                AND e.executor_id = t.target_executor_id OFFSET 0) te ON true"
    };
}

/// What a claim is judged on, beside [`row_columns`] or alone: from r, t, p, its principal pm.
macro_rules! judged_columns {
    () => {
        "r.status AS run_status, r.force_stopped, r.deleted_at IS NOT NULL AS tombstoned, r.principal_id, r.declaring_agent_id,
         pm.kind AS principal_kind, pm.controlling_human_id,
         EXISTS (SELECT 1 FROM grants g JOIN members cm ON cm.account_id = g.account_id AND cm.member_id = g.member_id
                   JOIN workspaces gw ON gw.account_id = g.account_id AND gw.workspace_id = g.workspace_id
                  WHERE g.account_id = r.account_id AND g.workspace_id = r.workspace_id AND g.member_id = r.creator_id
                    AND g.access = 'write' AND cm.status = 'active' AND gw.archived_at IS NULL) AS creator_may_write,
         t.kind AS task_kind, t.status AS task_status, t.generation, p.claimant_id, p.claim_key"
    };
}

static CLAIM_FACTS: Sql = Sql::new(
    "inbox.claim_facts",
    concat!(
        "SELECT ", judged_columns!(), ", ", executor_columns!(), ", t.task_no, r.run_id, t.addressed_role,
                t.addressed_executor_id, p.kind AS park_kind,
                EXISTS (SELECT 1 FROM served_tools s WHERE s.account_id = e.account_id AND s.executor_id = e.executor_id
                           AND s.name = t.tool_name) AS announces
           FROM executors e
           LEFT JOIN members ea ON ea.account_id = e.account_id AND ea.member_id = e.agent_id
          CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = $1 AND r.public_id = $3 AND r.deleted_at IS NULL OFFSET 0) r
          CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = $1 AND t.run_id = r.run_id AND t.key = $4 OFFSET 0) t
           LEFT JOIN LATERAL (SELECT * FROM parks p WHERE p.account_id = $1 AND p.run_id = r.run_id
                                 AND p.task_no = t.task_no OFFSET 0) p ON true
           JOIN members pm ON pm.account_id = r.account_id AND pm.member_id = r.principal_id
          WHERE e.account_id = $1 AND e.executor_id = $2"
    ),
    &[Type::INT8, Type::INT8, Type::UUID, Type::TEXT],
);

/// The caller alone, as it stands now.
static CALLER: Sql = Sql::new(
    "inbox.caller",
    concat!(
        "SELECT ",
        executor_columns!(),
        " FROM executors e
           LEFT JOIN members ea ON ea.account_id = e.account_id AND ea.member_id = e.agent_id
          WHERE e.account_id = $1 AND e.executor_id = $2"
    ),
    &[Type::INT8, Type::INT8],
);

/// Takes unclaimed parks. What a pause, a stop, an expiry, a retry or another claim did meanwhile
/// shows in the guard: the row is gone, frozen, of another generation, or claimed. Locked rows are
/// updated by their place; one that moved between the snapshot and its lock is left out, as if
/// somebody held it.
static GRANT: Sql = Sql::new(
    "inbox.grant",
    concat!(
        "WITH take AS MATERIALIZED (
            SELECT p.ctid AS place, v.digest
              FROM (SELECT * FROM unnest($3::bigint[], $4::int[], $5::int[], $6::bytea[]) AS v(run_id, task_no, generation, digest)
                     ORDER BY v.run_id, v.task_no) v
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = $1 AND r.run_id = v.run_id OFFSET 0) r
             CROSS JOIN LATERAL (SELECT p.ctid, p.* FROM parks p WHERE p.account_id = $1 AND p.run_id = v.run_id
                                    AND p.task_no = v.task_no FOR UPDATE SKIP LOCKED) p
             WHERE p.kind = 'tool_call' AND p.claimed_at IS NULL AND p.generation = v.generation AND NOT p.clock_frozen
               AND r.status IN ('running', 'canceling') AND NOT r.force_stopped AND r.deleted_at IS NULL
               AND EXISTS (SELECT 1 FROM executors e WHERE e.account_id = $1 AND e.executor_id = $2
                              AND e.status = 'active' AND e.credential_epoch = $7 AND e.shutdown_at IS NULL)),
         p AS (UPDATE parks p SET claim_digest = take.digest, claim_key = $8, claimant_id = $2, claimed_at = nexus_now(),
                      deadline_at = nexus_now() + p.timeout_ms * interval '1 millisecond'
                 FROM take
                WHERE p.ctid = take.place AND p.claimed_at IS NULL
            RETURNING p.*),
         receipt AS (INSERT INTO receipts (account_id, door, scope_id, caller_id, key, fingerprint, body, created_at)
            SELECT $1, 'claims', $2, $2, $9, '', '', nexus_now() WHERE $9 IS NOT NULL AND EXISTS (SELECT 1 FROM p))
         SELECT ", row_columns!(), " FROM p ", row_joins!(), " ORDER BY p.park_no"
    ),
    &[
        Type::INT8, Type::INT8, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::BYTEA_ARRAY, Type::INT4,
        Type::BYTEA, Type::TEXT,
    ],
);

/// One park, waiting for whoever holds its row: a single claim must say who won.
static GRANT_ONE: Sql = Sql::new(
    "inbox.grant_one",
    concat!(
        "WITH p AS (UPDATE parks p SET claim_digest = $6, claim_key = $8, claimant_id = $2, claimed_at = nexus_now(),
                      deadline_at = nexus_now() + p.timeout_ms * interval '1 millisecond'
                WHERE p.account_id = $1 AND p.run_id = $3 AND p.task_no = $4 AND p.generation = $5
                  AND p.kind = 'tool_call' AND p.claimed_at IS NULL AND NOT p.clock_frozen
                  AND EXISTS (SELECT 1 FROM runs r WHERE r.account_id = $1 AND r.run_id = $3
                                 AND r.status IN ('running', 'canceling') AND NOT r.force_stopped AND r.deleted_at IS NULL)
                  AND EXISTS (SELECT 1 FROM executors e WHERE e.account_id = $1 AND e.executor_id = $2
                                 AND e.status = 'active' AND e.credential_epoch = $7 AND e.shutdown_at IS NULL)
            RETURNING p.*)
         SELECT ", row_columns!(), " FROM p ", row_joins!()
    ),
    &[Type::INT8, Type::INT8, Type::INT8, Type::INT4, Type::INT4, Type::BYTEA, Type::INT4, Type::BYTEA],
);

/// A new token for a claim that stands, under the key it was taken with; the clock is untouched.
static RECOVER: Sql = Sql::new(
    "inbox.recover",
    concat!(
        "WITH p AS (UPDATE parks p SET claim_digest = v.digest
                 FROM unnest($3::bigint[], $4::int[], $5::int[], $6::bytea[]) AS v(run_id, task_no, generation, digest)
                WHERE p.account_id = $1 AND p.run_id = v.run_id AND p.task_no = v.task_no AND p.generation = v.generation
                  AND p.claimant_id = $2 AND p.claim_key = $7
            RETURNING p.*)
         SELECT ", row_columns!(), " FROM p ", row_joins!(), " ORDER BY p.park_no"
    ),
    &[
        Type::INT8, Type::INT8, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::BYTEA_ARRAY, Type::BYTEA,
    ],
);

/// Whether a key was used for a batch of claims: older than a day it is new again, whenever the sweep
/// comes (`conventions.md` §8).
static KEY_USED: Sql = Sql::new(
    "inbox.key_used",
    "SELECT created_at + interval '24 hours' < nexus_now() AS expired FROM receipts
      WHERE account_id = $1 AND door = 'claims' AND scope_id = $2 AND caller_id = $2 AND key = $3",
    &[Type::INT8, Type::INT8, Type::TEXT],
);

static KEY_EXPIRE: Sql = Sql::new(
    "inbox.key_expire",
    "DELETE FROM receipts WHERE account_id = $1 AND door = 'claims' AND scope_id = $2 AND caller_id = $2 AND key = $3
        AND created_at + interval '24 hours' < nexus_now()",
    &[Type::INT8, Type::INT8, Type::TEXT],
);

/// The claims of one executor under one key, among what is addressed to it or to its pools. Those of
/// an earlier use of the key, a day before, may stand still: they are not of this batch. The receipt
/// is written in the statement of its first claims, which ends within seconds.
static HELD_UNDER: Sql = Sql::new(
    "inbox.held_under",
    "WITH p AS (
        SELECT p.* FROM parks p WHERE p.account_id = $1 AND p.executor_id = $2 AND p.claimant_id = $2 AND p.claim_key = $3
        UNION ALL
        SELECT p.* FROM served_tools s
         CROSS JOIN LATERAL (SELECT * FROM parks p WHERE p.account_id = $1 AND p.executor_id IS NULL AND p.pool_name = s.name
                                AND p.claimant_id = $2 AND p.claim_key = $3 OFFSET 0) p
         WHERE s.account_id = $1 AND s.executor_id = $2)
     SELECT p.run_id, p.task_no, p.generation FROM p
      WHERE p.claimed_at > (SELECT created_at FROM receipts WHERE account_id = $1 AND door = 'claims' AND scope_id = $2
                               AND caller_id = $2 AND key = $4) - interval '1 hour'
      ORDER BY p.park_no",
    &[Type::INT8, Type::INT8, Type::BYTEA, Type::TEXT],
);

/// A page of the parks addressed to an executor or to its pools, oldest first.
macro_rules! page {
    ($unclaimed:literal) => {
        concat!(
            "WITH page AS MATERIALIZED (
                (SELECT p.* FROM parks p WHERE p.account_id = $1 AND p.executor_id = $2 AND p.park_no > $3 ", $unclaimed, "
                  ORDER BY p.park_no LIMIT $4)
                UNION ALL
                (SELECT p.* FROM served_tools s
                  CROSS JOIN LATERAL (SELECT * FROM parks p WHERE p.account_id = $1 AND p.executor_id IS NULL
                                         AND p.pool_name = s.name AND p.park_no > $3 ", $unclaimed, "
                                       ORDER BY p.park_no LIMIT $4 OFFSET 0) p
                  WHERE s.account_id = $1 AND s.executor_id = $2 AND $5)
                ORDER BY park_no LIMIT $4)
             SELECT ", row_columns!(), ", ", judged_columns!(), "
               FROM page p ", row_joins!(), "
              CROSS JOIN LATERAL (SELECT * FROM members pm WHERE pm.account_id = r.account_id
                                     AND pm.member_id = r.principal_id OFFSET 0) pm
              ORDER BY p.park_no"
        )
    };
}

static PAGE: Sql = Sql::new(
    "inbox.page",
    page!(""),
    &[Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::BOOL],
);

static PAGE_UNCLAIMED: Sql = Sql::new(
    "inbox.page_unclaimed",
    page!("AND p.claimed_at IS NULL AND p.kind = 'tool_call'"),
    &[Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::BOOL],
);

/// Whether the token is of the latest claim, and whether that claim is still live.
static READ_CLAIM: Sql = Sql::new(
    "inbox.read_claim",
    "SELECT nexus_now() AS now, t.kind, t.status, t.tool_name, p.claimant_id AS live_by, p.claim_digest AS live_digest,
            t.claimed_by_id AS settled_by, t.claim_digest AS settled_digest, r.run_id, t.task_no,
            (p.deadline_at <= CASE WHEN r.status = 'paused' THEN r.paused_at ELSE nexus_now() END) AS elapsed
       FROM (SELECT * FROM runs r WHERE r.account_id = $1 AND r.public_id = $2 AND r.deleted_at IS NULL OFFSET 0) r
      CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id AND t.key = $3 OFFSET 0) t
       LEFT JOIN LATERAL (SELECT * FROM parks p WHERE p.account_id = t.account_id AND p.run_id = t.run_id
                             AND p.task_no = t.task_no OFFSET 0) p ON true",
    &[Type::INT8, Type::UUID, Type::TEXT],
);

static RUN_EXISTS: Sql = Sql::new(
    "inbox.run_exists",
    "SELECT EXISTS (SELECT FROM runs WHERE account_id = $1 AND public_id = $2 AND deleted_at IS NULL)",
    &[Type::INT8, Type::UUID],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &CLAIM_FACTS,
    &CALLER,
    &GRANT,
    &GRANT_ONE,
    &RECOVER,
    &KEY_USED,
    &KEY_EXPIRE,
    &HELD_UNDER,
    &PAGE,
    &PAGE_UNCLAIMED,
    &READ_CLAIM,
    &RUN_EXISTS,
];

fn inbox_row(row: &Row) -> Result<InboxRow, Error> {
    let id = |column: &str| row.get::<_, Option<uuid::Uuid>>(column).map(PublicId);
    let role: Option<Role> = rows::word_opt(row, "tasks", "addressed_role")?;
    let key: String = row.get("key");
    Ok(InboxRow {
        kind: rows::word(row, "parks", "park_kind")?,
        run_public_id: PublicId(row.get("run_public_id")),
        workspace_public_id: PublicId(row.get("workspace_public_id")),
        conversation_public_id: None,
        parent_public_id: None,
        tool_name: row.get("tool_name"),
        tool_alias: row.get("tool_alias"),
        tool_input: row
            .get::<_, Option<String>>("tool_input")
            .map(Canonical::trusted),
        tool_call_id: row.get("tool_call_id"),
        target: id("target_public_id").map(|executor_public_id| ExecutorRef {
            executor_public_id,
            display_name: row.get("target_name"),
        }),
        started_at: At(row.get("park_started_at")),
        deadline_at: At(row.get("deadline_at")),
        timeout_ms: row.get("park_timeout_ms"),
        claimed: row.get::<_, Option<Timestamp>>("claimed_at").is_some(),
        addressed_to: AddressedTo {
            role: role.ok_or_else(|| Error::inconsistent("tasks", "addressed_role", &key))?,
            executor_public_id: id("addressed_public_id"),
        },
        task_key: TaskKey::trusted(key),
    })
}

fn facts(row: &Row, caller: Caller, park: Option<ParkKind>) -> Result<claim::Facts, Error> {
    let principal: PrincipalFacts = rows::principal(row)?;
    Ok(claim::Facts {
        principal,
        creator_may_write: row.get("creator_may_write"),
        run_status: rows::word(row, "runs", "run_status")?,
        force_stopped: row.get("force_stopped"),
        task: TaskNo(row.get("task_no")),
        kind: rows::word(row, "tasks", "task_kind")?,
        status: rows::word(row, "tasks", "task_status")?,
        generation: row.get("generation"),
        addressed: rows::addressed(row)?,
        park,
        claim: row
            .get::<_, Option<i64>>("claimant_id")
            .map(|by| claim::Held {
                by: ExecutorId(by),
                key: row.get("claim_key"),
            }),
        caller,
    })
}

fn caller_of(row: &Row, announces: bool) -> Result<Caller, Error> {
    Ok(Caller {
        id: ExecutorId(row.get("executor_id")),
        public_id: PublicId(row.get("executor_public_id")),
        executor: rows::executor(row)?,
        epoch: row.get("credential_epoch"),
        announces,
    })
}

fn granted(row: &Row) -> Result<Granted, Error> {
    Ok(Granted {
        deadline_at: row.get("deadline_at"),
        at: (RunId(row.get("run_id")), TaskNo(row.get("task_no"))),
        row: inbox_row(row)?,
    })
}

/// A row to take, by what its facts said of it.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its run.
    pub run: RunId,
    /// Its number.
    pub task: TaskNo,
    /// The generation that was judged.
    pub generation: i32,
    /// SHA-256 of the token it will have.
    pub digest: [u8; 32],
}

struct WantedColumns {
    runs: Vec<i64>,
    tasks: Vec<i32>,
    generations: Vec<i32>,
    digests: Vec<Vec<u8>>,
}

impl WantedColumns {
    fn of(wanted: &[Wanted]) -> Self {
        Self {
            runs: wanted.iter().map(|w| w.run.0).collect(),
            tasks: wanted.iter().map(|w| w.task.0).collect(),
            generations: wanted.iter().map(|w| w.generation).collect(),
            digests: wanted.iter().map(|w| w.digest.to_vec()).collect(),
        }
    }
}

impl Store {
    /// What a claim is judged on, read without a lock; none when there is no such task. Gives the
    /// run's inner id beside it.
    ///
    /// # Errors
    /// A fault.
    pub async fn claim_facts(
        &self,
        account: AccountId,
        executor: ExecutorId,
        run: PublicId,
        key: &TaskKey,
    ) -> Result<Option<(RunId, claim::Facts)>, Error> {
        let conn = self.conn().await?;
        let params: super::sql::Params<'_> = &[&account.0, &executor.0, &run.0, &key.as_str()];
        let Some(row) = conn.query_opt(&CLAIM_FACTS, params).await? else {
            return Ok(None);
        };
        let caller = caller_of(&row, row.get("announces"))?;
        let park = rows::word_opt(&row, "parks", "park_kind")?;
        Ok(Some((RunId(row.get("run_id")), facts(&row, caller, park)?)))
    }

    /// Takes one park, if it is still as it was judged.
    ///
    /// # Errors
    /// A fault.
    pub async fn claim_grant(
        &self,
        account: AccountId,
        taking: Taking<'_>,
        wanted: &Wanted,
    ) -> Result<Option<Granted>, Error> {
        let conn = self.conn().await?;
        let row = conn
            .query_opt(
                &GRANT_ONE,
                &[
                    &account.0,
                    &taking.caller.0,
                    &wanted.run.0,
                    &wanted.task.0,
                    &wanted.generation,
                    &&wanted.digest[..],
                    &taking.epoch,
                    &taking.key,
                ],
            )
            .await?;
        row.as_ref().map(granted).transpose()
    }

    /// Takes those parks that are still as they were judged and that nobody holds; writes down in
    /// the same statement that `receipt`, a key, was used, if any was taken.
    ///
    /// # Errors
    /// A fault; the refusal of [`CLAIMS_RECEIPT`] when a twin used the key first.
    pub async fn claim_grant_many(
        &self,
        account: AccountId,
        taking: Taking<'_>,
        wanted: &[Wanted],
        receipt: Option<&str>,
    ) -> Result<Vec<Granted>, Error> {
        let c = WantedColumns::of(wanted);
        let conn = self.conn().await?;
        let rows = conn
            .query(
                &GRANT,
                &[
                    &account.0,
                    &taking.caller.0,
                    &c.runs,
                    &c.tasks,
                    &c.generations,
                    &c.digests,
                    &taking.epoch,
                    &taking.key,
                    &receipt,
                ],
            )
            .await?;
        rows.iter().map(granted).collect()
    }

    /// Whether this executor used a key for a batch of claims, within a day; an older use is
    /// forgotten here, so that the key can be used anew.
    ///
    /// # Errors
    /// A fault.
    pub async fn claims_key_used(
        &self,
        account: AccountId,
        caller: ExecutorId,
        key: &str,
    ) -> Result<bool, Error> {
        let conn = self.conn().await?;
        let params: [&(dyn ToSql + Sync); 3] = [&account.0, &caller.0, &key];
        let Some(used) = conn.query_opt(&KEY_USED, &params).await? else {
            return Ok(false);
        };
        let is_expired: bool = used.get("expired");
        if is_expired {
            // A twin that does the same meets the unique index when it grants, as twins do.
            conn.execute(&KEY_EXPIRE, &params).await?;
        }
        Ok(!is_expired)
    }

    /// New tokens for claims that stand under their key.
    ///
    /// # Errors
    /// A fault.
    pub async fn claim_recover(
        &self,
        account: AccountId,
        caller: ExecutorId,
        key: &[u8],
        wanted: &[Wanted],
    ) -> Result<Vec<Granted>, Error> {
        let c = WantedColumns::of(wanted);
        let conn = self.conn().await?;
        let rows = conn
            .query(
                &RECOVER,
                &[
                    &account.0,
                    &caller.0,
                    &c.runs,
                    &c.tasks,
                    &c.generations,
                    &c.digests,
                    &key,
                ],
            )
            .await?;
        rows.iter().map(granted).collect()
    }

    /// The rows that an executor holds of the batch it claimed under a key: run, task, generation.
    /// `digest` is what the parks keep of it.
    ///
    /// # Errors
    /// A fault.
    pub async fn claims_under(
        &self,
        account: AccountId,
        caller: ExecutorId,
        key: &str,
        digest: &[u8],
    ) -> Result<Vec<(RunId, TaskNo, i32)>, Error> {
        let conn = self.conn().await?;
        let rows = conn
            .query(&HELD_UNDER, &[&account.0, &caller.0, &digest, &key])
            .await?;
        Ok(rows
            .iter()
            .map(|r| (RunId(r.get(0)), TaskNo(r.get(1)), r.get(2)))
            .collect())
    }

    /// An executor as it stands now.
    ///
    /// # Errors
    /// A fault.
    pub async fn inbox_caller(
        &self,
        account: AccountId,
        executor: ExecutorId,
    ) -> Result<Option<Caller>, Error> {
        let conn = self.conn().await?;
        let row = conn.query_opt(&CALLER, &[&account.0, &executor.0]).await?;
        row.map(|row| caller_of(&row, true)).transpose()
    }

    /// A page of what is addressed to the caller or its pools, oldest first; the rows as fetched,
    /// to be judged one by one.
    ///
    /// # Errors
    /// A fault.
    pub async fn inbox_page(
        &self,
        account: AccountId,
        caller: &Caller,
        after: i64,
        limit: i64,
        unclaimed: bool,
    ) -> Result<Vec<Listed>, Error> {
        let pools = caller.executor.kind == crate::domain::words::ExecutorKind::ToolProvider;
        let sql = if unclaimed { &PAGE_UNCLAIMED } else { &PAGE };
        let conn = self.conn().await?;
        let rows = conn
            .query(sql, &[&account.0, &caller.id.0, &after, &limit, &pools])
            .await?;
        rows.iter().map(|row| listed(row, *caller)).collect()
    }

    /// The two sides of a claim read: the task's claim (live or final), and its row.
    ///
    /// # Errors
    /// A fault.
    pub async fn read_claim(
        &self,
        account: AccountId,
        run: PublicId,
        key: &TaskKey,
    ) -> Result<Option<ClaimState>, Error> {
        let conn = self.conn().await?;
        let row = conn
            .query_opt(&READ_CLAIM, &[&account.0, &run.0, &key.as_str()])
            .await?;
        row.map(|row| {
            let live: Option<i64> = row.get("live_by");
            let (by, digest) = if live.is_some() {
                (live, row.get("live_digest"))
            } else {
                (row.get("settled_by"), row.get("settled_digest"))
            };
            Ok(ClaimState {
                run: RunId(row.get("run_id")),
                task: TaskNo(row.get("task_no")),
                kind: rows::word(&row, "tasks", "kind")?,
                status: rows::word(&row, "tasks", "status")?,
                by: by.map(ExecutorId),
                digest,
                elapsed: row.get::<_, Option<bool>>("elapsed").unwrap_or(true),
                tool_name: row.get("tool_name"),
                now: row.get("now"),
            })
        })
        .transpose()
    }
}

impl Store {
    /// Whether there is such a run in the account.
    ///
    /// # Errors
    /// A fault.
    pub async fn run_exists(&self, account: AccountId, run: PublicId) -> Result<bool, Error> {
        let conn = self.conn().await?;
        let row = conn.query_one(&RUN_EXISTS, &[&account.0, &run.0]).await?;
        Ok(row.get(0))
    }
}

fn listed(row: &Row, caller: Caller) -> Result<Listed, Error> {
    let park: ParkKind = rows::word(row, "parks", "park_kind")?;
    let facts = facts(row, caller, Some(park))?;
    let pooled = row.get::<_, Option<i64>>("park_executor_id").is_none();
    let taken_by_another = pooled && facts.claim.as_ref().is_some_and(|c| c.by != caller.id);
    let working = matches!(
        facts.run_status,
        crate::domain::words::RunStatus::Running | crate::domain::words::RunStatus::Canceling
    );
    Ok(Listed {
        park_no: ParkNo(row.get("park_no")),
        run: RunId(row.get("run_id")),
        task: facts.task,
        listable: working
            && !facts.force_stopped
            && !taken_by_another
            && !row.get::<_, bool>("tombstoned"),
        row: inbox_row(row)?,
        facts,
    })
}

/// What a claim read is judged on.
#[derive(Debug)]
pub struct ClaimState {
    /// Inner id of the run.
    pub run: RunId,
    /// Number in the run.
    pub task: TaskNo,
    /// The row's kind.
    pub kind: crate::domain::words::TaskKind,
    /// The row's state.
    pub status: crate::domain::words::TaskStatus,
    /// The claimant of the latest claim.
    pub by: Option<ExecutorId>,
    /// The digest of its token.
    pub digest: Option<Vec<u8>>,
    /// Whether its deadline has passed on the run's clock, or there is none any more.
    pub elapsed: bool,
    /// The served name of its tool, on tool calls.
    pub tool_name: Option<String>,
    /// The database's time.
    pub now: Timestamp,
}
