//! `GET …/attachments/{upload}` and `/bytes` (`executor.md` §9; edge case 48).

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{claimed, commit, handed_on, held, noise, of, staged};
use crate::support::seed::World;
use crate::support::{TestApp, at};

/// The path of a bound file below a row.
fn path(run: &str, key: &str, upload: &str) -> String {
    format!("/agent_api/v1/executor/inbox/{run}/{key}/attachments/{upload}")
}

fn bytes_path(run: &str, key: &str, upload: &str) -> String {
    path(run, key, upload) + "/bytes"
}

/// §9: descriptor and bytes of a file that an earlier result bound to the run.
#[tokio::test]
async fn a_bound_file_is_read_by_the_holder_of_a_claim() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let bytes = noise(700_001);
    let (run, token, id) = handed_on(&app, &world, &bytes).await;
    let shown = held(&app, &world, &path(&run, "b", &id), &token)
        .send()
        .await;
    assert_eq!(shown.header("cache-control"), "no-store");
    let shown = shown.ok(200);
    assert_eq!(of(&shown, "public_id"), id);
    assert_eq!(of(&shown, "filename"), "out.bin");
    assert_eq!(at(&shown, "upload.byte_size").as_i64(), Some(700_001));

    let all = held(&app, &world, &bytes_path(&run, "b", &id), &token)
        .send()
        .await;
    assert_eq!(all.status, 200);
    assert!(all.body == bytes, "all bytes, in order");
    let digest: String = Sha256::digest(&bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-length", "700001"),
        ("cache-control", "no-store"),
        ("accept-ranges", "bytes"),
        ("x-content-type-options", "nosniff"),
        ("etag", &format!("\"{digest}\"")),
        (
            "content-disposition",
            "attachment; filename=\"out.bin\"; filename*=UTF-8''out.bin",
        ),
    ] {
        assert_eq!(all.header(name), value, "{name}");
    }
    let head = app
        .request(
            Method::HEAD,
            &bytes_path(&run, "b", &id),
            &world.runner.token,
        )
        .header("claim-token", &token)
        .send()
        .await;
    assert_eq!(
        (head.status.as_u16(), head.header("content-length")),
        (200, "700001")
    );
    app.finish().await;
}

/// §9, edge case 48: one range is 206, across chunks too; a bad one is 416.
#[tokio::test]
async fn one_range_is_answered_and_a_bad_one_refused() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let bytes = noise(700_000);
    let (run, token, id) = handed_on(&app, &world, &bytes).await;
    let path = bytes_path(&run, "b", &id);
    for (range, from, to) in [
        ("bytes=0-3", 0, 4),
        ("bytes=262143-262144", 262_143, 262_145),
        ("bytes=262144-524287", 262_144, 524_288),
        ("bytes=100-600000", 100, 600_001),
        ("bytes=699999-", 699_999, 700_000),
        ("bytes=-5", 699_995, 700_000),
        ("bytes=699990-9999999", 699_990, 700_000),
    ] {
        let part = held(&app, &world, &path, &token)
            .header("range", range)
            .send()
            .await;
        assert_eq!(part.status, 206, "{range}");
        assert!(part.body == bytes[from..to], "{range}");
        let shown = format!("bytes {from}-{}/700000", to - 1);
        assert_eq!(part.header("content-range"), shown);
        assert_eq!(part.header("content-length"), (to - from).to_string());
        assert_eq!(part.header("cache-control"), "no-store");
    }
    for range in [
        "bytes=700000-",
        "bytes=5-3",
        "bytes=-0",
        "bytes=0-1,3-4",
        "bytes=x-",
        "0-3",
    ] {
        let bad = held(&app, &world, &path, &token)
            .header("range", range)
            .send()
            .await;
        bad.expect(416, "range_not_satisfiable");
        assert_eq!(bad.header("content-range"), "bytes */700000", "{range}");
    }
    let whole = held(&app, &world, &path, &token).send().await;
    let etag = whole.header("etag").to_owned();
    for (known, status) in [(etag.as_str(), 206), ("\"other\"", 200)] {
        let answer = held(&app, &world, &path, &token)
            .header("range", "bytes=0-3")
            .header("if-range", known)
            .send()
            .await;
        assert_eq!(answer.status.as_u16(), status, "If-Range: {known}");
    }
    app.finish().await;
}

/// An empty file has bytes: none.
#[tokio::test]
async fn an_empty_file_is_read() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let (run, token, id) = handed_on(&app, &world, b"").await;
    let all = held(&app, &world, &bytes_path(&run, "b", &id), &token)
        .send()
        .await;
    assert_eq!((all.status.as_u16(), all.body.len()), (200, 0));
    let none = held(&app, &world, &bytes_path(&run, "b", &id), &token)
        .header("range", "bytes=0-0")
        .send()
        .await;
    none.expect(416, "range_not_satisfiable");
    app.finish().await;
}

