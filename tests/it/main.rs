//! The one integration binary.

mod scratch;
mod serve;
mod sweeper;
