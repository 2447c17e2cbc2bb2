//! The same work on a fresh account and on one with a long history: what is settled must weigh nothing.

use nexus::client::words::ExecutorKind;

use super::{Size, claim_batch, commit, lifecycle};
use crate::error::Error;
use crate::report::Finding;
use crate::world::{Target, World};
use uuid::Uuid;

/// Settled calls of each run of the history.
const WIDTH: usize = 100;

/// Lifecycles before and after `settled` calls of history in the same account.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn history(
    target: &Target,
    size: Size,
    settled: usize,
) -> Result<(Finding, Finding), Error> {
    let world = World::provision(target, ExecutorKind::Runner, size.runners).await?;
    let load = size.load(size.units);
    let runs = lifecycle::runs(&world, size.units).await?;
    let before = lifecycle::measured(&world, &runs, size, load, "history/before").await?;

    let database = target.database("a history").await?;
    let (mut member, mut conn) = (world.member(0)?, world.executor(0)?);
    let step = format!("[{}]", world.step("r1", Some(0)));
    let run = world.create(&mut member, &step).await?;
    world.start(&mut member, &run).await?;
    database.widen(&run, WIDTH).await?;
    loop {
        let taken = claim_batch(&mut conn, 64, 0).await?;
        if taken.is_empty() {
            break;
        }
        for (row, token) in taken {
            commit(&mut conn, &row, &token).await?;
        }
    }
    let id: Uuid = run
        .parse()
        .map_err(|_| Error::Setup(format!("`{run}` is no run id")))?;
    let copies = (settled / WIDTH).saturating_sub(1);
    // In pieces, so that no transaction is large.
    for piece in (0..copies).step_by(500) {
        database.multiply(id, 500.min(copies - piece)).await?;
    }
    database.analyze().await?;

    let runs = lifecycle::runs(&world, size.units).await?;
    let mut after = lifecycle::measured(&world, &runs, size, load, "history/after").await?;
    after
        .numbers
        .insert("settled_tasks".to_owned(), settled as f64);
    after
        .numbers
        .insert("after_to_before".to_owned(), after.rate / before.rate);
    Ok((before, after))
}
