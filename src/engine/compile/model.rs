//! Stage B of a model's request surface: a `model` step and a tool's `model_defaults`
//! (`steps.md` §3.3, `models.md` §3, §4, §14).
//!
//! Does not know: how imports are assembled, which fallback is taken.

use super::compiled::ModelRound;
use super::context::{Compaction, CompactionMode, ModelContext, ModelDefaults, Names};
use super::facts::{Catalogue, Facts, ModelCapabilities, ModelVerdict, Parameter, ParameterKind};
use super::fields::{Fields, closed, distinct, non_blank, public_id};
use super::report::Bad;
use super::tool::tool_name;
use super::tools;
use crate::domain::ids::PublicId;
use crate::domain::json::{Canonical, Object, Value};
use crate::domain::steps::{
    FALLBACK_MODELS, ModelSelection, Selector, StepCode, is_model_reference,
};
use crate::domain::words::{AuthoredBy, MemberKind};

/// Reads model surfaces under the facts about models.
pub(super) struct Models<'a> {
    facts: &'a Facts,
}

/// What is known of the model a surface is for: nothing, when the catalogue was not consulted or
/// the surface names no model.
type Known<'a> = Option<&'a ModelCapabilities>;

impl<'a> Models<'a> {
    /// With the door's facts.
    pub fn new(facts: &'a Facts) -> Self {
        Self { facts }
    }

    /// The options of a model step.
    pub fn round(&self, fields: &Fields) -> Result<ModelRound, Bad> {
        let named = self.model(fields)?;
        let (model, known) = named.ok_or_else(|| fields.bad("model", StepCode::InvalidModel))?;
        Ok(ModelRound {
            model,
            prompt: fields.prompt()?,
            context: self.context(fields, known)?,
            attachments: self.attachments(fields)?,
        })
    }

    /// The members of `model_defaults`.
    pub fn defaults(&self, fields: &Fields) -> Result<ModelDefaults, Bad> {
        let named = self.model(fields)?;
        let (model, known) = match named {
            Some((model, known)) => (Some(model), known),
            None => (None, None),
        };
        Ok(ModelDefaults {
            model,
            context: self.context(fields, known)?,
            on_failure: fields.word("on_failure", StepCode::InvalidOnFailure)?,
            fan_on_failure: fields.fan_policy()?,
        })
    }

    fn model(&self, fields: &Fields) -> Result<Option<(Selector, Known<'a>)>, Bad> {
        let Some(model) = fields.read("model", StepCode::InvalidModel, selector)? else {
            return Ok(None);
        };
        let known = self.capabilities(&model.model);
        let known = known.map_err(|code| fields.bad("model", code))?;
        if !knows_effort(known, model.reasoning_effort.as_deref()) {
            return Err(fields.bad("model", StepCode::UnsupportedReasoningEffort));
        }
        Ok(Some((model, known)))
    }

