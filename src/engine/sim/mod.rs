//! The engine tried as a whole, without a database (tests only).
//!
//! | file | job |
//! |---|---|
//! | `db` | an in-memory store: the slices and guarded writes of the real one, nothing more |
//! | `fleet` | executors, and who is found for a row |
//! | `command` | commands and batches as the shell runs them |
//! | `grammar` | random envelopes; the comparison over the real database has the same |
//! | `envelopes` | those through the real compiler, and runs that are born of them |
//! | `client` | what executors, sweepers and people do, drawn from a seed |
//! | `cases` | the simulation: invariants after each step, batches beside singles, shrinking |
//! | `reads` | what a settle reads, at any size |

mod cases;
mod client;
pub(super) mod command;
pub(super) mod db;
pub(super) mod envelopes;
pub(super) mod fleet;
mod grammar;
mod reads;

use crate::domain::PublicId;
use crate::domain::json::{Object, Value};
