//! Looks for work and claims it, never more than there are free places.
//!
//! A *look* reads the inbox from the start, page by page, to its end (or until no place is free);
//! a *claim* asks `inbox/claims` for as many rows as there are places. The first look waits for the
//! cable's confirm, so that nothing falls between reading and listening.
//!
//! A claim whose answer is lost is asked for again under the same key until it is answered
//! (`architecture.md` §8); no other claim is made meanwhile. A server without the batch door is
//! served by single claims of the listed rows.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::call;
use super::hub::{Hub, count};
use super::operations::Seat;
use crate::client::answers::{ClaimGrant, InboxRow};
use crate::client::words::InboxKind;
use crate::client::{Error, chain, idempotency_key};

/// The most rows one batch claim may ask for.
const BATCH: u32 = 64;
/// The most rows a page may have.
const PAGE: u32 = 200;
/// How often a missing claim answer is still asked for once the runner stops.
const LAST_ASKS: u32 = 3;

/// What the feeder does next.
enum What {
    /// Reads the inbox from its start.
    Look,
    /// Claims without reading.
    Claim,
}

/// One batch claim that may still be unanswered, with the places it reserved.
struct Ask {
    key: String,
    limit: u32,
    first_sent: Instant,
    places: OwnedSemaphorePermit,
}

/// The part of a runner that finds work.
pub(super) struct Feeder {
    hub: Arc<Hub>,
    calls: TaskTracker,
    unanswered: Option<Ask>,
    /// The last claim was answered in full: there may be more.
    more: bool,
    /// The server has the batch door.
    batches: bool,
}

impl Feeder {
    pub(super) fn new(hub: Arc<Hub>, calls: TaskTracker) -> Self {
        Self {
            hub,
            calls,
            unanswered: None,
            more: false,
            batches: true,
        }
    }

    /// Feeds until the runner stops.
    pub(super) async fn feed(mut self) {
        let mut next = self.first().await;
        let mut failures = 0;
        while let Some(what) = next {
            let outcome = match what {
                What::Look => self.look().await,
                What::Claim => self.claim_all().await,
            };
            next = match outcome {
                Ok(()) => {
                    failures = 0;
                    self.rest().await
                }
                Err(e) => {
                    failures += 1;
                    self.after(&e, failures).await
                }
            };
        }
        self.recover_at_the_end().await;
    }

    /// The first look: once the cable is attached or known to be away, or soon.
    async fn first(&self) -> Option<What> {
        tokio::select! {
            biased;
            () = self.hub.stopping() => None,
            () = self.hub.look.notified() => Some(What::Look),
            () = tokio::time::sleep(self.hub.timing.confirm) => Some(What::Look),
        }
    }

