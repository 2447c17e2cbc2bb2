//! Batches of claims: callers of one inbox share a look (`architecture.md` §5, §8).
//!
//! While a look at an inbox is under way on this replica, callers of the same inbox wait; the next
//! look takes all of them, drops those that hung up, and deals what it finds in turn, one row each
//! until it is gone: nobody is left empty-handed while another gets a second row. A look is three
//! statements, however many callers share it: who they are and which of their keys were used, what
//! may be claimed, the grant. Replicas pass over each other's rows (`SKIP LOCKED`).
//!
//! A look starts where the last one left off, since what lies before is taken; it starts from the
//! lowest row again before it tells anybody that there is nothing, and every [`FROM_START`] looks,
//! for rows that were committed late or whose run went on.
//!
//! Invariants: a caller is given the rows of one statement, so what a key took is written down whole
//! with it; a caller that is there when its look begins is answered; what was granted is told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::claim::{Claimed, claimed, key_digest, wanted};
use super::hold::Holds;
use super::{RETRIES, claim};
use crate::domain::{AccountId, ExecutorId};
use crate::engine::facts::Caller;
use crate::engine::mint::{Mint, Secret};
use crate::store::credentials::ExecutorCaller;
use crate::store::inbox::batch::Candidate;
use crate::store::inbox::{Claimant, Dealt, Slot, Used, Wanted};
use crate::store::{self, Remedy, Store};
use crate::telemetry::CLAIMS;

/// The most callers of one look.
const CALLERS: usize = 64;

/// The most rows of one grant.
const SLOTS: usize = 512;

/// The fewest rows that one look fetches.
const PAGE: usize = 16;

/// Every so many looks one starts from the lowest row.
const FROM_START: u32 = 8;

/// The most callers that wait for one inbox on a replica; further ones are told to come again.
const QUEUE: usize = 1024;

/// How long a lane without callers remembers where it left off.
const LINGER: Duration = Duration::from_secs(1);

/// What a caller is given.
#[derive(Debug)]
pub struct Taken {
    /// The claims, oldest row first.
    pub claims: Vec<Claimed>,
    /// Whether rows were passed over because somebody held them: soon they are taken, or free.
    pub held: bool,
}

type Reply = Result<Taken, store::Error>;

/// A caller that waits for a look.
struct Ask {
    caller: ExecutorCaller,
    limit: usize,
    key: Option<String>,
    reply: oneshot::Sender<Reply>,
}

impl Ask {
    fn answer(self, reply: Reply) {
        if let Ok(taken) = &reply {
            metrics::counter!(CLAIMS, "outcome" => "granted").increment(taken.claims.len() as u64);
        }
        let _ = self.reply.send(reply); // whoever hung up needs no answer
    }
}

/// Whose inbox.
type Inbox = (AccountId, ExecutorId);

/// The callers that wait for one inbox, and what wakes whoever serves them.
#[derive(Default)]
struct Lane {
    queue: VecDeque<Ask>,
    called: Arc<Notify>,
}

/// Where the next look at an inbox starts, and how.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    /// Nothing up to this park was free.
    after: i64,
    /// Looks since one started from the lowest row.
    looks: u32,
    /// Whether another replica took rows from under the last look.
    contended: bool,
}

/// The batches of claims of one replica: a lane for each inbox that has callers.
#[derive(Clone)]
pub struct Inboxes {
    store: Store,
    holds: Holds,
    waiting: Arc<Mutex<BTreeMap<Inbox, Lane>>>,
}

impl std::fmt::Debug for Inboxes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inboxes({})", self.lanes().len())
    }
}

impl Inboxes {
    /// Lanes over that store.
    pub fn new(store: Store, holds: Holds) -> Self {
        Self {
            store,
            holds,
            waiting: Arc::default(),
        }
    }

