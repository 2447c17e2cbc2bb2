//! The worked examples of `steps.md` §9, and the receipt of `runs.md` §15.

use std::collections::BTreeSet;

use super::*;
use crate::domain::steps::WaitRefusal;
use crate::domain::words::{Holder, JoinMode, Losers, Mark, OnFailure, TaskKind, Visibility};

/// Compiles and compares edges, reads and marks.
///
/// `edges` are all of them, in the spec's arrows. `models` lists `key mark in=[…] res=[…]` for
/// model rows; a row that is not listed reads nothing and, if a model, is not asked for its mark.
fn check(
    steps: &str,
    facts: &Facts,
    edges: &str,
    models: &[&str],
    answer: Option<&str>,
) -> Compiled {
    let compiled =
        compiled(&super::steps(steps), facts).unwrap_or_else(|e| panic!("{steps}: {e:?}"));
    assert_eq!(
        shown_edges(&compiled, facts),
        listed(edges),
        "edges of {steps}"
    );
    for row in &compiled.rows {
        let shown = shown_model(&compiled, facts, row);
        match models
            .iter()
            .find(|m| m.split(' ').next() == Some(row.key.as_str()))
        {
            Some(model) => assert_eq!(shown, *model, "{steps}"),
            None => {
                assert!(row.input_from.is_empty(), "{shown} of {steps}");
                assert!(row.result_from.is_empty(), "{shown} of {steps}");
            }
        }
        assert_eq!(row.mark.is_some(), row.kind == TaskKind::Model, "{shown}");
    }
    for model in models {
        super::row(&compiled, model.split(' ').next().unwrap());
    }
    let tip = compiled.answer.map(|i| compiled.rows[i].key.as_str());
    assert_eq!(tip, answer, "the answer of {steps}");
    compiled
}

fn listed(edges: &str) -> BTreeSet<String> {
    let listed = edges.split(',').map(|edge| edge.trim().to_owned());
    listed.filter(|edge| !edge.is_empty()).collect()
}

fn shown_edges(compiled: &Compiled, facts: &Facts) -> BTreeSet<String> {
    let mut shown = BTreeSet::new();
    for row in &compiled.rows {
        for edge in &row.edges {
            let arrow = if edge.structural { '→' } else { '⇢' };
            let from = name_of(compiled, facts, edge.from);
            assert!(shown.insert(format!("{from}{arrow}{}", row.key)), "twice");
        }
    }
    shown
}

fn shown_model(compiled: &Compiled, facts: &Facts, row: &Row) -> String {
    let names = |refs: &[Ref]| {
        let names: Vec<_> = refs.iter().map(|r| name_of(compiled, facts, *r)).collect();
        names.join(",")
    };
    let mark = row.mark.map_or("-", Mark::as_str);
    let (input, result) = (names(&row.input_from), names(&row.result_from));
    format!("{} {mark} in=[{input}] res=[{result}]", row.key)
}

fn barriers(compiled: &Compiled) -> Vec<String> {
    let of = |row: &Row| match row.barrier {
        Some(i) => format!("{}={}", row.key, compiled.rows[i].key),
        None => format!("{}=-", row.key),
    };
    compiled.rows.iter().map(of).collect()
}

fn mirror(compiled: &Compiled) -> String {
    serde_json::to_string(&compiled.mirror).unwrap()
}

#[test]
fn e1_a_tool_and_a_model_that_reads_it() {
    let steps = json(
        r#"[{"tool":{"key":"fetch","name":"http_get","input":{"url":"u"}}},
            {"model":{"key":"sum","model":{"model":"dev/m1"},"prompt":"Summarise","results":["fetch"]}}]"#,
    );
    let compiled = super::compiled(&steps, &create()).unwrap();
    assert_eq!(shown_edges(&compiled, &create()), listed("fetch→sum"));
    let sum = row(&compiled, "sum");
    assert_eq!(
        shown_model(&compiled, &create(), sum),
        "sum round in=[] res=[fetch]"
    );
    assert_eq!(compiled.answer, Some(1));
    assert_eq!(compiled.mainline, Some(1));
    let Work::Tool(call) = &row(&compiled, "fetch").work else {
        panic!("a tool")
    };
    assert_eq!(
        (call.name.as_str(), call.input.as_str()),
        ("http_get", r#"{"url":"u"}"#)
    );
    assert_eq!((call.timeout_ms, call.target), (None, None));
    let Work::Model(round) = &sum.work else {
        panic!("a model")
    };
    assert_eq!(
        round.definition().as_str(),
        r#"{"fallback_models":[],"model":{"model":"dev/m1"},"model_selection":{"mode":"auto"},"prompt":"Summarise"}"#
    );
}

