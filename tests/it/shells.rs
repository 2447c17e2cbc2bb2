//! A run's default runner and its end (`runs.md` §7, §10, §14): `PUT …/default_runner`, `DELETE …`, and
//! the sweep that reclaims deleted runs.

use std::time::Duration;

use nexus::domain::Value;
use serde_json::json;
use tokio_postgres::Client;

use crate::reads::created;
use crate::support::fleet::{all, number, set_run};
use crate::support::seed::{World, door, executor};
use crate::support::{Answer, Door, OPERATOR, TestApp, at, find, items, text};

fn runner(id: Option<&str>) -> serde_json::Value {
    json!({"default_runner": {"executor_public_id": id}})
}

async fn put(app: &TestApp, world: &World, run: &str, body: serde_json::Value) -> Answer {
    let path = format!("{}/{run}/default_runner", world.runs());
    app.put(&path, &world.human.token, body).await
}

/// The `default_runner_changed` items of a feed.
async fn changes(app: &TestApp, world: &World, run: &str) -> Vec<Value> {
    let path = format!("{}/{run}/events?limit=200", world.runs());
    let page = app.get(&path, &world.human.token).await.ok(200);
    items(&page, "events")
        .iter()
        .filter(|e| text(e, "type") == "default_runner_changed")
        .map(|e| at(e, "payload").clone())
        .collect()
}

/// §10: 200 `{run}`; `default_runner_changed` only on change; null clears; the creation option too.
#[tokio::test]
async fn a_default_runner_is_set_cleared_and_narrated_only_on_change() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let id = world.runner.public_id.to_string();
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    let shown = world.show(&app, &run).await;
    assert!(at(&shown, "run.default_runner").is_null());
    let set = put(&app, &world, &run, runner(Some(&id))).await.ok(200);
    assert_eq!(text(&set, "run.public_id"), run);
    assert_eq!(text(&set, "run.default_runner.executor_public_id"), id);
    put(&app, &world, &run, runner(Some(&id))).await.ok(200);
    let cleared = put(&app, &world, &run, runner(None)).await.ok(200);
    assert!(at(&cleared, "run.default_runner").is_null());
    put(&app, &world, &run, runner(None)).await.ok(200);
    let told = changes(&app, &world, &run).await;
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(text(&told[0], "executor_public_id"), id);
    assert_eq!(text(&told[0], "run_public_id"), run);
    assert!(at(&told[1], "executor_public_id").is_null());
    let body = json!({"run": {"approval_mode": "bypass", "default_runner_executor_public_id": id,
        "steps": [{"tool": {"key": "a", "name": "echo", "route": {"kind": "runner"}}}]}});
    let made = app
        .post(&world.runs(), &world.human.token, body)
        .await
        .ok(201);
    assert_eq!(text(&made, "run.default_runner.executor_public_id"), id);
    app.finish().await;
}

/// §10, §3: missing `404 runner_not_found`; ineligible `409 runner_not_eligible`; 422 on create; nothing
/// is written.
#[tokio::test]
async fn a_runner_that_may_not_work_for_the_run_is_refused() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let elsewhere = World::in_database(&sql, "b").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    let revoked = executor(&sql, world.account, "runner", world.human.id, "gone").await;
    sql.execute(
        "UPDATE executors SET status = 'revoked', revoked_at = now() WHERE executor_id = $1",
        &[&revoked.id],
    )
    .await
    .unwrap();
    let private = executor(&sql, world.account, "runner", world.human.id, "mine").await;
    let stranger: i64 = sql
        .query_one(
            "INSERT INTO members (account_id, public_id, kind, handle) VALUES ($1, gen_random_uuid(), 'human', 'eve')
             RETURNING member_id",
            &[&world.account],
        )
        .await
        .unwrap()
        .get(0);
    sql.execute(
        "UPDATE executors SET assignment_scope = 'user_private', manager_id = $2 WHERE executor_id = $1",
        &[&private.id, &stranger],
    )
    .await
    .unwrap();
    for (id, status, code) in [
        (
            elsewhere.runner.public_id.to_string(),
            404,
            "runner_not_found",
        ),
        (
            world.provider.public_id.to_string(),
            404,
            "runner_not_found",
        ),
        ("no-id".to_owned(), 404, "runner_not_found"),
        (revoked.public_id.to_string(), 409, "runner_not_eligible"),
        (private.public_id.to_string(), 409, "runner_not_eligible"),
    ] {
        put(&app, &world, &run, runner(Some(&id)))
            .await
            .expect(status, code);
        let body = json!({"run": {"approval_mode": "bypass", "steps": [world.routed("a", "echo")],
            "default_runner_executor_public_id": id}});
        let refused = app.post(&world.runs(), &world.human.token, body).await;
        refused.expect(422, "runner_not_eligible");
    }
    let shown = world.show(&app, &run).await;
    assert!(at(&shown, "run.default_runner").is_null());
    assert!(changes(&app, &world, &run).await.is_empty());
    app.finish().await;
}

