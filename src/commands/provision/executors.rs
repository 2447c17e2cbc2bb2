//! Executors: registered or paired again, rotated, revoked, shut down (`executor.md` §2, §19).
//!
//! Invariant: whatever moves an epoch or revokes locks the executor's row first, so two of them
//! come one after another and the last one's token is the one that works.

use super::{Error, NOT_FOUND, announce_authority, mint_bearer, new_public_id};
use crate::app::App;
use crate::commands::transaction::to_its_end;
use crate::domain::hint::{Hint, WakeRole};
use crate::domain::words::{AssignmentScope, ExecutorKind, ExecutorStatus, MemberKind, Plane};
use crate::domain::{AccountId, ExecutorId, PublicId, refusal::Provision};
use crate::store::executors::{self, Executor, Key};
use crate::store::members::{self, Member};
use crate::store::tokens::{self, Owner};
use crate::store::tx::Tx;

/// What is registered.
#[derive(Debug, Clone)]
pub enum New {
    /// A runner or tool provider.
    Machine {
        /// Which of the two.
        kind: ExecutorKind,
        /// The human who manages it.
        manager: PublicId,
        /// What the installer calls it; none: it is a machine of its own, never paired again by
        /// this call.
        registration_identifier: Option<String>,
        /// Whose work it may do; none: its manager's, or what a live registration has.
        assignment_scope: Option<AssignmentScope>,
        /// What people read.
        display_name: String,
    },
    /// The address of an agent: one per agent.
    Application {
        /// The agent.
        agent: PublicId,
        /// What people read.
        display_name: String,
    },
}

/// A bearer that is shown this once.
#[derive(Clone)]
pub struct Credential {
    /// Its text.
    pub token: String,
    /// The epoch it carries.
    pub credential_epoch: i32,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential(epoch {})", self.credential_epoch)
    }
}

/// An executor beside its new credential.
#[derive(Debug, Clone)]
pub struct Paired {
    /// The executor.
    pub executor: Executor,
    /// Its credential; every older one is dead.
    pub credential: Credential,
    /// Whether it was registered now, and not paired again.
    pub is_new: bool,
}

/// What the transaction needs of a [`New`], owner looked up.
#[derive(Debug, Clone)]
struct Registration {
    row: executors::New,
    scope_asked: Option<AssignmentScope>,
}

/// Registers an executor. A live one under the same key and of the same kind is paired again: same
/// public id, new credential. After revocation the key makes a new public id.
///
/// # Errors
/// Manager or agent not there, or of the wrong kind; the key held by a live executor of another
/// kind or scope; a fault of the database.
pub async fn create(app: &App, new: New) -> Result<Paired, Error> {
    let registration = registration(app, new).await?;
    let app = app.clone();
    to_its_end(move || register(app.clone(), registration.clone())).await
}

async fn registration(app: &App, new: New) -> Result<Registration, Error> {
    let public_id = new_public_id(app).await?;
    Ok(match new {
        New::Machine {
            kind,
            manager,
            registration_identifier,
            assignment_scope,
            display_name,
        } => {
            let manager = owner(app, manager).await?;
            if manager.kind != MemberKind::Human {
                return Err(Provision::ManagerIsNoHuman.into());
            }
            let identifier = registration_identifier.unwrap_or_else(|| public_id.to_string());
            Registration {
                row: executors::New {
                    account: manager.account,
                    public_id,
                    kind,
                    key: Key::Machine(manager.id, identifier),
                    assignment_scope: assignment_scope.or(Some(AssignmentScope::UserPrivate)),
                    display_name,
                },
                scope_asked: assignment_scope,
            }
        }
        New::Application {
            agent,
            display_name,
        } => {
            let agent = owner(app, agent).await?;
            if agent.kind != MemberKind::Agent {
                return Err(Provision::AgentIsNoAgent.into());
            }
            Registration {
                row: executors::New {
                    account: agent.account,
                    public_id,
                    kind: ExecutorKind::AgentApplication,
                    key: Key::Agent(agent.id),
                    assignment_scope: None,
                    display_name,
                },
                scope_asked: None,
            }
        }
    })
}

async fn owner(app: &App, id: PublicId) -> Result<Member, Error> {
    members::by_public_id(&app.store, id)
        .await?
        .ok_or(NOT_FOUND)
}

