//! Reads of one run: graph, phases, transcript, request (`runs.md` §9), the events page over what
//! expired (§13), and the conventions that all of them keep (§1).

use std::time::Duration;

use nexus::domain::Value;
use nexus::store::Reading;
use serde_json::json;
use tokio_postgres::Client;

use crate::support::fleet::{fan, parallel};
use crate::support::seed::World;
use crate::support::{TestApp, at, find, items, text};

/// Creates a run of these steps; gives its id.
pub async fn created(app: &TestApp, world: &World, steps: serde_json::Value) -> String {
    let body = json!({"run": {"approval_mode": "bypass", "steps": steps}});
    let made = app
        .post(&world.runs(), &world.human.token, body)
        .await
        .ok(201);
    text(&made, "run.public_id").to_owned()
}

/// What a read of a run answers.
async fn read(app: &TestApp, world: &World, run: &str, what: &str) -> Value {
    let path = format!("{}/{run}/{what}", world.runs());
    app.get(&path, &world.human.token).await.ok(200)
}

fn json_of(value: &Value) -> serde_json::Value {
    serde_json::from_str(value.canonical().unwrap().as_str()).unwrap()
}

fn texts<'a>(value: &'a Value, list: &str, member: &str) -> Vec<&'a str> {
    items(value, list).iter().map(|v| text(v, member)).collect()
}

/// Adds a mainline to a run as model rounds would have written it: rounds `m1…`, each but the last
/// with that many calls `m1t0…`, which the next one read. Rounds whose number the period divides are
/// hidden (0: none).
async fn mainline(sql: &Client, run: &str, rounds: i32, calls: i32, hidden: i32) {
    let width = calls + 1;
    sql.batch_execute(&format!(
        "CREATE TEMP TABLE r AS SELECT account_id, run_id, n_tasks FROM runs WHERE public_id = '{run}';
         CREATE TEMP TABLE g AS SELECT r.*, i, n_tasks + (i - 1) * {width} + 1 AS no FROM r, generate_series(1, {rounds}) i;
         INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, mark, lifetime, wake, on_failure,
                visibility, lineage_no, tip_no, input_from, remaining, started_at, settle_seq, completed_at)
         SELECT account_id, run_id, no, 'm' || i, 'model_task', 'completed', 'author', 'round', 'conversation', 'auto', 'halt',
                CASE WHEN {hidden} > 0 AND i % nullif({hidden}, 0) = 0 THEN 'hidden' ELSE 'visible' END, no, no,
                CASE WHEN i = 1 THEN '{{}}' ELSE ARRAY(SELECT no - {width} + o FROM generate_series(0, {calls}) o) END,
                0, now(), 1000000 + no, now() FROM g;
         INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, lifetime, wake, on_failure, visibility,
                lineage_no, tip_no, expansion_parent_no, remaining, tool_name, tool_alias, tool_call_id, started_at,
                claimed_at, claim_digest, settle_seq, completed_at)
         SELECT account_id, run_id, no + o + 1, 'm' || i || 't' || o, 'tool_task', 'completed', 'model', 'conversation', 'auto',
                'absorb', CASE WHEN o = 1 THEN 'hidden' ELSE 'collapsed' END, no + o + 1, no + o + 1, no, 0, 'echo',
                CASE WHEN o = 2 THEN 'say' END, 'call-' || o, now(), now(), '\\x00', 1000001 + no + o, now()
           FROM g, generate_series(0, {calls} - 1) o;
         INSERT INTO task_results (account_id, run_id, task_no, generation, content, digest, title, metadata)
         SELECT t.account_id, t.run_id, t.task_no, 0,
                json_build_array(json_build_object('type', 'text', 'text', 'of ' || t.key || ' '),
                    json_build_object('type', 'resource_link', 'uri', 'x'),
                    json_build_object('type', 'text', 'text', repeat('é', 600)))::text,
                '\\x00', 'a title', '{{\"k\":1}}' FROM r JOIN tasks t USING (account_id, run_id) WHERE t.task_no > r.n_tasks;
         UPDATE runs SET n_tasks = r.n_tasks + {rounds} * {width}, mainline_tail_no = r.n_tasks + ({rounds} - 1) * {width} + 1
           FROM r WHERE runs.account_id = r.account_id AND runs.run_id = r.run_id;
         DROP TABLE r, g"
    ))
    .await
    .expect("a mainline is written");
}

