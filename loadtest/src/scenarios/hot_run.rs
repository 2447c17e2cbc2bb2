//! One run with a wide fan: every commit meets on its row.

use std::sync::Arc;
use std::time::Instant;

use nexus::client::words::ExecutorKind;

use super::{Size, claim_own, commit, row};
use crate::check::{self, Grants};
use crate::error::Error;
use crate::measure::{self, Seen, Work};
use crate::report::Finding;
use crate::world::{Target, World};

/// `runs` runs of `width` calls, one run after the other.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn hot_run(
    target: &Target,
    size: Size,
    runs: usize,
    width: usize,
) -> Result<Finding, Error> {
    let world = World::provision(target, ExecutorKind::Runner, 1).await?;
    let database = target
        .database("a fan wider than one request may be (64)")
        .await?;
    let step = format!("[{}]", world.step("r1", Some(0)));
    let mut conn = world.member(0)?;
    let mut all = Vec::with_capacity(runs);
    for _ in 0..runs {
        let run = world.create(&mut conn, &step).await?;
        world.start(&mut conn, &run).await?;
        database.widen(&run, width).await?;
        all.push(run);
    }
    database.analyze().await?;
    let work = Work::new(size.load(runs * width));
    let grants = Arc::new(Grants::default());
    let shared: Arc<[Arc<str>]> = all.as_slice().into();
    let runners = (0..size.runners).map(|r| {
        let (work, grants, runs) = (work.clone(), grants.clone(), shared.clone());
        let conn = world.executor(r);
        async move {
            let (mut conn, mut seen) = (conn?, Seen::default());
            while let Some(unit) = work.next().await {
                let row = row(&runs[unit.no / width], &format!("r{}", unit.no % width + 1));
                let token = claim_own(&mut conn, &row).await?;
                seen.took("claim", unit.due, unit);
                grants.granted(row.clone());
                let at = Instant::now();
                commit(&mut conn, &row, &token).await?;
                seen.took("commit", at, unit);
                work.done(unit, 1, &mut seen);
            }
            Ok(seen)
        }
    });
    let outcome = measure::run("hot-run", work.clone(), runners).await?;
    let mut finding = Finding::of("hot-run", "lifecycles", outcome);
    finding.checks = check::world(&world, &all).await?;
    grants.check(runs * width, &mut finding.checks);
    Ok(finding)
}