    /// Waits for a nudge, a freed place when there is more, or the next poll.
    async fn rest(&self) -> Option<What> {
        let freed = async {
            if self.more {
                drop(self.hub.places.acquire().await);
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = self.hub.stopping() => None,
            () = self.hub.look.notified() => Some(What::Look),
            () = self.hub.work.notified() => Some(What::Claim),
            () = freed => Some(What::Claim),
            () = tokio::time::sleep(self.hub.timing.poll) => Some(What::Look),
        }
    }

    /// After a failure: the end when the credential is dead, else a wait and a whole look.
    async fn after(&self, e: &Error, failures: u32) -> Option<What> {
        if e.is_unauthorized() {
            self.hub.unauthorized();
            return None;
        }
        let wait = if e.is_transient() {
            self.hub.timing.backoff.wait(failures, e.retry_after())
        } else {
            self.hub.timing.poll
        };
        tracing::warn!("looking for work failed, again in {wait:?}: {}", chain(e));
        tokio::select! {
            () = tokio::time::sleep(wait) => Some(What::Look),
            () = self.hub.stopping() => None,
        }
    }

    /// Reads the inbox from its start to its end, claiming as it goes.
    async fn look(&mut self) -> Result<(), Error> {
        if self.unanswered.is_some() {
            self.ask().await?;
        }
        let mut after = None;
        loop {
            if self.free() == 0 {
                self.more = true;
                return Ok(());
            }
            let read = self.hub.client.inbox(after.as_deref(), Some(PAGE), None);
            let page = tokio::select! {
                page = read => page?.into_inner(),
                () = self.hub.stopping() => return Ok(()),
            };
            let open = |row: &&InboxRow| row.kind == InboxKind::ToolCall && !row.claimed;
            let rows: Vec<&InboxRow> = page.items.iter().filter(open).collect();
            if !rows.is_empty() {
                self.claim_listed(&rows).await?;
            }
            after = page.next_after;
            if after.is_none() || self.hub.is_stopping() {
                return Ok(());
            }
        }
    }

    async fn claim_listed(&mut self, rows: &[&InboxRow]) -> Result<(), Error> {
        if self.batches {
            self.claim_all().await?;
        }
        if !self.batches {
            self.claim_singly(rows).await?;
        }
        Ok(())
    }

    /// Claims in batches until there is nothing more or no place is free. Without the batch door
    /// only a look can tell what to claim.
    async fn claim_all(&mut self) -> Result<(), Error> {
        if !self.batches {
            self.more = false;
            self.hub.look.notify_one();
            return Ok(());
        }
        while self.free() > 0 || self.unanswered.is_some() {
            let (asked, granted) = self.ask().await?;
            self.more = asked > 0 && granted >= asked;
            if !self.more || self.hub.is_stopping() {
                return Ok(());
            }
        }
        self.more = true;
        Ok(())
    }

    /// One batch claim: a new one, or again the one that was not answered. How many rows were
    /// asked for, and granted.
    async fn ask(&mut self) -> Result<(usize, usize), Error> {
        let Some(ask) = self.unanswered.take().or_else(|| self.new_ask()) else {
            return Ok((0, 0));
        };
        let answer = self.hub.client.claims(ask.limit, 0, Some(&ask.key)).await;
        match answer {
            Ok(grants) => {
                let granted = grants.len();
                let asked = ask.limit as usize;
                self.launch_all(grants.into_inner(), ask);
                Ok((asked, granted))
            }
            Err(e) if e.is_transient() => {
                self.unanswered = Some(ask);
                Err(e)
            }
            Err(e) if matches!(e.status(), Some(404 | 405)) => {
                tracing::info!("the server has no batch claims: claiming one by one");
                self.batches = false;
                Ok((0, 0))
            }
            Err(e) => Err(e),
        }
    }

    fn new_ask(&self) -> Option<Ask> {
        let limit = self.free().min(BATCH);
        let places = Arc::clone(&self.hub.places).try_acquire_many_owned(limit);
        let places = places.ok().filter(|_| limit > 0)?;
        Some(Ask {
            key: idempotency_key(),
            limit,
            first_sent: Instant::now(),
            places,
        })
    }

    fn launch_all(&self, grants: Vec<ClaimGrant>, mut ask: Ask) {
        for grant in grants {
            // A server that grants more than asked for is still owed each result.
            let place = ask.places.split(1);
            self.launch(grant, ask.first_sent, place);
        }
    }

    fn launch(&self, grant: ClaimGrant, sent: Instant, place: Option<OwnedSemaphorePermit>) {
        count(&self.hub.counts.claimed);
        let hub = Arc::clone(&self.hub);
        self.calls.spawn(async move {
            call::run(hub, grant, sent, Seat::new(place)).await;
        });
    }

    /// Claims these rows one by one, each under its own key; rows that others hold are passed over.
    async fn claim_singly(&mut self, rows: &[&InboxRow]) -> Result<(), Error> {
        let client = self.hub.client.with_retry(self.hub.timing.backoff);
        for row in rows {
            let Ok(place) = Arc::clone(&self.hub.places).try_acquire_owned() else {
                self.more = true;
                return Ok(());
            };
            let key = idempotency_key();
            let sent = Instant::now();
            let claim = client.claim(&row.run_public_id, &row.task_key, Some(&key));
            match claim.await {
                Ok(grant) => self.launch(grant.into_inner(), sent, Some(place)),
                Err(e) if matches!(e.status(), Some(404 | 409)) => {
                    tracing::debug!(run.id = %row.run_public_id, task.key = %row.task_key, "{e}");
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Rows of a claim that was never answered are ours until their deadline: run them while the
    /// grace lasts rather than leave them to it.
    async fn recover_at_the_end(&mut self) {
        for made in 1..=LAST_ASKS {
            if self.unanswered.is_none() || self.hub.is_unauthorized() {
                return;
            }
            if let Err(e) = self.ask().await {
                let wait = self.hub.timing.backoff.wait(made, None);
                tracing::warn!("an unanswered claim is still open: {}", chain(&e));
                tokio::time::sleep(wait.min(Duration::from_secs(1))).await;
            }
        }
    }

    fn free(&self) -> u32 {
        u32::try_from(self.hub.places.available_permits()).unwrap_or(u32::MAX)
    }
}
