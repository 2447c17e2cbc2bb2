//! The command line against a real server (`operating.md` §2): what a person types, what it prints,
//! how it exits; and the demo that `make run` shows.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nexus::cli::watch::Mode;
use nexus::client::Client;
use nexus::client::answers::{Run, Task};
use nexus::client::words::{RunStatus, TaskStatus};
use nexus::dev::demo::{self, Patience};
use nexus::domain::Value;
use nexus::runner::{Runner, tools};
use serde_json::json;

use crate::support::http::{items, text};
use crate::support::seed::{World, claim_token, door};
use crate::support::{OPERATOR, TestApp};

/// What a command came to.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// Failed with that exit code, and said all of that.
    #[track_caller]
    fn failed(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "{word} in {}", self.err);
        }
    }

    /// The value behind a name in what was printed for a person.
    #[track_caller]
    fn field(text: &str, name: &str) -> String {
        let line = text.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line[name.len()..].trim().to_owned()
    }
}

/// A person at a terminal, with the variables that `make run` prints.
struct Typist<'a> {
    app: &'a TestApp,
    world: &'a World,
}

impl Typist<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nexus"));
        command
            .env_clear()
            .env("NEXUS_BASE_URL", &self.app.on(0).base)
            .env(
                "NEXUS_WORKSPACE",
                self.world.workspace_public_id.to_string(),
            )
            .env("NEXUS_TOKEN", &self.world.human.token);
        command
    }

    /// Types this behind `nexus runs`; words are apart by spaces.
    fn runs(&self, typed: &str) -> Said {
        self.feeding("", typed)
    }

    /// The same, with something on standard input.
    fn feeding(&self, input: &str, typed: &str) -> Said {
        let mut child = self
            .command()
            .arg("runs")
            .args(typed.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that reads nothing may have gone before it is told anything.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        Said {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Authors and starts a run of these members; its id and what was printed.
    fn started(&self, run: &serde_json::Value) -> (String, String) {
        let said = self.feeding(&run.to_string(), "create - --start").ok();
        let headline = said.lines().next().unwrap();
        let id = headline.split_whitespace().nth(1).unwrap().to_owned();
        (id, said)
    }

    async fn commits(&self, run: &str, key: &str, mut body: serde_json::Value) {
        let token = &self.world.runner.token;
        let granted = self.app.command(&door(run, key, "claim"), token).await;
        body["claim_token"] = json!(claim_token(&granted));
        let path = door(run, key, "commit");
        self.app.post(&path, token, body).await.ok(200);
    }
}

fn ask(key: &str) -> serde_json::Value {
    json!({"ask": {"key": key, "prompt": "Go?", "options": ["yes", "no"]}})
}

fn scratch_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Exit codes (`conventions.md` §1) and errors whole (`runs.md` §1, `steps.md` §2): code, path, each
/// step's code and position, and what stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_command_says_what_and_where_and_exits_by_kind() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let typist = Typist {
        app: &app,
        world: &world,
    };
    let bad = json!([{"tool": {"key": "a", "name": "echo", "retry": 3}},
        {"ask": {"key": "b", "prompt": "?", "depends_on": []}}]);
    typist
        .feeding(&bad.to_string(), "create - --approval-mode bypass")
        .failed(
            1,
            &[
                "nexus: 422 invalid_steps: ",
                "\n  steps[0].tool.retry: unknown_step_option\n",
                "\n  steps[1].ask.depends_on: edge_authoring_refused\n",
            ],
        );
    let shell = json!({"approval_mode": "bypass", "steps": [ask("a")], "deliverable": "a"});
    typist.feeding(&shell.to_string(), "create -").failed(
        1,
        &["422 edge_authoring_refused", "\n  path: run.deliverable\n"],
    );
    let said = typist.feeding(&shell.to_string(), "create - --json");
    assert_eq!(said.code, Some(1));
    let envelope: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(envelope["error"]["code"], "edge_authoring_refused");
    typist
        .feeding("7", "create -")
        .failed(2, &["neither an object"]);
    typist
        .runs("create /nowhere/steps.json")
        .failed(2, &["cannot be read"]);
    let nobody = "00000000-0000-7000-8000-000000000000";
    typist
        .runs(&format!("pause {nobody}"))
        .failed(3, &["404 not_found"]);
    let (run, _) = typist.started(&json!({"approval_mode": "bypass", "steps": [ask("a")]}));
    typist
        .runs(&format!("resume {run}"))
        .failed(4, &["409 not_resumable"]);
    typist
        .feeding(
            "[]",
            &format!("append {run} - --expected-revision 7 --resolve a"),
        )
        .failed(4, &["409 stale_revision", "\n  current_revision: 1\n"]);
    typist.runs(&format!("append {run}")).failed(2, &["<FILE>"]);
    app.finish().await;
}

