//! What persons do about rows: retry, abandon, skips opened again (`engine.md` §7, `runs.md` §8.3),
//! cancel (§8.5), approve and deny (§8.4), answers (§8.2), observations (`engine.md` §9).

use super::check;

/// A hold ends with a retry; the new generation crosses the stage again.
#[test]
fn a_retry_runs_the_row_again() {
    check(
        "
        executor p1 provider t
        steps [T(a, on_failure halt), T(b)]
        claim   a p1            -> granted
        commit  a p1 'x' failed -> failed; a failed, run needs_attention, attention halt_failure a
        retry   b               -> not_retryable
        retry   a               -> ok; a waiting, a started, run running
        claim   a p1            -> granted
        commit  a p1 'ok'       -> completed; a completed, b started
        abandon a               -> not_abandonable
        ",
    );
}

/// What is skipped for two reasons is opened again when the last of them is adjudicated.
#[test]
fn skips_are_opened_again() {
    check(
        "
        executor p1 provider t
        steps [P[T(a),T(b)], T(c), T(d)]
        claim   a p1            -> granted
        claim   b p1            -> granted
        commit  a p1 'x' failed -> failed; a failed, c skipped, d skipped
        commit  b p1 'x' failed -> failed; b failed, run needs_attention, attention deliverable_unresolved a b
        abandon a               -> ok; a failed, run running, run needs_attention, attention deliverable_unresolved b
        show    c               -> skipped
        retry   b               -> ok; b waiting, b started, c waiting, d waiting, run running
        claim   b p1            -> granted
        commit  b p1 'ok'       -> completed; b completed, c started
        ",
    );
}

/// A failure and its retry in one transaction: what the first skipped is opened by the second, but
/// for what was skipped for another reason.
#[test]
fn skips_of_the_same_transaction_are_opened_again() {
    check(
        "
        executor p1 provider t
        steps [P[T(a),T(b)], T(c)]
        claim   a p1            -> granted
        claim   b p1            -> granted
        commit  a p1 'x' failed -> failed; a failed, c skipped
        batch
            commit b p1 'x' failed -> dispatched; b failed, run needs_attention, attention deliverable_unresolved a b
            retry b                -> ok; b waiting, b started, run running
        end
        show    c               -> skipped
        ",
    );
}

/// A cancel resolves: who waits for the branch runs.
#[test]
fn a_canceled_branch_resolves() {
    check(
        "
        executor p1 provider t
        steps [P[[T(a),T(b)],T(c)], T(d)]
        cancel  a               -> ok; a canceled, b canceled
        cancel  a               -> already_terminal
        claim   c p1            -> granted
        commit  c p1 'ok'       -> completed; c completed, d started
        ",
    );
    check(
        "
        executor p1 provider t
        steps [M(m), P[T(a),T(b)] until any key race, T(z)]
        cancel  m               -> not_a_branch
        cancel  race            -> not_a_branch
        ",
    );
}

/// Parked, approved, started; denied; expired; while paused; while held.
#[test]
fn approvals() {
    check(
        r#"
        executor p1 provider t
        rules [{"tool":"t","verdict":"ask","origin":"author"}]
        steps [T(a), T(b)]
        show    a       -> needs_approval timeout 86400s until 86400s read
        show    run     -> running approval_required [a]
        approve a       -> ok; a dispatched
        approve a       -> not_awaiting_approval
        claim   a p1    -> granted
        commit  a p1 'ok' -> completed; a completed, b needs_approval, attention approval_required b
        deny    b 'no'  -> ok; b failed, run needs_attention, attention deliverable_unresolved b
        show    b       -> failed approved by human error approval_denied: no
        "#,
    );
    check(
        r#"
        executor p1 provider t
        rules [{"tool":"t","verdict":"ask","origin":"author"}]
        steps [T(a)]
        show    run     -> running approval_required [a]
        announce p1 t!
        approve a       -> ok
        show    a       -> needs_approval timeout 86400s until 86400s write
        announce p1
        approve a       -> ok; a failed, run needs_attention, attention deliverable_unresolved a
        show    a       -> failed error tool_not_served
        "#,
    );
    check(
        r#"
        executor p1 provider t
        rules [{"tool":"t","verdict":"ask","origin":"author"}]
        steps [T(a)]
        show    run     -> running approval_required [a]
        clock   1d
        approve a       -> not_awaiting_approval; a timed_out, run needs_attention, attention deliverable_unresolved a
        show    a       -> timed_out error approval_expired
        "#,
    );
    check(
        r#"
        executor p1 provider t
        rules [{"tool":"t","verdict":"ask","origin":"author"}]
        steps [T(a)]
        show    run     -> running approval_required [a]
        pause           -> ok; run paused
        approve a       -> ok; a waiting
        resume          -> ok; a dispatched, run running
        "#,
    );
}

