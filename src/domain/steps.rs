//! The vocabulary of the step grammar (`steps.md`): verbs, bounds, reserved names, what a step is
//! refused for, and the receipt's mirror of what was placed.
//!
//! Does not know: how an envelope is read or compiled (`engine::compile`), status codes.
//!
//! Invariant: [`StepCode::code`] matches exhaustively, so a refusal without a code does not
//! compile.

use std::fmt;

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::ids::TaskKey;
use super::json::Value;
use super::words::{OnFailure, TaskKind, Visibility};

/// The verb of a leaf step. The fifth verb of the grammar, `parallel`, makes a group, not a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// A tool call.
    Tool,
    /// A model round.
    Model,
    /// A question to a person.
    Ask,
    /// An observation of other work.
    Wait,
}

impl Verb {
    /// Every leaf verb.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Model, Self::Ask, Self::Wait];

    /// The word, as written in a step and in minted keys.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Model => "model",
            Self::Ask => "ask",
            Self::Wait => "wait",
        }
    }

    /// The kind of row it compiles to (`steps.md` §3.7).
    pub const fn kind(self) -> TaskKind {
        match self {
            Self::Tool => TaskKind::Tool,
            Self::Model => TaskKind::Model,
            Self::Ask | Self::Wait => TaskKind::Await,
        }
    }

    /// The policy of a step that names none (`steps.md` §3.7).
    pub const fn default_on_failure(self) -> OnFailure {
        match self {
            Self::Model => OnFailure::Halt,
            Self::Tool | Self::Ask => OnFailure::Propagate,
            Self::Wait => OnFailure::Absorb,
        }
    }

    /// The visibility of a step that names none (`steps.md` §3.7).
    pub const fn default_visibility(self) -> Visibility {
        match self {
            Self::Model => Visibility::Visible,
            Self::Tool => Visibility::Collapsed,
            Self::Ask | Self::Wait => Visibility::Hidden,
        }
    }
}

/// The bounds of one envelope: request hygiene, never totals (`steps.md` §1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Leaf steps, all depths.
    pub steps: usize,
    /// Members of one group, and exits it leaves.
    pub fan: usize,
    /// Dependencies of one row, deduplicated.
    pub dependencies: usize,
    /// Reads of one model row: mainline and `results`.
    pub reads: usize,
}

impl Bounds {
    /// What a client may send.
    pub const CLIENT: Self = Self {
        steps: 64,
        fan: 32,
        dependencies: 32,
        reads: 33,
    };
    /// What the kernel may place at once: 256 calls and their continuation.
    pub const KERNEL: Self = Self {
        steps: 257,
        fan: 256,
        dependencies: 256,
        reads: 257,
    };
}

/// The most bytes of canonical JSON of one envelope `{"steps":[…]}`.
pub const ENVELOPE_BYTES: usize = 1_048_576;
/// The most bytes of canonical JSON of one tool call's input.
pub const TOOL_INPUT_BYTES: usize = 65_536;
/// The most bytes of canonical JSON of the tools one step declares.
pub const DECLARED_TOOLS_BYTES: usize = 1_048_576;
/// The longest authored clock: seven days.
pub const TIMEOUT_MS_MAX: i64 = 604_800_000;
/// The clock of a `wait` that names none: one hour.
pub const WAIT_TIMEOUT_MS: i64 = 3_600_000;
/// The most characters of a tool's name.
pub const TOOL_NAME_CHARS: usize = 128;
/// The most choices of an ask.
pub const ASK_OPTIONS: usize = 32;
/// The most fallback models of a step.
pub const FALLBACK_MODELS: usize = 8;

/// Dotted namespaces that belong to the kernel.
pub const RESERVED_NAMESPACES: [&str; 7] = [
    "nexus.graph",
    "nexus.human",
    "nexus.conversation",
    "nexus.tools",
    "nexus.runners",
    "nexus.skill",
    "nexus.memory",
];

/// Wire names that belong to the kernel (`executor.md` §4). `memory_*` are overridable and not
/// among them; a `skill` that a step routes to a Runner is the one exception a door makes.
pub const RESERVED_TOOL_NAMES: [&str; 11] = [
    "delegate_task",
    "ask",
    "spawn",
    "send",
    "wait",
    "tool_search",
    "tool_call",
    "runners_list",
    "session_search",
    "session_read",
    "skill",
];

