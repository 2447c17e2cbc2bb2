//! The doors of the member plane (`runs.md` §2, `executor.md` §4).

use serde_json::json;

use super::operation::{Operation, Plane};
use super::schema::{flag, id, nullable, object, of, opaque, text, with, words};
use crate::commands::{append, create};
use crate::domain::idempotency::RUN_KEY_BYTES;
use crate::domain::refusal;

macro_rules! run {
    ($rest:literal) => {
        concat!("/agent_api/v1/workspaces/{workspace}/runs/{run}", $rest)
    };
}

fn door(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    about: &'static str,
) -> Operation {
    Operation::new(Plane::Member, method, path, id, about)
}

fn key_bytes() -> u32 {
    u32::try_from(RUN_KEY_BYTES).unwrap_or(u32::MAX)
}

/// A command on a run, which answers it as it then stands.
fn on_run(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    about: &'static str,
) -> Operation {
    door(method, path, id, about).writes().answers_one(
        200,
        "The run as it now stands.",
        "run",
        "Run",
    )
}

/// A command on a task, which answers it as it then stands.
fn on_task(path: &'static str, id: &'static str, about: &'static str) -> Operation {
    door("post", path, id, about).writes().answers_one(
        200,
        "The task as it now stands.",
        "task",
        "TaskDetail",
    )
}

fn resources() -> Vec<Operation> {
    let kinds = words(["runner", "tool_provider"]);
    vec![
        door(
            "get",
            "/agent_api/v1/workspaces",
            "listWorkspaces",
            "The workspaces that the caller can read",
        )
        .pages(100, "workspaces", of("ReadableWorkspace")),
        door(
            "get",
            "/agent_api/v1/workspaces/{workspace}",
            "readWorkspace",
            "One workspace",
        )
        .answers_one(200, "The workspace.", "workspace", "ReadableWorkspace"),
        door(
            "get",
            "/agent_api/v1/executors",
            "listMachines",
            "Machines that the caller may route work to",
        )
        .required_query("kind", kinds, "Which machines.")
        .pages(100, "executors", of("Machine")),
        door(
            "get",
            "/agent_api/v1/executors/{executor}",
            "readMachine",
            "One machine, with what it serves",
        )
        .answers_one(200, "The machine.", "executor", "Machine"),
    ]
}

fn shells() -> Vec<Operation> {
    let runs = "/agent_api/v1/workspaces/{workspace}/runs";
    let statuses = "States, joined by commas.";
    let created = json!({"application/json": {"schema": object([
        ("run", of("Run")), ("receipt", of("Receipt")), ("replayed?", flag()),
    ])}});
    let appended = json!({"application/json": {"schema": object([
        ("receipt", of("Receipt")), ("replayed?", flag()),
    ])}});
    let new_run = json!({"run": {"approval_mode": "bypass",
        "steps": [{"ask": {"key": "gate", "prompt": "Go?"}}]}});
    let more = json!({"steps": [{"ask": {"prompt": "And on?"}}]});
    let runner = object([(
        "default_runner",
        object([("executor_public_id", nullable(id()))]),
    )]);
    vec![
        door("post", runs, "createRun", "Authors a run; nothing starts")
            .writes()
            .key(key_bytes())
            .json(of("NewRun"), true, new_run)
            .answers_with(201, "Created.", created.clone(), &["Idempotency-Replayed"])
            .answers_with(
                200,
                "Created before, under the same key.",
                created,
                &["Idempotency-Replayed"],
            )
            .refuses::<create::Refusal>(),
        door("get", runs, "listRuns", "The runs of a workspace")
            .query("status", text(), statuses)
            .query(
                "attention",
                words(["any"]),
                "Only runs that ask for a person.",
            )
            .pages(100, "runs", of("RunListed")),
        door(
            "get",
            run!(""),
            "showRun",
            "One run, with the rows of its trace",
        )
        .answers_one(200, "The run.", "run", "Run"),
        door(
            "delete",
            run!(""),
            "deleteRun",
            "Hides a run; its rows are reclaimed later",
        )
        .writes()
        .answers_empty(204, "Deleted.")
        .refuses::<refusal::Delete>(),
        on_run("post", run!("/start"), "startRun", "Starts a pending run")
            .no_members()
            .refuses::<refusal::Start>(),
        on_run(
            "post",
            run!("/stop"),
            "stopRun",
            "Stops a run, by force unless told otherwise",
        )
        .json(
            object([("force?", nullable(with(flag(), "default", true)))]),
            false,
            json!({"force": true}),
        )
        .refuses::<refusal::Stop>(),
        on_run(
            "post",
            run!("/pause"),
            "pauseRun",
            "Holds a run; its clocks stand",
        )
        .json(
            object([("force?", nullable(with(flag(), "default", false)))]),
            false,
            json!({"force": false}),
        )
        .refuses::<refusal::Pause>(),
        on_run(
            "post",
            run!("/resume"),
            "resumeRun",
            "Lets a paused run go on",
        )
        .no_members()
        .refuses::<refusal::Resume>(),
        on_run(
            "put",
            run!("/default_runner"),
            "putDefaultRunner",
            "Changes the runner of steps that name none",
        )
        .json(
            runner,
            true,
            json!({"default_runner": {"executor_public_id": null}}),
        )
        .refuses_by(&[(400, "parameter_missing")])
        .refuses::<refusal::DefaultRunner>(),
        door(
            "post",
            run!("/tasks"),
            "appendSteps",
            "Appends steps, and answers questions in the same breath",
        )
        .writes()
        .key(key_bytes())
        .json(of("Append"), true, more)
        .answers_with(
            201,
            "Appended, now or before under the same key.",
            appended,
            &["Idempotency-Replayed"],
        )
        .refuses::<append::Refusal>(),
    ]
}

