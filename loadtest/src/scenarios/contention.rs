//! Many runners and few rows: by single claims, where each row is raced for, and by batches on one
//! inbox, where none is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use nexus::client::words::ExecutorKind;

use super::{Claimed, Size, claim, claim_batch, claim_own, commit, row};
use crate::check::{self, Grants};
use crate::error::Error;
use crate::measure::{self, Seen, Work};
use crate::report::Finding;
use crate::world::{Row, Target, World};

/// All runners race for the same pool rows by single claims, in the same order; beside it the same
/// claims with nobody else about. Gives what a refusal costs in grants.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn race(target: &Target, size: Size) -> Result<Finding, Error> {
    let world = World::provision(target, ExecutorKind::ToolProvider, size.runners).await?;
    let runs = world
        .open_runs(size.units * 2, 1, |_| {
            format!("[{}]", world.step("call", None))
        })
        .await?;
    let (calm, raced) = runs.split_at(size.units);
    let grants = Arc::new(Grants::default());
    let held = Arc::new(std::sync::Mutex::new(Vec::new()));

    // Each row has one claimer: what a grant costs.
    let work = Work::new(size.load(size.units));
    let rows: Arc<[Arc<str>]> = calm.into();
    let runners = (0..size.runners).map(|r| {
        let (work, grants, rows, held) = (work.clone(), grants.clone(), rows.clone(), held.clone());
        let conn = world.executor(r);
        async move {
            let (mut conn, mut seen) = (conn?, Seen::default());
            while let Some(unit) = work.next().await {
                let row = row(&rows[unit.no], "call");
                let token = claim_own(&mut conn, &row).await?;
                seen.took("grant", unit.due, unit);
                work.done(unit, 1, &mut seen);
                keep(&held, &grants, r, row, token);
            }
            Ok(seen)
        }
    });
    let alone = measure::run("contention/calm", work.clone(), runners).await?;

    // All walk the same list.
    let work = Work::new(size.load(size.units * size.runners));
    let rows: Arc<[Arc<str>]> = raced.into();
    let granted = Arc::new(AtomicUsize::new(0));
    let runners = (0..size.runners).map(|r| {
        let (work, grants, rows, held) = (work.clone(), grants.clone(), rows.clone(), held.clone());
        let (conn, granted) = (world.executor(r), granted.clone());
        async move {
            let (mut conn, mut seen) = (conn?, Seen::default());
            for (i, run) in rows.iter().enumerate() {
                let row = row(run, "call");
                let order = i * size.runners + r;
                let Some(unit) = work.at(i, order).await else {
                    break;
                };
                match claim(&mut conn, &row).await? {
                    Claimed::Granted(token) => {
                        seen.took("grant", unit.due, unit);
                        if unit.measured {
                            granted.fetch_add(1, Ordering::Relaxed);
                        }
                        keep(&held, &grants, r, row, token);
                    }
                    Claimed::Refused => seen.took("refusal", unit.due, unit),
                }
                work.done(unit, 1, &mut seen);
            }
            Ok(seen)
        }
    });
    let outcome = measure::run("contention/race", work.clone(), runners).await?;

    settle(&world, &held).await?;
    let granted = granted.load(Ordering::Relaxed) as f64;
    let refused = outcome.units as f64 - granted;
    let grant = 1.0 / alone.rate;
    let refusal = (outcome.seconds - granted * grant) / refused;
    let mut finding = Finding::of("contention/race", "claims", outcome);
    for (name, n) in [
        ("grants_per_second_uncontended", alone.rate),
        ("refusals_per_grant", refused / granted),
        ("refusal_cost_in_grants", refusal / grant),
    ] {
        finding.numbers.insert(name.to_owned(), n);
    }
    finding.checks = check::world(&world, &runs).await?;
    grants.check(runs.len(), &mut finding.checks);
    Ok(finding)
}

/// Rows that a runner holds, with their tokens.
type Held = std::sync::Mutex<Vec<(usize, Row, String)>>;

fn keep(held: &Held, grants: &Grants, runner: usize, row: Row, token: String) {
    grants.granted(row.clone());
    held.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .push((runner, row, token));
}

/// Commits what was claimed, unmeasured, each by its claimant.
async fn settle(world: &World, held: &Held) -> Result<(), Error> {
    let all = std::mem::take(
        &mut *held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner),
    );
    let mut by_runner: std::collections::BTreeMap<usize, Vec<(Row, String)>> = Default::default();
    for (runner, row, token) in all {
        by_runner.entry(runner).or_default().push((row, token));
    }
    let mut tasks = Vec::new();
    for (runner, rows) in by_runner {
        let mut conn = world.executor(runner)?;
        tasks.push(tokio::spawn(async move {
            for (row, token) in rows {
                commit(&mut conn, &row, &token).await?;
            }
            Ok::<_, Error>(())
        }));
    }
    for task in tasks {
        task.await
            .map_err(|e| Error::Setup(format!("a runner ended: {e}")))??;
    }
    Ok(())
}

/// `callers` of `inbox/claims` on one inbox, `limit` rows a call.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn one_inbox(
    target: &Target,
    size: Size,
    callers: usize,
    limit: usize,
) -> Result<Finding, Error> {
    let world = World::provision(target, ExecutorKind::Runner, 1).await?;
    let runs = super::lifecycle::runs(&world, size.units).await?;
    let work = Work::new(size.load(size.units));
    let grants = Arc::new(Grants::default());
    let held = Arc::new(Held::default());
    let left = Arc::new(AtomicUsize::new(size.units));
    let runners = (0..callers).map(|r| {
        let (work, grants, held, left) = (work.clone(), grants.clone(), held.clone(), left.clone());
        let conn = world.executor(r);
        async move {
            let (mut conn, mut seen) = (conn?, Seen::default());
            while left.load(Ordering::Relaxed) > 0 {
                let at = Instant::now();
                let taken = claim_batch(&mut conn, limit, 0).await?;
                let Some(unit) = work.take(taken.len()).await else {
                    continue;
                };
                seen.took("claims", at, unit);
                work.done(unit, taken.len(), &mut seen);
                left.fetch_sub(taken.len(), Ordering::Relaxed);
                for (row, token) in taken {
                    keep(&held, &grants, r % 64, row, token);
                }
            }
            Ok(seen)
        }
    });
    let name = format!("contention/inbox-{callers}");
    let outcome = measure::run(&name, work.clone(), runners).await?;
    settle(&world, &held).await?;
    let mut finding = Finding::of(name, "claims", outcome);
    finding.checks = check::world(&world, &runs).await?;
    grants.check(runs.len(), &mut finding.checks);
    Ok(finding)
}
