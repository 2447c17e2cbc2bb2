//! Accounts, people, executors and what they serve, written straight into the database: for tests
//! whose subject is not provisioning.

use nexus::domain::PublicId;
use nexus::domain::credential::Minted;
use nexus::domain::words::Plane;
use nexus::engine::mint::Mint;
use tokio_postgres::Client;

use super::{Answer, TestApp, text};

/// A member or executor with a token.
#[derive(Debug, Clone)]
pub struct Party {
    /// Inner id.
    pub id: i64,
    /// Public id.
    pub public_id: PublicId,
    /// Bearer.
    pub token: String,
}

/// One account with a workspace, a human and an agent that may write, and an executor of each kind.
#[derive(Debug, Clone)]
pub struct World {
    /// Inner account id.
    pub account: i64,
    /// Public account id.
    pub account_public_id: PublicId,
    /// Inner workspace id.
    pub workspace: i64,
    /// Public workspace id.
    pub workspace_public_id: PublicId,
    /// A human with write access.
    pub human: Party,
    /// An agent of that human, with write access.
    pub agent: Party,
    /// A runner, account-wide.
    pub runner: Party,
    /// The agent's own address.
    pub application: Party,
    /// A tool provider, account-wide.
    pub provider: Party,
}

/// A replayable profile, canonical.
pub const READ_ONLY: &str = r#"{"kind":"read_only","destructive":false,"effect_scope":"closed","idempotency":"intrinsic","reconciliation":"none"}"#;
/// A profile that may not be run again.
pub const WRITE: &str = r#"{"kind":"write","destructive":false,"effect_scope":"open","idempotency":"none","reconciliation":"none"}"#;

async fn id(
    client: &Client,
    sql: &str,
    params: &[&(dyn tokio_postgres::types::ToSql + Sync)],
) -> i64 {
    client
        .query_one(sql, params)
        .await
        .expect("a seed row inserts")
        .get(0)
}

/// Mints a token for a member or an executor at that epoch; gives its text.
pub async fn token(client: &Client, account: i64, plane: Plane, owner: i64, epoch: i32) -> String {
    let mut mint = Mint::new();
    let (lookup, secret) = (mint.base62(16), mint.base62(43));
    let minted = Minted::of(plane, lookup, &secret, mint.bytes());
    let (member, executor) = match plane {
        Plane::Member => (Some(owner), None),
        _ => (None, Some(owner)),
    };
    client
        .execute(
            "INSERT INTO tokens (account_id, lookup, salt, secret_hash, plane, member_id, executor_id, credential_epoch)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            &[
                &account,
                &minted.lookup,
                &&minted.salt[..],
                &&minted.hash[..],
                &plane.as_str(),
                &member,
                &executor,
                &epoch,
            ],
        )
        .await
        .expect("a token inserts");
    minted.text
}

async fn member(
    client: &Client,
    world: (i64, i64),
    kind: &str,
    handle: &str,
    human: Option<i64>,
) -> Party {
    let public_id = fresh();
    let member = id(
        client,
        "INSERT INTO members (account_id, public_id, kind, handle, controlling_human_id) VALUES ($1, $2, $3, $4, $5)
         RETURNING member_id",
        &[&world.0, &public_id.0, &kind, &handle, &human],
    )
    .await;
    client
        .execute(
            "INSERT INTO grants VALUES ($1, $2, $3, 'write')",
            &[&world.0, &world.1, &member],
        )
        .await
        .expect("a grant inserts");
    let token = token(client, world.0, Plane::Member, member, 1).await;
    Party {
        id: member,
        public_id,
        token,
    }
}

/// An executor of that kind; machines are account-wide and managed by `manager`, applications
/// belong to `agent`.
pub async fn executor(client: &Client, account: i64, kind: &str, owner: i64, name: &str) -> Party {
    let public_id = fresh();
    let machine = kind != "agent_application";
    let executor = id(
        client,
        "INSERT INTO executors (account_id, public_id, kind, manager_id, agent_id, registration_identifier,
                assignment_scope, display_name) VALUES ($1, $2, $3, $4, $5, $6, $7, $6) RETURNING executor_id",
        &[
            &account,
            &public_id.0,
            &kind,
            &machine.then_some(owner),
            &(!machine).then_some(owner),
            &name,
            &machine.then_some("account_wide"),
        ],
    )
    .await;
    let token = token(client, account, Plane::Executor, executor, 1).await;
    Party {
        id: executor,
        public_id,
        token,
    }
}

