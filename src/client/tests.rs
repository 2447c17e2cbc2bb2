//! The client against a scripted server on a real socket: what is sent, what is sent again, what is
//! read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode};

use super::*;
use crate::domain::Value;

/// What the server does with one request: a status, headers and a body, or a cut.
#[derive(Clone)]
enum Reply {
    Answer(u16, Vec<(&'static str, &'static str)>, &'static str),
    Cut,
}

struct Seen {
    line: String,
    headers: HeaderMap,
    body: Bytes,
}

#[derive(Clone, Default)]
struct Server {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

async fn serve(State(server): State<Server>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    server.seen.lock().unwrap().push(Seen {
        line: format!("{} {}", parts.method, parts.uri),
        headers: parts.headers,
        body,
    });
    match server.replies.lock().unwrap().pop_front() {
        Some(Reply::Answer(status, headers, body)) => {
            let mut answer = Response::builder().status(status);
            for (name, value) in headers {
                answer = answer.header(name, value);
            }
            answer.body(Body::from(body)).unwrap()
        }
        Some(Reply::Cut) => {
            let pieces = [Ok(Bytes::from("{")), Err(std::io::Error::other("cut"))];
            Response::new(Body::from_stream(futures_util::stream::iter(pieces)))
        }
        None => {
            let mut answer = Response::new(Body::from("no reply is left"));
            *answer.status_mut() = StatusCode::IM_A_TEAPOT;
            answer
        }
    }
}

async fn start(replies: Vec<Reply>) -> (Client, Server) {
    let server = Server::default();
    *server.replies.lock().unwrap() = replies.into();
    let app = Router::new().fallback(serve).with_state(server.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (Client::new(&base, "sk-test").unwrap(), server)
}

fn quick() -> RetryPolicy {
    RetryPolicy {
        base: Duration::from_millis(2),
        longest: Duration::from_millis(20),
        ..RetryPolicy::default()
    }
}

fn ok(body: &'static str) -> Reply {
    Reply::Answer(200, vec![], body)
}

fn busy() -> Reply {
    let body = r#"{"error":{"code":"unavailable","message":"m"}}"#;
    Reply::Answer(503, vec![("retry-after", "0")], body)
}

const TASK: &str = r#"{"task":{"key":"k","kind":"tool_task","status":"completed"}}"#;
const GRANT: &str = r#"{"task":{"kind":"tool_call","run_public_id":"r","task_key":"k"},
    "claim":{"claim_token":"claim-secret","deadline_at":"2030-01-01T00:00:00Z"}}"#;

impl Server {
    fn lines(&self) -> Vec<String> {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .map(|s| s.line.clone())
            .collect()
    }

    fn bodies(&self) -> Vec<Bytes> {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .map(|s| s.body.clone())
            .collect()
    }

