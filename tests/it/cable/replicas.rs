//! Publisher and socket on different replicas, and a Redis that restarts, fails over, goes silent,
//! or was never there (BR-078).

use std::time::Duration;

use super::client::{Cable, INBOX, quoted, run_channel};
use super::redis::{Carry, Redis, Wire};
use super::subscribing::until;
use super::world::{Person, World};
use super::{available_message, canceled_message, feed, work_available, work_canceled};
use crate::support::TestApp;
use nexus::domain::hint::{FeedItems, Hint};

async fn two_replicas(redis_port: u16) -> TestApp {
    let prefix = format!("test-{redis_port}");
    TestApp::with()
        .replicas(2)
        .set(
            "NEXUS_REDIS_URL",
            format!("redis://127.0.0.1:{redis_port}/"),
        )
        .set("NEXUS_REDIS_PREFIX", prefix)
        .start()
        .await
}

async fn becomes(app: &TestApp, health: &str) {
    until(async || app.replicas.iter().all(|r| r.app.bus.health() == health)).await;
}

/// Announces at the first replica until the socket at the second one hears it: whatever the link
/// was doing, it works again.
async fn hears(app: &TestApp, cable: &mut Cable, executor: &Person, key: &str) {
    let bus = app.replicas[0].app.bus.clone();
    becomes(app, "ok").await;
    bus.announce(vec![work_canceled(executor.public_id, key)])
        .await;
    cable.expect_push(INBOX, &canceled_message(key)).await;
}

#[tokio::test]
async fn what_one_replica_announces_a_socket_of_another_hears() {
    let redis = Redis::start().await;
    let app = two_replicas(redis.port()).await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    becomes(&app, "ok").await;
    let mut cable = Cable::inbox(app.on(1), &executor.token).await;
    let bus = app.replicas[0].app.bus.clone();
    bus.announce(vec![work_available(executor.public_id, "k")])
        .await;
    cable.expect_push(INBOX, &available_message("k")).await;

    // A re-pair at one replica cuts the sockets of the other.
    let subject = executor.public_id;
    world.rotate(&executor).await;
    let since = tokio::time::Instant::now();
    bus.announce(vec![Hint::AuthorityChanged { subject }]).await;
    cable.expect_disconnect("unauthorized", false, 1008).await;
    assert!(since.elapsed() < Duration::from_secs(2));
    app.finish().await;
}

#[tokio::test]
async fn a_confirmed_subscription_misses_nothing_that_is_announced_afterwards() {
    let redis = Redis::start().await;
    let app = two_replicas(redis.port()).await;
    let mut world = World::new(&app).await;
    becomes(&app, "ok").await;
    for n in 0..20 {
        // Each executor is a channel that the second replica has never subscribed to.
        let executor = world.executor().await;
        let mut cable = Cable::inbox(app.on(1), &executor.token).await;
        let key = format!("k{n}");
        app.replicas[0]
            .app
            .bus
            .announce(vec![work_available(executor.public_id, &key)])
            .await;
        cable.expect_push(INBOX, &available_message(&key)).await;
        cable.close().await;
    }
    app.finish().await;
}

#[tokio::test]
async fn a_confirmation_waits_for_its_channel_but_not_for_ever() {
    let redis = Redis::start().await;
    let wire = Wire::to(redis.address()).await;
    let app = two_replicas(wire.port).await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    becomes(&app, "ok").await;
    let mut cable = Cable::open(app.on(0), &executor.token).await;
    let run = world.run().await;
    let mut member = Cable::open(app.on(0), &world.human.token).await;
    let channel = run_channel(world.workspace, run.public_id, "events");
    wire.carry(Carry::Later);
    member.command("subscribe", &channel).await;
    let early = tokio::time::timeout(Duration::from_millis(500), member.next()).await;
    assert!(early.is_err(), "not attached yet: {early:?}");
    wire.carry(Carry::To(redis.address()));
    member.expect(&super::client::confirmed(&channel)).await;
    cable.subscribe(INBOX).await;
    hears(&app, &mut cable, &executor, "k").await;

    // A Redis that does not answer holds nobody up for long.
    let other = world.run().await;
    let channel = run_channel(world.workspace, other.public_id, "events");
    wire.carry(Carry::Later);
    let since = tokio::time::Instant::now();
    member.subscribe(&channel).await;
    assert!(since.elapsed() < Duration::from_secs(4));
    let item = world.event(&other, "usage").await;
    let message = item.run_message(other.public_id);
    // It was confirmed early, so it is read again once attached.
    wire.carry(Carry::To(redis.address()));
    member.expect_push(&channel, message.as_str()).await;
    cable.close().await;
    member.close().await;
    app.finish().await;
}

