//! What doors answer: the shapes of views. The harness of the tests holds every answer against
//! these, member by member.

use serde_json::{Value as Json, json};

use super::schema::{
    Component, any, count, flag, id, list, merged, nullable, object, of, opaque, says, text, time,
    with, words,
};
use crate::domain::words::{
    Access, ApprovalMode, ApprovalOrigin, AssignmentScope, AttentionReason, ExecutorKind,
    ExecutorStatus, FailureResolution, Lifetime, Losers, MemberKind, OnFailure, ParkKind, Plane,
    Presence, Role, RunStatus, Standing, TaskKind, TaskStatus, Visibility, Wake,
};

macro_rules! all {
    ($name:ident) => {
        words($name::ALL.iter().map(|word| word.as_str()))
    };
}

fn shown() -> Json {
    words(TaskStatus::ALL.iter().map(|status| status.shown()))
}

fn key() -> Json {
    of("TaskKey")
}

/// A task's error, in reads.
fn error() -> Json {
    object([("key", text()), ("detail?", text())])
}

fn bytes() -> Json {
    count()
}

/// A row of the trace.
fn task() -> Json {
    object([
        ("key", key()),
        ("kind", all!(TaskKind)),
        ("lifetime", all!(Lifetime)),
        ("wake", all!(Wake)),
        ("status", shown()),
        ("on_failure", all!(OnFailure)),
        ("visibility", all!(Visibility)),
        ("after?", list(key())),
        ("waiting_on?", list(key())),
        ("failure_resolution?", all!(FailureResolution)),
        ("model?", opaque()),
        ("tool_name?", text()),
        ("tool_alias?", text()),
        ("result?", opaque()),
        ("error?", error()),
        ("target?", of("ExecutorRef")),
        ("addressed_to?", of("AddressedTo")),
        ("claimed_by?", of("ExecutorRef")),
        ("approval?", of("Approval")),
        ("is_error?", flag()),
        ("started_at?", time()),
        ("completed_at?", time()),
        ("deadline_at?", time()),
    ])
}

/// What only the single read shows.
fn bodies() -> Json {
    object([
        ("prompt?", any()),
        ("options?", list(text())),
        ("multi?", flag()),
        ("instructions?", text()),
        ("tool_definitions?", list(opaque())),
        ("wait?", opaque()),
        ("tool_input?", opaque()),
        ("output?", text()),
        ("output_preview?", text()),
        ("content?", list(opaque())),
        ("structured_content?", any()),
        ("title?", text()),
        ("metadata?", opaque()),
    ])
}

fn inbox_row() -> Json {
    let scope = object([
        ("workspace_public_id", id()),
        ("conversation_public_id", nullable(id())),
        ("user_public_id", id()),
    ]);
    object([
        ("kind", all!(ParkKind)),
        ("run_public_id", id()),
        ("workspace_public_id", id()),
        ("conversation_public_id", nullable(id())),
        ("parent_public_id", nullable(id())),
        ("task_key", key()),
        ("tool_name?", text()),
        ("tool_alias?", text()),
        ("tool_input?", opaque()),
        ("tool_call_id?", text()),
        ("target?", of("ExecutorRef")),
        ("scope?", scope),
        ("prompt?", text()),
        ("options?", list(text())),
        ("multi?", flag()),
        ("effect_profile?", of("EffectProfile")),
        ("started_at?", time()),
        ("deadline_at", time()),
        ("timeout_ms", count()),
        ("claimed", flag()),
        ("addressed_to", of("AddressedTo")),
    ])
}

fn attention() -> Json {
    object([
        ("reason", all!(AttentionReason)),
        ("blocked_task_keys?", with(list(key()), "maxItems", 32)),
        ("blocked_task_overflow?", count()),
    ])
}

