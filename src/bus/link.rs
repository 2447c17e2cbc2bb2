//! The one connection to Redis: subscribe, prove, heal.
//!
//! Why not the crate's own connection manager: it resubscribes without telling when, and a link
//! whose packets vanish looks alive to it for as long as nobody sends. Here a link counts as up only
//! after it proved itself, and it proves itself again every few seconds by hearing its own message
//! and by writing a key: a dead subscription, a half-open connection and a primary that became a
//! read-only replica all fail that proof, and the link is made anew.
//!
//! Invariants: a link is replaced within [`PROVE_EVERY`] + [`PROVE_WITHIN`] of going silent; every
//! replacement ends with the listeners that missed something being told so.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, FromRedisValue, IntoConnectionInfo as _,
    Pipeline, ProtocolVersion, PushInfo, PushKind, RedisError, Value,
};
use secrecy::ExposeSecret as _;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::channel::{Channel, Names};
use super::hub::Hub;
use super::wire;
use crate::config;

/// How often a link proves itself.
const PROVE_EVERY: Duration = Duration::from_secs(3);
/// How long the proof may take.
const PROVE_WITHIN: Duration = Duration::from_secs(4);
/// How long connecting, and one command, may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The shortest pause between two attempts to connect.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The most channels of one SUBSCRIBE.
const CHUNK: usize = 500;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the connection failed")]
    Redis(#[from] RedisError),
    #[error("the server closed the connection")]
    Closed,
    #[error("the connection went silent")]
    Silent,
}

/// The connection and its standing.
pub(super) struct Link {
    client: Client,
    names: Names,
    hub: Arc<Hub>,
    connection: Mutex<Option<MultiplexedConnection>>,
    /// A command failed or was late since the last proof.
    suspected: AtomicBool,
    prove_now: Notify,
}

