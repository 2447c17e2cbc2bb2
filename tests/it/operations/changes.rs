//! Replacing, canceling and releasing earlier work.

use serde_json::{Value, json};

use super::{Scene, key, local, step, work};

fn chain() -> Value {
    json!({"kind": "steps", "input": [step("a"), step("b"), step("c")]})
}

fn replace(tasks: Value, steps: Value) -> Value {
    json!({"kind": "replace", "input": {"operation_key": "op", "tasks": tasks, "steps": steps}})
}

/// 37: a queued task in the middle makes room for another batch.
#[tokio::test]
async fn a_queued_task_is_replaced_in_its_place() {
    let s = Scene::new().await;
    let old = s.accept("op", chain()).await;
    let new = s
        .accept("new", replace(json!(["b"]), json!([step("x"), step("y")])))
        .await;
    assert_eq!(new["replaced_task_keys"], json!([local(&old, "b")]));
    s.send("new", &replace(json!(["b"]), json!([step("x"), step("y")])))
        .await
        .ok(200);
    assert_eq!(s.tasks().await, 6, "a replay adds nothing");
    assert_eq!(
        s.task(&local(&old, "b")).await["error"]["key"],
        "operation_replaced"
    );
    assert_eq!(
        s.task(&local(&old, "c")).await["after"],
        json!([local(&new, "y")])
    );
    assert_eq!(
        s.task(&local(&new, "x")).await["after"],
        json!([local(&old, "a")])
    );
    for (of, name) in [(&old, "a"), (&new, "x"), (&new, "y"), (&old, "c")] {
        s.done(&local(of, name)).await;
    }
    s.outcome("op").await;
    s.outcome("new").await;
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}

/// 38: what has started, or whose consumer has, stays; the graph is as it was.
#[tokio::test]
async fn started_work_is_not_replaced() {
    let s = Scene::new().await;
    let old = s.accept("op", chain()).await;
    let before = s.tasks().await;
    let steps = json!([step("x")]);
    assert_eq!(
        s.refused("r1", replace(json!(["a"]), steps.clone())).await,
        "task_already_started"
    );
    assert_eq!(
        s.refused("r2", replace(json!(["zz"]), steps.clone())).await,
        "unknown_task"
    );
    assert_eq!(
        s.refused("r3", replace(json!(["b", local(&old, "b")]), steps.clone()))
            .await,
        "invalid_input"
    );
    s.done(&local(&old, "a")).await;
    s.done(&local(&old, "b")).await;
    assert_eq!(
        s.refused("r4", replace(json!(["b"]), steps)).await,
        "task_already_started"
    );
    assert_eq!(s.tasks().await, before);
    assert_eq!(
        s.task(&local(&old, "c")).await["after"],
        json!([local(&old, "b")])
    );
    s.app.finish().await;
}

/// 40: the old operation reports the cancellation, the new one the result; both are observed.
#[tokio::test]
async fn a_replaced_result_is_still_the_old_operation_s() {
    let s = Scene::new().await;
    let old = s.accept("op", chain()).await;
    let steps = json!([{"tool": {"key": "z", "name": "work", "after": ["b"]}}]);
    let new = s.accept("new", replace(json!(["c"]), steps)).await;
    let outcome = s.outcome("op").await;
    assert_eq!(outcome["results"][0]["task_key"], local(&old, "c"));
    assert_eq!(outcome["results"][0]["error"]["key"], "operation_replaced");
    s.commit(json!({})).await.expect(409, "pending_children");
    for (of, name) in [(&old, "a"), (&old, "b"), (&new, "z")] {
        s.done(&local(of, name)).await;
    }
    assert_eq!(s.outcome("new").await["results"][0]["status"], "completed");
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}

/// 41, and names of what goes: the new batch may not wait for it.
#[tokio::test]
async fn a_race_is_replaced_with_its_members() {
    let s = Scene::new().await;
    let race = json!({"parallel": [step("x"), step("y")], "until": "any", "key": "r"});
    let steps = json!([step("a"), race, step("end")]);
    s.accept("op", json!({"kind": "steps", "input": steps}))
        .await;
    let steps = json!([step("n")]);
    assert_eq!(
        s.refused("r1", replace(json!(["x"]), steps.clone())).await,
        "invalid_replacement"
    );
    assert_eq!(
        s.refused("r2", replace(json!(["r"]), steps.clone())).await,
        "invalid_replacement"
    );
    let behind = json!([{"tool": {"key": "n", "name": "work", "after": ["end"]}}]);
    assert_eq!(
        s.refused("r3", replace(json!(["x", "y", "r"]), behind))
            .await,
        "invalid_steps"
    );
    let receipt = s
        .accept("new", replace(json!(["x", "y", "r"]), steps))
        .await;
    assert_eq!(receipt["replaced_task_keys"].as_array().unwrap().len(), 3);
    s.app.finish().await;
}

