//! Claims (`executor.md` §6, §8, §9; `architecture.md` §4, §8): one grant a row, whoever races,
//! and never a lock that another verb holds.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nexus::domain::words::Plane;
use reqwest::Method;
use serde_json::json;

use crate::support::fleet::{all, number, set_run, unrouted, until};
use crate::support::proxy::{Proxy, through};
use crate::support::seed::{self, READ_ONLY, WRITE, World, claim_token, door, serve};
use crate::support::{Answer, Door, TestApp, at, find, items, text};

const INBOX: &str = "/agent_api/v1/executor/inbox";
const CLAIMS: &str = "/agent_api/v1/executor/inbox/claims";

async fn read_claim(app: &Door, run: &str, key: &str, bearer: &str, token: &str) -> Answer {
    app.request(Method::GET, &door(run, key, "claim"), bearer)
        .header("claim-token", token)
        .send()
        .await
}

async fn claim_under(app: &Door, path: &str, bearer: &str, key: &str) -> Answer {
    app.request(Method::POST, path, bearer)
        .header("idempotency-key", key)
        .send()
        .await
}

/// Posts one claim from each of many clients, dealt out over the replicas, at once.
async fn race(app: &TestApp, bearers: &[String], path: &str) -> Vec<Answer> {
    let clients = bearers.iter().enumerate().map(|(i, bearer)| {
        let (door, path, bearer) = (
            app.on(i % app.replicas.len()).clone(),
            path.to_owned(),
            bearer.clone(),
        );
        async move { door.command(&path, &bearer).await }
    });
    all(clients).await
}

/// One grant, the others refused with `word`; gives the winner's answer and place.
fn one_winner(answers: &[Answer]) -> (usize, &Answer) {
    let won: Vec<usize> = (0..answers.len())
        .filter(|i| answers[*i].status == 200)
        .collect();
    assert_eq!(won.len(), 1, "exactly one grant");
    for (i, answer) in answers.iter().enumerate() {
        if i != won[0] {
            answer.expect(409, "already_claimed");
        }
    }
    (won[0], &answers[won[0]])
}

/// Edge case 16, BR-001: one grant, 63 refusals, one token; and nobody waits for the run's lock,
/// which another session holds all along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_of_three_replicas_race_for_one_row_while_its_run_is_locked() {
    let app = TestApp::replicas(3).await;
    let world = World::in_database(&app.sql().await, "a").await;
    for round in 0..8 {
        let run = world
            .run(&app, json!([world.routed("a", "write_note")]))
            .await;
        let holder = app.sql().await;
        holder
            .batch_execute(&format!(
                "BEGIN; SELECT 1 FROM runs WHERE public_id = '{run}' FOR UPDATE"
            ))
            .await
            .unwrap();
        let bearers = vec![world.runner.token.clone(); 64];
        let answers = race(&app, &bearers, &door(&run, "a", "claim")).await;
        let (_, granted) = one_winner(&answers);
        assert_eq!(granted.header("cache-control"), "no-store");
        let token = claim_token(granted);
        let read = read_claim(app.on(round % 3), &run, "a", &world.runner.token, &token)
            .await
            .ok(200);
        assert_eq!(at(&read, "claim.active").as_bool(), Some(true));
        holder.batch_execute("COMMIT").await.unwrap();
        world.commit(&app, &run, "a", &token).await.ok(200);
    }
    app.finish().await;
}

/// BR-001 on a starved path to the database: every statement's answer is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_over_a_slow_path_to_the_database_has_one_winner_too() {
    let database = crate::support::database::TestDatabase::create().await;
    let (_, target) = through(&database.url, ([127, 0, 0, 1], 1).into());
    let proxy = Proxy::start(target).await;
    let (slow, _) = through(&database.url, proxy.address);
    let app = TestApp::with()
        .replicas(3)
        .set("NEXUS_DATABASE_URL", slow)
        .start_over(database)
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world
        .run(&app, json!([world.routed("a", "write_note")]))
        .await;
    proxy.delay(Duration::from_millis(40));
    let answers = race(
        &app,
        &vec![world.runner.token.clone(); 64],
        &door(&run, "a", "claim"),
    )
    .await;
    proxy.delay(Duration::ZERO);
    let (_, granted) = one_winner(&answers);
    world
        .commit(&app, &run, "a", &claim_token(granted))
        .await
        .ok(200);
    app.finish().await;
}