fn information(redis: &config::Redis) -> Result<ConnectionInfo, RedisError> {
    let info = redis.url.expose_secret().into_connection_info()?;
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3);
    Ok(info
        .set_redis_settings(settings)
        .set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

impl Link {
    pub(super) fn new(redis: &config::Redis, hub: Arc<Hub>) -> Result<Self, config::Error> {
        // The parser's own words may repeat the URL, and the URL holds a password.
        let client = information(redis).and_then(Client::open).map_err(|_| {
            config::Error::new(
                "NEXUS_REDIS_URL",
                "takes a URL such as redis://user:password@host:6379/0",
            )
        })?;
        Ok(Self {
            client,
            names: Names::new(&redis.prefix),
            hub,
            connection: Mutex::new(None),
            suspected: AtomicBool::new(false),
            prove_now: Notify::new(),
        })
    }

    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<MultiplexedConnection>> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_up(&self) -> bool {
        !self.suspected.load(Ordering::Relaxed) && self.slot().is_some()
    }

    /// The connection, when it can be used.
    pub(super) fn connection(&self) -> Option<MultiplexedConnection> {
        self.slot().clone()
    }

    /// A command failed: the link proves itself at once, and until it has, counters stay local.
    pub(super) fn suspect(&self, error: &dyn std::error::Error) {
        tracing::debug!(error = %error, "a Redis command failed");
        self.suspected.store(true, Ordering::Relaxed);
        self.prove_now.notify_one();
    }

    /// The answer of a pipeline, or none when Redis is away or does not answer in time.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        within: Duration,
        pipe: &Pipeline,
    ) -> Option<T> {
        if !self.is_up() {
            return None;
        }
        let mut connection = self.connection()?;
        match tokio::time::timeout(within, pipe.query_async(&mut connection)).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                self.suspect(&error);
                None
            }
            Err(late) => {
                self.suspect(&late);
                None
            }
        }
    }

    /// Keeps a link up until stopped.
    pub(super) async fn run(
        self: Arc<Self>,
        mut wanted: mpsc::UnboundedReceiver<Channel>,
        stop: CancellationToken,
    ) {
        let mut pause = SHORTEST_PAUSE;
        let mut told = false;
        while !stop.is_cancelled() {
            let mut proven = false;
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                ended = self.serve(&mut wanted, &mut proven) => ended,
            };
            self.slot().take();
            self.hub.down();
            if proven {
                (pause, told) = (SHORTEST_PAUSE, false);
            }
            if !told {
                let error = chain(&ended);
                tracing::warn!(
                    error,
                    "Redis is away: no pushes, polling covers; trying again"
                );
                told = true;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.slot().take();
        self.hub.down();
    }

    /// One connection, from connecting to its end.
    async fn serve(
        &self,
        wanted: &mut mpsc::UnboundedReceiver<Channel>,
        proven: &mut bool,
    ) -> Ended {
        match self.serve_until(wanted, proven).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn serve_until(
        &self,
        wanted: &mut mpsc::UnboundedReceiver<Channel>,
        proven: &mut bool,
    ) -> Result<std::convert::Infallible, Ended> {
        let probe = Probe::new(&self.names);
        let closed = Arc::new(Notify::new());
        let ear = self.ear(&probe, &closed);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_push_sender(ear);
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        connection.subscribe(&probe.channel).await?;
        probe.prove(&mut connection).await?;

        // Whoever listens from here on is in the queue; whoever listened before is in the list.
        while wanted.try_recv().is_ok() {}
        let listened = self.hub.listened();
        self.subscribe(&mut connection, &listened).await?;
        self.suspected.store(false, Ordering::Relaxed);
        *self.slot() = Some(connection.clone());
        self.hub.up();
        self.hub.attach(&listened);
        *proven = true;
        tracing::info!(channels = listened.len(), "Redis is there");

        let mut every = tokio::time::interval(PROVE_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        every.reset();
        let mut asked = Vec::new();
        loop {
            tokio::select! {
                () = closed.notified() => return Err(Ended::Closed),
                _ = every.tick() => {
                    self.prove(&probe, &mut connection).await?;
                    self.unsubscribe_idle(&mut connection).await?;
                }
                () = self.prove_now.notified() => self.prove(&probe, &mut connection).await?,
                _ = wanted.recv_many(&mut asked, CHUNK) => {
                    let channels = self.hub.unattached(&asked);
                    asked.clear();
                    self.subscribe(&mut connection, &channels).await?;
                    self.hub.attach(&channels);
                }
            }
        }
    }

    async fn prove(
        &self,
        probe: &Probe,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), Ended> {
        probe.prove(connection).await?;
        self.suspected.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn subscribe(
        &self,
        connection: &mut MultiplexedConnection,
        channels: &[Channel],
    ) -> Result<(), Ended> {
        for chunk in channels.chunks(CHUNK) {
            let names: Vec<String> = chunk.iter().map(|c| self.names.channel(*c)).collect();
            connection.subscribe(names).await?;
        }
        Ok(())
    }

    async fn unsubscribe_idle(&self, connection: &mut MultiplexedConnection) -> Result<(), Ended> {
        let idle = self.hub.release_idle();
        for chunk in idle.chunks(CHUNK) {
            let names: Vec<String> = chunk.iter().map(|c| self.names.channel(*c)).collect();
            connection.unsubscribe(names).await?;
        }
        // Somebody may have come meanwhile: found unattached, so already in the queue.
        Ok(())
    }

    /// What hears the pushes of one connection: runs on the connection's own task, and only hands
    /// messages on.
    fn ear(
        &self,
        probe: &Probe,
        closed: &Arc<Notify>,
    ) -> impl Fn(PushInfo) -> Result<(), std::convert::Infallible> + Send + Sync + 'static {
        let (names, hub, closed) = (self.names.clone(), self.hub.clone(), closed.clone());
        let (probe_channel, heard) = (probe.channel.clone(), probe.heard.clone());
        move |push| {
            match push.kind {
                PushKind::Disconnection => closed.notify_one(),
                PushKind::Message => {
                    if let Some((name, text)) = message_of(&push) {
                        if name == probe_channel {
                            heard.send_replace(text.parse().unwrap_or(0));
                        } else if let (Some(channel), Some(message)) =
                            (names.read(name), wire::decode(text))
                        {
                            hub.deliver(channel, &message);
                        }
                    }
                }
                _ => {}
            }
            Ok(())
        }
    }
}

fn message_of(push: &PushInfo) -> Option<(&str, &str)> {
    let [channel, payload] = push.data.as_slice() else {
        return None;
    };
    Some((text_of(channel)?, text_of(payload)?))
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// How a link proves itself: it hears what it published, and writes to a primary.
struct Probe {
    channel: String,
    key: String,
    sent: AtomicU64,
    heard: Arc<watch::Sender<u64>>,
}

impl Probe {
    #[allow(
        clippy::disallowed_methods,
        reason = "a link's name is its own, not the kernel's"
    )]
    fn new(names: &Names) -> Self {
        let (channel, key) = names.probe(&uuid::Uuid::now_v7().simple().to_string());
        Self {
            channel,
            key,
            sent: AtomicU64::new(0),
            heard: Arc::new(watch::Sender::new(0)),
        }
    }

    async fn prove(&self, connection: &mut MultiplexedConnection) -> Result<(), Ended> {
        let n = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        let mut write = redis::cmd("SET");
        write.arg(&self.key).arg(n).arg("PX").arg(60_000);
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&self.channel).arg(n);
        let mut heard = self.heard.subscribe();
        let proof = async {
            match write.exec_async(connection).await {
                Err(error) if error.code() == Some("READONLY") => return Err(error.into()),
                // It answers; that it has no room, or lets us write nothing, is no reason to go
                // without pushes.
                Err(error) if error.code().is_some() => {
                    tracing::debug!(%error, "Redis took no write");
                }
                outcome => outcome?,
            }
            publish.exec_async(connection).await?;
            heard
                .wait_for(|latest| *latest >= n)
                .await
                .map_err(|_| Ended::Closed)?;
            Ok(())
        };
        tokio::time::timeout(PROVE_WITHIN, proof)
            .await
            .map_err(|_| Ended::Silent)?
    }
}

/// An error and its sources, in one line. The crate's errors name no secrets.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
