//! Acceptance: identity, replay, what is refused outside and what is recorded.

use serde_json::json;

use super::{Scene, json_of, key, local, step, work};
use crate::support::http::text;
use crate::support::seed::door;

/// 1, 2: a lost answer is sent again, whatever the order of its members; another request is not.
#[tokio::test]
async fn a_repeated_operation_is_answered_as_it_was() {
    let s = Scene::new().await;
    let request = json!({"kind": "tool", "name": "work", "input": {"a": 1, "b": 2}});
    let first = s.send("op", &request).await;
    first.ok(201);
    let path = s.door("operations");
    let again = format!(
        r#"{{"operation":{{"request":{{"name":"work","input":{{"b":2,"a":1}},"kind":"tool"}},"key":"op"}},"claim_token":"{}"}}"#,
        s.token
    );
    let call = s
        .app
        .on(1)
        .request(reqwest::Method::POST, &path, &s.world.runner.token);
    let call = call.header("content-type", "application/json").bytes(again);
    let second = call.send().await;
    second.ok(200);
    assert_eq!(json_of(&first), json_of(&second));
    assert_eq!(s.tasks().await, 2);
    for other in [
        json!({"kind": "tool", "name": "work", "input": {"a": 1, "b": 3}}),
        json!({"kind": "tool", "name": "work", "input": {"a": 1, "b": 2}, "timeout_ms": null}),
        json!({"kind": "tool", "name": "work", "input": {"a": 1.0, "b": 2}}),
    ] {
        s.send("op", &other).await.expect(409, "operation_mismatch");
    }
    assert_eq!(s.tasks().await, 2);
    s.app.finish().await;
}

/// 3, 4, 5: the outside is refused and leaves nothing.
#[tokio::test]
async fn the_outside_of_an_operation_is_refused_without_a_trace() {
    let s = Scene::new().await;
    for bad in ["", "-a", "a.b", "é", &"k".repeat(65)] {
        s.send(bad, &work())
            .await
            .expect(422, "invalid_operation_key");
    }
    let empty = json!({"kind": "tool", "name": "work", "input": {"x": ""}}).to_string();
    let sized = |n: usize| json!({"kind": "tool", "name": "work", "input": {"x": "y".repeat(n - empty.len())}});
    s.send("big", &sized(65_537))
        .await
        .expect(422, "operation_too_large");
    for bad in [
        json!({"kind": "magic"}),
        json!([]),
        json!({"name": "work"}),
        json!("x"),
    ] {
        s.send("op", &bad).await.expect(422, "invalid_operation");
    }
    let body =
        json!({"claim_token": s.token, "operation": {"key": "a", "request": work(), "more": 1}});
    s.post("operations", body)
        .await
        .expect(422, "invalid_operation");
    s.post("operations", json!({"claim_token": s.token}))
        .await
        .expect(400, "parameter_missing");
    s.post(
        "operations",
        json!({"operation": {"key": "a", "request": work()}}),
    )
    .await
    .expect(400, "parameter_missing");
    let trace = s.trace().await;
    assert_eq!(
        (&trace["position"], &trace["trace"]),
        (&json!(0), &json!([]))
    );
    s.accept(&"k".repeat(64), work()).await;
    s.accept("big", sized(65_536)).await;
    s.app.finish().await;
}

/// 6, 7: what is refused inside is recorded, replays, and is observed.
#[tokio::test]
async fn a_recorded_refusal_replays_and_is_observed() {
    let s = Scene::new().await;
    let more = json!({"kind": "tool", "name": "work", "more": 1});
    assert_eq!(s.refused("a", more.clone()).await, "unknown_fields");
    s.send("a", &more).await.ok(200);
    let unknown = json!({"kind": "tool", "name": "rm", "input": {}});
    assert_eq!(s.refused("b", unknown).await, "unknown_tool_name");
    assert_eq!(s.tasks().await, 1, "refusals author nothing");
    s.commit(json!({})).await.expect(409, "pending_children");
    for (key, code) in [("a", "unknown_fields"), ("b", "unknown_tool_name")] {
        let observed = s.observe().await;
        assert_eq!(observed["key"], key);
        assert_eq!(observed["refusal"]["code"], code);
        assert!(observed.get("outcome").is_none());
    }
    // A tool's input is its own.
    let receipt = s.accept(
        "c",
        json!({"kind": "tool", "name": "work", "input": {"more": 1}}),
    );
    s.done(&key(&receipt.await)).await;
    s.outcome("c").await;
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}

