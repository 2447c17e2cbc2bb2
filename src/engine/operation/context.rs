//! Freezing a call's context at its acceptance (`operations.md` §3, §5.1): the declared tools with
//! their routes resolved, what is imported from Runners, the model defaults, the environment.
//!
//! Written once; children have their parent's. Does not know: how announcements are looked up.

use std::collections::BTreeSet;

use crate::domain::PublicId;
use crate::domain::json::{Canonical, Object, Value};
use crate::engine::compile::{ModelDefaults, Names, ToolCall};

/// A Runner as its announcement stands.
#[derive(Debug, Clone)]
pub struct Announced {
    /// Which.
    pub public_id: PublicId,
    /// What people read.
    pub display_name: String,
    /// Opaque.
    pub environment: Value,
    /// Served documents `{name, description}`.
    pub documents: Vec<Value>,
    /// Served tools.
    pub tools: Vec<AnnouncedTool>,
}

/// One served tool.
#[derive(Debug, Clone)]
pub struct AnnouncedTool {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// What it takes.
    pub input_schema: Option<Value>,
}

/// What is looked up for it.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The run's default Runner.
    pub default_runner: Option<PublicId>,
    /// The eligible ones of the Runners that contexts name.
    pub runners: Vec<Announced>,
}

/// The context of a call that was authored with defaults; none has none.
pub fn frozen(call: &ToolCall, known: &Known) -> Option<Canonical> {
    let defaults = call.model_defaults.as_ref()?;
    let mut tools: Vec<Value> = declared(defaults);
    for tool in &mut tools {
        complete_route(tool, known.default_runner);
    }
    import(defaults, known, &mut tools);
    let mut model = defaults.canonical().value();
    if let Value::Object(members) = &mut model {
        let elsewhere = [
            "tools",
            "kernel_tools",
            "runner_executor_public_ids",
            "runner_tool_names",
        ];
        members.retain(|name, _| !elsewhere.contains(&name.as_str()));
    }
    let context = Value::from([
        ("environment", environment(call, defaults, &tools, known)),
        ("tools", Value::Array(tools)),
        ("model_defaults", model),
    ]);
    Some(
        context
            .canonical()
            .expect("its parts were checked when they were read"),
    )
}

fn declared(defaults: &ModelDefaults) -> Vec<Value> {
    let tools = defaults.context.tools.as_ref().map(Canonical::value);
    let tools = tools.as_ref().and_then(Value::as_array);
    tools.unwrap_or_default().to_vec()
}

fn target(route: &Value, default_runner: Option<PublicId>) -> Option<PublicId> {
    match route
        .get("runner_executor_public_id")
        .filter(|id| !id.is_null())
    {
        Some(id) => id.as_str()?.parse().ok(),
        None => default_runner,
    }
}

/// A declared route names its Runner and what it serves the tool as.
fn complete_route(tool: &mut Value, default_runner: Option<PublicId>) {
    let Value::Object(members) = tool else { return };
    let Some(route) = members.get("route").filter(|route| !route.is_null()) else {
        return;
    };
    let name = members.get("name").cloned().unwrap_or(Value::Null);
    let served = route.get("tool_name").filter(|name| !name.is_null());
    let mut complete = vec![
        ("kind".to_owned(), "runner".into()),
        ("tool_name".to_owned(), served.cloned().unwrap_or(name)),
    ];
    if let Some(target) = target(route, default_runner) {
        complete.push((
            "runner_executor_public_id".to_owned(),
            target.to_string().into(),
        ));
    }
    members.insert(
        "route".to_owned(),
        Value::Object(complete.into_iter().collect()),
    );
}

