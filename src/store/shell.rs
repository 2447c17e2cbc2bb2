//! What of a run is no graph: its default runner, what its envelopes inherit, and whether it still
//! shows (`runs.md` §5, §7, §10).
//!
//! Like every write to a run, these hold its row first. A default runner is narrated, so its feed
//! item is numbered under that lock; a graph is not read.

use tokio_postgres::types::Type;

use super::rows::{self, executor_columns};
use super::run_tx::RunTarget;
use super::tx::{Batch, Tx};
use super::{Error, Sql, Store};
use crate::domain::event::Event;
use crate::domain::feed::Item;
use crate::domain::words::MemberKind;
use crate::domain::{AccountId, ExecutorId, PublicId, RunId, Timestamp};
use crate::engine::eligibility::{ExecutorFacts, PrincipalFacts};

static LOCK: Sql = Sql::new(
    "shell.lock",
    "WITH r AS MATERIALIZED (
        SELECT * FROM runs WHERE account_id = $1 AND public_id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE)
     SELECT nexus_now() AS now, r.run_id, r.default_runner_id, r.event_seq, r.principal_id, r.declaring_agent_id,
            pm.kind AS principal_kind, pm.controlling_human_id
       FROM r JOIN members pm ON pm.account_id = r.account_id AND pm.member_id = r.principal_id",
    &[Type::INT8, Type::UUID],
);

static EXECUTOR: Sql = Sql::new(
    "shell.executor",
    concat!(
        "SELECT ",
        executor_columns!(),
        "  FROM executors e LEFT JOIN members ea ON ea.account_id = e.account_id AND ea.member_id = e.agent_id
          WHERE e.account_id = $1 AND e.public_id = $2"
    ),
    &[Type::INT8, Type::UUID],
);

static SET_RUNNER: Sql = Sql::new(
    "shell.set_runner",
    "WITH u AS (UPDATE runs SET default_runner_id = $3, event_seq = $4
                 WHERE account_id = $1 AND run_id = $2 AND event_seq = $4 - 1 RETURNING 1)
     SELECT nexus_expect(count(*), 1, 'runs') FROM u",
    &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
);

static NARRATE: Sql = Sql::new(
    "shell.narrate",
    "INSERT INTO run_events (account_id, host_id, seq, type, payload, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
    &[
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::TIMESTAMPTZ,
    ],
);

/// One guarded statement: the status is judged anew once the row is held.
static DELETE: Sql = Sql::new(
    "shell.delete",
    "UPDATE runs SET deleted_at = nexus_now(), schedulable = false
      WHERE account_id = $1 AND public_id = $2 AND deleted_at IS NULL AND status IN ('pending', 'completed', 'canceled')",
    &[Type::INT8, Type::UUID],
);

static SHOWS: Sql = Sql::new(
    "shell.shows",
    "SELECT 1 FROM runs WHERE account_id = $1 AND public_id = $2 AND deleted_at IS NULL",
    &[Type::INT8, Type::UUID],
);

/// What a run's envelopes inherit: facts that creating froze, and the default runner.
static INHERITED: Sql = Sql::new(
    "shell.inherited",
    "SELECT r.principal_id, pm.kind AS principal_kind, pm.controlling_human_id, r.declaring_agent_id,
            cm.kind AS creator_kind, e.public_id AS default_runner, r.model_selection, r.fallback_models
       FROM runs r
       JOIN members pm ON pm.account_id = r.account_id AND pm.member_id = r.principal_id
       JOIN members cm ON cm.account_id = r.account_id AND cm.member_id = r.creator_id
       LEFT JOIN executors e ON e.account_id = r.account_id AND e.executor_id = r.default_runner_id
      WHERE r.account_id = $1 AND r.public_id = $2",
    &[Type::INT8, Type::UUID],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &LOCK,
    &EXECUTOR,
    &SET_RUNNER,
    &NARRATE,
    &DELETE,
    &SHOWS,
    &INHERITED,
];

/// What a delete met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// The run is hidden now.
    Done,
    /// It is live.
    Live,
    /// There is no such run.
    Absent,
}

/// A locked run without its graph.
pub struct Shell {
    tx: Tx,
    target: RunTarget,
    run: RunId,
    event_seq: i64,
    /// Now.
    pub now: Timestamp,
    /// Its default runner.
    pub default_runner: Option<ExecutorId>,
    /// Its answering principal.
    pub principal: PrincipalFacts,
    /// The executor that was asked about, if the account has it.
    pub executor: Option<(ExecutorId, ExecutorFacts)>,
}