/// BR-083: a push to a pool makes everybody claim: one winner, and the others cost little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_herd_on_a_pool_row_has_one_winner_and_losers_are_cheap() {
    const HERD: u64 = 64;
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut bearers = Vec::new();
    for i in 0..HERD {
        let provider = seed::executor(
            &sql,
            world.account,
            "tool_provider",
            world.human.id,
            &format!("p{i}"),
        )
        .await;
        serve(&sql, world.account, &provider, "herded", READ_ONLY, None).await;
        bearers.push(provider.token);
    }
    // Their first contact is sampled behind the request: not part of the measurement.
    race_inbox(&app, &bearers).await;
    let seen = "SELECT count(*) FROM executors WHERE last_seen_at IS NOT NULL";
    until("every provider was seen", || async {
        number(&sql, seen).await == i64::try_from(HERD).unwrap()
    })
    .await;
    let run = world.run(&app, json!([unrouted("a", "herded")])).await;
    let before = app.app().store.meter();
    let answers = race(&app, &bearers, &door(&run, "a", "claim")).await;
    let spent = app.app().store.meter();
    let (winner, granted) = one_winner(&answers);
    // Authentication and facts for each; a guarded update and a second look only for those who
    // raced before the winner was through.
    let asked = spent.statements - before.statements;
    println!("a herd of {HERD}: {asked} statements");
    assert!(asked <= 4 * HERD, "{asked} statements for {HERD} claims");
    let list = app.get(INBOX, &bearers[winner]).await.ok(200);
    assert_eq!(
        at(&list, "tasks.0.claimed").as_bool(),
        Some(true),
        "edge case 15: still in the winner's list"
    );
    let other = app.get(INBOX, &bearers[(winner + 1) % 64]).await.ok(200);
    assert!(
        items(&other, "tasks").is_empty(),
        "edge case 15: gone from everybody else's"
    );
    let token = claim_token(granted);
    app.post(
        &door(&run, "a", "commit"),
        &bearers[(winner + 1) % 64],
        json!({"claim_token": token}),
    )
    .await
    .expect(409, "not_addressed_here");
    app.post(
        &door(&run, "a", "commit"),
        &bearers[winner],
        json!({"claim_token": token}),
    )
    .await
    .ok(200);
    app.finish().await;
}

async fn race_inbox(app: &TestApp, bearers: &[String]) {
    let looks = bearers.iter().map(|bearer| {
        let (door, bearer) = (app.on(0).clone(), bearer.clone());
        async move {
            door.get(INBOX, &bearer).await.ok(200);
        }
    });
    all(looks).await;
}

/// `architecture.md` §4: a fan of 1,000 calls in one run is claimable by 64 runners at once, each
/// row once, while another session holds the run's row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_rows_of_one_locked_run_are_granted_once_each_to_sixty_four_clients() {
    const ROWS: i32 = 1000;
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world.wide_run(&app, &sql, ROWS).await;
    sql.batch_execute(&format!(
        "BEGIN; SELECT 1 FROM runs WHERE public_id = '{run}' FOR UPDATE"
    ))
    .await
    .unwrap();
    let started = Instant::now();
    let clients = (0..64).map(|client: i32| {
        let (door_, run, bearer) = (
            app.on(client as usize % 3).clone(),
            run.clone(),
            world.runner.token.clone(),
        );
        async move {
            let mut granted = Vec::new();
            // Each row is wanted by two clients at about the same time.
            let wanted = (1..=ROWS).filter(|no| [client, (client + 1) % 64].contains(&(no % 64)));
            for no in wanted {
                let answer = door_
                    .command(&door(&run, &format!("r{no}"), "claim"), &bearer)
                    .await;
                match answer.status.as_u16() {
                    200 => granted.push(no),
                    _ => {
                        answer.expect(409, "already_claimed");
                    }
                }
            }
            granted
        }
    });
    let mut granted: Vec<i32> = all(clients).await.into_iter().flatten().collect();
    println!(
        "2,000 claims of 1,000 rows of one locked run: {:?}",
        started.elapsed()
    );
    granted.sort_unstable();
    assert_eq!(
        granted,
        (1..=ROWS).collect::<Vec<_>>(),
        "every row once, none twice"
    );
    sql.batch_execute("COMMIT").await.unwrap();
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}

