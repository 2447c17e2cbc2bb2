//! What a settle costs (INV-33, L6): rows read follow the degree of what settles, never the size of
//! the run or its history; long chains and wide fans take linear work and no deep stack.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::command::{Answer, Appending, Command, body};
use super::db::{Db, Reads};
use super::envelopes::{self, dawn};
use super::fleet::Fleet;
use crate::domain::json::{Value, parse};
use crate::domain::words::{EdgeState, ExecutorKind, OnFailure, RunStatus, TaskKind, TaskStatus};
use crate::domain::{TaskKey, TaskNo};
use crate::engine::approval::Rules;
use crate::engine::facts::{Counts, Edge, TaskError};
use crate::engine::invariants::{self, Item, Narrated, World, recount};
use crate::engine::tables::blank;

/// A pending run of `rows` calls of one pool, with these edges.
fn world(rows: usize, edges: impl Iterator<Item = (usize, usize)>) -> World {
    let number = |n: usize| TaskNo(i32::try_from(n).expect("few"));
    let tasks = (1..=rows).map(|n| {
        let mut task = blank(number(n), &format!("t{n}"), TaskKind::Tool);
        task.tool_name = Some("read".to_owned());
        task
    });
    let mut world = World {
        now: dawn(),
        run: envelopes::run(Some(number(rows)), Counts::default(), 1),
        tasks: tasks.collect(),
        edges: Vec::new(),
        parks: Vec::new(),
        failures: Vec::new(),
        results: Vec::new(),
        items: vec![Item {
            seq: 1,
            what: Narrated::Run(RunStatus::Pending, None),
        }],
    };
    for (from, to) in edges {
        let head = &mut world.tasks[to - 1];
        world.edges.push(Edge {
            from: number(from),
            to: number(to),
            ordinal: head.remaining,
            structural: true,
            source: None,
            state: EdgeState::Open,
        });
        head.remaining += 1;
    }
    world.run.counts = recount(&world).counts;
    world
}

fn started(world: World) -> Db {
    let mut db = of_provider(world);
    assert_eq!(db.run(Command::Start), Ok(Answer::Ok));
    db
}

/// Not started yet; one provider serves all.
fn of_provider(mut world: World) -> Db {
    world.run.counts = recount(&world).counts;
    let mut fleet = Fleet::default();
    let provider = fleet.add("p1", ExecutorKind::ToolProvider);
    provider
        .serves
        .insert("read".to_owned(), super::fleet::served(true, None));
    Db::new(world, fleet)
}

/// Claims and commits a row; answers what its settle read.
fn settle(db: &mut Db, n: usize, outcome: &str) -> Reads {
    let by = db.fleet.named("p1").caller.id;
    let key = format!("t{n}");
    let (verdict, taking) = db.judge_claim(&key, by, None, [9; 32]).expect("free");
    assert!(db.take(verdict, &taking));
    db.reads = Reads::default();
    let answer = db.run(Command::Commit {
        key: TaskKey::trusted(key),
        by,
        token: Some([9; 32]),
        body: body(&[("content", "x".into()), ("outcome", outcome.into())]),
    });
    assert!(matches!(answer, Ok(Answer::Task(..))), "{answer:?}");
    db.reads
}

/// `settled` rows behind a chain of four live ones; the history holds failures that were absorbed.
fn with_history(settled: usize, policy: OnFailure) -> Db {
    let db = started(history(settled, policy));
    invariants::check(&db.world).unwrap();
    db
}

fn history(settled: usize, policy: OnFailure) -> World {
    let edges = (1..settled + 4).map(|n| (n, n + 1));
    let mut world = world(settled + 4, edges);
    for (n, task) in world.tasks.iter_mut().take(settled).enumerate() {
        task.remaining = 0;
        task.status = TaskStatus::Completed;
        task.settle_seq = Some(i32::try_from(n + 1).expect("few"));
        task.completed_at = Some(dawn());
        if n % 3 == 0 {
            task.status = TaskStatus::Failed;
            task.on_failure = OnFailure::Absorb;
            task.error = Some(TaskError {
                key: "tool_failed".to_owned(),
                detail: None,
            });
        } else {
            task.approval = Some(crate::domain::event::ApprovalFact {
                origin: crate::domain::words::ApprovalOrigin::Author,
                decided_by: None,
                decided_at: dawn(),
            });
        }
    }
    for edge in world.edges.iter_mut().take(settled) {
        edge.state = EdgeState::Met;
    }
    world.tasks[settled].remaining = 0;
    world.tasks[settled].on_failure = policy;
    world.run.settle_seq = i32::try_from(settled).expect("few");
    world
}

