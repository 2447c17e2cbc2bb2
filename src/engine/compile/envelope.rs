//! Stage A: the shape of an envelope, and what compiling it will need to know.
//!
//! [`Envelope::read`] needs no facts. It judges shape completely (arrays, objects, one verb, option
//! names) and nothing else: whether a value is right is stage B's business, because some values are
//! judged by facts and one report holds both. [`Envelope::wants`] therefore reads values leniently
//! and leaves out what stage B will refuse anyway.
//!
//! Does not know: facts, rows.

use std::collections::BTreeSet;

use super::report::{Report, Spot};
use super::text::measured_len;
use crate::domain::ids::{PublicId, TaskKey};
use crate::domain::json::{Object, Value};
use crate::domain::shown;
use crate::domain::steps::{Refusal, StepCode, StepError, Verb};

/// Words by which one would author edges; refused by name wherever they stand as an option
/// (`steps.md` §2).
const EDGE_WORDS: [&str; 13] = [
    "tasks",
    "depends_on",
    "input_from",
    "kind",
    "mode",
    "quorum_k",
    "loser_policy",
    "serial",
    "join",
    "reading",
    "detach",
    "deliverable",
    "window",
];

/// Words of the same kind that only ever stood beside `steps` (`runs.md` §3, §5).
const SHELL_WORDS: [&str; 2] = ["tools", "compaction_policy"];

/// Whether a member beside `steps` is refused by name, since it would author the graph.
pub fn is_graph_word(name: &str) -> bool {
    EDGE_WORDS.contains(&name) || SHELL_WORDS.contains(&name)
}

const COMMON: [&str; 7] = [
    "key",
    "detached",
    "lifetime",
    "wake",
    "on_failure",
    "visibility",
    "after",
];
const TOOL: [&str; 7] = [
    "name",
    "input",
    "route",
    "timeout_ms",
    "model_defaults",
    "tool_call_id",
    "alias",
];
const MODEL: [&str; 14] = [
    "model",
    "prompt",
    "instructions",
    "configuration",
    "tools",
    "kernel_tools",
    "runner_executor_public_ids",
    "runner_tool_names",
    "compaction",
    "fan_on_failure",
    "attachments",
    "results",
    "model_selection",
    "fallback_models",
];
const ASK: [&str; 4] = ["prompt", "options", "multi", "timeout_ms"];
const WAIT: [&str; 3] = ["task", "run_public_id", "timeout_ms"];
const GROUP: [&str; 6] = ["until", "losers", "key", "on_failure", "lifetime", "wake"];
const DEFAULTS: [&str; 12] = [
    "model",
    "configuration",
    "tools",
    "instructions",
    "compaction",
    "on_failure",
    "fan_on_failure",
    "kernel_tools",
    "runner_executor_public_ids",
    "runner_tool_names",
    "model_selection",
    "fallback_models",
];

const fn options_of(verb: Verb) -> &'static [&'static str] {
    match verb {
        Verb::Tool => &TOOL,
        Verb::Model => &MODEL,
        Verb::Ask => &ASK,
        Verb::Wait => &WAIT,
    }
}

/// The options of a verb, those of every leaf first.
pub fn options(verb: Verb) -> impl Iterator<Item = &'static str> {
    COMMON.into_iter().chain(options_of(verb).iter().copied())
}

/// A step whose shape is right.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    Leaf(LeafShape),
    Group(GroupShape),
}

/// A leaf and its options as written.
#[derive(Debug, Clone)]
pub(super) struct LeafShape {
    pub at: Spot,
    pub verb: Verb,
    pub options: Object,
}

/// A group, the options beside it, and its members.
#[derive(Debug, Clone)]
pub(super) struct GroupShape {
    pub at: Spot,
    pub options: Object,
    pub members: Vec<Member<Shape>>,
}

/// A member of a group: one step, or a sequence of steps run one after another.
#[derive(Debug, Clone)]
pub(super) enum Member<S> {
    Step(S),
    Sequence(Vec<S>),
}

impl<S> Member<S> {
    /// The steps of the member, in order.
    pub fn steps(&self) -> &[S] {
        match self {
            Self::Step(step) => std::slice::from_ref(step),
            Self::Sequence(steps) => steps,
        }
    }
}

/// An envelope of the right shape.
#[derive(Debug, Clone)]
pub struct Envelope {
    pub(super) steps: Vec<Shape>,
    pub(super) bytes: usize,
    wants: Wants,
}

