//! Executors that leave (`executor.md` §19): a shutdown waits for what its executor holds of pools.

use std::time::Duration;

use serde_json::json;

use crate::support::fleet::{number, unrouted};
use crate::support::seed::{READ_ONLY, World, door, executor, serve};
use crate::support::{OPERATOR, TestApp, items, text};

const CLAIMS: &str = "/agent_api/v1/executor/inbox/claims";

async fn sweep(app: &TestApp, replica: usize) {
    let body = json!({"sweep": "revocations"});
    app.on(replica)
        .post("/operator_api/v1/sweeper/run", OPERATOR, body)
        .await
        .ok(202);
}

/// Edge case 50 for rows of a pool, which name no executor: the claimed one is worked off and
/// acknowledges the shutdown, the unclaimed one stays for others, and a poll that waits over the
/// shutdown is granted nothing.
#[tokio::test]
async fn a_shutdown_waits_for_the_pool_rows_its_executor_claimed() {
    let app = TestApp::replicas(2).await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    let provider = world.provider.token.as_str();
    let (account, manager) = (world.account, world.human.id);
    let other = executor(&sql, account, "tool_provider", manager, "other").await;
    serve(&sql, account, &other, "pooled", READ_ONLY, None).await;
    let epoch = format!(
        "SELECT credential_epoch::bigint FROM executors WHERE executor_id = {}",
        world.provider.id
    );
    let run = world.run(&app, json!([unrouted("a", "pooled")])).await;
    let granted = app
        .post(CLAIMS, provider, json!({"limit": 1}))
        .await
        .ok(200);
    let token = text(&granted, "claims.0.claim.claim_token");
    assert_eq!(text(&granted, "claims.0.task.task_key"), "a");

    let polling = {
        let (door, provider) = (app.on(1).clone(), provider.to_owned());
        let body = json!({"limit": 8, "wait_ms": 3000});
        tokio::spawn(async move { door.post(CLAIMS, &provider, body).await })
    };
    let shutdown = format!(
        "/operator_api/v1/executors/{}/shutdown",
        world.provider.public_id
    );
    app.command(&shutdown, OPERATOR).await.ok(202);
    let later = world.run(&app, json!([unrouted("b", "pooled")])).await;
    assert!(items(&polling.await.unwrap().ok(200), "claims").is_empty());

    app.advance(Duration::from_secs(16)).await;
    let before = number(&sql, &epoch).await;
    for replica in [0, 1] {
        sweep(&app, replica).await;
        assert_eq!(number(&sql, &epoch).await, before, "it still holds a claim");
    }
    app.command(&door(&later, "b", "claim"), provider)
        .await
        .expect(409, "not_eligible");
    let none = app.post(CLAIMS, provider, json!({})).await.ok(200);
    assert!(items(&none, "claims").is_empty());
    let extension = json!({"claim_token": token, "timeout_ms": 60_000});
    app.post(&door(&run, "a", "extend"), provider, extension)
        .await
        .ok(200);
    let result = json!({"claim_token": token, "content": "done"});
    let commit = door(&run, "a", "commit");
    app.on(1).post(&commit, provider, &result).await.ok(200);

    sweep(&app, 1).await;
    assert_eq!(number(&sql, &epoch).await, before + 1, "acknowledged");
    let acknowledged =
        "SELECT count(*) FROM executors WHERE shutdown_generation = credential_epoch";
    assert_eq!(number(&sql, acknowledged).await, 1);
    app.post(&commit, provider, &result)
        .await
        .expect(401, "unauthorized");
    // The row that nobody claimed is still the pool's.
    app.command(&door(&later, "b", "claim"), &other.token)
        .await
        .ok(200);
    world.stop(&app, &later).await.ok(200);
    app.finish().await;
}
