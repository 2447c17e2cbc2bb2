//! A model's request surface as data: what a model step and a tool's `model_defaults` share.
//!
//! Does not know: how the surface is assembled into a request, what imported tools are.

use std::collections::BTreeMap;

use super::compiled::{ids, storable};
use super::text::object_text;
use crate::domain::ids::PublicId;
use crate::domain::json::{Canonical, Object, Value};
use crate::domain::steps::{ModelSelection, Selector};
use crate::domain::words::OnFailure;

/// What a model is asked with, beside its own reference and the prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelContext {
    /// The system channel, one block.
    pub instructions: Option<String>,
    /// Declared generation parameters: an object.
    pub configuration: Option<Canonical>,
    /// The declared tools, verbatim: a non-empty array of objects.
    pub tools: Option<Canonical>,
    /// The kernel tools, by canonical name.
    pub kernel_tools: Names,
    /// The Runners whose tools are imported, in candidate order.
    pub runner_executor_public_ids: Option<Vec<PublicId>>,
    /// Which of their tools.
    pub runner_tool_names: Names,
    /// What to do when the history grows too long.
    pub compaction: Option<Compaction>,
    /// Written, or the run's.
    pub model_selection: ModelSelection,
    /// Written, or the run's; see [`ModelContext::effective_fallbacks`].
    pub fallback_models: Vec<Selector>,
}

impl ModelContext {
    /// The models recovery may switch to: none when the selection is fixed (`models.md` §4).
    pub fn effective_fallbacks(&self) -> &[Selector] {
        match self.model_selection {
            ModelSelection::Auto => &self.fallback_models,
            ModelSelection::Fixed => &[],
        }
    }

    /// The members as canonical texts under the grammar's names. What was omitted is absent; the
    /// captured `model_selection` and `fallback_models` are always there.
    pub fn parts(&self) -> BTreeMap<&'static str, Canonical> {
        let mut parts = BTreeMap::new();
        if let Some(text) = &self.instructions {
            parts.insert("instructions", storable(&text.as_str().into()));
        }
        if let Some(object) = &self.configuration {
            parts.insert("configuration", object.clone());
        }
        if let Some(tools) = &self.tools {
            parts.insert("tools", tools.clone());
        }
        if let Some(value) = self.kernel_tools.to_value() {
            parts.insert("kernel_tools", storable(&value));
        }
        if let Some(list) = &self.runner_executor_public_ids {
            parts.insert("runner_executor_public_ids", storable(&ids(list)));
        }
        if let Some(value) = self.runner_tool_names.to_value() {
            parts.insert("runner_tool_names", storable(&value));
        }
        if let Some(compaction) = &self.compaction {
            parts.insert("compaction", storable(&compaction.to_value()));
        }
        let mode = Value::from([("mode", self.model_selection.as_str().into())]);
        parts.insert("model_selection", storable(&mode));
        let list = self.fallback_models.iter().map(Selector::to_value);
        parts.insert("fallback_models", storable(&Value::Array(list.collect())));
        parts
    }
}

/// The child-authoring context of a standalone tool: `model_defaults`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelDefaults {
    /// None in a tool-only context.
    pub model: Option<Selector>,
    /// The policy of a model child, when written.
    pub on_failure: Option<OnFailure>,
    /// The policy of its fans, when written.
    pub fan_on_failure: Option<OnFailure>,
    /// The rest.
    pub context: ModelContext,
}

impl ModelDefaults {
    /// One canonical object: `model`, `on_failure`, `fan_on_failure` where written, and the members
    /// of [`ModelContext::parts`].
    pub fn canonical(&self) -> Canonical {
        let mut parts = self.context.parts();
        if let Some(model) = &self.model {
            parts.insert("model", storable(&model.to_value()));
        }
        for (name, policy) in [
            ("on_failure", self.on_failure),
            ("fan_on_failure", self.fan_on_failure),
        ] {
            if let Some(policy) = policy {
                parts.insert(name, storable(&policy.as_str().into()));
            }
        }
        object_text(&parts)
    }
}

/// A list of names of which absence and `null` say different things: `kernel_tools: null` is none,
/// `runner_tool_names: null` is all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Names {
    /// Not written.
    #[default]
    Omitted,
    /// `null`.
    Null,
    /// These, in order.
    Listed(Vec<String>),
}

impl Names {
    /// As written; none when nothing was.
    pub fn to_value(&self) -> Option<Value> {
        match self {
            Self::Omitted => None,
            Self::Null => Some(Value::Null),
            Self::Listed(names) => Some(Value::Array(
                names.iter().map(|name| name.as_str().into()).collect(),
            )),
        }
    }
}

/// Who compacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompactionMode {
    /// The kernel.
    Kernel,
    /// A tool of the agent that created the run.
    Delegate,
    /// Nobody.
    Off,
}

impl CompactionMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Kernel, Self::Delegate, Self::Off];

    /// The word of `mode`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Delegate => "delegate",
            Self::Off => "off",
        }
    }
}

/// What to do when the history grows too long (`models.md` §14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// Who does it.
    pub mode: CompactionMode,
    /// By which tool; always there under `delegate`.
    pub tool_name: Option<String>,
    /// By which model.
    pub model: Option<String>,
    /// Whether that model reasons.
    pub reasoning_enabled: Option<bool>,
    /// How hard.
    pub reasoning_effort: Option<String>,
}

impl Compaction {
    /// The object as written.
    pub fn to_value(&self) -> Value {
        let mut members = Object::new();
        members.insert("mode".into(), self.mode.as_str().into());
        for (name, text) in [
            ("tool_name", &self.tool_name),
            ("model", &self.model),
            ("reasoning_effort", &self.reasoning_effort),
        ] {
            if let Some(text) = text {
                members.insert(name.into(), text.as_str().into());
            }
        }
        if let Some(on) = self.reasoning_enabled {
            members.insert("reasoning_enabled".into(), on.into());
        }
        Value::Object(members)
    }
}
