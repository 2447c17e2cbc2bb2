//! The inbox: a level-triggered view, judged row by row, that can wait for the next hint
//! (`executor.md` §6, `architecture.md` §8).

use std::time::Duration;

use tokio::time::Instant;

use super::claim::Claimed;
use super::claims::Taken;
use crate::app::App;
use crate::bus::{Message, Subscription};
use crate::engine::eligibility::is_eligible;
use crate::store;
use crate::store::credentials::ExecutorCaller;
use crate::store::inbox::InboxRow;

/// How long a waiting poll trusts hints alone: a lost one costs no more than this.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The same while rows were passed over because others held them: whoever lets one go tells nobody.
const LOOK_AGAIN_HELD: Duration = Duration::from_millis(50);

/// One page of the inbox.
#[derive(Debug)]
pub struct Page {
    /// Rows.
    pub rows: Vec<InboxRow>,
    /// The last fetched park, when the fetch filled the limit.
    pub next_after: Option<i64>,
}

/// Waits for what may bring work: a hint, the end of patience, a look of its own, the end of this
/// replica.
struct Waiter {
    hints: Subscription,
    until: Instant,
}

impl Waiter {
    /// Listens before the first look, so that nothing falls between.
    async fn start(app: &App, caller: &ExecutorCaller, wait: Duration) -> Option<Self> {
        if wait.is_zero() {
            return None;
        }
        let hints = app.bus.executor_hints(caller.public_id).await;
        Some(Self {
            hints,
            until: Instant::now() + wait,
        })
    }

    /// Whether to look again, at the latest `after` a while.
    async fn again(&mut self, app: &App, after: Duration) -> bool {
        let next_look = (Instant::now() + after).min(self.until);
        loop {
            tokio::select! {
                message = self.hints.recv() => match message {
                    Message::WorkAvailable { .. } | Message::Resynced | Message::Lagged => break,
                    _ => {}
                },
                () = tokio::time::sleep_until(next_look) => break,
                () = app.draining.cancelled() => return false,
            }
        }
        Instant::now() < self.until
    }
}

/// A page of what is addressed to the caller; an empty first page may wait for work.
///
/// # Errors
/// A fault.
pub async fn list(
    app: &App,
    caller: &ExecutorCaller,
    after: i64,
    limit: i64,
    wait: Duration,
) -> Result<Page, store::Error> {
    let mut waiter = Waiter::start(app, caller, wait).await;
    loop {
        let page = page(app, caller, after, limit).await?;
        let done = !page.rows.is_empty() || page.next_after.is_some();
        match &mut waiter {
            Some(waiter) if !done => {
                if !waiter.again(app, LOOK_AGAIN).await {
                    return Ok(page);
                }
            }
            _ => return Ok(page),
        }
    }
}

async fn page(
    app: &App,
    caller: &ExecutorCaller,
    after: i64,
    limit: i64,
) -> Result<Page, store::Error> {
    let Some(facts) = app.store.inbox_caller(caller.account, caller.id).await? else {
        return Ok(Page {
            rows: Vec::new(),
            next_after: None,
        });
    };
    let fetched = app
        .store
        .inbox_page(caller.account, &facts, after, limit)
        .await?;
    let filled = i64::try_from(fetched.len()).is_ok_and(|n| n == limit);
    let next_after = fetched.last().filter(|_| filled).map(|last| last.park_no.0);
    let rows = fetched
        .into_iter()
        .filter(|l| l.listable && is_eligible(&facts.executor, &l.facts.principal))
        .map(|l| l.row)
        .collect();
    Ok(Page { rows, next_after })
}

/// Claims up to `limit` rows; when there is none, waits for work.
///
/// # Errors
/// A fault.
pub async fn claim_many(
    app: &App,
    caller: &ExecutorCaller,
    limit: usize,
    wait: Duration,
    key: Option<String>,
) -> Result<Vec<Claimed>, store::Error> {
    let mut waiter = Waiter::start(app, caller, wait).await;
    loop {
        let Taken { claims, held } = app
            .inboxes
            .claim(caller.clone(), limit, key.clone())
            .await?;
        match &mut waiter {
            Some(waiter) if claims.is_empty() => {
                let after = if held { LOOK_AGAIN_HELD } else { LOOK_AGAIN };
                if !waiter.again(app, after).await {
                    return Ok(claims);
                }
            }
            _ => return Ok(claims),
        }
    }
}
