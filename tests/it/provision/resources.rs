//! Each resource is made, read and changed as its page says.

use nexus::domain::json::Value;
use serde_json::json;

use crate::support::fixture::{create_account, create_agent, create_human, create_workspace};
use crate::support::{OPERATOR, TestApp, at, text};

#[tokio::test]
async fn an_account_is_made_read_suspended_and_resumed() {
    let app = TestApp::start().await;
    let body = json!({"name": "Öffentlich & Söhne"});
    let made = app
        .post("/operator_api/v1/accounts", OPERATOR, body)
        .await
        .ok(201);
    assert_eq!(text(&made, "account.name"), "Öffentlich & Söhne");
    assert_eq!(text(&made, "account.status"), "active");
    let path = format!(
        "/operator_api/v1/accounts/{}",
        text(&made, "account.public_id")
    );
    assert_eq!(app.get(&path, OPERATOR).await.ok(200), made);
    let upper = path
        .to_uppercase()
        .replace("/OPERATOR_API/V1/ACCOUNTS/", "/operator_api/v1/accounts/");
    assert_eq!(
        app.get(&upper, OPERATOR).await.ok(200),
        made,
        "ids read in any case"
    );
    for (verb, status) in [
        ("suspend", "suspended"),
        ("suspend", "suspended"),
        ("resume", "active"),
        ("resume", "active"),
    ] {
        let answer = app
            .command(&format!("{path}/{verb}"), OPERATOR)
            .await
            .ok(200);
        assert_eq!(text(&answer, "account.status"), status);
        assert_eq!(app.get(&path, OPERATOR).await.ok(200), answer);
    }
    app.finish().await;
}

#[tokio::test]
async fn a_workspace_belongs_to_its_account() {
    let app = TestApp::start().await;
    let account = create_account(&app, "a").await;
    let body = json!({"account_public_id": account, "name": "w"});
    let made = app
        .post("/operator_api/v1/workspaces", OPERATOR, body)
        .await
        .ok(201);
    assert_eq!(text(&made, "workspace.account_public_id"), account);
    assert!(at(&made, "workspace.archived_at").is_null());
    let path = format!(
        "/operator_api/v1/workspaces/{}",
        text(&made, "workspace.public_id")
    );
    assert_eq!(app.get(&path, OPERATOR).await.ok(200), made);
    app.finish().await;
}

#[tokio::test]
async fn members_are_humans_and_agents_and_get_a_token_once() {
    let app = TestApp::start().await;
    let account = create_account(&app, "a").await;
    let body = json!({
        "account_public_id": account, "kind": "human", "handle": "ada", "display_name": "Ada L.",
    });
    let made = app
        .post("/operator_api/v1/members", OPERATOR, body)
        .await
        .ok(201);
    let human = text(&made, "member.public_id");
    assert!(text(&made, "token").starts_with("sk-nexus-m1-"));
    assert!(at(&made, "member.controlling_human_public_id").is_null());
    let agent = create_agent(&app, &account, "bot", human).await;
    let read = app
        .get(&format!("/operator_api/v1/members/{}", agent.id), OPERATOR)
        .await;
    let shown = read.ok(200);
    assert_eq!(text(&shown, "member.kind"), "agent");
    assert_eq!(text(&shown, "member.controlling_human_public_id"), human);
    assert!(
        !read.text().contains("sk-nexus"),
        "a token is shown once: {read:?}"
    );
    app.finish().await;
}

#[tokio::test]
async fn the_database_holds_no_token_text() {
    let app = TestApp::start().await;
    let all = app.fixture().await;
    let operator = nexus::commands::provision::tokens::create_operator(&app.app().store, "x")
        .await
        .unwrap();
    let client = app.sql().await;
    let secrets = [
        &all.human,
        &all.agent,
        &all.application,
        &all.runner,
        &all.provider,
    ]
    .map(|party| party.token.clone())
    .into_iter()
    .chain([operator]);
    for token in secrets {
        let secret = token.rsplit('-').next().unwrap();
        for table in ["tokens", "operator_tokens", "members", "executors"] {
            let sql = format!("SELECT count(*) FROM {table} t WHERE t::text LIKE '%' || $1 || '%'");
            let hits: i64 = client.query_one(&sql, &[&secret]).await.unwrap().get(0);
            assert_eq!(hits, 0, "{table}");
        }
    }
    drop(client);
    app.finish().await;
}

#[tokio::test]
async fn a_grant_is_given_replaced_and_taken_away() {
    let app = TestApp::start().await;
    let account = create_account(&app, "a").await;
    let workspace = create_workspace(&app, &account, "w").await;
    let human = create_human(&app, &account, "ada").await;
    let path = format!(
        "/operator_api/v1/workspaces/{workspace}/grants/{}",
        human.id
    );
    let door = format!("/agent_api/v1/workspaces/{workspace}");
    app.get(&path, OPERATOR).await.expect(404, "not_found");
    app.get(&door, &human.token).await.expect(404, "not_found");
    let given = app
        .put(&path, OPERATOR, json!({"access": "read"}))
        .await
        .ok(201);
    assert_eq!(text(&given, "grant.access"), "read");
    let seen = app.get(&door, &human.token).await.ok(200);
    assert_eq!(text(&seen, "workspace.access"), "read");
    let replaced = app
        .put(&path, OPERATOR, json!({"access": "write"}))
        .await
        .ok(200);
    assert_eq!(app.get(&path, OPERATOR).await.ok(200), replaced);
    assert_eq!(
        at(&replaced, "grant.created_at"),
        at(&given, "grant.created_at")
    );
    let gone = app.delete(&path, OPERATOR).await;
    assert_eq!(gone.ok(204), Value::Null);
    app.get(&door, &human.token).await.expect(404, "not_found");
    app.delete(&path, OPERATOR).await.expect(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn the_test_clock_moves_only_where_it_was_allowed() {
    let app = TestApp::start().await;
    let before = app.now().await;
    let body = json!({"advance_ms": 90_000});
    let moved = app
        .post("/operator_api/v1/test_clock", OPERATOR, &body)
        .await
        .ok(200);
    assert!(text(&moved, "test_clock.now").ends_with('Z'));
    assert!(app.now().await - before >= chrono::Duration::seconds(90));
    for bad in [
        json!({"advance_ms": -1}),
        json!({"advance_ms": 1.0}),
        json!({"advance_ms": "1"}),
    ] {
        app.post("/operator_api/v1/test_clock", OPERATOR, bad)
            .await
            .expect(400, "parameter_invalid");
    }
    app.finish().await;

    let closed = TestApp::with().set("NEXUS_TEST_CLOCK", "0").start().await;
    closed
        .post("/operator_api/v1/test_clock", OPERATOR, &body)
        .await
        .expect(404, "not_found");
    closed
        .post("/operator_api/v1/test_clock", "", &body)
        .await
        .expect(401, "unauthorized");
    closed.finish().await;
}
