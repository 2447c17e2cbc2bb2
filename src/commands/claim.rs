//! Claim: the one verb without the run lock (`executor.md` §8, `architecture.md` §4, §8).
//!
//! Facts are read without a lock and refuse if they already refuse; else one guarded update of the
//! park row. Zero rows: somebody was quicker; look again and refuse.

use sha2::{Digest, Sha256};

use super::{Error, run_again, to_the_end};
use crate::app::App;
use crate::domain::refusal::{Claim as Refusal, ReadClaim};
use crate::domain::words::{TaskKind, TaskStatus};
use crate::domain::{PublicId, RunId, TaskKey, TaskNo, Timestamp};
use crate::engine::claim::{self, Verdict};
use crate::engine::facts::Caller;
use crate::engine::mint::{self, Secret};
use crate::store::credentials::ExecutorCaller;
use crate::store::inbox::{CLAIMS_RECEIPT, ClaimState, Granted, InboxRow, Taking, Wanted};
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

fn claimed(granted: Granted, secret: Secret) -> Claimed {
    Claimed {
        row: granted.row,
        token: secret.text,
        deadline_at: granted.deadline_at,
    }
}

/// SHA-256 of an Idempotency-Key, bound to the door: one key may serve both doors.
fn key_digest(door: &str, key: &str) -> Vec<u8> {
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
            return Ok(claimed(granted, secret));
        }
    }
    Err(Error::Refused(Refusal::AlreadyClaimed))
}

fn wanted(run: RunId, task: TaskNo, generation: i32, secret: &Secret) -> Wanted {
    Wanted {
        run,
        task,
        generation,
        digest: secret.digest,
    }
}

/// Claims up to `limit` claimable rows, oldest first, skipping those that others hold. Under a key
/// that was used before, answers those of the same rows whose claims still stand, with new tokens,
/// and claims nothing new.
///
/// # Errors
/// A fault; there are no refusals but an empty answer.
pub async fn claim_many(
    app: &App,
    caller: ExecutorCaller,
    limit: usize,
    idempotency: Option<String>,
) -> Result<Vec<Claimed>, Error<Refusal>> {
    let app = app.clone();
    to_the_end(async move {
        let Some(key) = idempotency else {
            return many(&app, &caller, limit, None).await;
        };
        let under = key_digest("claims", &key);
        if app
            .store
            .claims_key_used(caller.account, caller.id, &key)
            .await?
        {
            return recover(&app, &caller, &key, &under).await;
        }
        match many(&app, &caller, limit, Some((&key, &under))).await {
            Err(Error::Fault(fault)) if fault.is_duplicate_of(CLAIMS_RECEIPT) => {
                recover(&app, &caller, &key, &under).await
            }
            outcome => outcome,
        }
    })
    .await
}

async fn recover(
    app: &App,
    caller: &ExecutorCaller,
    key: &str,
    under: &[u8],
) -> Result<Vec<Claimed>, Error<Refusal>> {
    let held = app
        .store
        .claims_under(caller.account, caller.id, key, under)
        .await?;
    let mut mint = app.mint();
    let secrets: Vec<Secret> = held.iter().map(|_| mint.token()).collect();
    let rows: Vec<Wanted> = held
        .iter()
        .zip(&secrets)
        .map(|((run, task, generation), secret)| wanted(*run, *task, *generation, secret))
        .collect();
    let recover = || async {
        let store = &app.store;
        let recovered = store.claim_recover(caller.account, caller.id, under, &rows);
        recovered.await.map_err(Error::Fault)
    };
    let granted = run_again(recover).await?;
    Ok(pair(granted, &rows, secrets))
}

async fn many(
    app: &App,
    caller: &ExecutorCaller,
    limit: usize,
    key: Option<(&str, &[u8])>,
) -> Result<Vec<Claimed>, Error<Refusal>> {
    let mut claimed = Vec::new();
    let Some(facts) = app.store.inbox_caller(caller.account, caller.id).await? else {
        return Ok(claimed);
    };
    let mut after = Some(0);
    while let (Some(from), true) = (after, claimed.len() < limit) {
        let look = Look {
            caller,
            facts: &facts,
            from,
            wanted: limit - claimed.len(),
            page: limit.max(PAGE),
            under: key.map(|(_, digest)| digest),
            // The first rows taken also write down that the key was used.
            receipt: key.map(|(text, _)| text).filter(|_| claimed.is_empty()),
        };
        match look.take(app).await {
            Ok((taken, next)) => {
                claimed.extend(taken);
                after = next;
            }
            // What was granted is told: without its tokens nobody could ever settle it.
            Err(_) if !claimed.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(claimed)
}

/// The fewest rows that one look at the inbox fetches.
const PAGE: usize = 16;

/// One page of the inbox, and what of it may be taken.
struct Look<'a> {
    caller: &'a ExecutorCaller,
    facts: &'a Caller,
    from: i64,
    wanted: usize,
    page: usize,
    under: Option<&'a [u8]>,
    receipt: Option<&'a str>,
}

impl Look<'_> {
    /// Takes up to `wanted` rows of the page; tells where the next page begins, if there is one.
    async fn take(&self, app: &App) -> Result<(Vec<Claimed>, Option<i64>), Error<Refusal>> {
        let account = self.caller.account;
        let page = i64::try_from(self.page).unwrap_or(i64::MAX);
        let listed = app
            .store
            .inbox_page(account, self.facts, self.from, page, true)
            .await?;
        let next = listed
            .last()
            .filter(|_| listed.len() == self.page)
            .map(|l| l.park_no.0);
        let mut mint = app.mint();
        let (mut secrets, mut rows) = (Vec::new(), Vec::new());
        for row in listed {
            let room = rows.len() < self.wanted;
            if room && row.listable && claim::decide(&row.facts, None).is_ok() {
                let secret = mint.token();
                rows.push(wanted(row.run, row.task, row.facts.generation, &secret));
                secrets.push(secret);
            }
        }
        if rows.is_empty() {
            return Ok((Vec::new(), next));
        }
        let taking = Taking {
            caller: self.caller.id,
            epoch: self.caller.epoch,
            key: self.under,
        };
        let grant = || async {
            let granted = app
                .store
                .claim_grant_many(account, taking, &rows, self.receipt);
            granted.await.map_err(Error::Fault)
        };
        let granted = run_again(grant).await?;
        metrics::counter!(CLAIMS, "outcome" => "granted").increment(granted.len() as u64);
        Ok((pair(granted, &rows, secrets), next))
    }
}

/// Pairs what was granted with the tokens that were minted for it.
fn pair(granted: Vec<Granted>, rows: &[Wanted], secrets: Vec<Secret>) -> Vec<Claimed> {
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
