//! What a person does to a run and its tasks, through the doors (`runs.md` §5, §7, §8).

mod append;
mod application;
mod approvals;
mod clocks;
mod questions;
mod races;
mod repair;
mod stop;

use nexus::domain::Value;
use serde_json::json;

use crate::support::TestApp;
use crate::support::http::{Answer, at, items, text};
use crate::support::seed::{World, claim_token, door};

/// The path of one run's verb.
fn verb(world: &World, run: &str, verb: &str) -> String {
    format!("{}/{run}/{verb}", world.runs())
}

/// The path of one task's verb.
fn of_task(world: &World, run: &str, key: &str, word: &str) -> String {
    verb(world, run, &format!("tasks/{key}/{word}"))
}

async fn say(app: &TestApp, world: &World, path: &str, body: serde_json::Value) -> Answer {
    app.post(path, &world.human.token, body).await
}

/// Claims and commits a call.
async fn answer(app: &TestApp, world: &World, run: &str, key: &str, mut body: serde_json::Value) {
    let granted = app
        .command(&door(run, key, "claim"), &world.runner.token)
        .await;
    body["claim_token"] = json!(claim_token(&granted));
    app.post(&door(run, key, "commit"), &world.runner.token, body)
        .await
        .ok(200);
}

async fn completes(app: &TestApp, world: &World, run: &str, key: &str) {
    answer(
        app,
        world,
        run,
        key,
        json!({"content": format!("did {key}")}),
    )
    .await;
}

async fn fails(app: &TestApp, world: &World, run: &str, key: &str) {
    answer(
        app,
        world,
        run,
        key,
        json!({"content": "no", "outcome": "failed"}),
    )
    .await;
}

/// A routed call with a policy.
fn call(world: &World, key: &str, policy: &str) -> serde_json::Value {
    let mut step = world.routed(key, "echo");
    step["tool"]["on_failure"] = json!(policy);
    step
}

/// The statuses of a run and its tasks: `running a:completed b:waiting`.
async fn state(app: &TestApp, world: &World, run: &str) -> String {
    let shown = world.show(app, run).await;
    let tasks = items(&shown, "run.tasks").iter();
    let tasks = tasks.map(|t| format!("{}:{}", text(t, "key"), text(t, "status")));
    let status = text(&shown, "run.status").to_owned();
    std::iter::once(status)
        .chain(tasks)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The standing attention: `halt_failure a b`.
async fn attention(app: &TestApp, world: &World, run: &str) -> String {
    let shown = world.show(app, run).await;
    let Some(reason) = crate::support::http::find(&shown, "run.attention.reason") else {
        return String::new();
    };
    let mut words = vec![reason.as_str().unwrap_or_default()];
    let keys = items(&shown, "run.attention.blocked_task_keys").iter();
    words.extend(keys.filter_map(Value::as_str));
    words.join(" ")
}

/// A run of these members beside the steps, created and started.
async fn run_with(app: &TestApp, world: &World, run: serde_json::Value) -> (String, Value) {
    let created = app
        .post(&world.runs(), &world.human.token, json!({"run": run}))
        .await
        .ok(201);
    let id = text(&created, "run.public_id").to_owned();
    say(app, world, &verb(world, &id, "start"), json!({}))
        .await
        .ok(200);
    (id, at(&created, "receipt").clone())
}
