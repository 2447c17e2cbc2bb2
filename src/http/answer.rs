//! JSON answers, written by one serializer so that exact numbers stay exact.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::error::ApiError;
use crate::domain::idempotency;

/// A JSON answer with a status.
#[derive(Debug)]
pub struct Answer<T>(pub StatusCode, pub T);

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.1) {
            Ok(body) => {
                (self.0, [(header::CONTENT_TYPE, "application/json")], body).into_response()
            }
            Err(error) => {
                tracing::error!(%error, "an answer could not be written");
                ApiError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal_error",
                    "an internal error",
                )
                .into_response()
            }
        }
    }
}

/// 200 with a body.
pub fn ok<T: Serialize>(body: T) -> Answer<T> {
    Answer(StatusCode::OK, body)
}

/// A list's pagination.
#[derive(Debug, Serialize)]
pub struct Pagination {
    /// Where the next page begins; null at the end.
    pub next_after: Option<String>,
}

/// The `Idempotency-Key` of a request, at most `max` bytes.
///
/// # Errors
/// 400 `parameter_invalid`.
pub fn idempotency_key(headers: &HeaderMap, max: usize) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    value
        .to_str()
        .ok()
        .filter(|key| idempotency::is_key(key, max))
        .map(|key| Some(key.to_owned()))
        .ok_or_else(|| {
            ApiError::parameter_invalid(
                "Idempotency-Key",
                format!("Idempotency-Key takes 1 to {max} visible ASCII characters"),
            )
        })
}
