//! The OpenAPI document (`operating.md` §2): it has the routes, all of them and no others, it is the
//! same wherever it comes from, and its examples work. That answers are as it says is held at every
//! call of every test (`support/contract.rs`).

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value as Json;

use crate::auth_coverage;
use crate::support::{OPERATOR, TestApp, contract, text};

fn operations() -> impl Iterator<Item = (&'static String, &'static String, &'static Json)> {
    let paths = contract::document()["paths"].as_object().expect("paths");
    paths.iter().flat_map(|(path, item)| {
        let operations = item.as_object().expect("a path item").iter();
        operations
            .filter(|(method, _)| *method != "parameters")
            .map(move |(method, operation)| (path, method, operation))
    })
}

#[test]
fn the_document_has_every_route_and_no_other() {
    let routed: BTreeSet<(String, String)> = auth_coverage::routes()
        .into_iter()
        .flat_map(|(path, methods)| {
            methods
                .into_iter()
                .map(move |method| (path.clone(), method.as_str().to_ascii_lowercase()))
        })
        .collect();
    let stated: BTreeSet<(String, String)> = operations()
        .map(|(path, method, _)| (path.clone(), method.clone()))
        .collect();
    let missing: Vec<_> = routed.difference(&stated).collect();
    let invented: Vec<_> = stated.difference(&routed).collect();
    assert!(missing.is_empty(), "no operation for {missing:?}");
    assert!(invented.is_empty(), "no route for {invented:?}");
}

#[test]
fn operations_have_names_of_their_own() {
    let mut names: Vec<&str> = operations()
        .map(|(_, _, operation)| operation["operationId"].as_str().expect("a name"))
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

/// `conventions.md` §4: what surrounds every handler of a plane may be answered at each of its doors.
#[test]
fn every_guarded_operation_states_what_surrounds_it() {
    let open = ["health", "public", "cable"];
    for (path, method, operation) in operations() {
        let tag = operation["tags"][0].as_str().expect("a tag");
        let has = |status: &str| operation["responses"].get(status).is_some();
        let mut wanted = vec!["406", "414", "431", "500", "503"];
        if !open.contains(&tag) {
            wanted.extend(["401", "429"]);
            assert_eq!(operation["security"].as_array().map(Vec::len), Some(1));
        }
        if operation.get("requestBody").is_some() {
            wanted.extend(["400", "408", "413", "415"]);
        }
        if path.contains('{') {
            wanted.push("404");
        }
        for status in wanted {
            assert!(has(status), "{method} {path} does not state {status}");
        }
    }
}

/// The server and `nexus openapi` give the same bytes, at every call.
#[tokio::test]
async fn the_document_is_served_and_printed_the_same() {
    let app = TestApp::start().await;
    let served = app.get("/openapi.json", "").await;
    served.ok(200);
    assert_eq!(served.body, app.get("/openapi.json", "").await.body);
    let printed = tokio::process::Command::new(env!("CARGO_BIN_EXE_nexus"))
        .arg("openapi")
        .env_clear()
        .output()
        .await
        .expect("the binary runs");
    assert!(printed.status.success());
    assert_eq!(served.body, printed.stdout);
    app.finish().await;
}

fn example(method: &str, path: &str) -> Json {
    let body = &contract::document()["paths"][path][method]["requestBody"];
    body["content"]["application/json"]["example"].clone()
}

/// The examples of the doors that begin things are accepted as they stand, but for their ids.
#[tokio::test]
async fn the_examples_of_the_document_work() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let send = async |method: Method, template: &str, path: &str, token: &str, id: &str| {
        let body = example(&method.as_str().to_ascii_lowercase(), template);
        assert!(!body.is_null(), "{method} {template} has no example");
        let body = body
            .to_string()
            .replace("0199c0de-0000-7000-8000-000000000001", id);
        app.request(method, path, token).json(body).send().await
    };
    for (path, id) in [
        ("/operator_api/v1/accounts", ""),
        ("/operator_api/v1/workspaces", f.account.as_str()),
        ("/operator_api/v1/members", f.account.as_str()),
        ("/operator_api/v1/executors", f.human.id.as_str()),
    ] {
        send(Method::POST, path, path, OPERATOR, id).await.ok(201);
    }
    let announce = "/agent_api/v1/executor/announcement";
    send(Method::PUT, announce, announce, &f.runner.token, "")
        .await
        .ok(200);
    let claims = "/agent_api/v1/executor/inbox/claims";
    send(Method::POST, claims, claims, &f.runner.token, "")
        .await
        .ok(200);

    let human = f.human.token.as_str();
    let runs = "/agent_api/v1/workspaces/{workspace}/runs";
    let own = runs.replace("{workspace}", &f.workspace);
    let created = send(Method::POST, runs, &own, human, "").await.ok(201);
    let run = format!("{own}/{}", text(&created, "run.public_id"));
    for (verb, status) in [
        ("/tasks", 201),
        ("/start", 200),
        ("/pause", 200),
        ("/resume", 200),
    ] {
        let template = format!("{runs}/{{run}}{verb}");
        let path = format!("{run}{verb}");
        send(Method::POST, &template, &path, human, "")
            .await
            .ok(status);
    }
    let answer = format!("{runs}/{{run}}/tasks/{{task}}/resolution");
    let gate = format!("{run}/tasks/gate/resolution");
    let token = text(&created, "receipt.resolution_tokens.gate");
    let mut body = example("post", &answer);
    body["resolution_token"] = token.into();
    app.post(&gate, human, body).await.ok(200);
    let stop = format!("{runs}/{{run}}/stop");
    send(Method::POST, &stop, &format!("{run}/stop"), human, "")
        .await
        .ok(200);
    app.finish().await;
}
