//! Races through the doors (`engine.md` §6, `steps.md` §9).

use serde_json::json;

use super::*;

fn race(members: Vec<serde_json::Value>, until: serde_json::Value) -> serde_json::Value {
    json!({"parallel": members, "until": until, "key": "race"})
}

/// E5, the snapshot, and the loser's claimant is told: `runs.md` §15's example.
#[tokio::test]
async fn the_first_success_ends_a_race_and_cancels_the_rest() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([
        race(
            vec![world.routed("unit", "echo"), world.routed("lint", "echo")],
            json!("any")
        ),
        world.routed("after", "echo"),
    ]);
    let run = world.run(&app, steps).await;
    let granted = app
        .command(&door(&run, "lint", "claim"), &world.runner.token)
        .await;
    let token = claim_token(&granted);
    completes(&app, &world, &run, "unit").await;
    assert_eq!(
        state(&app, &world, &run).await,
        "running unit:completed lint:canceled race:completed after:dispatched"
    );
    let race = world.task(&app, &run, "race").await;
    assert_eq!(text(&race, "task.result.joined"), "any");
    assert_eq!(text(&race, "task.result.outcomes.unit"), "completed");
    assert_eq!(text(&race, "task.result.outcomes.lint"), "dispatched");
    assert_eq!(text(&race, "task.result.selected.0"), "unit");
    let lint = world.task(&app, &run, "lint").await;
    assert_eq!(text(&lint, "task.error.key"), "join_loser_canceled");
    // The late result finds the row as it stands, and changes nothing.
    let late = json!({"claim_token": token, "content": "late"});
    let told = app
        .post(&door(&run, "lint", "commit"), &world.runner.token, late)
        .await
        .ok(200);
    assert_eq!(text(&told, "task.status"), "canceled");
    completes(&app, &world, &run, "after").await;
    assert!(state(&app, &world, &run).await.starts_with("completed"));
    app.finish().await;
}

/// `engine.md` §6: a quorum that cannot be reached fails at once; its partial winners are kept.
#[tokio::test]
async fn a_quorum_that_cannot_be_reached_fails() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let members = ["a", "b", "c"]
        .map(|key| world.routed(key, "echo"))
        .to_vec();
    let steps = json!([race(members, json!(2)), world.routed("after", "echo")]);
    let run = world.run(&app, steps).await;
    completes(&app, &world, &run, "b").await;
    fails(&app, &world, &run, "a").await;
    fails(&app, &world, &run, "c").await;
    assert_eq!(
        state(&app, &world, &run).await,
        "needs_attention a:failed b:completed c:failed race:failed after:skipped"
    );
    let race = world.task(&app, &run, "race").await;
    assert_eq!(text(&race, "task.error.key"), "quorum_unreachable");
    assert_eq!(text(&race, "task.result.selected.0"), "b");
    // Abandoning the barrier opens what it skipped.
    say(
        &app,
        &world,
        &of_task(&world, &run, "race", "abandon"),
        json!({}),
    )
    .await
    .ok(200);
    assert!(
        state(&app, &world, &run)
            .await
            .ends_with("after:dispatched")
    );
    app.finish().await;
}

/// `engine.md` §6: losers of a `run_out` race finish, and a halt failure among them holds nothing.
#[tokio::test]
async fn losers_may_run_out() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let mut group = race(
        vec![
            call(&world, "fast", "propagate"),
            call(&world, "slow", "halt"),
        ],
        json!("any"),
    );
    group["losers"] = json!("run_out");
    let run = world.run(&app, json!([group])).await;
    completes(&app, &world, &run, "fast").await;
    assert_eq!(
        state(&app, &world, &run).await,
        "running fast:completed slow:dispatched race:completed"
    );
    fails(&app, &world, &run, "slow").await;
    assert_eq!(
        state(&app, &world, &run).await,
        "completed fast:completed slow:failed race:completed"
    );
    app.finish().await;
}

/// `engine.md` §6, shared work: who has a live consumer is spared.
#[tokio::test]
async fn shared_work_is_spared() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let mut s = world.routed("s", "echo");
    s["tool"]["after"] = json!(["b"]);
    let steps = json!([
        race(
            vec![world.routed("a", "echo"), world.routed("b", "echo")],
            json!("any")
        ),
        s,
    ]);
    let run = world.run(&app, steps).await;
    completes(&app, &world, &run, "a").await;
    assert_eq!(
        state(&app, &world, &run).await,
        "running a:completed b:dispatched race:completed s:waiting"
    );
    completes(&app, &world, &run, "b").await;
    assert!(state(&app, &world, &run).await.ends_with("s:dispatched"));
    app.finish().await;
}

/// `engine.md` §6, INV-16: a failure before the race, whose consumers all settled in earlier
/// transactions, is taken over through them.
#[tokio::test]
async fn a_failure_before_a_starved_race_is_taken_over() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let arm = |a: &str, b: &str| json!([world.routed(a, "echo"), world.routed(b, "echo")]);
    let steps = json!([
        {"parallel": [world.routed("p1", "echo"), call(&world, "p2", "halt")]},
        {"parallel": [arm("a", "c"), arm("b", "d")], "until": "any", "key": "race", "on_failure": "absorb"},
        world.routed("z", "echo"),
    ]);
    let run = world.run(&app, steps).await;
    fails(&app, &world, &run, "p1").await;
    fails(&app, &world, &run, "p2").await;
    completes(&app, &world, &run, "z").await;
    assert!(
        state(&app, &world, &run)
            .await
            .starts_with("completed p1:failed p2:failed")
    );
    assert_eq!(attention(&app, &world, &run).await, "");
    app.finish().await;
}
