//! Browser rules (`conventions.md` §12).

use reqwest::Method;

use crate::support::seed::World;
use crate::support::{Answer, Door, OPERATOR, TestApp};

const PAGE: &str = "https://app.example";
const WORKSPACES: &str = "/agent_api/v1/workspaces";
const EXECUTOR: &str = "/agent_api/v1/executor";
const ACCOUNTS: &str = "/operator_api/v1/accounts";

async fn preflight(door: &Door, path: &str, origin: &str) -> Answer {
    door.request(Method::OPTIONS, path, "")
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "authorization,idempotency-key",
        )
        .send()
        .await
}

async fn get(door: &Door, path: &str, token: &str, origin: &str) -> Answer {
    door.request(Method::GET, path, token)
        .header("origin", origin)
        .send()
        .await
}

/// The items of a list in a header, in lower case and order.
fn list(answer: &Answer, name: &str) -> Vec<String> {
    let mut items: Vec<String> = answer
        .header(name)
        .split(',')
        .map(|item| item.trim().to_ascii_lowercase())
        .collect();
    items.sort();
    items
}

#[track_caller]
fn says_nothing(answer: &Answer) {
    let said = answer
        .headers
        .keys()
        .find(|name| name.as_str().starts_with("access-control-"));
    assert_eq!(said, None, "{answer:?}");
}

#[tokio::test]
async fn a_page_of_a_listed_origin_may_ask_and_call() {
    let app = TestApp::with()
        .set(
            "NEXUS_CORS_ORIGINS",
            format!("{PAGE}, http://localhost:5173"),
        )
        .set("NEXUS_RATE_LIMITS", "executors=1")
        .start()
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    for (path, origin) in [
        (WORKSPACES, PAGE),
        (EXECUTOR, "http://localhost:5173"),
        ("/agent_api/v1/executor/inbox/x/y/claim", PAGE),
    ] {
        let asked = preflight(&app, path, origin).await;
        assert_eq!(asked.status, 204, "{asked:?}");
        assert_eq!(asked.header("access-control-allow-origin"), origin);
        assert_eq!(asked.header("vary"), "Origin");
        assert_eq!(asked.header("access-control-max-age"), "600");
        assert_eq!(
            list(&asked, "access-control-allow-methods"),
            ["delete", "get", "patch", "post", "put"]
        );
        assert_eq!(
            list(&asked, "access-control-allow-headers"),
            [
                "authorization",
                "claim-token",
                "content-type",
                "idempotency-key",
                "if-none-match",
                "range",
                "x-request-id"
            ]
        );
        assert_eq!(asked.header("access-control-allow-credentials"), "");
        assert!(!asked.header("x-request-id").is_empty());
    }
    // Refusals of every layer can be read as well as answers.
    let human = world.human.token.as_str();
    let long = format!("{WORKSPACES}/{}", "x".repeat(9000));
    for (path, token, status) in [
        (WORKSPACES, human, 200),
        (EXECUTOR, world.runner.token.as_str(), 200),
        (WORKSPACES, "nobody", 401),
        ("/agent_api/v1/nothing", human, 404),
        (long.as_str(), human, 414),
        ("/agent_api/v1/executors?kind=runner", human, 200),
        ("/agent_api/v1/executors?kind=runner", human, 429),
    ] {
        let answer = get(&app, path, token, PAGE).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), PAGE);
        assert_eq!(
            list(&answer, "access-control-expose-headers"),
            [
                "etag",
                "idempotency-replayed",
                "ratelimit-limit",
                "ratelimit-remaining",
                "ratelimit-reset",
                "retry-after",
                "x-request-id"
            ]
        );
    }
    app.finish().await;
}

#[tokio::test]
async fn nobody_else_is_answered_and_the_operator_plane_never_is() {
    let app = TestApp::with()
        .set("NEXUS_CORS_ORIGINS", PAGE)
        .start()
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    for origin in [
        "https://evil.example",
        "https://app.example.evil.example",
        "http://app.example",
        "https://app.example:8443",
        "https://APP.example",
        "null",
        "*",
    ] {
        let asked = preflight(&app, WORKSPACES, origin).await;
        asked.expect(405, "method_not_allowed");
        says_nothing(&asked);
        assert_eq!(asked.header("vary"), "Origin");
        let answer = get(&app, WORKSPACES, &world.human.token, origin).await;
        answer.ok(200);
        says_nothing(&answer);
    }
    let asked = preflight(&app, ACCOUNTS, PAGE).await;
    asked.expect(405, "method_not_allowed");
    says_nothing(&asked);
    let answer = get(&app, ACCOUNTS, OPERATOR, PAGE).await;
    answer.ok(200);
    says_nothing(&answer);
    // A program without an origin sees what caches must know, no more.
    let plain = app.get(WORKSPACES, &world.human.token).await;
    says_nothing(&plain);
    assert_eq!(plain.header("vary"), "Origin");
    app.finish().await;
}

#[tokio::test]
async fn nothing_is_said_unless_configured() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    says_nothing(&preflight(&app, WORKSPACES, PAGE).await);
    let answer = get(&app, WORKSPACES, &world.human.token, PAGE).await;
    says_nothing(&answer);
    assert_eq!(answer.header("vary"), "");
    assert_eq!(answer.header("ratelimit-limit"), "", "limits are off here");
    app.finish().await;
}
