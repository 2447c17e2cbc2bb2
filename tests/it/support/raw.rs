//! HTTP by hand: requests whose client goes away in the middle, answers that are only counted.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The bytes of a request with a JSON body.
pub fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends so many bytes of a request, waits so long, and hangs up: with a reset, as a client that
/// was killed. Gives what had been answered by then.
pub async fn hang_up(base: &str, bytes: &[u8], sent: usize, after: Duration) -> String {
    let address = base.strip_prefix("http://").expect("a plain base");
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return String::new();
    };
    let _ = stream.write_all(&bytes[..sent.min(bytes.len())]).await;
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    let deadline = tokio::time::Instant::now() + after;
    while let Ok(Ok(n @ 1..)) = tokio::time::timeout_at(deadline, stream.read(&mut chunk)).await {
        answer.extend_from_slice(&chunk[..n]);
    }
    let _ = stream.set_zero_linger();
    String::from_utf8_lossy(&answer).into_owned()
}
