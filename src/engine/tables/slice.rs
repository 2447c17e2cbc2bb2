//! What a transaction did stays done in its slice, whatever is loaded behind it: the rows that a
//! load brings are those of before (`store::run_tx`).

use super::script::blank;
use crate::domain::json::Value;
use crate::domain::words::{EdgeState, ExecutorKind, TaskKind, TaskStatus};
use crate::domain::{TaskKey, TaskNo};
use crate::engine::expire;
use crate::engine::facts::{Counts, Edge};
use crate::engine::graph::Want;
use crate::engine::invariants::{World, recount};
use crate::engine::sim::command::{Command, body};
use crate::engine::sim::db::{Db, First};
use crate::engine::sim::envelopes::{dawn, run};
use crate::engine::sim::fleet::{Fleet, served};

/// A pool call with one reader, started.
fn two_calls() -> Db {
    let tasks = [(1, "a", 0), (2, "b", 1)].map(|(no, key, remaining)| {
        let mut task = blank(TaskNo(no), key, TaskKind::Tool);
        task.tool_name = Some("read".to_owned());
        task.remaining = remaining;
        task
    });
    let mut world = World {
        now: dawn(),
        run: run(Some(TaskNo(2)), Counts::default(), 0),
        tasks: tasks.to_vec(),
        edges: vec![Edge {
            from: TaskNo(1),
            to: TaskNo(2),
            ordinal: 0,
            structural: true,
            source: None,
            state: EdgeState::Open,
        }],
        parks: Vec::new(),
        failures: Vec::new(),
        results: Vec::new(),
        items: Vec::new(),
    };
    world.run.counts = recount(&world).counts;
    let mut fleet = Fleet::default();
    let provider = fleet.add("p1", ExecutorKind::ToolProvider);
    provider
        .serves
        .insert("read".to_owned(), served(true, None));
    let mut db = Db::new(world, fleet);
    db.run(Command::Start).unwrap();
    db
}

#[test]
fn a_later_load_brings_nothing_back() {
    let mut db = two_calls();
    let (a, b) = (TaskNo(1), TaskNo(2));
    db.world.now = db.park(a).unwrap().deadline_at;
    let mut locked = db.lock(&[First::Parked(vec![a])]);
    assert!(expire::expire(&mut locked.graph, a));
    while let Some(want) = locked.graph.advance() {
        db.load(&mut locked, &want);
    }
    for want in [
        Want::Row(a),
        Want::Edges(vec![a, b]),
        Want::Downstream(vec![a]),
        Want::Failures,
    ] {
        db.load(&mut locked, &want);
        let graph = &locked.graph;
        assert_eq!(graph.task(a).unwrap().status, TaskStatus::TimedOut);
        assert_eq!(graph.task(b).unwrap().status, TaskStatus::Skipped);
        assert_eq!(graph.edge(a, b).unwrap().state, EdgeState::Skip);
        assert_eq!(graph.park(a), None, "an ended park came back with {want:?}");
    }
    assert!(!expire::expire(&mut locked.graph, a));
    db.apply(locked).unwrap();
}

/// A claim that was recovered between a commit's decision and its write: the commit brought a token
/// that is no longer the claim's.
#[test]
fn a_claim_that_changed_under_a_decision_is_decided_anew() {
    let mut db = two_calls();
    let by = db.fleet.named("p1").caller.id;
    let (verdict, taking) = db.judge_claim("a", by, Some(b"k"), [1; 32]).unwrap();
    assert!(db.take(verdict, &taking));
    let (verdict, taking) = db.judge_claim("a", by, Some(b"k"), [2; 32]).unwrap();
    let commit = |token| Command::Commit {
        key: TaskKey::trusted("a".to_owned()),
        by,
        token: Some(token),
        body: body(&[("content", Value::from("x"))]),
    };
    let done = db.transact_beside(&[commit([1; 32])], |db| assert!(db.take(verdict, &taking)));
    let told = format!("{:?}", done.unwrap().answers);
    assert_eq!(told, r#"[Refused("stale_claim")]"#);
    assert_eq!(db.task(TaskNo(1)).status, TaskStatus::Dispatched);
    db.run(commit([2; 32])).unwrap();
    assert_eq!(db.task(TaskNo(1)).status, TaskStatus::Completed);
}
