//! A TCP proxy that can be told to misbehave: answers that come late, connections that are cut
//! after a number of messages or bytes. One between a server and its database, or a client and a
//! server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// When a connection to the database is cut, counted in messages that make the server answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The message never arrives.
    Before,
    /// The server does it, and nobody hears.
    After,
}

#[derive(Debug, Default)]
struct Faults {
    /// Every answer comes so much later.
    delay_us: AtomicU64,
    /// Messages until the cut; negative: never.
    countdown: AtomicI64,
    before: std::sync::atomic::AtomicBool,
    /// Bytes of an answer that pass before the connection is cut; negative: all.
    answer_bytes: AtomicI64,
}

/// A proxy in front of one address.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    faults: Arc<Faults>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The same URL through another address.
pub fn through(url: &str, address: SocketAddr) -> (String, String) {
    let (scheme, rest) = url.split_once("://").expect("a URL has a scheme");
    let (server, tail) = rest.split_once('/').map_or((rest, ""), |(s, t)| (s, t));
    let (user, target) = server
        .rsplit_once('@')
        .map_or(("", server), |(u, t)| (u, t));
    let at = if user.is_empty() { "" } else { "@" };
    (
        format!("{scheme}://{user}{at}{address}/{tail}"),
        target.to_owned(),
    )
}

impl Proxy {
    /// Passes everything on, until told otherwise.
    pub async fn start(target: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port on the loopback");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let faults = Arc::new(Faults {
            countdown: AtomicI64::new(-1),
            answer_bytes: AtomicI64::new(-1),
            ..Faults::default()
        });
        let shared = faults.clone();
        let task = tokio::spawn(async move {
            while let Ok((inner, _)) = listener.accept().await {
                let (target, faults) = (target.clone(), shared.clone());
                tokio::spawn(async move {
                    if let Ok(outer) = TcpStream::connect(&target).await {
                        pass(inner, outer, faults).await;
                    }
                });
            }
        });
        Self {
            address,
            faults,
            task,
        }
    }

    /// Every answer comes so much later from now on.
    pub fn delay(&self, by: Duration) {
        let us = u64::try_from(by.as_micros()).expect("a short delay");
        self.faults.delay_us.store(us, Ordering::SeqCst);
    }

    /// Cuts the connection at the `nth` message from now that the database would answer (the first
    /// is 0), once.
    pub fn cut_at(&self, nth: u32, cut: Cut) {
        self.faults
            .before
            .store(cut == Cut::Before, Ordering::SeqCst);
        self.faults
            .countdown
            .store(i64::from(nth), Ordering::SeqCst);
    }

    /// Takes the last order back; whether it was carried out.
    pub fn was_cut(&self) -> bool {
        self.faults.countdown.swap(-1, Ordering::SeqCst) < 0
    }

    /// Cuts the next answer after so many bytes, once.
    pub fn cut_answer_after(&self, bytes: u32) {
        self.faults
            .answer_bytes
            .store(i64::from(bytes), Ordering::SeqCst);
    }
}

async fn pass(inner: TcpStream, outer: TcpStream, faults: Arc<Faults>) {
    let _ = (inner.set_nodelay(true), outer.set_nodelay(true));
    let (inner_read, inner_write) = inner.into_split();
    let (outer_read, outer_write) = outer.into_split();
    // Whichever way ends first ends both: dropped halves close their sockets.
    tokio::select! {
        () = forth(inner_read, outer_write, &faults) => {}
        () = back(outer_read, inner_write, &faults) => {}
    }
}

/// Requests: whole messages of the database's protocol once it began, so that they can be counted.
async fn forth(
    mut read: tokio::net::tcp::OwnedReadHalf,
    mut write: tokio::net::tcp::OwnedWriteHalf,
    faults: &Faults,
) {
    let mut pending = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    let mut started = false;
    loop {
        let n = match read.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(n) => n,
        };
        pending.extend_from_slice(&chunk[..n]);
        // An HTTP request begins with a letter, a Postgres start-up with the high byte of a length.
        if !started && pending[0] != 0 {
            if write.write_all(&pending).await.is_err() {
                return;
            }
            pending.clear();
            continue;
        }
        while let Some(len) = message(&pending, started) {
            let asks = started && matches!(pending[0], b'S' | b'Q');
            started = true;
            let nth = if asks && faults.countdown.load(Ordering::SeqCst) >= 0 {
                faults.countdown.fetch_sub(1, Ordering::SeqCst)
            } else {
                -1
            };
            if nth == 0 && faults.before.load(Ordering::SeqCst) {
                return;
            }
            if write.write_all(&pending[..len]).await.is_err() {
                return;
            }
            pending.drain(..len);
            if nth == 0 {
                // What was sent arrives; the answer has nowhere to go.
                let _ = write.shutdown().await;
                return;
            }
        }
    }
}

/// The length of the first whole message.
fn message(bytes: &[u8], started: bool) -> Option<usize> {
    let head = usize::from(started);
    let length: [u8; 4] = bytes.get(head..head + 4)?.try_into().ok()?;
    let len = head + usize::try_from(u32::from_be_bytes(length)).ok()?;
    (bytes.len() >= len).then_some(len)
}

async fn back(
    mut read: tokio::net::tcp::OwnedReadHalf,
    mut write: tokio::net::tcp::OwnedWriteHalf,
    faults: &Faults,
) {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let n = match read.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(n) => n,
        };
        let delay = faults.delay_us.load(Ordering::SeqCst);
        if delay > 0 {
            tokio::time::sleep(Duration::from_micros(delay)).await;
        }
        let left = faults.answer_bytes.load(Ordering::SeqCst);
        if left >= 0 {
            let shown = usize::try_from(left).unwrap_or(0).min(n);
            let _ = write.write_all(&chunk[..shown]).await;
            faults.answer_bytes.store(-1, Ordering::SeqCst);
            return;
        }
        if write.write_all(&chunk[..n]).await.is_err() {
            return;
        }
    }
}
