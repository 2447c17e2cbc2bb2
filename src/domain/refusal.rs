//! What the protocol refuses: one closed enum per verb. Codes live here; status codes do not
//! (`http/error.rs` owns those).
//!
//! Invariant: `code()` matches exhaustively, so a new refusal without a code does not compile.

mod provision;

pub use provision::Provision;
