//! The denominators (`architecture.md` §9), without HTTP, through the driver that the server uses, on
//! the server's own schema and rows:
//!
//! - `limit/minimal`: one lifecycle at a time and connection. Three round trips: the claim (one guarded
//!   UPDATE); BEGIN and the run's lock; settle the task, end its park, count down on the run, one
//!   event, COMMIT. Between the last two a server decides, so they are no one batch. It writes no
//!   result body and looks nothing up: less than any kernel could do;
//! - `limit/batched`: the same statements over arrays, `batch` separate runs a transaction, as the
//!   server's lanes send theirs;
//! - `limit/commands`: the server's own commands in this process, its real statements and decisions
//!   in the batches that form by themselves: what it would do if HTTP cost nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::future::{try_join, try_join5};
use nexus::app::App;
use nexus::client::words::ExecutorKind;
use nexus::commands;
use nexus::config::{Config, Source};
use nexus::domain::json::Value;
use nexus::domain::{AccountId, ExecutorId, PublicId};
use nexus::store::credentials::ExecutorCaller;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::{Size, content, row};
use crate::check::{self, Checks, Grants};
use crate::error::Error;
use crate::measure::{self, Seen, Work};
use crate::report::Finding;
use crate::seed::Database;
use crate::world::{Target, World};

const CLAIM: &str = "UPDATE parks SET claim_digest = $4, claimant_id = $5, claimed_at = nexus_now(),
        deadline_at = nexus_now() + timeout_ms * interval '1 millisecond'
  WHERE account_id = $1 AND run_id = $2 AND task_no = $3 AND claimed_at IS NULL RETURNING generation";
const LOCK: &str = "WITH r AS MATERIALIZED (SELECT status, settle_seq, event_seq FROM runs
        WHERE account_id = $1 AND run_id = $2 FOR NO KEY UPDATE) SELECT nexus_now(), r.* FROM r";
const SETTLE: &str =
    "UPDATE tasks SET status = 'completed', settle_seq = $4, completed_at = nexus_now(),
        claim_digest = $5, claimed_by_id = $6, claimed_at = nexus_now()
  WHERE account_id = $1 AND run_id = $2 AND task_no = $3";
const UNPARK: &str = "DELETE FROM parks WHERE account_id = $1 AND run_id = $2 AND task_no = $3";
const COUNT: &str =
    "UPDATE runs SET n_open = n_open - 1, n_started = n_started - 1, settle_seq = settle_seq + 1,
        event_seq = event_seq + 1, status = 'completed', completed_at = nexus_now()
  WHERE account_id = $1 AND run_id = $2";
const EVENT: &str = "INSERT INTO run_events (account_id, host_id, seq, type, payload, created_at)
  VALUES ($1, $2, $3, 'task_status', $4, nexus_now())";

const CLAIM_MANY: &str = "UPDATE parks p SET claim_digest = $3, claimant_id = $4, claimed_at = nexus_now(),
        deadline_at = nexus_now() + p.timeout_ms * interval '1 millisecond'
   FROM unnest($2::bigint[]) AS v(run_id)
  WHERE p.account_id = $1 AND p.run_id = v.run_id AND p.task_no = 1 AND p.claimed_at IS NULL RETURNING p.generation";
const LOCK_MANY: &str =
    "WITH r AS MATERIALIZED (SELECT r.run_id, r.status, r.settle_seq, r.event_seq
        FROM unnest($2::bigint[]) AS v(run_id)
       CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = $1 AND r.run_id = v.run_id
              FOR NO KEY UPDATE SKIP LOCKED) r)
  SELECT nexus_now(), r.* FROM r";
const SETTLE_MANY: &str =
    "UPDATE tasks t SET status = 'completed', settle_seq = v.seq, completed_at = nexus_now(),
        claim_digest = $4, claimed_by_id = $5, claimed_at = nexus_now()
   FROM unnest($2::bigint[], $3::int[]) AS v(run_id, seq)
  WHERE t.account_id = $1 AND t.run_id = v.run_id AND t.task_no = 1";
