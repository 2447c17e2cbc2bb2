//! What a recognised request asks for, member by member (`operations.md` §5).
//!
//! Judges the members that belong to operations; the grammar of steps is `compile`'s, and what the
//! words name is judged under the run lock.

use crate::domain::json::{Object, Value};
use crate::domain::operation::{JOIN_SOURCES, Refusal, Submitted, is_key};
use crate::domain::steps::{StepCode, Verb};
use crate::domain::words::{Lifetime, Losers, OperationKind, Wake};
use crate::engine::compile;

/// When a join settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Once every source ended.
    All,
    /// With the first success.
    Any,
    /// With so many.
    Quorum(i64),
}

/// How background work is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// How long it lives.
    pub lifetime: Lifetime,
    /// How it comes back; none: as its owner's.
    pub wake: Option<Wake>,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// Work: one step, or a batch.
    Work {
        /// The steps.
        steps: Value,
        /// One step of this verb, whose receipt has no tree.
        single: Option<Verb>,
        /// Background work.
        background: Option<Delivery>,
    },
    /// Another batch for tasks of an operation.
    Replace {
        /// The operation.
        operation: String,
        /// Its tasks, by local or task key; never empty.
        tasks: Vec<String>,
        /// The batch.
        steps: Value,
    },
    /// The end of an operation's work.
    Cancel {
        /// The operation.
        operation: String,
        /// Its tasks; none: all.
        tasks: Option<Vec<String>>,
    },
    /// A wait for several operations.
    Join {
        /// Distinct keys.
        operations: Vec<String>,
        /// When it settles.
        until: Until,
        /// What becomes of the rest.
        losers: Losers,
    },
    /// An operation's work goes on without its owner.
    Release {
        /// The operation.
        operation: String,
        /// How it is delivered.
        delivery: Delivery,
    },
}

impl Asked {
    /// Reads a request.
    ///
    /// # Errors
    /// The first of `unknown_fields`, `invalid_input`, `invalid_steps` and the join's words.
    pub fn read(submitted: &Submitted) -> Result<Self, Refusal> {
        let members = &submitted.members;
        match submitted.kind {
            OperationKind::Tool => tool(members),
            OperationKind::Model => single(members, Verb::Model),
            OperationKind::Ask => single(members, Verb::Ask),
            OperationKind::Wait => single(members, Verb::Wait),
            OperationKind::Steps => {
                known(members, "", &["input"])?;
                let input = members.get("input").ok_or_else(|| missing("input"))?;
                let steps = match input {
                    Value::Object(inside) => {
                        known(inside, "input.", &["steps"])?;
                        inside.get("steps").ok_or_else(|| missing("input.steps"))?
                    }
                    steps => steps,
                };
                Ok(Self::Work {
                    steps: array(steps, "input")?,
                    single: None,
                    background: None,
                })
            }
            OperationKind::Replace => {
                replace(input(members, &["operation_key", "tasks", "steps"])?)
            }
            OperationKind::Cancel => cancel(input(members, &["operation_key", "tasks"])?),
            OperationKind::Join => join(input(members, &["operations", "until", "losers"])?),
            OperationKind::Background => background(input(
                members,
                &["steps", "operation_key", "lifetime", "wake"],
            )?),
        }
    }

    /// The operations that it names, for the shell to load.
    pub fn operations(&self) -> Vec<String> {
        match self {
            Self::Work { .. } => Vec::new(),
            Self::Replace { operation, .. }
            | Self::Cancel { operation, .. }
            | Self::Release { operation, .. } => vec![operation.clone()],
            Self::Join { operations, .. } => operations.clone(),
        }
    }

    /// The steps that it brings.
    pub fn steps(&self) -> Option<&Value> {
        match self {
            Self::Work { steps, .. } | Self::Replace { steps, .. } => Some(steps),
            _ => None,
        }
    }
}

fn invalid(what: impl Into<String>) -> Refusal {
    Refusal::new("invalid_input", what)
}

