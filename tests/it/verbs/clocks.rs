//! Pause and resume (`engine.md` §10, INV-24; `faults.md` on clocks and pause).

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;

use super::*;

fn moment(text: &str) -> DateTime<Utc> {
    text.parse().expect("a moment")
}

/// Fifty pauses leave every remaining window as it was; nothing expires or starts meanwhile.
#[tokio::test]
async fn pausing_never_costs_time() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([
        {"parallel": [world.routed("a", "echo"), world.routed("b", "echo"), {"ask": {"key": "q", "prompt": "?"}}]},
        world.routed("end", "echo"),
    ]);
    let run = world.run(&app, steps).await;
    let granted = app
        .command(&door(&run, "a", "claim"), &world.runner.token)
        .await;
    let token = claim_token(&granted);
    let client = app.sql().await;
    let deadlines = async || -> Vec<DateTime<Utc>> {
        let rows = client
            .query("SELECT deadline_at FROM parks ORDER BY task_no", &[])
            .await
            .unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    let before = deadlines().await;
    assert_eq!(before.len(), 3, "a claimed call, a free one, a question");
    for _ in 0..50 {
        say(&app, &world, &verb(&world, &run, "pause"), json!({}))
            .await
            .ok(200);
        app.advance(Duration::from_secs(7200)).await;
        say(&app, &world, &verb(&world, &run, "resume"), json!({}))
            .await
            .ok(200);
    }
    // What the pauses took, by the moments that they were told.
    let paused: f64 = client
        .query_one(
            "SELECT sum(CASE payload::json ->> 'run_status' WHEN 'running' THEN 1 ELSE -1 END
                        * extract(epoch FROM created_at))::float8
               FROM run_events WHERE type = 'turn_status' AND seq >
                    (SELECT min(seq) FROM run_events WHERE payload::json ->> 'run_status' = 'running')",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert!(paused > 360_000.0, "a hundred hours");
    for (before, after) in before.iter().zip(deadlines().await) {
        let moved = (after - *before).as_seconds_f64();
        assert!((moved - paused).abs() < 0.05, "moved {moved} for {paused}");
    }
    let body = json!({"claim_token": token, "content": "done"});
    app.post(&door(&run, "a", "commit"), &world.runner.token, body)
        .await
        .ok(200);
    app.finish().await;
}

/// While it is paused a run starts nothing, takes no claim, and settles what is in flight.
#[tokio::test]
async fn a_paused_run_settles_and_starts_nothing() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world
        .run(
            &app,
            json!([
                {"parallel": [world.routed("a", "echo"), world.routed("x", "echo")]},
                world.routed("b", "echo"),
            ]),
        )
        .await;
    let mut tokens = Vec::new();
    for key in ["a", "x"] {
        let granted = app
            .command(&door(&run, key, "claim"), &world.runner.token)
            .await;
        tokens.push((key, claim_token(&granted)));
    }
    say(&app, &world, &verb(&world, &run, "resume"), json!({}))
        .await
        .expect(409, "not_resumable");
    let paused = say(&app, &world, &verb(&world, &run, "pause"), json!({}))
        .await
        .ok(200);
    assert_eq!(text(&paused, "run.status"), "paused");
    say(&app, &world, &verb(&world, &run, "pause"), json!({}))
        .await
        .expect(409, "not_pausable");
    say(
        &app,
        &world,
        &verb(&world, &run, "pause"),
        json!({"force": "false"}),
    )
    .await
    .expect(400, "parameter_invalid");
    say(
        &app,
        &world,
        &verb(&world, &run, "pause"),
        json!({"force": true}),
    )
    .await
    .ok(200);
    for (key, token) in tokens {
        let body = json!({"claim_token": token, "content": "done"});
        app.post(&door(&run, key, "commit"), &world.runner.token, body)
            .await
            .ok(200);
    }
    assert_eq!(
        state(&app, &world, &run).await,
        "paused a:completed x:completed b:waiting"
    );
    say(&app, &world, &verb(&world, &run, "resume"), json!({}))
        .await
        .ok(200);
    assert!(state(&app, &world, &run).await.ends_with("b:dispatched"));
    app.finish().await;
}

