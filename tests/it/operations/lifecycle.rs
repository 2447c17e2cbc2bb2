//! Pause, stop, deadline, lost standing (§8).

use std::time::Duration;

use serde_json::{Value, json};

use super::{Scene, json_of, key, local, parent, step, work};
use crate::support::TestApp;
use crate::support::seed::World;

/// 25, 26: a paused run takes no new work; everything under way goes on.
#[tokio::test]
async fn a_pause_refuses_new_work_alone() {
    let s = Scene::new().await;
    let child = key(&s.accept("a", work()).await);
    let token = s.claim(&child).await;
    s.say("pause", json!({})).await.ok(200);
    s.send("b", &work()).await.expect(409, "execution_paused");
    s.send("a", &work()).await.ok(200);
    assert_eq!(s.trace().await["position"], 1);
    let path = crate::support::seed::door(&s.run, &child, "commit");
    s.app
        .post(&path, &s.world.runner.token, json!({"claim_token": token}))
        .await
        .ok(200);
    s.outcome("a").await;
    s.post(
        "extend",
        json!({"claim_token": s.token, "timeout_ms": 60_000}),
    )
    .await
    .ok(200);
    s.say("resume", json!({})).await.ok(200);
    let b = key(&s.accept("b", work()).await);
    s.done(&b).await;
    s.outcome("b").await;
    s.say("pause", json!({})).await.ok(200);
    s.commit(json!({})).await.ok(200);
    assert_eq!(s.run_status().await, "paused");
    s.app.finish().await;
}

/// 27: a graceful stop lets the call observe what ends, and publish.
#[tokio::test]
async fn a_graceful_stop_lets_the_call_finish() {
    let s = Scene::new().await;
    let batch = s
        .accept(
            "op",
            json!({"kind": "steps", "input": [step("a"), step("b")]}),
        )
        .await;
    let token = s.claim(&local(&batch, "a")).await;
    s.say("stop", json!({"force": false})).await.ok(200);
    s.send("more", &work())
        .await
        .expect(409, "execution_stopped");
    let observed = s.outcome("op").await;
    assert_eq!(observed["results"][0]["status"], "canceled");
    s.commit(json!({})).await.expect(409, "pending_children");
    let path = crate::support::seed::door(&s.run, &local(&batch, "a"), "commit");
    s.app
        .post(&path, &s.world.runner.token, json!({"claim_token": token}))
        .await
        .ok(200);
    s.commit(json!({"content": "done"})).await.ok(200);
    assert_eq!(s.run_status().await, "canceled");
    assert_eq!(s.status("code").await, "completed");
    s.app.finish().await;
}

/// 28: a forced stop ends the call and its work; the trace stays readable.
#[tokio::test]
async fn a_forced_stop_ends_the_call_and_its_work() {
    let s = Scene::new().await;
    let child = key(&s.accept("a", work()).await);
    s.say("stop", json!({"force": true})).await.ok(200);
    assert_eq!(s.status(&child).await, "canceled");
    s.send("b", &work()).await.expect(409, "execution_stopped");
    s.look(1).await.expect(409, "execution_stopped");
    s.send("a", &work()).await.ok(200);
    assert_eq!(s.trace().await["position"], 1);
    s.app.finish().await;
}

/// 18, 30, 31: past its deadline, by the database's clock, a call can only be read.
#[tokio::test]
async fn a_call_past_its_deadline_is_only_read() {
    let app = TestApp::with()
        .replicas(1)
        .set("NEXUS_ROLES", "api")
        .start()
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    let mut step = parent(&world, "echo");
    step["tool"]["timeout_ms"] = json!(60_000);
    let s = Scene::over(app, world, json!([step])).await;
    let child = key(&s.accept("a", work()).await);
    s.app.advance(Duration::from_secs(61)).await;
    s.send("b", &work()).await.expect(409, "claim_expired");
    s.look(1).await.expect(409, "claim_expired");
    s.send("a", &work()).await.ok(200);
    assert_eq!(s.trace().await["position"], 1);
    let committed = s.commit(json!({"content": "late"})).await;
    assert_eq!(json_of(&committed)["task"]["status"], "timed_out");
    committed.ok(200);
    let task = s.task(&child).await;
    assert_eq!(
        (&task["status"], &task["error"]["key"]),
        (&json!("canceled"), &json!("parent_settled"))
    );
    s.send("b", &work()).await.expect(409, "task_not_running");
    s.look(1).await.expect(409, "task_not_running");
    s.app.finish().await;
}

