//! Connections: accept, serve HTTP/1.1 with upgrades, close when told.
//!
//! Knows sockets and hyper. Does not know any route.
//!
//! Invariants:
//! - a connection that sends no whole request head in time is closed: from its first byte, or from
//!   its opening; between requests it may rest longer, since clients and balancers keep idle
//!   connections;
//! - once accepting ends, resting connections close at once and busy ones behind their answer; once
//!   cut, all end where they stand;
//! - a failed accept never ends the loop.

use std::convert::Infallible;
use std::future::Future as _;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::telemetry;

/// What hyper holds of a request head before it refuses: more than the bounds that
/// [`crate::http::guard`] refuses in words.
const HEAD_BUFFER: usize = 64 * 1024;

/// How long a connection may wait for a request.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a whole request head, once begun.
    pub head: Duration,
    /// Between requests; longer than the idle time of usual balancers.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
        }
    }
}

/// Which router answers: the waiting one until the gate opens.
#[derive(Debug, Clone)]
pub struct Routes {
    /// Before: health, and "not ready".
    pub waiting: Router,
    /// After.
    pub open: Router,
    /// The gate.
    pub gate: Arc<AtomicBool>,
}

impl Routes {
    /// The same routes from the start.
    pub fn always(router: Router) -> Self {
        Self {
            waiting: router.clone(),
            open: router,
            gate: Arc::new(AtomicBool::new(true)),
        }
    }

    fn current(&self) -> Router {
        if self.gate.load(Ordering::Acquire) {
            self.open.clone()
        } else {
            self.waiting.clone()
        }
    }
}

/// When connections end.
#[derive(Debug, Clone, Default)]
pub struct Stops {
    /// No new connections; resting ones close.
    pub accepting: CancellationToken,
    /// Everything ends now.
    pub cut: CancellationToken,
}

/// One listening socket's work.
#[derive(Debug, Clone)]
pub struct Door {
    /// Who answers.
    pub routes: Routes,
    /// When connections end.
    pub stops: Stops,
    /// Times.
    pub patience: Patience,
    /// Where its tasks run.
    pub tasks: TaskTracker,
}

impl Door {
    /// Accepts until told otherwise; each connection is a task of [`Door::tasks`].
    pub fn open(self, listener: TcpListener) {
        let tasks = self.tasks.clone();
        tasks.spawn(async move {
            let stops = self.stops.clone();
            tokio::select! {
                () = self.accept(listener) => {}
                () = stops.accepting.cancelled() => {}
                () = stops.cut.cancelled() => {}
            }
        });
    }

    async fn accept(&self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((socket, peer)) => {
                    let door = self.clone();
                    self.tasks
                        .spawn(async move { door.connection(socket, peer).await });
                }
                Err(error) => {
                    // Out of descriptors, or a peer that left at once: neither is for ever.
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    async fn connection(&self, socket: TcpStream, peer: SocketAddr) {
        // Small answers must not wait for an acknowledgement.
        let _ = socket.set_nodelay(true);
        let open = metrics::gauge!(telemetry::HTTP_CONNECTIONS);
        open.increment(1.0);
        tokio::select! {
            () = self.serve(socket, peer) => {}
            () = self.stops.cut.cancelled() => {}
        }
        open.decrement(1.0);
    }

    async fn serve(&self, socket: TcpStream, peer: SocketAddr) {
        let pulse = Arc::new(Pulse::new(self.patience));
        let io = TokioIo::new(Watched {
            socket,
            pulse: pulse.clone(),
        });
        let service = hyper::service::service_fn(|request: hyper::Request<Incoming>| {
            let pulse = pulse.clone();
            let router = self.routes.current();
            async move { Ok::<_, Infallible>(answer(router, pulse, request, peer).await) }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            // Ours, because hyper's runs between requests too (see `Pulse`).
            .header_read_timeout(None)
            .max_buf_size(HEAD_BUFFER);
        let mut connection = pin!(builder.serve_connection(io, service).with_upgrades());
        let mut patience = pin!(tokio::time::sleep(self.patience.head));
        let mut told = pin!(self.stops.accepting.cancelled());
        let mut stopping = false;
        let ended = std::future::poll_fn(|cx| {
            if !stopping && told.as_mut().poll(cx).is_ready() {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
            // Polled in the same task as the connection, so the pulse is up to date here.
            let Some(deadline) = pulse.deadline() else {
                return Poll::Pending;
            };
            if patience.deadline() != deadline {
                patience.as_mut().reset(deadline);
            }
            patience.as_mut().poll(cx).map(|()| None)
        });
        if let Some(Err(error)) = ended.await {
            tracing::debug!(%error, "a connection ended badly");
        }
    }
}

async fn answer(
    router: Router,
    pulse: Arc<Pulse>,
    request: hyper::Request<Incoming>,
    peer: SocketAddr,
) -> Response {
    pulse.set(Phase::Busy);
    let mut request: Request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    response.map(|inner| Body::new(Beating { inner, pulse }))
}

/// Where a connection stands between requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A head is awaited or under way since then.
    Head(Instant),
    /// A request is being answered.
    Busy,
    /// Nothing is asked since then.
    Idle(Instant),
}

/// The phases of one connection.
///
/// hyper's own head time-out also counts the rest between two requests, which would close the idle
/// connections of every client after ten seconds, just as it may be sending on them.
#[derive(Debug)]
struct Pulse {
    phase: Mutex<Phase>,
    patience: Patience,
}

impl Pulse {
    fn new(patience: Patience) -> Self {
        Self {
            phase: Mutex::new(Phase::Head(Instant::now())),
            patience,
        }
    }

    fn phase(&self) -> std::sync::MutexGuard<'_, Phase> {
        self.phase
            .lock()
            .expect("no code panics while it holds this lock")
    }

    fn set(&self, phase: Phase) {
        *self.phase() = phase;
    }

    /// Bytes came.
    fn read(&self) {
        let mut phase = self.phase();
        if matches!(*phase, Phase::Idle(_)) {
            *phase = Phase::Head(Instant::now());
        }
    }

    /// When patience ends, if the client is the one to move.
    fn deadline(&self) -> Option<Instant> {
        match *self.phase() {
            Phase::Head(since) => Some(since + self.patience.head),
            Phase::Idle(since) => Some(since + self.patience.idle),
            Phase::Busy => None,
        }
    }
}

/// A socket that tells the pulse when bytes come.
struct Watched {
    socket: TcpStream,
    pulse: Arc<Pulse>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.pulse.read();
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// An answer's body: the connection rests once it is gone.
struct Beating {
    inner: Body,
    pulse: Arc<Pulse>,
}

impl HttpBody for Beating {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.pulse.set(Phase::Idle(Instant::now()));
    }
}

#[cfg(test)]
mod tests;
