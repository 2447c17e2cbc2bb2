//! Extensions (`executor.md` §10): the one clock moved, bounded, narrated; never brought back from
//! the dead.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fleet::{all, dump, number, set_run};
use crate::support::seed::{READ_ONLY, World, door, serve};
use crate::support::{Answer, TestApp, text};

const EXTENDED: &str = "SELECT count(*) FROM run_events WHERE type = 'task_deadline_extended'";
/// Milliseconds from now to the one park's deadline.
const LEFT: &str = "SELECT (extract(epoch FROM deadline_at - nexus_now()) * 1000)::bigint FROM parks WHERE task_no = 1";

async fn extend(app: &TestApp, world: &World, run: &str, body: Value) -> Answer {
    app.post(&door(run, "a", "extend"), &world.runner.token, body)
        .await
}

async fn scene() -> (TestApp, tokio_postgres::Client, World, String) {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut step = world.routed("a", "write_note");
    step["tool"]["timeout_ms"] = json!(60_000);
    let run = world
        .run(&app, json!([step, world.routed("b", "echo")]))
        .await;
    (app, sql, world, run)
}

/// Edge cases 26, 28, 30 and the rest of the table, in its order.
#[tokio::test]
async fn refusals_come_in_protocol_order_and_change_nothing() {
    let (app, sql, world, run) = scene().await;
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": "junk", "timeout_ms": 1000}),
    )
    .await
    .expect(409, "not_extendable");
    let token = world.claim(&app, &run, "a").await;
    let before = dump(&sql).await;
    for timeout_ms in [
        json!(0),
        json!(-1),
        json!("x"),
        json!(1.0),
        json!(null),
        json!([]),
        json!(true),
    ] {
        extend(
            &app,
            &world,
            &run,
            json!({"claim_token": token, "timeout_ms": timeout_ms}),
        )
        .await
        .expect(422, "invalid_timeout_ms");
    }
    extend(&app, &world, &run, json!({"claim_token": token}))
        .await
        .expect(422, "invalid_timeout_ms");
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": 1, "timeout_ms": 1}),
    )
    .await
    .expect(400, "parameter_invalid");
    for token in ["", "junk", &"t".repeat(1_000_000)] {
        extend(
            &app,
            &world,
            &run,
            json!({"claim_token": token, "timeout_ms": 1000}),
        )
        .await
        .expect(409, "not_claimant");
    }
    extend(&app, &world, &run, json!({"timeout_ms": 1000}))
        .await
        .expect(409, "not_claimant");
    app.post(
        &door(&run, "a", "extend"),
        &world.provider.token,
        json!({"claim_token": token, "timeout_ms": 1000}),
    )
    .await
    .expect(409, "not_claimant");
    // An integer is one however large, and a large one is too long (§10, rows 2 and 5).
    for (proof, sign, status, code) in [
        (token.as_str(), "", 409, "extension_too_long"),
        ("junk", "", 409, "not_claimant"),
        (token.as_str(), "-", 422, "invalid_timeout_ms"),
    ] {
        for digits in ["9223372036854775808", &"9".repeat(39)] {
            let huge = format!(r#"{{"claim_token":"{proof}","timeout_ms":{sign}{digits}}}"#);
            app.post(&door(&run, "a", "extend"), &world.runner.token, huge)
                .await
                .expect(status, code);
        }
    }
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": token, "timeout_ms": 3_600_001}),
    )
    .await
    .expect(409, "extension_too_long");
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": token, "timeout_ms": i64::MAX}),
    )
    .await
    .expect(409, "extension_too_long");
    app.post(
        &door(&run, "b", "extend"),
        &world.runner.token,
        json!({"claim_token": token, "timeout_ms": 1}),
    )
    .await
    .expect(409, "not_extendable");
    app.post(
        &door(&run, "zz", "extend"),
        &world.runner.token,
        json!({"claim_token": token, "timeout_ms": "x"}),
    )
    .await
    .expect(404, "not_found");
    assert_eq!(before, dump(&sql).await, "refusals narrate nothing");
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": token, "timeout_ms": 3_600_000}),
    )
    .await
    .ok(200);
    // 30: an authored minute is extended by a quarter of an hour; the budget never moves.
    let granted = extend(
        &app,
        &world,
        &run,
        json!({"claim_token": token, "timeout_ms": 900_000}),
    )
    .await
    .ok(200);
    assert_eq!(text(&granted, "claim.claim_token"), token);
    assert_eq!(number(&sql, "SELECT timeout_ms FROM parks").await, 60_000);
    assert!((899_000..=900_000).contains(&number(&sql, LEFT).await));
    assert_eq!(number(&sql, EXTENDED).await, 2);
    // A small value shortens, and the sweeper looks sooner.
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": token, "timeout_ms": 1}),
    )
    .await
    .ok(200);
    assert_eq!(
        number(
            &sql,
            "SELECT count(*) FROM parks WHERE due_at = deadline_at"
        )
        .await,
        1
    );
    app.advance(Duration::from_millis(2)).await;
    assert_eq!(world.sweep(&app, 0, &run, &[1]).await, 1);
    app.finish().await;
}

/// Edge case 28, the announced bound.
#[tokio::test]
async fn the_announced_timeout_bounds_extensions() {
    let (app, sql, world, _) = scene().await;
    serve(
        &sql,
        world.account,
        &world.runner,
        "quick",
        READ_ONLY,
        Some(30_000),
    )
    .await;
    let run = world.run(&app, json!([world.routed("a", "quick")])).await;
    let token = world.claim(&app, &run, "a").await;
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": token, "timeout_ms": 30_001}),
    )
    .await
    .expect(409, "extension_too_long");
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": token, "timeout_ms": 30_000}),
    )
    .await
    .ok(200);
    world.commit(&app, &run, "a", &token).await.ok(200);
    app.finish().await;
}