/// Whether a name is the kernel's, in its wire or its dotted spelling.
pub fn is_reserved_tool_name(name: &str) -> bool {
    RESERVED_TOOL_NAMES.contains(&name)
        || RESERVED_NAMESPACES.iter().any(|space| {
            name.strip_prefix(space)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
}

/// Which model runs a step, and how it reasons (`models.md` §3). Absent controls take the model's
/// own defaults; an explicit `false` survives every inheritance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector {
    /// `provider/ref`.
    pub model: String,
    /// Whether it reasons.
    pub reasoning_enabled: Option<bool>,
    /// How hard, in the model's own word; independent of enablement.
    pub reasoning_effort: Option<String>,
}

impl Selector {
    /// The part before the first `/`: the connection's slug.
    pub fn provider(&self) -> &str {
        self.model.split_once('/').map_or("", |(slug, _)| slug)
    }

    /// The object as stored and served; absent controls stay absent.
    pub fn to_value(&self) -> Value {
        let mut members = super::json::Object::new();
        members.insert("model".into(), self.model.clone().into());
        if let Some(on) = self.reasoning_enabled {
            members.insert("reasoning_enabled".into(), on.into());
        }
        if let Some(effort) = &self.reasoning_effort {
            members.insert("reasoning_effort".into(), effort.clone().into());
        }
        Value::Object(members)
    }
}

/// Whether `provider/ref` is spelled well: a connection slug `[a-z0-9][a-z0-9_-]{0,63}`, a slash,
/// and a non-empty reference without blanks or control characters (`models.md` §1).
pub fn is_model_reference(text: &str) -> bool {
    let Some((slug, reference)) = text.split_once('/') else {
        return false;
    };
    let mut bytes = slug.bytes();
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.next().is_some_and(lower)
        && bytes.all(|b| lower(b) || b == b'_' || b == b'-')
        && slug.len() <= 64
        && !reference.is_empty()
        && !reference
            .chars()
            .any(|c| c.is_control() || c.is_whitespace())
}

/// Whether a step may be moved to another model (`models.md` §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ModelSelection {
    /// It may walk its fallback list.
    #[default]
    Auto,
    /// Its effective fallback list is empty.
    Fixed,
}

impl ModelSelection {
    /// The word of `mode`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fixed => "fixed",
        }
    }
}

/// How a run composes its prompts (`runs.md` §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptMechanism {
    /// As written.
    #[default]
    Raw,
    /// Assembled by the default template.
    Default,
    /// Assembled by a template of the workspace.
    Assembly,
}

impl PromptMechanism {
    /// Whether the kernel compiles the seed's prompt.
    pub const fn is_assembled(self) -> bool {
        !matches!(self, Self::Raw)
    }
}

macro_rules! step_codes {
    ($($(#[doc = $says:literal])+ $variant:ident = $code:literal,)*) => {
        /// Why one step, or the envelope, is refused (`steps.md` §2, §3, §10). Each code's
        /// description is what [`StepCode::says`] tells the client: what would be right.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum StepCode { $($(#[doc = $says])+ $variant,)* }

        impl StepCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The code on the wire.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// What would be right, in one or two sentences.
            pub const fn says(self) -> &'static str {
                match self { $(Self::$variant => concat!($($says),+).trim_ascii(),)* }
            }
        }
    };
}