/// Adds what the candidates offer, in their order: by its served name, a second one of that name as
/// `name__2` (`steps.md` §3.3). What has neither description nor schema is offered to nobody.
fn import(defaults: &ModelDefaults, known: &Known, tools: &mut Vec<Value>) {
    let wanted = |name: &str| match &defaults.context.runner_tool_names {
        Names::Omitted | Names::Null => true,
        Names::Listed(names) => names.iter().any(|wanted| wanted == name),
    };
    let names = tools.iter().filter_map(|tool| tool.get("name")?.as_str());
    let mut taken: BTreeSet<String> = names.map(str::to_owned).collect();
    for runner in candidates(defaults, known) {
        let offered = runner.tools.iter().filter(|tool| wanted(&tool.name));
        let offered =
            offered.filter(|tool| tool.description.is_some() || tool.input_schema.is_some());
        for tool in offered {
            let mut name = tool.name.clone();
            let mut n = 1;
            while !taken.insert(name.clone()) {
                n += 1;
                name = format!("{}__{n}", tool.name);
            }
            tools.push(imported(runner, tool, &name));
        }
    }
}

fn imported(runner: &Announced, tool: &AnnouncedTool, name: &str) -> Value {
    let route = Value::from([
        ("kind", "runner".into()),
        (
            "runner_executor_public_id",
            runner.public_id.to_string().into(),
        ),
        ("tool_name", tool.name.as_str().into()),
    ]);
    let mut members = Object::from([
        ("name".to_owned(), name.into()),
        ("route".to_owned(), route),
    ]);
    if let Some(description) = &tool.description {
        members.insert("description".to_owned(), description.as_str().into());
    }
    if let Some(schema) = &tool.input_schema {
        members.insert("parameters".to_owned(), schema.clone());
    }
    Value::Object(members)
}

/// The eligible candidates, in declaration order.
fn candidates<'a>(
    defaults: &'a ModelDefaults,
    known: &'a Known,
) -> impl Iterator<Item = &'a Announced> {
    let ids = defaults.context.runner_executor_public_ids.iter().flatten();
    ids.filter_map(|id| known.runners.iter().find(|r| r.public_id == *id))
}

fn environment(call: &ToolCall, defaults: &ModelDefaults, tools: &[Value], known: &Known) -> Value {
    let routed = |runner: &Announced| {
        let routes = tools.iter().filter_map(|tool| tool.get("route"));
        let mut routes = routes.filter_map(|route| target(route, None));
        call.target == Some(runner.public_id) || routes.any(|id| id == runner.public_id)
    };
    let row = |runner: &Announced| {
        Value::from([
            (
                "runner_executor_public_id",
                runner.public_id.to_string().into(),
            ),
            ("display_name", runner.display_name.as_str().into()),
            ("environment", runner.environment.clone()),
        ])
    };
    let executors = known.runners.iter().filter(|r| routed(r)).map(row);
    let default_runner = known.default_runner;
    Value::from([
        (
            "default_runner_executor_public_id",
            default_runner.map_or(Value::Null, |id| id.to_string().into()),
        ),
        ("executors", Value::Array(executors.collect())),
        (
            "runner_candidates",
            Value::Array(candidates(defaults, known).map(row).collect()),
        ),
        ("skills", Value::Array(skills(tools, known))),
    ])
}

/// The documents that a declared `skill` reads, by the name it is called.
fn skills(tools: &[Value], known: &Known) -> Vec<Value> {
    let mut skills = Vec::new();
    for tool in tools {
        let route = tool.get("route");
        let served = route
            .and_then(|route| route.get("tool_name"))
            .and_then(Value::as_str);
        let runner = route.and_then(|route| target(route, None));
        let runner = known.runners.iter().find(|r| Some(r.public_id) == runner);
        let Some(runner) = runner.filter(|_| served == Some("skill")) else {
            continue;
        };
        for document in &runner.documents {
            let member = |name: &str| document.get(name).cloned().unwrap_or(Value::Null);
            skills.push(Value::from([
                ("name", member("name")),
                ("description", member("description")),
                ("callable", tool.get("name").cloned().unwrap_or(Value::Null)),
                ("source", "runner".into()),
                ("executor_public_id", runner.public_id.to_string().into()),
            ]));
        }
    }
    skills
}
