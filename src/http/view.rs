//! Building blocks of answers: values as clients see them.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use crate::domain::json::Value;
use crate::domain::time::At;
use crate::domain::{PublicId, Timestamp};

/// A public id.
pub fn id(id: PublicId) -> Value {
    Value::Str(id.to_string())
}

/// A point in time, whole seconds, floored.
pub fn at(at: Timestamp) -> Value {
    Value::Str(At(at).to_string())
}

/// A value or `null`.
pub fn or_null<T>(value: Option<T>, view: impl FnOnce(T) -> Value) -> Value {
    value.map_or(Value::Null, view)
}

/// An answer of that status with a JSON body, exact.
pub fn json(status: StatusCode, body: &Value) -> Response {
    match body.canonical() {
        Ok(text) => (
            status,
            [(header::CONTENT_TYPE, "application/json")],
            text.into_string(),
        )
            .into_response(),
        Err(why) => {
            tracing::error!(%why, "an answer holds what no body can");
            ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal_error",
                "an internal error",
            )
            .into_response()
        }
    }
}

/// A resource under its singular name.
pub fn wrapped(status: StatusCode, name: &str, resource: Value) -> Response {
    json(status, &Value::from([(name, resource)]))
}
