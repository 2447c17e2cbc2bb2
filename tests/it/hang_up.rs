//! BR-084: clients that hang up at any point, and backends that are ended under a command, leave no
//! connection inside a transaction, no pool slot, no half command.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use crate::support::fleet::{all, fan, number, until};
use crate::support::seed::{World, claim_token, door};
use crate::support::{TestApp, raw, text};

/// A small generator: the same seed, the same points of hanging up.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % n as u64).unwrap()
    }
}

const BUSY: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'nexus'
    AND state <> 'idle'";
const STUCK: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'nexus'
    AND state LIKE 'idle in transaction%'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_hang_up_leave_no_trace_but_finished_commands() {
    const RUNS: usize = 12;
    const CLIENTS: usize = 24;
    const REQUESTS: usize = 125;
    let app = TestApp::with().set("NEXUS_DB_POOL", "2").start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut calls = Vec::new();
    for i in 0..RUNS {
        let run = world.run(&app, fan(&world, 12)).await;
        for m in 0..12 {
            let key = format!("m{m}");
            // The even ones are claimed by clients that hang up, the odd ones are held already.
            let token = if m % 2 == 1 {
                world.claim(&app, &run, &key).await
            } else {
                String::new()
            };
            calls.push((i, run.clone(), key, token));
        }
    }
    let calls = Arc::new(calls);
    let create = json!({"run": {"approval_mode": "bypass", "steps": fan(&world, 6)}}).to_string();
    let over = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let clients = (0..CLIENTS).map(|client| {
        let (calls, world, create, base) = (
            calls.clone(),
            world.clone(),
            create.clone(),
            app.base.clone(),
        );
        async move {
            let mut chance = Chance(client as u64 + 1);
            let mut heard = BTreeMap::new();
            for n in 0..REQUESTS {
                let (_, run, key, token) = &calls[chance.below(calls.len())];
                let held = !token.is_empty();
                let what = chance.below(6);
                let (runner, member) = (&world.runner.token, &world.human.token);
                let with_key = |mut bytes: Vec<u8>, key: &str| {
                    let at = bytes.windows(2).position(|w| w == b"\r\n").unwrap() + 2;
                    bytes.splice(at..at, format!("idempotency-key: {key}\r\n").into_bytes());
                    bytes
                };
                let bytes = match what {
                    0 => with_key(
                        raw::request("POST", &world.runs(), member, &create),
                        &format!("{client}-{n}"),
                    ),
                    1 => raw::request(
                        "POST",
                        "/agent_api/v1/executor/inbox/claims",
                        runner,
                        r#"{"limit":0}"#,
                    ),
                    2 => raw::request(
                        "GET",
                        "/agent_api/v1/executor/inbox?wait_ms=2000",
                        runner,
                        "",
                    ),
                    3 if held => raw::request(
                        "POST",
                        &door(run, key, "extend"),
                        runner,
                        &format!(r#"{{"claim_token":"{token}","timeout_ms":600000}}"#),
                    ),
                    _ if held => raw::request(
                        "POST",
                        &door(run, key, "commit"),
                        runner,
                        &format!(r#"{{"claim_token":"{token}","content":"done"}}"#),
                    ),
                    _ => with_key(
                        raw::request("POST", &door(run, key, "claim"), runner, ""),
                        key,
                    ),
                };
                let sent = if chance.below(4) == 0 {
                    chance.below(bytes.len())
                } else {
                    bytes.len()
                };
                let longest = if chance.below(10) == 0 {
                    900_000
                } else {
                    20_000
                };
                let patience = Duration::from_micros(u64::try_from(chance.below(longest)).unwrap());
                let answer = raw::hang_up(&base, &bytes, sent, patience).await;
                assert!(!answer.contains(" 500 "), "{answer}");
                if answer.starts_with("HTTP/1.1 200")
                    && answer.contains(r#""status":"completed""#)
                    && what > 3
                {
                    heard.insert((run.clone(), key.clone()), ());
                }
            }
            heard
        }
    });
    let killer = {
        let (over, sql) = (over.clone(), app.sql().await);
        tokio::spawn(async move {
            let mut ended = 0;
            while !over.load(Ordering::SeqCst) {
                ended += number(
                    &sql,
                    "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
                      WHERE datname = current_database() AND application_name = 'nexus' AND state <> 'idle'
                      ORDER BY random() LIMIT 1) x",
                )
                .await;
                tokio::time::sleep(Duration::from_millis(60)).await; // the pace of ending, no race hangs on it
            }
            ended
        })
    };
    let heard: BTreeMap<(String, String), ()> = all(clients).await.into_iter().flatten().collect();
    over.store(true, Ordering::SeqCst);
    let ended = killer.await.unwrap();
    println!(
        "{} requests were hung up on, {ended} backends ended, {} commits acknowledged: {:?}",
        CLIENTS * REQUESTS,
        heard.len(),
        started.elapsed()
    );
    until("every command ran to its end", || async {
        number(&sql, BUSY).await == 0
    })
    .await;
    assert_eq!(
        number(&sql, STUCK).await,
        0,
        "nobody is left inside a transaction"
    );
    // The pool gives all its connections, clean.
    let door_ = app.on(0).clone();
    let borrowers = (0..16).map(|_| {
        let (door_, token) = (door_.clone(), world.runner.token.clone());
        async move {
            door_
                .get("/agent_api/v1/executor/inbox", &token)
                .await
                .ok(200)
        }
    });
    all(borrowers).await;
    let (size, free) = app.app().store.pool_status();
    assert!(size <= 2 && free == size, "{size} connections, {free} free");
    crate::support::audit::check(&sql).await;
    for (run, key) in heard.keys() {
        let task = world.task(&app, run, key).await;
        assert_eq!(
            text(&task, "task.status"),
            "completed",
            "an acknowledged commit is there"
        );
    }
    // What nobody heard of is found again under its key, and everything ends.
    for (_, run, key, token) in calls.iter() {
        let token = if token.is_empty() {
            let claim = app.request(Method::POST, &door(run, key, "claim"), &world.runner.token);
            claim_token(&claim.header("idempotency-key", key).send().await)
        } else {
            token.clone()
        };
        let body = json!({"claim_token": token, "content": "done"});
        app.post(&door(run, key, "commit"), &world.runner.token, body)
            .await
            .ok(200);
    }
    for run in calls
        .iter()
        .map(|(_, run, ..)| run)
        .collect::<std::collections::BTreeSet<_>>()
    {
        let token = world.claim(&app, run, "last").await;
        world.commit(&app, run, "last", &token).await.ok(200);
    }
    let done = number(&sql, "SELECT count(*) FROM runs WHERE status = 'completed'").await;
    assert_eq!(done, i64::try_from(RUNS).unwrap());
    app.finish().await;
}
