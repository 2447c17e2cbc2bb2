//! What a credential opens, and for how long.

use std::time::Duration;

use serde_json::json;

use crate::support::fixture::{create_account, create_executor, create_human};
use crate::support::{Answer, OPERATOR, TestApp, at, text};

const BOOTSTRAP: &str = "/agent_api/v1/executor";
const WORKSPACES: &str = "/agent_api/v1/workspaces";

/// The answer without what differs by request.
fn comparable(answer: &Answer) -> (u16, String, String) {
    let id = answer.header("x-request-id").to_owned();
    let body = answer.text().replace(&id, "…");
    (
        answer.status.as_u16(),
        answer.header("www-authenticate").to_owned(),
        body,
    )
}

#[tokio::test]
async fn every_401_is_the_same_answer() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let client = app.sql().await;
    let expired = create_human(&app, &f.account, "expired").await;
    let revoked = create_human(&app, &f.account, "revoked").await;
    client
        .execute("UPDATE tokens SET expires_at = clock_timestamp() WHERE member_id = (SELECT member_id FROM members WHERE handle = 'expired')", &[])
        .await
        .unwrap();
    let lookup = revoked.token.split('-').nth(3).unwrap();
    let path = format!("/operator_api/v1/tokens/{lookup}/revoke");
    app.command(&path, OPERATOR).await.ok(200);
    let mut forged = f.human.token.clone();
    forged.replace_range(forged.len() - 4.., "0000");
    let bearers = [
        "",
        "x",
        "sk-nexus-m1-short-short",
        &forged,
        &f.runner.token,
        OPERATOR,
        &expired.token,
        &revoked.token,
    ];
    let plain = comparable(&app.get(WORKSPACES, "").await);
    assert_eq!(plain.0, 401);
    assert_eq!(plain.1, "Bearer realm=\"Nexus\"");
    for bearer in bearers {
        let answer = app.get(WORKSPACES, bearer).await;
        assert_eq!(comparable(&answer), plain);
    }
    let basic = app
        .request(reqwest::Method::GET, WORKSPACES, "")
        .header("authorization", "Basic eA==");
    assert_eq!(comparable(&basic.send().await), plain);
    let query = app
        .get(&format!("{WORKSPACES}?access_token={}", f.human.token), "")
        .await;
    assert_eq!(
        comparable(&query),
        plain,
        "tokens in query strings are ignored"
    );
    app.get(WORKSPACES, &f.human.token).await.ok(200);
    drop(client);
    app.finish().await;
}

/// executor.md, edge case 1.
#[tokio::test]
async fn a_bearer_opens_one_plane() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    for token in [&f.human.token, &f.agent.token, OPERATOR] {
        app.get(BOOTSTRAP, token).await.expect(401, "unauthorized");
        app.put(
            "/agent_api/v1/executor/announcement",
            token,
            r#"{"tools":[]}"#,
        )
        .await
        .expect(401, "unauthorized");
    }
    for token in [
        &f.runner.token,
        &f.provider.token,
        &f.application.token,
        OPERATOR,
    ] {
        app.get(WORKSPACES, token).await.expect(401, "unauthorized");
        app.get("/agent_api/v1/executors?kind=runner", token)
            .await
            .expect(401, "unauthorized");
    }
    for token in [&f.human.token, &f.runner.token] {
        app.get("/operator_api/v1/accounts", token)
            .await
            .expect(401, "unauthorized");
        app.post("/operator_api/v1/accounts", token, r#"{"name":"x"}"#)
            .await
            .expect(401, "unauthorized");
    }
    app.finish().await;
}

