//! Larger scenes: runs of any size written straight into the tables, many clients at once, a dump
//! of everything to compare.

use std::collections::BTreeMap;
use std::time::Duration;

use nexus::domain::{AccountId, PublicId, TaskNo};
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::seed::World;
use super::seed::door;
use super::{Answer, TestApp};

/// Runs all futures as tasks of their own, at once; gives their outputs in order.
pub async fn all<T: Send + 'static>(
    work: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = work.into_iter().map(tokio::spawn).collect();
    let mut done = Vec::with_capacity(tasks.len());
    for task in tasks {
        done.push(task.await.expect("a task of the test ends"));
    }
    done
}

/// Waits until what is asked becomes true; panics after half a minute, saying what was waited for.
pub async fn until<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let patience = tokio::time::Instant::now() + Duration::from_secs(30);
    while !ask().await {
        assert!(
            tokio::time::Instant::now() < patience,
            "waited in vain: {what}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await; // the pace of asking, no race hangs on it
    }
}

/// A group of these steps.
pub fn parallel(members: Vec<Value>) -> Value {
    json!({ "parallel": members })
}

/// A fan of that many calls, and one call behind it.
pub fn fan(world: &World, members: usize) -> Value {
    let calls = (0..members)
        .map(|i| world.routed(&format!("m{i}"), "echo"))
        .collect();
    json!([parallel(calls), world.routed("last", "echo")])
}

/// An unrouted tool step.
pub fn unrouted(key: &str, name: &str) -> Value {
    json!({"tool": {"key": key, "name": name, "input": {}}})
}

impl World {
    /// Makes a run of one started call as large as wished: `rows` calls `r1…`, all dispatched to the
    /// same executor. Gives the run's public id.
    pub async fn wide_run(&self, app: &TestApp, client: &Client, rows: i32) -> String {
        let run = self.run(app, json!([self.routed("r1", "echo")])).await;
        let id: uuid::Uuid = run.parse().expect("an id");
        client
            .batch_execute(&format!(
                "WITH r AS (SELECT account_id, run_id FROM runs WHERE public_id = '{id}'),
                 n AS (SELECT g FROM generate_series(2, {rows}) g),
                 t AS (INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, lifetime, wake,
                        on_failure, visibility, lineage_no, tip_no, remaining, tool_name, target_executor_id,
                        addressed_role, addressed_executor_id, approval_origin, approval_decided_at, started_at)
                   SELECT t.account_id, t.run_id, g, 'r' || g, t.kind, t.status, t.authored_by, t.lifetime, t.wake,
                          t.on_failure, t.visibility, g, g, 0, t.tool_name, t.target_executor_id, t.addressed_role,
                          t.addressed_executor_id, t.approval_origin, t.approval_decided_at, t.started_at
                     FROM r JOIN tasks t USING (account_id, run_id), n WHERE t.task_no = 1),
                 i AS (INSERT INTO task_inputs (account_id, run_id, task_no, tool_input, definition)
                   SELECT i.account_id, i.run_id, g, i.tool_input, i.definition
                     FROM r JOIN task_inputs i USING (account_id, run_id), n WHERE i.task_no = 1),
                 p AS (INSERT INTO parks (account_id, run_id, task_no, kind, executor_id, deadline_at, due_at, timeout_ms,
                        effect_profile, replayable, generation, started_at, run_shard)
                   SELECT p.account_id, p.run_id, g, p.kind, p.executor_id, p.deadline_at, p.due_at, p.timeout_ms,
                          p.effect_profile, p.replayable, p.generation, p.started_at, p.run_shard
                     FROM r JOIN parks p USING (account_id, run_id), n WHERE p.task_no = 1)
                 UPDATE runs SET n_tasks = {rows}, n_open = {rows}, n_started = {rows}, deliverable_no = {rows},
                        mainline_tail_no = {rows}
                   FROM r WHERE runs.account_id = r.account_id AND runs.run_id = r.run_id"
            ))
            .await
            .expect("a wide run is written");
        run
    }

    /// Adds `rows` settled calls to a run, as history.
    pub async fn settled_rows(&self, client: &Client, run: &str, rows: i32) {
        client
            .batch_execute(&format!(
                "WITH r AS (SELECT account_id, run_id, settle_seq, n_tasks FROM runs WHERE public_id = '{run}'),
                 n AS (SELECT g FROM generate_series(1, {rows}) g),
                 t AS (INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, lifetime, wake,
                        on_failure, visibility, lineage_no, tip_no, remaining, tool_name, started_at, claimed_by_id,
                        claimed_at, claim_digest, settle_seq, completed_at)
                   SELECT account_id, run_id, n_tasks + g, 'h' || g, 'tool_task', 'completed', 'author', 'conversation', 'auto',
                          'propagate', 'collapsed', n_tasks + g, n_tasks + g, 0, 'echo', now(), {executor}, now(), '\\x00',
                          1000000 + g, now()
                     FROM r, n),
                 x AS (INSERT INTO task_results (account_id, run_id, task_no, generation, content, digest)
                   SELECT account_id, run_id, n_tasks + g, 0, '[]', '\\x00' FROM r, n)
                 UPDATE runs SET n_tasks = r.n_tasks + {rows} FROM r
                  WHERE runs.account_id = r.account_id AND runs.run_id = r.run_id",
                executor = self.runner.id
            ))
            .await
            .expect("settled rows are written");
    }

    /// Claims a row; gives its token.
    pub async fn claim(&self, app: &TestApp, run: &str, key: &str) -> String {
        let granted = app
            .command(&door(run, key, "claim"), &self.runner.token)
            .await;
        super::seed::claim_token(&granted)
    }

    /// Commits a plain result.
    pub async fn commit(&self, app: &TestApp, run: &str, key: &str, token: &str) -> Answer {
        let body = json!({"claim_token": token, "content": format!("did {key}")});
        app.post(&door(run, key, "commit"), &self.runner.token, body)
            .await
    }

    /// The sweeper's command for these rows of a run, on one replica; gives how many settled.
    pub async fn sweep(&self, app: &TestApp, replica: usize, run: &str, rows: &[i32]) -> usize {
        let rows = rows.iter().map(|no| TaskNo(*no)).collect();
        let run: PublicId = run.parse().expect("an id");
        let app = &app.replicas[replica].app;
        nexus::commands::expire::expire(app, AccountId(self.account), run, rows)
            .await
            .expect("a sweep meets no fault")
    }

    /// Stops a run by force.
    pub async fn stop(&self, app: &TestApp, run: &str) -> Answer {
        app.command(&format!("{}/{run}/stop", self.runs()), &self.human.token)
            .await
    }
}

