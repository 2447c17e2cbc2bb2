//! What a call's own work costs does not depend on how much of it there was (§2, issue of width; 57).

use serde_json::json;

use super::{Scene, key, work};
use crate::budget::{cost, greet};

/// Adds so many operations that were observed, and so many that wait for a child that never ends.
async fn crowd(s: &Scene, observed: i32, pending: i32) {
    let sql = s.app.sql().await;
    sql.batch_execute(&format!(
        "WITH p AS (SELECT account_id, run_id, task_no, trace_end FROM tasks WHERE key = 'code'),
         n AS (SELECT g FROM generate_series(1, {observed} + {pending}) g),
         t AS (INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, lifetime, wake, on_failure,
                visibility, lineage_no, tip_no, input_from, remaining, tool_name, owner_no, operation_no, is_tip, completed_at)
           SELECT p.account_id, p.run_id, 1000 + g, 'x' || g, 'tool_task',
                  CASE WHEN g <= {observed} THEN 'completed' ELSE 'queued' END, 'author', 'conversation', 'auto', 'absorb',
                  'collapsed', 1000 + g, 1000 + g, '{{}}', CASE WHEN g <= {observed} THEN 0 ELSE 1 END, 'echo', p.task_no,
                  p.trace_end + g, true, CASE WHEN g <= {observed} THEN now() END
             FROM p, n),
         o AS (INSERT INTO task_operations (account_id, run_id, parent_no, position, operation_key, kind, request,
                request_digest, receipt, background, observed_position, outcome, n_open, n_pending, accepted_at, observed_at)
           SELECT p.account_id, p.run_id, p.task_no, p.trace_end + g, 'x' || g, 'tool', '{{\"kind\":\"tool\"}}', '\\x00',
                  '{{}}', false, CASE WHEN g <= {observed} THEN p.trace_end + {observed} + {pending} + g END,
                  CASE WHEN g <= {observed} THEN '{{\"outcome\":{{}}}}' END, CASE WHEN g <= {observed} THEN 0 ELSE 1 END,
                  CASE WHEN g <= {observed} THEN 0 ELSE 1 END, now(), CASE WHEN g <= {observed} THEN now() END
             FROM p, n),
         r AS (INSERT INTO task_operation_results (account_id, run_id, parent_no, position, ordinal, task_no)
           SELECT p.account_id, p.run_id, p.task_no, p.trace_end + g, 0, 1000 + g FROM p, n)
         UPDATE tasks t SET trace_end = p.trace_end + {observed} + {pending} + {observed} FROM p
          WHERE (t.account_id, t.run_id, t.task_no) = (p.account_id, p.run_id, p.task_no);
         UPDATE runs SET n_tasks = 1000 + {observed} + {pending}, n_open = n_open + {pending};"
    ))
    .await
    .expect("operations are written");
}

/// What accepting, observing, reading a page and being refused to publish cost.
async fn costs(observed: i32, pending: i32) -> Vec<(&'static str, nexus::store::Reading)> {
    let s = Scene::new().await;
    greet(&s.app, &s.world).await;
    let first = key(&s.accept("warm", work()).await);
    s.done(&first).await;
    s.outcome("warm").await;
    crowd(&s, observed, pending).await;
    let operation = json!({"key": "new", "request": work()});
    let body = json!({"claim_token": s.token, "operation": operation});
    let mut spent = Vec::new();
    let (accept, answer) = cost(&s.app, s.post("operations", body.clone())).await;
    answer.ok(201);
    spent.push(("accept", accept));
    let (replay, answer) = cost(&s.app, s.post("operations", body)).await;
    answer.ok(200);
    spent.push(("replay", replay));
    let child = key(&super::json_of(&answer)["operation"]["receipt"]);
    let end = s.trace().await["position"].as_i64().unwrap();
    let (none, answer) = cost(&s.app, s.look(end)).await;
    assert!(super::json_of(&answer)["observation"].is_null());
    spent.push(("observe nothing", none));
    s.done(&child).await;
    let (observe, answer) = cost(&s.app, s.look(end)).await;
    assert_eq!(super::json_of(&answer)["observation"]["key"], "new");
    spent.push(("observe", observe));
    let (page, answer) = cost(&s.app, s.page("?limit=2")).await;
    answer.ok(200);
    spent.push(("page", page));
    if pending > 0 {
        let body = json!({"claim_token": s.token});
        let (commit, answer) = cost(&s.app, s.post("commit", body)).await;
        answer.expect(409, "pending_children");
        spent.push(("refused commit", commit));
    }
    s.app.end().await;
    spent
}

/// A call with 10,000 operations, observed and pending, costs what one with a few does; 40 pending cost
/// as many statements as 2.
#[tokio::test]
async fn ten_thousand_operations_cost_what_a_few_do() {
    let small = costs(2, 2).await;
    let forty = costs(2, 40).await;
    let large = costs(5_000, 5_000).await;
    for (((what, of_small), (_, of_forty)), (_, of_large)) in small.iter().zip(&forty).zip(&large) {
        println!("{what}: {of_small:?}");
        assert_eq!(of_small, of_forty, "{what}: 40 pending");
        assert_eq!(of_small, of_large, "{what}: 10,000");
    }
}