step_codes! {
    // Stage A: shape.
    /// `steps` is an array of steps.
    StepsMustBeAnArray = "steps_must_be_an_array",
    /// A step is an object with one verb, and the verb's value is an object of options.
    StepMustBeAnObject = "step_must_be_an_object",
    /// A step has exactly one verb: `tool`, `model`, `ask`, `wait` or `parallel`.
    AmbiguousStep = "ambiguous_step",
    /// A step's verb is `tool`, `model`, `ask`, `wait` or `parallel`.
    UnknownStepVerb = "unknown_step_verb",
    /// Written order, `after` and `results` are the graph; edges and barriers are the kernel's.
    EdgeAuthoringRefused = "edge_authoring_refused",
    /// This verb has no such option.
    UnknownStepOption = "unknown_step_option",
    /// A group is a non-empty array of members, and a sequence in it a non-empty array of steps.
    EmptyParallel = "empty_parallel",
    // Stage B: bounds.
    /// One request holds at most 64 leaf steps, at all depths together.
    TooManySteps = "too_many_steps",
    /// A group has at most 32 members and leaves at most 32 exits.
    TooWideAFan = "too_wide_a_fan",
    /// The envelope has at most 1,048,576 bytes of canonical JSON.
    StepsPayloadTooLarge = "steps_payload_too_large",
    /// A tool's input has at most 65,536 bytes of canonical JSON.
    ToolInputTooLarge = "tool_input_too_large",
    // Stage B: every leaf.
    /// A key is 1 to 64 letters, digits, `_` or `-`, starting with a letter or digit.
    InvalidTaskKey = "invalid_task_key",
    /// A key is written once in an envelope.
    DuplicateTaskKey = "duplicate_task_key",
    /// `detached` is a boolean.
    InvalidDetached = "invalid_detached",
    /// `lifetime` is `turn` or `conversation`.
    InvalidLifetime = "invalid_lifetime",
    /// `wake` is `auto` or `passive`.
    InvalidWake = "invalid_wake",
    /// `on_failure` is `absorb`, `propagate` or `halt`; a group has one only when it races.
    InvalidOnFailure = "invalid_on_failure",
    /// `visibility` is `visible`, `collapsed` or `hidden`.
    InvalidVisibility = "invalid_visibility",
    /// `after` and `results` are arrays of keys.
    InvalidTaskReferences = "invalid_task_references",
    /// `timeout_ms` is an integer from 1 to 604,800,000.
    InvalidTimeoutMs = "invalid_timeout_ms",
    // Stage B: tool.
    /// A tool's `name` is a text of 1 to 128 characters.
    InvalidToolName = "invalid_tool_name",
    /// The name is a kernel tool's; only a `skill` routed to a Runner may be called by a step.
    ReservedToolName = "reserved_tool_name",
    /// `input` is an object that can be stored: no U+0000, no number beyond range, at most 100
    /// levels.
    InvalidToolInput = "invalid_tool_input",
    /// `route` is `{"kind":"runner"}`, with a `runner_executor_public_id` that is a UUID or left
    /// out.
    InvalidToolRoute = "invalid_tool_route",
    /// The run has no default Runner: name one in `runner_executor_public_id`.
    RunnerTargetRequired = "runner_target_required",
    /// The Runner is unknown or may not do this run's work.
    RunnerNotEligible = "runner_not_eligible",
    /// The Runner does not announce this tool.
    ToolNotServed = "tool_not_served",
    /// `model_defaults` is an object.
    InvalidModelDefaults = "invalid_model_defaults",
    /// `tool_call_id` is written by the kernel only.
    InvalidToolCallId = "invalid_tool_call_id",
    /// `alias` is written by the kernel only.
    InvalidToolAlias = "invalid_tool_alias",
    // Stage B: model.
    /// `model` is `{"model":"provider/ref"}`, with `reasoning_enabled` a boolean and
    /// `reasoning_effort` a text where they are given.
    InvalidModel = "invalid_model",
    /// The catalogue has no such model.
    UnknownModel = "unknown_model",
    /// The model cannot run now.
    ModelUnavailable = "model_unavailable",
    /// The model does not declare this effort.
    UnsupportedReasoningEffort = "unsupported_reasoning_effort",
    /// A `prompt` that is not blank is required.
    PromptRequired = "prompt_required",
    /// `prompt` is a text without U+0000.
    InvalidPrompt = "invalid_prompt",
    /// `instructions` is a text without U+0000.
    InvalidInstructions = "invalid_instructions",
    /// The first step has `instructions` only under the `raw` prompt mechanism.
    InstructionsRawOnly = "instructions_raw_only",
    /// Under an assembled prompt mechanism the first step is a model step.
    SeedNotAModelStep = "seed_not_a_model_step",
    /// `configuration` is an object that can be stored.
    InvalidConfiguration = "invalid_configuration",
    /// `configuration` holds parameters that the model declares, within their ranges.
    UnsupportedGenerationParameter = "unsupported_generation_parameter",
    /// `tools` is a non-empty array of declarations, each an object with a `name`, of at most
    /// 1,048,576 bytes.
    InvalidTools = "invalid_tools",
    /// The model cannot call tools.
    ToolsNotSupported = "tools_not_supported",
    /// A kernel tool is declared exactly as the kernel defines it.
    KernelToolRedefined = "kernel_tool_redefined",
    /// Declared tools have distinct names.
    DuplicateToolName = "duplicate_tool_name",
    /// An alias is `of` a kernel tool's wire name.
    AliasCanonicalUnknown = "alias_canonical_unknown",
    /// An alias has a name that is not the kernel's.
    AliasNameReserved = "alias_name_reserved",
    /// An alias parameter maps `to` a parameter of the kernel tool.
    AliasParamUnknown = "alias_param_unknown",
    /// `invert` is for boolean parameters.
    AliasInvertNeedsBoolean = "alias_invert_needs_boolean",
    /// An alias parameter has a `description`.
    AliasParamDescriptionRequired = "alias_param_description_required",
    /// `kernel_tools` is null or an array of distinct canonical names of kernel tools.
    InvalidKernelTools = "invalid_kernel_tools",
    /// `runner_executor_public_ids` is an array of distinct UUIDs.
    InvalidRunnerExecutors = "invalid_runner_executors",
    /// `runner_tool_names` is null or an array of distinct tool names.
    InvalidRunnerToolNames = "invalid_runner_tool_names",
    /// `compaction` is `{"mode":"kernel"|"delegate"|"off"}` with `tool_name`, `model`,
    /// `reasoning_enabled` and `reasoning_effort` where given; `delegate` needs a `tool_name`.
    InvalidCompaction = "invalid_compaction",
    /// Delegated compaction needs a run that an agent created.
    DelegateRequiresAgent = "delegate_requires_agent",
    /// `fan_on_failure` is `absorb` or `propagate`.
    InvalidFanOnFailure = "invalid_fan_on_failure",
    /// `attachments` is a non-empty array of distinct uploads that you staged.
    InvalidAttachments = "invalid_attachments",
    /// `model_selection` is `{"mode":"auto"|"fixed"}`; `fixed` has no fallback models of its own.
    InvalidModelSelection = "invalid_model_selection",
    /// `fallback_models` is an array of at most 8 model objects, distinct and known.
    InvalidFallbackModels = "invalid_fallback_models",
    // Stage B: ask and wait.
    /// `options` is an array of 1 to 32 texts that are not blank.
    InvalidAskOptions = "invalid_ask_options",
    /// `multi` is a boolean.
    InvalidAskMulti = "invalid_ask_multi",
    /// `run_public_id` is a UUID.
    InvalidRunPublicId = "invalid_run_public_id",
    // Stage B: parallel.
    /// `until` is `all`, `any` or an integer from 1.
    InvalidUntil = "invalid_until",
    /// `losers` is `cancel` or `run_out`, on a group that races.
    InvalidLosers = "invalid_losers",
    /// Only a group that races has a `key`.
    KeyNeedsARace = "key_needs_a_race",
    // Stage C: references.
    /// A list names a key once.
    DuplicateTaskReference = "duplicate_task_reference",
    /// A reference names a step or race placed earlier in this envelope, or a task of this run.
    UnknownTaskReference = "unknown_task_reference",
    // Stage D: graph.
    /// A step waits on at most 32 others.
    TooManyDependencies = "too_many_dependencies",
    /// A model step reads at most 33 others.
    TooManyReads = "too_many_reads",
    /// A race asks for at most as many successes as its members leave attached exits, and leaves
    /// at least one.
    UnsatisfiableUntil = "unsatisfiable_until",
    /// An envelope ends on one tip: put a step behind the group.
    FanNeedsFollower = "fan_needs_follower",
    /// A new run has at least one attached step.
    SeedNeedsATip = "seed_needs_a_tip",
}

