//! The scenarios, and what several of them do: the calls of a runner.
//!
//! Every scenario provisions an account of its own, prepares its runs, measures, finishes what a time
//! limit left over, and checks the whole.

pub mod chains;
pub mod contention;
pub mod fan_in;
pub mod fleet;
pub mod history;
pub mod hot_run;
pub mod lifecycle;
pub mod limit;
pub mod races;

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::error::Error;
use crate::http::{Conn, Reply};
use crate::measure::Load;
use crate::world::Row;

/// How large a scenario is.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Size {
    /// Units of work, a tenth of them warm-up
    #[arg(long, default_value_t = 10_000)]
    pub units: usize,
    /// Runners at work at once
    #[arg(long, default_value_t = 64)]
    pub runners: usize,
    /// Measures at most so long
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
}

impl Size {
    /// The load: closed, of that many units.
    pub fn load(self, units: usize) -> Load {
        Load::of(units, Duration::from_secs(self.seconds))
    }
}

/// What a single claim came to.
pub enum Claimed {
    /// Granted, with its token.
    Granted(String),
    /// Refused: somebody else has it.
    Refused,
}

#[derive(Deserialize)]
struct Grant {
    claim: ClaimPart,
}

#[derive(Deserialize)]
struct ClaimPart {
    claim_token: String,
}

#[derive(Deserialize)]
struct Batch {
    claims: Vec<BatchRow>,
}

#[derive(Deserialize)]
struct BatchRow {
    task: TaskPart,
    claim: ClaimPart,
}

#[derive(Deserialize)]
struct TaskPart {
    run_public_id: String,
    task_key: String,
}

/// The path of a door of one row.
pub fn door(row: &Row, verb: &str) -> String {
    format!(
        "/agent_api/v1/executor/inbox/{}/{}/{verb}",
        row.run, row.key
    )
}

/// `POST …/claim`.
///
/// # Errors
/// Every answer but a grant and `409 already_claimed`.
pub async fn claim(conn: &mut Conn, row: &Row) -> Result<Claimed, Error> {
    let answer = conn.post(&door(row, "claim"), "").await?;
    if answer.status.as_u16() == 409 && answer.code().as_deref() == Some("already_claimed") {
        return Ok(Claimed::Refused);
    }
    Ok(Claimed::Granted(answer.read::<Grant>()?.claim.claim_token))
}

/// A claim that nobody contests.
///
/// # Errors
/// Every answer but a grant.
pub async fn claim_own(conn: &mut Conn, row: &Row) -> Result<String, Error> {
    let answer = conn.post(&door(row, "claim"), "").await?;
    Ok(answer.read::<Grant>()?.claim.claim_token)
}

/// `POST /executor/inbox/claims`.
///
/// # Errors
/// Every answer but a list.
pub async fn claim_batch(
    conn: &mut Conn,
    limit: usize,
    wait_ms: u64,
) -> Result<Vec<(Row, String)>, Error> {
    let body = format!(r#"{{"limit":{limit},"wait_ms":{wait_ms}}}"#);
    let answer = conn
        .post("/agent_api/v1/executor/inbox/claims", body)
        .await?;
    let batch: Batch = answer.read()?;
    Ok(batch
        .claims
        .into_iter()
        .map(|c| {
            let row = Row {
                run: c.task.run_public_id.into(),
                key: c.task.task_key.into(),
            };
            (row, c.claim.claim_token)
        })
        .collect())
}

/// What a commit of this row says: the check reads it back.
pub fn content(row: &Row) -> String {
    format!("did {}/{} once", row.run, row.key)
}

/// `POST …/commit`, whatever it is answered.
///
/// # Errors
/// [`Error::Connection`].
pub async fn try_commit(conn: &mut Conn, row: &Row, token: &str) -> Result<Reply, Error> {
    let body = format!(
        r#"{{"claim_token":"{token}","content":"{}"}}"#,
        content(row)
    );
    conn.post(&door(row, "commit"), body).await
}

/// `POST …/commit`.
///
/// # Errors
/// Every answer but a success.
pub async fn commit(conn: &mut Conn, row: &Row, token: &str) -> Result<(), Error> {
    let answer = try_commit(conn, row, token).await?;
    if answer.status.is_success() {
        Ok(())
    } else {
        Err(answer.fault())
    }
}

/// Whether the server has the batch commit door.
///
/// # Errors
/// [`Error::Connection`].
pub async fn has_batch_commits(conn: &mut Conn) -> Result<bool, Error> {
    let answer = conn
        .post("/agent_api/v1/executor/inbox/commits", r#"{"commits":[]}"#)
        .await?;
    Ok(!matches!(answer.status.as_u16(), 404 | 405))
}

/// `POST /executor/inbox/commits`: all of these.
///
/// # Errors
/// When the door, or one entry, is answered anything but a success.
pub async fn commit_batch(conn: &mut Conn, rows: &[(Row, String)]) -> Result<(), Error> {
    let entries: Vec<String> = rows
        .iter()
        .map(|(row, token)| {
            format!(
                r#"{{"run_public_id":"{}","task_key":"{}","claim_token":"{token}","content":"{}"}}"#,
                row.run,
                row.key,
                content(row)
            )
        })
        .collect();
    let body = format!(r#"{{"commits":[{}]}}"#, entries.join(","));
    let answer = conn
        .post("/agent_api/v1/executor/inbox/commits", body)
        .await?;
    if answer.status.is_success() && !answer.body.windows(7).any(|w| w == b"\"error\"") {
        return Ok(());
    }
    // A task that failed shows an `error` too, but every entry here is a success.
    Err(answer.fault())
}

/// A row of one key of a run.
pub fn row(run: &Arc<str>, key: &str) -> Row {
    Row {
        run: run.clone(),
        key: key.into(),
    }
}
