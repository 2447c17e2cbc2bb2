//! The closed vocabularies of the protocol: one word from wire to column.
//!
//! Every enum here has one text per variant ([`as_str`](TaskStatus::as_str)), reads it back with
//! `FromStr`, and serialises as it. A word that storage returns and no variant has is a fault
//! (`store::Error::Inconsistent`), never a default.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A text that is no word of a closed vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no such word")]
pub struct NoSuchWord(pub String);

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every word, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word, as on the wire and in storage.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.as_str()) }
        }

        impl FromStr for $name {
            type Err = NoSuchWord;
            fn from_str(text: &str) -> Result<Self, NoSuchWord> {
                match text { $($text => Ok(Self::$variant),)* _ => Err(NoSuchWord(text.to_owned())) }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    )*};
}

words! {
    /// What an operation of a claimed call asks for (`operations.md` §5).
    OperationKind {
        /** One call. */ Tool = "tool",
        /** One model step. */ Model = "model",
        /** One question. */ Ask = "ask",
        /** One observation. */ Wait = "wait",
        /** A batch of steps. */ Steps = "steps",
        /** Another batch for tasks that have not started. */ Replace = "replace",
        /** The end of work. */ Cancel = "cancel",
        /** A wait for several operations. */ Join = "join",
        /** Work that outlives the call: a batch, or what was accepted before. */ Background = "background",
    }
    /// Whether an account or member may act.
    Standing { /** Yes. */ Active = "active", /** No. */ Suspended = "suspended", }
    /// Who a bearer speaks for (`conventions.md` §1); fixed at minting.
    Plane {
        /** Human or agent. */ Member = "member",
        /** One delivery address. */ Executor = "executor_transport",
        /** Deployment staff. */ Operator = "operator",
    }
    /// What a member is.
    MemberKind { /** A person. */ Human = "human", /** An agent. */ Agent = "agent", }
    /// What a grant on a workspace allows.
    Access { /** Reads. */ Read = "read", /** Reads and every command. */ Write = "write", }
    /// What a delivery address is.
    ExecutorKind {
        /** The address of one agent. */ AgentApplication = "agent_application",
        /** A machine that runs are routed to by name. */ Runner = "runner",
        /** A machine that serves a pool. */ ToolProvider = "tool_provider",
    }
    /// Whether an executor still exists.
    ExecutorStatus { /** Yes. */ Active = "active", /** Terminal. */ Revoked = "revoked", }
    /// Whether somebody is at a delivery address (`executor.md` §18); nothing branches on it.
    Presence {
        /** An inbox subscription on a live socket. */ Online = "online",
        /** Contact seen, no live mark. */ Offline = "offline",
        /** No contact ever. */ NotYetSeen = "not_yet_seen",
    }
    /// Whose work a machine may do, frozen at registration.
    AssignmentScope { /** Its manager's. */ UserPrivate = "user_private", /** Everybody's. */ AccountWide = "account_wide", }

    /// A run's state (`runs.md` §7.1).
    RunStatus {
        /** Authored, not started. */ Pending = "pending",
        /** At work. */ Running = "running",
        /** Held by a person; clocks stand. */ Paused = "paused",
        /** Held for a repair. */ NeedsAttention = "needs_attention",
        /** Being stopped. */ Canceling = "canceling",
        /** Done, answer given. */ Completed = "completed",
        /** Done, stopped. */ Canceled = "canceled",
    }
    /// Why a run asks for a person (`runs.md` §7.2).
    AttentionReason {
        /** Unadjudicated `halt` failures. */ HaltFailure = "halt_failure",
        /** The graph is done, the answer is not. */ DeliverableUnresolved = "deliverable_unresolved",
        /** Calls rest at `needs_approval`. */ ApprovalRequired = "approval_required",
        /** A tokenless ask is parked. */ AwaitingHuman = "awaiting_human",
    }
    /// How a run treats model-origin calls (`runs.md` §12).
    ApprovalMode { /** All granted. */ Bypass = "bypass", /** Parks what no rule grants. */ Ask = "ask", /** Fails it. */ Rules = "rules", }
    /// Where an approval came from.
    ApprovalOrigin {
        /** Mode bypass. */ Mode = "mode", /** An allow rule. */ Rule = "rule",
        /** The row's writer. */ Author = "author", /** The kernel. */ Kernel = "kernel",
        /** A person. */ Human = "human", /** An agent. */ Agent = "agent",
    }

    /// What a task is.
    TaskKind {
        /** A round. */ Model = "model_task", /** A tool call. */ Tool = "tool_task",
        /** A question or wait. */ Await = "await_task", /** A barrier. */ Join = "join_task",
        /** A child's report. */ Delegation = "delegation_task",
    }
    /// A task's state (`engine.md` §3). The engine's `queued` is the product's `waiting`.
    TaskStatus {
        /** Unstarted. */ Queued = "queued",
        /** A tool call that rests for an approver. */ NeedsApproval = "needs_approval",
        /** At work in the kernel. */ Running = "running",
        /** Parked on an outside holder. */ Dispatched = "dispatched",
        /** Parked on a person without a token. */ AwaitingInput = "awaiting_input",
        /** Ended well. */ Completed = "completed",
        /** Ended badly. */ Failed = "failed",
        /** Ended by its clock, nothing happened. */ TimedOut = "timed_out",
        /** Ended by its clock, its effect may have happened. */ Uncertain = "uncertain",
        /** Ended by somebody's word. */ Canceled = "canceled",
        /** Never to run. */ Skipped = "skipped",
    }
    /// What a failure does to its dependents.
    OnFailure { /** They run and read it. */ Absorb = "absorb", /** They are skipped. */ Propagate = "propagate", /** A person decides. */ Halt = "halt", }
    /// How a task shows in a transcript.
    Visibility { /** Whole. */ Visible = "visible", /** Folded. */ Collapsed = "collapsed", /** Not. */ Hidden = "hidden", }
    /// Whether the reply waits for the work.
    Lifetime { /** Yes. */ Turn = "turn", /** No. */ Conversation = "conversation", }
    /// What a late result does.
    Wake { /** Starts a reply. */ Auto = "auto", /** Is recorded. */ Passive = "passive", }
    /// Who authored a row (`runs.md` §11).
    AuthoredBy { /** A member. */ Author = "author", /** A model. */ Model = "model", /** The kernel. */ Kernel = "kernel", }
    /// The main-thread mark of a model task.
    Mark { /** On the mainline. */ Round = "round", /** Composed work. */ Branch = "branch", }
    /// A person's stamp on a failure.
    FailureResolution { /** Let go. */ Abandoned = "abandoned", /** The branch was ended. */ Canceled = "canceled", }
    /// How many successes end a barrier.
    JoinMode { /** All (operations only). */ All = "all", /** One. */ Any = "any", /** k. */ Quorum = "quorum", }
    /// What a race does to the branches that lost.
    Losers { /** Stops them. */ Cancel = "cancel", /** Lets them finish. */ RunOut = "run_out", }
    /// What an edge has come to (`engine.md` §5).
    EdgeState { /** Waited for. */ Open = "open", /** Satisfied. */ Met = "met", /** Its head is skipped. */ Skip = "skip", }
    /// Who holds an await.
    Holder { /** The bearer of its token. */ Token = "token", /** A person. */ Person = "person", /** The kernel. */ Kernel = "kernel", }
    /// Whom a started row is addressed to.
    Role { /** An agent's own address. */ AgentApplication = "agent_application", /** A runner. */ Runner = "runner", /** A pool. */ ToolProvider = "tool_provider", }
    /// What a park is: the kind of an inbox row.
    ParkKind { /** A dispatched tool call. */ ToolCall = "tool_call", /** A question. */ Ask = "ask", /** A call at rest. */ Approval = "approval", /** An observation of other work. */ Wait = "wait", }
    /// The outcome a commit states.
    Outcome { /** It ran. */ Completed = "completed", /** It could not run. */ Failed = "failed", }
}