/// Announces one tool of an executor.
pub async fn serve(
    client: &Client,
    account: i64,
    executor: &Party,
    name: &str,
    profile: &str,
    timeout_ms: Option<i64>,
) {
    let replayable = !profile.contains("\"write\"");
    client
        .execute(
            "INSERT INTO served_tools (account_id, executor_id, name, ordinal, effect_profile, replayable, timeout_ms)
             VALUES ($1, $2, $3, (SELECT count(*) FROM served_tools WHERE account_id = $1 AND executor_id = $2), $4, $5, $6)
             ON CONFLICT (account_id, executor_id, name) DO UPDATE SET effect_profile = $4, replayable = $5, timeout_ms = $6",
            &[&account, &executor.id, &name, &profile, &replayable, &timeout_ms],
        )
        .await
        .expect("a served tool inserts");
}

#[allow(clippy::disallowed_methods, reason = "a test's ids decide nothing")]
fn fresh() -> PublicId {
    PublicId(uuid::Uuid::now_v7())
}

impl World {
    /// One account in that database.
    pub async fn in_database(client: &Client, name: &str) -> Self {
        let account_public_id = fresh();
        let account = id(
            client,
            "INSERT INTO accounts (public_id, name) VALUES ($1, $2) RETURNING account_id",
            &[&account_public_id.0, &name],
        )
        .await;
        let workspace_public_id = fresh();
        let workspace = id(
            client,
            "INSERT INTO workspaces (account_id, public_id, name) VALUES ($1, $2, $3) RETURNING workspace_id",
            &[&account, &workspace_public_id.0, &name],
        )
        .await;
        let human = member(client, (account, workspace), "human", "ada", None).await;
        let agent = member(client, (account, workspace), "agent", "bot", Some(human.id)).await;
        let runner = executor(client, account, "runner", human.id, "lab").await;
        let application = executor(client, account, "agent_application", agent.id, "app").await;
        let provider = executor(client, account, "tool_provider", human.id, "pool").await;
        serve(client, account, &runner, "echo", READ_ONLY, None).await;
        serve(client, account, &runner, "write_note", WRITE, None).await;
        serve(client, account, &provider, "pooled", READ_ONLY, None).await;
        Self {
            account,
            account_public_id,
            workspace,
            workspace_public_id,
            human,
            agent,
            runner,
            application,
            provider,
        }
    }

    /// The base path of this workspace's runs.
    pub fn runs(&self) -> String {
        format!("/agent_api/v1/workspaces/{}/runs", self.workspace_public_id)
    }

    /// A tool step routed to this account's runner.
    pub fn routed(&self, key: &str, name: &str) -> serde_json::Value {
        serde_json::json!({"tool": {"key": key, "name": name, "input": {"n": 1},
            "route": {"kind": "runner", "runner_executor_public_id": self.runner.public_id.to_string()}}})
    }

    /// Creates and starts a run of these steps; gives its id.
    pub async fn run(&self, app: &TestApp, steps: serde_json::Value) -> String {
        let body = serde_json::json!({"run": {"approval_mode": "bypass", "steps": steps}});
        let created = app
            .post(&self.runs(), &self.human.token, body)
            .await
            .ok(201);
        let run = text(&created, "run.public_id").to_owned();
        app.command(&format!("{}/{run}/start", self.runs()), &self.human.token)
            .await
            .ok(200);
        run
    }

    /// A run's document.
    pub async fn show(&self, app: &TestApp, run: &str) -> nexus::domain::Value {
        app.get(&format!("{}/{run}", self.runs()), &self.human.token)
            .await
            .ok(200)
    }

    /// One task of it.
    pub async fn task(&self, app: &TestApp, run: &str, key: &str) -> nexus::domain::Value {
        let path = format!("{}/{run}/tasks/{key}", self.runs());
        app.get(&path, &self.human.token).await.ok(200)
    }
}

/// The path of a door of one inbox row.
pub fn door(run: &str, key: &str, verb: &str) -> String {
    format!("/agent_api/v1/executor/inbox/{run}/{key}/{verb}")
}

/// The token of a grant.
pub fn claim_token(granted: &Answer) -> String {
    text(&granted.ok(200), "claim.claim_token").to_owned()
}
