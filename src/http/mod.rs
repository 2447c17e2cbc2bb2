//! HTTP: routes, extractors, views, and the one table of status codes.
//!
//! Knows requests and answers. Does not know: SQL, locks, the engine's rules (only `commands` and
//! store reads).

pub mod accept;
pub mod answer;
pub mod auth;
pub mod body;
pub mod cors;
pub mod error;
pub mod executor;
pub mod guard;
pub mod health;
pub mod list;
pub mod member;
pub mod openapi;
pub mod operator;
pub mod params;
pub mod path;
pub mod range;
pub mod rate;
pub mod refusals;
pub mod request_id;
pub mod router;
pub mod view;

pub use error::ApiError;
pub use router::router;