/// A question's token is printed once with what answers it; an append needs none (`runs.md` §5, §8.2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_are_answered_and_steps_appended_from_the_command_line() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let typist = Typist {
        app: &app,
        world: &world,
    };
    let steps = json!([ask("first"), ask("second"), ask("third")]);
    let (run, said) = typist.started(&json!({"approval_mode": "bypass", "steps": steps}));
    let shown = typist.runs(&format!("task {run} first")).ok();
    assert_eq!(Said::field(&shown, "options"), "yes, no");
    let printed = Said::field(&said, "to answer first:");
    assert!(
        printed.starts_with(&format!("nexus runs answer {run} first TEXT ")),
        "{printed}"
    );
    let bare = format!("answer {run} first yes");
    typist.runs(&bare).failed(4, &["409 stale_claim"]);
    let typed = printed.replace("nexus runs ", "").replace("TEXT", "yes");
    let answered = typist.runs(&typed).ok();
    assert_eq!(Said::field(&answered, "status"), "completed");
    assert_eq!(Said::field(&answered, "output"), "\"yes\"");
    typist
        .runs(&format!("append {run} --resolve second=sure"))
        .ok();
    let second = world.task(&app, &run, "second").await;
    assert_eq!(text(&second, "task.output"), "sure");
    let more = json!({"steps": [world.routed("more", "echo")]});
    let typed = format!("append {run} - --expected-revision 2 --resolve third=on");
    let receipt = typist.feeding(&more.to_string(), &typed).ok();
    assert_eq!(Said::field(&receipt, "tasks"), "more");
    assert_eq!(Said::field(&receipt, "revision"), "3");
    typist
        .commits(&run, "more", json!({"content": "done"}))
        .await;
    let watched = typist.runs(&format!("watch {run}")).ok();
    assert!(watched.contains("more echo  completed"), "{watched}");
    assert!(
        watched.contains(&format!("run {run}  completed")),
        "{watched}"
    );
    typist.runs(&format!("delete {run}")).ok();
    typist
        .runs(&format!("show {run}"))
        .failed(3, &["404 not_found"]);
    app.finish().await;
}

/// `runs.md` §8.3, §8.4, §8.5 and §7: approvals, failures, branches and the run itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_approved_repaired_and_ended_from_the_command_line() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let typist = Typist {
        app: &app,
        world: &world,
    };
    let halting = |key: &str, name: &str| {
        let mut step = world.routed(key, name);
        step["tool"]["on_failure"] = json!("halt");
        step
    };
    let rules = json!([{"tool": "write_note", "verdict": "ask", "origin": "author"}]);
    let fan = json!([
        halting("good", "write_note"),
        halting("evil", "write_note"),
        halting("weak", "echo"),
        halting("dead", "echo"),
        world.routed("slow", "echo")
    ]);
    let (run, _) = typist.started(&json!({"approval_mode": "bypass", "approval_rules": rules,
        "steps": [{"parallel": fan}, ask("end")]}));
    let types = |words: &str, key: &str, more: &str| {
        typist.runs(format!("{words} {run} {key} {more}").trim())
    };
    let approved = types("approve", "good", "").ok();
    assert_eq!(Said::field(&approved, "status"), "dispatched");
    assert!(Said::field(&approved, "approval").contains("\"human\""));
    types("approve", "good", "").failed(4, &["409 not_awaiting_approval"]);
    let denied = types("deny", "evil", "--reason no").ok();
    assert_eq!(Said::field(&denied, "error"), "approval_denied");
    assert_eq!(Said::field(&denied, "detail"), "no");
    let failed = json!({"content": "no", "outcome": "failed"});
    typist.commits(&run, "good", json!({"content": "x"})).await;
    typist.commits(&run, "weak", failed.clone()).await;
    typist.commits(&run, "dead", failed).await;
    assert_eq!(
        Said::field(&types("cancel", "slow", "").ok(), "error"),
        "task_canceled"
    );
    assert_eq!(
        Said::field(&types("retry", "weak", "").ok(), "status"),
        "dispatched"
    );
    for key in ["dead", "evil"] {
        assert_eq!(
            Said::field(&types("abandon", key, "").ok(), "resolution"),
            "abandoned"
        );
    }
    typist.runs(&format!("pause {run}")).ok();
    let shown = typist.runs(&format!("show {run}")).ok();
    assert!(
        shown.contains("clocks stand") && shown.contains("runs resume"),
        "{shown}"
    );
    typist.runs(&format!("resume {run}")).ok();
    let stopping = typist.runs(&format!("stop {run} --graceful")).ok();
    assert!(stopping.contains("canceling"), "{stopping}");
    typist
        .commits(&run, "weak", json!({"content": "kept"}))
        .await;
    typist
        .runs(&format!("watch {run}"))
        .failed(1, &["the run ended canceled"]);
    assert_eq!(
        text(&world.task(&app, &run, "weak").await, "task.output"),
        "kept"
    );
    app.finish().await;
}