fn run() -> Json {
    let statuses = TaskStatus::ALL.iter().map(|status| status.shown());
    let progress = words(["total"].into_iter().chain(statuses));
    let counts =
        json!({"type": "object", "propertyNames": progress, "additionalProperties": count()});
    let effects = object([
        ("status", text()),
        ("runners", list(of("ExecutorRef"))),
        ("reason?", text()),
    ]);
    let turn = words(["pending", "running", "failed", "completed", "canceled"]);
    object([
        ("public_id", id()),
        ("status", all!(RunStatus)),
        ("created_at", time()),
        ("started_at?", time()),
        ("paused_at?", time()),
        ("completed_at?", time()),
        ("failure_reason?", text()),
        ("deliverable_task_key", nullable(key())),
        ("approval_mode", all!(ApprovalMode)),
        ("prompt_mechanism", nullable(text())),
        ("default_runner", nullable(of("ExecutorRef"))),
        ("runner_effects", effects),
        (
            "input_queue",
            object([("limit", count()), ("held", count())]),
        ),
        ("attention?", attention()),
        ("task_progress", counts),
        ("tasks", list(of("Task"))),
        (
            "turn",
            object([("status", turn), ("failure_reason_key?", text())]),
        ),
    ])
}

fn run_listed() -> Json {
    object([
        ("public_id", id()),
        ("status", all!(RunStatus)),
        ("failure_reason?", text()),
        ("attention?", object([("reason", all!(AttentionReason))])),
        ("created_at", time()),
    ])
}

fn receipt() -> Json {
    let tokens = json!({"type": "object", "additionalProperties": text()});
    let steps = says(
        list(any()),
        "The steps by key: a key, a group of `parallel`, a sequence.",
    );
    object([
        ("accepted_task_keys", list(key())),
        ("steps", steps),
        ("deliverable_task_key", nullable(key())),
        ("revision", count()),
        ("resolution_tokens", tokens),
    ])
}

fn graph() -> Json {
    let until = json!({"anyOf": [words(["any", "all"]), {"type": "integer", "minimum": 1}]});
    let node = object([
        ("key", key()),
        ("kind", all!(TaskKind)),
        ("lifetime", all!(Lifetime)),
        ("wake", all!(Wake)),
        ("status", shown()),
        ("visibility", all!(Visibility)),
        ("deliverable", flag()),
        ("mainline?", flag()),
        ("error_key?", text()),
        (
            "join?",
            object([("until", until), ("losers", all!(Losers))]),
        ),
        ("input_from", list(key())),
        ("result_from", list(key())),
        ("expansion_parent?", key()),
    ]);
    let edge = object([("from", key()), ("to", key()), ("structural", flag())]);
    object([
        ("nodes", list(node)),
        ("edges", list(edge)),
        ("mermaid", text()),
    ])
}

fn phases() -> Json {
    let status = words([
        "completed",
        "waiting",
        "running",
        "awaiting_human",
        "needs_approval",
        "failed",
    ]);
    let phase = object([
        ("label", text()),
        ("keys", list(key())),
        ("done", count()),
        ("total", count()),
        ("status", status),
    ]);
    let background = object([
        ("key", key()),
        ("status", shown()),
        ("result_delivered_at?", time()),
    ]);
    let spend = object([
        ("input_tokens", count()),
        ("output_tokens", count()),
        ("cache_read_tokens", count()),
        ("cache_hit_rate", nullable(text())),
        ("cost_amount", nullable(text())),
        ("cost_unit", nullable(text())),
        ("by_model", list(opaque())),
    ]);
    object([
        ("phases", list(phase)),
        ("current", nullable(count())),
        ("background", list(background)),
        ("spend", spend),
    ])
}

