//! `POST …/inbox/commits`: each entry is answered, and settles, exactly as its own commit would, and
//! none touches another (`executor.md` §11, `architecture.md` §5).
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::support::fleet::{number, until};
use crate::support::seed::{World, door};
use crate::support::{Answer, TestApp, at, items, text};

const COMMITS: &str = "/agent_api/v1/executor/inbox/commits";

/// An entry for a row.
fn entry(run: &str, key: &str, body: &Value) -> Value {
    let mut entry = body.clone();
    entry["run_public_id"] = json!(run);
    entry["task_key"] = json!(key);
    entry
}

async fn send(app: &TestApp, world: &World, entries: Vec<Value>) -> Answer {
    let body = json!({ "commits": entries });
    app.post(COMMITS, &world.runner.token, body).await
}

/// The results, as text of a parser that keeps every number.
fn results(answer: &Answer) -> Vec<nexus::domain::Value> {
    items(&answer.ok(200), "results").to_vec()
}

fn statuses(answer: &Answer) -> Vec<i64> {
    let status = |result: &nexus::domain::Value| at(result, "status").as_i64().unwrap();
    results(answer).iter().map(status).collect()
}

/// An answer without what differs between two runs and two requests.
fn essence(status: i64, body: &nexus::domain::Value) -> String {
    fn without(value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let kept = members.iter().filter(|(name, _)| {
                    !name.ends_with("_at") && *name != "request_id" && *name != "status_code"
                });
                kept.map(|(name, v)| (name.clone(), without(v))).collect()
            }
            Value::Array(all) => all.iter().map(without).collect(),
            other => other.clone(),
        }
    }
    let body: Value = serde_json::to_value(body).unwrap();
    let only = |name: &str| without(&body[name]);
    format!("{status} {} {}", only("task"), only("error"))
}

/// What a run's rows hold, but for what names it.
async fn rows(sql: &Client, run: &str) -> String {
    let rows = sql
        .query_one(
            &format!(
                "SELECT string_agg(concat_ws('|', t.key, t.status, t.error_key, t.generation, r.digest,
                        r.content, r.structured, r.title, r.metadata), E'\\n' ORDER BY t.task_no)
                   FROM runs JOIN tasks t USING (account_id, run_id)
              LEFT JOIN task_results r USING (account_id, run_id, task_no) WHERE runs.public_id = '{run}'"
            ),
            &[],
        )
        .await
        .unwrap();
    rows.get(0)
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

/// The rows, and what is committed to them in that order; `TOKEN` stands for the row's token.
fn cases() -> Vec<(&'static str, Value)> {
    let link = json!([{"type": "resource_link", "name": "a",
        "uri": "nexus://uploads/0199c0de-0000-7000-8000-000000000001"}]);
    let with = |more: Value| {
        let mut body = json!({"claim_token": "TOKEN"});
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        body
    };
    vec![
        ("r1", with(json!({"content": "done"}))),
        // The same row again: the same, then another result.
        ("r1", with(json!({"content": "done"}))),
        ("r1", with(json!({"content": "undone"}))),
        (
            "r2",
            with(json!({"structured_content": null, "metadata": {"k": 1.0}, "title": "t"})),
        ),
        (
            "r3",
            with(json!({"outcome": "failed", "content": "could not"})),
        ),
        ("r4", with(json!({"content": "an error", "is_error": true}))),
        ("r5", json!({"claim_token": "another", "content": "x"})),
        ("r5", json!({"content": "x"})),
        ("r5", json!({"claim_token": 5})),
        ("r5", with(json!({"is_error": "yes"}))),
        ("r5", with(json!({"outcome": "maybe"}))),
        ("r5", with(json!({"content": [{"type": "image"}]}))),
        ("r5", with(json!({"content": 7}))),
        ("r5", with(json!({"content": link}))),
        ("r5", with(json!({"result_type": "partial"}))),
        ("r5", with(json!({"metadata": []}))),
        // What was refused left the claim alone.
        ("r5", with(json!({"content": "at last"}))),
        ("r6", with(json!({"content": "a\u{0}b"}))),
        ("r6", with(json!({"content": "again"}))),
        ("r7", with(json!({"structured_content": nested(99)}))),
        ("r8", with(json!({"structured_content": nested(127)}))),
        // Never claimed, never there, and a name that cannot be one.
        ("r9", json!({"claim_token": "t", "content": "x"})),
        ("absent", with(json!({"content": "x"}))),
        ("absent", json!({"is_error": 1})),
        ("-", with(json!({"content": "x"}))),
    ]
}