/// BR-051: an account with 10,000 rows delays nobody else's, and the oldest row comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_account_is_served_beside_a_crowded_one() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let crowded = World::in_database(&sql, "a").await;
    let quiet = World::in_database(&sql, "b").await;
    let crowd = crowded.wide_run(&app, &sql, 10_000).await;
    let run = quiet.run(&app, json!([quiet.routed("a", "echo")])).await;
    let taken = app
        .post(CLAIMS, &quiet.runner.token, json!({"limit": 64}))
        .await
        .ok(200);
    assert_eq!(items(&taken, "claims").len(), 1);
    assert_eq!(text(&taken, "claims.0.task.run_public_id"), run);
    let first = app
        .post(CLAIMS, &crowded.runner.token, json!({"limit": 1}))
        .await
        .ok(200);
    assert_eq!(text(&first, "claims.0.task.task_key"), "r1");
    sql.batch_execute(&format!("DELETE FROM parks WHERE run_id = (SELECT run_id FROM runs WHERE public_id = '{crowd}');
        DELETE FROM tasks WHERE run_id = (SELECT run_id FROM runs WHERE public_id = '{crowd}');
        DELETE FROM task_inputs WHERE run_id = (SELECT run_id FROM runs WHERE public_id = '{crowd}');
        DELETE FROM run_events WHERE host_id = (SELECT run_id FROM runs WHERE public_id = '{crowd}');
        DELETE FROM receipts WHERE run_id = (SELECT run_id FROM runs WHERE public_id = '{crowd}');
        DELETE FROM runs WHERE public_id = '{crowd}'"))
        .await
        .unwrap();
    app.finish().await;
}

/// `architecture.md` §8: a waiting poll answers at the next hint, and at once when there is work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_poll_answers_at_the_next_hint() {
    let app = TestApp::replicas(2).await;
    let world = World::in_database(&app.sql().await, "a").await;
    for (path, body) in [
        (
            CLAIMS.to_owned(),
            Some(json!({"limit": 4, "wait_ms": 20000})),
        ),
        (format!("{INBOX}?wait_ms=20000"), None),
    ] {
        let before = app.replicas[1].app.store.meter().statements;
        let (door_, bearer) = (app.on(1).clone(), world.runner.token.clone());
        let poll = tokio::spawn(async move {
            let answer = match body {
                Some(body) => door_.post(&path, &bearer, body).await,
                None => door_.get(&path, &bearer).await,
            };
            (answer, Instant::now())
        });
        // Authentication, the caller, an empty page: then it waits.
        until("the poll looked once", || async {
            app.replicas[1].app.store.meter().statements >= before + 3
        })
        .await;
        let run = world.run(&app, json!([world.routed("a", "echo")])).await;
        let started = Instant::now();
        let (answer, at_) = poll.await.unwrap();
        let list = if find(&answer.json(), "claims").is_some() {
            "claims"
        } else {
            "tasks"
        };
        assert_eq!(items(&answer.ok(200), list).len(), 1);
        let waited = at_.saturating_duration_since(started);
        println!("{list}: answered {waited:?} after the start's answer");
        assert!(waited < Duration::from_secs(2), "{waited:?}");
        world.stop(&app, &run).await.ok(200);
    }
    let started = Instant::now();
    let empty = app
        .post(CLAIMS, &world.runner.token, json!({"wait_ms": 300}))
        .await
        .ok(200);
    assert!(items(&empty, "claims").is_empty());
    assert!(started.elapsed() >= Duration::from_millis(300));
    app.finish().await;
}

