//! Presence marks: which connection, on which replica, last subscribed to an executor's inbox
//! (`executor.md` §18). Informational: nothing branches on it.
//!
//! Invariants: the newest subscription replaces the mark; a close clears only its own; a mark is
//! never made under a credential that is dead by then. Whether a mark is live is for readers: it is
//! while the replica that made it beats.

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::credentials::ExecutorCaller;
use super::{Error, Sql, Store};
use crate::domain::{AccountId, ExecutorId};

static MARK: Sql = Sql::new(
    "presence.mark",
    "UPDATE executors e
        SET online_connection = $4, online_replica = $5, connected_at = nexus_now(),
            last_seen_at = nexus_now()
       FROM tokens k
       JOIN accounts a ON a.account_id = k.account_id
      WHERE e.account_id = $1 AND e.executor_id = $2 AND e.status = 'active'
        AND k.account_id = $1 AND k.token_id = $3 AND k.executor_id = e.executor_id
        AND k.credential_epoch = e.credential_epoch AND k.revoked_at IS NULL
        AND (k.expires_at IS NULL OR k.expires_at > nexus_now())
        AND a.status = 'active'
        AND NOT EXISTS (SELECT FROM members g WHERE g.account_id = e.account_id
                           AND g.member_id = e.agent_id AND g.status <> 'active')",
    &[Type::INT8, Type::INT8, Type::INT8, Type::UUID, Type::UUID],
);

static CLEAR: Sql = Sql::new(
    "presence.clear",
    "UPDATE executors e
        SET online_connection = NULL, online_replica = NULL, connected_at = NULL
       FROM unnest($1::int8[], $2::int8[], $3::uuid[]) AS q(account_id, executor_id, connection)
      WHERE e.account_id = q.account_id AND e.executor_id = q.executor_id
        AND e.online_connection = q.connection",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::UUID_ARRAY],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&MARK, &CLEAR];

/// A mark that a connection made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Account.
    pub account: AccountId,
    /// The executor that is online.
    pub executor: ExecutorId,
    /// The connection.
    pub connection: Uuid,
}

/// Marks an executor online, if its credential still stands: one statement reads the credential
/// again and writes the mark. False: the credential is dead.
///
/// # Errors
/// A fault of the database.
pub async fn mark(
    store: &Store,
    caller: &ExecutorCaller,
    connection: Uuid,
    replica: Uuid,
) -> Result<bool, Error> {
    let changed = store
        .conn()
        .await?
        .execute(
            &MARK,
            &[
                &caller.account.0,
                &caller.id.0,
                &caller.token_id,
                &connection,
                &replica,
            ],
        )
        .await?;
    Ok(changed == 1)
}

/// Clears these marks where they are still the latest, in one statement.
///
/// # Errors
/// A fault of the database.
pub async fn clear(store: &Store, marks: &[Mark]) -> Result<(), Error> {
    if marks.is_empty() {
        return Ok(());
    }
    let accounts: Vec<i64> = marks.iter().map(|m| m.account.0).collect();
    let executors: Vec<i64> = marks.iter().map(|m| m.executor.0).collect();
    let connections: Vec<Uuid> = marks.iter().map(|m| m.connection).collect();
    store
        .conn()
        .await?
        .execute(&CLEAR, &[&accounts, &executors, &connections])
        .await?;
    Ok(())
}
