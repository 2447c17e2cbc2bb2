//! Provisioning under many hands at once.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::fixture::{create_account, create_human};
use crate::support::{Answer, OPERATOR, TestApp, at, text};

/// Sends the same POST many times at once, over all replicas.
async fn storm(app: &TestApp, n: usize, path: &str, body: &serde_json::Value) -> Vec<Answer> {
    let calls: Vec<_> = (0..n)
        .map(|i| {
            let door = app.on(i % app.replicas.len()).clone();
            let (path, body) = (path.to_owned(), body.clone());
            tokio::spawn(async move { door.post(&path, OPERATOR, body).await })
        })
        .collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn one_registration_key_is_one_executor_however_many_register_it_at_once() {
    let app = TestApp::replicas(3).await;
    let account = create_account(&app, "a").await;
    let human = create_human(&app, &account, "ada").await;
    let body = json!({
        "kind": "runner", "manager_public_id": human.id, "registration_identifier": "lab",
        "display_name": "lab",
    });
    let answers = storm(&app, 12, "/operator_api/v1/executors", &body).await;
    let mut ids = BTreeSet::new();
    let mut epochs = BTreeSet::new();
    let mut tokens = Vec::new();
    let mut made = 0;
    for answer in &answers {
        assert!(matches!(answer.status.as_u16(), 200 | 201), "{answer:?}");
        made += usize::from(answer.status.as_u16() == 201);
        let body = answer.json();
        ids.insert(text(&body, "executor.public_id").to_owned());
        let epoch = at(&body, "credential.credential_epoch").as_i64().unwrap();
        epochs.insert(epoch);
        tokens.push((epoch, text(&body, "credential.token").to_owned()));
    }
    assert_eq!(made, 1, "one was the first");
    assert_eq!(ids.len(), 1);
    assert_eq!(
        epochs,
        (1..=12).collect(),
        "each pairing has an epoch of its own"
    );
    tokens.sort();
    let (_, newest) = tokens.pop().unwrap();
    app.get("/agent_api/v1/executor", &newest).await.ok(200);
    for (_, older) in tokens {
        app.get("/agent_api/v1/executor", &older)
            .await
            .expect(401, "unauthorized");
    }
    app.finish().await;
}

#[tokio::test]
async fn kinds_that_race_for_one_key_leave_one_executor() {
    let app = TestApp::replicas(2).await;
    let account = create_account(&app, "a").await;
    let human = create_human(&app, &account, "ada").await;
    let calls: Vec<_> = (0..10)
        .map(|i| {
            let door = app.on(i % 2).clone();
            let kind = if i % 2 == 0 {
                "runner"
            } else {
                "tool_provider"
            };
            let body = json!({
                "kind": kind, "manager_public_id": human.id, "registration_identifier": "lab",
                "display_name": kind,
            });
            tokio::spawn(async move {
                door.post("/operator_api/v1/executors", OPERATOR, body)
                    .await
            })
        })
        .collect();
    let mut ids = BTreeSet::new();
    for call in calls {
        let answer = call.await.unwrap();
        if answer.status.is_success() {
            ids.insert(text(&answer.json(), "executor.public_id").to_owned());
        } else {
            answer.expect(409, "executor_kind_mismatch");
        }
    }
    assert_eq!(ids.len(), 1);
    app.finish().await;
}

#[tokio::test]
async fn two_rotations_at_once_leave_one_working_token() {
    let app = TestApp::replicas(2).await;
    let f = app.fixture().await;
    for (path, door, token) in [
        (
            format!("/operator_api/v1/members/{}/rotate", f.human.id),
            "/agent_api/v1/workspaces",
            "token",
        ),
        (
            format!("/operator_api/v1/executors/{}/rotate", f.runner.id),
            "/agent_api/v1/executor",
            "credential.token",
        ),
    ] {
        let answers = storm(&app, 8, &path, &json!({})).await;
        let mut working = 0;
        for answer in &answers {
            let bearer = text(&answer.ok(201), token).to_owned();
            working += usize::from(app.get(door, &bearer).await.status.as_u16() == 200);
        }
        assert_eq!(working, 1, "{path}");
    }
    app.finish().await;
}

#[tokio::test]
async fn one_handle_is_one_member_however_many_ask_for_it() {
    let app = TestApp::replicas(2).await;
    let account = create_account(&app, "a").await;
    let body = json!({"account_public_id": account, "kind": "human", "handle": "ada"});
    let answers = storm(&app, 8, "/operator_api/v1/members", &body).await;
    let made = answers.iter().filter(|a| a.status.as_u16() == 201).count();
    assert_eq!(made, 1);
    for refused in answers.iter().filter(|a| a.status.as_u16() != 201) {
        refused.expect(409, "handle_taken");
    }
    app.finish().await;
}

#[tokio::test]
async fn revocation_wins_over_rotations_that_race_it() {
    let app = TestApp::replicas(2).await;
    let f = app.fixture().await;
    let rotate = format!("/operator_api/v1/executors/{}/rotate", f.runner.id);
    let revoke = format!("/operator_api/v1/executors/{}/revoke", f.runner.id);
    let nothing = json!({});
    let rotating = storm(&app, 6, &rotate, &nothing);
    let revoking = app.command(&revoke, OPERATOR);
    let (rotated, revoked) = tokio::join!(rotating, revoking);
    revoked.ok(200);
    for answer in rotated {
        if answer.status.is_success() {
            let bearer = text(&answer.json(), "credential.token").to_owned();
            app.get("/agent_api/v1/executor", &bearer)
                .await
                .expect(401, "unauthorized");
        } else {
            answer.expect(409, "executor_revoked");
        }
    }
    app.finish().await;
}

/// BR-084: a client that hangs up leaves neither a half-made thing nor a connection in a
/// transaction.
#[tokio::test]
async fn a_client_that_hangs_up_leaves_no_half_made_thing() {
    use tokio::io::AsyncWriteExt as _;
    let app = TestApp::with().set("NEXUS_DB_POOL", "2").start().await;
    let f = app.fixture().await;
    let host = app.base.trim_start_matches("http://").to_owned();
    let path = format!("/operator_api/v1/executors/{}/rotate", f.runner.id);
    for _ in 0..60 {
        let mut socket = tokio::net::TcpStream::connect(&host).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {OPERATOR}\r\ncontent-length: 0\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        // One answered request behind it: the server has begun the first by now, or soon will.
        app.get("/livez", "").await.ok(200);
        drop(socket);
    }
    let paired = app.command(&path, OPERATOR).await.ok(201);
    app.get("/agent_api/v1/executor", text(&paired, "credential.token"))
        .await
        .ok(200);
    let client = app.sql().await;
    let stuck: i64 = client
        .query_one(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                AND state = 'idle in transaction' AND state_change < clock_timestamp() - interval '2 seconds'",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(stuck, 0);
    drop(client);
    // The audit finds an epoch without its token, or two tokens of one epoch.
    app.finish().await;
}
