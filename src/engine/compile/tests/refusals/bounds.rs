//! Bounds at their limit and one over (`steps.md` §1.1).

use super::*;

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
fn a_report_does_not_outgrow_its_request() {
    let envelope = json(&format!("[{}]", many(100_000, "0")));
    assert_eq!(report(compiled(&envelope, &create())).len(), 512);
}
