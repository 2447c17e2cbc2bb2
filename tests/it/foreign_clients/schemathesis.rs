//! The Python package `schemathesis` against a real `nexus serve`: requests made from the document,
//! right ones and wrong ones, whose answers must be as the document says and never a 500.
//!
//! What is destroyed is destroyed in an account of its own, so that the others' doors stay open.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::support::{Fixture, OPERATOR, TestApp, contract, text};

/// Requests of one door and phase, and the bound of all of it.
const EXAMPLES: u32 = 12;
const WITHIN: Duration = Duration::from_secs(110);

fn program() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/schemathesis");
    if here.is_file() {
        here
    } else {
        "schemathesis".into()
    }
}

/// What the requests may name: real things, at which some doors open.
struct Names {
    account: String,
    workspace: String,
    run: String,
    member: String,
    executor: String,
    token: String,
    claim_token: String,
}

impl Names {
    /// What stands for a parameter of a path.
    fn of(&self, parameter: &str) -> &str {
        match parameter {
            "account" => &self.account,
            "workspace" => &self.workspace,
            "run" => &self.run,
            "task" => "a",
            "member" => &self.member,
            "executor" => &self.executor,
            "token" => &self.token,
            "upload" => "01a22e11-0000-7000-8000-000000000000",
            other => panic!("tell `Names` what {{{other}}} is"),
        }
    }
}

/// An account with a run: `a` is claimed, `b` is not, `gate` is a question.
async fn names(app: &TestApp, f: &Fixture) -> Names {
    let profile = json!({"kind": "pure", "destructive": false, "effect_scope": "closed",
                         "idempotency": "none", "reconciliation": "none"});
    let served = json!({"tools": [{"name": "echo", "effect_profile": profile}]});
    let announce = "/agent_api/v1/executor/announcement";
    app.put(announce, &f.runner.token, served).await.ok(200);
    let runs = format!("/agent_api/v1/workspaces/{}/runs", f.workspace);
    let route = json!({"kind": "runner", "runner_executor_public_id": f.runner.id});
    let call = |key: &str| json!({"tool": {"key": key, "detached": true, "name": "echo", "input": {}, "route": route}});
    let steps = json!([call("a"), call("b"), {"ask": {"key": "gate", "prompt": "Go?"}}]);
    let body = json!({"run": {"approval_mode": "bypass", "steps": steps}});
    let created = app.post(&runs, &f.human.token, body).await.ok(201);
    let run = text(&created, "run.public_id").to_owned();
    let start = format!("{runs}/{run}/start");
    app.command(&start, &f.human.token).await.ok(200);
    let claim = format!("/agent_api/v1/executor/inbox/{run}/a/claim");
    let claimed = app.command(&claim, &f.runner.token).await.ok(200);
    Names {
        account: f.account.clone(),
        workspace: f.workspace.clone(),
        run,
        member: f.human.id.clone(),
        executor: f.runner.id.clone(),
        token: f.runner.token.split('-').nth(3).unwrap().to_owned(),
        claim_token: text(&claimed, "claim.claim_token").to_owned(),
    }
}

/// A dictionary of one kind of name, and which parameters draw from it.
fn dictionaries(who: &str, n: &Names) -> (String, String) {
    let drawn = [
        ("account", "path.account", vec![n.account.as_str()]),
        ("workspace", "path.workspace", vec![n.workspace.as_str()]),
        ("run", "path.run", vec![n.run.as_str()]),
        ("task", "path.task", vec!["a", "b", "gate"]),
        ("member", "path.member", vec![n.member.as_str()]),
        ("executor", "path.executor", vec![n.executor.as_str()]),
        ("token", "path.token", vec![n.token.as_str()]),
        ("claim", "header.Claim-Token", vec![n.claim_token.as_str()]),
    ];
    let tables = drawn
        .iter()
        .map(|(name, _, values)| format!("[dictionaries.{who}-{name}]\nvalues = {values:?}\n"));
    let bound = drawn.iter().map(|(name, parameter, _)| {
        format!("\"{parameter}\" = {{ dictionary = \"{who}-{name}\", probability = 0.95 }}")
    });
    let bound: Vec<String> = bound.collect();
    (tables.collect(), bound.join("\n"))
}

fn configuration(own: &Names, lost: &Names, f: &Fixture) -> String {
    let (mut tables, kept) = dictionaries("own", own);
    let (more, destroyed) = dictionaries("lost", lost);
    tables.push_str(&more);
    let doors = |by: &str, token: &str, names: &str| {
        format!(
            "[[operations]]\n{by}\nheaders = {{ Authorization = \"Bearer {token}\" }}\n\
             [operations.parameters]\n{names}\n"
        )
    };
    let member = &f.human.token;
    // One worker: the client reads its own source in every thread, and the parser of Python 3.11 loses
    // count of its depth when two threads do so at once.
    [
        "seed = 20261130\nmax-redirects = 0\nrequest-timeout = 20\nworkers = 1\n\
         continue-on-failure = true\nwarnings = false\n\
         [generation]\nno-shrink = true\nwith-security-parameters = false\ndatabase = \"none\"\n\
         [phases.coverage]\nunexpected-methods = []\n[phases.stateful]\nenabled = false\n\
         [phases.coverage.extra-data-sources]\nresponses = false\n\
         [phases.fuzzing.extra-data-sources]\nresponses = false\n"
            .to_owned(),
        tables,
        // Bodies of steps combine without end, and under one key all but the first are refused alike:
        // more requests at random in place of every combination.
        "[[operations]]\ninclude-operation-id = [\"createRun\", \"appendSteps\"]\n\
         [operations.generation]\nmax-examples = 30\n\
         [operations.phases.coverage]\nenabled = false\n"
            .to_owned(),
        doors(
            &format!("include-operation-id = {ENDING:?}"),
            member,
            &destroyed,
        ),
        doors("include-tag = \"member\"", member, &kept),
        doors("include-tag = \"executor\"", &f.runner.token, &kept),
        doors("include-tag = \"operator\"", OPERATOR, &destroyed),
    ]
    .join("\n")
}

