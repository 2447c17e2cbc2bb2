//! Executors that leave: what is still parked on them, and the marks that they are gone
//! (`executor.md` §19).

use tokio_postgres::types::Type;

use super::due::Part;
use super::{Error, RunTarget, Sql, Store};
use crate::domain::{AccountId, ExecutorId, MemberId, PublicId, RunId, TaskNo};

static UNCLAIMED: Sql = Sql::new(
    "leaving.unclaimed",
    "WITH page AS MATERIALIZED (
        SELECT p.account_id, p.run_id, p.task_no FROM parks p
         WHERE p.account_id = $1 AND p.executor_id = $2 AND p.claimed_at IS NULL AND p.kind = 'tool_call'
         ORDER BY p.park_no LIMIT $3)
     SELECT r.public_id, page.task_no FROM page
      CROSS JOIN LATERAL (SELECT r.public_id FROM runs r WHERE r.account_id = page.account_id
                             AND r.run_id = page.run_id OFFSET 0) r
      ORDER BY r.public_id, page.task_no",
    &[Type::INT8, Type::INT8, Type::INT8],
);

/// A revoked executor is settled once nothing waits for it, and no transaction that read it as
/// eligible can still be under way (statements end after 10 s).
static REVOKE_SETTLED: Sql = Sql::new(
    "leaving.revoke_settled",
    "UPDATE executors e SET revoke_settled_at = nexus_now()
      WHERE e.account_id = $1 AND e.executor_id = $2 AND e.revoked_at < nexus_now() - interval '60 seconds'
        AND e.revoke_settled_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM parks p WHERE p.account_id = e.account_id AND p.executor_id = e.executor_id
                           AND p.claimed_at IS NULL AND p.kind = 'tool_call')",
    &[Type::INT8, Type::INT8],
);

/// A shutdown is acknowledged when nothing addressed or claimed remains: the generation is stored,
/// and every token of the executor is dead. Claims of pool rows are found by their claimant.
static SHUTDOWN_DONE: Sql = Sql::new(
    "leaving.shutdown_done",
    "UPDATE executors e SET shutdown_generation = e.credential_epoch + 1, credential_epoch = e.credential_epoch + 1
      WHERE e.account_id = $1 AND e.executor_id = $2 AND e.shutdown_at < nexus_now() - interval '15 seconds'
        AND e.shutdown_generation IS NULL
        AND NOT EXISTS (SELECT 1 FROM parks p WHERE p.account_id = e.account_id AND p.executor_id = e.executor_id)
        AND NOT EXISTS (SELECT 1 FROM parks p WHERE p.account_id = e.account_id AND p.executor_id IS NULL
                           AND p.claimant_id = e.executor_id)
     RETURNING e.public_id",
    &[Type::INT8, Type::INT8],
);

/// Suspensions that still have runs to stop.
static LOST: Sql = Sql::new(
    "leaving.lost",
    "SELECT account_id, member_id FROM lost_authority
      WHERE account_id % $1 = $2 AND (account_id, member_id) > ($3, $4)
      ORDER BY account_id, member_id LIMIT $5",
    &[Type::INT4, Type::INT4, Type::INT8, Type::INT8, Type::INT8],
);

/// Live runs of an account, or of one creator of it, that are not stopped already: open work only, by
/// `runs_live`.
static LIVE: Sql = Sql::new(
    "leaving.live",
    "SELECT run_id, public_id FROM runs
      WHERE account_id = $1 AND completed_at IS NULL AND ($2 = 0 OR creator_id = $2) AND run_id > $3 AND deleted_at IS NULL
        AND status IN ('running', 'paused', 'needs_attention', 'canceling') AND NOT force_stopped
      ORDER BY run_id LIMIT $4",
    &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
);