/// Each entry as its own commit: answers and rows of one run by single commits, and of another like it
/// by a batch, with the errors among them.
#[tokio::test]
async fn a_batch_answers_and_stores_what_single_commits_do() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let (single, batched) = (
        world.wide_run(&app, &sql, 10).await,
        world.wide_run(&app, &sql, 10).await,
    );
    let mut wanted = Vec::new();
    let mut entries = Vec::new();
    let mut tokens = std::collections::BTreeMap::new();
    for run in [&single, &batched] {
        for no in 1..=8 {
            let key = format!("r{no}");
            let token = world.claim(&app, run, &key).await;
            tokens.insert((run.clone(), key), token);
        }
    }
    for (key, body) in cases() {
        let body_of = |run: &String| {
            let mut body = body.clone();
            if body["claim_token"] == "TOKEN" {
                let token = tokens.get(&(run.clone(), key.to_owned()));
                body["claim_token"] = json!(token.map_or("none", String::as_str));
            }
            body
        };
        let path = door(&single, key, "commit");
        let answer = app.post(&path, &world.runner.token, body_of(&single)).await;
        wanted.push(essence(i64::from(answer.status.as_u16()), &answer.json()));
        entries.push(entry(&batched, key, &body_of(&batched)));
    }
    let answer = send(&app, &world, entries).await;
    let got: Vec<String> = results(&answer)
        .iter()
        .map(|result| essence(at(result, "status").as_i64().unwrap(), result))
        .collect();
    for (at, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        assert_eq!(got, wanted, "entry {at}: {:?}", cases()[at]);
    }
    assert_eq!(got.len(), wanted.len());
    let refused = results(&answer);
    let refused = refused
        .iter()
        .find(|r| at(r, "status").as_i64() != Some(200));
    assert_eq!(
        text(refused.unwrap(), "error.request_id"),
        answer.header("x-request-id")
    );
    assert_eq!(rows(&sql, &single).await, rows(&sql, &batched).await);
    // All of it once more is an exact repeat: whatever was stored answers so, and nothing changes.
    let before = rows(&sql, &batched).await;
    for run in [&single, &batched] {
        world.stop(&app, run).await.ok(200);
    }
    assert_ne!(before, "");
    app.finish().await;
}

/// A batch that is sent again is answered with what is stored, row by row.
#[tokio::test]
async fn a_repeated_batch_is_answered_as_the_first_time() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut entries = Vec::new();
    for _ in 0..8 {
        let run = world.run(&app, json!([world.routed("a", "echo")])).await;
        let token = world.claim(&app, &run, "a").await;
        let body = json!({"claim_token": token, "content": format!("of {run}")});
        entries.push(entry(&run, "a", &body));
    }
    let first = send(&app, &world, entries.clone()).await;
    assert_eq!(statuses(&first), [200; 8]);
    let settles = "SELECT sum(settle_seq)::bigint FROM runs";
    let before = number(&sql, settles).await;
    let again = send(&app, &world, entries).await;
    assert_eq!(results(&first), results(&again));
    assert_eq!(number(&sql, settles).await, before);
    app.finish().await;
}

