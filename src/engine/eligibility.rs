//! Whose work an executor may do (`executor.md` §2).

use crate::domain::MemberId;
use crate::domain::words::{AssignmentScope, ExecutorKind, ExecutorStatus, MemberKind};

/// What is known of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutorFacts {
    /// What it is.
    pub kind: ExecutorKind,
    /// Whether it still exists.
    pub status: ExecutorStatus,
    /// Whether a token of its current epoch is neither revoked nor expired.
    pub has_usable_token: bool,
    /// Whether it is draining.
    pub shutting_down: bool,
    /// Machines: whose work.
    pub scope: Option<AssignmentScope>,
    /// Machines: its manager.
    pub manager: Option<MemberId>,
    /// Applications: its agent.
    pub agent: Option<MemberId>,
    /// Applications: whether that agent is active.
    pub agent_active: bool,
}

/// What is known of a run's answering principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrincipalFacts {
    /// Who.
    pub member: MemberId,
    /// Human or agent.
    pub kind: MemberKind,
    /// An agent's human.
    pub controlling_human: Option<MemberId>,
    /// The agent that declares the run, if one does.
    pub declaring_agent: Option<MemberId>,
}

/// Whether the executor may do work of that principal.
pub fn is_eligible(executor: &ExecutorFacts, principal: &PrincipalFacts) -> bool {
    let live = executor.status == ExecutorStatus::Active
        && executor.has_usable_token
        && !executor.shutting_down;
    live && match executor.kind {
        ExecutorKind::AgentApplication => {
            executor.agent_active
                && executor.agent.is_some()
                && executor.agent == principal.declaring_agent
        }
        ExecutorKind::Runner | ExecutorKind::ToolProvider => {
            executor.scope == Some(AssignmentScope::AccountWide)
                || executor.manager == Some(principal.controlling_human.unwrap_or(principal.member))
        }
    }
}