fn transcript() -> Json {
    let call = object([
        ("task_key", key()),
        ("tool_call_id?", text()),
        ("name", text()),
        ("tool?", text()),
        ("status", shown()),
        ("is_error?", flag()),
        ("title?", text()),
        ("metadata?", opaque()),
        ("output_preview?", text()),
        ("output_bytes?", bytes()),
        ("started_at?", time()),
        ("completed_at?", time()),
    ]);
    let round = object([
        ("task_key", key()),
        ("mainline", flag()),
        ("status", shown()),
        ("visibility", all!(Visibility)),
        ("text_preview?", text()),
        ("text_bytes?", bytes()),
        ("error?", error()),
        ("started_at?", time()),
        ("completed_at?", time()),
        (
            "calls",
            object([
                ("count", count()),
                ("items", with(list(call), "maxItems", 24)),
            ]),
        ),
        ("branches", list(key())),
    ]);
    let older = object([
        ("next_before", nullable(of("Cursor"))),
        ("has_older", flag()),
    ]);
    object([("rounds", list(round)), ("pagination", older)])
}

fn events() -> Json {
    let event = object([
        ("sequence", count()),
        ("cursor", of("Cursor")),
        ("type", text()),
        ("payload", opaque()),
        (
            "resource",
            object([("type", words(["run"])), ("public_id", id())]),
        ),
        ("created_at", time()),
    ]);
    let place = object([
        ("next_after", nullable(of("Cursor"))),
        ("watermark", count()),
    ]);
    object([("events", list(event)), ("pagination", place)])
}

/// An executor as it sees itself.
fn bootstrap() -> Json {
    let executor = object([
        ("public_id", id()),
        ("kind", all!(ExecutorKind)),
        ("status", all!(ExecutorStatus)),
        ("display_name", text()),
        ("credential_epoch", count()),
        ("presence", all!(Presence)),
        ("last_seen_at", nullable(time())),
        ("connected_at", nullable(time())),
    ]);
    object([("executor", executor), ("measured_at", time())])
}

/// A machine as members find it.
fn machine() -> Json {
    let tool = object([
        ("name", text()),
        ("effect_profile", of("EffectProfile")),
        ("timeout_ms?", count()),
        ("description?", text()),
        ("input_schema?", opaque()),
    ]);
    object([
        ("public_id", id()),
        ("kind", all!(ExecutorKind)),
        ("display_name", text()),
        ("assignment_scope", nullable(all!(AssignmentScope))),
        ("served_tools", list(tool)),
        ("environment", opaque()),
        (
            "served_documents",
            list(object([("name", text()), ("description", text())])),
        ),
        ("presence", all!(Presence)),
        ("last_seen_at", nullable(time())),
        ("connected_at", nullable(time())),
    ])
}

/// An executor as operators see it.
fn executor() -> Json {
    object([
        ("public_id", id()),
        ("account_public_id", id()),
        ("kind", all!(ExecutorKind)),
        ("status", all!(ExecutorStatus)),
        ("display_name", text()),
        ("credential_epoch", count()),
        ("manager_public_id", nullable(id())),
        ("agent_public_id", nullable(id())),
        ("registration_identifier", nullable(text())),
        ("assignment_scope", nullable(all!(AssignmentScope))),
        ("shutdown_at", nullable(time())),
        ("shutdown_generation", nullable(count())),
        ("revoked_at", nullable(time())),
        ("announced_at", nullable(time())),
        ("presence", all!(Presence)),
        ("last_seen_at", nullable(time())),
        ("connected_at", nullable(time())),
        ("created_at", time()),
    ])
}