impl TaskStatus {
    /// Whether a row in this state has settled for good (`engine.md` §3, set T).
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed
                | Self::Failed
                | Self::TimedOut
                | Self::Uncertain
                | Self::Canceled
                | Self::Skipped
        )
    }

    /// Whether a row in this state has been handed to somebody: kernel, machine or person.
    pub const fn is_started(self) -> bool {
        matches!(self, Self::Running | Self::Dispatched | Self::AwaitingInput)
    }

    /// Whether a row in this state has spent nothing yet.
    pub const fn is_unstarted(self) -> bool {
        matches!(self, Self::Queued | Self::NeedsApproval)
    }

    /// The product's word: the engine's `queued` is `waiting`.
    pub const fn shown(self) -> &'static str {
        match self {
            Self::Queued => "waiting",
            other => other.as_str(),
        }
    }
}

impl RunStatus {
    /// Whether the run has ended for good.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Canceled)
    }
}

impl TaskKind {
    /// The policy a step of this kind has when it names none (`steps.md` §3.7).
    pub const fn default_on_failure(self) -> OnFailure {
        match self {
            Self::Model => OnFailure::Halt,
            Self::Tool | Self::Join => OnFailure::Propagate,
            Self::Await => OnFailure::Propagate,
            Self::Delegation => OnFailure::Absorb,
        }
    }
}
