//! Looking, claiming, recovering, committing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::sync::Semaphore;

use super::fake::Plan;
use super::*;

#[tokio::test]
async fn the_inbox_is_read_only_after_the_confirm() {
    let fake = Fake::start().await;
    fake.confirms.send_replace(false);
    let served = Served::start(builder(&fake, quick()));
    fake.wait_seen("subscribe", 1).await;
    assert_eq!(fake.all_seen(), ["announcement", "subscribe"]);
    fake.confirms.send_replace(true);
    fake.wait_seen("inbox", 1).await;
    served.stop().await;
}

#[tokio::test]
async fn a_look_drains_to_null_and_the_next_starts_from_the_beginning() {
    let fake = Fake::start().await;
    fake.page(2);
    for key in ["a", "b", "c", "d", "e"] {
        fake.foreign_row(key);
    }
    let timing = Timing {
        poll: Duration::from_millis(30),
        ..quick()
    };
    let served = Served::start(builder(&fake, timing));
    let seen = fake.wait_seen("inbox", 6).await;
    let queries: Vec<&str> = seen.iter().map(|s| s.query.as_str()).collect();
    let look = ["limit=200", "after=c2&limit=200", "after=c4&limit=200"];
    assert_eq!(queries[..6], [look, look].concat());
    assert!(fake.seen("claims").is_empty(), "nothing was claimable");
    served.stop().await;
}

#[tokio::test]
async fn a_push_is_claimed_from_without_reading_the_inbox_again() {
    let fake = Fake::start().await;
    let served = Served::start(builder(&fake, quick()));
    fake.wait_seen("inbox", 1).await;
    fake.row("a", "add", json!({"a": 1, "b": 2}));
    fake.nudge();
    let body = fake.wait_commit("a").await;
    assert_eq!(
        body,
        json!({"claim_token": "token-1", "content": "3", "structured_content": {"sum": 3}})
    );
    assert_eq!(fake.seen("inbox").len(), 1);
    let report = served.stop().await;
    assert_eq!((report.claimed, report.committed), (1, 1));
}

#[tokio::test]
async fn without_a_cable_polling_finds_the_work() {
    let fake = Fake::start().await;
    for _ in 0..10_000 {
        fake.plan("cable", Plan::Refuse(404, "not_found"));
    }
    let timing = Timing {
        poll: Duration::from_millis(30),
        ..quick()
    };
    let served = Served::start(builder(&fake, timing));
    fake.wait_seen("inbox", 1).await;
    fake.row("late", "echo", json!({"text": "x"}));
    fake.wait_commit("late").await;
    assert!(fake.seen("subscribe").is_empty());
    served.stop().await;
}

#[tokio::test]
async fn br_016_a_lost_claim_answer_is_recovered_under_the_same_key() {
    let fake = Fake::start().await;
    fake.row("a", "echo", json!({"text": "x"}));
    fake.plan("claims", Plan::CutAfter);
    fake.plan("claims", Plan::Refuse(503, "unavailable"));
    let served = Served::start(builder(&fake, quick()));
    let body = fake.wait_commit("a").await;
    let claims = fake.seen("claims");
    assert_eq!(claims[0].key, claims[1].key);
    assert_eq!(claims[0].key, claims[2].key);
    assert_eq!(claims[0].body, claims[2].body);
    assert!(claims[0].key.is_some());
    assert_eq!(body["claim_token"], "token-2", "the recovered token counts");
    fake.row("b", "echo", json!({}));
    fake.nudge();
    fake.wait_commit("b").await;
    let report = served.stop().await;
    assert_eq!((report.claimed, report.committed), (2, 2));
    let last = fake.seen("claims").pop().unwrap();
    assert_ne!(last.key, claims[0].key, "a new claim has a new key");
}

