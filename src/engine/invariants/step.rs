//! What holds from one transaction to the next.

use super::race::{losers_had_no_consumers, takeovers_are_right};
use super::{Finding, Item, Narrated, View, Violation, World, ensure};
use crate::domain::words::{EdgeState, RunStatus, TaskKind, TaskStatus};
use crate::domain::{TaskKey, TaskNo};
use crate::engine::facts::Task;
use crate::engine::graph::PASS;

pub(super) type Check = fn(&View<'_>, &View<'_>) -> Finding;

/// Every step invariant.
pub(super) const ALL: &[(&str, Check)] = &[
    ("INV-1 settled_is_final", settled_is_final),
    ("§1 identity_is_kept", identity_is_kept),
    (
        "INV-35 every_status_write_is_told",
        every_status_write_is_told,
    ),
    ("INV-35 every_run_status_is_told", every_run_status_is_told),
    ("INV-35 attention_is_told", attention_is_told),
    ("INV-22 a_claim_stands", a_claim_stands),
    ("INV-23 the_deadline_wins", the_deadline_wins),
    ("INV-24 a_pause_stops_the_clocks", a_pause_stops_the_clocks),
    (
        "INV-25 nothing_starts_where_nothing_may",
        nothing_starts_where_nothing_may,
    ),
    (
        "INV-7 the_end_of_a_hold_carries_the_pass",
        the_end_of_a_hold_carries_the_pass,
    ),
    ("INV-6 edges_do_not_go_back", edges_do_not_go_back),
    (
        "INV-21 results_are_never_rewritten",
        results_are_never_rewritten,
    ),
    ("INV-14 losers_had_no_consumers", losers_had_no_consumers),
    ("INV-16 takeovers_are_right", takeovers_are_right),
];

/// Rows that both moments know.
pub(super) fn pairs<'v>(
    before: &'v View<'_>,
    after: &'v View<'_>,
) -> impl Iterator<Item = (&'v Task, &'v Task)> {
    let rows = before.world.tasks.iter();
    rows.filter_map(|was| Some((was, after.task(was.no)?)))
}

pub(super) fn settled_now<'v>(
    before: &'v View<'_>,
    after: &'v View<'_>,
) -> impl Iterator<Item = (&'v Task, &'v Task)> {
    pairs(before, after).filter(|(was, is)| !was.status.is_terminal() && is.status.is_terminal())
}

pub(super) fn settled_is_final(before: &View<'_>, after: &View<'_>) -> Finding {
    let mut last = before.world.run.settle_seq;
    let mut seqs: Vec<_> = settled_now(before, after)
        .map(|(_, is)| (is.settle_seq, is))
        .collect();
    seqs.sort_by_key(|(seq, _)| *seq);
    for (seq, is) in seqs {
        ensure(seq.is_some_and(|s| s > last), || {
            format!("{} settled as {seq:?} after {last}", is.key)
        })?;
        last = seq.unwrap_or(last);
    }
    for (was, is) in pairs(before, after).filter(|(was, _)| was.status.is_terminal()) {
        let reopened = is.generation > was.generation
            && !matches!(was.status, TaskStatus::Completed | TaskStatus::Canceled);
        // Edges into it are still counted down, and a person or a race may let a failure go.
        let mut kept = was.clone();
        kept.remaining = is.remaining;
        kept.race_absorbed = is.race_absorbed;
        kept.failure_resolution = was.failure_resolution.or(is.failure_resolution);
        ensure(reopened || kept == *is, || {
            format!(
                "{} was {} and was rewritten: {was:?} → {is:?}",
                was.key, was.status
            )
        })?;
    }
    Ok(())
}

