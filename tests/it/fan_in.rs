//! Fan-in and its like (BR-029, BR-036, BR-039, BR-057, BR-087): many settles of one run at one
//! instant, over several replicas, and every follower exactly once.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use nexus::commands::claim::Claimed;
use nexus::commands::commit::Entry;
use nexus::domain::words::ExecutorKind;
use nexus::domain::{AccountId, ExecutorId, TaskNo};
use nexus::store::credentials::ExecutorCaller;
use nexus::store::{First, Held, RunTarget};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::support::fleet::{all, fan, number, parallel, until};
use crate::support::seed::{World, door};
use crate::support::{TestApp, items, text};

/// Dispatches of a row, counted in the feed.
const TWICE: &str = "SELECT count(*) FROM (SELECT 1 FROM run_events WHERE type = 'task_status'
    AND payload::jsonb ->> 'status' = 'dispatched' GROUP BY account_id, host_id, payload::jsonb ->> 'task_key'
    HAVING count(*) > 1) x";

/// How many rounds: `NEXUS_TEST_ROUNDS` for more than fits into an ordinary run of the tests.
fn rounds(ordinary: usize) -> usize {
    std::env::var("NEXUS_TEST_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(ordinary)
}

/// Claims everything in the inbox; gives run, key and token of each.
async fn claim_all(app: &TestApp, world: &World) -> Vec<(String, String, String)> {
    let mut claimed = Vec::new();
    loop {
        let taken = app
            .post(
                "/agent_api/v1/executor/inbox/claims",
                &world.runner.token,
                json!({"limit": 64}),
            )
            .await
            .ok(200);
        let claims = items(&taken, "claims");
        if claims.is_empty() {
            return claimed;
        }
        claimed.extend(claims.iter().map(|c| {
            let part = |path| text(c, path).to_owned();
            (
                part("task.run_public_id"),
                part("task.task_key"),
                part("claim.claim_token"),
            )
        }));
    }
}

/// Commits all of these at one instant, dealt out over the replicas, with that body's members.
async fn commit_all(
    app: &TestApp,
    world: &World,
    claims: Vec<(String, String, String)>,
    members: Value,
) {
    let barrier = Arc::new(Barrier::new(claims.len()));
    let commits = claims
        .into_iter()
        .enumerate()
        .map(|(i, (run, key, token))| {
            let (door_, bearer) = (
                app.on(i % app.replicas.len()).clone(),
                world.runner.token.clone(),
            );
            let (barrier, mut body) = (barrier.clone(), members.clone());
            body["claim_token"] = json!(token);
            async move {
                barrier.wait().await;
                door_
                    .post(&door(&run, &key, "commit"), &bearer, body)
                    .await
                    .ok(200);
            }
        });
    all(commits).await;
}

/// BR-029: 32 siblings committed at one instant over three replicas; the follower starts exactly
/// once and is there when the last commit is answered. Several runs race beside each other: as many
/// rounds as that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_siblings_at_one_instant_start_their_follower_exactly_once() {
    const BESIDE: usize = 4;
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let started = Instant::now();
    let (wanted, mut done) = (rounds(16), 0);
    while done < wanted {
        let mut runs = Vec::new();
        for _ in 0..BESIDE.min(wanted - done) {
            runs.push(world.run(&app, fan(&world, 32)).await);
        }
        let claims = claim_all(&app, &world).await;
        assert_eq!(claims.len(), 32 * runs.len());
        commit_all(&app, &world, claims, json!({"content": "x"})).await;
        let followers = claim_all(&app, &world).await;
        assert_eq!(
            followers.len(),
            runs.len(),
            "one follower a run, neither zero nor two"
        );
        assert!(followers.iter().all(|(_, key, _)| key == "last"));
        commit_all(&app, &world, followers, json!({})).await;
        for run in &runs {
            let status: String = sql
                .query_one(
                    "SELECT status FROM runs WHERE public_id = $1::text::uuid",
                    &[run],
                )
                .await
                .unwrap()
                .get(0);
            assert_eq!(status, "completed");
        }
        done += runs.len();
    }
    println!("{done} rounds of a fan-in of 32: {:?}", started.elapsed());
    assert_eq!(number(&sql, TWICE).await, 0);
    app.finish().await;
}

