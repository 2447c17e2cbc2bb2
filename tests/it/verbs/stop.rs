//! Stops, graceful and by force (`runs.md` §7, INV-25).

use std::time::Duration;

use serde_json::json;

use super::*;

async fn stop(app: &TestApp, world: &World, run: &str, force: bool) -> Answer {
    say(
        app,
        world,
        &verb(world, run, "stop"),
        json!({"force": force}),
    )
    .await
}

/// A graceful stop cancels what has not started, and lets claimed work finish and keep its result.
#[tokio::test]
async fn a_graceful_stop_lets_claimed_work_finish() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "echo"), world.routed("b", "echo")]),
        )
        .await;
    let granted = app
        .command(&door(&run, "a", "claim"), &world.runner.token)
        .await;
    let told = stop(&app, &world, &run, false).await.ok(200);
    assert_eq!(text(&told, "run.status"), "canceling");
    assert_eq!(
        state(&app, &world, &run).await,
        "canceling a:dispatched b:canceled"
    );
    stop(&app, &world, &run, false).await.ok(200);
    let body = json!({"claim_token": claim_token(&granted), "content": "done"});
    app.post(&door(&run, "a", "commit"), &world.runner.token, body)
        .await
        .ok(200);
    assert_eq!(
        state(&app, &world, &run).await,
        "canceled a:completed b:canceled"
    );
    stop(&app, &world, &run, false)
        .await
        .expect(409, "already_terminal");
    app.finish().await;
}

/// Neither stop hangs in any state: question, wait, approval, uncertain, paused, held, pending.
#[tokio::test]
async fn a_stop_hangs_in_no_state() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let mut source = world.routed("src", "echo");
    source["tool"]["detached"] = json!(true);
    let shapes = [
        ("question", json!([{"ask": {"key": "q", "prompt": "?"}}])),
        (
            "wait",
            json!([source, {"wait": {"key": "w", "task": "src"}}]),
        ),
        (
            "call",
            json!([world.routed("a", "echo"), world.routed("b", "echo")]),
        ),
        (
            "held",
            json!([call(&world, "a", "halt"), world.routed("b", "echo")]),
        ),
        (
            "paused",
            json!([world.routed("a", "echo"), {"ask": {"prompt": "?"}}]),
        ),
        (
            "race",
            json!([{"parallel": [world.routed("a", "echo"), world.routed("b", "echo")], "until": "any"}]),
        ),
    ];
    for (name, steps) in shapes {
        for force in [true, false] {
            let run = world.run(&app, steps.clone()).await;
            if name == "held" {
                fails(&app, &world, &run, "a").await;
            }
            if name == "paused" {
                say(&app, &world, &verb(&world, &run, "pause"), json!({}))
                    .await
                    .ok(200);
            }
            stop(&app, &world, &run, force).await.ok(200);
            if !force && state(&app, &world, &run).await.starts_with("canceling") {
                stop(&app, &world, &run, true).await.ok(200);
            }
            let state = state(&app, &world, &run).await;
            assert!(state.starts_with("canceled"), "{name} {force}: {state}");
            assert_eq!(attention(&app, &world, &run).await, "");
        }
    }
    app.finish().await;
}

/// `runs.md` §7: a drain older than a day is forced by the sweep.
#[tokio::test]
async fn a_long_drain_is_forced() {
    let app = TestApp::with()
        .set("NEXUS_ROLES", "api,sweeper")
        .start()
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    let mut long = world.routed("a", "echo");
    long["tool"]["timeout_ms"] = json!(604_800_000);
    let run = world.run(&app, json!([long])).await;
    app.command(&door(&run, "a", "claim"), &world.runner.token)
        .await
        .ok(200);
    stop(&app, &world, &run, false).await.ok(200);
    app.advance(Duration::from_secs(86_399)).await;
    app.advance(Duration::from_secs(2)).await;
    crate::support::fleet::until("the forced end", || async {
        state(&app, &world, &run).await == "canceled a:canceled"
    })
    .await;
    app.finish().await;
}
