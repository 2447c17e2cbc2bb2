//! `PUT /executor/announcement` over the wire (`executor.md` §4, edge cases 4 to 8). The table of
//! shapes is tested where it is parsed.

use nexus::domain::json::Value;
use serde_json::json;

use crate::support::{OPERATOR, TestApp, at, items, text};

const DOOR: &str = "/agent_api/v1/executor/announcement";

fn profile() -> serde_json::Value {
    json!({"kind": "read_only", "destructive": false, "effect_scope": "closed",
           "idempotency": "intrinsic", "reconciliation": "none"})
}

fn tools(names: &[&str]) -> serde_json::Value {
    let tools: Vec<_> = names
        .iter()
        .map(|name| json!({"name": name, "effect_profile": profile()}))
        .collect();
    json!({ "tools": tools })
}

/// Everything stored of an executor's announcement.
async fn stored(app: &TestApp, executor: &str) -> String {
    let client = app.sql().await;
    client
        .query_one(
            "SELECT environment || documents || coalesce(announced_at::text, '-') ||
                    coalesce((SELECT string_agg(t::text, '|' ORDER BY ordinal) FROM served_tools t
                               WHERE t.account_id = e.account_id AND t.executor_id = e.executor_id), '')
               FROM executors e WHERE public_id = $1::text::uuid",
            &[&executor],
        )
        .await
        .unwrap()
        .get(0)
}

async fn names(app: &TestApp, runner: &str, human: &str) -> Vec<String> {
    let body = app
        .get(&format!("/agent_api/v1/executors/{runner}"), human)
        .await
        .ok(200);
    items(&body, "executor.served_tools")
        .iter()
        .map(|tool| text(tool, "name").to_owned())
        .collect()
}

#[tokio::test]
async fn an_announcement_replaces_all_three_lists_and_answers_the_bootstrap_body() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let mut whole = tools(&["read_file", "skill", "memory_read"]);
    whole["environment"] = json!({"root": "/w"});
    whole["documents"] = json!([{"name": "notes", "description": "d"}]);
    for party in [&f.runner, &f.provider, &f.application] {
        let answer = app.put(DOOR, &party.token, &whole).await;
        let body = answer.ok(200);
        assert_eq!(text(&body, "executor.public_id"), party.id);
        assert!(text(&body, "measured_at").ends_with('Z'));
        assert!(
            !answer.text().contains("read_file"),
            "nothing announced is readable here"
        );
    }
    assert_eq!(
        names(&app, &f.runner.id, &f.human.token).await,
        ["read_file", "skill", "memory_read"]
    );
    // Edge case 8: what is omitted is cleared.
    app.put(DOOR, &f.runner.token, tools(&["other"]))
        .await
        .ok(200);
    let body = app
        .get(
            &format!("/agent_api/v1/executors/{}", f.runner.id),
            &f.human.token,
        )
        .await
        .ok(200);
    assert_eq!(items(&body, "executor.served_tools").len(), 1);
    assert_eq!(
        at(&body, "executor.environment"),
        &Value::Object(Default::default())
    );
    assert!(items(&body, "executor.served_documents").is_empty());
    app.put(DOOR, &f.runner.token, r#"{"tools":[]}"#)
        .await
        .ok(200);
    assert!(names(&app, &f.runner.id, &f.human.token).await.is_empty());
    app.finish().await;
}

