//! Commits (`executor.md` §11): the order of refusals, what is stored, exact repeats, late ones,
//! and answers that were lost.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::fleet::{all, dump, number, set_run, unrouted};
use crate::support::proxy::Proxy;
use crate::support::seed::{World, door};
use crate::support::{Answer, TestApp, at, find, raw, text};

struct Scene {
    app: TestApp,
    sql: tokio_postgres::Client,
    world: World,
    run: String,
}

/// A run of two routed calls behind each other.
async fn scene(tool: &str) -> Scene {
    let app = TestApp::start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let steps = json!([world.routed("a", tool), world.routed("b", "echo")]);
    let run = world.run(&app, steps).await;
    Scene {
        app,
        sql,
        world,
        run,
    }
}

impl Scene {
    async fn claim(&self) -> String {
        self.world.claim(&self.app, &self.run, "a").await
    }

    async fn commit(&self, body: Value) -> Answer {
        self.commit_as(&self.world.runner.token, body).await
    }

    async fn commit_as(&self, bearer: &str, body: Value) -> Answer {
        self.app
            .post(&door(&self.run, "a", "commit"), bearer, body)
            .await
    }

    async fn stored(&self) -> i64 {
        number(&self.sql, "SELECT count(*) FROM task_results").await
    }
}

/// Edge cases 31, 32.
#[tokio::test]
async fn addressing_is_judged_before_the_token() {
    let s = scene("write_note").await;
    s.commit(json!({"content": "x"}))
        .await
        .expect(409, "stale_claim");
    let token = s.claim().await;
    for other in [&s.world.provider.token, &s.world.application.token] {
        s.commit_as(other, json!({"claim_token": token}))
            .await
            .expect(409, "not_addressed_here");
    }
    for (body, status, code) in [
        (json!({}), 409, "stale_claim"),
        (json!({"claim_token": null}), 409, "stale_claim"),
        (json!({"claim_token": ""}), 409, "stale_claim"),
        (
            json!({"claim_token": "x".repeat(1_000_000)}),
            409,
            "stale_claim",
        ),
        (json!({"claim_token": 7}), 400, "parameter_invalid"),
        (
            json!({"claim_token": token, "is_error": "yes"}),
            400,
            "parameter_invalid",
        ),
        (
            json!({"claim_token": token, "is_error": null}),
            400,
            "parameter_invalid",
        ),
    ] {
        s.commit(body).await.expect(status, code);
    }
    s.app
        .post(
            &door(&s.run, "b", "commit"),
            &s.world.runner.token,
            json!({"claim_token": token}),
        )
        .await
        .expect(409, "task_not_running");
    s.app
        .post(
            &door(&s.run, "zz", "commit"),
            &s.world.runner.token,
            json!({"claim_token": token}),
        )
        .await
        .expect(404, "not_found");
    let pooled = s.world.run(&s.app, json!([unrouted("a", "pooled")])).await;
    s.app
        .post(
            &door(&pooled, "a", "commit"),
            &s.world.provider.token,
            json!({}),
        )
        .await
        .expect(409, "not_addressed_here");
    assert_eq!(s.stored().await, 0);
    s.commit(json!({"claim_token": token})).await.ok(200);
    s.app.finish().await;
}