    fn lanes(&self) -> MutexGuard<'_, BTreeMap<Inbox, Lane>> {
        self.waiting
            .lock()
            .expect("no one panics while holding the lanes")
    }

    /// Claims up to `limit` claimable rows of the caller's inbox, oldest first, skipping those that
    /// others hold. Under a key that was used before, answers those of the same rows whose claims
    /// still stand, in the same order, with new tokens, and claims nothing new. A call that is
    /// dropped before its look begins claims nothing; afterwards the look runs to its end.
    ///
    /// # Errors
    /// A fault; [`store::Error::Overloaded`] when too many wait for this inbox.
    pub async fn claim(&self, caller: ExecutorCaller, limit: usize, key: Option<String>) -> Reply {
        let inbox = (caller.account, caller.id);
        let (reply, answer) = oneshot::channel();
        let ask = Ask {
            caller,
            limit,
            key,
            reply,
        };
        {
            let mut lanes = self.lanes();
            let is_new = !lanes.contains_key(&inbox);
            let lane = lanes.entry(inbox).or_default();
            if lane.queue.len() >= QUEUE {
                return Err(store::Error::Overloaded);
            }
            lane.queue.push_back(ask);
            lane.called.notify_one();
            if is_new {
                tokio::spawn(self.clone().drive(inbox, lane.called.clone()));
            }
        }
        let gone = || Err(store::Error::Unavailable("a look at an inbox ended".into()));
        answer.await.unwrap_or_else(|_| gone())
    }

    /// One look after another, until nobody has called for a while.
    async fn drive(self, inbox: Inbox, called: Arc<Notify>) {
        let mut mark = Mark::default();
        loop {
            let asks = self.next(inbox);
            if asks.is_empty() {
                let waited = tokio::time::timeout(LINGER, called.notified()).await;
                if waited.is_err() && self.ends(inbox) {
                    return;
                }
                continue;
            }
            let look = Look::new(self.store.clone(), self.holds.clone(), inbox, mark);
            // A look of its own task: a panic inside it drops its callers, not the lane.
            mark = match tokio::spawn(look.take(asks)).await {
                Ok(mark) => mark,
                Err(panic) => {
                    tracing::error!(%panic, "a look at an inbox panicked");
                    Mark::default()
                }
            };
        }
    }

    /// Takes the lane away if nobody waits in it.
    fn ends(&self, inbox: Inbox) -> bool {
        let mut lanes = self.lanes();
        let is_idle = lanes.get(&inbox).is_none_or(|lane| lane.queue.is_empty());
        if is_idle {
            lanes.remove(&inbox);
        }
        is_idle
    }

    /// Who shares the next look: those that still wait, in the order they came, and of those under
    /// one key the first.
    fn next(&self, inbox: Inbox) -> Vec<Ask> {
        let (mut asks, mut later) = (Vec::new(), VecDeque::new());
        let mut keys = BTreeSet::new();
        let mut lanes = self.lanes();
        let Some(lane) = lanes.get_mut(&inbox) else {
            return asks;
        };
        for ask in lane.queue.drain(..).filter(|ask| !ask.reply.is_closed()) {
            let is_twin = ask.key.as_ref().is_some_and(|k| keys.contains(k));
            if is_twin || asks.len() == CALLERS {
                later.push_back(ask);
                continue;
            }
            keys.extend(ask.key.clone());
            asks.push(ask);
        }
        lane.queue = later;
        asks
    }
}

/// One look at an inbox on behalf of several callers.
struct Look {
    store: Store,
    holds: Holds,
    inbox: Inbox,
    mark: Mark,
    /// Whether rows were passed over that somebody held.
    held: bool,
    /// The lowest row that was neither taken by this look nor out of everybody's reach.
    left: Option<i64>,
}

impl Look {
    fn new(store: Store, holds: Holds, inbox: Inbox, mark: Mark) -> Self {
        let mark = if mark.looks.is_multiple_of(FROM_START) {
            Mark {
                after: 0,
                looks: 0,
                ..mark
            }
        } else {
            mark
        };
        Self {
            store,
            holds,
            inbox,
            mark,
            held: false,
            left: None,
        }
    }

