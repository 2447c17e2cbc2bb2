//! The final commit: its gate, its digest, its links (§9).

use serde_json::json;

use super::{Scene, key, work};

/// 34, 35: equal commits are one; what was said before stays.
#[tokio::test]
async fn a_final_result_is_written_once() {
    let s = Scene::new().await;
    let child = key(&s.accept("a", work()).await);
    s.commit(json!({"content": 7}))
        .await
        .expect(409, "pending_children");
    s.done(&child).await;
    s.commit(json!({"content": "x"}))
        .await
        .expect(409, "pending_children");
    s.outcome("a").await;
    let body = json!({"content": "x"});
    let (one, two) = tokio::join!(s.commit(body.clone()), s.commit(body.clone()));
    assert_eq!(one.ok(200), two.ok(200));
    s.commit(json!({"content": "y"}))
        .await
        .expect(409, "final_result_conflict");
    s.commit(json!({"content": "x", "structured_content": null}))
        .await
        .expect(409, "final_result_conflict");
    s.commit(body).await.ok(200);
    s.app.finish().await;
}

/// 54: a capture that an observed outcome shows may be linked; knowing its id is not enough.
#[tokio::test]
async fn an_observed_capture_may_be_linked() {
    let s = Scene::new().await;
    let sql = s.app.sql().await;
    let stage = async |creator: i64| -> String {
        let row = sql.query_one(
            "INSERT INTO uploads (account_id, public_id, filename, content_type, byte_size, sha256, store, creator_executor_id)
             VALUES ($1, gen_random_uuid(), 'a.png', 'image/png', 1, '\\x00', 'postgres', $2) RETURNING public_id::text",
            &[&s.world.account, &creator],
        ).await;
        row.unwrap().get(0)
    };
    let (shown, unseen) = (
        stage(s.world.provider.id).await,
        stage(s.world.provider.id).await,
    );
    let link = |id: &str| json!({"content": [{"type": "resource_link", "uri": format!("nexus://uploads/{id}"), "name": "a.png"}]});
    // The child belongs to another executor: the pool's.
    sql.execute(
        "UPDATE uploads SET creator_executor_id = $1 WHERE public_id::text = $2",
        &[&s.world.runner.id, &shown],
    )
    .await
    .unwrap();
    let child = key(&s.accept("a", work()).await);
    s.answer(&child, link(&shown)).await;
    sql.execute(
        "UPDATE uploads SET creator_executor_id = $1 WHERE public_id::text = $2",
        &[&s.world.provider.id, &shown],
    )
    .await
    .unwrap();
    s.commit(link(&shown)).await.expect(409, "pending_children");
    s.outcome("a").await;
    s.commit(link(&unseen))
        .await
        .expect(422, "unknown_result_upload");
    s.commit(link(&shown)).await.ok(200);
    s.app.finish().await;
}

/// The gate is judged before the payload, after the deadline.
#[tokio::test]
async fn the_gate_comes_before_the_payload() {
    let s = Scene::new().await;
    s.accept("a", work()).await;
    s.commit(json!({"content": [{"type": "x"}]}))
        .await
        .expect(409, "pending_children");
    s.commit(json!({"outcome": "failed", "content": [{"type": "x"}]}))
        .await
        .expect(422, "unsupported_content_kind");
    s.app.finish().await;
}