/// Edge case 27: at or past the deadline it is too late, swept or not.
#[tokio::test]
async fn a_passed_deadline_is_not_extended_before_the_sweep_nor_after() {
    let (app, sql, world, run) = scene().await;
    let token = world.claim(&app, &run, "a").await;
    app.advance(Duration::from_millis(60_000)).await;
    let before = dump(&sql).await;
    let body = json!({"claim_token": token, "timeout_ms": 1000});
    extend(&app, &world, &run, body.clone())
        .await
        .expect(409, "not_extendable");
    assert_eq!(before, dump(&sql).await, "no event, the row untouched");
    assert_eq!(world.sweep(&app, 0, &run, &[1]).await, 1);
    extend(&app, &world, &run, body)
        .await
        .expect(409, "not_extendable");
    assert_eq!(number(&sql, EXTENDED).await, 0);
    app.finish().await;
}

/// Edge case 29: in a pause of hours the clock stands, extensions are granted and shown on the wall.
#[tokio::test]
async fn a_paused_claim_is_extended_on_the_runs_own_clock() {
    let (app, sql, world, run) = scene().await;
    let token = world.claim(&app, &run, "a").await;
    set_run(&sql, &run, "paused").await;
    app.advance(Duration::from_secs(5 * 3600)).await;
    for _ in 0..2 {
        let granted = extend(
            &app,
            &world,
            &run,
            json!({"claim_token": token, "timeout_ms": 90_000}),
        )
        .await
        .ok(200);
        let shown: chrono::DateTime<chrono::Utc> =
            text(&granted, "claim.deadline_at").parse().unwrap();
        let left = (shown - app.now().await).num_seconds();
        assert!(
            (85..=90).contains(&left),
            "wall deadline = now + budget, not {left} s"
        );
        app.advance(Duration::from_secs(3600)).await;
    }
    assert_eq!(
        world.sweep(&app, 0, &run, &[1]).await,
        0,
        "a paused run is not swept"
    );
    set_run(&sql, &run, "running").await;
    assert!((85_000..=90_000).contains(&number(&sql, LEFT).await));
    set_run(&sql, &run, "canceling").await;
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": token, "timeout_ms": 1000}),
    )
    .await
    .ok(200);
    set_run(&sql, &run, "needs_attention").await;
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": token, "timeout_ms": 1000}),
    )
    .await
    .ok(200);
    set_run(&sql, &run, "running").await;
    world.stop(&app, &run).await.ok(200);
    extend(
        &app,
        &world,
        &run,
        json!({"claim_token": token, "timeout_ms": 1000}),
    )
    .await
    .expect(409, "not_extendable");
    assert_eq!(number(&sql, EXTENDED).await, 4);
    app.finish().await;
}

/// BR-011: an extension and the sweep at the deadline: one of them wins, and both know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_meets_the_sweep_at_the_deadline_and_one_wins() {
    const ROWS: i32 = 250;
    let app = std::sync::Arc::new(TestApp::replicas(2).await);
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(world.wide_run(&app, &sql, ROWS / 5).await);
    }
    let mut tokens = Vec::new();
    for _ in 0..ROWS / 50 {
        let taken = app
            .post(
                "/agent_api/v1/executor/inbox/claims",
                &world.runner.token,
                json!({"limit": 50}),
            )
            .await
            .ok(200);
        for claim in crate::support::items(&taken, "claims") {
            tokens.push((
                text(claim, "task.run_public_id").to_owned(),
                text(claim, "task.task_key").to_owned(),
                text(claim, "claim.claim_token").to_owned(),
            ));
        }
    }
    assert_eq!(tokens.len(), ROWS as usize);
    let mut won = 0;
    for chunk in tokens.chunks(25) {
        sql.execute("UPDATE parks SET deadline_at = nexus_now() + random() * interval '600 ms', due_at = least(due_at, nexus_now())", &[]).await.unwrap();
        let races = chunk.iter().enumerate().map(|(i, (run, key, token))| {
            let (app, world, run, key) = (app.clone(), world.clone(), run.clone(), key.clone());
            let body = json!({"claim_token": token, "timeout_ms": 60_000});
            async move {
                let no: i32 = key[1..].parse().unwrap();
                let path = door(&run, &key, "extend");
                let rows = [no];
                let sweeps = async {
                    // A sweeper looks again and again; each look re-checks under the lock.
                    let mut settled = 0;
                    for _ in 0..4 {
                        settled += world.sweep(&app, 1, &run, &rows).await;
                    }
                    settled
                };
                let (extended, swept) =
                    tokio::join!(app.on(i % 2).post(&path, &world.runner.token, body), sweeps);
                (run, key, extended, swept)
            }
        });
        for (run, key, extended, swept) in all(races).await {
            let status = text(&world.task(&app, &run, &key).await, "task.status").to_owned();
            match extended.status.as_u16() {
                200 => {
                    assert_eq!(
                        (swept, &*status),
                        (0, "dispatched"),
                        "an extended row is not swept"
                    );
                    won += 1;
                }
                _ => {
                    extended.expect(409, "not_extendable");
                }
            }
        }
    }
    assert_eq!(number(&sql, EXTENDED).await, won, "one narration a grant");
    println!("extend against sweep: {won} of {ROWS} extensions were first");
    for run in runs {
        world.stop(&app, &run).await.ok(200);
    }
    let Ok(app) = std::sync::Arc::try_unwrap(app) else {
        panic!("all races ended")
    };
    app.finish().await;
}
