//! Claims of many rows for many callers of one inbox (`architecture.md` §8).
//!
//! Callers share a look: one statement finds candidates, one grants them. The grant walks the
//! candidates in order, passes over those that somebody holds (`SKIP LOCKED`) and stops when each
//! slot has a row: nothing is locked that is not taken. The receipt of a caller's key is written in
//! the same statement and lists the rows, so that a repeat finds them in their order whatever
//! became of announcements; a caller whose twin was quicker takes nothing.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::list::standing;
use super::{
    Caller, Error, ExecutorId, Granted, ParkKind, ParkNo, RunId, Sql, Store, TaskNo, caller_of,
    claim, facts, granted, rows,
};
use crate::domain::AccountId;
use crate::domain::words::ExecutorKind;
use crate::engine::eligibility::is_claimable;
use crate::store::rows::executor_columns;

/// The caller as it stands now, and those of these keys that were used, with the rows that each took. A
/// key older than a day is new again, whenever the sweep comes (`conventions.md` §8).
static CLAIMANT: Sql = Sql::new(
    "inbox.claimant",
    concat!(
        "SELECT ", executor_columns!(), ", u.keys, u.bodies
           FROM executors e
           LEFT JOIN members ea ON ea.account_id = e.account_id AND ea.member_id = e.agent_id
          CROSS JOIN LATERAL (SELECT array_agg(k.key) AS keys, array_agg(k.body) AS bodies
                   FROM unnest($3::text[]) AS w(key)
                  CROSS JOIN LATERAL (SELECT k.key, k.body FROM receipts k WHERE k.account_id = $1 AND k.door = 'claims'
                                         AND k.scope_id = $2 AND k.caller_id = $2 AND k.key = w.key
                                         AND k.created_at + interval '24 hours' >= nexus_now() OFFSET 0) k) u
          WHERE e.account_id = $1 AND e.executor_id = $2"
    ),
    &[Type::INT8, Type::INT8, Type::TEXT_ARRAY],
);

/// Rows that may be claimed, addressed to an executor or to its pools, oldest first: what they are
/// judged on, without bodies.
static CANDIDATES: Sql = Sql::new(
    "inbox.candidates",
    concat!(
        "WITH page AS MATERIALIZED (
            (SELECT p.* FROM parks p
              CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = $1 AND r.run_id = p.run_id OFFSET 0) r
              WHERE p.account_id = $1 AND p.executor_id = $2 AND p.park_no > $3 AND ", claimable!(), "
              ORDER BY p.park_no LIMIT $4)
            UNION ALL
            (SELECT p.* FROM served_tools s
              CROSS JOIN LATERAL (SELECT p.* FROM parks p
                      CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = $1 AND r.run_id = p.run_id OFFSET 0) r
                      WHERE p.account_id = $1 AND p.executor_id IS NULL AND p.pool_name = s.name AND p.park_no > $3
                        AND ", claimable!(), "
                      ORDER BY p.park_no LIMIT $4 OFFSET 0) p
              WHERE s.account_id = $1 AND s.executor_id = $2 AND $5)
            ORDER BY park_no LIMIT $4)
         SELECT p.park_no, p.run_id, p.task_no, p.kind AS park_kind, p.executor_id AS park_executor_id, p.clock_frozen,
                t.addressed_role, t.addressed_executor_id, ", judged_columns!(), "
           FROM page p
          CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = p.account_id AND r.run_id = p.run_id OFFSET 0) r
          CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = p.account_id AND t.run_id = p.run_id
                                 AND t.task_no = p.task_no OFFSET 0) t
          CROSS JOIN LATERAL (SELECT * FROM members pm WHERE pm.account_id = r.account_id
                                 AND pm.member_id = r.principal_id OFFSET 0) pm
          ORDER BY p.park_no"
    ),
    &[Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::BOOL],
);