/// §9: the proofs, in order, on both doors.
#[tokio::test]
async fn a_file_is_read_with_a_live_claim_of_its_run_only() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let (run, token, id) = handed_on(&app, &world, b"bytes").await;
    let (other_run, other_token, other_id) = handed_on(&app, &world, b"other").await;
    let unbound = staged(&app, &world.runner.token, "unbound", b"x").await;
    let nobody = "01890000-0000-7000-8000-000000000000";
    for tail in ["", "/bytes"] {
        let at = |run: &str, key: &str, id: &str| path(run, key, id) + tail;
        let get = |path: String, token: &str| held(&app, &world, &path, token).send();
        assert_eq!(get(at(&run, "b", &id), &token).await.status, 200);

        // 404 before anything else: no such run, task, or nothing that could be one.
        for gone in [
            at(nobody, "b", &id),
            at(&run, "z", &id),
            at("x", "b", &id),
            at(&run, "b", "x"),
        ] {
            get(gone.clone(), &token).await.expect(404, "not_found");
            get(gone, "").await.expect(404, "not_found");
        }
        // The header alone counts, and a blank one is none.
        for absent in ["", " "] {
            let error = get(at(&run, "b", &id), absent)
                .await
                .expect(400, "parameter_missing");
            assert_eq!(crate::support::text(&error, "parameter"), "Claim-Token");
        }
        get(format!("{}?claim_token={token}", at(&run, "b", &id)), "")
            .await
            .expect(400, "parameter_missing");
        get(at(&run, "b", &id), "junk")
            .await
            .expect(409, "not_claimant");
        get(at(&run, "b", &id), &other_token)
            .await
            .expect(409, "not_claimant");
        app.request(Method::GET, &at(&run, "b", &id), &world.provider.token)
            .header("claim-token", &token)
            .send()
            .await
            .expect(409, "not_claimant");
        // Not bound to this run: staged only, bound elsewhere, unknown.
        for missing in [&unbound, &other_id, nobody] {
            get(at(&run, "b", missing), &token)
                .await
                .expect(404, "not_found");
        }
        assert_eq!(
            get(at(&other_run, "b", &other_id), &other_token)
                .await
                .status,
            200
        );
        app.get(&at(&run, "b", &id), "")
            .await
            .expect(401, "unauthorized");
        app.get(&at(&run, "b", &id), &world.human.token)
            .await
            .expect(401, "unauthorized");
    }
    drop(client);
    app.finish().await;
}

/// §9, edge case 48: 409 once the row settled or its deadline passed.
#[tokio::test]
async fn an_ended_claim_reads_no_file() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let (run, token, id) = handed_on(&app, &world, b"bytes").await;
    commit(&app, &world, (&run, "b"), &token, &[]).await.ok(200);
    let (late_run, late_token, late_id) = handed_on(&app, &world, b"bytes").await;
    app.advance(Duration::from_secs(601)).await;
    for tail in ["", "/bytes"] {
        held(&app, &world, &(path(&run, "b", &id) + tail), &token)
            .send()
            .await
            .expect(409, "claim_inactive");
        let late = path(&late_run, "b", &late_id) + tail;
        held(&app, &world, &late, &late_token)
            .send()
            .await
            .expect(409, "claim_inactive");
    }
    app.finish().await;
}

/// §9: works during pause, and a pause stops the clock.
#[tokio::test]
async fn a_paused_run_still_hands_out_its_files() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let (run, token, id) = handed_on(&app, &world, b"bytes").await;
    app.advance(Duration::from_secs(1)).await;
    client
        .execute(
            "UPDATE runs SET status = 'paused', paused_at = nexus_now() WHERE status = 'running'",
            &[],
        )
        .await
        .unwrap();
    app.advance(Duration::from_secs(7200)).await;
    let all = held(&app, &world, &bytes_path(&run, "b", &id), &token)
        .send()
        .await;
    assert_eq!((all.status.as_u16(), all.text().as_str()), (200, "bytes"));
    drop(client);
    app.finish().await;
}

/// A row whose bytes are gone is a fault with the envelope, and no answer that breaks off.
#[tokio::test]
async fn lost_bytes_are_a_fault() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let (run, token, id) = handed_on(&app, &world, b"bytes").await;
    client
        .execute("DELETE FROM upload_chunks", &[])
        .await
        .unwrap();
    held(&app, &world, &bytes_path(&run, "b", &id), &token)
        .send()
        .await
        .expect(500, "internal_error");
    drop(client);
    app.finish().await;
}

/// A name that needs it is encoded in the header.
#[tokio::test]
async fn a_name_of_any_script_survives() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let steps = json!([world.routed("a", "echo"), world.routed("b", "echo")]);
    let run = world.run(&app, steps).await;
    let token = claimed(&app, &world, &run, "a").await;
    let id = staged(&app, &world.runner.token, "Grüße 你好.txt", b"x").await;
    commit(&app, &world, (&run, "a"), &token, &[&id])
        .await
        .ok(200);
    let token = claimed(&app, &world, &run, "b").await;
    let all = held(&app, &world, &bytes_path(&run, "b", &id), &token)
        .send()
        .await;
    assert_eq!(
        all.header("content-disposition"),
        "attachment; filename=\"Gr__e __.txt\"; filename*=UTF-8''Gr%C3%BC%C3%9Fe%20%E4%BD%A0%E5%A5%BD.txt"
    );
    app.finish().await;
}