/// §1, §10: outer parameters are 400, and nothing is cleared by leaving something out.
#[tokio::test]
async fn a_default_runner_must_be_said() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    for (body, code, parameter) in [
        (json!({}), "parameter_missing", "default_runner"),
        (
            json!({"default_runner": null}),
            "parameter_missing",
            "default_runner",
        ),
        (
            json!({"default_runner": "x"}),
            "parameter_invalid",
            "default_runner",
        ),
        (
            json!({"default_runner": {}}),
            "parameter_missing",
            "executor_public_id",
        ),
        (
            json!({"default_runner": {"executor_public_id": 7}}),
            "parameter_invalid",
            "executor_public_id",
        ),
    ] {
        let error = put(&app, &world, &run, body).await.expect(400, code);
        assert_eq!(text(&error, "parameter"), parameter);
    }
    app.finish().await;
}

/// §10: accepted tasks keep their frozen targets; an unknown run is 404.
#[tokio::test]
async fn accepted_tasks_keep_their_targets() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let other = executor(&sql, world.account, "runner", world.human.id, "other").await;
    let first = world.runner.public_id.to_string();
    let body = json!({"run": {"approval_mode": "bypass", "default_runner_executor_public_id": first,
        "steps": [{"tool": {"key": "a", "name": "echo", "route": {"kind": "runner"}}}]}});
    let made = app
        .post(&world.runs(), &world.human.token, body)
        .await
        .ok(201);
    let run = text(&made, "run.public_id").to_owned();
    put(
        &app,
        &world,
        &run,
        runner(Some(&other.public_id.to_string())),
    )
    .await
    .ok(200);
    app.command(&format!("{}/{run}/start", world.runs()), &world.human.token)
        .await
        .ok(200);
    let task = world.task(&app, &run, "a").await;
    assert_eq!(text(&task, "task.target.executor_public_id"), first);
    assert_eq!(text(&task, "task.addressed_to.executor_public_id"), first);
    let nobody = "01a22e11-0000-7000-8000-000000000000";
    put(&app, &world, nobody, runner(None))
        .await
        .expect(404, "not_found");
    app.finish().await;
}