/// What a read cost.
async fn cost(app: &TestApp, world: &World, run: &str, what: &str) -> (Reading, Value) {
    let before = app.app().store.meter();
    let answer = read(app, world, run, what).await;
    let after = app.app().store.meter();
    let spent = Reading {
        statements: after.statements - before.statements,
        round_trips: after.round_trips - before.round_trips,
        rows: after.rows - before.rows,
    };
    (spent, answer)
}

/// The bearer's first use is sampled behind its request: not part of a measurement.
async fn greet(app: &TestApp, world: &World) {
    app.get(&world.runs(), &world.human.token).await.ok(200);
    let sql = app.sql().await;
    crate::support::fleet::until("the bearer was sampled", || async {
        let used = "SELECT count(*) FROM tokens WHERE last_used_at IS NOT NULL";
        crate::support::fleet::number(&sql, used).await == 1
    })
    .await;
}

/// §9: `{nodes, edges, mermaid}` in authoring order, edges by head then source, the answer marked.
#[tokio::test]
async fn a_graph_shows_nodes_edges_and_a_drawing() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let step = |key: &str| world.routed(key, "echo");
    let steps = json!([parallel(vec![step("unit"), step("lint")]), step("say")]);
    let run = created(&app, &world, steps).await;
    let graph = read(&app, &world, &run, "graph").await;
    let node = |key: &str, answer: bool| {
        json!({"key": key, "kind": "tool_task", "lifetime": "conversation", "wake": "auto", "status": "waiting",
               "visibility": "collapsed", "deliverable": answer, "input_from": [], "result_from": []})
    };
    assert_eq!(
        json_of(&graph),
        json!({
            "nodes": [node("unit", false), node("lint", false), node("say", true)],
            "edges": [{"from": "unit", "to": "say", "structural": true}, {"from": "lint", "to": "say", "structural": true}],
            "mermaid": "flowchart TD\n  n0[unit]:::waiting\n  n1[lint]:::waiting\n  n2[[say]]:::waiting\n  n0 --> n2\n  n1 --> n2\n",
        })
    );
    app.finish().await;
}

/// §9: hidden rows included, reads by key, `mainline` on model rounds, `expansion_parent`, no bodies.
#[tokio::test]
async fn a_graph_shows_hidden_rows_and_what_rounds_read() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    mainline(&sql, &run, 2, 2, 2).await;
    let graph = read(&app, &world, &run, "graph").await;
    let keys = texts(&graph, "nodes", "key");
    assert_eq!(keys, ["a", "m1", "m1t0", "m1t1", "m2", "m2t0", "m2t1"]);
    let nodes = json_of(at(&graph, "nodes"));
    assert_eq!(nodes[4]["visibility"], "hidden");
    assert_eq!(nodes[4]["input_from"], json!(["m1", "m1t0", "m1t1"]));
    assert_eq!(nodes[4]["mainline"], true);
    assert_eq!(nodes[2]["expansion_parent"], "m1");
    assert_eq!(nodes[2].get("mainline"), None);
    assert!(!graph.canonical().unwrap().as_str().contains("of m1"));
    app.finish().await;
}

/// §9: constant query count: the graph and the phases of 10 and of 2,000 tasks take the same number of
/// statements.
#[tokio::test]
async fn a_graph_of_ten_and_of_two_thousand_tasks_takes_the_same_statements() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    greet(&app, &world).await;
    let small = world.run(&app, fan(&world, 9)).await;
    let large = world.run(&app, fan(&world, 9)).await;
    world.settled_rows(&sql, &large, 1990).await;
    for what in ["graph", "phases", "transcript"] {
        let (of_small, _) = cost(&app, &world, &small, what).await;
        let (of_large, answer) = cost(&app, &world, &large, what).await;
        println!("{what}: {of_small:?} {of_large:?}");
        assert_eq!(of_small.statements, of_large.statements, "{what}");
        assert_eq!(of_small.round_trips, of_large.round_trips, "{what}");
        if what == "graph" {
            assert_eq!(items(&answer, "nodes").len(), 2000);
            assert_eq!(
                of_large.statements, 4,
                "a bearer, a standing, a run, its graph"
            );
        }
    }
    app.finish().await;
}