/// `architecture.md` §8: the same executor with the same key gets a new token, the old one is dead,
/// the clock stands; anybody else is `already_claimed` (BR-016: a lost answer is recovered).
#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_recovered_under_its_key() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "echo"), world.routed("b", "echo")]),
        )
        .await;
    let path = door(&run, "a", "claim");
    let deadline = "SELECT (extract(epoch FROM deadline_at) * 1000000)::bigint FROM parks";
    let lost = claim_token(&claim_under(&app, &path, &world.runner.token, "k1").await);
    let before = number(&sql, deadline).await;
    app.advance(Duration::from_secs(5)).await;
    let found = claim_token(&claim_under(&app, &path, &world.runner.token, "k1").await);
    assert_ne!(lost, found);
    assert_eq!(
        before,
        number(&sql, deadline).await,
        "the clock is untouched"
    );
    read_claim(&app, &run, "a", &world.runner.token, &lost)
        .await
        .expect(409, "not_claimant");
    world
        .commit(&app, &run, "a", &lost)
        .await
        .expect(409, "stale_claim");
    claim_under(&app, &path, &world.runner.token, "k2")
        .await
        .expect(409, "already_claimed");
    app.command(&path, &world.runner.token)
        .await
        .expect(409, "already_claimed");
    claim_under(&app, &path, &world.provider.token, "k1")
        .await
        .expect(409, "not_addressed_here");
    world.commit(&app, &run, "a", &found).await.ok(200);
    claim_under(&app, &path, &world.runner.token, "k1")
        .await
        .expect(409, "task_not_claimable");
    claim_under(&app, &path, &world.runner.token, "")
        .await
        .expect(400, "parameter_invalid");
    let long = "k".repeat(256);
    claim_under(&app, &path, &world.runner.token, &long)
        .await
        .expect(400, "parameter_invalid");
    app.finish().await;
}

/// The same on a pool row: another member with the same key is `already_claimed`.
#[tokio::test]
async fn a_key_belongs_to_the_executor_that_used_it() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let other = seed::executor(&sql, world.account, "tool_provider", world.human.id, "p2").await;
    serve(&sql, world.account, &other, "pooled", READ_ONLY, None).await;
    let run = world.run(&app, json!([unrouted("a", "pooled")])).await;
    let path = door(&run, "a", "claim");
    let token = claim_token(&claim_under(&app, &path, &world.provider.token, "k").await);
    claim_under(&app, &path, &other.token, "k")
        .await
        .expect(409, "already_claimed");
    app.post(
        &door(&run, "a", "commit"),
        &world.provider.token,
        json!({"claim_token": token}),
    )
    .await
    .ok(200);
    app.finish().await;
}

/// Many repeats at once under one key: each answers, the last token lives, one claim stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_of_a_keyed_claim_at_once_leave_one_living_token() {
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world
        .run(&app, json!([world.routed("a", "write_note")]))
        .await;
    let path = door(&run, "a", "claim");
    let repeats = (0..24).map(|i| {
        let (door_, path, bearer) = (
            app.on(i % 3).clone(),
            path.clone(),
            world.runner.token.clone(),
        );
        async move { claim_token(&claim_under(&door_, &path, &bearer, "k").await) }
    });
    let tokens = all(repeats).await;
    let mut alive = Vec::new();
    for token in &tokens {
        let answer = read_claim(&app, &run, "a", &world.runner.token, token).await;
        if answer.status == 200 {
            alive.push(token);
        }
    }
    assert_eq!(alive.len(), 1, "one token of the claim that stands");
    world.commit(&app, &run, "a", alive[0]).await.ok(200);
    app.finish().await;
}

/// `architecture.md` §8: a repeated batch answers those of the same rows that still stand, with new
/// tokens, and claims nothing new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_claims_is_recovered_under_its_key() {
    let app = TestApp::replicas(2).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world.wide_run(&app, &sql, 10).await;
    let batch = |key: &'static str, limit: i32| {
        app.request(Method::POST, CLAIMS, &world.runner.token)
            .header("idempotency-key", key)
            .json(json!({"limit": limit}))
            .send()
    };
    let tokens = |answer: &Answer| -> BTreeMap<String, String> {
        items(&answer.ok(200), "claims")
            .iter()
            .map(|c| {
                (
                    text(c, "task.task_key").to_owned(),
                    text(c, "claim.claim_token").to_owned(),
                )
            })
            .collect()
    };
    let first = tokens(&batch("k", 4).await);
    assert_eq!(first.len(), 4);
    world.commit(&app, &run, "r1", &first["r1"]).await.ok(200);
    let again = tokens(&batch("k", 64).await);
    assert_eq!(
        again.keys().collect::<Vec<_>>(),
        ["r2", "r3", "r4"],
        "those that stand, nothing new"
    );
    for key in ["r2", "r3", "r4"] {
        world
            .commit(&app, &run, key, &first[key])
            .await
            .expect(409, "stale_claim");
        world.commit(&app, &run, key, &again[key]).await.ok(200);
    }
    assert!(tokens(&batch("k", 64).await).is_empty());
    assert_eq!(
        tokens(&batch("k2", 64).await).len(),
        6,
        "another key claims anew"
    );
    // Twins of a fresh key share the rows of the first; together they hold no row twice.
    sql.batch_execute("UPDATE parks SET claimed_at = NULL, claim_digest = NULL, claim_key = NULL, claimant_id = NULL")
        .await
        .unwrap();
    let twins = (0..16).map(|i| {
        let (door_, bearer) = (app.on(i % 2).clone(), world.runner.token.clone());
        async move {
            let answer = door_
                .request(Method::POST, CLAIMS, &bearer)
                .header("idempotency-key", "twin")
                .json(json!({"limit": 3}))
                .send()
                .await;
            items(&answer.ok(200), "claims").len()
        }
    });
    let sizes = all(twins).await;
    let claimed = number(
        &sql,
        "SELECT count(*) FROM parks WHERE claimed_at IS NOT NULL",
    )
    .await;
    assert_eq!(
        claimed, 3,
        "a key takes one batch, however often it is sent: {sizes:?}"
    );
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}