fn missing(name: &str) -> Refusal {
    invalid(format!("{name} is missing"))
}

/// Refuses the first member that is none of these.
fn known(members: &Object, prefix: &str, names: &[&str]) -> Result<(), Refusal> {
    match members.keys().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Refusal::new(
            "unknown_fields",
            format!(
                "{prefix}{name} is no member here; there are {}",
                names.join(", ")
            ),
        )),
    }
}

/// `input`, an object of these members, alone.
fn input<'a>(members: &'a Object, names: &[&str]) -> Result<&'a Object, Refusal> {
    known(members, "", &["input"])?;
    let input = members.get("input").ok_or_else(|| missing("input"))?;
    let input = input
        .as_object()
        .ok_or_else(|| invalid("input is an object"))?;
    known(input, "input.", names)?;
    Ok(input)
}

fn array(value: &Value, name: &str) -> Result<Value, Refusal> {
    match value {
        Value::Array(_) => Ok(value.clone()),
        _ => Err(invalid(format!("{name} is an array of steps"))),
    }
}

/// A member that is there and not null.
fn given<'a>(members: &'a Object, name: &str) -> Option<&'a Value> {
    members.get(name).filter(|v| !v.is_null())
}

/// A word of a closed vocabulary.
fn word<T: std::str::FromStr>(
    members: &Object,
    name: &str,
    takes: &str,
) -> Result<Option<T>, Refusal> {
    let Some(value) = given(members, name) else {
        return Ok(None);
    };
    let read = value.as_str().and_then(|word| word.parse().ok());
    read.map(Some)
        .ok_or_else(|| invalid(format!("input.{name} is {takes}")))
}

fn one_step(verb: Verb, options: Object) -> Value {
    Value::Array(vec![Value::from([(verb.as_str(), Value::Object(options))])])
}

/// `{name, input?, timeout_ms?}` is one call; its input is the tool's own.
fn tool(members: &Object) -> Result<Asked, Refusal> {
    known(members, "", &["name", "input", "timeout_ms"])?;
    let name = members.get("name").ok_or_else(|| missing("name"))?;
    if name.as_str().is_none() {
        return Err(invalid("name is a string"));
    }
    if given(members, "input").is_some_and(|input| input.as_object().is_none()) {
        return Err(invalid("input is an object"));
    }
    Ok(Asked::Work {
        steps: one_step(Verb::Tool, members.clone()),
        single: Some(Verb::Tool),
        background: None,
    })
}

fn single(members: &Object, verb: Verb) -> Result<Asked, Refusal> {
    let names: Vec<&str> = compile::options(verb).collect();
    let options = input(members, &names)?;
    Ok(Asked::Work {
        steps: one_step(verb, options.clone()),
        single: Some(verb),
        background: None,
    })
}

fn operation_key(input: &Object) -> Result<String, Refusal> {
    let key = input
        .get("operation_key")
        .ok_or_else(|| missing("input.operation_key"))?;
    let key = key.as_str().filter(|key| is_key(key));
    key.map(str::to_owned)
        .ok_or_else(|| invalid("input.operation_key is the key of an operation"))
}

/// Distinct texts, at least one.
fn texts(value: &Value, name: &str) -> Result<Vec<String>, Refusal> {
    let bad = || {
        invalid(format!(
            "input.{name} is an array of distinct keys, at least one"
        ))
    };
    let items = value
        .as_array()
        .filter(|items| !items.is_empty())
        .ok_or_else(bad)?;
    let mut texts: Vec<String> = Vec::new();
    for item in items {
        let text = item.as_str().ok_or_else(bad)?;
        if texts.iter().any(|known| known == text) {
            return Err(bad());
        }
        texts.push(text.to_owned());
    }
    Ok(texts)
}

