//! Statements and their plans (BR-090, `style.md` "The store"): each prepares on a migrated database,
//! and the hot ones read by index alone, whatever the statistics say.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::time::Instant;

use nexus::store::{self, Sql, Statements};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::support::seed::{READ_ONLY, World, claim_token, door, serve};
use crate::support::{TestApp, text};

/// Every list of statements, by file.
const LISTS: &[(&str, &[&Sql])] = &[
    ("apply::statements", store::apply::statements::STATEMENTS),
    ("births", store::births::STATEMENTS),
    ("credentials", store::credentials::STATEMENTS),
    ("due", store::due::STATEMENTS),
    ("inbox::batch", store::inbox::batch::STATEMENTS),
    ("inbox::list", store::inbox::list::STATEMENTS),
    ("inbox::proof", store::inbox::proof::STATEMENTS),
    ("inbox::single", store::inbox::single::STATEMENTS),
    ("operations", store::operations::STATEMENTS),
    ("reads", store::reads::STATEMENTS),
    ("retention", store::retention::STATEMENTS),
    ("run_tx::statements", store::run_tx::statements::STATEMENTS),
    ("runs", store::runs::STATEMENTS),
    ("shell", store::shell::STATEMENTS),
    ("tombstones", store::tombstones::STATEMENTS),
    ("uploads", store::uploads::STATEMENTS),
    ("views", store::views::STATEMENTS),
];

#[tokio::test]
async fn every_statement_prepares_with_the_types_it_names() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let mut names = std::collections::BTreeSet::new();
    for (file, list) in LISTS {
        assert!(!list.is_empty(), "{file} lists nothing");
        for statement in *list {
            assert!(
                names.insert(statement.name),
                "{} is listed twice",
                statement.name
            );
            let prepared = sql
                .prepare_typed(statement.text, statement.types)
                .await
                .unwrap_or_else(|e| panic!("{}: {e:?}", statement.name));
            assert_eq!(prepared.params(), statement.types, "{}", statement.name);
        }
    }
    println!("{} statements prepare", names.len());
    drop(sql);
    app.finish().await;
}

/// `NEXUS_DB_STATEMENTS=unnamed`: the same road without prepared statements.
#[tokio::test]
async fn the_main_road_is_travelled_without_prepared_statements_too() {
    let app = TestApp::with()
        .set("NEXUS_DB_STATEMENTS", "unnamed")
        .start()
        .await;
    assert_eq!(app.app().config.database.statements, Statements::Unnamed);
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "echo"), world.routed("b", "write_note")]),
        )
        .await;
    for (key, end) in [("a", "completed"), ("b", "failed")] {
        let granted = app
            .request(
                reqwest::Method::POST,
                &door(&run, key, "claim"),
                &world.runner.token,
            )
            .header("idempotency-key", key)
            .send()
            .await;
        claim_token(&granted);
        let again = app
            .request(
                reqwest::Method::POST,
                &door(&run, key, "claim"),
                &world.runner.token,
            )
            .header("idempotency-key", key)
            .send()
            .await;
        let token = claim_token(&again);
        let body = json!({"claim_token": token, "timeout_ms": 1000});
        app.post(&door(&run, key, "extend"), &world.runner.token, body)
            .await
            .ok(200);
        let body = json!({"claim_token": token, "outcome": end, "structured_content": null});
        app.post(&door(&run, key, "commit"), &world.runner.token, body)
            .await
            .ok(200);
    }
    assert_eq!(
        text(&world.show(&app, &run).await, "run.status"),
        "needs_attention"
    );
    app.get(&world.runs(), &world.human.token).await.ok(200);
    let second = world.run(&app, json!([world.routed("a", "echo")])).await;
    let taken = app
        .post(
            "/agent_api/v1/executor/inbox/claims",
            &world.runner.token,
            json!({}),
        )
        .await
        .ok(200);
    assert_eq!(text(&taken, "claims.0.task.run_public_id"), second);
    app.advance(std::time::Duration::from_secs(601)).await;
    assert_eq!(world.sweep(&app, 0, &second, &[1]).await, 1);
    let third = world.run(&app, json!([world.routed("a", "echo")])).await;
    world.stop(&app, &third).await.ok(200);
    app.finish().await;
}

