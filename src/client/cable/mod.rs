//! The cable: pushes over one WebSocket (`cable.md`). A hint, never the truth.
//!
//! [`connect`] starts a task that keeps a socket: it authenticates by header, subscribes every
//! identifier after each welcome, answers WebSocket pings, and comes back after a loss with
//! jittered back-off, until the server says `reconnect: false` or the [`Cable`] is dropped.
//!
//! Invariants:
//! - *bounded*: at most [`Options::queue`] events wait for the reader; then the socket is not read,
//!   and the server's own back-pressure applies. Pings are dropped rather than queued;
//! - *told, not hidden*: every loss is an event, since whatever was pushed meanwhile is lost and
//!   the reader must look again over HTTP;
//! - *silence is a loss*: a socket on which nothing arrives for [`Options::silence`] is given up.

pub mod frames;

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use reqwest::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream};

use self::frames::ServerFrame;
use super::chance::jittered;
use super::error::Error;
use super::tls;
use super::transport::Client;
use crate::domain::Value;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// How a cable behaves.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The wait before the first reconnect; doubled for each failure in a row.
    pub base: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// Give a socket up after this long without a frame (the server pings every 3 s).
    pub silence: Duration,
    /// How long connecting and being welcomed may take.
    pub handshake: Duration,
    /// How many events may wait for the reader.
    pub queue: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(250),
            longest: Duration::from_secs(15),
            silence: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            queue: 256,
        }
    }
}

/// What a cable tells its reader.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A subscription is attached: only now is what follows it complete.
    Confirmed(String),
    /// A subscription was refused; it is not tried again on this socket.
    Rejected(String),
    /// A push.
    Message {
        /// The subscription's identifier.
        identifier: String,
        /// What is pushed.
        message: Value,
    },
    /// The server is there; unix seconds.
    Ping(i64),
    /// The socket is gone.
    Lost {
        /// The server's reason, or what failed.
        reason: String,
        /// Whether the cable comes back; if not, this is the last event.
        reconnect: bool,
    },
}

