//! What must hold of every run, at rest and from one transaction to the next (`engine.md` §13).
//!
//! Checked on plain rows, so that the simulation calls it on its in-memory rows and the
//! integration harness on rows read from the database. One function an invariant, told by the
//! specification's number; what the specification says outside its list is told by its section.
//!
//! Does not know: how rows came to be. Everything is counted anew from all rows of the run
//! ([`recount`]), never from what the engine kept incrementally.

mod race;
mod recount;
mod rest;
mod span;
mod state;
mod step;

use std::cell::OnceCell;

use super::facts::{Edge, Park, Run, Task};
use crate::domain::event::Event;
use crate::domain::words::{AttentionReason, RunStatus, TaskStatus};
use crate::domain::{TaskKey, TaskNo, Timestamp};

pub use race::losers_are_walked;
pub use recount::{Recount, recount};
pub use rest::{a_reason_stands, rest_is_judged};
pub use step::{narrated_in_order, refusal_changes_nothing, the_reason_told_stands};

/// All rows of one run, as they stand between two transactions.
#[derive(Debug, Clone, PartialEq)]
pub struct World {
    /// The database's time when the rows were read; in a step, that of the transaction.
    pub now: Timestamp,
    /// The run.
    pub run: Run,
    /// Its tasks, ascending by number.
    pub tasks: Vec<Task>,
    /// Its edges, in any order.
    pub edges: Vec<Edge>,
    /// Its parks, in any order.
    pub parks: Vec<Park>,
    /// The rows listed in `open_failures`, in any order.
    pub failures: Vec<TaskNo>,
    /// The results stored, in any order.
    pub results: Vec<StoredResult>,
    /// What was narrated, ascending; may begin late (items expire).
    pub items: Vec<Item>,
}

/// A stored result, without its bodies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResult {
    /// Whose.
    pub task: TaskNo,
    /// Of which generation.
    pub generation: i32,
    /// Of an accepted commit.
    pub digest: Option<[u8; 32]>,
    /// A barrier's snapshot, canonical.
    pub selection: Option<String>,
}

/// A narrated item with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its number in the feed.
    pub seq: i64,
    /// What it says, as far as an invariant looks at it.
    pub what: Narrated,
}

/// What an item says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Narrated {
    /// A task's status was written.
    Task(TaskKey, TaskStatus),
    /// The run's status was written, while that reason stood.
    Run(RunStatus, Option<AttentionReason>),
    /// The attention's reason or keys changed.
    Attention(AttentionReason, Vec<TaskKey>),
    /// Something else about a task.
    Other(TaskKey),
    /// Something about what of the run is no graph.
    Shell,
}

impl From<&Event> for Narrated {
    fn from(event: &Event) -> Self {
        match event {
            Event::TurnStatus {
                run_status,
                attention_reason,
                ..
            } => Self::Run(*run_status, *attention_reason),
            Event::TaskStatus(item) => Self::Task(item.task_key.clone(), item.status),
            Event::AttentionRequired { reason, keys } => Self::Attention(*reason, keys.clone()),
            Event::TaskDeadlineExtended { task_key, .. } => Self::Other(task_key.clone()),
            Event::DefaultRunnerChanged { .. } => Self::Shell,
        }
    }
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {detail}")]
pub struct Violation {
    /// The specification's number and the function's name: `INV-4 remaining_counts_open_edges`.
    pub name: &'static str,
    /// Which rows, and what was expected.
    pub detail: String,
}

/// What one check says: nothing, or which rows are wrong.
type Finding = Result<(), String>;

fn ensure(holds: bool, detail: impl FnOnce() -> String) -> Finding {
    if holds { Ok(()) } else { Err(detail()) }
}

/// Rows with what every check looks up.
struct View<'a> {
    world: &'a World,
    /// Counted when a check asks for it: what a run was before is mostly not recounted.
    recount: OnceCell<Recount>,
    /// Indices of the edges into each row, by its place in `world.tasks`.
    into: Vec<Vec<usize>>,
}

