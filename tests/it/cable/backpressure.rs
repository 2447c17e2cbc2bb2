//! `cable.md` §6, outbound: a reader that stalls costs a bounded queue, and is told what must not
//! be lost, or cut.

use nexus::domain::hint::FeedItems;

use super::client::{Cable, Got, INBOX, run_channel};
use super::world::World;
use super::{canceled_message, feed, progress, work_available, work_canceled};
use crate::support::TestApp;

/// What a stalled reader finds when it reads again: how many frames, and whether one was what must
/// not be lost, or else that it was cut for slowness.
async fn drain(cable: &mut Cable, owed: &str) -> (usize, bool) {
    let mut frames = 0;
    loop {
        match cable.next().await {
            Got::Text(text) if text.contains(owed) => return (frames, true),
            Got::Text(text) if text.contains("slow_consumer") => return (frames, false),
            Got::Text(_) => frames += 1,
            Got::Closed(_) => return (frames, false),
        }
    }
}

#[tokio::test]
async fn a_stalled_reader_of_progress_costs_a_bounded_queue_and_hears_the_durable_item() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let run = world.run().await;
    let mut cable = Cable::open(&app, &world.human.token).await;
    for items in ["progress", "events"] {
        let channel = run_channel(world.workspace, run.public_id, items);
        cable.subscribe(&channel).await;
    }
    // Another socket of the replica tells when all of it has reached the queues.
    let events = run_channel(world.workspace, run.public_id, "events");
    let mut witness = Cable::open(&app, &world.human.token).await;
    witness.subscribe(&events).await;
    let bus = app.app().bus.clone();
    let tail = "x".repeat(60_000);
    for _ in 0..20 {
        let hints = (0..100).map(|_| progress(run.public_id, &tail)).collect();
        bus.announce(hints).await;
        tokio::task::yield_now().await;
    }
    let item = world.event(&run, "turn_status").await;
    let message = item.run_message(run.public_id);
    bus.announce(vec![feed(
        run.public_id,
        FeedItems::Events,
        message.clone(),
    )])
    .await;
    witness.expect_push(&events, message.as_str()).await;
    let (frames, heard) = drain(&mut cable, r#""type":"turn_status""#).await;
    // What was not dropped was in flight: kernel buffers, one batch, and a queue of 1 MiB.
    assert!(frames < 400, "{frames} of 2,000 were kept");
    assert!(heard, "2,000 droppable frames are no reason to cut it");
    witness.close().await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn a_stalled_executor_hears_of_the_cancel_or_is_cut() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut cable = Cable::inbox(&app, &executor.token).await;
    let bus = app.app().bus.clone();
    let key = "k".repeat(64);
    for _ in 0..200 {
        let hints = (0..100)
            .map(|_| work_available(executor.public_id, &key))
            .collect();
        bus.announce(hints).await;
        tokio::task::yield_now().await;
    }
    bus.announce(vec![work_canceled(executor.public_id, "gone")])
        .await;
    let (frames, heard) = drain(&mut cable, &canceled_message("gone")).await;
    assert!(heard, "nudges are droppable");
    assert!(frames >= 1, "a nudge stays");
    // It is whole: the next message arrives too.
    bus.announce(vec![work_canceled(executor.public_id, "next")])
        .await;
    cable.expect_push(INBOX, &canceled_message("next")).await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn a_reader_that_stalls_on_what_must_not_be_dropped_is_cut() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let mut stalled = Cable::inbox(&app, &executor.token).await;
    let nexus = app.app().clone();
    let mut lost = 0;
    // Kernel buffers swallow megabytes before the queue fills at all.
    while nexus.cable.sockets() > 0 {
        let hints = (0..1000)
            .map(|_| work_canceled(executor.public_id, "k"))
            .collect();
        nexus.bus.announce(hints).await;
        lost += 1000;
        assert!(lost < 10_000_000, "never cut");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let (_, heard) = drain(&mut stalled, "nothing that was ever sent").await;
    assert!(!heard);
    // Nobody else is the worse for it.
    let other = world.executor().await;
    let mut cable = Cable::inbox(&app, &other.token).await;
    let hint = work_canceled(other.public_id, "other");
    nexus.bus.announce(vec![hint]).await;
    cable.expect_push(INBOX, &canceled_message("other")).await;
    cable.close().await;
    app.finish().await;
}
