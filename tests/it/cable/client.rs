//! A bare WebSocket client: it shows the exact frames.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use nexus::domain::PublicId;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::support::Door;

/// Longer than anything here takes, and short enough for a person to wait for.
const PATIENCE: Duration = Duration::from_secs(20);

/// The inbox's identifier as stock clients spell it.
pub const INBOX: &str = r#"{"channel":"AgentAPI::V1::ExecutorInboxChannel"}"#;

/// A run channel's identifier.
pub fn run_channel(workspace: PublicId, run: PublicId, items: &str) -> String {
    format!(
        r#"{{"channel":"AgentAPI::V1::RunEventsChannel","workspace_id":"{workspace}","run_id":"{run}","items":"{items}"}}"#
    )
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    Text(String),
    /// A close frame's code, or none when the connection just ended.
    Closed(Option<u16>),
}

pub struct Cable {
    ws: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// The subprotocol that was chosen.
    pub protocol: Option<String>,
    /// Pings seen so far.
    pub pings: usize,
}

/// An upgrade's headers.
pub struct Open<'a> {
    pub token: Option<&'a str>,
    pub protocols: Option<&'a str>,
    pub origin: Option<&'a str>,
}

impl Open<'_> {
    /// Opens; an answer that is no upgrade is the error.
    pub async fn at(self, door: &Door) -> Result<Cable, Box<tungstenite::Error>> {
        let url = format!("{}/agent_api/v1/cable", door.base.replacen("http", "ws", 1));
        let mut request = url.into_client_request().unwrap();
        let headers = request.headers_mut();
        if let Some(token) = self.token {
            let bearer = format!("Bearer {token}");
            headers.insert("authorization", bearer.parse().unwrap());
        }
        if let Some(protocols) = self.protocols {
            headers.insert("sec-websocket-protocol", protocols.parse().unwrap());
        }
        if let Some(origin) = self.origin {
            headers.insert("origin", origin.parse().unwrap());
        }
        // The client library refuses an answer that chose nothing of what was offered; that is one
        // of the answers tested here.
        let (ws, response) = match tokio_tungstenite::connect_async(request).await {
            Ok(opened) => opened,
            Err(error) => return Err(Box::new(error)),
        };
        Ok(Cable {
            ws,
            protocol: response
                .headers()
                .get("sec-websocket-protocol")
                .map(|v| v.to_str().unwrap().to_owned()),
            pings: 0,
        })
    }
}

impl Cable {
    /// Opens with a bearer, and reads the welcome.
    pub async fn open(door: &Door, token: &str) -> Self {
        let mut cable = Open {
            token: Some(token),
            protocols: Some("actioncable-v1-json, actioncable-unsupported"),
            origin: None,
        }
        .at(door)
        .await
        .unwrap();
        cable.expect(r#"{"type":"welcome"}"#).await;
        cable
    }

    /// Opens an executor's socket with its inbox subscribed.
    pub async fn inbox(door: &Door, token: &str) -> Self {
        let mut cable = Self::open(door, token).await;
        cable.subscribe(INBOX).await;
        cable
    }

    pub async fn send(&mut self, text: impl Into<String>) {
        self.ws
            .send(Message::text(text.into()))
            .await
            .expect("the socket is open");
    }

    pub async fn command(&mut self, command: &str, identifier: &str) {
        let identifier = quoted(identifier);
        self.send(format!(
            r#"{{"command":"{command}","identifier":{identifier}}}"#
        ))
        .await;
    }

    pub async fn pong(&mut self) {
        let identifier = quoted(INBOX);
        self.send(format!(
            r#"{{"command":"message","identifier":{identifier},"data":"{{\"action\":\"pong\"}}"}}"#
        ))
        .await;
    }

    /// Subscribes and reads the confirmation.
    pub async fn subscribe(&mut self, identifier: &str) {
        self.command("subscribe", identifier).await;
        self.expect(&confirmed(identifier)).await;
    }

    /// Subscribes and reads the rejection.
    pub async fn is_rejected(&mut self, identifier: &str) {
        self.command("subscribe", identifier).await;
        self.expect(&format!(
            r#"{{"identifier":{},"type":"reject_subscription"}}"#,
            quoted(identifier)
        ))
        .await;
    }

    /// The next text or the end, pings counted and left out.
    pub async fn next(&mut self) -> Got {
        let reading = async {
            loop {
                match self.ws.next().await {
                    Some(Ok(Message::Text(text))) if text.starts_with(r#"{"type":"ping""#) => {
                        self.pings += 1;
                    }
                    Some(Ok(Message::Text(text))) => return Got::Text(text.to_string()),
                    Some(Ok(Message::Close(frame))) => {
                        return Got::Closed(frame.map(|f| f.code.into()));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Got::Closed(None),
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading)
            .await
            .expect("something comes in time")
    }

    #[track_caller]
    pub fn expect(&mut self, text: &str) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let got = self.next().await;
            assert_eq!(got, Got::Text(text.to_owned()), "at {caller}");
        }
    }

    pub async fn expect_push(&mut self, identifier: &str, message: &str) {
        self.expect(&format!(
            r#"{{"identifier":{},"message":{message}}}"#,
            quoted(identifier)
        ))
        .await;
    }

    /// The disconnect frame, then the close.
    pub async fn expect_disconnect(&mut self, reason: &str, reconnect: bool, code: u16) {
        self.expect(&format!(
            r#"{{"type":"disconnect","reason":"{reason}","reconnect":{reconnect}}}"#
        ))
        .await;
        assert_eq!(self.next().await, Got::Closed(Some(code)));
    }

    /// Nothing but pings came until the server has answered this client once more: what it had to
    /// say before is said.
    pub async fn expect_quiet(&mut self) {
        self.is_rejected("{}").await;
    }

    /// Reads pings until that many more have come.
    pub async fn await_pings(&mut self, n: usize) {
        let until = self.pings + n;
        while self.pings < until {
            match tokio::time::timeout(PATIENCE, self.ws.next())
                .await
                .unwrap()
            {
                Some(Ok(Message::Text(text))) => {
                    assert!(text.starts_with(r#"{"type":"ping""#), "{text}");
                    self.pings += 1;
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("the socket ended: {other:?}"),
            }
        }
    }

    pub async fn close(mut self) {
        let _ = self.ws.close(None).await;
        while let Some(Ok(_)) = self.ws.next().await {}
    }
}

pub fn confirmed(identifier: &str) -> String {
    format!(
        r#"{{"identifier":{},"type":"confirm_subscription"}}"#,
        quoted(identifier)
    )
}
