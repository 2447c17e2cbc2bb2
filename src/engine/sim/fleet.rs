//! Executors of the simulation: what `executors`, `tokens` and `served_tools` hold, and the
//! statement that finds the addressees of a row.

use std::collections::BTreeMap;

use crate::domain::words::{AssignmentScope, ExecutorKind, ExecutorStatus, MemberKind};
use crate::domain::{ExecutorId, MemberId, PublicId};
use crate::engine::eligibility::{ExecutorFacts, PrincipalFacts};
use crate::engine::facts::{Caller, Candidate, Host, Served, Task};

/// The principal's human, the manager of its machines.
pub(crate) const HUMAN: MemberId = MemberId(1);
/// The agent that declares the run.
pub(crate) const AGENT: MemberId = MemberId(2);
/// Somebody else.
pub(crate) const STRANGER: MemberId = MemberId(3);

/// The run's answering principal: an agent, answered for by a human.
pub(crate) fn principal() -> PrincipalFacts {
    PrincipalFacts {
        member: AGENT,
        kind: MemberKind::Agent,
        controlling_human: Some(HUMAN),
        declaring_agent: Some(AGENT),
    }
}

/// A public id that counts.
pub(crate) fn public(n: i64) -> PublicId {
    PublicId(uuid::Uuid::from_u128(
        u128::try_from(n).expect("not negative"),
    ))
}

/// One executor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) caller: Caller,
    pub(crate) serves: BTreeMap<String, Served>,
}

/// All of them, in creation order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fleet {
    pub(crate) machines: Vec<Machine>,
}

impl Fleet {
    /// Registers one; its id is its place.
    pub(crate) fn add(&mut self, name: &str, kind: ExecutorKind) -> &mut Machine {
        let id = i64::try_from(self.machines.len()).expect("few") + 1;
        let machine = kind != ExecutorKind::AgentApplication;
        let executor = ExecutorFacts {
            kind,
            status: ExecutorStatus::Active,
            has_usable_token: true,
            shutting_down: false,
            scope: machine.then_some(AssignmentScope::AccountWide),
            manager: machine.then_some(HUMAN),
            agent: (!machine).then_some(AGENT),
            agent_active: !machine,
        };
        self.machines.push(Machine {
            name: name.to_owned(),
            caller: Caller {
                id: ExecutorId(id),
                public_id: public(1000 + id),
                executor,
                epoch: 1,
                announces: false,
            },
            serves: BTreeMap::new(),
        });
        self.machines.last_mut().expect("just added")
    }

    pub(crate) fn named(&self, name: &str) -> &Machine {
        let found = self.machines.iter().find(|m| m.name == name);
        found.unwrap_or_else(|| panic!("no executor {name}"))
    }

    pub(crate) fn named_mut(&mut self, name: &str) -> &mut Machine {
        let found = self.machines.iter_mut().find(|m| m.name == name);
        found.unwrap_or_else(|| panic!("no executor {name}"))
    }

    fn get(&self, id: ExecutorId) -> Option<&Machine> {
        self.machines.iter().find(|m| m.caller.id == id)
    }

    /// `run_tx.load_callers`: an executor as it stands now; what it announces is not read.
    pub(crate) fn caller(&self, id: ExecutorId) -> Option<Caller> {
        self.get(id).map(|m| m.caller)
    }

    pub(crate) fn announces(&self, id: ExecutorId, tool: Option<&str>) -> bool {
        let machine = self.get(id);
        machine.is_some_and(|m| tool.is_some_and(|tool| m.serves.contains_key(tool)))
    }

    /// `run_tx.load_host`: the application of the declaring agent.
    pub(crate) fn host(&self) -> Option<Host> {
        let own = self.machines.iter().find(|m| {
            let facts = &m.caller.executor;
            facts.agent == Some(AGENT)
                && facts.agent_active
                && facts.status == ExecutorStatus::Active
        })?;
        Some(Host {
            id: own.caller.id,
            public_id: own.caller.public_id,
        })
    }

    /// What the guarded claim re-checks of its caller.
    pub(crate) fn may_take(&self, id: ExecutorId) -> bool {
        self.get(id).is_some_and(|m| {
            m.caller.executor.status == ExecutorStatus::Active && !m.caller.executor.shutting_down
        })
    }

    /// `run_tx.load_addressees`: the frozen target if it announces the tool, else every provider
    /// and the declaring agent's application that does; active ones only.
    pub(crate) fn addressees(&self, task: &Task) -> Vec<Candidate> {
        let Some(tool) = &task.tool_name else {
            return Vec::new();
        };
        let serving = self
            .machines
            .iter()
            .filter_map(|m| Some((m, m.serves.get(tool)?)));
        let wanted = serving.filter(|(m, _)| {
            let facts = &m.caller.executor;
            let may_be = match task.target {
                Some(target) => m.caller.id == target,
                None => match facts.kind {
                    ExecutorKind::ToolProvider => true,
                    ExecutorKind::AgentApplication => facts.agent == Some(AGENT),
                    ExecutorKind::Runner => false,
                },
            };
            may_be && facts.status == ExecutorStatus::Active
        });
        let candidates = wanted.map(|(m, served)| Candidate {
            id: m.caller.id,
            public_id: m.caller.public_id,
            executor: m.caller.executor,
            serves: Some(served.clone()),
            document: None,
        });
        candidates.collect()
    }
}

/// An announcement of one tool.
pub(crate) fn served(replayable: bool, timeout_ms: Option<i64>) -> Served {
    Served {
        effect_profile: if replayable { "read" } else { "write" }.to_owned(),
        replayable,
        timeout_ms,
    }
}
