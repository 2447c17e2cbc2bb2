//! What holds of a run's rows between two transactions.

use std::collections::{BTreeMap, BTreeSet};

use super::race::{failures_are_taken_over, snapshots_are_right};
use super::recount::holds;
use super::rest::keys_of;
use super::{Finding, Narrated, View, ensure};
use crate::domain::TaskNo;
use crate::domain::words::{
    AttentionReason, EdgeState, JoinMode, ParkKind, RunStatus, TaskKind, TaskStatus,
};
use crate::engine::facts::Task;

type Check = fn(&View<'_>) -> Finding;

/// Every state invariant, cheapest explanation first: a wrong edge is told before the countdown
/// that follows from it.
pub(super) const ALL: &[(&str, Check)] = &[
    ("INV-8 graph_is_acyclic", graph_is_acyclic),
    ("INV-6 edges_follow_settlements", edges_follow_settlements),
    (
        "INV-4 remaining_counts_open_edges",
        remaining_counts_open_edges,
    ),
    ("INV-9 skipped_iff_a_skip_edge", skipped_iff_a_skip_edge),
    ("INV-3 no_started_row_waits", no_started_row_waits),
    ("INV-5 joins_count_their_sources", joins_count_their_sources),
    ("INV-11 no_decided_race_is_open", no_decided_race_is_open),
    ("L6 counters_are_exact", counters_are_exact),
    ("L6 open_failures_are_listed", open_failures_are_listed),
    ("§3 settled_rows_are_whole", settled_rows_are_whole),
    ("§10 parked_rows_have_parks", parked_rows_have_parks),
    ("INV-22 one_claim_per_generation", one_claim_per_generation),
    (
        "INV-21 results_are_of_known_generations",
        results_are_of_known_generations,
    ),
    (
        "INV-34 no_call_starts_unapproved",
        no_call_starts_unapproved,
    ),
    (
        "INV-7 nothing_ready_is_forgotten",
        nothing_ready_is_forgotten,
    ),
    ("INV-2 ended_run_is_settled", ended_run_is_settled),
    (
        "INV-25 stopped_run_starts_nothing",
        stopped_run_starts_nothing,
    ),
    ("INV-16 quiescence_is_judged", quiescence_is_judged),
    ("INV-16 failures_are_taken_over", failures_are_taken_over),
    ("INV-12 snapshots_are_right", snapshots_are_right),
    ("INV-31 nothing_to_deliver", nothing_to_deliver),
    ("INV-20 one_answer", one_answer),
    ("INV-35 attention_has_its_keys", attention_has_its_keys),
    ("§13 items_are_contiguous", items_are_contiguous),
];

fn graph_is_acyclic(view: &View<'_>) -> Finding {
    for (task, into) in view.rows() {
        let mut tails: Vec<TaskNo> = into.map(|e| e.from).collect();
        tails.sort_unstable();
        ensure(tails.windows(2).all(|w| w[0] != w[1]), || {
            format!("two edges from one row into {}", task.key)
        })?;
    }
    // Rows mostly point backwards in number; only what does not needs the walk.
    if view.world.edges.iter().all(|e| e.from < e.to) {
        return Ok(());
    }
    let mut out: BTreeMap<TaskNo, Vec<TaskNo>> = BTreeMap::new();
    for edge in &view.world.edges {
        out.entry(edge.from).or_default().push(edge.to);
    }
    let mut open: BTreeMap<TaskNo, usize> = BTreeMap::new();
    let mut free = Vec::new();
    for (task, into) in view.rows() {
        match into.count() {
            0 => free.push(task.no),
            n => drop(open.insert(task.no, n)),
        }
    }
    let mut seen = 0;
    while let Some(no) = free.pop() {
        seen += 1;
        for to in out.get(&no).into_iter().flatten() {
            let left = open.get_mut(to).expect("a head has a count");
            *left -= 1;
            if *left == 0 {
                free.push(*to);
            }
        }
    }
    let rows = view.world.tasks.len();
    ensure(seen == rows, || {
        format!("{} rows stand in a cycle", rows - seen)
    })
}

fn edges_follow_settlements(view: &View<'_>) -> Finding {
    let edges = view.world.edges.iter().zip(&view.recount().edges);
    for (edge, expected) in edges {
        ensure(edge.state == *expected, || {
            let (from, to) = (edge.from.0, edge.to.0);
            format!("edge {from}→{to} is {}, not {expected}", edge.state)
        })?;
    }
    Ok(())
}

fn remaining_counts_open_edges(view: &View<'_>) -> Finding {
    let rows = view.world.tasks.iter().zip(&view.recount().remaining);
    for (task, expected) in rows.filter(|(t, _)| t.kind != TaskKind::Join) {
        ensure(task.remaining == *expected, || {
            format!("{} has {} left, not {expected}", task.key, task.remaining)
        })?;
    }
    Ok(())
}

fn skipped_iff_a_skip_edge(view: &View<'_>) -> Finding {
    for (task, mut into) in view.rows().filter(|(t, _)| t.kind != TaskKind::Join) {
        let has_skip = into.any(|e| e.state == EdgeState::Skip);
        ensure(task.status != TaskStatus::Skipped || has_skip, || {
            format!("{} is skipped without a skip edge", task.key)
        })?;
        ensure(!(task.status.is_unstarted() && has_skip), || {
            format!("{} is {} behind a skip edge", task.key, task.status)
        })?;
    }
    Ok(())
}

fn no_started_row_waits(view: &View<'_>) -> Finding {
    for (task, mut into) in view.rows().filter(|(t, _)| t.status.is_started()) {
        ensure(into.all(|e| e.state != EdgeState::Open), || {
            format!("{} is {} behind an open edge", task.key, task.status)
        })?;
    }
    Ok(())
}

/// The open barriers with how many of their sources are open and how many completed.
fn queued_joins<'v>(view: &'v View<'_>) -> impl Iterator<Item = (&'v Task, i32, i32)> {
    let queued = view
        .rows()
        .filter(|(t, _)| t.kind == TaskKind::Join && t.status == TaskStatus::Queued);
    queued.map(|(task, into)| {
        let (mut open, mut completed) = (0, 0);
        for edge in into {
            open += i32::from(edge.state == EdgeState::Open);
            let source = view.task(edge.from);
            completed += i32::from(source.is_some_and(|s| s.status == TaskStatus::Completed));
        }
        (task, open, completed)
    })
}

