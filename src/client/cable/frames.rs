//! The frames of the cable, as text (`cable.md` §2). Pure.

use serde_json::json;

use crate::domain::json::{self, Value};

/// A frame from the server.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerFrame {
    /// Authenticated.
    Welcome,
    /// Every 3 s; unix seconds.
    Ping(i64),
    /// The stream is attached.
    Confirm(String),
    /// The subscription was refused.
    Reject(String),
    /// A push.
    Message {
        /// The subscription's identifier, byte for byte as subscribed.
        identifier: String,
        /// What is pushed.
        message: Value,
    },
    /// Before the server closes.
    Disconnect {
        /// Why.
        reason: String,
        /// Whether to come back.
        reconnect: bool,
    },
    /// A frame this client does not know: ignored.
    Unknown,
}

/// Reads one text frame; what is no frame is [`ServerFrame::Unknown`].
pub fn parse(text: &str) -> ServerFrame {
    read(text).unwrap_or(ServerFrame::Unknown)
}

fn read(text: &str) -> Option<ServerFrame> {
    let frame = json::parse(text.as_bytes()).ok()?;
    let identifier = || frame.get("identifier")?.as_str().map(str::to_owned);
    let Some(kind) = frame.get("type") else {
        let message = frame.get("message")?.clone();
        return Some(ServerFrame::Message {
            identifier: identifier()?,
            message,
        });
    };
    Some(match kind.as_str()? {
        "welcome" => ServerFrame::Welcome,
        "ping" => ServerFrame::Ping(frame.get("message").and_then(Value::as_i64).unwrap_or(0)),
        "confirm_subscription" => ServerFrame::Confirm(identifier()?),
        "reject_subscription" => ServerFrame::Reject(identifier()?),
        "disconnect" => ServerFrame::Disconnect {
            reason: frame
                .get("reason")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            reconnect: frame
                .get("reconnect")
                .and_then(Value::as_bool)
                .unwrap_or(true),
        },
        _ => ServerFrame::Unknown,
    })
}

/// The frame that subscribes `identifier`.
pub fn subscribe(identifier: &str) -> String {
    json!({"command": "subscribe", "identifier": identifier}).to_string()
}

/// The identifier of an executor's inbox channel.
pub fn inbox_channel() -> String {
    json!({"channel": "AgentAPI::V1::ExecutorInboxChannel"}).to_string()
}

/// The identifier of a run's feed; `items` is `events`, `lifecycle`, `transcript` or `progress`.
pub fn run_channel(workspace: &str, run: &str, items: &str) -> String {
    json!({
        "channel": "AgentAPI::V1::RunEventsChannel",
        "workspace_id": workspace,
        "run_id": run,
        "items": items,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_of_the_page_is_read() {
        assert_eq!(parse(r#"{"type":"welcome"}"#), ServerFrame::Welcome);
        assert_eq!(
            parse(r#"{"type":"ping","message":1767225600}"#),
            ServerFrame::Ping(1_767_225_600)
        );
        let id = r#"{"channel":"AgentAPI::V1::ExecutorInboxChannel"}"#;
        let quoted = serde_json::to_string(id).unwrap();
        assert_eq!(
            parse(&format!(
                r#"{{"identifier":{quoted},"type":"confirm_subscription"}}"#
            )),
            ServerFrame::Confirm(id.to_owned())
        );
        assert_eq!(
            parse(&format!(
                r#"{{"identifier":{quoted},"type":"reject_subscription"}}"#
            )),
            ServerFrame::Reject(id.to_owned())
        );
        assert_eq!(
            parse(&format!(
                r#"{{"identifier":{quoted},"message":{{"event":{{}}}}}}"#
            )),
            ServerFrame::Message {
                identifier: id.to_owned(),
                message: Value::from([("event", Value::Object(Default::default()))]),
            }
        );
        assert_eq!(
            parse(r#"{"type":"disconnect","reason":"unauthorized","reconnect":false}"#),
            ServerFrame::Disconnect {
                reason: "unauthorized".to_owned(),
                reconnect: false
            }
        );
    }

    #[test]
    fn what_is_no_frame_is_ignored() {
        for text in [
            "",
            "null",
            "[]",
            "{",
            r#"{"type":7}"#,
            r#"{"type":"new"}"#,
            "{}",
        ] {
            assert_eq!(parse(text), ServerFrame::Unknown, "{text}");
        }
    }

    #[test]
    fn an_identifier_is_sent_as_a_string_byte_for_byte() {
        let odd = r#"{ "channel" : "AgentAPI::V1::ExecutorInboxChannel", "x":1 }"#;
        let frame = json::parse(subscribe(odd).as_bytes()).unwrap();
        assert_eq!(frame.get("identifier").and_then(Value::as_str), Some(odd));
    }
}
