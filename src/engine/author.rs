//! Placing compiled rows: what a create or an append inserts.
//!
//! Does not judge the envelope; `compile` did. Numbers rows in placement order and gives each the
//! countdown that its edges say (INV-4).

use std::collections::BTreeMap;

use super::compile::{Compiled, Ref, Row, WaitTarget, Work};
use super::facts::{Edge, Join, Task};
use super::mint::Mint;
use super::operation::context::{Known, frozen};
use crate::domain::json::Canonical;
use crate::domain::words::{
    AuthoredBy, EdgeState, Holder, Lifetime, Losers, TaskKind, TaskStatus, Visibility, Wake,
};
use crate::domain::{ExecutorId, PublicId, TaskKey, TaskNo};

/// A row to insert, with its bodies.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// The graph row.
    pub task: Task,
    /// A call's input.
    pub tool_input: Option<Canonical>,
    /// What the other verbs were authored with.
    pub definition: Option<Canonical>,
    /// The frozen child-authoring context.
    pub context: Option<Canonical>,
}

/// What an envelope inserts.
#[derive(Debug, Clone)]
pub struct Placed {
    /// Rows, ascending.
    pub tasks: Vec<NewTask>,
    /// Edges, by head.
    pub edges: Vec<Edge>,
    /// The row that is the run's answer.
    pub deliverable: Option<TaskNo>,
    /// The latest mainline round.
    pub mainline_tail: Option<TaskNo>,
}

/// What rows are given at birth beside what they were compiled to.
#[derive(Debug, Clone, Default)]
pub struct Births {
    /// The inner ids of the routes' targets.
    pub runners: BTreeMap<PublicId, ExecutorId>,
    /// The keys of the run's rows that compiled rows name.
    pub standing: BTreeMap<TaskNo, TaskKey>,
    /// SHA-256 of the resolution tokens, by the asks' places among the compiled rows.
    pub tokens: BTreeMap<usize, [u8; 32]>,
    /// The frozen contexts of calls, by their places among the compiled rows.
    pub contexts: BTreeMap<usize, Canonical>,
}

impl Births {
    /// Freezes the contexts of an envelope's calls.
    pub fn freeze_contexts(&mut self, compiled: &Compiled, known: &Known) {
        let rows = compiled.rows.iter().enumerate();
        self.contexts = rows
            .filter_map(|(at, row)| match &row.work {
                Work::Tool(call) => Some((at, frozen(call, known)?)),
                _ => None,
            })
            .collect();
    }

    /// Mints the tokens of an envelope's questions: their digests stay for the rows, their texts, by
    /// key, are for the receipt.
    pub fn mint_tokens(
        &mut self,
        compiled: &Compiled,
        mint: &mut Mint,
    ) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        for at in compiled.tokened() {
            let secret = mint.token();
            self.tokens.insert(at, secret.digest);
            texts.insert(compiled.rows[at].key.as_str().to_owned(), secret.text);
        }
        texts
    }
}

/// Numbers and links compiled rows; `first` is the number of the first one.
pub fn place(compiled: &Compiled, first: i32, births: &Births) -> Placed {
    let runners = &births.runners;
    let number = |index: usize| TaskNo(first + i32::try_from(index).unwrap_or(i32::MAX));
    let resolve = |at: &Ref| match at {
        Ref::New(index) => number(*index),
        Ref::Existing(no) => *no,
    };
    let key_of = |at: &Ref| match at {
        Ref::New(index) => compiled
            .rows
            .get(*index)
            .map(|row| row.key.as_str().to_owned()),
        Ref::Existing(no) => births.standing.get(no).map(|key| key.as_str().to_owned()),
    };
    let mut tasks = Vec::with_capacity(compiled.rows.len());
    let mut edges = Vec::new();
    for (index, row) in compiled.rows.iter().enumerate() {
        let no = number(index);
        for (ordinal, edge) in row.edges.iter().enumerate() {
            edges.push(Edge {
                from: resolve(&edge.from),
                to: no,
                ordinal: i32::try_from(ordinal).unwrap_or(i32::MAX),
                structural: edge.structural,
                source: None,
                state: edge.state,
            });
        }
        let mut task = task(no, row);
        task.after_keys = row.edges.iter().filter_map(|e| key_of(&e.from)).collect();
        task.barrier = row.barrier.map(number);
        task.input_from = row.input_from.iter().map(resolve).collect();
        task.result_from = row.result_from.iter().map(resolve).collect();
        task.resolution_digest = births.tokens.get(&index).map(|d| d.to_vec());
        if let Work::Wait(wait) = &row.work
            && let WaitTarget::Here(at) = &wait.target
        {
            task.observes = Some(resolve(at));
        }
        let mut new = with_work(task, row, runners);
        new.context = births.contexts.get(&index).cloned();
        tasks.push(new);
    }
    Placed {
        tasks,
        edges,
        deliverable: compiled.answer.map(number),
        mainline_tail: compiled.mainline.map(number),
    }
}