/// Locks a run and reads an executor of its account behind the lock: one round trip. None when there
/// is no such run.
///
/// # Errors
/// A fault of the database; a lock that was waited for too long is [`Error::Timeout`].
pub async fn lock(
    store: &Store,
    target: RunTarget,
    executor: Option<PublicId>,
) -> Result<Option<Shell>, Error> {
    let executor = executor.map(|id| id.0);
    let mut batch = Batch::new();
    batch.add(&LOCK, vec![&target.account.0, &target.run.0]);
    batch.add(&EXECUTOR, vec![&target.account.0, &executor]);
    let (tx, answers) = Tx::begin_with(store.conn().await?, &batch).await?;
    let first = |i: usize| answers.get(i).and_then(|rows| rows.first());
    let Some(run) = first(0) else {
        tx.rollback().await;
        return Ok(None);
    };
    let executor = first(1)
        .map(|row| Ok::<_, Error>((ExecutorId(row.get("executor_id")), rows::executor(row)?)))
        .transpose()?;
    Ok(Some(Shell {
        tx,
        target,
        run: RunId(run.get("run_id")),
        event_seq: run.get("event_seq"),
        now: run.get("now"),
        default_runner: run
            .get::<_, Option<i64>>("default_runner_id")
            .map(ExecutorId),
        principal: rows::principal(run)?,
        executor,
    }))
}

impl Shell {
    /// Writes the default runner with what is narrated of it, and commits; gives the feed's item.
    ///
    /// # Errors
    /// A fault of the database; nothing is written then.
    pub async fn set_default_runner(
        self,
        runner: Option<ExecutorId>,
        event: &Event,
    ) -> Result<Item, Error> {
        let item = Item {
            sequence: self.event_seq + 1,
            r#type: event.kind().to_owned(),
            payload: event.payload(self.target.run).into_string(),
            created_at: self.now,
        };
        let (account, run) = (self.target.account.0, self.run.0);
        let runner = runner.map(|id| id.0);
        let mut batch = Batch::new();
        batch.add(&SET_RUNNER, vec![&account, &run, &runner, &item.sequence]);
        batch.add(
            &NARRATE,
            vec![
                &account,
                &run,
                &item.sequence,
                &item.r#type,
                &item.payload,
                &item.created_at,
            ],
        );
        self.tx.commit_with(&batch).await?;
        Ok(item)
    }

    /// Gives the lock back without writing.
    pub async fn release(self) {
        self.tx.rollback().await;
    }
}

/// Hides a run that is not live, from every surface at once.
///
/// # Errors
/// A fault of the database.
pub async fn delete(store: &Store, target: RunTarget) -> Result<Deletion, Error> {
    let conn = store.conn().await?;
    let (account, run) = (target.account.0, target.run.0);
    if conn.execute(&DELETE, &[&account, &run]).await? > 0 {
        return Ok(Deletion::Done);
    }
    let shows = conn.query_opt(&SHOWS, &[&account, &run]).await?;
    Ok(if shows.is_some() {
        Deletion::Live
    } else {
        Deletion::Absent
    })
}

/// What a run's envelopes inherit.
#[derive(Debug, Clone)]
pub struct Inherited {
    /// Its answering principal, frozen.
    pub principal: PrincipalFacts,
    /// What its creator is.
    pub creator: MemberKind,
    /// Its default runner now.
    pub default_runner: Option<PublicId>,
    /// Its model selection, canonical, when one was written.
    pub model_selection: Option<String>,
    /// Its fallback list, canonical, when one was written.
    pub fallback_models: Option<String>,
}

/// What a run's envelopes inherit; none when there is no such run.
///
/// # Errors
/// A fault.
pub async fn inherited(
    store: &Store,
    account: AccountId,
    run: PublicId,
) -> Result<Option<Inherited>, Error> {
    let conn = store.conn().await?;
    let row = conn.query_opt(&INHERITED, &[&account.0, &run.0]).await?;
    row.map(|row| {
        Ok(Inherited {
            principal: rows::principal(&row)?,
            creator: rows::word(&row, "members", "creator_kind")?,
            default_runner: row
                .get::<_, Option<uuid::Uuid>>("default_runner")
                .map(PublicId),
            model_selection: row.get("model_selection"),
            fallback_models: row.get("fallback_models"),
        })
    })
    .transpose()
}