#[tokio::test]
async fn a_claim_that_was_never_answered_is_recovered_at_shutdown() {
    let fake = Fake::start().await;
    fake.row("a", "echo", json!({}));
    fake.plan("claims", Plan::CutAfter);
    let timing = Timing {
        backoff: RetryPolicy {
            base: Duration::from_secs(60),
            longest: Duration::from_secs(60),
            ..RetryPolicy::default()
        },
        ..quick()
    };
    let served = Served::start(builder(&fake, timing));
    fake.wait_seen("claims", 1).await;
    let report = served.stop().await;
    assert_eq!((report.claimed, report.committed), (1, 1));
}

#[tokio::test]
async fn never_more_than_the_free_places_are_asked_for_or_run() {
    let fake = Fake::start().await;
    for n in 0..7 {
        fake.row(&format!("t{n}"), "gated", json!({}));
    }
    let gate = Arc::new(Semaphore::new(0));
    let running = Arc::new(AtomicUsize::new(0));
    let (handler_gate, handler_running) = (Arc::clone(&gate), Arc::clone(&running));
    let handler = move |ctx: Ctx, _| {
        let (gate, running) = (Arc::clone(&handler_gate), Arc::clone(&handler_running));
        async move {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            ctx.progress("begun");
            gate.acquire().await.unwrap().forget();
            running.fetch_sub(1, Ordering::SeqCst);
            Output::text(now.to_string())
        }
    };
    let runner = builder(&fake, quick())
        .concurrency(3)
        .tool("gated", profiles::PURE, handler);
    let served = Served::start(runner);
    fake.wait_seen("progress", 3).await;
    assert_eq!(running.load(Ordering::SeqCst), 3);
    gate.add_permits(7);
    for n in 0..7 {
        let body = fake.wait_commit(&format!("t{n}")).await;
        let now: usize = body["content"].as_str().unwrap().parse().unwrap();
        assert!(now <= 3, "{now} at once");
    }
    for claims in fake.seen("claims") {
        assert!(claims.json()["limit"].as_u64().unwrap() <= 3);
    }
    served.stop().await;
}

#[tokio::test]
async fn br_016_a_commit_is_repeated_byte_for_byte_until_it_is_answered() {
    let fake = Fake::start().await;
    fake.row("a", "echo", json!({"z": [1, 2.5], "text": "x"}));
    fake.plan("commit", Plan::CutAfter);
    fake.plan("commit", Plan::Refuse(503, "unavailable"));
    fake.plan("commit", Plan::Refuse(429, "rate_limited"));
    let served = Served::start(builder(&fake, quick()));
    let commits = fake.wait_seen("commit", 4).await;
    for commit in &commits {
        assert_eq!(commit.body, commits[0].body);
    }
    let report = served.stop().await;
    assert_eq!((report.committed, report.refused), (1, 0));
}

#[tokio::test]
async fn final_refusals_of_a_commit_are_answers_not_reasons_to_try_again() {
    let fake = Fake::start().await;
    for code in ["final_result_conflict", "stale_claim", "execution_stopped"] {
        let before = fake.seen("commit").len();
        fake.plan("commit", Plan::Refuse(409, code));
        fake.row(code, "echo", json!({}));
        let served = Served::start(builder(&fake, quick()));
        fake.wait_seen("commit", before + 1).await;
        let report = served.stop().await;
        assert_eq!((report.committed, report.refused), (0, 1), "{code}");
        assert_eq!(fake.seen("commit").len(), before + 1, "{code}");
    }
}

#[tokio::test]
async fn a_refused_body_becomes_a_failure_that_says_why() {
    let fake = Fake::start().await;
    fake.row("a", "echo", json!({}));
    fake.plan("commit", Plan::Refuse(422, "result_too_large"));
    let served = Served::start(builder(&fake, quick()));
    let body = fake.wait_commit("a").await;
    assert_eq!(body["outcome"], "failed");
    let words = body["content"].as_str().unwrap();
    assert!(words.contains("result_too_large"), "{words}");
    served.stop().await;
}