/// A queued row with nothing said about it but what every row has.
pub(super) fn blank(no: TaskNo, key: TaskKey, kind: TaskKind, authored_by: AuthoredBy) -> Task {
    Task {
        no,
        key,
        kind,
        status: TaskStatus::Queued,
        generation: 0,
        authored_by,
        mark: None,
        detached: false,
        lifetime: Lifetime::Conversation,
        wake: Wake::Auto,
        on_failure: kind.default_on_failure(),
        fan_on_failure: None,
        visibility: Visibility::Hidden,
        barrier: None,
        lineage: no,
        tip: no,
        input_from: Vec::new(),
        result_from: Vec::new(),
        after_keys: Vec::new(),
        remaining: 0,
        owner: None,
        operation: None,
        is_tip: false,
        background: false,
        taken_over: false,
        trace_end: 0,
        context_of: None,
        tool_name: None,
        tool_alias: None,
        timeout_ms: None,
        target: None,
        holder: None,
        resolution_digest: None,
        observes: None,
        join: None,
        sources: Vec::new(),
        addressed: None,
        approval: None,
        started_at: None,
        claim: None,
        failure_resolution: None,
        error: None,
        is_error: false,
        race_absorbed: false,
        settle_seq: None,
        completed_at: None,
    }
}

fn task(no: TaskNo, row: &Row) -> Task {
    let open = row
        .edges
        .iter()
        .filter(|e| e.state == EdgeState::Open)
        .count();
    Task {
        mark: row.mark,
        detached: row.detached,
        lifetime: row.lifetime,
        wake: row.wake,
        on_failure: row.on_failure,
        fan_on_failure: row.fan_on_failure,
        visibility: row.visibility,
        remaining: i32::try_from(open).unwrap_or(i32::MAX),
        ..blank(no, row.key.clone(), row.kind, row.authored_by)
    }
}

fn with_work(mut task: Task, row: &Row, runners: &BTreeMap<PublicId, ExecutorId>) -> NewTask {
    let (mut tool_input, mut definition) = (None, None);
    match &row.work {
        Work::Tool(call) => {
            task.tool_name = Some(call.name.clone());
            task.timeout_ms = call.timeout_ms;
            task.target = call.target.and_then(|id| runners.get(&id)).copied();
            tool_input = Some(call.input.clone());
        }
        Work::Model(round) => definition = Some(round.definition()),
        Work::Ask(question) => {
            task.timeout_ms = question.timeout_ms;
            task.holder = Some(question.holder);
            definition = Some(question.definition());
        }
        Work::Wait(observation) => {
            task.timeout_ms = Some(observation.timeout_ms);
            task.holder = Some(Holder::Kernel);
            definition = Some(observation.definition());
        }
        Work::Join(barrier) => {
            let pending = task.remaining;
            task.join = Some(Join {
                mode: barrier.mode,
                k: i32::try_from(barrier.k).unwrap_or(i32::MAX),
                losers: if barrier.losers == Losers::RunOut {
                    Losers::RunOut
                } else {
                    Losers::Cancel
                },
                successes: 0,
                pending,
            });
        }
    }
    NewTask {
        task,
        tool_input,
        definition,
        context: None,
    }
}
