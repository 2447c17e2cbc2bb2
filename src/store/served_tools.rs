//! What executors announce (`executor.md` §4): served tools as rows, since acceptance and start
//! look tools up by name; environment and documents as text on the executor.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::tx::{Batch, Tx};
use super::{Error, Sql, Store};
use crate::domain::announcement::{Announcement, Tool};
use crate::domain::{AccountId, Canonical, ExecutorId};

static SET: Sql = Sql::new(
    "served_tools.set",
    "UPDATE executors SET environment = $4, documents = $5, announced_at = nexus_now()
      WHERE account_id = $1 AND executor_id = $2 AND credential_epoch = $3 AND status = 'active'
     RETURNING executor_id",
    &[Type::INT8, Type::INT8, Type::INT4, Type::TEXT, Type::TEXT],
);

static CLEAR: Sql = Sql::new(
    "served_tools.clear",
    "DELETE FROM served_tools WHERE account_id = $1 AND executor_id = $2",
    &[Type::INT8, Type::INT8],
);

static INSERT: Sql = Sql::new(
    "served_tools.insert",
    "INSERT INTO served_tools (account_id, executor_id, ordinal, name, effect_profile, replayable,
                               timeout_ms, description, input_schema)
     SELECT $1, $2, t.ordinal - 1, t.name, t.effect_profile, t.replayable, t.timeout_ms, t.description, t.input_schema
       FROM unnest($3::text[], $4::text[], $5::bool[], $6::bigint[], $7::text[], $8::text[])
            WITH ORDINALITY AS t (name, effect_profile, replayable, timeout_ms, description, input_schema, ordinal)",
    &[
        Type::INT8,
        Type::INT8,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::BOOL_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
    ],
);

static OF_EXECUTORS: Sql = Sql::new(
    "served_tools.of_executors",
    "SELECT executor_id, name, effect_profile, timeout_ms, description, input_schema
       FROM served_tools WHERE account_id = $1 AND executor_id = ANY ($2)
   ORDER BY executor_id, ordinal",
    &[Type::INT8, Type::INT8_ARRAY],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&SET, &CLEAR, &INSERT, &OF_EXECUTORS];

/// A served tool as its columns, for `UNNEST`.
#[derive(Default)]
struct Columns<'a> {
    names: Vec<&'a str>,
    profiles: Vec<String>,
    replayable: Vec<bool>,
    timeouts: Vec<Option<i64>>,
    descriptions: Vec<Option<&'a str>>,
    schemas: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn of(tools: &'a [Tool]) -> Self {
        let mut columns = Self::default();
        for tool in tools {
            columns.names.push(&tool.name);
            columns
                .profiles
                .push(tool.effect_profile.to_canonical().into_string());
            columns.replayable.push(tool.effect_profile.is_replayable());
            columns.timeouts.push(tool.timeout_ms);
            columns.descriptions.push(tool.description.as_deref());
            columns
                .schemas
                .push(tool.input_schema.as_ref().map(Canonical::as_str));
        }
        columns
    }
}

/// Replaces all three lists of an executor. False, and nothing is written, when the executor is
/// revoked or its epoch moved on: its credential died after it was proven.
///
/// The update locks the executor's row, so two announcements of one executor come one after
/// another, whole.
pub(crate) async fn replace(
    tx: &mut Tx,
    account: AccountId,
    executor: ExecutorId,
    epoch: i32,
    announcement: &Announcement,
) -> Result<bool, Error> {
    let environment = announcement.environment.as_str();
    let documents = announcement.documents.as_str();
    let set = tx
        .query(
            &SET,
            &[&account.0, &executor.0, &epoch, &environment, &documents],
        )
        .await?;
    if set.is_empty() {
        return Ok(false);
    }
    let columns = Columns::of(&announcement.tools);
    let mut batch = Batch::new();
    batch.add(&CLEAR, vec![&account.0, &executor.0]);
    batch.add(
        &INSERT,
        vec![
            &account.0,
            &executor.0,
            &columns.names,
            &columns.profiles,
            &columns.replayable,
            &columns.timeouts,
            &columns.descriptions,
            &columns.schemas,
        ],
    );
    tx.run(&batch).await?;
    Ok(true)
}

/// The tools that these executors serve, each list in the announced order.
///
/// # Errors
/// A fault of the database.
pub async fn of_executors(
    store: &Store,
    account: AccountId,
    executors: &[ExecutorId],
) -> Result<Vec<(ExecutorId, Tool)>, Error> {
    let ids: Vec<i64> = executors.iter().map(|e| e.0).collect();
    let rows = store
        .conn()
        .await?
        .query(&OF_EXECUTORS, &[&account.0, &ids])
        .await?;
    rows.iter()
        .map(|row| Ok((ExecutorId(row.get("executor_id")), tool(row)?)))
        .collect()
}

fn tool(row: &Row) -> Result<Tool, Error> {
    Ok(Tool {
        name: row.get("name"),
        effect_profile: super::rows::word(row, "served_tools", "effect_profile")?,
        timeout_ms: row.get("timeout_ms"),
        description: row.get("description"),
        input_schema: row
            .get::<_, Option<String>>("input_schema")
            .map(Canonical::trusted),
    })
}
