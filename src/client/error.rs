//! What can go wrong with a call: the server said no, nobody answered, or the answer is no answer.

use std::time::Duration;

use crate::domain::json::{self, Value};

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with a status that is no success (`conventions.md` §4).
    #[error("{status} {code}: {message}")]
    Api {
        /// The HTTP status.
        status: u16,
        /// The error's code; unknown ones are carried. `http_<status>` when the body is no
        /// envelope (an intermediary answered).
        code: String,
        /// The error's words.
        message: String,
        /// How long the server asks to wait before the next attempt.
        retry_after: Option<Duration>,
        /// The whole body, with members such as `parameter`, `steps`, `current_revision` inside
        /// `error`; `null` when it is no JSON.
        body: Box<Value>,
    },
    /// No whole answer arrived: not connected, cut, or timed out. The call may have had its
    /// effect.
    #[error("{what}: no answer")]
    Transport {
        /// The call, as `METHOD path`.
        what: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A success whose body is not of the specified form.
    #[error("{what}: the answer is not of the specified form: {why}")]
    Decode {
        /// The call, as `METHOD path`.
        what: String,
        /// The parser's words.
        why: String,
    },
    /// The client was given something it cannot use: a base URL, a token, a value that is no JSON.
    #[error("{0}")]
    Setup(String),
}

impl Error {
    /// The HTTP status, when the server answered.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Api { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The error code, when the server answered one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Api { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Whether this is `status` with `code`.
    pub fn is(&self, status: u16, code: &str) -> bool {
        self.status() == Some(status) && self.code() == Some(code)
    }

    /// Whether the bearer itself was refused (`conventions.md` §2).
    pub fn is_unauthorized(&self) -> bool {
        self.status() == Some(401)
    }

    /// Whether the same call may succeed a little later: no answer, or a status that says so
    /// (408, 429, 500, 502, 503, 504, `409 idempotency_in_progress`).
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transport { .. } => true,
            Self::Api { status, code, .. } => {
                matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
                    || (*status == 409 && code == "idempotency_in_progress")
            }
            Self::Decode { .. } | Self::Setup(_) => false,
        }
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// A member of the error envelope, such as `parameter` or `steps`.
    pub fn detail(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Api { body, .. } => body.get("error").and_then(|e| e.get(name)),
            _ => None,
        }
    }

    /// The same words once more: a call that spoke for several owes each of them its error.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Api {
                status,
                code,
                message,
                retry_after,
                body,
            } => Self::Api {
                status: *status,
                code: code.clone(),
                message: message.clone(),
                retry_after: *retry_after,
                body: body.clone(),
            },
            Self::Transport { what, source } => Self::Transport {
                what: what.clone(),
                source: chain(&**source).into(),
            },
            Self::Decode { what, why } => Self::Decode {
                what: what.clone(),
                why: why.clone(),
            },
            Self::Setup(why) => Self::Setup(why.clone()),
        }
    }

    /// Reads the envelope of an unsuccessful answer.
    pub(super) fn from_answer(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let body = json::parse(body).unwrap_or(Value::Null);
        let text = |name: &str| {
            let error = body.get("error")?;
            error.get(name).and_then(Value::as_str).map(str::to_owned)
        };
        let code = text("code").unwrap_or_else(|| format!("http_{status}"));
        let message = text("message").unwrap_or_else(|| "the answer carries no message".to_owned());
        Self::Api {
            status,
            code,
            message,
            retry_after,
            body: Box::new(body),
        }
    }
}

/// An error's words and those of its causes, for a log line or a terminal.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(": ");
        words.push_str(&error.to_string());
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_gives_code_message_and_members() {
        let body =
            br#"{"error":{"code":"stale_revision","message":"m","current_revision":2,"new":1}}"#;
        let e = Error::from_answer(409, None, body);
        assert!(e.is(409, "stale_revision"));
        assert_eq!(e.to_string(), "409 stale_revision: m");
        assert_eq!(
            e.detail("current_revision").and_then(Value::as_i64),
            Some(2)
        );
    }

    #[test]
    fn a_body_of_an_intermediary_still_has_a_code() {
        let e = Error::from_answer(502, None, b"<html>Bad gateway</html>");
        assert!(e.is(502, "http_502"));
        assert!(e.is_transient());
    }

    #[test]
    fn only_statuses_that_may_pass_are_transient() {
        let transient = |status, code: &str| {
            let body = format!(r#"{{"error":{{"code":"{code}","message":""}}}}"#);
            Error::from_answer(status, None, body.as_bytes()).is_transient()
        };
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(transient(status, "x"), "{status}");
        }
        for status in [400, 401, 403, 404, 409, 410, 413, 415, 422] {
            assert!(!transient(status, "x"), "{status}");
        }
        assert!(transient(409, "idempotency_in_progress"));
    }
}
