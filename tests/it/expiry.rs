//! Expiry (`executor.md` §12): the sweep re-checks everything under the run lock, and only the
//! database's clock decides.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use serde_json::json;

use crate::support::fleet::{all, dump, number, set_run};
use crate::support::seed::{World, door};
use crate::support::{TestApp, at, text};

/// Edge case 35's table without a commit, BR-015, and what follows from it.
#[tokio::test]
async fn a_silent_claim_settles_by_its_frozen_profile() {
    for (tool, claim, status, error) in [
        ("echo", true, "timed_out", "tool_timeout"),
        ("echo", false, "timed_out", "tool_timeout"),
        ("write_note", true, "uncertain", "tool_uncertain"),
        ("write_note", false, "timed_out", "tool_timeout"),
    ] {
        let app = TestApp::replicas(2).await;
        let sql = app.sql().await;
        let world = World::in_database(&sql, "a").await;
        let run = world
            .run(
                &app,
                json!([world.routed("a", tool), world.routed("b", "echo")]),
            )
            .await;
        if claim {
            world.claim(&app, &run, "a").await;
        }
        // Profiles are frozen: what is announced later changes nothing.
        sql.execute("UPDATE served_tools SET replayable = NOT replayable", &[])
            .await
            .unwrap();
        assert_eq!(world.sweep(&app, 0, &run, &[1]).await, 0, "not due yet");
        app.advance(Duration::from_secs(600)).await;
        let swept: usize =
            world.sweep(&app, 0, &run, &[1, 2, 77]).await + world.sweep(&app, 1, &run, &[1]).await;
        assert_eq!(swept, 1, "once");
        let task = world.task(&app, &run, "a").await;
        assert_eq!(
            (text(&task, "task.status"), text(&task, "task.error.key")),
            (status, error)
        );
        assert_eq!(
            text(&world.task(&app, &run, "b").await, "task.status"),
            "skipped",
            "propagate"
        );
        assert_eq!(
            text(&world.show(&app, &run).await, "run.status"),
            "needs_attention"
        );
        app.finish().await;
    }
}

/// BR-003: what happened between the scan and the settle stands.
#[tokio::test]
async fn a_sweep_that_read_early_overwrites_nothing() {
    for what in ["extend", "commit", "pause", "stop", "claim"] {
        let app = TestApp::start().await;
        let sql = app.sql().await;
        let world = World::in_database(&sql, "a").await;
        let run = world
            .run(
                &app,
                json!([world.routed("a", "write_note"), world.routed("b", "echo")]),
            )
            .await;
        let token = if what == "claim" {
            String::new()
        } else {
            world.claim(&app, &run, "a").await
        };
        app.advance(Duration::from_secs(599)).await;
        // The scan would see the row due in a second; the world moves first.
        match what {
            "extend" => {
                let body = json!({"claim_token": token, "timeout_ms": 60_000});
                app.post(&door(&run, "a", "extend"), &world.runner.token, body)
                    .await
                    .ok(200);
            }
            "commit" => {
                world.commit(&app, &run, "a", &token).await.ok(200);
            }
            "pause" => set_run(&sql, &run, "paused").await,
            "stop" => {
                world.stop(&app, &run).await.ok(200);
            }
            _ => {
                app.advance(Duration::from_secs(2)).await; // past its deadline, not yet swept
                world.claim(&app, &run, "a").await;
            }
        }
        app.advance(Duration::from_secs(2)).await;
        let before = dump(&sql).await;
        assert_eq!(world.sweep(&app, 0, &run, &[1]).await, 0, "after {what}");
        assert_eq!(before, dump(&sql).await, "after {what}");
        app.finish().await;
    }
}

/// Edge case 49: a revoked executor's claimed call with an effect becomes uncertain at its deadline.
#[tokio::test]
async fn a_revoked_claim_waits_for_its_own_deadline() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world
        .run(&app, json!([world.routed("a", "write_note")]))
        .await;
    world.claim(&app, &run, "a").await;
    sql.execute(
        "UPDATE executors SET status = 'revoked', revoked_at = nexus_now() WHERE executor_id = $1",
        &[&world.runner.id],
    )
    .await
    .unwrap();
    assert_eq!(world.sweep(&app, 0, &run, &[1]).await, 0);
    app.advance(Duration::from_secs(601)).await;
    assert_eq!(world.sweep(&app, 0, &run, &[1]).await, 1);
    assert_eq!(
        text(&world.task(&app, &run, "a").await, "task.status"),
        "uncertain"
    );
    app.finish().await;
}

