//! Where bytes are kept: the database, a folder, S3 (`operating.md` §3, `executor.md` §13).

use std::path::{Path, PathBuf};
use std::process::Stdio;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use nexus::blobs::Blobs;
use nexus::config::{self, Config, Source};
use nexus::domain::{AccountId, PublicId, UploadId};
use nexus::engine::mint::Mint;
use nexus::store::uploads::BlobRef;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{
    CHUNK_ROWS, count, file, handed_on, held, noise, nothing_left, parts, posted, staged, until,
};
use crate::support::TestApp;
use crate::support::seed::World;

/// The one file there is, as the sweep would name it.
async fn the_file(app: &TestApp) -> BlobRef {
    let row = app
        .sql()
        .await
        .query_one(
            "SELECT account_id, upload_id, public_id, store FROM uploads",
            &[],
        )
        .await
        .unwrap();
    BlobRef {
        account: AccountId(row.get(0)),
        id: UploadId(row.get(1)),
        public_id: PublicId(row.get(2)),
        store: row.get(3),
    }
}

async fn read(blobs: &Blobs, blob: &BlobRef, range: std::ops::Range<u64>) -> Option<Vec<u8>> {
    let pieces: Vec<Bytes> = blobs
        .read(blob, range)
        .await
        .ok()?
        .try_collect()
        .await
        .ok()?;
    Some(pieces.concat())
}

/// What every place does: a small file, one of several parts, ranges, a broken upload, deletion.
async fn keeps_its_promises(app: &TestApp, place: &str) {
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    // More than two parts of 5 MiB, and not a multiple of anything.
    let large = noise(11 * 1024 * 1024 + 12_345);
    for bytes in [&b"small"[..], b"", &large] {
        let (run, token, id) = handed_on(app, &world, bytes).await;
        let path = format!("/agent_api/v1/executor/inbox/{run}/b/attachments/{id}/bytes");
        let all = held(app, &world, &path, &token).send().await;
        assert_eq!(all.status, 200, "{all:?}");
        assert!(
            all.body == bytes,
            "{place}: {} bytes come back",
            bytes.len()
        );
        if bytes.len() > 3 {
            let part = held(app, &world, &path, &token)
                .header("range", "bytes=1-3")
                .send()
                .await;
            assert_eq!((part.status.as_u16(), &part.body[..]), (206, &bytes[1..4]));
        }
    }
    let elsewhere = format!("SELECT count(*) FROM uploads WHERE store <> '{place}'");
    assert_eq!(count(&client, &elsewhere).await, 0);
    if place != "postgres" {
        assert_eq!(count(&client, CHUNK_ROWS).await, 0);
    }
    client
        .batch_execute(
            "DELETE FROM uploads; DELETE FROM upload_bindings; DELETE FROM upload_chunks",
        )
        .await
        .unwrap();

    let mut cut = parts(&[(&file("a"), &large)]);
    cut.truncate(large.len() - 1000);
    posted(app, &world.runner.token, cut)
        .send()
        .await
        .expect(400, "bad_request");
    assert_eq!(count(&client, "SELECT count(*) FROM uploads").await, 0);

    staged(app, &world.runner.token, "a", b"to be swept").await;
    let blob = the_file(app).await;
    let blobs = &app.app().blobs;
    assert_eq!(
        read(blobs, &blob, 0..11).await.as_deref(),
        Some(&b"to be swept"[..])
    );
    assert_eq!(
        read(blobs, &blob, 6..11).await.as_deref(),
        Some(&b"swept"[..])
    );
    blobs.delete(&blob).await.unwrap();
    assert_eq!(read(blobs, &blob, 0..11).await, None);
    blobs
        .delete(&blob)
        .await
        .expect("what is gone is deleted already");
    client.batch_execute("DELETE FROM uploads").await.unwrap();
}

