//! What is told after a commit: hints, never truth (`architecture.md` §6).
//!
//! A hint that is lost is owed to nobody; polls and sweeps find the row.

use super::ids::{PublicId, TaskKey};
use super::json::Canonical;
use super::words::ParkKind;

/// Which kind of host a member feed belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedKind {
    /// A standalone run.
    Run,
    /// A conversation.
    Conversation,
}

/// Which part of a feed a frame belongs to (`cable.md` §3, `items`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedItems {
    /// Every durable item.
    Events,
    /// Streamed transcript.
    Transcript,
    /// Ephemeral progress.
    Progress,
}

/// Whom a nudge is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WakeRole {
    /// The sweeper leader.
    Sweeper,
    /// Model workers.
    Worker,
    /// Admission passes.
    Admission,
}

/// One hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// A row became listable for this executor.
    WorkAvailable {
        /// The addressee.
        executor: PublicId,
        /// What it is.
        kind: ParkKind,
        /// Its run.
        run: PublicId,
        /// Its task.
        task_key: TaskKey,
        /// The tool, on tool calls and approvals.
        tool_name: Option<String>,
    },
    /// A claimed row was canceled: its claimant should stop.
    WorkCanceled {
        /// The claimant.
        executor: PublicId,
        /// Its run.
        run: PublicId,
        /// Its task.
        task_key: TaskKey,
    },
    /// An executor's or member's credentials or standing changed: re-check its sockets now.
    AuthorityChanged {
        /// The executor or member.
        subject: PublicId,
    },
    /// One item of a member feed.
    Feed {
        /// Host kind.
        kind: FeedKind,
        /// Host.
        host: PublicId,
        /// Part of the feed.
        items: FeedItems,
        /// The frame's `message`, ready to send.
        message: Canonical,
    },
    /// A nudge to a background role.
    Wake(WakeRole),
}