fn joins_count_their_sources(view: &View<'_>) -> Finding {
    for (task, open, completed) in queued_joins(view) {
        let join = task.join.as_ref();
        ensure(
            join.is_some_and(|j| j.pending == open && j.successes == completed),
            || {
                format!(
                    "{}: {join:?}, not {open} pending, {completed} successes",
                    task.key
                )
            },
        )?;
    }
    Ok(())
}

fn no_decided_race_is_open(view: &View<'_>) -> Finding {
    for (task, open, completed) in queued_joins(view) {
        let Some(join) = task.join.as_ref().filter(|j| j.mode != JoinMode::All) else {
            continue;
        };
        let decided = completed >= join.k || completed + open < join.k;
        ensure(!decided, || {
            format!(
                "{}: {completed} of {} with {open} open is decided",
                task.key, join.k
            )
        })?;
    }
    Ok(())
}

fn counters_are_exact(view: &View<'_>) -> Finding {
    let (kept, counted) = (view.world.run.counts, view.recount().counts);
    ensure(kept == counted, || format!("{kept:?}, not {counted:?}"))
}

fn open_failures_are_listed(view: &View<'_>) -> Finding {
    let mut listed = view.world.failures.clone();
    listed.sort_unstable();
    let expected = &view.recount().failures;
    ensure(listed == *expected, || {
        format!("{listed:?}, not {expected:?}")
    })
}

