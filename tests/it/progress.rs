//! `POST /executor/progress` (`executor.md` §14, `cable.md` §4; edge cases 46 and 47).
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use nexus::bus::{Channel, FeedMessage, Message, Subscription};
use nexus::commands::progress;
use nexus::domain::hint::{FeedItems, FeedKind};
use nexus::domain::progress::Frame;
use nexus::domain::{PublicId, Value, json};
use serde_json::json;

use crate::support::seed::{World, claim_token, door};
use crate::support::{Answer, TestApp, at, find, text};

const PROGRESS: &str = "/agent_api/v1/executor/progress";

async fn send(app: &TestApp, token: &str, frame: &serde_json::Value) -> Answer {
    app.post(PROGRESS, token, json!({"frame": frame})).await
}

fn accepted(answer: &Answer) {
    assert_eq!(answer.status, 202, "{answer:?}");
    assert!(answer.body.is_empty(), "202 with an empty body: {answer:?}");
}

async fn claimed(app: &TestApp, world: &World, run: &str, key: &str) -> String {
    let path = door(run, key, "claim");
    claim_token(&app.command(&path, &world.runner.token).await)
}

/// Listens to a run's feed.
async fn feed(app: &TestApp, run: &str) -> Subscription {
    let run: PublicId = run.parse().unwrap();
    app.app()
        .bus
        .subscribe(Channel::Feed(FeedKind::Run, run))
        .await
}

