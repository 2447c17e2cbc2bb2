//! What holds between two moments of a run, however many transactions lie between them and whoever
//! made them: what the comparison over the real database sees, where clients race.
//!
//! Each check says of a span what its twin in [`super::step`] says of one transaction, or less where
//! the order of the transactions is not told.

use std::collections::BTreeMap;

use super::race::{
    consumers, is_in_arms, is_lost, is_race, losers_had_no_consumers, takeovers_are_right, upstream,
};
use super::step::{
    Check, attention_is_told, every_run_status_is_told, every_status_write_is_told, extended,
    identity_is_kept, nothing_starts_where_nothing_may, settled_is_final, settled_now, told,
};
use super::{Finding, Narrated, View, ensure};
use crate::domain::TaskNo;
use crate::domain::words::{EdgeState, Losers, ParkKind, RunStatus, TaskStatus};
use crate::engine::facts::{Edge, Park, Task};

/// Every span invariant.
pub(super) const ALL: &[(&str, Check)] = &[
    ("INV-1 settled_is_final", settled_is_final),
    ("§1 identity_is_kept", identity_is_kept),
    (
        "INV-35 every_status_write_is_told",
        every_status_write_is_told,
    ),
    ("INV-35 every_run_status_is_told", every_run_status_is_told),
    ("INV-35 attention_is_told", attention_is_told),
    ("INV-22 a_claim_is_not_lost", a_claim_is_not_lost),
    ("INV-23 the_deadline_won", the_deadline_won),
    ("INV-24 clocks_run_as_they_ran", clocks_run_as_they_ran),
    (
        "INV-25 nothing_starts_where_nothing_may",
        nothing_starts_where_nothing_may,
    ),
    ("INV-6 edges_went_forward", edges_went_forward),
    ("INV-13 results_are_kept", results_are_kept),
    ("INV-14 losers_had_no_consumers", losers_had_no_consumers),
    ("INV-15 losers_were_walked", losers_were_walked),
    ("INV-16 takeovers_are_right", takeovers_are_right),
];

/// A claim goes to the end of its generation; recovering it renews its token.
fn a_claim_is_not_lost(before: &View<'_>, after: &View<'_>) -> Finding {
    for was in &before.world.parks {
        let Some(claim) = &was.claim else { continue };
        let row = after.task(was.task);
        let same = row.filter(|t| t.generation == was.generation);
        let Some(task) = same else { continue };
        let live = after.park(was.task).and_then(|p| p.claim.as_ref());
        let held = live
            .map(|c| (c.by, c.at))
            .or(task.claim.as_ref().map(|c| (c.by, c.at)));
        ensure(held == Some((claim.by, claim.at)), || {
            format!("{} lost its claim {claim:?}: {held:?}", task.key)
        })?;
    }
    Ok(())
}

/// Whether the run's clock stood at some moment of the span.
fn stood_still(before: &View<'_>, after: &View<'_>) -> bool {
    let paused = |i: &super::Item| matches!(i.what, Narrated::Run(RunStatus::Paused, _));
    before.world.run.status == RunStatus::Paused || told(before, after).iter().any(paused)
}

/// A row that settled on the clock which it had at the beginning of the span settled before its
/// deadline, or expired at or past it.
fn the_deadline_won(before: &View<'_>, after: &View<'_>) -> Finding {
    if stood_still(before, after) {
        return Ok(());
    }
    for (was, is) in settled_now(before, after) {
        let Some(park) = before.park(was.no).filter(|p| same_clock(p, is)) else {
            continue;
        };
        if extended(before, after, is.no) {
            continue;
        }
        let expired = matches!(is.status, TaskStatus::TimedOut | TaskStatus::Uncertain);
        let revoked = is
            .error
            .as_ref()
            .is_some_and(|e| e.key == "executor_revoked");
        let answered = matches!(is.status, TaskStatus::Completed | TaskStatus::Failed) && !revoked;
        let due = is.completed_at >= Some(park.deadline_at);
        ensure(!expired || due, || {
            format!("{} expired before {}", is.key, park.deadline_at)
        })?;
        ensure(!answered || !due, || {
            format!(
                "{} is {} at or after {}",
                is.key, is.status, park.deadline_at
            )
        })?;
        let effect = park.claim.is_some() && !park.replayable;
        ensure(
            !expired || effect == (is.status == TaskStatus::Uncertain),
            || format!("{} is {}; effect unknown: {effect}", is.key, is.status),
        )?;
    }
    Ok(())
}