/// What must be looked up before an envelope can be compiled: the questions that
/// [`Facts`](super::Facts) answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wants {
    /// Keys written on steps and races.
    pub written: BTreeSet<TaskKey>,
    /// All keys that may belong to the run: written ones, and those named by `after`, `results`
    /// and waits on this run.
    pub keys: BTreeSet<TaskKey>,
    /// Tasks of runs named by `run_public_id`, which may be this one.
    pub waits: BTreeSet<(PublicId, TaskKey)>,
    /// Routed calls: the target (none: the run's default Runner) and the tool.
    pub routes: BTreeSet<(Option<PublicId>, String)>,
    /// Runners whose tools are to be imported.
    pub runners: BTreeSet<PublicId>,
    /// Models, as `provider/ref`.
    pub models: BTreeSet<String>,
    /// Uploads.
    pub uploads: BTreeSet<PublicId>,
}

/// Refuses `nodes` and `edges` beside `steps` (`steps.md` §2): `body` is the object they stand in.
///
/// # Errors
/// [`Refusal::GraphAuthoringNotAvailable`].
pub fn refuse_graph_words(body: &Object) -> Result<(), Refusal> {
    if body.contains_key("nodes") || body.contains_key("edges") {
        Err(Refusal::GraphAuthoringNotAvailable)
    } else {
        Ok(())
    }
}

impl Envelope {
    /// Reads the value of `steps`. `null` is no steps, like an empty array; an append that only
    /// resolves has no envelope.
    ///
    /// # Errors
    /// [`Refusal::StepsRequired`], or stage A of `steps.md` §2 as [`Refusal::InvalidSteps`].
    pub fn read(steps: &Value) -> Result<Self, Refusal> {
        let items = match steps {
            Value::Null => return Err(Refusal::StepsRequired),
            Value::Array(items) if items.is_empty() => return Err(Refusal::StepsRequired),
            Value::Array(items) => items,
            _ => {
                return Err(Refusal::InvalidSteps(vec![StepError {
                    code: StepCode::StepsMustBeAnArray,
                    path: None,
                }]));
            }
        };
        let mut reader = Reader::default();
        let shapes = items
            .iter()
            .enumerate()
            .filter_map(|(i, item)| reader.step(item, format!("steps[{i}]")))
            .collect();
        reader.report.finish()?;
        Ok(Self {
            steps: shapes,
            bytes: measured_len(steps) + r#"{"steps":}"#.len(),
            wants: reader.wants,
        })
    }

    /// What must be looked up.
    pub fn wants(&self) -> &Wants {
        &self.wants
    }

    /// How many leaf steps there are, all depths.
    pub fn leaves(&self) -> usize {
        fn count(steps: &[Shape]) -> usize {
            let leaves = steps.iter().map(|step| match step {
                Shape::Leaf(_) => 1,
                Shape::Group(group) => group.members.iter().map(|m| count(m.steps())).sum(),
            });
            leaves.sum()
        }
        count(&self.steps)
    }
}

#[derive(Default)]
struct Reader {
    report: Report,
    ordinal: usize,
    wants: Wants,
}

impl Reader {
    fn step(&mut self, value: &Value, path: String) -> Option<Shape> {
        let at = Spot {
            ordinal: self.ordinal,
            path,
        };
        self.ordinal += 1;
        let Value::Object(members) = value else {
            self.report.whole(&at, StepCode::StepMustBeAnObject);
            return None;
        };
        let leaf = Verb::ALL
            .into_iter()
            .filter(|v| members.contains_key(v.as_str()));
        let leaves: Vec<Verb> = leaf.collect();
        match (leaves.as_slice(), members.get("parallel")) {
            ([], Some(value)) => self.group(at, members, value),
            ([verb], None) => self.leaf(at, *verb, members),
            ([], None) => self.refuse(&at, StepCode::UnknownStepVerb),
            _ => self.refuse(&at, StepCode::AmbiguousStep),
        }
    }

    fn refuse<T>(&mut self, at: &Spot, code: StepCode) -> Option<T> {
        self.report.whole(at, code);
        None
    }

    fn leaf(&mut self, at: Spot, verb: Verb, members: &Object) -> Option<Shape> {
        let word = verb.as_str();
        self.names(&at, "", members, |name| name == word);
        let Some(options) = members[word].as_object() else {
            self.report.field(&at, word, StepCode::StepMustBeAnObject);
            return None;
        };
        let mine = options_of(verb);
        self.names(&at, &format!("{word}."), options, |name| {
            COMMON.contains(&name) || mine.contains(&name)
        });
        let defaults = options.get("model_defaults").and_then(Value::as_object);
        if let (Verb::Tool, Some(defaults)) = (verb, defaults) {
            self.names(&at, "tool.model_defaults.", defaults, |name| {
                DEFAULTS.contains(&name)
            });
        }
        self.wants.leaf(verb, options);
        Some(Shape::Leaf(LeafShape {
            at,
            verb,
            options: options.clone(),
        }))
    }