#[tokio::test]
async fn a_refused_announcement_leaves_the_prior_one_intact() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let mut prior = tools(&["read_file"]);
    prior["environment"] = json!({"root": "/w"});
    app.put(DOOR, &f.runner.token, &prior).await.ok(200);
    let before = stored(&app, &f.runner.id).await;
    let mut six = tools(&["ok", "bad"]);
    six["tools"][1]["effect_profile"]["sixth"] = json!(true);
    let mut odd = tools(&["ok", "bad"]);
    odd["tools"][1]["effect_profile"]["kind"] = json!("readonly");
    let mut fat = tools(&["ok"]);
    fat["environment"] = json!({"a": "x".repeat(70_000)});
    for (body, status, code, start) in [
        (json!({}), 400, "parameter_missing", "tools"),
        (json!({"tools": {}}), 422, "invalid_announcement", "tools "),
        (
            tools(&["ok", "ask"]),
            422,
            "reserved_namespace",
            "tools[1].name ",
        ),
        (
            tools(&["nexus.graph.delegate_task"]),
            422,
            "reserved_namespace",
            "tools[0].name ",
        ),
        (
            tools(&["nexus.memory.read"]),
            422,
            "invalid_announcement",
            "tools[0].name ",
        ),
        (
            tools(&["a", "b", "a"]),
            422,
            "invalid_announcement",
            "tools[2].name ",
        ),
        (six, 422, "invalid_announcement", "tools[1].effect_profile "),
        (
            odd,
            422,
            "invalid_announcement",
            "tools[1].effect_profile.kind ",
        ),
        (fat, 422, "validation_failed", "environment "),
        (
            json!({"tools": [], "environment": {"a": "\u{0}"}}),
            400,
            "parameter_invalid",
            "A string carrying U+0000",
        ),
    ] {
        let error = app
            .put(DOOR, &f.runner.token, &body)
            .await
            .expect(status, code);
        let message = text(&error, "message");
        assert!(message.starts_with(start), "{message}");
    }
    assert_eq!(stored(&app, &f.runner.id).await, before);
    app.finish().await;
}

#[tokio::test]
async fn announcements_of_one_executor_at_once_leave_one_of_them_whole() {
    let app = TestApp::replicas(2).await;
    let f = app.fixture().await;
    let variants: Vec<Vec<String>> = (0..10)
        .map(|i| (0..=i).map(|j| format!("t{i}_{j}")).collect())
        .collect();
    let calls: Vec<_> = variants
        .iter()
        .enumerate()
        .map(|(i, variant)| {
            let door = app.on(i % 2).clone();
            let token = f.runner.token.clone();
            let body = tools(&variant.iter().map(String::as_str).collect::<Vec<_>>());
            tokio::spawn(async move { door.put(DOOR, &token, body).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().ok(200);
    }
    let left = names(&app, &f.runner.id, &f.human.token).await;
    assert!(variants.contains(&left), "{left:?}");
    app.finish().await;
}

#[tokio::test]
async fn an_announcement_that_waited_behind_a_new_pairing_is_refused() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    app.put(DOOR, &f.runner.token, tools(&["prior"]))
        .await
        .ok(200);
    let before = stored(&app, &f.runner.id).await;
    // Hold the executor's row, let the announcement be proven and wait for it, then move the epoch.
    let mut holder = app.sql().await;
    let tx = holder.transaction().await.unwrap();
    tx.execute(
        "SELECT 1 FROM executors WHERE public_id = $1::text::uuid FOR UPDATE",
        &[&f.runner.id],
    )
    .await
    .unwrap();
    let (door, token) = (app.on(0).clone(), f.runner.token.clone());
    let call = tokio::spawn(async move { door.put(DOOR, &token, tools(&["late"])).await });
    let watcher = app.sql().await;
    loop {
        let waiting: i64 = watcher
            .query_one(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                    AND wait_event_type = 'Lock' AND query LIKE 'UPDATE executors SET environment%'",
                &[],
            )
            .await
            .unwrap()
            .get(0);
        if waiting == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    tx.execute("UPDATE executors SET credential_epoch = credential_epoch + 1 WHERE public_id = $1::text::uuid", &[&f.runner.id])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    call.await.unwrap().expect(401, "unauthorized");
    assert_eq!(stored(&app, &f.runner.id).await, before);
    let path = format!("/operator_api/v1/executors/{}/rotate", f.runner.id);
    app.command(&path, OPERATOR).await.ok(201);
    drop((holder, watcher));
    app.finish().await;
}
