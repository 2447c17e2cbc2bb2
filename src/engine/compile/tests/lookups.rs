//! What facts decide: routes, models, declared tools, attachments, captured intent.

use super::*;
use crate::domain::ids::PublicId;
use crate::domain::steps::{ModelSelection, Selector};

const RUNNER: &str = "0198d1de-0000-7000-8000-00000000000a";
const OTHER: &str = "0198d1de-0000-7000-8000-00000000000b";

fn id(text: &str) -> PublicId {
    text.parse().unwrap()
}

/// `ok`, or the one error.
fn verdict(steps: &str, facts: &Facts) -> String {
    match compiled(&json(steps), facts) {
        Ok(_) => "ok".to_owned(),
        Err(refusal) => {
            let [error] = refusal.steps() else {
                panic!("{refusal:?}")
            };
            format!("{} {}", error.code, error.path.as_deref().unwrap_or("-"))
        }
    }
}

fn model(options: &str) -> String {
    format!(r#"[{{"model":{{"prompt":"p",{options}}}}}]"#)
}

fn tools(tools: &str) -> String {
    model(&format!(r#""model":{{"model":"dev/m1"}},"tools":{tools}"#))
}

#[test]
fn a_route_is_judged_and_frozen_at_acceptance() {
    // steps.md §3.2, executor.md §5
    let mut facts = create();
    facts.default_runner = Some(id(RUNNER));
    for (target, tool, verdict) in [
        (RUNNER, "bash", RouteVerdict::Served),
        (RUNNER, "skill", RouteVerdict::Served),
        (RUNNER, "cat", RouteVerdict::NotServed),
        (OTHER, "bash", RouteVerdict::NotEligible),
    ] {
        facts.routes.insert((id(target), tool.to_owned()), verdict);
    }
    let routed = |tool: &str, target: &str| {
        let id = if target.is_empty() {
            String::new()
        } else {
            format!(r#","runner_executor_public_id":"{target}""#)
        };
        let step = format!(r#"[{{"tool":{{"name":"{tool}","route":{{"kind":"runner"{id}}}}}}}]"#);
        match compiled(&json(&step), &facts) {
            Ok(compiled) => match &compiled.rows[0].work {
                Work::Tool(call) => call.target.unwrap().to_string(),
                _ => panic!("a tool"),
            },
            Err(_) => verdict(&step, &facts),
        }
    };
    assert_eq!(routed("bash", ""), RUNNER);
    assert_eq!(routed("bash", RUNNER), RUNNER);
    assert_eq!(routed("bash", &RUNNER.to_uppercase()), RUNNER);
    assert_eq!(routed("cat", ""), "tool_not_served steps[0].route");
    assert_eq!(routed("bash", OTHER), "runner_not_eligible steps[0].route");
    assert_eq!(
        routed("unasked", RUNNER),
        "runner_not_eligible steps[0].route"
    );
    // The one kernel name a step may use: a skill it routes to a Runner.
    assert_eq!(routed("skill", ""), RUNNER);
    assert_eq!(routed("wait", ""), "reserved_tool_name steps[0].name");
    assert_eq!(
        routed("nexus.skill.load", ""),
        "reserved_tool_name steps[0].name"
    );
    // Without a route a default Runner is never inferred.
    let compiled = compiled(&steps("[T]"), &facts).unwrap();
    let Work::Tool(call) = &compiled.rows[0].work else {
        panic!("a tool")
    };
    assert_eq!(call.target, None);
}

#[test]
fn the_wants_ask_for_every_lookup() {
    let envelope = Envelope::read(&json(&format!(
        r#"[{{"tool":{{"name":"bash","route":{{"kind":"runner"}},
                       "model_defaults":{{"model":{{"model":"dev/d"}},"runner_executor_public_ids":["{OTHER}"]}}}}}},
            {{"parallel":[{{"tool":{{"name":"cat","route":{{"kind":"runner","runner_executor_public_id":"{RUNNER}"}}}}}},
                          [{{"wait":{{"task":"far","run_public_id":"{OTHER}"}}}}]]}},
            {{"model":{{"model":{{"model":"dev/m1"}},"prompt":7,"attachments":["{RUNNER}"],
                        "fallback_models":[{{"model":"dev/f"}}],"compaction":{{"mode":"off","model":"dev/c"}}}}}}]"#
    )))
    .unwrap();
    let wants = envelope.wants();
    let routes: Vec<_> = wants.routes.iter().collect();
    assert_eq!(
        routes,
        [
            &(None, "bash".to_owned()),
            &(Some(id(RUNNER)), "cat".to_owned())
        ]
    );
    assert_eq!(
        wants.waits.iter().collect::<Vec<_>>(),
        [&(id(OTHER), key("far"))]
    );
    assert_eq!(
        wants.models.iter().collect::<Vec<_>>(),
        ["dev/c", "dev/d", "dev/f", "dev/m1"]
    );
    assert_eq!(wants.runners.iter().collect::<Vec<_>>(), [&id(OTHER)]);
    assert_eq!(wants.uploads.iter().collect::<Vec<_>>(), [&id(RUNNER)]);
}