    fn group(&mut self, at: Spot, members: &Object, value: &Value) -> Option<Shape> {
        self.names(&at, "", members, |name| {
            name == "parallel" || GROUP.contains(&name)
        });
        let items = value.as_array().unwrap_or_default();
        if items.is_empty() {
            return self.refuse(&at, StepCode::EmptyParallel);
        }
        let mut options = members.clone();
        options.remove("parallel");
        self.wants.key(options.get("key"));
        let members = items
            .iter()
            .enumerate()
            .filter_map(|(i, item)| self.member(item, format!("{}.parallel[{i}]", at.path)))
            .collect();
        Some(Shape::Group(GroupShape {
            at,
            options,
            members,
        }))
    }

    fn member(&mut self, value: &Value, path: String) -> Option<Member<Shape>> {
        let Value::Array(items) = value else {
            return self.step(value, path).map(Member::Step);
        };
        if items.is_empty() {
            let at = Spot {
                ordinal: self.ordinal,
                path,
            };
            self.ordinal += 1;
            return self.refuse(&at, StepCode::EmptyParallel);
        }
        let steps = items
            .iter()
            .enumerate()
            .filter_map(|(i, item)| self.step(item, format!("{path}[{i}]")));
        Some(Member::Sequence(steps.collect()))
    }

    /// Refuses the first name, in canonical order, that is no option here.
    fn names(&mut self, at: &Spot, prefix: &str, members: &Object, known: impl Fn(&str) -> bool) {
        let Some(name) = members.keys().find(|name| !known(name)) else {
            return;
        };
        let code = if EDGE_WORDS.contains(&name.as_str()) {
            StepCode::EdgeAuthoringRefused
        } else {
            StepCode::UnknownStepOption
        };
        let name = shown(name);
        self.report.field(at, &format!("{prefix}{name}"), code);
    }
}

impl Wants {
    fn key(&mut self, value: Option<&Value>) {
        self.written.extend(key(value));
        self.keys.extend(key(value));
    }

    fn leaf(&mut self, verb: Verb, options: &Object) {
        self.key(options.get("key"));
        for list in ["after", "results"] {
            let names = options.get(list).and_then(Value::as_array);
            let names = names.unwrap_or_default().iter();
            self.keys.extend(names.filter_map(|name| key(Some(name))));
        }
        match verb {
            Verb::Tool => self.tool(options),
            Verb::Model => {
                self.context(options);
                self.uploads.extend(ids(options.get("attachments")));
            }
            Verb::Wait => self.wait(options),
            Verb::Ask => {}
        }
    }

    fn tool(&mut self, options: &Object) {
        if let Some(defaults) = options.get("model_defaults").and_then(Value::as_object) {
            self.context(defaults);
        }
        let name = options.get("name").and_then(Value::as_str);
        let route = options.get("route").and_then(Value::as_object);
        if let (Some(name), Some(route)) = (name, route) {
            let target = id(route.get("runner_executor_public_id"));
            self.routes.insert((target, name.to_owned()));
        }
    }

    fn wait(&mut self, options: &Object) {
        let Some(task) = key(options.get("task")) else {
            return;
        };
        if let Some(run) = id(options.get("run_public_id")) {
            self.waits.insert((run, task.clone()));
        }
        self.keys.insert(task);
    }

    fn context(&mut self, members: &Object) {
        let selector = |value: &Value| {
            let model = value.get("model").and_then(Value::as_str);
            model.map(str::to_owned)
        };
        let fallbacks = members.get("fallback_models").and_then(Value::as_array);
        self.models
            .extend(fallbacks.unwrap_or_default().iter().filter_map(selector));
        for name in ["model", "compaction"] {
            self.models.extend(members.get(name).and_then(selector));
        }
        self.runners
            .extend(ids(members.get("runner_executor_public_ids")));
    }
}

fn key(value: Option<&Value>) -> Option<TaskKey> {
    value.and_then(Value::as_str).and_then(|s| s.parse().ok())
}

fn id(value: Option<&Value>) -> Option<PublicId> {
    value.and_then(Value::as_str).and_then(|s| s.parse().ok())
}

fn ids(value: Option<&Value>) -> impl Iterator<Item = PublicId> {
    let items = value.and_then(Value::as_array).unwrap_or_default();
    items.iter().filter_map(|item| id(Some(item)))
}
