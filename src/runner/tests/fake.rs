//! A small kernel on a real socket: it speaks the wire forms of `executor.md` and `cable.md` for
//! one executor, records what it is asked, and can cut, refuse and push on demand.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// `claims`, `inbox`, `commit`, …
    pub door: &'static str,
    pub query: String,
    pub key: Option<String>,
    pub body: Bytes,
    pub at: Instant,
}

impl Seen {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// One inbox row.
#[derive(Debug, Clone)]
pub struct Row {
    pub key: String,
    pub tool: String,
    pub input: Value,
    pub timeout_ms: u64,
    pub claimed: Option<(Option<String>, String)>,
    pub active: bool,
    pub deadline: Option<Instant>,
    pub committed: Option<Bytes>,
}

#[derive(Default)]
struct Inner {
    seen: Vec<Seen>,
    rows: Vec<Row>,
    tokens: u32,
    /// What the next requests at a door answer instead, in order.
    plans: HashMap<&'static str, VecDeque<Plan>>,
    page: usize,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy)]
pub enum Plan {
    /// It has its effect, and its answer is cut off.
    CutAfter,
    /// It has no effect and is answered so.
    Refuse(u16, &'static str),
}

/// The kernel.
#[derive(Clone)]
pub struct Fake {
    pub base: String,
    inner: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<u64>>,
    frames: broadcast::Sender<String>,
    /// Subscriptions are confirmed while this is true.
    pub confirms: Arc<watch::Sender<bool>>,
}

pub const RUN: &str = "01a00000-0000-7000-8000-000000000001";

impl Fake {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            base: format!("http://{}", listener.local_addr().unwrap()),
            inner: Arc::new(Mutex::new(Inner {
                page: 200,
                ..Inner::default()
            })),
            changed: Arc::new(watch::Sender::new(0)),
            frames: broadcast::channel(64).0,
            confirms: Arc::new(watch::Sender::new(true)),
        };
        let row = "/agent_api/v1/executor/inbox/{run}/{key}";
        let app = Router::new()
            .route("/agent_api/v1/executor/announcement", put(bootstrap))
            .route("/agent_api/v1/executor/inbox", get(inbox))
            .route("/agent_api/v1/executor/inbox/claims", post(claims))
            .route("/agent_api/v1/executor/inbox/commits", post(commits))
            .route(&format!("{row}/claim"), post(claim).get(read_claim))
            .route(&format!("{row}/extend"), post(extend))
            .route(&format!("{row}/commit"), post(commit))
            .route("/agent_api/v1/executor/progress", post(progress))
            .route("/agent_api/v1/executor/uploads", post(upload))
            .layer(middleware::from_fn_with_state(fake.clone(), record))
            .route("/agent_api/v1/cable", get(cable))
            .with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        fake
    }

    pub fn row(&self, key: &str, tool: &str, input: Value) {
        self.row_with(key, tool, input, 600_000);
    }

    pub fn row_with(&self, key: &str, tool: &str, input: Value, timeout_ms: u64) {
        let row = Row {
            key: key.to_owned(),
            tool: tool.to_owned(),
            input,
            timeout_ms,
            claimed: None,
            active: true,
            deadline: None,
            committed: None,
        };
        self.inner.lock().unwrap().rows.push(row);
    }

    /// A row that whoever has this token holds.
    pub fn held_row(&self, key: &str, token: &str) {
        self.row(key, "echo", json!({}));
        self.with_row(key, |row| row.claimed = Some((None, token.to_owned())));
    }

    /// A row that somebody else holds.
    pub fn foreign_row(&self, key: &str) {
        self.held_row(key, "theirs");
    }

    pub fn with_row<T>(&self, key: &str, change: impl FnOnce(&mut Row) -> T) -> T {
        let mut inner = self.inner.lock().unwrap();
        change(inner.rows.iter_mut().find(|r| r.key == key).unwrap())
    }

    pub fn plan(&self, door: &'static str, plan: Plan) {
        let mut inner = self.inner.lock().unwrap();
        inner.plans.entry(door).or_default().push_back(plan);
    }

    pub fn page(&self, rows: usize) {
        self.inner.lock().unwrap().page = rows;
    }

    /// What was asked at this door so far.
    pub fn seen(&self, door: &str) -> Vec<Seen> {
        let inner = self.inner.lock().unwrap();
        inner
            .seen
            .iter()
            .filter(|s| s.door == door)
            .cloned()
            .collect()
    }

    pub fn all_seen(&self) -> Vec<&'static str> {
        let inner = self.inner.lock().unwrap();
        inner.seen.iter().map(|s| s.door).collect()
    }

    /// Waits until `n` requests came to this door.
    pub async fn wait_seen(&self, door: &str, n: usize) -> Vec<Seen> {
        self.until(|| self.seen(door).len() >= n, door).await;
        self.seen(door)
    }

    /// Waits until this row is committed; the body.
    pub async fn wait_commit(&self, key: &str) -> Value {
        self.until(|| self.with_row(key, |r| r.committed.is_some()), key)
            .await;
        let body = self.with_row(key, |r| r.committed.clone()).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Waits, by signals, until `is` holds.
    pub async fn until(&self, is: impl Fn() -> bool, what: &str) {
        let mut changed = self.changed.subscribe();
        let wait = async {
            while !is() {
                changed.changed().await.unwrap();
            }
        };
        let bound = Duration::from_secs(20);
        let out = tokio::time::timeout(bound, wait).await;
        assert!(out.is_ok(), "never: {what}; seen {:?}", self.all_seen());
    }

    /// Pushes a message to every subscription.
    pub fn push(&self, event: Value) {
        let id = crate::client::cable::frames::inbox_channel();
        let frame = json!({"identifier": id, "message": {"event": event}});
        let _ = self.frames.send(frame.to_string());
    }

    pub fn nudge(&self) {
        self.push(json!({"type": "work_available", "kind": "tool_call"}));
    }

    /// Sends a raw frame to every socket.
    pub fn frame(&self, frame: Value) {
        let _ = self.frames.send(frame.to_string());
    }

    fn note(&self, door: &'static str, query: String, headers: &HeaderMap, body: Bytes) {
        let key = headers.get("idempotency-key");
        let seen = Seen {
            door,
            query,
            key: key.map(|k| k.to_str().unwrap().to_owned()),
            body,
            at: Instant::now(),
        };
        self.inner.lock().unwrap().seen.push(seen);
        self.tell();
    }

    fn tell(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    fn planned(&self, door: &'static str) -> Option<Plan> {
        let mut inner = self.inner.lock().unwrap();
        inner.plans.get_mut(door)?.pop_front()
    }
}

fn door(request: &Request) -> &'static str {
    let path = request.uri().path();
    let last = path.rsplit('/').next().unwrap();
    match (request.method().as_str(), last) {
        ("GET", "claim") => "read_claim",
        (_, "claim") => "claim",
        (_, "claims") => "claims",
        (_, "commits") => "commits",
        (_, "inbox") => "inbox",
        (_, "extend") => "extend",
        (_, "commit") => "commit",
        (_, "progress") => "progress",
        (_, "uploads") => "uploads",
        (_, "announcement") => "announcement",
        _ => "other",
    }
}

