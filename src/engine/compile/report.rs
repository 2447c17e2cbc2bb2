//! One stage's errors: at most one a step, the first found, told in written order.

use std::collections::BTreeMap;

use crate::domain::steps::{Refusal, StepCode, StepError};

/// The most errors of one report. An envelope within bounds has fewer steps than this; a longer
/// report would only repeat what a client cannot have meant, at many times the size it sent.
const MOST: usize = 512;

/// Where a step stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spot {
    /// Its place in written order: a group before its members.
    pub ordinal: usize,
    /// `steps[0].parallel[1]`.
    pub path: String,
}

/// A stage's errors so far.
#[derive(Debug, Default)]
pub(super) struct Report(BTreeMap<usize, StepError>);

impl Report {
    /// Refuses a step as a whole.
    pub fn whole(&mut self, at: &Spot, code: StepCode) {
        self.put(at, code, || at.path.clone());
    }

    /// Refuses a field of a step: its path follows the step's.
    pub fn field(&mut self, at: &Spot, field: &str, code: StepCode) {
        self.put(at, code, || format!("{}.{field}", at.path));
    }

    fn put(&mut self, at: &Spot, code: StepCode, path: impl FnOnce() -> String) {
        if self.0.len() >= MOST {
            return;
        }
        self.0.entry(at.ordinal).or_insert_with(|| StepError {
            code,
            path: Some(path()),
        });
    }

    /// The verdict of the stage.
    pub fn finish(self) -> Result<(), Refusal> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(Refusal::InvalidSteps(self.0.into_values().collect()))
    }
}

/// A value of one field that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bad {
    /// Why.
    pub code: StepCode,
    /// The field's path below the step; none for the step as a whole.
    pub field: Option<String>,
}

impl Bad {
    /// Reports it at a step.
    pub fn at(self, spot: &Spot, report: &mut Report) {
        match self.field {
            Some(field) => report.field(spot, &field, self.code),
            None => report.whole(spot, self.code),
        }
    }
}