/// A sweep and a late commit at once: one settle, and the commit is answered with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_and_a_late_commit_at_once_settle_once() {
    const RUNS: usize = 40;
    let app = std::sync::Arc::new(TestApp::replicas(3).await);
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut claims = Vec::new();
    for i in 0..RUNS {
        let tool = if i % 2 == 0 { "echo" } else { "write_note" };
        let run = world.run(&app, json!([world.routed("a", tool)])).await;
        let token = world.claim(&app, &run, "a").await;
        claims.push((run, token));
    }
    sql.execute(
        "UPDATE parks SET deadline_at = nexus_now() + random() * interval '800 ms'",
        &[],
    )
    .await
    .unwrap();
    let races = claims.into_iter().enumerate().map(|(i, (run, token))| {
        let (app, world) = (app.clone(), world.clone());
        async move {
            let body = json!({"claim_token": token, "content": "x"});
            let path = door(&run, "a", "commit");
            let late = i % 2 == 1;
            let rows = [1];
            let (answer, first, second) = tokio::join!(
                app.on(i % 3).post(&path, &world.runner.token, body),
                world.sweep(&app, 1, &run, &rows),
                world.sweep(&app, 2, &run, &rows),
            );
            let answered = text(&answer.ok(200), "task.status").to_owned();
            assert_eq!(
                answered,
                text(&world.task(&app, &run, "a").await, "task.status")
            );
            let lost = if late { "uncertain" } else { "timed_out" };
            assert!(answered == "completed" || answered == lost, "{answered}");
            assert!(first + second <= 1 && (answered != "completed" || first + second == 0));
            answered
        }
    });
    let ends = all(races).await;
    println!(
        "late commit against sweep: {} of {RUNS} completed",
        ends.iter().filter(|s| *s == "completed").count()
    );
    let Ok(app) = std::sync::Arc::try_unwrap(app) else {
        panic!("all races ended")
    };
    app.finish().await;
}

/// BR-023: replicas do not have clocks; what one grants another judges by the same database.
#[tokio::test]
async fn only_the_databases_clock_decides() {
    let app = TestApp::replicas(2).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world
        .run(&app, json!([world.routed("a", "write_note")]))
        .await;
    // The database runs three hours ahead of every process.
    app.advance(Duration::from_secs(3 * 3600)).await;
    sql.execute(
        "UPDATE parks SET deadline_at = nexus_now() + interval '10 minutes'",
        &[],
    )
    .await
    .unwrap();
    let granted = app
        .on(0)
        .command(&door(&run, "a", "claim"), &world.runner.token)
        .await;
    let token = crate::support::seed::claim_token(&granted);
    let shown: chrono::DateTime<chrono::Utc> =
        text(&granted.json(), "claim.deadline_at").parse().unwrap();
    let left = (shown - app.now().await).num_seconds();
    assert!((590..=600).contains(&left), "{left}");
    let stored = number(
        &sql,
        "SELECT extract(epoch FROM deadline_at)::bigint FROM parks",
    )
    .await;
    assert!(
        (stored - shown.timestamp()).abs() <= 1,
        "read back from the row"
    );
    assert_eq!(world.sweep(&app, 1, &run, &[1]).await, 0);
    app.on(1)
        .post(
            &door(&run, "a", "extend"),
            &world.runner.token,
            json!({"claim_token": token, "timeout_ms": 1000}),
        )
        .await
        .ok(200);
    app.advance(Duration::from_secs(1)).await;
    assert_eq!(world.sweep(&app, 1, &run, &[1]).await, 1);
    let task = world.task(&app, &run, "a").await;
    let settled: chrono::DateTime<chrono::Utc> = text(&task, "task.completed_at").parse().unwrap();
    assert!((app.now().await - settled).num_seconds() <= 5);
    assert!(at(&task, "task.started_at").as_str().is_some());
    app.finish().await;
}

/// BR-022: a stop and a start at once: after the stop nothing is dispatched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_stop_nothing_starts() {
    const RUNS: usize = 80;
    let app = std::sync::Arc::new(TestApp::replicas(3).await);
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let body = json!({"run": {"approval_mode": "bypass", "steps": [world.routed("a", "echo"), world.routed("b", "echo")]}});
    let races = (0..RUNS).map(|i| {
        let (app, world, body) = (app.clone(), world.clone(), body.clone());
        async move {
            let created = app
                .on(i % 3)
                .post(&world.runs(), &world.human.token, body)
                .await
                .ok(201);
            let run = text(&created, "run.public_id").to_owned();
            let (start, stop) = (
                format!("{}/{run}/start", world.runs()),
                format!("{}/{run}/stop", world.runs()),
            );
            let (started, stopped) = tokio::join!(
                app.on((i + 1) % 3).command(&start, &world.human.token),
                app.on((i + 2) % 3).command(&stop, &world.human.token),
            );
            stopped.ok(200);
            if started.status != 200 {
                started.expect(409, "not_startable");
            }
            app.command(&door(&run, "a", "claim"), &world.runner.token)
                .await
                .status
                .as_u16()
        }
    });
    assert!(all(races).await.into_iter().all(|status| status == 409));
    assert_eq!(number(&sql, "SELECT count(*) FROM parks").await, 0);
    assert_eq!(
        number(&sql, "SELECT count(*) FROM runs WHERE status <> 'canceled'").await,
        0
    );
    let Ok(app) = std::sync::Arc::try_unwrap(app) else {
        panic!("all races ended")
    };
    app.finish().await;
}
