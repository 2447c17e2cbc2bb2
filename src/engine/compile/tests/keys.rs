//! Minting and collisions (`steps.md` §4).

use super::*;
use crate::domain::steps::Refusal;

fn keys(steps: &str, facts: &Facts) -> Vec<String> {
    let compiled = compiled(&super::steps(steps), facts).unwrap();
    compiled
        .accepted_task_keys()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_ordinal_counts_steps_of_the_verb_keyed_ones_too() {
    assert_eq!(
        keys("[T, T(x), T, M, A, W(w→x), M]", &create()),
        [
            "s1-tool-1",
            "x",
            "s1-tool-3",
            "s1-model-1",
            "s1-ask-1",
            "w",
            "s1-model-2"
        ]
    );
    let mut facts = after_r_n();
    facts.revision = 12;
    assert_eq!(keys("[T]", &facts), ["s12-tool-1"]);
}

#[test]
fn barriers_are_counted_as_placed_inner_before_outer() {
    assert_eq!(
        keys(
            "[P[P[T,T] until any, P[T,T] until any key mid, T] until 2, P[T] until any]",
            &create()
        ),
        [
            "s1-tool-1",
            "s1-tool-2",
            "s1-parallel-1",
            "s1-tool-3",
            "s1-tool-4",
            "mid",
            "s1-tool-5",
            "s1-parallel-3",
            "s1-tool-6",
            "s1-parallel-4"
        ]
    );
    // An `all` group places no barrier and counts for none.
    assert_eq!(
        keys("[P[T], P[T] until any]", &create())[2],
        "s1-parallel-1"
    );
}

#[test]
fn a_taken_number_moves_on_to_the_next_free_one() {
    let mut facts = after_r_n();
    facts
        .taken
        .extend([key("s2-tool-1"), key("s2-tool-3"), key("s2-parallel-1")]);
    assert_eq!(
        keys("[P[T,T,T] until any]", &facts),
        ["s2-tool-2", "s2-tool-4", "s2-tool-5", "s2-parallel-2"]
    );
}

#[test]
fn keys_written_anywhere_in_the_envelope_are_taken() {
    assert_eq!(
        keys(
            "[T, T(s1-tool-1), M(s1-parallel-1), P[T] until any key s1-model-1]",
            &create()
        ),
        [
            "s1-tool-2",
            "s1-tool-1",
            "s1-parallel-1",
            "s1-tool-3",
            "s1-model-1"
        ]
    );
}

#[test]
fn a_minted_key_can_be_named_by_a_later_step() {
    let compiled = compiled(&steps("[T, M(r=[s1-tool-1])]"), &create()).unwrap();
    assert_eq!(compiled.rows[1].result_from, [Ref::New(0)]);
}

#[test]
fn a_written_key_of_the_run_is_the_doors_conflict() {
    let refused = compiled(&steps("[T(new), T(rN)]"), &after_r_n());
    assert_eq!(refused, Err(Refusal::DuplicateTaskKey(key("rN"))));
    assert_eq!(refused.unwrap_err().code(), "duplicate_task_key");
    // runs.md §5: after the grammar, so what the grammar refuses is told first.
    let refused = compiled(&steps("[T(rN), P[T,T]]"), &after_r_n()).unwrap_err();
    assert_eq!(refused.code(), "invalid_steps");
}

#[test]
fn a_kernel_key_may_be_written() {
    assert_eq!(keys("[T(r1t0), M(w1)]", &create()), ["r1t0", "w1"]);
}

#[test]
fn the_wants_name_what_may_belong_to_the_run() {
    let envelope = Envelope::read(&steps(
        "[P[T(a),T] until any key race, M(m,r=[a,old],a=[older]), W(w→seen)]",
    ))
    .unwrap();
    let text = |keys: &std::collections::BTreeSet<TaskKey>| {
        keys.iter()
            .map(TaskKey::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(text(&envelope.wants().written), "a m race w");
    assert_eq!(text(&envelope.wants().keys), "a m old older race seen w");
    assert_eq!(envelope.leaves(), 4);
    assert_eq!(minted_prefix(4), "s4-");
}
