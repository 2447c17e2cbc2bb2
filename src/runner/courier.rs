//! Carries commits to the server: what is done while a request is under way goes together in the
//! next one (`architecture.md` §5, on the runner's side).
//!
//! Whoever has a commit to send puts it in the queue and waits for its answer or for its turn to
//! carry; a carrier takes all that is queued, up to [`BATCH`] and [`BATCH_BYTES`]. One commit alone
//! goes through its own door, and so nothing is added when little is done. A batch that is refused as
//! a whole, or a server without the door, is carried one by one.
//!
//! Does not know: what an answer means, and whether a commit is sent again.
//!
//! Invariant: *each entry has its own answer*: none decides about another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, oneshot};

use crate::client::answers::Task;
use crate::client::{Client, CommitEntry, Error};

/// The most commits of one request.
const BATCH: usize = 64;
/// The most bytes of one request that carries several; the server takes 8 MiB.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Requests under way at once: more would only make the batches smaller.
const UNDER_WAY: usize = 4;

type Outcome = Result<Task, Error>;

struct Parcel {
    entry: CommitEntry,
    reply: oneshot::Sender<Outcome>,
}

/// The queue of a runner's commits.
pub(super) struct Courier {
    queue: Mutex<VecDeque<Parcel>>,
    turns: Semaphore,
    /// The server has the batch door.
    batches: AtomicBool,
}

impl Courier {
    pub(super) fn new() -> Self {
        Self {
            queue: Mutex::default(),
            turns: Semaphore::new(UNDER_WAY),
            batches: AtomicBool::new(true),
        }
    }

    /// Sends one commit once, alone or with others; its answer.
    pub(super) async fn commit(&self, client: &Client, entry: CommitEntry) -> Outcome {
        let (reply, mut answer) = oneshot::channel();
        self.queue().push_back(Parcel { entry, reply });
        loop {
            tokio::select! {
                biased;
                outcome = &mut answer => {
                    return outcome.unwrap_or_else(|gone| Err(unanswered(gone)));
                }
                turn = self.turns.acquire() => {
                    let parcels = self.take();
                    self.carry(client, parcels).await;
                    drop(turn);
                }
            }
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<Parcel>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What goes next, in the order of arrival: at least one, if there is one.
    fn take(&self) -> Vec<Parcel> {
        let most = match self.batches.load(Ordering::Relaxed) {
            true => BATCH,
            false => 1,
        };
        let mut queue = self.queue();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(next) = queue.front() {
            bytes += next.entry.size();
            if taken.len() == most || (!taken.is_empty() && bytes > BATCH_BYTES) {
                break;
            }
            taken.extend(queue.pop_front());
        }
        taken
    }

    async fn carry(&self, client: &Client, parcels: Vec<Parcel>) {
        if parcels.len() < 2 {
            return carry_singly(client, parcels).await;
        }
        let (entries, replies): (Vec<_>, Vec<_>) =
            parcels.into_iter().map(|p| (p.entry, p.reply)).unzip();
        match client.commits(&entries).await {
            Ok(answer) => {
                for (reply, outcome) in replies.into_iter().zip(answer.into_inner()) {
                    let _ = reply.send(outcome);
                }
            }
            Err(e) if matches!(e.status(), Some(400 | 404 | 405 | 413 | 422)) => {
                if matches!(e.status(), Some(404 | 405)) {
                    tracing::info!("the server has no batch commits: committing one by one");
                    self.batches.store(false, Ordering::Relaxed);
                }
                let again = entries.into_iter().zip(replies);
                let again = again.map(|(entry, reply)| Parcel { entry, reply });
                carry_singly(client, again.collect()).await;
            }
            Err(e) => {
                for reply in replies {
                    let _ = reply.send(Err(e.again()));
                }
            }
        }
    }
}

/// Whoever carried the commit ended: it may have arrived.
fn unanswered(gone: oneshot::error::RecvError) -> Error {
    Error::Transport {
        what: "POST /agent_api/v1/executor/inbox/commits".to_owned(),
        source: Box::new(gone),
    }
}

async fn carry_singly(client: &Client, parcels: Vec<Parcel>) {
    for Parcel { entry, reply } in parcels {
        let commit = client.commit_bytes(&entry.run_public_id, &entry.task_key, entry.body);
        let _ = reply.send(commit.await.map(|task| task.into_inner()));
    }
}