fn replace(input: &Object) -> Result<Asked, Refusal> {
    let operation = operation_key(input)?;
    let tasks = input.get("tasks").ok_or_else(|| missing("input.tasks"))?;
    let tasks = texts(tasks, "tasks")?;
    let steps = input.get("steps").ok_or_else(|| missing("input.steps"))?;
    Ok(Asked::Replace {
        operation,
        tasks,
        steps: array(steps, "input.steps")?,
    })
}

fn cancel(input: &Object) -> Result<Asked, Refusal> {
    let operation = operation_key(input)?;
    let tasks = given(input, "tasks").map(|tasks| texts(tasks, "tasks"));
    Ok(Asked::Cancel {
        operation,
        tasks: tasks.transpose()?,
    })
}

fn join(input: &Object) -> Result<Asked, Refusal> {
    let operations = input
        .get("operations")
        .ok_or_else(|| missing("input.operations"))?;
    let operations = texts(operations, "operations")?;
    if operations.len() > JOIN_SOURCES {
        return Err(invalid(format!(
            "input.operations names {JOIN_SOURCES} operations at most"
        )));
    }
    let until = until(given(input, "until"))?;
    if matches!(until, Until::Quorum(k) if k > i64::try_from(operations.len()).unwrap_or(i64::MAX))
    {
        return Err(Refusal::new(
            "unsatisfiable_until",
            format!(
                "input.until asks for more than the {} operations",
                operations.len()
            ),
        ));
    }
    let losers = match given(input, "losers") {
        None => None,
        Some(_) if until == Until::All => {
            let message = "input.losers is for joins that end early; `all` has no losers";
            return Err(Refusal::new("invalid_losers", message));
        }
        Some(word) => {
            let losers = word.as_str().and_then(|word| word.parse().ok());
            let bad = || Refusal::new("invalid_losers", "input.losers is `cancel` or `run_out`");
            Some(losers.ok_or_else(bad)?)
        }
    };
    Ok(Asked::Join {
        operations,
        until,
        losers: match (until, losers) {
            (Until::All, _) => Losers::RunOut,
            (_, losers) => losers.unwrap_or(Losers::Cancel),
        },
    })
}

fn until(value: Option<&Value>) -> Result<Until, Refusal> {
    match value {
        None => Ok(Until::All),
        Some(Value::Str(word)) if word == "all" => Ok(Until::All),
        Some(Value::Str(word)) if word == "any" => Ok(Until::Any),
        Some(Value::Int(k)) if k.saturated() >= 1 => Ok(Until::Quorum(k.saturated())),
        Some(_) => Err(Refusal::new(
            "invalid_until",
            "input.until is `all`, `any` or an integer from 1",
        )),
    }
}

fn background(input: &Object) -> Result<Asked, Refusal> {
    let delivery = Delivery {
        lifetime: word(input, "lifetime", "`turn` or `conversation`")?
            .unwrap_or(Lifetime::Conversation),
        wake: word(input, "wake", "`auto` or `passive`")?,
    };
    match (given(input, "steps"), given(input, "operation_key")) {
        (Some(steps), None) => Ok(Asked::Work {
            steps: array(steps, "input.steps")?,
            single: None,
            background: Some(delivery),
        }),
        (None, Some(_)) => Ok(Asked::Release {
            operation: operation_key(input)?,
            delivery,
        }),
        _ => Err(invalid(
            "input has either steps, to launch them, or operation_key, to release its work",
        )),
    }
}

/// The recorded word of a refused batch: some words of the grammar surface as themselves
/// (`operations.md` §10).
pub(super) fn of_grammar(code: StepCode, single: Option<Verb>) -> &'static str {
    let calls = matches!(single, None | Some(Verb::Tool));
    match code {
        StepCode::TooManySteps => "too_many_steps",
        StepCode::ToolInputTooLarge => "tool_input_too_large",
        StepCode::InvalidTimeoutMs if calls => "invalid_timeout_ms",
        StepCode::InvalidAttachments => "invalid_attachments",
        StepCode::UnknownModel | StepCode::ModelUnavailable => "model_not_authorized",
        _ => "invalid_steps",
    }
}
