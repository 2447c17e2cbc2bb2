//! What most tests start from, provisioned through the operator plane as people would.

use nexus::domain::json::Value;
use serde_json::json;

use super::OPERATOR;
use super::http::{Door, at, text};

/// Somebody with a bearer.
#[derive(Debug, Clone)]
pub struct Party {
    /// Public id.
    pub id: String,
    /// Bearer.
    pub token: String,
}

/// One account and who acts in it.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// The account's public id.
    pub account: String,
    /// The workspace's public id.
    pub workspace: String,
    /// A human who may write.
    pub human: Party,
    /// An agent who may write, controlled by the human.
    pub agent: Party,
    /// The agent's own address.
    pub application: Party,
    /// An account-wide runner of the human's.
    pub runner: Party,
    /// An account-wide tool provider of the human's.
    pub provider: Party,
}

/// POST on the operator plane; the answer's body.
#[track_caller]
fn created(answer: &super::Answer) -> Value {
    answer.ok(201)
}

impl Fixture {
    /// Provisions it.
    pub async fn provision(door: &Door) -> Self {
        let account = create_account(door, "fixture").await;
        let workspace = create_workspace(door, &account, "fixture").await;
        let human = create_human(door, &account, "human").await;
        let agent = create_agent(door, &account, "agent", &human.id).await;
        for member in [&human, &agent] {
            grant(door, &workspace, &member.id, "write").await;
        }
        let application = create_executor(
            door,
            &json!({"kind": "agent_application", "agent_public_id": agent.id, "display_name": "application"}),
        )
        .await;
        let runner = create_machine(door, "runner", &human.id, "account_wide").await;
        let provider = create_machine(door, "tool_provider", &human.id, "account_wide").await;
        Self {
            account,
            workspace,
            human,
            agent,
            application,
            runner,
            provider,
        }
    }
}

/// Makes an account; its public id.
pub async fn create_account(door: &Door, name: &str) -> String {
    let answer = door
        .post("/operator_api/v1/accounts", OPERATOR, json!({"name": name}))
        .await;
    text(&created(&answer), "account.public_id").to_owned()
}

/// Makes a workspace; its public id.
pub async fn create_workspace(door: &Door, account: &str, name: &str) -> String {
    let body = json!({"account_public_id": account, "name": name});
    let answer = door
        .post("/operator_api/v1/workspaces", OPERATOR, body)
        .await;
    text(&created(&answer), "workspace.public_id").to_owned()
}

/// Makes a member of whatever body.
pub async fn create_member(door: &Door, body: &serde_json::Value) -> Party {
    let answer = door.post("/operator_api/v1/members", OPERATOR, body).await;
    let body = created(&answer);
    Party {
        id: text(&body, "member.public_id").to_owned(),
        token: text(&body, "token").to_owned(),
    }
}

/// Makes a human.
pub async fn create_human(door: &Door, account: &str, handle: &str) -> Party {
    let body = json!({"account_public_id": account, "kind": "human", "handle": handle});
    create_member(door, &body).await
}

/// Makes an agent of a human's.
pub async fn create_agent(door: &Door, account: &str, handle: &str, human: &str) -> Party {
    let body = json!({
        "account_public_id": account, "kind": "agent", "handle": handle,
        "controlling_human_public_id": human,
    });
    create_member(door, &body).await
}

/// Gives access.
pub async fn grant(door: &Door, workspace: &str, member: &str, access: &str) {
    let path = format!("/operator_api/v1/workspaces/{workspace}/grants/{member}");
    let answer = door.put(&path, OPERATOR, json!({"access": access})).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

/// Registers an executor of whatever body, as a new one.
pub async fn create_executor(door: &Door, body: &serde_json::Value) -> Party {
    let answer = door
        .post("/operator_api/v1/executors", OPERATOR, body)
        .await;
    let body = created(&answer);
    Party {
        id: text(&body, "executor.public_id").to_owned(),
        token: text(at(&body, "credential"), "token").to_owned(),
    }
}

/// Registers a machine under a key of its own.
pub async fn create_machine(door: &Door, kind: &str, manager: &str, scope: &str) -> Party {
    let body = json!({
        "kind": kind, "manager_public_id": manager, "assignment_scope": scope, "display_name": kind,
    });
    create_executor(door, &body).await
}
