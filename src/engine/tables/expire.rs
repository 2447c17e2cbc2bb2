//! Expiry (`executor.md` §12): the table, and who is left alone.

use super::check;

#[test]
fn the_table() {
    check(
        "
        executor p1 provider read:30s write!:30s
        executor app application other
        task a tool read  absorb
        task b tool write absorb
        task c tool read  absorb
        task d tool write absorb
        task e await as ask@app
        task f tool read absorb as approval@app
        task z tool read waits a,b,c,d,e,f
        claim c p1  -> granted
        claim d p1  -> granted
        clock 30s
        sweep       -> 4; a timed_out, b timed_out, c timed_out, d uncertain
        show a      -> timed_out tool_provider approved by author error tool_timeout
        show b      -> timed_out tool_provider approved by author error tool_timeout
        show c      -> timed_out tool_provider claimed by p1 approved by author error tool_timeout
        show d      -> uncertain tool_provider claimed by p1 approved by author error tool_uncertain: The claim ran out without a result: its effect may have happened.
        clock 1d
        sweep       -> 2; e timed_out, f timed_out, z skipped, run needs_attention, attention deliverable_unresolved e
        show e      -> timed_out agent_application app error await_timeout
        show f      -> timed_out agent_application app error approval_expired
        ",
    );
}

/// BR-003: what the sweeper read may be stale; each row is judged again under the lock.
#[test]
fn a_stale_sweep_leaves_rows_alone() {
    check(
        "
        executor p1 provider read:30s
        task a tool read
        task b tool read
        task c tool read
        task d tool read
        claim  a p1        -> granted
        claim  c p1        -> granted
        clock 29s
        extend a p1 30s    -> until 59s; a extended
        commit c p1 'ok'   -> completed; c completed
        claim  b p1        -> granted
        expire a b c d     -> 0
        clock 30s
        expire a b c d     -> 1; d timed_out
        expire d           -> 0
        ",
    );
}

/// BR-017, BR-018: a pause stops the clock; the rest of the window runs after it.
#[test]
fn nothing_expires_in_a_pause_and_the_window_goes_on_after_it() {
    check(
        "
        executor p1 provider read:2s
        task a tool read
        claim  a p1      -> granted
        clock 1s
        pause            -> ok; run paused
        clock 11s
        sweep            -> 0
        expire a         -> 0
        resume           -> ok; run running
        clock 11999ms
        expire a         -> 0
        pause            -> ok; run paused
        clock 20s
        resume           -> ok; run running
        expire a         -> 0
        clock 20001ms
        sweep            -> 1; a timed_out, run needs_attention, attention deliverable_unresolved a
        ",
    );
}

/// A row that was due when the run was paused is settled by the door that meets it.
#[test]
fn a_late_commit_in_a_pause_is_late() {
    check(
        "
        executor p1 provider read:2s
        task a tool read
        claim  a p1      -> granted
        clock 2s
        pause            -> ok; run paused
        expire a         -> 0
        commit a p1 'ok' -> timed_out; a timed_out
        resume           -> ok; run running, run needs_attention, attention deliverable_unresolved a
        ",
    );
}

/// Runs that are being stopped are swept too.
#[test]
fn a_drain_does_not_hang() {
    check(
        "
        executor p1 provider read:2s
        task a tool read
        claim a p1 -> granted
        set run canceling
        clock 2s
        sweep      -> 1; a timed_out, run canceled
        ",
    );
}

/// BR-009: an unclaimed row dies at its own deadline; a claimed one at that of its claim.
#[test]
fn the_clock_restarts_at_the_grant() {
    check(
        "
        executor p1 provider read
        task a tool read timeout 2s
        task b tool read timeout 2s
        task z tool read waits a,b
        clock 1900ms
        claim  a p1      -> granted
        clock 3500ms
        sweep            -> 1; b timed_out, z skipped
        commit a p1 'ok' -> completed; a completed, run needs_attention, attention deliverable_unresolved b
        ",
    );
}

/// `executor.md` §19: an executor that leaves fails what nobody claimed, in a pause too; claimed
/// rows keep their deadline and profile, pool rows and other executors' rows stay.
#[test]
fn an_executor_that_leaves_fails_what_it_did_not_claim() {
    check(
        "
        executor r1 runner read:30s
        executor r2 runner read:30s
        executor p1 provider read:30s
        task a tool read for r1 absorb
        task b tool read for r1 absorb
        task c tool read for r2
        task d tool read
        task e tool read waits a
        claim  b r1          -> granted
        pause                -> ok; run paused
        revoke r1 a b c d e  -> 1; a failed
        show   a             -> failed runner r1 approved by author error executor_revoked
        show   e             -> waiting
        resume               -> ok; e started, run running
        revoke r1 a b        -> 0
        commit b r1 'ok'     -> completed; b completed
        ",
    );
}

/// INV-23: an executor that leaves after the deadline finds an expiry.
#[test]
fn the_deadline_wins_over_a_revocation() {
    check(
        "
        executor r1 runner read:30s
        task a tool read for r1
        clock 30s
        revoke r1 a -> 1; a timed_out, run needs_attention, attention deliverable_unresolved a
        ",
    );
}
