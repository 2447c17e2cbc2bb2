//! What waits in a replica (`architecture.md` §4, §5; `conventions.md` §4): queues have an end, a command
//! whose caller hung up before it began is not executed, and nobody waits for a run that is not there.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nexus::domain::{AccountId, PublicId, TaskNo};
use nexus::store;
use serde_json::json;

use crate::support::fleet::{number, until};
use crate::support::seed::{World, door};
use crate::support::{TestApp, raw, text};

/// Statements of this database that wait for somebody's row or table.
const WAITS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND application_name = 'nexus' AND wait_event_type = 'Lock'";

fn hold(run: &str) -> String {
    format!("BEGIN; SELECT 1 FROM runs WHERE public_id = '{run}' FOR UPDATE")
}

/// `conventions.md` §4: what cannot be queued is told to come again (503, `Retry-After`), and was not
/// begun; other runs go on, and what was queued is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_queue_is_full_refuses_and_other_runs_go_on() {
    const COMMANDS: usize = 1400;
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let free = world.run(&app, json!([world.routed("a", "echo")])).await;
    let token = world.claim(&app, &run, "a").await;
    let other = world.claim(&app, &free, "a").await;
    sql.batch_execute(&hold(&run)).await.unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    let id: PublicId = run.parse().unwrap();
    let commands: Vec<_> = (0..COMMANDS)
        .map(|_| {
            let (app, refused) = (app.app().clone(), refused.clone());
            let account = AccountId(world.account);
            tokio::spawn(async move {
                let rows = vec![TaskNo(1)];
                match nexus::commands::expire::expire(&app, account, id, rows).await {
                    Ok(settled) => assert_eq!(settled, 0, "not due"),
                    Err(store::Error::Overloaded) => {
                        refused.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(fault) => panic!("{fault:?}"),
                }
            })
        })
        .collect();
    until("the queue is full", || async {
        refused.load(Ordering::SeqCst) > 0
    })
    .await;
    let body = json!({"claim_token": token, "content": "x"});
    let path = door(&run, "a", "commit");
    let commit = || app.post(&path, &world.runner.token, body.clone());
    let answer = commit().await;
    answer.expect(503, "unavailable");
    assert_eq!(answer.header("retry-after"), "1");
    world.commit(&app, &free, "a", &other).await.ok(200);
    sql.batch_execute("COMMIT").await.unwrap();
    for command in commands {
        command.await.unwrap();
    }
    let refused = refused.load(Ordering::SeqCst);
    println!("{refused} of {COMMANDS} commands found no place");
    assert!(refused < COMMANDS / 2, "{refused}");
    let done = commit().await.ok(200);
    assert_eq!(text(&done, "task.status"), "completed");
    app.finish().await;
}

/// The same for the callers of one inbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_with_too_many_callers_refuses() {
    const CALLERS: usize = 1200;
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world.wide_run(&app, &sql, 8).await;
    let lookup = text(
        &app.get("/agent_api/v1/executor", &world.runner.token)
            .await
            .ok(200),
        "executor.public_id",
    )
    .to_owned();
    let caller = store::credentials::ExecutorCaller {
        account: AccountId(world.account),
        id: nexus::domain::ExecutorId(world.runner.id),
        public_id: lookup.parse().unwrap(),
        kind: nexus::domain::words::ExecutorKind::Runner,
        epoch: 1,
        token_id: 0,
    };
    sql.batch_execute("BEGIN; LOCK TABLE parks IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let (granted, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let calls: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (app, caller) = (app.app().clone(), caller.clone());
            let (granted, refused) = (granted.clone(), refused.clone());
            tokio::spawn(async move {
                match app.inboxes.claim(caller, 1, None).await {
                    Ok(taken) => granted.fetch_add(taken.claims.len(), Ordering::SeqCst),
                    Err(store::Error::Overloaded) => refused.fetch_add(1, Ordering::SeqCst),
                    Err(fault) => panic!("{fault:?}"),
                }
            })
        })
        .collect();
    until("the queue is full", || async {
        refused.load(Ordering::SeqCst) > 0
    })
    .await;
    let answer = app
        .post(
            "/agent_api/v1/executor/inbox/claims",
            &world.runner.token,
            json!({}),
        )
        .await;
    answer.expect(503, "unavailable");
    assert_eq!(answer.header("retry-after"), "1");
    sql.batch_execute("COMMIT").await.unwrap();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(granted.load(Ordering::SeqCst), 8, "every row once");
    assert!(refused.load(Ordering::SeqCst) < CALLERS / 2);
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}

