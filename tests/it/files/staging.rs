//! `POST /executor/uploads` (`executor.md` §13).

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{
    BOUNDARY, CHUNK_ROWS, PNG, UPLOAD_ROWS, UPLOADS, count, file, noise, nothing_left, of, parts,
    posted, until, upload,
};
use crate::support::seed::World;
use crate::support::{Door, TestApp, at};
use reqwest::Method;

/// `executor.md` §13: 201, type by bytes, name sanitised, media extension corrected.
#[tokio::test]
async fn a_capture_is_named_and_typed_by_what_it_is() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let token = &world.runner.token;
    let shot = upload(&app, token, "../x/shot.jpg", PNG).await;
    let shot = shot.ok(201);
    assert_eq!(of(&shot, "filename"), "shot.png");
    assert_eq!(of(&shot, "content_type"), "image/png");
    assert_eq!(at(&shot, "upload.byte_size").as_i64(), Some(16));
    assert_eq!(of(&shot, "created_at").len(), "2030-01-01T00:00:00Z".len());
    let members = at(&shot, "upload").as_object().unwrap();
    assert_eq!(members.len(), 5, "{members:?}");

    let plain = upload(&app, token, "notes.txt", b"hello").await.ok(201);
    assert_eq!(of(&plain, "content_type"), "application/octet-stream");
    let empty = upload(&app, token, "empty", b"").await.ok(201);
    assert_eq!(at(&empty, "upload.byte_size").as_i64(), Some(0));
    let again = upload(&app, token, "notes.txt", b"hello").await.ok(201);
    assert_ne!(
        of(&plain, "public_id"),
        of(&again, "public_id"),
        "§1: a new upload each"
    );

    let rows = client
        .query(
            "SELECT creator_executor_id, sha256, bound_at IS NULL, store FROM uploads WHERE filename = 'notes.txt'",
            &[],
        )
        .await
        .unwrap();
    for row in &rows {
        assert_eq!(row.get::<_, Option<i64>>(0), Some(world.runner.id));
        assert_eq!(row.get::<_, Vec<u8>>(1), Sha256::digest(b"hello").to_vec());
        assert!(row.get::<_, bool>(2));
        assert_eq!(row.get::<_, &str>(3), "postgres");
    }
    assert_eq!(rows.len(), 2);
    drop(client);
    app.finish().await;
}

/// §13: not readable back on this plane by its id alone.
#[tokio::test]
async fn a_staged_capture_cannot_be_read_back() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let id = super::staged(&app, &world.runner.token, "a", b"x").await;
    for path in [format!("{UPLOADS}/{id}"), format!("{UPLOADS}/{id}/bytes")] {
        app.get(&path, &world.runner.token)
            .await
            .expect(404, "not_found");
    }
    app.get(UPLOADS, &world.runner.token)
        .await
        .expect(405, "method_not_allowed");
    app.finish().await;
}

/// §13 and `conventions.md` §3: the refusals of the door; none leaves anything behind.
#[tokio::test]
async fn what_is_no_file_is_refused_and_leaves_nothing() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let token = &world.runner.token;

    app.post(UPLOADS, token, "{}")
        .await
        .expect(415, "unsupported_media_type");
    app.request(Method::POST, UPLOADS, token)
        .header("content-type", "text/plain")
        .bytes("x")
        .send()
        .await
        .expect(415, "unsupported_media_type");
    posted(&app, token, parts(&[(&file("a"), b"x")]))
        .header("content-encoding", "gzip")
        .send()
        .await
        .expect(415, "unsupported_media_type");
    app.request(Method::POST, UPLOADS, token)
        .header("content-type", "multipart/form-data")
        .bytes("x")
        .send()
        .await
        .expect(400, "bad_request");

    let missing = [
        parts(&[]),
        parts(&[("name=\"other\"; filename=\"a\"", b"x")]),
        parts(&[
            ("name=\"file\"; filename=\"a\"", b"x"),
            ("name=\"x\"", b"y"),
        ]),
    ];
    for body in missing {
        let error = posted(&app, token, body)
            .send()
            .await
            .expect(400, "parameter_missing");
        assert_eq!(crate::support::text(&error, "parameter"), "upload[file]");
    }
    app.command(UPLOADS, token)
        .await
        .expect(400, "parameter_missing");

    for disposition in [
        "name=\"upload[file]\"",
        "name=\"upload[file]\"; filename=\"\"",
    ] {
        let error = posted(&app, token, parts(&[(disposition, b"text")]))
            .send()
            .await
            .expect(400, "parameter_invalid");
        assert_eq!(crate::support::text(&error, "parameter"), "upload[file]");
    }

    // The closing boundary is missing: nobody knows whether this is all of the file.
    let mut cut = parts(&[(&file("a"), &noise(600_000))]);
    cut.truncate(cut.len() - BOUNDARY.len());
    posted(&app, token, cut)
        .send()
        .await
        .expect(400, "bad_request");

    for stranger in ["", &world.human.token, "sk-nexus-x1-nonsense"] {
        upload(&app, stranger, "a", b"x")
            .await
            .expect(401, "unauthorized");
    }
    nothing_left(&client).await;
    drop(client);
    app.finish().await;
}

