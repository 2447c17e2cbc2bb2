//! Members: made with a token, rotated, suspended, resumed.

use super::{Error, NOT_FOUND, announce_authority, mint_bearer, new_public_id};
use crate::app::App;
use crate::commands::transaction::to_its_end;
use crate::domain::words::{MemberKind, Plane, Standing};
use crate::domain::{AccountId, MemberId, PublicId, refusal::Provision};
use crate::store::members::{self, Member};
use crate::store::tokens::{self, Owner};
use crate::store::tx::Tx;
use crate::store::{Error as Fault, accounts, executors};

/// What a new member is made of. An agent has a controlling human, a human has none.
#[derive(Debug, Clone)]
pub struct New {
    /// Its account.
    pub account: PublicId,
    /// Human or agent.
    pub kind: MemberKind,
    /// Unique in the account.
    pub handle: String,
    /// What people read.
    pub display_name: Option<String>,
    /// For an agent: a human of the same account.
    pub controlling_human: Option<PublicId>,
}

/// Makes a member and its token; the text is shown this once.
///
/// # Errors
/// The account or the controlling human is not there; that human is an agent; the handle is
/// taken; a fault of the database.
pub async fn create(app: &App, new: New) -> Result<(Member, String), Error> {
    let account = accounts::by_public_id(&app.store, new.account)
        .await?
        .ok_or(NOT_FOUND)?;
    let human = match new.controlling_human {
        Some(human) => Some(controlling_human(app, account.id, human).await?),
        None => None,
    };
    let row = members::New {
        account: account.id,
        public_id: new_public_id(app).await?,
        kind: new.kind,
        handle: new.handle,
        display_name: new.display_name,
        controlling_human: human,
    };
    let app = app.clone();
    to_its_end(move || insert(app.clone(), row.clone())).await
}

async fn controlling_human(
    app: &App,
    account: AccountId,
    human: PublicId,
) -> Result<MemberId, Error> {
    let human = members::by_public_id(&app.store, human)
        .await?
        .filter(|h| h.account == account)
        .ok_or(NOT_FOUND)?;
    match human.kind {
        MemberKind::Human => Ok(human.id),
        MemberKind::Agent => Err(Provision::ControllerIsNoHuman.into()),
    }
}

async fn insert(app: App, row: members::New) -> Result<(Member, String), Error> {
    let mut tx = app.store.conn().await?.begin().await?;
    match members::insert(&mut tx, &row).await {
        Err(fault) if fault.is_duplicate_of(members::HANDLE_INDEX) => {
            tx.rollback().await;
            return Err(Provision::HandleTaken.into());
        }
        inserted => inserted?,
    }
    let member = read(&mut tx, row.public_id).await?;
    let token = give_token(&app, &mut tx, &member, member.credential_epoch).await?;
    tx.commit().await?;
    Ok((member, token))
}

async fn read(tx: &mut Tx, id: PublicId) -> Result<Member, Error> {
    members::read(tx, id)
        .await?
        .ok_or_else(|| Fault::inconsistent("members", "public_id", id).into())
}

async fn give_token(app: &App, tx: &mut Tx, member: &Member, epoch: i32) -> Result<String, Error> {
    let minted = mint_bearer(&mut app.mint(), Plane::Member);
    tokens::replace(tx, member.account, Owner::Member(member.id), &minted, epoch).await?;
    Ok(minted.text)
}

/// Raises a member's epoch and mints one token; every earlier one is dead.
///
/// # Errors
/// Not found; a fault of the database.
pub async fn rotate(app: &App, id: PublicId) -> Result<(Member, String), Error> {
    let member = find(app, id).await?;
    let app = app.clone();
    to_its_end(move || rotate_once(app.clone(), member.clone())).await
}

async fn rotate_once(app: App, member: Member) -> Result<(Member, String), Error> {
    let mut tx = app.store.conn().await?.begin().await?;
    let epoch = members::rotate(&mut tx, member.account, member.id)
        .await?
        .ok_or(NOT_FOUND)?;
    let token = give_token(&app, &mut tx, &member, epoch).await?;
    let member = read(&mut tx, member.public_id).await?;
    tx.commit().await?;
    announce_authority(&app, [member.public_id]).await;
    Ok((member, token))
}

/// Suspends a member: its bearers, and those of an agent's address, are refused from now on.
/// Idempotent.
///
/// # Errors
/// Not found; a fault of the database.
pub async fn suspend(app: &App, id: PublicId) -> Result<Member, Error> {
    let member = set_status(app, id, Standing::Suspended).await?;
    let address = match member.kind {
        MemberKind::Agent => {
            executors::address_of_agent(&app.store, member.account, member.id).await?
        }
        MemberKind::Human => None,
    };
    announce_authority(app, [member.public_id].into_iter().chain(address)).await;
    Ok(member)
}

/// Resumes a member: its bearers are what they were. Idempotent.
///
/// # Errors
/// Not found; a fault of the database.
pub async fn resume(app: &App, id: PublicId) -> Result<Member, Error> {
    set_status(app, id, Standing::Active).await
}

async fn set_status(app: &App, id: PublicId, status: Standing) -> Result<Member, Error> {
    let member = find(app, id).await?;
    members::set_status(&app.store, member.account, member.id, status).await?;
    Ok(Member { status, ..member })
}

async fn find(app: &App, id: PublicId) -> Result<Member, Error> {
    members::by_public_id(&app.store, id)
        .await?
        .ok_or(NOT_FOUND)
}
