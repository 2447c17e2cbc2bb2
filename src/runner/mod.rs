//! The reference runner: a library that serves tools from an executor's inbox, as a fleet would
//! want it (`operating.md` §2, `cable.md` §7, `executor.md`).
//!
//! ```no_run
//! # async fn example(client: nexus::client::Client) -> Result<(), nexus::runner::Error> {
//! use nexus::runner::{Ctx, Output, Runner, profiles};
//! let runner = Runner::builder(client)
//!     .concurrency(8)
//!     .tool("hello", profiles::PURE, |_: Ctx, _| async { Output::text("hello") })
//!     .build()?;
//! let report = runner.serve(async { tokio::signal::ctrl_c().await.unwrap_or(()) }).await?;
//! # Ok(()) }
//! ```
//!
//! A handler may start child work of its own and wait for it; see [`Operations`].
//!
//! The parts: [`feeder`](self) looks for work and claims it, `listener` turns cable frames into
//! nudges, `call` keeps one claimed call alive until its handler is done, `deliver` commits, and
//! `courier` carries commits that are done at once together.
//!
//! Does not know: steps, runs, models; what a tool does; the server's modules.
//!
//! Invariants:
//! - *polling is the truth*: without the cable everything still happens, at polling pace;
//! - *a claim is asked for once per key*: while an answer is missing, only the same key is sent;
//! - *one commit body*: a result is serialised once, and every repeat is those bytes;
//! - *a lost claim is not committed*: once the kernel says a claim is over, its handler is stopped
//!   and its result discarded;
//! - *no proof, no stop*: time-outs, 429 and 5xx never stop a handler;
//! - *at most `concurrency` handlers* run, and never more rows are asked for than there are free
//!   places.

mod call;
mod courier;
mod deliver;
mod feeder;
mod hub;
mod lease;
mod listener;
mod operations;
pub mod tools;
mod work;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use self::feeder::Feeder;
use self::hub::Hub;
use crate::client::{Announcement, Client, RetryPolicy, ServedTool, cable};
use crate::domain::Value;
use crate::domain::effect_profile::EffectProfile;

pub use operations::{Op, OperationError, Operations, Outcome, Until};
pub use work::{Ctx, Output, Tool, profiles};

/// Why a runner ended, or could not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The credential is dead: re-paired, revoked, expired, or of another plane.
    #[error(
        "the credential was refused (401 unauthorized): it was re-paired, revoked, or is no \
         executor credential; pair this runner again and start it with the new token"
    )]
    Unauthorized,
    /// The announcement was refused.
    #[error("the announcement was refused: {0}")]
    Announcement(#[source] crate::client::Error),
    /// The runner was built wrongly.
    #[error("{0}")]
    Setup(String),
}

/// How a runner paces itself.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// The inbox is read at least this often.
    pub poll: Duration,
    /// How long the first look waits for the cable's confirm.
    pub confirm: Duration,
    /// Each held claim is read at least this often.
    pub check: Duration,
    /// How long handlers may go on after a shutdown was asked for.
    pub grace: Duration,
    /// How long a canceled handler may take to end by itself.
    pub cancel_grace: Duration,
    /// How long a commit is repeated.
    pub commit_within: Duration,
    /// The shortest time between two progress frames of a call.
    pub progress: Duration,
    /// Waits between attempts.
    pub backoff: RetryPolicy,
    /// The cable's own pacing.
    pub cable: cable::Options,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(5),
            confirm: Duration::from_secs(5),
            check: Duration::from_secs(5),
            grace: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(5),
            commit_within: Duration::from_secs(600),
            progress: Duration::from_millis(250),
            backoff: RetryPolicy::default(),
            cable: cable::Options::default(),
        }
    }
}

/// What a runner did, told when it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Claims granted.
    pub claimed: u64,
    /// Commits answered 200.
    pub committed: u64,
    /// Handlers stopped because their claim was over.
    pub canceled: u64,
    /// Results the kernel refused for good.
    pub refused: u64,
    /// Results or handlers given up: the grace was over, or nobody answered.
    pub abandoned: u64,
}

/// Builds a [`Runner`].
pub struct Builder {
    client: Client,
    tools: Vec<(ServedTool, Arc<dyn Tool>)>,
    environment: Option<Value>,
    concurrency: usize,
    timing: Timing,
}

