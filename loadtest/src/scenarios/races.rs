//! Races: three calls of which the first to commit wins, and a follower. The losers are claimed when
//! they lose, so their commits come too late: they are told so, or how the row ended.

use std::sync::Arc;
use std::time::Instant;

use nexus::client::words::ExecutorKind;

use super::{Size, claim_own, commit, row, try_commit};
use crate::check::{self, Grants};
use crate::error::Error;
use crate::measure::{self, Seen, Work};
use crate::report::Finding;
use crate::world::{Target, World};

/// `size.units` races.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn races(target: &Target, size: Size) -> Result<Finding, Error> {
    let world = World::provision(target, ExecutorKind::Runner, 1).await?;
    let arms: Vec<String> = (0..3)
        .map(|i| world.step(&format!("arm{i}"), Some(0)))
        .collect();
    let steps = format!(
        r#"[{{"parallel":[{}],"until":"any"}},{}]"#,
        arms.join(","),
        world.step("last", Some(0))
    );
    let runs = world.open_runs(size.units, 1, |_| steps.clone()).await?;
    let work = Work::new(size.load(size.units));
    let grants = Arc::new(Grants::default());
    let shared: Arc<[Arc<str>]> = runs.as_slice().into();
    let runners = (0..size.runners).map(|r| {
        let (work, grants, runs) = (work.clone(), grants.clone(), shared.clone());
        let conn = world.executor(r);
        async move {
            let (mut conn, mut seen) = (conn?, Seen::default());
            while let Some(unit) = work.next().await {
                let run = &runs[unit.no];
                let mut tokens = Vec::new();
                for i in 0..3 {
                    let arm = row(run, &format!("arm{i}"));
                    let token = claim_own(&mut conn, &arm).await?;
                    grants.granted(arm.clone());
                    tokens.push((arm, token));
                }
                let (winner, token) = tokens.swap_remove(unit.no % 3);
                let at = Instant::now();
                commit(&mut conn, &winner, &token).await?;
                seen.took("winning commit", at, unit);
                for (loser, token) in &tokens {
                    let at = Instant::now();
                    let answer = try_commit(&mut conn, loser, token).await?;
                    // Its claimant is told how the row ended, and changes nothing.
                    let canceled = br#""status":"canceled""#;
                    let told = answer.body.windows(canceled.len()).any(|w| w == canceled);
                    if !(answer.status.as_u16() == 409 || answer.status.is_success() && told) {
                        return Err(answer.fault());
                    }
                    seen.took("lost commit", at, unit);
                }
                let last = row(run, "last");
                let token = claim_own(&mut conn, &last).await?;
                grants.granted(last.clone());
                commit(&mut conn, &last, &token).await?;
                seen.took("race", unit.due, unit);
                work.done(unit, 1, &mut seen);
            }
            Ok(seen)
        }
    });
    let outcome = measure::run("races", work.clone(), runners).await?;
    let mut finding = Finding::of("races", "races", outcome);
    finding.checks = check::world(&world, &runs).await?;
    grants.check(runs.len() * 4, &mut finding.checks);
    Ok(finding)
}
