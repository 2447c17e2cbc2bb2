//! Independent calls: runs of one tool call each, claimed and committed by N runners.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::stream::{FuturesUnordered, TryStreamExt as _};
use nexus::client::words::ExecutorKind;

use super::{Size, claim_batch, claim_own, commit, commit_batch, has_batch_commits, row};
use crate::check::{self, Grants};
use crate::error::Error;
use crate::measure::{self, Load, Seen, Work};
use crate::report::Finding;
use crate::world::{Target, World};

/// By single claims and single commits. With `rate` the load is open and latencies count from when a
/// unit was due.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn single(target: &Target, size: Size, rate: Option<f64>) -> Result<Finding, Error> {
    let world = World::provision(target, ExecutorKind::Runner, size.runners).await?;
    let runs = runs(&world, size.units).await?;
    let mut load = size.load(size.units);
    load.rate = rate;
    let name = if rate.is_some() {
        "lifecycle/paced"
    } else if size.runners == 1 {
        "lifecycle/alone"
    } else {
        "lifecycle/single"
    };
    measured(&world, &runs, size, load, name).await
}

/// Runs of one call each, dealt out over the world's executors.
///
/// # Errors
/// As [`World::open_runs`].
pub async fn runs(world: &World, units: usize) -> Result<Vec<Arc<str>>, Error> {
    let executors = world.executors.len();
    world
        .open_runs(units, executors, |i| {
            format!("[{}]", world.step("call", Some(i)))
        })
        .await
}

/// Claims and commits these runs' calls.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn measured(
    world: &World,
    runs: &[Arc<str>],
    size: Size,
    load: Load,
    name: &str,
) -> Result<Finding, Error> {
    let work = Work::new(load);
    let grants = Arc::new(Grants::default());
    let shared: Arc<[Arc<str>]> = runs.into();
    let runners = (0..size.runners).map(|r| {
        let (work, grants, runs) = (work.clone(), grants.clone(), shared.clone());
        let conn = world.executor(r);
        async move {
            let (mut conn, mut seen) = (conn?, Seen::default());
            let mut no = r;
            while let Some(unit) = work.at(no, no).await {
                let row = row(&runs[no], "call");
                no += size.runners;
                let token = claim_own(&mut conn, &row).await?;
                seen.took("claim", unit.due, unit);
                grants.granted(row.clone());
                let at = Instant::now();
                commit(&mut conn, &row, &token).await?;
                seen.took("commit", at, unit);
                seen.took("both", unit.due, unit);
                work.done(unit, 1, &mut seen);
            }
            Ok(seen)
        }
    });
    let outcome = measure::run(name, work.clone(), runners).await?;
    let mut finding = Finding::of(name, "lifecycles", outcome);
    finding.checks = check::world(world, runs).await?;
    grants.check(runs.len(), &mut finding.checks);
    Ok(finding)
}

/// By `inbox/claims`, up to `batch` a call, and by `inbox/commits` where the server has it (else by
/// single commits, eight at a time).
///
/// # Errors
/// A fault that ends the scenario.
pub async fn batch(target: &Target, size: Size, batch: usize) -> Result<Finding, Error> {
    let world = World::provision(target, ExecutorKind::Runner, size.runners).await?;
    let runs = runs(&world, size.units).await?;
    let work = Work::new(size.load(size.units));
    let grants = Arc::new(Grants::default());
    let commits_door = has_batch_commits(&mut world.executor(0)?).await?;
    let left: Arc<[AtomicUsize]> = (0..size.runners)
        .map(|r| AtomicUsize::new((r..size.units).step_by(size.runners).count()))
        .collect();
    let runners = (0..size.runners).map(|r| {
        let (work, grants, left) = (work.clone(), grants.clone(), left.clone());
        let conns: Result<Vec<_>, _> = (0..8)
            .map(|i| world.executor(r + i * size.runners))
            .collect();
        async move {
            let (mut conns, mut seen) = (conns?, Seen::default());
            while left[r].load(Ordering::Relaxed) > 0 {
                let at = Instant::now();
                let taken = claim_batch(&mut conns[0], batch, 1000).await?;
                let Some(unit) = work.take(taken.len()).await else {
                    continue;
                };
                seen.took("claims", at, unit);
                left[r].fetch_sub(taken.len(), Ordering::Relaxed);
                let at = Instant::now();
                if commits_door {
                    commit_batch(&mut conns[0], &taken).await?;
                    seen.took("commits", at, unit);
                } else {
                    let lanes = conns.iter_mut().enumerate().map(|(lane, conn)| {
                        let mine = taken.iter().skip(lane).step_by(8);
                        async move {
                            for (row, token) in mine {
                                commit(conn, row, token).await?;
                            }
                            Ok::<_, Error>(())
                        }
                    });
                    let all: FuturesUnordered<_> = lanes.collect();
                    all.try_collect::<()>().await?;
                    seen.took("commits", at, unit);
                }
                let count = taken.len();
                for (row, _) in taken {
                    grants.granted(row);
                }
                work.done(unit, count, &mut seen);
            }
            Ok(seen)
        }
    });
    let outcome = measure::run("lifecycle/batch", work.clone(), runners).await?;
    let mut finding = Finding::of("lifecycle/batch", "lifecycles", outcome);
    let door = if commits_door { 1.0 } else { 0.0 };
    finding.numbers.insert("batch_commit_door".to_owned(), door);
    finding.checks = check::world(&world, &runs).await?;
    grants.check(runs.len(), &mut finding.checks);
    Ok(finding)
}
