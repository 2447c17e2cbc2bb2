//! Provisioning: accounts, workspaces, members, executors, credentials (`operating.md` §4,
//! `executor.md` §2). The service layer of the operator plane and of the command line.
//!
//! Does not know HTTP, who the operator is, or runs: what a lost standing does to runs is another
//! command's.
//!
//! Invariants:
//! - a write of several statements is one transaction and runs to its end once begun, whether or
//!   not its caller still waits;
//! - a token's text leaves here once, at minting, and is stored nowhere;
//! - whoever loses a credential or standing is told to the sockets after the commit; a lost hint
//!   is made good by each replica's own re-check within 5 s.

pub mod accounts;
pub mod executors;
pub mod members;
pub mod tokens;
pub mod workspaces;

use super::transaction::Failure;
use crate::app::App;
use crate::domain::PublicId;
use crate::domain::credential::{LOOKUP_LEN, Minted, SECRET_LEN};
use crate::domain::hint::Hint;
use crate::domain::refusal;
use crate::domain::words::Plane;
use crate::engine::mint::Mint;
use crate::store;

/// Why a command of provisioning did nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A rule says no.
    #[error("{}", .0.message())]
    Refused(refusal::Provision),
    /// The database failed.
    #[error("the database failed")]
    Fault(#[from] store::Error),
}

impl From<refusal::Provision> for Error {
    fn from(refusal: refusal::Provision) -> Self {
        Self::Refused(refusal)
    }
}

const NOT_FOUND: Error = Error::Refused(refusal::Provision::NotFound);

impl Failure for Error {
    fn fault(&self) -> Option<&store::Error> {
        match self {
            Self::Fault(fault) => Some(fault),
            Self::Refused(_) => None,
        }
    }
}

/// A fresh bearer of that plane.
fn mint_bearer(mint: &mut Mint, plane: Plane) -> Minted {
    let lookup = mint.base62(LOOKUP_LEN);
    let secret = mint.base62(SECRET_LEN);
    Minted::of(plane, lookup, &secret, mint.bytes())
}

/// A public id for something made now.
async fn new_public_id(app: &App) -> Result<PublicId, Error> {
    let now = app.store.now().await?;
    Ok(app.mint().public_id(now))
}

/// Tells sockets that these must prove themselves again.
async fn announce_authority(app: &App, subjects: impl IntoIterator<Item = PublicId>) {
    let hints = subjects
        .into_iter()
        .map(|subject| Hint::AuthorityChanged { subject })
        .collect();
    app.bus.announce(hints).await;
}