/// Deals rows to slots, in the order of both. What a pause, a stop, an expiry, a retry or another
/// claim did meanwhile shows in the guard: the row is gone, frozen, of another generation, or
/// claimed. Locked rows are updated by their place; one that moved between the snapshot and its lock
/// is left out, as if somebody held it.
static DEAL: Sql = Sql::new(
    "inbox.deal",
    concat!(
        "WITH free AS MATERIALIZED (
            SELECT v.ord, v.run_id, v.task_no, v.generation, p.place
              FROM (SELECT * FROM unnest($3::bigint[], $4::int[], $5::int[]) WITH ORDINALITY AS v(run_id, task_no, generation, ord)
                     ORDER BY v.ord OFFSET 0) v
             CROSS JOIN LATERAL (SELECT p.ctid AS place FROM parks p WHERE p.account_id = $1 AND p.run_id = v.run_id
                                    AND p.task_no = v.task_no AND p.kind = 'tool_call' AND p.claimed_at IS NULL
                                    AND p.generation = v.generation AND NOT p.clock_frozen FOR UPDATE SKIP LOCKED) p
             WHERE EXISTS (SELECT 1 FROM executors e WHERE e.account_id = $1 AND e.executor_id = $2
                              AND e.status = 'active' AND e.credential_epoch = $6 AND e.shutdown_at IS NULL)
             LIMIT cardinality($7::bytea[])),
         numbered AS MATERIALIZED (
            SELECT f.*, row_number() OVER (ORDER BY f.ord)::int AS slot FROM free f
             CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = $1 AND r.run_id = f.run_id OFFSET 0) r
             WHERE r.status IN ('running', 'canceling') AND NOT r.force_stopped AND r.deleted_at IS NULL),
         receipt AS (INSERT INTO receipts (account_id, door, scope_id, caller_id, key, fingerprint, body, created_at)
            SELECT $1, 'claims', $2, $2, ($9::text[])[n.slot], '',
                   string_agg(n.run_id || '.' || n.task_no || '.' || n.generation, ' ' ORDER BY n.slot), nexus_now()
              FROM numbered n WHERE ($9::text[])[n.slot] IS NOT NULL
             GROUP BY ($9::text[])[n.slot] ORDER BY ($9::text[])[n.slot]
            ON CONFLICT (account_id, door, scope_id, caller_id, key) DO UPDATE
               SET body = excluded.body, created_at = excluded.created_at
             WHERE receipts.created_at + interval '24 hours' < nexus_now()
            RETURNING key),
         p AS (UPDATE parks p SET claim_digest = ($7::bytea[])[n.slot], claim_key = ($8::bytea[])[n.slot], claimant_id = $2,
                      claimed_at = nexus_now(), deadline_at = nexus_now() + p.timeout_ms * interval '1 millisecond'
                 FROM numbered n
                WHERE p.ctid = n.place AND p.claimed_at IS NULL
                  AND (($9::text[])[n.slot] IS NULL OR ($9::text[])[n.slot] IN (SELECT key FROM receipt))
            RETURNING p.*, n.slot)
         SELECT p.slot, ", row_columns!(), " FROM p ", row_joins!(), " ORDER BY p.park_no"
    ),
    &[
        Type::INT8, Type::INT8, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4, Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY, Type::TEXT_ARRAY,
    ],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&CLAIMANT, &CANDIDATES, &DEAL];

/// A key that was used for a batch of claims.
#[derive(Debug)]
pub struct Used {
    /// The key.
    pub key: String,
    /// The rows that it took, in their order: run, number, generation.
    pub rows: Vec<(RunId, TaskNo, i32)>,
}

/// Who claims, as it stands now.
#[derive(Debug)]
pub struct Claimant {
    /// The executor.
    pub caller: Caller,
    /// Those of its callers' keys that were used before.
    pub used: Vec<Used>,
}

/// A row that may be claimed, as far as its park and run tell.
#[derive(Debug)]
pub struct Candidate {
    /// Its place in the inbox.
    pub park_no: ParkNo,
    /// Its run.
    pub run: RunId,
    /// What its claim is judged on.
    pub facts: claim::Facts,
}

/// Room for one row.
#[derive(Debug)]
pub struct Slot<'a> {
    /// SHA-256 of the token that the row will have.
    pub digest: [u8; 32],
    /// SHA-256 of the Idempotency-Key it is claimed under.
    pub under: Option<&'a [u8]>,
    /// That key, to be written down with the row.
    pub key: Option<&'a str>,
}

/// A row that a slot was given.
#[derive(Debug)]
pub struct Dealt {
    /// The slot, from 0.
    pub slot: usize,
    /// The claim.
    pub granted: Granted,
}

