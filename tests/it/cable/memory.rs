//! BR-082: an idle socket is small, and its memory comes back.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::subscribing::until;
use super::world::World;
use crate::support::TestApp;

/// Sockets that are held open.
const SOCKETS: usize = 2000;
/// The budget of one (`architecture.md` §9), the other end of its connection included, since both
/// live in this process.
const BUDGET: usize = 30_000;

/// Resident memory of this process, in bytes.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    let kilobytes: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Upgrades and subscribes by hand: a client library's own buffers would be measured too.
async fn subscribed(address: &str, token: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /agent_api/v1/cable HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut socket, b"welcome").await;
    let identifier = super::client::quoted(super::client::INBOX);
    let frame = format!(r#"{{"command":"subscribe","identifier":{identifier}}}"#);
    let length = u8::try_from(frame.len()).unwrap();
    assert!(length < 126);
    // A text frame, masked by zeros.
    let mut bytes = vec![0x81, 0x80 | length, 0, 0, 0, 0];
    bytes.extend_from_slice(frame.as_bytes());
    socket.write_all(&bytes).await.unwrap();
    read_until(&mut socket, b"confirm_subscription").await;
    socket
}

async fn read_until(socket: &mut TcpStream, text: &[u8]) {
    let mut seen = Vec::new();
    while !seen.windows(text.len()).any(|w| w == text) {
        let n = socket.read_buf(&mut seen).await.unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&seen));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn br_082_idle_sockets_are_small_and_leave_nothing_behind() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let address = app.base.strip_prefix("http://").unwrap().to_owned();
    // The first sockets bring along what all of them share.
    let open = async |n: usize| {
        let mut sockets = Vec::with_capacity(n);
        for _ in 0..n {
            sockets.push(subscribed(&address, &executor.token).await);
        }
        sockets
    };
    let warm = open(200).await;
    let Some(before) = resident() else {
        // No /proc: memory is measured where there is one.
        app.finish().await;
        return;
    };
    let mut sockets = open(SOCKETS).await;
    let each = resident().unwrap().saturating_sub(before) / SOCKETS;
    println!("{each} bytes a socket");
    assert!(each <= BUDGET, "{each} bytes a socket");
    assert_eq!(app.app().cable.sockets(), SOCKETS + warm.len());

    sockets.extend(warm);
    for mut socket in sockets {
        let _ = socket.shutdown().await;
    }
    until(async || app.app().cable.sockets() == 0).await;
    app.finish().await;
}
