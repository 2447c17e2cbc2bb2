//! The simulation: many runs from seeds, every invariant after every step. A failure prints its
//! seed, the envelope, and the fewest actions that still fail.
//!
//! `NEXUS_SIM_CASES` sets how many cases (default [`CASES`]), `NEXUS_SIM_SEED` tries one alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::client::{Client, Mood, Op, Tried, op, snapshot};
use super::db::Db;
use super::envelopes;
use super::grammar::{self, Dice, Palette};
use crate::domain::json::Value;
use crate::domain::words::{ApprovalMode, AuthoredBy, Holder, RunStatus, TaskKind};
use crate::engine::approval::Rules;
use crate::engine::author::Placed;
use crate::engine::invariants::{self, World};

/// Cases of one run of the tests, all parts together.
const CASES: u64 = 100_000;
/// One case in so many has up to 64 steps and as many actions; the others are small.
const WHOLE: u64 = 5;
/// Parts, which a runner may drive side by side.
const PARTS: u64 = 16;

struct Case {
    steps: Value,
    placed: Arc<Placed>,
    born: Born,
    ops: Vec<Op>,
}

/// How the run of a case is made, beside its steps.
#[derive(Clone)]
struct Born {
    mode: ApprovalMode,
    rules: Option<Arc<Rules>>,
    /// Some calls are as if a model had asked for them, some questions for a person without a token.
    by_models: u64,
}

impl Born {
    fn of(dice: &mut Dice) -> Self {
        let rules = dice.one_in(3).then(|| Arc::new(envelopes::rules(dice)));
        Self {
            mode: *dice.of(&[ApprovalMode::Bypass, ApprovalMode::Ask, ApprovalMode::Rules]),
            rules: rules.filter(|r| !r.is_empty()),
            by_models: if dice.one_in(3) { dice.next() } else { 0 },
        }
    }

    fn world(&self, placed: &Placed) -> World {
        let mut world = envelopes::born(placed, envelopes::dawn());
        world.run.approval_mode = self.mode;
        world.run.has_rules = self.rules.is_some();
        for (n, task) in world.tasks.iter_mut().enumerate() {
            let by_model = self.by_models >> (n % 64) & 1 == 1;
            match task.kind {
                TaskKind::Tool if by_model => task.authored_by = AuthoredBy::Model,
                TaskKind::Await if by_model && task.holder == Some(Holder::Token) => {
                    task.authored_by = AuthoredBy::Model;
                    task.holder = Some(Holder::Person);
                    task.resolution_digest = None;
                }
                _ => {}
            }
        }
        world
    }
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let fleet = envelopes::fleet();
        let runners = envelopes::runner_ids(&fleet);
        // Most of what may go wrong goes wrong between a few rows, and a small case costs little.
        let small = !seed.is_multiple_of(WHOLE);
        let most = match small {
            true => 2 + dice.below(3),
            false => grammar::most_steps(&mut dice),
        };
        let palette = Palette::of_run(&mut dice);
        let (steps, placed) = loop {
            let size = 1 + dice.below(most);
            let steps = grammar::steps(&mut dice, size, &runners, palette, 'k', Vec::new());
            if let Some(placed) = envelopes::place(&steps, &fleet) {
                break (steps, Arc::new(placed));
            }
        };
        let mut ops = Vec::new();
        let length = match most {
            _ if small => 2 + dice.below(6),
            64 => 4 + dice.below(80),
            _ => 4 + dice.below(20),
        };
        let mood = Mood {
            fails: dice.one_in(2),
            dawdles: dice.one_in(2),
            meddles: *dice.of(&[2, 3, 6, 20]),
        };
        let born = Born::of(&mut dice);
        ops.extend((0..length).map(|_| op(&mut dice, mood)));
        // Mostly it starts at once; else things are tried on a run that is pending.
        let start = if dice.one_in(8) {
            dice.below(ops.len())
        } else {
            0
        };
        ops.insert(start, Op::Start);
        Self {
            steps,
            placed,
            born,
            ops,
        }
    }

    fn with(&self, ops: Vec<Op>) -> Self {
        Self {
            steps: self.steps.clone(),
            placed: Arc::clone(&self.placed),
            born: self.born.clone(),
            ops,
        }
    }

    /// Plays the case to its end.
    fn play(&self) -> Result<Tried, String> {
        let world = self.born.world(&self.placed);
        invariants::check(&world).map_err(|v| v.to_string())?;
        let mut watch = Watch {
            before: snapshot(&world),
            version: 0,
            anchor: snapshot(&world),
            steps: 0,
        };
        let mut db = Db::new(world, envelopes::fleet());
        db.authored = Arc::new(envelopes::authored(&self.placed));
        db.rules = self.born.rules.clone();
        let mut client = Client::new(db);
        for (n, op) in self.ops.iter().enumerate() {
            watch
                .step(&mut client, op)
                .map_err(|e| format!("action {n}, {op:?}: {e}"))?;
        }
        // A retried row may fail again, an appended one takes its turn.
        let limit = 12 * client.db.world.tasks.len() + 96;
        for _ in 0..limit {
            let Some(op) = client.next_to_the_end() else {
                return end(&client).map(|()| client.tried);
            };
            watch
                .step(&mut client, &op)
                .map_err(|e| format!("at the end, {op:?}: {e}"))?;
        }
        Err("the run does not end".to_owned())
    }
}

