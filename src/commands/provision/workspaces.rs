//! Workspaces and the grants on them.

use super::{Error, NOT_FOUND, announce_authority, new_public_id};
use crate::app::App;
use crate::domain::PublicId;
use crate::domain::words::Access;
use crate::store::grants::{self, Grant};
use crate::store::members::{self, Member};
use crate::store::workspaces::{self, Workspace};
use crate::store::{Error as Fault, accounts};

/// Makes a workspace of that name in that account.
///
/// # Errors
/// The account is not there; a fault of the database.
pub async fn create(app: &App, account: PublicId, name: &str) -> Result<Workspace, Error> {
    let account = accounts::by_public_id(&app.store, account)
        .await?
        .ok_or(NOT_FOUND)?;
    let public_id = new_public_id(app).await?;
    Ok(workspaces::insert(&app.store, account.id, public_id, name).await?)
}

/// Gives a member access to a workspace of its account, or replaces what it had; says whether the
/// grant is new.
///
/// # Errors
/// Either is not there, or they are of two accounts; a fault of the database.
pub async fn grant(
    app: &App,
    workspace: &Workspace,
    member: PublicId,
    access: Access,
) -> Result<(Grant, bool), Error> {
    let member = member_of(app, workspace, member).await?.ok_or(NOT_FOUND)?;
    let (created_at, is_new) = grants::put(
        &app.store,
        workspace.account,
        workspace.id,
        member.id,
        access,
    )
    .await?;
    announce_authority(app, [member.public_id]).await;
    let grant = Grant {
        workspace_public_id: workspace.public_id,
        member: member.id,
        member_public_id: member.public_id,
        access,
        created_at,
    };
    Ok((grant, is_new))
}

/// Takes a member's access to a workspace away.
///
/// # Errors
/// There is no such grant; a fault of the database.
pub async fn withdraw(app: &App, workspace: &Workspace, member: PublicId) -> Result<(), Error> {
    let member = member_of(app, workspace, member).await?.ok_or(NOT_FOUND)?;
    let was_there = grants::delete(&app.store, workspace.account, workspace.id, member.id).await?;
    if !was_there {
        return Err(NOT_FOUND);
    }
    announce_authority(app, [member.public_id]).await;
    Ok(())
}

async fn member_of(
    app: &App,
    workspace: &Workspace,
    member: PublicId,
) -> Result<Option<Member>, Fault> {
    let member = members::by_public_id(&app.store, member).await?;
    Ok(member.filter(|m| m.account == workspace.account))
}
