//! Starting and addressing (`executor.md` §5, `engine.md` §10).

use super::check;

#[test]
fn a_call_goes_to_its_runner_or_nowhere() {
    check(
        "
        executor r1 runner read:30s
        executor p1 provider read
        task a tool read for r1
        show a -> dispatched runner r1 timeout 30s until 30s announced 30s read approved by author
        ",
    );
    check(
        "
        executor r1 runner read
        executor p1 provider read
        pending
        task a tool read for r1
        announce r1 other
        start  -> ok; a needs_approval, a failed, run running, run needs_attention, attention deliverable_unresolved a
        show a -> failed error tool_not_served
        ",
    );
    check(
        "
        executor r1 runner read
        pending
        task a tool read for r1 absorb
        task b tool read for r1 waits a
        make r1 draining
        start  -> ok; a needs_approval, a failed, b needs_approval, b failed, run running, run needs_attention, attention deliverable_unresolved b
        ",
    );
}

/// Case 10: a runner is never inferred from a name.
#[test]
fn an_unrouted_name_that_only_a_runner_announces_is_not_served() {
    check(
        "
        executor r1 runner read
        pending
        task a tool read
        start  -> ok; a needs_approval, a failed, run running, run needs_attention, attention deliverable_unresolved a
        show a -> failed error tool_not_served
        ",
    );
}

#[test]
fn the_declaring_agents_own_application_comes_before_the_pool() {
    check(
        "
        executor p1 provider read
        executor app application read!:5s
        task a tool read
        show a -> dispatched agent_application app timeout 5s until 5s announced 5s write approved by author
        ",
    );
    check(
        "
        executor p1 provider read
        executor app application read
        pending
        task a tool read
        make app foreign
        start  -> ok; a started, run running
        show a -> dispatched tool_provider pool read timeout 600s until 600s read approved by author
        ",
    );
    check(
        "
        executor p1 provider read
        executor app application read
        pending
        task a tool read
        make app retired
        start  -> ok; a started, run running
        show a -> dispatched tool_provider pool read timeout 600s until 600s read approved by author
        ",
    );
}

/// Case 12: the profile of the first member that may not run again, the shortest announcement;
/// members that are not eligible count for nothing, and each eligible one is told.
#[test]
fn a_pool_freezes_the_careful_profile_and_the_shortest_time_out() {
    check(
        "
        executor p1 provider read:30s
        executor p2 provider read!:60s
        executor p3 provider read!:1s
        executor p4 provider other:1s
        pending
        task a tool read
        make p3 private
        start  -> ok; a started, run running
        hints  -> a available to p1, a available to p2
        show a -> dispatched tool_provider pool read timeout 30s until 30s announced 30s write approved by author
        ",
    );
    check(
        "
        executor p1 provider read
        executor p2 provider read:60s
        task a tool read
        show a -> dispatched tool_provider pool read timeout 60s until 60s announced 60s read approved by author
        ",
    );
    check(
        "
        executor p1 provider read
        pending
        task a tool read
        make p1 tokenless
        start  -> ok; a needs_approval, a failed, run running, run needs_attention, attention deliverable_unresolved a
        ",
    );
}

/// Authored, else announced, else ten minutes; the announcement is frozen either way.
#[test]
fn the_budget_is_the_authors_then_the_executors_then_ten_minutes() {
    check(
        "
        executor p1 provider read:30s plain
        task a tool read timeout 7d
        task b tool read
        task c tool plain
        show a -> dispatched tool_provider pool read timeout 604800s until 604800s announced 30s read approved by author
        show b -> dispatched tool_provider pool read timeout 30s until 30s announced 30s read approved by author
        show c -> dispatched tool_provider pool plain timeout 600s until 600s read approved by author
        announce p1 read!:9s
        show b -> dispatched tool_provider pool read timeout 30s until 30s announced 30s read approved by author
        claim b p1 -> granted
        extend b p1 30s -> until 30s; b extended
        ",
    );
}

/// Every call crosses the stage, and the crossing says who granted it.
#[test]
fn the_stage_is_crossed_in_the_authors_name() {
    check(
        "
        executor p1 provider read
        task a tool read
        task b tool read by model
        task c tool read by kernel
        show a -> dispatched tool_provider pool read timeout 600s until 600s read approved by author
        show b -> dispatched tool_provider pool read timeout 600s until 600s read approved by mode
        show c -> dispatched tool_provider pool read timeout 600s until 600s read approved by kernel
        ",
    );
}

#[test]
fn a_run_starts_once() {
    check(
        "
        executor p1 provider read
        pending
        task a tool read
        task b tool read
        task c tool read waits a,b
        schedule -> ok
        start    -> ok; a started, b started, run running
        start    -> not_startable
        schedule -> ok
        ",
    );
}