/// Checks every invariant around each action that wrote something.
struct Watch {
    before: World,
    version: u64,
    /// The moment at which the present span began.
    anchor: World,
    steps: usize,
}

/// How many actions that wrote something make a span.
const SPAN: usize = 8;

impl Watch {
    fn step(&mut self, client: &mut Client, op: &Op) -> Result<(), String> {
        if self.version != client.db.version {
            self.look(client); // standing came back by hand
        }
        match op {
            Op::Batch(ops) if ops.is_empty() => client.sweep(&self.before)?,
            _ => client.act(op, &self.before)?,
        }
        if self.version == client.db.version {
            return Ok(());
        }
        let after = &client.db.world;
        let alone = !matches!(op, Op::Batch(_));
        invariants::check_transaction(&self.before, after, alone).map_err(|v| v.to_string())?;
        let appends = i32::try_from(client.appends()).expect("few");
        if after.run.revision != 1 + appends {
            let revision = after.run.revision;
            return Err(format!(
                "INV-29: revision {revision} after {appends} appends"
            ));
        }
        self.steps += 1;
        if self.steps.is_multiple_of(SPAN) {
            invariants::check_span(&self.anchor, after).map_err(|v| v.to_string())?;
            self.anchor = snapshot(after);
        }
        self.look(client);
        Ok(())
    }

    fn look(&mut self, client: &Client) {
        self.before = snapshot(&client.db.world);
        self.version = client.db.version;
    }
}

/// A run to which nothing more can happen by itself has ended or asks for a person.
fn end(client: &Client) -> Result<(), String> {
    let run = &client.db.world.run;
    let over = run.status.is_terminal() || run.status == RunStatus::NeedsAttention;
    if over {
        Ok(())
    } else {
        Err(format!("at rest, the run is {}", run.status))
    }
}

