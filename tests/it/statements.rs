//! Every statement of the store is listed, and prepares on a migrated database with the parameter
//! types it writes down.

use std::collections::BTreeSet;

use nexus::store::{self, Sql};
use tokio_postgres::types::Type;

use crate::support::{TestApp, source};

/// The lists of `src/store`, by file.
fn lists() -> Vec<(&'static str, &'static [&'static Sql])> {
    vec![
        ("mod", store::STATEMENTS),
        ("accounts", store::accounts::STATEMENTS),
        ("apply::statements", store::apply::statements::STATEMENTS),
        ("births", store::births::STATEMENTS),
        ("credentials", store::credentials::STATEMENTS),
        ("due", store::due::STATEMENTS),
        ("executors", store::executors::STATEMENTS),
        ("feeds", store::feeds::STATEMENTS),
        ("grants", store::grants::STATEMENTS),
        ("inbox::batch", store::inbox::batch::STATEMENTS),
        ("inbox::list", store::inbox::list::STATEMENTS),
        ("inbox::proof", store::inbox::proof::STATEMENTS),
        ("inbox::single", store::inbox::single::STATEMENTS),
        ("leases", store::leases::STATEMENTS),
        ("leaving", store::leaving::STATEMENTS),
        ("members", store::members::STATEMENTS),
        ("presence", store::presence::STATEMENTS),
        ("operations", store::operations::STATEMENTS),
        ("reads", store::reads::STATEMENTS),
        ("replicas", store::replicas::STATEMENTS),
        ("retention", store::retention::STATEMENTS),
        ("run_tx::statements", store::run_tx::statements::STATEMENTS),
        ("runs", store::runs::STATEMENTS),
        ("served_tools", store::served_tools::STATEMENTS),
        ("test_clock", store::test_clock::STATEMENTS),
        ("shell", store::shell::STATEMENTS),
        ("tokens", store::tokens::STATEMENTS),
        ("tombstones", store::tombstones::STATEMENTS),
        ("uploads", store::uploads::STATEMENTS),
        ("views", store::views::STATEMENTS),
        ("workspaces", store::workspaces::STATEMENTS),
    ]
}

/// `src/store/runs/mod.rs` is `runs`, `src/store/runs/load.rs` is `runs::load`.
fn name_of(path: &str) -> String {
    let path = path
        .trim_start_matches("src/store/")
        .trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.replace('/', "::")
}

#[test]
fn every_file_of_the_store_lists_its_statements_here() {
    let listed: BTreeSet<&str> = lists().into_iter().map(|(name, _)| name).collect();
    for file in source::module("store") {
        let name = name_of(&file.path);
        let has_statements =
            file.code.contains(": Sql = Sql::new(") || file.code.contains("STATEMENTS");
        if has_statements {
            assert!(
                listed.contains(name.as_str()),
                "{name} is missing in lists()"
            );
        }
    }
}

#[test]
fn every_statement_is_in_the_list_of_its_file() {
    for file in source::module("store") {
        let Some((_, list)) = file.code.split_once("static STATEMENTS") else {
            continue;
        };
        let list = list.split(';').next().unwrap_or_default();
        for declaration in file.code.split("static ").skip(1) {
            let Some((name, kind)) = declaration.split_once(':') else {
                continue;
            };
            let is_statement =
                kind.trim_start().starts_with("Sql") || kind.trim_start().starts_with("[Sql");
            if is_statement {
                assert!(
                    list.contains(&format!("&{name}")),
                    "{}: {name} is not listed",
                    file.path
                );
            }
        }
    }
}

#[tokio::test]
async fn every_statement_prepares_with_its_types_and_has_a_name_of_its_own() {
    let app = TestApp::start().await;
    let client = app.sql().await;
    let mut seen = BTreeSet::new();
    for (file, list) in lists() {
        assert!(!list.is_empty(), "{file} lists nothing");
        for sql in list {
            assert!(
                seen.insert(sql.name),
                "{} is the name of two statements",
                sql.name
            );
            let prepared = client
                .prepare_typed(sql.text, sql.types)
                .await
                .unwrap_or_else(|e| panic!("{} does not prepare: {e:?}", sql.name));
            let params: &[Type] = prepared.params();
            assert_eq!(params, sql.types, "{}: the parameter types", sql.name);
        }
    }
    drop(client);
    app.finish().await;
}
