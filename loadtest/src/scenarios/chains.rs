//! Three calls one after the other, end to end: create, start, three claims and commits, completed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nexus::client::words::ExecutorKind;

use super::{Size, claim_own, commit, row};
use crate::check::{self, Grants};
use crate::error::Error;
use crate::measure::{self, Seen, Work};
use crate::report::Finding;
use crate::world::{Target, World};

const KEYS: [&str; 3] = ["a", "b", "c"];

/// `size.units` chains.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn chains(target: &Target, size: Size) -> Result<Finding, Error> {
    let world = Arc::new(World::provision(target, ExecutorKind::Runner, size.runners).await?);
    let work = Work::new(size.load(size.units));
    let grants = Arc::new(Grants::default());
    let made = Arc::new(Mutex::new(Vec::new()));
    let runners = (0..size.runners).map(|r| {
        let (work, grants, made, world) =
            (work.clone(), grants.clone(), made.clone(), world.clone());
        async move {
            let (mut member, mut conn) = (world.member(r)?, world.executor(r)?);
            let mut seen = Seen::default();
            let steps = KEYS.map(|key| world.step(key, Some(r))).join(",");
            let steps = format!("[{steps}]");
            while let Some(unit) = work.next().await {
                let run = world.create(&mut member, &steps).await?;
                seen.took("create", unit.due, unit);
                let at = Instant::now();
                world.start(&mut member, &run).await?;
                seen.took("start", at, unit);
                for key in KEYS {
                    let row = row(&run, key);
                    let token = claim_own(&mut conn, &row).await?;
                    grants.granted(row.clone());
                    commit(&mut conn, &row, &token).await?;
                }
                seen.took("chain", unit.due, unit);
                work.done(unit, 1, &mut seen);
                made.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(run);
            }
            Ok(seen)
        }
    });
    let outcome = measure::run("chains", work.clone(), runners).await?;
    let runs = std::mem::take(&mut *made.lock().unwrap_or_else(PoisonError::into_inner));
    let mut finding = Finding::of("chains", "chains", outcome);
    finding.checks = check::world(&world, &runs).await?;
    grants.check(runs.len() * KEYS.len(), &mut finding.checks);
    Ok(finding)
}
