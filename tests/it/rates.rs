//! Rate limits over HTTP (`conventions.md` §9): one budget of all replicas, by family and
//! credential; what is refused has no effect; with Redis away nobody is refused for that.

use reqwest::Method;
use serde_json::json;

use crate::support::fleet::{all, number, until};
use crate::support::seed::{World, door};
use crate::support::{Answer, OPERATOR, TestApp, items, text};

const WORKSPACES: &str = "/agent_api/v1/workspaces";
const DEAD: &str = "sk-nexus-x1-0123456789abcdef-0123456789abcdef0123456789abcdef0123456789a";

async fn app(replicas: usize, limits: &str) -> (TestApp, World) {
    let app = TestApp::with()
        .replicas(replicas)
        .set("NEXUS_RATE_LIMITS", limits)
        .start()
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    until("every replica counts in Redis", || async {
        let in_redis = |r: &crate::support::Replica| r.app.bus.health() != "degraded";
        app.replicas.iter().all(in_redis)
    })
    .await;
    (app, world)
}

fn shown(answer: &Answer, name: &str) -> u64 {
    let text = answer.header(name);
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is `{text}`: {answer:?}"))
}

/// What is left, of which budget.
#[track_caller]
fn left(answer: &Answer) -> (u64, u64) {
    assert!((1..=60).contains(&shown(answer, "ratelimit-reset")));
    (
        shown(answer, "ratelimit-remaining"),
        shown(answer, "ratelimit-limit"),
    )
}

#[track_caller]
fn is_over(answer: &Answer, limit: u64) {
    answer.expect(429, "rate_limited");
    assert_eq!(left(answer), (0, limit));
    assert_eq!(
        shown(answer, "retry-after"),
        shown(answer, "ratelimit-reset")
    );
}

/// The counters of this test in Redis.
async fn counters(app: &TestApp) -> (redis::aio::MultiplexedConnection, Vec<String>) {
    let url = std::env::var("NEXUS_TEST_REDIS_URL").expect("a Redis is there");
    let client = redis::Client::open(url).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let mut keys: Vec<String> = redis::cmd("KEYS")
        .arg(format!("nexus:{}:rate:*", app.database.name))
        .query_async(&mut redis)
        .await
        .unwrap();
    keys.sort();
    (redis, keys)
}

#[tokio::test]
async fn replicas_share_one_budget_by_family_and_credential() {
    let (app, world) = app(3, "workspaces=5").await;
    for used in 1..=5 {
        let answer = app.on(used % 3).get(WORKSPACES, &world.human.token).await;
        answer.ok(200);
        assert_eq!(left(&answer), (5 - used as u64, 5));
    }
    for replica in 0..3 {
        is_over(
            &app.on(replica).get(WORKSPACES, &world.human.token).await,
            5,
        );
    }
    // Another credential, and another family of the same one.
    let agent = app.get(WORKSPACES, &world.agent.token).await;
    assert_eq!(left(&agent), (4, 5));
    let runs = app.get(&world.runs(), &world.human.token).await;
    assert_eq!(left(&runs), (5_999, 6_000));
    // Keys hold ids, never token text, and end with their window.
    let (mut redis, keys) = counters(&app).await;
    assert_eq!(keys.len(), 5, "{keys:?}");
    for key in &keys {
        for party in [&world.human, &world.agent] {
            for part in party.token.split('-').skip(3) {
                assert!(!key.contains(part), "{key}");
            }
        }
        let left: i64 = redis::cmd("PTTL")
            .arg(key)
            .query_async(&mut redis)
            .await
            .unwrap();
        assert!((1..=60_000).contains(&left), "{key}: {left}");
        // The window ends.
        redis::cmd("DEL")
            .arg(key)
            .exec_async(&mut redis)
            .await
            .unwrap();
    }
    let answer = app.on(1).get(WORKSPACES, &world.human.token).await;
    assert_eq!(left(&answer), (4, 5));
    app.finish().await;
}

