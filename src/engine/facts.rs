//! What the store read: rows as the engine sees them. Time is a fact too.
//!
//! Invariants: a fact is what was read under the lock (or, for claims, without one and re-checked
//! by the guarded write); nothing here is computed by a rule.

use crate::domain::words::{
    ApprovalMode, AttentionReason, AuthoredBy, EdgeState, FailureResolution, Holder, JoinMode,
    Lifetime, Losers, Mark, OnFailure, OperationKind, ParkKind, Role, RunStatus, TaskKind,
    TaskStatus, Visibility, Wake,
};
use crate::domain::{
    AccountId, ExecutorId, PublicId, RunId, TaskKey, TaskNo, Timestamp, UploadId, WorkspaceId,
    event::ApprovalFact,
};

use super::eligibility::{ExecutorFacts, PrincipalFacts};

/// How many rows of a run are in which class. Kept by whoever changes a row's class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub tasks: i32,
    /// Not terminal.
    pub open: i32,
    /// Queued with nothing open before it, for a scheduling pass to start.
    pub ready: i32,
    /// Running, dispatched, awaiting input.
    pub started: i32,
    /// At `needs_approval`.
    pub approval: i32,
    /// Halt failures nobody adjudicated.
    pub unresolved: i32,
    /// Background tips not yet delivered.
    pub undelivered: i32,
    /// Model rounds with nothing open before them, waiting for a worker.
    pub rounds: i32,
    /// At work inside the kernel.
    pub running: i32,
    /// Questions put to a person nobody gave a token.
    pub awaiting: i32,
    /// Parked observations of this run's rows.
    pub waits: i32,
}

/// Why a run asks for a person, and about which rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attention {
    /// Why.
    pub reason: AttentionReason,
    /// Which rows.
    pub keys: Vec<TaskKey>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Account.
    pub account: AccountId,
    /// Inner id.
    pub id: RunId,
    /// Public id.
    pub public_id: PublicId,
    /// Workspace.
    pub workspace: WorkspaceId,
    /// The answering principal, frozen.
    pub principal: PrincipalFacts,
    /// Whether the creator may write to the workspace now.
    pub creator_may_write: bool,
    /// State.
    pub status: RunStatus,
    /// Applied authored envelopes.
    pub revision: i32,
    /// The row whose answer is the run's.
    pub deliverable: Option<TaskNo>,
    /// The latest mainline round.
    pub mainline_tail: Option<TaskNo>,
    /// How model-origin calls are approved.
    pub approval_mode: ApprovalMode,
    /// Whether it has approval rules, which are read when a call starts.
    pub has_rules: bool,
    /// Row classes.
    pub counts: Counts,
    /// Settles so far.
    pub settle_seq: i32,
    /// Narrated items so far.
    pub event_seq: i64,
    /// Whether a scheduling pass is owed.
    pub schedulable: bool,
    /// The standing attention.
    pub attention: Option<Attention>,
    /// Of a reasoned cancel.
    pub failure_reason: Option<String>,
    /// Whether a forced stop was applied.
    pub force_stopped: bool,
    /// Started.
    pub started_at: Option<Timestamp>,
    /// Paused since.
    pub paused_at: Option<Timestamp>,
    /// Canceling since.
    pub canceling_since: Option<Timestamp>,
    /// Stopped.
    pub stopped_at: Option<Timestamp>,
    /// Ended.
    pub completed_at: Option<Timestamp>,
}

impl Run {
    /// "Now" for every park of the run: while it is paused, the moment it was paused.
    pub fn run_now(&self, now: Timestamp) -> Timestamp {
        match (self.status, self.paused_at) {
            (RunStatus::Paused, Some(paused_at)) => paused_at,
            _ => now,
        }
    }

    /// A moment of the run's clock, projected onto wall time for whoever holds it.
    pub fn on_the_wall(&self, at: Timestamp, now: Timestamp) -> Timestamp {
        at + (now - self.run_now(now))
    }
}

/// The agent application that a run's questions and approvals are addressed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Inner id.
    pub id: ExecutorId,
    /// Whom to tell.
    pub public_id: PublicId,
}

/// A row parked outside, as far as rest is judged by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// A call that nobody claimed.
    Unclaimed,
    /// A question.
    Question,
    /// An observation.
    Wait,
}

/// What a row came to, with its bodies: what an observation of it reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Blocks, canonical.
    pub content: Option<String>,
    /// The structured value; JSON null is `null`.
    pub structured: Option<String>,
    /// A call's input, canonical.
    pub tool_input: Option<String>,
    /// What the other verbs were authored with, canonical.
    pub definition: Option<String>,
}

