//! What the protocol refuses: one closed enum per verb. Codes live here; status codes do not
//! (`http/error.rs` owns those).
//!
//! Invariant: `code()` matches exhaustively, so a new refusal without a code does not compile.

mod provision;

pub use provision::Provision;

use super::payload;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident => $code:literal, $sentence:literal;)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
        pub enum $name {
            $(#[doc = $sentence] #[error($sentence)] $variant,)*
        }

        impl $name {
            /// Every refusal, for the table of status codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word clients branch on.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
        }
    )*};
}

refusals! {
    /// Refusals of a claim (`executor.md` §8).
    Claim {
        NotFound => "not_found", "there is no such task";
        NotAddressedHere => "not_addressed_here", "the task is addressed to another executor, or to none";
        NotClaimableKind => "not_claimable_kind", "only tool calls are claimed; asks and approvals are not";
        NotEligible => "not_eligible", "this executor may not work for the run's principal";
        NotAuthorized => "not_authorized", "the run's creator has no write access to its workspace";
        TaskNotClaimable => "task_not_claimable", "the task has settled, or its run takes no claims now";
        AlreadyClaimed => "already_claimed", "somebody claimed the task in this generation";
    }
    /// Refusals of a claim read (`executor.md` §9).
    ReadClaim {
        NotFound => "not_found", "there is no such task";
        NotClaimant => "not_claimant", "the token is not of the current claim of this executor";
        ClaimInactive => "claim_inactive", "the claim has ended";
    }
    /// Refusals of a start.
    Start {
        NotFound => "not_found", "there is no such run";
        NotStartable => "not_startable", "only a pending run is started";
    }
    /// Refusals of a stop.
    Stop {
        NotFound => "not_found", "there is no such run";
        AlreadyTerminal => "already_terminal", "the run has been stopped already";
    }
    /// Refusals of a pause.
    Pause {
        NotFound => "not_found", "there is no such run";
        NotPausable => "not_pausable", "only a running run is paused; a paused one only by force";
    }
    /// Refusals of a resume.
    Resume {
        NotFound => "not_found", "there is no such run";
        NotResumable => "not_resumable", "only a paused run is resumed";
    }
    /// Refusals of a retry (`runs.md` §8.3).
    Retry {
        NotFound => "not_found", "there is no such task";
        NotAdjudicable => "not_adjudicable", "the run is being stopped, or has ended";
        NotRetryable => "not_retryable", "only a failure that holds or skips others is retried, and no barrier";
        InvalidModel => "invalid_model", "`model` is for a failed model row alone";
    }
    /// Refusals of an abandon (`runs.md` §8.3).
    Abandon {
        NotFound => "not_found", "there is no such task";
        NotAdjudicable => "not_adjudicable", "the run is being stopped, or has ended";
        NotAbandonable => "not_abandonable", "only a failure that holds or skips others is abandoned";
    }
    /// Refusals of approve and deny (`runs.md` §8.4).
    Approval {
        NotFound => "not_found", "there is no such task";
        NotAdjudicable => "not_adjudicable", "the run is not running, paused or held";
        NotAwaitingApproval => "not_awaiting_approval", "the task does not rest for an approver, or its deadline has passed";
    }
    /// Refusals of a person's cancel of a branch (`runs.md` §8.5).
    Cancel {
        NotFound => "not_found", "there is no such task";
        NotAdjudicable => "not_adjudicable", "the run has ended";
        NotABranch => "not_a_branch", "a mainline round, a call of its fan and a barrier are no branch";
        AlreadyTerminal => "already_terminal", "the task has settled";
    }
    /// Refusals of an answer to a question that are not about its payload (`runs.md` §8.2).
    AnswerAsk {
        NotFound => "not_found", "there is no such task";
        TaskNotRunning => "task_not_running", "the task is no question that is parked";
        StaleClaim => "stale_claim", "the resolution_token is not that of the question";
    }
    /// Refusals of a delete (`runs.md` §7).
    Delete {
        NotFound => "not_found", "there is no such run";
        RunBusy => "run_busy", "only a pending, completed or canceled run is deleted; stop it first";
    }
    /// Refusals of a change of the default runner (`runs.md` §10).
    DefaultRunner {
        NotFound => "not_found", "there is no such run";
        RunnerNotFound => "runner_not_found", "the account has no such runner";
        RunnerNotEligible => "runner_not_eligible", "the runner may not work for the run's principal";
    }
    /// Refusals of a trace read (`operations.md` §1).
    Trace {
        NotFound => "not_found", "there is no such task";
        NotClaimant => "not_claimant", "the token is not of the last claim of this executor";
    }
    /// Refusals of an operation before it is recorded (`operations.md` §1, §4).
    Accept {
        NotFound => "not_found", "there is no such task";
        NotClaimant => "not_claimant", "the token is not of the last claim of this executor";
        OperationMismatch => "operation_mismatch", "the key was used for another request of this task";
        NotEligible => "not_eligible", "this executor may not work for the run's principal";
        NotAuthorized => "not_authorized", "the run's creator has no write access to its workspace";
        ExecutionStopped => "execution_stopped", "the run or the task was stopped; no new work is accepted";
        TaskNotRunning => "task_not_running", "the task has settled";
        ClaimExpired => "claim_expired", "the claim's deadline has passed";
        ExecutionPaused => "execution_paused", "the run is paused or held; send the same operation again once it runs";
    }
    /// Refusals of an observation (`operations.md` §1, §6).
    Observe {
        NotFound => "not_found", "there is no such task";
        NotClaimant => "not_claimant", "the token is not of the last claim of this executor";
        NotEligible => "not_eligible", "this executor is revoked";
        NotAuthorized => "not_authorized", "the run's creator has no write access to its workspace";
        ExecutionStopped => "execution_stopped", "the run or the task was stopped";
        TaskNotRunning => "task_not_running", "the task has settled";
        ClaimExpired => "claim_expired", "the claim's deadline has passed";
        OperationPositionChanged => "operation_position_changed", "the trace has another end than `after`: read it again";
    }
    /// Refusals of a commit that are about the claim, not its payload (`executor.md` §11).
    CommitClaim {
        NotFound => "not_found", "there is no such task";
        NotAddressedHere => "not_addressed_here", "the task is addressed to another executor, or claimed by one";
        NotEligible => "not_eligible", "this executor may not work for the run's principal";
        NotAuthorized => "not_authorized", "the run's creator has no write access to its workspace";
        StaleClaim => "stale_claim", "the claim token is not of the final claim";
        FinalResultConflict => "final_result_conflict", "another final result is stored for this claim";
        TaskNotRunning => "task_not_running", "the task has not been dispatched";
        ExecutionStopped => "execution_stopped", "the run was stopped";
        PendingChildren => "pending_children", "an operation of the task is not observed, or its work has not ended";
    }
}

