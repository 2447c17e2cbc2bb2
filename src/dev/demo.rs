//! The demo: an account to play with, and one run that shows what a run is.
//!
//! Knows the server only through [`crate::client`], so it works against any running server.
//!
//! Invariant: [`provision`] may be called as often as one likes: it finds what it made before by
//! account name, workspace name, handle and registration key, and only tokens are new each time
//! (`operating.md` §2).

use serde::Serialize;

use crate::cli::watch::{self, Mode};
use crate::client::answers::{ExecutorCredential, Member, MemberCredential, Page, Run};
use crate::client::words::{Access, AssignmentScope, ExecutorKind, MemberKind};
use crate::client::{Answer, Client, Error, NewExecutor, NewMember, idempotency_key};
use crate::domain::Value;

/// The account's and the workspace's name.
const NAME: &str = "demo";
const HUMAN: &str = "demo-human";
const AGENT: &str = "demo-agent";

/// What `nexus demo provision --json` prints.
#[derive(Clone, Serialize)]
pub struct Demo {
    /// The server.
    pub base_url: String,
    /// The operator's bearer that provisioned it.
    pub operator_token: String,
    /// The account.
    pub account_public_id: String,
    /// The workspace.
    pub workspace_public_id: String,
    /// A human with write access.
    pub human: Bearer,
    /// An agent with write access, controlled by the human.
    pub agent: Bearer,
    /// One executor of each kind.
    pub executors: Executors,
    /// The model that the simulated provider serves.
    pub model: String,
}

/// Somebody and its new token.
#[derive(Clone, Serialize)]
pub struct Bearer {
    /// Its id.
    pub public_id: String,
    /// Its bearer; earlier ones are dead.
    pub token: String,
}

/// One executor of each kind.
#[derive(Clone, Serialize)]
pub struct Executors {
    /// A machine that runs are routed to, for everybody of the account.
    pub runner: Bearer,
    /// The agent's own address.
    pub agent_application: Bearer,
    /// A machine that serves a pool, for everybody of the account.
    pub tool_provider: Bearer,
}

/// Makes or finds the demo's account, workspace, members and executors, and mints new tokens for
/// all of them. `operator` carries `operator_token`, which is only handed through to the answer.
///
/// Two calls at once may both make what neither found; tests and scripts call it one after the
/// other.
///
/// # Errors
/// [`Error`] of the call that failed.
pub async fn provision(operator: &Client, operator_token: &str) -> Result<Demo, Error> {
    let account = account(operator).await?;
    let workspace = workspace(operator, &account).await?;
    let human = member(operator, &account, MemberKind::Human, HUMAN, None).await?;
    let controller = Some(human.member.public_id.clone());
    let agent = member(operator, &account, MemberKind::Agent, AGENT, controller).await?;
    for id in [&human.member.public_id, &agent.member.public_id] {
        operator.grant(&workspace, id, Access::Write).await?;
    }
    let machine = |kind: ExecutorKind| NewExecutor {
        display_name: format!("demo {}", kind.as_str().replace('_', " ")),
        registration_identifier: Some(format!("demo-{kind}")),
        manager_public_id: Some(human.member.public_id.clone()),
        agent_public_id: None,
        assignment_scope: Some(AssignmentScope::AccountWide),
        kind,
    };
    let application = NewExecutor {
        display_name: "demo agent application".to_owned(),
        registration_identifier: None,
        manager_public_id: None,
        agent_public_id: Some(agent.member.public_id.clone()),
        assignment_scope: None,
        kind: ExecutorKind::AgentApplication,
    };
    let pair = async |new: NewExecutor| operator.create_executor(&new).await;
    let runner = pair(machine(ExecutorKind::Runner)).await?.into_inner();
    let provider = pair(machine(ExecutorKind::ToolProvider))
        .await?
        .into_inner();
    let application = pair(application).await?.into_inner();
    Ok(Demo {
        base_url: operator.base_url().to_owned(),
        operator_token: operator_token.to_owned(),
        account_public_id: account,
        workspace_public_id: workspace,
        human: bearer(human),
        agent: bearer(agent),
        executors: Executors {
            runner: credential(runner),
            agent_application: credential(application),
            tool_provider: credential(provider),
        },
        model: "dev/sim".to_owned(),
    })
}

fn bearer(made: MemberCredential) -> Bearer {
    Bearer {
        public_id: made.member.public_id,
        token: made.token,
    }
}

fn credential(made: ExecutorCredential) -> Bearer {
    Bearer {
        public_id: made.executor.public_id,
        token: made.credential.token,
    }
}

async fn account(operator: &Client) -> Result<String, Error> {
    let page = async |after: Option<String>| operator.list_accounts(after.as_deref()).await;
    match find(page, |a| a.name == NAME).await? {
        Some(account) => Ok(account.public_id),
        None => Ok(operator.create_account(NAME).await?.public_id.clone()),
    }
}

