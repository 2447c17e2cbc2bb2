//! Every door refuses a stranger. The routes are read from the source of the routers, so a new
//! door is covered, or named here with a reason, before it can be merged.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::json;

use crate::support::{Answer, Door, Fixture, OPERATOR, TestApp, source, text};

/// Doors that ask for no bearer, or answer a bad one in their own way.
const OPEN: &[(&str, &str)] = &[
    ("/livez", "health: touches nothing"),
    ("/readyz", "health: says only what a balancer needs"),
    ("/openapi.json", "the public description of the API"),
    (
        "/agent_api/v1/cable",
        "answers 101 and then `disconnect`: its own tests",
    ),
];

/// A verb on a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    path: String,
    method: Method,
}

/// Reads `.route("…", get(…).post(…))` out of the routers.
pub fn routes() -> Vec<(String, Vec<Method>)> {
    let mut routes = Vec::new();
    for module in ["http", "cable"] {
        for file in source::module(module) {
            assert!(
                !file.text.contains(".nest("),
                "{}: nested routers hide paths from this test",
                file.path
            );
            let calls = file.text.split(".route(").skip(1);
            for call in calls.filter(|call| !call.starts_with(')')) {
                let Some((path, rest)) = path_of(call, &file.text) else {
                    panic!("{}: this test cannot read the path of a route", file.path);
                };
                let methods = methods(&rest[..end_of_call(rest)]);
                assert!(
                    !methods.is_empty(),
                    "{path} has no verb that this test knows"
                );
                routes.push((path, methods));
            }
        }
    }
    routes
}

/// The path that a call of `.route(` begins with, and what follows it: a literal, the name of one,
/// or a `format!` over such names.
fn path_of<'a>(call: &'a str, file: &str) -> Option<(String, &'a str)> {
    let call = call.trim_start();
    if let Some(literal) = call.strip_prefix('"') {
        let (path, rest) = literal.split_once('"')?;
        return Some((path.to_owned(), rest));
    }
    if let Some(format) = call.strip_prefix("&format!(\"") {
        let (template, rest) = format.split_once("\")")?;
        return Some((filled_template(template, file)?, rest));
    }
    let (name, rest) = call.split_once(',')?;
    Some((value_of(name, file)?, rest))
}

/// The text that a file binds to that name.
fn value_of(name: &str, file: &str) -> Option<String> {
    let bound = [
        format!("let {name} = \""),
        format!("const {name}: &str = \""),
    ];
    bound.iter().find_map(|start| {
        let (_, rest) = file.split_once(start.as_str())?;
        Some(rest.split_once('"')?.0.to_owned())
    })
}

/// `{name}` is what the file binds to it, `{{` and `}}` are braces.
fn filled_template(template: &str, file: &str) -> Option<String> {
    let hidden = template.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let mut path = String::new();
    let mut rest = hidden.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        path.push_str(before);
        path.push_str(&value_of(name, file)?);
        rest = after;
    }
    Some((path + rest).replace('\u{1}', "{").replace('\u{2}', "}"))
}

