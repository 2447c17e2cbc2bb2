//! Frames of progress: read from what an executor sends, and written as a member feed carries them
//! (`executor.md` §14, `cable.md` §4).
//!
//! Pure; does not know whether the claim in a frame is any good. Nothing of a frame is stored.
//!
//! Invariant: no token and no unknown member of what was sent is in what is written.

use super::ids::{PublicId, TaskKey};
use super::json::{Canonical, Object, Value};
use super::time::Timestamp;

/// The most bytes of a frame, canonical.
pub const MAX_FRAME: usize = 65_536;

/// Why a frame is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A missing or mistyped member, or none of the two kinds.
    #[error("frame{0}")]
    InvalidFrame(String),
    /// Too large.
    #[error("frame may have at most {MAX_FRAME} bytes of canonical JSON")]
    FrameTooLarge,
}

impl Refusal {
    /// The word clients branch on.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InvalidFrame(_) => "invalid_frame",
            Self::FrameTooLarge => "frame_too_large",
        }
    }
}

fn invalid(spot: impl Into<String>) -> Refusal {
    Refusal::InvalidFrame(spot.into())
}

/// A claim as a frame names it.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its run.
    pub run: PublicId,
    /// Its task.
    pub task: TaskKey,
    /// Its token.
    pub token: String,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claim({}/{})", self.run, self.task)
    }
}

/// Whose feed a process writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// A standalone run.
    Run(PublicId),
    /// A conversation.
    Conversation(PublicId),
}

/// One frame as sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// How a claimed call is coming along.
    Task {
        /// The call.
        claim: Claim,
        /// The end of its text so far.
        text_tail: Option<String>,
        /// Anything else; null is a value.
        structured: Option<Value>,
    },
    /// What a process prints that a call started and may have outlived.
    Process {
        /// Whose feed.
        host: Host,
        /// The process, as its executor calls it.
        process_id: String,
        /// The call that started it.
        source: Claim,
        /// What it printed.
        lines: Vec<Value>,
        /// How it ended; null while it runs.
        exit: Value,
    },
}

