//! Hints as text on a channel, and back: a word, for durable items their type and position, then
//! the frame's message.
//!
//! A word that this version does not know is skipped: an older and a newer replica share a Redis
//! while one replaces the other.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::channel::Channel;
use super::subscription::{FeedMessage, Message};
use crate::domain::feed;
use crate::domain::hint::{FeedItems, Hint};

#[derive(Serialize)]
struct Envelope<T> {
    event: T,
}

#[derive(Serialize)]
struct WorkAvailable<'a> {
    r#type: &'static str,
    kind: &'a str,
    run_public_id: String,
    task_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
}

#[derive(Serialize)]
struct WorkCanceled<'a> {
    r#type: &'static str,
    run_public_id: String,
    task_key: &'a str,
}

fn text(event: impl Serialize) -> Arc<str> {
    serde_json::to_string(&Envelope { event })
        .expect("strings serialise")
        .into()
}

/// The `message` of a `work_available` frame (`cable.md` §4).
pub fn work_available(
    kind: &str,
    run: impl ToString,
    task_key: &str,
    tool_name: Option<&str>,
) -> Arc<str> {
    text(WorkAvailable {
        r#type: "work_available",
        kind,
        run_public_id: run.to_string(),
        task_key,
        tool_name,
    })
}

/// What of a durable item's message is needed to sort it.
#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(borrow)]
    event: PeekEvent<'a>,
}

#[derive(Deserialize)]
struct PeekEvent<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    sequence: i64,
}