/// Tables that grow with work: never read as a whole.
const HOT: &[&str] = &[
    "runs",
    "tasks",
    "task_inputs",
    "task_results",
    "edges",
    "parks",
    "waits",
    "open_failures",
    "run_events",
    "receipts",
    "uploads",
    "upload_bindings",
];

/// Statements off the hot road whose plan, if it was made on empty tables, reads more until the next
/// analysis (1,000 changed rows): a repeated create, a recovered claim, reads of members, an hourly
/// delete.
const COLD: &[&str] = &[
    "runs.receipt",
    "inbox.recover",
    "views.task_detail",
    "views.tasks_of_run",
    "reads.graph",
    "reads.receipts",
    "reads.place",
    "tombstones.runs",
];

/// A run among 2,000 of 50 settled rows each, its neighbours, and a little open work.
pub async fn history(sql: &Client, world: &World) {
    let (account, workspace, human, runner) = (
        world.account,
        world.workspace,
        world.human.id,
        world.runner.id,
    );
    let other = world.application.id;
    sql.batch_execute(&format!(
        "INSERT INTO runs (account_id, run_id, public_id, workspace_id, creator_id, principal_id, status, deliverable_no,
                mainline_tail_no, approval_mode, n_tasks, event_seq, created_at, started_at, completed_at)
         SELECT {account}, 1000000 + g, gen_random_uuid(), {workspace}, {human}, {human}, 'completed', 50, 50, 'bypass', 50, 50,
                now(), now(), now() FROM generate_series(1, 2000) g;
         INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, lifetime, wake, on_failure, visibility,
                lineage_no, tip_no, remaining, tool_name, target_executor_id, addressed_role, addressed_executor_id,
                started_at, claimed_by_id, claimed_at, claim_digest, settle_seq, completed_at)
         SELECT {account}, 1000000 + g, n, 'h' || n, 'tool_task', 'completed', 'author', 'conversation', 'auto', 'propagate',
                'collapsed', n, n, 0, 'echo', {runner}, 'runner', {runner}, now(), {runner}, now(), '\\x00', n, now()
           FROM generate_series(1, 2000) g, generate_series(1, 50) n;
         INSERT INTO task_inputs (account_id, run_id, task_no, tool_input)
         SELECT account_id, run_id, task_no, '{{}}' FROM tasks WHERE run_id > 1000000;
         INSERT INTO task_results (account_id, run_id, task_no, generation, content, digest)
         SELECT account_id, run_id, task_no, 0, '[]', '\\x00' FROM tasks WHERE run_id > 1000000;
         INSERT INTO edges (account_id, run_id, from_no, to_no, ordinal, structural, state)
         SELECT account_id, run_id, task_no - 1, task_no, 0, false, 'met' FROM tasks WHERE run_id > 1000000 AND task_no > 1;
         INSERT INTO run_events (account_id, host_id, seq, type, payload, created_at)
         SELECT account_id, run_id, task_no, 'turn_status', '{{}}', now() FROM tasks WHERE run_id > 1000000;
         INSERT INTO parks (account_id, run_id, task_no, kind, executor_id, pool_name, deadline_at, due_at, timeout_ms, replayable,
                generation, started_at, run_shard)
         SELECT account_id, run_id, task_no, 'tool_call', CASE WHEN task_no % 2 = 0 THEN {other} END,
                CASE WHEN task_no % 2 = 1 THEN 'elsewhere' END, now(), now(), 1, false, 0, now(), 0
           FROM tasks WHERE run_id > 1000000 AND run_id <= 1000400;
         INSERT INTO open_failures (account_id, run_id, task_no) SELECT account_id, run_id, task_no FROM parks WHERE run_id > 1000000;
         UPDATE runs SET status = 'running', completed_at = NULL, n_unresolved = 1 WHERE run_id > 1000000 AND run_id <= 1000010;
         INSERT INTO waits (account_id, run_id, task_no, observes_no)
         SELECT account_id, run_id, task_no, task_no - 1 FROM parks WHERE run_id > 1000000 AND task_no > 1;
         INSERT INTO receipts (account_id, door, scope_id, caller_id, key, fingerprint, run_id, body, created_at)
         SELECT account_id, 'run_create', workspace_id, creator_id, 'h' || run_id, '\\x00', run_id, '{{}}', now() FROM runs
          WHERE run_id > 1000000"
    ))
    .await
    .expect("a history is written");
}