/// The same, hundreds of times (500 with `NEXUS_TEST_ROUNDS=500`), at the commands behind the doors: what races is the same, what is
/// left out is HTTP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_fan_ins_of_thirty_two_start_one_follower_each() {
    const BESIDE: usize = 20;
    let batches = rounds(300) / BESIDE;
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let caller = ExecutorCaller {
        account: AccountId(world.account),
        id: ExecutorId(world.runner.id),
        public_id: world.runner.public_id,
        kind: ExecutorKind::Runner,
        epoch: 1,
        token_id: 0,
    };
    let claim_all = async || {
        let mut claimed = Vec::new();
        loop {
            let taken =
                nexus::commands::inbox::claim_many(app.app(), &caller, 64, Duration::ZERO, None)
                    .await
                    .unwrap();
            if taken.is_empty() {
                return claimed;
            }
            claimed.extend(taken);
        }
    };
    let commit_all = async |claims: Vec<Claimed>| {
        let barrier = Arc::new(Barrier::new(claims.len()));
        let commits = claims.into_iter().enumerate().map(|(i, claim)| {
            let (app, caller, barrier) = (
                app.replicas[i % 3].app.clone(),
                caller.clone(),
                barrier.clone(),
            );
            async move {
                let body = nexus::domain::json::Object::new();
                let (run, key) = (claim.row.run_public_id, claim.row.task_key);
                barrier.wait().await;
                nexus::commands::commit::commit(
                    &app,
                    &caller,
                    Entry {
                        run,
                        key,
                        token: Some(&claim.token),
                        body: &body,
                    },
                )
                .await
                .unwrap();
            }
        });
        all(commits).await;
    };
    let started = Instant::now();
    let steps = fan(&world, 32);
    for _ in 0..batches {
        let births = (0..BESIDE).map(|i| {
            let (door_, world, steps) = (app.on(i % 3).clone(), world.clone(), steps.clone());
            async move {
                let body = json!({"run": {"approval_mode": "bypass", "steps": steps}});
                let created = door_
                    .post(&world.runs(), &world.human.token, body)
                    .await
                    .ok(201);
                let run = text(&created, "run.public_id");
                door_
                    .command(&format!("{}/{run}/start", world.runs()), &world.human.token)
                    .await
                    .ok(200);
            }
        });
        all(births).await;
        let members = claim_all().await;
        assert_eq!(members.len(), 32 * BESIDE);
        commit_all(members).await;
        let followers = claim_all().await;
        assert_eq!(
            followers.len(),
            BESIDE,
            "one follower a run, neither zero nor two"
        );
        assert!(followers.iter().all(|c| c.row.task_key.as_str() == "last"));
        commit_all(followers).await;
    }
    println!(
        "{} rounds of a fan-in of 32, behind the doors: {:?}",
        batches * BESIDE,
        started.elapsed()
    );
    let ended = number(&sql, "SELECT count(*) FROM runs WHERE status = 'completed'").await;
    assert_eq!(ended, i64::try_from(batches * BESIDE).unwrap());
    assert_eq!(number(&sql, TWICE).await, 0);
    app.finish().await;
}

/// BR-029: two-parent diamonds, all parents of all diamonds at one instant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_parents_of_many_diamonds_at_one_instant() {
    // a fan of two behind another: four edges, two joints a diamond.
    const BATCH: usize = 25;
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let diamond = json!([
        world.routed("top", "echo"),
        parallel(vec![
            world.routed("left", "echo"),
            world.routed("right", "echo")
        ]),
        world.routed("bottom", "echo"),
    ]);
    let started = Instant::now();
    let (wanted, mut done) = (rounds(50), 0);
    while done < wanted {
        let n = BATCH.min(wanted - done);
        for _ in 0..n {
            world.run(&app, diamond.clone()).await;
        }
        for wide in [n, 2 * n, n] {
            let claims = claim_all(&app, &world).await;
            assert_eq!(claims.len(), wide);
            commit_all(&app, &world, claims, json!({})).await;
        }
        done += n;
    }
    println!("{done} diamonds: {:?}", started.elapsed());
    assert_eq!(
        number(
            &sql,
            "SELECT count(*) FROM runs WHERE status <> 'completed'"
        )
        .await,
        0
    );
    assert_eq!(number(&sql, TWICE).await, 0);
    app.finish().await;
}

