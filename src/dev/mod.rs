//! dev.

pub mod demo;
