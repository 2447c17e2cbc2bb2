//! Pause, resume and stop in every state (`runs.md` §7), the clocks (`engine.md` §10), and the early
//! hold (`engine.md` §7).

use super::check;

#[test]
fn pause_and_resume() {
    check(
        "
        executor p1 provider t:60s
        pending
        steps [T(a), T(b)]
        pause       -> not_pausable
        resume      -> not_resumable
        start       -> ok; a started, run running
        resume      -> not_resumable
        clock 10s
        pause       -> ok; run paused
        pause       -> not_pausable
        pause force -> ok
        clock 1000s
        sweep       -> 0
        resume      -> ok; run running
        show a      -> dispatched tool_provider pool t timeout 60s until 1050s announced 60s read approved by author
        clock 1050s
        sweep       -> 1; a timed_out, b skipped, run needs_attention, attention deliverable_unresolved a
        pause       -> not_pausable
        resume      -> not_resumable
        stop        -> ok; run canceling, run canceled
        pause       -> not_pausable
        resume      -> not_resumable
        ",
    );
}

/// What settles while paused lets others wait.
#[test]
fn work_settles_in_a_paused_run() {
    check(
        "
        executor p1 provider t
        steps [T(a), T(b)]
        claim  a p1      -> granted
        pause            -> ok; run paused
        commit a p1 'ok' -> completed; a completed
        show   b         -> waiting
        resume           -> ok; b started, run running
        ",
    );
}

/// What has started may finish and keeps its result; a repeat with force cuts.
#[test]
fn a_graceful_stop() {
    check(
        "
        executor p1 provider t
        steps [P[T(a),T(b)], T(c)]
        claim  a p1      -> granted
        drain            -> ok; c canceled, run canceling
        drain            -> ok
        commit a p1 'ok' -> completed; a completed
        claim  b p1      -> granted
        stop             -> ok; b canceled, run canceled
        drain            -> already_terminal
        ",
    );
    check(
        "
        executor p1 provider t
        pending
        steps [T(a)]
        drain            -> ok; a canceled, run canceled
        ",
    );
    check(
        "
        executor p1 provider t
        steps [T(a, timeout_ms 604800000)]
        claim  a p1      -> granted
        clock  10s
        pause            -> ok; run paused
        clock  20s
        drain            -> ok; run canceling
        show   a         -> dispatched tool_provider pool t timeout 604800s until 604810s read claimed by p1 approved by author
        clock  86419s
        longdrain        -> ok
        clock  86420s
        longdrain        -> ok; a canceled, run canceled
        ",
    );
}

/// §7: a failure is told while long claims go on, and not while anybody may still make work ready.
#[test]
fn the_early_hold() {
    check(
        "
        executor p1 provider t
        steps [P[T(a, on_failure halt),T(b)], T(c)]
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed
        claim  b p1            -> granted
        schedule               -> ok; run needs_attention, attention halt_failure a
        extend b p1 30s        -> until 30s; b extended
        commit b p1 'ok'       -> completed; b completed
        show   run             -> needs_attention halt_failure [a]
        abandon a              -> ok; a failed, c started, run running
        show   run             -> running
        ",
    );
    check(
        "
        executor p1 provider t
        steps [P[T(a, on_failure halt),A(q)], T(c)]
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed, attention halt_failure a
        show   run             -> running halt_failure [a]
        reply  q 'y'           -> completed; q completed, run needs_attention
        ",
    );
}

/// A held run is stopped like any other: its claims live until then, or finish under a graceful one.
#[test]
fn a_stop_ends_a_hold() {
    check(
        "
        executor p1 provider t
        steps [P[T(a, on_failure halt),T(b)], T(c)]
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed
        claim  b p1            -> granted
        schedule               -> ok; run needs_attention, attention halt_failure a
        stop                   -> ok; b canceled, c canceled, run canceling, run canceled
        show   run             -> canceled
        hints                  -> b canceled for p1
        commit b p1 'ok'       -> canceled
        retry  a               -> not_adjudicable
        stop                   -> already_terminal
        ",
    );
    check(
        "
        executor p1 provider t
        steps [P[T(a, on_failure halt),T(b)], T(c)]
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed
        claim  b p1            -> granted
        schedule               -> ok; run needs_attention, attention halt_failure a
        drain                  -> ok; c canceled, run canceling
        show   run             -> canceling
        retry  a               -> not_adjudicable
        commit b p1 'ok'       -> completed; b completed, run canceled
        ",
    );
    check(
        "
        executor p1 provider t
        steps [T(a)]
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed, run needs_attention, attention deliverable_unresolved a
        drain                  -> ok; run canceling, run canceled
        ",
    );
}

/// `engine.md` §10, INV-23: a stop settles nothing but the expiry of what has expired, so that an effect
/// that may have happened stays told; by force, gracefully, and from a pause only what was due at it.
#[test]
fn the_deadline_wins_over_a_stop() {
    check(
        "
        executor p1 provider t! u
        task a tool t timeout 1s
        task b tool u timeout 1s
        task c tool u
        task z tool u waits a,b,c
        claim  a p1 -> granted
        clock  1s
        stop        -> ok; a uncertain, b timed_out, c canceled, z canceled, run canceling, run canceled
        ",
    );
    check(
        "
        executor p1 provider t! u
        task a tool t timeout 1s
        task b tool u timeout 1s as approval
        task c tool u
        task z tool u waits a,b,c
        claim  a p1 -> granted
        clock  1d
        drain       -> ok; a uncertain, b timed_out, c timed_out, z canceled, run canceling, run canceled
        ",
    );
    check(
        "
        executor p1 provider t!
        task a tool t timeout 2s
        task b tool t timeout 1s
        claim  a p1 -> granted
        claim  b p1 -> granted
        clock  1s
        pause       -> ok; run paused
        clock  9s
        stop        -> ok; a canceled, b uncertain, run canceling, run canceled
        ",
    );
}

/// `engine.md` §5, INV-7: a call that was approved under a hold starts in the transaction that ends it,
/// whichever that is.
#[test]
fn the_end_of_a_hold_starts_what_was_approved_under_it() {
    for (end, told) in [
        ("abandon h", "ok; h failed, x dispatched, run running"),
        (
            "retry h",
            "ok; h waiting, h started, x dispatched, run running",
        ),
        (
            "append [!T(d)]",
            "appended; d waiting, x dispatched, run running",
        ),
    ] {
        check(&format!(
            r#"
            executor p1 provider t w
            rules [{{"tool":"w","verdict":"ask","origin":"author"}}]
            task h tool t halt
            task x tool w
            task z tool t waits h,x
            claim   h p1            -> granted
            commit  h p1 'x' failed -> failed; h failed, run needs_attention, attention halt_failure h
            approve x               -> ok; x waiting
            {end} -> {told}
            "#
        ));
    }
}

/// `runs.md` §13, INV-35: a status is told with the reason that stands when its transaction is at rest
/// (every table checks it): none, when the hold just ended.
#[test]
fn a_released_hold_is_told_without_its_reason() {
    check(
        "
        executor p1 provider t
        steps [T(a, on_failure halt), T(b)]
        claim   a p1            -> granted
        commit  a p1 'x' failed -> failed; a failed, run needs_attention, attention halt_failure a
        retry   a               -> ok; a waiting, a started, run running
        claim   a p1            -> granted
        commit  a p1 'x' failed -> failed; a failed, run needs_attention, attention halt_failure a
        append [T(c)]           -> appended; c waiting, run running, run needs_attention
        ",
    );
}
