//! Races (`engine.md` §6): its worked examples, and the envelopes of `steps.md` §9 that hold one.

use super::check;

/// §6, worked: the head's only consumer is a loser, so its failure is taken over.
#[test]
fn a_failed_head_of_a_lost_branch_is_taken_over() {
    check(
        r#"
        steps [P[M(fast),[M(head),M(tail)]] until any key race, M(after)]
        round head       -> ok; head running
        round head fails -> ok; head failed
        show  run        -> running
        round fast       -> ok; fast running
        round fast       -> ok; fast completed, tail canceled, race completed
        race  race       -> {"joined":"any","outcomes":{"fast":"completed","tail":"waiting"},"selected":["fast"]}
        round after      -> ok; after running
        round after      -> ok; after completed, run completed
        "#,
    );
}

/// The same with `run_out`: the tail still waits for the head, which holds the run.
#[test]
fn a_branch_that_runs_out_keeps_its_failure() {
    check(
        "
        steps [P[M(fast),[M(head),M(tail)]] until any losers run_out key race, M(after)]
        round head       -> ok; head running
        round head fails -> ok; head failed
        round fast       -> ok; fast running
        round fast       -> ok; fast completed, race completed
        show  tail       -> waiting
        round after      -> ok; after running
        round after      -> ok; after completed, run needs_attention, attention halt_failure head
        retry head       -> ok; head waiting, run running
        ",
    );
}

/// The same with a reader outside that lives: the head stays pending.
#[test]
fn a_reader_outside_keeps_a_lost_failure() {
    check(
        "
        steps [P[P[M(fast),[M(head),M(tail)]] until any key race, M(side)], M(after,r=[head])]
        round head       -> ok; head running
        round head fails -> ok; head failed
        round fast       -> ok; fast running
        round fast       -> ok; fast completed, tail canceled, race completed
        round side       -> ok; side running
        round side       -> ok; side completed, run needs_attention, attention halt_failure head
        ",
    );
}

/// §6, shared work: who reads the loser by name keeps it; who reads the race does not.
#[test]
fn shared_work_is_spared() {
    check(
        r#"
        executor p1 provider t
        steps [P[T(a),T(b)] until any key race, M(s,r=[b])]
        claim  a p1      -> granted
        commit a p1 'ok' -> completed; a completed, race completed
        show   b         -> dispatched tool_provider pool t timeout 600s until 600s read approved by author
        race   race      -> {"joined":"any","outcomes":{"a":"completed","b":"dispatched"},"selected":["a"]}
        claim  b p1      -> granted
        commit b p1 'ok' -> completed; b completed
        round  s         -> ok; s running
        "#,
    );
    check(
        "
        executor p1 provider t
        steps [P[T(a),T(b)] until any key race, M(s,r=[race])]
        claim  a p1      -> granted
        claim  b p1      -> granted
        commit a p1 'ok' -> completed; a completed, b canceled, race completed
        hints            -> b canceled for p1
        commit b p1 'ok' -> canceled
        ",
    );
}

/// E5, E6: a race of rounds, and who waits for it.
#[test]
fn a_race_of_rounds() {
    check(
        r#"
        steps [P[M(a),M(b)] until any key race, M(red,r=[race])]
        round a       -> ok; a running
        round a fails -> ok; a failed
        show  race    -> waiting
        round b       -> ok; b running
        round b       -> ok; b completed, race completed
        race  race    -> {"joined":"any","outcomes":{"a":"failed","b":"completed"},"selected":["b"]}
        show  run     -> running
        round red     -> ok; red running
        round red     -> ok; red completed, run completed
        "#,
    );
}

/// E7: a quorum of two that runs out; a third that comes later changes nothing. A quorum that
/// cannot be reached fails at once.
#[test]
fn a_quorum() {
    check(
        r#"
        executor p1 provider t
        steps [P[T(a),T(b),T(c)] until 2 losers run_out on_failure absorb key q, T(z)]
        claim  a p1            -> granted
        claim  b p1            -> granted
        claim  c p1            -> granted
        commit c p1 'ok'       -> completed; c completed
        commit a p1 'ok'       -> completed; a completed, q completed, z started
        race   q               -> {"joined":2,"outcomes":{"a":"completed","b":"dispatched","c":"completed"},"selected":["c","a"]}
        commit b p1 'ok'       -> completed; b completed
        "#,
    );
    check(
        r#"
        executor p1 provider t
        steps [P[T(a, on_failure absorb),T(b),T(c)] until 2 on_failure absorb key q, T(z)]
        claim  a p1            -> granted
        claim  b p1            -> granted
        commit a p1 'x' failed -> failed; a failed
        commit b p1 'x' failed -> failed; b failed, c canceled, q failed, z started
        race   q               -> {"joined":2,"outcomes":{"a":"absorbed","b":"failed","c":"dispatched"},"selected":[]}
        show   q               -> failed error quorum_unreachable
        "#,
    );
}

