//! What surrounds every handler: bounds of the request, time-outs, panics, draining, one log line
//! and one measurement (`conventions.md` §3, §13, §14).
//!
//! Knows: sizes, times, route templates. Does not know: any route's meaning, bodies' content.
//!
//! Invariants:
//! - whatever a handler does, the client gets the error envelope: 503 when it takes too long, 500
//!   when it panics, 408 when the client sends its body too slowly;
//! - a log line has no body, no query and no token; a metric has no id, only the route template;
//! - a handler that is given up is dropped: what must end once begun is spawned by the command;
//! - a client that is answered while it still sends can read the answer: what it sends is taken and
//!   thrown away for a while, up to [`DRAINED_BYTES`] and [`DRAIN`].

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{ApiError, request_id};
use crate::app::App;
use crate::telemetry;

/// The most bytes that are read of a body nobody wants, so that its client gets to its answer.
pub const DRAINED_BYTES: usize = 32 * 1024 * 1024;
/// How long that may take.
pub const DRAIN: Duration = Duration::from_secs(10);

/// Bounds of one request.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the URL.
    pub url: usize,
    /// Bytes of all header names and values.
    pub headers: usize,
    /// To read an ordinary body.
    pub body: Duration,
    /// To read an upload.
    pub upload: Duration,
    /// To answer, once the body is read.
    pub handler: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            url: 8 * 1024,
            headers: 32 * 1024,
            body: Duration::from_secs(30),
            upload: Duration::from_secs(300),
            handler: Duration::from_secs(30),
        }
    }
}

/// The state of [`layer`].
#[derive(Debug, Clone)]
pub struct Guard {
    limits: Limits,
    draining: CancellationToken,
}

impl Guard {
    /// The ordinary bounds, and this replica's draining.
    pub fn new(app: &App) -> Self {
        Self::with_limits(Limits::default(), app.draining.clone())
    }

    /// These bounds.
    pub fn with_limits(limits: Limits, draining: CancellationToken) -> Self {
        Self { limits, draining }
    }
}

/// The layer. It stands inside [`request_id::layer`], whose id its envelopes and log lines carry,
/// and is added with `Router::layer`, so that it sees the route template.
pub async fn layer(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let facts = Facts::of(&request);
    let span = facts.span();
    let started = Instant::now();
    let answering = async {
        let mut response = answer(&guard, request, next).await;
        if guard.draining.is_cancelled() {
            // Balancers and clients should go elsewhere; hyper closes behind such an answer.
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        facts.record(response.status(), started.elapsed());
        response
    };
    answering.instrument(span).await
}

async fn answer(guard: &Guard, request: Request, next: Next) -> Response {
    if let Err(refusal) = guard.bounds(&request) {
        return refusal.into_response();
    }
    let (request, reading) = guard.timed(request);
    let handling = AssertUnwindSafe(next.run(request)).catch_unwind();
    tokio::select! {
        outcome = handling => match outcome {
            Ok(_) if reading.as_ref().is_some_and(|r| r.is_late()) => slow_body(),
            Ok(response) => response,
            Err(_) => ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal_error",
                "an internal error",
            )
            .into_response(),
        },
        () = guard.overdue(reading.as_deref()) => {
            tracing::warn!("a handler took too long and was given up");
            ApiError::unavailable("unavailable").into_response()
        }
    }
}

fn slow_body() -> Response {
    ApiError::new(
        StatusCode::REQUEST_TIMEOUT,
        "request_timeout",
        "the body was not received in time",
    )
    .header(header::CONNECTION, "close")
    .into_response()
}

impl Guard {
    /// Refuses what is too long, and upgrades while draining.
    fn bounds(&self, request: &Request) -> Result<(), ApiError> {
        let uri = request.uri();
        let url = uri.path_and_query().map_or(0, |p| p.as_str().len());
        if url > self.limits.url {
            return Err(ApiError::new(
                StatusCode::URI_TOO_LONG,
                "uri_too_long",
                format!("a URL may have at most {} bytes", self.limits.url),
            ));
        }
        if !is_utf8(uri.path()) {
            return Err(ApiError::not_found());
        }
        if header_bytes(request.headers()) > self.limits.headers {
            return Err(ApiError::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers_too_large",
                format!("headers may have at most {} bytes", self.limits.headers),
            ));
        }
        if self.draining.is_cancelled() && request.headers().contains_key(header::UPGRADE) {
            return Err(ApiError::unavailable("draining"));
        }
        Ok(())
    }

    /// The request with a body that fails once its time is over; without a body, as it is.
    fn timed(&self, request: Request) -> (Request, Option<Arc<Reading>>) {
        if request.body().is_end_stream() {
            return (request, None);
        }
        let limit = self.body_limit(request.headers());
        let reading = Arc::new(Reading::new(limit));
        let handed = reading.clone();
        // Asked whether to send its body, a client has not begun before somebody reads it.
        let is_sent = !request.headers().contains_key(header::EXPECT);
        let request = request.map(|inner| {
            Body::new(TimedBody {
                inner,
                over: Box::pin(tokio::time::sleep(limit)),
                reading: handed,
                is_sent,
            })
        });
        (request, Some(reading))
    }

    fn body_limit(&self, headers: &HeaderMap) -> Duration {
        let kind = headers
            .get(header::CONTENT_TYPE)
            .map(HeaderValue::as_bytes)
            .unwrap_or_default();
        if kind.starts_with(b"multipart/") {
            self.limits.upload
        } else {
            self.limits.body
        }
    }

    /// Ends when the handler has had its time, which begins once the body is read.
    async fn overdue(&self, reading: Option<&Reading>) {
        if let Some(reading) = reading {
            // A handler that keeps its body without reading it is not excused for ever.
            let _ = tokio::time::timeout(reading.limit, reading.ended()).await;
        }
        tokio::time::sleep(self.limits.handler).await;
    }
}

