//! engine.
pub mod eligibility;
pub mod mint;