/// A question is answered by whoever bears its token, once.
#[test]
fn questions() {
    check(
        "
        executor p1 provider t
        steps [A(q), T(a)]
        show  run                 -> running
        reply q 'y' token junk    -> stale_claim
        reply q 'y' token none    -> stale_claim
        reply a 'y'               -> task_not_running
        reply q 'y' outcome=maybe -> invalid_outcome
        reply q 'y'               -> completed; q completed, a started
        reply q 'n' failed        -> completed
        ",
    );
    check(
        "
        steps [A(q, timeout_ms 1000)]
        show  q           -> dispatched timeout 1s until 1s
        clock 1s
        reply q 'y'       -> timed_out; q timed_out, run needs_attention, attention deliverable_unresolved q
        ",
    );
}

/// A wait sees what stands for its target, at once or later; a race by what it selected; a failure
/// as an error; and its own clock comes first.
#[test]
fn observations() {
    check(
        "
        executor p1 provider t
        steps [P[T(a, on_failure absorb),W(w→a)], W(x→a)]
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed, w completed, x dispatched, x completed, run completed
        show   w               -> completed is_error
        ",
    );
    check(
        "
        executor p1 provider t
        steps [P[P[T(a),T(b)] until any key race,W(w→race)], T(z)]
        claim  a p1            -> granted
        commit a p1 'ok'       -> completed; a completed, b canceled, race completed, w completed, z started
        ",
    );
    check(
        "
        executor p1 provider t
        steps [P[T(a),W(w→a, timeout_ms 1000)], T(z)]
        claim  a p1            -> granted
        clock  1s
        commit a p1 'ok'       -> completed; a completed, w timed_out, z started
        ",
    );
}

/// `engine.md` §10, INV-23: a cancel at or after the deadline settles the expiry and is told that the
/// row has settled; a paused run's clock stands.
#[test]
fn the_deadline_wins_over_a_cancel() {
    check(
        "
        executor p1 provider t! u
        task a tool t timeout 1s
        task b tool u timeout 1s
        task c tool u timeout 1s
        task z tool u waits a,b,c
        claim  a p1 -> granted
        pause       -> ok; run paused
        clock  5s
        cancel c    -> ok; c canceled
        resume      -> ok; run running
        clock  6s
        cancel a    -> already_terminal; a uncertain, z skipped
        cancel b    -> already_terminal; b timed_out, run needs_attention, attention deliverable_unresolved a b
        ",
    );
    check(
        r#"
        executor p1 provider t
        rules [{"tool":"t","verdict":"ask","origin":"author"}]
        steps [T(a)]
        show    run -> running approval_required [a]
        clock   1d
        cancel  a   -> already_terminal; a timed_out, run needs_attention, attention deliverable_unresolved a
        show    a   -> timed_out error approval_expired
        "#,
    );
}

/// `runs.md` §8.3: a pending run takes a person's word, and has no failure yet.
#[test]
fn nothing_is_repaired_in_a_pending_run() {
    check(
        "
        executor p1 provider t
        pending
        steps [T(a)]
        retry   a -> not_retryable
        abandon a -> not_abandonable
        ",
    );
}