#[tokio::test]
async fn a_waiter_of_another_replica_hears_its_executors_hints() {
    let redis = Redis::start().await;
    let app = two_replicas(redis.port()).await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    becomes(&app, "ok").await;
    let mut hints = app.replicas[1]
        .app
        .bus
        .executor_hints(executor.public_id)
        .await;
    let bus = &app.replicas[0].app.bus;
    bus.announce(vec![work_available(executor.public_id, "k")])
        .await;
    assert_eq!(
        hints.recv().await,
        nexus::bus::Message::WorkAvailable {
            message: available_message("k").into()
        }
    );
    // A waiter that does not listen loses the rest and is told so.
    let flood = (0..200)
        .map(|_| work_available(executor.public_id, "k"))
        .collect();
    bus.announce(flood).await;
    until(async || hints.try_recv() == Some(nexus::bus::Message::Lagged)).await;
    app.finish().await;
}

#[tokio::test]
async fn counters_and_slots_are_shared_while_redis_is_there_and_local_while_it_is_not() {
    let redis = Redis::start().await;
    let app = two_replicas(redis.port()).await;
    becomes(&app, "ok").await;
    let [a, b] = [&app.replicas[0].app.bus, &app.replicas[1].app.bus];
    let minute = Duration::from_secs(60);
    assert_eq!(a.charge(["t:1"], minute).await[0].count, 1);
    let [second] = b.charge(["t:1"], minute).await;
    assert_eq!(second.count, 2);
    assert!(second.resets_in <= minute && second.resets_in > Duration::from_secs(50));
    assert!(a.try_slot("p:1", minute).await);
    assert!(!b.try_slot("p:1", minute).await);
    assert_eq!(
        a.charge(["short"], Duration::from_millis(50)).await[0].count,
        1
    );
    until(async || a.charge(["short"], Duration::from_millis(50)).await[0].count == 1).await;

    redis.kill().await;
    becomes(&app, "degraded").await;
    let since = tokio::time::Instant::now();
    assert_eq!(a.charge(["t:1"], minute).await[0].count, 1);
    assert_eq!(b.charge(["t:1"], minute).await[0].count, 1);
    assert!(a.try_slot("p:2", minute).await);
    assert!(!a.try_slot("p:2", minute).await);
    assert!(since.elapsed() < Duration::from_millis(100), "nobody waits");
    app.finish().await;
}

#[tokio::test]
async fn br_078_after_a_restart_of_redis_every_socket_hears_again() {
    let redis = Redis::start().await;
    let app = two_replicas(redis.port()).await;
    let mut world = World::new(&app).await;
    becomes(&app, "ok").await;
    let mut sockets = Vec::new();
    for _ in 0..100 {
        let executor = world.executor().await;
        let cable = Cable::inbox(app.on(1), &executor.token).await;
        sockets.push((executor, cable));
    }
    let port = redis.kill().await;
    becomes(&app, "degraded").await;
    // Nothing waits for Redis, sockets and subscribes go on, and readiness stays.
    let bus = app.replicas[0].app.bus.clone();
    let since = tokio::time::Instant::now();
    bus.announce(vec![work_available(sockets[0].0.public_id, "lost")])
        .await;
    assert!(since.elapsed() < Duration::from_millis(100));
    let body = app.get("/readyz", "").await.ok(200);
    assert_eq!(crate::support::text(&body, "redis"), "degraded");
    sockets[0].1.await_pings(1).await;
    let executor = world.executor().await;
    let late = Cable::inbox(app.on(1), &executor.token).await;
    sockets.push((executor, late));

    // Work that was parked meanwhile is not announced again by anybody, but its executor is nudged.
    let run = world.run().await;
    world.park(&run, &sockets[7].0, "parked").await;
    let _redis = Redis::start_at(port).await;
    let nudge = format!(
        r#"{{"event":{{"type":"work_available","kind":"tool_call","run_public_id":"{}","task_key":"parked","tool_name":"read_file"}}}}"#,
        run.public_id
    );
    sockets[7].1.expect_push(INBOX, &nudge).await;
    becomes(&app, "ok").await;
    for (n, (executor, cable)) in sockets.iter_mut().enumerate() {
        hears(&app, cable, executor, &format!("k{n}")).await;
    }
    world.unpark(&run).await;
    app.finish().await;
}

