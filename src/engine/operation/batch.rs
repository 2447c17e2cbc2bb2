//! A batch of an operation becomes rows of the run (`operations.md` §4, §5).
//!
//! The batch is read as steps, resolved against the scope, compiled under its own keys, and then
//! given task keys of its own: local names never meet the run's.

use std::collections::{BTreeMap, BTreeSet};

use super::request::{Delivery, of_grammar};
use super::{Receipt, Recorded, Request};
use crate::domain::json::{Object, Value};
use crate::domain::steps::{self, Bounds, Mirror, PromptMechanism, Verb, WaitRefusal};
use crate::domain::words::{Lifetime, Wake};
use crate::domain::{TaskKey, TaskNo};
use crate::engine::append::standing;
use crate::engine::author::{self, Births};
use crate::engine::compile::{
    self, Batch, Compiled, Door, Envelope, Facts, Ref, StandingRow, WaitTarget, Work,
};
use crate::engine::facts::Task;
use crate::engine::graph::Graph;
use crate::engine::mint::Mint;

/// Where a batch hangs, and what it may name.
pub(super) struct Hang {
    /// What its first steps wait on.
    pub waits_on: Vec<StandingRow>,
    /// What `after` and `results` may name beside its own steps.
    pub surviving: BTreeMap<TaskKey, StandingRow>,
    lifetime: Lifetime,
    wake: Wake,
    background: bool,
}

impl Hang {
    /// Behind nothing.
    pub fn fresh(parent: &Task, background: Option<Delivery>) -> Self {
        Self {
            waits_on: Vec::new(),
            surviving: BTreeMap::new(),
            lifetime: background.map_or(parent.lifetime, |b| b.lifetime),
            wake: background.and_then(|b| b.wake).unwrap_or(parent.wake),
            background: background.is_some(),
        }
    }
}

/// A batch that may be placed.
pub(super) struct Plan {
    pub compiled: Compiled,
    aliases: Vec<Option<String>>,
    written: BTreeSet<TaskKey>,
    is_single: bool,
    background: bool,
}

/// Judges a batch; nothing is written.
///
/// # Errors
/// The first recorded refusal: shape, bounds, scope, grammar, waits.
pub(super) fn plan(
    graph: &Graph,
    parent: &Task,
    request: &Request,
    steps: &Value,
    single: Option<Verb>,
    hang: Hang,
) -> Result<Plan, Recorded> {
    let refused = |refusal| of_steps(&refusal, single);
    let written = Envelope::read(steps).map_err(refused)?;
    if written.leaves() > Bounds::CLIENT.steps {
        let message = format!("an operation has at most {} steps", Bounds::CLIENT.steps);
        return Err(Recorded::new("too_many_steps", message));
    }
    let resolved = request.scope.resolve(steps)?;
    let envelope = Envelope::read(&resolved.steps).map_err(refused)?;
    let background = hang.background;
    let mut facts = Facts::create(PromptMechanism::Raw);
    facts.authored_by = parent.authored_by;
    facts.run = Some(graph.run.public_id);
    facts.catalogue = request.catalogue.clone();
    facts.door = Door::Operation(Batch {
        waits_on: hang.waits_on,
        surviving: hang.surviving,
        lifetime: hang.lifetime,
        wake: hang.wake,
    });
    for key in &envelope.wants().keys {
        let named = graph.task_by_key(key.as_str()).map(|t| t.no);
        if let Some(row) = named.and_then(|no| standing(graph, no)) {
            facts.rows.insert(key.clone(), row);
        }
    }
    let compiled = compile::compile(&envelope, &facts).map_err(refused)?;
    check_waits(&compiled, parent, request, graph)?;
    Ok(Plan {
        compiled,
        aliases: resolved.aliases,
        written: envelope.wants().written.clone(),
        is_single: single.is_some(),
        background,
    })
}

/// A wait observes a row of this run, never the call that authors it or one above that.
fn check_waits(
    compiled: &Compiled,
    parent: &Task,
    request: &Request,
    graph: &Graph,
) -> Result<(), Recorded> {
    compiled
        .check_waits(|_, _| false)
        .map_err(|refusal| match refusal {
            WaitRefusal::TargetNotFound => Recorded::new(
                "wait_target_not_found",
                "a wait names no task of this run and no earlier step",
            ),
            WaitRefusal::Cycle => cycle(),
        })?;
    for row in &compiled.rows {
        if let Work::Wait(wait) = &row.work
            && let WaitTarget::Here(Ref::Existing(no)) = wait.target
        {
            let target = graph.task(no).map_or(no, |t| t.lineage);
            if target == parent.no || request.ancestors.contains(&target) {
                return Err(cycle());
            }
        }
    }
    Ok(())
}

fn cycle() -> Recorded {
    Recorded::new("wait_cycle", "a wait names a task that waits for it")
}

/// A refusal of the grammar as it is recorded: the path, the word, and what is allowed.
fn of_steps(refusal: &steps::Refusal, single: Option<Verb>) -> Recorded {
    let Some(first) = refusal.steps().first() else {
        return Recorded::new("invalid_steps", refusal.to_string());
    };
    let at = first.path.as_deref().map(|path| match single {
        // One step is written without the array around it.
        Some(Verb::Tool) => path.trim_start_matches("steps[0].").to_owned(),
        Some(_) => path.replacen("steps[0]", "input", 1),
        None => path.to_owned(),
    });
    let at = at.map_or_else(String::new, |at| format!("{at}: "));
    Recorded::new(
        of_grammar(first.code, single),
        format!("{at}{} ({})", first.code, first.code.says()),
    )
}

