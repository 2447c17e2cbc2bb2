//! Random envelopes ([`grammar`]) through the real compiler, and the runs that are born of them.

use std::collections::BTreeMap;

use super::fleet::{self, Fleet};
use super::grammar::{self, Dice};
use crate::domain::event::{Event, TaskStatusItem};
use crate::domain::json::Value;
use crate::domain::steps::PromptMechanism;
use crate::domain::words::{ApprovalMode, ExecutorKind, RunStatus};
use crate::domain::{AccountId, ExecutorId, PublicId, RunId, TaskNo, Timestamp, WorkspaceId};
use crate::engine::approval::Rules;
use crate::engine::author::{self, Births, Placed};
use crate::engine::compile::{self, Envelope, Facts, RouteVerdict};
use crate::engine::facts::{Counts, Run};
use crate::engine::invariants::{Item, Narrated, World, recount};
use crate::engine::mint::token_digest;

/// The executors of a simulation: two eligible providers and one that is not, the declaring
/// agent's application, and two runners.
pub(crate) fn fleet() -> Fleet {
    use ExecutorKind::{AgentApplication, Runner, ToolProvider};
    let mut fleet = Fleet::default();
    let read = |ms| fleet::served(true, ms);
    let write = |ms| fleet::served(false, ms);
    let p1 = fleet.add("p1", ToolProvider);
    p1.serves.insert("read".into(), read(Some(30_000)));
    p1.serves.insert("write".into(), write(None));
    p1.serves.insert("mixed".into(), read(Some(60_000)));
    let p2 = fleet.add("p2", ToolProvider);
    p2.serves.insert("read".into(), read(Some(20_000)));
    p2.serves.insert("mixed".into(), write(Some(90_000)));
    let p3 = fleet.add("p3", ToolProvider);
    p3.caller.executor.scope = Some(crate::domain::words::AssignmentScope::UserPrivate);
    p3.caller.executor.manager = Some(fleet::STRANGER);
    p3.serves.insert("read".into(), read(Some(1)));
    let app = fleet.add("app", AgentApplication);
    app.serves.insert("agent".into(), write(Some(45_000)));
    for name in ["r1", "r2"] {
        let runner = fleet.add(name, Runner);
        runner.serves.insert("shell".into(), write(None));
        runner.serves.insert("read".into(), read(None));
    }
    fleet
}

/// The runners of [`fleet`], by public id.
pub(crate) fn runners(fleet: &Fleet) -> BTreeMap<PublicId, ExecutorId> {
    let runners = fleet.machines.iter();
    let runners = runners.filter(|m| m.caller.executor.kind == ExecutorKind::Runner);
    runners.map(|m| (m.caller.public_id, m.caller.id)).collect()
}

/// Their public ids alone.
pub(crate) fn runner_ids(fleet: &Fleet) -> Vec<PublicId> {
    runners(fleet).into_keys().collect()
}

/// Compiles steps as the create door does; none when they are refused (too many dependencies).
pub(crate) fn place(steps: &Value, fleet: &Fleet) -> Option<Placed> {
    let envelope = Envelope::read(steps).ok()?;
    let mut facts = Facts::create(PromptMechanism::Raw);
    let runners = runners(fleet);
    routes(&mut facts, &envelope, &runners);
    let compiled = compile::compile(&envelope, &facts).ok()?;
    compiled.check_waits(|_, _| false).ok()?;
    let tokens = compiled.tokened();
    let tokens = tokens.map(|at| (at, token_digest(compiled.rows[at].key.as_str())));
    let births = Births {
        runners,
        tokens: tokens.collect(),
        ..Births::default()
    };
    Some(author::place(&compiled, 1, &births))
}

/// Every routed call is served.
pub(crate) fn routes(
    facts: &mut Facts,
    envelope: &Envelope,
    runners: &BTreeMap<PublicId, ExecutorId>,
) {
    for (target, tool) in &envelope.wants().routes {
        let target = target.expect("routes name their runner");
        if runners.contains_key(&target) {
            facts
                .routes
                .insert((target, tool.clone()), RouteVerdict::Served);
        }
    }
}

/// What rows were authored with, as they are stored.
pub(crate) fn authored(placed: &Placed) -> BTreeMap<TaskNo, super::db::Authored> {
    let text =
        |c: &Option<crate::domain::json::Canonical>| c.as_ref().map(|c| c.as_str().to_owned());
    let rows = placed.tasks.iter();
    rows.map(|new| (new.task.no, (text(&new.tool_input), text(&new.definition))))
        .collect()
}

/// Rules by which calls that members wrote rest for an approver, or are refused.
pub(crate) fn rules(dice: &mut Dice) -> Rules {
    let (rules, _) = Rules::read(&grammar::rules(dice)).expect("they are rules");
    rules
}

/// A pending run as its create inserts it.
pub(crate) fn born(placed: &Placed, now: Timestamp) -> World {
    let tasks: Vec<_> = placed.tasks.iter().map(|new| new.task.clone()).collect();
    let births = tasks
        .iter()
        .map(|t| Narrated::Task(t.key.clone(), t.status));
    let told = births.chain([Narrated::Run(RunStatus::Pending, None)]);
    let items: Vec<Item> = (1..)
        .zip(told)
        .map(|(seq, what)| Item { seq, what })
        .collect();
    let mut run = run(placed.deliverable, Counts::default(), items.len());
    run.mainline_tail = placed.mainline_tail;
    let mut world = World {
        now,
        run,
        tasks,
        edges: placed.edges.clone(),
        parks: Vec::new(),
        failures: Vec::new(),
        results: Vec::new(),
        items,
    };
    world.run.counts = recount(&world).counts;
    world
}

/// A pending run with that answer.
pub(crate) fn run(deliverable: Option<TaskNo>, counts: Counts, items: usize) -> Run {
    Run {
        account: AccountId(1),
        id: RunId(1),
        public_id: fleet::public(1),
        workspace: WorkspaceId(1),
        principal: fleet::principal(),
        creator_may_write: true,
        status: RunStatus::Pending,
        revision: 1,
        deliverable,
        mainline_tail: None,
        approval_mode: ApprovalMode::Bypass,
        has_rules: false,
        counts,
        settle_seq: 0,
        event_seq: i64::try_from(items).expect("few items"),
        schedulable: false,
        attention: None,
        failure_reason: None,
        force_stopped: false,
        started_at: None,
        paused_at: None,
        canceling_since: None,
        stopped_at: None,
        completed_at: None,
    }
}

/// The moment at which every simulated run is born.
pub(crate) fn dawn() -> Timestamp {
    chrono::DateTime::from_timestamp(1_893_456_000, 0).expect("a moment")
}

/// How an item reads in a table.
pub(crate) fn shown(event: &Event) -> String {
    match event {
        Event::TaskStatus(item) => {
            let TaskStatusItem {
                task_key, status, ..
            } = &**item;
            format!("{task_key} {}", status.shown())
        }
        Event::TurnStatus { run_status, .. } => format!("run {run_status}"),
        Event::AttentionRequired { reason, keys } => {
            let keys: Vec<&str> = keys.iter().map(|k| k.as_str()).collect();
            format!("attention {reason} {}", keys.join(" "))
                .trim_end()
                .to_owned()
        }
        Event::TaskDeadlineExtended { task_key, .. } => format!("{task_key} extended"),
        Event::DefaultRunnerChanged { .. } => "default runner".to_owned(),
    }
}