/// `executor.md` §1: reading a claim and progress have budgets beside the plane's own.
#[tokio::test]
async fn every_plane_has_its_budgets() {
    let limits = "executor=5,claim_status=2,progress=3,operator=4,runs=3";
    let (app, world) = app(2, limits).await;
    let runner = world.runner.token.as_str();
    let steps = json!([world.routed("a", "echo"), world.routed("b", "echo")]);
    let run = world.run(&app, steps).await;
    let path = door(&run, "a", "claim");
    let token = world.claim(&app, &run, "a").await;
    for used in 1..=2 {
        let call = app.on(used % 2).request(Method::GET, &path, runner);
        let answer = call.header("claim-token", &token).send().await;
        answer.ok(200);
        assert_eq!(left(&answer), (2 - used as u64, 2));
    }
    is_over(&app.get(&path, runner).await, 2);
    let frame = json!({"frame": {"run_public_id": run, "task_key": "a", "claim_token": token}});
    for used in 1..=4 {
        let answer = app
            .on(used % 2)
            .post("/agent_api/v1/executor/progress", runner, &frame)
            .await;
        if used == 4 {
            is_over(&answer, 3);
        } else {
            assert_eq!(left(&answer), (3 - used as u64, 3));
        }
    }
    for used in 1..=5 {
        let answer = app
            .on(used % 2)
            .get("/operator_api/v1/accounts", OPERATOR)
            .await;
        if used == 5 {
            is_over(&answer, 4);
        } else {
            assert_eq!(left(&answer), (4 - used as u64, 4));
        }
    }
    // The claim was one of five; refusals of the handler count, those of the budget change nothing.
    for left_over in [3, 2, 1, 0] {
        let wrong = json!({"claim_token": "junk", "content": "x"});
        let answer = app.post(&door(&run, "a", "commit"), runner, wrong).await;
        answer.expect(409, "stale_claim");
        assert_eq!(left(&answer), (left_over, 5));
    }
    let right = json!({"claim_token": token, "content": "x"});
    is_over(
        &app.post(&door(&run, "a", "commit"), runner, &right).await,
        5,
    );
    // Create and start took two of three.
    let shown = app
        .get(&format!("{}/{run}", world.runs()), &world.human.token)
        .await;
    assert_eq!(text(&shown.ok(200), "run.tasks.0.status"), "dispatched");
    assert_eq!(left(&shown), (0, 3));
    let body = json!({"run": {"approval_mode": "bypass", "steps": [world.routed("a", "echo")]}});
    is_over(
        &app.on(1)
            .post(&world.runs(), &world.human.token, &body)
            .await,
        3,
    );
    let sql = app.sql().await;
    assert_eq!(number(&sql, "SELECT count(*) FROM runs").await, 1);
    let events = "SELECT count(*) FROM task_results";
    assert_eq!(number(&sql, events).await, 0);
    app.finish().await;
}

/// §4: the address comes before authentication, which comes before the credential.
#[tokio::test]
async fn strangers_are_charged_to_their_address() {
    let (app, world) = app(2, "workspaces=1").await;
    for used in 1..=100_u64 {
        let token = if used % 2 == 0 { DEAD } else { "" };
        let answer = app
            .on(usize::try_from(used % 2).unwrap())
            .get(WORKSPACES, token)
            .await;
        answer.expect(401, "unauthorized");
        assert_eq!(left(&answer), (100 - used, 100));
    }
    for replica in [0, 1] {
        is_over(&app.on(replica).get(WORKSPACES, DEAD).await, 100);
        // Whoever shares the address shares its fate: by the address's budget, not by its own.
        let known = app.on(replica).get(WORKSPACES, &world.human.token).await;
        is_over(&known, 100);
    }
    // What is no resource is counted too, health never.
    let nothing = app.get("/agent_api/v1/nothing", "").await;
    nothing.expect(404, "not_found");
    assert_eq!(left(&nothing), (599_999, 600_000));
    let health = app.get("/readyz", "").await;
    assert_eq!(health.header("ratelimit-limit"), "");
    app.finish().await;
}

/// §9: with Redis away each replica counts by itself, and requests are not refused for that.
#[tokio::test]
async fn with_redis_away_each_replica_counts_by_itself() {
    let app = TestApp::with()
        .replicas(2)
        .set("NEXUS_RATE_LIMITS", "workspaces=2")
        .set("NEXUS_REDIS_URL", "redis://127.0.0.1:1/")
        .start()
        .await;
    let world = World::in_database(&app.sql().await, "a").await;
    for replica in [0, 1] {
        assert_eq!(app.replicas[replica].app.bus.health(), "degraded");
        for remaining in [1, 0] {
            let answer = app.on(replica).get(WORKSPACES, &world.human.token).await;
            answer.ok(200);
            assert_eq!(left(&answer), (remaining, 2));
        }
        is_over(
            &app.on(replica).get(WORKSPACES, &world.human.token).await,
            2,
        );
    }
    app.finish().await;
}

/// Requests at once, of several replicas: exactly the budget is served.
#[tokio::test]
async fn a_burst_over_several_replicas_gets_exactly_the_budget() {
    let (app, world) = app(3, "workspaces=20").await;
    let calls = (0..60).map(|n| {
        let door = app.on(n % 3).clone();
        let token = world.human.token.clone();
        async move { door.get(WORKSPACES, &token).await }
    });
    let answers = all(calls).await;
    let served = answers.iter().filter(|a| a.status == 200).count();
    assert_eq!(served, 20);
    let mut seen: Vec<_> = answers
        .iter()
        .filter(|a| a.status == 200)
        .map(|a| left(a).0)
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    for refused in answers.iter().filter(|a| a.status != 200) {
        is_over(refused, 20);
    }
    app.finish().await;
}

/// Tokens of operators are counted one by one; the unconfigured budgets are those of the table.
#[tokio::test]
async fn operators_are_counted_token_by_token() {
    let (app, _) = app(1, "default=6000").await;
    let mint = |label| nexus::commands::provision::tokens::create_operator(&app.app().store, label);
    let (one, other) = (mint("one").await.unwrap(), mint("other").await.unwrap());
    let path = "/operator_api/v1/accounts";
    for remaining in [599, 598] {
        let answer = app.get(path, &one).await;
        assert_eq!(items(&answer.ok(200), "accounts").len(), 1);
        assert_eq!(left(&answer), (remaining, 600));
    }
    assert_eq!(left(&app.get(path, &other).await), (599, 600));
    assert_eq!(left(&app.get(path, OPERATOR).await), (599, 600));
    app.finish().await;
}
