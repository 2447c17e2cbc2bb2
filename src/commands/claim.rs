//! Claim: the one verb without the run lock (`executor.md` §8, `architecture.md` §4, §8).
//!
//! Facts are read without a lock and refuse if they already refuse; else one guarded update of the
//! park row. Zero rows: somebody was quicker; look again and refuse. Batches are in
//! [`claims`](super::claims).

use sha2::{Digest, Sha256};

use super::{Error, run_again, to_the_end};
use crate::app::App;
use crate::domain::refusal::{Claim as Refusal, ReadClaim};
use crate::domain::words::{TaskKind, TaskStatus};
use crate::domain::{PublicId, RunId, TaskKey, TaskNo, Timestamp};
use crate::engine::claim::{self, Verdict};
use crate::engine::mint::{self, Secret};
use crate::store::credentials::ExecutorCaller;
use crate::store::inbox::{ClaimState, Granted, InboxRow, Taking, Wanted};
use crate::telemetry::CLAIMS;

/// How often a claim looks again after a guarded update met no row. Each round means that the row
/// changed in between; the facts then refuse, unless it was re-made claimable again.
const LOOKS: usize = 8;

/// A claim as its holder is told.
#[derive(Debug)]
pub struct Claimed {
    /// The executable row.
    pub row: InboxRow,
    /// The token, shown once.
    pub token: String,
    /// The deadline.
    pub deadline_at: Timestamp,
}

pub(super) fn claimed(granted: Granted, secret: Secret) -> Claimed {
    Claimed {
        row: granted.row,
        token: secret.text,
        deadline_at: granted.deadline_at,
    }
}

/// SHA-256 of an Idempotency-Key, bound to the door: one key may serve both doors.
pub(super) fn key_digest(door: &str, key: &str) -> Vec<u8> {
    let mut sha = Sha256::new();
    sha.update(door.as_bytes());
    sha.update([0]);
    sha.update(key.as_bytes());
    sha.finalize().to_vec()
}

/// Claims one row, or recovers the claim that this executor took under the same key.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn claim(
    app: &App,
    caller: ExecutorCaller,
    run: PublicId,
    key: TaskKey,
    idempotency: Option<String>,
) -> Result<Claimed, Error<Refusal>> {
    let app = app.clone();
    let outcome = to_the_end(async move {
        run_again(|| one(&app, &caller, run, &key, idempotency.as_deref())).await
    })
    .await;
    let word = match &outcome {
        Ok(_) => "granted",
        Err(Error::Refused(_)) => "refused",
        Err(Error::Fault(_)) => "failed",
    };
    metrics::counter!(CLAIMS, "outcome" => word).increment(1);
    outcome
}

async fn one(
    app: &App,
    caller: &ExecutorCaller,
    run: PublicId,
    key: &TaskKey,
    idempotency: Option<&str>,
) -> Result<Claimed, Error<Refusal>> {
    let under = idempotency.map(|k| key_digest("claim", k));
    for _ in 0..LOOKS {
        let facts = app
            .store
            .claim_facts(caller.account, caller.id, run, key)
            .await?;
        let (run_id, facts) = facts.ok_or(Error::Refused(Refusal::NotFound))?;
        if facts.caller.epoch != caller.epoch {
            // Paired anew since it authenticated: its next request is a 401.
            return Err(Error::Refused(Refusal::NotEligible));
        }
        let verdict = claim::decide(&facts, under.as_deref()).map_err(Error::Refused)?;
        let secret = app.mint().token();
        let wanted = wanted(run_id, facts.task, facts.generation, &secret);
        let taking = Taking {
            caller: caller.id,
            epoch: caller.epoch,
            key: under.as_deref(),
        };
        let granted = match (verdict, under.as_deref()) {
            (Verdict::Recover, Some(under)) => {
                let recovered = app
                    .store
                    .claim_recover(caller.account, caller.id, under, &[wanted])
                    .await?;
                recovered.into_iter().next()
            }
            _ => {
                app.store
                    .claim_grant(caller.account, taking, &wanted)
                    .await?
            }
        };
        if let Some(granted) = granted {
            if granted.may_hold {
                app.holds.ask(caller.account, run);
            }
            return Ok(claimed(granted, secret));
        }
    }
    Err(Error::Refused(Refusal::AlreadyClaimed))
}

pub(super) fn wanted(run: RunId, task: TaskNo, generation: i32, secret: &Secret) -> Wanted {
    Wanted {
        run,
        task,
        generation,
        digest: secret.digest,
    }
}

/// Pairs what was granted with the tokens that were minted for it.
pub(super) fn pair(granted: Vec<Granted>, rows: &[Wanted], secrets: Vec<Secret>) -> Vec<Claimed> {
    let mut minted: std::collections::BTreeMap<(RunId, TaskNo), Secret> =
        rows.iter().map(|w| (w.run, w.task)).zip(secrets).collect();
    granted
        .into_iter()
        .filter_map(|granted| {
            let secret = minted.remove(&granted.at)?;
            Some(claimed(granted, secret))
        })
        .collect()
}

/// Whether there is a task of that key that can park.
///
/// # Errors
/// `not_found`, or a fault.
pub async fn exists(
    app: &App,
    caller: &ExecutorCaller,
    run: PublicId,
    key: &TaskKey,
) -> Result<ClaimState, Error<ReadClaim>> {
    let state = app.store.read_claim(caller.account, run, key).await?;
    state
        .filter(|s| {
            !matches!(
                s.kind,
                TaskKind::Model | TaskKind::Join | TaskKind::Delegation
            )
        })
        .ok_or(Error::Refused(ReadClaim::NotFound))
}

/// Proves a claim: the caller and its token are of the task's latest claim.
///
/// # Errors
/// `not_found`, `not_claimant`, or a fault.
pub async fn prove(
    app: &App,
    caller: &ExecutorCaller,
    run: PublicId,
    key: &TaskKey,
    token: &str,
) -> Result<ClaimState, Error<ReadClaim>> {
    let state = app.store.read_claim(caller.account, run, key).await?;
    let state = state.ok_or(Error::Refused(ReadClaim::NotFound))?;
    if matches!(
        state.kind,
        TaskKind::Model | TaskKind::Join | TaskKind::Delegation
    ) {
        return Err(Error::Refused(ReadClaim::NotFound));
    }
    let digest = mint::token_digest(token);
    let is_claimant = state.by == Some(caller.id)
        && state.digest.as_deref().is_some_and(|d| {
            use subtle::ConstantTimeEq as _;
            d.ct_eq(&digest[..]).into()
        });
    if is_claimant {
        Ok(state)
    } else {
        Err(Error::Refused(ReadClaim::NotClaimant))
    }
}

/// Reads a claim: whether it is still live (`executor.md` §9). No lock, no write.
///
/// # Errors
/// `not_found`, `not_claimant`, or a fault.
pub async fn read(
    app: &App,
    caller: &ExecutorCaller,
    run: PublicId,
    key: &TaskKey,
    token: &str,
) -> Result<bool, Error<ReadClaim>> {
    let state = prove(app, caller, run, key, token).await?;
    Ok(state.status == TaskStatus::Dispatched)
}