/// Edge cases 13, 14.
#[tokio::test]
async fn the_inbox_pages_by_opaque_cursors_and_refuses_other_numbers() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let bearer = &world.runner.token;
    for query in [
        "after=7",
        "after=",
        "after=MTppbmJveDow-",
        "limit=0",
        "limit=201",
        "limit=-1",
        "limit=%2B5",
        "limit=05",
        "limit=1e1",
        "limit=",
        "limit=99999999999999999999",
        "wait_ms=25001",
        "wait_ms=-1",
        "wait_ms=x",
    ] {
        app.get(&format!("{INBOX}?{query}"), bearer)
            .await
            .expect(400, "parameter_invalid");
    }
    let run = world.wide_run(&app, &sql, 6).await;
    let mut after = String::new();
    let mut keys = Vec::new();
    let mut pages = 0;
    loop {
        let page = app
            .get(&format!("{INBOX}?limit=3{after}"), bearer)
            .await
            .ok(200);
        pages += 1;
        keys.extend(
            items(&page, "tasks")
                .iter()
                .map(|t| text(t, "task_key").to_owned()),
        );
        match at(&page, "pagination.next_after").as_str() {
            Some(cursor) => after = format!("&after={cursor}"),
            None => break,
        }
    }
    assert_eq!(keys, ["r1", "r2", "r3", "r4", "r5", "r6"]);
    assert_eq!(
        pages, 3,
        "exactly `limit` rows give a cursor; the page behind it is empty"
    );
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}

/// Edge cases 10, 11, 12, 17: where a started row is addressed, and who may claim it.
#[tokio::test]
async fn a_row_is_addressed_once_at_its_start() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    // 10
    let run = world.run(&app, json!([unrouted("a", "echo")])).await;
    let task = world.task(&app, &run, "a").await;
    assert_eq!(text(&task, "task.status"), "failed");
    assert_eq!(text(&task, "task.error.key"), "tool_not_served");
    // 11
    let body = json!({"run": {"approval_mode": "bypass", "steps": [world.routed("a", "echo")]}});
    let created = app
        .post(&world.runs(), &world.human.token, body)
        .await
        .ok(201);
    let late = text(&created, "run.public_id").to_owned();
    sql.execute("DELETE FROM served_tools WHERE name = 'echo'", &[])
        .await
        .unwrap();
    sql.execute(
        "UPDATE served_tools SET ordinal = 0 WHERE name = 'write_note'",
        &[],
    )
    .await
    .unwrap();
    app.command(
        &format!("{}/{late}/start", world.runs()),
        &world.human.token,
    )
    .await
    .ok(200);
    let task = world.task(&app, &late, "a").await;
    assert_eq!(text(&task, "task.error.key"), "tool_not_served");
    // 12
    let second = seed::executor(&sql, world.account, "tool_provider", world.human.id, "p2").await;
    serve(
        &sql,
        world.account,
        &world.provider,
        "both",
        READ_ONLY,
        Some(30_000),
    )
    .await;
    serve(&sql, world.account, &second, "both", WRITE, Some(60_000)).await;
    let run = world.run(&app, json!([unrouted("a", "both")])).await;
    let row = sql
        .query_one(
            "SELECT replayable, timeout_ms, announced_timeout_ms FROM parks",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(
        (row.get(0), row.get(1), row.get(2)),
        (false, 30_000_i64, Some(30_000_i64))
    );
    // 17: a routed row is its target's alone.
    app.command(&door(&run, "a", "claim"), &world.runner.token)
        .await
        .expect(409, "not_addressed_here");
    let routed = world
        .run(&app, json!([world.routed("a", "write_note")]))
        .await;
    for other in [&world.provider, &world.application] {
        app.command(&door(&routed, "a", "claim"), &other.token)
            .await
            .expect(409, "not_addressed_here");
    }
    app.finish().await;
}