/// Doors of members that end a run: they get another one.
const ENDING: [&str; 2] = ["deleteRun", "stopRun"];

/// The document with examples that exist: each door is asked once for what is there.
fn exemplified(own: &Names, lost: &Names) -> String {
    let mut document = contract::document().clone();
    for item in document["paths"].as_object_mut().unwrap().values_mut() {
        let item = item.as_object_mut().unwrap();
        let shared = item.remove("parameters").unwrap();
        for operation in item.values_mut() {
            let ends = ENDING.iter().any(|id| operation["operationId"] == *id);
            let names = if ends || operation["tags"][0] == "operator" {
                lost
            } else {
                own
            };
            let mut parameters = shared.as_array().unwrap().clone();
            for parameter in &mut parameters {
                parameter["example"] = names.of(parameter["name"].as_str().unwrap()).into();
            }
            let others = operation["parameters"].as_array().into_iter().flatten();
            parameters.extend(others.cloned());
            operation["parameters"] = parameters.into();
        }
    }
    // A long poll waits for what never comes: it has tests of its own.
    let (text, long, short) = (document.to_string(), "\"maximum\":25000", "\"maximum\":20");
    assert_eq!(text.matches(long).count(), 3);
    text.replace(long, short)
}

/// The binary, over the database of the harness.
fn serve(app: &TestApp, addr: SocketAddr, log: &Path) -> Child {
    let log = std::fs::File::create(log).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nexus"));
    command
        .arg("serve")
        .env_clear()
        .env("NEXUS_DATABASE_URL", &app.database.url)
        .env("NEXUS_LISTEN", addr.to_string())
        .env("NEXUS_ADMIN_LISTEN", "127.0.0.1:0")
        .env("NEXUS_OPERATOR_TOKEN", OPERATOR)
        .env("NEXUS_RATE_LIMITS", "off")
        .env("NEXUS_TEST_CLOCK", "1")
        .stdout(Stdio::from(log.try_clone().unwrap()))
        .stderr(Stdio::from(log))
        .kill_on_drop(true);
    command.spawn().expect("the binary starts")
}

async fn ready(base: &str) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for _ in 0..300 {
        let asked = client.get(format!("{base}/readyz")).send().await;
        if asked.is_ok_and(|answer| answer.status().is_success()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("nexus serve is not ready after 30 s");
}

/// The doors that were asked something, as `POST /path`.
fn tried(report: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(report).unwrap();
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|event| {
            let recorder = &event.get("ScenarioFinished")?["recorder"];
            let is_asked = !recorder["interactions"].as_object()?.is_empty();
            is_asked.then(|| recorder["label"].as_str().map(str::to_owned))?
        })
        .collect()
}

/// The doors of the document, but for the socket.
fn stated() -> BTreeSet<String> {
    let paths = contract::document()["paths"].as_object().unwrap();
    paths
        .iter()
        .filter(|(path, _)| !path.ends_with("/cable"))
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().keys();
            methods
                .filter(|method| *method != "parameters")
                .map(move |method| format!("{} {path}", method.to_ascii_uppercase()))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_door_answers_as_the_document_says() {
    let app = TestApp::start().await;
    let (f, other) = (app.fixture().await, app.fixture().await);
    let (own, lost) = (names(&app, &f).await, names(&app, &other).await);
    let folder = std::env::temp_dir().join(format!("nexus-{}", app.database.name));
    std::fs::create_dir_all(&folder).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = free.local_addr().unwrap();
    drop(free);
    let log = folder.join("serve.log");
    let mut server = serve(&app, addr, &log);
    let base = format!("http://{addr}");
    ready(&base).await;

    let settings = folder.join("schemathesis.toml");
    std::fs::write(&settings, configuration(&own, &lost, &f)).unwrap();
    let document = folder.join("openapi.json");
    std::fs::write(&document, exemplified(&own, &lost)).unwrap();
    let report = folder.join("report.ndjson");
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,\
                  response_headers_conformance,response_schema_conformance";
    let running = Command::new(program())
        .current_dir(&folder)
        .arg("--config-file")
        .arg(&settings)
        .arg("run")
        .arg(&document)
        .args([
            "--url",
            &base,
            "--checks",
            checks,
            "--phases",
            "examples,coverage,fuzzing",
        ])
        .args([
            "--max-examples",
            &EXAMPLES.to_string(),
            "--exclude-operation-id",
            "cable",
        ])
        .arg("--report-ndjson-path")
        .arg(&report)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(WITHIN, running)
        .await
        .expect("schemathesis ends in time")
        .expect("schemathesis starts: run `make setup-schemathesis`");
    server.kill().await.unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{told}\n{}\nthe server's log: {}",
        String::from_utf8_lossy(&output.stderr),
        log.display()
    );
    assert_eq!(tried(&report), stated(), "every door is tried");
    std::fs::remove_dir_all(&folder).unwrap();
    app.finish().await;
}