/// §9: phases of a run as it goes: labels, keys, counts, states, current; spend of none.
#[tokio::test]
async fn phases_follow_the_run() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let step = |key: &str| world.routed(key, "echo");
    let steps = json!([
        step("fetch"),
        parallel(vec![step("unit"), step("lint")]),
        step("say")
    ]);
    let run = created(&app, &world, steps).await;
    let phase = |label: &str, keys: &[&str], done: i64, status: &str| json!({"label": label, "keys": keys, "done": done, "total": keys.len(), "status": status});
    let nothing = json!({"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_hit_rate": null,
        "cost_amount": null, "cost_unit": null, "by_model": []});
    let pending = read(&app, &world, &run, "phases").await;
    assert_eq!(
        json_of(&pending),
        json!({
            "phases": [phase("fetch", &["fetch"], 0, "waiting"), phase("unit · lint", &["unit", "lint"], 0, "waiting"),
                       phase("say", &["say"], 0, "waiting")],
            "current": 0, "background": [], "spend": nothing,
        })
    );
    app.command(&format!("{}/{run}/start", world.runs()), &world.human.token)
        .await
        .ok(200);
    let statuses = |view: &Value| -> Vec<String> {
        let list = texts(view, "phases", "status");
        list.into_iter().map(str::to_owned).collect()
    };
    let started = read(&app, &world, &run, "phases").await;
    assert_eq!(statuses(&started), ["running", "waiting", "waiting"]);
    let finish = async |key: &str| {
        let token = world.claim(&app, &run, key).await;
        world.commit(&app, &run, key, &token).await.ok(200);
    };
    finish("fetch").await;
    finish("unit").await;
    let midway = read(&app, &world, &run, "phases").await;
    assert_eq!(statuses(&midway), ["completed", "running", "waiting"]);
    assert_eq!(at(&midway, "current").as_i64(), Some(1));
    assert_eq!(at(&midway, "phases.1.done").as_i64(), Some(1));
    finish("lint").await;
    finish("say").await;
    let done = read(&app, &world, &run, "phases").await;
    assert_eq!(statuses(&done), ["completed", "completed", "completed"]);
    assert!(at(&done, "current").is_null());
    app.finish().await;
}

/// §9: a race's barrier is a node with terms, and a loser that was canceled leaves its phase completed;
/// the phases of an append follow those of the seed.
#[tokio::test]
async fn a_race_and_an_append_show_in_the_graph_and_the_phases() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let step = |key: &str| world.routed(key, "echo");
    let race = json!({"parallel": [step("unit"), step("lint")], "until": "any"});
    let run = world.run(&app, json!([race, step("say")])).await;
    let path = format!("{}/{run}/tasks", world.runs());
    let body = json!({"expected_revision": 1, "steps": [step("more")]});
    app.post(&path, &world.human.token, body).await.ok(201);
    let graph = json_of(&read(&app, &world, &run, "graph").await);
    let barrier = &graph["nodes"][2];
    assert_eq!(barrier["key"], "s1-parallel-1");
    assert_eq!(
        (&barrier["kind"], &barrier["visibility"]),
        (&json!("join_task"), &json!("hidden"))
    );
    assert_eq!(barrier["join"], json!({"until": "any", "losers": "cancel"}));
    let edge = |from: &str, to: &str| json!({"from": from, "to": to, "structural": true});
    assert_eq!(
        graph["edges"],
        json!([
            edge("unit", "s1-parallel-1"),
            edge("lint", "s1-parallel-1"),
            edge("s1-parallel-1", "say"),
            edge("say", "more")
        ])
    );
    let drawn = graph["mermaid"].as_str().unwrap();
    assert!(
        drawn.contains("n2[\"s1-parallel-1 (any, cancel)\"]:::waiting\n"),
        "{drawn}"
    );
    let phase = |label: &str, keys: &[&str], done: i64, status: &str| json!({"label": label, "keys": keys, "done": done, "total": keys.len(), "status": status});
    let raced = ["unit", "lint", "s1-parallel-1"];
    let phases = json_of(&read(&app, &world, &run, "phases").await);
    assert_eq!(
        phases["phases"],
        json!([
            phase("unit · lint", &raced, 0, "running"),
            phase("say", &["say"], 0, "waiting"),
            phase("more", &["more"], 0, "waiting")
        ])
    );
    let token = world.claim(&app, &run, "unit").await;
    world.commit(&app, &run, "unit", &token).await.ok(200);
    let phases = json_of(&read(&app, &world, &run, "phases").await);
    assert_eq!(
        phases["phases"][0],
        phase("unit · lint", &raced, 3, "completed")
    );
    assert_eq!(phases["phases"][1]["status"], "running");
    assert_eq!(phases["current"], 1);
    app.finish().await;
}

