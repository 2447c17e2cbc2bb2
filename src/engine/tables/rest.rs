//! What a run comes to when nothing more can start (`engine.md` §7, as far as it is built).

use super::check;

#[test]
fn an_answered_run_completes() {
    check(
        "
        executor p1 provider read
        task a tool read absorb
        task b tool read
        task c tool read propagate
        answer b
        claim  a p1            -> granted
        claim  b p1            -> granted
        claim  c p1            -> granted
        commit b p1 'ok'       -> completed; b completed
        show   run             -> running
        commit a p1 'x' failed -> failed; a failed
        commit c p1 'x' failed -> failed; c failed, run completed
        ",
    );
}

#[test]
fn a_halt_failure_holds_even_an_answered_run() {
    check(
        "
        executor p1 provider read
        task a tool read halt
        task b tool read
        claim  a p1            -> granted
        claim  b p1            -> granted
        commit a p1 'x' failed -> failed; a failed, run needs_attention, attention halt_failure a
        commit b p1 'ok'       -> completed; b completed
        show   run             -> needs_attention halt_failure [a]
        ",
    );
}

/// The keys of a hold are those of its reason: halt failures alone, or every candidate.
#[test]
fn a_hold_names_what_a_person_may_mend() {
    check(
        "
        executor p1 provider read
        task a tool read halt
        task b tool read propagate
        task c tool read absorb
        task d tool read waits b
        claim  a p1            -> granted
        claim  b p1            -> granted
        claim  c p1            -> granted
        commit c p1 'x' failed -> failed; c failed
        commit b p1 'x' failed -> failed; b failed, d skipped
        commit a p1 'x' failed -> failed; a failed, run needs_attention, attention halt_failure a
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read propagate
        task b tool read propagate
        task c tool read absorb
        task d tool read waits a,b
        claim  a p1            -> granted
        claim  b p1            -> granted
        claim  c p1            -> granted
        commit a p1 'x' failed -> failed; a failed, d skipped
        commit c p1 'x' failed -> failed; c failed
        commit b p1 'x' failed -> failed; b failed, run needs_attention, attention deliverable_unresolved a b
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read absorb
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed, run needs_attention, attention deliverable_unresolved
        show   run             -> needs_attention deliverable_unresolved []
        ",
    );
}

/// A call at rest for an approver keeps the run running; a question or a round does too.
#[test]
fn what_waits_for_somebody_is_no_end() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read as approval
        answer a
        claim  a p1      -> granted
        commit a p1 'ok' -> completed; a completed
        show   run       -> running approval_required [b]
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read
        task b model as running
        answer a
        claim  a p1      -> granted
        commit a p1 'ok' -> completed; a completed
        show   run       -> running
        ",
    );
}

/// More rows became ready than one pass starts: the run owes another, and is not at its end.
#[test]
fn ready_rows_that_nobody_loaded_are_owed_a_pass() {
    let mut table = String::from("executor p1 provider read\npending\n");
    for n in 1..=66 {
        table.push_str(&format!("task t{n} tool read absorb\n"));
    }
    let started: Vec<String> = (1..=64).map(|n| format!("t{n} started")).collect();
    table.push_str(&format!(
        "start -> ok; {}, run running\n",
        started.join(", ")
    ));
    table.push_str("show run -> running schedulable\n");
    table.push_str("claim t1 p1 -> granted\n");
    table.push_str("commit t1 p1 outcome=maybe -> invalid_outcome\n");
    table.push_str("schedule -> ok; t65 started, t66 started\n");
    table.push_str("show run -> running\n");
    check(&table);
}
