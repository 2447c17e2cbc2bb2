//! Resources of the operator plane (`operating.md` §4, `admission.md` §6, §7).

use serde::Deserialize;

use crate::client::words::{Access, MemberKind, Standing};
use crate::domain::Timestamp;

/// An account: the unit of placement.
#[derive(Debug, Clone, Deserialize)]
pub struct Account {
    /// Its id.
    pub public_id: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Whether it may act.
    #[serde(default)]
    pub status: Option<Standing>,
    /// When it was made.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

/// A workspace of an account.
#[derive(Debug, Clone, Deserialize)]
pub struct Workspace {
    /// Its id.
    pub public_id: String,
    /// The account it belongs to.
    #[serde(default)]
    pub account_public_id: Option<String>,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// When it was made.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

/// A human or an agent.
#[derive(Debug, Clone, Deserialize)]
pub struct Member {
    /// Its id.
    pub public_id: String,
    /// The account it belongs to.
    #[serde(default)]
    pub account_public_id: Option<String>,
    /// What it is.
    #[serde(default)]
    pub kind: Option<MemberKind>,
    /// Its handle, unique in the account.
    #[serde(default)]
    pub handle: String,
    /// What people read.
    #[serde(default)]
    pub display_name: Option<String>,
    /// The human an agent answers to.
    #[serde(default)]
    pub controlling_human_public_id: Option<String>,
    /// Whether it may act.
    #[serde(default)]
    pub status: Option<Standing>,
}

/// A member beside a token that is shown this once.
#[derive(Clone, Deserialize)]
pub struct MemberCredential {
    /// The member.
    pub member: Member,
    /// Its bearer on the member plane.
    pub token: String,
}

impl std::fmt::Debug for MemberCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemberCredential({})", self.member.public_id)
    }
}

/// What a member may do in a workspace.
#[derive(Debug, Clone, Deserialize)]
pub struct Grant {
    /// The workspace.
    #[serde(default)]
    pub workspace_public_id: Option<String>,
    /// The member.
    #[serde(default)]
    pub member_public_id: Option<String>,
    /// The access.
    #[serde(default)]
    pub access: Option<Access>,
}

/// A replica as its heartbeat shows it.
#[derive(Debug, Clone, Deserialize)]
pub struct Replica {
    /// Its id.
    pub id: String,
    /// The program's version.
    #[serde(default)]
    pub version: Option<String>,
    /// What it does.
    #[serde(default)]
    pub roles: Vec<String>,
    /// When it last said so.
    #[serde(default)]
    pub heartbeat_at: Option<Timestamp>,
    /// Whether it is shutting down.
    #[serde(default)]
    pub draining: bool,
}

/// The sweeper: who leads, and how its sweeps do.
#[derive(Debug, Clone, Deserialize)]
pub struct SweeperState {
    /// Leases, one a partition.
    #[serde(default)]
    pub leases: Vec<SweepLease>,
    /// Sweeps.
    #[serde(default)]
    pub sweeps: Vec<Sweep>,
}

/// One lease.
#[derive(Debug, Clone, Deserialize)]
pub struct SweepLease {
    /// Its name.
    pub name: String,
    /// The replica that holds it.
    #[serde(default)]
    pub holder: Option<String>,
    /// Its fencing number.
    #[serde(default)]
    pub token: Option<i64>,
    /// When it runs out.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
}

/// One sweep.
#[derive(Debug, Clone, Deserialize)]
pub struct Sweep {
    /// Its name.
    pub name: String,
    /// When it last ran.
    #[serde(default)]
    pub last_run_at: Option<Timestamp>,
    /// Rows it handled last.
    #[serde(default)]
    pub rows: Option<i64>,
    /// How far behind it is.
    #[serde(default)]
    pub lag_seconds: Option<f64>,
}

/// One forced cycle.
#[derive(Debug, Clone, Deserialize)]
pub struct SweepRun {
    /// Its name.
    pub sweep: String,
    /// Rows it handled.
    #[serde(default)]
    pub rows: i64,
}
