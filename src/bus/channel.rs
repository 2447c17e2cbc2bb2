//! Names of channels and keys, to and from text (`architecture.md` §6). Only public ids appear.

use crate::domain::PublicId;
use crate::domain::hint::{FeedKind, WakeRole};

/// A stream of messages that can be listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// `executor:{public id}`: work for one executor, and changes of authority. Members are told of
    /// changes of their authority under their own public id here too.
    Executor(PublicId),
    /// `feed:{kind}:{public id}`: every part of a member feed.
    Feed(FeedKind, PublicId),
    /// `wake:{role}`: nudges for a background role.
    Wake(WakeRole),
}

const fn kind_word(kind: FeedKind) -> &'static str {
    match kind {
        FeedKind::Run => "run",
        FeedKind::Conversation => "conversation",
    }
}

const fn role_word(role: WakeRole) -> &'static str {
    match role {
        WakeRole::Sweeper => "sweeper",
        WakeRole::Worker => "worker",
        WakeRole::Admission => "admission",
    }
}

/// The names of one installation: everything begins with `nexus:{prefix}:`.
#[derive(Debug, Clone)]
pub(super) struct Names {
    stem: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            stem: format!("nexus:{prefix}:"),
        }
    }

    pub(super) fn channel(&self, channel: Channel) -> String {
        let stem = &self.stem;
        match channel {
            Channel::Executor(id) => format!("{stem}executor:{id}"),
            Channel::Feed(kind, id) => format!("{stem}feed:{}:{id}", kind_word(kind)),
            Channel::Wake(role) => format!("{stem}wake:{}", role_word(role)),
        }
    }

    pub(super) fn read(&self, name: &str) -> Option<Channel> {
        let rest = name.strip_prefix(&self.stem)?;
        let (family, rest) = rest.split_once(':')?;
        match family {
            "executor" => rest.parse().ok().map(Channel::Executor),
            "feed" => {
                let (kind, id) = rest.split_once(':')?;
                let kind = [FeedKind::Run, FeedKind::Conversation]
                    .into_iter()
                    .find(|k| kind_word(*k) == kind)?;
                Some(Channel::Feed(kind, id.parse().ok()?))
            }
            "wake" => [WakeRole::Sweeper, WakeRole::Worker, WakeRole::Admission]
                .into_iter()
                .find(|r| role_word(*r) == rest)
                .map(Channel::Wake),
            _ => None,
        }
    }

    /// A counter or slot.
    pub(super) fn rate(&self, key: &str) -> String {
        format!("{}rate:{key}", self.stem)
    }

    /// What a link proves itself with: a channel of its own and a key that is written.
    pub(super) fn probe(&self, link: &str) -> (String, String) {
        (
            format!("{}probe:{link}", self.stem),
            format!("{}probe", self.stem),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_channel_is_read_back_from_its_name() {
        let names = Names::new("p:q");
        let id = PublicId(uuid::Uuid::from_u128(7));
        for channel in [
            Channel::Executor(id),
            Channel::Feed(FeedKind::Run, id),
            Channel::Feed(FeedKind::Conversation, id),
            Channel::Wake(WakeRole::Sweeper),
            Channel::Wake(WakeRole::Worker),
            Channel::Wake(WakeRole::Admission),
        ] {
            assert_eq!(names.read(&names.channel(channel)), Some(channel));
        }
        assert_eq!(
            names.channel(Channel::Feed(FeedKind::Run, id)),
            "nexus:p:q:feed:run:00000000-0000-0000-0000-000000000007"
        );
        assert_eq!(names.read("nexus:other:wake:worker"), None);
        assert_eq!(names.read("nexus:p:q:wake:nobody"), None);
    }
}
