//! Appends (`runs.md` §4, §5, §15).

use serde_json::json;

use super::*;

async fn append(app: &TestApp, world: &World, run: &str, body: serde_json::Value) -> Answer {
    say(app, world, &verb(world, run, "tasks"), body).await
}

/// The example of `runs.md` §15: steps, a resolve and a race, in one envelope.
#[tokio::test]
async fn an_envelope_is_appended_and_answers_a_question() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([{"ask": {"key": "gate", "prompt": "Go?"}}]);
    let (run, _) = run_with(
        &app,
        &world,
        json!({"approval_mode": "bypass", "steps": steps}),
    )
    .await;
    let told = append(&app, &world, &run, json!({
        "expected_revision": 1,
        "resolve": [{"task": "gate", "content": "yes"}],
        "steps": [
            {"parallel": [world.routed("unit", "echo"), world.routed("lint", "echo")], "until": "any"},
            world.routed("say", "echo"),
        ],
    }))
    .await
    .ok(201);
    assert_eq!(text(&told, "receipt.accepted_task_keys.2"), "s2-parallel-1");
    assert_eq!(text(&told, "receipt.steps.0.key"), "s2-parallel-1");
    assert_eq!(text(&told, "receipt.deliverable_task_key"), "say");
    assert_eq!(at(&told, "receipt.revision").as_i64(), Some(2));
    assert_eq!(
        state(&app, &world, &run).await,
        "running gate:completed unit:dispatched lint:dispatched s2-parallel-1:waiting say:waiting"
    );
    let unit = world.task(&app, &run, "unit").await;
    assert_eq!(text(&unit, "task.after.0"), "gate");
    completes(&app, &world, &run, "lint").await;
    completes(&app, &world, &run, "say").await;
    assert!(state(&app, &world, &run).await.starts_with("completed"));
    append(
        &app,
        &world,
        &run,
        json!({"steps": [world.routed("x", "echo")]}),
    )
    .await
    .expect(409, "run_not_appendable");
    app.finish().await;
}

/// `runs.md` §5: the checks, in their order; a refused append writes nothing (INV-30).
#[tokio::test]
async fn the_checks_of_an_append() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let client = app.sql().await;
    let run = world
        .run(
            &app,
            json!([call(&world, "a", "halt"), call(&world, "b", "propagate")]),
        )
        .await;
    let x = world.routed("x", "echo");
    let before = crate::support::fleet::dump(&client).await;
    let refused = async |body: serde_json::Value, status: u16, code: &str| {
        let told = append(&app, &world, &run, body).await.expect(status, code);
        assert_eq!(
            crate::support::fleet::dump(&client).await,
            before,
            "{code} wrote something"
        );
        told
    };
    let stale = refused(
        json!({"expected_revision": 7, "steps": "x"}),
        409,
        "stale_revision",
    )
    .await;
    assert_eq!(at(&stale, "current_revision").as_i64(), Some(1));
    refused(json!({"steps": []}), 422, "steps_required").await;
    refused(
        json!({"steps": [{"tool": {"name": ""}}]}),
        422,
        "invalid_steps",
    )
    .await;
    let named = refused(
        json!({"steps": [x], "tasks": []}),
        422,
        "edge_authoring_refused",
    )
    .await;
    assert_eq!(text(&named, "path"), "tasks");
    refused(
        json!({"steps": [x], "nodes": []}),
        422,
        "graph_authoring_not_available",
    )
    .await;
    refused(
        json!({"steps": [world.routed("a", "echo")]}),
        409,
        "duplicate_task_key",
    )
    .await;
    refused(
        json!({"steps": [{"wait": {"task": "nope"}}]}),
        422,
        "wait_target_not_found",
    )
    .await;
    refused(
        json!({"steps": [x], "resolve": ["nope"]}),
        422,
        "unknown_await",
    )
    .await;
    refused(
        json!({"steps": [x], "resolve": ["a"]}),
        422,
        "unknown_await",
    )
    .await;
    refused(
        json!({"steps": [x], "resolve": 7}),
        400,
        "parameter_invalid",
    )
    .await;
    refused(
        json!({"steps": [x], "expected_revision": "1"}),
        400,
        "parameter_invalid",
    )
    .await;
    app.finish().await;
}

/// `runs.md` §5, 7 and 11, and E17: a failed answer is adjudicated first; an applied append ends a
/// hold.
#[tokio::test]
async fn a_failed_answer_is_adjudicated_first() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "echo"), call(&world, "b", "halt")]),
        )
        .await;
    completes(&app, &world, &run, "a").await;
    fails(&app, &world, &run, "b").await;
    let x = json!({"steps": [world.routed("x", "echo")]});
    append(&app, &world, &run, x.clone())
        .await
        .expect(409, "tip_unresolved");
    say(
        &app,
        &world,
        &of_task(&world, &run, "b", "abandon"),
        json!({}),
    )
    .await
    .ok(200);
    assert_eq!(
        attention(&app, &world, &run).await,
        "deliverable_unresolved"
    );
    append(&app, &world, &run, x).await.ok(201);
    assert_eq!(
        state(&app, &world, &run).await,
        "running a:completed b:failed x:dispatched"
    );
    completes(&app, &world, &run, "x").await;
    assert!(state(&app, &world, &run).await.starts_with("completed"));
    app.finish().await;
}

