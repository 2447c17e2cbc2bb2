//! Who loses a credential or standing is told to the sockets at once (`conventions.md` §2,
//! `cable.md` §5), and nobody else is.

use std::time::Duration;

use nexus::bus::Message;
use nexus::domain::PublicId;
use serde_json::json;

use crate::support::{OPERATOR, Party, TestApp, text};

/// What a command says on the channel of one member or executor, up to a mark of our own: the bus
/// keeps the order of one sender.
async fn said(app: &TestApp, subject: &str, command: impl Future<Output = ()>) -> usize {
    let subject: PublicId = subject.parse().unwrap();
    let bus = &app.app().bus;
    let mut heard = bus.executor_hints(subject).await;
    command.await;
    let mark = nexus::domain::hint::Hint::WorkCanceled {
        executor: subject,
        run: subject,
        task_key: "mark".parse().unwrap(),
    };
    bus.announce(vec![mark]).await;
    let mut count = 0;
    loop {
        let next = tokio::time::timeout(Duration::from_secs(10), heard.recv());
        match next.await.expect("the mark arrives") {
            Message::AuthorityChanged => count += 1,
            Message::WorkCanceled { .. } => return count,
            _ => {}
        }
    }
}

async fn ok(app: &TestApp, path: String) {
    let answer = app
        .command(&format!("/operator_api/v1/{path}"), OPERATOR)
        .await;
    assert!(answer.status.is_success(), "{answer:?}");
}

fn lookup(party: &Party) -> &str {
    party.token.split('-').nth(3).unwrap()
}

#[tokio::test]
async fn sockets_are_told_of_every_change_of_authority_after_it_is_committed() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let (human, agent, runner) = (&f.human.id, &f.agent.id, &f.runner.id);
    for (subject, path) in [
        (human, format!("members/{human}/rotate")),
        (human, format!("members/{human}/suspend")),
        (agent, format!("members/{agent}/suspend")),
        (runner, format!("executors/{runner}/rotate")),
        (runner, format!("executors/{runner}/revoke")),
        (
            &f.provider.id,
            format!("tokens/{}/revoke", lookup(&f.provider)),
        ),
    ] {
        assert_eq!(
            said(&app, subject, ok(&app, path.clone())).await,
            1,
            "{path}"
        );
    }
    // The address of an agent goes with its agent.
    ok(&app, format!("members/{agent}/resume")).await;
    let suspend = format!("members/{agent}/suspend");
    assert_eq!(said(&app, &f.application.id, ok(&app, suspend)).await, 1);
    // Pairing again cuts the sockets of the older credential.
    let body =
        json!({"kind": "agent_application", "agent_public_id": agent, "display_name": "again"});
    let pair = async {
        app.post("/operator_api/v1/executors", OPERATOR, body)
            .await
            .ok(200);
    };
    assert_eq!(said(&app, &f.application.id, pair).await, 1);
    let grant = format!("/operator_api/v1/workspaces/{}/grants/{human}", f.workspace);
    let withdraw = async {
        app.delete(&grant, OPERATOR).await.ok(204);
    };
    assert_eq!(said(&app, human, withdraw).await, 1);
    app.finish().await;
}

#[tokio::test]
async fn what_changes_nothing_says_nothing() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let runner = &f.runner.id;
    // Heard, so that it is not heard below.
    let first = ok(&app, format!("executors/{runner}/revoke"));
    assert_eq!(said(&app, runner, first).await, 1, "a revocation");
    let again = ok(&app, format!("executors/{runner}/revoke"));
    assert_eq!(
        said(&app, runner, again).await,
        0,
        "a repeat of a revocation"
    );
    let refused = async {
        let path = format!("/operator_api/v1/executors/{runner}/rotate");
        app.command(&path, OPERATOR)
            .await
            .expect(409, "executor_revoked");
    };
    assert_eq!(said(&app, runner, refused).await, 0, "a refusal");
    let read = async {
        let path = format!("/operator_api/v1/executors/{}", f.provider.id);
        let shown = app.get(&path, OPERATOR).await.ok(200);
        assert_eq!(text(&shown, "executor.status"), "active");
    };
    assert_eq!(said(&app, &f.provider.id, read).await, 0, "a read");
    app.finish().await;
}
