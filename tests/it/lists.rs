//! Lists of runs under their filters (`runs.md` §2, §6), paged while runs come, change and end.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::support::seed::World;
use crate::support::{Door, TestApp, items, text};

/// All pages of a list, by cursor: ids with their states, in the order shown.
async fn pages(door: &Door, world: &World, query: &str, limit: usize) -> Vec<(String, String)> {
    let mut listed = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("{}?limit={limit}&{query}{after}", world.runs());
        let page = door.get(&path, &world.human.token).await.ok(200);
        let runs = items(&page, "runs");
        assert!(runs.len() <= limit);
        for run in runs {
            let word = |name| text(run, name).to_owned();
            listed.push((word("public_id"), word("status")));
        }
        let next = crate::support::at(&page, "pagination.next_after");
        let Some(next) = next.as_str() else {
            return listed;
        };
        after = format!("&after={next}");
    }
}

async fn created(app: &TestApp, world: &World) -> String {
    let body =
        json!({"run": {"approval_mode": "bypass", "steps": [world.routed("a", "write_note")]}});
    let answer = app.post(&world.runs(), &world.human.token, body).await;
    text(&answer.ok(201), "run.public_id").to_owned()
}

/// One run in each state that this release reaches; gives state → ids, ascending.
async fn one_of_each(app: &TestApp, world: &World) -> BTreeMap<&'static str, Vec<String>> {
    let mut by: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for _ in 0..3 {
        by.entry("pending")
            .or_default()
            .push(created(app, world).await);
        let steps = json!([world.routed("a", "write_note")]);
        let run = world.run(app, steps.clone()).await;
        by.entry("running").or_default().push(run);
        for (state, outcome) in [("completed", "completed"), ("needs_attention", "failed")] {
            let run = world.run(app, steps.clone()).await;
            let token = world.claim(app, &run, "a").await;
            let body = json!({"claim_token": token, "outcome": outcome, "content": "x"});
            let commit = crate::support::seed::door(&run, "a", "commit");
            app.post(&commit, &world.runner.token, body).await.ok(200);
            by.entry(state).or_default().push(run);
        }
        let run = world.run(app, steps).await;
        world.stop(app, &run).await.ok(200);
        by.entry("canceled").or_default().push(run);
    }
    by
}

/// `runs.md` §6: `status=a,b` is a set, `attention=any` any standing reason, `order` by id; each
/// alone and together, in pages of one and of many.
#[tokio::test]
async fn every_filter_shows_exactly_its_runs_in_order() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let by = one_of_each(&app, &world).await;
    let of = |states: &[&str]| {
        let mut ids: Vec<(String, String)> = states
            .iter()
            .flat_map(|s| by[s].iter().map(|id| (id.clone(), (*s).to_owned())))
            .collect();
        ids.sort();
        ids
    };
    let all = [
        "pending",
        "running",
        "completed",
        "needs_attention",
        "canceled",
    ];
    let cases: &[(&str, Vec<(String, String)>)] = &[
        ("", of(&all)),
        ("status=completed", of(&["completed"])),
        ("status=running,pending", of(&["running", "pending"])),
        ("status=canceled,canceled", of(&["canceled"])),
        ("status=paused", Vec::new()),
        ("attention=any", of(&["needs_attention"])),
        (
            "attention=any&status=needs_attention,running",
            of(&["needs_attention"]),
        ),
        ("attention=any&status=completed", Vec::new()),
    ];
    for (query, expected) in cases {
        for limit in [1, 2, 200] {
            let listed = pages(&app, &world, query, limit).await;
            assert_eq!(listed, *expected, "{query} by {limit}");
            let descending = format!("{query}&order=desc");
            let mut listed = pages(&app, &world, &descending, limit).await;
            listed.reverse();
            assert_eq!(listed, *expected, "{descending} by {limit}");
        }
    }
    app.finish().await;
}

/// Keyset pages while others create, start and end runs on another replica: what stood in a state all
/// along is shown once and in order, and nothing is shown twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_exact_while_runs_come_and_go() {
    let app = TestApp::replicas(2).await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = || json!([world.routed("a", "write_note")]);
    let mut standing = BTreeSet::new();
    let mut moving = Vec::new();
    for i in 0..36 {
        let run = world.run(&app, steps()).await;
        if i % 3 == 0 {
            standing.insert(run);
        } else {
            moving.push(run);
        }
    }
    let over = AtomicBool::new(false);
    let writing = async {
        for run in &moving {
            world.stop(&app, run).await.ok(200);
            world.run(&app, steps()).await;
        }
        over.store(true, Ordering::SeqCst);
    };
    let reading = async {
        let mut rounds = 0;
        while !over.load(Ordering::SeqCst) {
            for query in [
                "status=running",
                "status=running&order=desc",
                "status=running,canceled",
            ] {
                let listed = pages(app.on(1), &world, query, 5).await;
                let ids: Vec<&String> = listed.iter().map(|(id, _)| id).collect();
                let rising = ids.is_sorted_by(|a, b| a < b);
                let falling = ids.is_sorted_by(|a, b| a > b);
                assert!(
                    if query.ends_with("desc") {
                        falling
                    } else {
                        rising
                    },
                    "{query}: {ids:?}"
                );
                let shown: BTreeSet<String> = ids.into_iter().cloned().collect();
                let lost: Vec<_> = standing.difference(&shown).collect();
                assert!(lost.is_empty(), "{query} lost {lost:?}");
                let only = |(_, state): &(String, String)| query.contains(state.as_str());
                assert!(listed.iter().all(only), "{query}: {listed:?}");
            }
            rounds += 1;
        }
        rounds
    };
    let ((), rounds) = tokio::join!(writing, reading);
    println!("{rounds} rounds of pages beside 48 changes");
    assert!(rounds > 1);
    app.finish().await;
}
