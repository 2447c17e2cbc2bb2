//! The run lock as a value: one transaction over one run or a batch of them, and the slices of
//! their graphs that were loaded under it (`architecture.md` §4, §5).
//!
//! Lock order: runs ascending by (account, run), then parks ascending by task. A batch of several
//! runs leaves out those that somebody holds (`SKIP LOCKED`); one run alone waits.
//!
//! The clock is read after the lock is granted: the locking rows are materialised first, the
//! clock beside them is evaluated afterwards. The load is a statement of its own behind the lock,
//! since a statement that waits sees other tables as of before its wait.
//!
//! | file | job |
//! |---|---|
//! | `mod` | locking, loading, committing |
//! | `statements` | the SQL |
//! | `loads` | what one round trip reads |
//! | `take` | rows become facts |

mod loads;
pub mod statements;
mod take;

use std::collections::{BTreeMap, BTreeSet};

use self::loads::Loads;
use self::statements::{ABSENT, LOCK_SKIP, LOCK_WAIT};
use self::take::{seen, target_of};
use super::tx::{Batch, Tx};
use super::views::{self, TaskView};
use super::{Error, Store, apply};
use crate::domain::feed;
use crate::domain::hint::{FeedItems, FeedKind, Hint};
use crate::domain::json::Canonical;
use crate::domain::{AccountId, ExecutorId, PublicId, TaskKey, TaskNo};
use crate::engine::facts::Caller;
use crate::engine::graph::{Graph, Want};

/// A run, by what a door knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunTarget {
    /// Its account.
    pub account: AccountId,
    /// Its public id.
    pub run: PublicId,
}

/// What a command must see at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// The run alone.
    Run,
    /// The row of that key, its park, its outgoing edges with their heads, and who calls.
    Task {
        /// The row.
        key: TaskKey,
        /// The caller.
        caller: ExecutorId,
    },
    /// These rows likewise, their parks locked, so that no claim slips in between.
    Parked(Vec<TaskNo>),
    /// Every row that has not settled, their parks locked, and the edges between them.
    OpenRows,
    /// The rows that are ready, at most so many.
    Ready(i64),
    /// The row of that key, its park, its outgoing edges with their heads.
    Row(TaskKey),
    /// The row of that key with everything that its skip reached, and all edges into that.
    Repair(TaskKey),
    /// The row of that key with what stands structurally behind it and is no mainline round and no
    /// barrier, all edges into that, and the run's parks, locked.
    Branch(TaskKey),
    /// What an append must see.
    Append(Append),
    /// What accepting an operation must see.
    Operation(OperationFirst),
    /// The row of that key, its park, and who calls; of its operations the first that was observed
    /// beyond a position and the first that is ready, with the rows that those report.
    Observe {
        /// The row.
        key: TaskKey,
        /// The caller.
        caller: ExecutorId,
        /// The position.
        after: i32,
    },
}

/// The row of that key, its park, its outgoing edges with their heads, and who calls; the operations
/// that are named, and what joins among them wait for, with their rows, the parks of those locked, the
/// edges out of and into them and the rows at the other ends; and what waits may observe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationFirst {
    /// The row.
    pub key: TaskKey,
    /// The caller.
    pub caller: ExecutorId,
    /// Keys of operations: its own, and those that it names.
    pub operations: Vec<String>,
    /// Keys of rows.
    pub waits: Vec<String>,
}

/// The rows of these keys, those whose keys the envelope might be minted, the run's answer and its
/// mainline's tail, what stands for them now, and their parks; their edges are not read. And the
/// receipt under that key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Keys that the envelope or its resolves name.
    pub keys: Vec<String>,
    /// How many minted keys of each verb might be taken.
    pub minted: i32,
    /// The receipt's key.
    pub receipt: Option<String>,
}

/// A stored receipt of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAppend {
    /// Of what was accepted.
    pub fingerprint: Vec<u8>,
    /// The receipt.
    pub body: Canonical,
}

/// Whether to wait for a run that somebody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Leave it out.
    Skip,
    /// Wait, at most the lock time-out.
    Wait,
}

/// A locked run with what is loaded of it.
#[derive(Debug)]
pub struct Locked {
    /// The slice.
    pub graph: Graph,
    /// Callers, as they stand now.
    pub callers: BTreeMap<ExecutorId, Caller>,
    /// Digests of accepted commits of loaded rows.
    pub digests: BTreeMap<TaskNo, Vec<u8>>,
    /// Receipts of appends that were asked for and whose day is not over.
    pub receipts: BTreeMap<String, StoredAppend>,
}

/// The run lock: an open transaction that holds it.
pub struct RunTx {
    tx: Tx,
    runs: BTreeMap<RunTarget, Locked>,
}

