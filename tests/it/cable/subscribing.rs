//! `cable.md` §2, §3: subscribe, unsubscribe, identifiers (BR-080), presence.

use super::client::{Cable, INBOX, confirmed, quoted, run_channel};
use super::world::World;
use super::{available_message, canceled_message, work_available, work_canceled};
use crate::support::TestApp;

#[tokio::test]
async fn each_plane_has_its_own_channels() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let run = world.run().await;
    let channel = run_channel(world.workspace, run.public_id, "events");
    let mut member = Cable::open(&app, &world.human.token).await;
    member.is_rejected(INBOX).await;
    member.subscribe(&channel).await;
    let mut runner = Cable::open(&app, &executor.token).await;
    runner.is_rejected(&channel).await;
    runner.subscribe(INBOX).await;
    member.close().await;
    runner.close().await;
    app.finish().await;
}

#[tokio::test]
async fn an_odd_identifier_is_echoed_byte_for_byte() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut cable = Cable::open(&app, &executor.token).await;
    // Escapes that another encoder would write otherwise.
    let token = r#""{ \"extra\" : [1, {\"é\":\"\u00e9\"}],\u0022channel\":  \"AgentAPI::V1::ExecutorInboxChannel\"\n}""#;
    cable
        .send(format!(
            r#"{{ "identifier":{token} , "command":"subscribe"}}"#
        ))
        .await;
    cable
        .expect(&format!(
            r#"{{"identifier":{token},"type":"confirm_subscription"}}"#
        ))
        .await;
    app.app()
        .bus
        .announce(vec![work_available(executor.public_id, "k")])
        .await;
    cable
        .expect(&format!(
            r#"{{"identifier":{token},"message":{}}}"#,
            available_message("k")
        ))
        .await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn br_080_a_repeated_subscribe_is_confirmed_again_and_delivers_once() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut cable = Cable::inbox(&app, &executor.token).await;
    cable.subscribe(INBOX).await;
    cable.subscribe(INBOX).await;
    // Another spelling is another subscription, with its own delivery.
    let reordered = r#"{"a":1,"channel":"AgentAPI::V1::ExecutorInboxChannel"}"#;
    cable.subscribe(reordered).await;
    let bus = &app.app().bus;
    bus.announce(vec![work_available(executor.public_id, "k")])
        .await;
    cable.expect_push(INBOX, &available_message("k")).await;
    cable.expect_push(reordered, &available_message("k")).await;
    cable.expect_quiet().await;

    cable.command("unsubscribe", reordered).await;
    cable.expect_quiet().await;
    bus.announce(vec![work_canceled(executor.public_id, "k")])
        .await;
    cable.expect_push(INBOX, &canceled_message("k")).await;
    cable.command("unsubscribe", INBOX).await;
    cable.expect_quiet().await;
    bus.announce(vec![work_canceled(executor.public_id, "l")])
        .await;
    cable.expect_quiet().await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn br_080_what_names_nothing_is_rejected_and_what_is_unknown_is_ignored() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut cable = Cable::inbox(&app, &executor.token).await;
    cable.is_rejected(r#"{"channel":"SecretChannel"}"#).await;
    cable.is_rejected("not json").await;
    cable.is_rejected("").await;
    cable.command("unsubscribe", "never subscribed").await;
    let data = quoted(r#"{"action":"pong"}"#);
    cable
        .send(format!(
            r#"{{"command":"message","identifier":"never subscribed","data":{data}}}"#
        ))
        .await;
    for junk in ["", "{", "[]", r#"{"command":"dance","identifier":"{}"}"#] {
        cable.send(junk).await;
    }
    // It lived through all of that, and still hears.
    cable.expect_quiet().await;
    app.app()
        .bus
        .announce(vec![work_available(executor.public_id, "k")])
        .await;
    cable.expect_push(INBOX, &available_message("k")).await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn missing_concealed_deleted_and_foreign_runs_reject_alike() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let stranger = world.member("bob").await;
    let mut elsewhere = World::new(&app).await;
    let (run, deleted) = (world.run().await, world.run().await);
    let foreign = elsewhere.run().await;
    world.delete_run(&deleted).await;
    let mut cable = Cable::open(&app, &world.human.token).await;
    for (workspace, run, items) in [
        (world.workspace, deleted.public_id, "events"),
        (world.workspace, foreign.public_id, "events"),
        (elsewhere.workspace, foreign.public_id, "events"),
        (elsewhere.workspace, run.public_id, "events"),
        (world.workspace, world.workspace, "events"),
        (world.workspace, run.public_id, "everything"),
    ] {
        cable.is_rejected(&run_channel(workspace, run, items)).await;
    }
    for items in ["events", "lifecycle", "transcript", "progress"] {
        let channel = run_channel(world.workspace, run.public_id, items);
        cable.subscribe(&channel).await;
    }
    let conversation = format!(
        r#"{{"channel":"AgentAPI::V1::ConversationEventsChannel","workspace_id":"{}","conversation_id":"{}"}}"#,
        world.workspace, run.public_id
    );
    cable.is_rejected(&conversation).await;
    cable.close().await;

    let mut cable = Cable::open(&app, &stranger.token).await;
    let channel = run_channel(world.workspace, run.public_id, "events");
    cable.is_rejected(&channel).await;
    world.grant(stranger.id).await;
    // Access is read anew at every subscribe.
    cable.subscribe(&channel).await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn presence_is_the_newest_subscription_and_a_close_clears_only_its_own() {
    let app = TestApp::replicas(2).await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let replica = |n: usize| app.replicas[n].app.replica_id;
    let first = Cable::open(app.on(0), &executor.token).await;
    assert_eq!(world.presence(&executor).await, None);
    first.close().await;

    let first = Cable::inbox(app.on(0), &executor.token).await;
    let mark = world.presence(&executor).await.unwrap();
    assert_eq!(mark.1, replica(0));
    let second = Cable::inbox(app.on(1), &executor.token).await;
    let newest = world.presence(&executor).await.unwrap();
    assert_eq!(newest.1, replica(1));
    first.close().await;
    // The older one's clearing has been tried once its replica has no socket and owes nothing;
    // a later one of its own proves the order.
    let third = Cable::inbox(app.on(0), &executor.token).await;
    let latest = world.presence(&executor).await.unwrap();
    assert_eq!(latest.1, replica(0));
    second.close().await;
    third.close().await;
    until(async || world.presence(&executor).await.is_none()).await;

    // Unsubscribing is leaving too.
    let mut cable = Cable::inbox(app.on(0), &executor.token).await;
    assert!(world.presence(&executor).await.is_some());
    cable.command("unsubscribe", INBOX).await;
    until(async || world.presence(&executor).await.is_none()).await;
    cable.subscribe(INBOX).await;
    assert!(world.presence(&executor).await.is_some());
    cable.close().await;
    app.finish().await;
}

/// Looks until it is so.
pub async fn until(mut so: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !so().await {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), looking)
        .await
        .expect("it becomes so in time");
}

#[tokio::test]
async fn sixty_four_streams_come_back_at_once_and_the_sixty_fifth_is_abuse() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut cable = Cable::open(&app, &executor.token).await;
    let spelled = |n: u32| format!(r#"{{"n":{n},"channel":"AgentAPI::V1::ExecutorInboxChannel"}}"#);
    for n in 0..64 {
        cable.command("subscribe", &spelled(n)).await;
    }
    for n in 0..64 {
        cable.expect(&confirmed(&spelled(n))).await;
    }
    cable.command("subscribe", &spelled(64)).await;
    cable
        .expect_disconnect("invalid_request", false, 1008)
        .await;
    app.finish().await;
}
