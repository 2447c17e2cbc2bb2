//! Doors without a bearer, and the socket.

use serde_json::json;

use super::operation::{Operation, Plane};
use super::schema::{id, object, text, words};

pub(super) fn operations() -> Vec<Operation> {
    let bus = words(["in_process", "ok", "degraded"]);
    let database = words(["ok", "schema_outdated", "unavailable"]);
    let readiness = object([
        ("status", words(["ready", "draining", "not_ready"])),
        ("database", database),
        ("redis", bus),
        ("replica_id", id()),
        ("test_clock?", text()),
    ]);
    let open = |plane, path, id, about| Operation::new(plane, "get", path, id, about);
    vec![
        open(
            Plane::Health,
            "/livez",
            "livez",
            "Whether the event loop answers",
        )
        .answers(
            200,
            "It does.",
            object([("status", words(["ok"])), ("replica_id", id())]),
        ),
        open(
            Plane::Health,
            "/readyz",
            "readyz",
            "Whether this replica may be sent requests",
        )
        .answers(200, "It may.", readiness.clone())
        .unready(readiness),
        open(Plane::Public, super::PATH, "openapi", "This document").answers(
            200,
            "OpenAPI 3.1.",
            json!({"type": "object"}),
        ),
        open(
            Plane::Either,
            "/agent_api/v1/cable",
            "cable",
            "The socket: Action Cable over WebSocket",
        )
        .answers_empty(
            101,
            "The socket is open. A bearer that proves nobody is told by a `disconnect` frame.",
        )
        .refuses_by(&[(426, "upgrade_required"), (503, "draining")]),
    ]
}
