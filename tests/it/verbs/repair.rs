//! Retry, abandon, cancel (`runs.md` §8.3, §8.5; `engine.md` §7).

use serde_json::json;

use super::*;

/// A halt failure holds the run; a retry runs the same row again, one generation later: the old
/// claim's token applies to nothing.
#[tokio::test]
async fn a_halted_call_is_retried() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world
        .run(
            &app,
            json!([call(&world, "a", "halt"), call(&world, "b", "halt")]),
        )
        .await;
    let granted = app
        .command(&door(&run, "a", "claim"), &world.runner.token)
        .await;
    let old = claim_token(&granted);
    let failed = json!({"claim_token": old, "content": "x", "outcome": "failed"});
    app.post(&door(&run, "a", "commit"), &world.runner.token, failed)
        .await
        .ok(200);
    assert_eq!(
        state(&app, &world, &run).await,
        "needs_attention a:failed b:waiting"
    );
    assert_eq!(attention(&app, &world, &run).await, "halt_failure a");
    say(
        &app,
        &world,
        &of_task(&world, &run, "b", "retry"),
        json!({}),
    )
    .await
    .expect(409, "not_retryable");
    say(
        &app,
        &world,
        &of_task(&world, &run, "a", "retry"),
        json!({"model": {"model": "x/y"}}),
    )
    .await
    .expect(422, "invalid_model");
    let retried = say(
        &app,
        &world,
        &of_task(&world, &run, "a", "retry"),
        json!({}),
    )
    .await
    .ok(200);
    assert_eq!(text(&retried, "task.status"), "dispatched");
    assert_eq!(attention(&app, &world, &run).await, "");
    let late = json!({"claim_token": old, "content": "late"});
    app.post(&door(&run, "a", "commit"), &world.runner.token, late)
        .await
        .expect(409, "stale_claim");
    completes(&app, &world, &run, "a").await;
    completes(&app, &world, &run, "b").await;
    assert!(state(&app, &world, &run).await.starts_with("completed"));
    app.finish().await;
}

/// `engine.md` §7: retry or abandon of a `propagate` failure opens what its skip closed.
#[tokio::test]
async fn what_was_skipped_is_opened_again() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = || {
        json!([
            {"parallel": [world.routed("a", "echo"), world.routed("x", "echo")]},
            world.routed("b", "echo"),
            world.routed("c", "echo"),
        ])
    };
    for word in ["retry", "abandon"] {
        let run = world.run(&app, steps()).await;
        fails(&app, &world, &run, "a").await;
        assert_eq!(
            state(&app, &world, &run).await,
            "running a:failed x:dispatched b:skipped c:skipped"
        );
        completes(&app, &world, &run, "x").await;
        assert_eq!(
            attention(&app, &world, &run).await,
            "deliverable_unresolved a"
        );
        say(&app, &world, &of_task(&world, &run, "a", word), json!({}))
            .await
            .ok(200);
        if word == "retry" {
            assert_eq!(
                state(&app, &world, &run).await,
                "running a:dispatched x:completed b:waiting c:waiting"
            );
            completes(&app, &world, &run, "a").await;
        } else {
            let a = world.task(&app, &run, "a").await;
            assert_eq!(text(&a, "task.failure_resolution"), "abandoned");
        }
        completes(&app, &world, &run, "b").await;
        completes(&app, &world, &run, "c").await;
        assert!(state(&app, &world, &run).await.starts_with("completed"));
    }
    app.finish().await;
}

/// `engine.md` §7: a person hears of a failure while long claims go on, and those go on living.
#[tokio::test]
async fn a_failure_holds_early_while_claims_go_on() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([
        {"parallel": [call(&world, "bad", "halt"), call(&world, "long", "halt"), call(&world, "free", "halt")]},
        world.routed("end", "echo"),
    ]);
    let run = world.run(&app, steps).await;
    let granted = app
        .command(&door(&run, "long", "claim"), &world.runner.token)
        .await;
    let token = claim_token(&granted);
    fails(&app, &world, &run, "bad").await;
    // `free` is not claimed: something may still happen by itself.
    assert!(state(&app, &world, &run).await.starts_with("running"));
    assert_eq!(attention(&app, &world, &run).await, "");
    let granted = app
        .command(&door(&run, "free", "claim"), &world.runner.token)
        .await;
    // The claim was the last thing that could happen by itself.
    crate::support::fleet::until("the hold", || async {
        attention(&app, &world, &run).await == "halt_failure bad"
    })
    .await;
    assert!(
        state(&app, &world, &run)
            .await
            .starts_with("needs_attention")
    );
    for (key, token) in [("long", token), ("free", claim_token(&granted))] {
        let extend = json!({"claim_token": token, "timeout_ms": 60000});
        app.post(&door(&run, key, "extend"), &world.runner.token, extend)
            .await
            .ok(200);
        let body = json!({"claim_token": token, "content": "done"});
        app.post(&door(&run, key, "commit"), &world.runner.token, body)
            .await
            .ok(200);
    }
    assert_eq!(attention(&app, &world, &run).await, "halt_failure bad");
    say(
        &app,
        &world,
        &of_task(&world, &run, "bad", "abandon"),
        json!({}),
    )
    .await
    .ok(200);
    assert!(state(&app, &world, &run).await.ends_with("end:dispatched"));
    app.finish().await;
}

