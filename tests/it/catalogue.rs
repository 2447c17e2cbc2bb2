//! The account rule (`architecture.md` §3): every table leads its primary key with `account_id`
//! and every unique index contains it, so an account is the unit of placement.

use crate::support::TestApp;

/// The tables of the installation itself: they belong to no account.
const INSTALLATION: &[&str] = &[
    "operator_tokens",
    "replicas",
    "schema_migrations",
    "sweeper_leases",
    "sweeper_settings",
    "sweeps",
    "test_clock",
];

/// Partitions inherit the keys of their parents and are left out.
const TABLES: &str = "
    SELECT c.relname::text,
           (SELECT a.attname::text FROM pg_index i
              JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
             WHERE i.indrelid = c.oid AND i.indisprimary)
      FROM pg_class c
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  ORDER BY 1";

const UNIQUE_INDEXES: &str = "
    SELECT c.relname::text, x.relname::text,
           EXISTS (SELECT FROM pg_attribute a
                    WHERE a.attrelid = c.oid AND a.attname = 'account_id' AND a.attnum = ANY (i.indkey::int2[]))
      FROM pg_index i
      JOIN pg_class c ON c.oid = i.indrelid
      JOIN pg_class x ON x.oid = i.indexrelid
     WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition AND i.indisunique";

const FOREIGN_KEYS: &str = "
    SELECT c.conrelid::regclass::text, c.conname::text,
           EXISTS (SELECT FROM pg_attribute a
                    WHERE a.attrelid = c.conrelid AND a.attname = 'account_id' AND a.attnum = ANY (c.conkey))
      FROM pg_constraint c
     WHERE c.contype = 'f' AND c.connamespace = 'public'::regnamespace";

#[tokio::test]
async fn every_table_of_an_account_leads_its_primary_key_with_it() {
    let app = TestApp::start().await;
    let rows = app.sql().await.query(TABLES, &[]).await.unwrap();
    assert!(rows.len() > INSTALLATION.len(), "the catalogue was read");
    let tables: Vec<(String, Option<String>)> = rows.iter().map(|r| (r.get(0), r.get(1))).collect();
    for known in INSTALLATION {
        assert!(
            tables.iter().any(|(name, _)| name == known),
            "{known} is listed, yet no table"
        );
    }
    let bad: Vec<_> = tables
        .iter()
        .filter(|(name, _)| !INSTALLATION.contains(&name.as_str()))
        .filter(|(_, first)| first.as_deref() != Some("account_id"))
        .collect();
    assert!(
        bad.is_empty(),
        "a primary key must lead with account_id: {bad:?}"
    );
    app.finish().await;
}

#[tokio::test]
async fn every_unique_index_and_foreign_key_stays_inside_an_account() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    for query in [UNIQUE_INDEXES, FOREIGN_KEYS] {
        let rows = client.query(query, &[]).await.unwrap();
        let bad: Vec<(String, String)> = rows
            .iter()
            .map(|r| {
                (
                    r.get::<_, String>(0),
                    r.get::<_, String>(1),
                    r.get::<_, bool>(2),
                )
            })
            .filter(|(table, _, inside)| !inside && !INSTALLATION.contains(&table.as_str()))
            .map(|(table, name, _)| (table, name))
            .collect();
        assert!(bad.is_empty(), "account_id is missing in {bad:?}");
    }
    drop(client);
    app.finish().await;
}
