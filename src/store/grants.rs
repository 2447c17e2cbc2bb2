//! Grants: what a member may do in a workspace.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::page::Order;
use super::{Error, Sql, Store};
use crate::domain::words::Access;
use crate::domain::{AccountId, MemberId, PublicId, Timestamp, WorkspaceId};

/// A grant.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The workspace's public id.
    pub workspace_public_id: PublicId,
    /// The member's inner id.
    pub member: MemberId,
    /// The member's public id.
    pub member_public_id: PublicId,
    /// What it allows.
    pub access: Access,
    /// When it was first given.
    pub created_at: Timestamp,
}

impl TryFrom<&Row> for Grant {
    type Error = Error;

    fn try_from(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            workspace_public_id: PublicId(row.get("workspace_public_id")),
            member: MemberId(row.get("member_id")),
            member_public_id: PublicId(row.get("member_public_id")),
            access: super::rows::word(row, "grants", "access")?,
            created_at: row.get("created_at"),
        })
    }
}

// `xmax = 0` on the row an upsert gives back: it was inserted, not updated.
static PUT: Sql = Sql::new(
    "grants.put",
    "INSERT INTO grants (account_id, workspace_id, member_id, access) VALUES ($1, $2, $3, $4)
     ON CONFLICT (account_id, workspace_id, member_id) DO UPDATE SET access = excluded.access
     RETURNING created_at, xmax = 0 AS created",
    &[Type::INT8, Type::INT8, Type::INT8, Type::TEXT],
);

static DELETE: Sql = Sql::new(
    "grants.delete",
    "DELETE FROM grants WHERE account_id = $1 AND workspace_id = $2 AND member_id = $3",
    &[Type::INT8, Type::INT8, Type::INT8],
);

macro_rules! select {
    () => {
        "SELECT w.public_id AS workspace_public_id, g.member_id, m.public_id AS member_public_id,
                g.access, g.created_at
           FROM grants g
           JOIN workspaces w ON w.account_id = g.account_id AND w.workspace_id = g.workspace_id
           JOIN members m ON m.account_id = g.account_id AND m.member_id = g.member_id
          WHERE g.account_id = $1 AND g.workspace_id = $2"
    };
}

static READ: Sql = Sql::new(
    "grants.read",
    concat!(select!(), " AND m.public_id = $3"),
    &[Type::INT8, Type::INT8, Type::UUID],
);

static LIST: [Sql; 2] = [
    Sql::new(
        "grants.list_asc",
        concat!(
            select!(),
            " AND g.member_id > coalesce($3, 0) ORDER BY g.member_id LIMIT $4"
        ),
        &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
    ),
    Sql::new(
        "grants.list_desc",
        concat!(
            select!(),
            " AND g.member_id < coalesce($3, 9223372036854775807) ORDER BY g.member_id DESC LIMIT $4"
        ),
        &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
    ),
];

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&PUT, &DELETE, &READ, &LIST[0], &LIST[1]];

/// Gives or replaces a grant; says when it was first given, and whether that was now.
///
/// # Errors
/// A fault of the database.
pub async fn put(
    store: &Store,
    account: AccountId,
    workspace: WorkspaceId,
    member: MemberId,
    access: Access,
) -> Result<(Timestamp, bool), Error> {
    let row = store
        .conn()
        .await?
        .query_one(
            &PUT,
            &[&account.0, &workspace.0, &member.0, &access.as_str()],
        )
        .await?;
    Ok((row.get("created_at"), row.get("created")))
}

/// Takes a grant away; false when there was none.
///
/// # Errors
/// A fault of the database.
pub async fn delete(
    store: &Store,
    account: AccountId,
    workspace: WorkspaceId,
    member: MemberId,
) -> Result<bool, Error> {
    let n = store
        .conn()
        .await?
        .execute(&DELETE, &[&account.0, &workspace.0, &member.0])
        .await?;
    Ok(n > 0)
}

/// The grant of that member in that workspace.
///
/// # Errors
/// A fault of the database.
pub async fn read(
    store: &Store,
    account: AccountId,
    workspace: WorkspaceId,
    member: PublicId,
) -> Result<Option<Grant>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&READ, &[&account.0, &workspace.0, &member.0])
        .await?;
    row.as_ref().map(Grant::try_from).transpose()
}

/// At most `limit` grants of a workspace, after that member's.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    account: AccountId,
    workspace: WorkspaceId,
    after: Option<MemberId>,
    order: Order,
    limit: i64,
) -> Result<Vec<Grant>, Error> {
    let after = after.map(|m| m.0);
    let rows = store
        .conn()
        .await?
        .query(order.of(&LIST), &[&account.0, &workspace.0, &after, &limit])
        .await?;
    rows.iter().map(Grant::try_from).collect()
}
