//! What a claimed call may author: its frozen context (`operations.md` §5.1).
//!
//! A batch is resolved against the scope before it is compiled: names become served names with their
//! routes and mapped inputs, a model step takes what the scope says and it does not. What comes out
//! is ordinary grammar at the same paths.
//!
//! Does not know: rows, whether a tool is still served.

use crate::domain::PublicId;
use crate::domain::json::{Object, Value};
use crate::domain::operation::Refusal;
use crate::domain::steps::Verb;

/// A frozen context, as stored: `{tools, model_defaults, environment?}`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope {
    tools: Vec<Value>,
    /// None: no model work.
    defaults: Option<Object>,
}

/// The options that bring tools from elsewhere: nothing of a program's may.
const IMPORTS: [&str; 3] = [
    "kernel_tools",
    "runner_executor_public_ids",
    "runner_tool_names",
];

/// What a model step takes from the scope where it says nothing.
const INHERITED: [&str; 8] = [
    "model",
    "configuration",
    "instructions",
    "compaction",
    "on_failure",
    "fan_on_failure",
    "model_selection",
    "fallback_models",
];

/// A resolved batch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resolved {
    /// Steps of the ordinary grammar.
    pub steps: Value,
    /// How each call was spelled where that differs from what it calls, in written order.
    pub aliases: Vec<Option<String>>,
}

impl Scope {
    /// Of a stored context; none is a scope that allows neither tools nor models.
    pub fn read(context: Option<&Value>) -> Self {
        let Some(context) = context else {
            return Self::default();
        };
        let tools = context.get("tools").and_then(Value::as_array);
        let defaults = context.get("model_defaults").and_then(Value::as_object);
        Self {
            tools: tools.unwrap_or_default().to_vec(),
            defaults: defaults.cloned(),
        }
    }

    /// The Runners that its tools are routed to.
    pub fn runners(&self) -> impl Iterator<Item = PublicId> + '_ {
        let routes = self.tools.iter().filter_map(route_of);
        routes.filter_map(|route| {
            let id = route.get("runner_executor_public_id")?.as_str()?;
            id.parse().ok()
        })
    }

    /// Resolves a batch of the right shape.
    ///
    /// # Errors
    /// The first of `unknown_tool_name`, `tool_route_mismatch`, `context_not_authorable` in written
    /// order.
    pub(super) fn resolve(&self, steps: &Value) -> Result<Resolved, Refusal> {
        let mut aliases = Vec::new();
        let steps = self.steps(steps, &mut aliases)?;
        Ok(Resolved { steps, aliases })
    }

    fn steps(&self, steps: &Value, aliases: &mut Vec<Option<String>>) -> Result<Value, Refusal> {
        let items = steps.as_array().unwrap_or_default().iter();
        let items = items.map(|step| match step {
            Value::Array(_) => self.steps(step, aliases),
            step => self.step(step, aliases),
        });
        Ok(Value::Array(items.collect::<Result<_, _>>()?))
    }

    fn step(&self, step: &Value, aliases: &mut Vec<Option<String>>) -> Result<Value, Refusal> {
        let Some(members) = step.as_object() else {
            return Ok(step.clone());
        };
        let mut members = members.clone();
        if let Some(inside) = members.get("parallel") {
            let inside = self.steps(inside, aliases)?;
            members.insert("parallel".into(), inside);
        }
        for verb in [Verb::Tool, Verb::Model] {
            let options = members.get(verb.as_str()).and_then(Value::as_object);
            let resolved = match (verb, options) {
                (Verb::Tool, Some(options)) => self.tool(options, aliases)?,
                (_, Some(options)) => self.model(options)?,
                (_, None) => continue,
            };
            members.insert(verb.as_str().into(), Value::Object(resolved));
        }
        Ok(Value::Object(members))
    }

    fn declared(&self, name: &str) -> Option<&Value> {
        let named = |tool: &&Value| tool.get("name").and_then(Value::as_str) == Some(name);
        self.tools.iter().find(named)
    }

    fn tool(&self, options: &Object, aliases: &mut Vec<Option<String>>) -> Result<Object, Refusal> {
        if options.get("model_defaults").is_some_and(|v| !v.is_null()) {
            return Err(not_authorable(
                "a call of an operation inherits its context",
            ));
        }
        let mut options = options.clone();
        let Some(name) = options.get("name").and_then(Value::as_str) else {
            aliases.push(None);
            return Ok(options); // the grammar refuses it
        };
        let name = name.to_owned();
        let tool = self.declared(&name).ok_or_else(|| unknown(&name))?;
        let route = route_of(tool);
        let written = options.get("route").filter(|v| !v.is_null());
        if let Some(written) = written
            && !route.is_some_and(|route| is_same_route(written, route))
        {
            return Err(Refusal::new(
                "tool_route_mismatch",
                format!(
                    "{name} goes where its declaration says: leave its route out, or repeat it"
                ),
            ));
        }
        let alias = tool.get("alias").and_then(Value::as_object);
        let served = route
            .and_then(|route| route.get("tool_name"))
            .or_else(|| alias.and_then(|alias| alias.get("of")))
            .and_then(Value::as_str)
            .unwrap_or(&name)
            .to_owned();
        if let (Some(alias), Some(input)) = (alias, options.get("input").and_then(Value::as_object))
        {
            let input = mapped(input, alias);
            options.insert("input".into(), Value::Object(input));
        }
        match route.and_then(|route| route.get("runner_executor_public_id")) {
            Some(runner) => {
                let target = [
                    ("kind", "runner".into()),
                    ("runner_executor_public_id", runner.clone()),
                ];
                options.insert("route".into(), Value::from(target));
            }
            None => drop(options.remove("route")),
        }
        aliases.push((served != name).then_some(name));
        options.insert("name".into(), served.into());
        Ok(options)
    }

    fn model(&self, options: &Object) -> Result<Object, Refusal> {
        let Some(defaults) = &self.defaults else {
            return Err(not_authorable("the task has no model context"));
        };
        let given = |name: &str| options.get(name).filter(|v| !v.is_null());
        if let Some(name) = IMPORTS.iter().find(|name| given(name).is_some()) {
            return Err(not_authorable(&format!(
                "{name} brings tools that the task was not given"
            )));
        }
        let mut options = options.clone();
        let model = match options.get("model").filter(|v| !v.is_null()) {
            Some(Value::Str(name)) => Some(Value::from([("model", name.as_str().into())])),
            Some(other) => Some(other.clone()),
            None => None,
        };
        match (model, defaults.get("model")) {
            (None, None) => return Err(not_authorable("the task's context names no model")),
            (None, Some(_)) => {}
            (Some(model), inherited) => {
                let model = with_controls(model, inherited);
                options.insert("model".into(), model);
            }
        }
        for name in INHERITED {
            let written = options.get(name).is_some_and(|v| !v.is_null());
            if let Some(value) = defaults.get(name).filter(|_| !written) {
                options.insert(name.into(), value.clone());
            }
        }
        self.narrow(&mut options)?;
        Ok(options)
    }

    /// `tools` names some of the scope's; left out it is all of them.
    fn narrow(&self, options: &mut Object) -> Result<(), Refusal> {
        let tools = match options.get("tools").filter(|v| !v.is_null()) {
            None => self.tools.clone(),
            Some(Value::Array(names)) if names.iter().all(|n| n.as_str().is_some()) => {
                let tools = names.iter().filter_map(Value::as_str);
                let tools =
                    tools.map(|name| self.declared(name).cloned().ok_or_else(|| unknown(name)));
                tools.collect::<Result<_, _>>()?
            }
            Some(_) => return Ok(()), // the grammar refuses it
        };
        if tools.is_empty() {
            options.remove("tools");
        } else {
            options.insert("tools".into(), Value::Array(tools));
        }
        Ok(())
    }
}