fn reads() -> Vec<Operation> {
    vec![
        door(
            "get",
            run!("/graph"),
            "readGraph",
            "The graph: nodes, edges, a drawing",
        )
        .answers(200, "The graph.", of("Graph")),
        door(
            "get",
            run!("/phases"),
            "readPhases",
            "The phases: what was written, and how far it is",
        )
        .answers(200, "The phases.", of("Phases")),
        door(
            "get",
            run!("/transcript"),
            "readTranscript",
            "The main thread, newest page first",
        )
        .query("before", of("Cursor"), "The cursor of an older page.")
        .limit(100)
        .query(
            "prefix",
            of("TaskKey"),
            "The branch under this call, in place of the main thread.",
        )
        .answers(200, "A page, in reading order.", of("Transcript")),
        door(
            "get",
            run!("/events"),
            "replayEvents",
            "The run's feed, from a place on",
        )
        .after()
        .limit(100)
        .answers(200, "A page, and how far the feed is.", of("Events")),
        door(
            "get",
            run!("/tasks/{task}"),
            "showTask",
            "One task, with its bodies",
        )
        .answers_one(200, "The task.", "task", "TaskDetail"),
        door(
            "get",
            run!("/tasks/{task}/request"),
            "readRequest",
            "What a model round sent to its provider",
        )
        .answers(
            200,
            "The request.",
            object([(
                "request",
                object([
                    ("entries", super::schema::list(opaque())),
                    ("request_options", opaque()),
                ]),
            )]),
        )
        .refuses_by(&[(404, "request_not_sealed")]),
    ]
}

fn verbs() -> Vec<Operation> {
    let answer = json!({"outcome": "completed", "content": [{"type": "text", "text": "yes"}]});
    let model = object([("model?", nullable(opaque()))]);
    vec![
        on_task(
            run!("/tasks/{task}/resolution"),
            "resolveTask",
            "Answers a question",
        )
        .json(of("Resolution"), true, answer)
        .refuses::<refusal::Answer>(),
        on_task(
            run!("/tasks/{task}/retry"),
            "retryTask",
            "Runs a failed task again",
        )
        .json(model, false, json!({}))
        .refuses::<refusal::Retry>(),
        on_task(
            run!("/tasks/{task}/abandon"),
            "abandonTask",
            "Lets a failure go; its dependents proceed",
        )
        .no_members()
        .refuses::<refusal::Abandon>(),
        on_task(
            run!("/tasks/{task}/approve"),
            "approveTask",
            "Lets a call run that rests for an approver",
        )
        .no_members()
        .refuses::<refusal::Approval>(),
        on_task(
            run!("/tasks/{task}/deny"),
            "denyTask",
            "Refuses a call that rests for an approver",
        )
        .json(
            object([("reason?", nullable(text()))]),
            false,
            json!({"reason": "not today"}),
        )
        .refuses::<refusal::Approval>(),
        on_task(run!("/tasks/{task}/cancel"), "cancelTask", "Ends a branch")
            .no_members()
            .refuses::<refusal::Cancel>(),
    ]
}

pub(super) fn operations() -> Vec<Operation> {
    [resources(), shells(), reads(), verbs()].concat()
}