/// A hot statement with arguments that find something, and the most rows it may touch.
struct Hot {
    sql: &'static Sql,
    arguments: String,
    rows: u64,
}

fn statement(name: &str) -> &'static Sql {
    LISTS
        .iter()
        .flat_map(|(_, list)| list.iter())
        .find(|s| s.name == name)
        .unwrap_or_else(|| panic!("no statement {name}"))
}

/// Arguments about run `run` (inner `id`), whose row 1 is claimed and row 2 waits for it.
fn hot(world: &World, run: &str, id: i64, lookup: &str) -> Vec<Hot> {
    let (a, w, e, m) = (
        world.account,
        world.workspace,
        world.runner.id,
        world.human.id,
    );
    let runs = format!("ARRAY[{a}]::bigint[], ARRAY['{run}']::uuid[]");
    let at = format!("ARRAY[{a}]::bigint[], ARRAY[{id}]::bigint[]");
    let mut list = Vec::new();
    let mut add = |name: &str, rows: u64, arguments: String| {
        list.push(Hot {
            sql: statement(name),
            arguments,
            rows,
        });
    };
    add("credentials.executor", 10, format!("'{lookup}'"));
    add("credentials.member", 10, format!("'{lookup}'"));
    add("credentials.executor_seen", 10, format!("{a}, {e}"));
    add("inbox.caller", 10, format!("{a}, {e}"));
    add("inbox.claim_facts", 40, format!("{a}, {e}, '{run}', 'a'"));
    let take = format!(
        "{a}, {e}, ARRAY[{id}]::bigint[], ARRAY[1]::int[], ARRAY[0]::int[], ARRAY['\\x00']::bytea[]"
    );
    add(
        "inbox.deal",
        80,
        format!(
            "{a}, {e}, ARRAY[{id}]::bigint[], ARRAY[1]::int[], ARRAY[0]::int[], 1, ARRAY['\\x00']::bytea[],
             ARRAY['\\x00']::bytea[], ARRAY['k']"
        ),
    );
    add(
        "inbox.grant_one",
        40,
        format!("{a}, {e}, {id}, 1, 0, '\\x00', 1, NULL"),
    );
    add("inbox.recover", 60, format!("{take}, '\\x00'"));
    add(
        "inbox.claimant",
        10,
        format!("{a}, {e}, ARRAY['k', 'h1000001']"),
    );
    add("inbox.page", 3000, format!("{a}, {e}, 0, 50, false"));
    add(
        "inbox.page",
        3000,
        format!("{a}, {}, 0, 50, true", world.provider.id),
    );
    add("inbox.candidates", 1200, format!("{a}, {e}, 0, 16, false"));
    add(
        "inbox.candidates",
        1200,
        format!("{a}, {}, 0, 16, true", world.provider.id),
    );
    add("inbox.read_claim", 10, format!("{a}, '{run}', 'a'"));
    add("run_tx.lock_wait", 20, format!("{a}, '{run}'"));
    add("run_tx.lock_skip", 20, runs.clone());
    add("run_tx.absent", 20, runs.clone());
    add(
        "run_tx.load_keys",
        60,
        format!("{runs}, ARRAY['a']::text[]"),
    );
    add("run_tx.load_nos", 60, format!("{runs}, ARRAY[1]::int[]"));
    add(
        "run_tx.load_downstream",
        160,
        format!("{runs}, ARRAY[1]::int[]"),
    );
    add("run_tx.load_open", 200, runs.clone());
    add("run_tx.load_ready", 200, format!("{runs}, 64"));
    add("run_tx.lock_parks", 20, format!("{runs}, ARRAY[1]::int[]"));
    add("run_tx.lock_all_parks", 20, runs.clone());
    add(
        "run_tx.load_callers",
        20,
        format!("ARRAY[{a}]::bigint[], ARRAY[{e}]::bigint[]"),
    );
    for tool in ["echo", "skill"] {
        add(
            "run_tx.load_addressees",
            40,
            format!(
                "{runs}, ARRAY[2], ARRAY['{tool}'], ARRAY[{e}]::bigint[], ARRAY[NULL]::bigint[], ARRAY[{id}]::bigint[],
                 ARRAY[NULL]::text[]"
            ),
        );
    }
    add("run_tx.load_failures", 10, runs.clone());
    for name in ["repair", "repair_into", "branch", "branch_into"] {
        add(
            &format!("run_tx.load_{name}"),
            160,
            format!("{runs}, ARRAY['a']"),
        );
    }
    // Row 5 is a race of rows 3 and 4.
    for name in [
        "arms",
        "selections",
        "watchers",
        "observed",
        "bodies",
        "rules",
    ] {
        let no = if matches!(name, "arms" | "selections") {
            5
        } else {
            1
        };
        add(
            &format!("run_tx.load_{name}"),
            100,
            format!("{runs}, ARRAY[{no}]"),
        );
    }
    add("run_tx.load_rests", 40, format!("{runs}, ARRAY[2]"));
    for kind in ["approval", "ask"] {
        add(
            "run_tx.load_resting",
            40,
            format!("{runs}, ARRAY['{kind}']"),
        );
    }
    add("run_tx.load_host", 20, runs.clone());
    add(
        "run_tx.load_standing",
        160,
        format!("{runs}, ARRAY['a'], ARRAY[3]"),
    );
    add("run_tx.load_receipts", 20, format!("{runs}, ARRAY['k']"));
    add("due.drains", 10, "1, 0, '{}', 256".to_owned());
    // Ten runs that a failure may hold, each with its parks.
    add("due.unjudged", 600, "0, 1, 0, 256".to_owned());
    add(
        "apply.edges",
        20,
        format!("{at}, ARRAY[1], ARRAY[2], ARRAY['met'], 1"),
    );
    add(
        "apply.parks_gone",
        20,
        format!("{at}, ARRAY[1], ARRAY['\\x00']::bytea[], 1"),
    );
    add(
        "apply.parks_later",
        20,
        format!("{at}, ARRAY[1], ARRAY[now()], 1"),
    );
    add(
        "apply.parks_earlier",
        20,
        format!("{at}, ARRAY[1], ARRAY[now() - interval '1 hour'], 1"),
    );
    add(
        "apply.tasks",
        20,
        format!(
            "{at}, ARRAY[1], ARRAY['dispatched'], ARRAY[0], ARRAY[0], ARRAY['runner'], ARRAY[{e}::bigint], ARRAY[NULL]::text[],
             ARRAY[NULL]::timestamptz[], ARRAY[now()], ARRAY[NULL]::bigint[], ARRAY[NULL]::timestamptz[], ARRAY[NULL]::bytea[],
             ARRAY[NULL]::text[], ARRAY[NULL]::text[], ARRAY[NULL]::text[], ARRAY[false], ARRAY[false], ARRAY[NULL]::int[],
             ARRAY[NULL]::timestamptz[], ARRAY[NULL]::uuid[], ARRAY[NULL]::int[], ARRAY[NULL]::int[], ARRAY[false], ARRAY[0],
             ARRAY[NULL]::text[], 1"
        ),
    );
    let none = "ARRAY[NULL]::timestamptz[]";
    add(
        "apply.runs",
        20,
        format!(
            "{at}, ARRAY['running'], ARRAY[1], ARRAY[2], ARRAY[2], ARRAY[2], ARRAY[2], ARRAY[0], ARRAY[1], ARRAY[0], ARRAY[0],
             ARRAY[0], ARRAY[0], ARRAY[9::bigint], ARRAY[false], ARRAY[NULL]::text[], ARRAY[NULL]::text[], ARRAY[NULL]::text[],
             ARRAY[false], ARRAY[now()], {none}, {none}, {none}, {none}, ARRAY[0], ARRAY[0], ARRAY[0],
             ARRAY[0], 1"
        ),
    );
    add(
        "apply.clocks",
        20,
        format!("{at}, ARRAY[true], ARRAY[1000::bigint]"),
    );
    add(
        "apply.waits_gone",
        20,
        format!("{at}, ARRAY[2], ARRAY[1], 1"),
    );
    add("apply.receipts_expired", 10, format!("{at}, ARRAY['k']"));
    // What is inserted reads nothing.
    for (name, rest) in [
        ("apply.waits_new", "ARRAY[99], ARRAY[98]"),
        ("apply.failures_new", "ARRAY[99]"),
        (
            "apply.receipts",
            "ARRAY['new'], ARRAY['\\x00']::bytea[], ARRAY['{}'], ARRAY[now()]",
        ),
        (
            "apply.results",
            "ARRAY[99], ARRAY[0], ARRAY['[]'], ARRAY[NULL]::text[], ARRAY[NULL]::text[], ARRAY[NULL]::text[],
             ARRAY[NULL]::bytea[], ARRAY[NULL]::text[]",
        ),
        (
            "apply.parks_new",
            "ARRAY[99], ARRAY['ask'], ARRAY[NULL]::bigint[], ARRAY[NULL]::text[], ARRAY[now()], ARRAY[1]::bigint[],
             ARRAY[NULL]::bigint[], ARRAY[NULL]::text[], ARRAY[false], ARRAY[0], ARRAY[now()], ARRAY[0]::smallint[],
             ARRAY[false]",
        ),
        (
            "births.tasks",
            "ARRAY[99], ARRAY['new'], ARRAY['tool_task'], ARRAY['author'], ARRAY[NULL]::text[], ARRAY[false],
             ARRAY['conversation'], ARRAY['auto'], ARRAY['propagate'], ARRAY[NULL]::text[], ARRAY['collapsed'],
             ARRAY[NULL]::int[], ARRAY['{}'], ARRAY['{}'], ARRAY['{}'], ARRAY[0], ARRAY['echo'], ARRAY[NULL]::bigint[],
             ARRAY[NULL]::bigint[], ARRAY[NULL]::text[], ARRAY[NULL]::text[], ARRAY[NULL]::int[], ARRAY[NULL]::text[],
             ARRAY[NULL]::int[], ARRAY[NULL]::int[], ARRAY[NULL]::bytea[], ARRAY[NULL]::int[], ARRAY[NULL]::int[], ARRAY[NULL]::int[],
             ARRAY[false], ARRAY[false], ARRAY[NULL]::text[], ARRAY[NULL]::int[], ARRAY[NULL]::text[]",
        ),
        (
            "births.inputs",
            "ARRAY[99], ARRAY['{}'], ARRAY[NULL]::text[], ARRAY[NULL]::text[]",
        ),
        (
            "births.edges",
            "ARRAY[98], ARRAY[99], ARRAY[0], ARRAY[true], ARRAY['open'], ARRAY[NULL]::int[]",
        ),
    ] {
        add(name, 0, format!("{at}, {rest}"));
    }
    add("apply.failures_gone", 10, format!("{at}, ARRAY[1], 0"));
    add("views.tasks_by_no", 60, format!("{runs}, ARRAY[1]::int[]"));
    add("views.tasks_of_run", 120, format!("{a}, {id}"));
    add("views.task_detail", 60, format!("{a}, {id}, 'b'"));
    add(
        "runs.standing",
        10,
        format!("{a}, '{}', {m}", world.workspace_public_id),
    );
    add("runs.birth", 10, format!("{a}, {m}"));
    add("runs.receipt", 10, format!("{a}, {w}, {m}, 'h1000001'"));
    add(
        "runs.receipt_expire",
        10,
        format!("{a}, {w}, {m}, 'h1000001'"),
    );
    add("runs.document", 20, format!("{a}, {w}, '{run}'"));
    add("runs.find", 10, format!("{a}, {w}, '{run}'"));
    let nil = uuid::Uuid::nil();
    // A page of each state, and what of the page is shown.
    for (name, from) in [("asc", nil), ("desc", uuid::Uuid::max())] {
        let page = format!("{a}, {w}, '{from}'");
        for statuses in [
            "'running'",
            "'completed'",
            "'canceled', 'pending', 'running'",
        ] {
            let most = 110 * statuses.split(',').count() as u64;
            for list in ["list", "attention"] {
                add(
                    &format!("runs.{list}_{name}"),
                    most,
                    format!("{page}, ARRAY[{statuses}]::text[], 100"),
                );
            }
        }
    }
    add("reads.graph", 60, format!("{a}, {id}"));
    add("reads.receipts", 10, format!("{a}, {id}"));
    add("reads.progress", 20, format!("{a}, {id}"));
    add("reads.kind", 10, format!("{a}, {id}, 'a'"));
    add("reads.place", 20, format!("{a}, {id}, 'a', 'a'"));
    add("reads.mainline", 20, format!("{a}, {id}, 500, 1, 1, 101"));
    add("reads.branch", 20, format!("{a}, {id}, 500, 1, 1, 101, 1"));
    add(
        "reads.calls",
        40,
        format!("{a}, {id}, 500, ARRAY[1, 2], 24, 4096"),
    );
    add("shell.lock", 20, format!("{a}, '{run}'"));
    add(
        "shell.executor",
        10,
        format!("{a}, '{}'", world.runner.public_id),
    );
    add("shell.shows", 10, format!("{a}, '{run}'"));
    add("shell.delete", 10, format!("{a}, '{run}'"));
    // A window of hosts costs a row each, whatever they hold.
    add("retention.events", 220, "0, 0, 1, 0, 100, 5000".to_owned());
    add("tombstones.due", 10, "1, 0, 100".to_owned());
    for table in [
        "parks",
        "waits",
        "open_failures",
        "edges",
        "task_results",
        "task_inputs",
        "tasks",
        "run_events",
        "receipts",
    ] {
        add(
            &format!("tombstones.{table}"),
            110,
            format!("ARRAY[{a}]::bigint[], ARRAY[1000001]::bigint[], 5000"),
        );
    }
    add(
        "tombstones.files_held",
        10,
        format!("ARRAY[{a}]::bigint[], ARRAY[{id}]::bigint[], 5000"),
    );
    add(
        "tombstones.files_unbound",
        10,
        format!("ARRAY[{a}]::bigint[], ARRAY[{id}]::bigint[], ARRAY[1]::bigint[], ARRAY[1]::int[]"),
    );
    add(
        "tombstones.runs",
        10,
        format!("ARRAY[{a}]::bigint[], ARRAY[{id}]::bigint[]"),
    );
    add(
        "uploads.captures",
        10,
        format!("{a}, ARRAY['{nil}']::uuid[]"),
    );
    list
}