impl Builder {
    /// Serves `name` with `handler`. Any `Fn(Ctx, Value) -> impl Future<Output = Output>` is a
    /// handler.
    #[must_use]
    pub fn tool(self, name: &str, profile: EffectProfile, handler: impl Tool) -> Self {
        self.served(ServedTool::new(name, profile), handler)
    }

    /// Serves a tool that is described more fully.
    #[must_use]
    pub fn served(mut self, served: ServedTool, handler: impl Tool) -> Self {
        self.tools.push((served, Arc::new(handler)));
        self
    }

    /// Announces this environment (an object).
    #[must_use]
    pub fn environment(mut self, environment: Value) -> Self {
        self.environment = Some(environment);
        self
    }

    /// How many handlers may run at once; 4 when not said.
    #[must_use]
    pub fn concurrency(mut self, places: usize) -> Self {
        self.concurrency = places;
        self
    }

    /// Other paces than the default.
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// The runner.
    ///
    /// # Errors
    /// [`Error::Setup`]: no place, or a name twice.
    pub fn build(self) -> Result<Runner, Error> {
        if self.concurrency == 0 {
            return Err(Error::Setup("concurrency must be at least 1".to_owned()));
        }
        let mut announcement = Announcement {
            environment: self.environment,
            ..Announcement::default()
        };
        let mut tools = HashMap::new();
        for (served, handler) in self.tools {
            let timeout_ms = served.timeout_ms;
            let twice = tools.insert(served.name.clone(), (timeout_ms, handler));
            if twice.is_some() {
                return Err(Error::Setup(format!(
                    "tool `{}` is given twice",
                    served.name
                )));
            }
            announcement.tools.push(served);
        }
        Ok(Runner {
            hub: Hub::new(self.client, tools, self.concurrency, self.timing),
            announcement,
        })
    }
}

/// A runner, ready to serve.
pub struct Runner {
    hub: Arc<Hub>,
    announcement: Announcement,
}

impl Runner {
    /// Begins to build a runner; `client` carries an executor credential. Its retry policy is not
    /// used: the runner decides itself what is repeated.
    pub fn builder(client: Client) -> Builder {
        Builder {
            client: client.without_retry(),
            tools: Vec::new(),
            environment: None,
            concurrency: 4,
            timing: Timing::default(),
        }
    }

    /// What will be announced.
    pub fn announcement(&self) -> &Announcement {
        &self.announcement
    }

    /// Announces, then serves until `shutdown` is ready; then takes nothing new, lets handlers
    /// finish within [`Timing::grace`], and answers what was done.
    ///
    /// # Errors
    /// [`Error::Unauthorized`] when the credential dies meanwhile, [`Error::Announcement`].
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<Report, Error> {
        let hub = self.hub;
        announce(&hub, &self.announcement).await?;
        let calls = TaskTracker::new();
        let listener = tokio::spawn(listener::listen(Arc::clone(&hub)));
        let feeder = tokio::spawn(Feeder::new(Arc::clone(&hub), calls.clone()).feed());
        tokio::select! {
            () = shutdown => tracing::info!("shutting down: taking no new work"),
            () = hub.stopping() => {}
        }
        hub.stop();
        if feeder.await.is_err() {
            tracing::error!("the feeder panicked");
        }
        drain(&hub, &calls).await;
        listener.abort();
        hub.outcome()
    }
}

async fn announce(hub: &Hub, announcement: &Announcement) -> Result<(), Error> {
    let client = hub.client.with_retry(hub.timing.backoff);
    match client.announce(announcement).await {
        Ok(answer) => {
            let executor = &answer.executor;
            tracing::info!(executor.id = %executor.public_id, kind = %executor.kind, "announced");
            Ok(())
        }
        Err(e) if e.is_unauthorized() => Err(Error::Unauthorized),
        Err(e) => Err(Error::Announcement(e)),
    }
}

/// Lets calls end within the grace, then cuts them.
async fn drain(hub: &Hub, calls: &TaskTracker) {
    calls.close();
    let within = if hub.is_unauthorized() {
        Duration::ZERO
    } else {
        hub.timing.grace
    };
    if tokio::time::timeout(within, calls.wait()).await.is_err() {
        hub.cut();
        calls.wait().await;
    }
}
