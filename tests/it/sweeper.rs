//! Leadership and duties against a real database, several contenders in one process.
//!
//! `Expiry` stands for the command that settles: like the real one it re-checks each row in the
//! statement that settles it, and notes what it settled, so that "once" can be counted.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use nexus::domain::{AccountId, ExecutorId, PublicId, TaskNo};
use nexus::store::due::{self, Part};
use nexus::store::uploads::BlobRef;
use nexus::store::{self, Store, leases, replicas, retention};
use nexus::sweeper::{Hold, Pace, Settle, Settled, Sweeper};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::scratch::{Scratch, connect, eventually};
use crate::support::seed::{self, World, executor};
use crate::support::{OPERATOR, TestApp, fleet, text};
use serde_json::json;

/// What a test does to a settle before it happens.
type Disturb = Box<dyn Fn(AccountId, i64) -> Disturbance + Send + Sync>;

/// The inner id that a run of these tests has.
fn number(run: PublicId) -> i64 {
    i64::try_from(run.0.as_u128()).unwrap()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    None,
    /// Nothing can be done for this run.
    Nothing,
    /// It fails.
    Fails,
    /// It panics.
    Panics,
    /// The thread stands still, as under SIGSTOP.
    Freezes(Duration),
    /// It takes that long.
    Takes(Duration),
}

/// Settles by deleting what is due, and counts.
struct Expiry {
    sql: tokio_postgres::Client,
    disturb: Disturb,
    settled: Arc<Mutex<HashMap<(i64, i32), usize>>>,
    calls: Arc<Mutex<Vec<(i64, i64)>>>,
    in_flight: Mutex<HashMap<i64, usize>>,
}

impl Expiry {
    async fn new(scratch: &Scratch, disturb: Disturb) -> Self {
        Self {
            sql: connect(&scratch.url).await,
            disturb,
            settled: Arc::default(),
            calls: Arc::default(),
            in_flight: Mutex::default(),
        }
    }

    async fn plain(scratch: &Scratch) -> Self {
        Self::new(scratch, Box::new(|_, _| Disturbance::None)).await
    }

    async fn settle(
        &self,
        account: AccountId,
        run: i64,
        tasks: Vec<TaskNo>,
    ) -> Result<usize, store::Error> {
        match (self.disturb)(account, run) {
            Disturbance::None => {}
            Disturbance::Nothing => return Ok(0),
            Disturbance::Fails => {
                return Err(store::Error::inconsistent("runs", "status", run));
            }
            Disturbance::Panics => panic!("a settle that panics"),
            Disturbance::Freezes(time) => std::thread::sleep(time),
            Disturbance::Takes(time) => tokio::time::sleep(time).await,
        }
        let tasks: Vec<i32> = tasks.iter().map(|t| t.0).collect();
        let rows = self
            .sql
            .query(
                "DELETE FROM parks WHERE account_id = $1 AND run_id = $2 AND task_no = ANY ($3)
                    AND NOT clock_frozen AND deadline_at <= nexus_now() RETURNING task_no",
                &[&account.0, &run, &tasks],
            )
            .await?;
        let mut settled = self.settled.lock().unwrap();
        for row in &rows {
            *settled.entry((run, row.get(0))).or_default() += 1;
        }
        Ok(rows.len())
    }
}

impl Settle for Expiry {
    fn reclaim(&self, blob: BlobRef) -> Settled<'_> {
        async move {
            let bytes = "DELETE FROM upload_chunks WHERE account_id = $1 AND upload_id = $2";
            let row = "DELETE FROM uploads WHERE account_id = $1 AND upload_id = $2 AND reclaimed_at IS NOT NULL";
            let (account, id) = (blob.account.0, blob.id.0);
            self.sql.execute(bytes, &[&account, &id]).await?;
            let rows = self.sql.execute(row, &[&account, &id]).await?;
            Ok(rows as usize)
        }
        .boxed()
    }

    fn expire(&self, account: AccountId, run: PublicId, tasks: Vec<TaskNo>) -> Settled<'_> {
        async move {
            assert!(tasks.len() <= 64, "at most 64 rows a transaction");
            let run = number(run);
            let before = {
                let mut in_flight = self.in_flight.lock().unwrap();
                let n = in_flight.entry(run).or_default();
                *n += 1;
                *n
            };
            assert_eq!(before, 1, "one settle in flight per run");
            self.calls.lock().unwrap().push((account.0, run));
            let settled = self.settle(account, run, tasks).await;
            self.in_flight.lock().unwrap().insert(run, 0);
            settled
        }
        .boxed()
    }

    fn schedule(&self, account: AccountId, run: PublicId) -> Settled<'_> {
        async move {
            let run = number(run);
            self.calls.lock().unwrap().push((account.0, run));
            let rows = self
                .sql
                .execute(
                    "UPDATE runs SET schedulable = false WHERE account_id = $1 AND run_id = $2 AND schedulable",
                    &[&account.0, &run],
                )
                .await?;
            Ok(rows as usize)
        }
        .boxed()
    }

    fn revoke(&self, account: AccountId, executor: ExecutorId, limit: usize) -> Settled<'_> {
        async move {
            assert_eq!(limit, 64);
            if let Disturbance::Takes(time) = (self.disturb)(account, executor.0) {
                tokio::time::sleep(time).await;
            }
            self.calls.lock().unwrap().push((account.0, executor.0));
            let rows = self
                .sql
                .execute(
                    "UPDATE executors SET revoke_settled_at = nexus_now()
                      WHERE account_id = $1 AND executor_id = $2 AND revoke_settled_at IS NULL",
                    &[&account.0, &executor.0],
                )
                .await?;
            Ok(rows as usize)
        }
        .boxed()
    }
}

