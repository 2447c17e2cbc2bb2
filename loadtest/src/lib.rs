//! `nexus-loadtest`: bounded load scenarios against any Nexus server, measured beside what the bare
//! database can do (`architecture.md` §9), each followed by a check that nothing was lost or done
//! twice.
//!
//! - [`world`] provisions an account for a scenario, [`seed`] multiplies runs in the tables;
//! - [`scenarios`] load, with [`http`]'s lean client, timed by [`measure`];
//! - [`check`] reads what came of it; [`report`] keeps it;
//! - [`local`] starts private servers where no target is given; [`bench`] runs the set of `make bench`.
//!
//! Does not know: the engine's rules. It speaks the protocol, and reads the tables where it is let.

pub mod bench;
pub mod check;
pub mod error;
pub mod http;
pub mod local;
pub mod measure;
pub mod plot;
pub mod report;
pub mod scenarios;
pub mod seed;
pub mod world;