/// A model keeps the scope's controls as long as it is the scope's model (`models.md` §3).
fn with_controls(model: Value, inherited: Option<&Value>) -> Value {
    let (Value::Object(mut model), Some(inherited)) = (model.clone(), inherited) else {
        return model;
    };
    if model.get("model") == inherited.get("model") {
        for name in ["reasoning_enabled", "reasoning_effort"] {
            if let Some(value) = inherited.get(name).filter(|_| !model.contains_key(name)) {
                model.insert(name.into(), value.clone());
            }
        }
    }
    Value::Object(model)
}

fn unknown(name: &str) -> Refusal {
    Refusal::new(
        "unknown_tool_name",
        format!("{name} is outside this task's tools"),
    )
}

fn not_authorable(why: &str) -> Refusal {
    Refusal::new("context_not_authorable", why)
}

fn route_of(tool: &Value) -> Option<&Value> {
    tool.get("route").filter(|route| !route.is_null())
}

/// A route that repeats the declared one, with or without the served name.
fn is_same_route(written: &Value, declared: &Value) -> bool {
    let without_name = |route: &Value| {
        let mut members = route.as_object().cloned().unwrap_or_default();
        members.remove("tool_name");
        members
    };
    written == declared
        || (written.get("tool_name").is_none() && without_name(written) == without_name(declared))
}