/// §13: changes of the default runner and commits of the run, on three replicas at once, number one
/// feed without gaps (the audit looks), and the last item says what the run shows.
#[tokio::test]
async fn a_default_runner_is_narrated_in_the_order_of_the_run_lock() {
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let mine = world.runner.public_id.to_string();
    let keys: Vec<String> = (0..12).map(|i| format!("k{i}")).collect();
    let calls: Vec<_> = keys.iter().map(|key| world.routed(key, "echo")).collect();
    let steps = json!([{"parallel": calls}, world.routed("last", "echo")]);
    let run = world.run(&app, steps).await;
    let mut claimed = Vec::new();
    for key in &keys {
        claimed.push((key.clone(), world.claim(&app, &run, key).await));
    }
    let commits = claimed.into_iter().enumerate().map(|(i, (key, token))| {
        let (replica, path) = (app.on(i % 3).clone(), door(&run, &key, "commit"));
        let bearer = world.runner.token.clone();
        tokio::spawn(async move {
            let body = json!({"claim_token": token, "content": "x"});
            replica.post(&path, &bearer, body).await.ok(200);
        })
    });
    let puts = (0..12).map(|i| {
        let (replica, bearer) = (app.on(i % 3).clone(), world.human.token.clone());
        let path = format!("{}/{run}/default_runner", world.runs());
        let body = runner((i % 2 == 0).then_some(mine.as_str()));
        tokio::spawn(async move {
            replica.put(&path, &bearer, body).await.ok(200);
        })
    });
    let work: Vec<_> = commits.chain(puts).collect();
    for done in all(work).await {
        done.unwrap();
    }
    let told = changes(&app, &world, &run).await;
    let said: Vec<Option<&str>> = told
        .iter()
        .map(|p| find(p, "executor_public_id").and_then(Value::as_str))
        .collect();
    assert!(
        said.windows(2).all(|w| w[0] != w[1]),
        "only changes: {said:?}"
    );
    let shown = world.show(&app, &run).await;
    let shown = find(&shown, "run.default_runner.executor_public_id").and_then(Value::as_str);
    assert_eq!(said.last().copied().flatten(), shown);
    app.finish().await;
}

async fn delete(app: &TestApp, world: &World, run: &str) -> Answer {
    app.delete(&format!("{}/{run}", world.runs()), &world.human.token)
        .await
}

/// §7: pending, completed and canceled runs are deleted, live ones are `run_busy`; once it is done every
/// surface answers 404 at once.
#[tokio::test]
async fn a_deleted_run_is_hidden_from_every_surface_at_once() {
    let app = TestApp::replicas(2).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let pending = created(&app, &world, json!([world.routed("a", "echo")])).await;
    let completed = world.run(&app, json!([world.routed("a", "echo")])).await;
    let token = world.claim(&app, &completed, "a").await;
    delete(&app, &world, &completed)
        .await
        .expect(409, "run_busy");
    world.commit(&app, &completed, "a", &token).await.ok(200);
    let canceled = world.run(&app, json!([world.routed("a", "echo")])).await;
    world.stop(&app, &canceled).await.ok(200);
    for run in [&pending, &completed, &canceled] {
        let gone = delete(&app, &world, run).await;
        assert_eq!(gone.status.as_u16(), 204, "{gone:?}");
        assert!(gone.body.is_empty());
        let path = format!("{}/{run}", world.runs());
        let reads = [
            "",
            "/graph",
            "/phases",
            "/transcript",
            "/events",
            "/tasks/a",
            "/tasks/a/request",
        ];
        for read in reads {
            app.on(1)
                .get(&format!("{path}{read}"), &world.human.token)
                .await
                .expect(404, "not_found");
        }
        for verb in ["start", "stop"] {
            app.on(1)
                .command(&format!("{path}/{verb}"), &world.human.token)
                .await
                .expect(404, "not_found");
        }
        put(&app, &world, run, runner(None))
            .await
            .expect(404, "not_found");
        delete(&app, &world, run).await.expect(404, "not_found");
        app.on(1)
            .command(&door(run, "a", "claim"), &world.runner.token)
            .await
            .expect(404, "not_found");
        let body = json!({"claim_token": token, "content": "x"});
        app.on(1)
            .post(&door(run, "a", "commit"), &world.runner.token, body)
            .await
            .expect(404, "not_found");
    }
    let list = app.get(&world.runs(), &world.human.token).await.ok(200);
    assert!(items(&list, "runs").is_empty());
    let inbox = app
        .get("/agent_api/v1/executor/inbox", &world.runner.token)
        .await
        .ok(200);
    assert!(items(&inbox, "tasks").is_empty());
    assert_eq!(
        number(&sql, "SELECT count(*) FROM runs").await,
        3,
        "for thirty days"
    );
    app.finish().await;
}

/// §7: every live state is busy.
#[tokio::test]
async fn a_live_run_is_not_deleted_in_any_state() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    for status in ["paused", "needs_attention", "canceling", "running"] {
        set_run(&sql, &run, status).await;
        delete(&app, &world, &run).await.expect(409, "run_busy");
        world.show(&app, &run).await;
    }
    app.finish().await;
}