/// Records every request, applies its plan.
async fn record(State(fake): State<Fake>, request: Request, next: Next) -> Response {
    let door = door(&request);
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let headers = parts.headers.clone();
    let plan = fake.planned(door);
    let answer = match plan {
        Some(Plan::Refuse(status, code)) => refusal(status, code),
        _ => {
            next.run(Request::from_parts(parts, Body::from(body.clone())))
                .await
        }
    };
    fake.note(door, query, &headers, body);
    match plan {
        Some(Plan::CutAfter) => cut(),
        _ => answer,
    }
}

/// A success whose body breaks off: the client sees a cut connection.
fn cut() -> Response {
    let broken = futures_util::stream::iter([
        Ok(Bytes::from_static(b"{")),
        Err(std::io::Error::other("cut")),
    ]);
    Response::new(Body::from_stream(broken))
}

fn refusal(status: u16, code: &str) -> Response {
    let body = json!({"error": {"code": code, "message": "as planned", "request_id": "r"}});
    let status = StatusCode::from_u16(status).unwrap();
    (status, axum::Json(body)).into_response()
}

async fn bootstrap() -> Response {
    axum::Json(
        json!({"executor": {"public_id": "x", "kind": "runner", "status": "active",
        "display_name": "t", "credential_epoch": 1}, "measured_at": "2030-01-01T00:00:00Z"}),
    )
    .into_response()
}

