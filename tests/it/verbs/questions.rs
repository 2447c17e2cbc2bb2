//! Asks and waits (`runs.md` §8.2, `orchestration.md` §5).

use std::time::Duration;

use serde_json::json;

use super::*;

fn ask(key: &str) -> serde_json::Value {
    json!({"ask": {"key": key, "prompt": "Go?", "options": ["yes", "no"], "multi": false}})
}

/// An authored ask is answered by the bearer of its token; the answer settles it once.
#[tokio::test]
async fn a_question_is_answered_with_its_token() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([ask("gate"), world.routed("go", "echo")]);
    let (run, receipt) = run_with(
        &app,
        &world,
        json!({"approval_mode": "bypass", "steps": steps}),
    )
    .await;
    let token = text(&receipt, "resolution_tokens.gate").to_owned();
    let gate = world.task(&app, &run, "gate").await;
    assert_eq!(text(&gate, "task.status"), "dispatched");
    assert_eq!(text(&gate, "task.prompt"), "Go?");
    assert_eq!(text(&gate, "task.options.1"), "no");
    assert_eq!(at(&gate, "task.multi").as_bool(), Some(false));
    // Token-holding asks announce nothing and are in no inbox.
    assert_eq!(attention(&app, &world, &run).await, "");
    let door = of_task(&world, &run, "gate", "resolution");
    say(&app, &world, &door, json!({"content": "yes"}))
        .await
        .expect(409, "stale_claim");
    say(
        &app,
        &world,
        &door,
        json!({"resolution_token": "x", "content": "yes"}),
    )
    .await
    .expect(409, "stale_claim");
    say(
        &app,
        &world,
        &door,
        json!({"resolution_token": token, "outcome": "maybe"}),
    )
    .await
    .expect(422, "invalid_outcome");
    let go = of_task(&world, &run, "go", "resolution");
    say(&app, &world, &go, json!({"content": "yes"}))
        .await
        .expect(409, "task_not_running");
    let told = say(
        &app,
        &world,
        &door,
        json!({"resolution_token": token, "content": "yes"}),
    )
    .await
    .ok(200);
    assert_eq!(text(&told, "task.status"), "completed");
    assert_eq!(text(&told, "task.output"), "yes");
    let again = say(
        &app,
        &world,
        &door,
        json!({"resolution_token": token, "content": "no"}),
    )
    .await
    .ok(200);
    assert_eq!(text(&again, "task.output"), "yes");
    assert_eq!(
        state(&app, &world, &run).await,
        "running gate:completed go:dispatched"
    );
    let events = app
        .get(&verb(&world, &run, "events"), &world.human.token)
        .await
        .ok(200);
    let answered = items(&events, "events")
        .iter()
        .find(|e| crate::support::http::find(e, "payload.resolved_by").is_some());
    let answered = answered.expect("the settle says who answered");
    assert_eq!(text(answered, "payload.task_key"), "gate");
    assert_eq!(text(answered, "payload.resolved_by.kind"), "human");
    app.finish().await;
}

/// The deadline wins: an answer at or after it is discarded (`runs.md` §8.2).
#[tokio::test]
async fn a_late_answer_finds_the_question_expired() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([ask("gate"), world.routed("go", "echo")]);
    let (run, receipt) = run_with(
        &app,
        &world,
        json!({"approval_mode": "bypass", "steps": steps}),
    )
    .await;
    let token = text(&receipt, "resolution_tokens.gate").to_owned();
    app.advance(Duration::from_secs(3600)).await;
    let door = of_task(&world, &run, "gate", "resolution");
    let told = say(
        &app,
        &world,
        &door,
        json!({"resolution_token": token, "content": "yes"}),
    )
    .await
    .ok(200);
    assert_eq!(text(&told, "task.status"), "timed_out");
    assert_eq!(text(&told, "task.error.key"), "await_timeout");
    assert!(crate::support::http::find(&told, "task.output").is_none());
    assert!(state(&app, &world, &run).await.ends_with("go:skipped"));
    app.finish().await;
}

/// E15 and `orchestration.md` §5: a wait has no edge; it completes with what its target came to.
#[tokio::test]
async fn a_wait_reads_what_its_target_came_to() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let mut source = world.routed("src", "echo");
    source["tool"]["detached"] = json!(true);
    let steps = json!([source, {"wait": {"key": "j", "task": "src"}}]);
    let run = world.run(&app, steps).await;
    assert_eq!(
        state(&app, &world, &run).await,
        "running src:dispatched j:dispatched"
    );
    let j = world.task(&app, &run, "j").await;
    assert_eq!(text(&j, "task.wait.task"), "src");
    assert_eq!(text(&j, "task.wait.run_public_id"), run);
    assert_eq!(at(&j, "task.wait.timeout_ms").as_i64(), Some(3_600_000));
    say(
        &app,
        &world,
        &of_task(&world, &run, "j", "resolution"),
        json!({"content": "x"}),
    )
    .await
    .expect(409, "stale_claim");
    completes(&app, &world, &run, "src").await;
    let j = world.task(&app, &run, "j").await;
    assert_eq!(text(&j, "task.status"), "completed");
    assert_eq!(text(&j, "task.structured_content.status"), "completed");
    assert_eq!(
        text(&j, "task.structured_content.results.0.output"),
        "did src"
    );
    assert!(text(&j, "task.output").contains("<task_result task=\"src\" status=\"completed\">"));
    assert!(state(&app, &world, &run).await.starts_with("completed"));
    // A wait on what is done already completes at once; on a failure, it says so.
    let steps = json!([
        call(&world, "bad", "absorb"),
        {"wait": {"key": "w", "task": "bad"}},
    ]);
    let run = world.run(&app, steps).await;
    fails(&app, &world, &run, "bad").await;
    let w = world.task(&app, &run, "w").await;
    assert_eq!(text(&w, "task.status"), "completed");
    assert_eq!(at(&w, "task.is_error").as_bool(), Some(true));
    assert_eq!(
        text(&w, "task.structured_content.results.0.error.key"),
        "tool_failed"
    );
    app.finish().await;
}

/// `steps.md` §3.5: unknown, later or foreign targets.
#[tokio::test]
async fn a_wait_names_an_earlier_row_of_its_run() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let create = async |steps: serde_json::Value| {
        let body = json!({"run": {"approval_mode": "bypass", "steps": steps}});
        app.post(&world.runs(), &world.human.token, body).await
    };
    let end = world.routed("end", "echo");
    create(json!([{"wait": {"task": "nope"}}, end]))
        .await
        .expect(422, "wait_target_not_found");
    create(json!([{"wait": {"task": "end"}}, end]))
        .await
        .expect(422, "wait_target_not_found");
    create(json!([{"wait": {"key": "w", "task": "w"}}, end]))
        .await
        .expect(422, "wait_cycle");
    let other = "01890000-0000-7000-8000-000000000000";
    create(json!([{"wait": {"task": "end", "run_public_id": other}}, end]))
        .await
        .expect(422, "wait_target_not_found");
    app.finish().await;
}