#[tokio::test]
async fn bootstrap_says_which_address_a_credential_is() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    for (party, kind) in [
        (&f.application, "agent_application"),
        (&f.runner, "runner"),
        (&f.provider, "tool_provider"),
    ] {
        let answer = app.get(BOOTSTRAP, &party.token).await;
        let body = answer.ok(200);
        assert_eq!(text(&body, "executor.public_id"), party.id);
        assert_eq!(text(&body, "executor.kind"), kind);
        assert_eq!(text(&body, "executor.status"), "active");
        assert_eq!(at(&body, "executor.credential_epoch").as_i64(), Some(1));
        // The request itself is a contact, noted behind it: before or after the row was read.
        let unseen = at(&body, "executor.last_seen_at").is_null();
        let presence = if unseen { "not_yet_seen" } else { "offline" };
        assert_eq!(text(&body, "executor.presence"), presence);
        assert!(at(&body, "executor.connected_at").is_null());
        assert!(text(&body, "measured_at").ends_with('Z'));
        for principal in [&f.human.id, &f.agent.id, &f.account] {
            assert!(
                !answer.text().contains(principal.as_str()),
                "no principal: {answer:?}"
            );
        }
    }
    app.finish().await;
}

/// executor.md §18: a mark counts while the replica that holds the socket heartbeats.
#[tokio::test]
async fn presence_is_what_the_row_and_the_replicas_heartbeat_say() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let client = app.sql().await;
    client.execute("INSERT INTO replicas (replica_id, version, roles, heartbeat_at) VALUES ('01990000-0000-7000-8000-000000000001', 't', '{}', nexus_now())", &[]).await.unwrap();
    let mark = "UPDATE executors SET online_connection = public_id, connected_at = nexus_now(), last_seen_at = nexus_now(),
                online_replica = '01990000-0000-7000-8000-000000000001' WHERE public_id = $1::text::uuid";
    client.execute(mark, &[&f.runner.id]).await.unwrap();
    let online = app.get(BOOTSTRAP, &f.runner.token).await.ok(200);
    assert_eq!(text(&online, "executor.presence"), "online");
    assert!(!at(&online, "executor.connected_at").is_null());
    app.advance(Duration::from_secs(31)).await;
    let offline = app.get(BOOTSTRAP, &f.runner.token).await.ok(200);
    assert_eq!(text(&offline, "executor.presence"), "offline");
    assert!(at(&offline, "executor.connected_at").is_null());
    assert!(!at(&offline, "executor.last_seen_at").is_null());
    // An advance of the epoch clears the mark.
    client
        .execute("UPDATE replicas SET heartbeat_at = nexus_now()", &[])
        .await
        .unwrap();
    let path = format!("/operator_api/v1/executors/{}/rotate", f.runner.id);
    let rotated = app.command(&path, OPERATOR).await.ok(201);
    assert_eq!(text(&rotated, "executor.presence"), "offline");
    drop(client);
    app.finish().await;
}

/// executor.md §2 and edge case 2, as far as doors exist.
#[tokio::test]
async fn pairing_again_keeps_the_address_and_kills_every_older_token() {
    let app = TestApp::start().await;
    let account = create_account(&app, "a").await;
    let human = create_human(&app, &account, "ada").await;
    let body = json!({
        "kind": "runner", "manager_public_id": human.id, "registration_identifier": "lab-1",
        "assignment_scope": "user_private", "display_name": "lab",
    });
    let first = create_executor(&app, &body).await;
    let mut renamed = body.clone();
    renamed["display_name"] = json!("lab again");
    let again = app
        .post("/operator_api/v1/executors", OPERATOR, renamed)
        .await
        .ok(200);
    assert_eq!(text(&again, "executor.public_id"), first.id);
    assert_eq!(text(&again, "executor.display_name"), "lab again");
    assert_eq!(at(&again, "credential.credential_epoch").as_i64(), Some(2));
    app.get(BOOTSTRAP, &first.token)
        .await
        .expect(401, "unauthorized");
    let second = text(&again, "credential.token").to_owned();
    app.get(BOOTSTRAP, &second).await.ok(200);
    let path = format!("/operator_api/v1/executors/{}/rotate", first.id);
    let third = app.command(&path, OPERATOR).await.ok(201);
    assert_eq!(text(&third, "executor.public_id"), first.id);
    assert_eq!(at(&third, "credential.credential_epoch").as_i64(), Some(3));
    app.get(BOOTSTRAP, &second)
        .await
        .expect(401, "unauthorized");
    app.get(BOOTSTRAP, text(&third, "credential.token"))
        .await
        .ok(200);
    app.finish().await;
}

