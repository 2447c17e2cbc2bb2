//! What provisioning refuses, in which order, and that a refusal changes nothing.

use nexus::domain::json::Value;
use serde_json::json;

use crate::support::fixture::{create_account, create_human};
use crate::support::{OPERATOR, TestApp, find, text};

const NOBODY: &str = "01990000-0000-7000-8000-000000000000";

/// Every row of provisioning, as one text.
async fn everything(app: &TestApp) -> String {
    let client = app.sql().await;
    let mut all = String::new();
    for table in [
        "accounts",
        "workspaces",
        "members",
        "grants",
        "executors",
        "served_tools",
        "tokens",
    ] {
        let sql = format!(
            "SELECT coalesce(string_agg(t::text, '|' ORDER BY t::text), '') FROM {table} t"
        );
        let row = client.query_one(&sql, &[]).await.unwrap();
        all.push_str(&row.get::<_, String>(0));
    }
    all
}

/// `last_seen_at` is sampled behind a request; no operator call touches it.
#[tokio::test]
async fn a_refusal_names_what_is_wrong_and_changes_nothing() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let neighbour = app.fixture().await;
    let before = everything(&app).await;
    let long = "x".repeat(201);
    let (accounts, workspaces, members, executors) =
        ("accounts", "workspaces", "members", "executors");
    let grant = format!("workspaces/{}/grants/{}", f.workspace, f.human.id);
    let human = |extra: serde_json::Value| {
        let mut body = json!({"account_public_id": f.account, "kind": "human", "handle": "new"});
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        body
    };
    let runner = |extra: serde_json::Value| {
        let mut body =
            json!({"kind": "runner", "manager_public_id": f.human.id, "display_name": "r"});
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        body
    };
    let table = [
        (accounts, json!({}), 400, "parameter_missing", "name"),
        (
            accounts,
            json!({"name": null}),
            400,
            "parameter_missing",
            "name",
        ),
        (
            accounts,
            json!({"name": ""}),
            400,
            "parameter_invalid",
            "name",
        ),
        (
            accounts,
            json!({"name": " \t"}),
            400,
            "parameter_invalid",
            "name",
        ),
        (
            accounts,
            json!({"name": 7}),
            400,
            "parameter_invalid",
            "name",
        ),
        (
            accounts,
            json!({"name": long}),
            400,
            "parameter_invalid",
            "name",
        ),
        (
            accounts,
            json!({"name": "a\u{0}b"}),
            400,
            "parameter_invalid",
            "name",
        ),
        (
            accounts,
            json!({"name": "a\nb"}),
            400,
            "parameter_invalid",
            "name",
        ),
        (
            accounts,
            json!({"name": "a", "plan": "gold"}),
            422,
            "unknown_fields",
            "plan",
        ),
        (
            accounts,
            json!({"name": "a", "x\u{0}y": 1}),
            422,
            "unknown_fields",
            "xy",
        ),
        (
            accounts,
            json!({"plan": "gold"}),
            400,
            "parameter_missing",
            "name",
        ),
        (
            workspaces,
            json!({"name": "w"}),
            400,
            "parameter_missing",
            "account_public_id",
        ),
        (
            workspaces,
            json!({"name": "w", "account_public_id": 1}),
            400,
            "parameter_invalid",
            "account_public_id",
        ),
        (
            workspaces,
            json!({"name": "w", "account_public_id": NOBODY}),
            404,
            "not_found",
            "",
        ),
        (
            workspaces,
            json!({"name": "w", "account_public_id": "w"}),
            404,
            "not_found",
            "",
        ),
        (
            members,
            human(json!({"kind": "robot"})),
            400,
            "parameter_invalid",
            "kind",
        ),
        (
            members,
            human(json!({"handle": "a b"})),
            400,
            "parameter_invalid",
            "handle",
        ),
        (
            members,
            human(json!({"handle": "x".repeat(65)})),
            400,
            "parameter_invalid",
            "handle",
        ),
        (
            members,
            human(json!({"handle": "human"})),
            409,
            "handle_taken",
            "handle",
        ),
        (
            members,
            human(json!({"controlling_human_public_id": f.human.id})),
            400,
            "parameter_invalid",
            "controlling_human_public_id",
        ),
        (
            members,
            human(json!({"kind": "agent"})),
            400,
            "parameter_missing",
            "controlling_human_public_id",
        ),
        (
            members,
            human(json!({"kind": "agent", "controlling_human_public_id": f.agent.id})),
            422,
            "validation_failed",
            "controlling_human_public_id",
        ),
        (
            members,
            human(json!({"kind": "agent", "controlling_human_public_id": neighbour.human.id})),
            404,
            "not_found",
            "",
        ),
        (
            members,
            human(json!({"account_public_id": NOBODY})),
            404,
            "not_found",
            "",
        ),
        (executors, json!({}), 400, "parameter_missing", "kind"),
        (
            executors,
            runner(json!({"kind": "robot"})),
            400,
            "parameter_invalid",
            "kind",
        ),
        (
            executors,
            runner(json!({"display_name": null})),
            400,
            "parameter_missing",
            "display_name",
        ),
        (
            executors,
            runner(json!({"manager_public_id": null})),
            400,
            "parameter_missing",
            "manager_public_id",
        ),
        (
            executors,
            runner(json!({"agent_public_id": f.agent.id})),
            400,
            "parameter_invalid",
            "agent_public_id",
        ),
        (
            executors,
            runner(json!({"assignment_scope": "world"})),
            400,
            "parameter_invalid",
            "assignment_scope",
        ),
        (
            executors,
            runner(json!({"manager_public_id": f.agent.id})),
            422,
            "validation_failed",
            "manager_public_id",
        ),
        (
            executors,
            runner(json!({"manager_public_id": NOBODY})),
            404,
            "not_found",
            "",
        ),
        (
            executors,
            runner(json!({"colour": "red"})),
            422,
            "unknown_fields",
            "colour",
        ),
        (
            executors,
            json!({"kind": "agent_application", "display_name": "a"}),
            400,
            "parameter_missing",
            "agent_public_id",
        ),
        (
            executors,
            json!({"kind": "agent_application", "display_name": "a", "agent_public_id": f.human.id}),
            422,
            "validation_failed",
            "agent_public_id",
        ),
        (
            executors,
            json!({"kind": "agent_application", "display_name": "a", "agent_public_id": f.agent.id, "assignment_scope": "account_wide"}),
            400,
            "parameter_invalid",
            "assignment_scope",
        ),
        (
            executors,
            json!({"kind": "agent_application", "display_name": "a", "agent_public_id": f.agent.id, "manager_public_id": f.human.id}),
            400,
            "parameter_invalid",
            "manager_public_id",
        ),
    ];
    for (resource, body, status, code, parameter) in table {
        let answer = app
            .post(&format!("/operator_api/v1/{resource}"), OPERATOR, &body)
            .await;
        let error = answer.expect(status, code);
        let named = find(&error, "parameter").and_then(Value::as_str);
        assert_eq!(named.unwrap_or_default(), parameter, "{body}: {answer:?}");
    }
    for (body, status, code) in [
        (json!({}), 400, "parameter_missing"),
        (json!({"access": "admin"}), 400, "parameter_invalid"),
        (json!({"access": "read", "until": 1}), 422, "unknown_fields"),
    ] {
        app.put(&format!("/operator_api/v1/{grant}"), OPERATOR, body)
            .await
            .expect(status, code);
    }
    let foreign = format!(
        "/operator_api/v1/workspaces/{}/grants/{}",
        f.workspace, neighbour.human.id
    );
    app.put(&foreign, OPERATOR, json!({"access": "read"}))
        .await
        .expect(404, "not_found");
    let absent = format!("/operator_api/v1/workspaces/{NOBODY}/grants/{}", f.human.id);
    app.put(&absent, OPERATOR, json!({}))
        .await
        .expect(404, "not_found");
    assert_eq!(everything(&app).await, before);
    app.finish().await;
}