/// Edge case 33: an exact repeat is the stored task, whatever the order of its keys and however
/// late; other content is a conflict, the final result stands.
#[tokio::test]
async fn an_exact_repeat_is_answered_for_ever_and_another_result_never_replaces_it() {
    let s = scene("write_note").await;
    let token = s.claim().await;
    let first = s
        .commit(json!({"claim_token": token, "content": "x", "title": "t", "structured_content": {"a": 1, "b": [1.5, null]}, "metadata": {"k": 1}}))
        .await
        .ok(200);
    s.app.advance(Duration::from_secs(86_400)).await;
    let same = format!(
        r#"{{"metadata":{{"k":1}}, "structured_content":{{"b":[1.5e0, null],"a":1}},"title":"t","outcome":"completed",
            "is_error":false,"result_type":"complete","content":"x","claim_token":"{token}","unknown":[1]}}"#
    );
    let again = s
        .app
        .post(&door(&s.run, "a", "commit"), &s.world.runner.token, same)
        .await
        .ok(200);
    assert_eq!(first, again);
    for other in [
        json!({"claim_token": token, "content": "x", "title": "u", "structured_content": {"a": 1, "b": [1.5, null]}, "metadata": {"k": 1}}),
        json!({"claim_token": token, "content": [{"type": "text", "text": "x"}], "title": "t", "structured_content": {"a": 1, "b": [1.5, null]}, "metadata": {"k": 1}}),
        json!({"claim_token": token, "content": "x", "title": "t", "structured_content": {"a": 1.0, "b": [1.5, null]}, "metadata": {"k": 1}}),
        json!({"claim_token": token, "content": "x", "title": "t", "outcome": "failed", "structured_content": {"a": 1, "b": [1.5, null]}, "metadata": {"k": 1}}),
        json!({"claim_token": token, "content": "x\u{0}", "title": "t"}),
        json!({"claim_token": token, "outcome": "maybe"}),
    ] {
        s.commit(other).await.expect(409, "final_result_conflict");
    }
    s.commit(json!({"claim_token": "other", "content": "x"}))
        .await
        .expect(409, "stale_claim");
    assert_eq!(first, s.commit(json!({"claim_token": token, "content": "x", "title": "t", "structured_content": {"a": 1, "b": [1.5, null]}, "metadata": {"k": 1}})).await.ok(200));
    s.world.stop(&s.app, &s.run).await.ok(200);
    s.app.finish().await;
}

/// Edge case 34: presence is a fact.
#[tokio::test]
async fn an_explicit_null_is_not_an_absent_value() {
    for (sent, other) in [
        (json!({"structured_content": null}), json!({})),
        (json!({}), json!({"structured_content": null})),
        (
            json!({"structured_content": false}),
            json!({"structured_content": null}),
        ),
    ] {
        let s = scene("write_note").await;
        let token = s.claim().await;
        let with = |body: &Value| {
            let mut body = body.clone();
            body["claim_token"] = json!(token);
            body
        };
        s.commit(with(&sent)).await.ok(200);
        s.commit(with(&other))
            .await
            .expect(409, "final_result_conflict");
        s.commit(with(&sent)).await.ok(200);
        let task = s.world.task(&s.app, &s.run, "a").await;
        let shown = find(&task, "task.structured_content");
        assert_eq!(shown.is_some(), sent.get("structured_content").is_some());
        s.world.stop(&s.app, &s.run).await.ok(200);
        s.app.finish().await;
    }
}

/// Edge case 35, BR-015: a late result is never a success, and nothing of it is kept.
#[tokio::test]
async fn a_late_commit_is_judged_by_the_frozen_profile() {
    for (tool, status, error) in [
        ("echo", "timed_out", "tool_timeout"),
        ("write_note", "uncertain", "tool_uncertain"),
    ] {
        let s = scene(tool).await;
        let token = s.claim().await;
        s.app.advance(Duration::from_millis(600_001)).await;
        for _ in 0..2 {
            let late = s
                .commit(json!({"claim_token": token, "content": "late", "structured_content": 1}))
                .await
                .ok(200);
            assert_eq!(text(&late, "task.status"), status);
            assert_eq!(text(&late, "task.error.key"), error);
        }
        assert_eq!(s.stored().await, 0, "no output is stored");
        let run = s.world.show(&s.app, &s.run).await;
        assert_eq!(
            text(&run, "run.status"),
            "needs_attention",
            "on_failure applies"
        );
        let list = s
            .app
            .get("/agent_api/v1/executor/inbox", &s.world.runner.token)
            .await
            .ok(200);
        assert!(
            at(&list, "tasks").as_array().unwrap().is_empty(),
            "never back in the inbox"
        );
        s.app.finish().await;
    }
}