/// The words of §10 that need no other operation.
#[tokio::test]
async fn requests_are_refused_with_the_words_of_the_table() {
    let s = Scene::new().await;
    let many: Vec<_> = (0..65).map(|n| step(&format!("t{n}"))).collect();
    let wide = json!({"parallel": many[..33], "until": "any"});
    let table = [
        (json!({"kind": "tool"}), "invalid_input"),
        (json!({"kind": "tool", "name": 7}), "invalid_input"),
        (
            json!({"kind": "tool", "name": "work", "input": []}),
            "invalid_input",
        ),
        (
            json!({"kind": "tool", "name": "work", "timeout_ms": 0}),
            "invalid_timeout_ms",
        ),
        (
            json!({"kind": "tool", "name": "work", "timeout_ms": 604_800_001_i64}),
            "invalid_timeout_ms",
        ),
        (json!({"kind": "ask"}), "invalid_input"),
        (json!({"kind": "ask", "input": {}}), "invalid_steps"),
        (
            json!({"kind": "ask", "input": {"prompt": "p", "more": 1}}),
            "unknown_fields",
        ),
        (
            json!({"kind": "ask", "input": {"prompt": "p", "timeout_ms": 0}}),
            "invalid_steps",
        ),
        (json!({"kind": "wait", "input": {}}), "invalid_steps"),
        (
            json!({"kind": "wait", "input": {"task": "nobody"}}),
            "wait_target_not_found",
        ),
        (
            json!({"kind": "wait", "input": {"task": "code"}}),
            "wait_cycle",
        ),
        (json!({"kind": "steps"}), "invalid_input"),
        (json!({"kind": "steps", "input": []}), "invalid_steps"),
        (
            json!({"kind": "steps", "input": {"steps": [], "more": 1}}),
            "unknown_fields",
        ),
        (json!({"kind": "steps", "input": many}), "too_many_steps"),
        (json!({"kind": "steps", "input": [wide]}), "invalid_steps"),
        (
            json!({"kind": "steps", "input": [{"tool": {"name": "rm"}}]}),
            "unknown_tool_name",
        ),
        (
            json!({"kind": "steps", "input": [step("a"), {"tool": {"name": "work", "after": ["code"]}}]}),
            "invalid_steps",
        ),
        (
            json!({"kind": "steps", "input": [{"tool": {"name": "work", "timeout_ms": -1}}]}),
            "invalid_timeout_ms",
        ),
        (
            json!({"kind": "steps", "input": [{"tool": {"name": "work",
            "route": {"kind": "runner", "runner_executor_public_id": s.world.provider.public_id.to_string()}}}]}),
            "tool_route_mismatch",
        ),
        (
            json!({"kind": "steps", "input": [{"model": {"prompt": "p", "attachments": ["0199c0de-0000-7000-8000-000000000001"]}}]}),
            "invalid_attachments",
        ),
        (
            json!({"kind": "model", "input": {"prompt": "p", "tools": ["rm"]}}),
            "unknown_tool_name",
        ),
        (
            json!({"kind": "model", "input": {"prompt": "p", "runner_tool_names": []}}),
            "context_not_authorable",
        ),
        (
            json!({"kind": "model", "input": {"prompt": ""}}),
            "invalid_steps",
        ),
        (
            json!({"kind": "replace", "input": {"operation_key": "no", "tasks": ["a"], "steps": [step("b")]}}),
            "unknown_operation",
        ),
        (
            json!({"kind": "replace", "input": {"operation_key": "no", "tasks": [], "steps": [step("b")]}}),
            "invalid_input",
        ),
        (
            json!({"kind": "cancel", "input": {"operation_key": "no"}}),
            "unknown_operation",
        ),
        (
            json!({"kind": "join", "input": {"operations": []}}),
            "invalid_input",
        ),
        (
            json!({"kind": "join", "input": {"operations": ["no"]}}),
            "unknown_operation",
        ),
        (
            json!({"kind": "join", "input": {"operations": ["a", "b"], "until": 3}}),
            "unsatisfiable_until",
        ),
        (
            json!({"kind": "join", "input": {"operations": ["a", "b"], "until": 0}}),
            "invalid_until",
        ),
        (
            json!({"kind": "join", "input": {"operations": ["a"], "losers": "cancel"}}),
            "invalid_losers",
        ),
        (json!({"kind": "background", "input": {}}), "invalid_input"),
        (
            json!({"kind": "background", "input": {"operation_key": "no"}}),
            "unknown_operation",
        ),
        (
            json!({"kind": "background", "input": {"steps": [step("a")], "lifetime": "forever"}}),
            "invalid_input",
        ),
    ];
    for (n, (request, word)) in table.into_iter().enumerate() {
        let shown = request.to_string();
        assert_eq!(s.refused(&format!("op{n}"), request).await, word, "{shown}");
    }
    assert_eq!(s.tasks().await, 1);
    s.app.finish().await;
}

