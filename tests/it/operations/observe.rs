//! Observations: order, envelopes, positions.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Scene, json_of, key, local, step, work};

/// 21: what is ready is observed by acceptance; what becomes ready, when it does.
#[tokio::test]
async fn the_lowest_ready_operation_is_observed() {
    let s = Scene::new().await;
    let mut keys = Vec::new();
    for name in ["a", "b", "c"] {
        keys.push(key(&s.accept(name, work()).await));
    }
    assert_eq!(s.observe().await, Value::Null);
    for (at, name) in [(2, "c"), (1, "b"), (0, "a")] {
        s.done(&keys[at]).await;
        assert_eq!(s.outcome(name).await["output"], format!("did {}", keys[at]));
    }
    keys.clear();
    for name in ["d", "e", "f"] {
        keys.push(key(&s.accept(name, work()).await));
    }
    for at in [2, 0, 1] {
        s.done(&keys[at]).await;
    }
    for name in ["d", "e", "f"] {
        s.outcome(name).await;
    }
    assert_eq!(s.observe().await, Value::Null);
    s.commit(json!({"content": "all"})).await.ok(200);
    assert_eq!(s.run_status().await, "completed");
    s.app.finish().await;
}

/// 19, 20: `after` is the end, or an older one with what was recorded behind it.
#[tokio::test]
async fn an_older_after_repeats_what_was_recorded() {
    let s = Scene::new().await;
    s.look(1).await.expect(409, "operation_position_changed");
    let a = key(&s.accept("a", work()).await);
    s.look(0).await.expect(409, "operation_position_changed");
    s.look(2).await.expect(409, "operation_position_changed");
    s.done(&a).await;
    let first = json_of(&s.look(1).await);
    assert_eq!(first["position"], 2);
    let b = key(&s.accept("b", work()).await);
    s.done(&b).await;
    assert_eq!(json_of(&s.look(3).await)["position"], 4);
    for after in [0, 1] {
        assert_eq!(json_of(&s.look(after).await), first, "{after}");
    }
    assert_eq!(json_of(&s.look(2).await)["observation"]["key"], "b");
    assert_eq!(
        json_of(&s.look(4).await),
        json!({"observation": null, "position": 4})
    );
    for body in [
        json!({"claim_token": s.token}),
        json!({"claim_token": s.token, "after": null}),
    ] {
        s.post("observation", body)
            .await
            .expect(400, "parameter_missing");
    }
    for after in [json!(-1), json!("1"), json!(1.0), json!(2_147_483_648_i64)] {
        let body = json!({"claim_token": s.token, "after": after});
        s.post("observation", body)
            .await
            .expect(400, "parameter_invalid");
    }
    s.app.finish().await;
}

/// 22, 24: what a result is and is not, and an error that is data.
#[tokio::test]
async fn envelopes_tell_absence_from_null() {
    let s = Scene::new().await;
    let table = [
        (
            json!({"structured_content": false}),
            json!([false, null, true, false]),
        ),
        (
            json!({"structured_content": null}),
            json!([false, null, true, null]),
        ),
        (json!({}), json!([false, null, false, null])),
        (json!({"content": "x"}), json!([true, "x", false, null])),
    ];
    for (n, (body, expected)) in table.into_iter().enumerate() {
        let name = format!("op{n}");
        let child = key(&s.accept(&name, work()).await);
        s.answer(&child, body).await;
        let e = s.outcome(&name).await;
        let told = json!([
            e["output_present"],
            e["output"],
            e["structured_content_present"],
            e["structured_content"]
        ]);
        assert_eq!(told, expected, "{name}");
        assert_eq!(e["run_public_id"], s.run.as_str());
        assert_eq!(e["task_key"], child.as_str());
        assert_eq!(e["error"], Value::Null);
    }
    let child = key(&s.accept("err", work()).await);
    s.answer(&child, json!({"content": "bad", "is_error": true}))
        .await;
    let e = s.outcome("err").await;
    assert_eq!(
        (&e["status"], &e["is_error"]),
        (&json!("completed"), &json!(true))
    );
    let child = key(&s.accept("failed", work()).await);
    s.fails(&child).await;
    let e = s.outcome("failed").await;
    assert_eq!(
        (&e["status"], &e["error"]["key"]),
        (&json!("failed"), &json!("tool_failed"))
    );
    s.app.finish().await;
}