/// BR-039: all members fail, or run out, in one instant: the same end every time, each failure kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simultaneous_failures_end_the_same_way_every_time() {
    const TIMES: i64 = 5;
    for (policy, follower, run_status) in [
        ("absorb", "dispatched", "running"),
        ("propagate", "skipped", "needs_attention"),
        ("halt", "queued", "needs_attention"),
    ] {
        let app = TestApp::replicas(3).await;
        let sql = app.sql().await;
        let world = World::in_database(&sql, "a").await;
        let members = (0..8).map(|i| {
            let mut step = world.routed(&format!("m{i}"), "write_note");
            step["tool"]["on_failure"] = json!(policy);
            step
        });
        let steps = json!([parallel(members.collect()), world.routed("last", "echo")]);
        for how in ["failed", "uncertain"] {
            let mut runs = Vec::new();
            for _ in 0..TIMES {
                runs.push(world.run(&app, steps.clone()).await);
            }
            let claims = claim_all(&app, &world).await;
            let claims: Vec<_> = claims
                .into_iter()
                .filter(|(_, key, _)| key != "last")
                .collect();
            assert_eq!(claims.len(), 8 * runs.len());
            if how == "failed" {
                commit_all(
                    &app,
                    &world,
                    claims,
                    json!({"outcome": "failed", "content": "no"}),
                )
                .await;
            } else {
                app.advance(Duration::from_secs(599)).await;
                sql.execute(
                    "UPDATE parks SET (deadline_at, due_at) = (SELECT t, t FROM nexus_now() AS t) WHERE task_no <= 8",
                    &[],
                )
                .await
                .unwrap();
                for run in &runs {
                    let rows: Vec<i32> = (1..=8).collect();
                    let (a, b, c) = tokio::join!(
                        world.sweep(&app, 0, run, &rows),
                        world.sweep(&app, 1, run, &rows[4..]),
                        world.sweep(&app, 2, run, &rows[..4])
                    );
                    assert_eq!(a + b + c, 8, "each settles once");
                }
            }
            let count =
                async |what: &str| number(&sql, &format!("SELECT count(*) FROM {what}")).await;
            let mine =
                format!("run_id IN (SELECT run_id FROM runs ORDER BY run_id DESC LIMIT {TIMES})");
            let at_end = [
                count(&format!(
                    "tasks WHERE {mine} AND key LIKE 'm%' AND status = '{how}'"
                ))
                .await,
                count(&format!(
                    "tasks WHERE {mine} AND key = 'last' AND status = '{follower}'"
                ))
                .await,
                count(&format!("runs WHERE {mine} AND status = '{run_status}'")).await,
                count(
                    &format!(
                        "run_events WHERE type = 'turn_status' AND payload LIKE '%needs_attention%' AND host_{mine}"
                    )
                    .replace("host_run_id", "host_id"),
                )
                .await,
                count(&format!("open_failures WHERE {mine}")).await,
            ];
            let held = run_status == "needs_attention";
            let wanted = [
                8 * TIMES,
                TIMES,
                TIMES,
                if held { TIMES } else { 0 },
                if policy == "absorb" { 0 } else { 8 * TIMES },
            ];
            assert_eq!(
                at_end, wanted,
                "{policy} {how}: members, follower, run, holds, open failures"
            );
        }
        app.finish().await;
    }
}