/// A cable's reading end. Dropping it closes the socket.
#[derive(Debug)]
pub struct Cable {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Cable {
    /// The next event; `None` after the last one. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// An event that already waits.
    pub fn ready(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Reads until `identifier` is confirmed.
    ///
    /// # Errors
    /// The reason, when it is rejected or the cable ends.
    pub async fn confirmed(&mut self, identifier: &str) -> Result<(), String> {
        while let Some(event) = self.next().await {
            match event {
                Event::Confirmed(id) if id == identifier => return Ok(()),
                Event::Rejected(id) if id == identifier => return Err("rejected".to_owned()),
                Event::Lost {
                    reason,
                    reconnect: false,
                } => return Err(reason),
                _ => {}
            }
        }
        Err("the cable has ended".to_owned())
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a cable to the client's server with the client's bearer, subscribed to `identifiers`
/// (raw strings, sent byte for byte). Needs a Tokio runtime.
///
/// # Errors
/// [`Error::Setup`] when the client has no bearer or the URL cannot be used. Everything later is an
/// [`Event`].
pub fn connect(
    client: &Client,
    identifiers: Vec<String>,
    options: Options,
) -> Result<Cable, Error> {
    let bearer = client
        .bearer()
        .ok_or_else(|| Error::Setup("a cable needs a token".to_owned()))?;
    let (scheme, rest) = client
        .base_url()
        .split_once("://")
        .ok_or_else(|| Error::Setup("the base URL has no scheme".to_owned()))?;
    let (scheme, tls) = match scheme {
        "https" => ("wss", Some(Connector::Rustls(tls::native()?.into()))),
        _ => ("ws", None),
    };
    let (events, receiver) = mpsc::channel(options.queue);
    let keeper = Keeper {
        url: format!("{scheme}://{rest}/agent_api/v1/cable"),
        bearer: bearer.clone(),
        tls,
        identifiers,
        options,
        events,
    };
    Ok(Cable {
        events: receiver,
        task: tokio::spawn(keeper.keep()),
    })
}

/// Why a socket is over.
struct Loss {
    reason: String,
    reconnect: bool,
    /// It had been welcomed: the back-off starts anew.
    welcomed: bool,
}

impl Loss {
    fn early(reason: impl ToString) -> Self {
        Self {
            reason: reason.to_string(),
            reconnect: true,
            welcomed: false,
        }
    }
}

struct Keeper {
    url: String,
    bearer: HeaderValue,
    tls: Option<Connector>,
    identifiers: Vec<String>,
    options: Options,
    events: mpsc::Sender<Event>,
}

impl Keeper {
    async fn keep(self) {
        let mut failures = 0u32;
        loop {
            let loss = self.one_socket().await;
            failures = if loss.welcomed { 1 } else { failures + 1 };
            let over = !loss.reconnect;
            let told = self.events.send(Event::Lost {
                reason: loss.reason,
                reconnect: loss.reconnect,
            });
            if told.await.is_err() || over {
                return;
            }
            let factor = 1u32 << (failures - 1).min(16);
            let full = self.options.base.saturating_mul(factor);
            tokio::time::sleep(jittered(full.min(self.options.longest))).await;
        }
    }

    /// Connects, subscribes and reads until the socket is over.
    async fn one_socket(&self) -> Loss {
        let opened = tokio::time::timeout(self.options.handshake, self.open()).await;
        let mut socket = match opened {
            Ok(Ok(socket)) => socket,
            Ok(Err(loss)) => return loss,
            Err(_) => return Loss::early("no welcome in time"),
        };
        let loss = self.read(&mut socket).await;
        // A clean goodbye when the peer still listens; bounded, since it may not.
        let close = socket.close(None);
        let _ = tokio::time::timeout(Duration::from_millis(200), close).await;
        loss
    }

    /// Upgrades, waits for `welcome`, sends the subscriptions.
    async fn open(&self) -> Result<Socket, Loss> {
        let mut request = self.url.as_str().into_client_request().map_err(|e| Loss {
            reconnect: false,
            ..Loss::early(e)
        })?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.bearer.clone());
        let dialect = HeaderValue::from_static("actioncable-v1-json");
        headers.insert(SEC_WEBSOCKET_PROTOCOL, dialect);
        let connected =
            tokio_tungstenite::connect_async_tls_with_config(request, None, true, self.tls.clone());
        let (mut socket, _) = connected.await.map_err(refused_upgrade)?;
        loop {
            match self.next_frame(&mut socket).await? {
                ServerFrame::Welcome => break,
                ServerFrame::Disconnect { reason, reconnect } => {
                    return Err(Loss {
                        reconnect,
                        ..Loss::early(reason)
                    });
                }
                _ => {}
            }
        }
        for identifier in &self.identifiers {
            let frame = Message::text(frames::subscribe(identifier));
            socket.send(frame).await.map_err(Loss::early)?;
        }
        Ok(socket)
    }

    async fn read(&self, socket: &mut Socket) -> Loss {
        loop {
            let frame = match self.next_frame(socket).await {
                Ok(frame) => frame,
                Err(loss) => {
                    return Loss {
                        welcomed: true,
                        ..loss
                    };
                }
            };
            let event = match frame {
                ServerFrame::Ping(at) => {
                    let _ = self.events.try_send(Event::Ping(at));
                    continue;
                }
                ServerFrame::Confirm(id) => Event::Confirmed(id),
                ServerFrame::Reject(id) => Event::Rejected(id),
                ServerFrame::Message {
                    identifier,
                    message,
                } => Event::Message {
                    identifier,
                    message,
                },
                ServerFrame::Disconnect { reason, reconnect } => {
                    return Loss {
                        reason,
                        reconnect,
                        welcomed: true,
                    };
                }
                ServerFrame::Welcome | ServerFrame::Unknown => continue,
            };
            if self.events.send(event).await.is_err() {
                return Loss {
                    reconnect: false,
                    ..Loss::early("nobody reads")
                };
            }
        }
    }

    /// The next frame that is text; WebSocket pings are answered by the library while reading.
    async fn next_frame(&self, socket: &mut Socket) -> Result<ServerFrame, Loss> {
        loop {
            let next = tokio::time::timeout(self.options.silence, socket.next()).await;
            match next {
                Err(_) => return Err(Loss::early("silence")),
                Ok(None) => return Err(Loss::early("closed")),
                Ok(Some(Err(e))) => return Err(Loss::early(e)),
                Ok(Some(Ok(Message::Text(text)))) => return Ok(frames::parse(&text)),
                Ok(Some(Ok(Message::Close(_)))) => return Err(Loss::early("closed")),
                Ok(Some(Ok(_))) => {}
            }
        }
    }
}

/// An upgrade that was answered otherwise: a refused credential is final, the rest may pass.
fn refused_upgrade(e: tungstenite::Error) -> Loss {
    match e {
        tungstenite::Error::Http(response) => {
            let status = response.status().as_u16();
            Loss {
                reconnect: !matches!(status, 401 | 403),
                ..Loss::early(format!("the upgrade was answered {status}"))
            }
        }
        other => Loss::early(other),
    }
}

#[cfg(test)]
mod tests;
