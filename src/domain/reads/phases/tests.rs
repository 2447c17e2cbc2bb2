//! Every order of states, every way of grouping (`runs.md` §9, "phases").

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::domain::json::parse;

fn row(no: i32, key: &str, status: TaskStatus) -> Row {
    Row {
        no: TaskNo(no),
        key: TaskKey::trusted(key.to_owned()),
        status,
        authored_by: AuthoredBy::Author,
        on_failure: OnFailure::Propagate,
        failure_resolution: None,
        race_absorbed: false,
        error_key: None,
        in_arm: false,
        detached: false,
        has_consumer: false,
        parent: None,
        lineage: TaskNo(no),
        continues: None,
        result_delivered_at: None,
    }
}

fn receipt(steps: &serde_json::Value) -> Value {
    parse(
        json!({"steps": steps, "revision": 1})
            .to_string()
            .as_bytes(),
    )
    .expect("a receipt is JSON")
}

fn phases(steps: &serde_json::Value, rows: &[Row]) -> Phases {
    view(&[receipt(steps)], rows, Spend::default())
}

/// §9: one phase a top-level step, in write order; label = key, fan labels joined with ` · `.
#[test]
fn a_phase_is_a_top_level_step() {
    let cases = [
        (json!(["a"]), vec![("a", vec!["a"])]),
        (json!(["a", "b"]), vec![("a", vec!["a"]), ("b", vec!["b"])]),
        (
            json!([{"parallel": ["a", "b"]}, "c"]),
            vec![("a · b", vec!["a", "b"]), ("c", vec!["c"])],
        ),
        (
            json!([{"parallel": ["unit", "lint"], "key": "s2-parallel-1"}]),
            vec![("unit · lint", vec!["unit", "lint", "s2-parallel-1"])],
        ),
        (
            json!([{"parallel": [["t1", {"parallel": ["i1", "i2"], "key": "inner"}], ["t2"]], "key": "outer"}]),
            vec![(
                "t1 · i1 · i2 · t2",
                vec!["t1", "i1", "i2", "t2", "inner", "outer"],
            )],
        ),
        (json!([]), vec![]),
    ];
    for (steps, wanted) in cases {
        let found = phases(&steps, &[]).phases;
        let found: Vec<(&str, Vec<&str>)> = found
            .iter()
            .map(|p| {
                (
                    p.label.as_str(),
                    p.keys.iter().map(String::as_str).collect(),
                )
            })
            .collect();
        assert_eq!(found, wanted, "{steps}");
    }
}

/// §9: receipts in write order; a receipt without steps (another door's) has no phase.
#[test]
fn receipts_follow_one_another() {
    let other = parse(b"{\"claims\":[]}").expect("JSON");
    let receipts = [receipt(&json!(["a"])), other, receipt(&json!(["b"]))];
    let view = view(&receipts, &[], Spend::default());
    let labels: Vec<&str> = view.phases.iter().map(|p| p.label.as_str()).collect();
    assert_eq!(labels, ["a", "b"]);
}