/// 13, 14: a batch's tips, all of them; a race stands for what it selected.
#[tokio::test]
async fn a_batch_is_ready_once_every_tip_is() {
    let s = Scene::new().await;
    let fan = json!([step("first"), {"parallel": [step("a"), step("b")]}]);
    let fan = s
        .accept("fan", json!({"kind": "steps", "input": fan}))
        .await;
    s.done(&local(&fan, "first")).await;
    s.done(&local(&fan, "a")).await;
    assert_eq!(s.observe().await, Value::Null, "b is still at work");
    s.done(&local(&fan, "b")).await;
    let results = s.outcome("fan").await["results"].clone();
    let keys: Vec<&str> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["task_key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, [local(&fan, "a"), local(&fan, "b")]);
    let race = json!([{"parallel": [step("x"), step("y")], "until": "any", "key": "r"}]);
    let race = s
        .accept("race", json!({"kind": "steps", "input": race}))
        .await;
    s.done(&local(&race, "y")).await;
    let results = s.outcome("race").await["results"].clone();
    assert_eq!(results.as_array().unwrap().len(), 1);
    assert_eq!(results[0]["task_key"], local(&race, "y"));
    assert_eq!(results[0]["selected"][0]["task_key"], local(&race, "y"));
    assert_eq!(s.status(&local(&race, "x")).await, "canceled");
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}

/// 23: what was sealed stays, whatever becomes of the child.
#[tokio::test]
async fn a_repaired_child_changes_no_observation() {
    let s = Scene::new().await;
    let steps = json!([{"tool": {"key": "a", "name": "work", "on_failure": "propagate"}}]);
    let receipt = s
        .accept("op", json!({"kind": "steps", "input": steps}))
        .await;
    let child = local(&receipt, "a");
    s.fails(&child).await;
    let sealed = s.outcome("op").await;
    assert_eq!(sealed["results"][0]["status"], "failed");
    let retried = s.say(&format!("tasks/{child}/retry"), json!({})).await;
    retried.ok(200);
    s.commit(json!({})).await.expect(409, "pending_children");
    s.done(&child).await;
    assert_eq!(json_of(&s.look(1).await)["observation"]["outcome"], sealed);
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}

/// A failure under `halt` holds nothing that its owner can still observe (§5.1).
#[tokio::test]
async fn a_halt_failure_of_a_tip_holds_no_run() {
    let s = Scene::new().await;
    let steps = json!([{"tool": {"key": "a", "name": "work", "on_failure": "halt"}}]);
    let receipt = s
        .accept("op", json!({"kind": "steps", "input": steps}))
        .await;
    s.fails(&local(&receipt, "a")).await;
    assert_eq!(s.run_status().await, "running");
    s.outcome("op").await;
    s.commit(json!({})).await.ok(200);
    assert_eq!(s.run_status().await, "completed");
    s.app.finish().await;
}

/// … and one that keeps its operation from becoming ready holds the run until a person decides.
#[tokio::test]
async fn a_halt_failure_before_others_holds_the_run() {
    let s = Scene::new().await;
    let steps = json!([{"tool": {"key": "a", "name": "work", "on_failure": "halt"}}, step("b")]);
    let receipt = s
        .accept("op", json!({"kind": "steps", "input": steps}))
        .await;
    s.fails(&local(&receipt, "a")).await;
    assert_eq!(s.run_status().await, "needs_attention");
    s.send("more", &work())
        .await
        .expect(409, "execution_paused");
    s.look(1).await.ok(200);
    s.say(
        &format!("tasks/{}/abandon", local(&receipt, "a")),
        json!({}),
    )
    .await
    .ok(200);
    assert_eq!(s.run_status().await, "running");
    s.done(&local(&receipt, "b")).await;
    s.outcome("op").await;
    s.send("more", &work()).await.ok(201);
    s.app.finish().await;
}

/// 53: a wait observes a row of the run; its own deadline leaves that alone.
#[tokio::test]
async fn a_wait_reads_what_it_names() {
    let s = Scene::new().await;
    let child = key(&s.accept("a", work()).await);
    s.accept("w", json!({"kind": "wait", "input": {"task": child}}))
        .await;
    let short = json!({"kind": "wait", "input": {"task": child, "timeout_ms": 1000}});
    s.accept("short", short).await;
    s.app.advance(Duration::from_secs(2)).await;
    s.world.sweep(&s.app, 0, &s.run, &[4]).await;
    let expired = s.outcome("short").await;
    assert_eq!(expired["error"]["key"], "await_timeout");
    assert_eq!(s.status(&child).await, "dispatched");
    s.done(&child).await;
    s.outcome("a").await;
    let waited = s.outcome("w").await;
    assert_eq!(waited["structured_content"]["status"], "completed");
    assert_eq!(
        waited["structured_content"]["results"][0]["task_key"],
        child.as_str()
    );
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}

/// `wait_ms` is answered by a hint (`architecture.md` §8), on another replica than the one that
/// commits.
#[tokio::test]
async fn a_waiting_observation_is_answered_when_the_child_ends() {
    let s = Scene::new().await;
    let child = key(&s.accept("a", work()).await);
    let token = s.claim(&child).await;
    let body = json!({"claim_token": s.token, "after": 1, "wait_ms": 20_000});
    let (path, bearer) = (s.door("observation"), s.world.runner.token.clone());
    let asked = Instant::now();
    let waiting = s.app.on(1).post(&path, &bearer, body);
    let committing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let commit = crate::support::seed::door(&s.run, &child, "commit");
        s.app
            .post(&commit, &bearer, json!({"claim_token": token}))
            .await
            .ok(200);
        Instant::now()
    };
    let (answer, committed) = tokio::join!(waiting, committing);
    assert_eq!(json_of(&answer)["observation"]["key"], "a");
    let told = Instant::now().duration_since(committed);
    assert!(
        told < Duration::from_secs(4),
        "told by a hint, not by a look: {told:?}"
    );
    assert!(asked.elapsed() >= Duration::from_millis(300));
    let body = json!({"claim_token": s.token, "after": 2, "wait_ms": 50});
    let none = s.post("observation", body).await;
    assert_eq!(json_of(&none), json!({"observation": null, "position": 2}));
    s.app.finish().await;
}