#[tokio::test]
async fn br_078_a_redis_that_comes_late_is_found() {
    let port = Redis::nowhere().await;
    let app = two_replicas(port).await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let body = app.get("/readyz", "").await.ok(200);
    assert_eq!(crate::support::text(&body, "redis"), "degraded");
    let mut cable = Cable::inbox(app.on(1), &executor.token).await;
    cable.await_pings(1).await;
    let _redis = Redis::start_at(port).await;
    hears(&app, &mut cable, &executor, "k").await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn br_078_after_a_fail_over_the_new_server_carries() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    let wire = Wire::to(old.address()).await;
    let app = two_replicas(wire.port).await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    becomes(&app, "ok").await;
    let mut cable = Cable::inbox(app.on(1), &executor.token).await;
    hears(&app, &mut cable, &executor, "before").await;
    // The address moves; old connections die.
    wire.carry(Carry::To(new.address()));
    wire.cut();
    becomes(&app, "degraded").await;
    hears(&app, &mut cable, &executor, "after").await;
    drop(old);
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn br_078_a_server_that_became_a_read_only_replica_is_left() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    let wire = Wire::to(old.address()).await;
    let app = two_replicas(wire.port).await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    becomes(&app, "ok").await;
    let mut cable = Cable::inbox(app.on(1), &executor.token).await;
    // Demoted without a word to its clients; new connections reach the new primary.
    wire.carry(Carry::To(new.address()));
    let client = redis::Client::open(format!("redis://{}/", old.address())).unwrap();
    let mut admin = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("REPLICAOF")
        .arg("127.0.0.1")
        .arg(new.port())
        .exec_async(&mut admin)
        .await
        .unwrap();
    becomes(&app, "degraded").await;
    hears(&app, &mut cable, &executor, "after").await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn a_full_redis_still_carries_pushes() {
    let redis = Redis::start().await;
    let app = two_replicas(redis.port()).await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let client = redis::Client::open(format!("redis://{}/", redis.address())).unwrap();
    let mut admin = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory", "1"])
        .exec_async(&mut admin)
        .await
        .unwrap();
    let mut cable = Cable::inbox(app.on(1), &executor.token).await;
    hears(&app, &mut cable, &executor, "k").await;
    let minute = Duration::from_secs(60);
    let bus = &app.replicas[0].app.bus;
    assert_eq!(bus.charge(["x"], minute).await[0].count, 1);
    assert_eq!(bus.charge(["x"], minute).await[0].count, 2, "counted here");
    hears(&app, &mut cable, &executor, "l").await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn br_078_a_link_whose_packets_vanish_is_noticed_within_ten_seconds_and_heals() {
    let redis = Redis::start().await;
    let wire = Wire::to(redis.address()).await;
    let app = two_replicas(wire.port).await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    becomes(&app, "ok").await;
    let mut cable = Cable::inbox(app.on(1), &executor.token).await;
    let since = tokio::time::Instant::now();
    wire.carry(Carry::Nothing);
    becomes(&app, "degraded").await;
    assert!(since.elapsed() < Duration::from_secs(10));
    // For as long as it lasts nobody waits: a hint is dropped, a counter is local.
    let bus = app.replicas[0].app.bus.clone();
    for _ in 0..5 {
        let before = tokio::time::Instant::now();
        bus.announce(vec![work_available(executor.public_id, "lost")])
            .await;
        bus.charge(["x"], Duration::from_secs(60)).await;
        assert!(before.elapsed() < Duration::from_millis(400));
        cable.await_pings(1).await;
    }
    wire.carry(Carry::To(redis.address()));
    hears(&app, &mut cable, &executor, "after").await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn a_feed_is_read_again_from_where_it_was_after_redis_was_away() {
    let redis = Redis::start().await;
    let app = two_replicas(redis.port()).await;
    let mut world = World::new(&app).await;
    let run = world.run().await;
    let id = run.public_id;
    becomes(&app, "ok").await;
    let events = run_channel(world.workspace, id, "events");
    let lifecycle = run_channel(world.workspace, id, "lifecycle");
    let mut cable = Cable::open(app.on(1), &world.human.token).await;
    cable.subscribe(&events).await;
    let mut coarse = Cable::open(app.on(1), &world.human.token).await;
    coarse.subscribe(&lifecycle).await;
    let bus = app.replicas[0].app.bus.clone();
    let announce = async |item: &nexus::domain::feed::Item| {
        let message = item.run_message(id);
        bus.announce(vec![feed(id, FeedItems::Events, message)])
            .await;
    };
    let first = world.event(&run, "usage").await;
    announce(&first).await;
    cable
        .expect_push(&events, first.run_message(id).as_str())
        .await;

    let port = redis.kill().await;
    becomes(&app, "degraded").await;
    let mut missed = Vec::new();
    // More than one reading gives.
    for n in 0..450 {
        let kind = if n % 100 == 7 { "turn_status" } else { "usage" };
        let item = world.event(&run, kind).await;
        announce(&item).await;
        missed.push(item);
    }
    let _redis = Redis::start_at(port).await;
    becomes(&app, "ok").await;
    // And one that is announced while the others are being read.
    let last = world.event(&run, "turn_status").await;
    announce(&last).await;
    missed.push(last);
    for item in &missed {
        cable
            .expect_push(&events, item.run_message(id).as_str())
            .await;
    }
    for item in missed.iter().filter(|i| i.r#type == "turn_status") {
        coarse
            .expect_push(&lifecycle, item.run_message(id).as_str())
            .await;
    }
    // Nothing twice, and live again.
    let next = world.event(&run, "usage").await;
    announce(&next).await;
    let text = format!(
        r#"{{"identifier":{},"message":{}}}"#,
        quoted(&events),
        next.run_message(id).as_str()
    );
    cable.expect(&text).await;
    coarse.expect_quiet().await;
    cable.close().await;
    coarse.close().await;
    app.finish().await;
}
