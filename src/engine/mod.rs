//! The engine: every rule of the protocol, and nothing else.
//!
//! Facts in, decisions out. Knows `domain`. Does not know: async, clocks, chance (only
//! [`mint::Mint`]), SQL, HTTP, Redis.
//!
//! A command is decided on a [`graph::Graph`]: the slice of a run that was loaded under its lock.
//! Deciding changes the slice and writes down what changed; [`graph::Graph::advance`] then carries
//! the consequences (releases, skips, starts, the run's end) and names what it must see next.

pub mod append;
pub mod approval;
pub mod approve;
pub mod author;
pub mod cancel;
pub mod claim;
pub mod commit;
pub mod compile;
pub mod default_runner;
pub mod eligibility;
pub mod expire;
pub mod extend;
pub mod facts;
pub mod graph;
pub mod invariants;
pub mod mint;
pub mod operation;
pub mod pause;
pub mod repair;
pub mod resolve;
pub mod revoke;
pub mod settlement;
pub mod start;
pub mod stop;

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tables;
