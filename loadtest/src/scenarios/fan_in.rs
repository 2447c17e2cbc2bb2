//! Fans of 32 calls with one follower: settles that meet, and the follower exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use nexus::client::words::ExecutorKind;

use super::{Size, claim_own, commit, row};
use crate::check::{self, Grants};
use crate::error::Error;
use crate::measure::{self, Seen, Work};
use crate::report::Finding;
use crate::world::{Target, World};

/// As wide as one group may be.
const WIDTH: usize = 32;

/// `size.units` calls in fans, the followers beside them.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn fan_in(target: &Target, size: Size) -> Result<Finding, Error> {
    let count = size.units.div_ceil(WIDTH);
    let world = World::provision(target, ExecutorKind::Runner, 1).await?;
    let members: Vec<String> = (0..WIDTH)
        .map(|i| world.step(&format!("m{i}"), Some(0)))
        .collect();
    let steps = format!(
        r#"[{{"parallel":[{}]}},{}]"#,
        members.join(","),
        world.step("last", Some(0))
    );
    let runs = world.open_runs(count, 1, |_| steps.clone()).await?;
    let work = Work::new(size.load(count * WIDTH));
    let grants = Arc::new(Grants::default());
    let left: Arc<[AtomicUsize]> = (0..count).map(|_| AtomicUsize::new(WIDTH)).collect();
    let shared: Arc<[Arc<str>]> = runs.as_slice().into();
    let runners = (0..size.runners).map(|r| {
        let (work, grants, left, runs) =
            (work.clone(), grants.clone(), left.clone(), shared.clone());
        let conn = world.executor(r);
        async move {
            let (mut conn, mut seen) = (conn?, Seen::default());
            while let Some(unit) = work.next().await {
                let of = unit.no / WIDTH;
                let member = row(&runs[of], &format!("m{}", unit.no % WIDTH));
                let token = claim_own(&mut conn, &member).await?;
                seen.took("claim", unit.due, unit);
                grants.granted(member.clone());
                let at = Instant::now();
                commit(&mut conn, &member, &token).await?;
                seen.took("commit", at, unit);
                work.done(unit, 1, &mut seen);
                if left[of].fetch_sub(1, Ordering::AcqRel) == 1 {
                    // All its answers are in, so the follower is there: no waiting.
                    let last = row(&runs[of], "last");
                    let token = claim_own(&mut conn, &last).await?;
                    grants.granted(last.clone());
                    commit(&mut conn, &last, &token).await?;
                    work.done(unit, 1, &mut seen);
                }
            }
            Ok(seen)
        }
    });
    let outcome = measure::run("fan-in", work.clone(), runners).await?;
    let mut finding = Finding::of("fan-in", "lifecycles", outcome);
    finding.checks = check::world(&world, &runs).await?;
    grants.check(count * (WIDTH + 1), &mut finding.checks);
    Ok(finding)
}