/// Places a judged batch and says what came of it.
pub(super) fn place(
    graph: &mut Graph,
    parent: &Task,
    position: i32,
    mut plan: Plan,
    request: &Request,
    mint: &mut Mint,
) -> Receipt {
    let keys = allocate(&mut plan.compiled, graph, mint);
    let compiled = &plan.compiled;
    let mut births = Births {
        runners: request.runners.clone(),
        ..Births::default()
    };
    for edge in compiled.rows.iter().flat_map(|row| &row.edges) {
        if let Ref::Existing(no) = edge.from
            && let Some(task) = graph.task(no)
        {
            births.standing.insert(no, task.key.clone());
        }
    }
    let tips = tips(compiled);
    let first = graph.run.counts.tasks + 1;
    let placed = author::place(compiled, first, &births);
    let mut aliases = plan.aliases.into_iter();
    let nos: Vec<TaskNo> = placed.tasks.iter().map(|new| new.task.no).collect();
    let task_keys: Vec<String> = compiled.rows.iter().map(|r| r.key.to_string()).collect();
    for (at, mut new) in placed.tasks.into_iter().enumerate() {
        let task = &mut new.task;
        task.owner = Some(parent.no);
        task.operation = Some(position);
        task.is_tip = tips.contains(&at);
        task.background = plan.background;
        task.detached |= plan.background;
        task.barrier = task.barrier.or(parent.barrier);
        if let Work::Tool(_) = &compiled.rows[at].work {
            task.tool_alias = aliases.next().flatten();
            task.context_of = request.context_of;
        }
        let observed = task.observes.and_then(|no| graph.task(no));
        task.observes = observed.map(|t| t.lineage).or(task.observes);
        graph.insert_task(new);
    }
    for edge in placed.edges {
        graph.hang(edge);
    }
    let results: Vec<usize> = if plan.background { Vec::new() } else { tips };
    let local = keys
        .iter()
        .filter(|(local, at)| {
            let leaf = !matches!(compiled.rows[**at].work, Work::Join(_));
            plan.written.contains(local) || (leaf && !plan.is_single)
        })
        .map(|(local, at)| (local.to_string(), Value::from(task_keys[*at].as_str())));
    Receipt {
        keys: Value::Object(local.collect::<Object>()),
        steps: match plan.is_single {
            true => Value::Array(Vec::new()),
            false => Value::Array(compiled.mirror.iter().map(shown).collect()),
        },
        results: results.iter().map(|at| nos[*at]).collect(),
        result_task_keys: results.iter().map(|at| task_keys[*at].clone()).collect(),
        task_keys,
        more: Vec::new(),
        background: plan.background,
        sources: Vec::new(),
    }
}

/// Gives every row a task key of its own; what it was called is told, by its place.
fn allocate(compiled: &mut Compiled, graph: &Graph, mint: &mut Mint) -> BTreeMap<TaskKey, usize> {
    let mut locals = BTreeMap::new();
    let mut allocated = BTreeMap::new();
    for (at, row) in compiled.rows.iter_mut().enumerate() {
        let key = TaskKey::trusted(mint.public_id(graph.now).to_string());
        let local = std::mem::replace(&mut row.key, key.clone());
        allocated.insert(local.clone(), key);
        locals.insert(local, at);
    }
    for mirror in &mut compiled.mirror {
        rename(mirror, &allocated);
    }
    locals
}

fn rename(mirror: &mut Mirror, allocated: &BTreeMap<TaskKey, TaskKey>) {
    let of = |key: &TaskKey| allocated.get(key).cloned().unwrap_or_else(|| key.clone());
    match mirror {
        Mirror::Key(key) => *key = of(key),
        Mirror::Sequence(steps) => steps.iter_mut().for_each(|m| rename(m, allocated)),
        Mirror::Group { parallel, key } => {
            parallel.iter_mut().for_each(|m| rename(m, allocated));
            *key = key.as_ref().map(of);
        }
    }
}

fn shown(mirror: &Mirror) -> Value {
    match mirror {
        Mirror::Key(key) => key.as_str().into(),
        Mirror::Sequence(steps) => Value::Array(steps.iter().map(shown).collect()),
        Mirror::Group { parallel, key } => {
            let parallel = Value::Array(parallel.iter().map(shown).collect());
            let mut members = Object::from([("parallel".to_owned(), parallel)]);
            if let Some(key) = key {
                members.insert("key".to_owned(), key.as_str().into());
            }
            Value::Object(members)
        }
    }
}

/// The rows that nothing else of the batch waits on or reads, in written order, detached ones last.
fn tips(compiled: &Compiled) -> Vec<usize> {
    let sources = compiled.rows.iter().flat_map(|row| &row.edges);
    let waited: BTreeSet<usize> = sources
        .filter_map(|edge| match edge.from {
            Ref::New(at) => Some(at),
            Ref::Existing(_) => None,
        })
        .collect();
    let mut tips: Vec<usize> = (0..compiled.rows.len())
        .filter(|at| !waited.contains(at))
        .collect();
    tips.sort_by_key(|at| compiled.rows[*at].detached);
    tips
}
