//! The main road: steps compiled, calls claimed and committed over HTTP, followers dispatched, the
//! run completed.

use serde_json::json;

use crate::support::fleet::until;
use crate::support::seed::{World, claim_token, door};
use crate::support::{OPERATOR, TestApp, at, find, items, text};

#[tokio::test]
async fn a_chain_of_calls_travels_the_whole_way() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "echo"), world.routed("b", "echo")]),
        )
        .await;

    let inbox = app
        .get("/agent_api/v1/executor/inbox", &world.runner.token)
        .await
        .ok(200);
    assert_eq!(
        items(&inbox, "tasks").len(),
        1,
        "only the first of the chain is parked"
    );
    assert_eq!(text(&inbox, "tasks.0.task_key"), "a");
    assert_eq!(text(&inbox, "tasks.0.tool_name"), "echo");
    assert_eq!(at(&inbox, "tasks.0.claimed").as_bool(), Some(false));

    for key in ["a", "b"] {
        let granted = app
            .command(&door(&run, key, "claim"), &world.runner.token)
            .await;
        let token = claim_token(&granted);
        let read = app
            .request(
                reqwest::Method::GET,
                &door(&run, key, "claim"),
                &world.runner.token,
            )
            .header("claim-token", &token)
            .send()
            .await
            .ok(200);
        assert_eq!(at(&read, "claim.active").as_bool(), Some(true));
        let extended = app
            .post(
                &door(&run, key, "extend"),
                &world.runner.token,
                json!({"claim_token": token, "timeout_ms": 1000}),
            )
            .await
            .ok(200);
        assert_eq!(text(&extended, "claim.claim_token"), token);
        let body = json!({"claim_token": token, "content": format!("did {key}"), "structured_content": null});
        let first = app
            .post(
                &door(&run, key, "commit"),
                &world.runner.token,
                body.clone(),
            )
            .await
            .ok(200);
        assert_eq!(text(&first, "task.status"), "completed");
        let again = app
            .post(&door(&run, key, "commit"), &world.runner.token, body)
            .await
            .ok(200);
        assert_eq!(first, again, "an exact retry returns the stored task");
        let other = json!({"claim_token": token, "content": "else"});
        app.post(&door(&run, key, "commit"), &world.runner.token, other)
            .await
            .expect(409, "final_result_conflict");
    }
    let shown = world.show(&app, &run).await;
    assert_eq!(text(&shown, "run.status"), "completed");
    let task = world.task(&app, &run, "b").await;
    assert_eq!(text(&task, "task.output"), "did b");
    assert!(at(&task, "task.structured_content").is_null());
    app.finish().await;
}

/// `runs.md` §6: what the full read has whatever the run did. `steps.md` §8: a preview is the
/// beginning of the output, whole characters only.
#[tokio::test]
async fn full_reads_have_all_their_members() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([world.routed("a", "echo"), world.routed("b", "echo")]);
    let run = world.run(&app, steps).await;
    let shown = world.show(&app, &run).await;
    assert!(at(&shown, "run.default_runner").is_null());
    assert_eq!(text(&shown, "run.runner_effects.status"), "unavailable");
    assert!(items(&shown, "run.runner_effects.runners").is_empty());
    assert!(!text(&shown, "run.runner_effects.reason").is_empty());
    assert_eq!(at(&shown, "run.input_queue.limit").as_i64(), Some(16));
    assert_eq!(at(&shown, "run.input_queue.held").as_i64(), Some(0));
    let task = world.task(&app, &run, "a").await;
    assert!(find(&task, "task.output_preview").is_none(), "{task:?}");
    for (key, said, preview) in [
        ("a", "\u{e9}".repeat(200), "\u{e9}".repeat(128)),
        ("b", String::new(), String::new()),
    ] {
        let token = world.claim(&app, &run, key).await;
        let body = json!({"claim_token": token, "content": said});
        app.post(&door(&run, key, "commit"), &world.runner.token, body)
            .await
            .ok(200);
        let task = world.task(&app, &run, key).await;
        assert_eq!(text(&task, "task.output"), said);
        assert_eq!(text(&task, "task.output_preview"), preview);
    }
    app.finish().await;
}

/// A key may be any word of its alphabet, `null` too: it is a text in every column and read.
#[tokio::test]
async fn a_task_may_be_called_null() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("null", "echo"), world.routed("NULL", "echo")]),
        )
        .await;
    let shown = world.show(&app, &run).await;
    assert_eq!(text(&shown, "run.tasks.1.after.0"), "null");
    assert_eq!(text(&shown, "run.tasks.1.waiting_on.0"), "null");
    for key in ["null", "NULL"] {
        let granted = app
            .command(&door(&run, key, "claim"), &world.runner.token)
            .await;
        let body = json!({"claim_token": claim_token(&granted), "content": "ok"});
        app.post(&door(&run, key, "commit"), &world.runner.token, body)
            .await
            .ok(200);
    }
    let shown = world.show(&app, &run).await;
    assert_eq!(text(&shown, "run.status"), "completed");
    app.finish().await;
}

/// `executor.md` §11: content that no digest can cover is refused whole, and links are proven before
/// what stands behind them in the table is judged.
#[tokio::test]
async fn a_payload_is_judged_in_the_tables_order() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world
        .run(
            &app,
            json!([world.routed("a", "echo"), world.routed("b", "echo")]),
        )
        .await;
    let granted = app
        .command(&door(&run, "a", "claim"), &world.runner.token)
        .await;
    let token = claim_token(&granted);
    let link = json!({"type": "resource_link", "name": "x",
        "uri": "nexus://uploads/01a22e11-0000-7000-8000-000000000000"});
    let nul = json!({"type": "text", "text": "a\u{0}b"});
    let body = json!({"claim_token": token, "content": [link, nul]});
    app.post(&door(&run, "a", "commit"), &world.runner.token, body)
        .await
        .expect(422, "unknown_result_upload");
    let body =
        json!({"claim_token": token, "content": [{"type": "text", "text": "ok", "x": "\u{0}"}]});
    app.post(&door(&run, "a", "commit"), &world.runner.token, body)
        .await
        .expect(422, "result_unstorable");
    let task = world.task(&app, &run, "a").await;
    assert_eq!(text(&task, "task.status"), "failed");
    app.finish().await;
}

/// The ruling on standing: a creator whom the operator suspends has its live runs stopped, with
/// reason `authority_lost`; others' runs go on.
#[tokio::test]
async fn a_suspended_creator_has_its_live_runs_stopped() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let granted = app
        .command(&door(&run, "a", "claim"), &world.runner.token)
        .await;
    let token = claim_token(&granted);
    let suspend = format!("/operator_api/v1/members/{}/suspend", world.human.public_id);
    app.command(&suspend, OPERATOR).await.ok(200);
    let path = format!("{}/{run}", world.runs());
    until("the run was stopped", || async {
        let shown = app.get(&path, &world.agent.token).await.ok(200);
        text(&shown, "run.status") == "canceled"
    })
    .await;
    let shown = app.get(&path, &world.agent.token).await.ok(200);
    assert_eq!(text(&shown, "run.failure_reason"), "authority_lost");
    assert_eq!(text(&shown, "run.turn.status"), "failed");
    // The claim was ended with it: its late commit changes nothing.
    let read = app
        .request(
            reqwest::Method::GET,
            &door(&run, "a", "claim"),
            &world.runner.token,
        )
        .header("claim-token", &token)
        .send()
        .await
        .ok(200);
    assert_eq!(at(&read, "claim.active").as_bool(), Some(false));
    app.finish().await;
}