/// Whether a path is text once its percent-escapes are read. One that is not names nothing, and
/// routing it would end in a refusal outside the envelope.
fn is_utf8(path: &str) -> bool {
    let hex = |byte: Option<&u8>| byte.and_then(|b| char::from(*b).to_digit(16));
    let raw = path.as_bytes();
    let mut read = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let escaped = (raw[at] == b'%')
            .then(|| hex(raw.get(at + 1)).zip(hex(raw.get(at + 2))))
            .flatten()
            .and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        match escaped {
            Some(byte) => {
                read.push(byte);
                at += 3;
            }
            None => {
                read.push(raw[at]);
                at += 1;
            }
        }
    }
    std::str::from_utf8(&read).is_ok()
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum()
}

/// How the reading of one body went, seen from outside the handler.
#[derive(Debug)]
struct Reading {
    limit: Duration,
    state: AtomicU8,
    changed: Notify,
}

const UNDER_WAY: u8 = 0;
const ENDED: u8 = 1;
const LATE: u8 = 2;

impl Reading {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            state: AtomicU8::new(UNDER_WAY),
            changed: Notify::new(),
        }
    }

    /// Whether this is what ended it.
    fn end(&self, state: u8) -> bool {
        let first =
            self.state
                .compare_exchange(UNDER_WAY, state, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            // One waiter; a permit is kept if it does not wait yet.
            self.changed.notify_one();
        }
        first.is_ok()
    }

    fn is_late(&self) -> bool {
        self.state.load(Ordering::Acquire) == LATE
    }

    async fn ended(&self) {
        if self.state.load(Ordering::Acquire) == UNDER_WAY {
            self.changed.notified().await;
        }
    }
}

/// A body was not received in time.
#[derive(Debug, thiserror::Error)]
#[error("the body was not received in time")]
struct BodyTooSlow;

/// A body with one deadline for all of it.
struct TimedBody {
    inner: Body,
    over: Pin<Box<Sleep>>,
    reading: Arc<Reading>,
    is_sent: bool,
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_sent = true;
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        match &frame {
            Poll::Ready(None | Some(Err(_))) => {
                self.reading.end(ENDED);
            }
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Pending => {
                if self.over.as_mut().poll(cx).is_ready() {
                    self.reading.end(LATE);
                    return Poll::Ready(Some(Err(axum::Error::new(BodyTooSlow))));
                }
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        if self.reading.end(ENDED)
            && self.is_sent
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // A connection that is closed under bytes on their way is reset, and a reset overtakes
            // the answer (RFC 9112 §9.6).
            let rest = std::mem::take(&mut self.inner);
            runtime.spawn(tokio::time::timeout(DRAIN, drain(rest)));
        }
    }
}

/// Reads what a client still sends, and keeps nothing.
async fn drain(mut body: Body) {
    let mut left = DRAINED_BYTES;
    while let Some(Ok(frame)) = next_frame(&mut body).await {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(bytes) else {
            return;
        };
        left = rest;
    }
}

async fn next_frame(body: &mut Body) -> Option<Result<Frame<Bytes>, axum::Error>> {
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

/// What is logged and measured of a request.
struct Facts {
    method: &'static str,
    route: Option<MatchedPath>,
    plane: &'static str,
}

impl Facts {
    fn of(request: &Request) -> Self {
        let route = request.extensions().get::<MatchedPath>().cloned();
        let plane = route.as_ref().map_or("none", |r| plane(r.as_str()));
        Self {
            method: method(request.method()),
            route,
            plane,
        }
    }

    fn route(&self) -> &str {
        self.route.as_ref().map_or("unmatched", MatchedPath::as_str)
    }

    /// `account` and `credential` are public ids, filled by the extractor that proves the caller.
    fn span(&self) -> tracing::Span {
        tracing::info_span!(
            "request",
            method = self.method,
            route = self.route(),
            plane = self.plane,
            request_id = request_id::current(),
            account = tracing::field::Empty,
            credential = tracing::field::Empty,
        )
    }

    fn record(&self, status: StatusCode, took: Duration) {
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let status = status.as_u16();
        if matches!(self.route(), "/livez" | "/readyz") {
            tracing::debug!(status, duration_ms, "answered");
        } else {
            tracing::info!(status, duration_ms, "answered");
        }
        let route = self.route().to_owned();
        let status = status.to_string();
        metrics::counter!(telemetry::HTTP_REQUESTS, "method" => self.method, "route" => route.clone(), "status" => status.clone())
            .increment(1);
        metrics::histogram!(telemetry::HTTP_SECONDS, "route" => route, "status" => status)
            .record(took.as_secs_f64());
    }
}

/// Whose plane a route template belongs to.
fn plane(route: &str) -> &'static str {
    if route.starts_with("/operator_api/") {
        "operator"
    } else if route.starts_with("/agent_api/v1/executor") {
        "executor_transport"
    } else if route.starts_with("/agent_api/") {
        "member"
    } else {
        "none"
    }
}

/// A method's name; what a client makes up is `other`, or labels would have no bound.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests;