fn settled_rows_are_whole(view: &View<'_>) -> Finding {
    let mut seqs = BTreeSet::new();
    for task in &view.world.tasks {
        let settled = task.status.is_terminal();
        ensure(task.completed_at.is_some() == settled, || {
            format!(
                "{} is {} with time {:?}",
                task.key, task.status, task.completed_at
            )
        })?;
        let numbered = task
            .settle_seq
            .is_some_and(|s| s <= view.world.run.settle_seq && seqs.insert(s));
        ensure(
            numbered == settled && task.settle_seq.is_some() == settled,
            || {
                format!(
                    "{} is {} with settle_seq {:?}",
                    task.key, task.status, task.settle_seq
                )
            },
        )?;
        let failed = settled && !matches!(task.status, TaskStatus::Completed | TaskStatus::Skipped);
        ensure(task.error.is_some() == failed, || {
            format!(
                "{} is {} with error {:?}",
                task.key, task.status, task.error
            )
        })?;
        ensure(
            !task.is_error || task.status == TaskStatus::Completed,
            || format!("{} is {} and is_error", task.key, task.status),
        )?;
    }
    Ok(())
}

fn parked_rows_have_parks(view: &View<'_>) -> Finding {
    let mut parked = BTreeSet::new();
    for park in &view.world.parks {
        ensure(parked.insert(park.task), || {
            format!("two parks of {}", park.task.0)
        })?;
        let task = view
            .task(park.task)
            .ok_or_else(|| format!("a park of {}, which is no row", park.task.0))?;
        let fits = match park.kind {
            ParkKind::ToolCall => {
                task.kind == TaskKind::Tool && task.status == TaskStatus::Dispatched
            }
            ParkKind::Approval => task.status == TaskStatus::NeedsApproval,
            ParkKind::Ask | ParkKind::Wait => {
                task.kind == TaskKind::Await && task.status.is_started()
            }
        };
        ensure(fits, || {
            format!("{} is {} with a park {}", task.key, task.status, park.kind)
        })?;
        ensure(park.generation == task.generation, || {
            format!(
                "{} of generation {} has a park of {}",
                task.key, task.generation, park.generation
            )
        })?;
        let addressee = task.addressed.and_then(|a| a.executor);
        ensure(
            park.kind != ParkKind::ToolCall || park.executor == addressee,
            || {
                format!(
                    "{} is for {addressee:?}, its park for {:?}",
                    task.key, park.executor
                )
            },
        )?;
        ensure(
            park.kind != ParkKind::ToolCall || park.executor.is_some() != park.pool_name.is_some(),
            || format!("{} is for one executor or for one pool", task.key),
        )?;
    }
    for task in &view.world.tasks {
        let rests = matches!(
            task.status,
            TaskStatus::Dispatched | TaskStatus::AwaitingInput | TaskStatus::NeedsApproval
        );
        ensure(!rests || parked.contains(&task.no), || {
            format!("{} is {} without a park", task.key, task.status)
        })?;
    }
    Ok(())
}

fn one_claim_per_generation(view: &View<'_>) -> Finding {
    for park in view.world.parks.iter().filter(|p| p.claim.is_some()) {
        let task = view.task(park.task);
        ensure(park.kind == ParkKind::ToolCall, || {
            format!("a claimed park {} of {}", park.kind, park.task.0)
        })?;
        ensure(task.is_some_and(|t| t.claim.is_none()), || {
            format!("row {} has a live claim and a final one", park.task.0)
        })?;
        let claimant = park.claim.as_ref().map(|c| c.by);
        ensure(park.executor.is_none() || park.executor == claimant, || {
            format!(
                "row {} is for {:?}, claimed by {claimant:?}",
                park.task.0, park.executor
            )
        })?;
    }
    for task in view.world.tasks.iter().filter(|t| !t.status.is_terminal()) {
        ensure(task.claim.is_none(), || {
            format!("{} is open with a final claim", task.key)
        })?;
    }
    Ok(())
}