/// §7: a start and a delete of one pending run, at once on two replicas: one of them wins, never both.
#[tokio::test]
async fn a_start_and_a_delete_have_one_winner() {
    let app = TestApp::replicas(2).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    for _ in 0..8 {
        let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
        let path = format!("{}/{run}", world.runs());
        let (one, two, bearer) = (app.on(0).clone(), app.on(1).clone(), &world.human.token);
        let start = format!("{path}/start");
        let (started, deleted) =
            tokio::join!(one.command(&start, bearer), two.delete(&path, bearer));
        match (started.status.as_u16(), deleted.status.as_u16()) {
            (200, 409) | (404, 204) => {}
            // The start read its answer after the delete of what had started is impossible: a started
            // run is live.
            other => panic!("{other:?}: {started:?} {deleted:?}"),
        }
        let rows = format!(
            "SELECT count(*) FROM parks p JOIN runs r USING (account_id, run_id)
            WHERE r.public_id = '{run}' AND r.deleted_at IS NOT NULL"
        );
        assert_eq!(
            number(&sql, &rows).await,
            0,
            "nothing is dispatched of a deleted run"
        );
    }
    app.finish().await;
}

/// §1: a reader may not delete, nor set a default runner; an archived workspace is not writable; a
/// stranger is told nothing.
#[tokio::test]
async fn deleting_takes_write_standing() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let elsewhere = World::in_database(&sql, "b").await;
    let run = created(&app, &world, json!([world.routed("a", "echo")])).await;
    let path = format!("{}/{run}", world.runs());
    let refused = async |bearer: &str, status: u16, code: &str| {
        app.delete(&path, bearer).await.expect(status, code);
        app.put(&format!("{path}/default_runner"), bearer, runner(None))
            .await
            .expect(status, code);
    };
    refused(&elsewhere.human.token, 404, "not_found").await;
    sql.batch_execute("UPDATE grants SET access = 'read'")
        .await
        .unwrap();
    refused(&world.human.token, 403, "not_authorized").await;
    sql.batch_execute(
        "UPDATE grants SET access = 'write'; UPDATE workspaces SET archived_at = now()",
    )
    .await
    .unwrap();
    refused(&world.human.token, 403, "not_authorized").await;
    world.show(&app, &run).await;
    app.finish().await;
}

/// §4: a create that is repeated after its run was deleted does not bring it back, nor make another.
#[tokio::test]
async fn a_repeated_create_does_not_bring_a_deleted_run_back() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let create = async || {
        app.request(reqwest::Method::POST, &world.runs(), &world.human.token)
            .header("idempotency-key", "k")
            .json(json!({"run": {"approval_mode": "bypass", "steps": [world.routed("a", "echo")]}}))
            .send()
            .await
    };
    let made = create().await.ok(201);
    let run = text(&made, "run.public_id").to_owned();
    assert_eq!(delete(&app, &world, &run).await.status.as_u16(), 204);
    create().await.expect(404, "not_found");
    assert_eq!(number(&sql, "SELECT count(*) FROM runs").await, 1);
    app.finish().await;
}

async fn sweep(door: &Door, name: &str) -> i64 {
    let body = json!({"sweep": name});
    let swept = door
        .post("/operator_api/v1/sweeper/run", OPERATOR, body)
        .await
        .ok(202);
    at(&swept, "rows").as_i64().expect("rows are counted")
}

