//! engine.
pub mod mint;