fn results_are_of_known_generations(view: &View<'_>) -> Finding {
    let mut seen = BTreeSet::new();
    for result in &view.world.results {
        let (no, generation) = (result.task.0, result.generation);
        ensure(seen.insert((no, generation)), || {
            format!("two results of row {no}, generation {generation}")
        })?;
        let task = view
            .task(result.task)
            .ok_or_else(|| format!("a result of {no}"))?;
        let known = generation < task.generation
            || (generation == task.generation && task.status.is_terminal());
        ensure(known, || {
            format!(
                "{} ({}, generation {}) has a result of {generation}",
                task.key, task.status, task.generation
            )
        })?;
    }
    Ok(())
}

fn no_call_starts_unapproved(view: &View<'_>) -> Finding {
    let calls = view.world.tasks.iter().filter(|t| t.kind == TaskKind::Tool);
    for task in calls.filter(|t| t.status.is_started() || t.status == TaskStatus::Completed) {
        ensure(task.approval.is_some(), || {
            format!("{} is {} without an approval fact", task.key, task.status)
        })?;
    }
    let refused = |t: &Task| {
        let key = t.error.as_ref().map_or("", |e| e.key.as_str());
        matches!(key, "approval_denied" | "approval_expired")
    };
    for task in view.world.tasks.iter().filter(|t| refused(t)) {
        ensure(task.started_at.is_none(), || {
            format!("{} was refused and had started", task.key)
        })?;
    }
    Ok(())
}

fn nothing_ready_is_forgotten(view: &View<'_>) -> Finding {
    let run = &view.world.run;
    if run.status != RunStatus::Running || run.schedulable {
        return Ok(());
    }
    let ready = view
        .world
        .tasks
        .iter()
        .zip(&view.recount().remaining)
        .find(|(t, left)| {
            matches!(t.kind, TaskKind::Tool | TaskKind::Await)
                && t.status == TaskStatus::Queued
                && **left == 0
        });
    ensure(ready.is_none(), || {
        format!(
            "{} is ready in a running run that owes no pass",
            ready.map_or("", |(t, _)| t.key.as_str())
        )
    })
}

fn ended_run_is_settled(view: &View<'_>) -> Finding {
    let run = &view.world.run;
    ensure(
        run.status.is_terminal() == run.completed_at.is_some(),
        || format!("the run is {} with time {:?}", run.status, run.completed_at),
    )?;
    let open = view.world.tasks.iter().find(|t| !t.status.is_terminal());
    match open.filter(|_| run.status.is_terminal()) {
        Some(task) => Err(format!(
            "the run is {}, {} is {}",
            run.status, task.key, task.status
        )),
        None => Ok(()),
    }
}

fn stopped_run_starts_nothing(view: &View<'_>) -> Finding {
    let run = &view.world.run;
    let stops = matches!(run.status, RunStatus::Canceling | RunStatus::Canceled);
    ensure(!run.force_stopped || stops, || {
        format!("the run was stopped by force and is {}", run.status)
    })?;
    if !(run.force_stopped || run.status == RunStatus::Canceling) {
        return Ok(());
    }
    for task in &view.world.tasks {
        // A running round is aborted and ends when that is applied.
        let may_stay = task.status.is_terminal()
            || (run.force_stopped && task.status == TaskStatus::Running)
            || (!run.force_stopped && task.status.is_started());
        ensure(may_stay, || {
            format!("{} is {} after the stop", task.key, task.status)
        })?;
    }
    Ok(())
}