/// Edge cases 19, 22, 23, 49, 50 at the claim, and BR-012: what cannot be claimed is not listed.
#[tokio::test]
async fn what_a_run_or_a_standing_forbids_is_refused_by_name_and_not_listed() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "write_note"), world.routed("b", "echo")]),
        )
        .await;
    let path = door(&run, "a", "claim");
    let refused = async |status: u16, code: &str, listed: usize| {
        app.command(&path, &world.runner.token)
            .await
            .expect(status, code);
        let list = app.get(INBOX, &world.runner.token).await.ok(200);
        assert_eq!(items(&list, "tasks").len(), listed, "listed while {code}");
        let many = app
            .post(CLAIMS, &world.runner.token, json!({}))
            .await
            .ok(200);
        assert!(
            items(&many, "claims").is_empty(),
            "claims took a row while {code}"
        );
    };
    for status in ["paused", "needs_attention"] {
        set_run(&sql, &run, status).await;
        refused(409, "task_not_claimable", 0).await;
    }
    set_run(&sql, &run, "running").await;
    // 22
    sql.execute(
        "UPDATE grants SET access = 'read' WHERE member_id = $1",
        &[&world.human.id],
    )
    .await
    .unwrap();
    refused(409, "not_authorized", 1).await;
    sql.execute("UPDATE grants SET access = 'write'", &[])
        .await
        .unwrap();
    // 50
    sql.execute(
        "UPDATE executors SET shutdown_at = now() WHERE executor_id = $1",
        &[&world.runner.id],
    )
    .await
    .unwrap();
    refused(409, "not_eligible", 0).await;
    sql.execute("UPDATE executors SET shutdown_at = NULL", &[])
        .await
        .unwrap();
    // A private machine works for its manager alone.
    sql.execute(
        "UPDATE executors SET assignment_scope = 'user_private', manager_id =
            (SELECT member_id FROM members WHERE kind = 'human' AND member_id <> $1 UNION SELECT $1 + 1000 LIMIT 1) WHERE executor_id = $2",
        &[&world.human.id, &world.runner.id],
    )
    .await
    .unwrap();
    refused(409, "not_eligible", 0).await;
    sql.execute(
        "UPDATE executors SET assignment_scope = 'account_wide', manager_id = $1 WHERE executor_id = $2",
        &[&world.human.id, &world.runner.id],
    )
    .await
    .unwrap();
    // 23
    for bad in ["zzz", "join-1", "%20", "a%2Fb", &"k".repeat(65)] {
        app.command(&door(&run, bad, "claim"), &world.runner.token)
            .await
            .expect(404, "not_found");
    }
    for bad in ["0", "not-a-uuid", "01a00000-0000-7000-8000-000000000000"] {
        app.command(&door(bad, "a", "claim"), &world.runner.token)
            .await
            .expect(404, "not_found");
    }
    sql.execute("UPDATE runs SET deleted_at = now()", &[])
        .await
        .unwrap();
    refused(404, "not_found", 0).await;
    sql.execute("UPDATE runs SET deleted_at = NULL", &[])
        .await
        .unwrap();
    // 19: a gracefully stopping run still lets its dispatched rows be claimed.
    set_run(&sql, &run, "canceling").await;
    let token = world.claim(&app, &run, "a").await;
    set_run(&sql, &run, "running").await;
    world.commit(&app, &run, "a", &token).await.ok(200);
    // 49
    sql.execute(
        "UPDATE executors SET status = 'revoked', revoked_at = now() WHERE executor_id = $1",
        &[&world.runner.id],
    )
    .await
    .unwrap();
    app.command(&door(&run, "b", "claim"), &world.runner.token)
        .await
        .expect(401, "unauthorized");
    app.finish().await;
}

