//! The sweep of files that nothing was bound to, with faults between its steps (`executor.md` §13,
//! `admission.md` §8 `uploads`): marked first, then the bytes, then the row.

use nexus::sweeper::Sweeper;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_postgres::Client;

use super::staging::half;
use super::{
    CHUNK_ROWS, UPLOAD_ROWS, claimed, commit, count, file, noise, nothing_left, parts, staged,
    until,
};
use crate::support::TestApp;
use crate::support::seed::World;

/// The sweep dies where a table's row would be deleted.
async fn dies_at(client: &Client, table: &str) {
    client
        .batch_execute(&format!(
            "CREATE OR REPLACE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN OLD; END $$;
             CREATE TRIGGER die BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION die()"
        ))
        .await
        .unwrap();
}

async fn lives_again(client: &Client, table: &str) {
    let heal = format!("DROP TRIGGER die ON {table}");
    client.batch_execute(&heal).await.unwrap();
}

const MARKED: &str = "SELECT count(*) FROM uploads WHERE reclaimed_at IS NOT NULL";

async fn age(client: &Client) {
    let aged = "UPDATE uploads SET created_at = created_at - interval '25 hours'";
    client.batch_execute(aged).await.unwrap();
}

async fn sweep(app: &TestApp) -> usize {
    let sweeper = Sweeper::of(app.app());
    sweeper.force("uploads").await.unwrap().unwrap()
}

/// Wherever it dies, what is left is a marked row: nobody binds the file, and the next sweep ends
/// what was begun.
async fn a_death_between_is_harmless(app: &TestApp, bytes_left: impl Fn() -> usize) {
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let run = world.run(app, json!([world.routed("a", "echo")])).await;
    let token = claimed(app, &world, &run, "a").await;
    let id = staged(app, &world.runner.token, "old", &noise(300_000)).await;
    let in_table = count(&client, CHUNK_ROWS).await > 0;
    assert_eq!(sweep(app).await, 0, "it is young");
    age(&client).await;

    if in_table {
        dies_at(&client, "upload_chunks").await;
        assert_eq!(sweep(app).await, 0);
        assert_eq!(count(&client, MARKED).await, 1);
        assert_eq!(count(&client, CHUNK_ROWS).await, 2, "its bytes are there");
        lives_again(&client, "upload_chunks").await;
    }
    dies_at(&client, "uploads").await;
    assert_eq!(sweep(app).await, 0);
    assert_eq!(
        count(&client, MARKED).await,
        1,
        "bytes first: the row tells"
    );
    assert_eq!(count(&client, CHUNK_ROWS).await, 0);
    assert_eq!(bytes_left(), 0);
    commit(app, &world, (&run, "a"), &token, &[&id])
        .await
        .expect(422, "unknown_result_upload");
    lives_again(&client, "uploads").await;

    assert_eq!(sweep(app).await, 1);
    nothing_left(&client).await;
}

#[tokio::test]
async fn a_sweep_that_dies_between_bytes_and_row_leaves_neither_alone() {
    let app = TestApp::start().await;
    a_death_between_is_harmless(&app, || 0).await;
    app.finish().await;
}

/// The same for files in a folder, which the sweep takes as well.
#[tokio::test]
async fn files_in_a_folder_are_swept_too() {
    let folder = std::env::temp_dir().join(format!("nexus-it-{}-reclaim", std::process::id()));
    let place = format!("file://{}", folder.display());
    let app = TestApp::with().set("NEXUS_BLOB_URL", place).start().await;
    let files = || std::fs::read_dir(&folder).unwrap().count();
    a_death_between_is_harmless(&app, files).await;
    app.finish().await;
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A file that still arrives after a day: the sweep takes it, and whoever writes it writes no byte
/// more, so none is left without a row.
#[tokio::test]
async fn a_file_that_is_taken_while_it_arrives_leaves_no_bytes() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let world = World::in_database(&client, "a").await;
    let body = parts(&[(&file("a"), &noise(900_000))]);
    let mut socket = half(&app, &world.runner.token, body.len(), &body[..300_000]).await;
    until(&client, CHUNK_ROWS, 1).await;
    age(&client).await;
    // Marked, and the sweep died: the row is still there, yet it takes nothing.
    dies_at(&client, "uploads").await;
    assert_eq!(sweep(&app).await, 0);
    socket.write_all(&body[300_000..]).await.unwrap();
    let mut line = vec![0; 12];
    socket.read_exact(&mut line).await.unwrap();
    assert_eq!(line, b"HTTP/1.1 503");
    lives_again(&client, "uploads").await;
    assert_eq!(count(&client, CHUNK_ROWS).await, 0);
    sweep(&app).await;
    until(&client, UPLOAD_ROWS, 0).await;
    nothing_left(&client).await;
    app.finish().await;
}
