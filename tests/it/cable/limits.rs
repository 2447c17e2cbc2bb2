//! `cable.md` §6, inbound.

use super::client::{Cable, Got};
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