/// 8: a call without a context authors neither calls nor model work, but may ask.
#[tokio::test]
async fn a_call_without_a_context_may_only_ask_and_wait() {
    let s = Scene::new().await;
    let bare = s
        .world
        .run(&s.app, json!([s.world.routed("code", "echo")]))
        .await;
    let token = s.world.claim(&s.app, &bare, "code").await;
    let bare = Scene {
        run: bare,
        token,
        ..s
    };
    let trace = bare.trace().await;
    assert_eq!(trace["context"], json!({"tools": [], "model_defaults": {}}));
    let model = json!({"kind": "model", "input": {"prompt": "p", "model": "dev/m"}});
    assert_eq!(bare.refused("a", model).await, "context_not_authorable");
    assert_eq!(bare.refused("b", work()).await, "unknown_tool_name");
    bare.accept("c", json!({"kind": "ask", "input": {"prompt": "well?"}}))
        .await;
    bare.app.finish().await;
}

/// 10, and the frozen context of §3: routes, imports, environment.
#[tokio::test]
async fn the_frozen_context_names_its_tools_and_routes() {
    let s = Scene::new().await;
    let context = s.trace().await["context"].clone();
    let runner = s.world.runner.public_id.to_string();
    assert_eq!(context["tools"][0]["name"], "work");
    assert_eq!(context["tools"][0]["route"]["tool_name"], "echo");
    assert_eq!(context["model_defaults"]["model"]["model"], "dev/m");
    assert!(context["model_defaults"].get("tools").is_none());
    assert_eq!(
        context["environment"]["executors"][0]["runner_executor_public_id"],
        runner.as_str()
    );
    assert!(
        !context.to_string().contains("executor_id\":"),
        "no inner ids: {context}"
    );
    let same = json!({"kind": "runner", "runner_executor_public_id": runner});
    let steps = json!([{"tool": {"key": "x", "name": "work", "route": same}}]);
    let receipt = s
        .accept("a", json!({"kind": "steps", "input": steps}))
        .await;
    let task = s.task(&local(&receipt, "x")).await;
    assert_eq!(
        (&task["tool_name"], &task["tool_alias"]),
        (&json!("echo"), &json!("work"))
    );
    assert_eq!(task["target"]["executor_public_id"], runner.as_str());
    s.app.finish().await;
}

/// 11, 12: a batch is accepted whole or not at all; its receipt maps local keys.
#[tokio::test]
async fn a_batch_is_whole_and_its_receipt_maps_its_keys() {
    let s = Scene::new().await;
    let steps = json!([step("a"), {"parallel": [{"tool": {"name": "work"}}, [step("c"), {"tool": {"name": "note"}}]]},
        {"tool": {"key": "end", "name": "work", "after": ["a"]}}]);
    let bad = json!([step("a"), {"tool": {"key": "b", "name": "rm"}}]);
    assert_eq!(
        s.refused("bad", json!({"kind": "steps", "input": bad}))
            .await,
        "unknown_tool_name"
    );
    assert_eq!(s.tasks().await, 1);
    let receipt = s
        .accept("good", json!({"kind": "steps", "input": {"steps": steps}}))
        .await;
    assert_eq!(receipt["task_keys"].as_array().unwrap().len(), 5);
    assert_eq!(receipt["result_task_keys"], json!([local(&receipt, "end")]));
    let names: Vec<&String> = receipt["keys"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["a", "c", "end", "tool-2", "tool-4"]);
    let tree = &receipt["steps"];
    assert_eq!(
        tree[1]["parallel"][1],
        json!([local(&receipt, "c"), local(&receipt, "tool-4")])
    );
    assert_eq!(receipt["background"], json!(false));
    let sixty_four: Vec<_> = (0..32).map(|n| step(&format!("x{n}"))).collect();
    let more: Vec<_> = (0..32).map(|n| step(&format!("y{n}"))).collect();
    let steps = json!([{"parallel": sixty_four}, {"parallel": more}]);
    let receipt = s
        .accept("wide", json!({"kind": "steps", "input": steps}))
        .await;
    assert_eq!(receipt["task_keys"].as_array().unwrap().len(), 64);
    assert_eq!(receipt["result_task_keys"].as_array().unwrap().len(), 32);
    s.app.finish().await;
}

