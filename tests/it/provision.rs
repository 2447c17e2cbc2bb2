//! The operator plane and what its credentials open (`operating.md` §4, `executor.md` §2, §19).

mod concurrency;
mod credentials;
mod discovery;
mod lists;
mod refusals;
mod resources;
