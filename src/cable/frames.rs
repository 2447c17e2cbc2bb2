//! Frames as text: what clients send, what the server sends (`cable.md` §2). Pure.
//!
//! Invariant: an identifier leaves as the bytes it came in.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::PublicId;

/// The longest identifier that can name a stream.
const LONGEST_IDENTIFIER: usize = 4096;

/// An identifier as a client spelled it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identifier {
    /// The string: JSON inside, and what tells two subscriptions apart.
    pub text: String,
    /// The JSON token of the string, byte for byte as it came: what is echoed.
    pub token: Arc<str>,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Attach a stream.
    Subscribe,
    /// Detach it.
    Unsubscribe,
    /// A channel action: JSON inside a string.
    Message(String),
}

/// One frame of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFrame {
    /// What it asks.
    pub command: Command,
    /// For which stream.
    pub identifier: Identifier,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    command: Cow<'a, str>,
    #[serde(borrow)]
    identifier: &'a RawValue,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

/// Reads a client's frame; none when it is none.
pub fn parse(text: &str) -> Option<ClientFrame> {
    let wire: Wire<'_> = serde_json::from_str(text).ok()?;
    let identifier = Identifier {
        text: serde_json::from_str(wire.identifier.get()).ok()?,
        token: wire.identifier.get().into(),
    };
    let command = match &*wire.command {
        "subscribe" => Command::Subscribe,
        "unsubscribe" => Command::Unsubscribe,
        "message" => Command::Message(serde_json::from_str(wire.data?.get()).ok()?),
        _ => return None,
    };
    Some(ClientFrame {
        command,
        identifier,
    })
}

/// Whether a message's data is the action `pong`.
pub fn is_pong(data: &str) -> bool {
    #[derive(Deserialize)]
    struct Action<'a> {
        #[serde(borrow)]
        action: Cow<'a, str>,
    }
    serde_json::from_str::<Action<'_>>(data).is_ok_and(|a| a.action == "pong")
}

/// Which part of a member feed a subscription takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items {
    /// Every durable item.
    Events,
    /// The state of the run as a whole.
    Lifecycle,
    /// Streamed transcript.
    Transcript,
    /// Ephemeral progress.
    Progress,
}

/// What an identifier names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// `AgentAPI::V1::ExecutorInboxChannel`.
    Inbox,
    /// `AgentAPI::V1::RunEventsChannel`.
    Run {
        /// Its workspace.
        workspace: PublicId,
        /// The run.
        run: PublicId,
        /// Part of its feed.
        items: Items,
    },
    /// `AgentAPI::V1::ConversationEventsChannel`.
    Conversation {
        /// Its workspace.
        workspace: PublicId,
        /// The conversation.
        conversation: PublicId,
        /// Part of its feed.
        items: Items,
    },
    /// `AgentAPI::V1::InferenceRequestEventsChannel`.
    InferenceRequest {
        /// Its workspace.
        workspace: PublicId,
        /// The request.
        inference_request: PublicId,
        /// Part of its feed: durable items only.
        items: Items,
    },
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(borrow, default)]
    workspace_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    run_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    conversation_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    inference_request_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    items: Option<&'a RawValue>,
}

fn id(value: Option<&RawValue>) -> Option<PublicId> {
    let text: Cow<'_, str> = serde_json::from_str(value?.get()).ok()?;
    text.parse().ok()
}

fn items(value: Option<&RawValue>) -> Option<Items> {
    let Some(value) = value else {
        return Some(Items::Events);
    };
    match value.get() {
        r#""events""# => Some(Items::Events),
        r#""lifecycle""# => Some(Items::Lifecycle),
        r#""transcript""# => Some(Items::Transcript),
        r#""progress""# => Some(Items::Progress),
        _ => None,
    }
}

