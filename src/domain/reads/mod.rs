//! What reads make of a run's rows: pure projections over plain facts (`runs.md` §9).
//!
//! Knows the words of the protocol. Does not know where the facts come from, nor who asks.

pub mod graph;
pub mod mermaid;
pub mod phases;
pub mod transcript;
