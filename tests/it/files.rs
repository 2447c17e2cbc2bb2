//! Captures and attachments through the doors (`executor.md` §9, §11, §13; edge cases 38, 42, 48).
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod attachments;
mod binding;
mod places;
mod reclaiming;
mod staging;

use std::time::Duration;

use nexus::domain::Value;
use reqwest::Method;
use serde_json::json;
use tokio_postgres::Client;

use crate::support::http::Call;
use crate::support::seed::{World, claim_token, door};
use crate::support::{Answer, Door, TestApp, text};

/// The upload door.
const UPLOADS: &str = "/agent_api/v1/executor/uploads";
/// What a test's parts are separated by.
const BOUNDARY: &str = "----nexus-boundary-7f3a";
/// The beginning of a PNG file.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

/// A body of parts, each with the text of its disposition behind `form-data`.
fn parts(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (disposition, bytes) in parts {
        body.extend_from_slice(
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n")
                .as_bytes(),
        );
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

/// The disposition of the file.
fn file(name: &str) -> String {
    format!("name=\"upload[file]\"; filename=\"{name}\"")
}

/// A POST of a multipart body to the upload door.
fn posted(app: &Door, token: &str, body: Vec<u8>) -> Call {
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    app.request(Method::POST, UPLOADS, token)
        .header("content-type", &kind)
        .bytes(body)
}

/// Stages one file.
async fn upload(app: &Door, token: &str, name: &str, bytes: &[u8]) -> Answer {
    let body = parts(&[(&file(name), bytes)]);
    posted(app, token, body).send().await
}

/// Stages one file; gives its id.
async fn staged(app: &Door, token: &str, name: &str, bytes: &[u8]) -> String {
    let answer = upload(app, token, name, bytes).await.ok(201);
    text(&answer, "upload.public_id").to_owned()
}

/// Claims a row; gives the token.
async fn claimed(app: &TestApp, world: &World, run: &str, key: &str) -> String {
    let path = door(run, key, "claim");
    claim_token(&app.command(&path, &world.runner.token).await)
}

/// Commits a row with one text and links to these uploads.
async fn commit(
    app: &TestApp,
    world: &World,
    (run, key): (&str, &str),
    token: &str,
    links: &[&str],
) -> Answer {
    let mut content = vec![json!({"type": "text", "text": "done"})];
    content.extend(links.iter().map(
        |id| json!({"type": "resource_link", "uri": format!("nexus://uploads/{id}"), "name": "it"}),
    ));
    let body = json!({"claim_token": token, "content": content});
    app.post(&door(run, key, "commit"), &world.runner.token, body)
        .await
}

/// A run whose call `a` committed a link to these bytes, and whose call `b` is claimed: gives the
/// run, the token of `b`, the upload.
async fn handed_on(app: &TestApp, world: &World, bytes: &[u8]) -> (String, String, String) {
    let steps = json!([world.routed("a", "echo"), world.routed("b", "echo")]);
    let run = world.run(app, steps).await;
    let token = claimed(app, world, &run, "a").await;
    let id = staged(app, &world.runner.token, "out.bin", bytes).await;
    commit(app, world, (&run, "a"), &token, &[&id])
        .await
        .ok(200);
    let token = claimed(app, world, &run, "b").await;
    (run, token, id)
}

/// A GET below a row with a claim token; an empty one sends none.
fn held(app: &Door, world: &World, path: &str, token: &str) -> Call {
    let call = app.request(Method::GET, path, &world.runner.token);
    if token.is_empty() {
        call
    } else {
        call.header("claim-token", token)
    }
}

/// Bytes without a pattern that a chunk's size divides.
fn noise(n: usize) -> Vec<u8> {
    let mut state: u32 = 0x1234_5678;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect()
}

/// How many rows a statement counts.
async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("a count").get(0)
}

/// Waits until a statement counts that many rows.
async fn until(client: &Client, sql: &str, wanted: i64) {
    let asking = async {
        while count(client, sql).await != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asking)
        .await
        .unwrap_or_else(|_| panic!("{sql} never became {wanted}"));
}

const UPLOAD_ROWS: &str = "SELECT count(*) FROM uploads";
const CHUNK_ROWS: &str = "SELECT count(*) FROM upload_chunks";

/// Asserts that nothing is left of any file.
async fn nothing_left(client: &Client) {
    assert_eq!(count(client, UPLOAD_ROWS).await, 0, "rows are left");
    assert_eq!(count(client, CHUNK_ROWS).await, 0, "chunks are left");
}

/// The text of a value that an answer wraps in `upload`.
fn of<'a>(value: &'a Value, member: &str) -> &'a str {
    text(value, &format!("upload.{member}"))
}