/// BR-036: a skip reaches what stands behind the failure, no sibling, and stops where it is
/// absorbed; a chain of a thousand rows is skipped in one command.
#[tokio::test]
async fn a_skip_goes_exactly_as_far_as_it_must() {
    for (policy, b, c, run_status) in [
        ("propagate", "skipped", "skipped", "running"),
        ("absorb", "dispatched", "waiting", "running"),
        ("halt", "waiting", "waiting", "running"),
    ] {
        let app = TestApp::start().await;
        let world = World::in_database(&app.sql().await, "a").await;
        let mut first = world.routed("a", "echo");
        first["tool"]["on_failure"] = json!(policy);
        let chain = json!([first, world.routed("b", "echo"), world.routed("c", "echo")]);
        let steps = json!([parallel(vec![chain, world.routed("d", "echo")])]);
        let run = world
            .run(&app, json!([steps[0], world.routed("end", "echo")]))
            .await;
        let token = world.claim(&app, &run, "a").await;
        app.post(
            &door(&run, "a", "commit"),
            &world.runner.token,
            json!({"claim_token": token, "outcome": "failed"}),
        )
        .await
        .ok(200);
        for (key, wanted) in [("b", b), ("c", c), ("d", "dispatched")] {
            let task = world.task(&app, &run, key).await;
            assert_eq!(text(&task, "task.status"), wanted, "{policy}: {key}");
        }
        assert_eq!(
            text(&world.show(&app, &run).await, "run.status"),
            run_status
        );
        let token = world.claim(&app, &run, "d").await;
        world.commit(&app, &run, "d", &token).await.ok(200);
        if policy != "absorb" {
            assert_eq!(
                text(&world.show(&app, &run).await, "run.status"),
                "needs_attention"
            );
        }
        app.finish().await;
    }
    // A chain of a thousand.
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "echo"), world.routed("b", "echo")]),
        )
        .await;
    sql.batch_execute(
        "INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, lifetime, wake, on_failure,
                visibility, lineage_no, tip_no, remaining, tool_name, target_executor_id)
         SELECT account_id, run_id, g, 'c' || g, kind, 'queued', authored_by, lifetime, wake, 'propagate', visibility, g, g,
                1, tool_name, target_executor_id FROM tasks, generate_series(3, 1000) g WHERE task_no = 2;
         INSERT INTO edges (account_id, run_id, from_no, to_no, ordinal, structural, state)
         SELECT account_id, run_id, g - 1, g, 0, structural, 'open' FROM edges, generate_series(3, 1000) g;
         UPDATE runs SET n_tasks = 1000, n_open = 1000, deliverable_no = 1000, mainline_tail_no = 1000"
    )
    .await
    .unwrap();
    let token = world.claim(&app, &run, "a").await;
    let started = Instant::now();
    app.post(
        &door(&run, "a", "commit"),
        &world.runner.token,
        json!({"claim_token": token, "outcome": "failed"}),
    )
    .await
    .ok(200);
    println!("a chain of 999 skipped in {:?}", started.elapsed());
    assert_eq!(
        number(&sql, "SELECT count(*) FROM tasks WHERE status = 'skipped'").await,
        999
    );
    assert_eq!(
        text(&world.show(&app, &run).await, "run.status"),
        "needs_attention"
    );
    app.finish().await;
}

/// BR-057: a reader that pages one by one while 60 commits write never meets a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_read_while_it_is_written_has_no_gap() {
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    world.wide_run(&app, &sql, 120).await;
    let claims = claim_all(&app, &world).await;
    let reader = app.sql().await;
    let reading = tokio::spawn(async move {
        let mut last = 0_i64;
        let mut idle = 0;
        while idle < 200 {
            let next = "SELECT seq FROM run_events WHERE seq > $1 ORDER BY seq LIMIT 1";
            match reader.query_opt(next, &[&last]).await.unwrap() {
                Some(row) => {
                    assert_eq!(row.get::<_, i64>(0), last + 1, "a position was skipped");
                    last += 1;
                    idle = 0;
                }
                None => {
                    idle += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await; // the reader's pace
                }
            }
        }
        last
    });
    commit_all(&app, &world, claims, json!({"content": "x"})).await;
    let read = reading.await.unwrap();
    assert_eq!(read, number(&sql, "SELECT event_seq FROM runs").await);
    app.finish().await;
}