/// 32: a write that nobody answers is uncertain; its background work runs on.
#[tokio::test]
async fn background_work_outlives_an_uncertain_call() {
    let app = TestApp::with()
        .replicas(1)
        .set("NEXUS_ROLES", "api")
        .start()
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    let mut step_ = parent(&world, "write_note");
    step_["tool"]["timeout_ms"] = json!(60_000);
    let s = Scene::over(app, world, json!([step_])).await;
    let launch = json!({"kind": "background", "input": {"steps": [step("bg")]}});
    let launched = s.accept("bg", launch).await;
    s.app.advance(Duration::from_secs(61)).await;
    let committed = s.commit(json!({"content": "late"})).await;
    assert_eq!(json_of(&committed)["task"]["status"], "uncertain");
    assert_eq!(s.status(&local(&launched, "bg")).await, "dispatched");
    s.app.finish().await;
}

/// 55: a retried call reads the old trace and goes on behind it.
#[tokio::test]
async fn a_retried_call_continues_its_trace() {
    let s = Scene::new().await;
    let request = json!({"kind": "tool", "name": "rm"});
    s.refused("a", request.clone()).await;
    let failed = s.commit(json!({"outcome": "failed"})).await;
    failed.ok(200);
    s.say("tasks/code/retry", json!({})).await.ok(200);
    let path = crate::support::seed::door(&s.run, "code", "claim");
    let granted = s.app.command(&path, &s.world.runner.token).await;
    let old = s.token.clone();
    let body = json!({"claim_token": old, "operation": {"key": "b", "request": work()}});
    let s = Scene {
        token: crate::support::seed::claim_token(&granted).to_owned(),
        ..s
    };
    s.post("operations", body).await.expect(409, "not_claimant");
    assert_eq!(s.trace().await["position"], 1);
    s.send("a", &request).await.ok(200);
    s.send("a", &work()).await.expect(409, "operation_mismatch");
    s.accept("b", work()).await;
    assert_eq!(s.trace().await["position"], 2);
    s.app.finish().await;
}

/// 56: lost eligibility stops new work; lost standing stops both.
#[tokio::test]
async fn lost_standing_stops_the_call() {
    let s = Scene::new().await;
    let child = key(&s.accept("a", work()).await);
    s.done(&child).await;
    let sql = s.app.sql().await;
    sql.execute(
        "UPDATE executors SET shutdown_at = now() WHERE executor_id = $1",
        &[&s.world.runner.id],
    )
    .await
    .unwrap();
    s.send("b", &work()).await.expect(409, "not_eligible");
    s.outcome("a").await;
    sql.execute("UPDATE executors SET shutdown_at = NULL", &[])
        .await
        .unwrap();
    sql.execute(
        "UPDATE grants SET access = 'read' WHERE member_id = $1",
        &[&s.world.human.id],
    )
    .await
    .unwrap();
    s.send("b", &work()).await.expect(409, "not_authorized");
    s.look(2).await.expect(409, "not_authorized");
    s.app.finish().await;
}

/// A child that authors work of its own ends with it all when its owner does.
#[tokio::test]
async fn nested_work_ends_with_its_outermost_owner() {
    let s = Scene::new().await;
    let child = key(&s.accept("a", work()).await);
    let token = s.claim(&child).await;
    let nested = Scene { token, ..s };
    let path = crate::support::seed::door(&nested.run, &child, "operations");
    let send = async |name: &str, request: &Value| {
        let body =
            json!({"claim_token": nested.token, "operation": {"key": name, "request": request}});
        let answer = nested
            .app
            .post(&path, &nested.world.runner.token, body)
            .await;
        answer.ok(201);
        json_of(&answer)["operation"]["receipt"].clone()
    };
    let inner = key(&send("x", &work()).await);
    let kept = send(
        "bg",
        &json!({"kind": "background", "input": {"steps": [step("k")]}}),
    )
    .await;
    nested.say("stop", json!({"force": true})).await.ok(200);
    assert_eq!(nested.status(&inner).await, "canceled");
    assert_eq!(
        nested.status(&local(&kept, "k")).await,
        "canceled",
        "the run's own stop takes all"
    );
    nested.app.finish().await;
}