impl Frame {
    /// Reads a frame.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn read(value: &Value) -> Result<Self, Refusal> {
        let frame = value
            .as_object()
            .ok_or_else(|| invalid(" must be an object"))?;
        let size = value
            .canonical()
            .map_err(|why| invalid(format!(": {why}")))?;
        if size.as_str().len() > MAX_FRAME {
            return Err(Refusal::FrameTooLarge);
        }
        match (frame.contains_key("task_key"), is_process(frame)) {
            (true, false) => task(frame),
            (false, true) => process(frame),
            (true, true) => Err(invalid(" takes task_key or process_id, not both")),
            (false, false) => Err(invalid(
                " takes run_public_id, task_key and claim_token, or a host, process_id and source",
            )),
        }
    }

    /// What a cadence slot is taken for: the same text for every frame of one call or process. Holds
    /// no token.
    pub fn slot(&self) -> String {
        match self {
            Self::Task { claim, .. } => format!("task\n{}\n{}", claim.run, claim.task),
            Self::Process {
                host, process_id, ..
            } => match host {
                Host::Run(id) => format!("run\n{id}\n{process_id}"),
                Host::Conversation(id) => format!("conversation\n{id}\n{process_id}"),
            },
        }
    }

    /// The claim that the frame is proven with.
    pub fn claim(&self) -> &Claim {
        match self {
            Self::Task { claim, .. } => claim,
            Self::Process { source, .. } => source,
        }
    }

    /// The `message` of its cable frame, `{"frame":{…}}`, as `executor` sent it at that time for a
    /// call of that tool.
    pub fn message(
        self,
        executor: PublicId,
        at: Timestamp,
        tool_name: Option<String>,
    ) -> Canonical {
        let mut members = vec![
            ("executor_public_id", Value::from(executor.to_string())),
            ("at", Value::from(at.timestamp_millis())),
        ];
        match self {
            Self::Task {
                claim,
                text_tail,
                structured,
            } => {
                members.push(("type", Value::from("executor_progress")));
                members.push(("run_public_id", Value::from(claim.run.to_string())));
                members.push(("task_key", Value::from(claim.task.as_str())));
                members.push(("tool_name", tool_name.map_or(Value::Null, Value::from)));
                members.extend(text_tail.map(|text| ("text_tail", Value::from(text))));
                members.extend(structured.map(|value| ("structured", value)));
            }
            Self::Process {
                host,
                process_id,
                lines,
                exit,
                ..
            } => {
                let (name, id) = match host {
                    Host::Run(id) => ("run_public_id", id),
                    Host::Conversation(id) => ("conversation_public_id", id),
                };
                members.push(("type", Value::from("process_output")));
                members.push((name, Value::from(id.to_string())));
                members.push(("process_id", Value::from(process_id)));
                members.push(("lines", Value::Array(lines)));
                members.push(("exit", exit));
            }
        }
        let frame: Object = members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let frame = Value::Object(frame)
            .canonical()
            .expect("its parts are of a frame that had a canonical form");
        Canonical::trusted(format!(r#"{{"frame":{}}}"#, frame.as_str()))
    }
}

fn is_process(frame: &Object) -> bool {
    frame.contains_key("process_id") || frame.contains_key("source")
}

fn task(frame: &Object) -> Result<Frame, Refusal> {
    let text_tail = match frame.get("text_tail") {
        None | Some(Value::Null) => None,
        Some(Value::Str(text)) => Some(text.clone()),
        Some(_) => return Err(invalid(".text_tail must be a string")),
    };
    Ok(Frame::Task {
        claim: claim(frame, "")?,
        text_tail,
        structured: frame.get("structured").cloned(),
    })
}

fn process(frame: &Object) -> Result<Frame, Refusal> {
    let host = match (
        frame.get("run_public_id"),
        frame.get("conversation_public_id"),
    ) {
        (Some(_), None) => Host::Run(id(frame, "", "run_public_id")?),
        (None, Some(_)) => Host::Conversation(id(frame, "", "conversation_public_id")?),
        _ => {
            return Err(invalid(
                " takes either run_public_id or conversation_public_id beside process_id",
            ));
        }
    };
    let process_id = match frame.get("process_id") {
        Some(Value::Str(text)) if !text.trim().is_empty() => text.clone(),
        _ => return Err(invalid(".process_id must be a non-blank string")),
    };
    let source = match frame.get("source") {
        Some(Value::Object(source)) => claim(source, ".source")?,
        _ => return Err(invalid(".source must be an object")),
    };
    let lines = match frame.get("lines") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(lines)) => lines.clone(),
        Some(_) => return Err(invalid(".lines must be an array")),
    };
    Ok(Frame::Process {
        host,
        process_id,
        source,
        lines,
        exit: frame.get("exit").cloned().unwrap_or(Value::Null),
    })
}

fn claim(from: &Object, spot: &str) -> Result<Claim, Refusal> {
    let task = from
        .get("task_key")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| invalid(format!("{spot}.task_key must be a task key")))?;
    let token = from
        .get("claim_token")
        .and_then(Value::as_str)
        .ok_or_else(|| invalid(format!("{spot}.claim_token must be a string")))?;
    Ok(Claim {
        run: id(from, spot, "run_public_id")?,
        task,
        token: token.to_owned(),
    })
}