#[test]
fn e2_the_mainline_of_a_create() {
    let models = ["plan round in=[] res=[]", "write round in=[plan] res=[]"];
    check(
        "[M(plan), M(write)]",
        &create(),
        "plan→write",
        &models,
        Some("write"),
    );
}

#[test]
fn e3_position_reads_nothing() {
    let models = ["m round in=[rN] res=[]"];
    check(
        "[T(t), M(m)]",
        &after_r_n(),
        "rN→t, t→m",
        &models,
        Some("m"),
    );
}

#[test]
fn e4_a_fan_of_branches_and_one_synthesis() {
    check(
        "[P[M(b1),M(b2)], M(syn,r=[b1,b2])]",
        &after_r_n(),
        "rN→b1, rN→b2, b1→syn, b2→syn",
        &[
            "b1 branch in=[] res=[]",
            "b2 branch in=[] res=[]",
            "syn round in=[rN] res=[b1,b2]",
        ],
        Some("syn"),
    );
}

#[test]
fn e5_a_step_after_a_race_reads_nothing_of_it() {
    let compiled = check(
        "[P[M(a),M(b)] until any key race, M(red)]",
        &after_r_n(),
        "rN→a, rN→b, a→race, b→race, race→red",
        &[
            "a branch in=[] res=[]",
            "b branch in=[] res=[]",
            "red round in=[rN] res=[]",
        ],
        Some("red"),
    );
    assert_eq!(barriers(&compiled), ["a=race", "b=race", "race=-", "red=-"]);
    let race = row(&compiled, "race");
    let expected = Barrier {
        mode: JoinMode::Any,
        k: 1,
        losers: Losers::Cancel,
    };
    assert_eq!(race.work, Work::Join(expected));
    assert_eq!(race.on_failure, OnFailure::Propagate);
    assert_eq!(race.visibility, Visibility::Hidden);
}

#[test]
fn e6_a_race_is_read_by_name() {
    check(
        "[P[M(a),M(b)] until any key race, M(red,r=[race])]",
        &after_r_n(),
        "rN→a, rN→b, a→race, b→race, race→red",
        &[
            "a branch in=[] res=[]",
            "b branch in=[] res=[]",
            "red round in=[rN] res=[race]",
        ],
        Some("red"),
    );
}

#[test]
fn e7_minted_keys_and_their_mirror() {
    let mut facts = after_r_n();
    facts.revision = 3;
    let compiled = check(
        "[P[T,T,T] until 2 losers run_out on_failure absorb, M]",
        &facts,
        "rN→s3-tool-1, rN→s3-tool-2, rN→s3-tool-3,
         s3-tool-1→s3-parallel-1, s3-tool-2→s3-parallel-1, s3-tool-3→s3-parallel-1,
         s3-parallel-1→s3-model-1",
        &["s3-model-1 round in=[rN] res=[]"],
        Some("s3-model-1"),
    );
    let race = row(&compiled, "s3-parallel-1");
    let expected = Barrier {
        mode: JoinMode::Quorum,
        k: 2,
        losers: Losers::RunOut,
    };
    assert_eq!(race.work, Work::Join(expected));
    assert_eq!(race.on_failure, OnFailure::Absorb);
    assert_eq!(
        mirror(&compiled),
        r#"[{"parallel":["s3-tool-1","s3-tool-2","s3-tool-3"],"key":"s3-parallel-1"},"s3-model-1"]"#
    );
}

#[test]
fn e8_sequences_inside_a_fan() {
    let compiled = check(
        "[P[[T(t),M(ts,r=[t])], [P[T(l),T(y)], M(qs,r=[l,y])]], M(rep,r=[ts,qs])]",
        &after_r_n(),
        "rN→t, t→ts, rN→l, rN→y, l→qs, y→qs, ts→rep, qs→rep",
        &[
            "ts branch in=[] res=[t]",
            "qs branch in=[] res=[l,y]",
            "rep round in=[rN] res=[ts,qs]",
        ],
        Some("rep"),
    );
    assert_eq!(
        mirror(&compiled),
        r#"[{"parallel":[["t","ts"],[{"parallel":["l","y"]},"qs"]]},"rep"]"#
    );
}

