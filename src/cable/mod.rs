//! The cable: pushes over WebSockets, in the dialect of ActionCable (`cable.md`).
//!
//! Knows frames, sockets and the bus's messages. Does not know what a message means, and decides
//! nothing: a push is a hint, polling is the truth.
//!
//! Invariants:
//! - a replica reads the credentials of all its sockets in one statement, every five seconds and at
//!   once when one is said to have changed;
//! - per socket, what waits to be written is bounded, and idle sockets hold no large buffer;
//! - a push costs what the subscribers of its own stream cost;
//! - a stop sends every socket away with a word, spread over time.

mod connection;
mod duties;
mod frames;
mod handshake;
mod limits;
mod outbound;
mod registry;
mod socket;
mod subscriptions;

use std::sync::{Arc, Once};

use axum::Router;
use axum::routing::get;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::app::App;
use registry::Registry;

/// The cable's routes: `GET /agent_api/v1/cable`.
pub fn routes() -> Router<App> {
    Router::new().route("/agent_api/v1/cable", get(handshake::upgrade))
}

/// The sockets of one replica and their duties, which end with this value.
#[derive(Debug)]
pub struct Cable {
    registry: Arc<Registry>,
    start: Once,
    stop: CancellationToken,
    _stop: DropGuard,
}

impl Default for Cable {
    fn default() -> Self {
        let stop = CancellationToken::new();
        Self {
            registry: Arc::new(Registry::new()),
            start: Once::new(),
            stop: stop.clone(),
            _stop: stop.drop_guard(),
        }
    }
}

impl Cable {
    /// How many sockets are open.
    pub fn sockets(&self) -> usize {
        *self.registry.count.borrow()
    }

    /// Returns once no socket is open: after `App::draining` was cancelled, the sockets are sent
    /// away over at most half the drain time.
    pub async fn drained(&self) {
        // The sender lives in the registry.
        let _ = self.registry.count.subscribe().wait_for(|n| *n == 0).await;
    }

    /// The registry, its duties started with the first socket.
    fn started(&self, app: &App) -> Arc<Registry> {
        self.start.call_once(|| {
            duties::start(
                &self.registry,
                &app.store,
                &app.draining,
                app.config.drain,
                &self.stop,
            );
        });
        self.registry.clone()
    }
}
