//! What must hold when a scenario is over (`architecture.md` §8, §9): whoever measures a wrong answer
//! measures nothing.
//!
//! Through the database every row of the scenario's account is read; without one a sample of its runs
//! is read through the API, and the finding says how many.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use crate::error::Error;
use crate::world::{Row, World};

/// Breaches by the name of what should hold.
pub type Checks = BTreeMap<String, Vec<String>>;

/// How many breaches of one kind are told.
const TOLD: i64 = 5;

/// Grants as the runners were answered them.
#[derive(Default)]
pub struct Grants(Mutex<HashMap<Row, u32>>);

impl Grants {
    /// That this row was granted.
    pub fn granted(&self, row: Row) {
        let mut all = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *all.entry(row).or_default() += 1;
    }

    /// `each row is granted once`, over `rows`: neither twice nor never.
    pub fn check(&self, expected: usize, checks: &mut Checks) {
        let all = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut breaches: Vec<String> = all
            .iter()
            .filter(|(_, n)| **n != 1)
            .take(TOLD as usize)
            .map(|(row, n)| format!("{}/{} was granted {n} times", row.run, row.key))
            .collect();
        if all.len() != expected {
            breaches.push(format!("{} rows were granted, of {expected}", all.len()));
        }
        checks.insert("each row is granted once".to_owned(), breaches);
    }
}

/// Name and statement: one text column, a row for each breach; `$1` is the account.
const DATABASE: [(&str, &str); 8] = [
    (
        "each run ended",
        "SELECT 'run ' || public_id || ' is ' || status FROM runs
          WHERE account_id = $1 AND status NOT IN ('completed', 'canceled')",
    ),
    (
        "each follower was reached",
        "SELECT 'task ' || run_id || '/' || key || ' is ' || status FROM tasks
          WHERE account_id = $1 AND completed_at IS NULL
          UNION ALL
         SELECT 'edge ' || run_id || '/' || from_no || '-' || to_no || ' is open' FROM edges
          WHERE account_id = $1 AND state = 'open'",
    ),
    (
        "nothing is parked",
        "SELECT 'park ' || run_id || '/' || task_no FROM parks WHERE account_id = $1",
    ),
    (
        "each result is stored once, of its own row",
        "SELECT 'task ' || t.run_id || '/' || t.key || ' has ' || x.n || ' results, ' || x.own || ' its own' FROM tasks t
           JOIN runs r ON (r.account_id, r.run_id) = (t.account_id, t.run_id)
          CROSS JOIN LATERAL (SELECT count(*) AS n,
                    count(*) FILTER (WHERE position('did ' || r.public_id || '/' || t.key || ' ' IN x.content) > 0) AS own
                   FROM task_results x
                  WHERE (x.account_id, x.run_id, x.task_no) = (t.account_id, t.run_id, t.task_no)) x
          WHERE t.account_id = $1 AND t.kind = 'tool_task'
            AND (x.n, x.own) IS DISTINCT FROM ((t.status = 'completed')::int, (t.status = 'completed')::int)",
    ),
    (
        "each settled call was claimed",
        "SELECT 'task ' || run_id || '/' || key FROM tasks
          WHERE account_id = $1 AND kind = 'tool_task' AND status = 'completed' AND claimed_by_id IS NULL",
    ),
    (
        "feeds are contiguous",
        "SELECT 'run ' || r.public_id || ' ends at ' || r.event_seq || ', its feed has ' || e.n || ' up to ' || coalesce(e.high, 0)
           FROM runs r CROSS JOIN LATERAL (SELECT count(*) AS n, min(seq) AS low, max(seq) AS high FROM run_events e
                WHERE e.account_id = r.account_id AND e.host_id = r.run_id) e
          WHERE r.account_id = $1 AND (e.n, coalesce(e.low, 1), coalesce(e.high, 0)) IS DISTINCT FROM (r.event_seq, 1, r.event_seq)",
    ),
    (
        "each settle is numbered once",
        "SELECT 'run ' || run_id || ' settle ' || settle_seq FROM tasks WHERE account_id = $1 AND settle_seq IS NOT NULL
          GROUP BY account_id, run_id, settle_seq HAVING count(*) > 1",
    ),
    (
        "counters are zero where nothing is open",
        "SELECT 'run ' || public_id FROM runs WHERE account_id = $1
            AND (n_open, n_ready, n_started, n_approval, n_unresolved) IS DISTINCT FROM (0, 0, 0, 0, 0)",
    ),
];

/// Checks the whole account.
///
/// # Errors
/// When it cannot be read; a breach is no error.
pub async fn world(world: &World, runs: &[std::sync::Arc<str>]) -> Result<Checks, Error> {
    match &world.target.database {
        Some(_) => {
            let database = world.target.database("a check").await?;
            account(&database, &world.account).await
        }
        None => sample(world, runs).await,
    }
}

async fn account(database: &crate::seed::Database, account: &str) -> Result<Checks, Error> {
    let id = database.account(account).await?;
    let mut checks = Checks::new();
    for (name, sql) in DATABASE {
        let sql = format!("{sql} LIMIT {TOLD}");
        let rows = database.client.query(&sql, &[&id]).await?;
        let breaches = rows.iter().map(|row| row.get(0)).collect();
        checks.insert(name.to_owned(), breaches);
    }
    Ok(checks)
}

#[derive(serde::Deserialize)]
struct Shown {
    run: ShownRun,
}

#[derive(serde::Deserialize)]
struct ShownRun {
    status: String,
    tasks: Vec<ShownTask>,
}

#[derive(serde::Deserialize)]
struct ShownTask {
    key: String,
    status: String,
}

async fn sample(world: &World, runs: &[std::sync::Arc<str>]) -> Result<Checks, Error> {
    const SAMPLE: usize = 500;
    let client = nexus::client::Client::new(world.target.url(0), &world.human.token)?;
    let mut conn = world.member(0)?;
    let (mut ended, mut reached, mut feeds) = (Vec::new(), Vec::new(), Vec::new());
    for run in runs.iter().take(SAMPLE) {
        let shown: Shown = conn.get(&format!("{}/{run}", world.runs())).await?.read()?;
        if !["completed", "canceled"].contains(&shown.run.status.as_str()) {
            ended.push(format!("run {run} is {}", shown.run.status));
        }
        let open = ["waiting", "dispatched", "running", "awaiting_input"];
        reached.extend(
            shown
                .run
                .tasks
                .iter()
                .filter(|t| open.contains(&t.status.as_str()))
                .map(|t| format!("task {run}/{} is {}", t.key, t.status)),
        );
        feeds.extend(gap(&client, world, run).await?);
    }
    let read = runs.len().min(SAMPLE);
    let name = |what: &str| format!("{what} ({read} of {} runs read)", runs.len());
    Ok(Checks::from([
        (name("each run ended"), ended),
        (name("each follower was reached"), reached),
        (name("feeds are contiguous"), feeds),
    ]))
}

/// The first gap in a run's feed.
async fn gap(
    client: &nexus::client::Client,
    world: &World,
    run: &str,
) -> Result<Option<String>, Error> {
    let mut after: Option<String> = None;
    let mut due = 1u64;
    loop {
        let page = client
            .events(&world.workspace, run, after.as_deref(), Some(200))
            .await?
            .value;
        for event in &page.events {
            if event.sequence != due {
                return Ok(Some(format!(
                    "run {run}: {} where {due} was due",
                    event.sequence
                )));
            }
            due += 1;
        }
        match page.next_after {
            Some(next) if !page.events.is_empty() => after = Some(next),
            _ => return Ok(None),
        }
    }
}
