//! The one integration binary: a list of modules. `make test` starts what they need.

mod catalogue;
mod harness;
mod lifecycle;
mod scratch;
mod serve;
mod support;
mod sweeper;