pub(super) fn identity_is_kept(before: &View<'_>, after: &View<'_>) -> Finding {
    ensure(after.world.tasks.len() >= before.world.tasks.len(), || {
        "a row is gone".to_owned()
    })?;
    for (was, is) in pairs(before, after) {
        let kept = was.key == is.key
            && was.kind == is.kind
            && was.lineage == is.lineage
            && was.on_failure == is.on_failure
            && was.tool_name == is.tool_name
            && was.target == is.target
            && was.timeout_ms == is.timeout_ms;
        ensure(kept, || format!("{} became another row: {is:?}", was.key))?;
        let step = is.generation - was.generation;
        ensure(step >= 0, || {
            format!(
                "{} went from generation {} to {}",
                was.key, was.generation, is.generation
            )
        })?;
    }
    Ok(())
}

/// The items of this step.
pub(super) fn told<'v>(before: &View<'_>, after: &'v View<'_>) -> &'v [Item] {
    let items = &after.world.items;
    let from = items.partition_point(|i| i.seq <= before.world.run.event_seq);
    &items[from..]
}

/// Each task's items lead from its old status to its new one, one legal write an item.
pub(super) fn every_status_write_is_told(before: &View<'_>, after: &View<'_>) -> Finding {
    let told = told(before, after);
    let changed = pairs(before, after)
        .filter(|(was, is)| was.status != is.status || was.generation != is.generation);
    for (was, is) in changed {
        let named = |i: &Item| matches!(&i.what, Narrated::Task(key, _) if *key == was.key);
        ensure(told.iter().any(named), || {
            format!(
                "{} went from {} to {} untold",
                was.key, was.status, is.status
            )
        })?;
    }
    let mut now: std::collections::BTreeMap<&TaskKey, TaskStatus> = Default::default();
    for item in told {
        let Narrated::Task(key, to) = &item.what else {
            continue;
        };
        let task = after.world.tasks.iter().find(|t| t.key == *key);
        let task = task.ok_or_else(|| format!("an item of {key}, which is no row"))?;
        let was = before.task(task.no).map(|t| t.status);
        let from = now.get(key).copied().or(was);
        let legal = match from {
            Some(from) => may_become(task.kind, from, *to),
            None => matches!(
                to,
                TaskStatus::Queued | TaskStatus::Failed | TaskStatus::Running
            ),
        };
        ensure(legal, || {
            format!(
                "{key} was told {to} after {}",
                from.map_or("birth", TaskStatus::as_str)
            )
        })?;
        now.insert(key, *to);
    }
    for (key, status) in now {
        let is = after
            .world
            .tasks
            .iter()
            .find(|t| t.key == *key)
            .map(|t| t.status);
        ensure(is == Some(status), || {
            format!("{key} was last told {status} and is {is:?}")
        })?;
    }
    Ok(())
}

/// The status machines of `engine.md` §3.
fn may_become(kind: TaskKind, from: TaskStatus, to: TaskStatus) -> bool {
    use TaskStatus::{
        AwaitingInput, Canceled, Completed, Dispatched, Failed, NeedsApproval, Queued, Running,
        Skipped, TimedOut, Uncertain,
    };
    let retried = matches!(from, Failed | TimedOut | Uncertain)
        && !matches!(kind, TaskKind::Join | TaskKind::Delegation);
    match (from, to) {
        (Queued, Skipped) => kind != TaskKind::Join,
        (Queued | NeedsApproval, Canceled) => true,
        (_, Queued) if retried || from == Skipped => true,
        // A failure is told again when a person lets it go.
        (Failed, Failed) | (TimedOut, TimedOut) | (Uncertain, Uncertain) => true,
        // A waiting row is told again when forwarding grew its `after`.
        (Queued, Queued) => true,
        _ => match kind {
            TaskKind::Model => matches!(
                (from, to),
                (Queued, Running | Failed)
                    | (Running, Completed | Failed | TimedOut | Queued | Canceled)
            ),
            TaskKind::Tool => matches!(
                (from, to),
                // Approved while nothing might start: it does not cross again.
                (Queued, NeedsApproval | Dispatched | Failed)
                    | (
                        NeedsApproval,
                        Dispatched | Running | Queued | Failed | TimedOut
                    )
                    | (
                        Dispatched | Running,
                        Completed | Failed | TimedOut | Canceled
                    )
                    | (Dispatched, Uncertain)
            ),
            TaskKind::Await => matches!(
                (from, to),
                (Queued, Dispatched | AwaitingInput)
                    | (
                        Dispatched | AwaitingInput,
                        Completed | Failed | TimedOut | Canceled
                    )
            ),
            TaskKind::Join => matches!((from, to), (Queued, Completed | Failed | Canceled)),
            TaskKind::Delegation => {
                matches!((from, to), (Running, Completed | Failed | Canceled))
            }
        },
    }
}