    fn capabilities(&self, reference: &str) -> Result<Known<'a>, StepCode> {
        let Catalogue::Consulted(models) = &self.facts.catalogue else {
            return Ok(None);
        };
        match models.get(reference) {
            None | Some(ModelVerdict::Unknown) => Err(StepCode::UnknownModel),
            Some(ModelVerdict::Unavailable) => Err(StepCode::ModelUnavailable),
            Some(ModelVerdict::Usable(capabilities)) => Ok(Some(capabilities)),
        }
    }

    fn context(&self, fields: &Fields, known: Known) -> Result<ModelContext, Bad> {
        let instructions = fields.text("instructions", StepCode::InvalidInstructions)?;
        let configuration = configuration(fields, known)?;
        let tools = self.tools(fields, known)?;
        let kernel_tools = names(fields, "kernel_tools", StepCode::InvalidKernelTools, |v| {
            let name = v.as_str()?;
            let known = self.facts.kernel_tools.contains_key(name);
            known.then(|| name.to_owned())
        })?;
        let runners = fields.read(
            "runner_executor_public_ids",
            StepCode::InvalidRunnerExecutors,
            |value| distinct(value, public_id),
        )?;
        let runner_tool_names = names(
            fields,
            "runner_tool_names",
            StepCode::InvalidRunnerToolNames,
            tool_name,
        )?;
        let compaction = self.compaction(fields)?;
        let (model_selection, fallback_models) = self.recovery(fields)?;
        Ok(ModelContext {
            instructions,
            configuration,
            tools,
            kernel_tools,
            runner_executor_public_ids: runners,
            runner_tool_names,
            compaction,
            model_selection,
            fallback_models,
        })
    }

    fn tools(&self, fields: &Fields, known: Known) -> Result<Option<Canonical>, Bad> {
        let Some(value) = fields.get("tools") else {
            return Ok(None);
        };
        let refuse = |code| fields.bad("tools", code);
        let text = tools::declared(value).ok_or_else(|| refuse(StepCode::InvalidTools))?;
        if known.is_some_and(|model| !model.tool_calls) {
            return Err(refuse(StepCode::ToolsNotSupported));
        }
        tools::check(value, &self.facts.kernel_tools).map_err(refuse)?;
        Ok(Some(text))
    }

    fn compaction(&self, fields: &Fields) -> Result<Option<Compaction>, Bad> {
        let read = fields.read("compaction", StepCode::InvalidCompaction, compaction)?;
        let delegates = |c: &Compaction| c.mode == CompactionMode::Delegate;
        if read.as_ref().is_some_and(delegates) && self.facts.creator != MemberKind::Agent {
            return Err(fields.bad("compaction", StepCode::DelegateRequiresAgent));
        }
        Ok(read)
    }

    /// The captured intent and list: the surface's own, or the run's (`models.md` §4).
    fn recovery(&self, fields: &Fields) -> Result<(ModelSelection, Vec<Selector>), Bad> {
        let selection = fields.read(
            "model_selection",
            StepCode::InvalidModelSelection,
            model_selection,
        )?;
        let list = fields.read(
            "fallback_models",
            StepCode::InvalidFallbackModels,
            fallback_models,
        )?;
        let own = list.as_deref().unwrap_or_default();
        if selection == Some(ModelSelection::Fixed) && !own.is_empty() {
            return Err(fields.bad("model_selection", StepCode::InvalidModelSelection));
        }
        if !own.iter().all(|model| self.may_fall_back_to(model)) {
            return Err(fields.bad("fallback_models", StepCode::InvalidFallbackModels));
        }
        Ok((
            selection.unwrap_or(self.facts.model_selection),
            list.unwrap_or_else(|| self.facts.fallback_models.clone()),
        ))
    }

    /// A fallback is known and knows its effort; whether it can run is judged when its turn comes.
    fn may_fall_back_to(&self, model: &Selector) -> bool {
        match self.capabilities(&model.model) {
            Ok(known) => knows_effort(known, model.reasoning_effort.as_deref()),
            Err(code) => code == StepCode::ModelUnavailable,
        }
    }

    /// Uploads are a member's to attach, never a model's or the kernel's.
    fn attachments(&self, fields: &Fields) -> Result<Vec<PublicId>, Bad> {
        let usable = |value: &Value| {
            let id = public_id(value)?;
            self.facts.uploads.contains(&id).then_some(id)
        };
        let read = fields.read("attachments", StepCode::InvalidAttachments, |value| {
            let ids = distinct(value, usable)?;
            let authored = self.facts.authored_by == AuthoredBy::Author;
            (authored && !ids.is_empty()).then_some(ids)
        })?;
        Ok(read.unwrap_or_default())
    }
}

fn knows_effort(known: Known, effort: Option<&str>) -> bool {
    match (known, effort) {
        (Some(model), Some(effort)) => model.efforts.contains(effort),
        _ => true,
    }
}

/// `{model:"provider/ref", reasoning_enabled?, reasoning_effort?}`.
pub(super) fn selector(value: &Value) -> Option<Selector> {
    let fields = closed(value, &["model", "reasoning_enabled", "reasoning_effort"])?;
    let (reasoning_enabled, reasoning_effort) = reasoning(&fields)?;
    Some(Selector {
        model: reference(fields.get("model")?)?,
        reasoning_enabled,
        reasoning_effort,
    })
}

fn reference(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    is_model_reference(text).then(|| text.to_owned())
}

/// The two controls: absent, or of their type.
fn reasoning(fields: &Fields) -> Option<(Option<bool>, Option<String>)> {
    let enabled = match fields.get("reasoning_enabled") {
        None => None,
        Some(value) => Some(value.as_bool()?),
    };
    let effort = match fields.get("reasoning_effort") {
        None => None,
        Some(value) => Some(non_blank(value)?),
    };
    Some((enabled, effort))
}