/// What one row of each state says of its phase.
#[test]
fn a_row_says_what_its_state_means() {
    use PhaseStatus as P;
    use TaskStatus as T;
    let plain = |status| row(1, "a", status);
    let with = |status, change: fn(&mut Row)| {
        let mut row = plain(status);
        change(&mut row);
        row
    };
    let table = [
        (plain(T::Queued), P::Waiting),
        (plain(T::NeedsApproval), P::NeedsApproval),
        (plain(T::Running), P::Running),
        (plain(T::Dispatched), P::Running),
        (plain(T::AwaitingInput), P::AwaitingHuman),
        (plain(T::Completed), P::Completed),
        (plain(T::Failed), P::Failed),
        (plain(T::TimedOut), P::Failed),
        (plain(T::Uncertain), P::Failed),
        (plain(T::Skipped), P::Failed),
        // A cancel that resolves, or that somebody's end brought, leaves nothing to do.
        (plain(T::Canceled), P::Completed),
        (
            with(T::Canceled, |r| {
                r.error_key = Some("join_loser_canceled".into())
            }),
            P::Completed,
        ),
        (
            with(T::Canceled, |r| {
                r.error_key = Some("task_canceled".into());
                r.failure_resolution = Some(FailureResolution::Canceled);
            }),
            P::Completed,
        ),
        // A stop ends what was never done.
        (
            with(T::Canceled, |r| r.error_key = Some("run_canceled".into())),
            P::Failed,
        ),
        // Failures that stand for nothing any more.
        (
            with(T::Failed, |r| r.on_failure = OnFailure::Absorb),
            P::Completed,
        ),
        (
            with(T::Failed, |r| {
                r.failure_resolution = Some(FailureResolution::Abandoned)
            }),
            P::Completed,
        ),
        (with(T::Failed, |r| r.race_absorbed = true), P::Completed),
        // An arm's failure is its barrier's to tell, unless it halts.
        (with(T::Failed, |r| r.in_arm = true), P::Completed),
        (with(T::Skipped, |r| r.in_arm = true), P::Completed),
        (
            with(T::Failed, |r| {
                r.in_arm = true;
                r.on_failure = OnFailure::Halt;
            }),
            P::Failed,
        ),
        (
            with(T::Failed, |r| r.on_failure = OnFailure::Halt),
            P::Failed,
        ),
    ];
    for (row, wanted) in table {
        let phase = &phases(&json!(["a"]), std::slice::from_ref(&row)).phases[0];
        assert_eq!(phase.status, wanted, "{row:?}");
        assert_eq!(
            (phase.done, phase.total),
            (usize::from(row.status.is_terminal()), 1)
        );
    }
}

/// §9: worst live first: failed > needs_approval > awaiting_human > running > waiting > completed:
/// each pair, either way round.
#[test]
fn the_worst_row_speaks_for_its_phase() {
    let order = [
        (TaskStatus::Failed, "failed"),
        (TaskStatus::NeedsApproval, "needs_approval"),
        (TaskStatus::AwaitingInput, "awaiting_human"),
        (TaskStatus::Running, "running"),
        (TaskStatus::Queued, "waiting"),
        (TaskStatus::Completed, "completed"),
    ];
    for (i, (worse, word)) in order.iter().enumerate() {
        for (better, _) in &order[i..] {
            for (a, b) in [(worse, better), (better, worse)] {
                let rows = [row(1, "a", *a), row(2, "b", *b)];
                let phase = &phases(&json!([{"parallel": ["a", "b"]}]), &rows).phases[0];
                assert_eq!(phase.status.as_str(), *word, "{a} beside {b}");
            }
        }
    }
}

/// §9: kernel rows count inside the phase of the round they extend: a round's calls and its
/// continuation, a call's branch, an operation's children, a wake behind the tail.
#[test]
fn kernel_rows_count_where_they_extend() {
    let of_kernel = |no: i32, key: &str, change: fn(&mut Row)| {
        let mut row = row(no, key, TaskStatus::Completed);
        row.authored_by = AuthoredBy::Kernel;
        change(&mut row);
        row
    };
    let rows = [
        row(1, "plan", TaskStatus::Completed),
        row(2, "say", TaskStatus::Queued),
        of_kernel(3, "r1t0", |r| {
            r.authored_by = AuthoredBy::Model;
            r.parent = Some(TaskNo(1));
        }),
        of_kernel(4, "r1", |r| r.lineage = TaskNo(1)),
        // A branch under the call, two levels down.
        of_kernel(5, "r1t0-model-1", |r| {
            r.authored_by = AuthoredBy::Model;
            r.parent = Some(TaskNo(3));
        }),
        of_kernel(6, "r2t0", |r| {
            r.parent = Some(TaskNo(5));
            r.status = TaskStatus::Dispatched;
        }),
        of_kernel(7, "w1", |r| {
            r.continues = Some(TaskNo(2));
            r.status = TaskStatus::Queued;
        }),
        // Nothing is known of this one: it counts nowhere.
        of_kernel(8, "k1", |_| {}),
        // Rows that name each other extend nothing.
        of_kernel(9, "x", |r| r.parent = Some(TaskNo(10))),
        of_kernel(10, "y", |r| r.parent = Some(TaskNo(9))),
    ];
    let found = phases(&json!(["plan", "say"]), &rows);
    let [plan, say] = &found.phases[..] else {
        panic!("two phases: {found:?}");
    };
    assert_eq!(
        (plan.done, plan.total, plan.status),
        (4, 5, PhaseStatus::Running)
    );
    assert_eq!(
        (say.done, say.total, say.status),
        (0, 2, PhaseStatus::Waiting)
    );
    assert_eq!(plan.keys, ["plan"], "keys are the written ones");
}