/// A failure beside a free call and a claimed one: the token of that one is the answer.
async fn failed_beside_a_free_call(app: &TestApp, world: &World) -> (String, String) {
    let steps = json!([
        {"parallel": [call(world, "bad", "halt"), call(world, "long", "halt"), call(world, "free", "halt")]},
        world.routed("end", "echo"),
    ]);
    let run = world.run(app, steps).await;
    let granted = app
        .command(&door(&run, "long", "claim"), &world.runner.token)
        .await;
    fails(app, world, &run, "bad").await;
    assert_eq!(attention(app, world, &run).await, "");
    (run, claim_token(&granted))
}

async fn is_held(app: &TestApp, world: &World, run: &str) {
    crate::support::fleet::until("the hold", || async {
        attention(app, world, run).await == "halt_failure bad"
    })
    .await;
    assert!(state(app, world, run).await.starts_with("needs_attention"));
}

/// The same when the last call is taken from the door of batches.
#[tokio::test]
async fn a_batch_of_claims_ends_what_a_hold_waited_for() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let (run, token) = failed_beside_a_free_call(&app, &world).await;
    let batch = "/agent_api/v1/executor/inbox/claims";
    let taken = app
        .post(batch, &world.runner.token, json!({"limit": 8}))
        .await
        .ok(200);
    assert_eq!(text(&taken, "claims.0.task.task_key"), "free");
    is_held(&app, &world, &run).await;
    let body = json!({"claim_token": token, "content": "done"});
    app.post(&door(&run, "long", "commit"), &world.runner.token, body)
        .await
        .ok(200);
    app.finish().await;
}

/// A replica that dies between a grant and its pass leaves a run that nobody judged: the sweeper does.
#[tokio::test]
async fn a_hold_that_nobody_judged_is_found() {
    let app = TestApp::with()
        .set("NEXUS_ROLES", "api,sweeper")
        .start()
        .await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let (run, _) = failed_beside_a_free_call(&app, &world).await;
    // What a grant writes, and no more.
    let grant = "UPDATE parks SET claim_digest = '\\x01', claimant_id = executor_id, claimed_at = nexus_now()
                  WHERE claimed_at IS NULL";
    assert_eq!(sql.execute(grant, &[]).await.expect("a grant"), 1);
    is_held(&app, &world, &run).await;
    app.finish().await;
}

/// Failures and claims that meet on three replicas: whoever comes second, the run is held in the end.
#[tokio::test]
async fn a_failure_and_the_last_claim_race() {
    let app = TestApp::with()
        .replicas(3)
        .set("NEXUS_ROLES", "api,sweeper")
        .start()
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    for _ in 0..10 {
        let steps = json!([
            {"parallel": [call(&world, "bad", "halt"), call(&world, "free", "halt")]},
            world.routed("end", "echo"),
        ]);
        let run = world.run(&app, steps).await;
        let granted = app
            .command(&door(&run, "bad", "claim"), &world.runner.token)
            .await;
        let failed =
            json!({"claim_token": claim_token(&granted), "content": "x", "outcome": "failed"});
        let (commit, claim) = (door(&run, "bad", "commit"), door(&run, "free", "claim"));
        let (failed, claimed) = tokio::join!(
            app.on(1).post(&commit, &world.runner.token, failed),
            app.on(2).command(&claim, &world.runner.token),
        );
        failed.ok(200);
        claimed.ok(200);
        is_held(&app, &world, &run).await;
    }
    app.finish().await;
}

