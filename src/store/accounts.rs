//! Accounts: the unit of placement (`architecture.md` §3).

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::page::Order;
use super::{Error, Sql, Store};
use crate::domain::words::Standing;
use crate::domain::{AccountId, PublicId, Timestamp};

/// An account.
#[derive(Debug, Clone)]
pub struct Account {
    /// Inner id.
    pub id: AccountId,
    /// Public id.
    pub public_id: PublicId,
    /// Its name.
    pub name: String,
    /// Whether it may act.
    pub status: Standing,
    /// When it was made.
    pub created_at: Timestamp,
}

impl TryFrom<&Row> for Account {
    type Error = Error;

    fn try_from(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            id: AccountId(row.get("account_id")),
            public_id: PublicId(row.get("public_id")),
            name: row.get("name"),
            status: super::rows::word(row, "accounts", "status")?,
            created_at: row.get("created_at"),
        })
    }
}

static INSERT: Sql = Sql::new(
    "accounts.insert",
    "INSERT INTO accounts (public_id, name) VALUES ($1, $2)
     RETURNING account_id, public_id, name, status, created_at",
    &[Type::UUID, Type::TEXT],
);

static BY_PUBLIC_ID: Sql = Sql::new(
    "accounts.by_public_id",
    "SELECT account_id, public_id, name, status, created_at FROM accounts WHERE public_id = $1",
    &[Type::UUID],
);

static LIST: [Sql; 2] = [
    Sql::new(
        "accounts.list_asc",
        "SELECT account_id, public_id, name, status, created_at FROM accounts
          WHERE account_id > coalesce($1, 0) ORDER BY account_id LIMIT $2",
        &[Type::INT8, Type::INT8],
    ),
    Sql::new(
        "accounts.list_desc",
        "SELECT account_id, public_id, name, status, created_at FROM accounts
          WHERE account_id < coalesce($1, 9223372036854775807) ORDER BY account_id DESC LIMIT $2",
        &[Type::INT8, Type::INT8],
    ),
];

static SET_STATUS: Sql = Sql::new(
    "accounts.set_status",
    "WITH a AS (UPDATE accounts SET status = $2 WHERE public_id = $1
        RETURNING account_id, public_id, name, status, created_at),
     lost AS (INSERT INTO lost_authority (account_id, member_id) SELECT account_id, 0 FROM a WHERE $2 = 'suspended'
        ON CONFLICT DO NOTHING),
     found AS (DELETE FROM lost_authority l USING a WHERE $2 = 'active' AND l.account_id = a.account_id AND l.member_id = 0)
     SELECT * FROM a",
    &[Type::UUID, Type::TEXT],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&INSERT, &BY_PUBLIC_ID, &LIST[0], &LIST[1], &SET_STATUS];

/// Makes one.
///
/// # Errors
/// A fault of the database.
pub async fn insert(store: &Store, public_id: PublicId, name: &str) -> Result<Account, Error> {
    let conn = store.conn().await?;
    let row = conn.query_one(&INSERT, &[&public_id.0, &name]).await?;
    Account::try_from(&row)
}

/// The account of that public id.
///
/// # Errors
/// A fault of the database.
pub async fn by_public_id(store: &Store, id: PublicId) -> Result<Option<Account>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&BY_PUBLIC_ID, &[&id.0])
        .await?;
    row.as_ref().map(Account::try_from).transpose()
}

/// At most `limit` accounts after that one.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    after: Option<AccountId>,
    order: Order,
    limit: i64,
) -> Result<Vec<Account>, Error> {
    let after = after.map(|a| a.0);
    let rows = store
        .conn()
        .await?
        .query(order.of(&LIST), &[&after, &limit])
        .await?;
    rows.iter().map(Account::try_from).collect()
}

/// Suspends or resumes one; none when there is no such account.
///
/// # Errors
/// A fault of the database.
pub async fn set_status(
    store: &Store,
    id: PublicId,
    status: Standing,
) -> Result<Option<Account>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&SET_STATUS, &[&id.0, &status.as_str()])
        .await?;
    row.as_ref().map(Account::try_from).transpose()
}
