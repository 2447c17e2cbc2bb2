//! The table of `steps.md` §10, and values its rows leave out.

use super::*;

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
        "duplicate_task_key steps[0].key",
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
