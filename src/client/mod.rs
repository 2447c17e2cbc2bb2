//! A typed client of Nexus: the operator, member and executor planes over HTTP, and the cable.
//!
//! One [`Client`] is one base URL and one bearer; which calls it may make is the server's word.
//! Calls answer an [`Answer`]: the typed value (it dereferences to it), the status and the exact
//! body. Answers tolerate unknown members and carry unknown words of open vocabularies
//! ([`words`]), so an older client reads a newer server.
//!
//! Does not know: the engine, the store, the server's modules. It is written against the wire
//! forms of the specification only.
//!
//! Invariants:
//! - *a call is sent once* unless [`Client::with_retry`] says otherwise, and then only a call that
//!   is safe to repeat is sent again (never a claim without an `Idempotency-Key`);
//! - *a repeat is byte-identical*: the body is serialised once, before the first attempt;
//! - *a token is never shown*: no `Debug`, error or log of this module holds one.

pub mod answers;
pub mod cable;
mod chance;
mod error;
mod executor;
mod health;
mod member;
mod operator;
mod retry;
mod tls;
mod transport;
pub mod words;

pub use answers::{Answer, Page};
pub use chance::{jittered, key as idempotency_key};
pub use error::{Error, chain};
pub use executor::{Announcement, Commit, CommitEntry, FileBytes, ProgressFrame, ServedTool};
pub use member::{Resolution, RunListQuery};
pub use operator::{NewExecutor, NewMember};
pub use retry::RetryPolicy;
pub use transport::Client;

#[cfg(test)]
mod tests;
