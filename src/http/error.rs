//! The one place that knows status codes: refusals and faults become the error envelope
//! (`conventions.md` §4).
//!
//! Invariants: messages carry no secrets, no raw input, no internal ids; a fault is logged once,
//! here; 503 when retrying may help (`Retry-After`), else 500 without detail.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::domain::json::{Object, Value};
use crate::store;
pub use crate::telemetry::chain;

/// An answer that is an error. The request id is put in by the outermost layer.
#[derive(Debug)]
pub struct ApiError {
    /// Status.
    pub status: StatusCode,
    /// The word clients branch on.
    pub code: &'static str,
    /// A sentence for people: what was wrong, where, what is allowed.
    pub message: String,
    /// Members beside `code` and `message`.
    pub extra: Vec<(&'static str, Value)>,
    /// Headers beside the ordinary ones.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl ApiError {
    /// An error of that status, code and sentence.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            extra: Vec::new(),
            headers: Vec::new(),
        }
    }

    /// With one more member.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.extra.push((name, value.into()));
        self
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// 400 `bad_request`: a body that cannot be read.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// 400 `parameter_missing`.
    pub fn parameter_missing(name: &'static str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "parameter_missing",
            format!("{name} is required"),
        )
        .with("parameter", name)
    }

    /// 400 `parameter_invalid`: `message` says what the parameter takes.
    pub fn parameter_invalid(name: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "parameter_invalid", message).with("parameter", name)
    }

    /// The one 401.
    pub fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "a valid bearer token is required",
        )
        .header(header::WWW_AUTHENTICATE, "Bearer realm=\"Nexus\"")
    }

    /// 403 `not_authorized`: visible, but no standing.
    pub fn not_authorized() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "not_authorized",
            "write access to this workspace is required",
        )
    }

    /// The one 404: absent, deleted, foreign, concealed, impossible.
    pub fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "there is no such resource",
        )
    }

    /// A state that says no.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// A meaning that is refused.
    pub fn unprocessable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    /// 503: try again soon.
    pub fn unavailable(code: &'static str) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            code,
            "Nexus cannot answer now; try again soon",
        )
        .header(header::RETRY_AFTER, "1")
    }
}

impl From<store::Error> for ApiError {
    fn from(fault: store::Error) -> Self {
        let report = chain(&fault);
        match fault.remedy() {
            store::Remedy::None => {
                tracing::error!(error = report, "a request met a fault");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal_error",
                    "an internal error",
                )
            }
            _ => {
                tracing::warn!(error = report, "a request met an unavailable store");
                Self::unavailable("unavailable")
            }
        }
    }
}

/// A sentence or path without control characters, wherever they came from: U+0000 has no canonical form.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn cleaned(value: &Value) -> Value {
    match value {
        Value::Str(text) => plain(text).into(),
        Value::Array(items) => Value::Array(items.iter().map(cleaned).collect()),
        Value::Object(members) => {
            let members = members.iter();
            let clean = members.map(|(name, value)| (plain(name), cleaned(value)));
            Value::Object(clean.collect())
        }
        other => other.clone(),
    }
}

impl ApiError {
    /// What stands in the envelope's `error`.
    pub fn to_value(&self) -> Value {
        let mut members = Object::from([
            ("code".to_owned(), Value::from(self.code)),
            ("message".to_owned(), Value::from(plain(&self.message))),
        ]);
        if let Some(id) = super::request_id::current() {
            members.insert("request_id".to_owned(), Value::from(id));
        }
        for (name, value) in &self.extra {
            // One that cannot be written takes no other member with it.
            let value = cleaned(value);
            if value.canonical().is_ok() {
                members.insert((*name).to_owned(), value);
            }
        }
        Value::Object(members)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let text = self.to_value().canonical();
        let text = text.expect("each member can be written, and no name repeats");
        let body = format!("{{\"error\":{}}}", text.as_str());
        let mut response = (
            self.status,
            [(header::CONTENT_TYPE, "application/json")],
            body,
        )
            .into_response();
        response.headers_mut().extend(self.headers);
        response
    }
}
