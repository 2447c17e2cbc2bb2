//! Real races of the doors, over two replicas: INV-26, INV-27, INV-28.

use serde_json::json;

use super::{Scene, json_of, key, local, step, work};

/// Rounds of each race in the test command; `NEXUS_TEST_ROUNDS` for more.
fn rounds() -> usize {
    let rounds = std::env::var("NEXUS_TEST_ROUNDS").ok();
    rounds.and_then(|n| n.parse().ok()).unwrap_or(40)
}

async fn on(
    s: &Scene,
    replica: usize,
    word: &str,
    body: serde_json::Value,
) -> crate::support::Answer {
    s.app
        .on(replica)
        .post(&s.door(word), &s.world.runner.token, body)
        .await
}

/// 33: an acceptance and a publication: whichever is first, nothing is left behind.
#[tokio::test]
async fn accept_against_commit() {
    let s = Scene::new().await;
    let (mut accepted, mut published) = (0, 0);
    for _ in 0..rounds() {
        let run = s
            .world
            .run(&s.app, json!([super::parent(&s.world, "echo")]))
            .await;
        let token = s.world.claim(&s.app, &run, "code").await;
        let (path, bearer) = (
            crate::support::seed::door(&run, "code", "operations"),
            &s.world.runner.token,
        );
        let commit = crate::support::seed::door(&run, "code", "commit");
        let operation = json!({"claim_token": token, "operation": {"key": "a", "request": work()}});
        let (one, two) = tokio::join!(
            s.app.on(0).post(&path, bearer, operation),
            s.app
                .on(1)
                .post(&commit, bearer, json!({"claim_token": token})),
        );
        match (one.status.as_u16(), two.status.as_u16()) {
            (201, 409) => {
                two.expect(409, "pending_children");
                accepted += 1;
            }
            (409, 200) => {
                one.expect(409, "execution_stopped");
                published += 1;
            }
            other => panic!("{other:?}: {} {}", one.text(), two.text()),
        }
    }
    eprintln!("accept first {accepted}, commit first {published}");
    s.app.finish().await;
}

/// INV-28: the same operation many times at once is accepted once.
#[tokio::test]
async fn one_operation_sent_many_times_is_one() {
    let s = Scene::new().await;
    for n in 0..rounds() {
        let name = format!("op{n}");
        let body = json!({"claim_token": s.token, "operation": {"key": name, "request": work()}});
        let sent = futures_util::future::join_all(
            (0..4).map(|at| on(&s, at % 2, "operations", body.clone())),
        )
        .await;
        let created = sent.iter().filter(|a| a.status.as_u16() == 201).count();
        assert_eq!(created, 1);
        assert!(sent.iter().all(|a| json_of(a) == json_of(&sent[0])));
    }
    assert_eq!(s.tasks().await, 1 + i64::try_from(rounds()).unwrap());
    s.app.finish().await;
}

/// 39, INV-26: a replacement and the dispatch of what it replaces have one winner.
#[tokio::test]
async fn replace_against_dispatch() {
    let s = Scene::new().await;
    let (mut replaced, mut started) = (0, 0);
    for n in 0..rounds() {
        let name = format!("op{n}");
        let steps = json!({"kind": "steps", "input": [step("a"), step("b")]});
        let batch = s.accept(&name, steps).await;
        let token = s.claim(&local(&batch, "a")).await;
        let request = json!({"kind": "replace", "input": {"operation_key": name, "tasks": ["b"], "steps": [step("x")]}});
        let body = json!({"claim_token": s.token, "operation": {"key": format!("r{n}"), "request": request}});
        let commit = crate::support::seed::door(&s.run, &local(&batch, "a"), "commit");
        let (one, two) = tokio::join!(
            on(&s, 0, "operations", body),
            s.app.on(1).post(
                &commit,
                &s.world.runner.token,
                json!({"claim_token": token})
            ),
        );
        two.ok(200);
        one.ok(201);
        let event = json_of(&one)["operation"].clone();
        let old = s.status(&local(&batch, "b")).await;
        if event["refusal"]["code"] == "task_already_started" {
            assert_eq!(old, "dispatched");
            started += 1;
        } else {
            assert_eq!(old, "canceled");
            assert_eq!(s.status(&local(&event["receipt"], "x")).await, "dispatched");
            replaced += 1;
        }
    }
    eprintln!("replaced {replaced}, started {started}");
    s.app.finish().await;
}

/// A cancel and a commit of the same child have one winner, and its owner is told which.
#[tokio::test]
async fn cancel_against_commit() {
    let s = Scene::new().await;
    let (mut canceled, mut completed) = (0, 0);
    for n in 0..rounds() {
        let name = format!("op{n}");
        let child = key(&s.accept(&name, work()).await);
        let token = s.claim(&child).await;
        let request = json!({"kind": "cancel", "input": {"operation_key": name}});
        let body = json!({"claim_token": s.token, "operation": {"key": format!("c{n}"), "request": request}});
        let commit = crate::support::seed::door(&s.run, &child, "commit");
        let (one, two) = tokio::join!(
            on(&s, n % 2, "operations", body),
            s.app.on(1 - n % 2).post(
                &commit,
                &s.world.runner.token,
                json!({"claim_token": token, "content": "x"})
            ),
        );
        one.ok(201);
        two.ok(200);
        let outcome = s.outcome(&name).await;
        s.outcome(&format!("c{n}")).await;
        assert_eq!(outcome["status"], s.status(&child).await.as_str());
        match outcome["status"].as_str() {
            Some("canceled") => canceled += 1,
            Some("completed") => completed += 1,
            other => panic!("{other:?}"),
        }
    }
    eprintln!("canceled {canceled}, completed {completed}");
    s.commit(json!({})).await.ok(200);
    s.app.finish().await;
}
