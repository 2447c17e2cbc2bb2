//! `cable.md` §6, inbound.

use tokio_tungstenite::tungstenite;

use super::client::{Cable, Got, Open};
use super::world::World;
use crate::support::TestApp;

#[tokio::test]
async fn a_frame_above_sixteen_kibibytes_closes_with_1009() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let padded = |bytes: usize| {
        let frame = r#"{"command":"unsubscribe","identifier":"#;
        format!(r#"{frame}"{}"}}"#, "x".repeat(bytes - frame.len() - 3))
    };
    let mut cable = Cable::inbox(&app, &executor.token).await;
    assert_eq!(padded(16 * 1024).len(), 16 * 1024);
    cable.send(padded(16 * 1024)).await;
    cable.expect_quiet().await;
    cable.send(padded(16 * 1024 + 1)).await;
    assert_eq!(cable.next().await, Got::Closed(Some(1009)));
    app.finish().await;
}

/// `conventions.md` §9: a handshake is a request, charged to whom it proves, else to its address.
#[tokio::test]
async fn handshakes_over_the_budget_are_answered_429_without_an_upgrade() {
    let app = TestApp::with()
        .set("NEXUS_RATE_LIMITS", "cable=1")
        .start()
        .await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let open = |token| Open {
        token,
        protocols: None,
        origin: None,
    };
    let mut cable = open(Some(executor.token.as_str())).at(&app).await.unwrap();
    cable.expect(r#"{"type":"welcome"}"#).await;
    let refused = open(Some(executor.token.as_str()))
        .at(&app)
        .await
        .err()
        .unwrap();
    let tungstenite::Error::Http(answer) = *refused else {
        panic!("{refused}");
    };
    assert_eq!(answer.status(), 429);
    assert!(answer.headers().contains_key("retry-after"));
    // Others are served, and the socket that is open stays.
    let mut member = open(Some(world.human.token.as_str()))
        .at(&app)
        .await
        .unwrap();
    member.expect(r#"{"type":"welcome"}"#).await;
    cable.await_pings(1).await;
    // Three handshakes were of this address; a hundred may be.
    for _ in 0..97 {
        let mut stranger = open(None).at(&app).await.unwrap();
        stranger
            .expect_disconnect("unauthorized", false, 1008)
            .await;
    }
    let refused = open(None).at(&app).await.err().unwrap();
    assert!(matches!(*refused, tungstenite::Error::Http(_)), "{refused}");
    cable.close().await;
    member.close().await;
    app.finish().await;
}

#[tokio::test]
async fn fifty_frames_a_second_are_the_most() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut cable = Cable::inbox(&app, &executor.token).await;
    for _ in 0..110 {
        // A client that is cut may no longer be able to send all of them.
        cable.command("unsubscribe", "nothing").await;
    }
    cable
        .expect_disconnect("invalid_request", false, 1008)
        .await;
    app.finish().await;
}

#[tokio::test]
async fn br_080_the_sixteenth_unparsable_frame_closes_with_a_reason() {
    let app = TestApp::start().await;
    let world = World::new(&app).await;
    let mut cable = Cable::open(&app, &world.human.token).await;
    for _ in 0..15 {
        cable.send("junk").await;
    }
    cable.expect_quiet().await;
    cable.send("junk").await;
    cable
        .expect_disconnect("invalid_request", false, 1008)
        .await;
    app.finish().await;
}
