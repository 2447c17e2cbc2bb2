//! Joins of operations (§7).

use serde_json::{Value, json};

use super::{Scene, key, local, step, work};

fn join(operations: &[&str], more: Value) -> Value {
    let mut input = json!({"operations": operations});
    for (name, value) in more.as_object().unwrap() {
        input[name] = value.clone();
    }
    json!({"kind": "join", "input": input})
}

fn keys(outcome: &Value) -> Vec<String> {
    let results = outcome["results"].as_array().unwrap().iter();
    results
        .map(|e| e["task_key"].as_str().unwrap().to_owned())
        .collect()
}

async fn three(s: &Scene) -> Vec<String> {
    let mut children = Vec::new();
    for name in ["a", "b", "c"] {
        children.push(key(&s.accept(name, work()).await));
    }
    children
}

/// 42: the first success wins; losers end, but for what somebody else reads.
#[tokio::test]
async fn an_any_join_cancels_what_lost() {
    let s = Scene::new().await;
    let c = three(&s).await;
    s.accept("other", join(&["b"], json!({}))).await;
    s.accept("any", join(&["a", "b", "c"], json!({"until": "any"})))
        .await;
    s.done(&c[2]).await;
    let lost = s.task(&c[0]).await;
    assert_eq!(
        (&lost["status"], &lost["error"]["key"]),
        (&json!("canceled"), &json!("join_loser_canceled"))
    );
    assert_eq!(s.status(&c[1]).await, "dispatched", "another join reads it");
    assert_eq!(s.outcome("a").await["status"], "canceled");
    assert_eq!(s.outcome("c").await["status"], "completed");
    assert_eq!(keys(&s.outcome("any").await), [c[2].clone()]);
    s.commit(json!({})).await.expect(409, "pending_children");
    s.done(&c[1]).await;
    s.outcome("b").await;
    assert_eq!(keys(&s.outcome("other").await), [c[1].clone()]);
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}

/// 43: losers that run out keep the call open until they are observed, or released.
#[tokio::test]
async fn losers_that_run_out_are_still_owed() {
    let s = Scene::new().await;
    let c = three(&s).await;
    s.accept(
        "any",
        join(&["a", "b"], json!({"until": "any", "losers": "run_out"})),
    )
    .await;
    s.done(&c[0]).await;
    s.done(&c[2]).await;
    for name in ["a", "c", "any"] {
        s.outcome(name).await;
    }
    assert_eq!(s.status(&c[1]).await, "dispatched");
    s.commit(json!({})).await.expect(409, "pending_children");
    s.accept(
        "r",
        json!({"kind": "background", "input": {"operation_key": "b"}}),
    )
    .await;
    s.outcome("r").await;
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}

/// All: failed and canceled included, in the order of their ends; an error is a success (24).
#[tokio::test]
async fn an_all_join_tells_every_end_in_order() {
    let s = Scene::new().await;
    let c = three(&s).await;
    s.accept("all", join(&["a", "b", "c"], json!({}))).await;
    s.fails(&c[1]).await;
    s.accept(
        "x",
        json!({"kind": "cancel", "input": {"operation_key": "a"}}),
    )
    .await;
    s.answer(&c[2], json!({"content": "e", "is_error": true}))
        .await;
    for name in ["a", "b", "c"] {
        s.outcome(name).await;
    }
    let all = s.outcome("all").await;
    assert_eq!(keys(&all), [c[1].clone(), c[0].clone(), c[2].clone()]);
    let words: Vec<&str> = all["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["status"].as_str().unwrap())
        .collect();
    assert_eq!(words, ["failed", "canceled", "completed"]);
    s.app.finish().await;
}

/// A source with several results is one: it fails with its first failure, succeeds with its last.
#[tokio::test]
async fn a_batch_is_one_source() {
    let s = Scene::new().await;
    let fan =
        |a: &str, b: &str| json!({"kind": "steps", "input": [{"parallel": [step(a), step(b)]}]});
    let first = s.accept("f1", fan("a", "b")).await;
    let second = s.accept("f2", fan("c", "d")).await;
    s.accept(
        "two",
        join(&["f1", "f2"], json!({"until": 2, "losers": "run_out"})),
    )
    .await;
    s.accept(
        "any",
        join(&["f1", "f2"], json!({"until": "any", "losers": "run_out"})),
    )
    .await;
    s.done(&local(&first, "a")).await;
    assert_eq!(s.observe().await, Value::Null);
    s.fails(&local(&first, "b")).await;
    s.outcome("f1").await;
    let starved = s.outcome("two").await;
    let last = starved["results"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert_eq!(last["error"]["key"], "quorum_unreachable");
    s.done(&local(&second, "d")).await;
    assert_eq!(s.observe().await, Value::Null);
    s.done(&local(&second, "c")).await;
    s.outcome("f2").await;
    let any = s.outcome("any").await;
    assert_eq!(keys(&any), [local(&second, "c"), local(&second, "d")]);
    s.app.finish().await;
}

/// 44, 45: nested joins are replaced by what they selected; a canceled one is itself alone.
#[tokio::test]
async fn nested_joins_are_told_by_their_results() {
    let s = Scene::new().await;
    let c = three(&s).await;
    let d = key(&s.accept("d", work()).await);
    s.accept(
        "any",
        join(&["a", "b"], json!({"until": "any", "losers": "run_out"})),
    )
    .await;
    s.accept("gone", join(&["c"], json!({}))).await;
    s.accept("outer", join(&["any", "gone", "d"], json!({})))
        .await;
    s.accept(
        "x",
        json!({"kind": "cancel", "input": {"operation_key": "gone"}}),
    )
    .await;
    assert_eq!(
        s.status(&c[2]).await,
        "dispatched",
        "its sources are left alone"
    );
    s.done(&d).await;
    s.done(&c[1]).await;
    let mut told = Vec::new();
    loop {
        let observed = s.observe().await;
        if observed.is_null() {
            break;
        }
        told.push((
            observed["key"].as_str().unwrap().to_owned(),
            observed["outcome"].clone(),
        ));
    }
    let of = |name: &str| told.iter().find(|(key, _)| key == name).unwrap().1.clone();
    assert_eq!(
        of("gone")["results"][0]["error"]["key"],
        "operation_canceled"
    );
    let outer = keys(&of("outer"));
    assert_eq!(outer.len(), 3);
    assert_eq!(outer[1..], [d, c[1].clone()]);
    s.app.finish().await;
}

/// A join over what has ended already settles at once.
#[tokio::test]
async fn a_join_may_be_born_settled() {
    let s = Scene::new().await;
    let c = three(&s).await;
    s.done(&c[0]).await;
    s.fails(&c[1]).await;
    s.accept("any", join(&["b", "a", "c"], json!({"until": "any"})))
        .await;
    assert_eq!(s.status(&c[2]).await, "canceled");
    s.accept("none", join(&["b"], json!({"until": "any"})))
        .await;
    for name in ["a", "b", "c"] {
        s.outcome(name).await;
    }
    assert_eq!(keys(&s.outcome("any").await), [c[0].clone()]);
    let none = s.outcome("none").await;
    assert_eq!(none["results"][0]["error"]["key"], "join_starved");
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}
