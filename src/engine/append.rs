//! Appending an envelope to a run, and answering questions with it (`runs.md` §5).
//!
//! Everything is judged before anything changes: a refused append writes nothing (INV-30). The
//! door has judged the receipt (check 1) and loaded the rows that the envelope names, what stands
//! for them, the run's answer and the mainline's tail.

use std::collections::BTreeMap;

use super::author::{self, Births};
use super::compile::{self, Compiled, Door, Envelope, Facts, Ref, StandingRow, Start};
use super::graph::Graph;
use super::mint::Mint;
use super::operation::context::Known;
use super::resolve;
use super::settlement::{Settlement, settlement};
use crate::domain::event::Resolver;
use crate::domain::payload::{self, Submission};
use crate::domain::steps::{self, WaitRefusal};
use crate::domain::words::{EdgeState, Outcome, RunStatus, TaskKind};
use crate::domain::{ExecutorId, PublicId, TaskKey, TaskNo, shown};

/// Why an append is refused; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such run.
    #[error("there is no such run")]
    NotFound,
    /// The run is being stopped, or has ended.
    #[error("a run takes steps while it is pending, running, paused or held")]
    RunNotAppendable,
    /// Somebody appended in between.
    #[error("the run is at revision {current}")]
    StaleRevision {
        /// Where it is.
        current: i32,
    },
    /// The steps.
    #[error("{0}")]
    Steps(#[from] steps::Refusal),
    /// The answer failed and nobody decided about it, or it never came.
    #[error("the run's answer has failed or was not reached: retry or abandon it first")]
    TipUnresolved,
    /// A model step would continue a round that is still running.
    #[error("a step continues the mainline, whose last round has not settled")]
    TipLive,
    /// A wait observes nothing.
    #[error("a wait names no task that it may observe")]
    WaitTargetNotFound,
    /// A wait observes itself.
    #[error("a wait names a task that waits for it")]
    WaitCycle,
    /// `resolve` names no question.
    #[error("resolve names {0}, which is no question of this run")]
    UnknownAwait(String),
    /// The question is not parked, or its deadline has passed.
    #[error("{0} is not parked")]
    AwaitNotResolvable(String),
    /// `resolve` only completes.
    #[error("resolve completes a question; it takes no outcome but `completed`")]
    UnsupportedResolveOutcome,
    /// What a `resolve` entry says.
    #[error(transparent)]
    Payload(#[from] payload::Refusal),
}

impl Refusal {
    /// The word clients branch on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::RunNotAppendable => "run_not_appendable",
            Self::StaleRevision { .. } => "stale_revision",
            Self::Steps(refusal) => refusal.code(),
            Self::TipUnresolved => "tip_unresolved",
            Self::TipLive => "tip_live",
            Self::WaitTargetNotFound => "wait_target_not_found",
            Self::WaitCycle => "wait_cycle",
            Self::UnknownAwait(_) => "unknown_await",
            Self::AwaitNotResolvable(_) => "await_not_resolvable",
            Self::UnsupportedResolveOutcome => "unsupported_resolve_outcome",
            Self::Payload(refusal) => refusal.code(),
        }
    }
}

/// One question to be answered.
#[derive(Debug, Clone)]
pub struct Resolve {
    /// Its key, as written.
    pub task: String,
    /// The answer.
    pub submission: Submission,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The steps; none when the envelope only resolves.
    pub envelope: Option<Envelope>,
    /// The revision that the client believes in.
    pub expected_revision: Option<i64>,
    /// The questions to answer.
    pub resolves: Vec<Resolve>,
    /// Who appends.
    pub by: Resolver,
}

/// What was looked up of Runners.
#[derive(Debug, Clone, Default)]
pub struct Runners {
    /// The inner ids of those that routes name.
    pub ids: BTreeMap<PublicId, ExecutorId>,
    /// What the contexts of calls must know.
    pub known: Known,
}

