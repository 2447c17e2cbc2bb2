//! Bad input (BR-008, BR-056, BR-059, BR-061, BR-062; `conventions.md` §3, §7, §10, §11): every
//! bound, type and encoding is a prompt 4xx in the envelope, never a 5xx, and changes nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use nexus::domain::json::Value as Exact;
use reqwest::Method;
use serde_json::json;

use crate::support::fleet::dump;
use crate::support::seed::{World, claim_token, door};
use crate::support::{Answer, TestApp, at, find, items, raw, text};

const INBOX: &str = "/agent_api/v1/executor/inbox";
const CLAIMS: &str = "/agent_api/v1/executor/inbox/claims";

fn nested(levels: usize) -> String {
    format!("{}1{}", "[".repeat(levels), "]".repeat(levels))
}

/// Bodies that are no JSON object Nexus can read.
fn unreadable() -> Vec<(&'static str, Vec<u8>)> {
    let text = |s: &str| s.as_bytes().to_vec();
    vec![
        ("cut", text("{\"a\":")),
        ("a bare word", text("hello")),
        ("single quotes", text("{'a':1}")),
        ("a trailing comma", text("{\"a\":1,}")),
        ("two values", text("{}{}")),
        ("trailing bytes", text("{}x")),
        ("NaN", text("{\"a\":NaN}")),
        ("Infinity", text("{\"a\":-Infinity}")),
        ("a plus", text("{\"a\":+1}")),
        ("a leading zero", text("{\"a\":01}")),
        ("a byte order mark", text("\u{feff}{}")),
        ("a raw NUL", text("{\"a\":\"\u{0}\"}")),
        ("a raw newline in a string", text("{\"a\":\"\n\"}")),
        ("a lone high surrogate", text(r#"{"a":"\ud800"}"#)),
        ("a lone low surrogate", text(r#"{"a":"\udc00x"}"#)),
        ("a lone surrogate in a key", text(r#"{"\ud83d":1}"#)),
        ("a bad escape", text(r#"{"a":"\x41"}"#)),
        ("no UTF-8", b"{\"a\":\"\xff\xfe\"}".to_vec()),
        ("a surrogate as UTF-8", b"{\"a\":\"\xed\xa0\x80\"}".to_vec()),
        ("overlong UTF-8", b"{\"a\":\"\xc0\x80\"}".to_vec()),
        ("an array", text("[]")),
        ("null", text("null")),
        ("a string", text("\"x\"")),
        ("a number", text("1e400")),
        (
            "128 levels in a member",
            format!("{{\"a\":{}}}", nested(128)).into_bytes(),
        ),
        (
            "129 levels in a member",
            format!("{{\"a\":{}}}", nested(129)).into_bytes(),
        ),
        (
            "100,000 levels",
            format!("{{\"a\":{}}}", nested(100_000)).into_bytes(),
        ),
        ("100,000 open brackets", "[".repeat(100_000).into_bytes()),
        ("blank", text("   ")),
    ]
}

struct Scene {
    app: TestApp,
    sql: tokio_postgres::Client,
    world: World,
    run: String,
    token: String,
}

impl Scene {
    async fn new() -> Self {
        let app = TestApp::start().await;
        let sql = app.sql().await;
        let world = World::in_database(&sql, "a").await;
        let run = world
            .run(
                &app,
                json!([world.routed("a", "write_note"), world.routed("b", "echo")]),
            )
            .await;
        let token = world.claim(&app, &run, "a").await;
        Self {
            app,
            sql,
            world,
            run,
            token,
        }
    }

    /// Every door that takes a body, with its bearer.
    fn doors(&self) -> Vec<(String, String)> {
        let (runner, member) = (&self.world.runner.token, &self.world.human.token);
        let runs = self.world.runs();
        vec![
            (runs.clone(), member.clone()),
            (format!("{runs}/{}/start", self.run), member.clone()),
            (format!("{runs}/{}/stop", self.run), member.clone()),
            (door(&self.run, "b", "claim"), runner.clone()),
            (CLAIMS.to_owned(), runner.clone()),
            (door(&self.run, "a", "extend"), runner.clone()),
            (door(&self.run, "a", "commit"), runner.clone()),
        ]
    }

    /// The claim still works: nothing was harmed.
    async fn end(self) {
        let body = json!({"claim_token": self.token, "content": "clean"});
        self.app
            .post(
                &door(&self.run, "a", "commit"),
                &self.world.runner.token,
                body,
            )
            .await
            .ok(200);
        self.world.stop(&self.app, &self.run).await.ok(200);
        self.app.finish().await;
    }
}

fn is_refusal(answer: &Answer) {
    let status = answer.status.as_u16();
    assert!((400..500).contains(&status), "{answer:?}");
    assert!(!text(&answer.json(), "error.code").is_empty(), "{answer:?}");
    assert!(
        !answer.text().contains("sk-nexus"),
        "no token in {answer:?}"
    );
}

#[tokio::test]
async fn bodies_that_are_no_json_object_are_refused_everywhere() {
    let s = Scene::new().await;
    let before = dump(&s.sql).await;
    for (path, bearer) in s.doors() {
        for (what, body) in unreadable() {
            let answer = s
                .app
                .request(Method::POST, &path, &bearer)
                .header("content-type", "application/json; charset=utf-8")
                .bytes(body)
                .send()
                .await;
            assert_eq!(answer.status, 400, "{what}: {answer:?}");
            is_refusal(&answer);
        }
        for (name, value) in [
            ("content-type", "text/plain"),
            ("content-type", "application/x-www-form-urlencoded"),
            ("content-type", "application/json; charset=latin-1"),
            ("content-type", "application/jsonx"),
            ("content-type", "multipart/form-data; boundary=x"),
            ("content-encoding", "gzip"),
        ] {
            let mut call = s.app.request(Method::POST, &path, &bearer).bytes("{}");
            if name != "content-type" {
                call = call.header("content-type", "application/json");
            }
            call.header(name, value)
                .send()
                .await
                .expect(415, "unsupported_media_type");
        }
        s.app
            .request(Method::POST, &path, &bearer)
            .bytes("{}")
            .send()
            .await
            .expect(415, "unsupported_media_type");
        // Doors whose own canonical bound judges take more raw bytes.
        if !path.ends_with("/commit") && !path.ends_with("/runs") {
            let big = format!("{{\"a\":\"{}\"}}", "x".repeat(2 * 1024 * 1024));
            s.app
                .post(&path, &bearer, big)
                .await
                .expect(413, "content_too_large");
        }
        // Wrong verbs and strangers.
        s.app
            .delete(&path, &bearer)
            .await
            .expect(405, "method_not_allowed");
        s.app
            .post(&path, "", "{}")
            .await
            .expect(401, "unauthorized");
        s.app
            .post(&path, "sk-nexus-x1-nope", "{}")
            .await
            .expect(401, "unauthorized");
        let wrong_plane = if bearer == s.world.human.token {
            &s.world.runner.token
        } else {
            &s.world.human.token
        };
        s.app
            .post(&path, wrong_plane, "{}")
            .await
            .expect(401, "unauthorized");
    }
    assert_eq!(before, dump(&s.sql).await);
    s.end().await;
}

/// BR-062: what is accepted is readable, what is deeper is refused, and the process lives.
#[tokio::test]
async fn depth_is_bounded_the_same_way_everywhere() {
    for (levels, status) in [
        (1, 200),
        (99, 200),
        (100, 200),
        (101, 422),
        (127, 422),
        (128, 400),
        (129, 400),
        (100_000, 400),
    ] {
        let s = Scene::new().await;
        let body = format!(
            r#"{{"claim_token":"{}","structured_content":{}}}"#,
            s.token,
            nested(levels)
        );
        let path = door(&s.run, "a", "commit");
        let answer = s
            .app
            .post(&path, &s.world.runner.token, body.as_str())
            .await;
        assert_eq!(answer.status, status, "{levels} levels: {answer:?}");
        match status {
            200 => {
                let detail = s
                    .app
                    .get(
                        &format!("{}/{}/tasks/a", s.world.runs(), s.run),
                        &s.world.human.token,
                    )
                    .await;
                assert!(
                    detail
                        .text()
                        .contains(&format!(r#""structured_content":{}"#, nested(levels)))
                );
                assert_eq!(
                    s.app
                        .post(&path, &s.world.runner.token, body.as_str())
                        .await
                        .status,
                    200,
                    "an exact repeat"
                );
                let other = format!(
                    r#"{{"claim_token":"{}","structured_content":{}}}"#,
                    s.token,
                    nested(levels).replace('1', "2")
                );
                s.app
                    .post(&path, &s.world.runner.token, other)
                    .await
                    .expect(409, "final_result_conflict");
            }
            422 => {
                answer.expect(422, "result_unstorable");
            }
            _ => {
                answer.expect(400, "parameter_invalid");
                let body = json!({"claim_token": s.token, "content": "clean"});
                s.app.post(&path, &s.world.runner.token, body).await.ok(200);
            }
        }
        // The same for a call's input, whose root is the object.
        let before = dump(&s.sql).await;
        let mut steps = s.world.routed("a", "echo");
        steps["tool"]["input"] = json!("INPUT");
        let wrapped = format!(r#"{{"a":{}}}"#, nested(levels.saturating_sub(1)));
        let body = json!({"run": {"approval_mode": "bypass", "steps": [steps]}})
            .to_string()
            .replace("\"INPUT\"", &wrapped);
        let create = || {
            let call = s
                .app
                .request(Method::POST, &s.world.runs(), &s.world.human.token);
            call.header("idempotency-key", "deep")
                .json(body.as_str())
                .send()
        };
        let answer = create().await;
        if levels <= 100 {
            answer.ok(201);
            assert_eq!(
                create().await.header("idempotency-replayed"),
                "true",
                "{levels} levels"
            );
        } else {
            is_refusal(&answer);
            assert_eq!(before, dump(&s.sql).await);
        }
        s.world.stop(&s.app, &s.run).await.ok(200);
        s.app.finish().await;
    }
}

/// BR-061, BR-056: a call's input travels to its executor digit for digit.
#[tokio::test]
async fn a_calls_input_reaches_its_executor_exactly() {
    let s = Scene::new().await;
    let input = r#"{"a":123456789012345678901234567890123456789,"b":-9007199254740993,"c":1.0,"d":1e20,"dup":1,"dup":{"x":2},"e":"\u0041\u007f\u2028😀","f":0.1,"":null}"#;
    let canonical = r#"{"":null,"a":123456789012345678901234567890123456789,"b":-9007199254740993,"c":1.0,"d":1e20,"dup":{"x":2},"e":"A"#;
    let mut step = s.world.routed("a", "echo");
    step["tool"]["input"] = json!("INPUT");
    let body = json!({"run": {"approval_mode": "bypass", "steps": [step]}})
        .to_string()
        .replace("\"INPUT\"", input);
    let created = s
        .app
        .request(Method::POST, &s.world.runs(), &s.world.human.token)
        .header("idempotency-key", "exact")
        .json(body.as_str())
        .send()
        .await;
    let run = text(&created.ok(201), "run.public_id").to_owned();
    s.app
        .command(
            &format!("{}/{run}/start", s.world.runs()),
            &s.world.human.token,
        )
        .await
        .ok(200);
    let list = s.app.get(INBOX, &s.world.runner.token).await;
    assert!(list.text().contains(canonical), "{}", list.text());
    let granted = s
        .app
        .command(&door(&run, "a", "claim"), &s.world.runner.token)
        .await;
    assert!(granted.text().contains(canonical), "{}", granted.text());
    let shown = at(&granted.json(), "task.tool_input").clone();
    let sent = nexus::domain::json::parse(input.as_bytes()).unwrap();
    let same = |v: &Exact| v.canonical().unwrap().into_string();
    assert_eq!(same(&shown), same(&sent));
    // The same text replays, one digit less is another envelope.
    let again = |body: String| {
        s.app
            .request(Method::POST, &s.world.runs(), &s.world.human.token)
            .header("idempotency-key", "exact")
            .json(body)
            .send()
    };
    again(body.replace("1e20", "1.0E+20")).await.ok(200);
    again(body.replace("456789,\"b\"", "456788,\"b\""))
        .await
        .expect(409, "idempotency_envelope_mismatch");
    s.world
        .commit(&s.app, &run, "a", &claim_token(&granted))
        .await
        .ok(200);
    s.end().await;
}

#[tokio::test]
async fn a_create_that_is_refused_leaves_nothing() {
    let s = Scene::new().await;
    let before = dump(&s.sql).await;
    let good = s.world.routed("a", "echo");
    let with = |input: &str| {
        let mut step = good.clone();
        step["tool"]["input"] = json!("INPUT");
        json!({"run": {"approval_mode": "bypass", "steps": [good.clone(), step]}})
            .to_string()
            .replace("\"INPUT\"", input)
            .replacen(r#""key":"a""#, r#""key":"z""#, 1)
    };
    let run = |members: serde_json::Value| json!({ "run": members }).to_string();
    let step = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut step = good.clone();
        change(&mut step["tool"]);
        run(json!({"approval_mode": "bypass", "steps": [step]}))
    };
    let many: Vec<_> = (0..65)
        .map(|i| s.world.routed(&format!("k{i}"), "echo"))
        .collect();
    let bodies = vec![
        "{}".to_owned(),
        run(json!(null)),
        run(json!([])),
        run(json!("x")),
        run(json!({})),
        run(json!({"approval_mode": "bypass"})),
        run(json!({"approval_mode": "bypass", "steps": []})),
        run(json!({"approval_mode": "bypass", "steps": {}})),
        run(json!({"approval_mode": "bypass", "steps": [1]})),
        run(json!({"approval_mode": "bypass", "steps": [{}]})),
        run(json!({"approval_mode": "bypass", "steps": [good, good]})),
        run(json!({"approval_mode": "bypass", "steps": many})),
        run(json!({"approval_mode": "maybe", "steps": [good]})),
        run(json!({"approval_mode": 1, "steps": [good]})),
        run(json!({"approval_mode": "bypass", "steps": [good], "tasks": []})),
        run(json!({"approval_mode": "bypass", "steps": [good], "x\u{0}y": 1})),
        run(
            json!({"approval_mode": "bypass", "steps": [good], "default_runner_executor_public_id": "x"}),
        ),
        with(r#"{"a":"\u0000"}"#),
        with(r#"{"\u0000":1}"#),
        with(r#"{"a":1e400}"#),
        with(&format!(r#"{{"a":{}}}"#, "9".repeat(257))),
        with(&format!(r#"{{"a":"{}"}}"#, "x".repeat(65_536))),
        with("[]"),
        with("7"),
        step(&|t| t["key"] = json!("a b")),
        step(&|t| t["key"] = json!("k".repeat(65))),
        step(&|t| t["key"] = json!("\u{0}")),
        step(&|t| t["key"] = json!(1)),
        step(&|t| t["name"] = json!("")),
        step(&|t| t["name"] = json!("n".repeat(129))),
        step(&|t| t["name"] = json!("ec\u{0}ho")),
        step(&|t| t["name"] = json!(["echo"])),
        run(
            json!({"approval_mode": "bypass", "steps": [{"tool": {"name": "ec\u{0}ho", "input": {}}}]}),
        ),
        run(
            json!({"approval_mode": "bypass", "default_runner_executor_public_id": s.world.runner.public_id.to_string(),
            "steps": [{"tool": {"name": "ec\u{0}ho", "input": {}, "route": {"kind": "runner"}}}]}),
        ),
        step(&|t| t["timeout_ms"] = json!(0)),
        step(&|t| t["timeout_ms"] = json!(604_800_001)),
        step(&|t| t["timeout_ms"] = json!("60")),
        step(&|t| t["timeout_ms"] = json!(1.5)),
        step(&|t| t["after"] = json!(["zz"])),
        step(&|t| t["after"] = json!(["a"])),
        step(&|t| t["route"] = json!({"kind": "runner", "runner_executor_public_id": null})),
        step(&|t| t["route"] = json!({"kind": "runner", "runner_executor_public_id": "x"})),
        step(
            &|t| t["route"] = json!({"kind": "runner", "runner_executor_public_id": "01a00000-0000-7000-8000-000000000000"}),
        ),
        step(&|t| t["route"] = json!({"kind": "\u{0}"})),
        step(&|t| t["name"] = json!("not_announced")),
        step(&|t| t["unknown"] = json!(1)),
        step(&|t| t["on_failure"] = json!("explode")),
    ];
    let huge = "9".repeat(39);
    let all = bodies.into_iter().chain([
        step(&|t| t["timeout_ms"] = json!("HUGE")).replace("\"HUGE\"", &huge),
        r#"{"run":{"approval_mode":"bypass","steps":[{"tool":{"name":"echo","input":{},"key":"a","key":"a b"}}]}}"#.to_owned(),
    ]);
    for body in all {
        let answer = s
            .app
            .post(&s.world.runs(), &s.world.human.token, body.as_str())
            .await;
        is_refusal(&answer);
        let keyed = s
            .app
            .request(Method::POST, &s.world.runs(), &s.world.human.token)
            .header("idempotency-key", "k")
            .json(body);
        is_refusal(&keyed.send().await);
    }
    for key in ["", " ", "é", &"k".repeat(37)] {
        let body = run(json!({"approval_mode": "bypass", "steps": [good]}));
        let keyed = s
            .app
            .request(Method::POST, &s.world.runs(), &s.world.human.token)
            .header("idempotency-key", key)
            .json(body);
        keyed.send().await.expect(400, "parameter_invalid");
    }
    for workspace in ["x", "01a00000-0000-7000-8000-000000000000", "%00", "%ff"] {
        let path = format!("/agent_api/v1/workspaces/{workspace}/runs");
        let answer = s
            .app
            .post(
                &path,
                &s.world.human.token,
                run(json!({"approval_mode": "bypass", "steps": [good]})),
            )
            .await;
        is_refusal(&answer);
    }
    assert_eq!(before, dump(&s.sql).await);
    s.end().await;
}

#[tokio::test]
async fn parameters_of_the_executors_doors_are_refused_by_name() {
    let s = Scene::new().await;
    let runner = &s.world.runner.token;
    let before = dump(&s.sql).await;
    for (member, values) in [
        (
            "limit",
            vec![
                json!(0),
                json!(65),
                json!(-1),
                json!("4"),
                json!(1.0),
                json!([]),
                json!(true),
                json!(1e300),
            ],
        ),
        (
            "wait_ms",
            vec![json!(-1), json!(25_001), json!("1"), json!(0.5), json!({})],
        ),
    ] {
        for value in values {
            let refused = s
                .app
                .post(CLAIMS, runner, json!({ member: value }))
                .await
                .expect(400, "parameter_invalid");
            assert_eq!(text(&refused, "parameter"), member);
        }
        let huge = format!(r#"{{"{member}":{}}}"#, "9".repeat(39));
        s.app
            .post(CLAIMS, runner, huge)
            .await
            .expect(400, "parameter_invalid");
    }
    for key in ["", " ", "a b", "é", &"k".repeat(256)] {
        let keyed = s
            .app
            .request(Method::POST, CLAIMS, runner)
            .header("idempotency-key", key)
            .send()
            .await;
        keyed.expect(400, "parameter_invalid");
    }
    // Path values that cannot be: absence.
    for (run, key) in [
        (s.run.as_str(), "%00"),
        (s.run.as_str(), "%ff%fe"),
        (s.run.as_str(), "a%20"),
        (s.run.as_str(), "-a"),
        (&s.run[1..], "a"),
        ("%00", "a"),
        ("..", "a"),
        ("00000000-0000-0000-0000-000000000000", "a"),
    ] {
        for verb in ["claim", "extend", "commit"] {
            let body = json!({"claim_token": s.token, "timeout_ms": 1});
            let answer = s.app.post(&door(run, key, verb), runner, body).await;
            assert!([400, 404].contains(&answer.status.as_u16()), "{answer:?}");
            is_refusal(&answer);
        }
    }
    // Ids are case-insensitive.
    let upper = door(&s.run.to_uppercase(), "a", "claim");
    s.app
        .request(Method::GET, &upper, runner)
        .header("claim-token", &s.token)
        .send()
        .await
        .ok(200);
    // Members nobody knows, nulls, and what is ignored.
    let odd = format!(
        r#"{{"claim_token":"{}","timeout_ms":1,"timeout_ms":"x"}}"#,
        s.token
    );
    s.app
        .post(&door(&s.run, "a", "extend"), runner, odd)
        .await
        .expect(422, "invalid_timeout_ms");
    let list = s.app.get(&format!("{INBOX}?limit=1&limit=0"), runner).await;
    list.expect(400, "parameter_invalid");
    s.app
        .get(&format!("{INBOX}?unknown=%00&limit=5"), runner)
        .await
        .ok(200);
    s.app
        .get(&format!("{INBOX}?after={}", "A".repeat(513)), runner)
        .await
        .expect(400, "parameter_invalid");
    assert_eq!(before, dump(&s.sql).await);
    s.end().await;
}

/// Requests that no client library sends.
#[tokio::test]
async fn broken_requests_end_with_a_refusal_or_a_closed_connection() {
    let s = Scene::new().await;
    let before = dump(&s.sql).await;
    let (path, bearer) = (door(&s.run, "a", "commit"), s.world.runner.token.clone());
    let head = |extra: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {bearer}\r\ncontent-type: application/json\r\n{extra}\r\n"
        )
    };
    let long = "x".repeat(9_000);
    for request in [
        head("content-length: -1\r\n"),
        head("content-length: 99999999999999999999\r\n"),
        head("content-length: 5\r\ncontent-length: 6\r\n") + "{}   ",
        head("content-length: 2\r\ntransfer-encoding: chunked\r\n") + "zz\r\n",
        head("transfer-encoding: chunked\r\n") + "-5\r\n{}\r\n0\r\n\r\n",
        head("x: \u{1}\r\ncontent-length: 2\r\n") + "{}",
        format!("POST {path}?{long} HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {bearer}\r\n\r\n"),
        head(
            &(0..5)
                .map(|i| format!("x-{i}: {long}\r\n"))
                .collect::<String>(),
        ),
        "\u{0}\u{1}\u{2}\r\n\r\n".to_owned(),
        format!("POST {path} HTTP/9.9\r\n\r\n"),
    ] {
        let heard = raw::hang_up(
            &s.app.base,
            request.as_bytes(),
            request.len(),
            std::time::Duration::from_secs(2),
        )
        .await;
        let status = heard.split(' ').nth(1).unwrap_or("closed").to_owned();
        assert!(
            heard.is_empty() || status.starts_with('4') || status == "505",
            "{request:.60}: {heard}"
        );
    }
    assert_eq!(before, dump(&s.sql).await);
    let list = s.app.get(INBOX, &s.world.runner.token).await.ok(200);
    assert_eq!(items(&list, "tasks").len(), 1);
    assert!(find(&list, "tasks.0.claim_token").is_none());
    s.end().await;
}

/// `conventions.md` §4: an error keeps its code, sentence, request id and steps, whatever names the body
/// used; of a client's word at most 64 characters come back, and no control character.
#[tokio::test]
async fn an_error_says_little_of_a_hostile_name() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let long = "n".repeat(5_000);
    let steps = json!([{"ask": {"key": "q", "prompt": "Go?"}}]);
    let run = world.run(&app, steps).await;
    let append = format!("{}/{run}/tasks", world.runs());
    for name in ["k\\u0000", "k\\u0001\\u001f\\n", &long] {
        let step = |options: &str| format!(r#"[{{"ask":{{"prompt":"p",{options}}}}}]"#);
        let calls = [
            step(&format!(r#""{name}":1"#)),
            format!(r#"[{{"tool":{{"name":"ro","model_defaults":{{"{name}":1}}}}}}]"#),
            format!(r#"[{{"parallel":[{{"ask":{{"prompt":"p"}}}}],"{name}":1}}]"#),
        ];
        for steps in &calls {
            let run = format!(r#"{{"run":{{"approval_mode":"bypass","steps":{steps}}}}}"#);
            let more = format!(r#"{{"steps":{steps}}}"#);
            for (path, body) in [(&world.runs(), &run), (&append, &more)] {
                let told = app.post(path, &world.human.token, body.as_str()).await;
                let told = told.expect(422, "invalid_steps");
                let path = text(&told, "steps.0.path");
                assert!(
                    path.len() <= 100 && !path.contains(char::is_control),
                    "{path:?}"
                );
                assert!(path.ends_with(&name[..1]), "{path:?}");
                assert!(text(&told, "message").len() <= 300);
            }
        }
        let run = format!(r#"{{"run":{{"approval_mode":"bypass","steps":[],"{name}":1}}}}"#);
        let told = app
            .post(&world.runs(), &world.human.token, run.as_str())
            .await;
        let told = told.expect(422, "unknown_run_option");
        assert!(text(&told, "path").len() <= 68);
        let body = format!(r#"{{"resolve":["{name}"]}}"#);
        let told = app.post(&append, &world.human.token, body.as_str()).await;
        assert!(text(&told.expect(422, "unknown_await"), "message").len() <= 120);
    }
    app.finish().await;
}
