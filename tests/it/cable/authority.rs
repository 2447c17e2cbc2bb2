//! `cable.md` §5: a socket lives as long as its credential and its access do.

use std::time::Duration;

use nexus::domain::hint::{FeedItems, Hint};

use super::client::{Cable, INBOX, run_channel};
use super::world::World;
use super::{available_message, feed, work_available};
use crate::support::TestApp;

#[tokio::test]
async fn a_re_pair_cuts_the_open_socket_and_the_new_epoch_hears_on_the_same_stream() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let bystander = world.executor().await;
    let mut old = Cable::inbox(&app, &executor.token).await;
    let mut other = Cable::inbox(&app, &bystander.token).await;
    let token = world.rotate(&executor).await;
    let mut new = Cable::inbox(&app, &token).await;
    let bus = &app.app().bus;
    let subject = executor.public_id;
    let since = tokio::time::Instant::now();
    bus.announce(vec![Hint::AuthorityChanged { subject }]).await;
    old.expect_disconnect("unauthorized", false, 1008).await;
    assert!(since.elapsed() < Duration::from_secs(2), "told, not waited");
    bus.announce(vec![work_available(subject, "k")]).await;
    new.expect_push(INBOX, &available_message("k")).await;
    other.expect_quiet().await;

    // A process that kept its old token is not let in again.
    let mut again = super::client::Open {
        token: Some(&executor.token),
        protocols: None,
        origin: None,
    }
    .at(&app)
    .await
    .unwrap();
    again.expect_disconnect("unauthorized", false, 1008).await;
    new.close().await;
    other.close().await;
    app.finish().await;
}

#[tokio::test]
async fn a_dead_credential_is_found_within_five_seconds_without_being_told() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut runner = Cable::inbox(&app, &executor.token).await;
    let mut member = Cable::open(&app, &world.human.token).await;
    world.rotate(&executor).await;
    world.revoke_tokens(world.human.id).await;
    let since = tokio::time::Instant::now();
    runner.expect_disconnect("unauthorized", false, 1008).await;
    member.expect_disconnect("unauthorized", false, 1008).await;
    assert!(since.elapsed() < Duration::from_secs(6));
    app.finish().await;
}

#[tokio::test]
async fn a_credential_that_died_unnoticed_subscribes_to_nothing() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut runner = Cable::open(&app, &executor.token).await;
    world.rotate(&executor).await;
    runner.command("subscribe", INBOX).await;
    runner.expect_disconnect("unauthorized", false, 1008).await;
    assert_eq!(world.presence(&executor).await, None);
    app.finish().await;
}

#[tokio::test]
async fn lost_access_sends_a_member_away_to_come_back_and_be_rejected() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let run = world.run().await;
    let channel = run_channel(world.workspace, run.public_id, "events");
    let human = world.human.id;
    let mut told = Cable::open(&app, &world.human.token).await;
    told.subscribe(&channel).await;
    world.ungrant(human).await;
    let bus = &app.app().bus;
    let subject = world.human.public_id;
    bus.announce(vec![Hint::AuthorityChanged { subject }]).await;
    told.expect_disconnect("remote", true, 1000).await;
    let mut back = Cable::open(&app, &world.human.token).await;
    back.is_rejected(&channel).await;

    // And when nobody tells, within five seconds.
    world.grant(human).await;
    back.subscribe(&channel).await;
    world.ungrant(human).await;
    let since = tokio::time::Instant::now();
    back.expect_disconnect("remote", true, 1000).await;
    assert!(since.elapsed() < Duration::from_secs(6));
    let item = world.event(&run, "turn_status").await;
    let message = item.run_message(run.public_id);
    bus.announce(vec![feed(run.public_id, FeedItems::Events, message)])
        .await;
    app.finish().await;
}
