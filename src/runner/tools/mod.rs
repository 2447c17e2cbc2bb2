//! The tools of `nexus runner`: small ones for trying things out, and programs.

mod builtin;
mod command;

pub use builtin::{builtin, write_note};
pub use command::Command;