#[test]
fn e9_a_detached_step_is_as_if_not_there() {
    let compiled = check(
        "[!M(bg), M(m)]",
        &after_r_n(),
        "rN→bg, rN→m",
        &["bg branch in=[] res=[]", "m round in=[rN] res=[]"],
        Some("m"),
    );
    assert!(row(&compiled, "bg").detached);
    assert_eq!(compiled.mainline, Some(1));
}

#[test]
fn e10_members_see_each_other_by_name_only() {
    check(
        "[P[T(a),T(b),M(c,r=[a]),M(d,r=[a,b])], M(rep)]",
        &create(),
        "a⇢c, a⇢d, b⇢d, a→rep, b→rep, c→rep, d→rep",
        &[
            "c branch in=[] res=[a]",
            "d branch in=[] res=[a,b]",
            "rep round in=[] res=[]",
        ],
        Some("rep"),
    );
}

#[test]
fn e11_written_order_wins_over_after() {
    let models = ["c round in=[] res=[]"];
    check(
        "[T(a), T(b,a=[a]), M(c,a=[a])]",
        &create(),
        "a→b, b→c, a⇢c",
        &models,
        Some("c"),
    );
}

#[test]
fn e12_a_race_inside_a_race() {
    let compiled = check(
        "[P[[T(t1),P[T(i1),T(i2)] until any key inner],[T(t2),P[T(f1),T(f2)]]] until any key outer, M(z)]",
        &create(),
        "t1→i1, t1→i2, i1→inner, i2→inner, t2→f1, t2→f2, inner→outer, f1→outer, f2→outer, outer→z",
        &["z round in=[] res=[]"],
        Some("z"),
    );
    assert_eq!(
        barriers(&compiled),
        [
            "t1=outer",
            "i1=inner",
            "i2=inner",
            "inner=outer",
            "t2=outer",
            "f1=outer",
            "f2=outer",
            "outer=-",
            "z=-"
        ]
    );
    assert_eq!(
        mirror(&compiled),
        r#"[{"parallel":[["t1",{"parallel":["i1","i2"],"key":"inner"}],["t2",{"parallel":["f1","f2"]}]],"key":"outer"},"z"]"#
    );
}

#[test]
fn e13_a_race_named_later_is_one_dependency() {
    check(
        "[P[T(a),T(b)] until any key race, T(x), M(c,r=[race]), T(y,a=[race])]",
        &create(),
        "a→race, b→race, race→x, x→c, c→y, race⇢c, race⇢y",
        &["c round in=[] res=[race]"],
        Some("y"),
    );
}

#[test]
fn e14_only_a_reader_of_the_live_tail_is_the_doors_tip_live() {
    let facts = after(&[live(7, "rN")]);
    let tail = TaskNo(7);
    assert!(!check("[A(check)]", &facts, "rN→check", &[], Some("check")).continues(tail));
    let next = ["next round in=[rN] res=[]"];
    assert!(check("[M(next)]", &facts, "rN→next", &next, Some("next")).continues(tail));
    let fan = check(
        "[P[M(m1),M(m2)],T(after)]",
        &facts,
        "rN→m1, rN→m2, m1→after, m2→after",
        &["m1 branch in=[] res=[]", "m2 branch in=[] res=[]"],
        Some("after"),
    );
    assert!(!fan.continues(tail));
    assert_eq!(fan.mainline, None);
}

#[test]
fn e15_a_wait_observes_and_does_not_depend() {
    let compiled = check("[!A(src), W(j→src)]", &create(), "", &[], Some("j"));
    assert_eq!(compiled.tokened().collect::<Vec<_>>(), [0]);
    let j = row(&compiled, "j");
    assert_eq!((j.kind, j.on_failure), (TaskKind::Await, OnFailure::Absorb));
    let Work::Wait(wait) = &j.work else {
        panic!("a wait")
    };
    assert_eq!(wait.target, WaitTarget::Here(Ref::New(0)));
    assert_eq!(wait.timeout_ms, 3_600_000);
    assert_eq!(compiled.check_waits(|_, _| false), Ok(()));
    let Work::Ask(ask) = &row(&compiled, "src").work else {
        panic!("an ask")
    };
    assert_eq!(ask.holder, Holder::Token);
}

