//! What a verb costs in statements and round trips (`architecture.md` §4, §5; `engine.md` L6), and
//! that it stays so whatever the run's size and history.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use nexus::store::Reading;
use serde_json::{Value, json};

use crate::support::fleet::{fan, number, until};
use crate::support::seed::{World, claim_token, door};
use crate::support::{TestApp, at};

/// What one piece of work cost on the first replica.
async fn cost<T>(app: &TestApp, work: impl Future<Output = T>) -> (Reading, T) {
    let before = app.app().store.meter();
    let done = work.await;
    let after = app.app().store.meter();
    let spent = Reading {
        statements: after.statements - before.statements,
        round_trips: after.round_trips - before.round_trips,
        rows: after.rows - before.rows,
    };
    (spent, done)
}

/// First contacts are sampled behind their requests: not part of any measurement.
async fn greet(app: &TestApp, world: &World) {
    app.get("/agent_api/v1/executor/inbox", &world.runner.token)
        .await
        .ok(200);
    app.get(&world.runs(), &world.human.token).await.ok(200);
    let sql = app.sql().await;
    until("the runner was seen", || async {
        number(
            &sql,
            "SELECT (SELECT count(*) FROM executors WHERE last_seen_at IS NOT NULL)
                  + (SELECT count(*) FROM tokens WHERE last_used_at IS NOT NULL)",
        )
        .await
            == 3
    })
    .await;
}

struct Costs {
    claim: Reading,
    lost_claim: Reading,
    read: Reading,
    extend: Reading,
    commit: Reading,
    repeat: Reading,
}

/// The life of one call behind `settled` settled rows of its run.
async fn costs(settled: i32) -> Costs {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    greet(&app, &world).await;
    let steps = json!([world.routed("a", "echo"), world.routed("b", "echo")]);
    let run = world.run(&app, steps).await;
    if settled > 0 {
        world.settled_rows(&sql, &run, settled).await;
    }
    let runner = &world.runner.token;
    let path = door(&run, "a", "claim");
    let (claim, granted) = cost(&app, app.command(&path, runner)).await;
    let token = claim_token(&granted);
    let (lost_claim, lost) = cost(&app, app.command(&path, runner)).await;
    lost.expect(409, "already_claimed");
    let reading = app
        .request(reqwest::Method::GET, &path, runner)
        .header("claim-token", &token);
    let (read, active) = cost(&app, reading.send()).await;
    assert_eq!(at(&active.ok(200), "claim.active").as_bool(), Some(true));
    let body = json!({"claim_token": token, "timeout_ms": 60_000});
    let (extend, extended) = cost(&app, app.post(&door(&run, "a", "extend"), runner, body)).await;
    extended.ok(200);
    let body = json!({"claim_token": token, "content": "x"});
    let path = door(&run, "a", "commit");
    let send = |body: Value| app.post(&path, runner, body);
    let (commit, committed) = cost(&app, send(body.clone())).await;
    committed.ok(200);
    let (repeat, repeated) = cost(&app, send(body)).await;
    repeated.ok(200);
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
    Costs {
        claim,
        lost_claim,
        read,
        extend,
        commit,
        repeat,
    }
}

/// The budget: authentication is one statement and one round trip of each; a claim adds at most two,
/// a refused one one, a plain commit (with a follower that starts) at most four; and none of them
/// changes with the run's size.
#[tokio::test]
async fn a_verb_costs_a_fixed_number_of_round_trips_whatever_the_runs_size() {
    const AUTH: u64 = 1;
    let (small, large) = (costs(1).await, costs(2000).await);
    for (what, of_small, of_large, most) in [
        ("claim", small.claim, large.claim, 2),
        ("refused claim", small.lost_claim, large.lost_claim, 1),
        ("claim read", small.read, large.read, 1),
        ("extend", small.extend, large.extend, 2),
        ("commit", small.commit, large.commit, 4),
        ("repeated commit", small.repeat, large.repeat, 2),
    ] {
        println!(
            "{what}: {} round trips, {} statements, {} rows (authentication is 1 and 1)",
            of_small.round_trips, of_small.statements, of_small.rows
        );
        assert_eq!(of_small, of_large, "{what}: the size of the run shows");
        assert!(of_small.round_trips <= AUTH + most, "{what}: {of_small:?}");
    }
}

/// The same for a commit that releases nothing yet (one of many siblings) and for the end of a run.
#[tokio::test]
async fn a_settle_reads_its_own_neighbourhood_alone() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    greet(&app, &world).await;
    let mut seen = Vec::new();
    for width in [2, 30] {
        let run = world.run(&app, fan(&world, width)).await;
        for i in 0..width {
            let key = format!("m{i}");
            let token = world.claim(&app, &run, &key).await;
            let (spent, done) = cost(&app, world.commit(&app, &run, &key, &token)).await;
            done.ok(200);
            let last = i + 1 == width;
            let most = if last { 5 } else { 4 };
            assert!(
                spent.round_trips <= most,
                "{width} wide, member {i}: {spent:?}"
            );
            if i == 0 {
                seen.push(spent);
            }
        }
        let token = world.claim(&app, &run, "last").await;
        let (spent, done) = cost(&app, world.commit(&app, &run, "last", &token)).await;
        done.ok(200);
        println!("the last commit of a run {width} wide: {spent:?}");
        assert!(spent.round_trips <= 5, "{spent:?}");
    }
    assert_eq!(
        seen[0], seen[1],
        "one member of a fan costs the same in a wider one"
    );
    app.finish().await;
}