/// Tables with rows of a run, and the column that names it.
async fn run_tables(sql: &Client) -> Vec<(String, String)> {
    let rows = sql
        .query(
            "SELECT c.table_name::text, c.column_name::text FROM information_schema.columns c
               JOIN information_schema.tables t USING (table_schema, table_name)
              WHERE t.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.column_name IN ('run_id', 'host_id')
              ORDER BY 1",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|r| (r.get(0), r.get(1))).collect()
}

/// §14: a deleted run's rows stay for thirty days, then all of them go, from every table that has any;
/// a neighbour's stay; a file goes with the last run that shows it.
#[tokio::test]
async fn a_deleted_run_is_reclaimed_after_thirty_days() {
    let app = TestApp::replicas(2).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    app.advance(Duration::ZERO).await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let steps = json!([world.routed("a", "echo"), world.routed("b", "echo")]);
        let run = world.run(&app, steps).await;
        for key in ["a", "b"] {
            let token = world.claim(&app, &run, key).await;
            world.commit(&app, &run, key, &token).await.ok(200);
        }
        runs.push(run);
    }
    let (gone, kept) = (&runs[0], &runs[1]);
    // Two files: one that only the deleted run shows, one that both do. And more rows than a batch.
    sql.batch_execute(&format!(
        "INSERT INTO uploads (account_id, public_id, filename, content_type, byte_size, sha256, store, bound_at, created_at)
         SELECT {account}, gen_random_uuid(), f, 'text/plain', 1, '', 'postgres', nexus_now(), nexus_now()
           FROM unnest(ARRAY['own', 'shared']) f;
         INSERT INTO upload_chunks (account_id, upload_id, ordinal, bytes) SELECT account_id, upload_id, 0, 'x' FROM uploads;
         INSERT INTO upload_bindings (account_id, run_id, upload_id, task_no)
         SELECT r.account_id, r.run_id, u.upload_id, n FROM runs r, uploads u, generate_series(1, 2) n
          WHERE r.public_id = '{gone}' OR u.filename = 'shared';",
        account = world.account
    ))
    .await
    .unwrap();
    world.settled_rows(&sql, gone, 12_000).await;
    assert_eq!(delete(&app, &world, gone).await.status.as_u16(), 204);
    app.advance(Duration::from_secs(30 * 86_400 - 60)).await;
    assert_eq!(sweep(&app, "tombstones").await, 0);
    app.advance(Duration::from_secs(120)).await;
    let id = number(
        &sql,
        &format!("SELECT run_id FROM runs WHERE public_id = '{gone}'"),
    )
    .await;
    let other = number(
        &sql,
        &format!("SELECT run_id FROM runs WHERE public_id = '{kept}'"),
    )
    .await;
    // Two leaders are harmless: what one leaves to the other, the next look finds.
    let (one, two) = tokio::join!(
        sweep(app.on(0), "tombstones"),
        sweep(app.on(1), "tombstones")
    );
    let rows = one + two + sweep(&app, "tombstones").await;
    assert!(rows > 24_000, "{rows}");
    let mut kinds = 0;
    for (table, column) in run_tables(&sql).await {
        let count = async |run: i64| {
            let count = format!("SELECT count(*) FROM {table} WHERE {column} = {run}");
            number(&sql, &count).await
        };
        assert_eq!(count(id).await, 0, "{table} keeps rows of a reclaimed run");
        kinds += i64::from(count(other).await > 0);
    }
    assert!(kinds >= 6, "the neighbour's rows stay: {kinds} tables");
    let names = "SELECT string_agg(filename, ',' ORDER BY filename) FROM uploads WHERE bound_at IS NOT NULL";
    let bound: String = sql.query_one(names, &[]).await.unwrap().get(0);
    assert_eq!(bound, "shared");
    sweep(&app, "uploads").await;
    assert_eq!(number(&sql, "SELECT count(*) FROM uploads").await, 1);
    assert_eq!(number(&sql, "SELECT count(*) FROM upload_chunks").await, 1);
    world.show(&app, kept).await;
    app.finish().await;
}

/// §14, BR-025: every table with rows of a run has a statement that reclaims them.
#[tokio::test]
async fn every_table_of_a_run_is_reclaimed_with_it() {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let statements: String = nexus::store::tombstones::STATEMENTS
        .iter()
        .map(|s| s.text)
        .collect();
    for (table, _) in run_tables(&sql).await {
        assert!(
            statements.contains(&format!("DELETE FROM {table} ")),
            "{table} has rows of a run that no statement reclaims"
        );
        assert!(
            table == "runs" || statements.contains(&format!("NOT EXISTS (SELECT FROM {table} c")),
            "a run's own row could go before its rows in {table}"
        );
    }
    app.finish().await;
}