    /// Answers every caller; says where the next look starts.
    async fn take(mut self, asks: Vec<Ask>) -> Mark {
        let mut asks = asks;
        if let Err(fault) = self.look(&mut asks).await {
            fail_all(asks, fault);
            return Mark::default();
        }
        let all_were_served = asks.is_empty();
        for ask in asks {
            ask.answer(Ok(Taken {
                claims: Vec::new(),
                held: self.held,
            }));
        }
        if !all_were_served {
            return Mark::default(); // nothing is left: the next look begins anew
        }
        Mark {
            after: self.left.map_or(self.mark.after, |left| left - 1),
            looks: self.mark.looks + 1,
            contended: self.held,
        }
    }

    /// Answers those that it can serve; those that are left get nothing, or the fault.
    async fn look(&mut self, asks: &mut Vec<Ask>) -> Result<(), store::Error> {
        let Some(claimant) = self.claimant(asks).await? else {
            return Ok(());
        };
        let caller = claimant.caller;
        self.recover(asks, claimant.used);
        // Who was paired anew since it authenticated gets nothing: its next request is a 401.
        let mut paired_anew = take_where(asks, |ask| ask.caller.epoch != caller.epoch);
        let started_at = self.mark.after;
        let (mut from, mut from_start) = (started_at, started_at == 0);
        while !asks.is_empty() {
            let slots = deal(asks);
            let page = if self.mark.contended {
                2 * slots.len()
            } else {
                slots.len()
            };
            let page = page.max(PAGE);
            let found = self
                .store
                .claim_candidates(self.inbox.0, &caller, from, page)
                .await?;
            let is_full = found.len() == page;
            let last = found.last().map(|c| c.park_no.0);
            self.grant(&caller, found, asks, &slots).await?;
            self.mark.after = self.mark.after.max(last.unwrap_or(0));
            match last {
                Some(last) if is_full => from = last,
                _ if !from_start => (from, from_start) = (0, true),
                _ => break,
            }
        }
        if self.held && asks.iter().any(|ask| ask.key.is_some()) {
            // A twin on another replica may have used the key under this look.
            if let Some(claimant) = self.claimant(asks).await? {
                self.recover(asks, claimant.used);
            }
        }
        asks.append(&mut paired_anew);
        Ok(())
    }

    async fn claimant(&self, asks: &[Ask]) -> Result<Option<Claimant>, store::Error> {
        let keys: Vec<&str> = asks.iter().filter_map(|a| a.key.as_deref()).collect();
        let (account, executor) = self.inbox;
        self.store.claimant(account, executor, &keys).await
    }

    /// Repeats are answered beside the lane: they take nothing from anybody.
    fn recover(&self, asks: &mut Vec<Ask>, used: Vec<Used>) {
        for used in used {
            for ask in take_where(asks, |ask| ask.key.as_deref() == Some(&used.key)) {
                let (store, inbox, rows) = (self.store.clone(), self.inbox, used.rows.clone());
                tokio::spawn(async move {
                    let under = key_digest("claims", ask.key.as_deref().unwrap_or_default());
                    let reply = recover(&store, inbox, &under, &rows).await;
                    ask.answer(reply.map(|claims| Taken {
                        claims,
                        held: false,
                    }));
                });
            }
        }
    }

    /// Grants what of a page may be granted, and answers those that got something.
    async fn grant(
        &mut self,
        caller: &Caller,
        found: Vec<Candidate>,
        asks: &mut Vec<Ask>,
        slots: &[usize],
    ) -> Result<(), store::Error> {
        let free: Vec<&Candidate> = found
            .iter()
            .filter(|c| crate::engine::claim::decide(&c.facts, None).is_ok())
            .collect();
        let mut mint = Mint::new();
        let mut secrets: Vec<Option<Secret>> = slots.iter().map(|_| Some(mint.token())).collect();
        let dealt = if free.is_empty() {
            Vec::new()
        } else {
            self.deal(caller, &free, asks, slots, &secrets).await?
        };
        self.held |= dealt.len() < free.len().min(slots.len());
        let taken: BTreeSet<i64> = dealt.iter().map(|d| d.granted.park_no.0).collect();
        let left = found.iter().map(|c| c.park_no.0);
        if let Some(left) = left.filter(|no| !taken.contains(no)).min() {
            self.left = Some(self.left.map_or(left, |before| before.min(left)));
        }
        let mut given: Vec<Vec<Claimed>> = asks.iter().map(|_| Vec::new()).collect();
        for Dealt { slot, granted } in dealt {
            if granted.may_hold {
                self.holds.ask(self.inbox.0, granted.row.run_public_id);
            }
            let secret = secrets.get_mut(slot).and_then(Option::take);
            if let (Some(ask), Some(secret)) = (slots.get(slot), secret) {
                given[*ask].push(claimed(granted, secret));
            }
        }
        let mut rest = Vec::new();
        for (ask, claims) in std::mem::take(asks).into_iter().zip(given) {
            if claims.is_empty() {
                rest.push(ask);
            } else {
                ask.answer(Ok(Taken {
                    claims,
                    held: false,
                }));
            }
        }
        *asks = rest;
        Ok(())
    }

