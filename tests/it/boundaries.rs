//! The layers of the program keep to themselves: SQL lives in `store`, decisions do no I/O, and
//! each module uses what the map allows it (`docs/architecture.md`).

use std::collections::BTreeSet;

use crate::support::source::{self, SourceFile};

/// Module, the modules it may use, the outside crates it must not name.
const MAP: &[(&str, &[&str], &[&str])] = &[
    (
        "domain",
        &[],
        &[
            "axum",
            "tokio",
            "tokio_postgres",
            "deadpool_postgres",
            "redis",
            "reqwest",
        ],
    ),
    (
        "engine",
        &["domain"],
        &[
            "axum",
            "tokio",
            "tokio_postgres",
            "deadpool_postgres",
            "redis",
            "reqwest",
        ],
    ),
    (
        "store",
        &["domain", "engine", "config"],
        &["axum", "redis", "reqwest"],
    ),
    (
        "bus",
        &["domain", "config"],
        &["axum", "tokio_postgres", "deadpool_postgres", "reqwest"],
    ),
    (
        "admission",
        &["domain", "store", "bus"],
        &["axum", "tokio_postgres", "redis"],
    ),
    (
        "commands",
        &[
            "domain",
            "engine",
            "store",
            "bus",
            "admission",
            "app",
            "config",
            "blobs",
        ],
        &["axum", "tokio_postgres", "redis"],
    ),
    (
        "blobs",
        &["domain", "store", "config"],
        &["axum", "tokio_postgres", "redis"],
    ),
    (
        "http",
        &["commands", "domain", "store", "bus", "blobs"],
        &["tokio_postgres", "redis"],
    ),
    (
        "cable",
        &["commands", "domain", "store", "bus"],
        &["tokio_postgres", "redis"],
    ),
    (
        "sweeper",
        &["commands", "domain", "store", "bus"],
        &["axum", "tokio_postgres", "redis"],
    ),
    ("client", &["domain"], &["axum", "tokio_postgres", "redis"]),
    (
        "runner",
        &["client", "domain"],
        &["axum", "tokio_postgres", "redis"],
    ),
    (
        "cli",
        &["client", "domain", "runner", "dev"],
        &["axum", "tokio_postgres", "redis"],
    ),
];

/// What every module above the store may use: how parts are wired, set up and observed.
const WIRING: &[&str] = &["app", "config", "telemetry"];

/// The places where the map is broken on purpose, with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("src/http/router.rs", "cable", "the one router of a replica"),
    (
        "src/http/operator/sweeper.rs",
        "sweeper",
        "`POST /sweeper/run` runs a pass",
    ),
    (
        "src/cable/handshake.rs",
        "http",
        "an upgrade is an HTTP request: its bearer and its refusals",
    ),
];

/// Whether `code` names `word` as a word of its own.
fn names(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// The modules that a file uses by `crate::…`, in groups too.
fn used(file: &SourceFile) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    for (at, found) in file.code.match_indices("crate::") {
        let rest = &file.code[at + found.len()..];
        let members = match rest.strip_prefix('{') {
            // `use crate::{a::B, c};` — the group ends with the statement.
            Some(group) => group
                .split(';')
                .next()
                .unwrap_or_default()
                .split(',')
                .collect(),
            None => vec![rest],
        };
        for member in members {
            // Chance has one source, whoever needs some.
            if member.starts_with("engine::mint") {
                continue;
            }
            let member = member.trim_start_matches(|c: char| !is_part(c));
            let name: String = member.chars().take_while(|c| is_part(*c)).collect();
            used.insert(name);
        }
    }
    used
}

/// Breaches of the map: file and module.
fn breaches() -> Vec<(&'static str, String)> {
    let modules: BTreeSet<&str> = source::files().iter().map(|f| f.module.as_str()).collect();
    let mut breaches = Vec::new();
    for (module, may_use, _) in MAP {
        let files = source::module(module);
        assert!(
            !files.is_empty(),
            "the map names {module}, which is not there"
        );
        let is_wired = !["domain", "engine", "store"].contains(module);
        for file in files {
            let allowed = |name: &str| {
                name == *module || may_use.contains(&name) || (is_wired && WIRING.contains(&name))
            };
            let strange = used(file)
                .into_iter()
                .filter(|name| modules.contains(name.as_str()) && !allowed(name));
            breaches.extend(strange.map(|name| (file.path.as_str(), name)));
        }
    }
    breaches
}

#[test]
fn each_module_uses_what_the_map_allows() {
    let found = breaches();
    let is_excepted = |(path, name): &&(&str, String)| {
        EXCEPTIONS
            .iter()
            .any(|(file, module, _)| file == path && module == name)
    };
    let unexpected: Vec<_> = found.iter().filter(|b| !is_excepted(b)).collect();
    assert!(
        unexpected.is_empty(),
        "files that use modules they must not: {unexpected:#?}"
    );
    for (file, module, _) in EXCEPTIONS {
        let is_needed = found
            .iter()
            .any(|(path, name)| path == file && name == module);
        assert!(
            is_needed,
            "{file} does not use {module}: take it off the exceptions"
        );
    }
}

#[test]
fn each_module_names_no_crate_that_is_not_its_business() {
    let mut breaches = Vec::new();
    for (module, _, must_not) in MAP {
        for file in source::module(module) {
            let named = must_not.iter().filter(|word| names(&file.code, word));
            breaches.extend(named.map(|word| format!("{} names {word}", file.path)));
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn decisions_do_no_io_and_read_no_clock() {
    let forbidden = [
        "async",
        "await",
        "Utc::now",
        "Local::now",
        "SystemTime",
        "Instant",
        "now_v7",
        "new_v4",
        "std::fs",
        "std::net",
        "std::env",
        "std::thread",
        "println",
    ];
    let files = source::module("engine");
    assert!(files.len() > 1, "the engine was read");
    let mut breaches = Vec::new();
    for file in files {
        let named = forbidden.iter().filter(|word| names(&file.code, word));
        breaches.extend(named.map(|word| format!("{} names {word}", file.path)));
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn sql_is_written_in_the_store_only() {
    let is_sql = |text: &String| {
        let text = text.trim_start();
        [
            "SELECT ",
            "INSERT INTO ",
            "UPDATE ",
            "DELETE FROM ",
            "WITH ",
        ]
        .iter()
        .any(|start| text.starts_with(start))
    };
    let (mut inside, mut breaches) = (0, Vec::new());
    for file in source::files() {
        let found = file.strings.iter().filter(|text| is_sql(text)).count();
        if file.module == "store" {
            inside += found;
        } else if found > 0 {
            breaches.push(format!("{} holds {found} statements", file.path));
        }
    }
    assert!(
        inside > 20,
        "the store's own statements are recognised: {inside}"
    );
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}