/// The next frame of progress; other parts of the feed are passed over.
async fn next(feed: &mut Subscription) -> Value {
    let listening = async {
        loop {
            if let Message::Feed(FeedMessage {
                items: FeedItems::Progress,
                message,
                ..
            }) = feed.recv().await
            {
                return json::parse(message.as_bytes()).unwrap();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), listening)
        .await
        .expect("a frame is heard")
}

/// A run of parallel calls of these keys, all claimed: gives the run and the tokens.
async fn calls(app: &TestApp, world: &World, keys: &[&str]) -> (String, Vec<String>) {
    let steps: Vec<_> = keys.iter().map(|key| world.routed(key, "echo")).collect();
    let run = world
        .run(
            app,
            json!([{"parallel": steps}, world.routed("end", "echo")]),
        )
        .await;
    let mut tokens = Vec::new();
    for key in keys {
        tokens.push(claimed(app, world, &run, key).await);
    }
    (run, tokens)
}

/// §14: the kernel stamps the frame, strips the token, and stores nothing.
#[tokio::test]
async fn a_frame_travels_to_the_feed_of_its_run() {
    let app = TestApp::replicas(2).await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let token = claimed(&app, &world, &run, "a").await;
    let mut feed = feed(&app, &run).await;
    let before = app.now().await.timestamp_millis();
    let sent = json!({"run_public_id": run, "task_key": "a", "claim_token": token, "text_tail": "50%",
        "structured": {"done": 5}, "other": true, "at": 1, "executor_public_id": "me"});
    let body = json!({"frame": sent});
    let answer = app.on(1).post(PROGRESS, &world.runner.token, body).await;
    accepted(&answer);
    let heard = next(&mut feed).await;
    let frame = at(&heard, "frame");
    assert_eq!(text(frame, "type"), "executor_progress");
    assert_eq!(text(frame, "run_public_id"), run);
    assert_eq!(text(frame, "task_key"), "a");
    assert_eq!(text(frame, "tool_name"), "echo");
    assert_eq!(
        text(frame, "executor_public_id"),
        world.runner.public_id.to_string()
    );
    assert_eq!(text(frame, "text_tail"), "50%");
    assert_eq!(at(frame, "structured.done").as_i64(), Some(5));
    let stamp = at(frame, "at").as_i64().unwrap();
    assert!((before..=before + 60_000).contains(&stamp), "{stamp}");
    assert_eq!(
        frame.as_object().unwrap().len(),
        8,
        "nothing else: {frame:?}"
    );
    let kept: i64 = client
        .query_one(
            "SELECT count(*) FROM run_events WHERE payload LIKE '%50\\%%'",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(kept, 0, "never stored");
    drop(client);
    app.finish().await;
}

/// Holds the cadence slot of a frame, as a frame just before it would.
async fn hold_slot(app: &TestApp, world: &World, frame: &serde_json::Value) {
    let value = json::parse(frame.to_string().as_bytes()).unwrap();
    let frame = Frame::read(&value).unwrap();
    let slot = progress::slot(world.runner.public_id, &frame);
    let bus = &app.app().bus;
    assert!(bus.try_slot(&slot, Duration::from_secs(60)).await);
}

/// §14, edge case 46: within the cadence every frame is 202 and dropped, even with a bad token;
/// outside of it a bad token is 409.
#[tokio::test]
async fn the_cadence_is_looked_at_before_any_row() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let (run, tokens) = calls(&app, &world, &["a", "b", "c"]).await;
    let frame = |key: &str, token: &str| json!({"run_public_id": run, "task_key": key, "claim_token": token, "text_tail": key});
    let mut feed = feed(&app, &run).await;
    hold_slot(&app, &world, &frame("a", "")).await;
    for token in [tokens[0].as_str(), "bad"] {
        accepted(&send(&app, &world.runner.token, &frame("a", token)).await);
    }
    let unknown =
        json!({"run_public_id": run, "task_key": "a", "claim_token": "bad", "text_tail": 5});
    send(&app, &world.runner.token, &unknown)
        .await
        .expect(422, "invalid_frame");
    // Another key has a slot of its own, and so has another executor.
    send(&app, &world.runner.token, &frame("b", "bad"))
        .await
        .expect(409, "not_claimant");
    send(&app, &world.provider.token, &frame("a", &tokens[0]))
        .await
        .expect(409, "not_claimant");
    accepted(&send(&app, &world.runner.token, &frame("c", &tokens[2])).await);
    let heard = next(&mut feed).await;
    assert_eq!(
        text(&heard, "frame.task_key"),
        "c",
        "the dropped ones were not heard before it"
    );
    app.finish().await;
}

/// §14, edge case 46: a burst is answered 202 throughout and heard at most once per 250 ms.
#[tokio::test]
async fn a_burst_is_thinned_out() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let (run, tokens) = calls(&app, &world, &["a", "last"]).await;
    let mut feed = feed(&app, &run).await;
    let frame = json!({"run_public_id": run, "task_key": "a", "claim_token": tokens[0]});
    let began = std::time::Instant::now();
    let burst = (0..20).map(|_| send(&app, &world.runner.token, &frame));
    for answer in futures_util::future::join_all(burst).await {
        accepted(&answer);
    }
    let windows = began.elapsed().as_millis() / 250 + 1;
    let last = json!({"run_public_id": run, "task_key": "last", "claim_token": tokens[1]});
    accepted(&send(&app, &world.runner.token, &last).await);
    let mut heard = 0;
    while text(&next(&mut feed).await, "frame.task_key") == "a" {
        heard += 1;
    }
    assert!(
        (1..=windows).contains(&heard),
        "{heard} heard in {windows} windows"
    );
    app.finish().await;
}

/// §14: the fence of a call's frame, and what settled or paused rows do.
#[tokio::test]
async fn only_the_current_claimant_reports() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let other = World::in_database(&client, "b").await;
    let (run, tokens) = calls(&app, &world, &["settled", "paused", "d", "e", "f", "last"]).await;
    let frame = |key: &str, token: &str| json!({"run_public_id": run, "task_key": key, "claim_token": token});
    let runner = &world.runner.token;

    send(&app, runner, &frame("d", &tokens[0]))
        .await
        .expect(409, "not_claimant");
    send(&app, runner, &frame("nowhere", &tokens[2]))
        .await
        .expect(404, "not_found");
    send(&app, &other.runner.token, &frame("e", &tokens[3]))
        .await
        .expect(404, "not_found");
    let absent = json!({"run_public_id": "01890000-0000-7000-8000-000000000000", "task_key": "f", "claim_token": tokens[4]});
    send(&app, runner, &absent).await.expect(404, "not_found");
    app.post(PROGRESS, "", json!({"frame": {}}))
        .await
        .expect(401, "unauthorized");
    app.post(PROGRESS, &world.human.token, json!({"frame": {}}))
        .await
        .expect(401, "unauthorized");

    let done = json!({"claim_token": tokens[0], "content": "done"});
    app.post(&door(&run, "settled", "commit"), runner, done)
        .await
        .ok(200);
    let mut feed = feed(&app, &run).await;
    accepted(&send(&app, runner, &frame("settled", &tokens[0])).await);
    client
        .execute(
            "UPDATE runs SET status = 'paused', paused_at = nexus_now() WHERE status = 'running'",
            &[],
        )
        .await
        .unwrap();
    accepted(&send(&app, runner, &frame("paused", &tokens[1])).await);
    let heard = next(&mut feed).await;
    assert_eq!(
        text(&heard, "frame.task_key"),
        "paused",
        "a settled row's frame is dropped"
    );
    drop(client);
    app.finish().await;
}

