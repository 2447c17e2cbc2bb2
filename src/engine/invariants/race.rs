//! What a race does when it settles (`engine.md` §6), recomputed over the whole graph: what it
//! selected, whom its end cancelled, whose failures it took over.

use std::collections::BTreeSet;

use super::recount::holds;
use super::{Finding, View, Violation, World, ensure, place, view};
use crate::domain::json::{Value, parse};
use crate::domain::words::{
    EdgeState, FailureResolution, JoinMode, Losers, OnFailure, TaskKind, TaskStatus,
};
use crate::domain::{TaskKey, TaskNo};
use crate::engine::facts::Task;

/// Rows from which structural edges lead to the barrier.
pub(super) fn upstream(view: &View<'_>, barrier: TaskNo) -> BTreeSet<TaskNo> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![barrier];
    while let Some(no) = todo.pop() {
        let into = place(view.world, no).map_or(&[][..], |at| &view.into[at]);
        for edge in into.iter().map(|at| &view.world.edges[*at]) {
            if edge.structural && seen.insert(edge.from) {
                todo.push(edge.from);
            }
        }
    }
    seen
}

pub(super) fn consumers<'v>(view: &'v View<'_>, no: TaskNo) -> impl Iterator<Item = &'v Task> {
    let edges = view.world.edges.iter().filter(move |e| e.from == no);
    edges.filter_map(|e| view.task(e.to))
}

/// Whether the row was placed in a branch of that race, at any depth: what stands before the race is
/// no branch of it that could lose.
pub(super) fn is_in_arms(view: &View<'_>, task: &Task, race: TaskNo) -> bool {
    let mut at = task.barrier;
    while let Some(no) = at.filter(|no| *no != race) {
        at = view.task(no).and_then(|t| t.barrier);
    }
    at.is_some()
}

pub(super) fn is_race(task: &Task) -> bool {
    task.join.is_some_and(|j| j.mode != JoinMode::All)
}

fn selection<'v>(view: &'v View<'_>, no: TaskNo) -> Option<&'v str> {
    let generation = view.task(no)?.generation;
    let results = view.world.results.iter();
    let mut results = results.filter(|r| r.task == no && r.generation == generation);
    results.next()?.selection.as_deref()
}

fn keys_in(text: &str) -> Option<Vec<String>> {
    let value = parse(text.as_bytes()).ok()?;
    let keys = value.get("selected")?.as_array()?.iter();
    keys.map(|k| k.as_str().map(str::to_owned)).collect()
}

/// INV-16: what stands upstream of a settled race and has no live consumer is taken over.
pub(super) fn failures_are_taken_over(view: &View<'_>) -> Finding {
    if !view.world.tasks.iter().any(holds) {
        return Ok(());
    }
    let races = view.world.tasks.iter();
    for race in races.filter(|t| is_race(t) && t.status.is_terminal()) {
        for no in upstream(view, race.no) {
            let Some(task) = view.task(no).filter(|t| holds(t)) else {
                continue;
            };
            let edges = view.world.edges.iter().filter(|e| e.from == no);
            let open = edges.filter(|e| e.state == EdgeState::Open);
            let mut waiting = open.filter_map(|e| view.task(e.to));
            let live = waiting.any(|c| !c.status.is_terminal());
            ensure(live, || {
                format!(
                    "{} holds its run, though {} has settled",
                    task.key, race.key
                )
            })?;
        }
    }
    Ok(())
}

/// INV-12, and what a snapshot says: each source's word, and the successes in their order.
pub(super) fn snapshots_are_right(view: &View<'_>) -> Finding {
    let joins = view.rows().filter(|(t, _)| {
        t.kind == TaskKind::Join && matches!(t.status, TaskStatus::Completed | TaskStatus::Failed)
    });
    for (race, into) in joins {
        let text =
            selection(view, race.no).ok_or_else(|| format!("{} has no snapshot", race.key))?;
        let value = parse(text.as_bytes()).map_err(|e| e.to_string())?;
        let mut sources: Vec<(i32, &Task)> = Vec::new();
        for edge in into {
            sources.extend(view.task(edge.from).map(|t| (edge.ordinal, t)));
        }
        sources.sort_by_key(|(ordinal, _)| *ordinal);
        let words = value.get("outcomes").and_then(Value::as_object);
        let words = words.ok_or_else(|| format!("{}: {text}", race.key))?;
        ensure(words.len() == sources.len(), || {
            format!("{}: {text}", race.key)
        })?;
        let mut winners: Vec<&Task> = Vec::new();
        for (_, source) in sources {
            let word = words.get(source.key.as_str()).and_then(Value::as_str);
            let word = word.ok_or_else(|| format!("{} has no word in {text}", source.key))?;
            ensure(is_word(race, source, word), || {
                format!(
                    "{}: {} is {} and was told {word}",
                    race.key, source.key, source.status
                )
            })?;
            if word == "completed" {
                winners.push(source);
            }
        }
        winners.sort_by_key(|t| t.settle_seq);
        let mut wanted: Vec<String> = Vec::new();
        for winner in &winners {
            match selection(view, winner.no).and_then(keys_in) {
                Some(inner) if winner.kind == TaskKind::Join => wanted.extend(inner),
                _ => wanted.push(winner.key.as_str().to_owned()),
            }
        }
        let selected = keys_in(text).ok_or_else(|| format!("{}: {text}", race.key))?;
        ensure(selected == wanted, || {
            format!("{} selected {selected:?}, not {wanted:?}", race.key)
        })?;
        let need = race.join.map_or(0, |j| usize::try_from(j.k).unwrap_or(0));
        let enough = winners.len() >= need;
        ensure(
            !is_race(race) || enough == (race.status == TaskStatus::Completed),
            || {
                format!(
                    "{} is {} with {} of {need}",
                    race.key,
                    race.status,
                    winners.len()
                )
            },
        )?;
    }
    Ok(())
}