const UNPARK_MANY: &str = "DELETE FROM parks p USING unnest($2::bigint[]) AS v(run_id)
  WHERE p.account_id = $1 AND p.run_id = v.run_id AND p.task_no = 1";
const COUNT_MANY: &str = "UPDATE runs r SET n_open = r.n_open - 1, n_started = r.n_started - 1,
        settle_seq = r.settle_seq + 1, event_seq = r.event_seq + 1, status = 'completed', completed_at = nexus_now()
   FROM unnest($2::bigint[]) AS v(run_id) WHERE r.account_id = $1 AND r.run_id = v.run_id";
const EVENT_MANY: &str = "INSERT INTO run_events (account_id, host_id, seq, type, payload, created_at)
  SELECT $1, v.run_id, v.seq, 'task_status', $4, nexus_now() FROM unnest($2::bigint[], $3::bigint[]) AS v(run_id, seq)";

/// An event as long as the server's.
const PAYLOAD: &str = r#"{"task_key":"call","kind":"tool_task","status":"completed","generation":0,"revision":1,"claimed_by":"0193b1c0-0000-7000-8000-000000000000"}"#;

const DIGEST: &[u8] = &[7; 32];

/// Rows of one call each, by inner ids.
struct Rows {
    account: i64,
    executor: i64,
    runs: Vec<i64>,
    public: Vec<Arc<str>>,
    world: World,
}

async fn rows(target: &Target, units: usize) -> Result<(Arc<Rows>, Database), Error> {
    let database = target.database("the limit").await?;
    let world = World::provision(target, ExecutorKind::Runner, 1).await?;
    let public = super::lifecycle::runs(&world, units).await?;
    let account = database.account(&world.account).await?;
    let found = database
        .client
        .query(
            "SELECT run_id FROM parks WHERE account_id = $1 ORDER BY run_id",
            &[&account],
        )
        .await?;
    let executor = database
        .client
        .query_one(
            "SELECT executor_id FROM executors WHERE account_id = $1",
            &[&account],
        )
        .await?
        .get(0);
    let rows = Rows {
        account,
        executor,
        runs: found.iter().map(|row| row.get(0)).collect(),
        public,
        world,
    };
    Ok((Arc::new(rows), database))
}

fn broken(what: &str) -> Error {
    Error::Setup(format!(
        "the limit met a row that it did not expect: {what}"
    ))
}

struct Minimal {
    claim: Statement,
    begin: Statement,
    lock: Statement,
    settle: Statement,
    unpark: Statement,
    count: Statement,
    event: Statement,
    commit: Statement,
}

impl Minimal {
    async fn prepare(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            claim: client.prepare(CLAIM).await?,
            begin: client.prepare("BEGIN").await?,
            lock: client.prepare(LOCK).await?,
            settle: client.prepare(SETTLE).await?,
            unpark: client.prepare(UNPARK).await?,
            count: client.prepare(COUNT).await?,
            event: client.prepare(EVENT).await?,
            commit: client.prepare("COMMIT").await?,
        })
    }

    async fn claim(&self, client: &Client, rows: &Rows, run: i64) -> Result<(), Error> {
        let granted = client
            .query(
                &self.claim,
                &[&rows.account, &run, &1i32, &DIGEST, &rows.executor],
            )
            .await?;
        if granted.len() == 1 {
            Ok(())
        } else {
            Err(broken("claimed already"))
        }
    }

    async fn settle(&self, client: &Client, rows: &Rows, run: i64) -> Result<(), Error> {
        let account = &rows.account;
        // Joined statements are sent in this order, without waiting for each other.
        let (_, locked) = try_join(
            client.execute(&self.begin, &[]),
            client.query(&self.lock, &[account, &run]),
        )
        .await?;
        let locked = locked.first().ok_or_else(|| broken("no run"))?;
        let (settle, event) = (locked.get::<_, i32>(2) + 1, locked.get::<_, i64>(3) + 1);
        try_join5(
            client.execute(
                &self.settle,
                &[account, &run, &1i32, &settle, &DIGEST, &rows.executor],
            ),
            client.execute(&self.unpark, &[account, &run, &1i32]),
            client.execute(&self.count, &[account, &run]),
            client.execute(&self.event, &[account, &run, &event, &PAYLOAD]),
            client.execute(&self.commit, &[]),
        )
        .await?;
        Ok(())
    }
}