/// A start and a stop touch what they start and stop, in a fixed number of round trips.
#[tokio::test]
async fn starting_and_stopping_a_fan_takes_as_many_round_trips_as_one_row() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    greet(&app, &world).await;
    let mut costs = Vec::new();
    for width in [1, 32] {
        let steps = fan(&world, width);
        let body = json!({"run": {"approval_mode": "bypass", "steps": steps}});
        let (create, created) = cost(&app, app.post(&world.runs(), &world.human.token, body)).await;
        let run = crate::support::text(&created.ok(201), "run.public_id").to_owned();
        let path = format!("{}/{run}/start", world.runs());
        let (start, started) = cost(&app, app.command(&path, &world.human.token)).await;
        started.ok(200);
        let (stop, stopped) = cost(&app, world.stop(&app, &run)).await;
        stopped.ok(200);
        println!("a fan of {width}: create {create:?}, start {start:?}, stop {stop:?}");
        costs.push([create, start, stop].map(|c| (c.round_trips, c.statements)));
    }
    assert_eq!(costs[0], costs[1]);
    app.finish().await;
}

/// `architecture.md` §5: commands that arrive while a transaction is under way share the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_one_run_that_wait_share_a_transaction() {
    const CALLS: i32 = 64;
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    greet(&app, &world).await;
    let run = world.wide_run(&app, &sql, CALLS + 1).await;
    let mut tokens = Vec::new();
    for no in 1..=CALLS {
        tokens.push(world.claim(&app, &run, &format!("r{no}")).await);
    }
    // While somebody holds the run they gather.
    sql.batch_execute(&format!(
        "BEGIN; SELECT 1 FROM runs WHERE public_id = '{run}' FOR UPDATE"
    ))
    .await
    .unwrap();
    let before = app.app().store.meter();
    let commits: Vec<_> = tokens
        .iter()
        .enumerate()
        .map(|(i, token)| {
            let (door_, bearer) = (app.on(0).clone(), world.runner.token.clone());
            let (path, body) = (
                door(&run, &format!("r{}", i + 1), "commit"),
                json!({"claim_token": token}),
            );
            tokio::spawn(async move { door_.post(&path, &bearer, body).await.ok(200) })
        })
        .collect();
    until("all 64 were authenticated", || async {
        app.app().store.meter().statements >= before.statements + u64::try_from(CALLS).unwrap() + 2
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await; // the queue fills; nothing depends on how far
    sql.batch_execute("COMMIT").await.unwrap();
    for commit in commits {
        commit.await.unwrap();
    }
    let spent = app.app().store.meter().round_trips - before.round_trips;
    println!("64 commits of one held run: {spent} round trips, authentication included");
    assert!(spent <= 64 + 24, "{spent} round trips");
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}

/// `architecture.md` §5: commands of many runs share the loads of their consequences, round by round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_many_runs_share_their_loads() {
    const RUNS: u64 = 64;
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    greet(&app, &world).await;
    let mut calls = Vec::new();
    for _ in 0..RUNS {
        let steps = json!([world.routed("a", "echo"), world.routed("b", "echo")]);
        let run = world.run(&app, steps).await;
        let token = world.claim(&app, &run, "a").await;
        calls.push((run, token));
    }
    // While nobody gets a run the first of each lane waits, and the others gather behind it.
    sql.batch_execute("BEGIN; LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let before = app.app().store.meter();
    let begun = std::time::Instant::now();
    let commits: Vec<_> = calls
        .iter()
        .map(|(run, token)| {
            let (door_, bearer) = (app.on(0).clone(), world.runner.token.clone());
            let (path, body) = (door(run, "a", "commit"), json!({"claim_token": token}));
            tokio::spawn(async move { door_.post(&path, &bearer, body).await.ok(200) })
        })
        .collect();
    until("all 64 were authenticated", || async {
        app.app().store.meter().statements >= before.statements + RUNS
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await; // the queues fill; nothing depends on how far
    sql.batch_execute("COMMIT").await.unwrap();
    for commit in commits {
        commit.await.unwrap();
    }
    let after = app.app().store.meter();
    let spent = after.round_trips - before.round_trips - RUNS;
    println!(
        "64 commits over 64 runs whose followers start: {spent} round trips and {} statements beside authentication, {:?}",
        after.statements - before.statements - RUNS,
        begun.elapsed()
    );
    for (run, _) in &calls {
        let b = world.task(&app, run, "b").await;
        assert_eq!(crate::support::text(&b, "task.status"), "dispatched");
    }
    // Four lanes, each with one command that came first and one batch: lock, two loads, apply.
    assert!(spent <= 4 * 2 * 4, "{spent} round trips");
    app.finish().await;
}