fn consulted() -> Facts {
    let capable = ModelCapabilities {
        tool_calls: true,
        efforts: ["low".to_owned(), "high".to_owned()].into(),
        parameters: [
            (
                "max".to_owned(),
                parameter(ParameterKind::Integer, Some((1.0, 10.0)), None),
            ),
            (
                "heat".to_owned(),
                parameter(ParameterKind::Number, Some((0.0, 2.0)), None),
            ),
            (
                "json".to_owned(),
                parameter(ParameterKind::Boolean, None, None),
            ),
            (
                "tier".to_owned(),
                parameter(ParameterKind::Text, None, Some(vec!["a".into()])),
            ),
        ]
        .into(),
    };
    let mut facts = create();
    facts.catalogue = Catalogue::Consulted(
        [
            ("dev/m1".to_owned(), ModelVerdict::Usable(capable)),
            (
                "dev/plain".to_owned(),
                ModelVerdict::Usable(ModelCapabilities::default()),
            ),
            ("dev/off".to_owned(), ModelVerdict::Unavailable),
            ("dev/none".to_owned(), ModelVerdict::Unknown),
        ]
        .into(),
    );
    facts
}

fn parameter(
    kind: ParameterKind,
    range: Option<(f64, f64)>,
    allowed: Option<Vec<Value>>,
) -> Parameter {
    Parameter {
        kind,
        minimum: range.map(|r| r.0),
        maximum: range.map(|r| r.1),
        allowed,
    }
}

