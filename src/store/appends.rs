//! What an append's door must know of a run before it takes the lock: facts that creating froze,
//! and the default runner.

use tokio_postgres::types::Type;

use super::{Error, Sql, Store, rows};
use crate::domain::words::MemberKind;
use crate::domain::{AccountId, PublicId};
use crate::engine::eligibility::PrincipalFacts;

static SHELL: Sql = Sql::new(
    "appends.shell",
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
pub static STATEMENTS: &[&Sql] = &[&SHELL];

/// What a run's envelopes inherit.
#[derive(Debug, Clone)]
pub struct RunShell {
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

impl Store {
    /// What a run's envelopes inherit; none when there is no such run.
    ///
    /// # Errors
    /// A fault.
    pub async fn run_shell(
        &self,
        account: AccountId,
        run: PublicId,
    ) -> Result<Option<RunShell>, Error> {
        let conn = self.conn().await?;
        let row = conn.query_opt(&SHELL, &[&account.0, &run.0]).await?;
        row.map(|row| {
            Ok(RunShell {
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
}