/// Edge cases 17 and 18 for kinds that no door authors yet: a park of that kind, by hand.
#[tokio::test]
async fn asks_and_approvals_are_not_claimed() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let path = door(&run, "a", "claim");
    for (kind, status, park) in [
        ("await_task", "awaiting_input", "ask"),
        ("tool_task", "needs_approval", "approval"),
    ] {
        sql.batch_execute(&format!(
            "UPDATE tasks SET kind = '{kind}', status = '{status}'; UPDATE parks SET kind = '{park}'"
        ))
        .await
        .unwrap();
        app.command(&path, &world.runner.token)
            .await
            .expect(409, "not_claimable_kind");
        app.command(&path, &world.provider.token)
            .await
            .expect(409, "not_addressed_here");
        let many = app
            .post(CLAIMS, &world.runner.token, json!({}))
            .await
            .ok(200);
        assert!(items(&many, "claims").is_empty());
    }
    for kind in ["model_task", "join_task"] {
        sql.batch_execute(&format!(
            "UPDATE tasks SET kind = '{kind}', status = 'queued'"
        ))
        .await
        .unwrap();
        app.command(&path, &world.runner.token)
            .await
            .expect(404, "not_found");
    }
    sql.batch_execute("UPDATE tasks SET kind = 'tool_task', status = 'dispatched'; UPDATE parks SET kind = 'tool_call'")
        .await
        .unwrap();
    app.finish().await;
}

/// Edge cases 24, 25 and BR-008: the claim read.
#[tokio::test]
async fn a_claim_read_proves_the_token_and_nothing_else() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "write_note"), world.routed("b", "echo")]),
        )
        .await;
    let token = world.claim(&app, &run, "a").await;
    let path = door(&run, "a", "claim");
    app.get(&path, &world.runner.token)
        .await
        .expect(400, "parameter_missing");
    app.get(&format!("{path}?claim_token={token}"), &world.runner.token)
        .await
        .expect(400, "parameter_missing");
    read_claim(&app, &run, "a", &world.runner.token, "  ")
        .await
        .expect(400, "parameter_missing");
    app.get(&door(&run, "zz", "claim"), &world.runner.token)
        .await
        .expect(404, "not_found");
    for bad in [
        "x",
        &token[1..],
        &format!("{token}A"),
        "\u{e9}\u{e9}",
        &"t".repeat(20_000),
    ] {
        read_claim(&app, &run, "a", &world.runner.token, bad)
            .await
            .expect(409, "not_claimant");
    }
    read_claim(&app, &run, "a", &world.provider.token, &token)
        .await
        .expect(409, "not_claimant");
    read_claim(&app, &run, "b", &world.runner.token, &token)
        .await
        .expect(409, "not_claimant");
    // 25
    app.advance(Duration::from_secs(601)).await;
    for status in ["running", "paused", "needs_attention", "canceling"] {
        set_run(&sql, &run, status).await;
        let read = read_claim(&app, &run, "a", &world.runner.token, &token).await;
        assert_eq!(read.header("cache-control"), "no-store");
        let read = read.ok(200);
        assert_eq!(at(&read, "claim.active").as_bool(), Some(true), "{status}");
    }
    set_run(&sql, &run, "running").await;
    // 24
    world.stop(&app, &run).await.ok(200);
    let read = read_claim(&app, &run, "a", &world.runner.token, &token).await;
    assert!(!read.text().contains(&token), "it echoes no token");
    assert_eq!(at(&read.ok(200), "claim.active").as_bool(), Some(false));
    app.finish().await;
}

