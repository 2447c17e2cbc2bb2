//! `parks`: calls, questions, approvals and waits past their deadline expire
//! (`admission.md` §8, `executor.md` §12).
//!
//! Invariants:
//! - a row that cannot be settled hides nobody: the page goes on behind it, to the end of the due
//!   order, before it begins again (BR-025);
//! - a deadline that moved later moves the next look with it, so the row leaves the order;
//! - one account's backlog delays no other account's row by more than a turn (BR-051).

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::super::backoff::Backoff;
use super::super::lead::{self, Cx};
use super::super::settle;
use super::{Duty, Pass};
use crate::domain::{AccountId, PublicId, RunId, TaskNo};
use crate::store::Error;
use crate::store::due::{self, DueKey, DuePark};

/// Rows of one page.
const PAGE: usize = 256;

/// Rows of one run settled in one transaction.
const ROWS_A_RUN: usize = 64;

/// Rows of each other account taken beside a full page.
const OTHERS_EACH: usize = 16;

/// How often other accounts are looked for beside full pages.
const OTHERS_EVERY: Duration = Duration::from_millis(250);

/// The duty.
#[derive(Default)]
pub struct Parks {
    /// Where the last page ended, while the order goes on behind it.
    after: Option<DueKey>,
    /// The same for the look at other accounts.
    others_after: Option<DueKey>,
    others_at: Option<Instant>,
    backoff: Backoff<(AccountId, RunId)>,
}

impl Duty for Parks {
    fn name(&self) -> &'static str {
        "parks"
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn run<'a>(&'a mut self, cx: &'a Cx) -> BoxFuture<'a, Result<Pass, Error>> {
        self.batch(cx).boxed()
    }
}

impl Parks {
    async fn batch(&mut self, cx: &Cx) -> Result<Pass, Error> {
        let mut page = due::parks(&cx.store, cx.part, self.after, PAGE).await?;
        let more = page.len() == PAGE;
        self.after = if more {
            page.last().map(|p| p.key)
        } else {
            None
        };
        if more {
            page.extend(self.others(cx, &page).await?);
        } else {
            self.others_after = None;
        }
        let (postponed, due): (Vec<_>, Vec<_>) = page.into_iter().partition(|p| p.postponed);
        if !postponed.is_empty() {
            due::postpone(&cx.store, &postponed).await?;
            lead::count("parks", "postponed", postponed.len());
        }
        let now = Instant::now();
        let due: Vec<DuePark> = due
            .into_iter()
            .filter(|p| !self.backoff.rests(&(p.account, p.run), now))
            .collect();
        let lag = due.iter().map(|p| p.late).max().unwrap_or_default();
        let rows = settle::run(
            cx,
            "parks",
            &mut self.backoff,
            by_run(&due),
            |settle, (account, _), (run, tasks)| {
                async move {
                    let mut settled = 0;
                    for tasks in tasks.chunks(ROWS_A_RUN) {
                        settled += settle.expire(account, run, tasks.to_vec()).await?;
                    }
                    Ok(settled)
                }
                .boxed()
            },
        )
        .await;
        Ok(Pass { rows, more, lag })
    }

    /// Rows of accounts that a full page did not show.
    async fn others(&mut self, cx: &Cx, page: &[DuePark]) -> Result<Vec<DuePark>, Error> {
        if self.others_at.is_some_and(|at| at.elapsed() < OTHERS_EVERY) {
            return Ok(Vec::new());
        }
        self.others_at = Some(Instant::now());
        let mut shown: Vec<AccountId> = page.iter().map(|p| p.account).collect();
        shown.sort_unstable();
        shown.dedup();
        let from = self.others_after;
        let (others, next) =
            due::parks_of_others(&cx.store, cx.part, from, &shown, OTHERS_EACH, PAGE).await?;
        self.others_after = next;
        Ok(others)
    }
}

/// What is due of one run.
type OfRun = (PublicId, Vec<TaskNo>);

/// The tasks of each run once, runs in the order of their oldest row, accounts taking turns. A park
/// whose run is gone is nobody's to settle: the audit of the database tells of it.
fn by_run(due: &[DuePark]) -> Vec<((AccountId, RunId), OfRun)> {
    let mut works: BTreeMap<(AccountId, RunId), (usize, usize, OfRun)> = BTreeMap::new();
    let mut runs_of: BTreeMap<AccountId, usize> = BTreeMap::new();
    for (place, park) in due.iter().enumerate() {
        let Some(run) = park.run_id else {
            continue;
        };
        let (_, _, (_, tasks)) = works.entry((park.account, park.run)).or_insert_with(|| {
            let rank = runs_of.entry(park.account).or_default();
            *rank += 1;
            (*rank, place, (run, Vec::new()))
        });
        if !tasks.contains(&park.task) {
            tasks.push(park.task);
        }
    }
    let mut works: Vec<_> = works.into_iter().collect();
    works.sort_by_key(|(_, (rank, place, _))| (*rank, *place));
    works
        .into_iter()
        .map(|(key, (_, _, work))| (key, work))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ParkNo;

    fn park(account: i64, run: i64, task: i32) -> DuePark {
        DuePark {
            account: AccountId(account),
            run: RunId(run),
            run_id: Some(PublicId(uuid::Uuid::from_u128(1))),
            task: TaskNo(task),
            key: DueKey {
                due_at: chrono::DateTime::UNIX_EPOCH,
                park: ParkNo(1),
            },
            postponed: false,
            late: Duration::ZERO,
        }
    }

    #[test]
    fn a_run_is_settled_once_and_accounts_take_turns() {
        let due = [
            park(1, 10, 1),
            park(1, 10, 2),
            park(1, 11, 1),
            park(1, 12, 1),
            park(1, 10, 2),
            park(2, 20, 7),
        ];
        let order: Vec<(i64, Vec<i32>)> = by_run(&due)
            .into_iter()
            .map(|((_, run), (_, tasks))| (run.0, tasks.iter().map(|t| t.0).collect()))
            .collect();
        assert_eq!(
            order,
            [
                (10, vec![1, 2]),
                (20, vec![7]),
                (11, vec![1]),
                (12, vec![1])
            ]
        );
    }
}
