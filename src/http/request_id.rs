//! One id per request: kept if the client's is well formed, else minted; echoed, logged, and put
//! into every error (`conventions.md` §13).

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

/// `X-Request-Id`.
pub static HEADER: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static CURRENT: String;
}

/// The id of the request that is being answered.
pub fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

fn is_well_formed(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

#[allow(clippy::disallowed_methods, reason = "a request's id decides nothing")]
fn fresh() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// The outermost layer: the id, and the headers that every answer carries (§12).
pub async fn layer(request: Request, next: Next) -> Response {
    let id = request
        .headers()
        .get(&HEADER)
        .and_then(|v| v.to_str().ok())
        .filter(|id| is_well_formed(id))
        .map_or_else(fresh, str::to_owned);
    let mut response = CURRENT.scope(id.clone(), next.run(request)).await;
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(HEADER.clone(), value);
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}