/// One contender, on a thread of its own so that freezing it freezes all of it.
struct Contender {
    id: Uuid,
    stop: CancellationToken,
    settled: Arc<Mutex<HashMap<(i64, i32), usize>>>,
    calls: Arc<Mutex<Vec<(i64, i64)>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Contender {
    #[allow(clippy::disallowed_methods, reason = "a replica's id")]
    fn start(scratch: &Scratch, ttl: Duration, disturb: Disturb) -> Self {
        let id = Uuid::now_v7();
        let stop = CancellationToken::new();
        let settled = Arc::default();
        let calls = Arc::default();
        let database = scratch.config(&[]).database;
        let scratch = Scratch2 {
            url: scratch.url.clone(),
        };
        let thread = {
            let (stop, settled, calls) = (stop.clone(), Arc::clone(&settled), Arc::clone(&calls));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let store = Store::new(&database).unwrap();
                    let expiry = Expiry {
                        sql: connect(&scratch.url).await,
                        disturb,
                        settled,
                        calls,
                        in_flight: Mutex::default(),
                    };
                    replicas::heartbeat(&store, id, "test", &["sweeper"], false)
                        .await
                        .unwrap();
                    Sweeper::new(store, Arc::new(expiry), id, Pace::new(ttl))
                        .run(stop)
                        .await;
                });
            })
        };
        Self {
            id,
            stop,
            settled,
            calls,
            thread: Some(thread),
        }
    }

    fn plain(scratch: &Scratch, ttl: Duration) -> Self {
        Self::start(scratch, ttl, Box::new(|_, _| Disturbance::None))
    }

    fn rows(&self) -> usize {
        self.settled.lock().unwrap().values().sum()
    }

    async fn stop(mut self) {
        self.stop.cancel();
        let thread = self.thread.take().unwrap();
        tokio::task::spawn_blocking(move || thread.join().unwrap())
            .await
            .unwrap();
    }
}

/// What a contender's thread needs of a scratch database.
struct Scratch2 {
    url: String,
}

/// Each of that many rows was settled, once, by whoever. The rows may be gone a moment before the
/// one who settled them has noted it.
async fn settled_once(contenders: &[&Contender], rows: usize) {
    eventually(TTL, "all noted", async || {
        contenders.iter().map(|c| c.rows()).sum::<usize>() >= rows
    })
    .await;
    assert_eq!(once(contenders), rows);
}

/// Each row was settled once, by whoever.
fn once(contenders: &[&Contender]) -> usize {
    let mut total: HashMap<(i64, i32), usize> = HashMap::new();
    for contender in contenders {
        for (row, times) in contender.settled.lock().unwrap().iter() {
            *total.entry(*row).or_default() += times;
        }
    }
    for (row, times) in &total {
        assert_eq!(*times, 1, "{row:?} was settled {times} times");
    }
    total.len()
}

const TTL: Duration = Duration::from_secs(1);

/// Runs whose public ids are their numbers.
async fn runs(scratch: &Scratch, account: i64, first: i64, n: i64, schedulable: bool) {
    let sql = format!(
        "INSERT INTO runs (account_id, run_id, public_id, workspace_id, creator_id, principal_id, status,
                           approval_mode, created_at, schedulable)
         SELECT {account}, r, lpad(to_hex(r), 32, '0')::uuid, 1, 1, 1, 'running', 'bypass', nexus_now(), {schedulable}
           FROM generate_series({first}::bigint, {first}::bigint + {n} - 1) r"
    );
    scratch.sql.batch_execute(&sql).await.unwrap();
}

/// Parks of `n` runs with `each` tasks, due since `ago`, as an SQL interval.
async fn parks(scratch: &Scratch, account: i64, first_run: i64, n: i64, each: i32, ago: &str) {
    runs(scratch, account, first_run, n, false).await;
    let sql = format!(
        "INSERT INTO parks (account_id, run_id, task_no, kind, deadline_at, due_at, timeout_ms,
                            replayable, generation, started_at, run_shard)
         SELECT {account}, r, t, 'tool_call', nexus_now() - interval '{ago}', nexus_now() - interval '{ago}',
                1000, true, 1, nexus_now() - interval '1 day', r % 64
           FROM generate_series({first_run}::bigint, {first_run}::bigint + {n} - 1) r,
                generate_series(1, {each}) t"
    );
    scratch.sql.batch_execute(&sql).await.unwrap();
}

async fn left(scratch: &Scratch, condition: &str) -> i64 {
    scratch
        .count(&format!("SELECT count(*) FROM parks WHERE {condition}"))
        .await
}

async fn holder(scratch: &Scratch) -> Option<Uuid> {
    scratch
        .sql
        .query_opt(
            "SELECT holder FROM sweeper_leases WHERE name = 'sweep:0' AND expires_at > nexus_now()",
            &[],
        )
        .await
        .unwrap()
        .map(|row| row.get(0))
}

fn store(scratch: &Scratch) -> Store {
    Store::new(&scratch.config(&[]).database).unwrap()
}

async fn forced(scratch: &Scratch, expiry: Expiry, sweep: &str) -> usize {
    sweeper(scratch, expiry)
        .force(sweep)
        .await
        .unwrap()
        .unwrap()
}

fn sweeper(scratch: &Scratch, expiry: Expiry) -> Sweeper {
    Sweeper::new(
        store(scratch),
        Arc::new(expiry),
        Uuid::nil(),
        Pace::new(TTL),
    )
}

// ------------------------------------------------------------------ statements

#[tokio::test]
async fn every_statement_prepares() {
    let scratch = Scratch::migrated().await;
    for sql in [
        leases::STATEMENTS,
        replicas::STATEMENTS,
        due::STATEMENTS,
        retention::STATEMENTS,
    ]
    .concat()
    {
        let prepared = scratch.sql.prepare_typed(sql.text, sql.types).await;
        assert!(prepared.is_ok(), "{}: {:?}", sql.name, prepared.err());
    }
    scratch.finish().await;
}

/// The plan of one of our statements, executed, as the server would choose it in the long run.
async fn plan(scratch: &Scratch, name: &str, arguments: &str, mode: &str) -> String {
    let find = |name: &str| *due::STATEMENTS.iter().find(|s| s.name == name).unwrap();
    let sql = find(name);
    let types: Vec<&str> = sql
        .types
        .iter()
        .map(tokio_postgres::types::Type::name)
        .collect();
    let prepare = format!(
        "DEALLOCATE ALL; BEGIN; {}; SET LOCAL plan_cache_mode = {mode}; PREPARE it ({}) AS {}",
        find("due.in_order").text,
        types.join(", "),
        sql.text
    );
    scratch.sql.batch_execute(&prepare).await.unwrap();
    let explain =
        format!("EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) EXECUTE it ({arguments})");
    let rows = scratch.sql.query(&explain, &[]).await.unwrap();
    scratch.sql.batch_execute("COMMIT").await.unwrap();
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    lines.join("\n")
}

const MODES: [&str; 2] = ["force_generic_plan", "force_custom_plan"];

