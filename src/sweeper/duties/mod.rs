//! The duties, one file each: where due rows are found, how often, how many at a time
//! (`admission.md` §8).
//!
//! Invariants: started by a timer, never with arguments; idempotent; the next pass is the retry. A
//! duty changes no task itself: it asks a command.

mod authority;
mod credentials;
mod drains;
mod events;
mod idempotency;
mod parks;
mod ready;
mod replicas;
mod revocations;
mod tombstones;
mod uploads;

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::lead::Cx;
use crate::store::Error;

/// What one batch came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// Rows settled or deleted.
    pub rows: usize,
    /// Whether the next batch should follow at once.
    pub more: bool,
    /// How late the oldest row was that it met.
    pub lag: Duration,
}

/// A sweep.
pub trait Duty: Send + Sync {
    /// What it is called, as in `admission.md` §8.
    fn name(&self) -> &'static str;
    /// How often it looks.
    fn tick(&self) -> Duration;
    /// Whether it deletes what is old, rather than settle work.
    fn deletes(&self) -> bool {
        false
    }
    /// Runs one batch.
    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>>;
}

/// Those that settle work.
pub fn settling() -> Vec<Box<dyn Duty>> {
    vec![
        Box::<parks::Parks>::default(),
        Box::<ready::Ready>::default(),
        Box::<revocations::Revocations>::default(),
        Box::<authority::Authority>::default(),
        Box::<drains::Drains>::default(),
    ]
}

/// Those that delete what is old.
pub fn deleting() -> Vec<Box<dyn Duty>> {
    vec![
        Box::new(replicas::Replicas),
        Box::new(idempotency::Idempotency),
        Box::<events::Events>::default(),
        Box::new(tombstones::Tombstones),
        // Behind the tombstones, which give files up.
        Box::<uploads::Uploads>::default(),
        Box::<credentials::Credentials>::default(),
    ]
}

/// All.
pub fn all() -> Vec<Box<dyn Duty>> {
    settling().into_iter().chain(deleting()).collect()
}

/// The names of all, for a message that says what there is.
pub fn names() -> Vec<&'static str> {
    all().iter().map(|d| d.name()).collect()
}
