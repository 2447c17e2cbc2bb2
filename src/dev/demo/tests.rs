//! Provisioning against a small operator plane that keeps what it is told, with pages of one.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use serde_json::{Value as Json, json};

use super::*;

#[derive(Default)]
struct Plane {
    rows: Vec<(String, Json)>,
    grants: Vec<(String, String, Json)>,
    tokens: u32,
}

type Shared = Arc<Mutex<Plane>>;
type Created = (StatusCode, axum::Json<Json>);

impl Plane {
    fn token(&mut self) -> String {
        self.tokens += 1;
        format!("token-{}", self.tokens)
    }

    fn id(&self) -> String {
        format!("id-{}", self.rows.len())
    }
}

async fn list(
    State(plane): State<Shared>,
    Path(plural): Path<String>,
    Query(query): Query<std::collections::HashMap<String, String>>,
) -> axum::Json<Json> {
    let plane = plane.lock().unwrap();
    let rows: Vec<&Json> = plane
        .rows
        .iter()
        .filter(|(kind, _)| *kind == plural)
        .map(|(_, row)| row)
        .collect();
    let from: usize = query.get("after").map_or(0, |c| c.parse().unwrap());
    let next = (from + 1 < rows.len()).then(|| (from + 1).to_string());
    axum::Json(json!({
        plural: rows.iter().skip(from).take(1).collect::<Vec<_>>(),
        "pagination": {"next_after": next},
    }))
}

async fn create(
    State(plane): State<Shared>,
    Path(plural): Path<String>,
    axum::Json(mut body): axum::Json<Json>,
) -> Created {
    let mut plane = plane.lock().unwrap();
    let live = plane.rows.iter().find(|(kind, row)| {
        *kind == "executors"
            && row["kind"] == body["kind"]
            && row["registration_identifier"] == body["registration_identifier"]
            && row["agent_public_id"] == body["agent_public_id"]
    });
    let repaired = live
        .filter(|_| plural == "executors")
        .map(|(_, row)| row.clone());
    let status = if repaired.is_some() {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    body["public_id"] = plane.id().into();
    body["status"] = "active".into();
    let row = repaired.unwrap_or_else(|| {
        plane.rows.push((plural.clone(), body.clone()));
        body
    });
    let singular = plural.trim_end_matches('s').to_owned();
    let mut answer = json!({ singular: row });
    let token = plane.token();
    match plural.as_str() {
        "members" => answer["token"] = token.into(),
        "executors" => answer["credential"] = json!({"token": token, "credential_epoch": 1}),
        _ => {}
    }
    (status, axum::Json(answer))
}

async fn rotate(State(plane): State<Shared>, Path(id): Path<String>) -> Created {
    let mut plane = plane.lock().unwrap();
    let token = plane.token();
    let (_, row) = plane
        .rows
        .iter()
        .find(|(_, r)| r["public_id"] == id)
        .unwrap();
    (
        StatusCode::CREATED,
        axum::Json(json!({"member": row, "token": token})),
    )
}

async fn grant(
    State(plane): State<Shared>,
    Path((workspace, member)): Path<(String, String)>,
    axum::Json(body): axum::Json<Json>,
) -> axum::Json<Json> {
    let access = body["access"].clone();
    plane
        .lock()
        .unwrap()
        .grants
        .push((workspace, member, access.clone()));
    axum::Json(json!({"grant": {"access": access}}))
}

async fn start() -> (Client, Shared) {
    let plane = Shared::default();
    let app = Router::new()
        .route("/operator_api/v1/{plural}", get(list).post(create))
        .route("/operator_api/v1/members/{id}/rotate", post(rotate))
        .route("/operator_api/v1/workspaces/{w}/grants/{m}", put(grant))
        .with_state(Arc::clone(&plane));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (Client::new(&base, "sk-operator").unwrap(), plane)
}

#[tokio::test]
async fn provisioning_again_finds_everything_and_mints_new_tokens() {
    let (operator, plane) = start().await;
    // Somebody else's account and a second page come first.
    operator.create_account("other").await.unwrap();
    let first = provision(&operator, "sk-operator").await.unwrap();
    let made = plane.lock().unwrap().rows.len();
    assert_eq!(made, 1 + 1 + 1 + 2 + 3);
    let again = provision(&operator, "sk-operator").await.unwrap();
    assert_eq!(
        plane.lock().unwrap().rows.len(),
        made,
        "nothing is made twice"
    );
    let people = |d: &Demo| [d.human.clone(), d.agent.clone()];
    let machines = |d: &Demo| {
        let e = &d.executors;
        [
            e.runner.clone(),
            e.agent_application.clone(),
            e.tool_provider.clone(),
        ]
    };
    let all = |d: &Demo| [people(d).to_vec(), machines(d).to_vec()].concat();
    for (a, b) in all(&first).iter().zip(all(&again)) {
        assert_eq!(a.public_id, b.public_id);
        assert_ne!(a.token, b.token);
    }
    let plane = plane.lock().unwrap();
    assert_eq!(plane.grants.len(), 4);
    assert!(
        plane
            .grants
            .iter()
            .all(|g| g.0 == first.workspace_public_id && g.2 == "write")
    );
}

#[tokio::test]
async fn what_is_printed_has_the_members_of_the_contract() {
    let (operator, _) = start().await;
    let demo = provision(&operator, "sk-operator").await.unwrap();
    let printed = serde_json::to_value(&demo).unwrap();
    let keys: Vec<&String> = printed.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "account_public_id",
            "agent",
            "base_url",
            "executors",
            "human",
            "model",
            "operator_token",
            "workspace_public_id"
        ]
    );
    for kind in ["runner", "agent_application", "tool_provider"] {
        assert!(printed["executors"][kind]["token"].is_string(), "{kind}");
    }
    assert_eq!(printed["operator_token"], "sk-operator");
}