fn provisioned() -> Vec<Component> {
    let account = object([
        ("public_id", id()),
        ("name", text()),
        ("status", all!(Standing)),
        ("created_at", time()),
    ]);
    let workspace = object([
        ("public_id", id()),
        ("account_public_id", id()),
        ("name", text()),
        ("archived_at", nullable(time())),
        ("created_at", time()),
    ]);
    let readable = object([
        ("public_id", id()),
        ("name", text()),
        ("access", all!(Access)),
        ("archived_at", nullable(time())),
        ("created_at", time()),
    ]);
    let grant = object([
        ("workspace_public_id", id()),
        ("member_public_id", id()),
        ("access", all!(Access)),
        ("created_at", time()),
    ]);
    let member = object([
        ("public_id", id()),
        ("account_public_id", id()),
        ("kind", all!(MemberKind)),
        ("handle", text()),
        ("display_name", nullable(text())),
        ("controlling_human_public_id", nullable(id())),
        ("status", all!(Standing)),
        ("credential_epoch", count()),
        ("created_at", time()),
    ]);
    let token = object([
        ("lookup", text()),
        ("account_public_id", id()),
        ("plane", all!(Plane)),
        ("owner_public_id", id()),
        ("credential_epoch", count()),
        ("current", flag()),
        ("expires_at", nullable(time())),
        ("revoked_at", nullable(time())),
        ("last_used_at", nullable(time())),
        ("created_at", time()),
    ]);
    let replica = object([
        ("id", id()),
        ("version", text()),
        ("roles", list(text())),
        ("heartbeat_at", time()),
        ("draining", flag()),
    ]);
    let lease = object([
        ("name", text()),
        ("holder", id()),
        ("token", count()),
        ("expires_at", time()),
    ]);
    let lag = json!({"type": "number", "minimum": 0});
    let sweep = object([
        ("name", text()),
        ("last_run_at", time()),
        ("rows", count()),
        ("lag_seconds", lag),
    ]);
    vec![
        ("Account", account),
        ("Workspace", workspace),
        (
            "ReadableWorkspace",
            says(readable, "A workspace, and what the caller may do there."),
        ),
        ("Grant", says(grant, "What a member may do in a workspace.")),
        ("Member", member),
        (
            "Executor",
            says(executor(), "A delivery address, as operators see it."),
        ),
        ("Token", says(token, "A bearer, by its look-up part.")),
        ("Replica", replica),
        ("Lease", says(lease, "Who leads what.")),
        ("Sweep", says(sweep, "What a sweep did last.")),
    ]
}

/// The shapes of answers.
pub fn components() -> Vec<Component> {
    let reference = object([("executor_public_id", id()), ("display_name?", text())]);
    let addressed = object([("role", all!(Role)), ("executor_public_id?", id())]);
    let approval = object([
        ("origin", all!(ApprovalOrigin)),
        ("decided_by?", id()),
        ("decided_at", time()),
    ]);
    let claim = object([("claim_token", text()), ("deadline_at", time())]);
    let grant = object([("task", of("InboxRow")), ("claim", of("Claim"))]);
    let upload = object([
        ("public_id", id()),
        ("filename", text()),
        ("content_type", text()),
        ("byte_size", bytes()),
        ("created_at", time()),
    ]);
    let mut shapes = vec![
        ("ExecutorRef", reference),
        (
            "AddressedTo",
            says(addressed, "Whom a started row is for; a pool has no id."),
        ),
        ("Approval", approval),
        ("Task", says(task(), "A row of the trace.")),
        (
            "TaskDetail",
            says(merged(task(), &bodies()), "A task with its bodies."),
        ),
        (
            "InboxRow",
            says(inbox_row(), "Work, as its addressee sees it."),
        ),
        ("Claim", claim),
        (
            "ClaimGrant",
            says(grant, "What was taken, and the proof of it."),
        ),
        ("Run", run()),
        ("RunListed", says(run_listed(), "A run, as lists show it.")),
        ("Receipt", says(receipt(), "What was accepted, by key.")),
        ("Graph", graph()),
        ("Phases", phases()),
        ("Transcript", transcript()),
        ("Events", events()),
        (
            "Bootstrap",
            says(bootstrap(), "Which delivery address a credential is."),
        ),
        (
            "Machine",
            says(
                machine(),
                "A runner or tool provider that work may be routed to.",
            ),
        ),
        ("Upload", upload),
    ];
    shapes.extend(provisioned());
    shapes
}