/// Walks a plan: sequential scans of hot tables, and rows touched by its scans.
fn walk(node: &Value, scans: &mut Vec<String>, touched: &mut u64) {
    let kind = node["Node Type"].as_str().unwrap_or_default();
    if let Some(table) = node["Relation Name"].as_str() {
        let number = |name: &str| node[name].as_f64().unwrap_or(0.0);
        if kind == "Seq Scan" && HOT.contains(&table) {
            scans.push(table.to_owned());
        }
        if kind.contains("Scan") && HOT.contains(&table) {
            let rows = number("Actual Rows")
                + number("Rows Removed by Filter")
                + number("Rows Removed by Index Recheck");
            *touched += (rows * number("Actual Loops")).round() as u64;
        }
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        walk(child, scans, touched);
    }
}

/// Prepares a statement as the server would; `name` keeps its plan on this connection.
async fn prepare(sql: &Client, hot: &Hot, name: &str) {
    let types: Vec<&str> = hot.sql.types.iter().map(|t| t.name()).collect();
    let types = if types.is_empty() {
        String::new()
    } else {
        format!("({})", types.join(", "))
    };
    sql.batch_execute(&format!("PREPARE {name} {types} AS {}", hot.sql.text))
        .await
        .unwrap_or_else(|e| panic!("{}: {e:?}", hot.sql.name));
}

