//! The one integration binary: a list of modules. `make test` starts what they need.

mod catalogue;
mod harness;
mod lifecycle;
mod support;