/// One lifecycle at a time on each of `connections`.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn minimal(target: &Target, size: Size, connections: usize) -> Result<Finding, Error> {
    let (rows, database) = rows(target, size.units).await?;
    let url = target.database.clone().unwrap_or_default();
    let work = Work::new(size.load(size.units));
    let runners = (0..connections).map(|_| {
        let (work, rows, url) = (work.clone(), rows.clone(), url.clone());
        async move {
            let client = Database::connect(&url).await?.client;
            let (sql, mut seen) = (Minimal::prepare(&client).await?, Seen::default());
            while let Some(unit) = work.next().await {
                let run = rows.runs[unit.no];
                sql.claim(&client, &rows, run).await?;
                seen.took("claim", unit.due, unit);
                let at = Instant::now();
                sql.settle(&client, &rows, run).await?;
                seen.took("commit", at, unit);
                seen.took("both", unit.due, unit);
                work.done(unit, 1, &mut seen);
            }
            Ok(seen)
        }
    });
    let name = if connections == 1 {
        "limit/alone".to_owned()
    } else {
        format!("limit/minimal-{connections}")
    };
    let outcome = measure::run(&name, work.clone(), runners).await?;
    let mut finding = Finding::of(name, "lifecycles", outcome);
    finding.checks = settled(&database, &rows).await?;
    Ok(finding)
}

/// `batch` lifecycles a transaction on each of `connections`.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn batched(
    target: &Target,
    size: Size,
    connections: usize,
    batch: usize,
) -> Result<Finding, Error> {
    let (rows, database) = rows(target, size.units).await?;
    let url = target.database.clone().unwrap_or_default();
    let work = Work::new(size.load(size.units));
    let given = Arc::new(AtomicUsize::new(0));
    let runners = (0..connections).map(|_| {
        let (work, rows, url, given) = (work.clone(), rows.clone(), url.clone(), given.clone());
        async move {
            let client = Database::connect(&url).await?.client;
            let mut seen = Seen::default();
            let claim = client.prepare(CLAIM_MANY).await?;
            let begin = client.prepare("BEGIN").await?;
            let lock = client.prepare(LOCK_MANY).await?;
            let settle = client.prepare(SETTLE_MANY).await?;
            let unpark = client.prepare(UNPARK_MANY).await?;
            let count = client.prepare(COUNT_MANY).await?;
            let event = client.prepare(EVENT_MANY).await?;
            let commit = client.prepare("COMMIT").await?;
            let account = &rows.account;
            loop {
                let from = given.fetch_add(batch, Ordering::Relaxed);
                let runs = rows.runs.iter().skip(from).take(batch).copied();
                let runs: Vec<i64> = runs.collect();
                let Some(unit) = work.take(runs.len()).await else {
                    return Ok(seen);
                };
                let at = Instant::now();
                let granted = client
                    .query(&claim, &[account, &runs, &DIGEST, &rows.executor])
                    .await?;
                seen.took("claims", at, unit);
                let at = Instant::now();
                let (_, locked) = try_join(
                    client.execute(&begin, &[]),
                    client.query(&lock, &[account, &runs]),
                )
                .await?;
                if granted.len() != runs.len() || locked.len() != runs.len() {
                    return Err(broken("a batch is not whole"));
                }
                let ids: Vec<i64> = locked.iter().map(|r| r.get(1)).collect();
                let settles: Vec<i32> = locked.iter().map(|r| r.get::<_, i32>(3) + 1).collect();
                let events: Vec<i64> = locked.iter().map(|r| r.get::<_, i64>(4) + 1).collect();
                try_join5(
                    client.execute(&settle, &[account, &ids, &settles, &DIGEST, &rows.executor]),
                    client.execute(&unpark, &[account, &ids]),
                    client.execute(&count, &[account, &ids]),
                    client.execute(&event, &[account, &ids, &events, &PAYLOAD]),
                    client.execute(&commit, &[]),
                )
                .await?;
                seen.took("commits", at, unit);
                work.done(unit, runs.len(), &mut seen);
            }
        }
    });
    let outcome = measure::run("limit/batched", work.clone(), runners).await?;
    let name = format!("limit/batched-{connections}x{batch}");
    let mut finding = Finding::of(name, "lifecycles", outcome);
    finding.checks = settled(&database, &rows).await?;
    Ok(finding)
}

