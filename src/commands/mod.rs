//! commands.

pub mod expire;
pub mod revoke;
pub mod schedule;
