//! Claims (`executor.md` §8): the checks in their order, the clock, and the guarded write.

use super::check;

#[test]
fn a_claim_is_granted_once_and_restarts_the_clock() {
    check(
        "
        executor p1 provider read:30s
        executor p2 provider read:30s
        task a tool read
        clock 10s
        claim a p1 -> granted
        show  a    -> dispatched tool_provider pool read timeout 30s until 40s announced 30s read claimed by p1 approved by author
        claim a p2 -> already_claimed
        claim a p1 -> already_claimed
        ",
    );
}

/// Check 1 comes before every other: whoever is not addressed learns nothing else.
#[test]
fn only_the_addressee_or_a_provider_that_announces_it() {
    check(
        "
        executor r1 runner read
        executor r2 runner read
        executor p1 provider read
        executor p2 provider other
        executor r3 runner read
        task a tool read for r1
        task b tool read
        task c tool read for r1 waits a
        task d model as running
        claim a r2 -> not_addressed_here
        claim a p1 -> not_addressed_here
        claim b p2 -> not_addressed_here
        claim b r3 -> not_addressed_here
        claim c r1 -> not_addressed_here
        claim d r1 -> not_found
        standing none
        make r2 revoked
        claim a r2 -> not_addressed_here
        set run paused
        claim a r2 -> not_addressed_here
        standing write
        set run running
        announce p1 other
        claim b p1 -> not_addressed_here
        announce r1 other
        claim a r1 -> granted
        ",
    );
}

/// Check 2; case 18 of the page, and 17: another executor is told the address first.
#[test]
fn questions_and_approvals_are_not_claimed() {
    check(
        "
        executor app application read
        executor p1 provider read
        task a await as ask@app
        task b tool read as approval@app
        make app draining
        standing none
        claim a app -> not_claimable_kind
        claim b app -> not_claimable_kind
        claim a p1  -> not_addressed_here
        claim b p1  -> not_addressed_here
        ",
    );
}

#[test]
fn the_checks_answer_in_their_order() {
    check(
        "
        executor p1 provider read
        executor p2 provider read
        task a tool read
        # 3: eligible for the answering principal
        make p1 draining
        standing none
        claim a p1 -> not_eligible
        make p1 usable
        make p1 tokenless
        claim a p1 -> not_eligible
        make p1 usable
        make p1 revoked
        claim a p1 -> not_eligible
        make p1 usable
        make p1 private
        claim a p1 -> not_eligible
        make p2 mine
        # 4: write standing
        set run paused
        claim a p2 -> not_authorized
        # 5: dispatched, run running or canceling, not stopped by force
        standing write
        claim a p2 -> task_not_claimable
        set run needs_attention
        claim a p2 -> task_not_claimable
        set run canceling
        set stopped
        claim a p2 -> task_not_claimable
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read
        set run canceling
        claim a p1 -> granted
        # 6 comes after 5
        set run paused
        claim a p1 -> task_not_claimable
        ",
    );
}

/// Cases 20 and 21 of the page.
#[test]
fn an_unclaimed_row_is_granted_past_its_deadline_until_it_is_swept() {
    check(
        "
        executor p1 provider read:30s
        task a tool read
        clock 31s
        judge a p1  -> judged
        take        -> granted
        show  a     -> dispatched tool_provider pool read timeout 30s until 61s announced 30s read claimed by p1 approved by author
        sweep       -> 0
        clock 61s
        claim a p1  -> already_claimed
        sweep       -> 1; a timed_out, run needs_attention, attention deliverable_unresolved a
        claim a p1  -> task_not_claimable
        ",
    );
}

/// BR-001: facts are read without a lock; the guarded write decides.
#[test]
fn whoever_is_late_at_the_guarded_write_looks_again() {
    check(
        "
        executor p1 provider read:30s
        executor p2 provider read:30s
        task a tool read
        task b tool read waits a
        judge a p1 -> judged
        claim a p2 -> granted
        take       -> lost
        claim a p1 -> already_claimed
        judge b p1 -> not_addressed_here
        ",
    );
    check(
        "
        executor p1 provider read:30s
        task a tool read
        judge a p1 -> judged
        clock 30s
        expire a   -> 1; a timed_out, run needs_attention, attention deliverable_unresolved a
        take       -> lost
        ",
    );
    check(
        "
        executor p1 provider read:30s
        task a tool read
        judge a p1 -> judged
        pause      -> ok; run paused
        take       -> lost
        resume     -> ok; run running
        claim a p1 -> granted
        ",
    );
    check(
        "
        executor p1 provider read:30s
        task a tool read
        judge a p1 -> judged
        stop       -> ok; a canceled, run canceling, run canceled
        take       -> lost
        claim a p1 -> task_not_claimable
        ",
    );
}

/// `architecture.md` §8: the same executor, the same key: the same claim, a new token.
#[test]
fn a_lost_answer_is_recovered_under_its_key() {
    check(
        "
        executor p1 provider read:30s
        executor p2 provider read:30s
        task a tool read
        claim a p1 key k  -> granted
        clock 10s
        claim a p1 key k  -> recovered
        show  a           -> dispatched tool_provider pool read timeout 30s until 30s announced 30s read claimed by p1 approved by author
        claim a p1 key j  -> already_claimed
        claim a p1        -> already_claimed
        claim a p2 key k  -> already_claimed
        commit a p1 'ok' token replaced -> stale_claim
        commit a p1 'ok'  -> completed; a completed, run completed
        claim a p1 key k  -> task_not_claimable
        ",
    );
    check(
        "
        executor p1 provider read:30s
        task a tool read
        claim a p1        -> granted
        claim a p1        -> already_claimed
        claim a p1 key k  -> already_claimed
        ",
    );
}

/// An application works for the runs that its active agent declares, whatever it was addressed.
#[test]
fn an_application_of_another_agent_is_not_eligible() {
    check(
        "
        executor app application read
        task a tool read
        make app foreign
        claim  a app     -> not_eligible
        commit a app 'x' -> not_eligible
        make app retired
        claim  a app     -> not_eligible
        ",
    );
}