fn configuration(fields: &Fields, known: Known) -> Result<Option<Canonical>, Bad> {
    let read = fields.read("configuration", StepCode::InvalidConfiguration, |value| {
        Some((value.as_object()?, value.canonical().ok()?))
    })?;
    let Some((members, text)) = read else {
        return Ok(None);
    };
    if known.is_some_and(|model| !declares(model, members)) {
        return Err(fields.bad("configuration", StepCode::UnsupportedGenerationParameter));
    }
    Ok(Some(text))
}

fn declares(model: &ModelCapabilities, members: &Object) -> bool {
    members.iter().all(|(name, value)| {
        let declared = model.parameters.get(name);
        declared.is_some_and(|parameter| takes(parameter, value))
    })
}

/// Whether a value is one of a parameter's. A bound on an integer beyond 64 bits is judged on the
/// nearest double, which is exact enough to tell it from any bound a catalogue declares.
fn takes(parameter: &Parameter, value: &Value) -> bool {
    let number = match value {
        Value::Int(n) => n.as_str().parse().ok(),
        Value::Float(f) => Some(*f),
        _ => None,
    };
    let right_kind = match parameter.kind {
        ParameterKind::Integer => matches!(value, Value::Int(_)),
        ParameterKind::Number => number.is_some(),
        ParameterKind::Boolean => matches!(value, Value::Bool(_)),
        ParameterKind::Text => matches!(value, Value::Str(_)),
    };
    let within = number.is_none_or(|n: f64| {
        parameter.minimum.is_none_or(|min| n >= min) && parameter.maximum.is_none_or(|max| n <= max)
    });
    let allowed = parameter.allowed.as_ref();
    right_kind && within && allowed.is_none_or(|values| values.contains(value))
}

fn names(
    fields: &Fields,
    name: &str,
    code: StepCode,
    item: impl Fn(&Value) -> Option<String>,
) -> Result<Names, Bad> {
    match fields.written(name) {
        None => Ok(Names::Omitted),
        Some(Value::Null) => Ok(Names::Null),
        Some(value) => match distinct(value, item) {
            Some(names) => Ok(Names::Listed(names)),
            None => Err(fields.bad(name, code)),
        },
    }
}

fn compaction(value: &Value) -> Option<Compaction> {
    let fields = closed(
        value,
        &[
            "mode",
            "tool_name",
            "model",
            "reasoning_enabled",
            "reasoning_effort",
        ],
    )?;
    let word = fields.get("mode")?.as_str()?;
    let mode = CompactionMode::ALL
        .into_iter()
        .find(|mode| mode.as_str() == word)?;
    let tool_name = match fields.get("tool_name") {
        None => None,
        Some(value) => Some(tool_name(value)?),
    };
    let model = match fields.get("model") {
        None => None,
        Some(value) => Some(reference(value)?),
    };
    if mode == CompactionMode::Delegate && tool_name.is_none() {
        return None;
    }
    let (reasoning_enabled, reasoning_effort) = reasoning(&fields)?;
    Some(Compaction {
        mode,
        tool_name,
        model,
        reasoning_enabled,
        reasoning_effort,
    })
}

/// `{mode: auto|fixed}`: what a step or a run captures as its intent (`models.md` §4).
///
/// Gives none when the value is anything else; the caller refuses it with
/// [`StepCode::InvalidModelSelection`].
pub fn model_selection(value: &Value) -> Option<ModelSelection> {
    let fields = closed(value, &["mode"])?;
    match fields.get("mode")?.as_str()? {
        "auto" => Some(ModelSelection::Auto),
        "fixed" => Some(ModelSelection::Fixed),
        _ => None,
    }
}

/// 0 to 8 model objects, none twice (`models.md` §4); whether they are known is not judged here.
///
/// Gives none when the value is anything else; the caller refuses it with
/// [`StepCode::InvalidFallbackModels`].
pub fn fallback_models(value: &Value) -> Option<Vec<Selector>> {
    let models: Vec<Selector> = super::fields::list(value, selector)?;
    let repeated =
        (1..models.len()).any(|i| models[..i].iter().any(|m| m.model == models[i].model));
    (models.len() <= FALLBACK_MODELS && !repeated).then_some(models)
}
