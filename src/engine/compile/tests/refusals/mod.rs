//! What is refused, with which code and where.

mod bounds;
mod rows;
mod stages;

use super::*;
use crate::domain::steps::{Bounds, Refusal, StepCode};
use crate::domain::words::MemberKind;

/// One report as `code path` lines.
fn report(refused: Result<Compiled, Refusal>) -> Vec<String> {
    let refusal = refused.expect_err("it should be refused");
    assert_eq!(refusal.code(), "invalid_steps", "{refusal:?}");
    let line = |e: &crate::domain::steps::StepError| match &e.path {
        Some(path) => format!("{} {path}", e.code),
        None => e.code.to_string(),
    };
    refusal.steps().iter().map(line).collect()
}

fn refused(steps: &Value, facts: &Facts, expected: &[&str]) {
    assert_eq!(report(compiled(steps, facts)), expected, "{steps:?}");
}

/// A tool, model or ask step with those options beside what it needs.
fn tool(options: &str) -> String {
    format!(r#"{{"tool":{{"name":"t"{options}}}}}"#)
}

fn model(options: &str) -> String {
    format!(r#"{{"model":{{"model":{{"model":"dev/m1"}},"prompt":"p"{options}}}}}"#)
}

fn ask(options: &str) -> String {
    format!(r#"{{"ask":{{"prompt":"p?"{options}}}}}"#)
}

fn many(n: usize, step: &str) -> String {
    vec![step; n].join(",")
}

/// One row of the table: its number, the envelope, code and path.
fn row(number: u32, envelope: &str, expected: &str) {
    let steps = json(envelope);
    assert_eq!(
        report(compiled(&steps, &create())),
        [expected],
        "row {number}: {envelope}"
    );
}

/// The same, in the notation of §9.
fn short(number: u32, envelope: &str, expected: &str) {
    let steps = super::steps(envelope);
    assert_eq!(
        report(compiled(&steps, &create())),
        [expected],
        "row {number}: {envelope}"
    );
}
