//! The one integration binary: a list of modules. `make test` starts what they need.

mod cable;
mod catalogue;
mod foreign_clients;
mod harness;
mod lifecycle;
mod support;
