//! Keeping a claim alive, seeing it end, and ending with grace.

use serde_json::json;
use tokio::sync::mpsc;

use super::fake::{Plan, RUN};
use super::*;

/// A handler that reports how it fares and ends when it is told to, or canceled.
struct Held {
    told: mpsc::UnboundedReceiver<&'static str>,
    release: tokio::sync::watch::Sender<bool>,
}

fn held_tool(builder: Builder) -> (Builder, Held) {
    let (tell, told) = mpsc::unbounded_channel();
    let (release, released) = tokio::sync::watch::channel(false);
    let handler = move |ctx: Ctx, _| {
        let (tell, mut released) = (tell.clone(), released.clone());
        async move {
            tell.send("begun").unwrap();
            tokio::select! {
                _ = released.wait_for(|yes| *yes) => Output::text("done"),
                () = ctx.canceled().cancelled() => {
                    tell.send("canceled").unwrap();
                    Output::text("canceled")
                }
            }
        }
    };
    let builder = builder.tool("held", profiles::WRITE, handler);
    (builder, Held { told, release })
}

impl Held {
    async fn told(&mut self) -> &'static str {
        let next = self.told.recv();
        let next = tokio::time::timeout(Duration::from_secs(20), next).await;
        next.expect("the handler says something").unwrap()
    }
}

#[tokio::test]
async fn a_claim_is_extended_before_its_deadline_as_often_as_needed() {
    let fake = Fake::start().await;
    fake.row_with("a", "held", json!({}), 900);
    let (runner, mut held) = held_tool(builder(&fake, quick()));
    let served = Served::start(runner);
    assert_eq!(held.told().await, "begun");
    let claimed_at = fake.seen("claims")[0].at;
    // The fake refuses an extension that comes after the deadline, as the kernel does.
    let extends = fake.wait_seen("extend", 3).await;
    assert!(extends[0].at - claimed_at < Duration::from_millis(900));
    assert_eq!(
        extends[0].json(),
        json!({"claim_token": "token-1", "timeout_ms": 900})
    );
    let alive = fake.with_row("a", |row| row.deadline.unwrap());
    assert!(alive > extends[2].at, "each one moved the clock");
    held.release.send_replace(true);
    fake.wait_commit("a").await;
    served.stop().await;
}

#[tokio::test]
async fn an_extension_that_is_too_long_or_unanswered_is_asked_for_again() {
    let fake = Fake::start().await;
    fake.row_with("a", "held", json!({}), 3_000);
    fake.plan("extend", Plan::Refuse(409, "extension_too_long"));
    fake.plan("extend", Plan::CutAfter);
    let (runner, held) = held_tool(builder(&fake, quick()));
    let served = Served::start(runner);
    let extends = fake.wait_seen("extend", 3).await;
    let asked: Vec<_> = extends
        .iter()
        .map(|s| s.json()["timeout_ms"].clone())
        .collect();
    assert_eq!(asked, [json!(3_000), json!(1_500), json!(1_500)]);
    held.release.send_replace(true);
    fake.wait_commit("a").await;
    served.stop().await;
}

#[tokio::test]
async fn a_pushed_cancellation_stops_the_handler_and_nothing_is_committed() {
    let fake = Fake::start().await;
    fake.row("a", "held", json!({}));
    let (runner, mut held) = held_tool(builder(&fake, quick()));
    let served = Served::start(runner);
    assert_eq!(held.told().await, "begun");
    fake.with_row("a", |row| row.active = false);
    fake.push(json!({"type": "work_canceled", "run_public_id": RUN, "task_key": "a"}));
    assert_eq!(held.told().await, "canceled");
    let report = served.stop().await;
    assert_eq!((report.canceled, report.committed), (1, 0));
    assert!(fake.seen("commit").is_empty());
}

#[tokio::test]
async fn a_cancellation_of_an_earlier_claim_of_the_row_leaves_this_one_alone() {
    let fake = Fake::start().await;
    fake.row("a", "held", json!({}));
    let (runner, mut held) = held_tool(builder(&fake, quick()));
    let served = Served::start(runner);
    assert_eq!(held.told().await, "begun");
    let before = fake.seen("read_claim").len();
    fake.push(json!({"type": "work_canceled", "run_public_id": RUN, "task_key": "a"}));
    // The claim read says active: the frame was of a generation before.
    fake.wait_seen("read_claim", before + 1).await;
    held.release.send_replace(true);
    assert_eq!(fake.wait_commit("a").await["content"], "done");
    served.stop().await;
}

#[tokio::test]
async fn a_missed_cancellation_is_found_by_reading_the_claim() {
    let fake = Fake::start().await;
    fake.row("a", "held", json!({}));
    let timing = Timing {
        check: Duration::from_millis(30),
        ..quick()
    };
    let (runner, mut held) = held_tool(builder(&fake, timing));
    let served = Served::start(runner);
    assert_eq!(held.told().await, "begun");
    // Statuses that prove nothing do not stop it.
    fake.plan("read_claim", Plan::Refuse(503, "unavailable"));
    fake.plan("read_claim", Plan::Refuse(429, "rate_limited"));
    fake.plan("read_claim", Plan::CutAfter);
    let before = fake.seen("read_claim").len();
    fake.wait_seen("read_claim", before + 4).await;
    assert!(held.told.try_recv().is_err());
    // A retry gave the row to somebody else.
    fake.with_row("a", |row| row.claimed = Some((None, "theirs".to_owned())));
    assert_eq!(held.told().await, "canceled");
    let report = served.stop().await;
    assert_eq!((report.canceled, report.committed), (1, 0));
}

