//! What doors take: the shapes of bodies. Where a member that is not named here is ignored, the
//! object is open; where it is refused (steps, runs, the operator plane), it is closed.

use serde_json::{Value as Json, json};

use super::schema::{
    Component, any, closed, count, flag, id, integer, list, nullable, object, of, opaque, says,
    text, with, words,
};
use crate::domain::words::{ApprovalMode, Lifetime, Losers, OnFailure, Outcome, Visibility, Wake};
use crate::http::executor::limits::COMMITS;

macro_rules! all {
    ($name:ident) => {
        words($name::ALL.iter().map(|word| word.as_str()))
    };
}

/// Seven days.
const TIMEOUT_MS: i64 = 604_800_000;

fn key() -> Json {
    of("TaskKey")
}

fn timeout() -> Json {
    integer(1, TIMEOUT_MS)
}

fn bounded(schema: Json, min: usize, max: usize) -> Json {
    with(with(schema, "minItems", min), "maxItems", max)
}

/// A text that is not blank.
fn filled() -> Json {
    json!({"type": "string", "minLength": 1, "pattern": "\\S"})
}

/// The options of a leaf step: its own beside those that every leaf takes.
fn leaf<const N: usize>(own: [(&str, Json); N]) -> Json {
    let mut options = closed([
        ("key?", key()),
        ("detached?", flag()),
        ("lifetime?", all!(Lifetime)),
        ("wake?", all!(Wake)),
        ("on_failure?", all!(OnFailure)),
        ("visibility?", all!(Visibility)),
        ("after?", with(list(key()), "maxItems", 32)),
    ]);
    options["required"] = json!([]);
    super::schema::merged(options, &with_required(object(own)))
}

fn with_required(object: Json) -> Json {
    if object.get("required").is_some() {
        object
    } else {
        with(object, "required", json!([]))
    }
}

fn selector() -> Json {
    object([
        ("model", says(filled(), "`provider/ref`.")),
        ("reasoning_enabled?", flag()),
        ("reasoning_effort?", text()),
    ])
}

fn selection() -> Json {
    object([("mode", words(["auto", "fixed"]))])
}

fn tool_step() -> Json {
    let route = closed([
        ("kind", words(["runner"])),
        ("runner_executor_public_id?", id()),
    ]);
    leaf([
        (
            "name",
            json!({"type": "string", "minLength": 1, "maxLength": 128}),
        ),
        (
            "input?",
            says(opaque(), "At most 65,536 bytes of canonical JSON."),
        ),
        ("route?", route),
        ("timeout_ms?", timeout()),
        ("model_defaults?", opaque()),
    ])
}

fn model_step() -> Json {
    leaf([
        ("model", of("ModelSelector")),
        ("prompt", filled()),
        ("instructions?", text()),
        ("configuration?", opaque()),
        ("tools?", with(list(opaque()), "minItems", 1)),
        ("kernel_tools?", nullable(list(text()))),
        ("runner_executor_public_ids?", list(id())),
        ("runner_tool_names?", nullable(list(text()))),
        ("compaction?", opaque()),
        ("fan_on_failure?", words(["absorb", "propagate"])),
        ("attachments?", with(list(id()), "minItems", 1)),
        ("results?", list(key())),
        ("model_selection?", selection()),
        (
            "fallback_models?",
            with(list(of("ModelSelector")), "maxItems", 8),
        ),
    ])
}

fn step() -> Json {
    let ask = leaf([
        ("prompt", filled()),
        ("options?", bounded(list(filled()), 1, 32)),
        ("multi?", flag()),
        ("timeout_ms?", timeout()),
    ]);
    let wait = leaf([
        ("task", key()),
        ("run_public_id?", id()),
        ("timeout_ms?", timeout()),
    ]);
    let member = json!({"anyOf": [of("Step"), with(list(of("Step")), "minItems", 1)]});
    let until = json!({"anyOf": [words(["any", "all"]), {"type": "integer", "minimum": 1}]});
    let group = closed([
        ("parallel", bounded(list(member), 1, 32)),
        ("until?", until),
        ("losers?", all!(Losers)),
        ("key?", key()),
        ("on_failure?", all!(OnFailure)),
        ("lifetime?", all!(Lifetime)),
        ("wake?", all!(Wake)),
    ]);
    json!({"oneOf": [
        closed([("tool", tool_step())]),
        closed([("model", model_step())]),
        closed([("ask", ask)]),
        closed([("wait", wait)]),
        group,
    ], "description": "One verb: a tool call, a model round, a question, an observation, or a group."})
}

fn approval_rule() -> Json {
    closed([
        (
            "tool",
            says(filled(), "Globs over the tool's name, joined by `|`."),
        ),
        ("verdict", words(["allow", "ask", "deny"])),
        ("path?", filled()),
        ("match?", text()),
        ("reason?", text()),
        ("origin?", words(["model", "author", "kernel"])),
    ])
}