/// A refused payload does not bring a late commit back to life: expiry comes first.
#[tokio::test]
async fn the_deadline_is_judged_before_the_payload() {
    let s = scene("write_note").await;
    let token = s.claim().await;
    s.app.advance(Duration::from_millis(600_001)).await;
    let late = s
        .commit(json!({"claim_token": token, "outcome": "maybe"}))
        .await
        .ok(200);
    assert_eq!(text(&late, "task.status"), "uncertain");
    s.app.finish().await;
}

/// Edge case 36, BR-004: after a force stop the commit is answered with the canceled task.
#[tokio::test]
async fn a_late_commit_cannot_replace_a_forced_stop() {
    let s = scene("write_note").await;
    let token = s.claim().await;
    s.world.stop(&s.app, &s.run).await.ok(200);
    let before = dump(&s.sql).await;
    for body in [
        json!({"claim_token": token, "content": "x"}),
        json!({"claim_token": token, "outcome": "maybe"}),
    ] {
        let late = s.commit(body).await.ok(200);
        assert_eq!(text(&late, "task.status"), "canceled");
    }
    s.commit(json!({"claim_token": "x"}))
        .await
        .expect(409, "stale_claim");
    assert_eq!(before, dump(&s.sql).await, "state and result unchanged");
    s.app.finish().await;
}

/// Edge case 37, BR-004: a pause or a graceful stop permits the commit and stays what it is.
#[tokio::test]
async fn a_commit_is_taken_in_a_held_run_and_starts_nothing() {
    for status in ["paused", "canceling"] {
        let s = scene("write_note").await;
        let token = s.claim().await;
        set_run(&s.sql, &s.run, status).await;
        if status == "paused" {
            s.app.advance(Duration::from_secs(3600)).await; // only a pause freezes the clock
        }
        let done = s
            .commit(json!({"claim_token": token, "content": "x"}))
            .await
            .ok(200);
        assert_eq!(text(&done, "task.status"), "completed", "{status}");
        assert_eq!(
            number(&s.sql, "SELECT count(*) FROM parks").await,
            0,
            "the follower waits"
        );
        let now: String = s
            .sql
            .query_one("SELECT status FROM runs", &[])
            .await
            .unwrap()
            .get(0);
        assert_eq!(now, status);
        set_run(&s.sql, &s.run, "running").await;
        let run: nexus::domain::PublicId = s.run.parse().unwrap();
        let account = nexus::domain::AccountId(s.world.account);
        let ready = nexus::commands::schedule::schedule(s.app.app(), account, run)
            .await
            .unwrap();
        assert_eq!(ready, 1);
        let token = s.world.claim(&s.app, &s.run, "b").await;
        s.world.commit(&s.app, &s.run, "b", &token).await.ok(200);
        assert_eq!(
            text(&s.world.show(&s.app, &s.run).await, "run.status"),
            "completed"
        );
        s.app.finish().await;
    }
}