/// Plays a case; a panic is a failure like any other.
fn outcome(case: &Case) -> Result<Tried, String> {
    catch_unwind(AssertUnwindSafe(|| case.play())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// Drops actions while the case still fails.
fn shrink(mut case: Case, mut failure: String) -> (Case, String) {
    let mut chunk = case.ops.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < case.ops.len() {
            let mut fewer = case.ops.clone();
            fewer.drain(at..(at + chunk).min(fewer.len()));
            let fewer = case.with(fewer);
            match outcome(&fewer) {
                Err(still) => (case, failure) = (fewer, still),
                Ok(_) => at += chunk,
            }
        }
        chunk /= 2;
    }
    let (case, failure) = shrink_batches(case, failure);
    shrink_steps(case, failure)
}

/// Drops top-level steps while the case still compiles and fails.
fn shrink_steps(mut case: Case, mut failure: String) -> (Case, String) {
    let mut at = 0;
    while let Value::Array(steps) = &case.steps {
        if at >= steps.len() || steps.len() == 1 {
            break;
        }
        let mut fewer = steps.clone();
        fewer.remove(at);
        let steps = Value::Array(fewer);
        let placed = envelopes::place(&steps, &envelopes::fleet());
        let fewer = placed.map(|placed| Case {
            steps,
            placed: Arc::new(placed),
            born: case.born.clone(),
            ops: case.ops.clone(),
        });
        match fewer.map(|fewer| (outcome(&fewer), fewer)) {
            Some((Err(still), fewer)) => (case, failure) = (fewer, still),
            _ => at += 1,
        }
    }
    (case, failure)
}

/// Drops the commands of batches while the case still fails.
fn shrink_batches(mut case: Case, mut failure: String) -> (Case, String) {
    for at in 0..case.ops.len() {
        let mut inner = 0;
        loop {
            let mut fewer = case.with(case.ops.clone());
            match fewer.ops.get_mut(at) {
                Some(Op::Batch(ops)) if inner < ops.len() => drop(ops.remove(inner)),
                _ => break,
            }
            match outcome(&fewer) {
                Err(still) => (case, failure) = (fewer, still),
                Ok(_) => inner += 1,
            }
        }
    }
    (case, failure)
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn simulate(part: u64) {
    if let Some(seed) = env("NEXUS_SIM_SEED") {
        return try_seed(seed).map_or_else(|report| panic!("{report}"), drop);
    }
    let cases = env("NEXUS_SIM_CASES").unwrap_or(CASES);
    let mut sum = Tried::default();
    for seed in (0..cases).filter(|seed| seed % PARTS == part) {
        match try_seed(seed) {
            Ok(tried) => sum.add(&tried),
            Err(report) => panic!("{report}"),
        }
    }
    println!("{sum:?}");
    if cases >= CASES {
        sum.is_worth_it();
    }
}

fn try_seed(seed: u64) -> Result<Tried, String> {
    let case = Case::of(seed);
    outcome(&case).map_err(|failure| {
        let (case, failure) = shrink(case, failure);
        let steps = case
            .steps
            .canonical()
            .map(|c| c.into_string())
            .unwrap_or_default();
        let ops: Vec<String> = case.ops.iter().map(|op| format!("  {op:?}")).collect();
        format!(
            "NEXUS_SIM_SEED={seed}\n{failure}\nsteps {steps}\nactions\n{}",
            ops.join("\n")
        )
    })
}

impl Tried {
    fn each(&mut self) -> [(&'static str, &mut usize); 31] {
        [
            ("grants", &mut self.grants),
            ("recoveries", &mut self.recoveries),
            ("lost claims", &mut self.lost_claims),
            ("commits", &mut self.commits),
            ("late commits", &mut self.late),
            ("conflicts", &mut self.conflicts),
            ("stale claims", &mut self.stale),
            ("extensions", &mut self.extensions),
            ("expiries", &mut self.expiries),
            ("revocations", &mut self.revoked),
            ("recoveries beside a commit", &mut self.slips),
            ("batches", &mut self.batches),
            ("pauses", &mut self.paused),
            ("stops", &mut self.stopped),
            ("holds", &mut self.held),
            ("completions", &mut self.completed),
            ("retries", &mut self.retried),
            ("abandons", &mut self.abandoned),
            ("cancels", &mut self.canceled),
            ("approvals", &mut self.approved),
            ("denials", &mut self.denied),
            ("answers", &mut self.answered),
            ("rounds", &mut self.rounds),
            ("appends", &mut self.appended),
            ("replays", &mut self.replayed),
            ("drains", &mut self.drained),
            ("races", &mut self.races),
            ("losers", &mut self.losers),
            ("failures taken over", &mut self.absorbed),
            ("skips opened again", &mut self.reopened),
            ("observations", &mut self.observed),
        ]
    }

    fn add(&mut self, other: &Self) {
        let mut other = *other;
        for ((_, sum), (_, more)) in self.each().into_iter().zip(other.each()) {
            *sum += *more;
        }
    }

    /// Each kind of thing happened often: a simulation that tries nothing proves nothing.
    fn is_worth_it(&mut self) {
        for (name, count) in self.each() {
            assert!(*count >= 10, "only {count} {name}");
        }
    }
}

/// One test a part: each is short, and a runner drives as many at once as it likes.
macro_rules! parts {
    ($($name:ident: $part:literal,)*) => {$(
        #[test]
        fn $name() {
            simulate($part);
        }
    )*};
}

parts! {
    every_invariant_holds_in_any_interleaving_1: 0,
    every_invariant_holds_in_any_interleaving_2: 1,
    every_invariant_holds_in_any_interleaving_3: 2,
    every_invariant_holds_in_any_interleaving_4: 3,
    every_invariant_holds_in_any_interleaving_5: 4,
    every_invariant_holds_in_any_interleaving_6: 5,
    every_invariant_holds_in_any_interleaving_7: 6,
    every_invariant_holds_in_any_interleaving_8: 7,
    every_invariant_holds_in_any_interleaving_9: 8,
    every_invariant_holds_in_any_interleaving_10: 9,
    every_invariant_holds_in_any_interleaving_11: 10,
    every_invariant_holds_in_any_interleaving_12: 11,
    every_invariant_holds_in_any_interleaving_13: 12,
    every_invariant_holds_in_any_interleaving_14: 13,
    every_invariant_holds_in_any_interleaving_15: 14,
    every_invariant_holds_in_any_interleaving_16: 15,
}