#[test]
fn a_settle_reads_the_same_behind_a_hundred_rows_and_ten_thousand() {
    for (policy, outcome, to_the_end) in [
        (OnFailure::Propagate, "completed", true),
        (OnFailure::Propagate, "failed", false),
        (OnFailure::Halt, "failed", false),
        (OnFailure::Absorb, "failed", true),
    ] {
        let mut reads = Vec::new();
        for settled in [100, 10_000] {
            let mut db = with_history(settled, policy);
            let mut all = vec![settle(&mut db, settled + 1, outcome)];
            if to_the_end {
                all.extend((2..=4).map(|n| settle(&mut db, settled + n, "completed")));
            }
            invariants::check(&db.world).unwrap();
            let ended = db.world.run.status;
            reads.push((all, ended));
        }
        assert_eq!(reads[0], reads[1], "{policy} {outcome}");
        let most = reads[0].0.iter().map(|r| r.rows).max().unwrap();
        assert!(most <= 16, "{policy} {outcome}: {most} rows");
    }
}

/// A live row that is committed, and as what.
type Settled = (usize, &'static str);

/// What a person's verb reads in a run with `settled` rows of history, once it was brought about.
fn verb(settled: usize, rests: bool, before: &[Settled], command: &Command) -> Reads {
    let mut world = history(settled, OnFailure::Propagate);
    world.run.has_rules = rests;
    let mut db = of_provider(world);
    let asks = parse(br#"[{"tool":"read","verdict":"ask","origin":"author"}]"#).expect("JSON");
    db.rules = rests.then(|| Arc::new(Rules::read(&asks).expect("rules").0));
    assert_eq!(db.run(Command::Start), Ok(Answer::Ok));
    for (n, outcome) in before {
        settle(&mut db, settled + n, outcome);
    }
    db.reads = Reads::default();
    let answer = db.run(command.clone()).expect("no fault");
    let accepted = matches!(answer, Answer::Ok | Answer::Appended(_));
    assert!(accepted, "{command:?}: {answer:?}");
    let reads = db.reads;
    invariants::check(&db.world).unwrap();
    reads
}

/// L6 for persons' verbs, as for settles: history costs nothing.
#[test]
fn verbs_read_the_same_rows_with_one_hundred_and_ten_thousand_settled() {
    type OfRow = fn(TaskKey) -> Command;
    let append = |_: TaskKey| {
        let call = [("name", "read".into()), ("key", "x".into())];
        let steps = Value::Array(vec![Value::from([("tool", Value::from(call))])]);
        let appending = Appending::new(steps, Vec::new(), None, Some("k".to_owned()), 1);
        Command::Append(Box::new(appending.expect("steps")))
    };
    // Of the first live row: whether it rests for an approver, what happened before, the verb, and the
    // most rows that it may read. Three rows stand behind that row.
    let verbs: [(&str, bool, &[Settled], OfRow, usize); 10] = [
        ("retry", false, &[(1, "failed")], Command::Retry, 16),
        ("abandon", false, &[(1, "failed")], Command::Abandon, 16),
        ("cancel", false, &[], Command::Cancel, 16),
        (
            "cancel later",
            false,
            &[(1, "completed")],
            Command::Cancel,
            24,
        ),
        ("approve", true, &[], Command::Approve, 8),
        ("deny", true, &[], |key| Command::Deny(key, None), 12),
        ("pause", false, &[], |_| Command::Pause { force: false }, 2),
        ("drain", false, &[], |_| Command::Graceful, 12),
        ("stop", false, &[], |_| Command::Stop(None), 12),
        ("append", false, &[], append, 4),
    ];
    for (word, rests, before, command, most) in verbs {
        let first = usize::from(word == "cancel later") + 1;
        let reads = [100, 10_000].map(|settled| {
            let key = TaskKey::trusted(format!("t{}", settled + first));
            verb(settled, rests, before, &command(key))
        });
        assert_eq!(reads[0], reads[1], "{word}");
        assert!(reads[0].rows <= most, "{word}: {:?}", reads[0]);
    }
}

#[test]
fn a_chain_of_ten_thousand_reads_a_few_rows_a_link() {
    const N: usize = 10_000;
    let mut db = started(world(N, (1..N).map(|n| (n, n + 1))));
    for n in 1..=N {
        let reads = settle(&mut db, n, "completed");
        assert!(reads.rows <= 10 && reads.loads <= 4, "row {n}: {reads:?}");
    }
    assert_eq!(db.world.run.status, RunStatus::Completed);
    invariants::check(&db.world).unwrap();
}

/// On a stack that a recursion of a few hundred frames would overflow.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(192 * 1024);
    thread.spawn(test).unwrap().join().unwrap();
}

#[test]
fn a_skip_runs_down_ten_thousand_rows_in_one_load() {
    const N: usize = 10_000;
    on_a_small_stack(|| {
        let mut db = started(world(N, (1..N).map(|n| (n, n + 1))));
        let reads = settle(&mut db, 1, "failed");
        let skipped = db
            .world
            .tasks
            .iter()
            .filter(|t| t.status == TaskStatus::Skipped);
        assert_eq!(skipped.count(), N - 1);
        assert!(reads.loads <= 4 && reads.rows <= 3 * N, "{reads:?}");
        invariants::check(&db.world).unwrap();
    });
}

/// A chain of absorbed start failures is no skip: each link is one load more, of a few rows.
#[test]
fn calls_that_nobody_serves_run_down_a_chain_a_few_rows_a_link() {
    const N: usize = 300;
    on_a_small_stack(|| {
        let mut world = world(N, (1..N).map(|n| (n, n + 1)));
        for task in &mut world.tasks {
            task.on_failure = OnFailure::Absorb;
            task.tool_name = Some("nowhere".to_owned());
        }
        let db = started(world);
        assert_eq!(db.world.run.status, RunStatus::NeedsAttention);
        assert!(db.reads.rows <= 8 * N, "{:?}", db.reads);
        invariants::check(&db.world).unwrap();
    });
}

/// Rows that fail to start beside each other, each by its own policy: only what is skipped is
/// walked down to its end.
#[test]
fn a_skip_beside_another_release_does_not_read_the_others_descendants() {
    // 1 → 2 → 3, where 2 is not served and 3 is skipped; 1 → 4 → 5 → … → N, where 4 is not served
    // and absorbed: 5 starts, the rest stays unread.
    const N: usize = 1_000;
    let edges = [(1, 2), (1, 4), (2, 3)]
        .into_iter()
        .chain((4..N).map(|n| (n, n + 1)));
    let mut world = world(N, edges);
    for n in [2, 4] {
        world.tasks[n - 1].tool_name = Some("nowhere".to_owned());
    }
    world.tasks[3].on_failure = OnFailure::Absorb;
    let mut db = started(world);
    let reads = settle(&mut db, 1, "completed");
    assert_eq!(db.task(TaskNo(3)).status, TaskStatus::Skipped);
    assert_eq!(db.task(TaskNo(5)).status, TaskStatus::Dispatched);
    assert!(reads.rows <= 32, "{reads:?}");
}

/// All that a hold names is read at once.
#[test]
fn a_hold_reads_its_failures_in_one_load() {
    const N: usize = 60;
    let mut world = world(N, (1..N).map(|n| (n, N)));
    for task in &mut world.tasks {
        task.on_failure = OnFailure::Halt;
    }
    let mut db = started(world);
    let mut last = Reads::default();
    for n in 1..N {
        last = settle(&mut db, n, "failed");
    }
    assert_eq!(db.world.run.status, RunStatus::NeedsAttention);
    assert!(last.loads <= 4 && last.rows <= 4 * N, "{last:?}");
}

/// The walk back is one load, however long, and needs no deep stack; so is letting the failure go.
#[test]
fn ten_thousand_skips_are_opened_again_in_one_load() {
    const N: usize = 10_000;
    for verb in [Command::Retry, Command::Abandon] {
        on_a_small_stack(move || {
            let mut db = started(world(N, (1..N).map(|n| (n, n + 1))));
            settle(&mut db, 1, "failed");
            db.reads = Reads::default();
            let answer = db.run(verb(TaskKey::trusted("t1".to_owned())));
            assert_eq!(answer, Ok(Answer::Ok));
            let skipped = db
                .world
                .tasks
                .iter()
                .filter(|t| t.status == TaskStatus::Skipped);
            assert_eq!(skipped.count(), 0);
            let reads = db.reads;
            assert!(reads.loads <= 6 && reads.rows <= 5 * N, "{reads:?}");
            invariants::check(&db.world).unwrap();
        });
    }
}

/// A race of 32 members, each a chain of calls before its exit; the last member is one call.
fn race_of(chain: usize) -> Db {
    const MEMBERS: usize = 32;
    let barrier = MEMBERS * chain + 1;
    let chains =
        (0..MEMBERS).flat_map(move |m| (1..chain).map(move |n| (m * chain + n, m * chain + n + 1)));
    let exits = (1..=MEMBERS).map(move |m| (m * chain, barrier));
    let mut world = world(barrier, chains.chain(exits));
    for task in world.tasks.iter_mut().take(barrier - 1) {
        task.barrier = Some(TaskNo(i32::try_from(barrier).expect("few")));
    }
    // Each member is at its last call.
    let race = &mut world.tasks[barrier - 1];
    race.kind = TaskKind::Join;
    race.tool_name = None;
    race.join = Some(crate::engine::facts::Join {
        mode: crate::domain::words::JoinMode::Any,
        k: 1,
        losers: crate::domain::words::Losers::Cancel,
        successes: 0,
        pending: race.remaining,
    });
    // The winner has no chain before it.
    let winner = MEMBERS * chain;
    if chain > 1 {
        world
            .edges
            .retain(|e| usize::try_from(e.to.0) != Ok(winner));
        world.tasks[winner - 1].remaining = 0;
    }
    started(world)
}

/// The arms are read once, whatever they hold, and in time that follows their size.
#[test]
fn a_race_of_thirty_two_reads_its_arms_once() {
    let mut taken = Vec::new();
    for chain in [4, 32, 320] {
        let mut db = race_of(chain);
        db.compares = false;
        let begun = Instant::now();
        let reads = settle(&mut db, 32 * chain, "completed");
        taken.push(begun.elapsed());
        let lost = db
            .world
            .tasks
            .iter()
            .filter(|t| t.status == TaskStatus::Canceled);
        assert_eq!(lost.count(), 31 * chain);
        assert!(reads.loads <= 8, "{chain}: {reads:?}");
        assert!(reads.rows <= 6 * 32 * chain, "{chain}: {reads:?}");
        invariants::check(&db.world).unwrap();
    }
    let ratio = taken[2].as_secs_f64() / taken[1].as_secs_f64();
    assert!(ratio < 40.0, "{taken:?}");
}

/// The better of two, so that a busy machine does not decide.
fn time_of(rows: usize, outcome: &'static str) -> Duration {
    let once = || {
        let mut db = started(world(rows, (2..=rows).map(|n| (1, n))));
        db.compares = false;
        let begun = Instant::now();
        settle(&mut db, 1, outcome);
        begun.elapsed()
    };
    (0..2).map(|_| once()).min().expect("twice")
}

/// Ten times the readers take about ten times as long to release or to skip; a hundred times, if
/// each were looked for among all.
#[test]
fn a_wide_fan_takes_linear_time() {
    for outcome in ["failed", "completed"] {
        let (small, large) = (time_of(2_000, outcome), time_of(20_000, outcome));
        println!("{outcome}: {small:?}, {large:?}");
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        assert!(
            ratio < 30.0,
            "{outcome}: {small:?} for 2,000, {large:?} for 20,000"
        );
    }
}