    async fn deal(
        &self,
        caller: &Caller,
        free: &[&Candidate],
        asks: &[Ask],
        slots: &[usize],
        secrets: &[Option<Secret>],
    ) -> Result<Vec<Dealt>, store::Error> {
        let under: Vec<Option<Vec<u8>>> = asks
            .iter()
            .map(|ask| ask.key.as_deref().map(|key| key_digest("claims", key)))
            .collect();
        let slots: Vec<Slot<'_>> = slots
            .iter()
            .zip(secrets)
            .filter_map(|(ask, secret)| {
                Some(Slot {
                    digest: secret.as_ref()?.digest,
                    under: under[*ask].as_deref(),
                    key: asks[*ask].key.as_deref(),
                })
            })
            .collect();
        let work = || self.store.claim_deal(self.inbox.0, caller, free, &slots);
        run_again(work).await
    }
}

/// Which caller each slot is for: one after another, in the order they came, until all limits are
/// met or there are enough.
fn deal(asks: &[Ask]) -> Vec<usize> {
    let most = asks.iter().map(|ask| ask.limit).max().unwrap_or(0);
    (0..most)
        .flat_map(|round| {
            let wants = move |(_, ask): &(usize, &Ask)| ask.limit > round;
            asks.iter().enumerate().filter(wants).map(|(i, _)| i)
        })
        .take(SLOTS)
        .collect()
}

/// New tokens for those of the rows whose claims under that key still stand.
async fn recover(
    store: &Store,
    (account, executor): Inbox,
    under: &[u8],
    rows: &[(crate::domain::RunId, crate::domain::TaskNo, i32)],
) -> Result<Vec<Claimed>, store::Error> {
    let mut mint = Mint::new();
    let (wanted, secrets): (Vec<Wanted>, Vec<Secret>) = rows
        .iter()
        .map(|(run, task, generation)| {
            let secret = mint.token();
            (wanted(*run, *task, *generation, &secret), secret)
        })
        .unzip();
    let work = || store.claim_recover(account, executor, under, &wanted);
    let recovered = run_again(work).await?;
    Ok(claim::pair(recovered, &wanted, secrets))
}

/// A statement of its own transaction, again if it was chosen to give way.
async fn run_again<T, F>(mut work: impl FnMut() -> F) -> Result<T, store::Error>
where
    F: Future<Output = Result<T, store::Error>>,
{
    for _ in 0..RETRIES {
        match work().await {
            Err(fault) if fault.remedy() == Remedy::RunAgain => {}
            outcome => return outcome,
        }
    }
    work().await
}

/// Takes those out that answer to it, the others keep their order.
fn take_where(asks: &mut Vec<Ask>, is_it: impl Fn(&Ask) -> bool) -> Vec<Ask> {
    let (taken, rest) = std::mem::take(asks).into_iter().partition(is_it);
    *asks = rest;
    taken
}

fn fail_all(asks: Vec<Ask>, fault: store::Error) {
    let mut fault = Some(fault);
    for ask in asks {
        let fault = fault.take().unwrap_or_else(|| {
            store::Error::Unavailable("a shared look at an inbox failed".into())
        });
        ask.answer(Err(fault));
    }
}
