//! The protocol in tables (tests only): each line says what somebody does and, behind `->`, what
//! they are told and what is narrated, in order.
//!
//! ```text
//! task a tool read
//! task b tool read waits a
//! claim  a p1      -> granted
//! claim  a p2      -> already_claimed
//! commit a p1 'ok' -> completed; a completed, b started, b …
//! ```
//!
//! The tables speak the protocol over the simulation's store, so that every invariant is checked
//! after every line, and every decision sees the rows that the real store would load for it.
//! `b started` stands for `b needs_approval, b dispatched`. How the words read: `script`.

mod append;
mod batch;
mod bugs;
mod claim;
mod commit;
mod expire;
mod extend;
mod lifecycle;
mod persons;
mod race;
mod release;
mod rest;
pub(in crate::engine) mod script;
mod settlement;
mod slice;
mod start;

pub(super) use script::blank;
use script::check;