/// Edge cases 38, 39 and the rest of the payload table: each refusal by its word, the park stands,
/// nothing changes, and the same token then commits.
#[tokio::test]
async fn a_refused_payload_leaves_the_park_standing() {
    let s = scene("write_note").await;
    let foreign = "01a00000-0000-7000-8000-00000000000f";
    s.sql
        .execute(
            "INSERT INTO uploads (account_id, public_id, filename, content_type, byte_size, sha256, store, creator_executor_id)
             VALUES ($1, $2::text::uuid, 'x', 'image/png', 1, '', 'postgres', $3)",
            &[&s.world.account, &foreign, &s.world.provider.id],
        )
        .await
        .unwrap();
    let token = s.claim().await;
    let before = dump(&s.sql).await;
    let link =
        |uri: &str, name: Value| json!([{"type": "resource_link", "uri": uri, "name": name}]);
    let own = format!("nexus://uploads/{foreign}");
    let big_text = |n: usize| "x".repeat(n);
    // The stored form of a string is one text block.
    let room = 1_048_576 - json!([{"text": "", "type": "text"}]).to_string().len();
    for (member, value, code) in [
        ("outcome", json!("maybe"), "invalid_outcome"),
        ("outcome", json!(1), "invalid_outcome"),
        ("outcome", json!(null), "invalid_outcome"),
        (
            "content",
            json!([{"type": "image", "data": "x"}]),
            "unsupported_content_kind",
        ),
        (
            "content",
            link("https://example.com/a", json!("n")),
            "invalid_content",
        ),
        ("content", link(&own, json!(" ")), "invalid_content"),
        ("content", link(&own, json!("n")), "unknown_result_upload"),
        (
            "content",
            link(
                "nexus://uploads/01a00000-0000-7000-8000-0000000000aa",
                json!("n"),
            ),
            "unknown_result_upload",
        ),
        (
            "content",
            link("nexus://uploads/nope", json!("n")),
            "invalid_content",
        ),
        ("content", json!(7), "invalid_content"),
        (
            "content",
            json!({"type": "text", "text": "x"}),
            "invalid_content",
        ),
        ("content", json!(["x"]), "invalid_content"),
        ("content", json!([{"text": "x"}]), "invalid_content"),
        (
            "content",
            json!([{"type": 7, "text": "x"}]),
            "invalid_content",
        ),
        (
            "content",
            json!([{"type": null, "text": "x"}]),
            "invalid_content",
        ),
        (
            "content",
            json!([{"type": "text", "text": 1}]),
            "invalid_content",
        ),
        (
            "content",
            json!([{"type": "resource_link", "uri": own, "name": "n", "size": -1}]),
            "invalid_content",
        ),
        (
            "content",
            json!([{"type": "resource_link", "uri": own, "name": "n", "mimeType": 1}]),
            "invalid_content",
        ),
        (
            "content",
            json!(vec![json!({"type": "text", "text": ""}); 32_769]),
            "too_many_content_blocks",
        ),
        ("content", json!(big_text(room + 1)), "result_too_large"),
        (
            "structured_content",
            json!(big_text(1_048_575)),
            "result_too_large",
        ),
        (
            "metadata",
            json!({"k": big_text(65_536)}),
            "metadata_too_large",
        ),
        ("metadata", json!([1]), "invalid_metadata"),
        ("metadata", json!({"k": "\u{0}"}), "invalid_metadata"),
        ("metadata", json!({"\u{0}": 1}), "invalid_metadata"),
        ("title", json!("a\u{0}b"), "invalid_title"),
        ("title", json!(5), "invalid_title"),
        ("result_type", json!("partial"), "invalid_result_type"),
        ("result_type", json!(1), "invalid_result_type"),
        ("result_type", json!(null), "invalid_result_type"),
    ] {
        let mut body = json!({"claim_token": token});
        body[member] = value;
        s.commit(body).await.expect(422, code);
    }
    assert_eq!(before, dump(&s.sql).await, "no refusal changes anything");
    let fits = json!({"claim_token": token, "content": big_text(room), "metadata": {"k": big_text(65_528)}, "title": "t".repeat(300)});
    s.commit(fits).await.ok(200);
    let task = s.world.task(&s.app, &s.run, "a").await;
    assert_eq!(text(&task, "task.title").len(), 200);
    s.world.stop(&s.app, &s.run).await.ok(200);
    s.app.finish().await;
}