/// An alias's input under the names of what it stands for.
fn mapped(input: &Object, alias: &Object) -> Object {
    let params = alias.get("params").and_then(Value::as_object);
    let one = |(name, value): (&String, &Value)| {
        let param = params.and_then(|params| params.get(name));
        let to = param.and_then(|param| param.get("to")?.as_str());
        let inverts = param.and_then(|param| param.get("invert")?.as_bool());
        let value = match value {
            Value::Bool(on) if inverts == Some(true) => Value::Bool(!on),
            value => value.clone(),
        };
        (to.unwrap_or(name).to_owned(), value)
    };
    input.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json::parse;

    fn json(text: &str) -> Value {
        parse(text.as_bytes()).unwrap()
    }

    fn scope() -> Scope {
        Scope::read(Some(&json(
            r#"{"tools":[
                {"name":"look","alias":{"of":"wait","params":{"for":{"to":"task","description":"d"},
                    "loud":{"to":"quiet","invert":true,"description":"d"}}}},
                {"name":"build","route":{"kind":"runner","runner_executor_public_id":"r1","tool_name":"make"}},
                {"name":"free"}],
               "model_defaults":{"model":{"model":"p/a","reasoning_enabled":false},"on_failure":"halt",
                "instructions":"i"}}"#,
        )))
    }

    fn resolved(steps: &str) -> Result<Resolved, Refusal> {
        scope().resolve(&json(steps))
    }

    // operations.md §11.9: the row has the kernel's name, the alias beside it, the mapped input
    #[test]
    fn an_alias_is_mapped_to_what_it_stands_for() {
        let made = resolved(r#"[{"tool":{"name":"look","input":{"for":"a","loud":true,"n":1}}}]"#);
        let made = made.unwrap();
        assert_eq!(
            made.steps,
            json(r#"[{"tool":{"name":"wait","input":{"task":"a","quiet":false,"n":1}}}]"#)
        );
        assert_eq!(made.aliases, [Some("look".to_owned())]);
    }

    // §11.10, §5.1
    #[test]
    fn a_route_is_the_declared_one_or_refused() {
        let route = r#"{"kind":"runner","runner_executor_public_id":"r1"}"#;
        let made = resolved(&format!(
            r#"[{{"parallel":[[{{"tool":{{"name":"build","route":{route}}}}}],{{"tool":{{"name":"free"}}}}]}}]"#
        ));
        let made = made.unwrap();
        let expected = format!(
            r#"[{{"parallel":[[{{"tool":{{"name":"make","route":{route}}}}}],{{"tool":{{"name":"free"}}}}]}}]"#
        );
        assert_eq!(made.steps, json(&expected));
        assert_eq!(made.aliases, [Some("build".to_owned()), None]);
        for other in [
            r#"{"kind":"runner","runner_executor_public_id":"r2"}"#,
            r#"{"kind":"runner"}"#,
            "7",
        ] {
            for name in ["build", "free"] {
                let steps = format!(r#"[{{"tool":{{"name":"{name}","route":{other}}}}}]"#);
                assert_eq!(
                    resolved(&steps).unwrap_err().code,
                    "tool_route_mismatch",
                    "{steps}"
                );
            }
        }
    }

    // §11.8, §11.11, §5: a model child takes what it does not say, narrows tools, imports none
    #[test]
    fn a_model_child_inherits_and_narrows() {
        let options = |steps: &str| {
            let made = resolved(steps).unwrap().steps;
            made.as_array().unwrap()[0].get("model").unwrap().clone()
        };
        let child = options(r#"[{"model":{"prompt":"p"}}]"#);
        assert_eq!(
            child.get("model"),
            Some(&json(r#"{"model":"p/a","reasoning_enabled":false}"#))
        );
        assert_eq!(child.get("on_failure"), Some(&"halt".into()));
        assert_eq!(
            child.get("tools").and_then(Value::as_array).unwrap().len(),
            3
        );
        // The same model keeps its controls, another begins with its own.
        let child = options(
            r#"[{"model":{"prompt":"p","model":"p/a","on_failure":"absorb","tools":["free"]}}]"#,
        );
        assert_eq!(
            child.get("model"),
            Some(&json(r#"{"model":"p/a","reasoning_enabled":false}"#))
        );
        assert_eq!(child.get("on_failure"), Some(&"absorb".into()));
        assert_eq!(child.get("tools"), Some(&json(r#"[{"name":"free"}]"#)));
        let child = options(r#"[{"model":{"prompt":"p","model":"p/b","tools":[]}}]"#);
        assert_eq!(child.get("model"), Some(&json(r#"{"model":"p/b"}"#)));
        assert_eq!(child.get("tools"), None);
        for (steps, code) in [
            (
                r#"[{"model":{"prompt":"p","tools":["free","rm"]}}]"#,
                "unknown_tool_name",
            ),
            (
                r#"[{"model":{"prompt":"p","kernel_tools":[]}}]"#,
                "context_not_authorable",
            ),
            (
                r#"[{"tool":{"name":"free","model_defaults":{}}}]"#,
                "context_not_authorable",
            ),
        ] {
            assert_eq!(resolved(steps).unwrap_err().code, code, "{steps}");
        }
        let bare = Scope::read(None);
        let refused = bare.resolve(&json(r#"[{"model":{"prompt":"p","model":"p/a"}}]"#));
        assert_eq!(refused.unwrap_err().code, "context_not_authorable");
    }
}