fn view(row: &Row) -> Value {
    json!({"kind": "tool_call", "run_public_id": RUN, "task_key": row.key,
        "tool_name": row.tool, "tool_input": row.input, "timeout_ms": row.timeout_ms,
        "deadline_at": "2030-01-01T00:10:00Z", "claimed": row.claimed.is_some(),
        "addressed_to": {"role": "runner", "executor_public_id": "x"}})
}

async fn inbox(State(fake): State<Fake>, RawQuery(query): RawQuery) -> Response {
    let inner = fake.inner.lock().unwrap();
    let query = query.unwrap_or_default();
    let after = query.split('&').find_map(|p| p.strip_prefix("after=c"));
    let from = after.map_or(0, |n| n.parse().unwrap());
    let open = |r: &&Row| r.active && r.committed.is_none();
    let rows: Vec<&Row> = inner.rows.iter().filter(open).collect();
    let page: Vec<Value> = rows
        .iter()
        .skip(from)
        .take(inner.page)
        .map(|r| view(r))
        .collect();
    let full = page.len() == inner.page;
    let next = full.then(|| format!("c{}", from + inner.page));
    axum::Json(json!({"tasks": page, "pagination": {"next_after": next}})).into_response()
}

/// Grants rows under `key`: those of a repeat again with new tokens, or new ones.
fn grant(inner: &mut Inner, key: Option<String>, only: Option<&str>, limit: usize) -> Vec<Value> {
    let mut granted = Vec::new();
    let repeat = key.is_some()
        && inner
            .rows
            .iter()
            .any(|r| r.claimed.as_ref().is_some_and(|c| c.0 == key));
    let Inner { rows, tokens, .. } = inner;
    for row in rows.iter_mut() {
        let mine = row.claimed.as_ref().is_some_and(|c| repeat && c.0 == key);
        let free = !repeat && row.claimed.is_none() && row.active;
        if granted.len() < limit && only.is_none_or(|k| k == row.key) && (mine || free) {
            *tokens += 1;
            let token = format!("token-{tokens}");
            row.claimed = Some((key.clone(), token.clone()));
            row.deadline = Some(Instant::now() + Duration::from_millis(row.timeout_ms));
            let claim = json!({"claim_token": token, "deadline_at": "2030-01-01T00:10:00Z"});
            granted.push(json!({"task": view(row), "claim": claim}));
        }
    }
    granted
}

fn idempotency(headers: &HeaderMap) -> Option<String> {
    let key = headers.get("idempotency-key")?;
    Some(key.to_str().unwrap().to_owned())
}

async fn claims(State(fake): State<Fake>, headers: HeaderMap, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let limit = body["limit"].as_u64().unwrap() as usize;
    let mut inner = fake.inner.lock().unwrap();
    let granted = grant(&mut inner, idempotency(&headers), None, limit);
    axum::Json(json!({"claims": granted})).into_response()
}

