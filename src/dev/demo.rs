//! The demo: an account to play with, and one run that shows what a run is.
//!
//! Knows the server only through [`crate::client`], so it works against any running server.
//!
//! Invariant: [`provision`] may be called as often as one likes: it finds what it made before by
//! account name, workspace name, handle and registration key, and only tokens are new each time
//! (`operating.md` §2).

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::cli::refused::explain;
use crate::cli::watch::render::{Known, answer_words, command};
use crate::cli::watch::{self, Mode};
use crate::cli::{self, Connection};
use crate::client::answers::{ExecutorCredential, Member, MemberCredential, Page, Run};
use crate::client::words::{
    Access, AssignmentScope, ExecutorKind, MemberKind, RunStatus, TaskStatus,
};
use crate::client::{Answer, Client, Error, NewExecutor, NewMember, RetryPolicy, idempotency_key};
use crate::domain::{Object, Value};

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

/// Returns once the demo's runner has announced its tools: a route to it is judged at acceptance.
///
/// # Errors
/// [`Error`] of the call that failed.
pub async fn announced(demo: &Demo) -> Result<(), Error> {
    let member = Client::new(&demo.base_url, &demo.human.token)?;
    loop {
        let machine = member.machine(&demo.executors.runner.public_id).await?;
        if machine
            .served_tools
            .as_ref()
            .is_some_and(|tools| tools.as_array().is_some_and(|t| !t.is_empty()))
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How long the demo waits for somebody before it does a person's part itself.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For an answer and for an approval.
    pub person: Duration,
    /// How long it lets a pause stand.
    pub pause: Duration,
}

impl Patience {
    /// Time to read a line and to type one, no more: the whole demo is to stay short.
    pub const USUAL: Self = Self {
        person: Duration::from_secs(8),
        pause: Duration::from_secs(5),
    };
}

/// The question, the call to approve, and the call during which the run is paused.
const GATE: &str = "gate";
const NOTE: &str = "note";
const WEST: &str = "west";

/// Authors and starts the demo run on the demo's runner (which must be serving `nexus runner`'s
/// tools), shows it live on standard output until it has ended, and answers it. What a person is
/// to do is printed first, word for word; when nobody does it in time, the demo does.
///
/// # Errors
/// [`Error`] of the call that failed.
pub async fn run_demo(demo: &Demo, patience: Patience, mode: Mode) -> Result<Run, Error> {
    let member = Client::new(&demo.base_url, &demo.human.token)?;
    let workspace = demo.workspace_public_id.as_str();
    let scenario = scenario(&demo.executors.runner.public_id);
    let key = idempotency_key();
    let created = member.create_run(workspace, &scenario, Some(&key)).await?;
    let run = created.run.public_id.clone();
    let known = Known {
        tokens: created.receipt.resolution_tokens.clone(),
        program: std::env::args().next(),
        ..Known::default()
    };
    let (say, notes) = tokio::sync::mpsc::unbounded_channel();
    let stand_in = StandIn {
        member: member.with_retry(RetryPolicy::default()),
        run: run.clone(),
        known: known.clone(),
        patience,
        demo,
        say,
    };
    if mode == Mode::Tree {
        println!("{}", stand_in.invitation());
    }
    member.start_run(workspace, &run).await?;
    let shown = watch::follow(&member, workspace, &run, mode, known, Some(notes));
    tokio::select! {
        shown = shown => shown,
        never = stand_in.serve() => match never {},
    }
}

/// Does a person's part when no person does.
struct StandIn<'a> {
    demo: &'a Demo,
    member: Client,
    run: String,
    known: Known,
    patience: Patience,
    say: UnboundedSender<String>,
}

/// What a person may do for the demo run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Answer,
    Approve,
    Pause,
    Resume,
}

impl StandIn<'_> {
    /// What to type behind the program's name.
    fn words(&self, part: Part) -> Vec<String> {
        let run = self.run.as_str();
        let typed: &[&str] = match part {
            Part::Answer => {
                let words = answer_words(run, GATE, &self.known).into_iter();
                return words.map(|w| w.replace("TEXT", "yes")).collect();
            }
            Part::Approve => &["runs", "approve", run, NOTE],
            Part::Pause => &["runs", "pause", run],
            Part::Resume => &["runs", "resume", run],
        };
        typed.iter().map(|word| (*word).to_owned()).collect()
    }

    fn command(&self, part: Part) -> String {
        command(&self.known, &self.words(part))
    }

    /// The commands, before they are due.
    fn invitation(&self) -> String {
        let demo = self.demo;
        format!(
            "The run below asks a question and for an approval, and is paused once. Type these in another\n\
             terminal when it waits; after {} seconds the demo does it for you.\n\n  \
             export NEXUS_BASE_URL={} NEXUS_WORKSPACE={}\n  export NEXUS_TOKEN={}\n  {}\n  {}\n  {}\n",
            self.patience.person.as_secs(),
            demo.base_url,
            demo.workspace_public_id,
            demo.human.token,
            self.command(Part::Answer),
            self.command(Part::Approve),
            self.command(Part::Resume),
        )
    }

    /// Looks at the run, and does what has been waiting for too long; for ever.
    async fn serve(self) -> Infallible {
        let mut due: BTreeMap<Part, Instant> = BTreeMap::new();
        let mut done = BTreeSet::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let workspace = self.demo.workspace_public_id.as_str();
            let Ok(run) = self.member.run(workspace, &self.run).await else {
                continue;
            };
            let Some(part) = open(&run).filter(|part| !done.contains(part)) else {
                continue;
            };
            let since = *due.entry(part).or_insert_with(Instant::now);
            if since.elapsed() >= self.wait(part) {
                done.insert(part);
                self.perform(part).await;
            }
        }
    }

    fn wait(&self, part: Part) -> Duration {
        match part {
            Part::Answer | Part::Approve => self.patience.person,
            Part::Pause => Duration::ZERO,
            Part::Resume => self.patience.pause,
        }
    }

    /// Does it as a person would, by the same command, and says so.
    async fn perform(&self, part: Part) {
        let waited = self.wait(part).as_secs();
        let why = match part {
            Part::Answer => format!("nobody answered within {waited} s, so the demo does"),
            Part::Approve => format!("nobody approved within {waited} s, so the demo does"),
            Part::Pause => "the demo pauses the run".to_owned(),
            Part::Resume => format!("nobody resumed within {waited} s, so the demo does"),
        };
        let _ = self.say.send(format!("» {why}: {}", self.command(part)));
        let connection = Connection {
            base_url: self.demo.base_url.clone(),
            token: Some(self.demo.human.token.clone()),
            operator_token: None,
            workspace: Some(self.demo.workspace_public_id.clone()),
            json: false,
        };
        if let Err(failure) = cli::perform(connection, &self.words(part)).await {
            // Somebody was quicker, mostly.
            let _ = self.say.send(format!("» {}", explain(&failure)));
        }
    }
}