#[tokio::test]
async fn a_registration_key_is_blind_to_kind_and_its_scope_is_frozen() {
    let app = TestApp::start().await;
    let account = create_account(&app, "a").await;
    let human = create_human(&app, &account, "ada").await;
    let body = json!({
        "kind": "runner", "manager_public_id": human.id, "registration_identifier": "lab-1",
        "assignment_scope": "account_wide", "display_name": "lab",
    });
    let first = create_executor(&app, &body).await;
    for (member, value, code) in [
        ("kind", "tool_provider", "executor_kind_mismatch"),
        (
            "assignment_scope",
            "user_private",
            "executor_scope_mismatch",
        ),
    ] {
        let mut other = body.clone();
        other[member] = json!(value);
        app.post("/operator_api/v1/executors", OPERATOR, other)
            .await
            .expect(409, code);
    }
    app.get(BOOTSTRAP, &first.token).await.ok(200);
    // Another manager, or another identifier, is another key.
    let other = create_human(&app, &account, "bob").await;
    let mut elsewhere = body.clone();
    elsewhere["manager_public_id"] = json!(other.id);
    assert_ne!(create_executor(&app, &elsewhere).await.id, first.id);
    let mut unnamed = body.clone();
    unnamed
        .as_object_mut()
        .unwrap()
        .remove("registration_identifier");
    let one = create_executor(&app, &unnamed).await;
    assert_ne!(
        create_executor(&app, &unnamed).await.id,
        one.id,
        "no identifier: a key of its own"
    );
    app.finish().await;
}

#[tokio::test]
async fn revocation_is_terminal_and_its_key_makes_a_new_address() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let path = format!("/operator_api/v1/executors/{}", f.application.id);
    let revoked = app
        .command(&format!("{path}/revoke"), OPERATOR)
        .await
        .ok(200);
    assert_eq!(text(&revoked, "executor.status"), "revoked");
    assert_eq!(
        app.command(&format!("{path}/revoke"), OPERATOR)
            .await
            .ok(200),
        revoked,
        "idempotent"
    );
    app.get(BOOTSTRAP, &f.application.token)
        .await
        .expect(401, "unauthorized");
    for verb in ["rotate", "shutdown"] {
        app.command(&format!("{path}/{verb}"), OPERATOR)
            .await
            .expect(409, "executor_revoked");
    }
    let body =
        json!({"kind": "agent_application", "agent_public_id": f.agent.id, "display_name": "anew"});
    let anew = create_executor(&app, &body).await;
    assert_ne!(anew.id, f.application.id);
    app.get(BOOTSTRAP, &anew.token).await.ok(200);
    let still = app.get(&path, OPERATOR).await.ok(200);
    assert_eq!(text(&still, "executor.status"), "revoked");
    app.finish().await;
}

#[tokio::test]
async fn a_shutdown_keeps_the_transport_and_survives_pairing_until_it_is_done() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let path = format!("/operator_api/v1/executors/{}", f.runner.id);
    let asked = app
        .command(&format!("{path}/shutdown"), OPERATOR)
        .await
        .ok(202);
    assert!(!at(&asked, "executor.shutdown_at").is_null());
    app.advance(Duration::from_secs(60)).await;
    let again = app
        .command(&format!("{path}/shutdown"), OPERATOR)
        .await
        .ok(202);
    assert_eq!(
        at(&again, "executor.shutdown_at"),
        at(&asked, "executor.shutdown_at")
    );
    app.get(BOOTSTRAP, &f.runner.token).await.ok(200);
    let draining = app
        .command(&format!("{path}/rotate"), OPERATOR)
        .await
        .ok(201);
    assert_eq!(
        at(&draining, "executor.shutdown_at"),
        at(&asked, "executor.shutdown_at")
    );
    // Once it is acknowledged, a new credential begins a new life.
    let client = app.sql().await;
    client
        .execute("UPDATE executors SET shutdown_generation = credential_epoch WHERE public_id = $1::text::uuid", &[&f.runner.id])
        .await
        .unwrap();
    let anew = app
        .command(&format!("{path}/rotate"), OPERATOR)
        .await
        .ok(201);
    assert!(at(&anew, "executor.shutdown_at").is_null());
    drop(client);
    app.finish().await;
}