async fn claim(
    State(fake): State<Fake>,
    Path((_, key)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let mut inner = fake.inner.lock().unwrap();
    match grant(&mut inner, idempotency(&headers), Some(&key), 1).pop() {
        Some(granted) => axum::Json(granted).into_response(),
        None => refusal(409, "already_claimed"),
    }
}

async fn read_claim(
    State(fake): State<Fake>,
    Path((_, key)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let token = headers.get("claim-token").unwrap().to_str().unwrap();
    fake.with_row(&key, |row| {
        if row.claimed.as_ref().is_none_or(|c| c.1 != token) {
            return refusal(409, "not_claimant");
        }
        axum::Json(json!({"claim": {"active": row.active}})).into_response()
    })
}

async fn extend(
    State(fake): State<Fake>,
    Path((_, key)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let now = Instant::now();
    fake.with_row(&key, |row| {
        if row.deadline.is_none_or(|at| now >= at) || !row.active {
            return refusal(409, "not_extendable");
        }
        let (_, token) = row.claimed.as_ref().unwrap();
        if body["claim_token"] != json!(token) {
            return refusal(409, "not_claimant");
        }
        let ms = body["timeout_ms"].as_u64().unwrap();
        row.deadline = Some(now + Duration::from_millis(ms));
        let claim = json!({"claim_token": token, "deadline_at": "2030-01-01T00:10:00Z"});
        axum::Json(json!({"task": view(row), "claim": claim})).into_response()
    })
}

/// What a commit comes to: the row, or the refusal.
fn judge(fake: &Fake, key: &str, body: Bytes) -> Result<Value, (u16, &'static str)> {
    let sent: Value = serde_json::from_slice(&body).unwrap();
    fake.with_row(key, |row| {
        let (_, token) = row.claimed.as_ref().unwrap();
        if sent["claim_token"] != json!(token) {
            return Err((409, "stale_claim"));
        }
        match &row.committed {
            Some(stored) if *stored != body => return Err((409, "final_result_conflict")),
            _ => row.committed = Some(body),
        }
        Ok(json!({"key": row.key, "kind": "tool_task", "status": "completed"}))
    })
}

async fn commit(
    State(fake): State<Fake>,
    Path((_, key)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    match judge(&fake, &key, body) {
        Ok(task) => axum::Json(json!({"task": task})).into_response(),
        Err((status, code)) => refusal(status, code),
    }
}

async fn commits(State(fake): State<Fake>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let result = |entry: &Value| {
        let mut commit = entry.as_object().unwrap().clone();
        commit.remove("run_public_id").unwrap();
        let key = commit.remove("task_key").unwrap();
        let body = serde_json::to_vec(&commit).unwrap().into();
        match judge(&fake, key.as_str().unwrap(), body) {
            Ok(task) => json!({"status": 200, "task": task}),
            Err((status, code)) => {
                let error = json!({"code": code, "message": "as judged", "request_id": "r"});
                json!({"status": status, "error": error})
            }
        }
    };
    let results: Vec<Value> = body["commits"]
        .as_array()
        .unwrap()
        .iter()
        .map(result)
        .collect();
    axum::Json(json!({ "results": results })).into_response()
}

async fn progress() -> StatusCode {
    StatusCode::ACCEPTED
}

async fn upload() -> Response {
    let upload = json!({"public_id": "u1", "filename": "a.txt", "content_type": "text/plain",
        "byte_size": 2, "created_at": "2030-01-01T00:00:00Z"});
    (StatusCode::CREATED, axum::Json(json!({"upload": upload}))).into_response()
}

async fn cable(State(fake): State<Fake>, upgrade: WebSocketUpgrade) -> Response {
    if let Some(Plan::Refuse(status, code)) = fake.planned("cable") {
        return refusal(status, code);
    }
    upgrade
        .protocols(["actioncable-v1-json"])
        .on_upgrade(move |socket| serve_cable(fake, socket))
}

async fn serve_cable(fake: Fake, mut socket: WebSocket) {
    let mut frames = fake.frames.subscribe();
    let text = |value: Value| Message::Text(value.to_string().into());
    if socket.send(text(json!({"type": "welcome"}))).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            frame = frames.recv() => {
                let Ok(frame) = frame else { return };
                if socket.send(Message::Text(frame.into())).await.is_err() { return }
            }
            message = socket.recv() => {
                let Some(Ok(message)) = message else { return };
                let Message::Text(command) = message else { continue };
                let command: Value = serde_json::from_str(&command).unwrap();
                fake.note("subscribe", String::new(), &HeaderMap::new(), Bytes::new());
                let mut confirms = fake.confirms.subscribe();
                let _ = confirms.wait_for(|yes| *yes).await;
                let id = &command["identifier"];
                let frame = json!({"identifier": id, "type": "confirm_subscription"});
                if socket.send(text(frame)).await.is_err() { return }
            }
        }
    }
}
