//! Where cases play: replicas over one database, and for each of the cases that run side by side an
//! account of its own with the executors of the simulation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nexus::app::App;
use nexus::domain::words::{ExecutorKind, MemberKind};
use nexus::domain::{AccountId, ExecutorId, MemberId, PublicId, WorkspaceId};
use nexus::store::credentials::{ExecutorCaller, MemberCaller};
use nexus::store::test_clock;

use super::rows::Reader;
use crate::support::TestApp;
use crate::support::seed::{Party, READ_ONLY, WRITE, World, executor, serve};

/// One executor, and what it announces when it is whole.
pub struct Machine {
    /// How it calls.
    pub caller: ExecutorCaller,
    /// Name, whether the call may run again, time-out.
    pub serves: Vec<(&'static str, bool, Option<i64>)>,
}

/// An account where one case plays after the other.
pub struct Scene {
    /// The replicas.
    pub replicas: Vec<App>,
    /// Reads whole runs.
    pub reader: Reader,
    /// Breaks and mends standing and announcements behind the doors.
    pub sql: tokio_postgres::Client,
    /// The account.
    pub account: AccountId,
    /// The workspace.
    pub workspace: (WorkspaceId, PublicId),
    /// Who creates: an agent, so that questions and approvals have an application.
    pub creator: MemberCaller,
    /// Whether somebody's standing or announcements are not as they were at first.
    broken: AtomicBool,
    /// Two providers and one that is not eligible, the application, two runners.
    pub machines: Vec<Machine>,
}

impl Scene {
    /// Another account.
    pub async fn new(app: &TestApp, name: &str) -> Self {
        let sql = app.sql().await;
        let world = World::in_database(&sql, name).await;
        let stranger: i64 = sql
            .query_one(
                "INSERT INTO members (account_id, public_id, kind, handle) VALUES ($1, gen_random_uuid(), 'human', 'eve')
                 RETURNING member_id",
                &[&world.account],
            )
            .await
            .expect("a member inserts")
            .get(0);
        let mut machines = Vec::new();
        for (name, kind) in [
            ("p1", "tool_provider"),
            ("p2", "tool_provider"),
            ("p3", "tool_provider"),
            ("app", "agent_application"),
            ("r1", "runner"),
            ("r2", "runner"),
        ] {
            let party = match name {
                "app" => world.application.clone(),
                _ => executor(&sql, world.account, kind, world.human.id, name).await,
            };
            machines.push(Machine {
                caller: caller(world.account, &party, kind),
                serves: announcements(name),
            });
        }
        let scene = Self {
            replicas: app.replicas.iter().map(|r| r.app.clone()).collect(),
            reader: Reader::new(app.sql().await).await,
            account: AccountId(world.account),
            workspace: (WorkspaceId(world.workspace), world.workspace_public_id),
            creator: MemberCaller {
                account: AccountId(world.account),
                id: MemberId(world.agent.id),
                public_id: world.agent.public_id,
                kind: MemberKind::Agent,
                handle: "bot".to_owned(),
                token_id: 1,
            },
            broken: AtomicBool::new(true),
            machines,
            sql,
        };
        scene
            .execute(&format!(
                "UPDATE executors SET assignment_scope = 'user_private', manager_id = {stranger}
                  WHERE executor_id = {}",
                scene.machines[2].caller.id.0
            ))
            .await;
        scene.mend().await;
        scene
    }

    /// The public ids of the runners.
    pub fn runners(&self) -> Vec<PublicId> {
        let machines = self.machines.iter().map(|m| &m.caller);
        let runners = machines.filter(|m| m.kind == ExecutorKind::Runner);
        runners.map(|m| m.public_id).collect()
    }

    /// The machine of that executor.
    pub fn machine(&self, id: ExecutorId) -> Option<&Machine> {
        self.machines.iter().find(|m| m.caller.id == id)
    }

    /// Does it behind the doors.
    pub async fn execute(&self, sql: &str) {
        self.sql
            .batch_execute(sql)
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }

    /// The creator gains or loses write access.
    pub async fn standing(&self) {
        self.broken.store(true, Ordering::Relaxed);
        let (account, member) = (self.account.0, self.creator.id.0);
        self.execute(&format!(
            "UPDATE grants SET access = CASE access WHEN 'write' THEN 'read' ELSE 'write' END
              WHERE account_id = {account} AND member_id = {member}"
        ))
        .await;
    }

    /// A machine begins or stops draining.
    pub async fn drain(&self, machine: usize) {
        self.broken.store(true, Ordering::Relaxed);
        let (account, id) = (self.account.0, self.machines[machine].caller.id.0);
        self.execute(&format!(
            "UPDATE executors SET shutdown_at = CASE WHEN shutdown_at IS NULL THEN nexus_now() END
              WHERE account_id = {account} AND executor_id = {id}"
        ))
        .await;
    }

    /// A machine announces one tool with another profile.
    pub async fn announce(&self, machine: usize) {
        self.broken.store(true, Ordering::Relaxed);
        let (account, id) = (self.account.0, self.machines[machine].caller.id.0);
        self.execute(&format!(
            "UPDATE served_tools SET replayable = NOT replayable, effect_profile =
                    CASE WHEN replayable THEN '{WRITE}' ELSE '{READ_ONLY}' END
              WHERE account_id = {account} AND executor_id = {id} AND ordinal = 0"
        ))
        .await;
    }

    /// Everybody is there, may write, and announces what it announced at first.
    pub async fn mend(&self) {
        if !self.broken.swap(false, Ordering::Relaxed) {
            return;
        }
        let account = self.account.0;
        self.execute(&format!(
            "UPDATE grants SET access = 'write' WHERE account_id = {account};
             UPDATE executors SET shutdown_at = NULL WHERE account_id = {account}"
        ))
        .await;
        for machine in &self.machines {
            let party = Party {
                id: machine.caller.id.0,
                public_id: machine.caller.public_id,
                token: String::new(),
            };
            for (tool, replayable, timeout_ms) in &machine.serves {
                let profile = if *replayable { READ_ONLY } else { WRITE };
                serve(&self.sql, account, &party, tool, profile, *timeout_ms).await;
            }
        }
    }

    /// Moves the one clock.
    pub async fn tick(&self, ms: u64) {
        let store = &self.replicas[0].store;
        let moved = test_clock::advance(store, Duration::from_millis(ms)).await;
        moved.expect("the clock moves");
    }
}

fn caller(account: i64, party: &Party, kind: &str) -> ExecutorCaller {
    ExecutorCaller {
        account: AccountId(account),
        id: ExecutorId(party.id),
        public_id: party.public_id,
        kind: kind.parse().expect("a kind"),
        epoch: 1,
        token_id: 1,
    }
}

/// As the fleet of the simulation.
fn announcements(name: &str) -> Vec<(&'static str, bool, Option<i64>)> {
    match name {
        "p1" => vec![
            ("read", true, Some(30_000)),
            ("write", false, None),
            ("mixed", true, Some(60_000)),
        ],
        "p2" => vec![("read", true, Some(20_000)), ("mixed", false, Some(90_000))],
        "p3" => vec![("read", true, Some(1))],
        "app" => vec![("agent", false, Some(45_000))],
        _ => vec![("shell", false, None), ("read", true, None)],
    }
}
