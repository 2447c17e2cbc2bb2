//! The one integration binary: a list of modules. `make test` starts what they need.

mod bad_input;
mod budget;
mod catalogue;
mod claims;
mod commits;
mod expiry;
mod extends;
mod fan_in;
mod faults;
mod hang_up;
mod harness;
mod lifecycle;
mod outages;
mod plans;
mod pooler;
mod support;