/// What a race came to when it settled (`engine.md` §6): never rewritten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The keys of the sources that count, in the order they succeeded.
    pub selected: Vec<TaskKey>,
    /// The whole snapshot, canonical.
    pub text: String,
}

/// A barrier's arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// Which kind.
    pub mode: JoinMode,
    /// Successes a quorum needs.
    pub k: i32,
    /// What happens to the branches that lost.
    pub losers: Losers,
    /// Successes so far.
    pub successes: i32,
    /// Sources still pending.
    pub pending: i32,
}

/// One source of an operation's join: all results of one operation (`operations.md` §7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Source {
    /// Results that are still pending.
    pub open: i32,
    /// Results that settled and did not succeed.
    pub failed: i32,
}

/// What came of an operation when it was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// Its receipt, canonical.
    Receipt(String),
    /// Its refusal `{code, message}`, canonical.
    Refusal(String),
}

/// An accepted operation of a claimed call (`operations.md` §2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The call.
    pub parent: TaskNo,
    /// Its place in the call's trace.
    pub position: i32,
    /// Its key.
    pub key: String,
    /// What it asks for.
    pub kind: OperationKind,
    /// The whole request, canonical.
    pub request: String,
    /// SHA-256 of that.
    pub digest: Vec<u8>,
    /// What came of it.
    pub response: Response,
    /// Whether it launched background work.
    pub background: bool,
    /// Where the trace released it.
    pub released: Option<i32>,
    /// Where the trace observed it.
    pub observed: Option<i32>,
    /// What was observed: `{outcome}` or `{refusal}`, canonical.
    pub outcome: Option<String>,
    /// The rows whose outcome it reports, in order; never another.
    pub results: Vec<TaskNo>,
    /// Of a join: the operations it waits for.
    pub sources: Vec<i32>,
}

impl Operation {
    /// Its receipt, if it was not refused.
    pub fn receipt(&self) -> Option<&str> {
        match &self.response {
            Response::Receipt(receipt) => Some(receipt),
            Response::Refusal(_) => None,
        }
    }
}

/// Whom a started row is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addressed {
    /// As what.
    pub role: Role,
    /// Which one; none for a pool.
    pub executor: Option<ExecutorId>,
}

/// The final claim of a settled row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who.
    pub by: ExecutorId,
    /// Since when.
    pub at: Timestamp,
    /// SHA-256 of its token.
    pub digest: Vec<u8>,
}

/// Why a row did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskError {
    /// The word (`runs.md` §16).
    pub key: String,
    /// A sentence.
    pub detail: Option<String>,
}

/// A task: the graph row, without bodies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Number in its run.
    pub no: TaskNo,
    /// Key.
    pub key: TaskKey,
    /// Kind.
    pub kind: TaskKind,
    /// State.
    pub status: TaskStatus,
    /// Raised by retry.
    pub generation: i32,
    /// Author.
    pub authored_by: AuthoredBy,
    /// Main-thread mark.
    pub mark: Option<Mark>,
    /// Whether its envelope does not wait for it.
    pub detached: bool,
    /// Lifetime.
    pub lifetime: Lifetime,
    /// Wake.
    pub wake: Wake,
    /// Policy.
    pub on_failure: OnFailure,
    /// Policy of a round's fan.
    pub fan_on_failure: Option<OnFailure>,
    /// Visibility.
    pub visibility: Visibility,
    /// Nearest race.
    pub barrier: Option<TaskNo>,
    /// The authored row this one stands for.
    pub lineage: TaskNo,
    /// What stands for it now.
    pub tip: TaskNo,
    /// Rows whose conversation it reads.
    pub input_from: Vec<TaskNo>,
    /// Rows whose results it reads.
    pub result_from: Vec<TaskNo>,
    /// Current dependency keys.
    pub after_keys: Vec<String>,
    /// Incoming edges still open.
    pub remaining: i32,
    /// The claimed call that authored it by an operation.
    pub owner: Option<TaskNo>,
    /// That operation's position in the owner's trace.
    pub operation: Option<i32>,
    /// Of operation work: nothing of its batch waits behind it.
    pub is_tip: bool,
    /// Whether it outlives its owner.
    pub background: bool,
    /// A failure that its owner observed, or whose owner ended: it holds nothing.
    pub taken_over: bool,
    /// The end of its own trace: events so far.
    pub trace_end: i32,
    /// The row whose frozen context its own operations have; none: its own, if it has one.
    pub context_of: Option<TaskNo>,
    /// The served tool.
    pub tool_name: Option<String>,
    /// How a model or a program spelled it, where that differs.
    pub tool_alias: Option<String>,
    /// Authored clock.
    pub timeout_ms: Option<i64>,
    /// The accepted runner.
    pub target: Option<ExecutorId>,
    /// Who holds an await.
    pub holder: Option<Holder>,
    /// SHA-256 of an authored ask's resolution token.
    pub resolution_digest: Option<Vec<u8>>,
    /// The row of this run that a wait observes: the authored one, whatever stands for it now.
    pub observes: Option<TaskNo>,
    /// A barrier's arithmetic.
    pub join: Option<Join>,
    /// Of an operation's join: its sources, by the numbers that its edges carry.
    pub sources: Vec<Source>,
    /// Once started.
    pub addressed: Option<Addressed>,
    /// Once decided.
    pub approval: Option<ApprovalFact>,
    /// Once started.
    pub started_at: Option<Timestamp>,
    /// Once settled: the claim it had.
    pub claim: Option<Claim>,
    /// A person's stamp.
    pub failure_resolution: Option<FailureResolution>,
    /// Why not.
    pub error: Option<TaskError>,
    /// A completed result that says it errored.
    pub is_error: bool,
    /// A halt failure that a settled race took over.
    pub race_absorbed: bool,
    /// Order of settling.
    pub settle_seq: Option<i32>,
    /// Once settled.
    pub completed_at: Option<Timestamp>,
}