/// `run.task.generation` of a receipt's body.
fn row_of(word: &str) -> Option<(RunId, TaskNo, i32)> {
    let mut parts = word.split('.');
    let row = (
        RunId(parts.next()?.parse().ok()?),
        TaskNo(parts.next()?.parse().ok()?),
        parts.next()?.parse().ok()?,
    );
    parts.next().is_none().then_some(row)
}

fn used(key: String, body: &str) -> Result<Used, Error> {
    let rows: Option<Vec<_>> = body.split_whitespace().map(row_of).collect();
    match rows {
        Some(rows) => Ok(Used { key, rows }),
        None => Err(Error::inconsistent("receipts", "body", body)),
    }
}

fn candidate(row: &Row, caller: Caller) -> Result<Candidate, Error> {
    let park: ParkKind = rows::word(row, "parks", "park_kind")?;
    let facts = facts(row, caller, Some(park))?;
    debug_assert!(is_claimable(&standing(row, &facts)?), "twins: {facts:?}");
    Ok(Candidate {
        park_no: ParkNo(row.get("park_no")),
        run: RunId(row.get("run_id")),
        facts,
    })
}

impl Store {
    /// Who claims, and which of these keys it used before.
    ///
    /// # Errors
    /// A fault.
    pub async fn claimant(
        &self,
        account: AccountId,
        executor: ExecutorId,
        keys: &[&str],
    ) -> Result<Option<Claimant>, Error> {
        let conn = self.conn().await?;
        let params: crate::store::sql::Params<'_> = &[&account.0, &executor.0, &keys];
        let Some(row) = conn.query_opt(&CLAIMANT, params).await? else {
            return Ok(None);
        };
        let keys: Vec<String> = row.get::<_, Option<_>>("keys").unwrap_or_default();
        let bodies: Vec<String> = row.get::<_, Option<_>>("bodies").unwrap_or_default();
        let found = keys.into_iter().zip(&bodies);
        Ok(Some(Claimant {
            caller: caller_of(&row, true)?,
            used: found
                .map(|(key, body)| used(key, body))
                .collect::<Result<_, _>>()?,
        }))
    }

    /// Up to `limit` claimable rows behind the park `after` that are addressed to the caller or its
    /// pools, oldest first, to be judged one by one.
    ///
    /// # Errors
    /// A fault.
    pub async fn claim_candidates(
        &self,
        account: AccountId,
        caller: &Caller,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Candidate>, Error> {
        let pools = caller.executor.kind == ExecutorKind::ToolProvider;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let conn = self.conn().await?;
        let params: crate::store::sql::Params<'_> =
            &[&account.0, &caller.id.0, &after, &limit, &pools];
        let rows = conn.query(&CANDIDATES, params).await?;
        rows.iter().map(|row| candidate(row, *caller)).collect()
    }

    /// Gives each slot one of the rows, in the order of both, passing over rows that changed since
    /// they were judged and those that somebody holds. A slot whose key was used meanwhile gets none.
    ///
    /// # Errors
    /// A fault.
    pub async fn claim_deal(
        &self,
        account: AccountId,
        caller: &Caller,
        rows: &[&Candidate],
        slots: &[Slot<'_>],
    ) -> Result<Vec<Dealt>, Error> {
        let runs: Vec<i64> = rows.iter().map(|c| c.run.0).collect();
        let tasks: Vec<i32> = rows.iter().map(|c| c.facts.task.0).collect();
        let generations: Vec<i32> = rows.iter().map(|c| c.facts.generation).collect();
        let digests: Vec<&[u8]> = slots.iter().map(|s| &s.digest[..]).collect();
        let under: Vec<Option<&[u8]>> = slots.iter().map(|s| s.under).collect();
        let keys: Vec<Option<&str>> = slots.iter().map(|s| s.key).collect();
        let conn = self.conn().await?;
        let dealt = conn
            .query(
                &DEAL,
                &[
                    &account.0,
                    &caller.id.0,
                    &runs,
                    &tasks,
                    &generations,
                    &caller.epoch,
                    &digests,
                    &under,
                    &keys,
                ],
            )
            .await?;
        dealt
            .iter()
            .map(|row| {
                let slot: i32 = row.get("slot");
                Ok(Dealt {
                    slot: usize::try_from(slot - 1).unwrap_or_default(),
                    granted: granted(row)?,
                })
            })
            .collect()
    }
}
