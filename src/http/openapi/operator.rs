//! The doors of the operator plane (`operating.md` §4). A member that is not named is refused.

use serde_json::{Value as Json, json};

use super::operation::{Operation, Plane};
use super::schema::{closed, count, id, integer, list, object, of, text, time, words};
use crate::domain::refusal::Provision;
use crate::domain::words::{Access, AssignmentScope, ExecutorKind, MemberKind};
use crate::http::operator::limits::{ADVANCE_MS, sweeps};

macro_rules! at {
    ($rest:literal) => {
        concat!("/operator_api/v1/", $rest)
    };
}

macro_rules! all {
    ($name:ident) => {
        words($name::ALL.iter().map(|word| word.as_str()))
    };
}

fn door(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    about: &'static str,
) -> Operation {
    Operation::new(Plane::Operator, method, path, id, about)
}

/// A list over one account or all.
fn of_account(operation: Operation) -> Operation {
    operation
        .query("account", id(), "Only of this account.")
        .refuses_by(&[(404, "not_found")])
}

/// A body of which every member is known, and its refusals.
fn takes(operation: Operation, body: Json, example: Json) -> Operation {
    operation
        .json(body, true, example)
        .refuses_by(&[(400, "parameter_missing"), (422, "unknown_fields")])
}

/// A text of one line.
fn line(max: u32) -> Json {
    json!({"type": "string", "minLength": 1, "maxLength": max, "pattern": "\\S"})
}

const SOME_ID: &str = "0199c0de-0000-7000-8000-000000000001";

fn accounts() -> Vec<Operation> {
    let create = door("post", at!("accounts"), "createAccount", "Makes an account")
        .answers_one(201, "Made.", "account", "Account");
    let verb = |path, id, about| {
        door("post", path, id, about).empty_body().answers_one(
            200,
            "As it now stands.",
            "account",
            "Account",
        )
    };
    vec![
        door("get", at!("accounts"), "listAccounts", "All accounts").pages(
            100,
            "accounts",
            of("Account"),
        ),
        takes(
            create,
            closed([("name", line(200))]),
            json!({"name": "acme"}),
        ),
        door(
            "get",
            at!("accounts/{account}"),
            "readAccount",
            "One account",
        )
        .answers_one(200, "The account.", "account", "Account"),
        verb(
            at!("accounts/{account}/suspend"),
            "suspendAccount",
            "Stops an account and its live runs",
        ),
        verb(
            at!("accounts/{account}/resume"),
            "resumeAccount",
            "Lets an account act again",
        ),
    ]
}

fn workspaces() -> Vec<Operation> {
    let create = door(
        "post",
        at!("workspaces"),
        "createWorkspace",
        "Makes a workspace",
    )
    .answers_one(201, "Made.", "workspace", "Workspace")
    .refuses_by(&[(404, "not_found")]);
    let put = door(
        "put",
        at!("workspaces/{workspace}/grants/{member}"),
        "putGrant",
        "Lets a member read or write",
    )
    .answers_one(201, "Granted.", "grant", "Grant")
    .answers_one(200, "Granted before; as it now stands.", "grant", "Grant");
    vec![
        of_account(door(
            "get",
            at!("workspaces"),
            "listAllWorkspaces",
            "Workspaces",
        ))
        .pages(100, "workspaces", of("Workspace")),
        takes(
            create,
            closed([("account_public_id", id()), ("name", line(200))]),
            json!({"account_public_id": SOME_ID, "name": "main"}),
        ),
        door(
            "get",
            at!("workspaces/{workspace}"),
            "readAnyWorkspace",
            "One workspace",
        )
        .answers_one(200, "The workspace.", "workspace", "Workspace"),
        door(
            "get",
            at!("workspaces/{workspace}/grants"),
            "listGrants",
            "Who may do what in a workspace",
        )
        .pages(100, "grants", of("Grant")),
        door(
            "get",
            at!("workspaces/{workspace}/grants/{member}"),
            "readGrant",
            "What one member may do there",
        )
        .answers_one(200, "The grant.", "grant", "Grant"),
        takes(
            put,
            closed([("access", all!(Access))]),
            json!({"access": "write"}),
        ),
        door(
            "delete",
            at!("workspaces/{workspace}/grants/{member}"),
            "deleteGrant",
            "Withdraws a grant",
        )
        .answers_empty(204, "Withdrawn."),
    ]
}