/// §4, §9, §14: a keyless create keeps its receipt under a minted key, which feeds `phases`; phases of
/// receipts older than 24 hours disappear, the last instant included.
#[tokio::test]
async fn phases_of_a_receipt_disappear_after_a_day() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    app.advance(Duration::ZERO).await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    let kept = "SELECT count(*) FROM receipts c JOIN runs r USING (account_id, run_id) WHERE door = 'run_create'";
    assert_eq!(crate::support::fleet::number(&sql, kept).await, 1);
    app.advance(Duration::from_secs(24 * 3600 - 60)).await;
    let before = read(&app, &world, &run, "phases").await;
    assert_eq!(texts(&before, "phases", "label"), ["a"]);
    app.advance(Duration::from_secs(61)).await;
    let after = read(&app, &world, &run, "phases").await;
    assert!(items(&after, "phases").is_empty());
    assert!(at(&after, "current").is_null());
    app.finish().await;
}

/// §9: pages newest-first, rows of a page in reading order, each once; the cursor goes on behind it.
#[tokio::test]
async fn a_transcript_pages_backwards_and_reads_forwards() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    let empty = read(&app, &world, &run, "transcript").await;
    let nothing = json!({"rounds": [], "pagination": {"next_before": null, "has_older": false}});
    assert_eq!(json_of(&empty), nothing, "a run without model rounds");
    mainline(&sql, &run, 7, 1, 0).await;
    let mut pages = Vec::new();
    let mut path = "transcript?limit=3".to_owned();
    loop {
        let page = read(&app, &world, &run, &path).await;
        let keys = texts(&page, "rounds", "task_key");
        pages.push(keys.join(" "));
        let next = find(&page, "pagination.next_before").and_then(Value::as_str);
        let has_older = at(&page, "pagination.has_older").as_bool();
        assert_eq!(has_older, Some(next.is_some()));
        match next {
            Some(next) => path = format!("transcript?limit=3&before={next}"),
            None => break,
        }
    }
    assert_eq!(pages, ["m5 m6 m7", "m2 m3 m4", "m1"]);
    let all = read(&app, &world, &run, "transcript?limit=7").await;
    assert_eq!(items(&all, "rounds").len(), 7);
    assert_eq!(at(&all, "pagination.has_older").as_bool(), Some(false));
    app.finish().await;
}

/// §9: a row's members; `calls` are those it read; hidden rows never appear; previews only.
#[tokio::test]
async fn a_round_shows_previews_and_the_calls_it_read() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    mainline(&sql, &run, 4, 30, 3).await;
    let page = read(&app, &world, &run, "transcript").await;
    assert_eq!(
        texts(&page, "rounds", "task_key"),
        ["m1", "m2", "m4"],
        "m3 is hidden"
    );
    let first = at(&page, "rounds.0");
    assert_eq!(at(first, "calls.count").as_i64(), Some(0));
    assert_eq!(at(first, "mainline").as_bool(), Some(true));
    assert_eq!(text(first, "status"), "completed");
    let preview = text(first, "text_preview");
    assert!(preview.starts_with("of m1 éé"), "{preview}");
    assert_eq!(preview.len(), 256, "as in the task read");
    assert_eq!(at(first, "text_bytes").as_i64(), Some(6 + 1200));
    for absent in ["usage", "error", "compacted_before", "pruned_before"] {
        assert!(find(first, absent).is_none(), "{absent}");
    }
    let second = at(&page, "rounds.1");
    assert_eq!(
        at(second, "calls.count").as_i64(),
        Some(29),
        "one of thirty is hidden"
    );
    assert_eq!(items(second, "calls.items").len(), 24);
    let call = json_of(at(second, "calls.items.0"));
    assert_eq!(call["task_key"], "m1t0");
    assert_eq!(call["name"], "echo");
    assert_eq!(call.get("tool"), None);
    assert_eq!(call["tool_call_id"], "call-0");
    assert_eq!(call["status"], "completed");
    assert_eq!(call["title"], "a title");
    assert_eq!(call["metadata"], json!({"k": 1}));
    assert_eq!(call["output_bytes"], 8 + 1200);
    let aliased = json_of(at(second, "calls.items.1"));
    assert_eq!(
        (&aliased["task_key"], &aliased["name"], &aliased["tool"]),
        (&json!("m1t2"), &json!("say"), &json!("echo"))
    );
    assert!(items(second, "branches").is_empty());
    // A hidden round's place is looked at, not shown.
    let page = read(&app, &world, &run, "transcript?limit=2").await;
    assert_eq!(texts(&page, "rounds", "task_key"), ["m4"]);
    assert_eq!(at(&page, "pagination.has_older").as_bool(), Some(true));
    app.finish().await;
}