#[tokio::test]
async fn a_panic_and_a_tool_that_is_not_served_fail_the_call() {
    let fake = Fake::start().await;
    fake.row("a", "panics", json!({}));
    fake.row("b", "elsewhere", json!({}));
    let panics = |_: Ctx, _| async { panic!("on purpose") };
    let runner = builder(&fake, quick()).tool("panics", profiles::PURE, panics);
    let served = Served::start(runner);
    assert_eq!(fake.wait_commit("a").await["outcome"], "failed");
    let words = fake.wait_commit("b").await;
    assert_eq!(
        words["content"],
        "tool `elsewhere` is not served by this runner"
    );
    served.stop().await;
}

#[tokio::test]
async fn a_server_without_batch_claims_is_served_one_by_one() {
    let fake = Fake::start().await;
    fake.plan("claims", Plan::Refuse(404, "not_found"));
    fake.foreign_row("theirs");
    fake.row("a", "echo", json!({}));
    fake.row("b", "echo", json!({}));
    fake.plan("claim", Plan::CutAfter);
    let served = Served::start(builder(&fake, quick()));
    fake.wait_commit("a").await;
    fake.wait_commit("b").await;
    let claims = fake.seen("claim");
    assert_eq!(claims[0].key, claims[1].key, "the lost answer, recovered");
    assert_ne!(claims[1].key, claims[2].key);
    fake.row("c", "echo", json!({}));
    fake.nudge();
    fake.wait_commit("c").await;
    assert_eq!(fake.seen("claims").len(), 1);
    served.stop().await;
}

#[tokio::test]
async fn a_capture_is_staged_and_linked() {
    let fake = Fake::start().await;
    fake.row("a", "shot", json!({}));
    let shot = |ctx: Ctx, _| async move {
        let upload = ctx.upload("a.txt", "hi".into()).await.unwrap();
        Output::text("saved").with_link(&upload)
    };
    let served = Served::start(builder(&fake, quick()).tool("shot", profiles::WRITE, shot));
    let body = fake.wait_commit("a").await;
    assert_eq!(
        body["content"],
        json!([{"type": "text", "text": "saved"},
            {"type": "resource_link", "uri": "nexus://uploads/u1", "name": "a.txt"}])
    );
    let upload = fake.seen("uploads").pop().unwrap();
    let text = String::from_utf8(upload.body.to_vec()).unwrap();
    assert!(
        text.contains(r#"name="upload[file]"; filename="a.txt""#),
        "{text}"
    );
    served.stop().await;
}

#[tokio::test]
async fn a_refused_announcement_and_a_dead_credential_end_the_runner() {
    let fake = Fake::start().await;
    fake.plan("announcement", Plan::Refuse(422, "invalid_announcement"));
    let served = Served::start(builder(&fake, quick()));
    let error = served.task.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Announcement(_)), "{error}");
    fake.plan("announcement", Plan::Refuse(401, "unauthorized"));
    let served = Served::start(builder(&fake, quick()));
    let error = served.task.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unauthorized), "{error}");
    assert!(error.to_string().contains("pair this runner again"));
}

#[tokio::test]
async fn a_credential_that_dies_meanwhile_ends_the_runner_and_takes_nothing_new() {
    for door in ["inbox", "commit", "cable"] {
        let fake = Fake::start().await;
        fake.row("a", "echo", json!({}));
        if door != "cable" {
            fake.plan(door, Plan::Refuse(401, "unauthorized"));
        }
        let served = Served::start(builder(&fake, quick()));
        if door == "cable" {
            fake.wait_commit("a").await;
            fake.frame(json!({"type": "disconnect", "reason": "unauthorized", "reconnect": false}));
        }
        let error = served.task.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unauthorized), "{door}: {error}");
        fake.row("b", "echo", json!({}));
        let before = fake.all_seen().len();
        fake.nudge();
        tokio::task::yield_now().await;
        assert_eq!(fake.all_seen().len(), before, "{door}");
    }
}