impl Store {
    /// Locks runs and loads what their commands must see at first: one round trip. Runs that do
    /// not exist, or that somebody holds while `held` says skip, are not in the answer.
    ///
    /// # Errors
    /// A fault; a lock that was waited for too long is [`Error::Timeout`].
    pub async fn lock_runs(
        &self,
        wanted: &[(RunTarget, Vec<First>)],
        held: Held,
    ) -> Result<RunTx, Error> {
        let mut loads = Loads::default();
        for (target, firsts) in wanted {
            for first in firsts {
                loads.first(target, first);
            }
        }
        let accounts: Vec<i64> = wanted.iter().map(|(t, _)| t.account.0).collect();
        let runs: Vec<uuid::Uuid> = wanted.iter().map(|(t, _)| t.run.0).collect();
        let mut batch = Batch::new();
        if let ([(one, _)], Held::Wait) = (wanted, held) {
            batch.add(&LOCK_WAIT, vec![&one.account.0, &one.run.0]);
        } else {
            batch.add(&LOCK_SKIP, vec![&accounts, &runs]);
        }
        let reads = loads.fill(&mut batch);
        let (tx, mut answers) = Tx::begin_with(self.conn().await?, &batch).await?;
        let mut run_tx = RunTx {
            tx,
            runs: BTreeMap::new(),
        };
        for row in answers.remove(0) {
            run_tx.take_run(&row)?;
        }
        run_tx.take(&reads, &answers)?;
        Ok(run_tx)
    }
}

impl Store {
    /// Those of these runs that do not exist: what [`Store::lock_runs`] left out is these, or held.
    ///
    /// # Errors
    /// A fault.
    pub async fn absent_runs(&self, runs: &[RunTarget]) -> Result<BTreeSet<RunTarget>, Error> {
        let accounts: Vec<i64> = runs.iter().map(|t| t.account.0).collect();
        let ids: Vec<uuid::Uuid> = runs.iter().map(|t| t.run.0).collect();
        let conn = self.conn().await?;
        let rows = conn.query(&ABSENT, &[&accounts, &ids]).await?;
        Ok(rows.iter().map(target_of).collect())
    }
}

impl RunTx {
    /// A locked run.
    pub fn locked(&mut self, target: &RunTarget) -> Option<&mut Locked> {
        self.runs.get_mut(target)
    }

    /// Whether any run was locked.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Loads what decisions must see next: one round trip.
    ///
    /// # Errors
    /// A fault.
    pub async fn load(&mut self, wants: &[(RunTarget, Want)]) -> Result<(), Error> {
        let mut loads = Loads::default();
        for (target, want) in wants {
            loads.want(target, want, self.runs.get(target));
        }
        let mut batch = Batch::new();
        let reads = loads.fill(&mut batch);
        let answers = self.tx.run(&batch).await?;
        // What was asked for and has no rows is known to be empty.
        for (target, want) in wants {
            if let Some(locked) = self.runs.get_mut(target) {
                seen(locked, want);
            }
        }
        self.take(&reads, &answers)
    }

    /// Applies what was decided, reads the views that answers need, and commits: one round trip.
    ///
    /// # Errors
    /// A fault; then nothing was committed, unless the connection broke.
    pub async fn commit(self, views: &[(RunTarget, TaskNo)]) -> Result<Vec<TaskView>, Error> {
        let applied = apply::Applied::of(self.runs.values().map(|l| &l.graph))?;
        let nos: Vec<i32> = views.iter().map(|(_, no)| no.0).collect();
        let accounts: Vec<i64> = views.iter().map(|(t, _)| t.account.0).collect();
        let runs: Vec<uuid::Uuid> = views.iter().map(|(t, _)| t.run.0).collect();
        let mut batch = Batch::new();
        applied.fill(&mut batch);
        if !views.is_empty() {
            batch.add(&views::TASKS_BY_NO, vec![&accounts, &runs, &nos]);
        }
        if batch.is_empty() {
            self.tx.rollback().await;
            return Ok(Vec::new());
        }
        let mut answers = self.tx.commit_with(&batch).await?;
        if views.is_empty() {
            return Ok(Vec::new());
        }
        answers
            .pop()
            .unwrap_or_default()
            .iter()
            .map(TaskView::from_row)
            .collect()
    }

    /// What to tell once this is committed.
    pub fn hints(&self) -> Vec<Hint> {
        self.runs
            .values()
            .flat_map(|locked| hints_of(&locked.graph))
            .collect()
    }

    /// Gives the locks back without writing.
    pub async fn rollback(self) {
        self.tx.rollback().await;
    }
}

/// Whom to tell of what, and the run's new feed items.
fn hints_of(graph: &Graph) -> impl Iterator<Item = Hint> + '_ {
    let run = graph.run.public_id;
    let items = graph.changes.events.iter().map(move |(sequence, event)| {
        let item = feed::Item {
            sequence: *sequence,
            r#type: event.kind().to_owned(),
            payload: event.payload(run).into_string(),
            created_at: graph.now,
        };
        Hint::Feed {
            kind: FeedKind::Run,
            host: run,
            items: FeedItems::Events,
            message: item.run_message(run),
        }
    });
    graph.changes.hints.iter().cloned().chain(items)
}
