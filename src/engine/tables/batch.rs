//! Commands of one run in one transaction (`architecture.md` §5): each sees what was done before
//! it, and is told what it would be told alone (INV-36).

use super::check;

/// Two commands that ask for the same row are handed its edges twice.
#[test]
fn two_commands_on_one_row_release_it_once() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read
        task c tool read waits a,b
        claim a p1 -> granted
        claim b p1 -> granted
        batch
            extend a p1 60s  -> until 60s; a extended
            commit a p1 'ok' -> completed; a completed
            commit a p1 'ok' -> completed
        end
        show c -> waiting
        commit b p1 'ok' -> completed; b completed, c started
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read waits a
        task c tool read waits b
        batch
            stop -> ok; a canceled, b canceled, c canceled, run canceling, run canceled
            stop -> already_terminal
        end
        show run -> canceled
        ",
    );
}

#[test]
fn a_second_result_of_one_batch_is_a_conflict() {
    check(
        "
        executor p1 provider read
        task a tool read
        claim a p1 -> granted
        batch
            commit a p1 'ok'    -> completed; a completed, run completed
            commit a p1 'other' -> final_result_conflict
            commit a p1 'ok'    -> completed
        end
        commit a p1 'other' -> final_result_conflict
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read
        claim a p1 -> granted
        batch
            commit a p1 unstorable -> result_unstorable; a failed, run needs_attention, attention deliverable_unresolved a
            commit a p1 'clean'    -> failed
        end
        ",
    );
}

/// A fan's last commits in one batch start its follower once (BR-029).
#[test]
fn a_fan_in_of_one_batch_starts_its_follower_once() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read
        task c tool read waits a,b
        claim a p1 -> granted
        claim b p1 -> granted
        batch
            commit b p1 'ok' -> completed; b completed
            commit a p1 'ok' -> completed; a completed, c started
            schedule         -> ok
            commit c p1 'x'  -> not_addressed_here
        end
        claim c p1 -> granted
        ",
    );
}

/// What a stop ends in the same transaction is never stored as started.
#[test]
fn a_stop_behind_a_commit_ends_what_the_commit_started() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read waits a
        claim a p1 -> granted
        batch
            commit a p1 'ok' -> completed; a completed, b started
            stop             -> ok; b canceled, run canceling, run canceled
            commit a p1 'ok' -> completed
            expire a b       -> 0
        end
        commit a p1 'ok' -> completed
        ",
    );
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read waits a
        claim a p1 -> granted
        batch
            stop             -> ok; a canceled, b canceled, run canceling, run canceled
            commit a p1 'ok' -> canceled
        end
        hints -> a canceled for p1
        ",
    );
}

/// Failures of one batch are told in one hold, and the stored ones with them.
#[test]
fn failures_before_and_in_a_batch_are_all_named() {
    check(
        "
        executor p1 provider read
        task a tool read halt
        task b tool read halt
        task c tool read halt
        claim a p1 -> granted
        claim b p1 -> granted
        claim c p1 -> granted
        commit b p1 'x' failed -> failed; b failed, run needs_attention, attention halt_failure b
        batch
            commit c p1 'x' failed -> failed; c failed, attention halt_failure b c
            commit a p1 'x' failed -> failed; a failed, attention halt_failure b c a
        end
        ",
    );
}

/// Clocks moved twice in one transaction are written once.
#[test]
fn a_clock_moved_to_and_fro_ends_where_it_was_moved_last() {
    check(
        "
        executor p1 provider read
        task a tool read
        claim a p1 -> granted
        batch
            extend a p1 1s  -> until 1s; a extended
            extend a p1 60s -> until 60s; a extended
        end
        show a -> dispatched tool_provider pool read timeout 600s until 60s read claimed by p1 approved by author
        batch
            extend a p1 90s -> until 90s; a extended
            extend a p1 30s -> until 30s; a extended
        end
        clock 30s
        sweep  -> 1; a timed_out, run needs_attention, attention deliverable_unresolved a
        ",
    );
}
