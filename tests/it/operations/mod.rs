//! Operations of a claimed call over its doors (`operations.md`): what it accepts, observes and
//! publishes, and what a pause, a stop or its deadline does to it. Numbers are those of §11.

mod accept;
mod changes;
mod flat;
mod gate;
mod handlers;
mod joins;
mod lifecycle;
mod observe;
mod races;

use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::http::{Answer, text};
use crate::support::seed::{World, door};

/// A run whose one call has been claimed, and may author `work` (echo) and `note` (write_note).
struct Scene {
    app: TestApp,
    world: World,
    run: String,
    token: String,
}

/// What the call may author.
fn defaults(world: &World) -> Value {
    let tool = |name: &str, served: &str| {
        json!({"name": name, "description": name, "route": {"kind": "runner", "tool_name": served,
            "runner_executor_public_id": world.runner.public_id.to_string()}})
    };
    json!({"tools": [tool("work", "echo"), tool("note", "write_note")], "model": {"model": "dev/m"}})
}

fn parent(world: &World, served: &str) -> Value {
    let mut step = world.routed("code", served);
    step["tool"]["model_defaults"] = defaults(world);
    step
}

/// A call of the child tool.
fn work() -> Value {
    json!({"kind": "tool", "name": "work", "input": {"n": 1}})
}

/// A batch's call.
fn step(key: &str) -> Value {
    json!({"tool": {"key": key, "name": "work", "input": {"of": key}}})
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.text()).unwrap_or(Value::Null)
}

impl Scene {
    async fn new() -> Self {
        Self::of("echo", &[]).await
    }

    /// The parent serves that tool; behind it these steps.
    async fn of(served: &str, behind: &[Value]) -> Self {
        let app = TestApp::with().replicas(2).start().await;
        let world = World::in_database(&app.sql().await, "a").await;
        let mut steps = vec![parent(&world, served)];
        steps.extend(behind.iter().cloned());
        Self::over(app, world, json!(steps)).await
    }

    async fn over(app: TestApp, world: World, steps: Value) -> Self {
        let run = world.run(&app, steps).await;
        let token = world.claim(&app, &run, "code").await;
        Self {
            app,
            world,
            run,
            token,
        }
    }

    fn door(&self, word: &str) -> String {
        door(&self.run, "code", word)
    }

    async fn post(&self, word: &str, body: Value) -> Answer {
        self.app
            .post(&self.door(word), &self.world.runner.token, body)
            .await
    }

    /// Sends an operation.
    async fn send(&self, key: &str, request: &Value) -> Answer {
        let operation = json!({"key": key, "request": request});
        let body = json!({"claim_token": self.token, "operation": operation});
        self.post("operations", body).await
    }

    /// Sends one that is accepted, and gives its receipt.
    async fn accept(&self, key: &str, request: Value) -> Value {
        let answer = self.send(key, &request).await;
        answer.ok(201);
        let event = json_of(&answer);
        assert!(event["operation"]["refusal"].is_null(), "{event}");
        event["operation"]["receipt"].clone()
    }

    /// Sends one that is recorded as refused, and gives the word.
    async fn refused(&self, key: &str, request: Value) -> String {
        let answer = self.send(key, &request).await;
        answer.ok(201);
        let event = json_of(&answer);
        let code = event["operation"]["refusal"]["code"].as_str();
        code.unwrap_or_else(|| panic!("refused: {event}"))
            .to_owned()
    }

    async fn look(&self, after: i64) -> Answer {
        let body = json!({"claim_token": self.token, "after": after});
        self.post("observation", body).await
    }

    /// Observes at the end of the trace.
    async fn observe(&self) -> Value {
        let end = self.trace().await["position"].as_i64().unwrap();
        let answer = self.look(end).await;
        answer.ok(200);
        json_of(&answer)["observation"].clone()
    }

    /// Observes an outcome of that key, which is next.
    async fn outcome(&self, key: &str) -> Value {
        let observed = self.observe().await;
        assert_eq!(observed["key"], key, "{observed}");
        observed["outcome"].clone()
    }

    async fn page(&self, query: &str) -> Answer {
        let path = format!("{}{query}", self.door("operations"));
        self.app
            .request(reqwest::Method::GET, &path, &self.world.runner.token)
            .header("claim-token", &self.token)
            .send()
            .await
    }

    async fn trace(&self) -> Value {
        let answer = self.page("").await;
        answer.ok(200);
        json_of(&answer)["operations"].clone()
    }

    async fn commit(&self, mut body: Value) -> Answer {
        body["claim_token"] = json!(self.token);
        self.post("commit", body).await
    }

    /// Claims a child.
    async fn claim(&self, key: &str) -> String {
        self.world.claim(&self.app, &self.run, key).await
    }

    /// Claims and commits a child.
    async fn answer(&self, key: &str, mut body: Value) {
        body["claim_token"] = json!(self.claim(key).await);
        let path = door(&self.run, key, "commit");
        let sent = self.app.post(&path, &self.world.runner.token, body);
        sent.await.ok(200);
    }

    async fn done(&self, key: &str) {
        self.answer(key, json!({"content": format!("did {key}")}))
            .await;
    }

    async fn fails(&self, key: &str) {
        self.answer(key, json!({"content": "no", "outcome": "failed"}))
            .await;
    }

    /// A person's verb on the run.
    async fn say(&self, word: &str, body: Value) -> Answer {
        let path = format!("{}/{}/{word}", self.world.runs(), self.run);
        self.app.post(&path, &self.world.human.token, body).await
    }

    /// A task as a member sees it.
    async fn task(&self, key: &str) -> Value {
        let path = format!("{}/{}/tasks/{key}", self.world.runs(), self.run);
        let answer = self.app.get(&path, &self.world.human.token).await;
        answer.ok(200);
        json_of(&answer)["task"].clone()
    }

    async fn status(&self, key: &str) -> String {
        self.task(key).await["status"].as_str().unwrap().to_owned()
    }

    async fn run_status(&self) -> String {
        let shown = self.world.show(&self.app, &self.run).await;
        text(&shown, "run.status").to_owned()
    }

    /// How many tasks the run has.
    async fn tasks(&self) -> i64 {
        let sql = self.app.sql().await;
        let row = sql.query_one("SELECT count(*) FROM tasks", &[]).await;
        row.unwrap().get(0)
    }
}

/// The only key of a receipt's list.
fn key(receipt: &Value) -> String {
    let keys = receipt["task_keys"].as_array().unwrap();
    assert_eq!(keys.len(), 1, "{receipt}");
    keys[0].as_str().unwrap().to_owned()
}

/// The task key that a receipt gave a local key.
fn local(receipt: &Value, name: &str) -> String {
    let key = receipt["keys"][name].as_str();
    key.unwrap_or_else(|| panic!("{name} in {receipt}"))
        .to_owned()
}
