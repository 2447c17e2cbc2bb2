//! Refusals and their status codes: the one table (`conventions.md` §4).

use axum::http::{StatusCode, header};

use super::error::ApiError;
use crate::commands;
use crate::commands::{append, create, upload};
use crate::domain::{operation, payload, progress, refusal, steps};

/// A refusal, as an answer.
pub trait Refused: std::fmt::Display {
    /// The word clients branch on.
    fn word(&self) -> &'static str;

    /// The status.
    fn status(&self) -> StatusCode;

    /// The answer.
    fn answer(&self) -> ApiError {
        ApiError::new(self.status(), self.word(), self.to_string())
    }
}

impl<R: Refused> From<commands::Error<R>> for ApiError {
    fn from(error: commands::Error<R>) -> Self {
        match error {
            commands::Error::Refused(refusal) => refusal.answer(),
            commands::Error::Fault(fault) => fault.into(),
        }
    }
}

/// State words are 409, but for the one that says there is nothing.
fn state(is_absence: bool) -> StatusCode {
    if is_absence {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::CONFLICT
    }
}

macro_rules! state_words {
    ($($name:ident),*) => {$(
        impl Refused for refusal::$name {
            fn word(&self) -> &'static str {
                self.code()
            }

            fn status(&self) -> StatusCode {
                state(matches!(self, Self::NotFound))
            }

            fn answer(&self) -> ApiError {
                match self {
                    Self::NotFound => ApiError::not_found(),
                    _ => ApiError::new(self.status(), self.code(), self.to_string()),
                }
            }
        }
    )*};
}

state_words!(
    Claim,
    ReadClaim,
    Start,
    Stop,
    Delete,
    CommitClaim,
    Extend,
    Pause,
    Resume,
    Abandon,
    Approval,
    Cancel,
    AnswerAsk,
    Trace,
    Accept,
    Observe
);

impl Refused for operation::Malformed {
    fn word(&self) -> &'static str {
        self.code()
    }

    fn status(&self) -> StatusCode {
        StatusCode::UNPROCESSABLE_ENTITY
    }
}

impl Refused for refusal::DefaultRunner {
    fn word(&self) -> &'static str {
        self.code()
    }

    fn status(&self) -> StatusCode {
        state(matches!(self, Self::NotFound | Self::RunnerNotFound))
    }

    fn answer(&self) -> ApiError {
        match self {
            Self::NotFound => ApiError::not_found(),
            _ => ApiError::new(self.status(), self.code(), self.to_string()),
        }
    }
}

impl Refused for refusal::Retry {
    fn word(&self) -> &'static str {
        self.code()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::InvalidModel => StatusCode::UNPROCESSABLE_ENTITY,
            _ => state(matches!(self, Self::NotFound)),
        }
    }

    fn answer(&self) -> ApiError {
        match self {
            Self::NotFound => ApiError::not_found(),
            _ => ApiError::new(self.status(), self.code(), self.to_string()),
        }
    }
}

impl Refused for refusal::Answer {
    fn word(&self) -> &'static str {
        self.code()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Ask(refusal) => Refused::status(refusal),
            Self::Payload(refusal) => refusal.status(),
        }
    }

    fn answer(&self) -> ApiError {
        match self {
            Self::Ask(refusal) => refusal.answer(),
            Self::Payload(refusal) => refusal.answer(),
        }
    }
}