/// §13: other parts are ignored, before and behind the file.
#[tokio::test]
async fn parts_beside_the_file_are_ignored() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let name = file("a.txt");
    let body = parts(&[
        ("name=\"note\"", b"first"),
        ("name=\"other\"; filename=\"b\"", &noise(300_000)),
        (&name, b"the file"),
        ("name=\"upload[file]\"; filename=\"second\"", b"the second"),
    ]);
    let staged = posted(&app, &world.runner.token, body).send().await.ok(201);
    assert_eq!(of(&staged, "filename"), "a.txt");
    assert_eq!(at(&staged, "upload.byte_size").as_i64(), Some(8));
    app.finish().await;
}

/// §13: chunks of 256 KiB, the last one shorter; the digest is of all bytes.
#[tokio::test]
async fn a_larger_capture_lies_in_chunks() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let bytes = noise(700_001);
    upload(&app, &world.runner.token, "a", &bytes).await.ok(201);
    let rows = client
        .query(
            "SELECT ordinal, length(bytes) FROM upload_chunks ORDER BY ordinal",
            &[],
        )
        .await
        .unwrap();
    let chunks: Vec<(i32, i32)> = rows.iter().map(|r| (r.get(0), r.get(1))).collect();
    assert_eq!(chunks, [(0, 262_144), (1, 262_144), (2, 175_713)]);
    let row = client
        .query_one("SELECT sha256, byte_size FROM uploads", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, Vec<u8>>(0), Sha256::digest(&bytes).to_vec());
    assert_eq!(row.get::<_, i64>(1), 700_001);
    drop(client);
    app.finish().await;
}

/// §13: exactly 104,857,600 bytes are taken; one more is 413 and leaves nothing.
#[tokio::test]
async fn a_file_has_a_bound() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let mut bytes = vec![7; 104_857_601];
    upload(&app, &world.runner.token, "a", &bytes)
        .await
        .expect(413, "content_too_large");
    nothing_left(&client).await;
    bytes.pop();
    let staged = upload(&app, &world.runner.token, "a", &bytes).await.ok(201);
    assert_eq!(at(&staged, "upload.byte_size").as_i64(), Some(104_857_600));
    drop(client);
    app.finish().await;
}

/// What would not even be read is refused by its head.
#[tokio::test]
async fn a_body_far_too_large_is_refused_unread() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let mut socket = half(&app, &world.runner.token, 1 << 40, b"").await;
    let mut answer = vec![0; 64];
    socket.read_exact(&mut answer).await.unwrap();
    let line = String::from_utf8_lossy(&answer);
    assert!(line.starts_with("HTTP/1.1 413 "), "{line}");
    app.finish().await;
}

/// Sends the head of an upload that announces `length` bytes of body, and these first bytes of it.
pub(super) async fn half(app: &Door, token: &str, length: usize, body: &[u8]) -> TcpStream {
    let host = app.base.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(host).await.unwrap();
    let head = format!(
        "POST {UPLOADS} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(body).await.unwrap();
    socket
}

/// §13: a client that hangs up in the middle leaves neither row nor chunks.
#[tokio::test]
async fn a_client_that_hangs_up_leaves_nothing() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let body = parts(&[(&file("a"), &noise(900_000))]);
    let socket = half(&app, &world.runner.token, body.len(), &body[..800_000]).await;
    until(&client, CHUNK_ROWS, 3).await;
    assert_eq!(count(&client, UPLOAD_ROWS).await, 1);
    let unbound = "SELECT count(*) FROM uploads WHERE bound_at IS NULL AND sha256 IS NULL";
    assert_eq!(
        count(&client, unbound).await,
        1,
        "a crash now leaves a row for the sweep"
    );
    drop(socket);
    until(&client, UPLOAD_ROWS, 0).await;
    nothing_left(&client).await;
    drop(client);
    app.finish().await;
}

/// `conventions.md` §3: uploads take minutes, so a slow one must hold no connection of the pool.
#[tokio::test]
async fn slow_uploads_hold_no_connection() {
    let app = TestApp::with().set("NEXUS_DB_POOL", "2").start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let body = parts(&[(&file("a"), &noise(600_000))]);
    let mut sockets = Vec::new();
    for _ in 0..8 {
        sockets.push(half(&app, &world.runner.token, body.len(), &body[..300_000]).await);
    }
    until(&client, CHUNK_ROWS, 8).await;
    // The pool has two connections, eight uploads are in the middle, and others are served.
    upload(&app, &world.runner.token, "quick", b"x")
        .await
        .ok(201);
    for socket in &mut sockets {
        socket.write_all(&body[300_000..]).await.unwrap();
    }
    for socket in &mut sockets {
        let mut line = vec![0; 12];
        socket.read_exact(&mut line).await.unwrap();
        assert_eq!(line, b"HTTP/1.1 201");
    }
    until(
        &client,
        "SELECT count(*) FROM uploads WHERE sha256 IS NOT NULL",
        9,
    )
    .await;
    drop(client);
    app.finish().await;
}