impl Stream {
    /// What an identifier's string names; none for unknown channels, unknown parts and anything
    /// unreadable.
    pub fn read(text: &str) -> Option<Self> {
        if text.len() > LONGEST_IDENTIFIER {
            return None;
        }
        let params: Params<'_> = serde_json::from_str(text).ok()?;
        let channel = params.channel.strip_prefix("AgentAPI::V1::")?;
        if channel == "ExecutorInboxChannel" {
            return Some(Self::Inbox);
        }
        let workspace = id(params.workspace_id)?;
        let items = items(params.items)?;
        match channel {
            "RunEventsChannel" => Some(Self::Run {
                workspace,
                run: id(params.run_id)?,
                items,
            }),
            "ConversationEventsChannel" => Some(Self::Conversation {
                workspace,
                conversation: id(params.conversation_id)?,
                items,
            }),
            "InferenceRequestEventsChannel"
                if matches!(items, Items::Events | Items::Lifecycle) =>
            {
                Some(Self::InferenceRequest {
                    workspace,
                    inference_request: id(params.inference_request_id)?,
                    items,
                })
            }
            _ => None,
        }
    }
}

/// Why the server ends a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No, dead, or fenced credential.
    Unauthorized,
    /// Protocol abuse.
    InvalidRequest,
    /// An opted-in client stopped answering pings.
    PongTimeout,
    /// Graceful stop, or this replica cannot serve now.
    ServerRestart,
    /// The member's access changed.
    Remote,
    /// It reads too slowly.
    SlowConsumer,
}

impl Reason {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::InvalidRequest => "invalid_request",
            Self::PongTimeout => "pong_timeout",
            Self::ServerRestart => "server_restart",
            Self::Remote => "remote",
            Self::SlowConsumer => "slow_consumer",
        }
    }

    /// Whether the client should come back.
    pub const fn reconnect(self) -> bool {
        !matches!(self, Self::Unauthorized | Self::InvalidRequest)
    }

    /// The WebSocket close code that follows the frame.
    pub const fn close_code(self) -> u16 {
        match self {
            Self::ServerRestart => 1001,
            Self::InvalidRequest | Self::Unauthorized => 1008,
            Self::PongTimeout | Self::Remote | Self::SlowConsumer => 1000,
        }
    }
}

/// Once, after the handshake.
pub const WELCOME: &str = r#"{"type":"welcome"}"#;

