//! Random envelopes of what the doors offer (tools in sequences and `all` fans, nested, with
//! `after` and policies), through the real compiler; and the runs that are born of them.

use std::collections::BTreeMap;

use super::fleet::{self, Fleet};
use crate::domain::event::{Event, TaskStatusItem};
use crate::domain::json::{Object, Value};
use crate::domain::steps::PromptMechanism;
use crate::domain::words::{ApprovalMode, ExecutorKind, RunStatus};
use crate::domain::{AccountId, ExecutorId, PublicId, RunId, TaskNo, Timestamp, WorkspaceId};
use crate::engine::author::{self, Placed};
use crate::engine::compile::{self, Envelope, Facts, RouteVerdict};
use crate::engine::facts::{Counts, Run};
use crate::engine::invariants::{Item, Narrated, World};

/// A small generator: the same numbers for the same seed, cheap without optimisation.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).expect("below n")
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// The tools that are called; the last is served by nobody.
const TOOLS: [&str; 6] = ["read", "write", "mixed", "agent", "shell", "nowhere"];

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
fn runners(fleet: &Fleet) -> BTreeMap<PublicId, ExecutorId> {
    let runners = fleet.machines.iter();
    let runners = runners.filter(|m| m.caller.executor.kind == ExecutorKind::Runner);
    runners.map(|m| (m.caller.public_id, m.caller.id)).collect()
}

struct Writer<'a> {
    dice: &'a mut Dice,
    fleet: &'a Fleet,
    left: usize,
    keys: usize,
    named: Vec<String>,
}

/// Random steps: at most `most` of them.
pub(crate) fn steps(dice: &mut Dice, most: usize, fleet: &Fleet) -> Value {
    let mut writer = Writer {
        dice,
        fleet,
        left: most - 1,
        keys: 0,
        named: Vec::new(),
    };
    let mut steps = Vec::new();
    while writer.left > 0 {
        steps.push(writer.step(0));
    }
    steps.push(writer.leaf());
    Value::Array(steps)
}

impl Writer<'_> {
    fn step(&mut self, depth: usize) -> Value {
        if self.left >= 2 && depth < 4 && self.dice.one_in(3) {
            self.fan(depth)
        } else {
            self.left = self.left.saturating_sub(1);
            self.leaf()
        }
    }

    fn fan(&mut self, depth: usize) -> Value {
        let members = 1 + self.dice.below(5);
        let mut parallel = Vec::new();
        for _ in 0..members {
            if self.left == 0 {
                break;
            }
            let length = if self.dice.one_in(3) {
                1 + self.dice.below(3)
            } else {
                1
            };
            let mut sequence = Vec::new();
            for _ in 0..length {
                if self.left > 0 {
                    sequence.push(self.step(depth + 1));
                }
            }
            parallel.push(match sequence.len() {
                1 => sequence.remove(0),
                _ => Value::Array(sequence),
            });
        }
        Value::from([("parallel", Value::Array(parallel))])
    }

    fn leaf(&mut self) -> Value {
        let tool = if self.dice.one_in(40) {
            TOOLS[5]
        } else {
            TOOLS[self.dice.below(5)]
        };
        let mut members: Object = Object::new();
        members.insert("name".into(), tool.into());
        if tool == "shell" || (tool == "read" && self.dice.one_in(8)) {
            let targets: Vec<PublicId> = runners(self.fleet).into_keys().collect();
            let target = self.dice.of(&targets).to_string();
            let route = Value::from([
                ("kind", "runner".into()),
                ("runner_executor_public_id", target.into()),
            ]);
            members.insert("route".into(), route);
        }
        if self.dice.one_in(3) {
            let ms = *self.dice.of(&[500_i64, 20_000, 120_000, 604_800_000]);
            members.insert("timeout_ms".into(), ms.into());
        }
        if self.dice.one_in(2) {
            let word = *self.dice.of(&["absorb", "propagate", "halt"]);
            members.insert("on_failure".into(), word.into());
        }
        if !self.named.is_empty() && self.dice.one_in(4) {
            let mut after = Vec::new();
            for _ in 0..1 + self.dice.below(3) {
                let name = self.dice.of(&self.named).clone();
                if !after.contains(&name) {
                    after.push(name);
                }
            }
            let after = after.into_iter().map(Value::from).collect();
            members.insert("after".into(), Value::Array(after));
        }
        if !self.dice.one_in(5) {
            self.keys += 1;
            let key = format!("k{}", self.keys);
            members.insert("key".into(), key.as_str().into());
            self.named.push(key);
        }
        Value::from([("tool", Value::Object(members))])
    }
}

/// Compiles steps as the create door does; none when they are refused (too many dependencies).
pub(crate) fn place(steps: &Value, fleet: &Fleet) -> Option<Placed> {
    let envelope = Envelope::read(steps).ok()?;
    let mut facts = Facts::create(PromptMechanism::Raw);
    let runners = runners(fleet);
    for (target, tool) in &envelope.wants().routes {
        let target = target.expect("routes name their runner");
        facts
            .routes
            .insert((target, tool.clone()), RouteVerdict::Served);
    }
    let compiled = compile::compile(&envelope, &facts).ok()?;
    Some(author::place(&compiled, 1, &runners))
}

/// A pending run as its create inserts it.
pub(crate) fn born(placed: &Placed, now: Timestamp) -> World {
    let tasks: Vec<_> = placed.tasks.iter().map(|new| new.task.clone()).collect();
    let count = |n: usize| i32::try_from(n).expect("few rows");
    let counts = Counts {
        tasks: count(tasks.len()),
        open: count(tasks.len()),
        ready: count(tasks.iter().filter(|t| t.remaining == 0).count()),
        ..Counts::default()
    };
    let births = tasks
        .iter()
        .map(|t| Narrated::Task(t.key.clone(), t.status));
    let told = births.chain([Narrated::Run(RunStatus::Pending)]);
    let items: Vec<Item> = (1..)
        .zip(told)
        .map(|(seq, what)| Item { seq, what })
        .collect();
    World {
        now,
        run: run(placed.deliverable, counts, items.len()),
        tasks,
        edges: placed.edges.clone(),
        parks: Vec::new(),
        failures: Vec::new(),
        results: Vec::new(),
        items,
    }
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