#[test]
fn the_scenario_has_a_race_a_question_and_an_approval_and_every_call_names_its_runner() {
    let run = scenario("r1");
    let text = serde_json::to_string(&run).unwrap();
    let calls = text.matches(r#"{"tool":{"#).count();
    let routed = text.matches(r#""runner_executor_public_id":"r1""#).count();
    assert_eq!((calls, routed), (13, 13));
    assert_eq!(text.matches(r#""until":"any""#).count(), 1);
    assert_eq!(text.matches(r#"{"ask":{"#).count(), 1);
    let steps = run.get("steps").and_then(Value::as_array).unwrap();
    assert!(steps.last().unwrap().get("tool").is_some());
}

/// What is printed is what is executed, and a shell and the command line take it as it stands.
#[test]
fn what_the_demo_prints_can_be_typed() {
    use clap::Parser as _;
    let demo = Demo {
        base_url: "http://h".to_owned(),
        operator_token: String::new(),
        account_public_id: String::new(),
        workspace_public_id: "w".to_owned(),
        human: none(),
        agent: none(),
        executors: Executors {
            runner: none(),
            agent_application: none(),
            tool_provider: none(),
        },
        model: String::new(),
    };
    let (say, _) = tokio::sync::mpsc::unbounded_channel();
    let stand_in = StandIn {
        demo: &demo,
        member: Client::new("http://h", "t").unwrap(),
        run: "r".to_owned(),
        known: Known {
            tokens: [(GATE.to_owned(), "t1".to_owned())].into(),
            ..Known::default()
        },
        patience: Patience::USUAL,
        say,
    };
    let printed = stand_in.invitation();
    for part in [Part::Answer, Part::Approve, Part::Resume] {
        let line = stand_in.command(part);
        assert!(printed.contains(&line), "{line} in {printed}");
        let typed = cli::Cli::try_parse_from(line.split(' '));
        assert!(typed.is_ok(), "{line}");
    }
    let answer = stand_in.command(Part::Answer);
    assert_eq!(answer, "nexus runs answer r gate yes --resolution-token t1");
}

fn none() -> Bearer {
    Bearer {
        public_id: String::new(),
        token: String::new(),
    }
}
