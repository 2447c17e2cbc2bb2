//! Append (`runs.md` §5): its checks in their order, and where its rows hang.

use super::check;

#[test]
fn checks_in_order() {
    check(
        "
        executor p1 provider t
        steps [A(q), T(a)]
        append [T(x)] revision 2 under k1         -> stale_revision
        append [T(x)] under k1                    -> appended; x waiting
        append [T(x)] under k1                    -> replayed
        append [T(y)] under k1                    -> idempotency_envelope_mismatch
        append [T(x)]                             -> duplicate_task_key
        append [W(w→nothing)]                     -> wait_target_not_found
        append [T(y)] resolve nothing             -> unknown_await
        append [A(z)] resolve z                   -> await_not_resolvable
        append [T(y)] resolve q failed            -> unsupported_resolve_outcome
        append [T(y)] resolve q,q                 -> await_not_resolvable
        append resolve q                          -> appended; q completed, a started
        ",
    );
}

/// Check 2, in every state of a run; check 1 comes before it, check 4 behind it.
#[test]
fn runs_that_take_steps() {
    check(
        "
        executor p1 provider t
        pending
        steps [T(a)]
        append [T(b)] under k1                    -> appended; b waiting
        start                                     -> ok; a started, run running
        pause                                     -> ok; run paused
        append [T(c)]                             -> appended; c waiting
        resume                                    -> ok; run running
        claim  a p1                               -> granted
        drain                                     -> ok; b canceled, c canceled, run canceling
        append [T(d)] revision 99                 -> run_not_appendable
        append [T(b)] under k1                    -> replayed
        append [T(d)] under k1                    -> idempotency_envelope_mismatch
        commit a p1 'ok'                          -> completed; a completed, run canceled
        append [T(d)]                             -> run_not_appendable
        append [T(b)] under k1                    -> replayed
        ",
    );
    check(
        "
        executor p1 provider t
        steps [T(a)]
        claim  a p1                               -> granted
        commit a p1 'ok'                          -> completed; a completed, run completed
        append [T(b)]                             -> run_not_appendable
        ",
    );
}

/// Check 5: behind the revision, before everything that needs compiled rows.
#[test]
fn what_does_not_compile_is_refused_before_the_tip() {
    check(
        "
        executor p1 provider t
        steps [T(a, on_failure halt)]
        claim  a p1                               -> granted
        commit a p1 'x' failed                    -> failed; a failed, run needs_attention, attention halt_failure a
        append [T(b,a=[nothing])] revision 9      -> stale_revision
        append [T(b,a=[nothing])]                 -> invalid_steps
        append [P[T(b),T(c)]]                     -> invalid_steps
        append [T(a)]                             -> duplicate_task_key
        append [T(b)]                             -> tip_unresolved
        ",
    );
}

/// Check 7: an answer that settled as a skip, or failed and nobody decided about it. Not of an
/// envelope that has no steps.
#[test]
fn the_tip_is_resolved_first() {
    check(
        "
        executor p1 provider t
        steps [T(a), P[T(b),A(q)], T(c)]
        claim  a p1                               -> granted
        commit a p1 'x' failed                    -> failed; a failed, b skipped, q skipped, c skipped, run needs_attention, attention deliverable_unresolved a
        append [T(d)]                             -> tip_unresolved
        append [T(d)] resolve q                   -> tip_unresolved
        append resolve q                          -> await_not_resolvable
        abandon a                                 -> ok; a failed, b waiting, b started, q waiting, q dispatched, c waiting, run running
        append [T(d)]                             -> appended; d waiting
        append resolve q                          -> appended; q completed
        ",
    );
    check(
        "
        executor p1 provider t
        steps [T(a, on_failure absorb)]
        append [!A(q)]                            -> appended; q waiting
        claim  a p1                               -> granted
        commit a p1 'x' failed                    -> failed; a failed, q dispatched
        append [T(b)]                             -> appended; b waiting, b started
        ",
    );
}

/// Check 8: a round that is not done is not read; and check 9 behind it.
#[test]
fn a_live_round_is_not_read() {
    check(
        "
        executor p1 provider t
        steps [M(m)]
        append [M(n)]                             -> tip_live
        append [P[W(w→nothing),M(n)], T(z)]       -> wait_target_not_found
        append [W(w→nothing), M(n)]               -> tip_live
        round  m                                  -> ok; m running
        append [M(n)]                             -> tip_live
        append [A(q)]                             -> appended; q waiting
        round  m                                  -> ok; m completed, q dispatched
        append [M(n)]                             -> appended; n waiting
        ",
    );
}

/// `steps.md` §9, E14: a round still runs.
#[test]
fn an_append_behind_a_running_round() {
    for (line, then) in [
        (
            "append [A(check)] -> appended; check waiting",
            "round r -> ok; r completed, check dispatched",
        ),
        (
            "append [M(next)] -> tip_live",
            "round r -> ok; r completed, run completed",
        ),
        (
            "append [P[M(m1),M(m2)],T(after)] -> appended; m1 waiting, m2 waiting, after waiting",
            "round r -> ok; r completed",
        ),
    ] {
        check(&format!(
            "
            executor p1 provider t
            steps [M(r)]
            round r -> ok; r running
            {line}
            {then}
            "
        ));
    }
}

/// `steps.md` §9, E17: a member of the answer's fan failed and the run is held.
#[test]
fn an_append_to_a_held_run() {
    check(
        "
        executor p1 provider t
        steps [P[M(bad, on_failure halt),M(ok)], M(ans)]
        round  bad                                -> ok; bad running
        round  ok                                 -> ok; ok running
        round  ok                                 -> ok; ok completed
        round  bad fails                          -> ok; bad failed, run needs_attention, attention halt_failure bad
        append [M(fix,r=[ok,bad])]                -> tip_live
        append [T(probe,a=[ok])]                  -> appended; probe waiting, run running, run needs_attention
        show   run                                -> needs_attention halt_failure [bad]
        show   probe                              -> waiting
        ",
    );
}
