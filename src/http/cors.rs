//! What browsers of other origins may do (`conventions.md` §12): pages of the listed origins may
//! call the member and executor planes, with bearers they hold, never with cookies. The operator
//! plane answers no such question. Nothing is listed unless configured.
//!
//! Knows headers and paths. Does not know callers: an origin gives nobody any standing.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::config::Http;

const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const HEADERS: &str =
    "Authorization, Content-Type, Idempotency-Key, Claim-Token, X-Request-Id, Range, If-None-Match";
const EXPOSED: &str = "X-Request-Id, Retry-After, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, \
                       Idempotency-Replayed, ETag";
const MAX_AGE: &str = "600";

/// The origins that may call; the state of both layers.
#[derive(Debug, Clone)]
pub struct Origins(Arc<[String]>);

impl Origins {
    /// The configured ones.
    pub fn new(http: &Http) -> Self {
        Self(http.cors_origins.clone().into())
    }

    /// Whether answers on that path differ by origin.
    fn concern(&self, path: &str) -> bool {
        !self.0.is_empty() && path.starts_with("/agent_api/")
    }

    /// The origin of a request, if it may call.
    fn allowed<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let listed = |one: &String| one.as_bytes() == origin.as_bytes();
        self.0.iter().any(listed).then_some(origin)
    }
}

/// The outer layer: whatever is answered, refusals of the other layers too, a page may read.
pub async fn layer(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    if !origins.concern(request.uri().path()) {
        return next.run(request).await;
    }
    let allowed = origins.allowed(request.headers()).cloned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let exposed = HeaderValue::from_static(EXPOSED);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
    response
}

/// The inner layer: answers the question that a browser asks ahead of a call, whose answer touches
/// nothing.
pub async fn preflight(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let asks = request.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if !asks || !origins.concern(request.uri().path()) || origins.allowed(headers).is_none() {
        return next.run(request).await;
    }
    let answer = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE),
    ];
    (StatusCode::NO_CONTENT, answer).into_response()
}
