//! The executor's side of questions and approvals (`executor.md` §6, §16).

use serde_json::json;

use super::*;

/// A run that the agent created, started.
async fn by_agent(app: &TestApp, world: &World, run: serde_json::Value) -> String {
    let created = app
        .post(&world.runs(), &world.agent.token, json!({"run": run}))
        .await
        .ok(201);
    text(&created, "run.public_id").to_owned()
}

async fn start(app: &TestApp, world: &World, run: &str) {
    app.command(&verb(world, run, "start"), &world.agent.token)
        .await
        .ok(200);
}

async fn inbox(app: &TestApp, world: &World) -> Value {
    app.get("/agent_api/v1/executor/inbox", &world.application.token)
        .await
        .ok(200)
}

/// An approval is informational on this plane: shown with its profile, never claimed or committed
/// (edge cases 18, 44). After approve the key reappears where the call is sent.
#[tokio::test]
async fn an_approval_is_shown_to_the_agents_application() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = by_agent(
        &app,
        &world,
        json!({
            "approval_mode": "ask",
            "approval_rules": [{"tool": "*", "verdict": "ask", "origin": "author"}],
            "steps": [world.routed("a", "echo")],
        }),
    )
    .await;
    start(&app, &world, &run).await;
    let rows = inbox(&app, &world).await;
    assert_eq!(text(&rows, "tasks.0.kind"), "approval");
    assert_eq!(text(&rows, "tasks.0.tool_name"), "echo");
    assert_eq!(text(&rows, "tasks.0.effect_profile.kind"), "read_only");
    assert_eq!(
        text(&rows, "tasks.0.addressed_to.role"),
        "agent_application"
    );
    assert_eq!(at(&rows, "tasks.0.claimed").as_bool(), Some(false));
    assert!(crate::support::http::find(&rows, "tasks.0.started_at").is_none());
    app.command(&door(&run, "a", "claim"), &world.application.token)
        .await
        .expect(409, "not_claimable_kind");
    let commit = json!({"claim_token": "x", "content": "x"});
    app.post(&door(&run, "a", "commit"), &world.application.token, commit)
        .await
        .expect(409, "task_not_running");
    // The runner that will be asked sees nothing yet.
    let other = app
        .get("/agent_api/v1/executor/inbox", &world.runner.token)
        .await
        .ok(200);
    assert!(items(&other, "tasks").is_empty());
    app.post(
        &of_task(&world, &run, "a", "approve"),
        &world.agent.token,
        json!({}),
    )
    .await
    .ok(200);
    assert!(items(&inbox(&app, &world).await, "tasks").is_empty());
    let a = world.task(&app, &run, "a").await;
    assert_eq!(text(&a, "task.approval.origin"), "agent");
    completes(&app, &world, &run, "a").await;
    app.finish().await;
}

/// A question without a token is put to the application; it or a member answers, the first wins.
/// Members author none (models do), so one is made of an authored one by hand.
#[tokio::test]
async fn a_tokenless_question_is_answered_by_either_door() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let client = app.sql().await;
    for by in ["application", "member"] {
        let run = by_agent(
            &app,
            &world,
            json!({
                "approval_mode": "bypass",
                "steps": [{"ask": {"key": "q", "prompt": "Which?", "options": ["a", "b"]}}],
            }),
        )
        .await;
        client
            .batch_execute(
                "UPDATE tasks SET holder = 'person', resolution_digest = NULL WHERE status = 'queued'",
            )
            .await
            .unwrap();
        start(&app, &world, &run).await;
        assert_eq!(state(&app, &world, &run).await, "running q:awaiting_input");
        assert_eq!(attention(&app, &world, &run).await, "awaiting_human q");
        let rows = inbox(&app, &world).await;
        assert_eq!(text(&rows, "tasks.0.kind"), "ask");
        assert_eq!(text(&rows, "tasks.0.prompt"), "Which?");
        assert_eq!(text(&rows, "tasks.0.options.1"), "b");
        assert!(crate::support::http::find(&rows, "tasks.0.tool_name").is_none());
        app.command(&door(&run, "q", "claim"), &world.application.token)
            .await
            .expect(409, "not_claimable_kind");
        let extend = json!({"claim_token": "x", "timeout_ms": 1000});
        app.post(&door(&run, "q", "extend"), &world.application.token, extend)
            .await
            .expect(409, "not_extendable");
        // Another executor is not asked (edge case 17).
        app.post(
            &door(&run, "q", "commit"),
            &world.runner.token,
            json!({"content": "x"}),
        )
        .await
        .expect(409, "not_addressed_here");
        let resolution = of_task(&world, &run, "q", "resolution");
        app.post(
            &resolution,
            &world.human.token,
            json!({"resolution_token": "x", "content": "a"}),
        )
        .await
        .expect(409, "stale_claim");
        let (first, second) = ("said first", "said second");
        if by == "application" {
            let unstorable = json!({"content": "a\u{0}b"});
            app.post(
                &door(&run, "q", "commit"),
                &world.application.token,
                unstorable,
            )
            .await
            .expect(422, "result_unstorable");
            assert_eq!(attention(&app, &world, &run).await, "awaiting_human q");
            let body = json!({"content": first});
            let told = app
                .post(&door(&run, "q", "commit"), &world.application.token, body)
                .await
                .ok(200);
            assert_eq!(text(&told, "task.status"), "completed");
            app.post(&resolution, &world.human.token, json!({"content": second}))
                .await
                .ok(200);
        } else {
            app.post(&resolution, &world.human.token, json!({"content": first}))
                .await
                .ok(200);
            let body = json!({"content": second});
            app.post(&door(&run, "q", "commit"), &world.application.token, body)
                .await
                .ok(200);
        }
        let q = world.task(&app, &run, "q").await;
        assert_eq!(text(&q, "task.output"), first, "the first answer stands");
        assert_eq!(state(&app, &world, &run).await, "completed q:completed");
    }
    app.finish().await;
}
