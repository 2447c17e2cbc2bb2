//! One socket's task: reads what the client asks, writes what waits, keeps it alive, ends it
//! (`cable.md` §2, §5, §6).
//!
//! Invariants: a client's frames are taken up one after the other; pings go out while one of them
//! is still being decided; nothing here holds more than one batch of frames beside the bounded
//! queue; whatever way the task ends, its subscriptions, its presence mark and its place in the
//! registry end with it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::SinkExt as _;
use tokio::time::Instant;
use uuid::Uuid;

use super::frames::{self, ClientFrame, Command, Identifier, Reason, Stream};
use super::limits::{Allowance, Beat, Incoming, Pongs};
use super::registry::Registry;
use super::socket::{Caller, Socket};
use super::subscriptions::{Held, Outcome, Subscribe};
use crate::app::App;
use crate::bus::{Attachment, Channel, Listening};
use crate::store::presence::Mark;
use crate::telemetry;

/// Between two pings of the protocol.
const PING_EVERY: Duration = Duration::from_secs(3);
/// A WebSocket ping goes out with every so many of them.
const WEBSOCKET_PING_EACH: u8 = 5;
/// How long a WebSocket pong may be missing.
const PONG_WITHIN: Duration = Duration::from_secs(30);
/// How long one write may be blocked.
const WRITE_WITHIN: Duration = Duration::from_secs(10);
/// How long the goodbye may take, and how long the client's own is waited for.
const GOODBYE_WITHIN: Duration = Duration::from_secs(2);
/// The longest frame of a client.
pub(super) const LONGEST_FRAME: usize = 16 * 1024;
/// The most live subscriptions.
const SUBSCRIPTIONS: usize = 64;
/// What is written before other things get their turn.
const BATCH: (usize, usize) = (64, 64 * 1024);

type Deciding = Pin<Box<dyn Future<Output = (Identifier, Outcome)> + Send>>;

/// How a socket ends.
enum End {
    /// A reason is told, then it is closed.
    Told(Reason),
    /// Closed with this code, nothing told.
    Closed(u16),
    /// Nothing can be told any more.
    Gone,
}

struct Live {
    token: Arc<str>,
    held: Held,
}

struct Connection {
    app: App,
    registry: Arc<Registry>,
    ws: WebSocket,
    socket: Arc<Socket>,
    connection: Uuid,
    attachment: Option<Attachment>,
    subscriptions: HashMap<String, Live>,
    allowance: Allowance,
    pongs: Pongs,
    beats: u8,
    answered: Instant,
    _listening: Listening,
}

/// Serves a proven caller's socket to its end.
pub(super) async fn serve(app: App, registry: Arc<Registry>, ws: WebSocket, caller: Caller) {
    let channel = Channel::Executor(caller.public_id());
    let socket = registry.enter(caller);
    let (listening, attachment) = app.bus.listen(channel, socket.clone());
    let connection = uuid::Builder::from_random_bytes(app.mint().bytes()).into_uuid();
    let now = Instant::now();
    let mut connection = Connection {
        app,
        registry,
        ws,
        socket,
        connection,
        attachment: Some(attachment),
        subscriptions: HashMap::new(),
        allowance: Allowance::new(now),
        pongs: Pongs::default(),
        beats: 0,
        answered: now,
        _listening: listening,
    };
    let end = connection.run().await;
    connection.finish(end).await;
}

/// Tells a socket that never came to be why, and closes it.
pub(super) async fn refuse(mut ws: WebSocket, reason: Reason) {
    goodbye(&mut ws, Some(reason), reason.close_code()).await;
}

/// Closes a socket without a word of a dialect that its client does not speak.
pub(super) async fn close(mut ws: WebSocket, code: u16) {
    goodbye(&mut ws, None, code).await;
}

async fn goodbye(ws: &mut WebSocket, reason: Option<Reason>, code: u16) {
    let farewell = async {
        if let Some(reason) = reason {
            ws.feed(text(frames::disconnect(reason))).await?;
        }
        ws.send(Message::Close(Some(CloseFrame {
            code,
            reason: Utf8Bytes::from_static(""),
        })))
        .await
    };
    if !matches!(
        tokio::time::timeout(GOODBYE_WITHIN, farewell).await,
        Ok(Ok(()))
    ) {
        return;
    }
    // Closing with unread bytes would reset the connection, and the last frames with it.
    let theirs = async { while let Some(Ok(_)) = ws.recv().await {} };
    let _ = tokio::time::timeout(GOODBYE_WITHIN, theirs).await;
}