#[tokio::test]
async fn the_database_keeps_files() {
    let app = TestApp::start().await;
    keeps_its_promises(&app, "postgres").await;
    nothing_left(&app.sql().await).await;
    app.finish().await;
}

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("nexus-files-{}", Mint::new().base62(12))))
    }

    fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }

    fn files(&self) -> usize {
        std::fs::read_dir(&self.0).map_or(0, Iterator::count)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_folder_keeps_files() {
    let folder = Folder::new();
    let app = TestApp::with()
        .set("NEXUS_BLOB_URL", folder.url())
        .start()
        .await;
    keeps_its_promises(&app, &folder.url()).await;
    assert_eq!(
        folder.files(),
        3,
        "the bound ones; neither cut nor deleted ones"
    );
    app.finish().await;
}

/// `operating.md` §3: the row names its place, so a file outlives a change of the configuration.
#[tokio::test]
async fn files_stay_readable_when_the_place_changes() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    staged(&app, &world.runner.token, "a", b"in the database").await;
    let old = the_file(&app).await;
    let folder = Folder::new();
    let source = Source::of([
        ("NEXUS_DATABASE_URL".to_owned(), app.database.url.clone()),
        ("NEXUS_BLOB_URL".to_owned(), folder.url()),
    ]);
    let config = Config::from_source(&source).unwrap();
    let moved = Blobs::new(&config.blobs, app.app().store.clone()).unwrap();
    assert_eq!(
        read(&moved, &old, 0..15).await.as_deref(),
        Some(&b"in the database"[..])
    );

    let new = BlobRef {
        store: moved.place().to_owned(),
        ..old
    };
    let mut writer = moved.writer(&new).unwrap();
    writer
        .write(Bytes::from_static(b"in a folder"))
        .await
        .unwrap();
    writer.finish().await.unwrap();
    // And back: a replica that keeps new files in the database reads those of the folder.
    let back = &app.app().blobs;
    assert_eq!(
        read(back, &new, 0..11).await.as_deref(),
        Some(&b"in a folder"[..])
    );
    let nowhere = BlobRef {
        store: "ftp://x".to_owned(),
        ..new
    };
    assert!(back.read(&nowhere, 0..1).await.is_err());
    app.finish().await;
}

#[test]
fn a_place_that_cannot_work_stops_the_start() {
    let source = Source::of([
        (
            "NEXUS_DATABASE_URL".to_owned(),
            "postgres://a@b/c".to_owned(),
        ),
        ("NEXUS_BLOB_URL".to_owned(), "ftp://x".to_owned()),
    ]);
    let refused = Config::from_source(&source).unwrap_err();
    assert_eq!(refused.variable, config::BLOB_URL);
    assert!(
        refused.to_string().contains("s3://bucket/prefix"),
        "{refused}"
    );
}

/// A server that speaks S3, of the Python package `moto[server]`.
struct Moto {
    _child: Child,
    url: String,
}

fn moto_program() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/moto_server");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(here)
        .chain(std::env::split_paths(&path).map(|dir| dir.join("moto_server")))
        .find(|program| program.is_file())
}

impl Moto {
    async fn start(program: &Path) -> Self {
        let mut child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("moto_server starts");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = loop {
            let line = lines
                .next_line()
                .await
                .unwrap()
                .expect("moto_server says where it is");
            if let Some((_, url)) = line.split_once("Running on ") {
                break url.trim().to_owned();
            }
        };
        // A full pipe would stop it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { _child: child, url }
    }

    async fn list(&self, query: &str) -> String {
        let url = format!("{}/files?{query}", self.url);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.get(url).send().await.unwrap().text().await.unwrap()
    }
}

/// The whole road with bytes in S3. Where there is no `moto_server` the test says so and is not
/// counted as proof: CI must have one.
#[tokio::test]
async fn s3_keeps_files() {
    let Some(program) = moto_program() else {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI needs moto_server: pip install 'moto[server]'"
        );
        eprintln!("skipped: files in S3: no moto_server (pip install 'moto[server]' into .venv)");
        return;
    };
    let moto = Moto::start(&program).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let made = client
        .put(format!("{}/files", moto.url))
        .send()
        .await
        .unwrap();
    assert!(made.status().is_success(), "{made:?}");
    let app = TestApp::with()
        .set("NEXUS_BLOB_URL", "s3://files/some/prefix")
        .set("AWS_ENDPOINT_URL", moto.url.clone())
        .set("AWS_ALLOW_HTTP", "true")
        .set("AWS_REGION", "us-east-1")
        .set("AWS_ACCESS_KEY_ID", "test")
        .set("AWS_SECRET_ACCESS_KEY", "test")
        .start()
        .await;
    keeps_its_promises(&app, "s3://files/some/prefix").await;
    let objects = moto.list("list-type=2&prefix=some/prefix/").await;
    assert_eq!(objects.matches("<Key>some/prefix/").count(), 3, "{objects}");
    let open = moto.list("uploads").await;
    assert!(
        !open.contains("<UploadId>"),
        "a cut upload leaves no open parts: {open}"
    );

    // S3 away: 503. Whether bytes arrived nobody knows, so the row stays for the sweep.
    drop(moto);
    let client = app.sql().await;
    let world = World::in_database(&client, "b").await;
    let lost = super::upload(&app, &world.runner.token, "a", b"x").await;
    lost.expect(503, "unavailable");
    let left = "SELECT count(*) FROM uploads WHERE bound_at IS NULL AND sha256 IS NULL";
    until(&client, left, 1).await;
    app.finish().await;
}
