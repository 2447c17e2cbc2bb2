//! The tools a model step declares: their names, and aliases of kernel tools (`models.md` §5).
//!
//! A declaration is stored verbatim; only what decides which tool a call means is judged.
//!
//! Does not know: which Runner serves what, JSON Schema.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::KernelTool;
use super::fields::non_blank;
use super::tool::tool_name;
use crate::domain::json::{Canonical, Object, Value};
use crate::domain::steps::{DECLARED_TOOLS_BYTES, StepCode, is_reserved_tool_name};

type Kernel = BTreeMap<String, KernelTool>;

/// The stored text of declared tools: a non-empty array of objects that name themselves, within
/// the bound.
pub(super) fn declared(value: &Value) -> Option<Canonical> {
    let items = value.as_array()?;
    let named = items.iter().all(|item| name(item).is_some());
    if items.is_empty() || !named {
        return None;
    }
    let text = value.canonical().ok()?;
    (text.len() <= DECLARED_TOOLS_BYTES).then_some(text)
}

/// What a model would call the tool.
fn name(tool: &Value) -> Option<String> {
    tool_name(tool.get("name")?)
}

/// Checks the declarations in order; the first problem counts.
pub(super) fn check(value: &Value, kernel: &Kernel) -> Result<(), StepCode> {
    let mut seen = BTreeSet::new();
    for tool in value.as_array().unwrap_or_default() {
        let name = name(tool).ok_or(StepCode::InvalidTools)?;
        match tool.get("alias").filter(|alias| !alias.is_null()) {
            Some(alias) => check_alias(&name, alias, kernel)?,
            None => check_kernel_name(&name, tool, kernel)?,
        }
        if let Some(route) = tool.get("route").filter(|route| !route.is_null()) {
            check_route(route)?;
        }
        if !seen.insert(name) {
            return Err(StepCode::DuplicateToolName);
        }
    }
    Ok(())
}

/// A kernel tool is declared as the kernel does, byte for byte. The one other use of a kernel's
/// name is a `skill` routed to a Runner.
fn check_kernel_name(name: &str, tool: &Value, kernel: &Kernel) -> Result<(), StepCode> {
    let wire = kernel.values().find(|k| k.wire_name == name);
    if wire.is_none() && !is_reserved_tool_name(name) {
        return Ok(());
    }
    let text = tool.canonical().ok();
    let same = wire.is_some_and(|k| text.as_ref() == Some(&k.definition));
    let routed_skill = name == "skill" && tool.get("route").is_some_and(|r| !r.is_null());
    if same || routed_skill {
        Ok(())
    } else {
        Err(StepCode::KernelToolRedefined)
    }
}

/// `{"kind":"runner","runner_executor_public_id","tool_name"}`; the last two may be left out.
fn check_route(route: &Value) -> Result<(), StepCode> {
    let members = route.as_object().ok_or(StepCode::InvalidTools)?;
    let mut target = members.clone();
    let served = target.remove("tool_name").filter(|name| !name.is_null());
    let well_named = served.is_none_or(|name| tool_name(&name).is_some());
    let well_routed = super::tool::route(&Value::Object(target)).is_some();
    if well_named && well_routed {
        Ok(())
    } else {
        Err(StepCode::InvalidTools)
    }
}

/// `{"of": kernel wire name, "params"?: {name: {"to","invert"?,"description"}}}`.
fn check_alias(name: &str, alias: &Value, kernel: &Kernel) -> Result<(), StepCode> {
    let alias = alias.as_object().ok_or(StepCode::InvalidTools)?;
    let of = alias.get("of").and_then(Value::as_str);
    let of = of.ok_or(StepCode::InvalidTools)?;
    let canonical = kernel.values().find(|k| k.wire_name == of);
    let canonical = canonical.ok_or(StepCode::AliasCanonicalUnknown)?;
    if is_reserved_tool_name(name) || kernel.values().any(|k| k.wire_name == name) {
        return Err(StepCode::AliasNameReserved);
    }
    let empty = Object::new();
    let params = match alias.get("params") {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(params)) => params,
        Some(_) => return Err(StepCode::InvalidTools),
    };
    params
        .values()
        .try_for_each(|param| check_param(param, canonical))
}

fn check_param(param: &Value, canonical: &KernelTool) -> Result<(), StepCode> {
    let to = param.get("to").and_then(Value::as_str);
    let to = to.ok_or(StepCode::AliasParamUnknown)?;
    let boolean = canonical.parameters.get(to);
    let boolean = *boolean.ok_or(StepCode::AliasParamUnknown)?;
    let invert = match param.get("invert") {
        None | Some(Value::Null) => false,
        Some(value) => value.as_bool().ok_or(StepCode::InvalidTools)?,
    };
    if invert && !boolean {
        return Err(StepCode::AliasInvertNeedsBoolean);
    }
    match param.get("description").and_then(non_blank) {
        Some(_) => Ok(()),
        None => Err(StepCode::AliasParamDescriptionRequired),
    }
}