/// That every row was settled; its results are not written here.
async fn settled(database: &Database, rows: &Rows) -> Result<Checks, Error> {
    let found = database
        .client
        .query(
            "SELECT 'run ' || r.run_id || ' is ' || r.status FROM runs r WHERE r.account_id = $1
                AND (r.status <> 'completed' OR r.n_open <> 0 OR r.event_seq <> (SELECT count(*) FROM run_events e
                     WHERE e.account_id = r.account_id AND e.host_id = r.run_id)
                     OR EXISTS (SELECT FROM parks p WHERE p.account_id = r.account_id AND p.run_id = r.run_id)
                     OR EXISTS (SELECT FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                   AND t.status <> 'completed')) LIMIT 5",
            &[&rows.account],
        )
        .await?;
    let breaches = found.iter().map(|row| row.get(0)).collect();
    Ok(Checks::from([("each row is settled".to_owned(), breaches)]))
}

/// The server's commands in this process: `size.runners` callers, each claiming and committing one
/// call at a time.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn commands(target: &Target, size: Size) -> Result<Finding, Error> {
    let (rows, _) = rows(target, size.units).await?;
    let url = target.database.clone().unwrap_or_default();
    let source = Source::of([("NEXUS_DATABASE_URL".to_owned(), url)]);
    let unusable = |e: nexus::config::Error| Error::Setup(e.to_string());
    let config = Config::from_source(&source).map_err(unusable)?;
    let app = App::new(config).map_err(unusable)?;
    let id: Uuid = rows.world.executors[0]
        .id
        .parse()
        .map_err(|_| broken("an executor's id"))?;
    let caller = ExecutorCaller {
        account: AccountId(rows.account),
        id: ExecutorId(rows.executor),
        public_id: PublicId(id),
        kind: nexus::domain::words::ExecutorKind::Runner,
        epoch: 1,
        token_id: 0,
    };
    let work = Work::new(size.load(size.units));
    let grants = Arc::new(Grants::default());
    let runners = (0..size.runners).map(|_| {
        let (work, rows, app) = (work.clone(), rows.clone(), app.clone());
        let (caller, grants) = (caller.clone(), grants.clone());
        async move {
            let mut seen = Seen::default();
            while let Some(unit) = work.next().await {
                let row = row(&rows.public[unit.no], "call");
                let run: PublicId = row.run.parse().map_err(|_| broken("a run's id"))?;
                let key = row.key.parse().map_err(|_| broken("a key"))?;
                let claimed = commands::claim::claim(&app, caller.clone(), run, key, None).await;
                let claimed = claimed.map_err(|e| broken(&format!("{e:?}")))?;
                grants.granted(row.clone());
                seen.took("claim", unit.due, unit);
                let at = Instant::now();
                let body = Value::from([("content", content(&row).into())]);
                let Value::Object(body) = body else {
                    return Err(broken("a body"));
                };
                let key = row.key.parse().map_err(|_| broken("a key"))?;
                let token = Some(claimed.token.as_str());
                let entry = commands::commit::Entry {
                    run,
                    key,
                    token,
                    body: &body,
                };
                commands::commit::commit(&app, &caller, entry)
                    .await
                    .map_err(|e| broken(&format!("{e:?}")))?;
                seen.took("commit", at, unit);
                work.done(unit, 1, &mut seen);
            }
            Ok(seen)
        }
    });
    let outcome = measure::run("limit/commands", work.clone(), runners).await?;
    let mut finding = Finding::of("limit/commands", "lifecycles", outcome);
    finding.checks = check::world(&rows.world, &rows.public).await?;
    grants.check(rows.public.len(), &mut finding.checks);
    Ok(finding)
}
