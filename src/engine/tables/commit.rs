//! Commits (`executor.md` §11): twelve steps in their order.

use super::check;

#[test]
fn the_two_axes_of_a_result() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read
        task c tool read absorb
        task d tool read waits a,b,c
        claim  a p1               -> granted
        claim  b p1               -> granted
        claim  c p1               -> granted
        commit a p1 'ok'          -> completed; a completed
        commit b p1 'bad' errored -> completed; b completed
        show   b                  -> completed tool_provider claimed by p1 approved by author is_error
        commit c p1 'no disk' failed errored -> failed; c failed, d started
        show   c                  -> failed tool_provider claimed by p1 approved by author error tool_failed: no disk
        ",
    );
}

/// Steps 1 to 7; the token is not consulted before the address.
#[test]
fn the_checks_answer_in_their_order() {
    check(
        "
        executor p1 provider read
        executor p2 provider read
        executor r1 runner read
        executor r2 runner read
        task a tool read for r1
        task b tool read
        task c tool read waits a
        task d model as running
        task e tool read for r1 waits a
        task f tool read for r1 as approval@r1
        commit d r1 'x'               -> not_found
        # 2: unclaimed pool rows are nobody's (case 32)
        commit b p1 'x'               -> not_addressed_here
        commit a r2 'x'               -> not_addressed_here
        commit c p1 'x'               -> not_addressed_here
        claim  b p1                   -> granted
        commit b p2 'x' token held    -> not_addressed_here
        # 3: who did not claim must be eligible
        make r1 draining
        standing none
        commit a r1 'x'               -> not_eligible
        make r1 usable
        # 4
        commit a r1 'x'               -> not_authorized
        commit e r1 'x'               -> not_authorized
        standing write
        # 6
        commit e r1 'x'               -> task_not_running
        commit f r1 'x'               -> task_not_running
        # 7
        commit a r1 'x'               -> stale_claim
        commit a r1 'x' token none    -> stale_claim
        claim  a r1                   -> granted
        commit a r1 outcome=maybe token junk -> stale_claim
        commit a r1 'x' token none    -> stale_claim
        # a claimant that drains may finish; one that was revoked may not
        make r1 draining
        commit a r1 outcome=maybe     -> invalid_outcome
        make r1 revoked
        commit a r1 'x'               -> not_eligible
        ",
    );
}

/// Step 5: what a repeated commit is told.
#[test]
fn an_exact_retry_is_told_the_stored_row_and_another_is_a_conflict() {
    check(
        "
        executor p1 provider read
        task a tool read
        task z tool read waits a
        claim  a p1                -> granted
        commit a p1 'ok' title=t   -> completed; a completed, z started
        commit a p1 'ok' title=t   -> completed
        commit a p1 'ok' title=u   -> final_result_conflict
        commit a p1 'ok'           -> final_result_conflict
        commit a p1 'ok' title=t structured=null -> final_result_conflict
        commit a p1 'ok' title=t outcome=\"completed\" result_type=\"complete\" -> completed
        commit a p1 outcome=maybe  -> final_result_conflict
        commit a p1 unstorable     -> final_result_conflict
        commit a p1 'ok' title=t token junk -> stale_claim
        commit a p1 'ok' title=t token none -> stale_claim
        clock 7200s
        commit a p1 'ok' title=t   -> completed
        standing none
        commit a p1 'ok' title=t   -> not_authorized
        ",
    );
}

/// Step 5 without a digest: swept, canceled or unstorable rows are told as they stand, and the
/// body is discarded. BR-004, BR-015, cases 36 and 40.
#[test]
fn a_row_that_settled_without_a_commit_is_told_as_it_stands() {
    check(
        "
        executor p1 provider read:30s write!:30s
        task a tool read absorb
        task b tool write absorb
        task c tool read timeout 600s absorb
        task d tool read timeout 600s
        claim  a p1          -> granted
        claim  b p1          -> granted
        claim  c p1          -> granted
        claim  d p1          -> granted
        clock 30s
        sweep                -> 2; a timed_out, b uncertain
        commit a p1 'ok'     -> timed_out
        commit a p1 'other'  -> timed_out
        commit b p1 'ok'     -> uncertain
        commit c p1 unstorable -> result_unstorable; c failed
        show   c             -> failed tool_provider claimed by p1 approved by author error result_unstorable: A string carrying U+0000 cannot be stored: remove it before submitting.
        commit c p1 unstorable -> failed
        commit c p1 'clean'  -> failed
        stop                 -> ok; d canceled, run canceling, run canceled
        commit d p1 'ok'     -> canceled
        commit d p1 'ok' token junk -> stale_claim
        show   d             -> canceled tool_provider claimed by p1 approved by author error run_canceled
        ",
    );
}