#[tokio::test]
async fn a_page_of_due_parks_walks_the_due_index_and_stops_at_now() {
    let scratch = Scratch::migrated().await;
    // Many open, few due: with no statistics, with stale ones, with fresh ones.
    for (statistics, due) in [("SELECT 1", 10), ("ANALYZE parks", 20), ("SELECT 1", 5020)] {
        let n = i64::from(due);
        parks(&scratch, 1, 1_000_000 * n, 3000, 1, "-1 day").await;
        let more = n - left(&scratch, "due_at < nexus_now()").await;
        parks(&scratch, 1, 1_000_000 * n + 500_000, more, 1, "1 second").await;
        scratch.sql.batch_execute(statistics).await.unwrap();
        for mode in MODES {
            let plan = plan(&scratch, "due.parks", "NULL, 0, 1, 0, 256", mode).await;
            assert!(plan.contains("Index Scan using parks_due"), "{plan}");
            assert!(plan.contains("Index Cond: ((due_at <="), "{plan}");
            assert!(
                !plan.contains("Sort") && !plan.contains("Seq Scan"),
                "{plan}"
            );
            let read = format!("parks_due on parks (actual rows={} ", due.min(256));
            assert!(plan.contains(&read), "{plan}");
        }
    }
    scratch.finish().await;
}

#[tokio::test]
async fn owed_runs_are_found_without_reading_the_others() {
    let scratch = Scratch::migrated().await;
    // Statistics that say that every run is owed a pass, when hardly one is.
    scratch
        .sql
        .batch_execute("ALTER TABLE runs SET (autovacuum_enabled = off)")
        .await
        .unwrap();
    runs(&scratch, 1, 1, 20_000, true).await;
    scratch
        .sql
        .batch_execute("ANALYZE runs; UPDATE runs SET schedulable = false WHERE run_id % 5000 <> 0")
        .await
        .unwrap();
    for statistics in ["SELECT 1", "VACUUM runs", "ANALYZE runs"] {
        scratch.sql.batch_execute(statistics).await.unwrap();
        for mode in MODES {
            let last = i64::MAX.to_string();
            let arguments = format!("{last}, 1, 0, '{{}}', 256");
            let plan = plan(&scratch, "due.schedulable", &arguments, mode).await;
            assert_eq!(plan.matches("using runs_schedulable").count(), 3, "{plan}");
            assert!(
                !plan.contains("runs_pkey") && !plan.contains("Seq Scan"),
                "{plan}"
            );
            assert!(plan.starts_with("Limit (actual rows=4 "), "{plan}");
        }
    }
    scratch.finish().await;
}

// ------------------------------------------------------------------ the lease

#[tokio::test]
async fn a_lease_changes_hands_only_when_it_has_ended_and_its_token_rises() {
    let scratch = Scratch::migrated().await;
    let store = store(&scratch);
    let [a, b] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let ttl = Duration::from_secs(60);
    let mine = leases::acquire(&store, "sweep:0", a, ttl)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(mine.token, 1);
    // Not even by its holder: what it holds it renews.
    for who in [a, b] {
        let again = leases::acquire(&store, "sweep:0", who, ttl).await.unwrap();
        assert_eq!(again, None);
    }
    assert!(leases::renew(&store, &mine, ttl).await.unwrap());
    assert!(leases::fence(&store, &mine).await.unwrap().ours);
    leases::release(&store, &mine).await.unwrap();
    let theirs = leases::acquire(&store, "sweep:0", b, ttl)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(theirs.token, 2);
    assert!(!leases::renew(&store, &mine, ttl).await.unwrap());
    assert!(!leases::fence(&store, &mine).await.unwrap().ours);
    // A late release of the old one does not end the new one.
    leases::release(&store, &mine).await.unwrap();
    assert!(leases::renew(&store, &theirs, ttl).await.unwrap());
    // The same holder under an old token is not the holder (BR-027: renewal matched by name).
    let stale = leases::Grant {
        token: 1,
        ..theirs.clone()
    };
    assert!(!leases::renew(&store, &stale, ttl).await.unwrap());
    scratch.finish().await;
}

#[tokio::test]
async fn only_the_database_clock_ends_a_lease() {
    // BR-023: a lease is written and judged on one clock.
    let scratch = Scratch::migrated().await;
    let store = store(&scratch);
    let ttl = Duration::from_secs(60);
    let [a, b] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    leases::acquire(&store, "sweep:0", a, ttl).await.unwrap();
    scratch
        .sql
        .batch_execute(
            "CREATE OR REPLACE FUNCTION nexus_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
             $$ SELECT clock_timestamp() + (SELECT offset_ms FROM test_clock) * interval '1 millisecond' $$;
             UPDATE test_clock SET offset_ms = 61000",
        )
        .await
        .unwrap();
    let taken = leases::acquire(&store, "sweep:0", b, ttl).await.unwrap();
    assert_eq!(taken.map(|grant| grant.token), Some(2));
    scratch.finish().await;
}

