//! `cable.md` §1: credentials, dialects, origins.

use std::time::Duration;

use tokio_tungstenite::tungstenite;

use super::client::{Cable, Got, Open};
use super::world::World;
use crate::support::TestApp;

const DEAD: &str = "sk-nexus-x1-0123456789abcdef-0123456789abcdef0123456789abcdef0123456789a";

#[tokio::test]
async fn no_bearer_or_a_dead_one_is_told_to_stay_away_over_an_open_socket() {
    let app = TestApp::start().await;
    for token in [None, Some(DEAD), Some("nonsense"), Some("test-operator")] {
        let open = Open {
            token,
            protocols: Some("actioncable-v1-json, actioncable-unsupported"),
            origin: None,
        };
        let mut cable = open.at(&app).await.unwrap();
        // A stock client only reads frames of a dialect that was chosen.
        assert_eq!(cable.protocol.as_deref(), Some("actioncable-v1-json"));
        cable.expect_disconnect("unauthorized", false, 1008).await;
    }
    app.finish().await;
}

#[tokio::test]
async fn a_stock_offer_is_answered_with_a_welcome_and_a_ping_within_three_seconds() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut cable = Cable::open(&app, &executor.token).await;
    assert_eq!(cable.protocol.as_deref(), Some("actioncable-v1-json"));
    let since = tokio::time::Instant::now();
    cable.await_pings(1).await;
    assert!(since.elapsed() < Duration::from_millis(3500));
    // And the next ones keep coming.
    cable.await_pings(1).await;
    assert!(since.elapsed() < Duration::from_millis(6500));
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn without_an_offer_the_same_dialect_is_spoken_unnamed() {
    let app = TestApp::start().await;
    let world = World::new(&app).await;
    let open = Open {
        token: Some(&world.human.token),
        protocols: None,
        origin: None,
    };
    let mut cable = open.at(&app).await.unwrap();
    assert_eq!(cable.protocol, None);
    cable.expect(r#"{"type":"welcome"}"#).await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn another_dialect_is_told_that_it_is_not_spoken() {
    let app = TestApp::start().await;
    let world = World::new(&app).await;
    let open = Open {
        token: Some(&world.human.token),
        protocols: Some("graphql-ws, actioncable-unsupported"),
        origin: None,
    };
    let mut cable = open.at(&app).await.unwrap();
    assert_eq!(cable.protocol.as_deref(), Some("actioncable-unsupported"));
    assert_eq!(cable.next().await, Got::Closed(Some(1002)));

    // Nothing to choose from: the upgrade chooses nothing, which this client library refuses.
    let open = Open {
        token: Some(&world.human.token),
        protocols: Some("graphql-ws"),
        origin: None,
    };
    let error = open.at(&app).await.err().unwrap();
    assert!(matches!(*error, tungstenite::Error::Protocol(_)), "{error}");
    app.finish().await;
}

#[tokio::test]
async fn a_bearer_by_subprotocol_is_for_pages_of_allowed_origins_and_never_echoed() {
    let app = TestApp::with()
        .set("NEXUS_CORS_ORIGINS", "https://app.example")
        .start()
        .await;
    let world = World::new(&app).await;
    let offer = format!("actioncable-v1-json, nexus.bearer.{}", world.human.token);
    let open = |origin| Open {
        token: None,
        protocols: Some(&offer),
        origin: Some(origin),
    };
    let mut cable = open("https://app.example").at(&app).await.unwrap();
    assert_eq!(cable.protocol.as_deref(), Some("actioncable-v1-json"));
    cable.expect(r#"{"type":"welcome"}"#).await;
    cable.close().await;
    let mut cable = open("https://evil.example").at(&app).await.unwrap();
    cable.expect_disconnect("unauthorized", false, 1008).await;

    // A native client sends any origin it likes with a bearer in a header.
    let native = Open {
        token: Some(&world.human.token),
        protocols: None,
        origin: Some("https://evil.example"),
    };
    let mut cable = native.at(&app).await.unwrap();
    cable.expect(r#"{"type":"welcome"}"#).await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn a_token_in_the_query_string_is_none() {
    let app = TestApp::start().await;
    let world = World::new(&app).await;
    let mut door = crate::support::Door::new(app.base.clone());
    door.base = format!(
        "{}/agent_api/v1/cable?token={}#",
        app.base, world.human.token
    );
    let open = Open {
        token: None,
        protocols: None,
        origin: None,
    };
    let mut cable = open.at(&door).await.unwrap();
    cable.expect_disconnect("unauthorized", false, 1008).await;
    app.finish().await;
}

#[tokio::test]
async fn a_plain_request_is_told_to_upgrade() {
    let app = TestApp::start().await;
    let world = World::new(&app).await;
    let answer = app.get("/agent_api/v1/cable", &world.human.token).await;
    answer.expect(426, "upgrade_required");
    assert_eq!(answer.header("upgrade"), "websocket");
    assert_eq!(answer.header("sec-websocket-version"), "13");
    app.finish().await;
}
