//! Batches of claims (`architecture.md` §5, §8): callers of one inbox share their looks, a key's rows
//! are recovered in their order, and what a statement narrows by is the engine's rule.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nexus::domain::words::{ParkKind, RunStatus};
use nexus::domain::{AccountId, ExecutorId};
use nexus::engine::eligibility::{Standing, is_claimable, is_listed};
use reqwest::Method;
use serde_json::json;

use crate::support::fleet::{all, number, set_run, unrouted};
use crate::support::seed::{World, door};
use crate::support::{Answer, Door, TestApp, at, find, items, text};

const INBOX: &str = "/agent_api/v1/executor/inbox";
const CLAIMS: &str = "/agent_api/v1/executor/inbox/claims";
const ANNOUNCEMENT: &str = "/agent_api/v1/executor/announcement";

async fn claims_under(door_: &Door, bearer: &str, key: &str, limit: i32) -> Answer {
    door_
        .request(Method::POST, CLAIMS, bearer)
        .header("idempotency-key", key)
        .json(json!({"limit": limit}))
        .send()
        .await
}

/// Keys of the rows in the order of the answer, and their tokens.
fn taken(answer: &Answer) -> Vec<(String, String)> {
    items(&answer.ok(200), "claims")
        .iter()
        .map(|claim| {
            assert_eq!(at(claim, "task.claimed").as_bool(), Some(true));
            (
                text(claim, "task.task_key").to_owned(),
                text(claim, "claim.claim_token").to_owned(),
            )
        })
        .collect()
}

fn keys(answer: &Answer) -> Vec<String> {
    taken(answer).into_iter().map(|(key, _)| key).collect()
}

/// `architecture.md` §5, §8, §9: 64 callers of one inbox on three replicas share 640 rows out: no row
/// twice, none left, no caller empty-handed while there are rows, nobody waits for a run or a row that
/// somebody holds, and the statements are those of a few shared looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_share_their_looks_at_one_inbox() {
    const ROWS: usize = 640;
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world.wide_run(&app, &sql, 640).await;
    for replica in 0..3 {
        app.on(replica)
            .get(INBOX, &world.runner.token)
            .await
            .ok(200);
    }
    // Somebody holds the run, somebody else a row of it.
    sql.batch_execute(&format!(
        "BEGIN; SELECT 1 FROM runs WHERE public_id = '{run}' FOR UPDATE"
    ))
    .await
    .unwrap();
    let holder = app.sql().await;
    holder
        .batch_execute("BEGIN; SELECT 1 FROM parks WHERE task_no = 7 FOR UPDATE")
        .await
        .unwrap();
    let spent = || -> u64 {
        let meters = app.replicas.iter().map(|r| r.app.store.meter());
        meters.map(|meter| meter.statements).sum()
    };
    let before = spent();
    let requests = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let callers = (0..64).map(|caller| {
        let (door_, bearer) = (app.on(caller % 3).clone(), world.runner.token.clone());
        let requests = requests.clone();
        async move {
            let mut mine = Vec::new();
            loop {
                requests.fetch_add(1, Ordering::Relaxed);
                let answer = door_.post(CLAIMS, &bearer, json!({"limit": 10})).await;
                let got = taken(&answer);
                if got.is_empty() {
                    return mine;
                }
                mine.push(got);
            }
        }
    });
    let granted = all(callers).await;
    let requests = requests.load(Ordering::Relaxed);
    let statements = spent() - before;
    println!(
        "{ROWS} rows to 64 callers: {:?}, {requests} requests, {statements} statements, {} of them of looks",
        started.elapsed(),
        statements - requests
    );
    let rows: Vec<&(String, String)> = granted.iter().flatten().flatten().collect();
    let by_key: BTreeMap<&str, &str> = rows.iter().map(|(k, t)| (&**k, &**t)).collect();
    assert_eq!(rows.len(), by_key.len(), "no row twice");
    assert_eq!(by_key.len(), ROWS - 1, "none left but the one that is held");
    assert!(!by_key.contains_key("r7"));
    // Each request is authenticated by one statement; all else is looks, three statements each.
    let looks = statements - requests;
    assert!(looks <= 120, "{looks} statements of looks");
    // Who waits is given the row soon after it is let go, though nobody is told of that.
    let waiting = {
        let (door_, bearer) = (app.on(1).clone(), world.runner.token.clone());
        tokio::spawn(async move {
            let body = json!({"limit": 1, "wait_ms": 20_000});
            let taken = door_.post(CLAIMS, &bearer, body).await;
            (keys(&taken), Instant::now())
        })
    };
    tokio::time::sleep(Duration::from_millis(300)).await; // it looks and waits; nothing depends on how long
    holder.batch_execute("ROLLBACK").await.unwrap();
    let released = Instant::now();
    let (row, at) = waiting.await.unwrap();
    assert_eq!(row, ["r7"]);
    let after = at.saturating_duration_since(released);
    assert!(after < Duration::from_secs(3), "{after:?}");
    sql.batch_execute("COMMIT").await.unwrap();
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}

