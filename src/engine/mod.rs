//! engine.

pub mod compile;