/// §9: rows that were compiled and wait show too, without text.
#[tokio::test]
async fn a_round_that_waits_shows_without_text() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    sql.batch_execute(
        "INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, mark, lifetime, wake, on_failure,
                visibility, lineage_no, tip_no, remaining, after_keys)
         SELECT account_id, run_id, 2, 'm', 'model_task', 'queued', 'author', 'round', 'conversation', 'auto', 'halt',
                'visible', 2, 2, 1, '{a}' FROM runs;
         INSERT INTO edges SELECT account_id, run_id, 1, 2, 0, true, 'open' FROM runs;
         UPDATE runs SET n_tasks = 2, n_open = 2, mainline_tail_no = 2, deliverable_no = 2",
    )
    .await
    .unwrap();
    let page = read(&app, &world, &run, "transcript").await;
    assert_eq!(
        json_of(at(&page, "rounds")),
        json!([{"task_key": "m", "mainline": true, "status": "waiting", "visibility": "visible",
                "calls": {"count": 0, "items": []}, "branches": []}])
    );
    app.finish().await;
}

/// §9: `prefix=<call key>` pages that call's branch (`mainline:false`); a prefix that is no call → 404.
#[tokio::test]
async fn a_prefix_pages_the_branch_of_a_call() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    // a 1, m1 2, m1t0 3, m2 4, m2t0 5.
    mainline(&sql, &run, 2, 1, 0).await;
    // Two branches under m1t0: b1 with a call and its continuation c1; b2 alone.
    sql.batch_execute(
        "INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, mark, lifetime, wake, on_failure,
                visibility, lineage_no, tip_no, expansion_parent_no, input_from, remaining, settle_seq, completed_at,
                claim_digest)
         SELECT account_id, run_id, v.no, v.key, v.kind, 'completed', 'model', v.mark, 'conversation', 'auto', 'absorb',
                'visible', v.lineage, v.tip, v.parent, v.reads::int[], 0, 2000000 + v.no, now(), '\\x00'
           FROM runs, (VALUES (6, 'b1', 'model_task', 'branch', 6, 8, 3, '{}'),
                              (7, 'b1t0', 'tool_task', NULL, 7, 7, 6, '{}'),
                              (8, 'c1', 'model_task', 'branch', 6, 8, 6, '{6,7}'),
                              (9, 'b2', 'model_task', 'branch', 9, 9, 3, '{}'))
                AS v(no, key, kind, mark, lineage, tip, parent, reads);
         INSERT INTO task_results (account_id, run_id, task_no, generation, content, digest)
         SELECT account_id, run_id, n, 0, '[]', '\\x00' FROM runs, generate_series(6, 9) n;
         UPDATE runs SET n_tasks = 9",
    )
    .await
    .unwrap();
    let main = read(&app, &world, &run, "transcript").await;
    assert_eq!(texts(&main, "rounds", "task_key"), ["m1", "m2"]);
    assert_eq!(
        json_of(at(&main, "rounds.1.branches")),
        json!(["m1t0"]),
        "what prefix takes"
    );
    let branch = read(&app, &world, &run, "transcript?prefix=m1t0").await;
    assert_eq!(texts(&branch, "rounds", "task_key"), ["b1", "c1", "b2"]);
    for round in items(&branch, "rounds") {
        assert_eq!(at(round, "mainline").as_bool(), Some(false));
    }
    assert_eq!(texts(&branch, "rounds.1.calls.items", "task_key"), ["b1t0"]);
    let newest = read(&app, &world, &run, "transcript?prefix=m1t0&limit=2").await;
    assert_eq!(texts(&newest, "rounds", "task_key"), ["c1", "b2"]);
    let next = text(&newest, "pagination.next_before");
    let older = format!("transcript?prefix=m1t0&limit=2&before={next}");
    let older = read(&app, &world, &run, &older).await;
    assert_eq!(texts(&older, "rounds", "task_key"), ["b1"]);
    assert_eq!(at(&older, "pagination.has_older").as_bool(), Some(false));
    let none = read(&app, &world, &run, "transcript?prefix=m2t0").await;
    assert!(items(&none, "rounds").is_empty(), "a call without a branch");
    let base = format!("{}/{run}/transcript", world.runs());
    for prefix in ["m1", "nobody", "..", "%00"] {
        app.get(&format!("{base}?prefix={prefix}"), &world.human.token)
            .await
            .expect(404, "not_found");
    }
    // A cursor of a branch is none of the mainline's.
    app.get(&format!("{base}?before={next}"), &world.human.token)
        .await
        .expect(400, "parameter_invalid");
    app.finish().await;
}

