//! Links of a commit to captures (`executor.md` §11, §13; edge cases 38 and 42, own captures).

use std::time::Duration;

use serde_json::json;

use super::{claimed, commit, count, staged, until};
use crate::support::seed::World;
use crate::support::{TestApp, at, text};

const BINDINGS: &str = "SELECT count(*) FROM upload_bindings";
const BOUND: &str = "SELECT count(*) FROM uploads WHERE bound_at IS NOT NULL";

/// §11 step 12: captures are bound in the commit's transaction; an exact retry changes nothing.
#[tokio::test]
async fn a_commit_binds_its_captures_once() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let token = claimed(&app, &world, &run, "a").await;
    let one = staged(&app, &world.runner.token, "one", b"1").await;
    let two = staged(&app, &world.runner.token, "two", b"2").await;
    let unused = staged(&app, &world.runner.token, "unused", b"3").await;
    let links = [one.as_str(), &two, &one];
    let first = commit(&app, &world, (&run, "a"), &token, &links)
        .await
        .ok(200);
    assert_eq!(text(&first, "task.status"), "completed");
    assert_eq!(
        count(&client, BINDINGS).await,
        2,
        "two links to one upload bind it once"
    );
    assert_eq!(count(&client, BOUND).await, 2);
    let bound_at = "SELECT extract(epoch FROM bound_at)::text FROM uploads WHERE filename = 'one'";
    let before: String = client.query_one(bound_at, &[]).await.unwrap().get(0);
    let again = commit(&app, &world, (&run, "a"), &token, &links)
        .await
        .ok(200);
    assert_eq!(first, again);
    let after: String = client.query_one(bound_at, &[]).await.unwrap().get(0);
    assert_eq!((before, count(&client, BINDINGS).await), (after, 2));
    let free =
        format!("SELECT count(*) FROM uploads WHERE bound_at IS NULL AND public_id = '{unused}'");
    assert_eq!(count(&client, &free).await, 1);
    drop(client);
    app.finish().await;
}

/// One capture may be linked by several results.
#[tokio::test]
async fn a_capture_is_bound_by_several_calls() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let steps = json!([world.routed("a", "echo"), world.routed("b", "echo")]);
    let run = world.run(&app, steps).await;
    let id = staged(&app, &world.runner.token, "one", b"1").await;
    for key in ["a", "b"] {
        let token = claimed(&app, &world, &run, key).await;
        commit(&app, &world, (&run, key), &token, &[&id])
            .await
            .ok(200);
    }
    assert_eq!(count(&client, BINDINGS).await, 2);
    drop(client);
    app.finish().await;
}

/// §11, edge case 38: only this executor's own captures, all or nothing; the park stands and the
/// same token commits.
#[tokio::test]
async fn foreign_and_unknown_captures_bind_nothing() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let other = World::in_database(&client, "b").await;
    let run = world
        .run(&app, json!([world.routed("a", "write_note")]))
        .await;
    let token = claimed(&app, &world, &run, "a").await;
    let own = staged(&app, &world.runner.token, "own", b"1").await;
    let sibling = staged(&app, &world.provider.token, "sibling", b"2").await;
    let foreign = staged(&app, &other.runner.token, "foreign", b"3").await;
    let unknown = "01890000-0000-7000-8000-000000000000";
    for bad in [sibling.as_str(), &foreign, unknown] {
        let refused = commit(&app, &world, (&run, "a"), &token, &[&own, bad]).await;
        refused.expect(422, "unknown_result_upload");
        assert!(
            refused.text().contains("content[2]"),
            "names the block: {refused:?}"
        );
        assert_eq!(count(&client, BINDINGS).await, 0);
        assert_eq!(count(&client, BOUND).await, 0);
    }
    let task = world.task(&app, &run, "a").await;
    assert_eq!(text(&task, "task.status"), "dispatched", "the park stands");
    commit(&app, &world, (&run, "a"), &token, &[&own])
        .await
        .ok(200);
    assert_eq!(count(&client, BOUND).await, 1);
    drop(client);
    app.finish().await;
}

/// §13: a capture whose bytes still arrive is none yet.
#[tokio::test]
async fn an_unfinished_capture_is_unknown() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let token = claimed(&app, &world, &run, "a").await;
    let id = staged(&app, &world.runner.token, "own", b"1").await;
    client
        .execute("UPDATE uploads SET sha256 = NULL", &[])
        .await
        .unwrap();
    commit(&app, &world, (&run, "a"), &token, &[&id])
        .await
        .expect(422, "unknown_result_upload");
    drop(client);
    app.finish().await;
}

/// §13: a capture that was reclaimed before the commit is unknown.
#[tokio::test]
async fn a_reclaimed_capture_is_unknown() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let token = claimed(&app, &world, &run, "a").await;
    let id = staged(&app, &world.runner.token, "own", b"1").await;
    client.execute("DELETE FROM uploads", &[]).await.unwrap();
    commit(&app, &world, (&run, "a"), &token, &[&id])
        .await
        .expect(422, "unknown_result_upload");
    drop(client);
    app.finish().await;
}

/// §13 against `admission.md` §8 `uploads`: the sweep takes a capture after the commit has read it
/// and before it binds it. The commit is refused, nothing is stored, the park stands.
#[tokio::test]
async fn a_sweep_between_reading_and_binding_is_a_refusal() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let token = claimed(&app, &world, &run, "a").await;
    let kept = staged(&app, &world.runner.token, "kept", b"1").await;
    let taken = staged(&app, &world.runner.token, "taken", b"2").await;

    // Holding the run keeps the commit between its two steps.
    let mut holder = app.sql().await;
    let held = holder.transaction().await.unwrap();
    held.query("SELECT FROM runs FOR UPDATE", &[])
        .await
        .unwrap();
    let links = [kept.as_str(), &taken];
    let committing = commit(&app, &world, (&run, "a"), &token, &links);
    let sweeping = async {
        let waits = "SELECT count(*) FROM pg_stat_activity
                      WHERE datname = current_database() AND wait_event_type = 'Lock'";
        until(&client, waits, 1).await;
        let swept = "DELETE FROM uploads WHERE bound_at IS NULL AND filename = 'taken'";
        assert_eq!(client.execute(swept, &[]).await.unwrap(), 1);
        held.commit().await.unwrap();
    };
    let (refused, ()) = tokio::join!(committing, sweeping);
    refused.expect(422, "unknown_result_upload");
    assert_eq!(count(&client, BINDINGS).await, 0);
    assert_eq!(count(&client, BOUND).await, 0);
    assert_eq!(count(&client, "SELECT count(*) FROM task_results").await, 0);
    commit(&app, &world, (&run, "a"), &token, &[&kept])
        .await
        .ok(200);
    assert_eq!(count(&client, BOUND).await, 1);
    drop((client, holder));
    app.finish().await;
}

/// §12: a late commit's captures stay unbound, its body is discarded.
#[tokio::test]
async fn a_late_commit_binds_nothing() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    let token = claimed(&app, &world, &run, "a").await;
    let id = staged(&app, &world.runner.token, "own", b"1").await;
    app.advance(Duration::from_secs(601)).await;
    let late = commit(&app, &world, (&run, "a"), &token, &[&id])
        .await
        .ok(200);
    assert_eq!(text(&late, "task.status"), "timed_out");
    assert!(at(&late, "task.error").as_object().is_some());
    assert_eq!(count(&client, BOUND).await, 0);
    drop(client);
    app.finish().await;
}
