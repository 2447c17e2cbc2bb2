//! The doors to bound files: a descriptor, and bytes whole or one range (`executor.md` §9).
//!
//! Bytes come from here and never by a redirect, and are not to be kept: the `no-store` of every
//! answer stands, since a claim token opened them. Their strong `ETag` is their digest, for
//! `If-Range`.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use super::inbox::claim_token;
use super::uploads::Wrapped;
use crate::app::App;
use crate::commands::{attachment, claim};
use crate::domain::media;
use crate::http::answer::{Answer, ok};
use crate::http::auth::ExecutorCaller;
use crate::http::error::ApiError;
use crate::http::params;
use crate::http::range::{self, Wanted};
use crate::store::uploads::Bound;

/// Their routes.
pub fn routes() -> Router<App> {
    Router::new()
        .route(
            "/agent_api/v1/executor/inbox/{run}/{task}/attachments/{upload}",
            get(descriptor),
        )
        .route(
            "/agent_api/v1/executor/inbox/{run}/{task}/attachments/{upload}/bytes",
            get(bytes),
        )
}

type At = Path<(String, String, String)>;

async fn descriptor(
    caller: ExecutorCaller,
    State(app): State<App>,
    at: At,
    headers: HeaderMap,
) -> Result<Answer<Wrapped>, ApiError> {
    let bound = bound(&app, &caller, at, &headers).await?;
    let body = Wrapped {
        upload: bound.upload,
    };
    Ok(ok(body))
}

async fn bytes(
    caller: ExecutorCaller,
    State(app): State<App>,
    at: At,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let bound = bound(&app, &caller, at, &headers).await?;
    let size = u64::try_from(bound.upload.byte_size).unwrap_or(0);
    let etag = etag(&bound.sha256);
    let (status, part) = match wanted(&headers, &etag, size) {
        Wanted::Whole => (StatusCode::OK, 0..size),
        Wanted::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
        Wanted::Unsatisfiable => return Err(unsatisfiable(size)),
    };
    let stream = app.blobs.read(&bound.blob, part.clone()).await?;
    let mut response = (status, Body::from_stream(stream)).into_response();
    let mut set = |name: HeaderName, text: String| {
        // All of them are ASCII of our own making.
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, content_type(&bound));
    set(header::CONTENT_LENGTH, (part.end - part.start).to_string());
    set(header::ACCEPT_RANGES, "bytes".to_owned());
    set(header::ETAG, etag);
    set(
        header::CONTENT_DISPOSITION,
        disposition(&bound.upload.filename),
    );
    if status == StatusCode::PARTIAL_CONTENT {
        let last = part.end - 1;
        set(
            header::CONTENT_RANGE,
            format!("bytes {}-{last}/{size}", part.start),
        );
    }
    Ok(response)
}

/// The proofs, in order: 404, 400 without the header, 409, and 404 for a file that is not bound.
async fn bound(
    app: &App,
    caller: &ExecutorCaller,
    Path((run, task, upload)): At,
    headers: &HeaderMap,
) -> Result<Bound, ApiError> {
    let (run, task) = (params::public_id(&run)?, params::task_key(&task)?);
    let upload = params::public_id(&upload)?;
    let Ok(token) = claim_token(headers) else {
        // 404 comes before the shape of the request.
        claim::exists(app, caller, run, &task).await?;
        return Err(ApiError::parameter_missing("Claim-Token"));
    };
    Ok(attachment::find(app, caller, run, &task, token, upload).await?)
}

/// What is asked for; a range of other bytes than these (`If-Range`) is all of these.
fn wanted(headers: &HeaderMap, etag: &str, size: u64) -> Wanted {
    let other = headers
        .get(header::IF_RANGE)
        .is_some_and(|known| known.as_bytes() != etag.as_bytes());
    if other {
        return Wanted::Whole;
    }
    let range = headers.get(header::RANGE);
    range::read(range.map(|v| v.to_str().unwrap_or_default()), size)
}

fn unsatisfiable(size: u64) -> ApiError {
    let sentence = format!("Range takes one range of bytes within the {size} there are");
    let mut refused = ApiError::new(
        StatusCode::RANGE_NOT_SATISFIABLE,
        "range_not_satisfiable",
        sentence,
    );
    if let Ok(value) = HeaderValue::from_str(&format!("bytes */{size}")) {
        refused.headers.push((header::CONTENT_RANGE, value));
    }
    refused
}

fn etag(sha256: &[u8]) -> String {
    let hex: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

fn content_type(bound: &Bound) -> String {
    let kind = &bound.upload.content_type;
    HeaderValue::from_str(kind).map_or_else(|_| media::UNKNOWN.to_owned(), |_| kind.clone())
}

/// Always to be saved, never shown in place: a browser must not run what a tool captured.
fn disposition(filename: &str) -> String {
    let plain: String = filename
        .chars()
        .map(|c| {
            if c.is_ascii() && c != '"' && c != '\\' {
                c
            } else {
                '_'
            }
        })
        .collect();
    let encoded: String = filename.bytes().map(percent).collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

fn percent(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}
