//! Keys of steps and races that name none (`steps.md` §4).
//!
//! Invariant: a minted key is neither the run's nor written anywhere in the envelope nor minted
//! twice; a written key is never renamed.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Facts;
use crate::domain::ids::TaskKey;

/// How every key minted for an envelope of that revision begins. The door looks up the run's keys
/// that begin so.
pub fn minted_prefix(revision: i64) -> String {
    format!("s{revision}-")
}

pub(super) struct Mint<'a> {
    prefix: String,
    facts: &'a Facts,
    mine: BTreeSet<TaskKey>,
    placed: BTreeMap<&'static str, usize>,
}

impl<'a> Mint<'a> {
    /// Keys for one envelope, in which `written` are taken beside the run's.
    pub fn new(facts: &'a Facts, written: BTreeSet<TaskKey>) -> Self {
        Self {
            // Keys of an operation are its own; the run's rows get others.
            prefix: match facts.operation() {
                Some(_) => String::new(),
                None => minted_prefix(facts.revision),
            },
            facts,
            mine: written,
            placed: BTreeMap::new(),
        }
    }

    /// The key of the next placed step of that verb (`tool`, …, `parallel`). Every placed step
    /// counts, one with a written key too; a taken number moves on to the next free one.
    pub fn key(&mut self, verb: &'static str, written: Option<&TaskKey>) -> TaskKey {
        let placed = self.placed.entry(verb).or_default();
        *placed += 1;
        if let Some(key) = written {
            return key.clone();
        }
        let key = (*placed..)
            .map(|n| TaskKey::trusted(format!("{}{verb}-{n}", self.prefix)))
            .find(|key| !self.is_taken(key))
            .expect("a run has fewer keys than there are numbers");
        self.mine.insert(key.clone());
        key
    }

    fn is_taken(&self, key: &TaskKey) -> bool {
        let taken = match self.facts.operation() {
            Some(batch) => batch.surviving.contains_key(key),
            None => self.facts.is_taken(key),
        };
        taken || self.mine.contains(key)
    }
}