/// A claim and a pause meet on the park: the one that comes second sees the other.
#[tokio::test]
async fn a_claim_does_not_slip_into_a_pause() {
    let app = TestApp::replicas(3).await;
    let world = World::in_database(&app.sql().await, "a").await;
    for _ in 0..20 {
        let run = world.run(&app, json!([world.routed("a", "echo")])).await;
        let path = verb(&world, &run, "pause");
        let claim = door(&run, "a", "claim");
        let (paused, claimed) = tokio::join!(
            app.on(1).post(&path, &world.human.token, json!({})),
            app.on(2).command(&claim, &world.runner.token),
        );
        paused.ok(200);
        app.advance(Duration::from_secs(3600)).await;
        let shown = world.task(&app, &run, "a").await;
        let left = moment(text(&shown, "task.deadline_at")) - app.now().await;
        assert!(left.num_seconds() > 0, "the pause eats nothing: {left}");
        if claimed.status == 200 {
            assert!(crate::support::http::find(&shown, "task.claimed_by").is_some());
        } else {
            claimed.expect(409, "task_not_claimable");
        }
    }
    app.finish().await;
}

/// No claim is granted once a pause is committed: one that waits for the park behind the pause finds its
/// clock stopped, at both doors.
#[tokio::test]
async fn a_claim_behind_a_pause_finds_the_clock_stopped() {
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let looker = app.sql().await;
    let waiting = |n: i64| {
        let looker = &looker;
        async move {
            crate::support::fleet::until("statements wait for the park", || async {
                let waits =
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                    AND application_name = 'nexus' AND wait_event_type = 'Lock'";
                crate::support::fleet::number(looker, waits).await == n
            })
            .await;
        }
    };
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    // The pause holds the run and waits for the park; the claim waits behind it.
    sql.batch_execute("BEGIN; SELECT FROM parks FOR UPDATE")
        .await
        .expect("the park is held");
    let (path, claim) = (verb(&world, &run, "pause"), door(&run, "a", "claim"));
    let pause = app.on(1).post(&path, &world.human.token, json!({}));
    let claim = async {
        waiting(1).await;
        app.on(2).command(&claim, &world.runner.token).await
    };
    let release = async {
        waiting(2).await;
        sql.batch_execute("COMMIT").await.expect("the park is free");
    };
    let (paused, claimed, ()) = tokio::join!(pause, claim, release);
    paused.ok(200);
    claimed.expect(409, "task_not_claimable");
    let batch = "/agent_api/v1/executor/inbox/claims";
    let taken = app
        .post(batch, &world.runner.token, json!({}))
        .await
        .ok(200);
    assert!(items(&taken, "claims").is_empty());
    let claimed = "SELECT count(*) FROM parks WHERE claimed_at IS NOT NULL";
    assert_eq!(crate::support::fleet::number(&looker, claimed).await, 0);
    app.finish().await;
}

/// `engine.md` §10, INV-23: a cancel and a stop that come at the deadline settle the expiry, and the
/// cancel answers as for a settled row.
#[tokio::test]
async fn the_deadline_wins_over_a_cancel_and_a_stop() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let mut a = world.routed("a", "write_note");
    a["tool"]["timeout_ms"] = json!(1000);
    for verb_of_run in [None, Some(true), Some(false)] {
        let run = world.run(&app, json!([a, world.routed("z", "echo")])).await;
        app.command(&door(&run, "a", "claim"), &world.runner.token)
            .await
            .ok(200);
        app.advance(std::time::Duration::from_secs(1)).await;
        match verb_of_run {
            None => {
                let cancel = of_task(&world, &run, "a", "cancel");
                let told = say(&app, &world, &cancel, json!({})).await;
                told.expect(409, "already_terminal");
            }
            Some(force) => {
                let stop = verb(&world, &run, "stop");
                say(&app, &world, &stop, json!({"force": force}))
                    .await
                    .ok(200);
            }
        }
        let a = world.task(&app, &run, "a").await;
        assert_eq!(text(&a, "task.status"), "uncertain");
        assert_eq!(text(&a, "task.error.key"), "tool_uncertain");
    }
    app.finish().await;
}