/// §9: cost follows the page, never the run.
#[tokio::test]
async fn a_transcript_page_costs_the_same_on_a_long_run() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    greet(&app, &world).await;
    let short = created(&app, &world, json!([world.routed("a", "echo")])).await;
    let long = created(&app, &world, json!([world.routed("a", "echo")])).await;
    mainline(&sql, &short, 20, 3, 0).await;
    mainline(&sql, &long, 1000, 3, 0).await;
    let (of_short, _) = cost(&app, &world, &short, "transcript?limit=5").await;
    let (of_long, page) = cost(&app, &world, &long, "transcript?limit=5").await;
    assert_eq!(of_short, of_long);
    let next = text(&page, "pagination.next_before").to_owned();
    let what = format!("transcript?limit=5&before={next}");
    let (behind, _) = cost(&app, &world, &long, &what).await;
    assert_eq!(behind, of_long, "and so does each page behind it");
    app.finish().await;
}

/// §1: unusable limits and cursors, another direction's or host's or garbage, are 400.
#[tokio::test]
async fn pages_refuse_limits_and_cursors_that_are_not_theirs() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    let other = created(&app, &world, json!([world.routed("a", "echo")])).await;
    mainline(&sql, &run, 3, 0, 0).await;
    mainline(&sql, &other, 3, 0, 0).await;
    let foreign = read(&app, &world, &other, "transcript?limit=1").await;
    let foreign = text(&foreign, "pagination.next_before").to_owned();
    let events = read(&app, &world, &run, "events?limit=1").await;
    let events = text(&events, "pagination.next_after").to_owned();
    let runs = format!("{}?limit=1", world.runs());
    let runs = app.get(&runs, &world.human.token).await.ok(200);
    let runs = text(&runs, "pagination.next_after").to_owned();
    let base = format!("{}/{run}", world.runs());
    let refused = async |path: String, parameter: &str| {
        let error = app
            .get(&path, &world.human.token)
            .await
            .expect(400, "parameter_invalid");
        assert_eq!(text(&error, "parameter"), parameter, "{path}");
    };
    for limit in ["0", "201", "-1", "1e2", "01", "", "x"] {
        refused(format!("{base}/transcript?limit={limit}"), "limit").await;
        refused(format!("{base}/events?limit={limit}"), "limit").await;
    }
    // One that names a row which is no key, or no row of the run.
    let made = |word: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::URL_SAFE_NO_PAD
            .encode(format!("1:transcript:before:{run}/{word}"))
    };
    for cursor in [
        foreign.as_str(),
        &events,
        &runs,
        "garbage",
        "",
        &"a".repeat(600),
        &made("nobody"),
        &made("a"),
        &made("\0"),
    ] {
        refused(format!("{base}/transcript?before={cursor}"), "before").await;
    }
    for cursor in [foreign.as_str(), &runs, "garbage"] {
        refused(format!("{base}/events?after={cursor}"), "after").await;
    }
    app.finish().await;
}

/// §2, §9: nothing is sealed before a round runs; an unknown key is the ordinary 404.
#[tokio::test]
async fn a_request_that_was_not_sealed_is_absent_by_name() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    mainline(&sql, &run, 1, 0, 0).await;
    let path = |key: &str| format!("{}/{run}/tasks/{key}/request", world.runs());
    for key in ["a", "m1"] {
        app.get(&path(key), &world.human.token)
            .await
            .expect(404, "request_not_sealed");
    }
    for key in ["nobody", "..."] {
        app.get(&path(key), &world.human.token)
            .await
            .expect(404, "not_found");
    }
    app.finish().await;
}