/// §14, edge case 47, and the bound: shape before anything is looked at.
#[tokio::test]
async fn what_is_no_frame_is_refused() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let token = &world.runner.token;
    app.command(PROGRESS, token)
        .await
        .expect(400, "parameter_missing");
    app.post(PROGRESS, token, "{")
        .await
        .expect(400, "bad_request");
    for mistyped in [json!(null), json!(5), json!([]), json!("x")] {
        send(&app, token, &mistyped)
            .await
            .expect(422, "invalid_frame");
    }
    for bad in [
        json!({}),
        json!({"text_tail": "x"}),
        json!({"run_public_id": "x", "task_key": "a", "claim_token": "t"}),
        json!({"run_public_id": world.account_public_id, "process_id": "p"}),
    ] {
        send(&app, token, &bad).await.expect(422, "invalid_frame");
    }
    let run = world.account_public_id;
    let large = json!({"run_public_id": run, "task_key": "a", "claim_token": "t", "text_tail": "x".repeat(65_536)});
    send(&app, token, &large)
        .await
        .expect(422, "frame_too_large");
    app.finish().await;
}

/// §14: a process outlives the call that started it; its source may be settled, and must be of its
/// host.
#[tokio::test]
async fn a_process_reports_to_its_host() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let (run, tokens) = calls(&app, &world, &["a", "b"]).await;
    let (elsewhere, _) = calls(&app, &world, &["a"]).await;
    let source = |token: &str| json!({"run_public_id": run, "task_key": "a", "claim_token": token});
    let frame = |host: &str, process: &str, token: &str| {
        json!({"run_public_id": host, "process_id": process,
        "source": source(token), "lines": ["one", {"n": 2}], "exit": {"code": 0}})
    };
    let runner = &world.runner.token;
    let done = json!({"claim_token": tokens[0], "content": "done"});
    app.post(&door(&run, "a", "commit"), runner, done)
        .await
        .ok(200);

    let mut feed = feed(&app, &run).await;
    accepted(&send(&app, runner, &frame(&run, "p1", &tokens[0])).await);
    let heard = next(&mut feed).await;
    let shown = at(&heard, "frame");
    assert_eq!(text(shown, "type"), "process_output");
    assert_eq!(text(shown, "process_id"), "p1");
    assert_eq!(text(shown, "lines.0"), "one");
    assert_eq!(at(shown, "exit.code").as_i64(), Some(0));
    assert!(find(shown, "source").is_none() && find(shown, "claim_token").is_none());
    assert_eq!(shown.as_object().unwrap().len(), 7, "{shown:?}");

    send(&app, runner, &frame(&run, "p2", &tokens[1]))
        .await
        .expect(409, "not_claimant");
    send(&app, runner, &frame(&elsewhere, "p3", &tokens[0]))
        .await
        .expect(409, "not_claimant");
    send(&app, &world.provider.token, &frame(&run, "p4", &tokens[0]))
        .await
        .expect(409, "not_claimant");
    let absent = "01890000-0000-7000-8000-000000000000";
    send(&app, runner, &frame(absent, "p5", &tokens[0]))
        .await
        .expect(404, "not_found");
    let hosted = json!({"conversation_public_id": absent, "process_id": "p6", "source": source(&tokens[0]), "lines": []});
    send(&app, runner, &hosted).await.expect(404, "not_found");
    hold_slot(&app, &world, &frame(&run, "p7", "bad")).await;
    accepted(&send(&app, runner, &frame(&run, "p7", "bad")).await);
    drop(client);
    app.finish().await;
}
