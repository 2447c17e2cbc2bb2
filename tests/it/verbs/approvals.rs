//! Approvals (`runs.md` §8.4, §12).

use std::time::Duration;

use serde_json::json;

use super::*;

/// A run whose calls park for a person.
async fn asking(app: &TestApp, world: &World, policy: &str) -> String {
    // `a` alone says so in its input.
    let mut a = call(world, "a", policy);
    a["tool"]["input"] = json!({"first": "yes"});
    let rules = json!([{"tool": "echo", "path": "first", "verdict": "ask", "origin": "author"}]);
    let run = json!({
        "approval_mode": "bypass",
        "approval_rules": rules,
        "steps": [a, world.routed("b", "echo")],
    });
    let (run, _) = run_with(app, world, run).await;
    assert_eq!(
        state(app, world, &run).await,
        "running a:needs_approval b:waiting"
    );
    assert_eq!(attention(app, world, &run).await, "approval_required a");
    run
}

#[tokio::test]
async fn a_resting_call_is_approved() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = asking(&app, &world, "propagate").await;
    say(
        &app,
        &world,
        &of_task(&world, &run, "b", "approve"),
        json!({}),
    )
    .await
    .expect(409, "not_awaiting_approval");
    let told = say(
        &app,
        &world,
        &of_task(&world, &run, "a", "approve"),
        json!({}),
    )
    .await
    .ok(200);
    assert_eq!(text(&told, "task.status"), "dispatched");
    assert_eq!(text(&told, "task.approval.origin"), "human");
    assert_eq!(
        text(&told, "task.approval.decided_by"),
        world.human.public_id.to_string()
    );
    assert_eq!(attention(&app, &world, &run).await, "");
    say(
        &app,
        &world,
        &of_task(&world, &run, "a", "approve"),
        json!({}),
    )
    .await
    .expect(409, "not_awaiting_approval");
    completes(&app, &world, &run, "a").await;
    app.finish().await;
}

#[tokio::test]
async fn a_resting_call_is_denied() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = asking(&app, &world, "absorb").await;
    let deny = of_task(&world, &run, "a", "deny");
    say(&app, &world, &deny, json!({"reason": 7}))
        .await
        .expect(400, "parameter_invalid");
    let told = say(&app, &world, &deny, json!({"reason": "é".repeat(200)}))
        .await
        .ok(200);
    assert_eq!(text(&told, "task.status"), "failed");
    assert_eq!(text(&told, "task.error.key"), "approval_denied");
    assert_eq!(text(&told, "task.error.detail"), "é".repeat(128));
    assert_eq!(text(&told, "task.approval.origin"), "human");
    assert_eq!(
        state(&app, &world, &run).await,
        "running a:failed b:dispatched"
    );
    app.finish().await;
}

/// `runs.md` §8.4: at or after its deadline the verb commits the expiry, and answers 409.
#[tokio::test]
async fn an_approval_comes_too_late() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = asking(&app, &world, "propagate").await;
    app.advance(Duration::from_secs(86_400)).await;
    say(
        &app,
        &world,
        &of_task(&world, &run, "a", "approve"),
        json!({}),
    )
    .await
    .expect(409, "not_awaiting_approval");
    let a = world.task(&app, &run, "a").await;
    assert_eq!(text(&a, "task.status"), "timed_out");
    assert_eq!(text(&a, "task.error.key"), "approval_expired");
    assert!(crate::support::http::find(&a, "task.approval").is_none());
    app.finish().await;
}

/// `runs.md` §8.4: approved while paused, it starts on resume and does not cross again.
#[tokio::test]
async fn an_approval_under_a_pause_waits_for_the_resume() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = asking(&app, &world, "propagate").await;
    say(&app, &world, &verb(&world, &run, "pause"), json!({}))
        .await
        .ok(200);
    let told = say(
        &app,
        &world,
        &of_task(&world, &run, "a", "approve"),
        json!({}),
    )
    .await
    .ok(200);
    assert_eq!(text(&told, "task.status"), "waiting");
    say(&app, &world, &verb(&world, &run, "resume"), json!({}))
        .await
        .ok(200);
    assert_eq!(
        state(&app, &world, &run).await,
        "running a:dispatched b:waiting"
    );
    app.finish().await;
}

/// `runs.md` §8.4: another profile rests again, with a fresh clock; a withdrawn tool fails.
#[tokio::test]
async fn an_approval_looks_at_the_target_again() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let client = app.sql().await;
    let run = asking(&app, &world, "propagate").await;
    let before = text(&world.task(&app, &run, "a").await, "task.deadline_at").to_owned();
    app.advance(Duration::from_secs(60)).await;
    client
        .batch_execute("UPDATE served_tools SET effect_profile = '{\"kind\":\"other\"}'")
        .await
        .unwrap();
    let told = say(
        &app,
        &world,
        &of_task(&world, &run, "a", "approve"),
        json!({}),
    )
    .await
    .ok(200);
    assert_eq!(text(&told, "task.status"), "needs_approval");
    assert!(
        text(&told, "task.deadline_at") > &before[..],
        "a fresh clock"
    );
    client
        .batch_execute("DELETE FROM served_tools")
        .await
        .unwrap();
    let told = say(
        &app,
        &world,
        &of_task(&world, &run, "a", "approve"),
        json!({}),
    )
    .await
    .ok(200);
    assert_eq!(text(&told, "task.status"), "failed");
    assert_eq!(text(&told, "task.error.key"), "tool_not_served");
    app.finish().await;
}

/// `runs.md` §12: what is no rule.
#[tokio::test]
async fn rules_are_read_at_create() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = json!({"run": {
        "approval_mode": "rules",
        "approval_rules": [{"tool": "x", "verdict": "deny", "match": "*"}],
        "steps": [world.routed("a", "echo")],
    }});
    let told = app.post(&world.runs(), &world.human.token, run).await;
    let told = told.expect(422, "invalid_approval_rules");
    assert_eq!(text(&told, "path"), "run.approval_rules[0].match");
    app.finish().await;
}

/// `conventions.md` §4: 404, then 403, then what is wrong with the body.
#[tokio::test]
async fn absence_and_standing_come_before_the_body() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = asking(&app, &world, "propagate").await;
    let wrong = [
        ("deny", json!({"reason": 5})),
        ("resolution", json!({"resolution_token": 5})),
    ];
    for (word, body) in &wrong {
        let there = of_task(&world, &run, "a", word);
        let absent = of_task(&world, &run, "nope", word);
        let no_run = of_task(&world, &world.human.public_id.to_string(), "a", word);
        say(&app, &world, &absent, body.clone())
            .await
            .expect(404, "not_found");
        say(&app, &world, &no_run, body.clone())
            .await
            .expect(404, "not_found");
        let told = say(&app, &world, &there, body.clone()).await;
        told.expect(400, "parameter_invalid");
    }
    sql.execute("UPDATE grants SET access = 'read'", &[])
        .await
        .expect("grants");
    for (word, body) in &wrong {
        for (key, status, code) in [("nope", 404, "not_found"), ("a", 403, "not_authorized")] {
            let path = of_task(&world, &run, key, word);
            say(&app, &world, &path, body.clone())
                .await
                .expect(status, code);
        }
    }
    for word in ["approve", "retry", "abandon", "cancel"] {
        for (key, status, code) in [("nope", 404, "not_found"), ("a", 403, "not_authorized")] {
            let path = of_task(&world, &run, key, word);
            say(&app, &world, &path, json!({}))
                .await
                .expect(status, code);
        }
    }
    app.finish().await;
}