/// A row that nobody claimed has no final claim to match.
#[test]
fn no_token_is_of_a_claim_that_never_was() {
    check(
        "
        executor r1 runner read
        task a tool read for r1
        task b tool read for r1 waits a
        stop              -> ok; a canceled, b canceled, run canceling, run canceled
        commit a r1 'x'   -> stale_claim
        commit b r1 'x' token none -> stale_claim
        ",
    );
}

/// Step 8: between a forced stop and the cancel of the row.
#[test]
fn a_cut_row_says_so() {
    check(
        "
        executor p1 provider read:30s
        task a tool read
        claim  a p1          -> granted
        set run canceling
        commit a p1 outcome=maybe -> invalid_outcome
        set stopped
        commit a p1 'x' token junk -> stale_claim
        clock 30s
        commit a p1 'x'      -> execution_stopped
        ",
    );
}

/// Step 9: the deadline wins, before the payload is looked at (case 35, INV-23).
#[test]
fn a_late_commit_settles_the_expiry() {
    check(
        "
        executor p1 provider read:30s write!:30s
        task a tool read absorb
        task b tool write absorb
        task c tool read waits a,b
        claim  a p1      -> granted
        claim  b p1      -> granted
        clock 30s
        commit a p1 outcome=maybe -> timed_out; a timed_out
        commit b p1 'ok' -> uncertain; b uncertain, c started
        show   b         -> uncertain tool_provider claimed by p1 approved by author error tool_uncertain: The claim ran out without a result: its effect may have happened.
        commit b p1 'ok' -> uncertain
        ",
    );
    check(
        "
        executor p1 provider read:30s
        task a tool read
        claim  a p1      -> granted
        clock 29999ms
        commit a p1 'ok' -> completed; a completed, run completed
        ",
    );
}

/// Step 11 in the order of the payload table; the park stands, then a clean commit settles.
#[test]
fn a_bad_payload_leaves_the_park_standing() {
    check(
        "
        executor p1 provider read
        task a tool read
        claim  a p1                    -> granted
        commit a p1 outcome=maybe content=7 -> invalid_outcome
        commit a p1 content=7 metadata=7 -> invalid_content
        commit a p1 content=[{\"type\":\"image\"}] -> unsupported_content_kind
        commit a p1 link=12            -> unknown_result_upload
        commit a p1 'x' metadata=7     -> invalid_metadata
        commit a p1 'x' title=7        -> invalid_title
        commit a p1 'x' result_type=partial -> invalid_result_type
        commit a p1 huge               -> result_too_large
        show   a                       -> dispatched tool_provider pool read timeout 600s until 600s read claimed by p1 approved by author
        commit a p1 link=13            -> completed; a completed, run completed
        ",
    );
}

/// Case 37: pause and graceful stop permit the first commit; nothing new starts.
#[test]
fn a_pause_takes_results_and_starts_nothing() {
    check(
        "
        executor p1 provider read:30s
        task a tool read
        task b tool read waits a
        claim  a p1      -> granted
        pause            -> ok; run paused
        clock 40s
        commit a p1 'ok' -> completed; a completed
        show   b         -> waiting
        show   run       -> paused
        schedule         -> ok
        resume           -> ok; b started, run running
        ",
    );
    check(
        "
        executor p1 provider read:30s
        task a tool read
        claim  a p1      -> granted
        set run canceling
        commit a p1 'ok' -> completed; a completed, run canceled
        ",
    );
}

/// A retry after the run ended is told the same.
#[test]
fn the_end_of_the_run_changes_no_answer() {
    check(
        "
        executor p1 provider read
        task a tool read
        claim  a p1      -> granted
        commit a p1 'ok' -> completed; a completed, run completed
        commit a p1 'ok' -> completed
        commit a p1 'no' -> final_result_conflict
        stop             -> ok
        commit a p1 'ok' -> completed
        stop             -> already_terminal
        ",
    );
}
