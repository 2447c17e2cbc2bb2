//! Stages, references, `null`, and how a refusal reads (`steps.md` §1, §2, §6).

use super::*;

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
