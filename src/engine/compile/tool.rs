//! Stage B of a `tool` step (`steps.md` §3.2).

use super::compiled::ToolCall;
use super::facts::{Facts, RouteVerdict};
use super::fields::{Fields, closed, public_id, text};
use super::model::Models;
use super::report::Bad;
use crate::domain::ids::PublicId;
use crate::domain::json::{Canonical, Object, Value};
use crate::domain::steps::{StepCode, TOOL_INPUT_BYTES, TOOL_NAME_CHARS, is_reserved_tool_name};

/// The wire name that a step may use although it is the kernel's, if it names a Runner for it.
const ROUTED_SKILL: &str = "skill";

/// Reads the options of a tool step.
pub(super) fn read(fields: &Fields, facts: &Facts, models: &Models) -> Result<ToolCall, Bad> {
    let name = name(fields, facts)?;
    let input = input(fields)?;
    let target = target(fields, &name, facts)?;
    let timeout_ms = fields.timeout_ms()?;
    let model_defaults = match fields.get("model_defaults") {
        None => None,
        Some(Value::Object(members)) => {
            let defaults = models.defaults(&Fields::of_defaults(members))?;
            Some(Box::new(defaults))
        }
        Some(_) => return Err(fields.bad("model_defaults", StepCode::InvalidModelDefaults)),
    };
    refuse_kernel_minted(fields)?;
    Ok(ToolCall {
        name,
        input,
        timeout_ms,
        target,
        model_defaults,
    })
}

fn name(fields: &Fields, facts: &Facts) -> Result<String, Bad> {
    let name = fields.read("name", StepCode::InvalidToolName, tool_name)?;
    let name = name.ok_or_else(|| fields.bad("name", StepCode::InvalidToolName))?;
    let routed_skill = name == ROUTED_SKILL && fields.get("route").is_some();
    // What an operation may name was judged by its scope.
    let scoped = facts.operation().is_some();
    if is_reserved_tool_name(&name) && !routed_skill && !scoped {
        return Err(fields.bad("name", StepCode::ReservedToolName));
    }
    Ok(name)
}

/// A tool's name: a storable text of 1 to 128 characters.
pub(super) fn tool_name(value: &Value) -> Option<String> {
    text(value).filter(|name| (1..=TOOL_NAME_CHARS).contains(&name.chars().count()))
}

fn input(fields: &Fields) -> Result<Canonical, Bad> {
    let empty = Value::Object(Object::new());
    let value = fields.get("input").unwrap_or(&empty);
    let storable = value.as_object().and_then(|_| value.canonical().ok());
    let input = storable.ok_or_else(|| fields.bad("input", StepCode::InvalidToolInput))?;
    if input.len() > TOOL_INPUT_BYTES {
        return Err(fields.bad("input", StepCode::ToolInputTooLarge));
    }
    Ok(input)
}

/// The Runner a step is for: named, or the run's default, resolved here once. Without a route
/// there is none; a name never implies one.
fn target(fields: &Fields, name: &str, facts: &Facts) -> Result<Option<PublicId>, Bad> {
    let Some(named) = fields.read("route", StepCode::InvalidToolRoute, route)? else {
        return Ok(None);
    };
    if facts.operation().is_some() {
        // Frozen with the scope: one that is gone by now fails the call when it starts.
        return Ok(named);
    }
    let refuse = |code| Err(fields.bad("route", code));
    let Some(target) = named.or(facts.default_runner) else {
        return refuse(StepCode::RunnerTargetRequired);
    };
    match facts.routes.get(&(target, name.to_owned())) {
        Some(RouteVerdict::Served) => Ok(Some(target)),
        Some(RouteVerdict::NotServed) => refuse(StepCode::ToolNotServed),
        Some(RouteVerdict::NotEligible) | None => refuse(StepCode::RunnerNotEligible),
    }
}

/// `{kind:"runner", runner_executor_public_id?}`; the id may be left out, not `null`.
pub(super) fn route(value: &Value) -> Option<Option<PublicId>> {
    let route = closed(value, &["kind", "runner_executor_public_id"])?;
    if route.get("kind")?.as_str()? != "runner" {
        return None;
    }
    match route.written("runner_executor_public_id") {
        None => Some(None),
        Some(id) => public_id(id).map(Some),
    }
}

/// The pairing key and the alias are the kernel's to write.
fn refuse_kernel_minted(fields: &Fields) -> Result<(), Bad> {
    for (name, code) in [
        ("tool_call_id", StepCode::InvalidToolCallId),
        ("alias", StepCode::InvalidToolAlias),
    ] {
        if fields.get(name).is_some() {
            return Err(fields.bad(name, code));
        }
    }
    Ok(())
}
