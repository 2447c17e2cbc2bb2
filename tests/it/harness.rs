//! The harness keeps its own promises.

use std::time::Duration;

use crate::support::TestApp;

#[tokio::test]
async fn each_test_has_a_migrated_database_and_a_live_door() {
    let app = TestApp::start().await;
    let other = TestApp::start().await;
    assert_ne!(app.database.name, other.database.name);
    app.get("/livez", "").await.ok(200);
    app.get("/readyz", "").await.ok(200);
    other.finish().await;
    app.get("/nowhere", "").await.expect(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn the_clock_moves_for_every_replica_of_one_database_only() {
    let app = TestApp::replicas(2).await;
    let other = TestApp::start().await;
    let before = app.now().await;
    let moved = app.advance(Duration::from_secs(3600)).await;
    assert!(moved - before >= chrono::Duration::seconds(3600));
    let seen = app.replicas[1].app.store.now().await.unwrap();
    assert!(seen >= moved, "the second replica reads the same clock");
    let still = other.now().await - before;
    assert!(
        still < chrono::Duration::seconds(600),
        "another test's clock stands: {still}"
    );
    other.finish().await;
    app.finish().await;
}

#[tokio::test]
async fn enabling_the_clock_from_many_replicas_at_once_is_one_change() {
    let app = TestApp::replicas(3).await;
    let each = app
        .replicas
        .iter()
        .flat_map(|r| (0..4).map(|_| r.app.store.clone()));
    let tasks: Vec<_> = each
        .map(|store| tokio::spawn(async move { nexus::store::test_clock::enable(&store).await }))
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    app.finish().await;
}