/// A cancel ends what is named, and goes by policy behind it.
#[tokio::test]
async fn a_cancel_ends_what_it_names() {
    let s = Scene::new().await;
    let old = s.accept("op", chain()).await;
    let token = s.claim(&local(&old, "a")).await;
    let named = json!({"kind": "cancel", "input": {"operation_key": "op", "tasks": ["a"]}});
    let receipt = s.accept("c", named).await;
    assert_eq!(receipt["canceled_task_keys"], json!([local(&old, "a")]));
    assert_eq!(
        s.task(&local(&old, "a")).await["error"]["key"],
        "operation_canceled"
    );
    assert_eq!(
        s.status(&local(&old, "b")).await,
        "dispatched",
        "an absorbing call was canceled by its owner"
    );
    let path = crate::support::seed::door(&s.run, &local(&old, "a"), "commit");
    let late = s
        .app
        .post(
            &path,
            &s.world.runner.token,
            json!({"claim_token": token, "content": "late"}),
        )
        .await;
    late.ok(200);
    assert_eq!(s.status(&local(&old, "a")).await, "canceled");
    let outcome = s.outcome("c").await;
    assert_eq!(outcome["results"][0]["status"], "canceled");
    s.accept(
        "all",
        json!({"kind": "cancel", "input": {"operation_key": "op"}}),
    )
    .await;
    assert_eq!(s.outcome("op").await["results"][0]["status"], "canceled");
    assert_eq!(s.outcome("all").await["results"][0]["status"], "canceled");
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}

/// 48: released work is listed, never observed, and runs on.
#[tokio::test]
async fn released_work_goes_on_without_its_owner() {
    let s = Scene::new().await;
    let child = key(&s.accept("a", work()).await);
    let release = json!({"kind": "background", "input": {"operation_key": "a"}});
    let receipt = s.accept("r", release).await;
    assert_eq!(receipt["released_operations"], json!(["a"]));
    let outcome = s.outcome("r").await;
    assert_eq!(outcome["released_operations"], json!(["a"]));
    assert_eq!(outcome["structured_content"]["background"], json!(true));
    assert_eq!(s.observe().await, Value::Null);
    let join = json!({"kind": "join", "input": {"operations": ["a"]}});
    assert_eq!(s.refused("j", join).await, "operation_released");
    s.observe().await;
    s.commit(json!({})).await.ok(200);
    assert_eq!(s.status(&child).await, "dispatched");
    assert_eq!(
        s.run_status().await,
        "running",
        "background work holds completion"
    );
    s.done(&child).await;
    assert_eq!(s.run_status().await, "completed");
    s.app.finish().await;
}

/// A launch answers with its acknowledgement, and outlives a failure of its owner (36).
#[tokio::test]
async fn a_failed_owner_takes_its_attached_work_along() {
    let s = Scene::of("echo", &[]).await;
    let launch = json!({"kind": "background", "input": {"steps": [step("bg")]}});
    let launched = s.accept("bg", launch).await;
    assert_eq!(
        (&launched["result_task_keys"], &launched["background"]),
        (&json!([]), &json!(true))
    );
    let attached = s.accept("op", chain()).await;
    let released = key(&s.accept("rel", work()).await);
    s.accept(
        "r",
        json!({"kind": "background", "input": {"operation_key": "rel"}}),
    )
    .await;
    let committed = s
        .commit(json!({"outcome": "failed", "content": "gave up"}))
        .await;
    committed.ok(200);
    for name in ["a", "b", "c"] {
        let task = s.task(&local(&attached, name)).await;
        assert_eq!(
            (&task["status"], &task["error"]["key"]),
            (&json!("canceled"), &json!("parent_settled")),
            "{name}"
        );
    }
    assert_eq!(s.status(&local(&launched, "bg")).await, "dispatched");
    assert_eq!(s.status(&released).await, "dispatched");
    s.app.finish().await;
}
