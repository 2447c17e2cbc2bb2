//! The one integration binary: a list of modules. `make test` starts what they need.

mod catalogue;
mod files;
mod harness;
mod lifecycle;
mod progress;
mod support;
