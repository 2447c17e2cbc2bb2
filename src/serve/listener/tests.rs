use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use super::*;

const HEAD: Duration = Duration::from_millis(150);
const IDLE: Duration = Duration::from_millis(600);

struct Opened {
    addr: SocketAddr,
    stops: Stops,
    tasks: TaskTracker,
    /// Lets `/slow` answer.
    go: Arc<Notify>,
}

async fn open() -> Opened {
    let go = Arc::new(Notify::new());
    let waits = go.clone();
    let router = Router::new().route("/quick", get(async || "quick")).route(
        "/slow",
        get(async move || {
            waits.notified().await;
            "slow"
        }),
    );
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = socket.local_addr().unwrap();
    let stops = Stops::default();
    let tasks = TaskTracker::new();
    Door {
        routes: Routes::always(router),
        stops: stops.clone(),
        patience: Patience {
            head: HEAD,
            idle: IDLE,
        },
        tasks: tasks.clone(),
    }
    .open(socket);
    Opened {
        addr,
        stops,
        tasks,
        go,
    }
}

async fn connect(opened: &Opened) -> TcpStream {
    TcpStream::connect(opened.addr).await.unwrap()
}

async fn ask(socket: &mut TcpStream, path: &str) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
}

/// What comes until `end`, or until the server closes.
async fn read(socket: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).ends_with(end) {
        let mut piece = [0; 512];
        match socket.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(n) => text.extend_from_slice(&piece[..n]),
        }
    }
    String::from_utf8(text).unwrap()
}

/// How long until the server closes, without a word.
async fn closed_after(socket: &mut TcpStream) -> Duration {
    let since = Instant::now();
    let mut rest = [0; 1];
    let end = tokio::time::timeout(Duration::from_secs(5), socket.read(&mut rest)).await;
    assert!(matches!(end, Ok(Ok(0) | Err(_))), "still open, or answered");
    since.elapsed()
}

#[tokio::test]
async fn a_client_that_sends_no_whole_head_is_cut_off() {
    let opened = open().await;
    let mut silent = connect(&opened).await;
    let mut slow = connect(&opened).await;
    slow.write_all(b"GET /quick HTTP/1.1\r\n").await.unwrap();
    for socket in [&mut silent, &mut slow] {
        let after = closed_after(socket).await;
        assert!(after < IDLE, "{after:?}");
    }
    // One byte at a time is no progress.
    let mut trickle = connect(&opened).await;
    let since = Instant::now();
    for byte in b"GET /quick HTTP/1.1\r\nHost: ttttttttttttttttttttttttttttttttttttttttt" {
        if trickle.write_all(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(HEAD / 20).await;
    }
    closed_after(&mut trickle).await;
    assert!(since.elapsed() >= HEAD);
}

#[tokio::test]
async fn a_connection_may_rest_longer_than_a_head_may_take() {
    let opened = open().await;
    let mut socket = connect(&opened).await;
    ask(&mut socket, "/quick").await;
    assert!(read(&mut socket, "quick").await.starts_with("HTTP/1.1 200"));
    tokio::time::sleep(2 * HEAD).await;
    ask(&mut socket, "/quick").await;
    assert!(read(&mut socket, "quick").await.starts_with("HTTP/1.1 200"));
    // But a head once begun has its time.
    socket.write_all(b"GET").await.unwrap();
    assert!(closed_after(&mut socket).await < IDLE);
    let mut resting = connect(&opened).await;
    ask(&mut resting, "/quick").await;
    read(&mut resting, "quick").await;
    let after = closed_after(&mut resting).await;
    assert!(after >= IDLE - Duration::from_millis(50), "{after:?}");
}

#[tokio::test]
async fn an_answer_may_take_as_long_as_it_takes() {
    let opened = open().await;
    let mut socket = connect(&opened).await;
    ask(&mut socket, "/slow").await;
    tokio::time::sleep(IDLE + HEAD).await;
    opened.go.notify_one();
    assert!(read(&mut socket, "slow").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn once_accepting_ends_resting_connections_close_and_busy_ones_finish() {
    let opened = open().await;
    let mut resting = connect(&opened).await;
    ask(&mut resting, "/quick").await;
    read(&mut resting, "quick").await;
    let mut busy = connect(&opened).await;
    ask(&mut busy, "/slow").await;
    // The listener takes connections in order, and answers this one behind the busy one.
    let mut last = connect(&opened).await;
    ask(&mut last, "/quick").await;
    read(&mut last, "quick").await;
    opened.stops.accepting.cancel();
    assert!(closed_after(&mut resting).await < IDLE / 2);
    opened.go.notify_one();
    let answer = read(&mut busy, "slow").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.to_ascii_lowercase().contains("connection: close"),
        "{answer}"
    );
    closed_after(&mut busy).await;
    opened.tasks.close();
    opened.tasks.wait().await;
    let refused = TcpStream::connect(opened.addr).await;
    assert!(refused.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_cut_ends_busy_connections_where_they_stand() {
    let opened = open().await;
    let mut busy = connect(&opened).await;
    ask(&mut busy, "/slow").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    opened.stops.cut.cancel();
    closed_after(&mut busy).await;
    opened.tasks.close();
    opened.tasks.wait().await;
}