/// Every three seconds.
pub fn ping(unix_seconds: u64) -> String {
    format!(r#"{{"type":"ping","message":{unix_seconds}}}"#)
}

/// The stream is attached.
pub fn confirm(token: &str) -> String {
    format!(r#"{{"identifier":{token},"type":"confirm_subscription"}}"#)
}

/// Refused, without a reason.
pub fn reject(token: &str) -> String {
    format!(r#"{{"identifier":{token},"type":"reject_subscription"}}"#)
}

/// A push: `message` is JSON already.
pub fn push(token: &str, message: &str) -> String {
    format!(r#"{{"identifier":{token},"message":{message}}}"#)
}

/// The last frame before closing.
pub fn disconnect(reason: Reason) -> String {
    format!(
        r#"{{"type":"disconnect","reason":"{}","reconnect":{}}}"#,
        reason.as_str(),
        reason.reconnect()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0199c0de-0000-7000-8000-0000000000aa";

    fn run_identifier(rest: &str) -> String {
        format!(
            r#"{{"channel":"AgentAPI::V1::RunEventsChannel","workspace_id":"{RUN}","run_id":"{RUN}"{rest}}}"#
        )
    }

    #[test]
    fn an_identifier_is_echoed_as_the_bytes_it_came_in() {
        let text = r#"{ "identifier" : "{ \"x\":1,\u0022channel\":\"AgentAPI::V1::ExecutorInboxChannel\"  ,\"b\":\"\/é\"}", "command":"subscribe", "extra":[1] }"#;
        let frame = parse(text).unwrap();
        assert_eq!(frame.command, Command::Subscribe);
        assert_eq!(Stream::read(&frame.identifier.text), Some(Stream::Inbox));
        assert_eq!(
            confirm(&frame.identifier.token),
            r#"{"identifier":"{ \"x\":1,\u0022channel\":\"AgentAPI::V1::ExecutorInboxChannel\"  ,\"b\":\"\/é\"}","type":"confirm_subscription"}"#
        );
    }

    #[test]
    fn what_is_no_frame_is_none() {
        for text in [
            "",
            "x",
            "[]",
            "{}",
            r#"{"command":"subscribe"}"#,
            r#"{"command":"subscribe","identifier":{"channel":"x"}}"#,
            r#"{"command":"subscribe","identifier":"\ud800"}"#,
            r#"{"command":"dance","identifier":"{}"}"#,
            r#"{"command":"message","identifier":"{}"}"#,
            r#"{"command":"message","identifier":"{}","data":{"action":"pong"}}"#,
            r#"{"command":"subscribe","identifier":"{}"} trailing"#,
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_pong_is_json_inside_a_string() {
        let frame =
            parse(r#"{"command":"message","identifier":"i","data":"{\"action\":\"pong\"}"}"#)
                .unwrap();
        let Command::Message(data) = frame.command else {
            unreachable!()
        };
        assert!(is_pong(&data));
        assert!(is_pong(r#"{"n":1,"action":"pong"}"#));
        assert!(!is_pong(r#"{"action":"ping"}"#));
        assert!(!is_pong("pong"));
    }

    #[test]
    fn parts_of_a_feed_are_a_closed_list_with_events_the_default() {
        let items_of = |rest: &str| match Stream::read(&run_identifier(rest)) {
            Some(Stream::Run { items, .. }) => Some(items),
            _ => None,
        };
        assert_eq!(items_of(""), Some(Items::Events));
        assert_eq!(items_of(r#","items":"lifecycle""#), Some(Items::Lifecycle));
        assert_eq!(items_of(r#","items":"progress""#), Some(Items::Progress));
        assert_eq!(items_of(r#","items":"everything""#), None);
        assert_eq!(items_of(r#","items":null"#), Some(Items::Events));
        assert_eq!(items_of(r#","items":1"#), None);
    }

    #[test]
    fn inference_requests_have_durable_items_only() {
        let read = |items: &str| {
            Stream::read(&format!(
                r#"{{"channel":"AgentAPI::V1::InferenceRequestEventsChannel","workspace_id":"{RUN}","inference_request_id":"{RUN}","items":"{items}"}}"#
            ))
        };
        assert!(read("events").is_some() && read("lifecycle").is_some());
        assert!(read("transcript").is_none() && read("progress").is_none());
    }

    #[test]
    fn what_names_no_stream_is_none() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"channel":7}"#,
            r#"{"channel":"ExecutorInboxChannel"}"#,
            r#"{"channel":"AgentAPI::V1::SecretChannel"}"#,
            r#"{"channel":"AgentAPI::V1::RunEventsChannel"}"#,
            r#"{"channel":"AgentAPI::V1::RunEventsChannel","workspace_id":"1","run_id":"2"}"#,
        ] {
            assert_eq!(Stream::read(text), None, "{text}");
        }
        let long = format!(
            r#"{{"channel":"AgentAPI::V1::ExecutorInboxChannel","x":"{}"}}"#,
            "y".repeat(LONGEST_IDENTIFIER)
        );
        assert_eq!(Stream::read(&long), None);
    }

    #[test]
    fn server_frames_are_those_of_the_protocol() {
        assert_eq!(
            ping(1_767_225_600),
            r#"{"type":"ping","message":1767225600}"#
        );
        assert_eq!(
            push(r#""i""#, r#"{"event":{}}"#),
            r#"{"identifier":"i","message":{"event":{}}}"#
        );
        assert_eq!(
            disconnect(Reason::Unauthorized),
            r#"{"type":"disconnect","reason":"unauthorized","reconnect":false}"#
        );
        assert_eq!(
            disconnect(Reason::SlowConsumer),
            r#"{"type":"disconnect","reason":"slow_consumer","reconnect":true}"#
        );
    }
}