/// §9: `current` = the first not-completed phase, or null.
#[test]
fn current_is_the_first_phase_that_is_not_completed() {
    use TaskStatus::{Completed, Failed, Queued};
    let table = [
        (vec![], None),
        (vec![Completed], None),
        (vec![Queued], Some(0)),
        (vec![Completed, Queued, Queued], Some(1)),
        (vec![Completed, Failed, Completed], Some(1)),
        (vec![Completed, Completed], None),
    ];
    for (states, wanted) in table {
        let keys: Vec<String> = (0..states.len()).map(|i| format!("s{i}")).collect();
        let rows: Vec<Row> = states
            .iter()
            .enumerate()
            .map(|(i, status)| row(i32::try_from(i).expect("few") + 1, &keys[i], *status))
            .collect();
        assert_eq!(phases(&json!(keys), &rows).current, wanted, "{states:?}");
    }
}

/// §9: `background` = detached tips.
#[test]
fn background_is_the_end_of_each_detached_chain() {
    let detached = |no, key, has_consumer| Row {
        detached: true,
        has_consumer,
        ..row(no, key, TaskStatus::Queued)
    };
    let rows = [
        row(1, "m", TaskStatus::Completed),
        detached(2, "bg", true),
        detached(3, "r1t0", true),
        detached(4, "r1", false),
        detached(5, "alone", false),
    ];
    let found = phases(&json!([]), &rows).background;
    let found = serde_json::to_value(found).expect("it serialises");
    let wanted = json!([{"key": "r1", "status": "waiting"}, {"key": "alone", "status": "waiting"}]);
    assert_eq!(found, wanted);
}

/// §9: spend without usage: no tokens, and null where there is nothing to say.
#[test]
fn nothing_used_is_zero_tokens_and_no_amount() {
    let spend = serde_json::to_value(Spend::default()).expect("it serialises");
    let wanted = json!({"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0,
        "cache_hit_rate": null, "cost_amount": null, "cost_unit": null, "by_model": []});
    assert_eq!(spend, wanted);
}

proptest! {
    /// Whatever rows there are: each counts at most once, and none of them loops for ever.
    #[test]
    fn any_rows_count_at_most_once(
        parents in prop::collection::vec((prop::option::of(1..20i32), 1..20i32), 0..20),
        named in 0..4usize,
    ) {
        let rows: Vec<Row> = parents
            .iter()
            .zip(1..)
            .map(|((parent, lineage), no)| Row {
                parent: parent.map(TaskNo),
                lineage: TaskNo(*lineage),
                ..row(no, &format!("k{no}"), TaskStatus::Completed)
            })
            .collect();
        let keys: Vec<String> = (1..=named).map(|n| format!("k{n}")).collect();
        let found = phases(&json!(keys), &rows);
        let counted: usize = found.phases.iter().map(|p| p.total).sum();
        prop_assert!(counted <= rows.len());
        prop_assert!(counted >= named.min(rows.len()));
        prop_assert!(found.phases.iter().all(|p| p.done == p.total));
    }
}