/// E12: races in races; the selection is replaced by what an inner race selected.
#[test]
fn a_race_in_a_race() {
    check(
        r#"
        executor p1 provider t
        steps [P[[T(t1),P[T(i1),T(i2)] until any key inner],[T(t2),P[T(f1),T(f2)]]] until any key outer, M(z)]
        claim  t1 p1      -> granted
        commit t1 p1 'ok' -> completed; t1 completed, i1 started, i2 started
        claim  i2 p1      -> granted
        commit i2 p1 'ok' -> completed; i2 completed, i1 canceled, inner completed, t2 canceled, f1 canceled, f2 canceled, outer completed
        race   inner      -> {"joined":"any","outcomes":{"i1":"dispatched","i2":"completed"},"selected":["i2"]}
        race   outer      -> {"joined":"any","outcomes":{"f1":"waiting","f2":"waiting","inner":"completed"},"selected":["i2"]}
        "#,
    );
}

/// E13: who stands behind a race by name, and behind that.
#[test]
fn what_waits_for_a_race_by_name() {
    check(
        "
        executor p1 provider t
        steps [P[T(a),T(b)] until any key race, T(x), M(c,r=[race]), T(y,a=[race])]
        claim  b p1      -> granted
        commit b p1 'ok' -> completed; b completed, a canceled, race completed, x started
        claim  x p1      -> granted
        commit x p1 'ok' -> completed; x completed
        round  c         -> ok; c running
        round  c         -> ok; c completed, y started
        ",
    );
}

/// §10, INV-23: a loser whose clock had run out when the race ended settles its expiry.
#[test]
fn the_deadline_wins_over_a_loser_walk() {
    check(
        "
        executor p1 provider t
        steps [P[T(a),T(b, timeout_ms 1000),T(c)] until any key race, T(z)]
        claim  a p1      -> granted
        claim  b p1      -> granted
        clock  1s
        commit a p1 'ok' -> completed; a completed, b timed_out, c canceled, race completed, z started
        ",
    );
}

/// §6, INV-16: a failure is upstream of a race by structural edges, in its arms or before them; both
/// orders, and through rows that settled in an earlier transaction.
#[test]
fn a_failure_before_a_starved_race_is_taken_over() {
    check(
        "
        executor p1 provider t
        steps [P[T(p1),T(p2, on_failure halt)], P[T(a),T(b)] until any on_failure absorb key r, T(z)]
        claim  p1 p1            -> granted
        claim  p2 p1            -> granted
        commit p2 p1 'x' failed -> failed; p2 failed, run needs_attention, attention halt_failure p2
        commit p1 p1 'x' failed -> failed; p1 failed, a skipped, b skipped, r failed, z started, run running
        show   run              -> running
        claim  z p1             -> granted
        commit z p1 'ok'        -> completed; z completed, run completed
        ",
    );
    check(
        "
        executor p1 provider t
        steps [P[T(p1),T(p2, on_failure halt)], P[[T(a),T(c)],[T(b),T(d)]] until any on_failure absorb key r, T(z)]
        claim  p1 p1            -> granted
        claim  p2 p1            -> granted
        commit p1 p1 'x' failed -> failed; p1 failed, a skipped, c skipped, b skipped, d skipped, r failed, z started
        commit p2 p1 'x' failed -> failed; p2 failed
        claim  z p1             -> granted
        commit z p1 'ok'        -> completed; z completed, run completed
        abandon p2              -> not_adjudicable
        ",
    );
}

/// The same where the way to the race leads through one that is open: who stands behind that was
/// skipped for another reason, and nobody waits for the failure.
#[test]
fn a_failure_is_taken_over_across_an_open_race() {
    check(
        "
        executor p1 provider t
        steps [!T(f), P[[T(x, on_failure halt),T(c,a=[f])],T(s)] until any key open, T(y,a=[f]), P[T(q),T(r)] until any key race, T(z)]
        claim  x p1             -> granted
        claim  f p1             -> granted
        claim  s p1             -> granted
        commit x p1 'x' failed  -> failed; x failed, run needs_attention, attention halt_failure x
        commit f p1 'x' failed  -> failed; f failed, c skipped, y skipped, q skipped, r skipped, race failed, z skipped, run running
        show   run              -> running
        commit s p1 'ok'        -> completed; s completed, open completed, run needs_attention, attention deliverable_unresolved f race
        ",
    );
}

/// The same with a live consumer, and with the race still open: not taken over.
#[test]
fn a_failure_before_a_race_that_is_waited_for_holds() {
    check(
        "
        executor p1 provider t
        steps [P[T(p1),T(p2, on_failure halt),T(q)], P[T(a),T(b)] until any on_failure absorb key r, T(z,a=[p2])]
        claim  p1 p1            -> granted
        claim  p2 p1            -> granted
        claim  q p1             -> granted
        commit p2 p1 'x' failed -> failed; p2 failed, run needs_attention, attention halt_failure p2
        commit p1 p1 'x' failed -> failed; p1 failed, a skipped, b skipped, r failed
        show   run              -> needs_attention halt_failure [p2]
        ",
    );
}