/// What was accepted.
#[derive(Debug, Clone)]
pub struct Appended {
    /// What the steps compiled to; none when there were none.
    pub compiled: Option<Compiled>,
    /// The key of the run's answer.
    pub deliverable: Option<TaskKey>,
    /// The revision.
    pub revision: i32,
    /// The tokens of the questions, by key.
    pub tokens: BTreeMap<String, String>,
}

/// Decides an append. `door` holds what the shell looked up about runners, uploads, models and
/// keys; where the envelope starts and what stands for the names it uses is read off the slice.
///
/// # Errors
/// [`Refusal`], in the order of the specification.
pub fn append(
    graph: &mut Graph,
    request: &Request,
    door: &Facts,
    runners: &Runners,
    mint: &mut Mint,
) -> Result<Appended, Refusal> {
    judge_run(graph, request.expected_revision)?;
    let compiled = match &request.envelope {
        Some(envelope) => Some(compiled(graph, envelope, door)?),
        None => None,
    };
    let answers = answers(graph, request, compiled.as_ref())?;
    // Nothing is refused from here on.
    graph.run.revision += 1;
    graph.changes.run = true;
    let tokens = match &compiled {
        Some(compiled) => insert(graph, compiled, runners, mint),
        None => BTreeMap::new(),
    };
    for (no, answer) in answers {
        resolve::application(graph, no, &answer).expect("an answer was judged before");
    }
    graph.end_hold();
    let deliverable = graph.run.deliverable.and_then(|no| graph.task(no));
    Ok(Appended {
        deliverable: deliverable.map(|t| t.key.clone()),
        revision: graph.run.revision,
        compiled,
        tokens,
    })
}

/// Checks 2 to 4: whether the run takes steps, and stands where the client believes.
///
/// # Errors
/// `run_not_appendable`, `stale_revision`.
pub fn judge_run(graph: &Graph, expected_revision: Option<i64>) -> Result<(), Refusal> {
    use RunStatus::{NeedsAttention, Paused, Pending, Running};
    if !matches!(
        graph.run.status,
        Pending | Running | Paused | NeedsAttention
    ) {
        return Err(Refusal::RunNotAppendable);
    }
    let current = graph.run.revision;
    match expected_revision {
        Some(expected) if expected != i64::from(current) => Err(Refusal::StaleRevision { current }),
        _ => Ok(()),
    }
}

/// Checks 5 to 10.
fn compiled(graph: &Graph, envelope: &Envelope, door: &Facts) -> Result<Compiled, Refusal> {
    let answer = graph.run.deliverable.and_then(|no| standing(graph, no));
    let tail = graph.run.mainline_tail.and_then(|no| standing(graph, no));
    let mut facts = door.clone();
    facts.revision = i64::from(graph.run.revision) + 1;
    facts.run = Some(graph.run.public_id);
    facts.door = Door::Append {
        start: Start {
            waits_on: answer.iter().cloned().collect(),
            mainline: tail.clone(),
        },
    };
    facts.taken.extend(graph.tasks().map(|t| t.key.clone()));
    for key in envelope.wants().keys.clone() {
        let named = graph.task_by_key(key.as_str()).map(|t| t.no);
        if let Some(row) = named.and_then(|no| standing(graph, no)) {
            facts.rows.insert(key, row);
        }
    }
    let compiled = compile::compile(envelope, &facts)?;
    let unresolved = answer
        .as_ref()
        .is_some_and(|row| row.terminal && row.settled != EdgeState::Met);
    if unresolved {
        return Err(Refusal::TipUnresolved);
    }
    let live = tail.is_some_and(|row| !row.terminal && compiled.continues(row.task));
    if live {
        return Err(Refusal::TipLive);
    }
    // A standalone run observes only itself.
    compiled.check_waits(|_, _| false).map_err(|w| match w {
        WaitRefusal::TargetNotFound => Refusal::WaitTargetNotFound,
        WaitRefusal::Cycle => Refusal::WaitCycle,
    })?;
    Ok(compiled)
}

