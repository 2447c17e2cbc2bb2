//! Outages (`architecture.md` §7): Postgres restarts and crashes under traffic, Redis is away or
//! empty. Meanwhile 503 with Retry-After; afterwards all goes on by itself, nothing acknowledged is
//! lost, nothing is executed twice. These tests run servers of their own.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nexus::dev::services::{Profile, RedisNeed, Services, ServicesConfig, StopMode};
use serde_json::{Value, json};

use crate::support::fleet::{all, fan, number, until};
use crate::support::seed::{World, door};
use crate::support::{TestApp, items, text};

/// Servers of one test, and their folder, removed with it.
struct Own {
    services: Services,
    folder: PathBuf,
}

impl Own {
    async fn start(name: &str, redis: RedisNeed) -> Self {
        let folder = std::env::temp_dir().join(format!("nexus-it-{}-{name}", std::process::id()));
        // The profile of people: what was acknowledged survives a crash of the server.
        let config = ServicesConfig::private(folder.join("s"), Profile::Dev, redis);
        let services = Services::start(config).await.expect("own servers start");
        Self { services, folder }
    }

    async fn stop(self) {
        self.services.stop().await;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Clients that repeat what was not answered until it is, and note what they were told.
struct Traffic {
    http: reqwest::Client,
    bases: Vec<String>,
    bearer: String,
    refused: AtomicUsize,
    /// Row → the key its claim was taken under.
    executed: Mutex<BTreeMap<(String, String), String>>,
    acknowledged: Mutex<Vec<(String, String)>>,
}

impl Traffic {
    async fn post(
        &self,
        first: usize,
        path: &str,
        key: &str,
        body: Value,
    ) -> (u16, nexus::domain::Value) {
        let patience = Instant::now() + Duration::from_secs(60);
        for attempt in 0.. {
            assert!(Instant::now() < patience, "{path} was never answered");
            let base = &self.bases[(first + attempt) % self.bases.len()];
            let request = self
                .http
                .post(format!("{base}{path}"))
                .bearer_auth(&self.bearer);
            let Ok(answer) = request
                .header("idempotency-key", key)
                .json(&body)
                .send()
                .await
            else {
                continue;
            };
            let status = answer.status().as_u16();
            if status == 503 {
                assert_eq!(
                    answer.headers().get("retry-after").map(|v| v.as_bytes()),
                    Some(&b"1"[..])
                );
                self.refused.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(50)).await; // as told, only quicker
                continue;
            }
            let bytes = answer.bytes().await.expect("an answer arrives whole");
            return (
                status,
                nexus::domain::json::parse(&bytes).expect("an answer is JSON"),
            );
        }
        unreachable!("the loop returns or panics")
    }

    /// Claims, executes and commits until nothing is left for a while.
    async fn worker(&self, me: usize, rows: usize) {
        for round in 0.. {
            let key = format!("{me}-{round}");
            let (status, taken) = self
                .post(
                    me,
                    "/agent_api/v1/executor/inbox/claims",
                    &key,
                    json!({"limit": 4}),
                )
                .await;
            assert_eq!(status, 200, "{taken:?}");
            for claim in items(&taken, "claims") {
                let part = |path| text(claim, path).to_owned();
                let row = (part("task.run_public_id"), part("task.task_key"));
                let known = self
                    .executed
                    .lock()
                    .unwrap()
                    .insert(row.clone(), key.clone());
                assert!(known.is_none_or(|k| k == key), "{row:?} was executed twice");
                let body = json!({"claim_token": part("claim.claim_token"), "content": row.1});
                let (status, answer) = self
                    .post(me + round, &door(&row.0, &row.1, "commit"), "c", body)
                    .await;
                assert_eq!((status, text(&answer, "task.status")), (200, "completed"));
                self.acknowledged.lock().unwrap().push(row);
            }
            if self.acknowledged.lock().unwrap().len() == rows {
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_restarts_under_traffic_and_everything_goes_on() {
    const RUNS: usize = 24;
    const ROWS: usize = RUNS * 9;
    let mut own = Own::start("postgres", RedisNeed::No).await;
    let app = TestApp::with()
        .replicas(2)
        .on(&own.services.database_url())
        .start()
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    for _ in 0..RUNS {
        world.run(&app, fan(&world, 8)).await;
    }
    let traffic = Arc::new(Traffic {
        http: reqwest::Client::builder().no_proxy().build().unwrap(),
        bases: app.replicas.iter().map(|r| r.door.base.clone()).collect(),
        bearer: world.runner.token.clone(),
        refused: AtomicUsize::new(0),
        executed: Mutex::default(),
        acknowledged: Mutex::default(),
    });
    let workers: Vec<_> = (0..6)
        .map(|me| {
            let traffic = traffic.clone();
            tokio::spawn(async move { traffic.worker(me, ROWS).await })
        })
        .collect();
    let done = || traffic.acknowledged.lock().unwrap().len();
    for (i, mode) in [StopMode::Fast, StopMode::Immediate, StopMode::Kill]
        .into_iter()
        .enumerate()
    {
        let wanted = ROWS * (i + 1) / 5;
        until("work goes on", || async { done() >= wanted }).await;
        own.services.stop_postgres(mode).await.unwrap();
        let refused = traffic.refused.load(Ordering::SeqCst);
        until("the outage is told", || async {
            traffic.refused.load(Ordering::SeqCst) > refused + 4
        })
        .await;
        app.get("/livez", "").await.ok(200);
        assert_eq!(app.get("/readyz", "").await.status, 503);
        own.services.start_postgres().await.unwrap();
        let (back, before) = (Instant::now(), done());
        until("work goes on after the outage", || async {
            done() > before
        })
        .await;
        println!(
            "{mode:?}: the first commit {:?} after the database was back",
            back.elapsed()
        );
        assert!(back.elapsed() < Duration::from_secs(5));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    println!(
        "{ROWS} rows through three outages, {} refusals",
        traffic.refused.load(Ordering::SeqCst)
    );
    let sql = app.sql().await;
    let kept = number(&sql, "SELECT count(*) FROM tasks JOIN task_results USING (account_id, run_id, task_no) WHERE status = 'completed' AND content LIKE '%' || key || '%'").await;
    assert_eq!(
        kept,
        i64::try_from(ROWS).unwrap(),
        "everything acknowledged is there"
    );
    assert_eq!(
        number(
            &sql,
            "SELECT count(*) FROM runs WHERE status <> 'completed'"
        )
        .await,
        0
    );
    drop(sql);
    app.finish().await;
    own.stop().await;
}

/// Redis away, back and emptied: polling finds work within five seconds, nothing is lost, and hints
/// come back by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_may_be_away_and_work_is_found_all_the_same() {
    let mut own = Own::start("redis", RedisNeed::Wanted).await;
    let redis = own.services.redis_url().expect("a Redis was wanted");
    let app = TestApp::with()
        .replicas(2)
        .set("NEXUS_REDIS_URL", redis)
        .start()
        .await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    for what in [
        "up",
        "stopped",
        "started again",
        "flushed",
        "killed",
        "started again",
    ] {
        match what {
            "stopped" => own.services.stop_redis(StopMode::Fast).await.unwrap(),
            "killed" => own.services.stop_redis(StopMode::Kill).await.unwrap(),
            "started again" => own.services.start_redis().await.unwrap(),
            // Started anew it is as empty as after FLUSHALL.
            "flushed" => own.services.restart_redis(StopMode::Fast).await.unwrap(),
            _ => {}
        }
        let before = app.replicas[1].app.store.meter().statements;
        let (door_, bearer) = (app.on(1).clone(), world.runner.token.clone());
        let poll = tokio::spawn(async move {
            let body = json!({"limit": 4, "wait_ms": 20_000});
            let answer = door_
                .post("/agent_api/v1/executor/inbox/claims", &bearer, body)
                .await;
            (answer, Instant::now())
        });
        until("the poll looked once", || async {
            app.replicas[1].app.store.meter().statements >= before + 3
        })
        .await;
        let run = world.run(&app, json!([world.routed("a", "echo")])).await;
        let started = Instant::now();
        let (answer, found) = poll.await.unwrap();
        let claims = answer.ok(200);
        assert_eq!(text(&claims, "claims.0.task.run_public_id"), run);
        let waited = found.saturating_duration_since(started);
        println!("Redis {what}: work was found {waited:?} after its start");
        assert!(waited < Duration::from_millis(6_500), "{what}: {waited:?}");
        app.get("/readyz", "").await.ok(200);
        let token = text(&claims, "claims.0.claim.claim_token");
        world.commit(&app, &run, "a", token).await.ok(200);
    }
    assert_eq!(
        number(
            &sql,
            "SELECT count(*) FROM runs WHERE status <> 'completed'"
        )
        .await,
        0
    );
    drop(sql);
    app.finish().await;
    own.stop().await;
}

/// A database that is frozen, not gone: connections stay open and nobody answers. Requests are
/// refused in bounded time, and go on when it thaws.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_database_is_told_in_bounded_time() {
    let mut own = Own::start("frozen", RedisNeed::No).await;
    let app = TestApp::with()
        .set("NEXUS_DB_POOL", "2")
        .on(&own.services.database_url())
        .start()
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let token = world.claim(&app, &run, "a").await;
    own.services.pause_postgres().unwrap();
    let started = Instant::now();
    let requests = (0..8).map(|_| {
        let (door_, bearer) = (app.on(0).clone(), world.runner.token.clone());
        async move {
            door_
                .get("/agent_api/v1/executor/inbox", &bearer)
                .await
                .status
                .as_u16()
        }
    });
    let watch = async {
        let patience = tokio::time::sleep(Duration::from_secs(6));
        patience.await;
        own.services.resume_postgres().unwrap();
    };
    let (statuses, ()) = tokio::join!(all(requests), watch);
    println!("frozen for 6 s: {statuses:?} after {:?}", started.elapsed());
    assert!(
        statuses.iter().all(|s| [200, 503].contains(s)),
        "{statuses:?}"
    );
    assert!(
        statuses.contains(&503),
        "those that got no connection were told"
    );
    until("it answers again", || async {
        app.get("/readyz", "").await.status == 200
    })
    .await;
    world.commit(&app, &run, "a", &token).await.ok(200);
    app.finish().await;
    own.stop().await;
}
