//! Nexus: the server-side kernel on which agent applications run their work.
//!
//! The map is `docs/architecture.md`. In short: `domain` is the vocabulary, `engine` decides
//! (pure), `store` owns SQL, `bus` owns Redis, `commands` is one file a verb, `http` knows status
//! codes, `cable` pushes, `sweeper` does what nobody asked for in time.

pub mod admission;
pub mod app;
pub mod blobs;
pub mod bus;
pub mod cable;
pub mod cli;
pub mod client;
pub mod commands;
pub mod config;
pub mod dev;
pub mod domain;
pub mod engine;
pub mod http;
pub mod runner;
pub mod serve;
pub mod store;
pub mod sweeper;
pub mod telemetry;