fn feed_message(items: FeedItems, message: &str) -> FeedMessage {
    let peek = match items {
        FeedItems::Events => serde_json::from_str::<Peek<'_>>(message).ok(),
        FeedItems::Transcript | FeedItems::Progress => None,
    };
    FeedMessage {
        items,
        lifecycle: peek
            .as_ref()
            .is_some_and(|p| feed::is_lifecycle(&p.event.r#type)),
        sequence: peek.map(|p| p.event.sequence),
        message: message.into(),
    }
}

/// Where a hint goes and what is heard there.
pub(super) fn message(hint: &Hint) -> (Channel, Message) {
    match hint {
        Hint::WorkAvailable {
            executor,
            kind,
            run,
            task_key,
            tool_name,
        } => {
            let message =
                work_available(kind.as_str(), run, task_key.as_str(), tool_name.as_deref());
            (
                Channel::Executor(*executor),
                Message::WorkAvailable { message },
            )
        }
        Hint::WorkCanceled {
            executor,
            run,
            task_key,
        } => {
            let message = text(WorkCanceled {
                r#type: "work_canceled",
                run_public_id: run.to_string(),
                task_key: task_key.as_str(),
            });
            (
                Channel::Executor(*executor),
                Message::WorkCanceled { message },
            )
        }
        Hint::AuthorityChanged { subject } => {
            (Channel::Executor(*subject), Message::AuthorityChanged)
        }
        Hint::Feed {
            kind,
            host,
            items,
            message,
        } => (
            Channel::Feed(*kind, *host),
            Message::Feed(feed_message(*items, message.as_str())),
        ),
        Hint::Wake(role) => (Channel::Wake(*role), Message::Wake),
    }
}

/// The bytes a hint may hold in the queue, about.
pub(super) fn weight(hint: &Hint) -> usize {
    let text = match hint {
        Hint::Feed { message, .. } => message.len(),
        Hint::WorkAvailable {
            task_key,
            tool_name,
            ..
        } => task_key.as_str().len() + tool_name.as_deref().map_or(0, str::len),
        Hint::WorkCanceled { task_key, .. } => task_key.as_str().len(),
        Hint::AuthorityChanged { .. } | Hint::Wake(_) => 0,
    };
    text + size_of::<Hint>()
}

/// A message as the text of a channel; what only this process says has none.
pub(super) fn encode(message: &Message) -> Option<String> {
    Some(match message {
        Message::WorkAvailable { message } => format!("work_available {message}"),
        Message::WorkCanceled { message } => format!("work_canceled {message}"),
        Message::AuthorityChanged => "authority_changed".to_owned(),
        Message::Wake => "wake".to_owned(),
        Message::Feed(feed) => {
            let message = &feed.message;
            match (feed.items, feed.sequence) {
                (FeedItems::Events, Some(sequence)) if feed.lifecycle => {
                    format!("lifecycle {sequence} {message}")
                }
                (FeedItems::Events, Some(sequence)) => format!("events {sequence} {message}"),
                (FeedItems::Events, None) => format!("events - {message}"),
                (FeedItems::Transcript, _) => format!("transcript {message}"),
                (FeedItems::Progress, _) => format!("progress {message}"),
            }
        }
        Message::Resynced | Message::Lagged => return None,
    })
}

/// A channel's text as a message; none for what this version does not know.
pub(super) fn decode(text: &str) -> Option<Message> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let feed = |items, lifecycle, sequence, message: &str| {
        Message::Feed(FeedMessage {
            items,
            lifecycle,
            sequence,
            message: message.into(),
        })
    };
    Some(match word {
        "work_available" => Message::WorkAvailable {
            message: rest.into(),
        },
        "work_canceled" => Message::WorkCanceled {
            message: rest.into(),
        },
        "authority_changed" => Message::AuthorityChanged,
        "wake" => Message::Wake,
        "events" | "lifecycle" => {
            let (sequence, message) = rest.split_once(' ')?;
            feed(
                FeedItems::Events,
                word == "lifecycle",
                sequence.parse().ok(),
                message,
            )
        }
        "transcript" => feed(FeedItems::Transcript, false, None, rest),
        "progress" => feed(FeedItems::Progress, false, None, rest),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hint::{FeedKind, WakeRole};
    use crate::domain::words::ParkKind;
    use crate::domain::{Canonical, PublicId, TaskKey};

    fn id(n: u128) -> PublicId {
        PublicId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn every_hint_survives_the_wire() {
        let feed = |items, message: &str| Hint::Feed {
            kind: FeedKind::Run,
            host: id(1),
            items,
            message: Canonical::trusted(message.to_owned()),
        };
        let turn = r#"{"event":{"cursor":"x","payload":{},"sequence":7,"type":"turn_status"}}"#;
        let hints = [
            Hint::WorkAvailable {
                executor: id(1),
                kind: ParkKind::ToolCall,
                run: id(2),
                task_key: TaskKey::trusted("s1-tool-1".to_owned()),
                tool_name: Some("read_file".to_owned()),
            },
            Hint::WorkCanceled {
                executor: id(1),
                run: id(2),
                task_key: TaskKey::trusted("k".to_owned()),
            },
            Hint::AuthorityChanged { subject: id(3) },
            Hint::Wake(WakeRole::Sweeper),
            feed(FeedItems::Events, turn),
            feed(
                FeedItems::Events,
                r#"{"event":{"sequence":8,"type":"usage"}}"#,
            ),
            feed(FeedItems::Events, r#"{"event":{}}"#),
            feed(FeedItems::Transcript, r#"{"a":" b "}"#),
            feed(FeedItems::Progress, r#"{"frame":{"text_tail":"x y"}}"#),
        ];
        for hint in &hints {
            let (_, sent) = message(hint);
            let text = encode(&sent).unwrap();
            assert_eq!(decode(&text), Some(sent), "{text}");
        }
        let (_, Message::Feed(item)) = message(&feed(FeedItems::Events, turn)) else {
            unreachable!()
        };
        assert_eq!((item.lifecycle, item.sequence), (true, Some(7)));
        assert_eq!(decode("of_a_later_release {}"), None);
    }

    #[test]
    fn inbox_messages_are_those_of_the_protocol() {
        let (_, sent) = message(&Hint::WorkAvailable {
            executor: id(1),
            kind: ParkKind::Ask,
            run: id(2),
            task_key: TaskKey::trusted("q".to_owned()),
            tool_name: None,
        });
        let Message::WorkAvailable { message } = sent else {
            unreachable!()
        };
        assert_eq!(
            &*message,
            r#"{"event":{"type":"work_available","kind":"ask","run_public_id":"00000000-0000-0000-0000-000000000002","task_key":"q"}}"#
        );
    }
}