/// `runs.md` §9, graph: the read's drawing as it is, or laid out as SVG.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graph_is_printed_as_mermaid_or_drawn() {
    let app = TestApp::start().await;
    let world = World::in_database(&app.sql().await, "a").await;
    let typist = Typist {
        app: &app,
        world: &world,
    };
    let race = json!({"parallel": [world.routed("hare", "echo"), world.routed("tortoise", "echo")],
        "until": "any", "key": "race"});
    let (run, _) = typist.started(&json!({"approval_mode": "bypass", "steps": [race, ask("end")]}));
    typist
        .commits(&run, "hare", json!({"content": "first"}))
        .await;
    let mermaid = typist.runs(&format!("graph {run}")).ok();
    assert!(mermaid.starts_with("flowchart TD\n"), "{mermaid}");
    let file = scratch_file(&format!("{run}.svg"));
    let said = typist
        .runs(&format!("graph {run} --svg {}", file.display()))
        .ok();
    assert!(said.starts_with("4 tasks and 3 edges drawn"), "{said}");
    let drawn = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(drawn.matches("<rect").count(), 4);
    for words in [">race<", ">any, cancel<", ">join_loser_canceled<"] {
        assert!(drawn.contains(words), "{words} in {drawn}");
    }
    let shown = typist.runs(&format!("show {run}")).ok();
    assert!(shown.contains("hare wins"), "{shown}");
    app.finish().await;
}

fn task<'a>(run: &'a Run, key: &str) -> &'a Task {
    run.tasks.iter().find(|task| task.key == key).unwrap()
}

/// `operating.md` §1: the demo runs through by itself, whoever does nothing, and each of its parts
/// happens: a race, an answer, an approval, a pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_completes_when_nobody_does_a_persons_part() {
    let app = TestApp::start().await;
    let operator = Client::new(&app.on(0).base, OPERATOR).unwrap();
    let demo = demo::provision(&operator, OPERATOR).await.unwrap();
    let client = Client::new(&demo.base_url, &demo.executors.runner.token).unwrap();
    let notes = scratch_file(&format!("notes-{}", demo.account_public_id));
    let runner = tools::write_note(tools::builtin(Runner::builder(client)), notes.clone());
    let runner = runner.build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(runner.serve(async move {
        let _ = stopped.await;
    }));
    demo::announced(&demo).await.unwrap();
    let patience = Patience {
        person: Duration::from_millis(300),
        pause: Duration::from_millis(300),
    };
    let run = demo::run_demo(&demo, patience, Mode::Tree).await.unwrap();
    assert_eq!(run.status, RunStatus::Completed);
    let lost = task(&run, "tortoise");
    assert_eq!(lost.status, TaskStatus::Canceled);
    assert_eq!(lost.error.as_ref().unwrap().key, "join_loser_canceled");
    let selected = task(&run, "race").result.as_ref().unwrap();
    assert_eq!(items(selected, "selected"), [Value::from("hare")]);
    assert_eq!(task(&run, "gate").status, TaskStatus::Completed);
    let approval = task(&run, "note").approval.as_ref().unwrap();
    assert_eq!(text(approval, "origin"), "human");
    assert!(notes.join("demo.txt").is_file());
    let member = Client::new(&demo.base_url, &demo.human.token).unwrap();
    let workspace = demo.workspace_public_id.as_str();
    let events = member.events(workspace, &run.public_id, None, Some(200));
    let events = events.await.unwrap().into_inner().events;
    let statuses: Vec<&str> = events
        .iter()
        .filter(|event| event.kind == "turn_status")
        .filter_map(|event| event.payload.get("run_status")?.as_str())
        .collect();
    let around = statuses
        .windows(3)
        .any(|w| w == ["running", "paused", "running"]);
    assert!(around, "{statuses:?}");
    drop(stop);
    serving.await.unwrap().unwrap();
    std::fs::remove_dir_all(&notes).unwrap();
    app.finish().await;
}