/// BR-087: commits, extensions, sweeps and stops of the same runs from all replicas, in batches that
/// form by themselves: no deadlock reaches a client, and the database counts none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verbs_over_the_same_runs_keep_one_lock_order() {
    const RUNS: usize = 12;
    const CALLS: i32 = 24;
    let app = Arc::new(TestApp::replicas(3).await);
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(world.wide_run(&app, &sql, CALLS).await);
    }
    let claims = claim_all(&app, &world).await;
    assert_eq!(claims.len(), RUNS * CALLS as usize);
    // One in three is due at once, so that the sweeps have something to settle.
    sql.execute(
        "UPDATE parks SET deadline_at = nexus_now(), due_at = nexus_now() WHERE task_no % 3 = 0",
        &[],
    )
    .await
    .unwrap();
    let commits = claims
        .into_iter()
        .enumerate()
        .map(|(i, (run, key, token))| {
            let (app, world) = (app.clone(), world.clone());
            async move {
                let body = json!({"claim_token": token, "content": "x", "timeout_ms": 60_000});
                let verb = if i % 4 == 0 { "extend" } else { "commit" };
                let answer = app
                    .on(i % 3)
                    .post(&door(&run, &key, verb), &world.runner.token, body)
                    .await;
                assert!(answer.status.as_u16() < 500, "{answer:?}");
            }
        });
    let sweeps = (0..4 * RUNS).map(|i| {
        let (app, world, run) = (app.clone(), world.clone(), runs[i % RUNS].clone());
        let rows: Vec<i32> = (1..=CALLS).rev().collect();
        async move {
            world.sweep(&app, i % 3, &run, &rows).await;
        }
    });
    let stops = (0..RUNS / 2).map(|i| {
        let (app, world, run) = (app.clone(), world.clone(), runs[i].clone());
        async move {
            app.on(i % 3)
                .command(&format!("{}/{run}/stop", world.runs()), &world.human.token)
                .await
                .ok(200);
        }
    });
    let ((), (), ()) = tokio::join!(
        async { drop(all(commits).await) },
        async { drop(all(sweeps).await) },
        async { drop(all(stops).await) }
    );
    let deadlocks = number(
        &sql,
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
    )
    .await;
    assert_eq!(deadlocks, 0, "the lock order holds");
    for run in &runs[RUNS / 2..] {
        world.stop(&app, run).await.ok(200);
    }
    let Ok(app) = Arc::try_unwrap(app) else {
        panic!("all verbs ended")
    };
    app.finish().await;
}

/// `architecture.md` §5, BR-087: a batch leaves a run that somebody holds alone, with all that is
/// below it: it neither waits for that run's parks nor keeps others from them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_touches_no_park_of_a_run_that_somebody_holds() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let held = world.run(&app, json!([world.routed("a", "echo")])).await;
    let free = world.run(&app, json!([world.routed("a", "echo")])).await;
    let target = |run: &str| RunTarget {
        account: AccountId(world.account),
        run: run.parse().unwrap(),
    };
    let no_wait = format!(
        "SELECT 1 FROM parks p JOIN runs r USING (account_id, run_id) WHERE r.public_id = '{held}' FOR UPDATE OF p NOWAIT"
    );
    for first in [First::Parked(vec![TaskNo(1)]), First::OpenRows] {
        let mut wanted = vec![
            (target(&held), vec![first.clone()]),
            (target(&free), vec![first.clone()]),
        ];
        wanted.sort_by_key(|(target, _)| *target);
        sql.batch_execute(&format!(
            "BEGIN; SELECT 1 FROM runs WHERE public_id = '{held}' FOR NO KEY UPDATE"
        ))
        .await
        .unwrap();
        let mut batch = app
            .app()
            .store
            .lock_runs(&wanted, Held::Skip)
            .await
            .unwrap();
        assert!(batch.locked(&target(&free)).is_some() && batch.locked(&target(&held)).is_none());
        // The holder reaches its own parks,
        sql.batch_execute(&no_wait)
            .await
            .expect("nobody else locked them");
        batch.rollback().await;
        // and while it keeps them, a batch goes on without.
        let going_on = app.app().store.lock_runs(&wanted, Held::Skip);
        let mut batch = tokio::time::timeout(Duration::from_secs(3), going_on)
            .await
            .expect("it waits for nobody")
            .unwrap();
        assert!(batch.locked(&target(&free)).is_some());
        batch.rollback().await;
        sql.batch_execute("ROLLBACK").await.unwrap();
    }
    app.finish().await;
}