/// Edge cases 2 and 3: a re-pair kills the transport, not the claim.
#[tokio::test]
async fn a_re_paired_executor_goes_on_with_its_claim() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "write_note"), world.routed("b", "echo")]),
        )
        .await;
    let token = world.claim(&app, &run, "a").await;
    sql.execute(
        "UPDATE executors SET credential_epoch = 2 WHERE executor_id = $1",
        &[&world.runner.id],
    )
    .await
    .unwrap();
    let fresh = seed::token(&sql, world.account, Plane::Executor, world.runner.id, 2).await;
    world
        .commit(&app, &run, "a", &token)
        .await
        .expect(401, "unauthorized");
    let body = json!({"claim_token": token, "timeout_ms": 1000});
    app.post(
        &door(&run, "a", "extend"),
        &world.runner.token,
        body.clone(),
    )
    .await
    .expect(401, "unauthorized");
    app.post(&door(&run, "a", "extend"), &fresh, body)
        .await
        .ok(200);
    app.post(
        &door(&run, "a", "commit"),
        &fresh,
        json!({"claim_token": token}),
    )
    .await
    .ok(200);
    app.command(&door(&run, "b", "claim"), &fresh).await.ok(200);
    app.finish().await;
}

/// Edge cases 20, 21, BR-009: the clock restarts at the grant; nobody is offered what was claimed.
#[tokio::test]
async fn the_clock_restarts_at_the_grant_and_a_claim_is_never_re_granted() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut first = world.routed("a", "write_note");
    first["tool"]["timeout_ms"] = json!(2000);
    let run = world
        .run(&app, json!([first, world.routed("b", "echo")]))
        .await;
    app.advance(Duration::from_secs(3600)).await;
    let granted = app
        .command(&door(&run, "a", "claim"), &world.runner.token)
        .await;
    let token = claim_token(&granted);
    assert_eq!(at(&granted.json(), "task.timeout_ms").as_i64(), Some(2000));
    let left = number(
        &sql,
        "SELECT (extract(epoch FROM deadline_at - claimed_at) * 1000)::bigint FROM parks",
    )
    .await;
    assert_eq!(left, 2000, "deadline_at = grant + budget");
    assert_eq!(
        world.sweep(&app, 0, &run, &[1]).await,
        0,
        "the sweep then does nothing"
    );
    app.advance(Duration::from_millis(2001)).await;
    for key in [None, Some("k")] {
        let mut claim = app.request(Method::POST, &door(&run, "a", "claim"), &world.runner.token);
        if let Some(key) = key {
            claim = claim.header("idempotency-key", key);
        }
        claim.send().await.expect(409, "already_claimed");
    }
    let many = app
        .post(CLAIMS, &world.runner.token, json!({"limit": 64}))
        .await
        .ok(200);
    assert!(items(&many, "claims").is_empty());
    assert_eq!(world.sweep(&app, 0, &run, &[1]).await, 1);
    app.command(&door(&run, "a", "claim"), &world.runner.token)
        .await
        .expect(409, "task_not_claimable");
    let late = world.commit(&app, &run, "a", &token).await.ok(200);
    assert_eq!(text(&late, "task.status"), "uncertain");
    app.finish().await;
}

/// `conventions.md` §8: a key is kept for 24 h, then it is new, whether or not the sweep has been there;
/// and a batch under a key that was new again is its own, though older claims under it still stand.
#[tokio::test]
async fn a_key_of_a_batch_is_new_again_after_a_day() {
    const HOUR: Duration = Duration::from_secs(3600);
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    world.wide_run(&app, &sql, 10).await;
    let batch = |limit: i32| {
        app.request(Method::POST, CLAIMS, &world.runner.token)
            .header("idempotency-key", "k")
            .json(json!({"limit": limit}))
            .send()
    };
    let keys = |answer: &Answer| -> Vec<String> {
        let claims = answer.ok(200);
        items(&claims, "claims")
            .iter()
            .map(|c| text(c, "task.task_key").to_owned())
            .collect()
    };
    assert_eq!(keys(&batch(2).await), ["r1", "r2"]);
    app.advance(23 * HOUR).await;
    assert_eq!(keys(&batch(3).await), ["r1", "r2"], "of the same day");
    app.advance(HOUR + Duration::from_secs(60)).await;
    let kept = "SELECT count(*) FROM receipts WHERE door = 'claims'";
    assert_eq!(number(&sql, kept).await, 1, "no sweep was there");
    assert_eq!(keys(&batch(3).await), ["r3", "r4", "r5"], "a day later");
    assert_eq!(keys(&batch(64).await), ["r3", "r4", "r5"], "and again");
    assert_eq!(number(&sql, kept).await, 1);
    drop(sql);
    app.finish().await;
}