/// Between two looks at the run.
const LOOK: Duration = Duration::from_millis(200);

/// What the run waits for, if it is a part of the demo's.
fn open(run: &Run) -> Option<Part> {
    let is = |key: &str, status: TaskStatus| {
        let task = run.tasks.iter().find(|task| task.key == key);
        task.is_some_and(|task| task.status == status)
    };
    match run.status {
        RunStatus::Paused => Some(Part::Resume),
        RunStatus::Running if is(GATE, TaskStatus::Dispatched) => Some(Part::Answer),
        RunStatus::Running if is(NOTE, TaskStatus::NeedsApproval) => Some(Part::Approve),
        RunStatus::Running if is(WEST, TaskStatus::Dispatched) => Some(Part::Pause),
        _ => None,
    }
}

/// The demo run: a fan of calls that succeed, one that shows its progress, one that errs and one
/// that fails without taking the run with it, joined by a call; a race; a question; a call that
/// waits for approval; two calls, during which the run is paused; a last one.
pub fn scenario(runner: &str) -> Value {
    let tool = |key: &str, name: &str, input: Value| tool(runner, key, name, input, &[]);
    let sleep = |key: &str, ms: i64| tool(key, "sleep", Value::from([("ms", ms.into())]));
    let add = |key: &str, a: i64, b: i64| {
        let input = Value::from([("a", a.into()), ("b", b.into())]);
        tool(key, "add", input)
    };
    let echo = |key: &str, text: &str| tool(key, "echo", Value::from([("text", text.into())]));
    let fan = group(vec![
        echo("hello", "hello"),
        Value::Array(vec![add("two", 1, 1), add("four", 2, 2)]),
        sleep("slow", 3_000),
        tool("errs", "flaky", Value::Object(Default::default())),
        breaks(runner),
    ]);
    let mut race = group(vec![sleep("hare", 1_500), sleep("tortoise", 60_000)]);
    race.insert("until".to_owned(), "any".into());
    race.insert("key".to_owned(), "race".into());
    let steps = vec![
        Value::Object(fan),
        echo("joined", "all of the above has settled"),
        Value::Object(race),
        gate(),
        note(runner),
        Value::Object(group(vec![sleep(WEST, 2_000), sleep("east", 3_000)])),
        echo("last", "the pause is over"),
    ];
    // Of what the author wrote, only notes wait for approval.
    let rule = Value::from([
        ("tool", "write_note".into()),
        ("origin", "author".into()),
        ("verdict", "ask".into()),
    ]);
    Value::from([
        ("approval_mode", "bypass".into()),
        ("approval_rules", Value::Array(vec![rule])),
        ("steps", Value::Array(steps)),
    ])
}

fn group(members: Vec<Value>) -> Object {
    Object::from([("parallel".to_owned(), Value::Array(members))])
}

/// Fails on purpose, and takes nothing with it.
fn breaks(runner: &str) -> Value {
    let message = Value::from([("message", "this one fails on purpose".into())]);
    let absorb = [("on_failure", "absorb")];
    tool(runner, "breaks", "fail", message, &absorb)
}

/// A question; whatever is answered, or nothing, the run goes on.
fn gate() -> Value {
    let options = Value::Array(vec!["yes".into(), "of course".into()]);
    let ask = Value::from([
        ("key", GATE.into()),
        ("prompt", "Shall the run go on?".into()),
        ("options", options),
        ("timeout_ms", 600_000.into()),
        ("on_failure", "absorb".into()),
    ]);
    Value::from([("ask", ask)])
}

/// A call that waits for approval; denied, the run goes on without it.
fn note(runner: &str) -> Value {
    let note = Value::from([
        ("name", "demo.txt".into()),
        ("text", "the demo run was here\n".into()),
    ]);
    let absorb = [("on_failure", "absorb")];
    tool(runner, NOTE, "write_note", note, &absorb)
}

/// One tool step on that runner.
fn tool(runner: &str, key: &str, name: &str, input: Value, more: &[(&str, &str)]) -> Value {
    let route = Value::from([
        ("kind", "runner".into()),
        ("runner_executor_public_id", runner.into()),
    ]);
    let mut step = Object::from([
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