impl fmt::Display for StepCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl Serialize for StepCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

/// One entry of `error.steps`: `{"code":"…","path":"…"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepError {
    /// What was wrong.
    pub code: StepCode,
    /// Where, as `steps.md` §2 spells it; none for what concerns the whole envelope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Why an envelope is refused as a whole. Nothing is written on any of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No steps at all.
    StepsRequired,
    /// `nodes` or `edges` beside `steps`.
    GraphAuthoringNotAvailable,
    /// One stage's errors, in written order, at most one a step; never empty.
    InvalidSteps(Vec<StepError>),
    /// A written key that the run already has: the door's conflict, judged after the grammar.
    DuplicateTaskKey(TaskKey),
}

impl Refusal {
    /// The top-level code of the error envelope.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::StepsRequired => "steps_required",
            Self::GraphAuthoringNotAvailable => "graph_authoring_not_available",
            Self::InvalidSteps(_) => "invalid_steps",
            Self::DuplicateTaskKey(_) => "duplicate_task_key",
        }
    }

    /// What stands under `error.steps`; empty unless the code is `invalid_steps`.
    pub fn steps(&self) -> &[StepError] {
        match self {
            Self::InvalidSteps(errors) => errors,
            _ => &[],
        }
    }
}

/// One sentence for people: the first reason and where it stands, and how many follow.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StepsRequired => f.write_str("`steps` needs at least one step."),
            Self::GraphAuthoringNotAvailable => f.write_str(
                "`nodes` and `edges` are not available: write `steps`, whose order is the graph.",
            ),
            Self::DuplicateTaskKey(key) => write!(f, "The run already has a task `{key}`."),
            Self::InvalidSteps(errors) => {
                let first = errors.first();
                if let Some(path) = first.and_then(|e| e.path.as_deref()) {
                    write!(f, "{path}: ")?;
                }
                f.write_str(first.map_or("", |e| e.code.says()))?;
                match errors.len() {
                    0 | 1 => Ok(()),
                    n => write!(f, " (And {} more.)", n - 1),
                }
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// Why a `wait` step is refused. Judged by the door once its facts about other runs are known, for
/// the envelope as a whole (`steps.md` §3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitRefusal {
    /// Unknown, inaccessible or written later.
    TargetNotFound,
    /// It would wait for itself.
    Cycle,
}

