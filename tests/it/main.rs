//! The one integration binary: a list of modules. `make test` starts what they need.

mod announcement;
mod auth_coverage;
mod boundaries;
mod cable;
mod catalogue;
mod conventions;
mod foreign_clients;
mod harness;
mod lifecycle;
mod provision;
mod scratch;
mod serve;
mod statements;
mod support;
mod sweeper;
