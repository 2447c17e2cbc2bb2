//! Migrations beside traffic and beside each other (`architecture.md` §3, `dependencies.md`).
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use nexus::store::migrate::{self, MIGRATIONS, MigrateError, Patience, known_version};
use sha2::{Digest, Sha256};

use crate::scratch::{Scratch, connect, eventually};

/// A database at the first version, as an older release left it.
async fn at_the_first_version() -> Scratch {
    let scratch = Scratch::empty().await;
    let first = &MIGRATIONS[0];
    scratch.sql.batch_execute(first.sql).await.unwrap();
    scratch
        .sql
        .batch_execute(
            "CREATE TABLE schema_migrations (version int PRIMARY KEY, name text NOT NULL, checksum bytea NOT NULL,
                applied_at timestamptz NOT NULL DEFAULT clock_timestamp())",
        )
        .await
        .unwrap();
    noted(&scratch, 0).await;
    scratch
}

async fn noted(scratch: &Scratch, nth: usize) {
    let migration = &MIGRATIONS[nth];
    let checksum: [u8; 32] = Sha256::digest(migration.sql.as_bytes()).into();
    scratch
        .sql
        .execute(
            "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
            &[&migration.version, &migration.name, &&checksum[..]],
        )
        .await
        .unwrap();
}

const BRIEF: Patience = Patience {
    lock: Duration::from_millis(300),
    tries: 1000,
    pause: Duration::from_millis(100),
};

/// A long reader holds a table that a migration alters: whoever comes to the table behind the waiting
/// statement is served within the lock's time-out, again and again; after the reader all is applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_reader_piles_up_no_traffic_behind_a_migration() {
    let scratch = at_the_first_version().await;
    let reader = connect(&scratch.url).await;
    reader
        .batch_execute("BEGIN; SELECT count(*) FROM uploads; SELECT count(*) FROM runs")
        .await
        .unwrap();
    let config = scratch.config(&[]).database;
    let migrating =
        tokio::spawn(async move { migrate::migrate_with(&config, BRIEF).await.unwrap() });
    // Some statements of the file only wait for the reader: traffic goes on beside them, and once
    // one waits for a lock that stands in the way, beside that.
    let traffic = connect(&scratch.url).await;
    let mut worst = Duration::ZERO;
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let asked = Instant::now();
        let write =
            "INSERT INTO uploads (account_id, public_id, filename, content_type, byte_size, store)
                     VALUES (1, gen_random_uuid(), 'f', 't', 0, 'postgres')";
        traffic.execute(write, &[]).await.unwrap();
        let read = "SELECT count(*) FROM runs";
        traffic.query_one(read, &[]).await.unwrap();
        worst = worst.max(asked.elapsed());
    }
    assert!(!migrating.is_finished(), "the reader is still there");
    reader.batch_execute("COMMIT").await.unwrap();
    let standing = migrating.await.unwrap();
    println!("beside a long reader the slowest of the traffic took {worst:?}");
    assert!(worst < Duration::from_secs(2), "{worst:?}");
    assert!(standing.is_ready());
    scratch.finish().await;
}

/// The same for one statement that needs the table alone: it gives up after a bounded number of
/// tries, says whose fault it is, and leaves nothing behind; the next time goes on.
#[tokio::test]
async fn a_migration_that_gets_no_lock_gives_up_and_may_be_repeated() {
    let scratch = at_the_first_version().await;
    let reader = connect(&scratch.url).await;
    // Locks of one table, and no snapshot, so that only that statement waits.
    reader
        .batch_execute("BEGIN; LOCK TABLE uploads IN ACCESS SHARE MODE")
        .await
        .unwrap();
    let config = scratch.config(&[]).database;
    let few = Patience { tries: 3, ..BRIEF };
    let started = Instant::now();
    let refused = migrate::migrate_with(&config, few).await;
    assert!(
        matches!(refused, Err(MigrateError::Locked { tries: 3, .. })),
        "{refused:?}"
    );
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(!migrate::check(&config).await.unwrap().is_ready());
    let kept = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    eventually(Duration::from_secs(5), "its lock is gone", async || {
        scratch.count(kept).await == 0
    })
    .await;
    reader.batch_execute("COMMIT").await.unwrap();
    assert!(migrate::migrate(&config).await.unwrap().is_ready());
    let invalid = "SELECT count(*) FROM pg_index WHERE NOT indisvalid";
    assert_eq!(scratch.count(invalid).await, 0);
    scratch.finish().await;
}

/// BR-091: several start at once, with indexes to build concurrently: one migrates, all find it done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_at_once_migrate_once() {
    let scratch = at_the_first_version().await;
    let starts = (0..6).map(|_| {
        let config = scratch.config(&[]).database;
        async move { migrate::migrate(&config).await.unwrap().is_ready() }
    });
    let ready = crate::support::fleet::all(starts).await;
    assert!(ready.into_iter().all(|ready| ready));
    let ran = scratch
        .count("SELECT count(*) FROM schema_migrations")
        .await;
    assert_eq!(ran, MIGRATIONS.len() as i64);
    scratch.finish().await;
}

/// Numbers may have gaps, and one that lands later than a higher one is applied all the same: until
/// then the schema is not ready.
#[tokio::test]
async fn a_number_that_lands_late_is_still_due() {
    let scratch = at_the_first_version().await;
    // A newer release ran something that this program does not know.
    let newer = known_version() + 7;
    scratch
        .sql
        .execute(
            "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, 'newer', '')",
            &[&newer],
        )
        .await
        .unwrap();
    let config = scratch.config(&[]).database;
    let standing = migrate::check(&config).await.unwrap();
    assert_eq!(standing.current, MIGRATIONS[0].version);
    assert!(
        !standing.is_ready(),
        "the newer one does not hide what is missing"
    );
    let standing = migrate::migrate(&config).await.unwrap();
    assert_eq!(standing.current, newer);
    assert!(standing.is_ready());
    scratch.finish().await;
}
