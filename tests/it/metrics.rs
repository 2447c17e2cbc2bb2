//! What is measured of claims, commits and expiries (`conventions.md` §14). The numbers are the
//! process's, and every test has one of its own.

use std::time::Duration;

use serde_json::json;

use crate::support::TestApp;
use crate::support::fleet::fan;
use crate::support::seed::{World, door};

/// The value of a line of the exposition; 0 before it is there.
fn measured(line: &str) -> u64 {
    let text = nexus::telemetry::metrics().render();
    text.lines()
        .find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
        .unwrap_or(0)
}

fn outcomes(name: &str) -> [u64; 2] {
    let good = if name == "nexus_claims_total" {
        "granted"
    } else {
        "accepted"
    };
    [good, "refused"].map(|word| measured(&format!("{name}{{outcome=\"{word}\"}}")))
}

#[tokio::test]
async fn claims_commits_and_expiries_are_counted_by_what_became_of_them() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let runner = world.runner.token.as_str();
    let run = world.run(&app, fan(&world, 4)).await;
    let before = (
        outcomes("nexus_claims_total"),
        outcomes("nexus_commits_total"),
        measured("nexus_expiries_total"),
    );
    assert_eq!(before, ([0, 0], [0, 0], 0));

    let token = world.claim(&app, &run, "m0").await;
    app.command(&door(&run, "m0", "claim"), runner)
        .await
        .expect(409, "already_claimed");
    app.command(&door(&run, "m1", "claim"), &world.provider.token)
        .await
        .expect(409, "not_addressed_here");
    assert_eq!(outcomes("nexus_claims_total"), [1, 2]);
    let batch = json!({"limit": 2});
    app.post("/agent_api/v1/executor/inbox/claims", runner, batch)
        .await
        .ok(200);
    assert_eq!(
        outcomes("nexus_claims_total"),
        [3, 2],
        "each row of a batch"
    );

    for (token, status) in [("junk", 409), (token.as_str(), 200), (token.as_str(), 200)] {
        let body = json!({"claim_token": token, "content": "x"});
        let answer = app.post(&door(&run, "m0", "commit"), runner, body).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    assert_eq!(outcomes("nexus_commits_total"), [2, 1]);

    app.advance(Duration::from_secs(3600)).await;
    assert_eq!(world.sweep(&app, 0, &run, &[2, 3, 4]).await, 3);
    assert_eq!(measured("nexus_expiries_total"), 3);
    let text = nexus::telemetry::metrics().render();
    for id in [run.as_str(), &world.runner.public_id.to_string()] {
        assert!(!text.contains(id), "no ids as labels");
    }
    world.stop(&app, &run).await.ok(200);
    app.finish().await;
}
