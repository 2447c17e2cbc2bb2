//! Commits that are done at once, carried together.

use bytes::Bytes;
use futures_util::future::join_all;

use super::fake::{Plan, RUN};
use super::*;
use crate::client::answers::Task;
use crate::client::{CommitEntry, Error};
use crate::runner::courier::Courier;

fn entry(key: &str, token: &str, content: &str) -> CommitEntry {
    let body = format!(r#"{{"claim_token":"{token}","content":"{content}"}}"#);
    CommitEntry {
        run_public_id: RUN.to_owned(),
        task_key: key.to_owned(),
        body: Bytes::from(body),
    }
}

/// Carries these, all handed in before any is answered.
async fn carried(
    courier: &Courier,
    fake: &Fake,
    entries: Vec<CommitEntry>,
) -> Vec<Result<Task, Error>> {
    let client = Client::new(&fake.base, "sk-test").unwrap();
    join_all(entries.into_iter().map(|e| courier.commit(&client, e))).await
}

async fn held(rows: usize) -> (Fake, Vec<String>) {
    let fake = Fake::start().await;
    let keys: Vec<String> = (0..rows).map(|n| format!("k{n}")).collect();
    for key in &keys {
        fake.held_row(key, &format!("t-{key}"));
    }
    (fake, keys)
}

fn entries(keys: &[String]) -> Vec<CommitEntry> {
    let entry = |key: &String| entry(key, &format!("t-{key}"), key);
    keys.iter().map(entry).collect()
}

/// How many entries each batch had.
fn batches(fake: &Fake) -> Vec<usize> {
    let seen = fake.seen("commits");
    seen.iter()
        .map(|s| s.json()["commits"].as_array().unwrap().len())
        .collect()
}

#[tokio::test]
async fn what_is_done_while_requests_are_under_way_goes_in_one() {
    let (fake, keys) = held(100).await;
    let courier = Courier::new();
    for outcome in carried(&courier, &fake, entries(&keys)).await {
        assert_eq!(outcome.unwrap().status.as_str(), "completed");
    }
    assert_eq!(fake.seen("commit").len(), 4, "alone, before others came");
    let batches = batches(&fake);
    assert_eq!(batches.iter().sum::<usize>(), 96);
    assert!(batches.contains(&64), "{batches:?}");
    for key in &keys {
        let stored = fake.wait_commit(key).await;
        assert_eq!(stored["content"], key.as_str(), "each result at its row");
    }
}

#[tokio::test]
async fn one_refused_entry_touches_no_other() {
    let (fake, keys) = held(8).await;
    let mut all = entries(&keys);
    all[6] = entry("k6", "another", "x");
    let outcomes = carried(&Courier::new(), &fake, all).await;
    for (at, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(_) => assert_ne!(at, 6),
            Err(e) => assert!(at == 6 && e.is(409, "stale_claim"), "{at}: {e}"),
        }
    }
    assert_eq!(batches(&fake), [4]);
}

#[tokio::test]
async fn a_batch_that_nobody_answered_is_each_ones_lack_of_an_answer() {
    let (fake, keys) = held(8).await;
    fake.plan("commits", Plan::CutAfter);
    let courier = Courier::new();
    let outcomes = carried(&courier, &fake, entries(&keys)).await;
    let lost: Vec<bool> = outcomes.iter().map(Result::is_err).collect();
    assert_eq!(lost, [[false; 4], [true; 4]].concat());
    for e in outcomes.into_iter().filter_map(Result::err) {
        assert!(e.is_transient(), "{e}");
    }
    // The same bytes once more are the same results.
    for outcome in carried(&courier, &fake, entries(&keys)).await {
        outcome.unwrap();
    }
}

#[tokio::test]
async fn without_the_door_each_goes_alone_and_it_is_asked_once() {
    let (fake, keys) = held(16).await;
    fake.plan("commits", Plan::Refuse(404, "not_found"));
    let courier = Courier::new();
    for _ in 0..2 {
        for outcome in carried(&courier, &fake, entries(&keys)).await {
            outcome.unwrap();
        }
    }
    assert_eq!(fake.seen("commits").len(), 1);
    assert_eq!(fake.seen("commit").len(), 32);
}

#[tokio::test]
async fn a_batch_keeps_below_what_a_body_may_have() {
    let (fake, keys) = held(9).await;
    let large = "x".repeat(1_500_000);
    let all = keys
        .iter()
        .map(|key| entry(key, &format!("t-{key}"), &large));
    for outcome in carried(&Courier::new(), &fake, all.collect()).await {
        outcome.unwrap();
    }
    let most = fake.seen("commits").iter().map(|s| s.body.len()).max();
    assert!(most.is_some_and(|most| most < 5_000_000), "{most:?}");
}
