//! Tokens as operators see and revoke them, and their minting beside the owner's row.
//! Authentication itself is `credentials.rs`.
//!
//! Invariants: only the look-up part and a salted hash are stored; a token carries the epoch its
//! owner had at minting; of one owner and epoch there is one token.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::page::{Page, keyset};
use super::tx::Tx;
use super::{Error, Sql, Store};
use crate::domain::credential::Minted;
use crate::domain::words::Plane;
use crate::domain::{AccountId, ExecutorId, MemberId, PublicId, Timestamp};

/// Whose a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A member's.
    Member(MemberId),
    /// An executor's.
    Executor(ExecutorId),
}

/// A token, without anything that would let one use it.
#[derive(Debug, Clone)]
pub struct Token {
    /// Its account.
    pub account: AccountId,
    /// Its account's public id.
    pub account_public_id: PublicId,
    /// Inner id.
    pub id: i64,
    /// The searchable part of its text: how operators name it.
    pub lookup: String,
    /// The plane it opens.
    pub plane: Plane,
    /// The member or executor it speaks for.
    pub owner_public_id: PublicId,
    /// The epoch it was minted under.
    pub credential_epoch: i32,
    /// The epoch a valid token of this owner carries now.
    pub owner_epoch: i32,
    /// Until when it is valid.
    pub expires_at: Option<Timestamp>,
    /// Since when it is not.
    pub revoked_at: Option<Timestamp>,
    /// When it was last seen, sampled.
    pub last_used_at: Option<Timestamp>,
    /// When it was minted.
    pub created_at: Timestamp,
}

impl TryFrom<&Row> for Token {
    type Error = Error;

    fn try_from(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            account: AccountId(row.get("account_id")),
            account_public_id: PublicId(row.get("account_public_id")),
            id: row.get("token_id"),
            lookup: row.get("lookup"),
            plane: super::rows::word(row, "tokens", "plane")?,
            owner_public_id: PublicId(row.get("owner_public_id")),
            credential_epoch: row.get("credential_epoch"),
            owner_epoch: row.get("owner_epoch"),
            expires_at: row.get("expires_at"),
            revoked_at: row.get("revoked_at"),
            last_used_at: row.get("last_used_at"),
            created_at: row.get("created_at"),
        })
    }
}

static INSERT: Sql = Sql::new(
    "tokens.insert",
    "INSERT INTO tokens (account_id, lookup, salt, secret_hash, plane, member_id, executor_id, credential_epoch)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    &[
        Type::INT8,
        Type::TEXT,
        Type::BYTEA,
        Type::BYTEA,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
        Type::INT4,
    ],
);

static RETIRE_OF_MEMBER: Sql = Sql::new(
    "tokens.retire_of_member",
    "UPDATE tokens SET revoked_at = nexus_now()
      WHERE account_id = $1 AND executor_id IS NULL AND member_id = $2 AND revoked_at IS NULL",
    &[Type::INT8, Type::INT8],
);

static RETIRE_OF_EXECUTOR: Sql = Sql::new(
    "tokens.retire_of_executor",
    "UPDATE tokens SET revoked_at = nexus_now()
      WHERE account_id = $1 AND executor_id = $2 AND revoked_at IS NULL",
    &[Type::INT8, Type::INT8],
);

macro_rules! select {
    () => {
        "SELECT k.account_id, a.public_id AS account_public_id, k.token_id, k.lookup, k.plane,
                coalesce(m.public_id, e.public_id) AS owner_public_id, k.credential_epoch,
                coalesce(m.credential_epoch, e.credential_epoch) AS owner_epoch,
                k.expires_at, k.revoked_at, k.last_used_at, k.created_at
           FROM tokens k
           JOIN accounts a ON a.account_id = k.account_id
      LEFT JOIN members m ON m.account_id = k.account_id AND m.member_id = k.member_id
      LEFT JOIN executors e ON e.account_id = k.account_id AND e.executor_id = k.executor_id"
    };
}

static BY_LOOKUP: Sql = Sql::new(
    "tokens.by_lookup",
    concat!(select!(), " WHERE k.lookup = $1"),
    &[Type::TEXT],
);

static LIST: [Sql; 2] = keyset!("tokens.list", select!(), "k.account_id", "k.token_id");