/// `architecture.md` §7: replicas die in the middle of traffic (kill -9: their threads end where
/// they stand, sockets close); clients go on with another one and repeat what was not answered;
/// every run ends, nothing happens twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_replicas_lose_nothing() {
    const RUNS: usize = 12;
    let app = TestApp::with()
        .set("NEXUS_LISTEN", "127.0.0.1:0")
        .set("NEXUS_ADMIN_LISTEN", "127.0.0.1:0")
        .start()
        .await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(world.run(&app, fan(&world, 8)).await);
    }
    let mut servers = Vec::new();
    for _ in 0..3 {
        let server = nexus::serve::Server::start(app.app().config.clone())
            .await
            .unwrap();
        server.ready().await;
        servers.push(server);
    }
    let bases: Vec<String> = servers
        .iter()
        .map(|s| format!("http://{}", s.addr))
        .collect();
    let persistent = Persistent {
        http: reqwest::Client::builder().no_proxy().build().unwrap(),
        bases,
        bearer: world.runner.token.clone(),
    };
    let worked = runs.iter().cloned().enumerate().map(|(i, run)| {
        let client = persistent.clone();
        async move {
            let keys = (0..8).map(|m| format!("m{m}")).chain(["last".to_owned()]);
            for (n, key) in keys.enumerate() {
                let idempotency = format!("{i}-{key}");
                let granted = client
                    .post(i + n, &door(&run, &key, "claim"), &idempotency, json!({}))
                    .await;
                let token = text(&granted, "claim.claim_token").to_owned();
                let body = json!({"claim_token": token, "content": "x"});
                client
                    .post(i + n + 1, &door(&run, &key, "commit"), &idempotency, body)
                    .await;
            }
        }
    });
    let killer = async {
        for settled in [20, 60] {
            until("work goes on", || async {
                number(&sql, "SELECT count(*) FROM task_results").await >= settled
            })
            .await;
            servers.remove(0).kill();
        }
    };
    let (_, ()) = tokio::join!(all(worked), killer);
    let ended = "SELECT count(*) FROM runs WHERE status = 'completed'";
    assert_eq!(number(&sql, ended).await, i64::try_from(RUNS).unwrap());
    assert_eq!(number(&sql, TWICE).await, 0);
    for server in servers {
        server.kill();
    }
    app.finish().await;
}

/// A client that repeats what was not answered, at the next replica.
#[derive(Clone)]
struct Persistent {
    http: reqwest::Client,
    bases: Vec<String>,
    bearer: String,
}

impl Persistent {
    async fn post(&self, first: usize, path: &str, key: &str, body: Value) -> nexus::domain::Value {
        for attempt in 0..60 {
            let base = &self.bases[(first + attempt) % self.bases.len()];
            let request = self
                .http
                .post(format!("{base}{path}"))
                .bearer_auth(&self.bearer);
            let sent = request
                .header("idempotency-key", key)
                .json(&body)
                .send()
                .await;
            let Ok(answer) = sent else { continue };
            let status = answer.status().as_u16();
            let Ok(bytes) = answer.bytes().await else {
                continue;
            };
            if status != 503 {
                assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&bytes));
                return nexus::domain::json::parse(&bytes).unwrap();
            }
        }
        panic!("no replica answers {path}");
    }
}
