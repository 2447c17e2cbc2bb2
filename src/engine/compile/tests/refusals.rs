//! The refused envelopes of `steps.md` §10, and bounds at and over their limits (§1.1).

use super::*;
use crate::domain::steps::{Bounds, Refusal, StepCode};
use crate::domain::words::MemberKind;

/// One report as `code path` lines.
fn report(refused: Result<Compiled, Refusal>) -> Vec<String> {
    let refusal = refused.expect_err("it should be refused");
    assert_eq!(refusal.code(), "invalid_steps", "{refusal:?}");
    let line = |e: &crate::domain::steps::StepError| match &e.path {
        Some(path) => format!("{} {path}", e.code),
        None => e.code.to_string(),
    };
    refusal.steps().iter().map(line).collect()
}

fn refused(steps: &Value, facts: &Facts, expected: &[&str]) {
    assert_eq!(report(compiled(steps, facts)), expected, "{steps:?}");
}

/// A tool, model or ask step with those options beside what it needs.
fn tool(options: &str) -> String {
    format!(r#"{{"tool":{{"name":"t"{options}}}}}"#)
}

fn model(options: &str) -> String {
    format!(r#"{{"model":{{"model":{{"model":"dev/m1"}},"prompt":"p"{options}}}}}"#)
}

fn ask(options: &str) -> String {
    format!(r#"{{"ask":{{"prompt":"p?"{options}}}}}"#)
}

fn many(n: usize, step: &str) -> String {
    vec![step; n].join(",")
}

/// One row of the table: its number, the envelope, code and path.
fn row(number: u32, envelope: &str, expected: &str) {
    let steps = json(envelope);
    assert_eq!(
        report(compiled(&steps, &create())),
        [expected],
        "row {number}: {envelope}"
    );
}

/// The same, in the notation of §9.
fn short(number: u32, envelope: &str, expected: &str) {
    let steps = super::steps(envelope);
    assert_eq!(
        report(compiled(&steps, &create())),
        [expected],
        "row {number}: {envelope}"
    );
}

#[test]
fn rows_1_to_12_the_shape() {
    let (t, m) = (tool(""), model(""));
    row(1, r#""x""#, "steps_must_be_an_array");
    row(1, "{}", "steps_must_be_an_array");
    for empty in ["[]", "null"] {
        let refusal = compiled(&json(empty), &create()).unwrap_err();
        assert_eq!(
            (refusal.code(), refusal.steps().len()),
            ("steps_required", 0),
            "row 2"
        );
    }
    row(3, "[[]]", "step_must_be_an_object steps[0]");
    row(
        4,
        r#"[{"tool":{"name":"t"},"model":{}}]"#,
        "ambiguous_step steps[0]",
    );
    row(
        4,
        &format!(r#"[{{"tool":{{"name":"t"}},"parallel":[{t}]}}]"#),
        "ambiguous_step steps[0]",
    );
    for verb in ["task", "delegation", "script", "join"] {
        row(
            5,
            &format!(r#"[{{"{verb}":{{}}}}]"#),
            "unknown_step_verb steps[0]",
        );
    }
    row(5, "[{}]", "unknown_step_verb steps[0]");
    let at = "edge_authoring_refused steps[0]";
    row(
        6,
        &format!("[{}]", tool(r#","depends_on":[]"#)),
        &format!("{at}.tool.depends_on"),
    );
    row(
        7,
        &format!("[{}]", model(r#","input_from":null"#)),
        &format!("{at}.model.input_from"),
    );
    row(
        8,
        &format!(r#"[{{"parallel":[{t}],"mode":"any"}}]"#),
        &format!("{at}.mode"),
    );
    let at = "unknown_step_option steps[0]";
    row(
        9,
        &format!("[{}]", tool(r#","prompt":"p""#)),
        &format!("{at}.tool.prompt"),
    );
    row(
        10,
        &format!("[{}]", model(r#","retry":1"#)),
        &format!("{at}.model.retry"),
    );
    row(
        10,
        &format!("[{}]", tool(r#","retry":1"#)),
        &format!("{at}.tool.retry"),
    );
    row(
        11,
        &format!("[{}]", ask(r#","fan_on_failure":"absorb""#)),
        &format!("{at}.ask.fan_on_failure"),
    );
    row(12, r#"[{"parallel":"x"}]"#, "empty_parallel steps[0]");
    row(
        12,
        &format!(r#"[{{"parallel":[]}},{m}]"#),
        "empty_parallel steps[0]",
    );
}

#[test]
fn shape_inside_groups_and_beside_verbs() {
    let t = tool("");
    // §1: "An empty sequence is `empty_parallel` at the member"
    row(
        12,
        &format!(r#"[{{"parallel":[{t},[]]}}]"#),
        "empty_parallel steps[0].parallel[1]",
    );
    row(
        3,
        r#"[{"parallel":[7]}]"#,
        "step_must_be_an_object steps[0].parallel[0]",
    );
    row(
        3,
        r#"[{"parallel":[[[]]]}]"#,
        "step_must_be_an_object steps[0].parallel[0][0]",
    );
    row(
        3,
        r#"[{"tool":null}]"#,
        "step_must_be_an_object steps[0].tool",
    );
    // §3.6: not group options
    for option in ["after", "detached", "results", "visibility", "retry"] {
        let envelope = format!(r#"[{{"parallel":[{t}],"{option}":null}}]"#);
        row(
            9,
            &envelope,
            &format!("unknown_step_option steps[0].{option}"),
        );
    }
    // §2: the words, wherever they appear as an option
    for word in "tasks depends_on input_from kind mode quorum_k loser_policy serial join reading \
                 detach deliverable window"
        .split_whitespace()
    {
        let leaf = format!(r#"[{{"wait":{{"task":"a","{word}":1}}}}]"#);
        row(
            6,
            &leaf,
            &format!("edge_authoring_refused steps[0].wait.{word}"),
        );
        let group = format!(r#"[{{"parallel":[{t}],"{word}":1}}]"#);
        row(
            8,
            &group,
            &format!("edge_authoring_refused steps[0].{word}"),
        );
        let beside = format!(r#"[{{"tool":{{"name":"t"}},"{word}":1}}]"#);
        row(
            8,
            &beside,
            &format!("edge_authoring_refused steps[0].{word}"),
        );
    }
    row(
        9,
        r#"[{"tool":{"name":"t"},"key":"a"}]"#,
        "unknown_step_option steps[0].key",
    );
    // §3.2: a member of `model_defaults`
    let defaults = tool(r#","model_defaults":{"prompt":"p"}"#);
    row(
        9,
        &format!("[{defaults}]"),
        "unknown_step_option steps[0].tool.model_defaults.prompt",
    );
    let nodes = json(r#"{"steps":[],"nodes":[]}"#);
    let refusal = refuse_graph_words(nodes.as_object().unwrap()).unwrap_err();
    assert_eq!(refusal.code(), "graph_authoring_not_available");
    assert_eq!(
        refuse_graph_words(json(r#"{"steps":[]}"#).as_object().unwrap()),
        Ok(())
    );
}

#[test]
fn rows_13_to_28_values_of_leaves() {
    let one = |n: u32, step: String, expected: &str| row(n, &format!("[{step}]"), expected);
    short(13, "[M(a), M(a)]", "duplicate_task_key steps[1].key");
    short(
        13,
        "[P[T(a)] until any key a]",
        "duplicate_task_key steps[0].parallel[0].key",
    );
    for bad in [
        r#""a.b""#,
        r#""""#,
        r#""-a""#,
        "7",
        &format!("\"{}\"", "k".repeat(65)),
    ] {
        one(
            14,
            tool(&format!(r#","key":{bad}"#)),
            "invalid_task_key steps[0].key",
        );
    }
    for bad in [
        "null",
        r#""dev/m1""#,
        "{}",
        r#"{"model":"m1"}"#,
        r#"{"model":"dev/m1","effort":"low"}"#,
        r#"{"model":"dev/m1","reasoning_enabled":"yes"}"#,
        r#"{"model":"dev/m1","reasoning_effort":3}"#,
        r#"{"model":"DEV/m1"}"#,
        r#"{"model":"dev/"}"#,
    ] {
        let step = format!(r#"{{"model":{{"model":{bad},"prompt":"p"}}}}"#);
        one(15, step, "invalid_model steps[0].model");
    }
    let prompt = |p: &str| format!(r#"{{"model":{{"model":{{"model":"dev/m1"}}{p}}}}}"#);
    one(
        16,
        prompt(r#","prompt":7"#),
        "invalid_prompt steps[0].prompt",
    );
    one(
        16,
        prompt(r#","prompt":"\u0000""#),
        "invalid_prompt steps[0].prompt",
    );
    for bad in ["", r#","prompt":null"#, r#","prompt":" \n""#] {
        one(17, prompt(bad), "prompt_required steps[0].prompt");
    }
    one(
        17,
        r#"{"ask":{}}"#.into(),
        "prompt_required steps[0].prompt",
    );
    one(
        16,
        r#"{"ask":{"prompt":[]}}"#.into(),
        "invalid_prompt steps[0].prompt",
    );
    one(
        18,
        model(r#","configuration":"x""#),
        "invalid_configuration steps[0].configuration",
    );
    for bad in [
        r#""""#,
        "7",
        "null",
        r#""\u0000""#,
        &format!("\"{}\"", "n".repeat(129)),
    ] {
        let step = format!(r#"{{"tool":{{"name":{bad}}}}}"#);
        one(19, step, "invalid_tool_name steps[0].name");
    }
    for reserved in [
        "wait",
        "skill",
        "delegate_task",
        "nexus.graph.wait",
        "nexus.human",
    ] {
        let step = format!(r#"{{"tool":{{"name":"{reserved}"}}}}"#);
        one(20, step, "reserved_tool_name steps[0].name");
    }
    for bad in [
        "5",
        "[]",
        r#"{"a":"\u0000"}"#,
        r#"{"\u0000":1}"#,
        r#"{"n":1e999}"#,
    ] {
        one(
            21,
            tool(&format!(r#","input":{bad}"#)),
            "invalid_tool_input steps[0].input",
        );
    }
    let large = tool(&format!(r#","input":{{"a":"{}"}}"#, "x".repeat(100_000)));
    one(22, large, "tool_input_too_large steps[0].input");
    one(
        23,
        tool(r#","tool_call_id":"c1""#),
        "invalid_tool_call_id steps[0].tool_call_id",
    );
    one(
        23,
        tool(r#","alias":"x""#),
        "invalid_tool_alias steps[0].alias",
    );
    for bad in ["-1", "0", "604800001", "1.0", r#""1""#] {
        one(
            24,
            ask(&format!(r#","timeout_ms":{bad}"#)),
            "invalid_timeout_ms steps[0].timeout_ms",
        );
    }
    one(
        25,
        model(r#","on_failure":"explode""#),
        "invalid_on_failure steps[0].on_failure",
    );
    one(
        26,
        model(r#","visibility":"loud""#),
        "invalid_visibility steps[0].visibility",
    );
    one(
        27,
        model(r#","detached":"yes""#),
        "invalid_detached steps[0].detached",
    );
    one(
        28,
        tool(r#","lifetime":"forever""#),
        "invalid_lifetime steps[0].lifetime",
    );
    one(28, tool(r#","wake":"never""#), "invalid_wake steps[0].wake");
}

#[test]
fn rows_29_to_38_groups_and_the_end() {
    let t = tool("");
    for bad in [r#""first""#, "0", "-2", "1.0", "true"] {
        let envelope = format!(r#"[{{"parallel":[{t}],"until":{bad}}}]"#);
        row(29, &envelope, "invalid_until steps[0].until");
    }
    short(30, "[P[T,T] until 3]", "unsatisfiable_until steps[0].until");
    short(
        30,
        "[P[T,T] until 99999999999999999999]",
        "unsatisfiable_until steps[0].until",
    );
    short(
        30,
        "[P[!T(a)] until any, M]",
        "unsatisfiable_until steps[0].until",
    );
    short(31, "[P[T] key g]", "key_needs_a_race steps[0].key");
    short(
        31,
        "[P[T] until all key g]",
        "key_needs_a_race steps[0].key",
    );
    short(32, "[P[T] losers cancel]", "invalid_losers steps[0].losers");
    short(
        32,
        "[P[T] until any losers keep]",
        "invalid_losers steps[0].losers",
    );
    short(
        33,
        "[P[T] on_failure absorb]",
        "invalid_on_failure steps[0].on_failure",
    );
    short(
        33,
        "[P[T] until any on_failure x]",
        "invalid_on_failure steps[0].on_failure",
    );
    short(
        28,
        "[P[T] lifetime x]",
        "invalid_lifetime steps[0].lifetime",
    );
    short(28, "[P[T] wake x]", "invalid_wake steps[0].wake");
    short(
        34,
        "[P[T(a),[T(b,input 5)]], M]",
        "invalid_tool_input steps[0].parallel[1][0].input",
    );
    short(35, "[P[T(a),T(b)]]", "fan_needs_follower steps[0]");
    short(35, "[T(a),P[T(b),T(c)]]", "fan_needs_follower steps[1]");
    short(
        35,
        "[T(a),P[P[T(b),T(c)]],!T(d),P[!T(e)]]",
        "fan_needs_follower steps[1]",
    );
    short(36, "[!M(bg)]", "seed_needs_a_tip steps[0]");
    short(36, "[P[!T(a)],!T(b)]", "seed_needs_a_tip steps[0]");
    let tools = many(65, &t);
    row(37, &format!("[{tools},{}]", model("")), "too_many_steps");
    let members = many(33, &t);
    row(
        38,
        &format!(r#"[{{"parallel":[{members}]}},{t}]"#),
        "too_wide_a_fan steps[0]",
    );
}

#[test]
fn rows_39_to_50_references_and_lookups() {
    let chain = |n: usize| {
        (0..n)
            .map(|i| format!("T(t{i})"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let first = |n: usize| {
        (0..n)
            .map(|i| format!("t{i}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let envelope = format!("[{},M(r=[{}])]", chain(33), first(32));
    short(39, &envelope, "too_many_dependencies steps[33]");
    short(
        40,
        "[M(a,r=[a])]",
        "unknown_task_reference steps[0].results[0]",
    );
    short(
        40,
        "[M(a,r=[b]),T(b)]",
        "unknown_task_reference steps[0].results[0]",
    );
    short(
        41,
        "[T(a),M(b,r=[a,a])]",
        "duplicate_task_reference steps[1].results[1]",
    );
    short(
        41,
        "[T(a),M(b,a=[a,a])]",
        "duplicate_task_reference steps[1].after[1]",
    );
    let race = "[P[T(a),T(b,a=[race])] until any key race]";
    short(
        42,
        race,
        "unknown_task_reference steps[0].parallel[1].after[0]",
    );
    let megabyte = "x".repeat(1_048_576);
    row(
        43,
        &format!(r#"[{{"ask":{{"prompt":"{megabyte}"}}}}]"#),
        "steps_payload_too_large",
    );
    let one = |n: u32, step: String, expected: &str| row(n, &format!("[{step}]"), expected);
    for bad in [
        "[]",
        "{}",
        "[7]",
        r#"[{"description":"nameless"}]"#,
        r#"[{"name":"\u0000"}]"#,
    ] {
        one(
            44,
            model(&format!(r#","tools":{bad}"#)),
            "invalid_tools steps[0].tools",
        );
    }
    for bad in [r#""../x""#, "null", "7"] {
        one(
            45,
            format!(r#"{{"wait":{{"task":{bad}}}}}"#),
            "invalid_task_key steps[0].task",
        );
    }
    one(
        45,
        r#"{"wait":{"task":"a","run_public_id":"x"}}"#.into(),
        "invalid_run_public_id steps[0].run_public_id",
    );
    let runner = r#","route":{"kind":"runner"}"#;
    one(46, tool(runner), "runner_target_required steps[0].route");
    for bad in [
        r#"{"kind":"runner","runner_executor_public_id":null}"#,
        r#"{"kind":"runner","runner_executor_public_id":"x"}"#,
        r#"{"kind":"pool"}"#,
        r#"{}"#,
        r#""runner""#,
        r#"{"kind":"runner","tool":"x"}"#,
    ] {
        one(
            47,
            tool(&format!(r#","route":{bad}"#)),
            "invalid_tool_route steps[0].route",
        );
    }
    let delegate = model(r#","compaction":{"mode":"delegate","tool_name":"sum"}"#);
    let envelope = format!(r#"[{{"parallel":[{},{delegate}]}},{}]"#, tool(""), tool(""));
    row(
        48,
        &envelope,
        "delegate_requires_agent steps[0].parallel[1].compaction",
    );
    let mut agent = create();
    agent.creator = MemberKind::Agent;
    compiled(&json(&envelope), &agent).unwrap();
    let options = format!("[{}]", many(33, r#""o""#));
    for bad in ["[1]", "[]", r#"[" "]"#, r#""yes""#, &options] {
        one(
            49,
            ask(&format!(r#","options":{bad}"#)),
            "invalid_ask_options steps[0].options",
        );
    }
    one(
        49,
        ask(r#","multi":"no""#),
        "invalid_ask_multi steps[0].multi",
    );
    for bad in [
        "[]",
        r#"["x"]"#,
        "{}",
        r#"["0198d1de-0000-7000-8000-000000000001"]"#,
    ] {
        one(
            50,
            model(&format!(r#","attachments":{bad}"#)),
            "invalid_attachments steps[0].attachments",
        );
    }
}

#[test]
fn values_of_models_that_have_no_row_of_their_own() {
    // steps.md §3.3, models.md §4, §14
    let one = |field: &str, bad: &str, code: &str| {
        let step = model(&format!(r#","{field}":{bad}"#));
        row(0, &format!("[{step}]"), &format!("{code} steps[0].{field}"));
        // §3.2: the same members, path prefixed `.model_defaults`
        let step = tool(&format!(r#","model_defaults":{{"{field}":{bad}}}"#));
        let path = format!("{code} steps[0].model_defaults.{field}");
        row(0, &format!("[{step}]"), &path);
    };
    one("instructions", "7", "invalid_instructions");
    one("configuration", "[]", "invalid_configuration");
    one("tools", "[]", "invalid_tools");
    one("kernel_tools", r#"["wait"]"#, "invalid_kernel_tools");
    one(
        "kernel_tools",
        r#""nexus.graph.wait""#,
        "invalid_kernel_tools",
    );
    one(
        "runner_executor_public_ids",
        r#"["x"]"#,
        "invalid_runner_executors",
    );
    one(
        "runner_executor_public_ids",
        "7",
        "invalid_runner_executors",
    );
    one("runner_tool_names", "[1]", "invalid_runner_tool_names");
    one("runner_tool_names", r#""all""#, "invalid_runner_tool_names");
    for bad in [
        r#""off""#,
        "{}",
        r#"{"mode":"x"}"#,
        r#"{"mode":"delegate"}"#,
        r#"{"mode":"off","x":1}"#,
    ] {
        one("compaction", bad, "invalid_compaction");
    }
    one("fan_on_failure", r#""halt""#, "invalid_fan_on_failure");
    for bad in [
        r#""auto""#,
        "{}",
        r#"{"mode":"x"}"#,
        r#"{"mode":"auto","x":1}"#,
    ] {
        one("model_selection", bad, "invalid_model_selection");
    }
    let nine: Vec<_> = (0..9)
        .map(|i| format!(r#"{{"model":"dev/m{i}"}}"#))
        .collect();
    let nine = format!("[{}]", nine.join(","));
    for bad in [
        "{}",
        r#"["dev/m1"]"#,
        r#"[{"model":"dev/a"},{"model":"dev/a"}]"#,
        &nine,
    ] {
        one("fallback_models", bad, "invalid_fallback_models");
    }
    let fixed = r#","model_selection":{"mode":"fixed"},"fallback_models":[{"model":"dev/a"}]"#;
    row(
        0,
        &format!("[{}]", model(fixed)),
        "invalid_model_selection steps[0].model_selection",
    );
    let defaults = tool(r#","model_defaults":[]"#);
    row(
        0,
        &format!("[{defaults}]"),
        "invalid_model_defaults steps[0].model_defaults",
    );
    let defaults = tool(r#","model_defaults":{"on_failure":"x"}"#);
    row(
        0,
        &format!("[{defaults}]"),
        "invalid_on_failure steps[0].model_defaults.on_failure",
    );
    let defaults = tool(r#","model_defaults":{"model":"dev/m1"}"#);
    row(
        0,
        &format!("[{defaults}]"),
        "invalid_model steps[0].model_defaults.model",
    );
}

#[test]
fn references_have_a_shape_before_they_have_a_meaning() {
    // §6, "Shape": told in stage B, so another step's unknown name is not told beside it
    for bad in ["\"a\"", "{}", "[7]", "[\"a.b\"]"] {
        for (list, step) in [
            ("after", tool(&format!(r#","after":{bad}"#))),
            ("results", model(&format!(r#","results":{bad}"#))),
        ] {
            let envelope = json(&format!("[{},{step}]", tool(r#","after":["nobody"]"#)));
            refused(
                &envelope,
                &create(),
                &[&format!("invalid_task_references steps[1].{list}")],
            );
        }
    }
    let others = tool(r#","results":["a"]"#);
    row(
        9,
        &format!("[{others}]"),
        "unknown_step_option steps[0].tool.results",
    );
}

#[test]
fn a_stage_tells_one_error_a_step_in_written_order_and_hides_later_stages() {
    // §2
    let a = json(
        r#"[{"tool":{"name":"","retry":1,"mode":2}},[],{"parallel":[{"x":{}},[{"ask":{"kind":1}}]],"y":1},
            {"tool":{"name":"t","after":["nobody"]}}]"#,
    );
    refused(
        &a,
        &create(),
        &[
            "edge_authoring_refused steps[0].tool.mode",
            "step_must_be_an_object steps[1]",
            "unknown_step_option steps[2].y",
            "unknown_step_verb steps[2].parallel[0]",
            "edge_authoring_refused steps[2].parallel[1][0].ask.kind",
        ],
    );
    let b = json(
        r#"[{"tool":{"name":"","input":5}},
            {"parallel":[{"ask":{"prompt":"p","multi":1}},{"tool":{"name":"wait"}}],"until":0},
            {"tool":{"name":"t","route":{"kind":"runner"}}},
            {"tool":{"name":"t","after":["nobody"]}}]"#,
    );
    refused(
        &b,
        &create(),
        &[
            "invalid_tool_name steps[0].name",
            "invalid_until steps[1].until",
            "invalid_ask_multi steps[1].parallel[0].multi",
            "reserved_tool_name steps[1].parallel[1].name",
            "runner_target_required steps[2].route",
        ],
    );
    let c = steps("[T(a,a=[x,y]), M(b,a=[z],r=[a,a]), P[T,T] until 9]");
    refused(
        &c,
        &create(),
        &[
            "unknown_task_reference steps[0].after[0]",
            "unknown_task_reference steps[1].after[0]",
        ],
    );
    let d = steps("[P[P[T,T] until 3,T] until 9, P[T,T]]");
    refused(
        &d,
        &create(),
        &[
            "unsatisfiable_until steps[0].until",
            "unsatisfiable_until steps[0].parallel[0].until",
            "fan_needs_follower steps[1]",
        ],
    );
}

#[test]
fn what_a_reference_may_not_name() {
    // §6, "May name"
    let unknown = "unknown_task_reference steps[1].after[0]";
    short(0, "[P[T], T(a=[s1-parallel-1])]", unknown);
    short(0, "[T(x), T(a=[rN])]", unknown);
    // A written key means the envelope's row, also where the run has one of that name.
    let facts = after_r_n();
    refused(
        &steps("[T(a=[rN]), T(rN)]"),
        &facts,
        &["unknown_task_reference steps[0].after[0]"],
    );
    // What the kernel writes names only what it placed itself.
    let mut kernel = after_r_n();
    kernel.authored_by = crate::domain::words::AuthoredBy::Kernel;
    refused(
        &steps("[T(a=[rN])]"),
        &kernel,
        &["unknown_task_reference steps[0].after[0]"],
    );
}

#[test]
fn an_assembled_seed_is_a_model_without_instructions() {
    // steps.md §3.3, runs.md §3
    for mechanism in [PromptMechanism::Default, PromptMechanism::Assembly] {
        let facts = Facts::create(mechanism);
        refused(
            &steps("[T(a)]"),
            &facts,
            &["seed_not_a_model_step steps[0]"],
        );
        refused(
            &steps("[P[M(a)]]"),
            &facts,
            &["seed_not_a_model_step steps[0]"],
        );
        let told = steps("[M(a,instructions x), M(b,instructions y)]");
        refused(
            &told,
            &facts,
            &["instructions_raw_only steps[0].instructions"],
        );
        compiled(&steps("[M(a), T(b), M(c,instructions y)]"), &facts).unwrap();
    }
    compiled(&steps("[T(a), M(b,instructions x)]"), &create()).unwrap();
    compiled(&steps("[M(b,instructions x)]"), &after_r_n()).unwrap();
}

#[test]
fn null_is_omission() {
    // §1, "Explicit null"
    let all = |names: &[&str]| {
        let nulls: Vec<_> = names
            .iter()
            .map(|name| format!(r#","{name}":null"#))
            .collect();
        nulls.concat()
    };
    let common = [
        "key",
        "detached",
        "lifetime",
        "wake",
        "on_failure",
        "visibility",
        "after",
    ];
    let common = all(&common);
    let steps = json(&format!(
        r#"[{},{},{},{{"wait":{{"task":"s1-tool-1"{common}{}}}}},
            {{"parallel":[{}]{}}}]"#,
        tool(
            &(common.clone()
                + &all(&[
                    "input",
                    "route",
                    "timeout_ms",
                    "model_defaults",
                    "tool_call_id",
                    "alias"
                ]))
        ),
        model(
            &(common.clone()
                + &all(&[
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
                ]))
        ),
        ask(&(common.clone() + &all(&["options", "multi", "timeout_ms"]))),
        all(&["run_public_id", "timeout_ms"]),
        tool(""),
        all(&["until", "losers", "key", "on_failure", "lifetime", "wake"]),
    ));
    let compiled = super::compiled(&steps, &create()).unwrap();
    assert_eq!(compiled.rows.len(), 5);
    let Work::Model(round) = &compiled.rows[1].work else {
        panic!("a model")
    };
    // The exceptions: `runner_tool_names: null` is everything, `kernel_tools: null` none.
    assert_eq!(round.context.runner_tool_names, Names::Null);
    assert_eq!(round.context.kernel_tools, Names::Null);
    let omitted = super::compiled(&super::steps("[M]"), &create()).unwrap();
    let Work::Model(round) = &omitted.rows[0].work else {
        panic!("a model")
    };
    assert_eq!(round.context.runner_tool_names, Names::Omitted);
}

#[test]
fn bounds_hold_at_the_limit_and_refuse_one_over() {
    // §1.1
    let chain = |n: usize| json(&format!("[{}]", many(n, &tool(""))));
    assert_eq!(compiled(&chain(64), &create()).unwrap().rows.len(), 64);
    refused(&chain(65), &create(), &["too_many_steps"]);

    let fan = |n: usize| {
        json(&format!(
            r#"[{{"parallel":[{}]}},{}]"#,
            many(n, &tool("")),
            tool("")
        ))
    };
    compiled(&fan(32), &create()).unwrap();
    refused(&fan(33), &create(), &["too_wide_a_fan steps[0]"]);

    // Exits of nested fans count at the group that leaves them.
    let nested = |a: usize, b: usize, until: &str| {
        let inner = |n| format!(r#"{{"parallel":[{}]}}"#, many(n, &tool("")));
        json(&format!(
            r#"[{{"parallel":[{},{}]{until}}},{}]"#,
            inner(a),
            inner(b),
            tool("")
        ))
    };
    compiled(&nested(16, 16, ""), &create()).unwrap();
    refused(&nested(16, 17, ""), &create(), &["too_wide_a_fan steps[0]"]);
    refused(
        &nested(16, 17, r#","until":"any""#),
        &create(),
        &["too_wide_a_fan steps[0]"],
    );

    let names = |n: usize| {
        (0..n)
            .map(|i| format!("t{i}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let reads = |n: usize| {
        let tools: Vec<_> = (0..32).map(|i| format!("T(t{i})")).collect();
        steps(&format!(
            "[P[{}], T(x), M(a=[x],r=[{}])]",
            tools.join(","),
            names(n)
        ))
    };
    compiled(&reads(31), &create()).unwrap();
    refused(&reads(32), &create(), &["too_many_dependencies steps[2]"]);

    let input = |n: usize| steps(&format!(r#"[T(input {{"a":"{}"}})]"#, "x".repeat(n - 8)));
    compiled(&input(65_536), &create()).unwrap();
    refused(
        &input(65_537),
        &create(),
        &["tool_input_too_large steps[0].input"],
    );

    let clock = |ms: i64| steps(&format!("[T(timeout_ms {ms})]"));
    compiled(&clock(604_800_000), &create()).unwrap();
    compiled(&clock(1), &create()).unwrap();

    let payload = |n: usize| {
        let frame = r#"{"steps":[{"ask":{"prompt":""}}]}"#.len();
        json(&format!(
            r#"[{{"ask":{{"prompt":"{}"}}}}]"#,
            "x".repeat(n - frame)
        ))
    };
    compiled(&payload(1_048_576), &create()).unwrap();
    refused(&payload(1_048_577), &create(), &["steps_payload_too_large"]);
    // Size comes before count, count before the steps.
    let both = format!(
        "[{}]",
        many(
            20_000,
            &tool(r#","input":5,"key":"abcdefghijklmnopqrstuvw""#)
        )
    );
    refused(&json(&both), &create(), &["steps_payload_too_large"]);
    let both = format!("[{}]", many(65, &tool(r#","input":5"#)));
    refused(&json(&both), &create(), &["too_many_steps"]);

    let longest = "k".repeat(64);
    compiled(&steps(&format!("[T({longest})]")), &create()).unwrap();
    let widest = format!(r#"[{{"tool":{{"name":"{}"}}}}]"#, "ñ".repeat(128));
    compiled(&json(&widest), &create()).unwrap();
    let choices = ask(&format!(r#","options":[{}]"#, many(32, r#""o""#)));
    compiled(&json(&format!("[{choices}]")), &create()).unwrap();
}

#[test]
fn the_kernel_has_wider_bounds() {
    // §1.1: 256 calls and their continuation
    let mut facts = after_r_n();
    facts.authored_by = crate::domain::words::AuthoredBy::Kernel;
    let fan = |n: usize| {
        json(&format!(
            r#"[{{"parallel":[{}]}},{}]"#,
            many(n, &tool("")),
            model("")
        ))
    };
    let compiled = super::compiled(&fan(256), &facts).unwrap();
    assert_eq!(compiled.rows[256].edges.len(), 256);
    refused(&fan(257), &facts, &["too_many_steps"]);
}

#[test]
fn reads_are_bounded_by_themselves() {
    // §1.1. No envelope within 32 dependencies has 34 reads, so the bound is tried on its own.
    let bounds = Bounds {
        reads: 2,
        ..Bounds::CLIENT
    };
    let facts = after_r_n();
    let within =
        |text: &str| compile_within(&Envelope::read(&steps(text)).unwrap(), &facts, bounds);
    within("[T(a), M(r=[a])]").unwrap();
    assert_eq!(
        report(within("[T(a), T(b), M(r=[a,b])]")),
        ["too_many_reads steps[2]"]
    );
}

#[test]
fn an_unstorable_envelope_is_still_measured() {
    // §1.1 and conventions.md §10: what cannot be stored has a size and its own code
    let deep = format!("{}1{}", r#"{"a":"#.repeat(101), "}".repeat(101));
    let step = tool(&format!(r#","input":{deep}"#));
    row(
        21,
        &format!("[{step}]"),
        "invalid_tool_input steps[0].input",
    );
}

#[test]
fn a_refusal_serialises_as_the_error_envelope_shows_it() {
    // §2
    let refusal = compiled(&steps("[M(a), M(a)]"), &create()).unwrap_err();
    assert_eq!(
        serde_json::to_string(refusal.steps()).unwrap(),
        r#"[{"code":"duplicate_task_key","path":"steps[1].key"}]"#
    );
    let refusal = compiled(&json("7"), &create()).unwrap_err();
    assert_eq!(
        serde_json::to_string(refusal.steps()).unwrap(),
        r#"[{"code":"steps_must_be_an_array"}]"#
    );
    assert_eq!(refusal.steps()[0].code, StepCode::StepsMustBeAnArray);
}

#[test]
fn a_report_does_not_outgrow_its_request() {
    let envelope = json(&format!("[{}]", many(100_000, "0")));
    assert_eq!(report(compiled(&envelope, &create())).len(), 512);
}