/// Whether a settled row settled in the park that it had: a claim, an approval or a retry makes
/// another clock.
fn same_clock(park: &Park, is: &Task) -> bool {
    let claimed = |by, at| (by, at);
    let had = park.claim.as_ref().map(|c| claimed(c.by, c.at));
    let has = is.claim.as_ref().map(|c| claimed(c.by, c.at));
    let approved = park.kind == ParkKind::Approval && is.started_at.is_some();
    park.generation == is.generation && had == has && !approved
}

fn clocks_run_as_they_ran(before: &View<'_>, after: &View<'_>) -> Finding {
    if stood_still(before, after) {
        return Ok(());
    }
    for was in &before.world.parks {
        // An approval begins anew when the call's profile changed.
        let same = |is: &&Park| {
            let of = |p: &Park| (p.generation, p.kind, p.started_at, p.effect_profile.clone());
            let claims = |p: &Park| p.claim.as_ref().map(|c| (c.by, c.at));
            of(is) == of(was) && claims(is) == claims(was)
        };
        let Some(is) = after.park(was.task).filter(same) else {
            continue;
        };
        if extended(before, after, was.task) {
            continue;
        }
        ensure(is.deadline_at == was.deadline_at, || {
            let (from, to) = (was.deadline_at, is.deadline_at);
            format!("the clock of row {} went from {from} to {to}", was.task.0)
        })?;
    }
    Ok(())
}

fn edges_went_forward(before: &View<'_>, after: &View<'_>) -> Finding {
    let now: BTreeMap<(TaskNo, TaskNo), &Edge> = after
        .world
        .edges
        .iter()
        .map(|e| ((e.from, e.to), e))
        .collect();
    for was in &before.world.edges {
        let (from, to) = (was.from, was.to);
        let is = now.get(&(from, to));
        let is = is.ok_or_else(|| format!("edge {}→{} is gone", from.0, to.0))?;
        let same = (was.ordinal, was.structural) == (is.ordinal, is.structural);
        ensure(same, || format!("edge {}→{} is another", from.0, to.0))?;
        let tails = before.task(from).zip(after.task(from));
        let mended = tails.is_some_and(|(was, is)| {
            was.generation != is.generation || was.failure_resolution != is.failure_resolution
        });
        let forward = was.state == EdgeState::Open || was.state == is.state;
        ensure(forward || (was.state == EdgeState::Skip && mended), || {
            let (was, is) = (was.state, is.state);
            format!("edge {}→{} went from {was} to {is}", from.0, to.0)
        })?;
    }
    Ok(())
}

/// No result is rewritten (INV-13, INV-21); one is new only of a row that settled since.
fn results_are_kept(before: &View<'_>, after: &View<'_>) -> Finding {
    for result in &before.world.results {
        ensure(after.world.results.contains(result), || {
            format!("the result of row {} is gone or other", result.task.0)
        })?;
    }
    for result in &after.world.results {
        let old = |was: &Task| was.status.is_terminal() && was.generation >= result.generation;
        let known = before
            .world
            .results
            .iter()
            .any(|r| (r.task, r.generation) == (result.task, result.generation));
        ensure(
            known || before.task(result.task).is_none_or(|was| !old(was)),
            || format!("row {} got a result without settling", result.task.0),
        )?;
    }
    Ok(())
}

/// Of the rows in a race's arms that are open as they were before it settled, each had somebody who
/// waits for it.
fn losers_were_walked(before: &View<'_>, after: &View<'_>) -> Finding {
    let races = after.world.tasks.iter().filter(|t| {
        let was = before
            .task(t.no)
            .is_none_or(|was| !was.status.is_terminal());
        was && is_race(t) && matches!(t.status, TaskStatus::Completed | TaskStatus::Failed)
    });
    let races: Vec<&Task> = races.collect();
    let walks = |t: &&&Task| t.join.is_some_and(|j| j.losers == Losers::Cancel);
    for race in races.iter().filter(walks) {
        for no in upstream(after, race.no) {
            let open = after.task(no).filter(|t| !t.status.is_terminal());
            // What was opened again since was no candidate of the walk.
            let as_it_was =
                |t: &&Task| t.generation == before.task(no).map_or(0, |was| was.generation);
            let Some(task) = open
                .filter(as_it_was)
                .filter(|t| is_in_arms(after, t, race.no))
            else {
                continue;
            };
            // Whom another race of the span cancelled may have been alive when this one settled.
            let live = consumers(after, no).any(|c| {
                let later = c.settle_seq > race.settle_seq;
                !c.status.is_terminal() || (later && (races.len() > 1 || !is_lost(c)))
            });
            ensure(live, || {
                format!("{} is {} after {}", task.key, task.status, race.key)
            })?;
        }
    }
    Ok(())
}