#[tokio::test]
async fn a_member_rotates_and_only_the_newest_token_opens() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let path = format!("/operator_api/v1/members/{}/rotate", f.human.id);
    let rotated = app.command(&path, OPERATOR).await.ok(201);
    assert_eq!(text(&rotated, "member.public_id"), f.human.id);
    assert_eq!(at(&rotated, "member.credential_epoch").as_i64(), Some(2));
    app.get(WORKSPACES, &f.human.token)
        .await
        .expect(401, "unauthorized");
    app.get(WORKSPACES, text(&rotated, "token")).await.ok(200);
    app.finish().await;
}

#[tokio::test]
async fn the_suspended_are_refused_and_the_resumed_are_back_with_their_old_tokens() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let neighbour = app.fixture().await;
    let agent = format!("/operator_api/v1/members/{}", f.agent.id);
    app.command(&format!("{agent}/suspend"), OPERATOR)
        .await
        .ok(200);
    app.get(WORKSPACES, &f.agent.token)
        .await
        .expect(401, "unauthorized");
    app.get(BOOTSTRAP, &f.application.token)
        .await
        .expect(401, "unauthorized");
    app.get(WORKSPACES, &f.human.token).await.ok(200);
    app.get(BOOTSTRAP, &f.runner.token).await.ok(200);
    app.command(&format!("{agent}/resume"), OPERATOR)
        .await
        .ok(200);
    app.get(WORKSPACES, &f.agent.token).await.ok(200);
    app.get(BOOTSTRAP, &f.application.token).await.ok(200);

    let account = format!("/operator_api/v1/accounts/{}", f.account);
    app.command(&format!("{account}/suspend"), OPERATOR)
        .await
        .ok(200);
    for token in [&f.human.token, &f.agent.token] {
        app.get(WORKSPACES, token).await.expect(401, "unauthorized");
    }
    for token in [&f.application.token, &f.runner.token, &f.provider.token] {
        app.get(BOOTSTRAP, token).await.expect(401, "unauthorized");
    }
    app.get(WORKSPACES, &neighbour.human.token).await.ok(200);
    app.command(&format!("{account}/resume"), OPERATOR)
        .await
        .ok(200);
    app.get(WORKSPACES, &f.human.token).await.ok(200);
    app.get(BOOTSTRAP, &f.runner.token).await.ok(200);
    app.finish().await;
}

#[tokio::test]
async fn an_operator_token_of_the_database_opens_the_operator_plane_until_it_is_revoked() {
    use nexus::commands::provision::tokens;
    let app = TestApp::start().await;
    let store = &app.app().store;
    let token = tokens::create_operator(store, "on call").await.unwrap();
    assert!(token.starts_with("sk-nexus-o1-"));
    app.get("/operator_api/v1/accounts", &token).await.ok(200);
    app.get(BOOTSTRAP, &token).await.expect(401, "unauthorized");
    let lookup = token.split('-').nth(3).unwrap();
    tokens::revoke_operator(store, lookup).await.unwrap();
    app.get("/operator_api/v1/accounts", &token)
        .await
        .expect(401, "unauthorized");
    let absent = tokens::revoke_operator(store, "nobody").await.unwrap_err();
    assert_eq!(absent.to_string(), "there is no such resource");
    app.finish().await;
}

#[tokio::test]
async fn one_token_can_be_revoked_by_itself() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let lookup = f.runner.token.split('-').nth(3).unwrap();
    let path = format!("/operator_api/v1/tokens/{lookup}");
    let read = app.get(&path, OPERATOR).await;
    let shown = read.ok(200);
    assert_eq!(text(&shown, "token.owner_public_id"), f.runner.id);
    assert_eq!(text(&shown, "token.plane"), "executor_transport");
    let secret = f.runner.token.rsplit('-').next().unwrap();
    assert!(!read.text().contains(secret));
    let revoked = app
        .command(&format!("{path}/revoke"), OPERATOR)
        .await
        .ok(200);
    assert!(!at(&revoked, "token.revoked_at").is_null());
    app.get(BOOTSTRAP, &f.runner.token)
        .await
        .expect(401, "unauthorized");
    assert_eq!(
        app.command(&format!("{path}/revoke"), OPERATOR)
            .await
            .ok(200),
        revoked
    );
    app.finish().await;
}
