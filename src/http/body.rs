//! JSON bodies, strictly read: type, size, one parse, an object at the top (`conventions.md` §3).

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};

use super::error::ApiError;
use crate::domain::json::{self, Object, Value};

/// The most bytes a JSON body may have, raw.
pub const MAX_BODY: usize = 2 * 1024 * 1024;

/// The same where a bound of canonical JSON judges (results, steps): one canonical byte may have been
/// sent as up to six, and what is too large there has a code of its own.
pub const MAX_ESCAPED_BODY: usize = 8 * 1024 * 1024;

/// A JSON object body. A missing body is `{}`: the door says what it requires. What another door
/// would take as its whole body may stand `ENVELOPE` levels deep in it.
#[derive(Debug)]
pub struct Body<const ENVELOPE: usize = 0>(pub Object);

impl<S: Send + Sync, const ENVELOPE: usize> FromRequest<S> for Body<ENVELOPE> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let headers = request.headers().clone();
        if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
            && encoding.as_bytes() != b"identity"
        {
            return Err(unsupported(
                "compressed bodies are not read; send them plain",
            ));
        }
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| {
                if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                    too_large()
                } else {
                    ApiError::bad_request("the body could not be read")
                }
            })?;
        if bytes.is_empty() {
            return Ok(Self(Object::new()));
        }
        require_json(&headers)?;
        object(json::parse_enveloped(&bytes, ENVELOPE)).map(Self)
    }
}

fn too_large() -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "content_too_large",
        format!(
            "a body may have at most {MAX_BODY} bytes ({MAX_ESCAPED_BODY} where steps or results are sent)"
        ),
    )
}

fn unsupported(message: &str) -> ApiError {
    ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        message,
    )
}

fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let wanted = || unsupported("Content-Type must be application/json, in UTF-8");
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .ok_or_else(wanted)?;
    let mut parts = kind.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let charset_fits = parts.all(|p| {
        let p = p.to_ascii_lowercase();
        !p.starts_with("charset=") || p == "charset=utf-8" || p == "charset=\"utf-8\""
    });
    if essence.eq_ignore_ascii_case("application/json") && charset_fits {
        Ok(())
    } else {
        Err(wanted())
    }
}

/// Parses a body whose top must be an object.
///
/// # Errors
/// 400 `bad_request` when it is no JSON, 400 `parameter_invalid` when it nests too deep or is no
/// object.
pub fn parse(bytes: &[u8]) -> Result<Object, ApiError> {
    object(json::parse(bytes))
}

fn object(parsed: Result<Value, json::ParseError>) -> Result<Object, ApiError> {
    match parsed {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(ApiError::parameter_invalid(
            "body",
            "the body must be a JSON object",
        )),
        Err(json::ParseError::TooDeep) => Err(ApiError::parameter_invalid(
            "body",
            json::Unstorable::TooDeep.to_string(),
        )),
        Err(malformed @ json::ParseError::Malformed { .. }) => Err(ApiError::bad_request(format!(
            "the body is not JSON: {malformed}"
        ))),
    }
}
