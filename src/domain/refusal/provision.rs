//! What provisioning refuses (`operating.md` §4, `executor.md` §2).

/// A refusal of the operator plane's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provision {
    /// The path or the body names something that is not there.
    NotFound,
    /// Another member of the account has that handle.
    HandleTaken,
    /// What is named as an agent's controlling human is no human.
    ControllerIsNoHuman,
    /// What is named as a machine's manager is no human.
    ManagerIsNoHuman,
    /// What is named as an application's agent is no agent.
    AgentIsNoAgent,
    /// The registration key is held by a live executor of another kind.
    ExecutorKindMismatch,
    /// The registration key is held by a live executor of another scope, and scope is frozen.
    ExecutorScopeMismatch,
    /// A revoked executor gets no credential and no shutdown: revocation is terminal.
    ExecutorRevoked,
}

impl Provision {
    /// Every refusal.
    pub const ALL: &'static [Self] = &[
        Self::NotFound,
        Self::HandleTaken,
        Self::ControllerIsNoHuman,
        Self::ManagerIsNoHuman,
        Self::AgentIsNoAgent,
        Self::ExecutorKindMismatch,
        Self::ExecutorScopeMismatch,
        Self::ExecutorRevoked,
    ];

    /// The word that clients branch on.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::HandleTaken => "handle_taken",
            Self::ControllerIsNoHuman | Self::ManagerIsNoHuman | Self::AgentIsNoAgent => {
                "validation_failed"
            }
            Self::ExecutorKindMismatch => "executor_kind_mismatch",
            Self::ExecutorScopeMismatch => "executor_scope_mismatch",
            Self::ExecutorRevoked => "executor_revoked",
        }
    }

    /// What is wrong, where, and what is allowed.
    pub const fn message(self) -> &'static str {
        match self {
            Self::NotFound => "there is no such resource",
            Self::HandleTaken => "handle is taken by another member of this account",
            Self::ControllerIsNoHuman => {
                "controlling_human_public_id must name a human of the same account"
            }
            Self::ManagerIsNoHuman => "manager_public_id must name a human",
            Self::AgentIsNoAgent => "agent_public_id must name an agent",
            Self::ExecutorKindMismatch => {
                "this registration key is held by a live executor of another kind; revoke it first"
            }
            Self::ExecutorScopeMismatch => {
                "assignment_scope is frozen at registration; revoke the executor to change it"
            }
            Self::ExecutorRevoked => {
                "this executor is revoked for good; create it anew under its registration key"
            }
        }
    }

    /// The body's member that is at fault, where one is.
    pub const fn parameter(self) -> Option<&'static str> {
        match self {
            Self::HandleTaken => Some("handle"),
            Self::ControllerIsNoHuman => Some("controlling_human_public_id"),
            Self::ManagerIsNoHuman => Some("manager_public_id"),
            Self::AgentIsNoAgent => Some("agent_public_id"),
            Self::ExecutorScopeMismatch => Some("assignment_scope"),
            Self::NotFound | Self::ExecutorKindMismatch | Self::ExecutorRevoked => None,
        }
    }
}