pub(super) fn every_run_status_is_told(before: &View<'_>, after: &View<'_>) -> Finding {
    let mut now = before.world.run.status;
    for item in told(before, after) {
        let Narrated::Run(to, _) = &item.what else {
            continue;
        };
        ensure(run_may_become(now, *to), || {
            format!("the run was told {to} after {now}")
        })?;
        now = *to;
    }
    let is = after.world.run.status;
    ensure(now == is, || {
        format!("the run was last told {now} and is {is}")
    })
}

/// The run's machine (`runs.md` §7.1).
fn run_may_become(from: RunStatus, to: RunStatus) -> bool {
    use RunStatus::{Canceled, Canceling, Completed, NeedsAttention, Paused, Pending, Running};
    matches!(
        (from, to),
        (Pending, Running | Canceled)
            | (Running, Paused | NeedsAttention | Completed | Canceling)
            | (Paused, Running | Canceling)
            | (NeedsAttention, Running | NeedsAttention | Canceling)
            | (Canceling, Canceled)
    )
}

pub(super) fn attention_is_told(before: &View<'_>, after: &View<'_>) -> Finding {
    let (was, is) = (&before.world.run.attention, &after.world.run.attention);
    let last = told(before, after)
        .iter()
        .rev()
        .find_map(|i| match &i.what {
            Narrated::Attention(reason, keys) => Some((*reason, keys.clone())),
            _ => None,
        });
    match is {
        Some(is) if was.as_ref() != Some(is) => {
            ensure(last == Some((is.reason, is.keys.clone())), || {
                format!("{is:?} stands, told was {last:?}")
            })
        }
        _ => Ok(()),
    }
}

fn a_claim_stands(before: &View<'_>, after: &View<'_>) -> Finding {
    for was in &before.world.parks {
        let Some(claim) = &was.claim else { continue };
        let task = after.task(was.task);
        let is = after
            .park(was.task)
            .filter(|p| p.generation == was.generation);
        let stands = match (is, task) {
            // The same claim; recovering it may have renewed its token.
            (Some(park), _) => park
                .claim
                .as_ref()
                .is_some_and(|c| c.by == claim.by && c.at == claim.at),
            (None, Some(task)) if task.generation == was.generation => task
                .claim
                .as_ref()
                .is_some_and(|c| c.by == claim.by && c.at == claim.at && c.digest == claim.digest),
            (None, task) => task.is_some(),
        };
        ensure(stands, || {
            format!("row {} lost its claim {claim:?}: {is:?}", was.task.0)
        })?;
    }
    for (was, is) in settled_now(before, after).filter(|(_, is)| is.claim.is_some()) {
        let claimed = before.park(was.no).is_some_and(|p| p.claim.is_some());
        ensure(claimed, || {
            format!("{} settled with a claim it never had", is.key)
        })?;
    }
    Ok(())
}