/// `executor.md` §8: callers that wait share what there is: with as many rows as callers, each that
/// shared a look has one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_dealt_in_turn_to_those_who_share_a_look() {
    const CALLERS: usize = 24;
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world.wide_run(&app, &sql, 1 + 24).await;
    // The first look takes a caller's row and is held up; the others gather behind it.
    let mut blocker = app.sql().await;
    let hold = blocker.transaction().await.unwrap();
    hold.batch_execute("LOCK TABLE parks IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let ask = |limit: i32| {
        let (door_, bearer) = (app.on(0).clone(), world.runner.token.clone());
        async move { keys(&door_.post(CLAIMS, &bearer, json!({"limit": limit})).await) }
    };
    let first = tokio::spawn(ask(1));
    let waiting =
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'parks'::regclass";
    crate::support::fleet::until("the first look waits", || async {
        number(&sql, waiting).await == 1
    })
    .await;
    let before = app.app().store.meter().statements;
    let others: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(ask(64))).collect();
    crate::support::fleet::until("all others were authenticated", || async {
        app.app().store.meter().statements >= before + CALLERS as u64
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await; // from the door to the queue
    hold.rollback().await.unwrap();
    assert_eq!(first.await.unwrap(), ["r1"]);
    for other in others {
        assert_eq!(other.await.unwrap().len(), 1, "one row each");
    }
    let spent = app.app().store.meter().statements - before - CALLERS as u64;
    println!("{CALLERS} callers that shared a look: {spent} statements beside authentication");
    assert!(spent <= 12, "{spent}");
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}

/// `architecture.md` §8: repeats under one key, at once and afterwards, on any replica and beside
/// others that claim, answer the same rows in the same order; those that settled are left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_under_a_key_answer_the_same_rows_in_the_same_order() {
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    for round in 0..4 {
        let run = world.wide_run(&app, &sql, 60).await;
        let key = format!("k{round}");
        let twins = (0..12).map(|i| {
            let (door_, bearer, key) = (
                app.on(i % 3).clone(),
                world.runner.token.clone(),
                key.clone(),
            );
            async move { taken(&claims_under(&door_, &bearer, &key, 8).await) }
        });
        let others = (0..6).map(|i| {
            let (door_, bearer) = (app.on(i % 3).clone(), world.runner.token.clone());
            async move { taken(&door_.post(CLAIMS, &bearer, json!({"limit": 4})).await) }
        });
        let (same, others) = tokio::join!(all(twins), all(others));
        let rows: Vec<String> = same[0].iter().map(|(key, _)| key.clone()).collect();
        assert!(!rows.is_empty());
        for answer in &same {
            let mine: Vec<&String> = answer.iter().map(|(key, _)| key).collect();
            assert_eq!(mine, rows.iter().collect::<Vec<_>>(), "{round}");
        }
        let number_of = |key: &str| key[1..].parse::<i32>().unwrap();
        assert!(
            rows.windows(2).all(|w| number_of(&w[0]) < number_of(&w[1])),
            "the inbox's order: {rows:?}"
        );
        for other in others.iter().flatten() {
            assert!(
                !rows.contains(&other.0),
                "a row of the key for somebody else"
            );
        }
        let again = taken(&claims_under(app.on(round % 3), &world.runner.token, &key, 64).await);
        assert_eq!(
            again.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(),
            rows
        );
        let (settled, token) = &again[0];
        world.commit(&app, &run, settled, token).await.ok(200);
        let rest = keys(&claims_under(&app, &world.runner.token, &key, 1).await);
        assert_eq!(rest, rows[1..]);
        world.stop(&app, &run).await.ok(200);
    }
    app.finish().await;
}

