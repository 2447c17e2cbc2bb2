//! The cable against a scripted server on a real socket.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use super::*;

/// One accepted cable of the scripted server.
struct Peer {
    socket: WebSocketStream<TcpStream>,
    authorization: String,
}

impl Peer {
    async fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        let mut authorization = String::new();
        #[allow(clippy::result_large_err, reason = "the callback's form is given")]
        let answer = |request: &Request, mut response: Response| {
            let header = |name| request.headers().get(name).cloned();
            authorization = header("authorization")
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let offered = header("sec-websocket-protocol").unwrap();
            response
                .headers_mut()
                .insert("sec-websocket-protocol", offered);
            Ok(response)
        };
        let socket = accept_hdr_async(stream, answer).await.unwrap();
        Self {
            socket,
            authorization,
        }
    }

    async fn send(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    async fn text(&mut self) -> String {
        loop {
            if let Message::Text(text) = self.socket.next().await.unwrap().unwrap() {
                return text.to_string();
            }
        }
    }
}

const ID: &str = r#"{ "channel":"AgentAPI::V1::ExecutorInboxChannel" }"#;

fn tagged(kind: &str) -> String {
    let id = serde_json::to_string(ID).unwrap();
    format!(r#"{{"identifier":{id},"type":"{kind}"}}"#)
}

async fn start(options: Options) -> (TcpListener, Cable) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::new(&base, "sk-test").unwrap();
    let cable = connect(&client, vec![ID.to_owned()], options).unwrap();
    (listener, cable)
}

fn quick() -> Options {
    Options {
        base: Duration::from_millis(5),
        ..Options::default()
    }
}

#[tokio::test]
async fn it_authenticates_subscribes_after_the_welcome_and_delivers() {
    let (listener, mut cable) = start(quick()).await;
    let mut peer = Peer::accept(&listener).await;
    assert_eq!(peer.authorization, "Bearer sk-test");
    peer.send(r#"{"type":"welcome"}"#).await;
    assert_eq!(peer.text().await, frames::subscribe(ID));
    peer.send(tagged("confirm_subscription")).await;
    let id = serde_json::to_string(ID).unwrap();
    peer.send(format!(r#"{{"identifier":{id},"message":{{"n":1}}}}"#))
        .await;
    assert_eq!(cable.confirmed(ID).await, Ok(()));
    assert_eq!(
        cable.next().await,
        Some(Event::Message {
            identifier: ID.to_owned(),
            message: Value::from([("n", 1.into())]),
        })
    );
}

#[tokio::test]
async fn websocket_pings_are_answered() {
    let (listener, _cable) = start(quick()).await;
    let mut peer = Peer::accept(&listener).await;
    peer.send(r#"{"type":"welcome"}"#).await;
    peer.text().await;
    let ping = Message::Ping(vec![7].into());
    peer.socket.send(ping).await.unwrap();
    let answer = peer.socket.next().await.unwrap().unwrap();
    assert_eq!(answer, Message::Pong(vec![7].into()));
}

#[tokio::test]
async fn a_cut_socket_is_told_and_comes_back_subscribed() {
    let (listener, mut cable) = start(quick()).await;
    let mut peer = Peer::accept(&listener).await;
    peer.send(r#"{"type":"welcome"}"#).await;
    peer.text().await;
    peer.send(tagged("confirm_subscription")).await;
    cable.confirmed(ID).await.unwrap();
    drop(peer);
    let lost = cable.next().await.unwrap();
    assert!(
        matches!(
            lost,
            Event::Lost {
                reconnect: true,
                ..
            }
        ),
        "{lost:?}"
    );
    let mut peer = Peer::accept(&listener).await;
    peer.send(r#"{"type":"welcome"}"#).await;
    assert_eq!(peer.text().await, frames::subscribe(ID));
    peer.send(tagged("confirm_subscription")).await;
    assert_eq!(cable.confirmed(ID).await, Ok(()));
}

#[tokio::test]
async fn reconnect_false_is_the_end() {
    let (listener, mut cable) = start(quick()).await;
    let mut peer = Peer::accept(&listener).await;
    peer.send(r#"{"type":"disconnect","reason":"unauthorized","reconnect":false}"#)
        .await;
    let lost = cable.next().await;
    let reason = "unauthorized".to_owned();
    assert_eq!(
        lost,
        Some(Event::Lost {
            reason,
            reconnect: false
        })
    );
    assert_eq!(cable.next().await, None);
}

#[tokio::test]
async fn br_078_a_silent_socket_is_given_up() {
    let silence = Duration::from_millis(40);
    let (listener, mut cable) = start(Options { silence, ..quick() }).await;
    let mut peer = Peer::accept(&listener).await;
    peer.send(r#"{"type":"welcome"}"#).await;
    let lost = cable.next().await.unwrap();
    assert_eq!(
        lost,
        Event::Lost {
            reason: "silence".to_owned(),
            reconnect: true
        }
    );
    // It is really back: a second socket arrives.
    Peer::accept(&listener).await;
}

#[tokio::test]
async fn a_rejected_subscription_is_told() {
    let (listener, mut cable) = start(quick()).await;
    let mut peer = Peer::accept(&listener).await;
    peer.send(r#"{"type":"welcome"}"#).await;
    peer.text().await;
    peer.send(tagged("reject_subscription")).await;
    assert_eq!(cable.confirmed(ID).await, Err("rejected".to_owned()));
}

#[tokio::test]
async fn the_queue_is_bounded_and_nothing_but_pings_is_dropped() {
    let (listener, mut cable) = start(Options {
        queue: 4,
        ..quick()
    })
    .await;
    let mut peer = Peer::accept(&listener).await;
    peer.send(r#"{"type":"welcome"}"#).await;
    peer.text().await;
    let id = serde_json::to_string(ID).unwrap();
    let sender = tokio::spawn(async move {
        for n in 0..200 {
            peer.send(r#"{"type":"ping","message":1}"#).await;
            peer.send(format!(r#"{{"identifier":{id},"message":{n}}}"#))
                .await;
        }
        peer
    });
    let mut seen = Vec::new();
    while seen.len() < 200 {
        match cable.next().await.unwrap() {
            Event::Message { message, .. } => seen.push(message.as_i64().unwrap()),
            Event::Ping(_) => {}
            other => panic!("{other:?}"),
        }
        assert!(cable.events.len() <= 4);
    }
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
    drop(sender.await.unwrap());
}