/// `architecture.md` §4: a command runs to its end once it has begun; one whose caller went away while
/// it was still queued is not executed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hangs_up_in_the_queue_leaves_nothing_and_who_hangs_up_later_stops_nothing() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let steps = json!([{"parallel": [world.routed("begun", "echo"), world.routed("queued", "echo")]},
        world.routed("after", "echo")]);
    let run = world.run(&app, steps).await;
    let mut requests = Vec::new();
    for key in ["begun", "queued"] {
        let token = world.claim(&app, &run, key).await;
        let body = json!({"claim_token": token, "content": "x"}).to_string();
        requests.push(raw::request(
            "POST",
            &door(&run, key, "commit"),
            &world.runner.token,
            &body,
        ));
    }
    let watch = app.sql().await;
    sql.batch_execute(&hold(&run)).await.unwrap();
    for (n, bytes) in requests.iter().enumerate() {
        let before = app.app().store.meter().statements;
        let (base, bytes) = (app.base.clone(), bytes.clone());
        let call = tokio::spawn(async move {
            raw::hang_up(&base, &bytes, bytes.len(), Duration::from_millis(700)).await
        });
        if n == 0 {
            until("it waits for the run", || async {
                number(&watch, WAITS).await == 1
            })
            .await;
        } else {
            until("it was authenticated", || async {
                app.app().store.meter().statements > before
            })
            .await;
        }
        assert_eq!(call.await.unwrap(), "", "nobody is answered");
    }
    tokio::time::sleep(Duration::from_millis(200)).await; // the server notices that they are gone
    sql.batch_execute("COMMIT").await.unwrap();
    until("what had begun is done", || async {
        number(
            &watch,
            "SELECT count(*) FROM tasks WHERE key = 'begun' AND status = 'completed'",
        )
        .await
            == 1
    })
    .await;
    // A further command of the run comes behind both of them.
    let mut held = app
        .get("/agent_api/v1/executor/inbox", &world.runner.token)
        .await
        .ok(200);
    let listed = crate::support::items(&held, "tasks").len();
    assert_eq!(listed, 1, "the queued one was not executed");
    world.stop(&app, &run).await.ok(200);
    held = world.task(&app, &run, "queued").await;
    assert_eq!(text(&held, "task.status"), "canceled");
    app.finish().await;
}

/// The same for a batch of claims: who hung up before its look began claims nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hangs_up_before_its_look_claims_nothing() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world.wide_run(&app, &sql, 12).await;
    let watch = app.sql().await;
    sql.batch_execute("BEGIN; LOCK TABLE parks IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let bytes = |limit: i32| {
        let body = json!({"limit": limit}).to_string();
        raw::request(
            "POST",
            "/agent_api/v1/executor/inbox/claims",
            &world.runner.token,
            &body,
        )
    };
    let (first, second) = (bytes(3), bytes(5));
    let base = app.base.clone();
    let begun = tokio::spawn({
        let base = base.clone();
        async move { raw::hang_up(&base, &first, first.len(), Duration::from_millis(900)).await }
    });
    until("its look has begun", || async {
        number(&watch, WAITS).await == 1
    })
    .await;
    raw::hang_up(&base, &second, second.len(), Duration::from_millis(500)).await;
    begun.await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await; // the server notices that they are gone
    sql.batch_execute("COMMIT").await.unwrap();
    let mine = app
        .post(
            "/agent_api/v1/executor/inbox/claims",
            &world.runner.token,
            json!({"limit": 64}),
        )
        .await
        .ok(200);
    let claimed = number(
        &watch,
        "SELECT count(*) FROM parks WHERE claimed_at IS NOT NULL",
    )
    .await;
    assert_eq!(claimed, 12);
    assert_eq!(
        crate::support::items(&mine, "claims").len(),
        9,
        "three went to the look that had begun, none to the one that had not"
    );
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}

/// `executor.md` §1: a run that does not exist is `not_found` at once, however many held runs are waited
/// for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_not_there_is_not_waited_for() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(world.run(&app, json!([world.routed("a", "echo")])).await);
    }
    let watch = app.sql().await;
    sql.batch_execute("BEGIN; SELECT 1 FROM runs FOR UPDATE")
        .await
        .unwrap();
    let stops: Vec<_> = runs
        .iter()
        .map(|run| {
            let (door_, bearer) = (app.on(0).clone(), world.human.token.clone());
            let path = format!("{}/{run}/stop", world.runs());
            tokio::spawn(async move { door_.command(&path, &bearer).await })
        })
        .collect();
    until("as many wait for runs as may", || async {
        number(&watch, WAITS).await == 4
    })
    .await;
    let absent = uuid::Uuid::from_u128(7).to_string();
    let started = Instant::now();
    let path = door(&absent, "a", "commit");
    let body = json!({"claim_token": "x", "content": "x"});
    app.post(&path, &world.runner.token, body)
        .await
        .expect(404, "not_found");
    let spent = started.elapsed();
    println!("a commit of an absent run beside six held ones: {spent:?}");
    assert!(spent < Duration::from_secs(2), "{spent:?}");
    assert_eq!(
        number(&watch, WAITS).await,
        4,
        "the held ones are waited for all the while"
    );
    sql.batch_execute("COMMIT").await.unwrap();
    for stop in stops {
        stop.await.unwrap().ok(200);
    }
    app.finish().await;
}
