//! The doors of the executor plane (`executor.md` §1).

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::operation::{Operation, Plane};
use super::refused::Every as _;
use super::schema::{Component, flag, integer, list, nullable, object, of, says, text, with};
use crate::commands::upload;
use crate::domain::announcement;
use crate::domain::idempotency::KEY_BYTES;
use crate::domain::{operation, progress, refusal};
use crate::http::executor::limits::{CLAIMS, LAST_POSITION, PAGE, TRACE_PAGE, WAIT_MS};

macro_rules! row {
    ($rest:literal) => {
        concat!("/agent_api/v1/executor/inbox/{run}/{task}", $rest)
    };
}

fn door(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    about: &'static str,
) -> Operation {
    Operation::new(Plane::Executor, method, path, id, about)
}

fn key_bytes() -> u32 {
    u32::try_from(KEY_BYTES).unwrap_or(u32::MAX)
}

fn wait() -> serde_json::Value {
    with(integer(0, WAIT_MS), "default", 0)
}

fn inbox() -> Vec<Operation> {
    let rows = object([
        ("tasks", list(of("InboxRow"))),
        ("pagination", of("Pagination")),
    ]);
    let batch = object([
        ("limit?", nullable(with(integer(1, CLAIMS), "default", 1))),
        ("wait_ms?", nullable(wait())),
    ]);
    let extension = object([
        ("claim_token", text()),
        ("timeout_ms", json!({"type": "integer", "minimum": 1})),
    ]);
    let example = json!({"claim_token": "…", "timeout_ms": 60_000});
    let claim = object([("claim", of("Claim"))]);
    let commit = json!({"claim_token": "…", "outcome": "completed",
        "content": [{"type": "text", "text": "done"}]});
    let entry = with(
        with(
            commit.clone(),
            "run_public_id",
            "0199c0de-0000-7000-8000-000000000001",
        ),
        "task_key",
        "unit",
    );
    vec![
        door(
            "get",
            "/agent_api/v1/executor/inbox",
            "listInbox",
            "The open work that is addressed here",
        )
        .after()
        .query(
            "limit",
            with(integer(1, PAGE.0), "default", PAGE.1),
            "The most rows of a page.",
        )
        .query("wait_ms", wait(), "How long an empty page waits for work.")
        .answers(200, "A page, oldest first.", rows),
        door(
            "post",
            "/agent_api/v1/executor/inbox/claims",
            "claimMany",
            "Takes several rows at once",
        )
        .key(key_bytes())
        .json(batch, false, json!({"limit": 8}))
        .answers(
            200,
            "What was taken; perhaps nothing.",
            object([("claims", list(of("ClaimGrant")))]),
        ),
        door("post", row!("/claim"), "claimTask", "Takes a row")
            .key(key_bytes())
            .no_members()
            .answers(200, "Taken.", of("ClaimGrant"))
            .refuses::<refusal::Claim>(),
        door("get", row!("/claim"), "readClaim", "Whether a claim stands")
            .claim_token()
            .answers(
                200,
                "Whether it does.",
                object([("claim", object([("active", flag())]))]),
            )
            .refuses::<refusal::ReadClaim>(),
        door(
            "post",
            row!("/extend"),
            "extendClaim",
            "Moves the deadline of a claim",
        )
        .json(extension, true, example)
        .answers(200, "Moved.", claim)
        .refuses_by(&[(422, "invalid_timeout_ms")])
        .refuses::<refusal::Extend>(),
        door(
            "post",
            row!("/commit"),
            "commitTask",
            "States the final result",
        )
        .json(of("Commit"), true, commit)
        .answers_one(
            200,
            "Settled, now or before with the same result.",
            "task",
            "Task",
        )
        .refuses::<refusal::Commit>(),
        door(
            "post",
            "/agent_api/v1/executor/inbox/commits",
            "commitMany",
            "States several final results at once",
        )
        .json(of("Commits"), true, json!({"commits": [entry]}))
        .answers(
            200,
            "What each came to, in the order of the entries.",
            object([("results", list(of("CommitResult")))]),
        )
        .refuses_by(&[(400, "parameter_missing")]),
    ]
}

fn files() -> Vec<Operation> {
    let part = json!({"type": "object", "required": ["upload[file]"],
        "properties": {"upload[file]": {"type": "string", "contentMediaType": "application/octet-stream"}}});
    let bytes = json!({"application/octet-stream": {}, "*/*": {}});
    let file = ["ETag", "Accept-Ranges", "Content-Disposition"];
    let part_of_file = [
        "ETag",
        "Accept-Ranges",
        "Content-Disposition",
        "Content-Range",
    ];
    vec![
        door(
            "post",
            "/agent_api/v1/executor/uploads",
            "stageUpload",
            "Stages a file",
        )
        .body(json!({"multipart/form-data": {"schema": part}}), true)
        .answers_one(201, "Staged.", "upload", "Upload")
        .refuses_by(&[(400, "parameter_missing"), (400, "parameter_invalid")])
        .refuses::<upload::Refusal>(),
        door(
            "get",
            row!("/attachments/{upload}"),
            "readAttachment",
            "A file that is bound to the run",
        )
        .claim_token()
        .answers_one(200, "The file.", "upload", "Upload")
        .refuses::<refusal::ReadClaim>(),
        door(
            "get",
            row!("/attachments/{upload}/bytes"),
            "readAttachmentBytes",
            "Its bytes, all or one range",
        )
        .claim_token()
        .header("Range", text(), "One range of bytes.")
        .header("If-Range", text(), "Only while the bytes have this `ETag`.")
        .answers_with(200, "All bytes.", bytes.clone(), &file)
        .answers_with(206, "A range of them.", bytes, &part_of_file)
        .refuses_by(&[(416, "range_not_satisfiable")])
        .refuses::<refusal::ReadClaim>(),
    ]
}