/// `architecture.md` §8: a claim that stands is recovered under its key by whoever holds it, though
/// its tool is no longer announced; nothing new is claimed, and nobody else gets it.
#[tokio::test]
async fn a_withdrawn_tool_does_not_keep_a_lost_claim_from_its_holder() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let steps = json!([{"parallel": [unrouted("a", "pooled"), unrouted("b", "pooled"), unrouted("c", "pooled")]},
        unrouted("after", "pooled")]);
    let run = world.run(&app, steps).await;
    let provider = &world.provider.token;
    let lost = taken(&claims_under(&app, provider, "k", 2).await);
    assert_eq!(lost.len(), 2);
    let one = door(&run, "c", "claim");
    let claim = || {
        let call = app.request(Method::POST, &one, provider);
        call.header("idempotency-key", "k").send()
    };
    claim().await.ok(200);
    let withdrawn = app.put(ANNOUNCEMENT, provider, json!({"tools": []})).await;
    withdrawn.ok(200);
    let found = taken(&claims_under(&app, provider, "k", 2).await);
    assert_eq!(
        found.iter().map(|(k, _)| k).collect::<Vec<_>>(),
        lost.iter().map(|(k, _)| k).collect::<Vec<_>>()
    );
    let single = claim().await.ok(200);
    app.command(&one, provider)
        .await
        .expect(409, "not_addressed_here");
    assert!(taken(&claims_under(&app, provider, "other", 2).await).is_empty());
    let token = text(&single, "claim.claim_token").to_owned();
    for (key, token) in found.into_iter().chain([("c".to_owned(), token)]) {
        let body = json!({"claim_token": token});
        let path = door(&run, &key, "commit");
        app.post(&path, provider, body).await.ok(200);
    }
    assert!(taken(&claims_under(&app, provider, "k", 2).await).is_empty());
    app.finish().await;
}

/// What `inbox.candidates` narrows by is `engine::eligibility::is_claimable`, and what the inbox lists
/// is `is_listed`: held against each other in every standing a park can have.
#[tokio::test]
async fn statements_narrow_by_the_engines_rules() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world
        .run(
            &app,
            json!([{"parallel": [world.routed("a", "echo"), unrouted("b", "pooled")]}, world.routed("after", "echo")]),
        )
        .await;
    let store = &app.app().store;
    let account = AccountId(world.account);
    let (mut seen, mut claimable) = (0, 0);
    for run_status in RunStatus::ALL.iter().copied() {
        let status = run_status.as_str();
        for bits in 0..64_u32 {
            let bit = |n: u32| bits & (1 << n) != 0;
            let (force_stopped, tombstoned, frozen) = (bit(0), bit(1), bit(2));
            let kind = if bit(3) {
                ParkKind::ToolCall
            } else {
                ParkKind::Approval
            };
            let claimant = match (bit(4), bit(5)) {
                (false, false) => None,
                (true, false) => Some(world.runner.id),
                (false, true) => Some(world.provider.id),
                (true, true) => continue,
            };
            let by = claimant.map_or("NULL".to_owned(), |id| id.to_string());
            sql.batch_execute(&format!(
                "UPDATE runs SET status = '{status}', force_stopped = {force_stopped},
                        deleted_at = CASE WHEN {tombstoned} THEN now() END,
                        paused_at = CASE WHEN '{status}' = 'paused' THEN now() END,
                        completed_at = CASE WHEN '{status}' IN ('completed', 'canceled') THEN now() END;
                 UPDATE parks SET kind = '{kind}', clock_frozen = {frozen}, claimant_id = {by},
                        claimed_at = CASE WHEN {by}::bigint IS NOT NULL THEN now() END,
                        claim_digest = CASE WHEN {by}::bigint IS NOT NULL THEN '\\x00'::bytea END",
                kind = kind.as_str()
            ))
            .await
            .unwrap();
            for (executor, pooled) in [(&world.runner, false), (&world.provider, true)] {
                let park = Standing {
                    run_status,
                    force_stopped,
                    tombstoned,
                    kind,
                    pooled,
                    claimed_by: claimant.map(ExecutorId),
                    frozen,
                };
                let id = ExecutorId(executor.id);
                let caller = store.inbox_caller(account, id).await.unwrap().unwrap();
                let found = store
                    .claim_candidates(account, &caller, 0, 10)
                    .await
                    .unwrap();
                assert_eq!(found.len() == 1, is_claimable(&park), "{park:?}");
                let page = store.inbox_page(account, &caller, 0, 10).await.unwrap();
                assert_eq!(page.len(), 1);
                assert_eq!(page[0].listable, is_listed(&park, id), "{park:?}");
                assert!(
                    page[0].listable || found.is_empty(),
                    "claimable and not listed: {park:?}"
                );
                seen += 1;
                claimable += found.len();
            }
        }
    }
    println!("{seen} standings, {claimable} of them claimable");
    assert_eq!(
        claimable, 4,
        "a call of a run that works or ends, for each addressee"
    );
    sql.batch_execute(
        "UPDATE runs SET status = 'running', force_stopped = false, deleted_at = NULL, paused_at = NULL, completed_at = NULL;
         UPDATE parks SET kind = 'tool_call', clock_frozen = false, claimant_id = NULL, claimed_at = NULL, claim_digest = NULL",
    )
    .await
    .unwrap();
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}

