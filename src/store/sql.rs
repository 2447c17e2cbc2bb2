//! One statement: a name, a text, the types of its parameters, and the one switch between named
//! prepared statements and unnamed ones (`NEXUS_DB_STATEMENTS`, `operating.md` §3).
//!
//! Types are written down so that both ways send exactly the same statement.

use deadpool_postgres::Object;
use futures_util::{TryStreamExt, pin_mut};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::Error;

/// Parameters of a statement, in order.
pub type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How statements reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statements {
    /// Named and cached per connection: direct, or through PgBouncer 1.21 and later.
    Prepared,
    /// Unnamed: through any transaction pooler.
    Unnamed,
}

/// A statement.
#[derive(Debug)]
pub struct Sql {
    /// How tests and logs call it.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
    /// Parameter types.
    pub types: &'static [Type],
}

impl Sql {
    /// A statement of this name, text and parameter types.
    pub const fn new(name: &'static str, text: &'static str, types: &'static [Type]) -> Self {
        Self { name, text, types }
    }
}

fn typed<'a>(sql: &'static Sql, params: Params<'a>) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    debug_assert_eq!(sql.types.len(), params.len(), "{}", sql.name);
    params
        .iter()
        .copied()
        .zip(sql.types.iter().cloned())
        .collect()
}

/// All rows of one statement.
pub(super) async fn query(
    client: &Object,
    statements: Statements,
    sql: &'static Sql,
    params: Params<'_>,
) -> Result<Vec<Row>, Error> {
    match statements {
        Statements::Prepared => {
            let prepared = client.prepare_typed_cached(sql.text, sql.types).await?;
            Ok(client.query(&prepared, params).await?)
        }
        Statements::Unnamed => Ok(client.query_typed(sql.text, &typed(sql, params)).await?),
    }
}

/// Rows changed by one statement.
pub(super) async fn execute(
    client: &Object,
    statements: Statements,
    sql: &'static Sql,
    params: Params<'_>,
) -> Result<u64, Error> {
    match statements {
        Statements::Prepared => {
            let prepared = client.prepare_typed_cached(sql.text, sql.types).await?;
            Ok(client.execute(&prepared, params).await?)
        }
        Statements::Unnamed => {
            let typed = typed(sql, params);
            let rows = client
                .query_typed_raw(sql.text, typed.iter().map(|(v, t)| (*v, t.clone())))
                .await?;
            pin_mut!(rows);
            while rows.try_next().await?.is_some() {}
            Ok(rows.rows_affected().unwrap_or(0))
        }
    }
}