#[test]
fn a_consulted_catalogue_judges_models() {
    // steps.md §3.3, models.md §2, §3, §4
    let facts = consulted();
    let named = |rest: &str| verdict(&model(&format!(r#""model":{{"model":{rest}}}"#)), &facts);
    assert_eq!(named(r#""dev/m1""#), "ok");
    assert_eq!(named(r#""dev/none""#), "unknown_model steps[0].model");
    assert_eq!(named(r#""dev/unlisted""#), "unknown_model steps[0].model");
    assert_eq!(named(r#""dev/off""#), "model_unavailable steps[0].model");
    assert_eq!(named(r#""dev/m1","reasoning_effort":"low""#), "ok");
    let unsupported = "unsupported_reasoning_effort steps[0].model";
    assert_eq!(named(r#""dev/m1","reasoning_effort":"none""#), unsupported);
    assert_eq!(
        named(r#""dev/m1","reasoning_enabled":false,"reasoning_effort":"x""#),
        unsupported
    );
    assert_eq!(
        named(r#""dev/plain","reasoning_effort":"low""#),
        unsupported
    );
    assert_eq!(named(r#""dev/plain","reasoning_enabled":true"#), "ok");

    let m1 = |rest: &str| {
        verdict(
            &model(&format!(r#""model":{{"model":"dev/m1"}},{rest}"#)),
            &facts,
        )
    };
    let config = |members: &str| m1(&format!(r#""configuration":{members}"#));
    assert_eq!(
        config(r#"{"max":10,"heat":0.5,"json":true,"tier":"a"}"#),
        "ok"
    );
    assert_eq!(config(r#"{"heat":1}"#), "ok");
    for bad in [
        r#"{"other":1}"#,
        r#"{"max":11}"#,
        r#"{"max":0}"#,
        r#"{"max":1.0}"#,
        r#"{"heat":2.5}"#,
        r#"{"heat":"1"}"#,
        r#"{"json":1}"#,
        r#"{"tier":"b"}"#,
        r#"{"max":99999999999999999999999999}"#,
    ] {
        let expected = "unsupported_generation_parameter steps[0].configuration";
        assert_eq!(config(bad), expected, "{bad}");
    }
    let fallbacks = |list: &str| m1(&format!(r#""fallback_models":{list}"#));
    let invalid = "invalid_fallback_models steps[0].fallback_models";
    assert_eq!(
        fallbacks(r#"[{"model":"dev/plain"},{"model":"dev/off"},{"model":"dev/m1"}]"#),
        "ok"
    );
    assert_eq!(fallbacks(r#"[{"model":"dev/none"}]"#), invalid);
    assert_eq!(
        fallbacks(r#"[{"model":"dev/plain","reasoning_effort":"low"}]"#),
        invalid
    );

    let plain = r#""model":{"model":"dev/plain"},"tools":[{"name":"x"}]"#;
    assert_eq!(
        verdict(&model(plain), &facts),
        "tools_not_supported steps[0].tools"
    );
    let defaults = r#"[{"tool":{"name":"t","model_defaults":{"model":{"model":"dev/none"}}}}]"#;
    assert_eq!(
        verdict(defaults, &facts),
        "unknown_model steps[0].model_defaults.model"
    );
}

#[test]
fn an_omitted_intent_is_the_runs() {
    // steps.md §3.3, models.md §4: captured at acceptance
    let mut facts = create();
    let run = Selector {
        model: "dev/f".into(),
        reasoning_enabled: Some(false),
        reasoning_effort: None,
    };
    facts.fallback_models = vec![run.clone()];
    facts.model_selection = ModelSelection::Fixed;
    let captured = |rest: &str| {
        let steps = json(&model(&format!(r#""model":{{"model":"dev/m1"}}{rest}"#)));
        let compiled = compiled(&steps, &facts).unwrap();
        let Work::Model(round) = &compiled.rows[0].work else {
            panic!("a model")
        };
        round.context.clone()
    };
    let omitted = captured("");
    assert_eq!(omitted.fallback_models, std::slice::from_ref(&run));
    assert_eq!(omitted.effective_fallbacks(), []);
    let auto = captured(r#","model_selection":{"mode":"auto"}"#);
    assert_eq!(auto.effective_fallbacks(), std::slice::from_ref(&run));
    assert_eq!(captured(r#","fallback_models":[]"#).fallback_models, []);
    assert_eq!(
        auto.parts()["fallback_models"].as_str(),
        r#"[{"model":"dev/f","reasoning_enabled":false}]"#
    );
}

#[test]
fn the_definition_holds_everything_that_was_written() {
    // models.md §5, §14; conventions.md §10
    let mut facts = consulted();
    facts.uploads.insert(id(RUNNER));
    facts
        .kernel_tools
        .insert("nexus.graph.wait".into(), kernel_wait());
    let steps = json(&model(&format!(
        r#""model":{{"model":"dev/m1","reasoning_enabled":false,"reasoning_effort":null}},
           "instructions":"Be brief","configuration":{{"heat":1.50}},"tools":[{{"name":"x","strict":false}}],
           "kernel_tools":["nexus.graph.wait"],"runner_executor_public_ids":["{RUNNER}"],
           "runner_tool_names":[],"compaction":{{"mode":"kernel","model":"dev/c","reasoning_effort":"low"}},
           "attachments":["{RUNNER}"],"model_selection":{{"mode":"auto"}},"fallback_models":[]"#
    )));
    let compiled = compiled(&steps, &facts).unwrap();
    let Work::Model(round) = &compiled.rows[0].work else {
        panic!("a model")
    };
    let expected = format!(
        r#"{{"attachments":["{RUNNER}"],"compaction":{{"mode":"kernel","model":"dev/c","reasoning_effort":"low"}},"configuration":{{"heat":1.5}},"fallback_models":[],"instructions":"Be brief","kernel_tools":["nexus.graph.wait"],"model":{{"model":"dev/m1","reasoning_enabled":false}},"model_selection":{{"mode":"auto"}},"prompt":"p","runner_executor_public_ids":["{RUNNER}"],"runner_tool_names":[],"tools":[{{"name":"x","strict":false}}]}}"#
    );
    assert_eq!(round.definition().as_str(), expected);
    assert_eq!(
        round.definition().value().canonical().unwrap(),
        round.definition()
    );
}

#[test]
fn model_defaults_are_one_canonical_object() {
    // steps.md §3.2
    let steps = json(
        r#"[{"tool":{"name":"code","model_defaults":{"on_failure":"halt","fan_on_failure":"propagate",
             "instructions":"i","kernel_tools":null}}}]"#,
    );
    let compiled = compiled(&steps, &create()).unwrap();
    let Work::Tool(call) = &compiled.rows[0].work else {
        panic!("a tool")
    };
    let defaults = call.model_defaults.as_ref().unwrap();
    assert_eq!(defaults.model, None);
    assert_eq!(
        defaults.canonical().as_str(),
        r#"{"fallback_models":[],"fan_on_failure":"propagate","instructions":"i","kernel_tools":null,"model_selection":{"mode":"auto"},"on_failure":"halt"}"#
    );
}

#[test]
fn the_deepest_storable_tools_fit_a_definition() {
    let deep = format!("{}1{}", r#"{"a":"#.repeat(98), "}".repeat(98));
    let steps = json(&tools(&format!(r#"[{{"name":"x","parameters":{deep}}}]"#)));
    let compiled = compiled(&steps, &create()).unwrap();
    let Work::Model(round) = &compiled.rows[0].work else {
        panic!("a model")
    };
    assert!(round.definition().value().get("tools").is_some());
}

fn kernel_wait() -> KernelTool {
    KernelTool {
        wire_name: "wait".into(),
        definition: json(r#"{"name":"wait","parameters":{"type":"object"}}"#)
            .canonical()
            .unwrap(),
        parameters: [("task".to_owned(), false), ("quiet".to_owned(), true)].into(),
    }
}

#[test]
fn declared_tools_say_which_tool_they_mean() {
    // steps.md §3.3, models.md §5
    let mut facts = create();
    facts
        .kernel_tools
        .insert("nexus.graph.wait".into(), kernel_wait());
    let check = |list: &str| {
        let verdict = verdict(&tools(list), &facts);
        verdict.trim_end_matches(" steps[0].tools").to_owned()
    };
    assert_eq!(check(r#"[{"name":"a"},{"name":"b","x":1}]"#), "ok");
    assert_eq!(
        check(r#"[{"name":"a"},{"name":"a"}]"#),
        "duplicate_tool_name"
    );
    assert_eq!(
        check(r#"[{"parameters":{"type":"object"},"name":"wait"}]"#),
        "ok"
    );
    assert_eq!(check(r#"[{"name":"wait"}]"#), "kernel_tool_redefined");
    assert_eq!(check(r#"[{"name":"spawn"}]"#), "kernel_tool_redefined");
    let routed = |name: &str, rest: &str| {
        check(&format!(
            r#"[{{"name":"{name}","route":{{"kind":"runner"{rest}}}}}]"#
        ))
    };
    assert_eq!(routed("skill", ""), "ok");
    assert_eq!(routed("spawn", ""), "kernel_tool_redefined");
    let full = format!(r#","runner_executor_public_id":"{RUNNER}","tool_name":"cat""#);
    assert_eq!(routed("read", &full), "ok");
    assert_eq!(routed("read", r#","tool_name":"""#), "invalid_tools");
    assert_eq!(
        routed("read", r#","runner_executor_public_id":null"#),
        "invalid_tools"
    );
    assert_eq!(routed("read", r#","where":1"#), "invalid_tools");
    let alias =
        |name: &str, alias: &str| check(&format!(r#"[{{"name":"{name}","alias":{alias}}}]"#));
    let param = |param: &str| {
        alias(
            "hold",
            &format!(r#"{{"of":"wait","params":{{"p":{param}}}}}"#),
        )
    };
    assert_eq!(alias("hold", r#"{"of":"wait"}"#), "ok");
    assert_eq!(
        alias("hold", r#"{"of":"spawn"}"#),
        "alias_canonical_unknown"
    );
    assert_eq!(
        alias("hold", r#"{"of":"nexus.graph.wait"}"#),
        "alias_canonical_unknown"
    );
    assert_eq!(alias("wait", r#"{"of":"wait"}"#), "alias_name_reserved");
    assert_eq!(alias("send", r#"{"of":"wait"}"#), "alias_name_reserved");
    assert_eq!(alias("hold", "{}"), "invalid_tools");
    assert_eq!(alias("hold", "7"), "invalid_tools");
    assert_eq!(
        alias("hold", r#"{"of":"wait","params":[]}"#),
        "invalid_tools"
    );
    assert_eq!(param(r#"{"to":"task","description":"which"}"#), "ok");
    assert_eq!(
        param(r#"{"to":"quiet","invert":true,"description":"loud"}"#),
        "ok"
    );
    assert_eq!(
        param(r#"{"to":"nothing","description":"d"}"#),
        "alias_param_unknown"
    );
    assert_eq!(param(r#"{"description":"d"}"#), "alias_param_unknown");
    assert_eq!(
        param(r#"{"to":"task","invert":true,"description":"d"}"#),
        "alias_invert_needs_boolean"
    );
    assert_eq!(
        param(r#"{"to":"task","invert":1,"description":"d"}"#),
        "invalid_tools"
    );
    assert_eq!(
        param(r#"{"to":"task","description":" "}"#),
        "alias_param_description_required"
    );
    assert_eq!(
        param(r#"{"to":"task"}"#),
        "alias_param_description_required"
    );
}

#[test]
fn declared_tools_have_a_size() {
    // conventions.md §11: the envelope's own bound is as large, so only the defaults' text decides
    let text = "x".repeat(1_048_576);
    let value = json(&format!(r#"[{{"name":"a","d":"{text}"}}]"#));
    assert!(super::super::tools::declared(&value).is_none());
    let frame = r#"[{"d":"","name":"a"}]"#.len();
    let text = "x".repeat(1_048_576 - frame);
    let value = json(&format!(r#"[{{"name":"a","d":"{text}"}}]"#));
    assert_eq!(
        super::super::tools::declared(&value).unwrap().len(),
        1_048_576
    );
}

#[test]
fn only_a_members_envelope_has_attachments_and_tokens() {
    // steps.md §3.3, §3.4; runs.md §3
    let mut facts = after_r_n();
    facts.uploads.insert(id(RUNNER));
    let attached = model(&format!(
        r#""model":{{"model":"dev/m1"}},"attachments":["{RUNNER}"]"#
    ));
    assert_eq!(verdict(&attached, &facts), "ok");
    let twice = model(&format!(
        r#""model":{{"model":"dev/m1"}},"attachments":["{RUNNER}","{RUNNER}"]"#
    ));
    assert_eq!(
        verdict(&twice, &facts),
        "invalid_attachments steps[0].attachments"
    );
    facts.authored_by = crate::domain::words::AuthoredBy::Kernel;
    assert_eq!(
        verdict(&attached, &facts),
        "invalid_attachments steps[0].attachments"
    );
    let asked = compiled(&steps("[A]"), &facts).unwrap();
    assert_eq!(asked.tokened().count(), 0);
}

#[test]
fn options_of_ask_are_kept_in_order() {
    // steps.md §3.4
    let steps =
        json(r#"[{"ask":{"prompt":"p?","options":["b","a"],"multi":true,"timeout_ms":5}}]"#);
    let compiled = compiled(&steps, &create()).unwrap();
    let Work::Ask(ask) = &compiled.rows[0].work else {
        panic!("an ask")
    };
    assert_eq!(ask.options.as_deref().unwrap(), ["b", "a"]);
    assert_eq!((ask.multi, ask.timeout_ms), (Some(true), Some(5)));
}

#[test]
fn kinds_have_their_defaults_and_written_words_win() {
    // steps.md §3.7
    let words = |text: &str| {
        let compiled = compiled(&steps(text), &create()).unwrap();
        let rows = compiled.rows.iter();
        rows.map(|row| format!("{} {} {}", row.kind, row.on_failure, row.visibility))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        words("[M, T, A, W(w→s1-tool-1), P[T] until any]"),
        [
            "model_task halt visible",
            "tool_task propagate collapsed",
            "await_task propagate hidden",
            "await_task absorb hidden",
            "tool_task propagate collapsed",
            "join_task propagate hidden"
        ]
    );
    assert_eq!(
        words("[P[M(on_failure absorb,visibility hidden)] until any on_failure halt]"),
        ["model_task absorb hidden", "join_task halt hidden"]
    );
    let compiled = compiled(&steps("[M, M(fan_on_failure propagate), T]"), &create()).unwrap();
    let fans: Vec<_> = compiled.rows.iter().map(|row| row.fan_on_failure).collect();
    use crate::domain::words::OnFailure::{Absorb, Propagate};
    assert_eq!(fans, [Some(Absorb), Some(Propagate), None]);
}