/// `executor.md` §6: rows passed over while their run was halted are found when it goes on.
#[tokio::test]
async fn a_run_that_goes_on_is_claimed_though_later_rows_were_taken() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let early = world.wide_run(&app, &sql, 3).await;
    set_run(&sql, &early, "paused").await;
    let late = world.wide_run(&app, &sql, 3).await;
    let bearer = &world.runner.token;
    let two = app.post(CLAIMS, bearer, json!({"limit": 2})).await;
    assert_eq!(text(&two.json(), "claims.0.task.run_public_id"), late);
    set_run(&sql, &early, "running").await;
    let rest = app.post(CLAIMS, bearer, json!({"limit": 64})).await;
    let more = app.post(CLAIMS, bearer, json!({"limit": 64})).await;
    assert_eq!(
        taken(&two).len() + taken(&rest).len() + taken(&more).len(),
        6
    );
    for run in [early, late] {
        world.stop(&app, &run).await.ok(200);
    }
    app.finish().await;
}

/// `executor.md` §5, §6: a Runner-routed `skill` starts if its Runner announces the document that it
/// names, and its row says on whose behalf; else `tool_not_served`.
#[tokio::test]
async fn a_skill_needs_its_document_and_carries_its_scope() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let runner = &world.runner.token;
    let profile: serde_json::Value = serde_json::from_str(crate::support::seed::READ_ONLY).unwrap();
    let announce = |documents: serde_json::Value| {
        let tools = json!([{"name": "skill", "effect_profile": profile}, {"name": "echo", "effect_profile": profile}]);
        app.put(
            ANNOUNCEMENT,
            runner,
            json!({"tools": tools, "documents": documents}),
        )
    };
    let notes = json!([{"name": "deploy-notes", "description": "How releases go out"}]);
    announce(notes.clone()).await.ok(200);
    let skill = |key: &str, input: serde_json::Value| {
        let mut step = world.routed(key, "skill");
        step["tool"]["input"] = input;
        step
    };
    let steps = json!([{"parallel": [
        skill("named", json!({"name": "deploy-notes"})),
        skill("other", json!({"name": "other-notes"})),
        skill("nameless", json!({})),
        skill("odd", json!({"name": ["deploy-notes"]})),
        world.routed("plain", "echo"),
    ]}, world.routed("after", "echo")]);
    let run = world.run(&app, steps).await;
    for key in ["other", "nameless", "odd"] {
        let task = world.task(&app, &run, key).await;
        assert_eq!(text(&task, "task.status"), "failed", "{key}");
        assert_eq!(text(&task, "task.error.key"), "tool_not_served", "{key}");
    }
    let taken = app.post(CLAIMS, runner, json!({"limit": 9})).await.ok(200);
    let rows = items(&taken, "claims");
    assert_eq!(rows.len(), 2);
    let scope = at(&rows[0], "task.scope");
    assert_eq!(text(&rows[0], "task.task_key"), "named");
    let workspace = world.workspace_public_id.to_string();
    assert_eq!(text(scope, "workspace_public_id"), workspace);
    assert!(at(scope, "conversation_public_id").is_null());
    assert_eq!(
        text(scope, "user_public_id"),
        world.human.public_id.to_string()
    );
    assert!(find(&rows[1], "task.scope").is_none(), "a skill's alone");
    let listed = app.get(INBOX, runner).await.ok(200);
    assert_eq!(at(&listed, "tasks.0.scope"), scope);
    // An agent's run: the human behind it. A document withdrawn after acceptance is not served.
    let start = async |documents: serde_json::Value| {
        announce(notes.clone()).await.ok(200);
        let steps = json!([skill("a", json!({"name": "deploy-notes"}))]);
        let body = json!({"run": {"approval_mode": "bypass", "steps": steps}});
        let created = app
            .post(&world.runs(), &world.agent.token, body)
            .await
            .ok(201);
        let run = text(&created, "run.public_id").to_owned();
        announce(documents).await.ok(200);
        let path = format!("{}/{run}/start", world.runs());
        app.command(&path, &world.agent.token).await.ok(200);
        run
    };
    let gone = start(json!([])).await;
    let task = world.task(&app, &gone, "a").await;
    assert_eq!(text(&task, "task.error.key"), "tool_not_served");
    let kept = start(notes.clone()).await;
    let row = app
        .command(&door(&kept, "a", "claim"), runner)
        .await
        .ok(200);
    assert_eq!(
        text(&row, "task.scope.user_public_id"),
        world.human.public_id.to_string()
    );
    for run in [run, gone, kept] {
        world.stop(&app, &run).await;
    }
    app.finish().await;
}