impl Refused for append::Refusal {
    fn word(&self) -> &'static str {
        self.code()
    }

    fn status(&self) -> StatusCode {
        use append::Judged;
        match self {
            Self::InProgress | Self::EnvelopeMismatch => StatusCode::CONFLICT,
            Self::Malformed { .. } => StatusCode::BAD_REQUEST,
            Self::Member { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Judged(judged) => match judged {
                Judged::NotFound => StatusCode::NOT_FOUND,
                Judged::RunNotAppendable
                | Judged::StaleRevision { .. }
                | Judged::TipUnresolved
                | Judged::TipLive
                | Judged::AwaitNotResolvable(_)
                | Judged::Steps(steps::Refusal::DuplicateTaskKey(_)) => StatusCode::CONFLICT,
                Judged::Steps(_)
                | Judged::WaitTargetNotFound
                | Judged::WaitCycle
                | Judged::UnknownAwait(_)
                | Judged::UnsupportedResolveOutcome
                | Judged::Payload(_) => StatusCode::UNPROCESSABLE_ENTITY,
            },
        }
    }

    fn answer(&self) -> ApiError {
        use append::Judged;
        let answer = ApiError::new(self.status(), self.word(), self.to_string());
        match self {
            Self::InProgress => answer.header(header::RETRY_AFTER, "1"),
            Self::Malformed { parameter, .. } => answer.with("parameter", *parameter),
            Self::Member {
                path: Some(path), ..
            } => answer.with("path", path.as_str()),
            Self::Judged(Judged::NotFound) => ApiError::not_found(),
            Self::Judged(Judged::StaleRevision { current }) => {
                answer.with("current_revision", i64::from(*current))
            }
            Self::Judged(Judged::Steps(refusal)) if !refusal.steps().is_empty() => {
                answer.with("steps", step_errors(refusal.steps()))
            }
            _ => answer,
        }
    }
}

impl Refused for payload::Refusal {
    fn word(&self) -> &'static str {
        self.code()
    }

    fn status(&self) -> StatusCode {
        StatusCode::UNPROCESSABLE_ENTITY
    }
}

impl Refused for progress::Refusal {
    fn word(&self) -> &'static str {
        self.code()
    }

    fn status(&self) -> StatusCode {
        StatusCode::UNPROCESSABLE_ENTITY
    }
}

impl Refused for upload::Refusal {
    fn word(&self) -> &'static str {
        self.code()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl Refused for refusal::Commit {
    fn word(&self) -> &'static str {
        self.code()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Claim(refusal) => Refused::status(refusal),
            Self::Payload(refusal) => refusal.status(),
        }
    }

    fn answer(&self) -> ApiError {
        match self {
            Self::Claim(refusal) => refusal.answer(),
            Self::Payload(refusal) => refusal.answer(),
        }
    }
}

impl Refused for create::Refusal {
    fn word(&self) -> &'static str {
        match self {
            Self::RunMissing => "parameter_missing",
            Self::RunInvalid => "parameter_invalid",
            Self::InProgress => "idempotency_in_progress",
            Self::EnvelopeMismatch => "idempotency_envelope_mismatch",
            Self::Member { code, .. } => code,
            Self::Steps(refusal) => refusal.code(),
            Self::Wait(refusal) => refusal.code(),
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::RunMissing | Self::RunInvalid => StatusCode::BAD_REQUEST,
            Self::InProgress
            | Self::EnvelopeMismatch
            | Self::Steps(steps::Refusal::DuplicateTaskKey(_)) => StatusCode::CONFLICT,
            Self::Member { .. } | Self::Steps(_) | Self::Wait(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
        }
    }

    fn answer(&self) -> ApiError {
        let answer = ApiError::new(self.status(), self.word(), self.to_string());
        match self {
            Self::RunMissing | Self::RunInvalid => answer.with("parameter", "run"),
            Self::InProgress => answer.header(header::RETRY_AFTER, "1"),
            Self::Member {
                path: Some(path), ..
            } => answer.with("path", path.as_str()),
            Self::Steps(refusal) if !refusal.steps().is_empty() => {
                answer.with("steps", step_errors(refusal.steps()))
            }
            _ => answer,
        }
    }
}

fn step_errors(errors: &[steps::StepError]) -> crate::domain::Value {
    let text = serde_json::to_vec(errors).unwrap_or_default();
    crate::domain::json::parse(&text).unwrap_or(crate::domain::Value::Null)
}
