//! Random envelopes of what the doors offer: calls, rounds, questions, observations, detached work;
//! sequences, `all` fans and races, nested, with `after`, `results` and policies.
//!
//! Compiled twice, so that both try the same grammar: here, and in the comparison over the real
//! database (`tests/it/comparison`). So it names only what its parent names for it.

use super::{Object, PublicId, Value};

/// A small generator: the same numbers for the same seed, cheap without optimisation.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).expect("below n")
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// The tools that are called; the last is served by nobody.
const TOOLS: [&str; 6] = ["read", "write", "mixed", "agent", "shell", "nowhere"];

/// What a random envelope is made of.
#[derive(Debug, Clone, Copy)]
pub struct Palette {
    /// Races beside `all` fans.
    pub races: bool,
    /// Model rounds.
    pub rounds: bool,
    /// Questions and observations.
    pub awaits: bool,
    /// Work that its envelope does not wait for.
    pub detached: bool,
}

impl Palette {
    /// That of a run's first envelope.
    pub fn of_run(dice: &mut Dice) -> Self {
        Self {
            races: !dice.one_in(4),
            rounds: dice.one_in(3),
            awaits: dice.one_in(2),
            detached: dice.one_in(2),
        }
    }

    /// That of an append.
    pub fn of_append(dice: &mut Dice) -> Self {
        Self {
            races: dice.one_in(2),
            rounds: dice.one_in(3),
            awaits: dice.one_in(2),
            detached: dice.one_in(2),
        }
    }
}

/// The most steps of a run's first envelope: mostly few, at times 64.
pub fn most_steps(dice: &mut Dice) -> usize {
    match dice.below(16) {
        0 if dice.one_in(3) => 64,
        0..=2 => 24,
        _ => 8,
    }
}

struct Writer<'a> {
    dice: &'a mut Dice,
    runners: &'a [PublicId],
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
pub fn steps(
    dice: &mut Dice,
    most: usize,
    runners: &[PublicId],
    palette: Palette,
    prefix: char,
    named: Vec<String>,
) -> Value {
    let mut writer = Writer {
        dice,
        runners,
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
            let target = self.dice.of(self.runners).to_string();
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

/// Rules by which calls that members wrote rest for an approver, or are refused.
pub fn rules(dice: &mut Dice) -> Value {
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
    Value::Array(rules)
}
