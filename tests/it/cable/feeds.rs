//! `cable.md` §3, §4: what a member hears of a run.

use nexus::domain::hint::FeedItems;

use super::client::{Cable, quoted, run_channel};
use super::world::World;
use super::{feed, progress};
use crate::support::TestApp;

#[tokio::test]
async fn each_part_of_a_feed_hears_its_own() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let (run, other) = (world.run().await, world.run().await);
    let channel = |items| run_channel(world.workspace, run.public_id, items);
    let mut sockets = Vec::new();
    for items in ["events", "lifecycle", "progress", "transcript"] {
        let mut cable = Cable::open(&app, &world.human.token).await;
        cable.subscribe(&channel(items)).await;
        sockets.push(cable);
    }
    let bus = &app.app().bus;
    let usage = world.event(&run, "usage").await.run_message(run.public_id);
    let turn = world.event(&run, "turn_status").await;
    let turn = turn.run_message(run.public_id);
    let foreign = world.event(&other, "turn_status").await;
    let foreign = foreign.run_message(other.public_id);
    bus.announce(vec![
        feed(other.public_id, FeedItems::Events, foreign),
        feed(run.public_id, FeedItems::Events, usage.clone()),
        feed(run.public_id, FeedItems::Events, turn.clone()),
        progress(run.public_id, "tail"),
        feed(
            run.public_id,
            FeedItems::Transcript,
            nexus::domain::Canonical::trusted(r#"{"delta":"x"}"#.to_owned()),
        ),
    ])
    .await;
    let [events, lifecycle, progress, transcript] = sockets.as_mut_slice() else {
        unreachable!()
    };
    events.expect_push(&channel("events"), usage.as_str()).await;
    events.expect_push(&channel("events"), turn.as_str()).await;
    lifecycle
        .expect_push(&channel("lifecycle"), turn.as_str())
        .await;
    progress
        .expect_push(
            &channel("progress"),
            r#"{"frame":{"text_tail":"tail","type":"executor_progress"}}"#,
        )
        .await;
    transcript
        .expect_push(&channel("transcript"), r#"{"delta":"x"}"#)
        .await;
    for cable in &mut sockets {
        cable.expect_quiet().await;
    }
    for cable in sockets {
        cable.close().await;
    }
    app.finish().await;
}

#[tokio::test]
async fn a_durable_item_is_pushed_in_the_projection_of_its_replay() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let run = world.run().await;
    let item = world.event(&run, "turn_status").await;
    let id = run.public_id;
    let channel = run_channel(world.workspace, id, "events");
    let mut cable = Cable::open(&app, &world.human.token).await;
    cable.subscribe(&channel).await;
    let message = item.run_message(id);
    app.app()
        .bus
        .announce(vec![feed(id, FeedItems::Events, message)])
        .await;
    let at = item.created_at.format("%Y-%m-%dT%H:%M:%SZ");
    let cursor = nexus::domain::feed::cursor(id, 1);
    cable
        .expect(&format!(
            r#"{{"identifier":{},"message":{{"event":{{"created_at":"{at}","cursor":"{cursor}","payload":{{"n":1}},"resource":{{"public_id":"{id}","type":"run"}},"sequence":1,"type":"turn_status"}}}}}}"#,
            quoted(&channel)
        ))
        .await;
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn a_thousand_items_arrive_in_order() {
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let run = world.run().await;
    let channel = run_channel(world.workspace, run.public_id, "events");
    let mut cable = Cable::open(&app, &world.human.token).await;
    cable.subscribe(&channel).await;
    let mut item = world.event(&run, "usage").await;
    let bus = app.app().bus.clone();
    for batch in 0..10 {
        let hints = (0..100)
            .map(|n| {
                item.sequence = batch * 100 + n + 1;
                feed(
                    run.public_id,
                    FeedItems::Events,
                    item.run_message(run.public_id),
                )
            })
            .collect();
        bus.announce(hints).await;
        for n in 0..100 {
            item.sequence = batch * 100 + n + 1;
            cable
                .expect_push(&channel, item.run_message(run.public_id).as_str())
                .await;
        }
    }
    cable.close().await;
    app.finish().await;
}

#[tokio::test]
async fn a_page_of_replay_is_strictly_after_its_position_and_knows_the_watermark() {
    use nexus::store::feeds;
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let run = world.run().await;
    for _ in 0..5 {
        world.event(&run, "usage").await;
    }
    let store = &app.app().store;
    let caller = nexus::domain::credential::Bearer::parse(&world.human.token).unwrap();
    let caller = nexus::store::credentials::member(store, &caller)
        .await
        .unwrap()
        .unwrap();
    let found = feeds::run(store, &caller, world.workspace, run.public_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.watermark, 5);
    let page = async |after, limit| {
        let page = feeds::page(store, caller.account, found.run, after, limit)
            .await
            .unwrap();
        let sequences: Vec<i64> = page.items.iter().map(|i| i.sequence).collect();
        (sequences, page.watermark)
    };
    assert_eq!(page(0, 2).await, (vec![1, 2], 5));
    assert_eq!(page(2, 200).await, (vec![3, 4, 5], 5));
    // The watermark outlives what is asked for, and what has expired.
    assert_eq!(page(5, 200).await, (vec![], 5));
    app.finish().await;
}