#[tokio::test]
async fn a_stolen_lease_row_ends_the_leader_before_its_next_batch() {
    // BR-027.
    let scratch = Scratch::migrated().await;
    let leader = Contender::plain(&scratch, TTL);
    eventually(TTL, "a leader", async || holder(&scratch).await.is_some()).await;
    let thief = Uuid::from_u128(7);
    scratch
        .sql
        .execute(
            "UPDATE sweeper_leases SET holder = $1, token = token + 1, expires_at = nexus_now() + interval '1 hour'",
            &[&thief],
        )
        .await
        .unwrap();
    // A batch that had looked at its fence may end.
    tokio::time::sleep(TTL / 2).await;
    parks(&scratch, 1, 1, 50, 1, "1 second").await;
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(leader.rows(), 0, "the ex-leader settled on");
    assert_eq!(
        holder(&scratch).await,
        Some(thief),
        "the row is the thief's"
    );
    scratch
        .sql
        .batch_execute("UPDATE sweeper_leases SET expires_at = nexus_now()")
        .await
        .unwrap();
    eventually(2 * TTL, "settled by the next leader", async || {
        leader.rows() == 50
    })
    .await;
    assert_eq!(holder(&scratch).await, Some(leader.id));
    leader.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn a_leader_that_cannot_renew_stops_before_its_lease_ends() {
    // BR-027: belief must end by the leader's own clock, without any answer of the database.
    let scratch = Scratch::migrated().await;
    let leader = Contender::plain(&scratch, TTL);
    eventually(TTL, "a leader", async || holder(&scratch).await.is_some()).await;
    let mut other = connect(&scratch.url).await;
    let held = other.transaction().await.unwrap();
    held.execute("SELECT FROM sweeper_leases FOR UPDATE", &[])
        .await
        .unwrap();
    tokio::time::sleep(TTL * 8 / 10).await;
    parks(&scratch, 1, 1, 20, 1, "1 second").await;
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(leader.rows(), 0, "it began a batch past 8/10 of its time");
    held.rollback().await.unwrap();
    eventually(3 * TTL, "leading again", async || leader.rows() == 20).await;
    leader.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn a_leader_frozen_in_mid_pass_is_replaced_and_settles_nothing_when_it_wakes() {
    // BR-027, admission.md §11 check 8.
    let scratch = Scratch::migrated().await;
    parks(&scratch, 1, 1, 200, 1, "1 second").await;
    let calls = AtomicUsize::new(0);
    let frozen_for = 3 * TTL;
    let freeze = move |_, _| {
        if calls.fetch_add(1, Ordering::SeqCst) == 20 {
            Disturbance::Freezes(frozen_for)
        } else {
            Disturbance::None
        }
    };
    let frozen = Contender::start(&scratch, TTL, Box::new(freeze));
    eventually(TTL, "in mid-pass", async || frozen.rows() >= 10).await;
    let started = Instant::now();
    let next = Contender::plain(&scratch, TTL);
    eventually(2 * TTL, "a new leader", async || {
        holder(&scratch).await == Some(next.id)
    })
    .await;
    eventually(TTL, "the rest settled", async || {
        left(&scratch, "true").await == 0
    })
    .await;
    assert!(
        started.elapsed() < frozen_for,
        "while the old one stood still"
    );
    // The old one wakes with most of its batch in hand: one settle was under way, no other begins.
    let before = frozen.calls.lock().unwrap().len();
    tokio::time::sleep(frozen_for).await;
    let after = frozen.calls.lock().unwrap().len();
    assert!(
        after <= before + 1,
        "{before} to {after} settles after waking"
    );
    settled_once(&[&frozen, &next], 200).await;
    assert_eq!(holder(&scratch).await, Some(next.id));
    frozen.stop().await;
    next.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn elections_that_fail_neither_keep_a_belief_nor_end_the_loop() {
    // BR-027, BR-026.
    let scratch = Scratch::migrated().await;
    let leader = Contender::plain(&scratch, TTL);
    eventually(TTL, "a leader", async || holder(&scratch).await.is_some()).await;
    scratch
        .sql
        .batch_execute("ALTER TABLE sweeper_leases RENAME TO away")
        .await
        .unwrap();
    // A batch that had looked at its fence may end.
    tokio::time::sleep(TTL / 2).await;
    parks(&scratch, 1, 1, 20, 1, "1 second").await;
    tokio::time::sleep(3 * TTL).await;
    assert_eq!(leader.rows(), 0, "no batch without its fence");
    scratch
        .sql
        .batch_execute("ALTER TABLE away RENAME TO sweeper_leases")
        .await
        .unwrap();
    eventually(2 * TTL, "leading again", async || leader.rows() == 20).await;
    leader.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn a_leader_that_stops_hands_over_at_once() {
    let scratch = Scratch::migrated().await;
    // A lease so long that only giving it back explains the change.
    let ttl = Duration::from_secs(5);
    let first = Contender::plain(&scratch, ttl);
    eventually(ttl, "a leader", async || holder(&scratch).await.is_some()).await;
    let second = Contender::plain(&scratch, ttl);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let started = Instant::now();
    first.stop().await;
    eventually(ttl * 3 / 10, "the next leader", async || {
        holder(&scratch).await == Some(second.id)
    })
    .await;
    assert!(started.elapsed() <= ttl * 3 / 10, "{:?}", started.elapsed());
    second.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn a_leader_that_stops_ends_what_is_under_way_and_begins_nothing_new() {
    let scratch = Scratch::migrated().await;
    parks(&scratch, 1, 1, 100, 1, "1 second").await;
    let slow = |_, _| Disturbance::Takes(Duration::from_millis(300));
    let leader = Contender::start(&scratch, 10 * TTL, Box::new(slow));
    eventually(3 * TTL, "in mid-batch", async || {
        !leader.calls.lock().unwrap().is_empty()
    })
    .await;
    let (calls, settled) = (Arc::clone(&leader.calls), Arc::clone(&leader.settled));
    leader.stop().await;
    let begun = calls.lock().unwrap().len();
    let ended = settled.lock().unwrap().len();
    assert_eq!(begun, ended, "a settle was dropped on its way");
    assert!(begun <= 8, "{begun} settles begun");
    assert_eq!(left(&scratch, "true").await, 100 - begun as i64);
    scratch.finish().await;
}

#[tokio::test]
async fn two_leaders_are_harmless() {
    let scratch = Scratch::migrated().await;
    parks(&scratch, 1, 1, 150, 4, "1 second").await;
    // A leader, and two cycles that somebody forces meanwhile.
    let leader = Contender::plain(&scratch, TTL);
    let expiries = [Expiry::plain(&scratch).await, Expiry::plain(&scratch).await];
    let notes = [&expiries[0], &expiries[1]].map(|e| Arc::clone(&e.settled));
    let [a, b] = expiries;
    tokio::join!(forced(&scratch, a, "parks"), forced(&scratch, b, "parks"));
    eventually(5 * TTL, "all settled", async || {
        left(&scratch, "true").await == 0
    })
    .await;
    for note in &notes {
        for (row, times) in note.lock().unwrap().iter() {
            *leader.settled.lock().unwrap().entry(*row).or_default() += times;
        }
    }
    settled_once(&[&leader], 600).await;
    leader.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn partitions_spread_over_replicas_and_follow_a_new_division() {
    let scratch = Scratch::migrated().await;
    let store = store(&scratch);
    leases::set_partitions(&store, 4).await.unwrap();
    let contenders: Vec<Contender> = (0..3).map(|_| Contender::plain(&scratch, TTL)).collect();
    let held = async || {
        let rows = scratch
            .sql
            .query(
                "SELECT holder, count(*) FROM sweeper_leases
                  WHERE expires_at > nexus_now() GROUP BY holder",
                &[],
            )
            .await
            .unwrap();
        rows.iter().map(|r| r.get::<_, i64>(1)).collect::<Vec<_>>()
    };
    eventually(3 * TTL, "all partitions led, none by too few", async || {
        let held = held().await;
        // ceil(4 / 3) + 1
        held.iter().sum::<i64>() == 4 && held.iter().all(|n| *n <= 3)
    })
    .await;
    parks(&scratch, 1, 1, 256, 1, "1 second").await;
    eventually(5 * TTL, "settled by their partitions", async || {
        left(&scratch, "true").await == 0
    })
    .await;
    let all: Vec<&Contender> = contenders.iter().collect();
    settled_once(&all, 256).await;
    // A new division: leaders let go and stand anew; nothing is lost on the way.
    leases::set_partitions(&store, 2).await.unwrap();
    parks(&scratch, 1, 1001, 64, 1, "1 second").await;
    eventually(5 * TTL, "settled by two partitions", async || {
        left(&scratch, "true").await == 0
    })
    .await;
    eventually(3 * TTL, "two led", async || {
        held().await.iter().sum::<i64>() == 2
    })
    .await;
    for contender in contenders {
        contender.stop().await;
    }
    scratch.finish().await;
}

#[tokio::test]
async fn a_clock_that_steps_back_is_counted() {
    let scratch = Scratch::migrated().await;
    nexus::telemetry::metrics();
    scratch
        .sql
        .batch_execute(
            "CREATE OR REPLACE FUNCTION nexus_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
             $$ SELECT clock_timestamp() + (SELECT offset_ms FROM test_clock) * interval '1 millisecond' $$;",
        )
        .await
        .unwrap();
    let leader = Contender::plain(&scratch, TTL);
    eventually(3 * TTL, "a first look", async || {
        scratch
            .count("SELECT count(*) FROM sweeps WHERE name = 'parks/0'")
            .await
            > 0
    })
    .await;
    scratch
        .sql
        .batch_execute("UPDATE test_clock SET offset_ms = -1500")
        .await
        .unwrap();
    eventually(3 * TTL, "counted", async || {
        nexus::telemetry::metrics()
            .render()
            .contains("nexus_database_clock_steps_total")
    })
    .await;
    leader.stop().await;
    scratch.finish().await;
}

// ------------------------------------------------------------------ parks

#[tokio::test]
async fn a_page_of_rows_that_cannot_be_settled_hides_nobody() {
    // BR-025: 12,000 overdue rows of paused runs, and as many of runs for which nothing can be
    // done, before one live row of another account and one of the same.
    let scratch = Scratch::migrated().await;
    parks(&scratch, 1, 1, 12, 1000, "2 hours").await;
    scratch
        .sql
        .batch_execute("UPDATE parks SET clock_frozen = true")
        .await
        .unwrap();
    parks(&scratch, 1, 101, 12, 1000, "1 hour").await;
    let nothing = |_, run| {
        if run <= 112 {
            Disturbance::Nothing
        } else {
            Disturbance::None
        }
    };
    let leader = Contender::start(&scratch, 10 * TTL, Box::new(nothing));
    eventually(3 * TTL, "at work", async || {
        !leader.calls.lock().unwrap().is_empty()
    })
    .await;
    parks(&scratch, 2, 5001, 1, 1, "1 millisecond").await;
    parks(&scratch, 1, 6001, 1, 1, "1 millisecond").await;
    let took = eventually(2 * TTL, "the other account's row", async || {
        left(&scratch, "account_id = 2").await == 0
    })
    .await;
    println!("settled after {took:?}");
    eventually(10 * TTL, "the same account's row", async || {
        left(&scratch, "run_id = 6001").await == 0
    })
    .await;
    assert_eq!(left(&scratch, "true").await, 24_000);
    leader.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn one_accounts_backlog_delays_no_other_account() {
    // BR-051: 10,000 overdue rows of A and one of B.
    let scratch = Scratch::migrated().await;
    parks(&scratch, 1, 1, 10_000, 1, "1 hour").await;
    parks(&scratch, 2, 50_001, 1, 1, "1 millisecond").await;
    let expiry = Expiry::plain(&scratch).await;
    let calls = Arc::clone(&expiry.calls);
    let leader = sweeper(&scratch, expiry);
    leader.force("parks").await.unwrap();
    let turn = {
        let calls = calls.lock().unwrap();
        calls.iter().position(|(account, _)| *account == 2)
    };
    assert!(turn.is_some_and(|turn| turn <= 4), "{turn:?}");
    scratch.finish().await;
}

#[tokio::test]
async fn a_deadline_that_moved_later_leaves_the_page_and_held_rows_are_not_waited_for() {
    let scratch = Scratch::migrated().await;
    parks(&scratch, 1, 1, 600, 1, "1 hour").await;
    scratch
        .sql
        .batch_execute(
            "UPDATE parks SET deadline_at = nexus_now() + interval '1 hour' WHERE run_id <> 600",
        )
        .await
        .unwrap();
    let mut other = connect(&scratch.url).await;
    let held = other.transaction().await.unwrap();
    held.execute("SELECT FROM parks WHERE run_id = 3 FOR UPDATE", &[])
        .await
        .unwrap();
    let started = Instant::now();
    let rows = forced(&scratch, Expiry::plain(&scratch).await, "parks").await;
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "it waited for a held row"
    );
    assert_eq!(rows, 1, "the one that is due");
    assert_eq!(left(&scratch, "due_at = deadline_at").await, 598);
    assert_eq!(
        left(&scratch, "due_at < nexus_now() AND run_id = 3").await,
        1
    );
    held.rollback().await.unwrap();
    forced(&scratch, Expiry::plain(&scratch).await, "parks").await;
    assert_eq!(left(&scratch, "due_at = deadline_at").await, 599);
    scratch.finish().await;
}

#[tokio::test]
async fn paused_rows_are_never_looked_at() {
    let scratch = Scratch::migrated().await;
    parks(&scratch, 1, 1, 3, 2, "1 hour").await;
    scratch
        .sql
        .batch_execute("UPDATE parks SET clock_frozen = true WHERE run_id < 3")
        .await
        .unwrap();
    let expiry = Expiry::plain(&scratch).await;
    let calls = Arc::clone(&expiry.calls);
    assert_eq!(forced(&scratch, expiry, "parks").await, 2);
    assert_eq!(*calls.lock().unwrap(), [(1, 3)]);
    scratch.finish().await;
}

#[tokio::test]
async fn one_runs_error_or_panic_stops_neither_its_batch_nor_the_next_ones() {
    let scratch = Scratch::migrated().await;
    parks(&scratch, 1, 1, 20, 1, "1 hour").await;
    let disturb = |_, run| match run {
        5 => Disturbance::Fails,
        6 => Disturbance::Panics,
        _ => Disturbance::None,
    };
    let leader = Contender::start(&scratch, TTL, Box::new(disturb));
    eventually(3 * TTL, "the others settled", async || leader.rows() == 18).await;
    // One try a second; five, then none for a minute.
    let tries = || {
        let calls = leader.calls.lock().unwrap();
        calls.iter().filter(|(_, run)| *run == 5).count()
    };
    eventually(8 * TTL, "five tries", async || tries() == 5).await;
    tokio::time::sleep(3 * TTL).await;
    assert_eq!(tries(), 5, "it is left alone");
    leader.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn a_database_that_cuts_connections_in_mid_pass_strands_nothing() {
    // BR-026: 57P01 for every backend of the sweeper, again and again during a pass of 250 runs.
    let scratch = Scratch::migrated().await;
    let leader = Contender::start(
        &scratch,
        2 * TTL,
        Box::new(|_, _| Disturbance::Freezes(Duration::from_millis(2))),
    );
    eventually(TTL, "a leader", async || holder(&scratch).await.is_some()).await;
    parks(&scratch, 1, 1, 250, 1, "1 second").await;
    for _ in 0..8 {
        scratch
            .sql
            .batch_execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name = 'nexus'",
            )
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eventually(3 * TTL, "all settled within two periods", async || {
        left(&scratch, "true").await == 0
    })
    .await;
    settled_once(&[&leader], 250).await;
    leader.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn errors_that_give_way_are_tried_again() {
    // BR-026: 40P01 and 40001 out of a settle, and out of the page itself.
    let scratch = Scratch::migrated().await;
    scratch
        .sql
        .batch_execute(
            "CREATE SEQUENCE faults;
             CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF nextval('faults') <= 2 THEN
                     RAISE EXCEPTION 'chosen' USING ERRCODE = CASE WHEN currval('faults') = 1 THEN '40P01' ELSE '40001' END;
                 END IF;
                 RETURN OLD;
             END $$;
             CREATE TRIGGER faulty BEFORE DELETE ON parks FOR EACH ROW EXECUTE FUNCTION fail_twice();",
        )
        .await
        .unwrap();
    parks(&scratch, 1, 1, 1, 1, "1 second").await;
    let leader = Contender::plain(&scratch, TTL);
    eventually(5 * TTL, "settled at the third try", async || {
        leader.rows() == 1
    })
    .await;
    assert_eq!(leader.calls.lock().unwrap().len(), 3);
    leader.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn a_thousand_due_rows_of_one_run_are_settled_in_bounded_pieces() {
    let scratch = Scratch::migrated().await;
    parks(&scratch, 1, 1, 1, 1000, "1 second").await;
    let rows = forced(&scratch, Expiry::plain(&scratch).await, "parks").await;
    assert_eq!(rows, 1000);
    scratch.finish().await;
}

#[tokio::test]
async fn ten_thousand_rows_due_at_once_are_settled_once_each_on_four_partitions() {
    // admission.md §11 check 10, but for its ten seconds: those are the load test's to measure, on
    // a machine of its own.
    let scratch = Scratch::migrated().await;
    let store = store(&scratch);
    leases::set_partitions(&store, 4).await.unwrap();
    parks(&scratch, 1, 1, 2500, 4, "1 second").await;
    let contenders = [
        Contender::plain(&scratch, 2 * TTL),
        Contender::plain(&scratch, 2 * TTL),
    ];
    let took = eventually(Duration::from_secs(60), "all settled", async || {
        left(&scratch, "true").await == 0
    })
    .await;
    println!("settled in {took:?}");
    let [a, b] = contenders;
    settled_once(&[&a, &b], 10_000).await;
    a.stop().await;
    b.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn the_oldest_rows_are_settled_first() {
    // admission.md §11 check 9: after a time without sweepers the backlog drains oldest first.
    let scratch = Scratch::migrated().await;
    for (first, ago) in [(1, "1 minute"), (1001, "3 minutes"), (2001, "2 minutes")] {
        parks(&scratch, 1, first, 300, 1, ago).await;
    }
    let expiry = Expiry::plain(&scratch).await;
    let calls = Arc::clone(&expiry.calls);
    assert_eq!(forced(&scratch, expiry, "parks").await, 900);
    let order: Vec<i64> = calls.lock().unwrap().iter().map(|c| c.1 / 1000).collect();
    // Pages follow each other; within one, settles run beside each other.
    assert!(order[..256].iter().all(|age| *age == 1));
    assert!(order[900 - 256..].iter().all(|age| *age == 0));
    scratch.finish().await;
}

// ------------------------------------------------------------------ the other duties

#[tokio::test]
async fn runs_that_are_owed_a_pass_get_it_accounts_in_turn() {
    let scratch = Scratch::migrated().await;
    runs(&scratch, 1, 1, 1000, true).await;
    for account in 2..=100 {
        runs(&scratch, account, 10_000 + account, 1, true).await;
    }
    let expiry = Expiry::plain(&scratch).await;
    let calls = Arc::clone(&expiry.calls);
    let leader = sweeper(&scratch, expiry);
    leader.force("ready").await.unwrap();
    // 64 accounts a page: each other account is served within the first rotation.
    let last = {
        let calls = calls.lock().unwrap();
        (2..=100)
            .map(|a| calls.iter().position(|(account, _)| *account == a).unwrap())
            .max()
            .unwrap()
    };
    assert!(last < 64 + 64 + 99, "{last}");
    while leader.force("ready").await.unwrap() != Some(0) {}
    assert_eq!(
        scratch
            .count("SELECT count(*) FROM runs WHERE schedulable")
            .await,
        0
    );
    scratch.finish().await;
}

#[tokio::test]
async fn executors_that_leave_are_settled_each() {
    let scratch = Scratch::migrated().await;
    scratch
        .sql
        .batch_execute(
            "INSERT INTO executors (account_id, public_id, kind, manager_id, registration_identifier,
                                    assignment_scope, display_name, status, revoked_at)
             SELECT a, gen_random_uuid(), 'runner', 1, 'r' || i, 'account_wide', '',
                    CASE WHEN i < 4 THEN 'revoked' ELSE 'active' END,
                    CASE WHEN i < 4 THEN nexus_now() END
               FROM generate_series(1, 2) a, generate_series(1, 5) i",
        )
        .await
        .unwrap();
    let rows = forced(&scratch, Expiry::plain(&scratch).await, "revocations").await;
    assert_eq!(rows, 6);
    scratch.finish().await;
}

#[tokio::test]
async fn receipts_past_their_day_are_deleted_in_batches() {
    let scratch = Scratch::migrated().await;
    scratch
        .sql
        .batch_execute(
            "INSERT INTO receipts (account_id, door, scope_id, caller_id, key, fingerprint, body, created_at)
             SELECT 1, 'd', 1, 1, 'k' || i, '', '{}', nexus_now() - interval '24 hours' + i * interval '1 second'
               FROM generate_series(-2400, 99) i",
        )
        .await
        .unwrap();
    let rows = forced(&scratch, Expiry::plain(&scratch).await, "idempotency").await;
    assert!((2401..=2420).contains(&rows), "{rows}");
    let young = scratch.count("SELECT count(*) FROM receipts").await;
    assert_eq!(young, 2500 - rows as i64);
    scratch.finish().await;
}

/// `runs.md` §14: items older than thirty days, host by host, of many hosts and of one with more than a
/// batch; young ones stay, and the young end of an old host.
#[tokio::test]
async fn feed_items_past_thirty_days_are_deleted_in_batches() {
    let scratch = Scratch::migrated().await;
    scratch
        .sql
        .batch_execute(
            "INSERT INTO run_events (account_id, host_id, seq, type, payload, created_at)
             SELECT 1 + h % 2, h, n, 't', '{}', nexus_now() - CASE WHEN h % 3 = 0 THEN interval '29 days'
                    ELSE interval '30 days' - (n - 3) * interval '1 minute' END
               FROM generate_series(1, 3000) h, generate_series(1, 4) n;
             INSERT INTO run_events (account_id, host_id, seq, type, payload, created_at)
             SELECT 3, 1, n, 't', '{}', nexus_now() - interval '31 days' FROM generate_series(1, 12000) n",
        )
        .await
        .unwrap();
    let rows = forced(&scratch, Expiry::plain(&scratch).await, "events").await;
    assert_eq!(rows, 2000 * 3 + 12_000);
    let left = scratch.count("SELECT count(*) FROM run_events").await;
    assert_eq!(left, 1000 * 4 + 2000);
    scratch.finish().await;
}

#[tokio::test]
async fn unbound_uploads_go_with_their_bytes_and_bound_ones_stay() {
    let scratch = Scratch::migrated().await;
    scratch
        .sql
        .batch_execute(
            "INSERT INTO uploads (account_id, public_id, filename, content_type, byte_size, sha256, store, bound_at, created_at)
             SELECT 1, gen_random_uuid(), 'f', 'text/plain', 30000000, '', 'postgres',
                    CASE WHEN i > 6 THEN nexus_now() END,
                    nexus_now() - CASE WHEN i > 3 AND i <= 6 THEN interval '23 hours' ELSE interval '25 hours' END
               FROM generate_series(1, 9) i;
             INSERT INTO upload_chunks (account_id, upload_id, ordinal, bytes)
             SELECT account_id, upload_id, o, 'x' FROM uploads, generate_series(0, 2) o",
        )
        .await
        .unwrap();
    let rows = forced(&scratch, Expiry::plain(&scratch).await, "uploads").await;
    assert_eq!(rows, 3);
    assert_eq!(scratch.count("SELECT count(*) FROM uploads").await, 6);
    assert_eq!(
        scratch.count("SELECT count(*) FROM upload_chunks").await,
        18
    );
    scratch.finish().await;
}

#[tokio::test]
async fn tokens_dead_for_thirty_days_are_deleted_and_live_ones_are_not() {
    let scratch = Scratch::migrated().await;
    scratch
        .sql
        .batch_execute(
            "INSERT INTO tokens (account_id, lookup, salt, secret_hash, plane, member_id, credential_epoch, created_at, revoked_at, expires_at) VALUES
                (1, 'live',             '', '', 'member', 1, 2, nexus_now() - interval '90 days', NULL, NULL),
                (1, 'replaced-long',    '', '', 'member', 1, 1, nexus_now() - interval '99 days', NULL, NULL),
                (1, 'revoked-long',     '', '', 'member', 2, 1, nexus_now() - interval '99 days', nexus_now() - interval '31 days', NULL),
                (1, 'revoked-lately',   '', '', 'member', 2, 1, nexus_now() - interval '99 days', nexus_now() - interval '29 days', NULL),
                (1, 'expired-long',     '', '', 'member', 3, 1, nexus_now() - interval '99 days', NULL, nexus_now() - interval '31 days'),
                (1, 'expires-later',    '', '', 'member', 3, 1, nexus_now() - interval '99 days', NULL, nexus_now() + interval '1 day'),
                (1, 'replaced-lately',  '', '', 'member', 4, 1, nexus_now() - interval '99 days', NULL, NULL),
                (1, 'replacement',      '', '', 'member', 4, 2, nexus_now() - interval '1 day',   NULL, NULL);
             -- More than a window of live ones.
             INSERT INTO tokens (account_id, lookup, salt, secret_hash, plane, member_id, credential_epoch)
             SELECT 2, 'filler' || i, '', '', 'member', i, 1 FROM generate_series(1, 1200) i;
             INSERT INTO tokens (account_id, lookup, salt, secret_hash, plane, member_id, credential_epoch, revoked_at)
             VALUES (3, 'last', '', '', 'member', 1, 1, nexus_now() - interval '31 days');
             INSERT INTO operator_tokens (lookup, salt, secret_hash, revoked_at)
             VALUES ('old', '', '', nexus_now() - interval '31 days'), ('new', '', '', NULL)",
        )
        .await
        .unwrap();
    let rows = forced(&scratch, Expiry::plain(&scratch).await, "credentials").await;
    assert_eq!(rows, 5);
    let rows = scratch
        .sql
        .query(
            "SELECT lookup FROM tokens WHERE account_id <> 2 ORDER BY lookup",
            &[],
        )
        .await
        .unwrap();
    let kept: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
    assert_eq!(
        kept,
        [
            "expires-later",
            "live",
            "replaced-lately",
            "replacement",
            "revoked-lately"
        ]
    );
    scratch.finish().await;
}

#[tokio::test]
async fn silent_replicas_are_forgotten() {
    let scratch = Scratch::migrated().await;
    let store = store(&scratch);
    replicas::heartbeat(&store, Uuid::from_u128(1), "1", &["api"], false)
        .await
        .unwrap();
    scratch
        .sql
        .batch_execute(
            "INSERT INTO replicas VALUES (gen_random_uuid(), '1', '{api}', nexus_now() - interval '11 minutes'),
                                         (gen_random_uuid(), '1', '{api}', nexus_now() - interval '9 minutes')",
        )
        .await
        .unwrap();
    let rows = forced(&scratch, Expiry::plain(&scratch).await, "replicas").await;
    assert_eq!(rows, 1);
    assert_eq!(replicas::list(&store).await.unwrap().len(), 2);
    scratch.finish().await;
}

#[tokio::test]
async fn deletes_rest_while_settling_lags() {
    let scratch = Scratch::migrated().await;
    // A backlog an hour old that takes a while, and receipts that are long due.
    parks(&scratch, 1, 1, 300, 1, "1 hour").await;
    scratch
        .sql
        .batch_execute(
            "INSERT INTO receipts (account_id, door, scope_id, caller_id, key, fingerprint, body, created_at)
             SELECT 1, 'd', 1, 1, 'k' || i, '', '{}', nexus_now() - interval '2 days' FROM generate_series(1, 5000) i",
        )
        .await
        .unwrap();
    let slow = AtomicBool::new(true);
    let slow = Arc::new(slow);
    let disturb = {
        let slow = Arc::clone(&slow);
        move |_, _| {
            if slow.load(Ordering::SeqCst) {
                Disturbance::Nothing
            } else {
                Disturbance::None
            }
        }
    };
    let leader = Contender::start(&scratch, 5 * TTL, Box::new(disturb));
    // The first batch of deletes may come before the first lag is known; not the second.
    eventually(3 * TTL, "the backlog was met", async || {
        leader.calls.lock().unwrap().len() >= 600
    })
    .await;
    let receipts = scratch.count("SELECT count(*) FROM receipts").await;
    assert!(receipts >= 3000, "{receipts}: deletes did not rest");
    slow.store(false, Ordering::SeqCst);
    eventually(15 * TTL, "both done", async || {
        left(&scratch, "true").await == 0
            && scratch.count("SELECT count(*) FROM receipts").await == 0
    })
    .await;
    leader.stop().await;
    scratch.finish().await;
}

#[tokio::test]
async fn work_outside_a_partition_is_left_to_its_owner() {
    let scratch = Scratch::migrated().await;
    parks(&scratch, 1, 0, 64, 1, "1 second").await;
    let store = store(&scratch);
    let part = Part { index: 3, of: 4 };
    let page = due::parks(&store, part, None, 256).await.unwrap();
    assert_eq!(page.len(), 16);
    assert!(page.iter().all(|p| p.run.0 % 4 == 3));
    assert!(Hold::unbounded().stands());
    scratch.finish().await;
}

/// `architecture.md` §7: a due row settles in time whatever the other duties do. Here every settle of
/// executors that leave hangs, and there are more of them than a batch has places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hangs_in_one_duty_delays_no_other() {
    const HANGS: i64 = 2;
    let scratch = Scratch::migrated().await;
    scratch
        .sql
        .batch_execute(&format!(
            "INSERT INTO executors (account_id, public_id, kind, manager_id, registration_identifier,
                                    assignment_scope, display_name, status, revoked_at)
             SELECT {HANGS}, gen_random_uuid(), 'runner', 1, 'r' || i, 'account_wide', '', 'revoked', nexus_now()
               FROM generate_series(1, 300) i"
        ))
        .await
        .unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let hangs: Disturb = {
        let begun = begun.clone();
        Box::new(move |account, _| {
            if account.0 == HANGS {
                begun.fetch_add(1, Ordering::SeqCst);
                Disturbance::Takes(Duration::from_secs(60))
            } else {
                Disturbance::None
            }
        })
    };
    let contender = Contender::start(&scratch, TTL, hangs);
    eventually(TTL * 5, "revocations hang", async || {
        begun.load(Ordering::SeqCst) > 0
    })
    .await;
    parks(&scratch, 1, 1, 1, 1, "0 seconds").await;
    runs(&scratch, 1, 1000, 1, true).await;
    let took = eventually(Duration::from_secs(15), "the park is settled", async || {
        left(&scratch, "true").await == 0
    })
    .await;
    eventually(Duration::from_secs(15), "the run is started", async || {
        let owed = "SELECT count(*) FROM runs WHERE schedulable";
        scratch.count(owed).await == 0
    })
    .await;
    println!("beside revocations that hang, a due park was settled after {took:?}");
    contender.stop().await;
    scratch.finish().await;
}

/// The same with the real commands on two replicas: an executor with 20,000 addressed rows is revoked,
/// and another's row comes due meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_due_row_is_settled_in_time_beside_a_revocation_of_20_000_rows() {
    let app = TestApp::with()
        .replicas(2)
        .set("NEXUS_ROLES", "api,sweeper")
        .start()
        .await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let other = executor(&sql, world.account, "runner", world.human.id, "other").await;
    seed::serve(&sql, world.account, &other, "echo", seed::READ_ONLY, None).await;
    for _ in 0..20 {
        world.wide_run(&app, &sql, 1000).await;
    }
    let step = json!({"tool": {"key": "a", "name": "echo", "input": {},
        "route": {"kind": "runner", "runner_executor_public_id": other.public_id.to_string()}}});
    let run = world.run(&app, json!([step])).await;
    let revoke = format!(
        "/operator_api/v1/executors/{}/revoke",
        world.runner.public_id
    );
    app.command(&revoke, OPERATOR).await.ok(200);
    let backlog = format!(
        "SELECT count(*) FROM parks WHERE executor_id = {}",
        world.runner.id
    );
    fleet::until("the revocation is under way", || async {
        fleet::number(&sql, &backlog).await < 20_000
    })
    .await;
    let due =
        "UPDATE parks SET deadline_at = nexus_now(), due_at = nexus_now() WHERE executor_id = $1";
    assert_eq!(sql.execute(due, &[&other.id]).await.unwrap(), 1);
    let path = format!("{}/{run}/tasks/a", world.runs());
    let took = eventually(
        Duration::from_secs(15),
        "the due row is settled",
        async || {
            let task = app.get(&path, &world.human.token).await.ok(200);
            text(&task, "task.status") == "failed" || text(&task, "task.status") == "timed_out"
        },
    )
    .await;
    let left = fleet::number(&sql, &backlog).await;
    println!("a due row was settled after {took:?} beside {left} rows of a revoked executor");
    assert!(left > 0, "the revocation was still under way");
    drop(sql);
    app.finish().await;
}