fn the_deadline_wins(before: &View<'_>, after: &View<'_>) -> Finding {
    let run_now = before.world.run.run_now(after.world.now);
    for (was, is) in settled_now(before, after) {
        let Some(park) = before.park(was.no) else {
            continue;
        };
        let due = run_now >= park.deadline_at;
        let expired = matches!(is.status, TaskStatus::TimedOut | TaskStatus::Uncertain);
        ensure(!expired || due, || {
            format!("{} expired before {}", is.key, park.deadline_at)
        })?;
        // Whoever ends it: an answer, a denial, a stop, a race, a person, an executor that leaves.
        ensure(expired || !due, || {
            format!(
                "{} is {} at or after {}",
                is.key, is.status, park.deadline_at
            )
        })?;
        let effect = park.claim.is_some() && !park.replayable;
        ensure(
            !expired || effect == (is.status == TaskStatus::Uncertain),
            || {
                format!(
                    "{} is {}; claimed and not replayable: {effect}",
                    is.key, is.status
                )
            },
        )?;
    }
    Ok(())
}

/// Whether an extension of the row was told in this step.
pub(super) fn extended(before: &View<'_>, after: &View<'_>, no: TaskNo) -> bool {
    let key = after.task(no).map(|t| &t.key);
    let of_row = |i: &Item| matches!(&i.what, Narrated::Other(told) if Some(told) == key);
    told(before, after).iter().any(of_row)
}

/// But for a claim that was extended in the same step.
fn a_pause_stops_the_clocks(before: &View<'_>, after: &View<'_>) -> Finding {
    let (was, is) = (&before.world.run, &after.world.run);
    if (was.status == RunStatus::Paused) == (is.status == RunStatus::Paused) {
        return Ok(());
    }
    let now = after.world.now;
    for park in &before.world.parks {
        let Some(kept) = after
            .park(park.task)
            .filter(|_| !extended(before, after, park.task))
            .filter(|kept| kept.started_at == park.started_at && kept.kind == park.kind)
        else {
            continue;
        };
        let left = (
            park.deadline_at - was.run_now(now),
            kept.deadline_at - is.run_now(now),
        );
        ensure(left.0 == left.1, || {
            format!("row {} had {} left and has {}", park.task.0, left.0, left.1)
        })?;
    }
    Ok(())
}

/// Nothing starts in a run that is pending, held, paused, stopping or over; a run that gets to run
/// in this very step may start what is ready.
pub(super) fn nothing_starts_where_nothing_may(before: &View<'_>, after: &View<'_>) -> Finding {
    let ran = told(before, after)
        .iter()
        .any(|i| matches!(i.what, Narrated::Run(RunStatus::Running, _)));
    if ran || before.world.run.status == RunStatus::Running {
        return Ok(());
    }
    for (was, is) in pairs(before, after) {
        ensure(was.status.is_started() || !is.status.is_started(), || {
            format!(
                "{} started while the run was {}",
                is.key, before.world.run.status
            )
        })?;
    }
    Ok(())
}

/// What became ready under a hold has started once the hold is over, as far as one pass goes.
fn the_end_of_a_hold_carries_the_pass(before: &View<'_>, after: &View<'_>) -> Finding {
    let ended = before.world.run.status == RunStatus::NeedsAttention
        && after.world.run.status == RunStatus::Running;
    let within_a_pass = i64::try_from(after.world.tasks.len()).is_ok_and(|n| n <= PASS);
    let ready = after.recount().counts.ready;
    ensure(!(ended && within_a_pass) || ready == 0, || {
        format!("{ready} rows are ready after a hold and were not started")
    })
}

fn edges_do_not_go_back(before: &View<'_>, after: &View<'_>) -> Finding {
    // In both moments edges are listed in the order they were born.
    for (was, is) in before.world.edges.iter().zip(&after.world.edges) {
        if (was.from, was.to) != (is.from, is.to) || was.state == is.state {
            continue;
        }
        let mended = was.state == EdgeState::Skip && is.state != EdgeState::Skip;
        let repaired = mended && {
            let (tail, now) = (before.task(was.from), after.task(was.from));
            tail.zip(now).is_some_and(|(tail, now)| {
                tail.generation != now.generation
                    || tail.failure_resolution != now.failure_resolution
            })
        };
        ensure(was.state == EdgeState::Open || repaired, || {
            format!(
                "edge {}→{} went from {} to {}",
                was.from.0, was.to.0, was.state, is.state
            )
        })?;
    }
    Ok(())
}