#[tokio::test]
async fn commands_on_what_is_not_there_are_404_before_anything_else() {
    let app = TestApp::start().await;
    for id in [
        NOBODY,
        "7",
        "not-an-id",
        "%00",
        "%FF",
        "01990000000070008000000000000000",
    ] {
        for path in [
            format!("accounts/{id}/suspend"),
            format!("accounts/{id}/resume"),
            format!("members/{id}/rotate"),
            format!("members/{id}/suspend"),
            format!("members/{id}/resume"),
            format!("executors/{id}/rotate"),
            format!("executors/{id}/revoke"),
            format!("executors/{id}/shutdown"),
            format!("tokens/{id}/revoke"),
        ] {
            let path = format!("/operator_api/v1/{path}");
            app.post(&path, OPERATOR, r#"{"unknown":1}"#)
                .await
                .expect(404, "not_found");
        }
        for resource in ["accounts", "workspaces", "members", "executors", "tokens"] {
            let path = format!("/operator_api/v1/{resource}/{id}");
            app.get(&path, OPERATOR).await.expect(404, "not_found");
        }
    }
    app.finish().await;
}

#[tokio::test]
async fn a_command_without_a_body_takes_none_of_its_own() {
    let app = TestApp::start().await;
    let account = create_account(&app, "a").await;
    let human = create_human(&app, &account, "ada").await;
    let path = format!("/operator_api/v1/members/{}/rotate", human.id);
    let error = app
        .post(&path, OPERATOR, r#"{"force":true}"#)
        .await
        .expect(422, "unknown_fields");
    assert_eq!(text(&error, "parameter"), "force");
    app.get("/agent_api/v1/workspaces", &human.token)
        .await
        .ok(200);
    app.post(&path, OPERATOR, "{}").await.ok(201);
    app.finish().await;
}