impl<'a> View<'a> {
    fn of(world: &'a World) -> Result<Self, String> {
        if let Some(pair) = world.tasks.windows(2).find(|w| w[0].no >= w[1].no) {
            return Err(format!(
                "tasks {} and {} are out of order",
                pair[0].no.0, pair[1].no.0
            ));
        }
        let mut into = vec![Vec::new(); world.tasks.len()];
        for (at, edge) in world.edges.iter().enumerate() {
            let (Some(_), Some(head)) = (place(world, edge.from), place(world, edge.to)) else {
                return Err(format!("edge {}→{} leaves the run", edge.from.0, edge.to.0));
            };
            into[head].push(at);
        }
        Ok(Self {
            world,
            recount: OnceCell::new(),
            into,
        })
    }

    fn recount(&self) -> &Recount {
        self.recount.get_or_init(|| recount(self.world))
    }

    fn task(&self, no: TaskNo) -> Option<&'a Task> {
        place(self.world, no).map(|at| &self.world.tasks[at])
    }

    fn park(&self, no: TaskNo) -> Option<&'a Park> {
        self.world.parks.iter().find(|p| p.task == no)
    }

    /// Each row with its incoming edges.
    fn rows(&self) -> impl Iterator<Item = (&'a Task, impl Iterator<Item = &'a Edge>)> {
        let world = self.world;
        let tasks = world.tasks.iter().zip(&self.into);
        tasks.map(|(task, into)| (task, into.iter().map(|at| &world.edges[*at])))
    }
}

fn place(world: &World, no: TaskNo) -> Option<usize> {
    // Numbers are dense from 1 in practice; a gap only costs the search.
    let guess = usize::try_from(no.0).ok()?.checked_sub(1)?;
    match world.tasks.get(guess) {
        Some(task) if task.no == no => Some(guess),
        _ => world.tasks.binary_search_by_key(&no, |t| t.no).ok(),
    }
}

/// Checks everything that must hold of a run's rows between two transactions.
///
/// # Errors
/// The first invariant that does not hold.
pub fn check(world: &World) -> Result<(), Violation> {
    stands(&view(world)?)
}

fn stands(view: &View<'_>) -> Result<(), Violation> {
    for (name, holds) in state::ALL {
        holds(view).map_err(|detail| Violation { name, detail })?;
    }
    Ok(())
}

/// Checks a transaction with all that it must leave behind: [`check`], [`check_step`],
/// [`rest_is_judged`]; and of one command alone [`narrated_in_order`], [`losers_are_walked`] and
/// [`a_reason_stands`]. Each moment is looked at once, which is most of the cost.
///
/// # Errors
/// The first invariant that does not hold.
pub fn check_transaction(before: &World, after: &World, alone: bool) -> Result<(), Violation> {
    let (before, after) = (view(before)?, view(after)?);
    stands(&after)?;
    steps(&before, &after)?;
    rest::judged(&after)?;
    if alone {
        narrated_in_order(before.world, after.world)?;
        the_reason_told_stands(before.world, after.world)?;
        race::walked(&before, &after)?;
        rest::reasoned(before.world, &after)?;
    }
    Ok(())
}

/// Checks what must hold from one transaction to the next: `before` as it was read, `after` as it
/// was committed, with `after.now` the transaction's time. `before.items` may be empty.
///
/// # Errors
/// The first invariant that does not hold.
pub fn check_step(before: &World, after: &World) -> Result<(), Violation> {
    steps(&view(before)?, &view(after)?)
}

fn steps(before: &View<'_>, after: &View<'_>) -> Result<(), Violation> {
    for (name, holds) in step::ALL {
        holds(before, after).map_err(|detail| Violation { name, detail })?;
    }
    Ok(())
}

/// Checks what must hold between two moments, whatever transactions lie between. `after.items` are
/// those since `before` at least.
///
/// # Errors
/// The first invariant that does not hold.
pub fn check_span(before: &World, after: &World) -> Result<(), Violation> {
    let (before, after) = (view(before)?, view(after)?);
    for (name, holds) in span::ALL {
        holds(&before, &after).map_err(|detail| Violation { name, detail })?;
    }
    Ok(())
}

fn view(world: &World) -> Result<View<'_>, Violation> {
    View::of(world).map_err(|detail| Violation {
        name: "INV-8 edges_stay_inside",
        detail,
    })
}