/// Where the parenthesis that `.route(` opened is closed.
fn end_of_call(rest: &str) -> usize {
    let mut depth = 1;
    for (at, c) in rest.char_indices() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn methods(handlers: &str) -> Vec<Method> {
    let verbs = [
        ("get", Method::GET),
        ("post", Method::POST),
        ("put", Method::PUT),
        ("patch", Method::PATCH),
        ("delete", Method::DELETE),
    ];
    let calls = |verb: &str| {
        let call = format!("{verb}(");
        handlers.match_indices(&call).any(|(at, _)| {
            let before = handlers[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    };
    assert!(!calls("any") && !calls("on"), "name the verbs: {handlers}");
    verbs
        .into_iter()
        .filter(|(verb, _)| calls(verb))
        .map(|(_, m)| m)
        .collect()
}

/// Routes that need a bearer, one a verb.
fn guarded() -> Vec<Route> {
    let is_open = |path: &str| OPEN.iter().any(|(open, _)| *open == path);
    routes()
        .into_iter()
        .filter(|(path, _)| !is_open(path))
        .flat_map(|(path, methods)| {
            methods.into_iter().map(move |method| Route {
                path: path.clone(),
                method,
            })
        })
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plane {
    Member,
    Executor,
    Operator,
}

impl Route {
    fn plane(&self) -> Plane {
        let door = "/agent_api/v1/executor";
        match self.path.strip_prefix(door) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Plane::Executor,
            _ if self.path.starts_with("/operator_api/v1/") => Plane::Operator,
            _ => Plane::Member,
        }
    }

    fn names_resources(&self) -> bool {
        self.path.contains('{')
    }

    /// The path with real ids in it.
    fn filled(&self, ids: &BTreeMap<&str, String>) -> String {
        let mut path = String::new();
        let mut rest = self.path.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').expect("a parameter is closed");
            let id = ids
                .get(name)
                .unwrap_or_else(|| panic!("{}: tell `ids` what {{{name}}} is", self.path));
            path.push_str(before);
            path.push_str(id);
            rest = after;
        }
        path + rest
    }

    async fn ask(&self, door: &Door, ids: &BTreeMap<&str, String>, token: &str) -> Answer {
        let call = door.request(self.method.clone(), &self.filled(ids), token);
        if self.method == Method::GET || self.method == Method::DELETE {
            call.send().await
        } else {
            call.json("{}").send().await
        }
    }
}

/// What path parameters stand for, of one account: a started run of one task, parked at its runner.
async fn ids(app: &TestApp, f: &Fixture) -> BTreeMap<&'static str, String> {
    let profile = json!({"kind": "pure", "destructive": false, "effect_scope": "closed",
                         "idempotency": "none", "reconciliation": "none"});
    let served = json!({"tools": [{"name": "echo", "effect_profile": profile}]});
    app.put(
        "/agent_api/v1/executor/announcement",
        &f.runner.token,
        served,
    )
    .await
    .ok(200);
    let runs = format!("/agent_api/v1/workspaces/{}/runs", f.workspace);
    let step = json!({"tool": {"key": "a", "name": "echo", "input": {},
        "route": {"kind": "runner", "runner_executor_public_id": f.runner.id}}});
    let body = json!({"run": {"approval_mode": "bypass", "steps": [step]}});
    let created = app.post(&runs, &f.human.token, body).await.ok(201);
    let run = text(&created, "run.public_id").to_owned();
    app.command(&format!("{runs}/{run}/start"), &f.human.token)
        .await
        .ok(200);
    let lookup = f.runner.token.split('-').nth(3);
    BTreeMap::from([
        ("account", f.account.clone()),
        ("workspace", f.workspace.clone()),
        ("member", f.human.id.clone()),
        ("executor", f.runner.id.clone()),
        ("token", lookup.expect("a token has five parts").to_owned()),
        ("run", run),
        ("task", "a".to_owned()),
        ("upload", "01a22e11-0000-7000-8000-000000000000".to_owned()),
    ])
}

#[test]
fn the_routes_are_found_in_the_source() {
    let all = guarded();
    for (path, method) in [
        ("/operator_api/v1/accounts", Method::POST),
        (
            "/operator_api/v1/workspaces/{workspace}/grants/{member}",
            Method::DELETE,
        ),
        ("/agent_api/v1/executor", Method::GET),
        ("/agent_api/v1/executor/announcement", Method::PUT),
        ("/agent_api/v1/executors/{executor}", Method::GET),
        ("/agent_api/v1/workspaces/{workspace}/runs", Method::POST),
        (
            "/agent_api/v1/executor/inbox/{run}/{task}/claim",
            Method::GET,
        ),
    ] {
        let route = Route {
            path: path.to_owned(),
            method,
        };
        assert!(all.contains(&route), "{route:?}");
    }
    let mut unique = all.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), all.len(), "a route is named once");
}

#[tokio::test]
async fn every_door_refuses_a_stranger_and_a_bearer_of_another_plane() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let ids = ids(&app, &f).await;
    let junk = "sk-nexus-m1-0000000000000000-0000000000000000000000000000000000000000000";
    for route in guarded() {
        let bearers = [
            (None, ""),
            (None, junk),
            (Some(Plane::Member), f.human.token.as_str()),
            (Some(Plane::Executor), f.runner.token.as_str()),
            (Some(Plane::Operator), OPERATOR),
        ];
        for (plane, bearer) in bearers {
            if plane == Some(route.plane()) {
                continue;
            }
            let answer = route.ask(&app, &ids, bearer).await;
            assert_eq!(
                answer.status.as_u16(),
                401,
                "{route:?} as {plane:?}: {answer:?}"
            );
            answer.expect(401, "unauthorized");
        }
    }
    app.finish().await;
}

#[tokio::test]
async fn every_door_of_an_account_conceals_it_from_its_neighbour() {
    let app = TestApp::start().await;
    let own = app.fixture().await;
    let neighbour = app.fixture().await;
    let ids = ids(&app, &own).await;
    let mut asked = 0;
    let mut routes = guarded();
    // What makes its resource go comes last, or those behind it would find nothing.
    routes.sort_by_key(|route| route.method == Method::DELETE);
    for route in routes.iter().filter(|r| r.names_resources()) {
        let (theirs, ours) = match route.plane() {
            Plane::Member => (&neighbour.human.token, &own.human.token),
            Plane::Executor => (&neighbour.runner.token, &own.runner.token),
            Plane::Operator => continue,
        };
        let answer = route.ask(&app, &ids, theirs).await;
        assert_eq!(answer.status.as_u16(), 404, "{route:?}: {answer:?}");
        answer.expect(404, "not_found");
        // Its own member is not told the same, or the answer above would prove nothing.
        let answer = route.ask(&app, &ids, ours).await;
        let concealed = answer.text().contains(r#""code":"not_found""#);
        assert!(!concealed, "{route:?}: {answer:?}");
        asked += 1;
    }
    assert!(asked > 1, "there are such doors");
    app.finish().await;
}
