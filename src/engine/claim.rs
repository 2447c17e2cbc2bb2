//! Claiming: exactly one executor may execute a parked call (`executor.md` §8).
//!
//! Decided on facts that were read without a lock; the store's guarded update of the park row
//! re-checks what can change (`architecture.md` §4).

use super::eligibility::{PrincipalFacts, is_eligible};
use super::facts::{Addressed, Caller};
use crate::domain::refusal;
use crate::domain::words::{ParkKind, RunStatus, TaskKind, TaskStatus};
use crate::domain::{ExecutorId, TaskNo};

/// What was read about the row and its run.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The run's answering principal.
    pub principal: PrincipalFacts,
    /// Whether the run's creator may write.
    pub creator_may_write: bool,
    /// The run's state.
    pub run_status: RunStatus,
    /// Whether it was stopped by force.
    pub force_stopped: bool,
    /// The row's number.
    pub task: TaskNo,
    /// The row's kind.
    pub kind: TaskKind,
    /// The row's state.
    pub status: TaskStatus,
    /// The row's generation.
    pub generation: i32,
    /// Whom it is for, once started.
    pub addressed: Option<Addressed>,
    /// What kind of park it is, while parked.
    pub park: Option<ParkKind>,
    /// Its claim, while parked.
    pub claim: Option<Held>,
    /// The caller as it stands now.
    pub caller: Caller,
}

impl Facts {
    /// Whether the caller holds the row by a claim under that key.
    fn is_held_under(&self, key: Option<&[u8]>) -> bool {
        let held = self.claim.as_ref().filter(|h| h.by == self.caller.id);
        key.is_some() && held.is_some_and(|h| h.key.as_deref() == key)
    }
}

/// A claim that stands.
#[derive(Debug, Clone)]
pub struct Held {
    /// By whom.
    pub by: ExecutorId,
    /// SHA-256 of the Idempotency-Key it was claimed under.
    pub key: Option<Vec<u8>>,
}

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Take the row.
    Grant,
    /// The same executor repeats the claim that it holds, under the same key: a new token, the
    /// clock untouched (`architecture.md` §8).
    Recover,
}

/// Judges a claim.
///
/// # Errors
/// The protocol's refusals; the first failing check answers.
pub fn decide(facts: &Facts, key: Option<&[u8]>) -> Result<Verdict, refusal::Claim> {
    if matches!(
        facts.kind,
        TaskKind::Model | TaskKind::Join | TaskKind::Delegation
    ) {
        return Err(refusal::Claim::NotFound);
    }
    // A claim that stands is its holder's, whatever it announces by now and whatever holds its run.
    if facts.is_held_under(key) {
        return Ok(Verdict::Recover);
    }
    if !is_addressed(facts.addressed, &facts.caller) {
        return Err(refusal::Claim::NotAddressedHere);
    }
    let claimable = facts.kind == TaskKind::Tool
        && facts.status != TaskStatus::NeedsApproval
        && facts.park.is_none_or(|kind| kind == ParkKind::ToolCall);
    if !claimable {
        return Err(refusal::Claim::NotClaimableKind);
    }
    if !is_eligible(&facts.caller.executor, &facts.principal) {
        return Err(refusal::Claim::NotEligible);
    }
    if !facts.creator_may_write {
        return Err(refusal::Claim::NotAuthorized);
    }
    let open = matches!(facts.run_status, RunStatus::Running | RunStatus::Canceling);
    if facts.status != TaskStatus::Dispatched || !open || facts.force_stopped {
        return Err(refusal::Claim::TaskNotClaimable);
    }
    match &facts.claim {
        None => Ok(Verdict::Grant),
        Some(_) => Err(refusal::Claim::AlreadyClaimed),
    }
}

/// Whether the row is for the caller: by name, or as a member of its pool.
fn is_addressed(addressed: Option<Addressed>, caller: &Caller) -> bool {
    match addressed {
        None => false,
        Some(Addressed {
            executor: Some(executor),
            ..
        }) => executor == caller.id,
        Some(Addressed { executor: None, .. }) => {
            caller.executor.kind == crate::domain::words::ExecutorKind::ToolProvider
                && caller.announces
        }
    }
}