/// A claimed call's operations (`operations.md`).
fn child_work() -> Vec<Operation> {
    let event = json!({"type": "object", "required": ["type", "position", "key"], "properties": {
        "type": {"enum": ["operation", "observation"]}, "position": integer(1, LAST_POSITION), "key": text(),
        "request": {"type": "object"}, "receipt": {"type": "object"}, "refusal": {"type": "object"},
        "outcome": {"type": "object"}}});
    let position = integer(0, LAST_POSITION);
    let trace = object([
        ("context", json!({"type": "object"})),
        ("trace", list(event.clone())),
        ("position", position.clone()),
        ("next_after", nullable(position.clone())),
    ]);
    let operation = object([
        ("key", text()),
        ("request", json!({"type": "object", "required": ["kind"]})),
    ]);
    let accept = object([("claim_token", text()), ("operation", operation)]);
    let observe = object([
        ("claim_token", text()),
        ("after", position.clone()),
        ("wait_ms?", nullable(wait())),
    ]);
    let example = json!({"claim_token": "…", "operation": {"key": "op_0",
        "request": {"kind": "tool", "name": "read_file", "input": {"path": "README.md"}}}});
    let answer = object([("operation", event.clone())]);
    let missing = [(400, "parameter_missing"), (400, "parameter_invalid")];
    vec![
        door(
            "get",
            row!("/operations"),
            "readTrace",
            "What a claimed call accepted and observed, in order",
        )
        .claim_token()
        .query(
            "after",
            position.clone(),
            "The position behind which the page begins.",
        )
        .query(
            "limit",
            with(integer(1, TRACE_PAGE.0), "default", TRACE_PAGE.1),
            "The most events of a page.",
        )
        .answers(200, "A page.", object([("operations", trace)]))
        .refuses::<refusal::Trace>(),
        door(
            "post",
            row!("/operations"),
            "acceptOperation",
            "Starts, changes or joins child work of a claimed call",
        )
        .json(accept, true, example)
        .answers(
            201,
            "Recorded: carried out, or refused inside.",
            answer.clone(),
        )
        .answers(200, "Recorded before, under the same key.", answer)
        .refuses_by(&missing)
        .refuses::<operation::Malformed>()
        .refuses::<refusal::Accept>(),
        door(
            "post",
            row!("/observation"),
            "observeOperation",
            "The next outcome of a claimed call's work",
        )
        .json(observe, true, json!({"claim_token": "…", "after": 1}))
        .answers(
            200,
            "The outcome, or none yet.",
            object([("observation", nullable(event)), ("position", position)]),
        )
        .refuses_by(&missing)
        .refuses::<refusal::Observe>(),
    ]
}

/// What one entry of a batch of commits came to: what its own commit would answer, beside the status.
fn commit_result() -> Json {
    let settled = object([("status", json!({"const": 200})), ("task", of("Task"))]);
    let surrounding = [
        (400, "parameter_missing"),
        (400, "parameter_invalid"),
        (500, "internal_error"),
        (503, "unavailable"),
    ];
    let all = [refusal::Commit::every(), surrounding.to_vec()].concat();
    let statuses: BTreeSet<u16> = all.iter().map(|(status, _)| *status).collect();
    let codes: BTreeSet<&str> = all.iter().map(|(_, code)| *code).collect();
    let code = json!({"properties": {"code": {"enum": codes}}});
    let refused = object([
        ("status", json!({"enum": statuses})),
        ("error", json!({"allOf": [of("ErrorBody"), code]})),
    ]);
    json!({"anyOf": [settled, refused]})
}

/// The shapes of this plane's answers that no other shows.
pub(super) fn components() -> Vec<Component> {
    vec![(
        "CommitResult",
        says(
            commit_result(),
            "What one entry of a batch of commits came to.",
        ),
    )]
}

pub(super) fn operations() -> Vec<Operation> {
    let profile = json!({"kind": "read_only", "destructive": false, "effect_scope": "closed",
        "idempotency": "intrinsic", "reconciliation": "none"});
    let announcement = json!({"tools": [{"name": "read_file", "effect_profile": profile,
        "timeout_ms": 30_000, "description": "Read one file"}]});
    let frame = json!({"frame": {"run_public_id": "0199c0de-0000-7000-8000-000000000001",
        "task_key": "unit", "claim_token": "…", "text_tail": "42 of 100"}});
    let own = vec![
        door(
            "get",
            "/agent_api/v1/executor",
            "readExecutor",
            "Which delivery address this credential is",
        )
        .answers(200, "The address.", of("Bootstrap")),
        door(
            "put",
            "/agent_api/v1/executor/announcement",
            "announce",
            "Replaces everything this address serves",
        )
        .json(of("Announcement"), true, announcement)
        .answers(200, "Replaced.", of("Bootstrap"))
        .refuses::<announcement::Refused>(),
        door(
            "post",
            "/agent_api/v1/executor/progress",
            "reportProgress",
            "A frame of progress, never stored",
        )
        .json(of("ProgressFrame"), true, frame)
        .answers_empty(202, "Broadcast or dropped.")
        .refuses_by(&[(400, "parameter_missing")])
        .refuses_by(&[(404, "not_found")])
        .refuses::<progress::Refusal>()
        .refuses::<refusal::ReadClaim>(),
    ];
    [own, inbox(), child_work(), files()].concat()
}
