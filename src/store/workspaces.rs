//! Workspaces: where runs live and what grants are about.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::page::{Page, keyset};
use super::{Error, Sql, Store};
use crate::domain::words::Access;
use crate::domain::{AccountId, MemberId, PublicId, Timestamp, WorkspaceId};

/// A workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// Its account.
    pub account: AccountId,
    /// Its account's public id.
    pub account_public_id: PublicId,
    /// Inner id.
    pub id: WorkspaceId,
    /// Public id.
    pub public_id: PublicId,
    /// Its name.
    pub name: String,
    /// Since when it takes no more writes.
    pub archived_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl TryFrom<&Row> for Workspace {
    type Error = Error;

    fn try_from(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            account: AccountId(row.get("account_id")),
            account_public_id: PublicId(row.get("account_public_id")),
            id: WorkspaceId(row.get("workspace_id")),
            public_id: PublicId(row.get("public_id")),
            name: row.get("name"),
            archived_at: row.get("archived_at"),
            created_at: row.get("created_at"),
        })
    }
}

/// A workspace as a member sees it, with what the member may do there.
#[derive(Debug, Clone)]
pub struct Readable {
    /// The workspace.
    pub workspace: Workspace,
    /// The member's grant.
    pub access: Access,
}

impl TryFrom<&Row> for Readable {
    type Error = Error;

    fn try_from(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            workspace: Workspace::try_from(row)?,
            access: super::rows::word(row, "grants", "access")?,
        })
    }
}

static INSERT: Sql = Sql::new(
    "workspaces.insert",
    "WITH w AS (INSERT INTO workspaces (account_id, public_id, name) VALUES ($1, $2, $3) RETURNING *)
     SELECT w.account_id, a.public_id AS account_public_id, w.workspace_id, w.public_id, w.name,
            w.archived_at, w.created_at
       FROM w JOIN accounts a ON a.account_id = w.account_id",
    &[Type::INT8, Type::UUID, Type::TEXT],
);

macro_rules! select {
    () => {
        "SELECT w.account_id, a.public_id AS account_public_id, w.workspace_id, w.public_id, w.name,
                w.archived_at, w.created_at
           FROM workspaces w JOIN accounts a ON a.account_id = w.account_id"
    };
}

static BY_PUBLIC_ID: Sql = Sql::new(
    "workspaces.by_public_id",
    concat!(select!(), " WHERE w.public_id = $1"),
    &[Type::UUID],
);

static LIST: [Sql; 2] = keyset!(
    "workspaces.list",
    select!(),
    "w.account_id",
    "w.workspace_id"
);

macro_rules! select_readable {
    () => {
        "SELECT w.account_id, a.public_id AS account_public_id, w.workspace_id, w.public_id, w.name,
                w.archived_at, w.created_at, g.access
           FROM grants g
           JOIN workspaces w ON w.account_id = g.account_id AND w.workspace_id = g.workspace_id
           JOIN accounts a ON a.account_id = w.account_id
          WHERE g.account_id = $1 AND g.member_id = $2"
    };
}

static READABLE: Sql = Sql::new(
    "workspaces.readable",
    concat!(select_readable!(), " AND w.public_id = $3"),
    &[Type::INT8, Type::INT8, Type::UUID],
);

static LIST_READABLE: [Sql; 2] = [
    Sql::new(
        "workspaces.list_readable_asc",
        concat!(
            select_readable!(),
            " AND g.workspace_id > coalesce($3, 0) ORDER BY g.workspace_id LIMIT $4"
        ),
        &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
    ),
    Sql::new(
        "workspaces.list_readable_desc",
        concat!(
            select_readable!(),
            " AND g.workspace_id < coalesce($3, 9223372036854775807) ORDER BY g.workspace_id DESC LIMIT $4"
        ),
        &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
    ),
];

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &INSERT,
    &BY_PUBLIC_ID,
    &LIST[0],
    &LIST[1],
    &READABLE,
    &LIST_READABLE[0],
    &LIST_READABLE[1],
];

/// Makes one.
///
/// # Errors
/// A fault of the database.
pub async fn insert(
    store: &Store,
    account: AccountId,
    public_id: PublicId,
    name: &str,
) -> Result<Workspace, Error> {
    let conn = store.conn().await?;
    let row = conn
        .query_one(&INSERT, &[&account.0, &public_id.0, &name])
        .await?;
    Workspace::try_from(&row)
}

/// The workspace of that public id, of whatever account: for operators.
///
/// # Errors
/// A fault of the database.
pub async fn by_public_id(store: &Store, id: PublicId) -> Result<Option<Workspace>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&BY_PUBLIC_ID, &[&id.0])
        .await?;
    row.as_ref().map(Workspace::try_from).transpose()
}

/// One page, for operators.
///
/// # Errors
/// A fault of the database.
pub async fn list(store: &Store, page: &Page) -> Result<Vec<Workspace>, Error> {
    let [low, high, account, id, limit] = page.bounds();
    let rows = store
        .conn()
        .await?
        .query(page.order.of(&LIST), &[&low, &high, &account, &id, &limit])
        .await?;
    rows.iter().map(Workspace::try_from).collect()
}

/// The workspace of that public id, if this member can read it.
///
/// # Errors
/// A fault of the database.
pub async fn readable(
    store: &Store,
    account: AccountId,
    member: MemberId,
    id: PublicId,
) -> Result<Option<Readable>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&READABLE, &[&account.0, &member.0, &id.0])
        .await?;
    row.as_ref().map(Readable::try_from).transpose()
}

/// One page of the workspaces that this member can read; `page.account` is the member's.
///
/// # Errors
/// A fault of the database.
pub async fn list_readable(
    store: &Store,
    account: AccountId,
    member: MemberId,
    page: &Page,
) -> Result<Vec<Readable>, Error> {
    let after = page.after.map(|(_, id)| id);
    let rows = store
        .conn()
        .await?
        .query(
            page.order.of(&LIST_READABLE),
            &[&account.0, &member.0, &after, &page.limit],
        )
        .await?;
    rows.iter().map(Readable::try_from).collect()
}
