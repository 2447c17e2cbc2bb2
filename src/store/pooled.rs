//! A connection on loan from the pool, and whether it may go back.
//!
//! Invariants:
//! - an error that says something about the connection (it is stale, broken, or leads to a server that
//!   takes no writes) closes it: the next one is made anew, to wherever the primary is now;
//! - an error that says something about the statement or the transaction does not: the connection and
//!   its prepared statements are as good as before.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::Object;

use super::Error;

/// A connection on loan.
pub(crate) struct Pooled {
    /// There until it is dropped.
    object: Option<Object>,
    is_spoilt: AtomicBool,
}

impl Pooled {
    pub(super) fn new(object: Object) -> Self {
        Self {
            object: Some(object),
            is_spoilt: AtomicBool::new(false),
        }
    }

    /// Passes an answer on; notes what it says about this connection.
    pub(super) fn judged<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if answer.as_ref().is_err_and(Error::spoils_connection) {
            self.spoil();
        }
        answer
    }

    /// It is closed rather than given back.
    pub(super) fn spoil(&self) {
        self.is_spoilt.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_spoilt(&self) -> bool {
        self.is_spoilt.load(Ordering::Relaxed)
    }
}

impl Deref for Pooled {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.object
            .as_ref()
            .expect("a loan holds its connection until it is dropped")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(object) = self.object.take().filter(|_| self.is_spoilt()) {
            drop(Object::take(object));
        }
    }
}
