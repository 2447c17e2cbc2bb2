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
    ($($(#[$doc:meta])* $variant:ident = $code:literal,)*) => {
        /// Why one step, or the envelope, is refused (`steps.md` §2, §3, §10).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum StepCode { $($(#[$doc])* $variant,)* }

        impl StepCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The code on the wire.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
        }
    };
}

step_codes! {
    // Stage A: shape.
    /// `steps` is no array.
    StepsMustBeAnArray = "steps_must_be_an_array",
    /// A step, or the value of its verb, is no object.
    StepMustBeAnObject = "step_must_be_an_object",
    /// Two verbs in one step.
    AmbiguousStep = "ambiguous_step",
    /// No verb of the grammar.
    UnknownStepVerb = "unknown_step_verb",
    /// A word by which one would author edges.
    EdgeAuthoringRefused = "edge_authoring_refused",
    /// An option the verb does not have.
    UnknownStepOption = "unknown_step_option",
    /// A group or a sequence without steps.
    EmptyParallel = "empty_parallel",
    // Stage B: bounds.
    /// Too many leaf steps.
    TooManySteps = "too_many_steps",
    /// Too many members or exits of one group.
    TooWideAFan = "too_wide_a_fan",
    /// The envelope is too large.
    StepsPayloadTooLarge = "steps_payload_too_large",
    /// A tool's input is too large.
    ToolInputTooLarge = "tool_input_too_large",
    // Stage B: every leaf.
    /// No key.
    InvalidTaskKey = "invalid_task_key",
    /// A key written twice.
    DuplicateTaskKey = "duplicate_task_key",
    /// No boolean.
    InvalidDetached = "invalid_detached",
    /// No lifetime.
    InvalidLifetime = "invalid_lifetime",
    /// No wake.
    InvalidWake = "invalid_wake",
    /// No policy, or a policy on an `all` group.
    InvalidOnFailure = "invalid_on_failure",
    /// No visibility.
    InvalidVisibility = "invalid_visibility",
    /// `after` or `results` is no array of keys.
    InvalidTaskReferences = "invalid_task_references",
    /// No clock of 1 ms to seven days.
    InvalidTimeoutMs = "invalid_timeout_ms",
    // Stage B: tool.
    /// No name of 1 to 128 characters.
    InvalidToolName = "invalid_tool_name",
    /// A kernel tool's name.
    ReservedToolName = "reserved_tool_name",
    /// The input is no storable object.
    InvalidToolInput = "invalid_tool_input",
    /// The route is malformed.
    InvalidToolRoute = "invalid_tool_route",
    /// A route without id, and the run has no default Runner.
    RunnerTargetRequired = "runner_target_required",
    /// The target is not eligible.
    RunnerNotEligible = "runner_not_eligible",
    /// The target does not announce the tool.
    ToolNotServed = "tool_not_served",
    /// `model_defaults` is no object.
    InvalidModelDefaults = "invalid_model_defaults",
    /// Never a client's.
    InvalidToolCallId = "invalid_tool_call_id",
    /// Never a client's.
    InvalidToolAlias = "invalid_tool_alias",
    // Stage B: model.
    /// No model object.
    InvalidModel = "invalid_model",
    /// A model the catalogue does not have.
    UnknownModel = "unknown_model",
    /// A model that cannot run now.
    ModelUnavailable = "model_unavailable",
    /// An effort the model does not have.
    UnsupportedReasoningEffort = "unsupported_reasoning_effort",
    /// No prompt, or a blank one.
    PromptRequired = "prompt_required",
    /// The prompt is no storable text.
    InvalidPrompt = "invalid_prompt",
    /// The instructions are no storable text.
    InvalidInstructions = "invalid_instructions",
    /// Instructions on a seed the kernel assembles.
    InstructionsRawOnly = "instructions_raw_only",
    /// A seed the kernel assembles must be a model step.
    SeedNotAModelStep = "seed_not_a_model_step",
    /// The configuration is no storable object.
    InvalidConfiguration = "invalid_configuration",
    /// A parameter the model does not declare, or out of its range.
    UnsupportedGenerationParameter = "unsupported_generation_parameter",
    /// The tools are no non-empty array of declarations within bounds.
    InvalidTools = "invalid_tools",
    /// The model cannot call tools.
    ToolsNotSupported = "tools_not_supported",
    /// A kernel tool declared otherwise than the kernel does.
    KernelToolRedefined = "kernel_tool_redefined",
    /// Two declared tools of one name.
    DuplicateToolName = "duplicate_tool_name",
    /// An alias of no kernel tool.
    AliasCanonicalUnknown = "alias_canonical_unknown",
    /// An alias spelled as a kernel tool.
    AliasNameReserved = "alias_name_reserved",
    /// An alias parameter that maps to none.
    AliasParamUnknown = "alias_param_unknown",
    /// `invert` on a parameter that is no boolean.
    AliasInvertNeedsBoolean = "alias_invert_needs_boolean",
    /// An alias parameter without description.
    AliasParamDescriptionRequired = "alias_param_description_required",
    /// No array of canonical kernel names.
    InvalidKernelTools = "invalid_kernel_tools",
    /// No array of runner ids.
    InvalidRunnerExecutors = "invalid_runner_executors",
    /// No array of tool names.
    InvalidRunnerToolNames = "invalid_runner_tool_names",
    /// The compaction is malformed.
    InvalidCompaction = "invalid_compaction",
    /// Delegated compaction on a run no agent created.
    DelegateRequiresAgent = "delegate_requires_agent",
    /// No fan policy.
    InvalidFanOnFailure = "invalid_fan_on_failure",
    /// No non-empty array of usable upload ids.
    InvalidAttachments = "invalid_attachments",
    /// The selection is malformed or contradicts the step's own list.
    InvalidModelSelection = "invalid_model_selection",
    /// No array of up to eight distinct known models.
    InvalidFallbackModels = "invalid_fallback_models",
    // Stage B: ask and wait.
    /// No array of 1 to 32 non-blank texts.
    InvalidAskOptions = "invalid_ask_options",
    /// No boolean.
    InvalidAskMulti = "invalid_ask_multi",
    /// No UUID.
    InvalidRunPublicId = "invalid_run_public_id",
    // Stage B: parallel.
    /// No `all`, `any` or positive integer.
    InvalidUntil = "invalid_until",
    /// No word for losers, or losers of an `all` group.
    InvalidLosers = "invalid_losers",
    /// A key on a group that places no row.
    KeyNeedsARace = "key_needs_a_race",
    // Stage C: references.
    /// A list that names one key twice.
    DuplicateTaskReference = "duplicate_task_reference",
    /// A name of nothing that was placed before.
    UnknownTaskReference = "unknown_task_reference",
    // Stage D: graph.
    /// Too many dependencies of one row.
    TooManyDependencies = "too_many_dependencies",
    /// Too many reads of one row.
    TooManyReads = "too_many_reads",
    /// More successes wanted than attached exits can give.
    UnsatisfiableUntil = "unsatisfiable_until",
    /// The envelope ends on several tips.
    FanNeedsFollower = "fan_needs_follower",
    /// The envelope of a create ends on no tip.
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
    }
}