/// A running run has something started, something to start or a question open; a completed run
/// has its answer and no failure that holds it.
fn quiescence_is_judged(view: &View<'_>) -> Finding {
    let run = &view.world.run;
    let unresolved = view.world.tasks.iter().find(|t| holds(t));
    match run.status {
        RunStatus::Running => {
            let counts = view.recount().counts;
            let started = counts.started > 0 || counts.approval > 0;
            let alive = started || counts.ready > 0 || counts.rounds > 0;
            ensure(alive, || "the run is running with nothing to do".to_owned())
        }
        RunStatus::Completed => ensure(unresolved.is_none(), || {
            format!(
                "the run completed over {}",
                unresolved.map_or("", |t| t.key.as_str())
            )
        }),
        RunStatus::Canceling => ensure(view.recount().counts.open > 0, || {
            "the run is canceling with nothing open".to_owned()
        }),
        _ => Ok(()),
    }
}

/// Nothing is delivered yet.
fn nothing_to_deliver(view: &View<'_>) -> Finding {
    let undelivered = view.world.run.counts.undelivered;
    ensure(undelivered == 0, || {
        format!("{undelivered} results to deliver")
    })
}

fn one_answer(view: &View<'_>) -> Finding {
    let run = &view.world.run;
    let Some(no) = run.deliverable else {
        return ensure(run.status != RunStatus::Completed, || {
            "completed without an answer".to_owned()
        });
    };
    let task = view
        .task(no)
        .ok_or_else(|| format!("the answer {} is no row", no.0))?;
    ensure(!task.detached, || {
        format!("the answer {} is detached", task.key)
    })?;
    if run.status != RunStatus::Completed {
        return Ok(());
    }
    ensure(task.status == TaskStatus::Completed, || {
        format!(
            "the run completed, its answer {} is {}",
            task.key, task.status
        )
    })?;
    let of_answer = view
        .world
        .results
        .iter()
        .filter(|r| r.task == no && r.generation == task.generation);
    let stored = of_answer.count();
    ensure(stored == 1 || task.kind == TaskKind::Join, || {
        format!("the answer {} has {stored} results", task.key)
    })
}

fn attention_has_its_keys(view: &View<'_>) -> Finding {
    let run = &view.world.run;
    let held = run.status == RunStatus::NeedsAttention;
    let Some(attention) = &run.attention else {
        return ensure(!held, || "needs_attention without a reason".to_owned());
    };
    let expected = keys_of(view, attention.reason);
    let mut kept = attention.keys.clone();
    kept.sort();
    ensure(kept == expected, || {
        format!(
            "{}: {:?}, not {expected:?}",
            attention.reason, attention.keys
        )
    })?;
    let may_be_empty = attention.reason == AttentionReason::DeliverableUnresolved;
    ensure(may_be_empty || !expected.is_empty(), || {
        format!("{} stands without keys", attention.reason)
    })?;
    let may_hold = matches!(
        attention.reason,
        AttentionReason::HaltFailure | AttentionReason::DeliverableUnresolved
    );
    // A halt failure may be told beside a question that is still parked.
    ensure(!held || may_hold, || {
        format!("held for {}", attention.reason)
    })?;
    let ended = run.status.is_terminal() || run.status == RunStatus::Canceling;
    ensure(!ended, || {
        format!(
            "{} stands in a run that is {}",
            attention.reason, run.status
        )
    })
}

fn items_are_contiguous(view: &View<'_>) -> Finding {
    let items = &view.world.items;
    let gap = items.windows(2).find(|w| w[0].seq + 1 != w[1].seq);
    ensure(gap.is_none(), || {
        format!("a gap after item {}", gap.map_or(0, |w| w[0].seq))
    })?;
    let last = items.last().map_or(view.world.run.event_seq, |i| i.seq);
    ensure(last == view.world.run.event_seq, || {
        format!(
            "the last item is {last}, the run counts {}",
            view.world.run.event_seq
        )
    })?;
    let told = items.iter().rev().find_map(|i| match i.what {
        Narrated::Run(status, _) => Some(status),
        _ => None,
    });
    ensure(told.is_none_or(|s| s == view.world.run.status), || {
        format!(
            "the run was last told {told:?} and is {}",
            view.world.run.status
        )
    })
}
