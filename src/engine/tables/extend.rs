//! Extensions (`executor.md` §10).

use super::check;

#[test]
fn the_same_clock_is_moved_from_now_and_told() {
    check(
        "
        executor p1 provider read
        task a tool read timeout 60s
        claim  a p1       -> granted
        clock 50s
        extend a p1 900s  -> until 950s; a extended
        show   a          -> dispatched tool_provider pool read timeout 60s until 950s read claimed by p1 approved by author
        extend a p1 1s    -> until 51s; a extended
        extend a p1 1s    -> until 51s; a extended
        clock 51s
        extend a p1 1s    -> not_extendable
        commit a p1 'late' -> timed_out; a timed_out, run needs_attention, attention deliverable_unresolved a
        ",
    );
}

/// Check 3 before 4 (case 26), 4 before 5; equal is too late (case 27).
#[test]
fn the_checks_answer_in_their_order() {
    check(
        "
        executor p1 provider read:30s
        executor p2 provider read:30s
        task a tool read
        task b tool read waits a
        task c model as running
        task d join as running
        task e await as ask
        task f tool read as approval
        task g delegation as running
        extend c p1 1s    -> not_found
        extend d p1 1s    -> not_found
        extend g p1 1s    -> not_found
        extend e p1 1s    -> not_extendable
        extend f p1 1s    -> not_extendable
        extend a p1 1s token junk -> not_extendable
        extend b p1 1s    -> not_extendable
        claim  a p1       -> granted
        extend a p2 1s    -> not_claimant
        extend a p2 1s token held  -> not_claimant
        extend a p1 1h token junk  -> not_claimant
        extend a p1 30001ms -> extension_too_long
        extend a p1 30s   -> until 30s; a extended
        clock 30s
        extend a p1 1s token junk -> not_extendable
        extend a p1 1s    -> not_extendable
        ",
    );
}

#[test]
fn an_hour_is_the_most_and_a_shorter_announcement_bounds_it() {
    check(
        "
        executor p1 provider read
        executor r1 runner read:7d
        task a tool read
        task b tool read for r1
        claim  a p1            -> granted
        claim  b r1            -> granted
        extend a p1 3600001ms  -> extension_too_long
        extend a p1 3600000ms  -> until 3600s; a extended
        extend b r1 3600001ms  -> extension_too_long
        extend b r1 1h         -> until 3600s; b extended
        ",
    );
}

/// Eligibility and standing are not asked again; a hold and a graceful stop do not end a claim.
#[test]
fn a_claim_is_extended_whatever_the_run_waits_for() {
    check(
        "
        executor p1 provider read
        task a tool read
        claim  a p1    -> granted
        make p1 draining
        standing none
        set run needs_attention
        extend a p1 1s -> until 1s; a extended
        set run canceling
        extend a p1 2s -> until 2s; a extended
        set stopped
        extend a p1 2s -> not_extendable
        ",
    );
}

/// Case 29: the run's clock stands; the answer shows the wall.
#[test]
fn a_pause_keeps_the_window() {
    check(
        "
        executor p1 provider read
        task a tool read
        claim  a p1     -> granted
        clock 100s
        pause           -> ok; run paused
        clock 7200s
        extend a p1 60s -> until 7260s; a extended
        show   a        -> dispatched tool_provider pool read timeout 600s until 160s read claimed by p1 approved by author
        clock 7300s
        extend a p1 60s -> until 7360s; a extended
        resume          -> ok; run running
        show   a        -> dispatched tool_provider pool read timeout 600s until 7360s read claimed by p1 approved by author
        clock 7360s
        extend a p1 1s  -> not_extendable
        ",
    );
}

#[test]
fn a_settled_or_stopped_row_is_not_extended() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read
        claim  a p1      -> granted
        claim  b p1      -> granted
        commit a p1 'ok' -> completed; a completed
        extend a p1 1s   -> not_extendable
        stop             -> ok; b canceled, run canceling, run canceled
        hints            -> b canceled for p1
        extend b p1 1s   -> not_extendable
        ",
    );
}