#[test]
fn e16_lifetime_and_wake_cover_a_step_and_its_descendants() {
    let compiled = check(
        "[M(e,lifetime turn,wake passive), M(o),
          P[T(g),T(k,lifetime conversation,wake auto)] lifetime turn wake passive until any key race,
          M(z)]",
        &create(),
        "e→o, o→g, o→k, g→race, k→race, race→z",
        &["e round in=[] res=[]", "o round in=[e] res=[]", "z round in=[o] res=[]"],
        Some("z"),
    );
    let axes: Vec<_> = compiled
        .rows
        .iter()
        .map(|row| format!("{} {} {}", row.key, row.lifetime, row.wake))
        .collect();
    assert_eq!(
        axes,
        [
            "e turn passive",
            "o conversation auto",
            "g turn passive",
            "k conversation auto",
            "race turn passive",
            "z conversation auto"
        ]
    );
    assert!(compiled.has_turn_work());
}

#[test]
fn e17_a_repair_hangs_below_the_answer() {
    let failed = StandingRow {
        settled: EdgeState::Open,
        ..done(1, "bad")
    };
    let facts = after(&[failed, done(2, "ok"), live(3, "ans")]);
    let fix = check(
        "[M(fix,r=[ok,bad])]",
        &facts,
        "ans→fix, ok⇢fix, bad⇢fix",
        &["fix round in=[ans] res=[ok,bad]"],
        Some("fix"),
    );
    assert!(fix.continues(TaskNo(3)));
    // engine.md §5: a reference to a terminal row is met at birth, a failed one too.
    let states: Vec<_> = fix.rows[0].edges.iter().map(|edge| edge.state).collect();
    assert_eq!(states, [EdgeState::Open, EdgeState::Met, EdgeState::Met]);
    let probe = check(
        "[T(probe,a=[ok])]",
        &facts,
        "ans→probe, ok⇢probe",
        &[],
        Some("probe"),
    );
    assert!(!probe.continues(TaskNo(3)));
}

#[test]
fn e18_a_fan_of_one_may_be_the_end() {
    check("[P[T(a)]]", &create(), "", &[], Some("a"));
}

#[test]
fn e19_a_sequence_exits_by_its_last_attached_step() {
    check(
        "[P[[T(a1),!M(bg)]], M(m)]",
        &create(),
        "a1→bg, a1→m",
        &["bg branch in=[] res=[]", "m round in=[] res=[]"],
        Some("m"),
    );
}

#[test]
fn the_receipt_of_runs_15_is_mirrored() {
    // runs.md §15, "Append after the seed of §3"
    let facts = after(&[live(1, "gate")]);
    let steps = json(
        r#"[{"parallel":[{"tool":{"key":"unit","name":"bash","input":{"command":"make unit"}}},
                         {"tool":{"key":"lint","name":"bash","input":{"command":"make lint"}}}],
             "until":"any"},
            {"model":{"key":"say","model":{"model":"dev/m1"},"prompt":"Report","results":["s2-parallel-1"]}}]"#,
    );
    let compiled = super::compiled(&steps, &facts).unwrap();
    assert_eq!(
        serde_json::to_string(&compiled.receipt()).unwrap(),
        r#"{"accepted_task_keys":["unit","lint","s2-parallel-1","say"],"steps":[{"parallel":["unit","lint"],"key":"s2-parallel-1"},"say"],"deliverable_task_key":"say","revision":2}"#
    );
    assert_eq!(compiled.tokened().count(), 0);
}

#[test]
fn an_append_of_only_detached_steps_moves_nothing() {
    // steps.md §5, "End rule"
    let models = ["bg branch in=[] res=[]"];
    let compiled = check(
        "[!M(bg), !T(x)]",
        &after_r_n(),
        "rN→bg, rN→x",
        &models,
        None,
    );
    assert_eq!(compiled.mainline, None);
    let receipt = serde_json::to_string(&compiled.receipt()).unwrap();
    assert!(!receipt.contains("deliverable"), "{receipt}");
}

#[test]
fn a_group_without_exits_does_not_move_the_cursor() {
    // steps.md §5, "Placing a group" 3
    check(
        "[T(a), P[!T(x),[!T(y)]], T(b)]",
        &create(),
        "a→x, a→y, a→b",
        &[],
        Some("b"),
    );
}

#[test]
fn a_detached_row_in_an_arm_has_no_barrier() {
    // steps.md §5, "Placing a group" 6
    let compiled = check(
        "[P[[T(a),!T(x)],T(b)] until any key race]",
        &create(),
        "a→x, a→race, b→race",
        &[],
        Some("race"),
    );
    assert_eq!(barriers(&compiled), ["a=race", "x=-", "b=race", "race=-"]);
}