fn new_run() -> Json {
    let run = closed([
        ("steps", of("Steps")),
        ("approval_mode", all!(ApprovalMode)),
        ("approval_rules?", list(approval_rule())),
        ("prompt_mechanism?", words(["raw", "default", "assembly"])),
        ("default_runner_executor_public_id?", nullable(id())),
        ("billing_subject?", any()),
        ("model_selection?", selection()),
        (
            "fallback_models?",
            with(list(of("ModelSelector")), "maxItems", 8),
        ),
    ]);
    object([("run", run)])
}

fn append() -> Json {
    let resolve = object([
        ("task", key()),
        ("content?", of("Content")),
        ("structured_content?", any()),
        ("outcome?", words(["completed"])),
    ]);
    let entry = json!({"anyOf": [key(), resolve]});
    object([
        (
            "steps?",
            json!({"type": "array", "items": of("Step"), "maxItems": 64}),
        ),
        ("expected_revision?", integer(0, 2_147_483_647)),
        ("resolve?", list(entry)),
    ])
}

fn content() -> Json {
    let block = object([("type", words(["text"])), ("text", text())]);
    let uri = json!({"type": "string", "pattern": "^nexus://uploads/"});
    let link = object([
        ("type", words(["resource_link"])),
        ("uri", uri),
        ("name", filled()),
        ("mimeType?", text()),
        ("title?", text()),
        ("description?", text()),
        ("size?", count()),
    ]);
    let blocks = list(json!({"anyOf": [block, link]}));
    json!({"anyOf": [text(), blocks], "description": "A text, or blocks of text and links to captures."})
}

/// What a commit and an answer to a question have in common.
fn submission() -> Json {
    object([
        ("outcome", all!(Outcome)),
        ("is_error?", flag()),
        ("content?", nullable(of("Content"))),
        ("structured_content?", any()),
        ("title?", nullable(text())),
        ("metadata?", nullable(opaque())),
        ("result_type?", words(["complete"])),
    ])
}

fn announcement() -> Json {
    let schema = json!({"type": "object", "required": ["type"],
        "properties": {"type": {"const": "object"}}, "additionalProperties": true});
    let name = json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"});
    let tool = object([
        ("name", name),
        ("effect_profile", of("EffectProfile")),
        ("timeout_ms?", timeout()),
        ("description?", filled()),
        ("input_schema?", schema),
    ]);
    let document_name =
        json!({"type": "string", "maxLength": 64, "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"});
    let document = object([
        ("name", document_name),
        ("description", with(filled(), "maxLength", 1024)),
    ]);
    object([
        ("tools", list(tool)),
        ("environment?", opaque()),
        ("documents?", list(document)),
    ])
}

fn frame() -> Json {
    let claim = object([
        ("run_public_id", id()),
        ("task_key", key()),
        ("claim_token", text()),
    ]);
    let task = object([
        ("run_public_id", id()),
        ("task_key", key()),
        ("claim_token", text()),
        ("text_tail?", nullable(text())),
        ("structured?", any()),
    ]);
    let process = object([
        ("run_public_id?", id()),
        ("conversation_public_id?", id()),
        ("process_id", filled()),
        ("source", claim),
        ("lines?", nullable(list(any()))),
        ("exit?", any()),
    ]);
    object([("frame", json!({"anyOf": [task, process]}))])
}

/// The shapes of bodies.
pub fn components() -> Vec<Component> {
    let profile = closed([
        ("kind", words(["pure", "read_only", "write"])),
        ("destructive", flag()),
        ("effect_scope", words(["closed", "open"])),
        ("idempotency", words(["intrinsic", "keyed", "none"])),
        ("reconciliation", words(["none", "lookup"])),
    ]);
    let commit = super::schema::merged(
        object([("claim_token?", says(text(), "The proof of the claim."))]),
        &submission(),
    );
    let commit = with(commit, "required", json!(["claim_token", "outcome"]));
    let row = object([("run_public_id", id()), ("task_key", key())]);
    let entry = super::schema::merged(row, &commit);
    let commits = bounded(list(of("CommitEntry")), 1, COMMITS);
    let resolution = super::schema::merged(
        submission(),
        &with_required(object([("resolution_token?", nullable(text()))])),
    );
    vec![
        (
            "EffectProfile",
            says(profile, "What a tool says of its effects."),
        ),
        ("ModelSelector", selector()),
        ("Step", step()),
        ("Steps", bounded(list(of("Step")), 1, 64)),
        ("NewRun", new_run()),
        ("Append", append()),
        ("Content", content()),
        ("Commit", commit),
        (
            "CommitEntry",
            says(entry, "A commit, and the row that it is about."),
        ),
        ("Commits", object([("commits", commits)])),
        ("Resolution", resolution),
        ("Announcement", announcement()),
        ("ProgressFrame", frame()),
    ]
}
