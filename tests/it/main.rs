//! The one integration binary: a list of modules. `make test` starts what they need.
#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]

mod announcement;
mod auth_coverage;
mod bad_input;
mod batches;
mod boundaries;
mod budget;
mod cable;
mod catalogue;
mod claims;
mod cli;
mod commit_batches;
mod commits;
mod comparison;
mod connections;
mod conventions;
mod cors;
mod expiry;
mod extends;
mod fan_in;
mod faults;
mod files;
mod foreign_clients;
mod hang_up;
mod harness;
mod lanes;
mod leaving;
mod lifecycle;
mod lists;
mod metrics;
mod migrations;
mod openapi;
mod operations;
mod outages;
mod plans;
mod pooler;
mod progress;
mod provision;
mod rates;
mod reads;
mod scratch;
mod serve;
mod shells;
mod statements;
mod support;
mod sweeper;
mod verbs;