fn id(from: &Object, spot: &str, name: &str) -> Result<PublicId, Refusal> {
    from.get(name)
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| invalid(format!("{spot}.{name} must be a UUID")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json;

    const RUN: &str = "0190c0de-0000-7000-8000-000000000001";

    fn read(text: &str) -> Result<Frame, Refusal> {
        let text = text.replace("RUN", RUN);
        let value = json::parse(text.as_bytes()).unwrap();
        Frame::read(&value)
    }

    fn written(text: &str) -> String {
        let executor = PublicId(uuid::Uuid::from_u128(7));
        let at = chrono::DateTime::from_timestamp_millis(1_893_553_445_123).unwrap();
        let message = read(text)
            .unwrap()
            .message(executor, at, Some("echo".to_owned()));
        message.as_str().replace(RUN, "RUN")
    }

    #[test]
    fn a_frame_is_stamped_and_loses_its_token() {
        let sent = r#"{"run_public_id":"RUN","task_key":"a","claim_token":"secret","text_tail":"50%",
            "structured":null,"other":1,"at":5,"tool_name":"mine"}"#;
        assert_eq!(
            written(sent),
            r#"{"frame":{"at":1893553445123,"executor_public_id":"00000000-0000-0000-0000-000000000007","run_public_id":"RUN","structured":null,"task_key":"a","text_tail":"50%","tool_name":"echo","type":"executor_progress"}}"#
        );
        let sent = r#"{"run_public_id":"RUN","process_id":"p1",
            "source":{"run_public_id":"RUN","task_key":"a","claim_token":"secret"},"lines":["x"],"exit":0}"#;
        assert_eq!(
            written(sent),
            r#"{"frame":{"at":1893553445123,"executor_public_id":"00000000-0000-0000-0000-000000000007","exit":0,"lines":["x"],"process_id":"p1","run_public_id":"RUN","type":"process_output"}}"#
        );
    }

    #[test]
    fn what_is_no_frame_is_refused_by_spot() {
        let source = r#""source":{"run_public_id":"RUN","task_key":"a","claim_token":"t"}"#;
        let cases = [
            ("{}", "frame takes run_public_id"),
            (r#"{"text_tail":"x"}"#, "frame takes run_public_id"),
            (r#"{"task_key":"a","process_id":"p"}"#, "not both"),
            (
                r#"{"task_key":"a","claim_token":"t"}"#,
                "frame.run_public_id",
            ),
            (
                r#"{"run_public_id":"no","task_key":"a","claim_token":"t"}"#,
                "frame.run_public_id",
            ),
            (
                r#"{"run_public_id":"RUN","task_key":"-a","claim_token":"t"}"#,
                "frame.task_key",
            ),
            (
                r#"{"run_public_id":"RUN","task_key":"a"}"#,
                "frame.claim_token",
            ),
            (
                r#"{"run_public_id":"RUN","task_key":"a","claim_token":1}"#,
                "frame.claim_token",
            ),
            (
                r#"{"run_public_id":"RUN","task_key":"a","claim_token":"t","text_tail":1}"#,
                "frame.text_tail",
            ),
            (
                r#"{"run_public_id":"RUN","task_key":"a","claim_token":"t","structured":"\u0000"}"#,
                "U+0000",
            ),
            (
                r#"{"run_public_id":"RUN","process_id":"p"}"#,
                "frame.source",
            ),
            (
                &format!(r#"{{"run_public_id":"RUN","process_id":" ",{source}}}"#),
                "frame.process_id",
            ),
            (&format!(r#"{{"process_id":"p",{source}}}"#), "either"),
            (
                &format!(r#"{{"run_public_id":"RUN","process_id":"p","lines":"x",{source}}}"#),
                "frame.lines",
            ),
            (
                r#"{"run_public_id":"RUN","process_id":"p","source":{"run_public_id":"RUN","task_key":"a"}}"#,
                "frame.source.claim_token",
            ),
        ];
        for (sent, spot) in cases {
            let refusal = read(sent).unwrap_err();
            assert_eq!(refusal.code(), "invalid_frame", "{sent}");
            assert!(refusal.to_string().contains(spot), "{sent}: {refusal}");
        }
    }

    #[test]
    fn the_bound_is_in_canonical_bytes() {
        let of = |n: usize| {
            format!(
                r#"{{ "run_public_id":"RUN", "task_key":"a", "claim_token":"t", "text_tail":"{}" }}"#,
                "x".repeat(n)
            )
        };
        let around = of(0).replace(' ', "").len() + RUN.len() - "RUN".len();
        assert!(read(&of(MAX_FRAME - around)).is_ok());
        assert_eq!(
            read(&of(MAX_FRAME - around + 1)),
            Err(Refusal::FrameTooLarge)
        );
    }
}
