//! A claimed call's operations as they are written: their kinds, their identity, and what refuses
//! them (`operations.md` §4, §5, §10).
//!
//! What is wrong with the outside of a request is refused before anything is locked
//! ([`Submitted::read`], §4.1); what is wrong inside is recorded with it ([`Refusal`]), replays, and
//! is observed like any outcome.
//!
//! Does not know: rows, scopes, HTTP status codes.

use std::fmt;

use super::json::{Canonical, Object, Value};
use super::words::OperationKind;

/// The most bytes of a canonical request (`operations.md` §4.1).
pub const REQUEST_BYTES: usize = 65_536;
/// The longest key.
pub const KEY_BYTES: usize = 64;
/// The most operations that one join waits for.
pub const JOIN_SOURCES: usize = 32;

/// Why an operation is refused before anything is looked at; nothing is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Its key.
    #[error(
        "operation.key has 1 to 64 ASCII letters, digits, `_` and `-`, the first a letter or digit"
    )]
    Key,
    /// Its shape.
    #[error("{0}")]
    Operation(&'static str),
    /// Its size.
    #[error("operation.request has at most {REQUEST_BYTES} bytes of canonical JSON")]
    TooLarge,
}

impl Malformed {
    /// Every refusal, for the table of status codes.
    pub const ALL: &'static [Self] = &[Self::Key, Self::Operation(""), Self::TooLarge];

    /// The word clients branch on.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Key => "invalid_operation_key",
            Self::Operation(_) => "invalid_operation",
            Self::TooLarge => "operation_too_large",
        }
    }
}

/// Whether a text is an operation's key.
pub fn is_key(text: &str) -> bool {
    let first = text.bytes().next();
    first.is_some_and(|b| b.is_ascii_alphanumeric())
        && text.len() <= KEY_BYTES
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// An operation of the right outer shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Submitted {
    /// Its key: unique within its parent, across generations.
    pub key: String,
    /// What it asks for.
    pub kind: OperationKind,
    /// The request without its kind.
    pub members: Object,
    /// The whole request: its identity, whatever of it is refused.
    pub request: Canonical,
    /// SHA-256 of that.
    pub digest: [u8; 32],
}

impl Submitted {
    /// Reads the value of `operation`.
    ///
    /// # Errors
    /// [`Malformed`], key first.
    pub fn read(operation: &Value) -> Result<Self, Malformed> {
        let shape = Malformed::Operation("operation is an object of `key` and `request`");
        let operation = operation.as_object().ok_or(shape)?;
        let key = operation.get("key").and_then(Value::as_str);
        let key = key.filter(|key| is_key(key)).ok_or(Malformed::Key)?;
        if operation.len() > 1 + usize::from(operation.contains_key("request")) {
            return Err(shape);
        }
        let request = operation.get("request").and_then(Value::as_object);
        let request = request.ok_or(Malformed::Operation("operation.request is an object"))?;
        let kind = request.get("kind").and_then(Value::as_str);
        let kind = kind.and_then(|kind| kind.parse().ok());
        let kind: OperationKind = kind.ok_or(Malformed::Operation(
            "request.kind is tool, model, ask, wait, steps, replace, cancel, join or background",
        ))?;
        let canonical = Value::Object(request.clone()).canonical();
        let canonical = canonical.map_err(|_| {
            Malformed::Operation(
                "operation.request holds U+0000, a number or a depth that cannot be stored",
            )
        })?;
        if canonical.len() > REQUEST_BYTES {
            return Err(Malformed::TooLarge);
        }
        let mut members = request.clone();
        members.remove("kind");
        Ok(Self {
            key: key.to_owned(),
            kind,
            members,
            digest: canonical.sha256(),
            request: canonical,
        })
    }
}

/// Why a recognised request is refused: recorded beside it, observable, never an HTTP error
/// (`operations.md` §10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The word programs branch on.
    pub code: &'static str,
    /// What was wrong, where, and what is allowed.
    pub message: String,
}

impl Refusal {
    /// With that word and sentence.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// As it is stored and served.
    pub fn to_value(&self) -> Value {
        Value::from([
            ("code", self.code.into()),
            ("message", self.message.as_str().into()),
        ])
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json::parse;

    fn read(text: &str) -> Result<Submitted, Malformed> {
        Submitted::read(&parse(text.as_bytes()).unwrap())
    }

    // operations.md §11.3
    #[test]
    fn keys_have_64_letters_at_most_and_begin_with_one() {
        let of = |key: &str| {
            let key = Value::from(key).canonical().unwrap().into_string();
            read(&format!(
                r#"{{"key":{key},"request":{{"kind":"tool","name":"t"}}}}"#
            ))
        };
        assert!(of(&"k".repeat(64)).is_ok());
        assert!(of("0_-a").is_ok());
        for bad in ["", "-a", "_a", "a.b", "a b", "é", &"k".repeat(65)] {
            assert_eq!(of(bad), Err(Malformed::Key), "{bad}");
        }
    }

    // operations.md §11.5, §4.1
    #[test]
    fn what_is_no_operation_is_refused_whole() {
        for text in [
            "[]",
            r#"{"key":"a","request":[]}"#,
            r#"{"key":"a"}"#,
            r#"{"key":"a","request":{"kind":"other"}}"#,
            r#"{"key":"a","request":{}}"#,
            r#"{"key":"a","request":{"kind":"tool"},"more":1}"#,
            r#"{"key":"a","request":{"kind":"tool","name":"a\u0000"}}"#,
            r#"{"key":"a","request":{"kind":"tool","input":{"n":1e999}}}"#,
        ] {
            assert!(
                matches!(read(text), Err(Malformed::Operation(_))),
                "{text}: {:?}",
                read(text)
            );
        }
    }

    // operations.md §11.4
    #[test]
    fn a_request_has_65536_canonical_bytes_at_most() {
        let empty = r#"{"kind":"tool","name":""}"#.len();
        let of = |n: usize| {
            let name = "n".repeat(n - empty);
            read(&format!(
                r#"{{"key":"a","request":{{"name":"{name}", "kind":"tool"}}}}"#
            ))
        };
        assert_eq!(of(REQUEST_BYTES).unwrap().request.len(), REQUEST_BYTES);
        assert_eq!(of(REQUEST_BYTES + 1), Err(Malformed::TooLarge));
    }

    // operations.md §11.1, §11.2
    #[test]
    fn the_identity_is_the_whole_canonical_request() {
        let of = |request: &str| {
            read(&format!(r#"{{"key":"a","request":{request}}}"#))
                .unwrap()
                .digest
        };
        let first = of(r#"{"kind":"tool","name":"t","input":{"n":1,"m":2}}"#);
        assert_eq!(
            first,
            of(r#"{ "input":{"m":2,"n":1}, "name":"t","kind":"tool"}"#)
        );
        for other in [
            r#"{"kind":"tool","name":"t","input":{"n":1.0,"m":2}}"#,
            r#"{"kind":"tool","name":"t","input":{"n":1,"m":2},"timeout_ms":null}"#,
            r#"{"kind":"tool","name":"t","input":{"n":1,"m":3}}"#,
        ] {
            assert_ne!(first, of(other), "{other}");
        }
    }
}