/// A minute after the suspension no request that authenticated before it can still start a run.
static LOST_SETTLED: Sql = Sql::new(
    "leaving.lost_settled",
    "DELETE FROM lost_authority WHERE account_id = $1 AND member_id = $2 AND lost_at < nexus_now() - interval '60 seconds'",
    &[Type::INT8, Type::INT8],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &UNCLAIMED,
    &REVOKE_SETTLED,
    &SHUTDOWN_DONE,
    &LOST,
    &LIVE,
    &LOST_SETTLED,
];

/// An account that was suspended, or a member of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lost {
    /// The account.
    pub account: AccountId,
    /// The member; none: the whole account.
    pub member: Option<MemberId>,
}

impl Lost {
    fn key(self) -> i64 {
        self.member.map_or(0, |m| m.0)
    }
}

impl Store {
    /// Unclaimed calls addressed to an executor, run by run, at most so many.
    ///
    /// # Errors
    /// A fault.
    pub async fn leaving_unclaimed(
        &self,
        account: AccountId,
        executor: ExecutorId,
        limit: usize,
    ) -> Result<Vec<(RunTarget, Vec<TaskNo>)>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let conn = self.conn().await?;
        let rows = conn
            .query(&UNCLAIMED, &[&account.0, &executor.0, &limit])
            .await?;
        let mut runs: Vec<(RunTarget, Vec<TaskNo>)> = Vec::new();
        for row in rows {
            let target = RunTarget {
                account,
                run: PublicId(row.get(0)),
            };
            let no = TaskNo(row.get(1));
            match runs.last_mut() {
                Some((last, nos)) if *last == target => nos.push(no),
                _ => runs.push((target, vec![no])),
            }
        }
        Ok(runs)
    }

    /// Marks an executor that left as gone, if nothing is left of it; gives the public id of one
    /// whose shutdown was acknowledged just now.
    ///
    /// # Errors
    /// A fault.
    pub async fn leaving_done(
        &self,
        account: AccountId,
        executor: ExecutorId,
    ) -> Result<Option<PublicId>, Error> {
        let conn = self.conn().await?;
        conn.execute(&REVOKE_SETTLED, &[&account.0, &executor.0])
            .await?;
        let row = conn
            .query_opt(&SHUTDOWN_DONE, &[&account.0, &executor.0])
            .await?;
        Ok(row.map(|row| PublicId(row.get(0))))
    }

    /// Suspensions that still have runs to stop, behind that one.
    ///
    /// # Errors
    /// A fault.
    pub async fn lost_authority(
        &self,
        part: Part,
        after: Option<Lost>,
        limit: usize,
    ) -> Result<Vec<Lost>, Error> {
        let (of, index) = part.numbers();
        let (account, member) = after.map_or((0, 0), |lost| (lost.account.0, lost.key()));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self
            .conn()
            .await?
            .query(&LOST, &[&of, &index, &account, &member, &limit])
            .await?;
        Ok(rows
            .iter()
            .map(|row| Lost {
                account: AccountId(row.get(0)),
                member: Some(row.get(1)).filter(|m| *m != 0).map(MemberId),
            })
            .collect())
    }

    /// A page of the live runs under a suspension, behind that run.
    ///
    /// # Errors
    /// A fault.
    pub async fn lost_live_runs(
        &self,
        lost: Lost,
        after: RunId,
        limit: usize,
    ) -> Result<Vec<(RunId, PublicId)>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let conn = self.conn().await?;
        let rows = conn
            .query(&LIVE, &[&lost.account.0, &lost.key(), &after.0, &limit])
            .await?;
        Ok(rows
            .iter()
            .map(|row| (RunId(row.get(0)), PublicId(row.get(1))))
            .collect())
    }

    /// Notes that a suspension has no run left to stop.
    ///
    /// # Errors
    /// A fault.
    pub async fn lost_settled(&self, lost: Lost) -> Result<(), Error> {
        let conn = self.conn().await?;
        conn.execute(&LOST_SETTLED, &[&lost.account.0, &lost.key()])
            .await
            .map(|_| ())
    }
}
