//! Whether an executor may work for a principal (`executor.md` §2), over plain facts.
//!
//! One rule for discovery, acceptance, start and claim; beside it, what an inbox shows whoever is
//! eligible. Does not know presence: nothing branches on it. Does not know announcements: whether a
//! tool is served is another question.

use crate::domain::words::{
    AssignmentScope, ExecutorKind, ExecutorStatus, MemberKind, ParkKind, RunStatus,
};
use crate::domain::{ExecutorId, MemberId};

/// What is known of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutorFacts {
    /// What it is.
    pub kind: ExecutorKind,
    /// Whether it still exists.
    pub status: ExecutorStatus,
    /// Whether a token of its current epoch is neither revoked nor expired.
    pub has_usable_token: bool,
    /// Whether a shutdown was asked for.
    pub shutting_down: bool,
    /// Machines: whose work it may do.
    pub scope: Option<AssignmentScope>,
    /// Machines: the human who manages it.
    pub manager: Option<MemberId>,
    /// Applications: their agent.
    pub agent: Option<MemberId>,
    /// Applications: whether that agent may act.
    pub agent_active: bool,
}

/// What is known of whom the work is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrincipalFacts {
    /// The principal: a run's answering principal, frozen, or the caller of a read.
    pub member: MemberId,
    /// What it is.
    pub kind: MemberKind,
    /// An agent's controlling human.
    pub controlling_human: Option<MemberId>,
    /// The agent that declares the run, if one does.
    pub declaring_agent: Option<MemberId>,
}

impl PrincipalFacts {
    /// The human behind the principal: itself, or the one who controls it.
    pub fn human(&self) -> Option<MemberId> {
        match self.kind {
            MemberKind::Human => Some(self.member),
            MemberKind::Agent => self.controlling_human,
        }
    }
}

/// Whether that executor may work for that principal: active, usable, not shutting down; a machine
/// account-wide or managed by the principal's human; an application of the active agent that
/// declares the run.
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
        ExecutorKind::Runner | ExecutorKind::ToolProvider => match executor.scope {
            Some(AssignmentScope::AccountWide) => true,
            Some(AssignmentScope::UserPrivate) => {
                executor.manager.is_some() && executor.manager == principal.human()
            }
            None => false,
        },
    }
}

/// What is known of a park that decides whether an inbox shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its run's state.
    pub run_status: RunStatus,
    /// Whether the run was stopped by force.
    pub force_stopped: bool,
    /// Whether the run was deleted.
    pub tombstoned: bool,
    /// What it waits for.
    pub kind: ParkKind,
    /// Whether it is for a pool.
    pub pooled: bool,
    /// Who claimed it in this generation.
    pub claimed_by: Option<ExecutorId>,
    /// Whether its clock stands still.
    pub frozen: bool,
}

impl Standing {
    /// Whether its run works.
    fn is_open(&self) -> bool {
        matches!(self.run_status, RunStatus::Running | RunStatus::Canceling)
            && !self.force_stopped
            && !self.tombstoned
    }
}

/// Whether the inbox of that executor lists a park addressed to it (`executor.md` §6): its run works,
/// and no other member of its pool took it. Claimed rows stay listed.
pub fn is_listed(park: &Standing, to: ExecutorId) -> bool {
    let taken_by_another = park.pooled && park.claimed_by.is_some_and(|by| by != to);
    park.is_open() && !taken_by_another
}

/// Whether anybody may be given a park by a batch of claims: a call of a working run that nobody
/// claimed and whose clock runs. Statements narrow by the same rule.
pub fn is_claimable(park: &Standing) -> bool {
    park.is_open() && park.kind == ParkKind::ToolCall && park.claimed_by.is_none() && !park.frozen
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUMAN: MemberId = MemberId(1);
    const OTHER: MemberId = MemberId(2);
    const AGENT: MemberId = MemberId(3);

    fn machine(kind: ExecutorKind, scope: AssignmentScope) -> ExecutorFacts {
        ExecutorFacts {
            kind,
            status: ExecutorStatus::Active,
            has_usable_token: true,
            shutting_down: false,
            scope: Some(scope),
            manager: Some(HUMAN),
            agent: None,
            agent_active: false,
        }
    }

    fn application() -> ExecutorFacts {
        ExecutorFacts {
            scope: None,
            manager: None,
            agent: Some(AGENT),
            agent_active: true,
            ..machine(ExecutorKind::AgentApplication, AssignmentScope::AccountWide)
        }
    }

    fn human(member: MemberId) -> PrincipalFacts {
        PrincipalFacts {
            member,
            kind: MemberKind::Human,
            controlling_human: None,
            declaring_agent: None,
        }
    }

    fn agent_of(human: MemberId) -> PrincipalFacts {
        PrincipalFacts {
            member: AGENT,
            kind: MemberKind::Agent,
            controlling_human: Some(human),
            declaring_agent: Some(AGENT),
        }
    }

    #[test]
    fn a_private_machine_works_for_its_manager_and_the_agents_of_its_manager() {
        for kind in [ExecutorKind::Runner, ExecutorKind::ToolProvider] {
            let private = machine(kind, AssignmentScope::UserPrivate);
            assert!(is_eligible(&private, &human(HUMAN)));
            assert!(is_eligible(&private, &agent_of(HUMAN)));
            assert!(!is_eligible(&private, &human(OTHER)));
            assert!(!is_eligible(&private, &agent_of(OTHER)));
        }
    }

    #[test]
    fn an_account_wide_machine_works_for_everybody() {
        let wide = machine(ExecutorKind::Runner, AssignmentScope::AccountWide);
        for principal in [human(OTHER), agent_of(OTHER)] {
            assert!(is_eligible(&wide, &principal));
        }
    }

    #[test]
    fn an_application_works_only_for_the_runs_its_active_agent_declares() {
        assert!(is_eligible(&application(), &agent_of(HUMAN)));
        assert!(
            !is_eligible(&application(), &human(HUMAN)),
            "a human's run without an agent"
        );
        let other = PrincipalFacts {
            declaring_agent: Some(OTHER),
            ..agent_of(HUMAN)
        };
        assert!(!is_eligible(&application(), &other));
        let asleep = ExecutorFacts {
            agent_active: false,
            ..application()
        };
        assert!(!is_eligible(&asleep, &agent_of(HUMAN)));
    }

    #[test]
    fn no_executor_works_once_it_is_revoked_tokenless_or_shutting_down() {
        let wide = machine(ExecutorKind::ToolProvider, AssignmentScope::AccountWide);
        for live in [wide, application()] {
            let principal = agent_of(HUMAN);
            assert!(is_eligible(&live, &principal));
            for dead in [
                ExecutorFacts {
                    status: ExecutorStatus::Revoked,
                    ..live
                },
                ExecutorFacts {
                    has_usable_token: false,
                    ..live
                },
                ExecutorFacts {
                    shutting_down: true,
                    ..live
                },
            ] {
                assert!(!is_eligible(&dead, &principal), "{dead:?}");
            }
        }
    }
}
