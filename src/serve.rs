//! The life of one replica: bind, wait for the schema, run the roles, stop gracefully
//! (`conventions.md` §14, `architecture.md` §1).
//!
//! Knows which parts a role runs and in which order a stop goes. Does not know any route, rule or
//! statement.
//!
//! Invariants:
//! - a replica serves nothing but health until the schema is as new as this program;
//! - a stop first tells (readiness, answers that close), then gives back (leases), then waits, then
//!   cuts; it ends within the drain time whatever clients do;
//! - cutting loses no accepted work: a kill -9 at any point is only a late client's retry.

pub mod listener;
pub mod options;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::config::{self, Config};
use crate::http::{ApiError, health};
use crate::store::{self, migrate, replicas, test_clock};
use crate::sweeper::Sweeper;
use crate::telemetry;

use listener::{Door, Patience, Routes, Stops};

/// How long new connections are still accepted, for balancers that have not noticed yet.
const NOTICE: Duration = Duration::from_secs(5);

/// How often a replica says that it is up.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// How often a replica looks whether the schema is ready.
const SCHEMA_POLL: Duration = Duration::from_millis(250);

/// One running replica.
#[derive(Debug)]
pub struct Server {
    /// Where the API listens.
    pub addr: SocketAddr,
    /// Where metrics are.
    pub admin_addr: SocketAddr,
    /// Its parts.
    pub app: App,
    life: Life,
    runtime: Option<Runtime>,
}

/// What a stop pulls, in order.
#[derive(Debug, Clone)]
struct Life {
    roles: CancellationToken,
    stops: Stops,
    role_tasks: TaskTracker,
    connections: TaskTracker,
    ready: watch::Sender<bool>,
}

/// Runs a replica until it is told to stop by SIGTERM or SIGINT; a second signal skips the wait.
///
/// # Errors
/// A configuration that cannot work (an address that is taken, a log filter that does not parse),
/// by variable.
pub async fn serve(config: Config) -> Result<(), config::Error> {
    telemetry::init(&config.log)?;
    let mut signals = Signals::new()?;
    let server = Server::start_here(config).await?;
    signals.next().await;
    tokio::select! {
        () = server.drain() => tracing::info!("stopped"),
        () = signals.next() => tracing::warn!("a second signal: stopped at once"),
    }
    server.leave().await;
    Ok(())
}