/// Edge case 40, BR-059: what cannot be stored settles the row as failed, once.
#[tokio::test]
async fn a_result_that_cannot_be_stored_fails_its_row_and_no_more() {
    for body in [
        r#""content":"a\u0000b""#.to_owned(),
        r#""content":[{"type":"text","text":"\u0000"}]"#.to_owned(),
        r#""structured_content":{"k":["\u0000"]}"#.to_owned(),
        r#""structured_content":{"\u0000":1}"#.to_owned(),
        r#""structured_content":1e400"#.to_owned(),
        r#""structured_content":[-1e999]"#.to_owned(),
        format!(r#""structured_content":{}"#, "9".repeat(257)),
        format!(
            r#""structured_content":{}1{}"#,
            "[".repeat(101),
            "]".repeat(101)
        ),
    ] {
        let s = scene("write_note").await;
        let token = s.claim().await;
        let body = format!(r#"{{"claim_token":"{token}",{body}}}"#);
        let path = door(&s.run, "a", "commit");
        s.app
            .post(&path, &s.world.runner.token, body.as_str())
            .await
            .expect(422, "result_unstorable");
        let before = dump(&s.sql).await;
        let again = s
            .app
            .post(&path, &s.world.runner.token, body.as_str())
            .await
            .ok(200);
        assert_eq!(text(&again, "task.status"), "failed");
        assert_eq!(text(&again, "task.error.key"), "result_unstorable");
        assert!(!text(&again, "task.error.detail").is_empty());
        let clean = s
            .commit(json!({"claim_token": token, "content": "clean"}))
            .await
            .ok(200);
        assert_eq!(
            text(&clean, "task.status"),
            "failed",
            "no digest: as it stands"
        );
        assert_eq!(before, dump(&s.sql).await);
        s.app.finish().await;
    }
}

/// BR-061, BR-056: numbers come back digit for digit; of duplicate names the last one counts.
#[tokio::test]
async fn what_was_committed_is_read_back_exactly() {
    let s = scene("write_note").await;
    let token = s.claim().await;
    let exact = r#"{"a":9007199254740993,"b":18446744073709551616,"c":-123456789012345678901234567890123456789,"d":0.1,"e":1.0,"f":-0,"g":1e-400,"h":"\ud83d\ude00\u001f","i":1,"i":2,"j":{},"k":[],"l":5e-324}"#;
    let body = format!(r#"{{"claim_token":"{token}","structured_content":{exact}}}"#);
    let path = door(&s.run, "a", "commit");
    s.app
        .post(&path, &s.world.runner.token, body.as_str())
        .await
        .ok(200);
    let shown = s
        .app
        .get(
            &format!("{}/{}/tasks/a", s.world.runs(), s.run),
            &s.world.human.token,
        )
        .await;
    let wanted = r#""structured_content":{"a":9007199254740993,"b":18446744073709551616,"c":-123456789012345678901234567890123456789,"d":0.1,"e":1.0,"f":0,"g":0.0,"h":"😀\u001f","i":2,"j":{},"k":[],"l":5e-324}"#;
    assert!(shown.text().contains(wanted), "{}", shown.text());
    s.app
        .post(&path, &s.world.runner.token, body.as_str())
        .await
        .ok(200);
    let rounded = body.replace("9007199254740993", "9007199254740992");
    s.app
        .post(&path, &s.world.runner.token, rounded)
        .await
        .expect(409, "final_result_conflict");
    s.world.stop(&s.app, &s.run).await.ok(200);
    s.app.finish().await;
}

/// `completed` with `is_error` is a completed row; `failed` is `tool_failed` with the cut text.
#[tokio::test]
async fn outcomes_settle_as_they_say() {
    let s = scene("write_note").await;
    let token = s.claim().await;
    let done = s
        .commit(json!({"claim_token": token, "is_error": true, "content": "bad"}))
        .await
        .ok(200);
    assert_eq!(text(&done, "task.status"), "completed");
    assert_eq!(at(&done, "task.is_error").as_bool(), Some(true));
    let token = s.world.claim(&s.app, &s.run, "b").await;
    let long = "é".repeat(300);
    let failed = s
        .app
        .post(
            &door(&s.run, "b", "commit"),
            &s.world.runner.token,
            json!({"claim_token": token, "outcome": "failed", "is_error": true, "content": long}),
        )
        .await
        .ok(200);
    assert_eq!(text(&failed, "task.status"), "failed");
    assert_eq!(text(&failed, "task.error.key"), "tool_failed");
    assert_eq!(text(&failed, "task.error.detail").len(), 256);
    s.app.finish().await;
}

/// Edge cases 22, 49, 50 at the commit.
#[tokio::test]
async fn standing_and_status_are_read_again_at_the_commit() {
    let s = scene("write_note").await;
    let token = s.claim().await;
    let body = json!({"claim_token": token, "content": "x"});
    let before = dump(&s.sql).await;
    s.sql
        .execute("UPDATE grants SET access = 'read'", &[])
        .await
        .unwrap();
    s.commit(body.clone()).await.expect(409, "not_authorized");
    s.sql
        .execute("UPDATE grants SET access = 'write'", &[])
        .await
        .unwrap();
    s.sql
        .execute("UPDATE workspaces SET archived_at = now()", &[])
        .await
        .unwrap();
    s.commit(body.clone()).await.expect(409, "not_authorized");
    s.sql
        .execute("UPDATE workspaces SET archived_at = NULL", &[])
        .await
        .unwrap();
    assert_eq!(before, dump(&s.sql).await, "the park stands");
    s.sql
        .execute("UPDATE executors SET shutdown_at = now()", &[])
        .await
        .unwrap();
    s.app
        .post(
            &door(&s.run, "a", "extend"),
            &s.world.runner.token,
            json!({"claim_token": token, "timeout_ms": 60000}),
        )
        .await
        .ok(200);
    s.commit(body.clone()).await.ok(200);
    s.sql
        .execute("UPDATE executors SET shutdown_at = NULL", &[])
        .await
        .unwrap();
    s.sql
        .execute(
            "UPDATE executors SET status = 'revoked', revoked_at = now()",
            &[],
        )
        .await
        .unwrap();
    s.commit(body).await.expect(401, "unauthorized");
    s.app.finish().await;
}

/// BR-016: the connection is cut after the server committed; the same request again finds what it
/// did, and nothing happens twice.
#[tokio::test]
async fn answers_that_were_lost_are_found_by_the_same_request() {
    let s = scene("write_note").await;
    let proxy = Proxy::start(s.app.base.strip_prefix("http://").unwrap().to_owned()).await;
    let behind = format!("http://{}", proxy.address);
    let lose = async |method: &str, path: &str, bearer: &str, body: &str| {
        proxy.cut_answer_after(0);
        let bytes = raw::request(method, path, bearer, body);
        let heard = raw::hang_up(&behind, &bytes, bytes.len(), Duration::from_secs(10)).await;
        assert_eq!(heard, "", "the answer was lost");
    };
    let runner = &s.world.runner.token;
    // A claim without a key is lost for good; the row waits its deadline out.
    lose("POST", &door(&s.run, "a", "claim"), runner, "").await;
    s.app
        .command(&door(&s.run, "a", "claim"), runner)
        .await
        .expect(409, "already_claimed");
    s.app.advance(Duration::from_secs(601)).await;
    assert_eq!(s.world.sweep(&s.app, 0, &s.run, &[1]).await, 1);
    // A commit is found again; another result is not taken for it.
    let run = s
        .world
        .run(&s.app, json!([s.world.routed("a", "write_note")]))
        .await;
    let token = s.world.claim(&s.app, &run, "a").await;
    let extend = format!(r#"{{"claim_token":"{token}","timeout_ms":60000}}"#);
    lose("POST", &door(&run, "a", "extend"), runner, &extend).await;
    s.app
        .post(&door(&run, "a", "extend"), runner, extend.as_str())
        .await
        .ok(200);
    let body = format!(r#"{{"claim_token":"{token}","content":"done"}}"#);
    lose("POST", &door(&run, "a", "commit"), runner, &body).await;
    let before = dump(&s.sql).await;
    let again = s
        .app
        .post(&door(&run, "a", "commit"), runner, body.as_str())
        .await
        .ok(200);
    assert_eq!(text(&again, "task.status"), "completed");
    s.app
        .post(
            &door(&run, "a", "commit"),
            runner,
            body.replace("done", "else"),
        )
        .await
        .expect(409, "final_result_conflict");
    assert_eq!(before, dump(&s.sql).await);
    // A create under a key is found again: one run.
    let create =
        json!({"run": {"approval_mode": "bypass", "steps": [s.world.routed("a", "echo")]}})
            .to_string();
    let runs = number(&s.sql, "SELECT count(*) FROM runs").await;
    proxy.cut_answer_after(0);
    let mut bytes = raw::request("POST", &s.world.runs(), &s.world.human.token, &create);
    let at_ = bytes.windows(2).position(|w| w == b"\r\n").unwrap() + 2;
    bytes.splice(at_..at_, *b"idempotency-key: k1\r\n");
    raw::hang_up(&behind, &bytes, bytes.len(), Duration::from_secs(10)).await;
    let found = s
        .app
        .request(Method::POST, &s.world.runs(), &s.world.human.token)
        .header("idempotency-key", "k1")
        .json(create)
        .send()
        .await;
    assert_eq!(found.header("idempotency-replayed"), "true");
    found.ok(200);
    assert_eq!(number(&s.sql, "SELECT count(*) FROM runs").await, runs + 1);
    s.app.finish().await;
}

/// BR-004 racing: a stop and a commit of the same row meet under the run lock; whoever is first, the
/// answer is the state that stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_and_a_forced_stop_at_once_agree_on_one_end() {
    const RUNS: usize = 60;
    let app = std::sync::Arc::new(TestApp::replicas(3).await);
    let world = World::in_database(&app.sql().await, "a").await;
    let mut pairs = Vec::new();
    for _ in 0..RUNS {
        let run = world
            .run(
                &app,
                json!([world.routed("a", "write_note"), world.routed("b", "echo")]),
            )
            .await;
        let token = world.claim(&app, &run, "a").await;
        pairs.push((run, token));
    }
    let races = pairs.into_iter().enumerate().map(|(i, (run, token))| {
        let (app, world) = (app.clone(), world.clone());
        async move {
            let body = json!({"claim_token": token, "content": "x"});
            let (path, stop) = (
                door(&run, "a", "commit"),
                format!("{}/{run}/stop", world.runs()),
            );
            let (commit, stop) = tokio::join!(
                app.on(i % 3).post(&path, &world.runner.token, body),
                app.on((i + 1) % 3).command(&stop, &world.human.token),
            );
            stop.ok(200);
            let answered = text(&commit.ok(200), "task.status").to_owned();
            let stands = text(&world.task(&app, &run, "a").await, "task.status").to_owned();
            assert_eq!(answered, stands);
            assert_eq!(
                text(&world.task(&app, &run, "b").await, "task.status"),
                "canceled"
            );
            assert_eq!(
                text(&world.show(&app, &run).await, "run.status"),
                "canceled"
            );
            answered
        }
    });
    let ends = all(races).await;
    let completed = ends.iter().filter(|s| *s == "completed").count();
    println!("commit against stop: {completed} of {RUNS} commits were first");
    let Ok(app) = std::sync::Arc::try_unwrap(app) else {
        panic!("all races ended")
    };
    app.finish().await;
}

/// The same commit from many clients of all replicas at once: one settle, one answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_commit_sent_many_times_at_once_settles_once() {
    let app = TestApp::replicas(3).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    for _ in 0..5 {
        let run = world
            .run(
                &app,
                json!([world.routed("a", "write_note"), world.routed("b", "echo")]),
            )
            .await;
        let token = world.claim(&app, &run, "a").await;
        let sends = (0..24).map(|i| {
            let (door_, path, bearer) = (
                app.on(i % 3).clone(),
                door(&run, "a", "commit"),
                world.runner.token.clone(),
            );
            let content = if i % 4 == 3 { "other" } else { "same" };
            let body = json!({"claim_token": token, "content": content});
            async move { (content, door_.post(&path, &bearer, body).await) }
        });
        let answers = all(sends).await;
        let stored = text(&world.task(&app, &run, "a").await, "task.output").to_owned();
        for (content, answer) in answers {
            if content == stored {
                answer.ok(200);
            } else {
                answer.expect(409, "final_result_conflict");
            }
        }
        world.stop(&app, &run).await.ok(200);
    }
    assert_eq!(number(&sql, "SELECT count(*) FROM task_results").await, 5);
    app.finish().await;
}