#[tokio::test]
async fn a_reconnected_cable_has_every_held_claim_read() {
    let fake = Fake::start().await;
    fake.row("a", "held", json!({}));
    let (runner, mut held) = held_tool(builder(&fake, quick()));
    let served = Served::start(runner);
    assert_eq!(held.told().await, "begun");
    fake.with_row("a", |row| row.active = false);
    fake.frame(json!({"type": "disconnect", "reason": "server_restart", "reconnect": true}));
    assert_eq!(held.told().await, "canceled");
    served.stop().await;
}

#[tokio::test]
async fn a_shutdown_takes_nothing_new_and_lets_running_handlers_finish_extending() {
    let fake = Fake::start().await;
    fake.row_with("a", "held", json!({}), 900);
    let (runner, mut held) = held_tool(builder(&fake, quick()));
    let Served { stop, task } = Served::start(runner);
    assert_eq!(held.told().await, "begun");
    stop.send(()).unwrap();
    let before = fake.seen("extend").len();
    fake.wait_seen("extend", before + 1).await;
    let claims = fake.seen("claims").len();
    fake.row("b", "held", json!({}));
    fake.nudge();
    let extends = fake.seen("extend").len();
    fake.wait_seen("extend", extends + 1).await;
    assert_eq!(fake.seen("claims").len(), claims);
    held.release.send_replace(true);
    let report = task.await.unwrap().unwrap();
    assert_eq!((report.claimed, report.committed), (1, 1));
    assert!(fake.with_row("b", |row| row.claimed.is_none()));
}

#[tokio::test]
async fn when_the_grace_is_over_handlers_are_cut_and_not_committed() {
    let fake = Fake::start().await;
    fake.row("a", "held", json!({}));
    let timing = Timing {
        grace: Duration::from_millis(50),
        ..quick()
    };
    let (runner, mut held) = held_tool(builder(&fake, timing));
    let served = Served::start(runner);
    assert_eq!(held.told().await, "begun");
    let report = served.stop().await;
    assert_eq!(held.told().await, "canceled");
    assert_eq!((report.abandoned, report.committed), (1, 0));
    assert!(fake.seen("commit").is_empty());
}

#[tokio::test]
async fn progress_is_spaced_and_only_the_newest_is_sent() {
    let fake = Fake::start().await;
    fake.row("a", "talks", json!({}));
    let (tell, mut told) = mpsc::unbounded_channel();
    let talks = move |ctx: Ctx, _| {
        let tell = tell.clone();
        async move {
            for n in 0..500 {
                ctx.progress(format!("{n}"));
            }
            tell.send(()).unwrap();
            ctx.canceled().cancelled().await;
            Output::text("never")
        }
    };
    let timing = Timing {
        grace: Duration::from_millis(10),
        ..quick()
    };
    let served = Served::start(builder(&fake, timing).tool("talks", profiles::PURE, talks));
    told.recv().await.unwrap();
    let newest = || {
        let last = fake.seen("progress").pop();
        last.is_some_and(|s| s.json()["frame"]["text_tail"] == "499")
    };
    fake.until(newest, "the newest progress").await;
    let frames = fake.seen("progress");
    assert!(frames.len() <= 3, "{} frames", frames.len());
    let frame = frames[0].json()["frame"].clone();
    assert_eq!(frame["claim_token"], "token-1");
    assert_eq!(
        (&frame["run_public_id"], &frame["task_key"]),
        (&json!(RUN), &json!("a"))
    );
    for pair in frames.windows(2) {
        assert!(pair[1].at - pair[0].at >= Duration::from_millis(40));
    }
    served.stop().await;
}

#[tokio::test]
async fn a_program_is_a_tool() {
    let fake = Fake::start().await;
    fake.row("ok", "cat", json!({"n": 1, "s": "ü"}));
    fake.row("bad", "bad", json!({}));
    let bad = tools::Command::new("echo out; echo err >&2; exit 3");
    let runner = builder(&fake, quick())
        .tool("cat", profiles::UNKNOWN, tools::Command::new("cat"))
        .tool("bad", profiles::UNKNOWN, bad);
    let served = Served::start(runner);
    let ok = fake.wait_commit("ok").await;
    assert_eq!(ok["content"], r#"{"n":1,"s":"ü"}"#);
    assert!(ok.get("is_error").is_none());
    let bad = fake.wait_commit("bad").await;
    assert_eq!(bad["is_error"], true);
    let words = bad["content"].as_str().unwrap();
    assert_eq!(words, "out\nerr\n(exit status: 3)");
    served.stop().await;
}

#[tokio::test]
async fn a_canceled_program_ends_with_all_its_group() {
    let fake = Fake::start().await;
    fake.row("long", "long", json!({}));
    let name = format!("nexus-{}", crate::client::idempotency_key());
    let begun = std::env::temp_dir().join(name);
    let ended = begun.with_extension("ended");
    // The grandchild notes that it was told to end; the shell in front of it only waits.
    let line = format!(
        "(trap 'touch {}; exit' TERM; touch {}; while :; do sleep 0.02; done) & wait",
        ended.display(),
        begun.display()
    );
    let timing = Timing {
        cancel_grace: Duration::from_secs(10),
        ..quick()
    };
    let long = tools::Command::new(line);
    let served = Served::start(builder(&fake, timing).tool("long", profiles::UNKNOWN, long));
    let wait = async {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let wait = tokio::time::timeout(Duration::from_secs(20), wait).await;
    wait.expect("the program begins");
    fake.with_row("long", |row| row.active = false);
    fake.push(json!({"type": "work_canceled", "run_public_id": RUN, "task_key": "long"}));
    let report = served.stop().await;
    assert_eq!((report.committed, report.canceled), (0, 1));
    assert!(ended.exists(), "the grandchild was told to end");
    std::fs::remove_file(begun).unwrap();
    std::fs::remove_file(ended).unwrap();
}
