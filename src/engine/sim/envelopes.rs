//! Random envelopes of what the doors offer (calls, rounds, questions, observations, detached work;
//! sequences, `all` fans and races, nested, with `after`, `results` and policies), through the real
//! compiler; and the runs that are born of them.

use std::collections::BTreeMap;

use super::fleet::{self, Fleet};
use crate::domain::event::{Event, TaskStatusItem};
use crate::domain::json::{Object, Value};
use crate::domain::steps::PromptMechanism;
use crate::domain::words::{ApprovalMode, ExecutorKind, RunStatus};
use crate::domain::{AccountId, ExecutorId, PublicId, RunId, TaskNo, Timestamp, WorkspaceId};
use crate::engine::approval::Rules;
use crate::engine::author::{self, Births, Placed};
use crate::engine::compile::{self, Envelope, Facts, RouteVerdict};
use crate::engine::facts::{Counts, Run};
use crate::engine::invariants::{Item, Narrated, World, recount};
use crate::engine::mint::token_digest;

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
pub(crate) fn runners(fleet: &Fleet) -> BTreeMap<PublicId, ExecutorId> {
    let runners = fleet.machines.iter();
    let runners = runners.filter(|m| m.caller.executor.kind == ExecutorKind::Runner);
    runners.map(|m| (m.caller.public_id, m.caller.id)).collect()
}

/// What a random envelope is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    /// Races beside `all` fans.
    pub(crate) races: bool,
    /// Model rounds.
    pub(crate) rounds: bool,
    /// Questions and observations.
    pub(crate) awaits: bool,
    /// Work that its envelope does not wait for.
    pub(crate) detached: bool,
}

struct Writer<'a> {
    dice: &'a mut Dice,
    fleet: &'a Fleet,
    palette: Palette,
    left: usize,
    keys: usize,
    /// What a written key begins with.
    prefix: char,
    /// Keys of earlier leaves and races, but of races that are still being written.
    named: Vec<String>,
}

/// Random steps: at most `most` of them. Keys begin with `prefix`; `named` are keys that the run
/// has already.
pub(crate) fn steps(
    dice: &mut Dice,
    most: usize,
    fleet: &Fleet,
    palette: Palette,
    prefix: char,
    named: Vec<String>,
) -> Value {
    let mut writer = Writer {
        dice,
        fleet,
        palette,
        left: most - 1,
        keys: 0,
        prefix,
        named,
    };
    let mut steps = Vec::new();
    while writer.left > 0 {
        steps.push(writer.step(0));
    }
    let palette = writer.palette;
    writer.palette.detached = false;
    steps.push(writer.leaf());
    writer.palette = palette;
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
        let is_race = self.palette.races && !self.dice.one_in(3);
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
        let mut group = Object::new();
        let count = parallel.len();
        group.insert("parallel".into(), Value::Array(parallel));
        if is_race {
            self.race(&mut group, count);
        }
        Value::Object(group)
    }

    fn race(&mut self, group: &mut Object, members: usize) {
        let until = if self.dice.one_in(3) {
            let k = 1 + self.dice.below(members);
            i64::try_from(k).expect("few").into()
        } else {
            "any".into()
        };
        group.insert("until".into(), until);
        if self.dice.one_in(3) {
            let word = *self.dice.of(&["cancel", "run_out"]);
            group.insert("losers".into(), word.into());
        }
        if self.dice.one_in(3) {
            let word = *self.dice.of(&["absorb", "propagate", "halt"]);
            group.insert("on_failure".into(), word.into());
        }
        if self.dice.one_in(2) {
            let key = self.key();
            group.insert("key".into(), key.as_str().into());
            self.named.push(key);
        }
    }

    fn key(&mut self) -> String {
        self.keys += 1;
        format!("{}{}", self.prefix, self.keys)
    }

    fn leaf(&mut self) -> Value {
        let awaits = self.palette.awaits && self.dice.one_in(5);
        let rounds = self.palette.rounds && self.dice.one_in(4);
        let mut members = Object::new();
        let verb = if awaits && !self.named.is_empty() && self.dice.one_in(2) {
            let target = self.dice.of(&self.named).clone();
            members.insert("task".into(), target.into());
            "wait"
        } else if awaits {
            members.insert("prompt".into(), "sure?".into());
            "ask"
        } else if rounds {
            members.insert("prompt".into(), "go on".into());
            members.insert("model".into(), Value::from([("model", "dev/m1".into())]));
            if !self.named.is_empty() && self.dice.one_in(3) {
                let name = self.dice.of(&self.named).clone();
                members.insert("results".into(), Value::Array(vec![name.into()]));
            }
            "model"
        } else {
            self.call(&mut members);
            "tool"
        };
        if awaits && self.dice.one_in(3) {
            let ms = *self.dice.of(&[500_i64, 20_000, 604_800_000]);
            members.insert("timeout_ms".into(), ms.into());
        }
        self.common(&mut members);
        Value::from([(verb, Value::Object(members))])
    }

    fn call(&mut self, members: &mut Object) {
        let tool = if self.dice.one_in(40) {
            TOOLS[5]
        } else {
            TOOLS[self.dice.below(5)]
        };
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
    }

    fn common(&mut self, members: &mut Object) {
        if self.palette.detached && self.dice.one_in(7) {
            members.insert("detached".into(), true.into());
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
            let key = self.key();
            members.insert("key".into(), key.as_str().into());
            self.named.push(key);
        }
    }
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
    let mut rules = Vec::new();
    for tool in TOOLS.iter().take(5) {
        let verdict = match dice.below(6) {
            0 | 1 => "ask",
            2 if dice.one_in(3) => "deny",
            _ => continue,
        };
        rules.push(Value::from([
            ("tool", (*tool).into()),
            ("verdict", verdict.into()),
            ("origin", "author".into()),
        ]));
    }
    let (rules, _) = Rules::read(&Value::Array(rules)).expect("they are rules");
    rules
}

/// A pending run as its create inserts it.
pub(crate) fn born(placed: &Placed, now: Timestamp) -> World {
    let tasks: Vec<_> = placed.tasks.iter().map(|new| new.task.clone()).collect();
    let births = tasks
        .iter()
        .map(|t| Narrated::Task(t.key.clone(), t.status));
    let told = births.chain([Narrated::Run(RunStatus::Pending)]);
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
