//! Which machines a member finds (`executor.md` §4, "Discovery").

use serde_json::json;

use crate::support::fixture::{create_agent, create_executor, create_human, create_machine};
use crate::support::{OPERATOR, Party, TestApp, at, items, text};

async fn found(app: &TestApp, kind: &str, token: &str) -> Vec<String> {
    let body = app
        .get(&format!("/agent_api/v1/executors?kind={kind}"), token)
        .await
        .ok(200);
    items(&body, "executors")
        .iter()
        .map(|row| text(row, "public_id").to_owned())
        .collect()
}

async fn can_read(app: &TestApp, executor: &Party, token: &str) -> bool {
    let answer = app
        .get(&format!("/agent_api/v1/executors/{}", executor.id), token)
        .await;
    match answer.status.as_u16() {
        200 => true,
        _ => {
            answer.expect(404, "not_found");
            false
        }
    }
}

#[tokio::test]
async fn a_member_finds_the_machines_that_are_eligible_for_it() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let neighbour = app.fixture().await;
    let private = create_machine(&app, "runner", &f.human.id, "user_private").await;
    let bob = create_human(&app, &f.account, "bob").await;
    let bobs_agent = create_agent(&app, &f.account, "bobs", &bob.id).await;
    for token in [&f.human.token, &f.agent.token] {
        assert_eq!(
            found(&app, "runner", token).await,
            [f.runner.id.clone(), private.id.clone()]
        );
        assert!(can_read(&app, &private, token).await);
    }
    for token in [&bob.token, &bobs_agent.token] {
        assert_eq!(found(&app, "runner", token).await, [f.runner.id.clone()]);
        assert!(!can_read(&app, &private, token).await);
        assert!(can_read(&app, &f.provider, token).await);
    }
    assert_eq!(
        found(&app, "tool_provider", &bob.token).await,
        [f.provider.id.clone()]
    );
    // An application is no machine, whoever asks; a neighbour's machine is not there.
    assert!(!can_read(&app, &f.application, &f.agent.token).await);
    assert!(!can_read(&app, &neighbour.runner, &f.human.token).await);
    app.finish().await;
}

#[tokio::test]
async fn what_is_revoked_shutting_down_or_without_a_token_is_not_found() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let revoked = create_machine(&app, "runner", &f.human.id, "account_wide").await;
    let leaving = create_machine(&app, "runner", &f.human.id, "account_wide").await;
    let tokenless = create_machine(&app, "runner", &f.human.id, "account_wide").await;
    assert_eq!(found(&app, "runner", &f.human.token).await.len(), 4);
    app.command(
        &format!("/operator_api/v1/executors/{}/revoke", revoked.id),
        OPERATOR,
    )
    .await
    .ok(200);
    app.command(
        &format!("/operator_api/v1/executors/{}/shutdown", leaving.id),
        OPERATOR,
    )
    .await
    .ok(202);
    let lookup = tokenless.token.split('-').nth(3).unwrap();
    app.command(
        &format!("/operator_api/v1/tokens/{lookup}/revoke"),
        OPERATOR,
    )
    .await
    .ok(200);
    assert_eq!(
        found(&app, "runner", &f.human.token).await,
        [f.runner.id.clone()]
    );
    for gone in [&revoked, &leaving, &tokenless] {
        assert!(!can_read(&app, gone, &f.human.token).await);
    }
    app.finish().await;
}

#[tokio::test]
async fn discovery_shows_what_was_announced() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let path = format!("/agent_api/v1/executors/{}", f.runner.id);
    let bare = app.get(&path, &f.human.token).await.ok(200);
    assert!(items(&bare, "executor.served_tools").is_empty());
    let profile = json!({"kind": "write", "destructive": true, "effect_scope": "open", "idempotency": "none", "reconciliation": "lookup"});
    let announced = json!({
        "tools": [
            {"name": "zeta", "effect_profile": profile, "timeout_ms": 5, "description": "z",
             "input_schema": {"type": "object", "properties": {"n": {"maximum": 1e20}}}},
            {"name": "alpha", "effect_profile": profile},
        ],
        "environment": {"root": "/w", "big": 9007199254740993_u64},
        "documents": [{"name": "notes", "description": "d"}],
    });
    app.put(
        "/agent_api/v1/executor/announcement",
        &f.runner.token,
        &announced,
    )
    .await
    .ok(200);
    let answer = app.get(&path, &f.human.token).await;
    let body = answer.ok(200);
    let wanted = nexus::domain::json::parse(announced.to_string().as_bytes()).unwrap();
    assert_eq!(
        at(&body, "executor.served_tools"),
        at(&wanted, "tools"),
        "in the announced order"
    );
    assert_eq!(
        at(&body, "executor.environment"),
        at(&wanted, "environment")
    );
    assert_eq!(
        at(&body, "executor.served_documents"),
        at(&wanted, "documents")
    );
    assert_eq!(text(&body, "executor.assignment_scope"), "account_wide");
    assert_eq!(text(&body, "executor.kind"), "runner");
    assert!(["not_yet_seen", "offline"].contains(&text(&body, "executor.presence")));
    assert!(!answer.text().contains("registration_identifier"));
    app.finish().await;
}

#[tokio::test]
async fn kind_is_runner_or_tool_provider() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let path = "/agent_api/v1/executors";
    app.get(path, &f.human.token)
        .await
        .expect(400, "parameter_missing");
    for kind in ["", "agent_application", "Runner", "runner,tool_provider"] {
        let error = app
            .get(&format!("{path}?kind={kind}"), &f.human.token)
            .await
            .expect(400, "parameter_invalid");
        assert_eq!(text(&error, "parameter"), "kind");
    }
    app.finish().await;
}

#[tokio::test]
async fn pages_are_full_however_many_rows_are_not_eligible() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let bob = create_human(&app, &f.account, "bob").await;
    let mut wide = vec![f.runner.id.clone()];
    for i in 0..9 {
        let scope = if i % 3 == 2 {
            "account_wide"
        } else {
            "user_private"
        };
        let body = json!({
            "kind": "runner", "manager_public_id": f.human.id, "assignment_scope": scope,
            "display_name": format!("r{i}"),
        });
        let executor = create_executor(&app, &body).await;
        if scope == "account_wide" {
            wide.push(executor.id);
        }
    }
    for order in ["asc", "desc"] {
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let path = format!("/agent_api/v1/executors?kind=runner&limit=2&order={order}{after}");
            let body = app.get(&path, &bob.token).await.ok(200);
            let page = items(&body, "executors");
            seen.extend(page.iter().map(|row| text(row, "public_id").to_owned()));
            match at(&body, "pagination.next_after").as_str() {
                None => break,
                Some(next) => {
                    assert_eq!(page.len(), 2, "a page with a next one is full");
                    after = format!("&after={next}");
                }
            }
        }
        if order == "desc" {
            seen.reverse();
        }
        assert_eq!(seen, wide, "{order}");
    }
    app.finish().await;
}