fn members() -> Vec<Operation> {
    let with_token = object([("member", of("Member")), ("token", text())]);
    let create = door(
        "post",
        at!("members"),
        "createMember",
        "Makes a human or an agent",
    )
    .answers(201, "Made; the token is shown once.", with_token.clone())
    .refuses::<Provision>();
    let handle = json!({"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^\\S+$"});
    let body = closed([
        ("account_public_id", id()),
        ("kind", all!(MemberKind)),
        ("handle", handle),
        ("display_name?", line(200)),
        ("controlling_human_public_id?", id()),
    ]);
    let verb = |path, id, about| {
        door("post", path, id, about).empty_body().answers_one(
            200,
            "As it now stands.",
            "member",
            "Member",
        )
    };
    vec![
        of_account(door("get", at!("members"), "listMembers", "Members")).pages(
            100,
            "members",
            of("Member"),
        ),
        takes(
            create,
            body,
            json!({"account_public_id": SOME_ID, "kind": "human", "handle": "ada"}),
        ),
        door("get", at!("members/{member}"), "readMember", "One member").answers_one(
            200,
            "The member.",
            "member",
            "Member",
        ),
        door(
            "post",
            at!("members/{member}/rotate"),
            "rotateMember",
            "Mints a token; all earlier ones are dead",
        )
        .empty_body()
        .answers(201, "Minted; the token is shown once.", with_token),
        verb(
            at!("members/{member}/suspend"),
            "suspendMember",
            "Stops a member and its live runs",
        ),
        verb(
            at!("members/{member}/resume"),
            "resumeMember",
            "Lets a member act again",
        ),
    ]
}

fn executors() -> Vec<Operation> {
    let credential = object([("token", text()), ("credential_epoch", count())]);
    let paired = object([("executor", of("Executor")), ("credential", credential)]);
    let create = door(
        "post",
        at!("executors"),
        "createExecutor",
        "Makes a delivery address, or pairs it again",
    )
    .answers(201, "Made; the credential is shown once.", paired.clone())
    .answers(
        200,
        "Paired again; older credentials are dead.",
        paired.clone(),
    )
    .refuses::<Provision>();
    let body = closed([
        ("kind", all!(ExecutorKind)),
        ("display_name", line(200)),
        ("registration_identifier?", line(200)),
        ("assignment_scope?", all!(AssignmentScope)),
        ("manager_public_id?", id()),
        ("agent_public_id?", id()),
    ]);
    vec![
        of_account(door(
            "get",
            at!("executors"),
            "listExecutors",
            "Delivery addresses",
        ))
        .pages(100, "executors", of("Executor")),
        takes(
            create,
            body,
            json!({"kind": "runner", "display_name": "lab", "manager_public_id": SOME_ID}),
        ),
        door(
            "get",
            at!("executors/{executor}"),
            "readAnyExecutor",
            "One delivery address",
        )
        .answers_one(200, "The address.", "executor", "Executor"),
        door(
            "post",
            at!("executors/{executor}/rotate"),
            "rotateExecutor",
            "Mints a credential; all earlier ones are dead",
        )
        .empty_body()
        .answers(201, "Minted; shown once.", paired)
        .refuses_by(&[(409, "executor_revoked")]),
        door(
            "post",
            at!("executors/{executor}/revoke"),
            "revokeExecutor",
            "Ends a delivery address for good",
        )
        .empty_body()
        .answers_one(200, "Revoked.", "executor", "Executor"),
        door(
            "post",
            at!("executors/{executor}/shutdown"),
            "shutdownExecutor",
            "Asks an address to drain",
        )
        .empty_body()
        .answers_one(202, "Asked.", "executor", "Executor")
        .refuses_by(&[(409, "executor_revoked")]),
    ]
}

fn tokens() -> Vec<Operation> {
    vec![
        of_account(door(
            "get",
            at!("tokens"),
            "listTokens",
            "Bearers, by their look-up part",
        ))
        .pages(100, "tokens", of("Token")),
        door("get", at!("tokens/{token}"), "readToken", "One bearer").answers_one(
            200,
            "The bearer.",
            "token",
            "Token",
        ),
        door(
            "post",
            at!("tokens/{token}/revoke"),
            "revokeToken",
            "Ends one bearer",
        )
        .empty_body()
        .answers_one(200, "Revoked.", "token", "Token"),
    ]
}

fn machinery() -> Vec<Operation> {
    let clock = door(
        "post",
        at!("test_clock"),
        "advanceTestClock",
        "Moves the one clock forward, in tests only",
    )
    .answers(
        200,
        "Moved.",
        object([("test_clock", object([("now", time())]))]),
    )
    .refuses_by(&[(404, "not_found")]);
    let sweep = door(
        "post",
        at!("sweeper/run"),
        "runSweep",
        "Forces one cycle of a sweep",
    )
    .answers(202, "Done.", object([("sweep", text()), ("rows", count())]));
    vec![
        door(
            "get",
            at!("replicas"),
            "listReplicas",
            "The replicas that were heard of lately",
        )
        .answers(
            200,
            "All of them.",
            object([("replicas", list(of("Replica")))]),
        ),
        door(
            "get",
            at!("sweeper"),
            "readSweeper",
            "Who leads what, and what each sweep did last",
        )
        .answers(
            200,
            "As it stands.",
            object([("leases", list(of("Lease"))), ("sweeps", list(of("Sweep")))]),
        ),
        takes(
            sweep,
            closed([("sweep", words(sweeps()))]),
            json!({"sweep": "parks"}),
        ),
        takes(
            clock,
            closed([("advance_ms", integer(0, ADVANCE_MS))]),
            json!({"advance_ms": 0}),
        ),
    ]
}

pub(super) fn operations() -> Vec<Operation> {
    [
        accounts(),
        workspaces(),
        members(),
        executors(),
        tokens(),
        machinery(),
    ]
    .concat()
}
