//! The grammar in tables: each case names the line of the spec it comes from.

pub(in crate::engine) mod dsl;
mod examples;
mod keys;
mod lookups;
mod properties;
mod refusals;

use super::*;
use crate::domain::ids::{TaskKey, TaskNo};
use crate::domain::json::{Value, parse};
use crate::domain::steps::PromptMechanism;
use crate::domain::words::EdgeState;

pub(super) use dsl::steps;

/// JSON as written.
pub(super) fn json(text: &str) -> Value {
    parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

pub(super) fn key(text: &str) -> TaskKey {
    text.parse().unwrap()
}

/// A row of the run that completed.
pub(super) fn done(task: i32, name: &str) -> StandingRow {
    StandingRow {
        task: TaskNo(task),
        key: key(name),
        terminal: true,
        settled: EdgeState::Met,
    }
}

/// A row of the run that is still at work.
pub(super) fn live(task: i32, name: &str) -> StandingRow {
    StandingRow {
        terminal: false,
        settled: EdgeState::Open,
        ..done(task, name)
    }
}

pub(super) fn create() -> Facts {
    Facts::create(PromptMechanism::Raw)
}

/// An append whose run consists of these rows; the last is its answer and its mainline's tail.
pub(super) fn after(rows: &[StandingRow]) -> Facts {
    let last = rows.last().cloned();
    let mut facts = Facts::append(
        2,
        Start {
            waits_on: last.iter().cloned().collect(),
            mainline: last,
        },
    );
    for row in rows {
        facts.taken.insert(row.key.clone());
        facts.rows.insert(row.key.clone(), row.clone());
    }
    facts
}

/// An append after the completed round rN (§9, "After rN").
pub(super) fn after_r_n() -> Facts {
    after(&[done(7, "rN")])
}

pub(super) fn compiled(
    steps: &Value,
    facts: &Facts,
) -> Result<Compiled, crate::domain::steps::Refusal> {
    compile(&Envelope::read(steps)?, facts)
}

/// Every key of the run by number, for showing what an edge points to.
pub(super) fn name_of(compiled: &Compiled, facts: &Facts, at: Ref) -> String {
    match at {
        Ref::New(row) => compiled.rows[row].key.to_string(),
        Ref::Existing(task) => {
            let mut rows = facts.rows.values();
            rows.find(|row| row.task == task).unwrap().key.to_string()
        }
    }
}

pub(super) fn row<'a>(compiled: &'a Compiled, name: &str) -> &'a Row {
    let mut rows = compiled.rows.iter();
    rows.find(|row| row.key.as_str() == name)
        .unwrap_or_else(|| panic!("no row {name}"))
}