fn results_are_never_rewritten(before: &View<'_>, after: &View<'_>) -> Finding {
    for result in &before.world.results {
        ensure(after.world.results.contains(result), || {
            format!("the result of row {} is gone or other", result.task.0)
        })?;
    }
    let new = &after.world.results[before.world.results.len().min(after.world.results.len())..];
    for result in new {
        let is = after.task(result.task);
        let settled = is.is_some_and(|is| {
            let was = before.task(is.no);
            let ended = is.status.is_terminal() && is.generation == result.generation;
            // Or it ended and runs again.
            (ended || is.generation > result.generation)
                && was.is_none_or(|was| !was.status.is_terminal() || was.generation < is.generation)
        });
        ensure(settled, || {
            format!("row {} got a result without settling", result.task.0)
        })?;
    }
    Ok(())
}

/// INV-30 and its like: a command that was refused wrote nothing at all.
///
/// # Errors
/// What it wrote.
pub fn refusal_changes_nothing(before: &World, after: &World) -> Result<(), Violation> {
    let mut was = before.clone();
    was.now = after.now;
    if was.items.is_empty() {
        was.items.clone_from(&after.items);
    }
    let violation = |what: &str| Violation {
        name: "INV-30 refusal_changes_nothing",
        detail: format!("{what} changed"),
    };
    if was.run != after.run {
        return Err(violation("the run"));
    }
    if was.tasks != after.tasks || was.edges != after.edges {
        return Err(violation("the graph"));
    }
    if was.parks != after.parks || was.failures != after.failures || was.results != after.results {
        return Err(violation("a park, failure or result"));
    }
    Ok(())
}

/// INV-35: in the step of one command, the run's last status was told with the reason that stands now
/// (`runs.md` §13), not with one that ended meanwhile.
///
/// # Errors
/// What was told instead.
pub fn the_reason_told_stands(before: &World, after: &World) -> Result<(), Violation> {
    let new = after
        .items
        .iter()
        .filter(|i| i.seq > before.run.event_seq)
        .rev();
    let mut told = new.filter_map(|i| match &i.what {
        Narrated::Run(_, reason) => Some(*reason),
        _ => None,
    });
    let stands = after.run.attention.as_ref().map(|a| a.reason);
    match told.next() {
        Some(told) if told != stands => Err(Violation {
            name: "INV-35 the_reason_told_stands",
            detail: format!("{told:?} was told and {stands:?} stands"),
        }),
        _ => Ok(()),
    }
}

/// The items of one command stand in the order of `runs.md` §13: the row that it is about, then
/// other rows in authoring order, then the run, then the attention.
///
/// # Errors
/// The first item out of place.
pub fn narrated_in_order(before: &World, after: &World) -> Result<(), Violation> {
    let from = after
        .items
        .partition_point(|i| i.seq <= before.run.event_seq);
    let number = |key: &TaskKey| after.tasks.iter().find(|t| t.key == *key).map(|t| t.no);
    let mut first = None;
    let mut last = (0, None);
    for item in &after.items[from..] {
        let place = match &item.what {
            Narrated::Task(key, _) | Narrated::Other(key) => {
                let about = first.get_or_insert_with(|| key.clone());
                if key == about {
                    (0, None)
                } else {
                    (1, number(key))
                }
            }
            Narrated::Run(..) | Narrated::Shell => (2, None),
            Narrated::Attention(..) => (3, None),
        };
        if place < last {
            return Err(Violation {
                name: "§13 narrated_in_order",
                detail: format!("item {} ({:?}) stands too late", item.seq, item.what),
            });
        }
        last = place;
    }
    Ok(())
}