/// Whether a source may have had that word when the race settled. What settled later, or was
/// retried since, had some other word then.
fn is_word(race: &Task, source: &Task, word: &str) -> bool {
    let before = source.settle_seq.is_some_and(|s| Some(s) < race.settle_seq);
    let failed = matches!(
        source.status,
        TaskStatus::Failed | TaskStatus::TimedOut | TaskStatus::Uncertain
    );
    let live = [
        "waiting",
        "needs_approval",
        "running",
        "dispatched",
        "awaiting_input",
    ];
    let own = match source.failure_resolution {
        // Stamped before or after.
        Some(FailureResolution::Abandoned) => return word != "completed",
        None if failed && source.on_failure == OnFailure::Absorb => "absorbed",
        _ => source.status.shown(),
    };
    let lost = source
        .error
        .as_ref()
        .is_some_and(|e| e.key == "join_loser_canceled");
    match (before, lost) {
        (true, _) => word == own,
        (false, _) if source.generation > 0 => word != "completed",
        (false, true) => live.contains(&word),
        (false, false) => live.contains(&word) || word == own,
    }
}

pub(super) fn is_lost(task: &Task) -> bool {
    let error = task.error.as_ref();
    error.is_some_and(|e| e.key == "join_loser_canceled")
}

/// INV-14: a loser had no live consumer outside the walk when it was cancelled, and no selected row
/// is one.
pub(super) fn losers_had_no_consumers(before: &View<'_>, after: &View<'_>) -> Finding {
    let lost = is_lost;
    for loser in after.world.tasks.iter().filter(|t| lost(t)) {
        let new = before
            .task(loser.no)
            .is_none_or(|was| !was.status.is_terminal());
        if !new {
            continue;
        }
        // Who was born behind a row that had ended reads it, and did not wait.
        let edges = after.world.edges.iter().filter(|e| e.from == loser.no);
        let edges = edges.filter(|e| e.state != EdgeState::Met);
        for consumer in edges.filter_map(|e| after.task(e.to)) {
            let ended = consumer
                .settle_seq
                .is_some_and(|s| Some(s) < loser.settle_seq);
            ensure(ended || lost(consumer), || {
                format!(
                    "{} was cancelled under {}, {}",
                    loser.key, consumer.key, consumer.status
                )
            })?;
        }
        let chosen = |race: &Task| {
            let text = selection(after, race.no)
                .and_then(keys_in)
                .unwrap_or_default();
            text.contains(&loser.key.as_str().to_owned())
        };
        ensure(
            !after.world.tasks.iter().any(|t| is_race(t) && chosen(t)),
            || format!("{} was selected and cancelled", loser.key),
        )?;
    }
    Ok(())
}

/// INV-16: a failure is taken over only as the rule says; and never again a failure that holds.
pub(super) fn takeovers_are_right(before: &View<'_>, after: &View<'_>) -> Finding {
    for task in after.world.tasks.iter().filter(|t| t.race_absorbed) {
        if before.task(task.no).is_some_and(|was| was.race_absorbed) {
            continue;
        }
        let races = after.world.tasks.iter();
        let mut races = races.filter(|t| is_race(t) && t.status.is_terminal());
        ensure(
            races.any(|race| upstream(after, race.no).contains(&task.no)),
            || format!("{} was taken over by no race", task.key),
        )?;
        // Whoever read it and lives now was born behind it since: its edge is met.
        let edges = after.world.edges.iter().filter(|e| e.from == task.no);
        let live = edges.filter(|e| e.state == EdgeState::Open);
        ensure(live.count() == 0, || {
            format!("{} was taken over from its readers", task.key)
        })?;
    }
    Ok(())
}

/// INV-15: in the step of one command, a race that ends cancels all that nothing live waits for.
///
/// # Errors
/// A row that should have been cancelled.
pub fn losers_are_walked(before: &World, after: &World) -> Result<(), Violation> {
    walked(&view(before)?, &view(after)?)
}

pub(super) fn walked(before: &View<'_>, after: &View<'_>) -> Result<(), Violation> {
    let settled = |t: &&Task| {
        let was = before
            .task(t.no)
            .is_none_or(|was| !was.status.is_terminal());
        was && is_race(t)
            && matches!(t.status, TaskStatus::Completed | TaskStatus::Failed)
            && t.join.is_some_and(|j| j.losers == Losers::Cancel)
    };
    for race in after.world.tasks.iter().filter(settled) {
        for no in upstream(after, race.no) {
            let open = after.task(no).filter(|t| !t.status.is_terminal());
            let Some(task) = open.filter(|t| is_in_arms(after, t, race.no)) else {
                continue;
            };
            // Whoever ended after the walk was alive then, but for those that it ended itself.
            let live = consumers(after, no).any(|c| {
                let later = c.settle_seq > race.settle_seq && !is_lost(c);
                !c.status.is_terminal() || later
            });
            let key: &TaskKey = &task.key;
            if !live {
                return Err(Violation {
                    name: "INV-15 losers_are_walked",
                    detail: format!(
                        "{key} is {} after {} settled as {:?}; {:?}",
                        task.status,
                        race.key,
                        race.settle_seq,
                        consumers(after, no)
                            .map(|c| (&c.key, c.status, c.settle_seq, &c.error))
                            .collect::<Vec<_>>()
                    ),
                });
            }
        }
    }
    Ok(())
}
