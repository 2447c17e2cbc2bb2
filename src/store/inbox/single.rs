//! Claims of one row: the facts, and the guarded update (`executor.md` §8).

use tokio_postgres::types::Type;

use super::{
    Error, ExecutorId, Granted, PublicId, RunId, Sql, Store, TaskKey, TaskNo, caller_of, claim,
    facts, granted, rows,
};
use crate::domain::AccountId;
use crate::store::rows::executor_columns;
use crate::store::sql::Params;

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

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&CLAIM_FACTS, &GRANT_ONE, &RECOVER];

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
        let params: Params<'_> = &[&account.0, &executor.0, &run.0, &key.as_str()];
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
}
