//! The step grammar compiled to rows, edges and reads (`steps.md` §1–§7, §10).
//!
//! A pure function in two steps. [`Envelope::read`] judges the shape of what a client wrote and
//! says what must be looked up ([`Envelope::wants`]); [`compile`] takes the answers as [`Facts`]
//! and judges everything else.
//!
//! | file | job |
//! |---|---|
//! | `envelope` | stage A: shape; what must be looked up |
//! | `values`, `tool`, `model`, `tools` | stage B: values, bounds, facts about them |
//! | `place` | the cursor: rows, edges, reads; stages C (references) and D (graph) |
//! | `mint` | keys of steps that name none |
//! | `facts`, `compiled`, `context` | what goes in and what comes out, as data |
//!
//! Does not know: doors' state checks (`run_not_appendable`, `tip_live`, …), SQL, clocks, how a
//! model's request is assembled, the scope of an operation (its batch comes resolved).
//!
//! Invariants: a refusal yields no rows; a stage runs only if the one before is clean and tells at
//! most one error a step, in written order; edges point backwards in placement order; the same
//! envelope and facts give the same rows.

mod compiled;
mod context;
mod envelope;
mod facts;
mod fields;
mod mint;
mod model;
mod place;
mod report;
#[cfg(test)]
pub(in crate::engine) mod tests;
mod text;
mod tool;
mod tools;
mod values;

pub use compiled::{
    Barrier, Compiled, Edge, ModelRound, Observation, Question, ReceiptParts, Ref, Row, ToolCall,
    WaitTarget, Work,
};
pub use context::{Compaction, CompactionMode, ModelContext, ModelDefaults, Names};
pub use envelope::{Envelope, Wants, is_graph_word, options, refuse_graph_words};
pub use facts::{
    Batch, Catalogue, Door, Facts, KernelTool, ModelCapabilities, ModelVerdict, Parameter,
    ParameterKind, RouteVerdict, StandingRow, Start,
};
pub use mint::minted_prefix;
pub use model::{fallback_models, model_selection};

use crate::domain::steps::{Bounds, Refusal};

/// Compiles an envelope: stages B, C and D of `steps.md` §2, then the written keys against the
/// run's (`runs.md` §5, check 6). What the door judges next (`tip_unresolved`, `tip_live`, wait
/// targets, turn work) it reads off the result.
///
/// # Errors
/// [`Refusal::InvalidSteps`] with one stage's errors, or [`Refusal::DuplicateTaskKey`].
pub fn compile(envelope: &Envelope, facts: &Facts) -> Result<Compiled, Refusal> {
    compile_within(envelope, facts, facts.bounds())
}

fn compile_within(envelope: &Envelope, facts: &Facts, bounds: Bounds) -> Result<Compiled, Refusal> {
    let steps = values::check(envelope, facts, bounds)?;
    let compiled = place::place(steps, facts, bounds)?;
    if facts.operation().is_some() {
        return Ok(compiled);
    }
    match compiled.rows.iter().find(|row| facts.is_taken(&row.key)) {
        Some(row) => Err(Refusal::DuplicateTaskKey(row.key.clone())),
        None => Ok(compiled),
    }
}
