//! The OpenAPI 3.1 document of all doors: served at `/openapi.json` and printed by `nexus openapi`
//! (`operating.md` §2).
//!
//! A door is an [`Operation`] in the table of its plane; what it refuses comes from the refusals of
//! its command ([`refused`]), so that a new refusal is in the document before it can be answered.
//! `tests/it/openapi.rs` holds the table against the routes, and the harness holds every answer of
//! every test against the document.
//!
//! Knows shapes, statuses and words. Does not know: handlers, tables, how anything is decided.

mod executor;
mod member;
mod operation;
mod operator;
mod public;
mod refused;
mod requests;
mod schema;
mod views;

use std::sync::LazyLock;

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::{Map, Value as Json, json};

use self::operation::Operation;
use crate::app::App;

/// Where the document is served.
const PATH: &str = "/openapi.json";

/// What a reader must know of all doors.
const ABOUT: &str = "Durable task graphs, executed by runner fleets.\n\n\
    Clients branch on the status, then on `error.code`. They tolerate codes, words and members that \
    they do not know: the lists below are those of this version. Lists are paged by opaque cursors; \
    times are UTC in whole seconds; ids are UUIDs. An `Idempotency-Key` makes a repeat harmless \
    where a door takes one.";

/// Its route.
pub fn routes() -> Router<App> {
    Router::new().route("/openapi.json", get(serve))
}

async fn serve() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text()).into_response()
}

/// The document, the same bytes at every call: members are sorted by name.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut text = serde_json::to_string(&document()).unwrap_or_default();
        text.push('\n');
        text
    });
    &TEXT
}

fn operations() -> Vec<Operation> {
    [
        public::operations(),
        member::operations(),
        executor::operations(),
        operator::operations(),
    ]
    .concat()
}

fn document() -> Json {
    let mut paths: Map<String, Json> = Map::new();
    for operation in operations() {
        let path = paths
            .entry(operation.path)
            .or_insert_with(|| json!({"parameters": operation::path_parameters(operation.path)}));
        path[operation.method] = operation.document();
    }
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Nexus",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "The server-side kernel on which agent applications run their work",
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "contact": {"name": "The operators of this deployment"},
        },
        "servers": [{"url": "/", "description": "This replica; any serves any request"}],
        "tags": operation::tags(),
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "responses": operation::shared_answers(),
            "headers": operation::headers(),
            "securitySchemes": operation::security_schemes(),
        },
    })
}

fn schemas() -> Map<String, Json> {
    schema::components()
        .into_iter()
        .chain(views::components())
        .chain(executor::components())
        .chain(requests::components())
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}