async fn register(app: App, registration: Registration) -> Result<Paired, Error> {
    let Registration { row, scope_asked } = registration;
    let mut tx = app.store.conn().await?.begin().await?;
    loop {
        if let Some(live) = executors::lock_live(&mut tx, row.account, &row.key).await? {
            if let Some(refusal) = mismatch(&live, row.kind, scope_asked) {
                tx.rollback().await;
                return Err(refusal.into());
            }
            return pair_again(app, tx, &live, Some(&row.display_name)).await;
        }
        if let Some((id, epoch)) = executors::insert(&mut tx, &row).await? {
            let credential = give_token(&app, &mut tx, row.account, id, epoch).await?;
            let executor = executors::read(&mut tx, row.account, id).await?;
            tx.commit().await?;
            return Ok(Paired {
                executor,
                credential,
                is_new: true,
            });
        }
        // Somebody registered the key between the two statements: that one is live now, unless it
        // was revoked as well. Look again.
    }
}

fn mismatch(
    live: &Executor,
    kind: ExecutorKind,
    scope: Option<AssignmentScope>,
) -> Option<Provision> {
    if live.kind != kind {
        return Some(Provision::ExecutorKindMismatch);
    }
    (scope.is_some() && live.assignment_scope != scope).then_some(Provision::ExecutorScopeMismatch)
}

async fn pair_again(
    app: App,
    mut tx: Tx,
    live: &Executor,
    display_name: Option<&str>,
) -> Result<Paired, Error> {
    let Some(epoch) = executors::rotate(&mut tx, live.account, live.id, display_name).await? else {
        tx.rollback().await;
        return Err(Provision::ExecutorRevoked.into());
    };
    let credential = give_token(&app, &mut tx, live.account, live.id, epoch).await?;
    let executor = executors::read(&mut tx, live.account, live.id).await?;
    tx.commit().await?;
    announce_authority(&app, [executor.public_id]).await;
    Ok(Paired {
        executor,
        credential,
        is_new: false,
    })
}

async fn give_token(
    app: &App,
    tx: &mut Tx,
    account: AccountId,
    id: ExecutorId,
    epoch: i32,
) -> Result<Credential, Error> {
    let minted = mint_bearer(&mut app.mint(), Plane::Executor);
    tokens::replace(tx, account, Owner::Executor(id), &minted, epoch).await?;
    Ok(Credential {
        token: minted.text,
        credential_epoch: epoch,
    })
}

/// Pairs an executor again: its epoch rises, every older token is dead, address and public id
/// survive.
///
/// # Errors
/// Not found; revoked; a fault of the database.
pub async fn rotate(app: &App, id: PublicId) -> Result<Paired, Error> {
    let executor = find(app, id).await?;
    let app = app.clone();
    to_its_end(move || {
        let (app, executor) = (app.clone(), executor.clone());
        async move {
            let tx = app.store.conn().await?.begin().await?;
            pair_again(app, tx, &executor, None).await
        }
    })
    .await
}

/// Revokes an executor for good: its bearers are refused at once, its sockets cut, its unclaimed
/// rows failed in the background. Idempotent.
///
/// # Errors
/// Not found; a fault of the database.
pub async fn revoke(app: &App, id: PublicId) -> Result<Executor, Error> {
    let executor = find(app, id).await?;
    let app = app.clone();
    to_its_end(move || revoke_once(app.clone(), executor.clone())).await
}

async fn revoke_once(app: App, executor: Executor) -> Result<Executor, Error> {
    let mut tx = app.store.conn().await?.begin().await?;
    let was_active = executors::revoke(&mut tx, executor.account, executor.id).await?;
    if was_active {
        tokens::retire(&mut tx, executor.account, Owner::Executor(executor.id)).await?;
    }
    let executor = executors::read(&mut tx, executor.account, executor.id).await?;
    tx.commit().await?;
    if was_active {
        let subject = executor.public_id;
        let hints = vec![
            Hint::AuthorityChanged { subject },
            Hint::Wake(WakeRole::Sweeper),
        ];
        app.bus.announce(hints).await;
    }
    Ok(executor)
}

/// Asks an executor to drain: from now on it is eligible for nothing new, its unclaimed rows are
/// failed in the background, its claims may be finished. Idempotent.
///
/// # Errors
/// Not found; revoked; a fault of the database.
pub async fn shutdown(app: &App, id: PublicId) -> Result<Executor, Error> {
    let executor = find(app, id).await?;
    if executor.status == ExecutorStatus::Revoked
        || !executors::shutdown(&app.store, executor.account, executor.id).await?
    {
        return Err(Provision::ExecutorRevoked.into());
    }
    app.bus.announce(vec![Hint::Wake(WakeRole::Sweeper)]).await;
    find(app, id).await
}

async fn find(app: &App, id: PublicId) -> Result<Executor, Error> {
    executors::by_public_id(&app.store, id)
        .await?
        .ok_or(NOT_FOUND)
}
