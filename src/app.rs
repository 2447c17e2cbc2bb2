//! Where the parts are wired: one value that every door and duty is given.

use std::sync::Arc;

use secrecy::ExposeSecret as _;
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::blobs::Blobs;
use crate::bus::Bus;
use crate::cable::Cable;
use crate::commands::claims::Inboxes;
use crate::commands::hold::Holds;
use crate::commands::lane::Lanes;
use crate::config::{self, Config};
use crate::engine::mint::Mint;
use crate::store::Store;

/// Lanes of a replica: two to four transactions at once are enough (measured).
const LANES: usize = 4;

/// The parts of one replica. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App(Arc<Parts>);

/// What an [`App`] holds.
#[derive(Debug)]
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// Postgres.
    pub store: Store,
    /// The bytes of files.
    pub blobs: Blobs,
    /// Redis, or the in-process bus.
    pub bus: Bus,
    /// The sockets that are open here.
    pub cable: Cable,
    /// What executes commands that write runs.
    pub lanes: Lanes,
    /// What judges holds once calls were claimed.
    pub holds: Holds,
    /// What executes batches of claims.
    pub inboxes: Inboxes,
    /// This replica's id, new at each start.
    pub replica_id: Uuid,
    /// Cancelled when a graceful stop begins: readiness fails, upgrades are refused.
    pub draining: CancellationToken,
}

impl std::ops::Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl App {
    /// Wires the parts. Touches neither the database nor Redis yet.
    ///
    /// # Errors
    /// A configuration that cannot work, by variable.
    #[allow(
        clippy::disallowed_methods,
        reason = "a replica's id is its own, not the kernel's"
    )]
    pub fn new(config: Config) -> Result<Self, config::Error> {
        let store = Store::new(&config.database)?;
        let blobs = Blobs::new(&config.blobs, store.clone())?;
        let bus = Bus::new(config.redis.as_ref())?;
        let lanes = Lanes::start(LANES, store.clone(), bus.clone());
        let holds = Holds::new(lanes.clone());
        Ok(Self(Arc::new(Parts {
            lanes,
            inboxes: Inboxes::new(store.clone(), holds.clone()),
            holds,
            store,
            blobs,
            bus,
            cable: Cable::default(),
            replica_id: Uuid::now_v7(),
            draining: CancellationToken::new(),
            config,
        })))
    }

    /// A source of ids and tokens for one command.
    pub fn mint(&self) -> Mint {
        Mint::new()
    }

    /// Whether this text is the bootstrap operator bearer; compared in constant time.
    pub fn is_bootstrap_operator(&self, text: &str) -> bool {
        self.config.operator_token.as_ref().is_some_and(|known| {
            known
                .expose_secret()
                .as_bytes()
                .ct_eq(text.as_bytes())
                .into()
        })
    }
}