/// §1: what the caller cannot read, and a key or run that is not there, are all 404; one that may only
/// read may read all of it; a run is not found under another workspace.
#[tokio::test]
async fn reads_are_for_readers_and_conceal_everything_else() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let elsewhere = World::in_database(&sql, "b").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    sql.execute(
        "UPDATE grants SET access = 'read' WHERE member_id = $1",
        &[&world.agent.id],
    )
    .await
    .unwrap();
    let another: uuid::Uuid = sql
        .query_one(
            "INSERT INTO workspaces (account_id, public_id, name) VALUES ($1, gen_random_uuid(), 'w') RETURNING public_id",
            &[&world.account],
        )
        .await
        .unwrap()
        .get(0);
    sql.execute(
        "INSERT INTO grants SELECT account_id, workspace_id, $2, 'write' FROM workspaces WHERE public_id = $1",
        &[&another, &world.human.id],
    )
    .await
    .unwrap();
    let run_of =
        |workspace: &str, run: &str| format!("/agent_api/v1/workspaces/{workspace}/runs/{run}");
    let own = world.workspace_public_id.to_string();
    for what in ["graph", "phases", "transcript", "events"] {
        let path = format!("{}/{what}", run_of(&own, &run));
        app.get(&path, &world.agent.token).await.ok(200);
        app.get(&path, &elsewhere.human.token)
            .await
            .expect(404, "not_found");
        let absent = [
            run_of(&another.to_string(), &run),
            run_of(&own, "01a22e11-0000-7000-8000-000000000000"),
            run_of(&own, "no-id"),
            run_of("no-id", &run),
        ];
        for path in absent {
            app.get(&format!("{path}/{what}"), &world.human.token)
                .await
                .expect(404, "not_found");
        }
    }
    app.finish().await;
}

/// §13, §14: items older than thirty days go in bounded statements, host by host; what is younger
/// stays; the watermark outlives them, and sequences are never reused.
#[tokio::test]
async fn the_watermark_of_a_feed_outlives_its_items() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    app.advance(Duration::ZERO).await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "echo"), world.routed("b", "echo")]),
        )
        .await;
    let quiet = created(&app, &world, json!([world.routed("a", "echo")])).await;
    let of_old = read(&app, &world, &run, "events").await;
    let old = at(&of_old, "pagination.watermark").as_i64().unwrap();
    let cursor = text(&of_old, "events.0.cursor").to_owned();
    app.advance(Duration::from_secs(29 * 86_400)).await;
    let token = world.claim(&app, &run, "a").await;
    world.commit(&app, &run, "a", &token).await.ok(200);
    let sweep = async || {
        let body = json!({"sweep": "events"});
        app.post(
            "/operator_api/v1/sweeper/run",
            crate::support::OPERATOR,
            body,
        )
        .await
        .ok(202);
    };
    sweep().await;
    let all = read(&app, &world, &run, "events").await;
    let mark = at(&all, "pagination.watermark").as_i64().unwrap();
    assert_eq!(items(&all, "events").len(), usize::try_from(mark).unwrap());
    app.advance(Duration::from_secs(86_400 + 60)).await;
    sweep().await;
    let left = read(&app, &world, &run, "events").await;
    assert_eq!(at(&left, "pagination.watermark").as_i64(), Some(mark));
    assert_eq!(at(&left, "events.0.sequence").as_i64(), Some(old + 1));
    assert_eq!(
        items(&left, "events").len(),
        usize::try_from(mark - old).unwrap()
    );
    // A reader from before: what is left comes, in order, after its place.
    let behind = read(&app, &world, &run, &format!("events?after={cursor}")).await;
    assert_eq!(at(&behind, "events.0.sequence").as_i64(), Some(old + 1));
    // An empty page with a higher watermark says: refresh from durable reads.
    let silent = read(&app, &world, &quiet, "events").await;
    assert!(items(&silent, "events").is_empty());
    assert!(at(&silent, "pagination.watermark").as_i64().unwrap() > 0);
    // What comes next goes on behind the watermark.
    world.stop(&app, &run).await.ok(200);
    let more = read(&app, &world, &run, "events").await;
    let sequences: Vec<i64> = items(&more, "events")
        .iter()
        .map(|e| at(e, "sequence").as_i64().unwrap())
        .collect();
    let end = at(&more, "pagination.watermark").as_i64().unwrap();
    assert_eq!(sequences, (old + 1..=end).collect::<Vec<_>>());
    assert!(end > mark);
    app.finish().await;
}