/// `runs.md` §4: one key, one envelope, whoever repeats it and wherever; another envelope conflicts.
#[tokio::test]
async fn an_append_is_idempotent_under_its_key() {
    let app = TestApp::replicas(2).await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let path = verb(&world, &run, "tasks");
    let body = json!({"steps": [{"ask": {"key": "q", "prompt": "?"}}]});
    let send = async |replica: usize, body: serde_json::Value| {
        app.on(replica)
            .request(reqwest::Method::POST, &path, &world.human.token)
            .header("idempotency-key", "k1")
            .json(body)
            .send()
            .await
    };
    let (first, second) = tokio::join!(send(0, body.clone()), send(1, body.clone()));
    let (first, second) = (first.ok(201), second.ok(201));
    assert_eq!(at(&first, "receipt"), at(&second, "receipt"));
    assert!(!text(&first, "receipt.resolution_tokens.q").is_empty());
    let replays = [&first, &second]
        .iter()
        .filter(|a| crate::support::http::find(a, "replayed").is_some())
        .count();
    assert_eq!(replays, 1, "applied once");
    send(0, json!({"steps": [world.routed("z", "echo")]}))
        .await
        .expect(409, "idempotency_envelope_mismatch");
    assert_eq!(
        state(&app, &world, &run).await,
        "running a:dispatched q:waiting"
    );
    app.finish().await;
}

/// INV-29, INV-36: appends race; each applied one ticks the revision once.
#[tokio::test]
async fn appends_race_by_revision() {
    let app = TestApp::replicas(3).await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let path = verb(&world, &run, "tasks");
    for round in 1..=10 {
        let tries = (0..6).map(|n| {
            let body = json!({
                "expected_revision": round,
                "steps": [world.routed(&format!("r{round}n{n}"), "echo")],
            });
            app.on(n % 3).post(&path, &world.human.token, body)
        });
        let told = futures_util::future::join_all(tries).await;
        let won = told.iter().filter(|t| t.status == 201).count();
        assert_eq!(won, 1, "round {round}");
        for lost in told.iter().filter(|t| t.status != 201) {
            lost.expect(409, "stale_revision");
        }
    }
    app.finish().await;
}

/// `runs.md` §3, §5, `steps.md` §2: graph words are refused by name beside the steps of an append and
/// within a created run.
#[tokio::test]
async fn graph_words_beside_the_steps_are_refused_by_name() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    for word in [
        "tasks",
        "depends_on",
        "input_from",
        "kind",
        "mode",
        "quorum_k",
        "loser_policy",
        "serial",
        "join",
        "reading",
        "detach",
        "deliverable",
        "window",
        "tools",
        "compaction_policy",
    ] {
        let mut body = json!({"steps": [world.routed("x", "echo")]});
        body[word] = json!([]);
        let told = append(&app, &world, &run, body.clone()).await;
        let told = told.expect(422, "edge_authoring_refused");
        assert_eq!(text(&told, "path"), word);
        body["approval_mode"] = json!("bypass");
        let told = say(&app, &world, &world.runs(), json!({"run": body})).await;
        let told = told.expect(422, "edge_authoring_refused");
        assert_eq!(text(&told, "path"), format!("run.{word}"));
    }
    app.finish().await;
}

/// `runs.md` §5: `expected_revision` (check 4) comes before the steps (check 5), however large it is;
/// and a question is only ever completed by an append (check 11), whatever other word it is given.
#[tokio::test]
async fn a_revision_beyond_all_is_stale_and_a_resolve_only_completes() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([{"ask": {"key": "q", "prompt": "Go?"}}]);
    let run = world.run(&app, steps).await;
    for revision in ["99999999999999999999", "-99999999999999999999", "2"] {
        for rest in ["", r#","steps":[]"#, r#","steps":[{"tool":{}}]"#] {
            let body = format!(r#"{{"expected_revision":{revision}{rest}}}"#);
            let path = verb(&world, &run, "tasks");
            let told = app.post(&path, &world.human.token, body.as_str()).await;
            let told = told.expect(409, "stale_revision");
            assert_eq!(at(&told, "current_revision").as_i64(), Some(1), "{body}");
        }
    }
    for outcome in ["failed", "zz", ""] {
        let body = json!({"resolve": [{"task": "q", "outcome": outcome}]});
        let told = append(&app, &world, &run, body).await;
        told.expect(422, "unsupported_resolve_outcome");
    }
    app.finish().await;
}