/// 17: the proof comes before everything else that is recorded.
#[tokio::test]
async fn only_the_claimant_reads_accepts_and_observes() {
    let s = Scene::new().await;
    let (path, bearer) = (s.door("operations"), &s.world.runner.token);
    s.app
        .get(&path, bearer)
        .await
        .expect(400, "parameter_missing");
    for (who, token) in [
        (bearer, "wrong"),
        (&s.world.provider.token, s.token.as_str()),
    ] {
        let read = s.app.request(reqwest::Method::GET, &path, who);
        let read = read.header("claim-token", token).send().await;
        read.expect(409, "not_claimant");
        let body = json!({"claim_token": token, "operation": {"key": "a", "request": work()}});
        s.app
            .post(&path, who, body)
            .await
            .expect(409, "not_claimant");
        let body = json!({"claim_token": token, "after": 0});
        let observed = s.app.post(&s.door("observation"), who, body).await;
        observed.expect(409, "not_claimant");
    }
    let nobody = door(&s.run, "nobody", "operations");
    let body = json!({"claim_token": s.token, "operation": {"key": "a", "request": work()}});
    s.app
        .post(&nobody, bearer, body)
        .await
        .expect(404, "not_found");
    s.app
        .post(&path, &s.world.human.token, json!({}))
        .await
        .expect(401, "unauthorized");
    s.app.finish().await;
}

/// 15, 16: pages of the trace.
#[tokio::test]
async fn the_trace_is_read_in_pages() {
    let s = Scene::new().await;
    for query in [
        "?limit=-1",
        "?limit=0",
        "?limit=201",
        "?limit=abc",
        "?after=-1",
        "?after=2147483648",
        "?after=x",
    ] {
        s.page(query).await.expect(400, "parameter_invalid");
    }
    let first = key(&s.accept("a", work()).await);
    s.accept("b", work()).await;
    s.done(&first).await;
    s.outcome("a").await;
    let page = json_of(&s.page("?limit=1").await)["operations"].clone();
    assert_eq!(
        (&page["next_after"], &page["position"]),
        (&json!(1), &json!(3))
    );
    let page = json_of(&s.page("?after=1&limit=200").await)["operations"].clone();
    let kinds: Vec<&str> = page["trace"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["operation", "observation"]);
    assert_eq!(page["trace"][1]["outcome"]["status"], "completed");
    assert!(page["next_after"].is_null());
    s.page("?after=2147483647").await.ok(200);
    s.app.finish().await;
}

/// 51, 52: approval and questions are their own.
#[tokio::test]
async fn children_of_a_member_s_call_are_granted_as_it_is() {
    let s = Scene::new().await;
    let receipt = s
        .accept(
            "ask",
            json!({"kind": "ask", "input": {"key": "q", "prompt": "well?", "options": ["y", "n"]}}),
        )
        .await;
    let question = local(&receipt, "q");
    assert_eq!(s.task(&question).await["status"], "awaiting_input");
    let path = format!("tasks/{question}/resolution");
    let answered = s.say(&path, json!({"content": "y"})).await;
    let answered = answered.ok(200);
    assert_eq!(text(&answered, "task.status"), "completed");
    let outcome = s.outcome("ask").await;
    assert_eq!(outcome["output"], "y");
    s.app.finish().await;
}
