//! Which errors a pooled connection survives (`architecture.md` §4, §7): one that says something
//! about the connection closes it, one of a statement or a transaction does not. A pool of one
//! connection, so that the next statement shows what became of it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use nexus::store::due::{self, Part};
use nexus::store::{Error, Remedy, Store, replicas};
use uuid::Uuid;

use crate::scratch::Scratch;

fn store(scratch: &Scratch, statements: &str) -> Store {
    let config = scratch.config(&[("NEXUS_DB_POOL", "1"), ("NEXUS_DB_STATEMENTS", statements)]);
    Store::new(&config.database).unwrap()
}

/// The server process behind the one connection of the pool.
async fn backend(scratch: &Scratch) -> i32 {
    let rows = scratch
        .sql
        .query(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                AND backend_type = 'client backend'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(rows.len(), 1, "one connection");
    rows[0].get(0)
}

async fn beat(store: &Store) -> Result<(), Error> {
    replicas::heartbeat(store, Uuid::from_u128(1), "test", &["api"], false).await
}

/// Whatever writes a replica's row does this first.
async fn on_write(scratch: &Scratch, what: &str) {
    scratch
        .sql
        .batch_execute(&format!(
            "CREATE FUNCTION strike() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; RETURN NEW; END $$;
             CREATE TRIGGER strike BEFORE INSERT OR UPDATE ON replicas FOR EACH ROW EXECUTE FUNCTION strike()"
        ))
        .await
        .unwrap();
}

async fn calm(scratch: &Scratch) {
    let calm = "DROP TRIGGER strike ON replicas; DROP FUNCTION strike()";
    scratch.sql.batch_execute(calm).await.unwrap();
}

/// Single statements and transactions that end in an ordinary error keep their connection: a new one
/// costs a start-up and all its prepared statements, under a load of conflicts just when it hurts.
#[tokio::test]
async fn ordinary_errors_keep_the_connection() {
    let scratch = Scratch::migrated().await;
    for statements in ["prepared", "unnamed"] {
        let store = store(&scratch, statements);
        store.now().await.unwrap();
        let before = backend(&scratch).await;
        for code in [
            "40001", "40P01", "23505", "55P03", "57014", "NX001", "P0001", "22012",
        ] {
            let raise = format!(
                "CREATE OR REPLACE FUNCTION nexus_now() RETURNS timestamptz LANGUAGE plpgsql AS
                   $$ BEGIN RAISE EXCEPTION 'as asked' USING ERRCODE = '{code}'; END $$"
            );
            scratch.sql.batch_execute(&raise).await.unwrap();
            assert!(store.now().await.is_err(), "{code}");
            let page = due::parks(&store, Part::WHOLE, None, 8).await;
            assert!(page.is_err(), "{code}");
            let calm = "CREATE OR REPLACE FUNCTION nexus_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
                          $$ SELECT clock_timestamp() $$";
            scratch.sql.batch_execute(calm).await.unwrap();
            // Neither is it left in the transaction that failed.
            store
                .now()
                .await
                .unwrap_or_else(|e| panic!("{code}: {e:?}"));
            let page = due::parks(&store, Part::WHOLE, None, 8).await;
            assert!(page.unwrap().is_empty());
            assert_eq!(backend(&scratch).await, before, "{code} ({statements})");
        }
    }
    scratch.finish().await;
}

/// A server that takes no writes any more, as the old primary after a failover (25006): the connection
/// goes, and the next one writes.
#[tokio::test]
async fn a_connection_to_a_read_only_server_is_not_kept() {
    let scratch = Scratch::migrated().await;
    let name: String = scratch
        .sql
        .query_one("SELECT current_database()::text", &[])
        .await
        .unwrap()
        .get(0);
    let read_only = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    scratch.sql.batch_execute(&read_only).await.unwrap();
    let store = store(&scratch, "prepared");
    store.now().await.unwrap();
    let before = backend(&scratch).await;
    let writable = format!("ALTER DATABASE {name} RESET default_transaction_read_only");
    scratch.sql.batch_execute(&writable).await.unwrap();
    let refused = beat(&store).await.unwrap_err();
    assert_eq!(refused.remedy(), Remedy::RetryLater, "{refused:?}");
    beat(&store).await.expect("on a new connection");
    assert_ne!(backend(&scratch).await, before);
    scratch.finish().await;
}

/// A prepared statement that the server has forgotten (26000), as a pooler's recycled connection has.
#[tokio::test]
async fn a_connection_without_its_prepared_statements_is_not_kept() {
    let scratch = Scratch::migrated().await;
    let store = store(&scratch, "prepared");
    on_write(&scratch, "EXECUTE 'DEALLOCATE ALL'").await;
    beat(&store).await.unwrap();
    calm(&scratch).await;
    let before = backend(&scratch).await;
    let stale = beat(&store).await.unwrap_err();
    assert!(matches!(stale, Error::Stale(_)), "{stale:?}");
    assert_eq!(stale.remedy(), Remedy::RunAgain);
    beat(&store).await.expect("on a new connection");
    assert_ne!(backend(&scratch).await, before);
    scratch.finish().await;
}

/// A cached plan that a migration has outgrown (0A000).
#[tokio::test]
async fn a_connection_whose_plans_the_schema_has_outgrown_is_not_kept() {
    let scratch = Scratch::migrated().await;
    let store = store(&scratch, "prepared");
    store.schema_version().await.unwrap();
    let before = backend(&scratch).await;
    let to = async |kind: &str| {
        let alter = format!("ALTER TABLE schema_migrations ALTER version TYPE {kind}");
        scratch.sql.batch_execute(&alter).await.unwrap();
    };
    to("bigint").await;
    let stale = store.schema_version().await.unwrap_err();
    assert!(matches!(stale, Error::Stale(_)), "{stale:?}");
    to("int").await;
    store.schema_version().await.unwrap();
    assert_ne!(backend(&scratch).await, before);
    scratch.finish().await;
}

/// A connection that the server ends, in the middle of a statement or while it lies in the pool (57P01).
#[tokio::test]
async fn a_connection_that_the_server_ends_is_not_kept() {
    let scratch = Scratch::migrated().await;
    let store = store(&scratch, "prepared");
    beat(&store).await.unwrap();
    for _ in 0..8 {
        on_write(&scratch, "PERFORM pg_terminate_backend(pg_backend_pid())").await;
        let ended = beat(&store).await.unwrap_err();
        assert_eq!(ended.remedy(), Remedy::RetryLater, "{ended:?}");
        calm(&scratch).await;
        beat(&store).await.expect("on a new connection, at once");
    }
    let idle = backend(&scratch).await;
    scratch
        .sql
        .execute("SELECT pg_terminate_backend($1)", &[&idle])
        .await
        .unwrap();
    // Whether the news was quicker than the statement or not.
    if let Err(fault) = beat(&store).await {
        assert_eq!(fault.remedy(), Remedy::RetryLater, "{fault:?}");
    }
    beat(&store).await.expect("on a new connection");
    assert_ne!(backend(&scratch).await, idle);
    scratch.finish().await;
}
