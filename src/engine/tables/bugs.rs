//! What the simulation found, kept as the fewest lines that showed it.

use super::check;

/// A row born behind a failure reads it and does not keep it from being taken over.
#[test]
fn a_later_reader_does_not_keep_a_lost_failure() {
    check(
        "
        executor p1 provider t
        steps [P[A(q),T(a, on_failure halt)] until any on_failure halt key race]
        claim  a p1                  -> granted
        commit a p1 'x' failed       -> failed; a failed, attention halt_failure a
        append [T(x,a=[a])]          -> appended; x waiting
        reply  q 'y'                 -> completed; q completed, race completed, x started
        show   run                   -> running
        ",
    );
}

/// Two races that end at once: who lived in the branch of one is lost with the other's.
#[test]
fn races_of_one_command_are_walked_together() {
    check(
        "
        executor p1 provider t
        steps [!T(a), P[P[W(w→a),T(b)] until any key r1,P[W(v→a),T(c,a=[b])] until any key r2], T(z)]
        claim  a p1      -> granted
        commit a p1 'ok' -> completed; a completed, w completed, b canceled, r1 completed, v completed, c canceled, r2 completed, z started
        ",
    );
}

/// A failure that starves a race skips a row twice, and is retried in the same transaction: the race
/// has ended, so the row stays skipped.
#[test]
fn a_skip_of_this_transaction_is_seen_by_a_retry_in_it() {
    check(
        "
        executor p1 provider t
        steps [P[T(b)] until any key r, T(c,a=[b])]
        claim  b p1            -> granted
        batch
            commit b p1 'x' failed -> dispatched; b failed, r failed, c skipped, run needs_attention, attention deliverable_unresolved b r
            retry  b               -> ok; b waiting, b started, run running
        end
        show   c               -> skipped
        ",
    );
}