#[test]
fn an_all_group_inside_an_arm_hands_its_race_down() {
    // steps.md §5, "Placing a group" 6: nearest race, at any depth
    let compiled = check(
        "[P[P[T(a),[T(b),T(c)]],T(d)] until 2 key race, T(e)]",
        &create(),
        "b→c, a→race, c→race, d→race, race→e",
        &[],
        Some("e"),
    );
    assert_eq!(
        barriers(&compiled),
        ["a=race", "b=race", "c=race", "d=race", "race=-", "e=-"]
    );
}

#[test]
fn the_mainline_passes_by_a_group() {
    // steps.md §5, "Placing a group" 5
    check(
        "[M(a), P[M(b),[M(c),M(d)]], M(e)]",
        &create(),
        "a→b, a→c, c→d, b→e, d→e",
        &[
            "a round in=[] res=[]",
            "b branch in=[] res=[]",
            "c branch in=[] res=[]",
            "d branch in=[] res=[]",
            "e round in=[a] res=[]",
        ],
        Some("e"),
    );
}

#[test]
fn one_key_in_both_lists_is_one_edge() {
    // steps.md §6, "Shape"
    check(
        "[T(a), T(b), M(c,a=[a],r=[a,b])]",
        &create(),
        "a→b, b→c, a⇢c",
        &["c round in=[] res=[a,b]"],
        Some("c"),
    );
}

#[test]
fn the_round_that_is_continued_stays_among_the_results() {
    // steps.md §6, "Read once": dropped at composition, not here
    let models = ["m round in=[rN] res=[rN]"];
    check("[M(m,r=[rN])]", &after_r_n(), "rN→m", &models, Some("m"));
}

#[test]
fn names_that_came_to_stand_for_one_row_are_read_once() {
    // steps.md §6: "Naming a row that already expanded resolves at acceptance to what stands for it"
    let mut facts = after(&[done(1, "old"), done(9, "r1")]);
    let tip = facts.rows[&key("r1")].clone();
    facts.rows.insert(key("old"), tip);
    let compiled = super::compiled(&steps("[T(x), M(m,r=[old,r1])]"), &facts).unwrap();
    let m = row(&compiled, "m");
    assert_eq!(m.result_from, [Ref::Existing(TaskNo(9))]);
    assert_eq!(m.edges.len(), 2);
}

#[test]
fn detached_steps_can_be_named() {
    // steps.md §6, "May name: an earlier-placed leaf"
    let models = ["m round in=[] res=[bg]"];
    check(
        "[!T(bg), M(m,r=[bg])]",
        &create(),
        "bg⇢m",
        &models,
        Some("m"),
    );
}

#[test]
fn a_wait_is_aimed_at_what_its_key_means() {
    // steps.md §3.5
    let run = "0198d1de-0000-7000-8000-000000000001".parse().unwrap();
    let other = "0198d1de-0000-7000-8000-000000000002";
    let mut facts = after_r_n();
    facts.run = Some(run);
    let target = |text: &str| {
        let compiled = super::compiled(&steps(text), &facts).unwrap();
        let aims = compiled.rows.iter().find_map(|row| match &row.work {
            Work::Wait(wait) => Some(wait.target),
            _ => None,
        });
        (
            aims.unwrap(),
            compiled.check_waits(|_, key| key.as_str() == "there"),
        )
    };
    let existing = WaitTarget::Here(Ref::Existing(TaskNo(7)));
    let elsewhere = WaitTarget::Elsewhere(other.parse().unwrap());
    let not_found = Err(WaitRefusal::TargetNotFound);
    assert_eq!(target("[W(w→rN)]"), (existing, Ok(())));
    assert_eq!(
        target(&format!("[W(w→rN,run_public_id {run})]")),
        (existing, Ok(()))
    );
    assert_eq!(target("[W(w→nothing)]"), (WaitTarget::Nothing, not_found));
    assert_eq!(
        target("[W(w→later), T(later)]"),
        (WaitTarget::Nothing, not_found)
    );
    assert_eq!(
        target("[W(w→w)]"),
        (WaitTarget::Itself, Err(WaitRefusal::Cycle))
    );
    let there = format!("[W(w→there,run_public_id {other})]");
    assert_eq!(target(&there), (elsewhere, Ok(())));
    let nowhere = format!("[W(w→gone,run_public_id {other})]");
    assert_eq!(target(&nowhere), (elsewhere, not_found));
    let race = "[P[T(a),W(w→race)] until any key race]";
    assert_eq!(target(race), (WaitTarget::Nothing, not_found));
}