/// Changes a run's status behind the server's back, as the doors of a later release would, and
/// freezes or frees its clocks with it.
pub async fn set_run(client: &Client, run: &str, status: &str) {
    client
        .batch_execute(&format!(
            "UPDATE parks p SET deadline_at = p.deadline_at + (nexus_now() - r.paused_at)
               FROM runs r WHERE r.public_id = '{run}' AND r.status = 'paused' AND '{status}' <> 'paused'
                AND p.account_id = r.account_id AND p.run_id = r.run_id;
             UPDATE runs SET status = '{status}', paused_at = CASE WHEN '{status}' = 'paused' THEN nexus_now() END
              WHERE public_id = '{run}';
             UPDATE parks p SET clock_frozen = ('{status}' = 'paused') FROM runs r
              WHERE r.public_id = '{run}' AND p.account_id = r.account_id AND p.run_id = r.run_id"
        ))
        .await
        .expect("a run's status is written");
}

const TABLES: &[&str] = &[
    "runs",
    "tasks",
    "task_inputs",
    "task_results",
    "edges",
    "parks",
    "open_failures",
    "run_events",
    "receipts",
    "upload_bindings",
];

/// Every row of the graph's tables, by table: equal dumps are equal states.
pub async fn dump(client: &Client) -> BTreeMap<&'static str, String> {
    let mut tables = BTreeMap::new();
    for table in TABLES {
        let rows = client
            .query_one(
                &format!("SELECT coalesce(string_agg(x::text, E'\\n' ORDER BY x::text), '') FROM {table} x"),
                &[],
            )
            .await
            .expect("a table can be dumped")
            .get(0);
        tables.insert(*table, rows);
    }
    tables
}

/// One number out of the database.
pub async fn number(client: &Client, sql: &str) -> i64 {
    client
        .query_one(sql, &[])
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e:?}"))
        .get(0)
}