impl WaitRefusal {
    /// The code on the wire.
    pub const fn code(self) -> &'static str {
        match self {
            Self::TargetNotFound => "wait_target_not_found",
            Self::Cycle => "wait_cycle",
        }
    }
}

/// One step of the receipt: the request tree by key (`steps.md` §7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mirror {
    /// A leaf.
    Key(TaskKey),
    /// A sequence inside a group: an array.
    Sequence(Vec<Mirror>),
    /// A group: `{"parallel":[…]}`, and its barrier's `key` when it races.
    Group {
        /// The members.
        parallel: Vec<Mirror>,
        /// The barrier.
        key: Option<TaskKey>,
    },
}

impl Serialize for Mirror {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Key(key) => key.serialize(serializer),
            Self::Sequence(steps) => steps.serialize(serializer),
            Self::Group { parallel, key } => {
                let mut map = serializer.serialize_map(Some(1 + usize::from(key.is_some())))?;
                map.serialize_entry("parallel", parallel)?;
                if let Some(key) = key {
                    map.serialize_entry("key", key)?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_names_are_reserved_in_both_spellings() {
        // executor.md §4, "Reserved"
        for name in [
            "wait",
            "skill",
            "nexus.graph.wait",
            "nexus.human",
            "nexus.tools.call",
        ] {
            assert!(is_reserved_tool_name(name), "{name}");
        }
        for name in [
            "Wait",
            "waiting",
            "memory_read",
            "nexus.graphics",
            "status",
            "nexus",
        ] {
            assert!(!is_reserved_tool_name(name), "{name}");
        }
    }

    #[test]
    fn every_code_is_spelled_once() {
        let mut codes: Vec<_> = StepCode::ALL.iter().map(|c| c.code()).collect();
        codes.sort_unstable();
        let all = codes.len();
        codes.dedup();
        assert_eq!(codes.len(), all);
        let ends_well = |c: &&StepCode| c.says().ends_with('.') && !c.says().contains("  ");
        assert_eq!(StepCode::ALL.iter().filter(ends_well).count(), all);
    }

    #[test]
    fn a_refusal_says_what_would_be_right_and_where() {
        let error = |code, path: &str| StepError {
            code,
            path: Some(path.to_owned()),
        };
        let refusal = Refusal::InvalidSteps(vec![
            error(StepCode::InvalidWake, "steps[0].wake"),
            error(StepCode::PromptRequired, "steps[1].prompt"),
        ]);
        assert_eq!(
            refusal.to_string(),
            "steps[0].wake: `wake` is `auto` or `passive`. (And 1 more.)"
        );
    }
}