/// What stands for a row now.
pub(super) fn standing(graph: &Graph, no: TaskNo) -> Option<StandingRow> {
    let tip = graph.task(graph.task(no)?.tip)?;
    Some(StandingRow {
        task: tip.no,
        key: tip.key.clone(),
        terminal: tip.status.is_terminal(),
        settled: match settlement(tip) {
            Settlement::Pending => EdgeState::Open,
            Settlement::Skip => EdgeState::Skip,
            Settlement::Success | Settlement::Resolved => EdgeState::Met,
        },
    })
}

/// Check 11: every question is known, parked now, and completed.
fn answers(
    graph: &Graph,
    request: &Request,
    compiled: Option<&Compiled>,
) -> Result<Vec<(TaskNo, resolve::Request)>, Refusal> {
    let mut answers: Vec<(TaskNo, resolve::Request)> = Vec::new();
    for entry in &request.resolves {
        let written = compiled.into_iter().flat_map(Compiled::accepted_task_keys);
        let new = written.into_iter().any(|key| key.as_str() == entry.task);
        let not_parked = || Refusal::AwaitNotResolvable(shown(&entry.task));
        let task = graph
            .task_by_key(&entry.task)
            .filter(|t| t.kind == TaskKind::Await);
        let Some(task) = task else {
            let unknown = || Refusal::UnknownAwait(shown(&entry.task));
            return Err(if new { not_parked() } else { unknown() });
        };
        let resolvable = graph.park(task.no).is_some_and(|park| {
            park.kind == crate::domain::words::ParkKind::Ask && !super::expire::is_due(graph, park)
        });
        let twice = answers.iter().any(|(no, _)| *no == task.no);
        if !resolvable || twice {
            return Err(not_parked());
        }
        // Any other word too: to complete is all that it can.
        let completes = match &entry.submission.payload {
            Ok(payload) => payload.outcome == Outcome::Completed,
            Err(refusal) => *refusal != payload::Refusal::InvalidOutcome,
        };
        if !completes {
            return Err(Refusal::UnsupportedResolveOutcome);
        }
        // A link needs a capture, and nobody stages one for a question answered with an append.
        if let Some(link) = entry
            .submission
            .links
            .as_ref()
            .map_err(Clone::clone)?
            .first()
        {
            return Err(payload::Refusal::UnknownResultUpload { at: link.at }.into());
        }
        entry.submission.payload.clone()?;
        let answer = resolve::Request {
            token: None,
            by: Some(request.by.clone()),
            submission: entry.submission.clone(),
            captures: Vec::new(),
        };
        answers.push((task.no, answer));
    }
    Ok(answers)
}

fn insert(
    graph: &mut Graph,
    compiled: &Compiled,
    runners: &Runners,
    mint: &mut Mint,
) -> BTreeMap<String, String> {
    let mut births = Births {
        runners: runners.ids.clone(),
        ..Births::default()
    };
    births.freeze_contexts(compiled, &runners.known);
    let tokens = births.mint_tokens(compiled, mint);
    for row in &compiled.rows {
        for edge in &row.edges {
            if let Ref::Existing(no) = edge.from
                && let Some(task) = graph.task(no)
            {
                births.standing.insert(no, task.key.clone());
            }
        }
    }
    let first = graph.run.counts.tasks + 1;
    let placed = author::place(compiled, first, &births);
    for mut new in placed.tasks {
        // A wait follows what it observes by the authored row.
        let observed = new.task.observes.and_then(|no| graph.task(no));
        new.task.observes = observed.map(|t| t.lineage).or(new.task.observes);
        graph.insert_task(new);
    }
    for edge in placed.edges {
        graph.hang(edge);
    }
    graph.run.deliverable = placed.deliverable.or(graph.run.deliverable);
    graph.run.mainline_tail = placed.mainline_tail.or(graph.run.mainline_tail);
    tokens
}