async fn workspace(operator: &Client, account: &str) -> Result<String, Error> {
    let page = async |after: Option<String>| {
        operator
            .list_workspaces(Some(account), after.as_deref())
            .await
    };
    // A server that lists every account's is understood too.
    let ours = |of: &Option<String>| of.as_deref().is_none_or(|id| id == account);
    match find(page, |w| w.name == NAME && ours(&w.account_public_id)).await? {
        Some(workspace) => Ok(workspace.public_id),
        None => {
            let made = operator.create_workspace(account, NAME).await?;
            Ok(made.public_id.clone())
        }
    }
}

async fn member(
    operator: &Client,
    account: &str,
    kind: MemberKind,
    handle: &str,
    controlling_human_public_id: Option<String>,
) -> Result<MemberCredential, Error> {
    let page =
        async |after: Option<String>| operator.list_members(Some(account), after.as_deref()).await;
    let ours = |m: &Member| {
        let of = m.account_public_id.as_deref();
        m.handle == handle && of.is_none_or(|id| id == account)
    };
    if let Some(member) = find(page, ours).await? {
        let rotated = operator.rotate_member(&member.public_id).await?;
        return Ok(rotated.into_inner());
    }
    let new = NewMember {
        account_public_id: account.to_owned(),
        kind,
        handle: handle.to_owned(),
        display_name: Some(handle.replace('-', " ")),
        controlling_human_public_id,
    };
    Ok(operator.create_member(&new).await?.into_inner())
}

/// The first item that `is`, over all pages.
async fn find<T>(
    page: impl AsyncFn(Option<String>) -> Result<Answer<Page<T>>, Error>,
    is: impl Fn(&T) -> bool,
) -> Result<Option<T>, Error> {
    let mut after = None;
    loop {
        let answer = page(after).await?.into_inner();
        if let Some(found) = answer.items.into_iter().find(&is) {
            return Ok(Some(found));
        }
        match answer.next_after {
            None => return Ok(None),
            next => after = next,
        }
    }
}

/// Authors and starts the demo run in `workspace`, on the runner `runner` (which must be serving
/// `nexus runner`'s tools), shows it live on standard output until it has ended, and answers it.
///
/// # Errors
/// [`Error`] of the call that failed.
pub async fn run_demo(
    member: &Client,
    workspace: &str,
    runner: &str,
    mode: Mode,
) -> Result<Run, Error> {
    let key = idempotency_key();
    let created = member
        .create_run(workspace, &scenario(runner), Some(&key))
        .await?;
    let run = created.run.public_id.clone();
    member.start_run(workspace, &run).await?;
    watch::follow(member, workspace, &run, mode).await
}

/// The demo run: two fans. In the first, calls that succeed, one that shows its progress, one that
/// errs, and one that fails without taking the run with it; a call joins them; in the second, two
/// calls of different length; then a note is written.
pub fn scenario(runner: &str) -> Value {
    let sleep = |key: &str, ms: i64| {
        let input = Value::from([("ms", ms.into())]);
        tool(runner, key, "sleep", input, &[])
    };
    let add = |key: &str, a: i64, b: i64| {
        let input = Value::from([("a", a.into()), ("b", b.into())]);
        tool(runner, key, "add", input, &[])
    };
    let text = |text: &str| Value::from([("text", text.into())]);
    let message = Value::from([("message", "this one fails on purpose".into())]);
    let first = Value::from([(
        "parallel",
        Value::Array(vec![
            tool(runner, "hello", "echo", text("hello"), &[]),
            Value::Array(vec![add("two", 1, 1), add("four", 2, 2)]),
            sleep("slow", 4_000),
            tool(
                runner,
                "errs",
                "flaky",
                Value::Object(Default::default()),
                &[],
            ),
            tool(
                runner,
                "breaks",
                "fail",
                message,
                &[("on_failure", "absorb")],
            ),
        ]),
    )]);
    let second = Value::from([(
        "parallel",
        Value::Array(vec![sleep("hare", 500), sleep("tortoise", 1_500)]),
    )]);
    let note = Value::from([
        ("name", "demo.txt".into()),
        ("text", "the demo run was here\n".into()),
    ]);
    let steps = vec![
        first,
        tool(
            runner,
            "joined",
            "echo",
            text("all of the above has settled"),
            &[],
        ),
        second,
        tool(runner, "note", "write_note", note, &[]),
    ];
    Value::from([
        ("approval_mode", "bypass".into()),
        ("steps", Value::Array(steps)),
    ])
}

/// One tool step on that runner.
fn tool(runner: &str, key: &str, name: &str, input: Value, more: &[(&str, &str)]) -> Value {
    let route = Value::from([
        ("kind", "runner".into()),
        ("runner_executor_public_id", runner.into()),
    ]);
    let mut step = crate::domain::Object::from([
        ("key".to_owned(), key.into()),
        ("name".to_owned(), name.into()),
        ("input".to_owned(), input),
        ("route".to_owned(), route),
    ]);
    for (option, word) in more {
        step.insert((*option).to_owned(), (*word).into());
    }
    Value::from([("tool", Value::Object(step))])
}

#[cfg(test)]
mod tests;