/// A claim under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveClaim {
    /// Who.
    pub by: ExecutorId,
    /// Its public id: whom a cancel is told.
    pub by_public: PublicId,
    /// Since when.
    pub at: Timestamp,
    /// SHA-256 of its token.
    pub digest: Vec<u8>,
}

/// What a started row is while somebody outside holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Park {
    /// The row's.
    pub task: TaskNo,
    /// What it is.
    pub kind: ParkKind,
    /// Addressee.
    pub executor: Option<ExecutorId>,
    /// Or the tool whose providers form the pool.
    pub pool_name: Option<String>,
    /// The one clock.
    pub deadline_at: Timestamp,
    /// The budget; never moves.
    pub timeout_ms: i64,
    /// Frozen at start: bounds extensions.
    pub announced_timeout_ms: Option<i64>,
    /// Frozen at start, as text.
    pub effect_profile: Option<String>,
    /// Whether the call may run again when nobody answers.
    pub replayable: bool,
    /// The generation it belongs to.
    pub generation: i32,
    /// Since when.
    pub started_at: Timestamp,
    /// Its claim.
    pub claim: Option<LiveClaim>,
}

/// An edge, to a head that is loaded with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Tail.
    pub from: TaskNo,
    /// Head.
    pub to: TaskNo,
    /// Authoring order among the edges of its head.
    pub ordinal: i32,
    /// Placement, not reference.
    pub structural: bool,
    /// Into an operation's join: which of its sources it belongs to.
    pub source: Option<i32>,
    /// What it has come to.
    pub state: EdgeState,
}

/// An executor's announcement of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The profile, as text.
    pub effect_profile: String,
    /// What it says of running again.
    pub replayable: bool,
    /// The announced time-out.
    pub timeout_ms: Option<i64>,
}

/// Who might be given a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Inner id: creation order.
    pub id: ExecutorId,
    /// Public id.
    pub public_id: PublicId,
    /// What decides eligibility.
    pub executor: ExecutorFacts,
    /// Its announcement of the row's tool.
    pub serves: Option<Served>,
    /// On a call of `skill` for it: the document in question.
    pub document: Option<Document>,
}

/// Which document a `skill` asks for, and which its Runner announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The document's name in the call's input, if there is one.
    pub named: Option<String>,
    /// The names of the announced documents.
    pub announced: Vec<String>,
}

/// The caller of an executor door, as it stands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Inner id.
    pub id: ExecutorId,
    /// Public id.
    pub public_id: PublicId,
    /// What decides eligibility.
    pub executor: ExecutorFacts,
    /// Its current epoch.
    pub epoch: i32,
    /// Whether it announces the row's tool.
    pub announces: bool,
}

/// An upload that a result links to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture {
    /// Inner id.
    pub id: UploadId,
    /// Public id.
    pub public_id: PublicId,
    /// Who staged it.
    pub creator: Option<ExecutorId>,
    /// Whether an outcome that the committing call observed shows it.
    pub sealed: bool,
}