/// Refusals of an extension (`executor.md` §10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Extend {
    /// No such task, or one that never parks.
    #[error("there is no such task")]
    NotFound,
    /// Unclaimed, settled, stopped, or at or past its deadline.
    #[error("only a live claim before its deadline is extended")]
    NotExtendable,
    /// Another executor's claim, or another token.
    #[error("the token is not of the current claim of this executor")]
    NotClaimant,
    /// Above the announced time-out or an hour.
    #[error("an extension may be at most {bound_ms} ms")]
    ExtensionTooLong {
        /// The bound.
        bound_ms: i64,
    },
}

impl Extend {
    /// The word clients branch on.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::NotExtendable => "not_extendable",
            Self::NotClaimant => "not_claimant",
            Self::ExtensionTooLong { .. } => "extension_too_long",
        }
    }
}

/// Refusals of a commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Commit {
    /// About the claim.
    #[error(transparent)]
    Claim(#[from] CommitClaim),
    /// About what was submitted; the park stands, unless it is `result_unstorable`.
    #[error(transparent)]
    Payload(#[from] payload::Refusal),
}

impl Commit {
    /// The word clients branch on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Claim(refusal) => refusal.code(),
            Self::Payload(refusal) => refusal.code(),
        }
    }
}

/// Refusals of an answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Answer {
    /// About the question.
    #[error(transparent)]
    Ask(#[from] AnswerAsk),
    /// About what was submitted; the park stands.
    #[error(transparent)]
    Payload(#[from] payload::Refusal),
}

impl Answer {
    /// The word clients branch on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ask(refusal) => refusal.code(),
            Self::Payload(refusal) => refusal.code(),
        }
    }
}
