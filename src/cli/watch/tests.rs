//! Following against a small member plane on a real socket.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value as Json, json};
use tokio::sync::broadcast;

use super::*;
use crate::client::words::RunStatus;

/// A member plane with one run, its feed, and perhaps a cable.
#[derive(Clone)]
struct Plane {
    run: Arc<Mutex<Json>>,
    events: Arc<Mutex<Vec<Json>>>,
    /// `(items, message)` for the cable.
    pushes: broadcast::Sender<(&'static str, Json)>,
    subscribed: broadcast::Sender<String>,
    cable: bool,
    /// What the next reads of the run change, one each.
    plot: Arc<Mutex<Vec<Json>>>,
}

fn document(status: &str, task: &str) -> Json {
    json!({"public_id": "r", "status": status, "tasks": [
        {"key": "a", "kind": "tool_task", "tool_name": "sleep", "status": task,
         "claimed_by": {"executor_public_id": "x"}}]})
}

async fn start(cable: bool) -> (Client, Plane) {
    let plane = Plane {
        run: Arc::new(Mutex::new(document("running", "dispatched"))),
        events: Arc::default(),
        pushes: broadcast::channel(16).0,
        subscribed: broadcast::channel(16).0,
        cable,
        plot: Arc::default(),
    };
    let app = Router::new()
        .route("/agent_api/v1/workspaces/w/runs/r", get(run))
        .route("/agent_api/v1/workspaces/w/runs/r/events", get(events))
        .route("/agent_api/v1/workspaces/w/runs/r/tasks/gate", get(gate))
        .route("/agent_api/v1/cable", get(upgrade))
        .with_state(plane.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (Client::new(&base, "sk-member").unwrap(), plane)
}

async fn run(State(plane): State<Plane>) -> axum::Json<Json> {
    axum::Json(json!({"run": *plane.run.lock().unwrap()}))
}

async fn gate() -> axum::Json<Json> {
    axum::Json(
        json!({"task": {"key": "gate", "kind": "await_task", "status": "dispatched",
        "prompt": "Go?", "options": ["yes", "no"]}}),
    )
}

async fn events(
    State(plane): State<Plane>,
    axum::extract::Query(query): axum::extract::Query<std::collections::HashMap<String, String>>,
) -> axum::Json<Json> {
    // A plot goes on when the feed is read: polling alone must find it.
    if let Some(next) = plane.plot.lock().unwrap().pop() {
        plane.go_on(next);
    }
    let events = plane.events.lock().unwrap();
    let from: usize = query.get("after").map_or(0, |c| c.parse().unwrap());
    let page: Vec<&Json> = events.iter().skip(from).take(2).collect();
    axum::Json(json!({"events": page,
        "pagination": {"next_after": null, "watermark": events.len()}}))
}

async fn upgrade(State(plane): State<Plane>, upgrade: WebSocketUpgrade) -> Response {
    if !plane.cable {
        return axum::http::StatusCode::NOT_FOUND.into_response();
    }
    upgrade
        .protocols(["actioncable-v1-json"])
        .on_upgrade(move |socket| serve(plane, socket))
}

async fn serve(plane: Plane, mut socket: WebSocket) {
    let mut pushes = plane.pushes.subscribe();
    let text = |frame: Json| Message::Text(frame.to_string().into());
    let _ = socket.send(text(json!({"type": "welcome"}))).await;
    loop {
        let frame = tokio::select! {
            push = pushes.recv() => {
                let (items, message) = push.unwrap();
                json!({"identifier": frames::run_channel("w", "r", items), "message": message})
            }
            command = socket.recv() => {
                let Some(Ok(Message::Text(command))) = command else { return };
                let command: Json = serde_json::from_str(&command).unwrap();
                let id = command["identifier"].clone();
                let _ = plane.subscribed.send(id.as_str().unwrap().to_owned());
                json!({"identifier": id, "type": "confirm_subscription"})
            }
        };
        if socket.send(text(frame)).await.is_err() {
            return;
        }
    }
}

impl Plane {
    /// The run becomes this, and the feed tells.
    fn go_on(&self, run: Json) {
        *self.run.lock().unwrap() = run;
        let mut events = self.events.lock().unwrap();
        let n = events.len() + 1;
        events.push(
            json!({"sequence": n, "cursor": n.to_string(), "type": "task_status",
            "payload": {"n": n}, "created_at": "2030-01-01T00:00:00Z"}),
        );
        let _ = self
            .pushes
            .send(("events", json!({"event": {"sequence": n}})));
    }
}

/// A writer that keeps and tells what is written.
#[derive(Clone)]
struct Paper {
    text: Arc<Mutex<String>>,
    changed: Arc<tokio::sync::watch::Sender<()>>,
}

impl Paper {
    fn new() -> Self {
        Self {
            text: Arc::default(),
            changed: Arc::new(tokio::sync::watch::Sender::new(())),
        }
    }

    fn screen(&self, terminal: bool) -> Screen {
        Screen::to(Box::new(self.clone()), terminal)
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    async fn until(&self, part: &str) {
        let mut changed = self.changed.subscribe();
        let wait = async {
            while !self.text().contains(part) {
                changed.changed().await.unwrap();
            }
        };
        let within = tokio::time::timeout(Duration::from_secs(20), wait).await;
        assert!(within.is_ok(), "never `{part}` in {:?}", self.text());
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = std::str::from_utf8(bytes).expect("text is written whole");
        self.text.lock().unwrap().push_str(piece);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.changed.send_replace(());
        Ok(())
    }
}

fn shown(screen: Screen, mode: Mode) -> Shown {
    Shown {
        screen,
        mode,
        known: Known::default(),
        notes: None,
    }
}

fn spawn(
    client: &Client,
    screen: Screen,
    mode: Mode,
) -> tokio::task::JoinHandle<Result<Run, Error>> {
    follow(client, shown(screen, mode))
}

fn follow(client: &Client, shown: Shown) -> tokio::task::JoinHandle<Result<Run, Error>> {
    let client = client.clone();
    tokio::spawn(async move { follow_on(shown, &client, "w", "r").await })
}

#[tokio::test]
async fn the_tree_follows_pushes_shows_progress_and_ends_with_the_run() {
    let (client, plane) = start(true).await;
    let mut subscribed = plane.subscribed.subscribe();
    let paper = Paper::new();
    let task = spawn(&client, paper.screen(true), Mode::Tree);
    for _ in 0..2 {
        subscribed.recv().await.unwrap();
    }
    let frame = json!({"type": "executor_progress", "run_public_id": "r", "task_key": "a",
        "text_tail": "42 %"});
    plane
        .pushes
        .send(("progress", json!({"frame": frame})))
        .unwrap();
    paper.until("42 %").await;
    plane.go_on(document("completed", "completed"));
    let run = task.await.unwrap().unwrap();
    assert_eq!(run.status, RunStatus::Completed);
    let text = paper.text();
    assert!(text.starts_with("\x1b[?25l"), "the cursor is hidden");
    assert!(text.contains("\x1b[2F\x1b[0J"), "it is redrawn in place");
    assert!(text.ends_with("\x1b[?25h"), "and the cursor given back");
    let last = text.rsplit("\x1b[0J").next().unwrap();
    assert!(last.contains('✔') && !last.contains("42 %"), "{last:?}");
}

#[tokio::test]
async fn without_a_cable_the_feed_is_polled() {
    let (client, plane) = start(false).await;
    plane
        .plot
        .lock()
        .unwrap()
        .push(document("canceled", "canceled"));
    let paper = Paper::new();
    let task = spawn(&client, paper.screen(false), Mode::Tree);
    let run = task.await.unwrap().unwrap();
    assert_eq!(run.status, RunStatus::Canceled);
    assert_eq!(
        paper.text(),
        "a sleep  dispatched\nrun r  running  0/1 settled\n\
         a sleep  canceled\nrun r  canceled  1/1 settled\n"
    );
}

#[tokio::test]
async fn as_json_every_event_is_a_line_in_order_and_none_is_missing() {
    let (client, plane) = start(true).await;
    for _ in 0..4 {
        plane.go_on(document("running", "dispatched"));
    }
    plane.go_on(document("completed", "completed"));
    let paper = Paper::new();
    let task = spawn(&client, paper.screen(true), Mode::Json);
    task.await.unwrap().unwrap();
    let text = paper.text();
    let sequences: Vec<u64> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<Json>(line).unwrap()["sequence"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(sequences, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_run_that_is_not_there_is_an_error() {
    let (client, _) = start(true).await;
    let screen = Paper::new().screen(false);
    let error = follow_on(shown(screen, Mode::Tree), &client, "w", "gone")
        .await
        .unwrap_err();
    assert_eq!(error.status(), Some(404));
}

/// A question is read once it is open, and said once with what answers it; so is a pause.
#[tokio::test]
async fn what_waits_for_a_person_is_said_with_what_to_type() {
    let (client, plane) = start(true).await;
    let asks = json!({"public_id": "r", "status": "running", "tasks": [
        {"key": "gate", "kind": "await_task", "status": "dispatched"}]});
    let mut paused = asks.clone();
    paused["status"] = json!("paused");
    let over = json!({"public_id": "r", "status": "completed", "tasks": [
        {"key": "gate", "kind": "await_task", "status": "completed"}]});
    *plane.run.lock().unwrap() = asks;
    let paper = Paper::new();
    let mut shown = shown(paper.screen(false), Mode::Tree);
    shown.known.tokens = [("gate".to_owned(), "t1".to_owned())].into();
    let task = follow(&client, shown);
    paper.until("--resolution-token t1\n").await;
    plane.go_on(paused);
    paper.until("runs resume r\n").await;
    plane.go_on(over);
    task.await.unwrap().unwrap();
    assert_eq!(
        paper.text(),
        "gate question  dispatched\nrun r  running  0/1 settled\n\
         ? gate asks: Go?  (yes / no)  →  nexus runs answer r gate TEXT --resolution-token t1\n\
         run r  paused  0/1 settled\n\
         ‖ the run is paused  →  nexus runs resume r\n\
         gate question  completed\nrun r  completed  1/1 settled\n"
    );
}

/// A note stays above the tree, which is drawn again below it.
#[tokio::test]
async fn a_note_stays_above_the_live_tree() {
    let (client, plane) = start(true).await;
    let paper = Paper::new();
    let (say, notes) = tokio::sync::mpsc::unbounded_channel();
    let mut shown = shown(paper.screen(true), Mode::Tree);
    shown.notes = Some(notes);
    let task = follow(&client, shown);
    paper.until("sleep").await;
    say.send("somebody did something".to_owned()).unwrap();
    paper.until("somebody").await;
    plane.go_on(document("completed", "completed"));
    task.await.unwrap().unwrap();
    let text = paper.text();
    let (before, after) = text.split_once("somebody did something\n").unwrap();
    assert!(before.ends_with("\x1b[2F\x1b[0J\x1b[?25h"), "{before:?}");
    assert!(
        after.starts_with("\x1b[?25l") && after.contains("run r"),
        "{after:?}"
    );
}
