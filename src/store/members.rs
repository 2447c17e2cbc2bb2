//! Members: the humans and agents of an account.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::page::{Page, keyset};
use super::tx::Tx;
use super::{Error, Sql, Store};
use crate::domain::words::{MemberKind, Standing};
use crate::domain::{AccountId, MemberId, PublicId, Timestamp};

/// A member.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its account.
    pub account: AccountId,
    /// Its account's public id.
    pub account_public_id: PublicId,
    /// Inner id.
    pub id: MemberId,
    /// Public id.
    pub public_id: PublicId,
    /// Human or agent.
    pub kind: MemberKind,
    /// Unique in the account.
    pub handle: String,
    /// What people read.
    pub display_name: Option<String>,
    /// The human that an agent answers to; none for a human.
    pub controlling_human: Option<(MemberId, PublicId)>,
    /// Whether it may act.
    pub status: Standing,
    /// The epoch that a valid token carries.
    pub credential_epoch: i32,
    /// When it was made.
    pub created_at: Timestamp,
}

impl TryFrom<&Row> for Member {
    type Error = Error;

    fn try_from(row: &Row) -> Result<Self, Error> {
        let human: Option<i64> = row.get("controlling_human_id");
        let human_public: Option<uuid::Uuid> = row.get("controlling_human_public_id");
        Ok(Self {
            account: AccountId(row.get("account_id")),
            account_public_id: PublicId(row.get("account_public_id")),
            id: MemberId(row.get("member_id")),
            public_id: PublicId(row.get("public_id")),
            kind: super::rows::word(row, "members", "kind")?,
            handle: row.get("handle"),
            display_name: row.get("display_name"),
            controlling_human: human.map(MemberId).zip(human_public.map(PublicId)),
            status: super::rows::word(row, "members", "status")?,
            credential_epoch: row.get("credential_epoch"),
            created_at: row.get("created_at"),
        })
    }
}

/// What a new member is made of.
#[derive(Debug, Clone)]
pub struct New {
    /// Its account.
    pub account: AccountId,
    /// Public id.
    pub public_id: PublicId,
    /// Human or agent.
    pub kind: MemberKind,
    /// Unique in the account.
    pub handle: String,
    /// What people read.
    pub display_name: Option<String>,
    /// For an agent: the human it answers to.
    pub controlling_human: Option<MemberId>,
}

/// The unique index of handles.
pub const HANDLE_INDEX: &str = "members_account_id_handle_key";

static INSERT: Sql = Sql::new(
    "members.insert",
    "INSERT INTO members (account_id, public_id, kind, handle, display_name, controlling_human_id)
     VALUES ($1, $2, $3, $4, $5, $6)",
    &[
        Type::INT8,
        Type::UUID,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
    ],
);

macro_rules! select {
    () => {
        "SELECT m.account_id, a.public_id AS account_public_id, m.member_id, m.public_id, m.kind,
                m.handle, m.display_name, m.controlling_human_id,
                h.public_id AS controlling_human_public_id, m.status, m.credential_epoch, m.created_at
           FROM members m
           JOIN accounts a ON a.account_id = m.account_id
      LEFT JOIN members h ON h.account_id = m.account_id AND h.member_id = m.controlling_human_id"
    };
}

static BY_PUBLIC_ID: Sql = Sql::new(
    "members.by_public_id",
    concat!(select!(), " WHERE m.public_id = $1"),
    &[Type::UUID],
);

static LIST: [Sql; 2] = keyset!("members.list", select!(), "m.account_id", "m.member_id");

static SET_STATUS: Sql = Sql::new(
    "members.set_status",
    "WITH lost AS (INSERT INTO lost_authority (account_id, member_id) SELECT $1, $2 WHERE $3 = 'suspended'
        ON CONFLICT DO NOTHING),
     found AS (DELETE FROM lost_authority WHERE $3 = 'active' AND account_id = $1 AND member_id = $2)
     UPDATE members SET status = $3 WHERE account_id = $1 AND member_id = $2",
    &[Type::INT8, Type::INT8, Type::TEXT],
);

static ROTATE: Sql = Sql::new(
    "members.rotate",
    "UPDATE members SET credential_epoch = credential_epoch + 1
      WHERE account_id = $1 AND member_id = $2 RETURNING credential_epoch",
    &[Type::INT8, Type::INT8],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &INSERT,
    &BY_PUBLIC_ID,
    &LIST[0],
    &LIST[1],
    &SET_STATUS,
    &ROTATE,
];

/// The member of that public id, of whatever account: for operators.
///
/// # Errors
/// A fault of the database.
pub async fn by_public_id(store: &Store, id: PublicId) -> Result<Option<Member>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&BY_PUBLIC_ID, &[&id.0])
        .await?;
    row.as_ref().map(Member::try_from).transpose()
}

/// The same, inside a transaction: it sees what the transaction wrote.
pub(crate) async fn read(tx: &mut Tx, id: PublicId) -> Result<Option<Member>, Error> {
    let rows = tx.query(&BY_PUBLIC_ID, &[&id.0]).await?;
    rows.first().map(Member::try_from).transpose()
}

/// One page, for operators.
///
/// # Errors
/// A fault of the database.
pub async fn list(store: &Store, page: &Page) -> Result<Vec<Member>, Error> {
    let [low, high, account, id, limit] = page.bounds();
    let rows = store
        .conn()
        .await?
        .query(page.order.of(&LIST), &[&low, &high, &account, &id, &limit])
        .await?;
    rows.iter().map(Member::try_from).collect()
}

/// Makes one. A taken handle is [`Error::Duplicate`] of [`HANDLE_INDEX`].
pub(crate) async fn insert(tx: &mut Tx, new: &New) -> Result<(), Error> {
    let human = new.controlling_human.map(|h| h.0);
    tx.query(
        &INSERT,
        &[
            &new.account.0,
            &new.public_id.0,
            &new.kind.as_str(),
            &new.handle,
            &new.display_name,
            &human,
        ],
    )
    .await
    .map(|_| ())
}

/// Suspends or resumes one.
///
/// # Errors
/// A fault of the database.
pub async fn set_status(
    store: &Store,
    account: AccountId,
    id: MemberId,
    status: Standing,
) -> Result<(), Error> {
    store
        .conn()
        .await?
        .execute(&SET_STATUS, &[&account.0, &id.0, &status.as_str()])
        .await
        .map(|_| ())
}

/// Raises the epoch of one; gives the new epoch. The row stays locked, so two rotations of one
/// member get epochs of their own.
pub(crate) async fn rotate(
    tx: &mut Tx,
    account: AccountId,
    id: MemberId,
) -> Result<Option<i32>, Error> {
    let rows = tx.query(&ROTATE, &[&account.0, &id.0]).await?;
    Ok(rows.first().map(|row| row.get(0)))
}
