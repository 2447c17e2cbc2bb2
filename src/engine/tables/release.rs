//! Countdown and release (`engine.md` §5), and the order of narration (`runs.md` §13).

use super::check;

#[test]
fn a_row_starts_when_the_last_edge_is_met() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read
        task c tool read waits a,b
        claim  a p1      -> granted
        claim  b p1      -> granted
        commit b p1 'ok' -> completed; b completed
        show   c         -> waiting
        commit a p1 'ok' -> completed; a completed, c started
        claim  c p1      -> granted
        commit c p1 'ok' -> completed; c completed, run completed
        ",
    );
}

/// BR-036: propagate skips all that stands behind it and nothing else; absorb skips nothing; a
/// halt keeps its edges open while everything else runs on.
#[test]
fn a_failure_does_what_its_policy_says() {
    check(
        "
        executor p1 provider read
        task a tool read propagate
        task b tool read waits a
        task c tool read waits b
        task d tool read
        task e tool read waits c,d
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed, b skipped, c skipped, e skipped
        show   d               -> dispatched tool_provider pool read timeout 600s until 600s read approved by author
        claim  d p1            -> granted
        commit d p1 'ok'       -> completed; d completed, run needs_attention, attention deliverable_unresolved a
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read absorb
        task b tool read waits a
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed, b started
        claim  b p1            -> granted
        commit b p1 'ok'       -> completed; b completed, run completed
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read halt
        task b tool read waits a
        task d tool read
        task e tool read waits d
        claim  a p1            -> granted
        claim  d p1            -> granted
        commit a p1 'x' failed -> failed; a failed, run needs_attention, attention halt_failure a
        show   b               -> waiting
        commit d p1 'ok'       -> completed; d completed, e started, run running
        schedule               -> ok
        claim  e p1            -> granted
        schedule               -> ok; run needs_attention
        commit e p1 'ok'       -> completed; e completed
        show   b               -> waiting
        show   run             -> needs_attention halt_failure [a]
        ",
    );
}

/// The settled row first, then others in authoring order, whatever order they were reached in;
/// then the run, then the attention.
#[test]
fn the_items_of_a_settle_stand_in_order() {
    check(
        "
        executor p1 provider read
        executor r1 runner other
        task a tool read
        task b tool read
        task c tool read for r1 waits b absorb
        task d tool read waits b
        task e tool read for r1 waits b propagate
        task f tool read waits e
        task g tool read waits c
        task h tool read waits f,g,d
        claim  b p1      -> granted
        commit b p1 'ok' -> completed; b completed, c needs_approval, c failed, d started, e needs_approval, e failed, f skipped, g started, h skipped
        ",
    );
    check(
        "
        executor p1 provider read:1s
        task a tool read absorb
        task b tool read waits a
        task c tool read absorb
        task d tool read waits c
        claim a p1 -> granted
        claim c p1 -> granted
        clock 1s
        expire c a -> 2; c timed_out, a timed_out, b started, d started
        ",
    );
}

/// References wait like written order does; a row behind two edges from two rows waits for both.
#[test]
fn references_add_waits() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read
        task c tool read waits a after b
        claim  a p1            -> granted
        commit a p1 'ok'       -> completed; a completed
        show   c               -> waiting
        claim  b p1            -> granted
        commit b p1 'x' failed -> failed; b failed, c skipped, run needs_attention, attention deliverable_unresolved b
        ",
    );
}

/// A row that a skip reaches twice is skipped once, and a skip of one edge ends the wait for all.
#[test]
fn a_diamond_is_skipped_once() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read waits a
        task c tool read waits a
        task d tool read waits b,c
        task k tool read
        task l tool read waits k,d
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed, b skipped, c skipped, d skipped, l skipped
        claim  k p1            -> granted
        commit k p1 'ok'       -> completed; k completed, run needs_attention, attention deliverable_unresolved a
        ",
    );
}

/// BR-039: all at once, the same end.
#[test]
fn failures_of_one_instant_come_to_one_hold() {
    check(
        "
        executor p1 provider read:1s
        task a tool read halt
        task b tool read halt
        task c tool read halt
        task z tool read waits a,b,c
        clock 1s
        sweep -> 3; a timed_out, b timed_out, c timed_out, run needs_attention, attention halt_failure a b c
        ",
    );
    check(
        "
        executor p1 provider read:1s
        task a tool read halt
        task b tool read propagate
        task c tool read absorb
        task z tool read waits a,b,c
        clock 1s
        sweep -> 3; a timed_out, b timed_out, c timed_out, z skipped, run needs_attention, attention halt_failure a
        ",
    );
}

/// A stop is told in authoring order; who works is told to cease.
#[test]
fn a_forced_stop_cancels_everything_and_starts_nothing() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read waits a
        task c tool read
        task d tool read waits b,c
        claim  c p1      -> granted
        stop authority_lost -> ok; a canceled, b canceled, c canceled, d canceled, run canceling, run canceled
        hints            -> c canceled for p1
        show   run       -> canceled authority_lost
        stop             -> already_terminal
        start            -> not_startable
        schedule         -> ok
        ",
    );
    check(
        "
        executor p1 provider read
        pending
        task a tool read
        task b tool read waits a
        stop             -> ok; a canceled, b canceled, run canceled
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read halt
        task b tool read waits a
        claim  a p1            -> granted
        commit a p1 'x' failed -> failed; a failed, run needs_attention, attention halt_failure a
        stop                   -> ok; b canceled, run canceling, run canceled
        show   run             -> canceled
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read
        claim  a p1      -> granted
        pause            -> ok; run paused
        stop             -> ok; a canceled, run canceling, run canceled
        ",
    );
}
