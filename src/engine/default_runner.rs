//! A run's default runner, changed (`runs.md` §10): only whom later steps are routed to; what was
//! accepted keeps its frozen target.

use super::eligibility::{ExecutorFacts, PrincipalFacts, is_eligible};
use crate::domain::ExecutorId;
use crate::domain::refusal::DefaultRunner as Refusal;
use crate::domain::words::ExecutorKind;

/// Who is to be the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Nobody.
    Nobody,
    /// An executor, if the account has it.
    Executor(Option<(ExecutorId, ExecutorFacts)>),
}

/// What it comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is so already: nothing is written, nothing narrated.
    Same,
    /// Write this.
    Set(Option<ExecutorId>),
}

/// Decides a change of the default runner for a run of that principal.
///
/// # Errors
/// `runner_not_found` for what is no runner of the account, `runner_not_eligible`.
pub fn decide(
    current: Option<ExecutorId>,
    wanted: Wanted,
    principal: &PrincipalFacts,
) -> Result<Decision, Refusal> {
    let to = match wanted {
        Wanted::Nobody => None,
        Wanted::Executor(found) => {
            let (id, executor) = found
                .filter(|(_, executor)| executor.kind == ExecutorKind::Runner)
                .ok_or(Refusal::RunnerNotFound)?;
            if !is_eligible(&executor, principal) {
                return Err(Refusal::RunnerNotEligible);
            }
            Some(id)
        }
    };
    Ok(if to == current {
        Decision::Same
    } else {
        Decision::Set(to)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::MemberId;
    use crate::domain::words::{AssignmentScope, ExecutorStatus, MemberKind};

    /// `runs.md` §10: missing 404, ineligible 409, a change only when it is one.
    #[test]
    fn a_default_runner_is_changed_only_to_an_eligible_runner_and_only_when_it_differs() {
        let principal = PrincipalFacts {
            member: MemberId(1),
            kind: MemberKind::Human,
            controlling_human: None,
            declaring_agent: None,
        };
        let fit = ExecutorFacts {
            kind: ExecutorKind::Runner,
            status: ExecutorStatus::Active,
            has_usable_token: true,
            shutting_down: false,
            scope: Some(AssignmentScope::UserPrivate),
            manager: Some(MemberId(1)),
            agent: None,
            agent_active: false,
        };
        let found = |executor| Wanted::Executor(Some((ExecutorId(7), executor)));
        let none = Wanted::Executor(None);
        let foreign = ExecutorFacts {
            manager: Some(MemberId(2)),
            ..fit
        };
        let revoked = ExecutorFacts {
            status: ExecutorStatus::Revoked,
            ..fit
        };
        let pool = ExecutorFacts {
            kind: ExecutorKind::ToolProvider,
            ..fit
        };
        let seven = Some(ExecutorId(7));
        let table = [
            (None, found(fit), Ok(Decision::Set(seven))),
            (Some(ExecutorId(8)), found(fit), Ok(Decision::Set(seven))),
            (seven, found(fit), Ok(Decision::Same)),
            (seven, Wanted::Nobody, Ok(Decision::Set(None))),
            (None, Wanted::Nobody, Ok(Decision::Same)),
            (seven, none, Err(Refusal::RunnerNotFound)),
            (None, found(pool), Err(Refusal::RunnerNotFound)),
            (None, found(foreign), Err(Refusal::RunnerNotEligible)),
            (seven, found(revoked), Err(Refusal::RunnerNotEligible)),
        ];
        for (current, wanted, outcome) in table {
            let decided = decide(current, wanted, &principal);
            assert_eq!(decided, outcome, "{current:?} {wanted:?}");
        }
    }
}
