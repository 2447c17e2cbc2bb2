//! commands.
pub mod announce;
pub mod discover;
pub mod provision;
pub(crate) mod transaction;