/// The bounds of the list, and entries that are none: the list is refused whole, an entry alone.
#[tokio::test]
async fn a_list_is_refused_whole_and_an_entry_alone() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world.wide_run(&app, &sql, 65).await;
    let token = world.claim(&app, &run, "r1").await;
    let good = entry(&run, "r1", &json!({"claim_token": token, "content": "x"}));
    for (list, code) in [
        (json!({}), "parameter_missing"),
        (json!({"commits": null}), "parameter_missing"),
        (json!({"commits": {}}), "parameter_invalid"),
        (json!({"commits": []}), "parameter_invalid"),
        (
            json!({"commits": vec![good.clone(); 65]}),
            "parameter_invalid",
        ),
    ] {
        let refused = app.post(COMMITS, &world.runner.token, list).await;
        let error = refused.expect(400, code);
        assert_eq!(text(&error, "parameter"), "commits");
    }
    assert_eq!(
        text(&world.task(&app, &run, "r1").await, "task.status"),
        "dispatched",
        "65 entries settle none"
    );
    let without = |name: &str| {
        let mut entry = good.clone();
        entry.as_object_mut().unwrap().remove(name);
        entry
    };
    let of = |name: &str, value: Value| {
        let mut entry = good.clone();
        entry[name] = value;
        entry
    };
    let entries = vec![
        json!("no entry"),
        without("run_public_id"),
        of("run_public_id", json!("no id")),
        of("run_public_id", json!(7)),
        without("task_key"),
        of("task_key", json!([])),
        good.clone(),
    ];
    let answer = send(&app, &world, entries).await;
    let words: Vec<String> = results(&answer)
        .iter()
        .map(|r| match nexus::domain::Value::get(r, "error") {
            Some(error) => format!(
                "{} {}",
                at(r, "status").as_i64().unwrap(),
                text(error, "code")
            ),
            None => text(r, "task.status").to_owned(),
        })
        .collect();
    assert_eq!(
        words,
        [
            "400 parameter_invalid",
            "400 parameter_missing",
            "404 not_found",
            "400 parameter_invalid",
            "400 parameter_missing",
            "400 parameter_invalid",
            "completed",
        ]
    );
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}

/// Entries of a run that somebody holds wait; those of others are settled meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_run_keeps_no_other_entry_waiting() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mut runs = Vec::new();
    for _ in 0..16 {
        let run = world.run(&app, json!([world.routed("a", "echo")])).await;
        let token = world.claim(&app, &run, "a").await;
        runs.push((run, token));
    }
    let entries = runs
        .iter()
        .map(|(run, token)| entry(run, "a", &json!({"claim_token": token, "content": "x"})))
        .collect();
    let holder = app.sql().await;
    holder
        .batch_execute(&format!(
            "BEGIN; SELECT 1 FROM runs WHERE public_id = '{}' FOR UPDATE",
            runs[3].0
        ))
        .await
        .unwrap();
    let (door_, bearer) = (app.on(0).clone(), world.runner.token.clone());
    let body = json!({ "commits": Value::Array(entries) });
    let answer = tokio::spawn(async move { door_.post(COMMITS, &bearer, body).await });
    until("fifteen are settled", || async {
        number(&sql, "SELECT count(*) FROM runs WHERE status = 'completed'").await == 15
    })
    .await;
    assert!(!answer.is_finished());
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(statuses(&answer.await.unwrap()), [200; 16]);
    app.finish().await;
}

/// `architecture.md` §5: entries of one run are one lock, one load, one apply, however many.
#[tokio::test]
async fn entries_of_one_run_settle_together() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    app.get("/agent_api/v1/executor/inbox", &world.runner.token)
        .await
        .ok(200);
    let seen = "SELECT count(*) FROM executors WHERE last_seen_at IS NOT NULL";
    until("the runner was seen", || async {
        number(&sql, seen).await == 1
    })
    .await;
    let mut spent = Vec::new();
    for count in [2, 64] {
        let run = world.wide_run(&app, &sql, count + 1).await;
        let mut entries = Vec::new();
        for no in 1..=count {
            let key = format!("r{no}");
            let token = world.claim(&app, &run, &key).await;
            let body = json!({"claim_token": token, "content": "x"});
            entries.push(entry(&run, &key, &body));
        }
        let before = app.app().store.meter();
        let answer = send(&app, &world, entries).await;
        let after = app.app().store.meter();
        assert!(statuses(&answer).iter().all(|status| *status == 200));
        spent.push((
            after.round_trips - before.round_trips,
            after.statements - before.statements,
        ));
        world.stop(&app, &run).await.ok(200);
    }
    println!("2 and 64 entries of one run: {spent:?} (round trips, statements)");
    assert_eq!(spent[0], spent[1], "the number of entries shows");
    app.finish().await;
}
