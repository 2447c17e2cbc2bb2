//! `cable.md` §5: pings, pongs, and clients that went silent; the graceful stop.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::client::{Cable, Open};
use super::subscribing::until;
use super::world::World;
use crate::support::TestApp;

#[tokio::test]
async fn a_client_that_never_pongs_stays_and_one_that_stopped_does_not() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut stock = Cable::inbox(&app, &executor.token).await;
    let mut opted_in = Cable::inbox(&app, &executor.token).await;
    let since = tokio::time::Instant::now();
    for _ in 0..2 {
        opted_in.pong().await;
        opted_in.await_pings(1).await;
    }
    let (_, cut_after) = tokio::join!(
        // Sixty seconds of a stock client's life.
        stock.await_pings(20),
        async {
            opted_in.expect_disconnect("pong_timeout", true, 1000).await;
            since.elapsed()
        }
    );
    // Two pings answered, or as good as, and three unanswered, three seconds apart.
    assert!(cut_after > Duration::from_secs(11), "{cut_after:?}");
    assert!(cut_after < Duration::from_secs(19), "{cut_after:?}");
    stock.expect_quiet().await;
    stock.close().await;
    app.finish().await;
}

#[tokio::test]
async fn a_connection_that_answers_no_websocket_ping_is_dropped() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    // Reads everything and answers nothing, as half a proxy does.
    let address = app.base.strip_prefix("http://").unwrap();
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /agent_api/v1/cable HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {}\r\n\r\n",
        executor.token
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let since = tokio::time::Instant::now();
    let mut buffer = vec![0; 4096];
    let ended = async {
        while let Ok(1..) = socket.read(&mut buffer).await {}
        since.elapsed()
    };
    let ended = tokio::time::timeout(Duration::from_secs(50), ended)
        .await
        .expect("the server gives it up");
    assert!(ended > Duration::from_secs(29), "{ended:?}");
    assert!(ended < Duration::from_secs(40), "{ended:?}");
    until(async || app.app().cable.sockets() == 0).await;
    app.finish().await;
}

#[tokio::test]
async fn a_stop_sends_every_socket_away_over_time_and_takes_no_new_ones() {
    let app = TestApp::with()
        .set("NEXUS_DRAIN_SECONDS", "4")
        .start()
        .await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut sockets = Vec::new();
    for _ in 0..20 {
        sockets.push(Cable::inbox(&app, &executor.token).await);
    }
    let nexus = app.app().clone();
    let since = tokio::time::Instant::now();
    nexus.draining.cancel();
    let refused = Open {
        token: Some(&executor.token),
        protocols: None,
        origin: None,
    }
    .at(&app)
    .await
    .err()
    .unwrap();
    match *refused {
        tokio_tungstenite::tungstenite::Error::Http(answer) => {
            assert_eq!(answer.status(), 503);
            let body = String::from_utf8(answer.into_body().unwrap()).unwrap();
            assert!(body.contains(r#""code":"draining""#), "{body}");
        }
        other => panic!("{other}"),
    }
    let mut times = Vec::new();
    for cable in &mut sockets {
        cable.expect_disconnect("server_restart", true, 1001).await;
        times.push(since.elapsed());
    }
    drop(sockets);
    nexus.cable.drained().await;
    let last = times.iter().max().unwrap();
    assert!(*last > Duration::from_millis(500), "all at once: {last:?}");
    assert!(*last < Duration::from_secs(4), "{last:?}");
    until(async || world.presence(&executor).await.is_none()).await;
    app.finish().await;
}
