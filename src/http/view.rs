//! Building blocks of answers: values as clients see them.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::answer::Answer;
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
    Answer(status, body).into_response()
}

/// A resource under its singular name.
pub fn wrapped(status: StatusCode, name: &str, resource: Value) -> Response {
    json(status, &Value::from([(name, resource)]))
}