/// Executes a prepared statement under EXPLAIN and takes it back; says what is wrong with its plan.
async fn judge(sql: &Client, hot: &Hot, name: &str) -> Option<String> {
    let explain = format!(
        "BEGIN; EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {name}({}); ROLLBACK",
        hot.arguments
    );
    let text: String = sql
        .simple_query(&explain)
        .await
        .unwrap_or_else(|e| panic!("{}: {e:?}", hot.sql.name))
        .iter()
        .filter_map(|m| match m {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect();
    let plan: Value = serde_json::from_str(&text).expect("EXPLAIN gives JSON");
    let (mut scans, mut touched) = (Vec::new(), 0);
    walk(&plan[0]["Plan"], &mut scans, &mut touched);
    let compiled = plan[0].get("JIT").is_some();
    let fine = scans.is_empty() && touched <= hot.rows && !compiled;
    if !fine && std::env::var_os("NEXUS_TEST_PLANS").is_some() {
        println!("{}\n{text}", hot.sql.name);
    }
    (!fine).then(|| {
        format!(
            "seq scans {scans:?}, {touched} rows touched of {}, compiled: {compiled}",
            hot.rows
        )
    })
}

/// A session with the settings of the server's own.
async fn session(app: &TestApp) -> Client {
    let (client, connection) = app
        .app()
        .config
        .database
        .connect
        .connect(tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

/// BR-090: 10⁵ settled rows and 20,000 open ones, with statistics that are of an empty database,
/// stale, fresh or missing, with generic and custom plans, and with plans that were made while there
/// was nothing: index scans alone, and no more rows than the answer is made of.
#[tokio::test]
async fn hot_statements_read_by_index_whatever_the_statistics_say() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    for table in HOT {
        sql.batch_execute(&format!(
            "ALTER TABLE {table} SET (autovacuum_enabled = false)"
        ))
        .await
        .unwrap();
    }
    let run = world
        .run(
            &app,
            json!([
                world.routed("a", "echo"),
                world.routed("b", "echo"),
                {"parallel": [world.routed("c", "echo"), world.routed("d", "echo")], "until": "any"},
                world.routed("e", "echo"),
            ]),
        )
        .await;
    world.claim(&app, &run, "a").await;
    serve(&sql, world.account, &world.runner, "skill", READ_ONLY, None).await;
    sql.batch_execute("INSERT INTO waits (account_id, run_id, task_no, observes_no) SELECT account_id, run_id, 2, 1 FROM runs")
        .await
        .unwrap();
    // A digest that the statements below can name.
    sql.batch_execute("UPDATE parks SET claim_digest = '\\x00' WHERE claimed_at IS NOT NULL")
        .await
        .unwrap();
    let id = crate::support::fleet::number(&sql, "SELECT run_id FROM runs").await;
    let lookup: String = sql
        .query_one(
            "SELECT lookup FROM tokens WHERE executor_id = $1",
            &[&world.runner.id],
        )
        .await
        .unwrap()
        .get(0);
    let hots = hot(&world, &run, id, &lookup);
    let old = session(&app).await;
    old.batch_execute("SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    for (i, hot) in hots.iter().enumerate() {
        prepare(&old, hot, &format!("s{i}")).await;
    }
    let mut bad = String::new();
    for statistics in ["before any history", "stale", "fresh", "missing"] {
        let started = Instant::now();
        match statistics {
            "stale" => history(&sql, &world).await,
            "fresh" => sql.batch_execute("ANALYZE").await.unwrap(),
            "missing" => sql
                .batch_execute("DELETE FROM pg_statistic; UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
                .await
                .unwrap(),
            _ => {}
        }
        let fresh = session(&app).await;
        for (i, hot) in hots.iter().enumerate() {
            let mut found = vec![(
                "plan of the first hour",
                judge(&old, hot, &format!("s{i}")).await,
            )];
            for mode in ["force_generic_plan", "force_custom_plan"] {
                fresh
                    .batch_execute(&format!("DEALLOCATE ALL; SET plan_cache_mode = {mode}"))
                    .await
                    .unwrap();
                prepare(&fresh, hot, "s").await;
                found.push((mode, judge(&fresh, hot, "s").await));
            }
            for (mode, fault) in found {
                let old_and_cold = mode.starts_with("plan of") && COLD.contains(&hot.sql.name);
                if let Some(fault) = fault.filter(|_| !old_and_cold) {
                    writeln!(bad, "{} ({statistics}, {mode}): {fault}", hot.sql.name).unwrap();
                }
            }
        }
        println!(
            "{statistics}: {} statements, three plans each: {:?}",
            hots.len(),
            started.elapsed()
        );
    }
    assert!(bad.is_empty(), "\n{bad}");
    drop(old);
    sql.batch_execute("TRUNCATE runs, tasks, task_inputs, task_results, edges, parks, waits, open_failures, run_events, receipts").await.unwrap();
    app.finish().await;
}

/// `runs.md` §2, the list's filters: a page costs a page behind 10⁵ settled runs, whatever is asked
/// for and whatever the statistics say: few of a state among many, many, and none.
#[tokio::test]
async fn filtered_lists_read_their_page_whatever_the_history() {
    const PAGE: u64 = 50;
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    sql.batch_execute("ALTER TABLE runs SET (autovacuum_enabled = false)")
        .await
        .unwrap();
    let (a, w, m) = (world.account, world.workspace, world.human.id);
    // Few live among the old ones, few canceled, few with an attention; and another workspace.
    let history = format!(
        "INSERT INTO runs (account_id, run_id, public_id, workspace_id, creator_id, principal_id, status, approval_mode,
                attention_reason, created_at, completed_at)
         SELECT {a}, 1000000 + g, lpad(to_hex(g), 32, '0')::uuid, {w} + (g % 10 = 9)::int, {m}, {m}, s, 'bypass',
                CASE WHEN s = 'needs_attention' THEN 'step_failures' END, now(),
                CASE WHEN s IN ('completed', 'canceled') THEN now() END
           FROM (SELECT g, CASE g % 5000 WHEN 1 THEN 'running' WHEN 2 THEN 'canceled' WHEN 3 THEN 'needs_attention'
                        ELSE 'completed' END AS s FROM generate_series(1, 100000) g) h"
    );
    let all =
        "'pending', 'running', 'paused', 'needs_attention', 'canceling', 'completed', 'canceled'";
    let mut hots = Vec::new();
    for (name, from) in [("asc", uuid::Uuid::nil()), ("desc", uuid::Uuid::max())] {
        let page = format!("{a}, {w}, '{from}'");
        for statuses in [
            "'running'",
            "'canceled'",
            "'completed'",
            "'paused'",
            "'needs_attention', 'running'",
            all,
        ] {
            for list in ["list", "attention"] {
                hots.push(Hot {
                    sql: statement(&format!("runs.{list}_{name}")),
                    arguments: format!("{page}, ARRAY[{statuses}]::text[], {PAGE}"),
                    rows: PAGE * statuses.split(',').count() as u64,
                });
            }
        }
    }
    let old = session(&app).await;
    old.batch_execute("SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    for (i, hot) in hots.iter().enumerate() {
        prepare(&old, hot, &format!("s{i}")).await;
    }
    let mut bad = String::new();
    for statistics in ["before any history", "stale", "fresh", "missing"] {
        match statistics {
            "stale" => sql.batch_execute(&history).await.unwrap(),
            "fresh" => sql.batch_execute("ANALYZE runs").await.unwrap(),
            "missing" => sql
                .batch_execute("DELETE FROM pg_statistic; UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relname = 'runs'")
                .await
                .unwrap(),
            _ => {}
        }
        let fresh = session(&app).await;
        for (i, hot) in hots.iter().enumerate() {
            let mut found = vec![("first hour", judge(&old, hot, &format!("s{i}")).await)];
            for mode in ["force_generic_plan", "force_custom_plan"] {
                fresh
                    .batch_execute(&format!("DEALLOCATE ALL; SET plan_cache_mode = {mode}"))
                    .await
                    .unwrap();
                prepare(&fresh, hot, "s").await;
                found.push((mode, judge(&fresh, hot, "s").await));
            }
            for (mode, fault) in found {
                if let Some(fault) = fault {
                    let (name, asked) = (hot.sql.name, &hot.arguments);
                    writeln!(bad, "{name} ({statistics}, {mode}) {asked}: {fault}").unwrap();
                }
            }
        }
    }
    assert!(bad.is_empty(), "\n{bad}");
    drop(old);
    sql.batch_execute("TRUNCATE runs").await.unwrap();
    app.finish().await;
}
