//! Clients that other people wrote, in other languages, against a real server. `make test` leaves
//! this module out, by name, where their interpreter or packages are missing.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod actioncable;
mod schemathesis;
mod spectral;