/// `runs.md` §7.1: under a hold claims live; a settle that makes work ready ends it.
#[tokio::test]
async fn a_settle_that_makes_work_ready_ends_a_hold() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([
        {"parallel": [call(&world, "bad", "halt"), [call(&world, "long", "halt"), call(&world, "next", "halt")]]},
        world.routed("end", "echo"),
    ]);
    let run = world.run(&app, steps).await;
    let granted = app
        .command(&door(&run, "long", "claim"), &world.runner.token)
        .await;
    fails(&app, &world, &run, "bad").await;
    assert!(
        state(&app, &world, &run)
            .await
            .starts_with("needs_attention")
    );
    let body = json!({"claim_token": claim_token(&granted), "content": "done"});
    app.post(&door(&run, "long", "commit"), &world.runner.token, body)
        .await
        .ok(200);
    assert_eq!(
        state(&app, &world, &run).await,
        "running bad:failed long:completed next:dispatched end:waiting"
    );
    // The reason stands while its row is there, on a running run too (INV-35).
    assert_eq!(attention(&app, &world, &run).await, "halt_failure bad");
    completes(&app, &world, &run, "next").await;
    assert!(
        state(&app, &world, &run)
            .await
            .starts_with("needs_attention")
    );
    say(
        &app,
        &world,
        &of_task(&world, &run, "bad", "retry"),
        json!({}),
    )
    .await
    .ok(200);
    completes(&app, &world, &run, "bad").await;
    completes(&app, &world, &run, "end").await;
    assert!(state(&app, &world, &run).await.starts_with("completed"));
    app.finish().await;
}

/// `runs.md` §8.5: the one cancel that resolves.
#[tokio::test]
async fn a_person_ends_a_branch() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([
        {"parallel": [[world.routed("a", "echo"), world.routed("a2", "echo")], world.routed("b", "echo")]},
        world.routed("end", "echo"),
    ]);
    let run = world.run(&app, steps).await;
    let granted = app
        .command(&door(&run, "a", "claim"), &world.runner.token)
        .await;
    let token = claim_token(&granted);
    let canceled = say(
        &app,
        &world,
        &of_task(&world, &run, "a", "cancel"),
        json!({}),
    )
    .await
    .ok(200);
    assert_eq!(text(&canceled, "task.status"), "canceled");
    assert_eq!(text(&canceled, "task.failure_resolution"), "canceled");
    assert_eq!(text(&canceled, "task.error.key"), "task_canceled");
    assert_eq!(
        state(&app, &world, &run).await,
        "running a:canceled a2:canceled b:dispatched end:waiting"
    );
    let late = json!({"claim_token": token, "content": "late"});
    let told = app
        .post(&door(&run, "a", "commit"), &world.runner.token, late)
        .await
        .ok(200);
    assert_eq!(text(&told, "task.status"), "canceled");
    say(
        &app,
        &world,
        &of_task(&world, &run, "a", "cancel"),
        json!({}),
    )
    .await
    .expect(409, "already_terminal");
    completes(&app, &world, &run, "b").await;
    completes(&app, &world, &run, "end").await;
    assert!(state(&app, &world, &run).await.starts_with("completed"));
    say(
        &app,
        &world,
        &of_task(&world, &run, "end", "cancel"),
        json!({}),
    )
    .await
    .expect(409, "not_adjudicable");
    app.finish().await;
}

/// `runs.md` §13, INV-7: what was approved under a hold starts in the transaction that ends it, and the
/// released run is told without the hold's reason.
#[tokio::test]
async fn the_end_of_a_hold_starts_what_was_approved_under_it() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let rules = json!([{"tool": "write_note", "verdict": "ask", "origin": "author"}]);
    let steps = json!([
        {"parallel": [call(&world, "h", "halt"), world.routed("x", "write_note")]},
        world.routed("z", "echo"),
    ]);
    let run = json!({"approval_mode": "bypass", "approval_rules": rules, "steps": steps});
    let (run, _) = run_with(&app, &world, run).await;
    fails(&app, &world, &run, "h").await;
    let approve = of_task(&world, &run, "x", "approve");
    let told = say(&app, &world, &approve, json!({})).await.ok(200);
    assert_eq!(text(&told, "task.status"), "waiting");
    let abandon = of_task(&world, &run, "h", "abandon");
    say(&app, &world, &abandon, json!({})).await.ok(200);
    assert_eq!(
        state(&app, &world, &run).await,
        "running h:failed x:dispatched z:waiting"
    );
    let path = verb(&world, &run, "events?limit=200");
    let feed = app.get(&path, &world.human.token).await.ok(200);
    let told = items(&feed, "events").iter();
    let mut told = told.filter(|item| text(item, "type") == "turn_status");
    let last = told.next_back().expect("a run's status was told");
    assert_eq!(text(last, "payload.run_status"), "running");
    assert!(crate::support::http::find(last, "payload.attention_reason").is_none());
    app.finish().await;
}
