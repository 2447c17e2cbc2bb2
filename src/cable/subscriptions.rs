//! One subscribe: reads credential and access anew, attaches the stream, opens it
//! (`cable.md` §3, §5).

use std::sync::Arc;

use uuid::Uuid;

use super::frames::{Identifier, Items, Reason, Stream};
use super::outbound::Body;
use super::registry::Registry;
use super::socket::{Caller, Feed, Socket};
use crate::app::App;
use crate::bus::{Attachment, Channel, Listening};
use crate::domain::PublicId;
use crate::domain::hint::FeedKind;
use crate::store::credentials::{self, ExecutorCaller, MemberCaller};
use crate::store::feeds::{self, Reading};
use crate::store::{Error, presence};

/// What a live subscription holds.
pub(super) enum Held {
    /// The inbox: heard on the socket's own channel.
    Inbox,
    /// A feed.
    Feed {
        feed: Arc<Feed>,
        _listening: Listening,
    },
}

/// What became of a subscribe.
pub(super) enum Outcome {
    /// Confirmed, and live.
    Live(Held),
    /// Confirmed again: it was live already.
    Still,
    /// Rejected.
    Rejected,
    /// The socket ends.
    End(Reason),
}

/// What a subscribe needs.
pub(super) struct Subscribe {
    pub(super) app: App,
    pub(super) registry: Arc<Registry>,
    pub(super) socket: Arc<Socket>,
    pub(super) connection: Uuid,
    pub(super) identifier: Identifier,
    /// The identifier is live already.
    pub(super) repeated: bool,
    /// The socket's own channel, until it has been waited for.
    pub(super) attachment: Option<Attachment>,
}

impl Subscribe {
    /// Answers the client, and says what became of it. A database that is away is no rejection,
    /// which stock clients take for final: the socket ends and the client comes back.
    pub(super) async fn run(mut self) -> Outcome {
        match self.decide().await {
            Ok(outcome) => {
                match &outcome {
                    Outcome::Still => self.socket.answer(&self.identifier.token, Body::Confirm),
                    Outcome::Rejected => self.socket.answer(&self.identifier.token, Body::Reject),
                    Outcome::Live(_) | Outcome::End(_) => {}
                }
                outcome
            }
            Err(error) => {
                tracing::warn!(error = %error, "cable: a subscribe could not be decided");
                Outcome::End(Reason::ServerRestart)
            }
        }
    }

    async fn decide(&mut self) -> Result<Outcome, Error> {
        let stream = Stream::read(&self.identifier.text);
        let socket = self.socket.clone();
        match (stream, &socket.caller) {
            (Some(Stream::Inbox), Caller::Executor(executor)) => self.inbox(executor).await,
            (
                Some(Stream::Run {
                    workspace,
                    run,
                    items,
                }),
                Caller::Member(member),
            ) => self.run_feed(member, workspace, run, items).await,
            // Conversations and inference requests: none exists yet, so each is missing.
            (
                Some(
                    Stream::Inbox
                    | Stream::Run { .. }
                    | Stream::Conversation { .. }
                    | Stream::InferenceRequest { .. },
                )
                | None,
                _,
            ) => Ok(Outcome::Rejected),
        }
    }

    async fn inbox(&mut self, executor: &ExecutorCaller) -> Result<Outcome, Error> {
        if let Some(attachment) = self.attachment.take() {
            attachment.wait().await;
        }
        let marked = {
            let _turn = self.turn().await;
            let replica = self.app.replica_id;
            presence::mark(&self.app.store, executor, self.connection, replica).await?
        };
        if !marked {
            return Ok(Outcome::End(Reason::Unauthorized));
        }
        if self.repeated {
            return Ok(Outcome::Still);
        }
        self.socket.open_inbox(&self.identifier.token);
        Ok(Outcome::Live(Held::Inbox))
    }

    async fn run_feed(
        &mut self,
        member: &MemberCaller,
        workspace: PublicId,
        run: PublicId,
        items: Items,
    ) -> Result<Outcome, Error> {
        let found = {
            let _turn = self.turn().await;
            let store = &self.app.store;
            let token = [(member.account, member.token_id)];
            if credentials::standing(store, &token).await? != [true] {
                return Ok(Outcome::End(Reason::Unauthorized));
            }
            feeds::run(store, member, workspace, run).await?
        };
        let Some(found) = found else {
            return Ok(Outcome::Rejected);
        };
        if self.repeated {
            return Ok(Outcome::Still);
        }
        let reading = Reading {
            account: member.account,
            member: member.id,
            run: found.run,
        };
        let token = self.identifier.token.clone();
        let feed = Feed::new(self.socket.clone(), token, items, run, reading, found);
        let channel = Channel::Feed(FeedKind::Run, run);
        let (listening, attachment) = self.app.bus.listen(channel, feed.clone());
        attachment.wait().await;
        self.registry.feed_opened(&feed);
        feed.open();
        Ok(Outcome::Live(Held::Feed {
            feed,
            _listening: listening,
        }))
    }

    /// A turn at the database.
    async fn turn(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        // Never closed.
        self.registry.gate.acquire().await.ok()
    }
}