    fn header(&self, name: &str) -> Option<String> {
        let seen = self.seen.lock().unwrap();
        let value = seen.last()?.headers.get(name)?;
        Some(value.to_str().unwrap().to_owned())
    }
}

#[tokio::test]
async fn without_permission_every_call_is_sent_once() {
    let (client, server) = start(vec![busy()]).await;
    let error = client.bootstrap().await.unwrap_err();
    assert!(error.is(503, "unavailable"));
    assert_eq!(error.retry_after(), Some(Duration::ZERO));
    assert_eq!(server.lines(), ["GET /agent_api/v1/executor"]);
    assert_eq!(
        server.header("authorization").as_deref(),
        Some("Bearer sk-test")
    );
}

#[tokio::test]
async fn with_permission_reads_and_exact_commits_are_repeated_byte_for_byte() {
    let (client, server) = start(vec![Reply::Cut, busy(), ok(TASK)]).await;
    let commit = Commit {
        claim_token: Some("t".to_owned()),
        content: Some("x".into()),
        ..Commit::default()
    };
    let task = client.with_retry(quick()).commit("r", "k", &commit).await;
    assert_eq!(task.unwrap().status, 200);
    let bodies = server.bodies();
    assert_eq!(bodies.len(), 3);
    assert!(bodies.iter().all(|b| *b == bodies[0]));
    assert_eq!(
        server.header("content-type").as_deref(),
        Some("application/json")
    );
}

#[tokio::test]
async fn a_claim_is_repeated_only_under_a_key() {
    let (client, server) = start(vec![Reply::Cut, Reply::Cut, ok(GRANT)]).await;
    let client = client.with_retry(quick());
    let error = client.claim("r", "k", None).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error}");
    assert_eq!(server.lines().len(), 1);
    let grant = client.claim("r", "k", Some("key-1")).await.unwrap();
    assert_eq!(grant.claim.claim_token, "claim-secret");
    assert_eq!(server.lines().len(), 3);
    assert_eq!(server.header("idempotency-key").as_deref(), Some("key-1"));
    let shown = format!("{grant:?}");
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn a_refusal_is_final_and_attempts_are_bounded() {
    let refused = r#"{"error":{"code":"already_claimed","message":"m"}}"#;
    let (client, server) = start(vec![Reply::Answer(409, vec![], refused)]).await;
    let client = client.with_retry(RetryPolicy {
        attempts: 3,
        ..quick()
    });
    let error = client.claim("r", "k", Some("key")).await.unwrap_err();
    assert!(error.is(409, "already_claimed"));
    server
        .replies
        .lock()
        .unwrap()
        .extend([busy(), busy(), busy(), busy()]);
    client.bootstrap().await.unwrap_err();
    assert_eq!(server.lines().len(), 1 + 3);
}

#[tokio::test]
async fn an_answer_keeps_its_status_headers_and_exact_body() {
    let headers = vec![("idempotency-replayed", "true"), ("x-request-id", "q1")];
    let body = r#"{"run":{"public_id":"r","status":"pending","later":{"n":123456789012345678901}},
        "receipt":{"revision":1},"replayed":true}"#;
    let (client, server) = start(vec![Reply::Answer(200, headers, body)]).await;
    let run = Value::from([("approval_mode", "bypass".into())]);
    let created = client.create_run("w s", &run, Some("k")).await.unwrap();
    assert_eq!((created.status, created.replayed), (200, Some(true)));
    assert_eq!(created.request_id.as_deref(), Some("q1"));
    assert_eq!(created.body, body);
    let exact = created.json();
    let later = exact.get("run").and_then(|r| r.get("later")).unwrap();
    assert_eq!(
        serde_json::to_string(later).unwrap(),
        r#"{"n":123456789012345678901}"#
    );
    assert_eq!(server.lines(), ["POST /agent_api/v1/workspaces/w%20s/runs"]);
    assert_eq!(server.bodies()[0], r#"{"run":{"approval_mode":"bypass"}}"#);
}

#[tokio::test]
async fn bytes_come_with_their_range_and_files_go_as_one_part() {
    let headers = vec![
        ("content-range", "bytes 0-3/9"),
        ("content-type", "text/plain"),
    ];
    let upload = r#"{"upload":{"public_id":"u","filename":"a.txt"}}"#;
    let (client, server) = start(vec![
        Reply::Answer(206, headers, "abcd"),
        Reply::Answer(201, vec![], upload),
    ])
    .await;
    let range = Some("bytes=0-3");
    let file = client
        .attachment_bytes("r", "k", "u", "t", range)
        .await
        .unwrap();
    assert_eq!((file.status, &file.bytes[..]), (206, &b"abcd"[..]));
    assert_eq!(file.content_range.as_deref(), Some("bytes 0-3/9"));
    assert_eq!(server.header("range").as_deref(), range);
    assert_eq!(server.header("claim-token").as_deref(), Some("t"));
    let staged = client.upload("a.txt", "hi".into()).await.unwrap();
    assert_eq!((staged.status, staged.public_id.as_str()), (201, "u"));
    let body = String::from_utf8(server.bodies()[1].to_vec()).unwrap();
    assert!(
        body.contains(r#"name="upload[file]"; filename="a.txt""#),
        "{body}"
    );
}

#[tokio::test]
async fn a_success_of_another_form_is_told_apart_from_no_answer() {
    let (client, _) = start(vec![ok("{}"), ok("<html>")]).await;
    let error = client.bootstrap().await.unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, Error::Decode { .. }), "{error}");
    assert!(
        words.contains("GET /agent_api/v1/executor") && words.contains("executor"),
        "{words}"
    );
    assert!(!error.is_transient());
    assert!(matches!(
        client.replicas().await.unwrap_err(),
        Error::Decode { .. }
    ));
}

#[tokio::test]
async fn nobody_there_is_a_transport_error_that_names_the_call_and_no_token() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::new(&base, "sk-secret").unwrap();
    let error = client
        .read_claim("r", "k", "claim-secret")
        .await
        .unwrap_err();
    assert!(error.is_transient());
    let words = format!("{} {error:?} {client:?}", chain(&error));
    assert!(words.contains("refused"), "{words}");
    assert!(
        words.contains("GET /agent_api/v1/executor/inbox/r/k/claim"),
        "{words}"
    );
    assert!(!words.contains("secret"), "{words}");
}