fn text(frame: impl Into<Utf8Bytes>) -> Message {
    Message::Text(frame.into())
}

#[allow(
    clippy::disallowed_methods,
    reason = "the number in a ping is for the client's eyes; nothing is decided by it"
)]
fn unix_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Drop for Connection {
    fn drop(&mut self) {
        for live in std::mem::take(&mut self.subscriptions).into_values() {
            self.release(&live);
        }
        self.leave_inbox();
        self.registry.leave(self.socket.id);
    }
}

impl Connection {
    async fn run(&mut self) -> End {
        if let Err(end) = self.write(vec![text(frames::WELCOME)]).await {
            return end;
        }
        let mut beat = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let socket = self.socket.clone();
        let mut deciding: Option<Deciding> = None;
        loop {
            let step = tokio::select! {
                () = socket.rung() => self.flush().await,
                _ = beat.tick() => self.beat(deciding.is_none()).await,
                (identifier, outcome) = next(&mut deciding) => {
                    deciding = None;
                    self.decided(identifier, outcome)
                }
                incoming = self.ws.recv(), if deciding.is_none() => {
                    match self.incoming(incoming) {
                        Ok(subscribe) => {
                            deciding = subscribe;
                            Ok(())
                        }
                        Err(end) => Err(end),
                    }
                }
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    /// Writes frames, unless the socket is to end first or the client does not read.
    async fn write(&mut self, frames: Vec<Message>) -> Result<(), End> {
        let ws = &mut self.ws;
        let writing = async {
            for frame in frames {
                ws.feed(frame).await?;
            }
            ws.flush().await
        };
        tokio::select! {
            biased;
            written = tokio::time::timeout(WRITE_WITHIN, writing) => match written {
                Ok(Ok(())) => {
                    // The bell may have been taken by waiting below.
                    self.socket.ring_if_more();
                    Ok(())
                }
                Ok(Err(_)) => Err(End::Gone),
                Err(_) => {
                    tracing::debug!("cable: a write was blocked for too long");
                    Err(End::Told(Reason::SlowConsumer))
                }
            },
            reason = self.socket.to_close() => Err(End::Told(reason)),
        }
    }

    async fn flush(&mut self) -> Result<(), End> {
        if let Some(reason) = self.socket.closing() {
            return Err(End::Told(reason));
        }
        let batch = self.socket.take(BATCH.0, BATCH.1);
        if batch.is_empty() {
            return Ok(());
        }
        self.write(batch.iter().map(|f| text(f.text())).collect())
            .await
    }

    async fn beat(&mut self, reading: bool) -> Result<(), End> {
        let now = Instant::now();
        if !reading {
            // A pong that waits unread is no silence.
            self.answered = now;
        } else if now.duration_since(self.answered) > PONG_WITHIN {
            return Err(End::Gone);
        }
        if self.pongs.beat(reading) == Beat::PongTimeout {
            return Err(End::Told(Reason::PongTimeout));
        }
        self.beats = (self.beats + 1) % WEBSOCKET_PING_EACH;
        let mut out = vec![text(frames::ping(unix_seconds()))];
        if self.beats == 0 {
            out.push(Message::Ping(bytes::Bytes::new()));
        }
        self.write(out).await
    }

    /// Takes up one message of the client; a subscribe is decided beside everything else.
    fn incoming(
        &mut self,
        message: Option<Result<Message, axum::Error>>,
    ) -> Result<Option<Deciding>, End> {
        let frame = match message {
            None => return Err(End::Gone),
            Some(Err(error)) => return Err(broken(error)),
            Some(Ok(Message::Close(_))) => return Err(End::Closed(1000)),
            Some(Ok(Message::Pong(_))) => {
                self.answered = Instant::now();
                return Ok(None);
            }
            Some(Ok(Message::Ping(_))) => return self.charge(Incoming::Other).map(|()| None),
            Some(Ok(Message::Binary(bytes))) if bytes.len() > LONGEST_FRAME => {
                return Err(End::Closed(1009));
            }
            Some(Ok(Message::Binary(_))) => return self.charge(Incoming::Junk).map(|()| None),
            Some(Ok(Message::Text(text))) if text.len() > LONGEST_FRAME => {
                return Err(End::Closed(1009));
            }
            Some(Ok(Message::Text(text))) => frames::parse(&text),
        };
        match frame {
            None => self.charge(Incoming::Junk).map(|()| None),
            Some(frame) => self.asked(frame),
        }
    }

    fn charge(&mut self, incoming: Incoming) -> Result<(), End> {
        if self.allowance.charge(Instant::now(), incoming) {
            Ok(())
        } else {
            Err(End::Told(Reason::InvalidRequest))
        }
    }

    fn asked(&mut self, frame: ClientFrame) -> Result<Option<Deciding>, End> {
        let incoming = match frame.command {
            Command::Subscribe => Incoming::Subscribe,
            Command::Unsubscribe | Command::Message(_) => Incoming::Other,
        };
        self.charge(incoming)?;
        match frame.command {
            Command::Subscribe => self.subscribe(frame.identifier).map(Some),
            Command::Unsubscribe => {
                self.unsubscribe(&frame.identifier.text);
                Ok(None)
            }
            Command::Message(data) => {
                let live = self.subscriptions.get(&frame.identifier.text);
                if live.is_some_and(|l| matches!(l.held, Held::Inbox)) && frames::is_pong(&data) {
                    self.pongs.pong();
                }
                Ok(None)
            }
        }
    }

    fn subscribe(&mut self, identifier: Identifier) -> Result<Deciding, End> {
        let repeated = self.subscriptions.contains_key(&identifier.text);
        if !repeated && self.subscriptions.len() >= SUBSCRIPTIONS {
            return Err(End::Told(Reason::InvalidRequest));
        }
        let attachment = if Stream::read(&identifier.text) == Some(Stream::Inbox) {
            self.attachment.take()
        } else {
            None
        };
        let subscribe = Subscribe {
            app: self.app.clone(),
            registry: self.registry.clone(),
            socket: self.socket.clone(),
            connection: self.connection,
            identifier: identifier.clone(),
            repeated,
            attachment,
        };
        Ok(Box::pin(async move { (identifier, subscribe.run().await) }))
    }

    fn decided(&mut self, identifier: Identifier, outcome: Outcome) -> Result<(), End> {
        match outcome {
            Outcome::Live(held) => {
                let token = identifier.token;
                let live = Live { token, held };
                self.subscriptions.insert(identifier.text, live);
                Ok(())
            }
            Outcome::Still => Ok(()),
            Outcome::Rejected => {
                // Access may have gone since the first time.
                self.unsubscribe(&identifier.text);
                Ok(())
            }
            Outcome::End(reason) => Err(End::Told(reason)),
        }
    }

    fn unsubscribe(&mut self, identifier: &str) {
        if let Some(live) = self.subscriptions.remove(identifier) {
            self.release(&live);
            let inbox_left = self
                .subscriptions
                .values()
                .any(|l| matches!(l.held, Held::Inbox));
            if matches!(live.held, Held::Inbox) && !inbox_left {
                self.pongs.opt_out();
                self.leave_inbox();
            }
        }
    }

    fn release(&self, live: &Live) {
        match &live.held {
            Held::Inbox => self.socket.forget(&live.token),
            Held::Feed { feed, .. } => {
                feed.shut();
                self.registry.feed_shut(feed);
            }
        }
    }

    /// Owes the clearing of this connection's presence mark; harmless where it made none.
    fn leave_inbox(&self) {
        if let Caller::Executor(executor) = &self.socket.caller {
            self.registry.left(Mark {
                account: executor.account,
                executor: executor.id,
                connection: self.connection,
            });
        }
    }

    async fn finish(mut self, end: End) {
        let (reason, code) = match end {
            End::Gone => return,
            End::Closed(code) => (None, code),
            End::Told(reason) => (Some(reason), reason.close_code()),
        };
        if let Some(reason) = reason {
            metrics::counter!(telemetry::CABLE_DISCONNECTS, "reason" => reason.as_str())
                .increment(1);
        }
        // Nothing is pushed behind a goodbye.
        self.socket.discard();
        goodbye(&mut self.ws, reason, code).await;
    }
}

async fn next(deciding: &mut Option<Deciding>) -> (Identifier, Outcome) {
    match deciding {
        Some(deciding) => deciding.await,
        None => std::future::pending().await,
    }
}

/// How a socket ends whose next message could not be read.
fn broken(error: axum::Error) -> End {
    use tokio_tungstenite::tungstenite::Error;
    match error.into_inner().downcast_ref::<Error>() {
        Some(Error::Capacity(_)) => End::Closed(1009),
        Some(Error::Protocol(_)) => End::Closed(1002),
        Some(Error::Utf8(_)) => End::Closed(1007),
        _ => End::Gone,
    }
}