struct Signals {
    term: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, config::Error> {
        let listen = |kind| {
            signal(kind).map_err(|e| config::Error::new("SIGTERM", format!("cannot listen: {e}")))
        };
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

impl Server {
    /// Starts a replica on a runtime of its own, so that [`kill`](Self::kill) can drop all that it
    /// does. Listen on port 0 for a free one. Returns once both listeners are bound; see
    /// [`ready`](Self::ready).
    ///
    /// # Errors
    /// A configuration that cannot work, by variable.
    pub async fn start(config: Config) -> Result<Self, config::Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("nexus")
            .enable_all()
            .build()
            .map_err(|e| config::Error::new("nexus serve", format!("cannot start threads: {e}")))?;
        let starting = runtime.spawn(Self::start_here(config));
        let started = starting
            .await
            .map_err(|e| config::Error::new("nexus serve", e.to_string()))
            .and_then(|started| started);
        match started {
            Ok(mut server) => {
                server.runtime = Some(runtime);
                Ok(server)
            }
            Err(error) => {
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Starts a replica on the current runtime.
    ///
    /// # Errors
    /// A configuration that cannot work, by variable.
    pub async fn start_here(config: Config) -> Result<Self, config::Error> {
        telemetry::metrics();
        let api = bind("NEXUS_LISTEN", config.http.listen).await?;
        let admin = bind("NEXUS_ADMIN_LISTEN", config.http.admin_listen).await?;
        let app = App::new(config)?;
        let life = Life {
            roles: CancellationToken::new(),
            stops: Stops::default(),
            role_tasks: TaskTracker::new(),
            connections: TaskTracker::new(),
            ready: watch::Sender::new(false),
        };
        let server = Self {
            addr: local(&api)?,
            admin_addr: local(&admin)?,
            app,
            life,
            runtime: None,
        };
        server.open(api, admin);
        Ok(server)
    }

    fn open(&self, api: TcpListener, admin: TcpListener) {
        let gate = Arc::new(AtomicBool::new(false));
        let roles = self.app.config.roles;
        let waiting = waiting_routes(self.app.clone(), gate.clone());
        let open = if roles.api {
            crate::http::router(self.app.clone())
        } else {
            waiting.clone()
        };
        let door = |routes| Door {
            routes,
            stops: self.life.stops.clone(),
            patience: Patience::default(),
            tasks: self.life.connections.clone(),
        };
        door(Routes {
            waiting,
            open,
            gate: gate.clone(),
        })
        .open(api);
        let private = admin_routes(self.app.clone(), gate.clone());
        door(Routes::always(private)).open(admin);
        tracing::info!(
            listen = %self.addr, admin = %self.admin_addr, roles = ?roles.words(),
            replica = %self.app.replica_id, version = env!("CARGO_PKG_VERSION"), "listening"
        );
        if self.app.config.redis.is_none() {
            tracing::warn!(
                "NEXUS_REDIS_URL is unset: hints stay within this process; run one replica only"
            );
        }
        let life = self.life.clone();
        let app = self.app.clone();
        self.life.role_tasks.spawn(async move {
            tokio::select! {
                () = schema_ready(&app) => {
                    gate.store(true, Ordering::Release);
                    life.ready.send_replace(true);
                    run_roles(app, &life);
                }
                () = life.roles.cancelled() => {}
            }
        });
    }

    /// Returns once the schema is there and the roles run.
    pub async fn ready(&self) {
        let mut ready = self.life.ready.subscribe();
        // The sender lives as long as `self`.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    /// The whole stop of `conventions.md` §14: tells, gives back, waits up to the drain time, cuts.
    pub async fn graceful_stop(mut self) {
        self.drain().await;
        self.leave().await;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Ends everything where it stands, as kill -9 would: connections, sweeps, commands.
    pub fn kill(mut self) {
        self.cut();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Steps 1 to 5: returns when nothing is left to wait for, or the drain time is over.
    async fn drain(&self) {
        let drain = self.app.config.drain;
        let deadline = Instant::now() + drain;
        tracing::info!(drain_seconds = drain.as_secs(), "draining");
        // 1: readiness, admission, upgrades, `Connection: close`.
        self.app.draining.cancel();
        // 2: leases are given back, batches under way end.
        self.life.roles.cancel();
        self.life.role_tasks.close();
        // 3: new connections for a while.
        tokio::time::sleep(NOTICE.min(drain / 2)).await;
        self.life.stops.accepting.cancel();
        // 4, 5: what runs may finish.
        self.life.connections.close();
        let finished = async {
            tokio::join!(
                self.life.connections.wait(),
                self.life.role_tasks.wait(),
                self.app.cable.drained()
            );
        };
        if tokio::time::timeout_at(deadline, finished).await.is_err() {
            tracing::warn!(
                connections = self.life.connections.len(),
                "the drain time is over: cut"
            );
        }
    }

    /// Step 6, and this replica is no longer listed.
    async fn leave(&self) {
        self.cut();
        let gone = replicas::remove(&self.app.store, self.app.replica_id);
        let _ = tokio::time::timeout(Duration::from_secs(1), gone).await;
    }

    fn cut(&self) {
        self.app.draining.cancel();
        self.life.roles.cancel();
        self.life.stops.accepting.cancel();
        self.life.stops.cut.cancel();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that forgets its server, or fails: dropping a runtime inside another one panics.
        self.cut();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn bind(variable: &str, addr: SocketAddr) -> Result<TcpListener, config::Error> {
    TcpListener::bind(addr)
        .await
        .map_err(|e| config::Error::new(variable, format!("cannot listen on {addr}: {e}")))
}

fn local(listener: &TcpListener) -> Result<SocketAddr, config::Error> {
    listener
        .local_addr()
        .map_err(|e| config::Error::new("NEXUS_LISTEN", e.to_string()))
}

/// Waits until the schema is at least at the version this program knows; says why not, once for
/// each reason and then every ten seconds.
async fn schema_ready(app: &App) {
    let known = migrate::known_version();
    let mut said: Option<(String, Instant)> = None;
    loop {
        let problem = match app.store.schema_version().await {
            Ok(current) if current >= known => match prepare_clock(app).await {
                Ok(()) => return,
                Err(fault) => telemetry::chain(&fault),
            },
            Ok(current) => format!(
                "the schema is at version {current} and this program needs {known}: run `nexus migrate`"
            ),
            Err(fault) => telemetry::chain(&fault),
        };
        let again = said.as_ref().is_none_or(|(before, at)| {
            *before != problem || at.elapsed() >= Duration::from_secs(10)
        });
        if again {
            tracing::warn!(problem, "not serving yet");
            said = Some((problem, Instant::now()));
        }
        tokio::time::sleep(SCHEMA_POLL).await;
    }
}

/// Under `NEXUS_TEST_CLOCK` the database's clock becomes one that tests move.
async fn prepare_clock(app: &App) -> Result<(), store::Error> {
    if app.config.test_clock {
        tracing::warn!("NEXUS_TEST_CLOCK is on: decisions use a clock that tests move");
        test_clock::enable(&app.store).await?;
    }
    Ok(())
}

fn run_roles(app: App, life: &Life) {
    if app.config.roles.sweeper {
        life.role_tasks
            .spawn(Sweeper::of(&app).run(life.roles.clone()));
    }
    // Not among the roles: a replica says that it is draining for as long as it drains.
    tokio::spawn(heartbeats(app, life.stops.cut.clone()));
}

/// Says every ten seconds that this replica is up, and at once when it begins to drain.
async fn heartbeats(app: App, cut: CancellationToken) {
    let roles = app.config.roles.words();
    let store = app.store.metered_apart();
    loop {
        let draining = app.draining.is_cancelled();
        let version = env!("CARGO_PKG_VERSION");
        let beat = replicas::heartbeat(&store, app.replica_id, version, &roles, draining);
        if let Err(fault) = beat.await {
            tracing::debug!(error = telemetry::chain(&fault), "a heartbeat failed");
        }
        tokio::select! {
            () = tokio::time::sleep(HEARTBEAT) => {}
            () = app.draining.cancelled(), if !draining => {}
            () = cut.cancelled() => return,
        }
    }
}

/// Health alone: before the schema is there, and on replicas without the role `api`.
fn waiting_routes(app: App, gate: Arc<AtomicBool>) -> Router {
    health_routes(gate)
        .fallback(async || ApiError::unavailable("unavailable"))
        .layer(axum::middleware::from_fn(crate::http::request_id::layer))
        .with_state(app)
}

/// The private listener: metrics, and health for probes that cannot reach the API.
fn admin_routes(app: App, gate: Arc<AtomicBool>) -> Router {
    health_routes(gate)
        .route("/metrics", get(metrics_text))
        .fallback(async || ApiError::not_found())
        .with_state(app)
}

fn health_routes(gate: Arc<AtomicBool>) -> Router<App> {
    let readyz = async move |State(app): State<App>| {
        let open = gate.load(Ordering::Acquire);
        let replica_id = app.replica_id;
        let answer = health::readyz(State(app)).await;
        if open || !answer.status().is_success() {
            return answer;
        }
        // The schema is there and this replica has not noticed yet: it would refuse.
        let body = Json(json!({"status": "not_ready", "database": "ok", "replica_id": replica_id}));
        (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
    };
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(readyz))
}

async fn metrics_text(
    State(app): State<App>,
) -> (StatusCode, [(header::HeaderName, &'static str); 1], String) {
    let handle = telemetry::metrics();
    let (size, free) = app.store.pool_status();
    let gauge = |state, n: usize| {
        // Pools have at most a thousand connections.
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        metrics::gauge!(telemetry::POOL_CONNECTIONS, "state" => state).set(n);
    };
    gauge("idle", free);
    gauge("in_use", size.saturating_sub(free));
    handle.run_upkeep();
    (
        StatusCode::OK,
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        handle.render(),
    )
}