static REVOKE: Sql = Sql::new(
    "tokens.revoke",
    "UPDATE tokens SET revoked_at = coalesce(revoked_at, nexus_now()) WHERE account_id = $1 AND token_id = $2",
    &[Type::INT8, Type::INT8],
);

static OPERATOR_INSERT: Sql = Sql::new(
    "tokens.operator_insert",
    "INSERT INTO operator_tokens (lookup, salt, secret_hash, label) VALUES ($1, $2, $3, $4)",
    &[Type::TEXT, Type::BYTEA, Type::BYTEA, Type::TEXT],
);

static OPERATOR_REVOKE: Sql = Sql::new(
    "tokens.operator_revoke",
    "UPDATE operator_tokens SET revoked_at = coalesce(revoked_at, nexus_now()) WHERE lookup = $1",
    &[Type::TEXT],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &INSERT,
    &RETIRE_OF_MEMBER,
    &RETIRE_OF_EXECUTOR,
    &BY_LOOKUP,
    &LIST[0],
    &LIST[1],
    &REVOKE,
    &OPERATOR_INSERT,
    &OPERATOR_REVOKE,
];

/// Stores a token of that epoch, every older one of its owner dead.
pub(crate) async fn replace(
    tx: &mut Tx,
    account: AccountId,
    owner: Owner,
    minted: &Minted,
    epoch: i32,
) -> Result<(), Error> {
    retire(tx, account, owner).await?;
    let (plane, member, executor) = match owner {
        Owner::Member(id) => (Plane::Member, Some(id.0), None),
        Owner::Executor(id) => (Plane::Executor, None, Some(id.0)),
    };
    tx.query(
        &INSERT,
        &[
            &account.0,
            &minted.lookup,
            &&minted.salt[..],
            &&minted.hash[..],
            &plane.as_str(),
            &member,
            &executor,
            &epoch,
        ],
    )
    .await
    .map(|_| ())
}

/// Ends every token of an owner. The epoch alone would do; this says so on the rows too.
pub(crate) async fn retire(tx: &mut Tx, account: AccountId, owner: Owner) -> Result<(), Error> {
    let (sql, id) = match &owner {
        Owner::Member(id) => (&RETIRE_OF_MEMBER, &id.0),
        Owner::Executor(id) => (&RETIRE_OF_EXECUTOR, &id.0),
    };
    tx.query(sql, &[&account.0, id]).await.map(|_| ())
}

/// The token of that look-up part.
///
/// # Errors
/// A fault of the database.
pub async fn by_lookup(store: &Store, lookup: &str) -> Result<Option<Token>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&BY_LOOKUP, &[&lookup])
        .await?;
    row.as_ref().map(Token::try_from).transpose()
}

/// One page, for operators.
///
/// # Errors
/// A fault of the database.
pub async fn list(store: &Store, page: &Page) -> Result<Vec<Token>, Error> {
    let [low, high, account, id, limit] = page.bounds();
    let rows = store
        .conn()
        .await?
        .query(page.order.of(&LIST), &[&low, &high, &account, &id, &limit])
        .await?;
    rows.iter().map(Token::try_from).collect()
}

/// Ends one token; idempotent.
///
/// # Errors
/// A fault of the database.
pub async fn revoke(store: &Store, account: AccountId, id: i64) -> Result<(), Error> {
    store
        .conn()
        .await?
        .execute(&REVOKE, &[&account.0, &id])
        .await
        .map(|_| ())
}

/// Stores an operator token.
///
/// # Errors
/// A fault of the database.
pub async fn operator_insert(store: &Store, minted: &Minted, label: &str) -> Result<(), Error> {
    store
        .conn()
        .await?
        .execute(
            &OPERATOR_INSERT,
            &[&minted.lookup, &&minted.salt[..], &&minted.hash[..], &label],
        )
        .await
        .map(|_| ())
}

/// Ends an operator token; false when there is none of that look-up part.
///
/// # Errors
/// A fault of the database.
pub async fn operator_revoke(store: &Store, lookup: &str) -> Result<bool, Error> {
    let n = store
        .conn()
        .await?
        .execute(&OPERATOR_REVOKE, &[&lookup])
        .await?;
    Ok(n > 0)
}
