//! What executors, sweepers and people do to a run, as data that stays meaningful when parts of
//! it are dropped: an action names the n-th of what is there when it is done.

use std::collections::BTreeSet;

use super::command::{Answer, Appending, Command, body, link};
use super::db::{Db, Taking};
use super::envelopes;
use super::grammar::{self, Dice, Palette};
use crate::domain::json::{Object, Value};
use crate::domain::words::{ExecutorKind, Holder, ParkKind, RunStatus, TaskKind, TaskStatus};
use crate::domain::{ExecutorId, TaskKey, TaskNo};
use crate::engine::claim::Verdict;
use crate::engine::facts::Task;
use crate::engine::invariants::{World, refusal_changes_nothing};

/// Which token a command brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Right,
    /// One that a recovered claim replaced, else junk.
    Replaced,
    Junk,
    None,
}

/// What a commit says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Completed,
    Errored,
    Failed,
    Linked,
    BadLink,
    BadOutcome,
    Unstorable,
}

/// One thing somebody does.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Start,
    /// Claims the n-th park; in two steps if others get in between.
    Claim {
        park: usize,
        who: usize,
        under: Option<u8>,
        split: bool,
    },
    /// The second step of a claim.
    Take,
    /// Asks again for the n-th claim, under its key.
    ClaimAgain {
        held: usize,
    },
    Commit {
        held: usize,
        what: What,
        token: Token,
        as_other: bool,
        lost: bool,
    },
    /// Commits while the same executor recovers the claim: the token it brings is replaced between
    /// the decision and the write.
    Slip {
        held: usize,
    },
    /// The addressee of the n-th park leaves: what it was sent and did not claim fails.
    Revoke {
        park: usize,
    },
    /// Repeats the n-th accepted commit; changed or not.
    CommitAgain {
        accepted: usize,
        changed: bool,
    },
    Extend {
        held: usize,
        ms: i64,
        token: Token,
    },
    Tick(i64),
    /// Moves the clock to the n-th park's deadline, plus so much.
    ToDeadline {
        park: usize,
        plus: i64,
    },
    /// The sweeper reads what is due.
    Scan,
    /// The sweeper acts on what it read.
    Sweep,
    Schedule,
    Stop,
    Graceful,
    /// The sweep looks at a drain.
    LongDrain,
    Pause {
        force: bool,
    },
    Resume,
    /// The n-th failure, or row, is retried.
    Retry(usize),
    Abandon(usize),
    Cancel(usize),
    /// The n-th call that rests, or row, is approved.
    Approve(usize),
    Deny(usize),
    /// The n-th question, or row, is answered.
    Answer {
        ask: usize,
        what: What,
        token: Token,
    },
    /// A machine answers it, the application among them.
    AnswerAs {
        ask: usize,
        who: usize,
    },
    /// A model worker takes the n-th ready round, or brings an answer.
    Round {
        row: usize,
        fails: bool,
    },
    Append {
        seed: u64,
        resolves: bool,
        revision: Option<i64>,
        under: Option<u8>,
    },
    /// Repeats the n-th accepted append; changed or not.
    AppendAgain {
        accepted: usize,
        changed: bool,
    },
    /// The creator's standing changes.
    Standing,
    /// An executor begins or stops draining.
    Drain {
        who: usize,
    },
    /// An executor withdraws a tool, or announces it again with another profile.
    Announce {
        who: usize,
    },
    /// Commands that one lane takes together.
    Batch(Vec<Op>),
}

/// How a case's world is disposed: whether calls fail, and whether clocks run out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mood {
    pub(super) fails: bool,
    pub(super) dawdles: bool,
    /// How often persons meddle: one in so many actions.
    pub(super) meddles: usize,
}

/// A random action.
pub(super) fn op(dice: &mut Dice, mood: Mood) -> Op {
    if dice.one_in(mood.meddles) {
        return meddle(dice, mood);
    }
    let n = dice.below(64);
    match dice.below(40) {
        0..=13 => Op::Claim {
            park: n,
            who: dice.below(9),
            under: dice
                .one_in(2)
                .then(|| u8::try_from(dice.below(3)).expect("small")),
            split: dice.one_in(4),
        },
        14 => Op::Take,
        15 => Op::ClaimAgain { held: n },
        16 | 17 => Op::Tick(*dice.of(&[1, 100, 5_000])),
        18 | 19 if mood.dawdles => Op::ToDeadline {
            park: n,
            plus: *dice.of(&[-1, 0, 0, 1]),
        },
        20 | 21 => Op::Scan,
        22 => Op::Resume,
        23 if dice.one_in(4) => Op::Standing,
        24 if dice.one_in(3) => Op::Drain { who: n },
        25 if dice.one_in(3) => Op::Announce { who: n },
        25 => Op::Revoke { park: n },
        26 if dice.one_in(3) => Op::Slip { held: n },
        26..=28 => Op::Batch(
            (0..2 + dice.below(5))
                .map(|_| lane_op(dice, mood))
                .collect(),
        ),
        _ => match lane_op(dice, mood) {
            Op::Commit {
                held,
                what,
                token,
                as_other,
                ..
            } => {
                let lost = dice.one_in(4);
                Op::Commit {
                    held,
                    what,
                    token,
                    as_other,
                    lost,
                }
            }
            op => op,
        },
    }
}

/// A random action of a person, or of who works rounds.
fn meddle(dice: &mut Dice, mood: Mood) -> Op {
    let n = dice.below(64);
    match dice.below(32) {
        0..=2 => Op::Retry(n),
        3 | 4 => Op::Abandon(n),
        5 if dice.one_in(2) => Op::Cancel(n),
        5..=7 => Op::Approve(n),
        8 => Op::Deny(n),
        9..=12 => Op::Answer {
            ask: n,
            what: what(dice, mood),
            token: match dice.below(8) {
                0 => Token::Junk,
                1 => Token::None,
                _ => Token::Right,
            },
        },
        13 => Op::AnswerAs { ask: n, who: n },
        14..=22 => Op::Round {
            row: n,
            fails: mood.fails && dice.one_in(3),
        },
        23..=25 => Op::Append {
            seed: dice.next() % 100_000,
            resolves: dice.one_in(4),
            revision: dice.one_in(4).then(|| *dice.of(&[1, 1, 2, 3])),
            under: dice
                .one_in(2)
                .then(|| u8::try_from(dice.below(4)).expect("small")),
        },
        26 => Op::AppendAgain {
            accepted: n,
            changed: dice.one_in(3),
        },
        27 if dice.one_in(4) => Op::Graceful,
        27 if dice.one_in(4) => Op::LongDrain,
        27 | 28 => Op::Pause {
            force: dice.one_in(3),
        },
        _ => Op::Resume,
    }
}

/// A random action that takes the run lock: one of a batch, perhaps.
fn lane_op(dice: &mut Dice, mood: Mood) -> Op {
    if dice.one_in(mood.meddles) {
        return meddle(dice, mood);
    }
    let n = dice.below(64);
    let token = match dice.below(16) {
        0 => Token::Junk,
        1 => Token::Replaced,
        2 => Token::None,
        _ => Token::Right,
    };
    match dice.below(32) {
        0..=15 => Op::Commit {
            held: n,
            what: what(dice, mood),
            token,
            as_other: dice.one_in(12),
            lost: false,
        },
        16..=18 => Op::CommitAgain {
            accepted: n,
            changed: dice.one_in(3),
        },
        19..=23 => Op::Extend {
            held: n,
            ms: *dice.of(&[1, 1_000, 25_000, 60_000, 3_600_000, 3_600_001]),
            token,
        },
        24..=27 => Op::Sweep,
        28 if dice.one_in(4) => Op::Stop,
        29 if dice.one_in(2) => Op::Pause { force: false },
        _ => Op::Schedule,
    }
}

fn what(dice: &mut Dice, mood: Mood) -> What {
    match dice.below(20) {
        0 | 1 if mood.fails => What::Failed,
        2 if mood.fails => What::Unstorable,
        3 => What::Errored,
        4 => What::Linked,
        5 => What::BadLink,
        6 => What::BadOutcome,
        _ => What::Completed,
    }
}

/// A claim as its holder knows it.
#[derive(Debug, Clone)]
struct Held {
    key: TaskKey,
    task: TaskNo,
    generation: i32,
    by: ExecutorId,
    under: Option<Vec<u8>>,
    tokens: Vec<[u8; 32]>,
}

/// An accepted commit as its executor knows it.
#[derive(Debug, Clone)]
struct Accepted {
    key: TaskKey,
    generation: i32,
    by: ExecutorId,
    token: [u8; 32],
    body: Object,
}

/// The outside world: what it holds, and what it must be told.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) db: Db,
    held: Vec<Held>,
    accepted: Vec<Accepted>,
    /// Accepted appends with their receipts.
    appended: Vec<(Appending, String)>,
    taking: Vec<(TaskKey, Verdict, Taking)>,
    scanned: Vec<TaskNo>,
    granted: BTreeSet<(TaskNo, i32)>,
    tokens: u8,
    refused: bool,
    willing: bool,
    /// How often something worth trying happened, so that a simulation that tries nothing fails.
    pub(super) tried: Tried,
}

/// See [`Client::tried`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tried {
    pub(super) grants: usize,
    pub(super) recoveries: usize,
    pub(super) lost_claims: usize,
    pub(super) commits: usize,
    pub(super) late: usize,
    pub(super) conflicts: usize,
    pub(super) stale: usize,
    pub(super) extensions: usize,
    pub(super) expiries: usize,
    pub(super) revoked: usize,
    pub(super) slips: usize,
    pub(super) batches: usize,
    pub(super) paused: usize,
    pub(super) stopped: usize,
    pub(super) held: usize,
    pub(super) completed: usize,
    pub(super) retried: usize,
    pub(super) abandoned: usize,
    pub(super) canceled: usize,
    pub(super) approved: usize,
    pub(super) denied: usize,
    pub(super) answered: usize,
    pub(super) rounds: usize,
    pub(super) appended: usize,
    pub(super) replayed: usize,
    pub(super) drained: usize,
    pub(super) races: usize,
    pub(super) losers: usize,
    pub(super) absorbed: usize,
    pub(super) reopened: usize,
    pub(super) observed: usize,
}

type Outcome = Result<(), String>;

impl Client {
    pub(super) fn new(db: Db) -> Self {
        Self {
            db,
            held: Vec::new(),
            accepted: Vec::new(),
            appended: Vec::new(),
            taking: Vec::new(),
            scanned: Vec::new(),
            granted: BTreeSet::new(),
            tokens: 0,
            refused: false,
            willing: false,
            tried: Tried::default(),
        }
    }

    fn machine(&self, who: usize) -> ExecutorId {
        let machines = &self.db.fleet.machines;
        machines[who % machines.len()].caller.id
    }

    /// A provider that announces the tool, while there is one.
    fn provider(&self, tool: Option<&str>, who: usize) -> ExecutorId {
        let machines = self.db.fleet.machines.iter().filter(|m| {
            m.caller.executor.kind == ExecutorKind::ToolProvider
                && self.db.fleet.announces(m.caller.id, tool)
        });
        let ids: Vec<ExecutorId> = machines.map(|m| m.caller.id).collect();
        nth(&ids, who).copied().unwrap_or_else(|| self.machine(who))
    }

    fn fresh_token(&mut self) -> [u8; 32] {
        self.tokens = self.tokens.wrapping_add(1);
        let mut token = [7; 32];
        token[0] = self.tokens;
        token
    }

    /// Does one thing and checks what its doer was told.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn act(&mut self, op: &Op, before: &World) -> Outcome {
        match op {
            Op::Claim {
                park,
                who,
                under,
                split,
            } => self.claim(*park, *who, *under, *split),
            Op::Take => match self.taking.pop() {
                Some((key, verdict, taking)) => self.take(&key, verdict, &taking),
                None => Ok(()),
            },
            Op::ClaimAgain { held } => self.claim_again(*held),
            Op::Tick(ms) => {
                self.tick(*ms);
                Ok(())
            }
            Op::ToDeadline { park, plus } => {
                if let Some(park) = nth(&self.db.world.parks, *park) {
                    let wanted = crate::domain::time::plus_ms(park.deadline_at, *plus);
                    self.db.world.now = self.db.world.now.max(wanted);
                }
                Ok(())
            }
            Op::Scan => {
                self.scanned = self.db.due();
                Ok(())
            }
            Op::Standing => {
                let run = &mut self.db.world.run;
                run.creator_may_write = !run.creator_may_write;
                self.db.version += 1;
                Ok(())
            }
            Op::Drain { who } => {
                let id = self.machine(*who);
                for machine in self
                    .db
                    .fleet
                    .machines
                    .iter_mut()
                    .filter(|m| m.caller.id == id)
                {
                    let facts = &mut machine.caller.executor;
                    facts.shutting_down = !facts.shutting_down;
                }
                Ok(())
            }
            Op::Announce { who } => {
                self.announce(*who);
                Ok(())
            }
            Op::Batch(ops) => self.batch(ops, before),
            Op::Slip { held } => self.slip(*held, before),
            Op::Commit { lost: true, .. } => self.lost(op, before),
            _ => match self.command(op) {
                Some(command) => self.alone(command, before).map(|_| ()),
                None => Ok(()),
            },
        }
    }

    fn tick(&mut self, ms: i64) {
        self.db.world.now = crate::domain::time::plus_ms(self.db.world.now, ms);
    }

    fn announce(&mut self, who: usize) {
        let id = self.machine(who);
        let whole = super::envelopes::fleet();
        for machine in self
            .db
            .fleet
            .machines
            .iter_mut()
            .filter(|m| m.caller.id == id)
        {
            match machine.serves.pop_first() {
                Some(_) => {}
                None => machine.serves = whole.named(&machine.name).serves.clone(),
            }
        }
    }

    // ---------------------------------------------------------------- claims

    fn claim(&mut self, park: usize, who: usize, under: Option<u8>, split: bool) -> Outcome {
        let Some(park) = nth(&self.db.world.parks, park) else {
            return Ok(());
        };
        let task = self.db.task(park.task);
        let key = task.key.clone();
        // Mostly the addressee asks, or a provider of the pool; at times somebody else.
        let by = match park.executor {
            Some(executor) if who != 0 => executor,
            None if who > 2 => self.provider(task.tool_name.as_deref(), who),
            _ => self.machine(who),
        };
        let under = under.map(|n| vec![n]);
        let token = self.fresh_token();
        let judged = self
            .db
            .judge_claim(key.as_str(), by, under.as_deref(), token);
        let claimed = self
            .db
            .park(task_no(&self.db, &key))
            .is_some_and(|p| p.claim.is_some());
        match judged {
            Err(_) => Ok(()),
            Ok((Verdict::Grant, _)) if claimed => Err(format!("{key} was granted twice")),
            Ok((verdict, taking)) if split => {
                self.taking.push((key, verdict, taking));
                Ok(())
            }
            Ok((verdict, taking)) => {
                let before = self.tried;
                self.take(&key, verdict, &taking)?;
                let won =
                    self.tried.grants + self.tried.recoveries > before.grants + before.recoveries;
                let lost = format!("{key} was judged free, yet the guarded write met no row");
                if won { Ok(()) } else { Err(lost) }
            }
        }
    }

    fn take(&mut self, key: &TaskKey, verdict: Verdict, taking: &Taking) -> Outcome {
        if !self.db.take(verdict, taking) {
            self.tried.lost_claims += 1;
            return Ok(());
        }
        let place = (taking.task, taking.generation);
        self.refused = false;
        match verdict {
            Verdict::Grant => {
                self.tried.grants += 1;
                if self.db.world.run.counts.unresolved > 0 {
                    // The last call that nobody had claimed may be claimed now: a run with a failure
                    // is looked at again.
                    self.db.run(Command::Schedule)?;
                }
                if !self.granted.insert(place) {
                    return Err(format!("{key} was granted twice in generation {}", place.1));
                }
                self.held.push(Held {
                    key: key.clone(),
                    task: taking.task,
                    generation: taking.generation,
                    by: taking.by,
                    under: taking.key.clone(),
                    tokens: vec![taking.digest],
                });
            }
            Verdict::Recover => {
                self.tried.recoveries += 1;
                let held = self.held.iter_mut().rev().find(|h| h.task == taking.task);
                let held = held.ok_or(format!("{key} was recovered, never granted"))?;
                if held.by != taking.by || held.under != taking.key {
                    return Err(format!("{key} was recovered by another executor or key"));
                }
                held.tokens.push(taking.digest);
            }
        }
        Ok(())
    }

    fn claim_again(&mut self, held: usize) -> Outcome {
        let Some(held) = nth(&self.held, held).cloned() else {
            return Ok(());
        };
        let token = self.fresh_token();
        match self
            .db
            .judge_claim(held.key.as_str(), held.by, held.under.as_deref(), token)
        {
            Ok((Verdict::Recover, taking)) if held.under.is_some() => {
                let deadline = self.db.park(held.task).map(|p| p.deadline_at);
                self.take(&held.key, Verdict::Recover, &taking)?;
                let is = self.db.park(held.task).map(|p| p.deadline_at);
                if deadline == is {
                    Ok(())
                } else {
                    Err("a recovery moved the clock".to_owned())
                }
            }
            // Another generation is another claim.
            Ok((Verdict::Grant, taking)) if taking.generation > held.generation => Ok(()),
            Ok((verdict, _)) => Err(format!("{} claimed again: {verdict:?}", held.key)),
            Err(_) => Ok(()),
        }
    }

    // ---------------------------------------------------------------- lane commands

    fn token(held: &Held, which: Token) -> Option<[u8; 32]> {
        match which {
            Token::Right => held.tokens.last().copied(),
            Token::Replaced if held.tokens.len() > 1 => held.tokens.first().copied(),
            Token::Replaced | Token::Junk => Some([0; 32]),
            Token::None => None,
        }
    }

    /// What an action asks of the lane, as things stand now.
    fn command(&self, op: &Op) -> Option<Command> {
        Some(match op {
            Op::Start => Command::Start,
            Op::Schedule => Command::Schedule,
            Op::Stop => Command::Stop(None),
            Op::Graceful => Command::Graceful,
            Op::LongDrain => Command::LongDrain,
            Op::Pause { force } => Command::Pause { force: *force },
            Op::Resume => Command::Resume,
            Op::Retry(n) => Command::Retry(self.failure(*n)),
            Op::Abandon(n) => Command::Abandon(self.failure(*n)),
            Op::Cancel(n) => Command::Cancel(self.row(*n, |t| !t.status.is_terminal())),
            Op::Approve(n) => Command::Approve(self.resting(*n)),
            Op::Deny(n) => Command::Deny(self.resting(*n), (*n % 2 == 0).then(|| "no".to_owned())),
            Op::Answer { ask, what, token } => {
                let key = self.question(*ask);
                let task = self.db.task(task_no(&self.db, &key));
                let right = task.resolution_digest.as_ref();
                let right = right.map(|d| <[u8; 32]>::try_from(&d[..]).expect("a digest"));
                Command::Answer {
                    body: said(*what, &key),
                    token: match token {
                        Token::Right => right,
                        Token::None => None,
                        Token::Replaced | Token::Junk => Some([0; 32]),
                    },
                    key,
                }
            }
            Op::AnswerAs { ask, who } => {
                let key = self.question(*ask);
                let own = self
                    .db
                    .park(task_no(&self.db, &key))
                    .and_then(|p| p.executor);
                Command::Commit {
                    by: own
                        .filter(|_| *who % 3 != 0)
                        .unwrap_or_else(|| self.machine(*who)),
                    token: None,
                    body: said(What::Completed, &key),
                    key,
                }
            }
            Op::Round { row, fails } => Command::Round {
                key: self.row(*row, |t| {
                    t.kind == TaskKind::Model
                        && (t.status == TaskStatus::Running
                            || (t.status == TaskStatus::Queued && t.remaining == 0))
                }),
                fails: *fails,
            },
            Op::Append {
                seed,
                resolves,
                revision,
                under,
            } => {
                let under = under.map(|n| format!("append{n}"));
                let seed = *seed;
                Command::Append(Box::new(self.appending(seed, *resolves, *revision, under)?))
            }
            Op::AppendAgain { accepted, changed } => {
                let (mut appending, _) = nth(&self.appended, *accepted).cloned()?;
                if *changed {
                    appending.expected_revision = Some(99);
                }
                Command::Append(Box::new(appending))
            }
            Op::Revoke { park } => {
                let executor = nth(&self.db.world.parks, *park)?.executor?;
                let parks = self.db.world.parks.iter();
                let rows = parks.filter(|p| p.executor == Some(executor));
                Command::Revoke {
                    executor,
                    rows: rows.map(|p| p.task).collect(),
                }
            }
            Op::Sweep if self.scanned.is_empty() => return None,
            Op::Sweep => Command::Expire(self.scanned.clone()),
            Op::Commit {
                held,
                what,
                token,
                as_other,
                ..
            } => {
                let held = nth(&self.held, *held)?;
                Command::Commit {
                    key: held.key.clone(),
                    by: if *as_other {
                        self.machine(held.tokens.len())
                    } else {
                        held.by
                    },
                    token: Self::token(held, *token),
                    body: said(*what, &held.key),
                }
            }
            Op::CommitAgain { accepted, changed } => {
                let accepted = nth(&self.accepted, *accepted)?;
                let mut body = accepted.body.clone();
                if *changed {
                    body.insert("title".into(), "another".into());
                }
                Command::Commit {
                    key: accepted.key.clone(),
                    by: accepted.by,
                    token: Some(accepted.token),
                    body,
                }
            }
            Op::Extend { held, ms, token } => {
                let held = nth(&self.held, *held)?;
                Command::Extend {
                    key: held.key.clone(),
                    by: held.by,
                    token: Self::token(held, *token).unwrap_or_default(),
                    timeout_ms: *ms,
                }
            }
            _ => return None,
        })
    }

    /// The n-th row of which that holds; at times, and if there is none, any row.
    fn row(&self, n: usize, holds: impl Fn(&Task) -> bool) -> TaskKey {
        let tasks = &self.db.world.tasks;
        let fit: Vec<&Task> = tasks.iter().filter(|t| holds(t)).collect();
        let found = nth(&fit, n).filter(|_| n % 16 != 15).copied();
        let found = found.or_else(|| nth(tasks, n));
        found.expect("a run has rows").key.clone()
    }

    fn failure(&self, n: usize) -> TaskKey {
        self.row(n, |t| self.db.world.failures.contains(&t.no))
    }

    fn resting(&self, n: usize) -> TaskKey {
        self.row(n, |t| t.status == TaskStatus::NeedsApproval)
    }

    fn question(&self, n: usize) -> TaskKey {
        self.row(n, |t| {
            let park = self.db.park(t.no);
            park.is_some_and(|p| p.kind == ParkKind::Ask)
        })
    }

    fn appending(
        &self,
        seed: u64,
        resolves: bool,
        revision: Option<i64>,
        under: Option<String>,
    ) -> Option<Appending> {
        let mut dice = Dice::new(seed);
        let tasks = &self.db.world.tasks;
        let named = (0..3).map(|_| dice.of(tasks).key.as_str().to_owned());
        let named: Vec<String> = named.collect();
        let palette = Palette::of_append(&mut dice);
        let prefix = *dice.of(&['p', 'q', 'v', 'x', 'y']);
        let mut steps = Value::Array(Vec::new());
        if !resolves || dice.one_in(2) {
            let most = 1 + dice.below(4);
            let runners = envelopes::runner_ids(&self.db.fleet);
            steps = grammar::steps(&mut dice, most, &runners, palette, prefix, named);
        }
        let mut answers = Vec::new();
        for n in 0..usize::from(resolves) * (1 + dice.below(2)) {
            let key = self.question(dice.below(48) + n);
            let what = if dice.one_in(8) {
                What::Failed
            } else {
                What::Completed
            };
            answers.push((key.as_str().to_owned(), said(what, &key)));
        }
        Appending::new(steps, answers, revision, under, seed)
    }

    /// One command in a transaction of its own.
    fn alone(&mut self, command: Command, before: &World) -> Result<Answer, String> {
        let version = self.db.version;
        let answer = self.db.run(command.clone())?;
        let refused = matches!(answer, Answer::Refused(code) if code != "result_unstorable");
        let late = ["not_awaiting_approval", "already_terminal"];
        let late = matches!(answer, Answer::Refused(code) if late.contains(&code));
        let expired = late && self.expired(before, &command);
        // A command that loads ready rows starts what is owed, though it is refused itself.
        let refused = refused && !before.run.schedulable;
        if refused && !expired && self.db.version != version {
            return Err(format!("{answer:?}, yet something was written"));
        }
        self.judge(before, &command, &answer)?;
        self.note(before, &command, &answer);
        Ok(answer)
    }

    /// Whether a person's word about a parked row came too late and settled it.
    fn expired(&self, before: &World, command: &Command) -> bool {
        match command {
            Command::Approve(key) | Command::Deny(key, _) | Command::Cancel(key) => {
                let no = task_no(&self.db, key);
                let (was, is) = (task(before, no).status, self.db.task(no).status);
                let expired = matches!(is, TaskStatus::TimedOut | TaskStatus::Uncertain);
                expired && !was.is_terminal()
            }
            _ => false,
        }
    }

    /// A claim takes no run lock: its recovery gets between a commit's decision and its write.
    fn slip(&mut self, held: usize, before: &World) -> Outcome {
        let Some(held) = nth(&self.held, held).cloned() else {
            return Ok(());
        };
        let token = self.fresh_token();
        let under = held.under.as_deref();
        let judged = self
            .db
            .judge_claim(held.key.as_str(), held.by, under, token);
        let Ok((Verdict::Recover, taking)) = judged else {
            return Ok(());
        };
        let commit = Command::Commit {
            key: held.key.clone(),
            by: held.by,
            token: held.tokens.last().copied(),
            body: said(What::Completed, &held.key),
        };
        let mut recovered = false;
        let done = self.db.transact_beside(&[commit], |db| {
            recovered = db.take(Verdict::Recover, &taking);
        })?;
        if !recovered {
            return Err(format!("{} was judged and not recovered", held.key));
        }
        self.tried.slips += 1;
        for known in self.held.iter_mut().filter(|h| h.task == held.task) {
            known.tokens.push(token);
        }
        let parked = self.db.park(held.task).is_some();
        match done.answers.as_slice() {
            [Answer::Refused(_)] if parked => Ok(()),
            told => Err(format!(
                "{}: told {told:?} after {:?}, parked: {parked}",
                held.key, before.run.status
            )),
        }
    }

    /// A crash between commit and reply: the client repeats what it does not know the fate of.
    fn lost(&mut self, op: &Op, before: &World) -> Outcome {
        let Some(command) = self.command(op) else {
            return Ok(());
        };
        let first = self.alone(command.clone(), before)?;
        let between = snapshot(&self.db.world);
        let second = self.db.run(command)?;
        refusal_changes_nothing(&between, &self.db.world).map_err(|v| v.to_string())?;
        let same = match &first {
            Answer::Refused("result_unstorable") => {
                matches!(second, Answer::Task(_, TaskStatus::Failed))
            }
            other => second == *other,
        };
        if same {
            Ok(())
        } else {
            Err(format!("told {first:?}, then {second:?}"))
        }
    }

    /// INV-10, INV-36: a batch comes to what its commands come to one by one.
    fn batch(&mut self, ops: &[Op], before: &World) -> Outcome {
        let commands: Vec<Command> = ops.iter().filter_map(|op| self.command(op)).collect();
        let mut single = self.db.clone();
        let mut answers = Vec::new();
        let mut owed = false;
        for command in &commands {
            answers.push(single.run(command.clone())?);
            owed |= single.world.run.schedulable;
        }
        let done = self.db.transact(&commands)?;
        self.tried.batches += 1;
        // A row is shown as it stands when its transaction ends.
        let alike = |(a, b): (&Answer, &Answer)| match (a, b) {
            (Answer::Task(a, _), Answer::Task(b, _)) => a == b,
            _ => a == b,
        };
        if !done.answers.iter().zip(&answers).all(alike) {
            return Err(format!(
                "together {:?}, one by one {answers:?}: {commands:?}",
                done.answers
            ));
        }
        if owed {
            // Rows that one command alone did not see wait for a pass: then all is the same.
            let mut together = self.db.clone();
            together.run(Command::Schedule)?;
            single.run(Command::Schedule)?;
            let states = |db: &Db| -> Vec<_> {
                let rows = db.world.tasks.iter();
                rows.map(|t| (t.no, t.status, t.generation)).collect()
            };
            let same = states(&together) == states(&single)
                && together.world.run.status == single.world.run.status;
            if !same {
                let difference = difference(&together.world, &single.world);
                return Err(format!("after a pass: {difference}"));
            }
            for (command, answer) in commands.iter().zip(&answers) {
                self.note(before, command, answer);
            }
            return Ok(());
        }
        // Edges of one transaction are born in one order, of several in another.
        single.world.edges.sort_by_key(|e| (e.from, e.to));
        let mut together = snapshot(&self.db.world);
        together.items.clone_from(&self.db.world.items);
        together.edges.sort_by_key(|e| (e.from, e.to));
        if together != single.world {
            let difference = difference(&together, &single.world);
            return Err(format!("together, then one by one: {difference}"));
        }
        for (command, answer) in commands.iter().zip(&answers) {
            self.note(before, command, answer);
        }
        Ok(())
    }

    /// What a command may be told, by what the client knows.
    fn judge(&self, before: &World, command: &Command, answer: &Answer) -> Outcome {
        match (command, answer) {
            (
                Command::Commit {
                    key,
                    token,
                    body,
                    by,
                },
                answer,
            ) => self.judge_commit(before, key, *by, *token, body, answer),
            (
                Command::Extend {
                    key,
                    token,
                    timeout_ms,
                    ..
                },
                Answer::Deadline(at),
            ) => {
                let wanted = crate::domain::time::plus_ms(self.db.world.now, *timeout_ms);
                let known = self
                    .held
                    .iter()
                    .any(|h| h.key == *key && h.tokens.last() == Some(token));
                if *at == wanted && known {
                    Ok(())
                } else {
                    Err(format!(
                        "{key} extended to {at}, not {wanted}; known: {known}"
                    ))
                }
            }
            (Command::Append(appending), Answer::Appended(accepted)) => {
                let under = appending.under.as_ref();
                let known = self
                    .appended
                    .iter()
                    .find(|(a, _)| under.is_some() && a.under.as_ref() == under);
                match known {
                    Some((_, receipt)) if accepted.replayed && *receipt == accepted.receipt => {
                        Ok(())
                    }
                    None if !accepted.replayed => Ok(()),
                    _ => Err(format!("{accepted:?} for {known:?}")),
                }
            }
            _ => self.judge_verb(before, command, answer),
        }
    }

    /// What the verbs of persons must be told, from the tables of `runs.md` §7 and §8.
    fn judge_verb(&self, before: &World, command: &Command, answer: &Answer) -> Outcome {
        use RunStatus::{Canceling, NeedsAttention, Paused, Pending, Running};
        let run = &before.run;
        let adjudicable = matches!(run.status, Running | Paused | NeedsAttention);
        let of = |key: &TaskKey| task(before, task_no(&self.db, key));
        let park = |key: &TaskKey| before.parks.iter().find(|p| p.task == of(key).no);
        let due = |key: &TaskKey| {
            park(key).is_some_and(|p| run.run_now(self.db.world.now) >= p.deadline_at)
        };
        let wanted = match command {
            Command::Cancel(key) if due(key) && of(key).mark.is_none() => "already_terminal",
            Command::Retry(key) | Command::Abandon(key) => {
                let adjudicable = adjudicable || run.status == Pending;
                let retries = matches!(command, Command::Retry(_));
                let fits = before.failures.contains(&of(key).no)
                    && !(retries && of(key).kind == TaskKind::Join);
                match (adjudicable, fits) {
                    (false, _) => "not_adjudicable",
                    (_, true) => "ok",
                    _ if retries => "not_retryable",
                    _ => "not_abandonable",
                }
            }
            Command::Approve(key) | Command::Deny(key, _) => {
                let rests = of(key).status == TaskStatus::NeedsApproval;
                match (adjudicable, rests && !due(key)) {
                    (false, _) => "not_adjudicable",
                    (_, true) => "ok",
                    _ => "not_awaiting_approval",
                }
            }
            Command::Pause { .. } if run.status == Running => "ok",
            Command::Pause { force: true } if run.status == Paused => "ok",
            Command::Pause { .. } => "not_pausable",
            Command::Resume if run.status == Paused => "ok",
            Command::Resume => "not_resumable",
            Command::Graceful | Command::Stop(_) => match run.status {
                Pending | Running | Paused | NeedsAttention | Canceling => "ok",
                RunStatus::Completed if run.stopped_at.is_none() => "ok",
                _ => "already_terminal",
            },
            Command::Answer { key, token, .. } => {
                let task = of(key);
                let fits = match (task.holder, token) {
                    (Some(Holder::Token), Some(token)) => {
                        task.resolution_digest.as_deref() == Some(&token[..])
                    }
                    (Some(Holder::Person), None) => true,
                    _ => false,
                };
                match (task.kind, fits) {
                    (kind, _) if kind != TaskKind::Await => "task_not_running",
                    (_, false) => "stale_claim",
                    _ if task.status.is_terminal() => "the row",
                    _ if park(key).is_none() => "task_not_running",
                    _ if due(key) => "timed_out",
                    _ => return Ok(()),
                }
            }
            Command::Append(_) if !(adjudicable || run.status == Pending) => match answer {
                Answer::Refused("run_not_appendable" | "idempotency_envelope_mismatch") => {
                    return Ok(());
                }
                _ => "run_not_appendable",
            },
            _ => return Ok(()),
        };
        let right = match answer {
            Answer::Ok => wanted == "ok",
            Answer::Refused(code) => wanted == *code,
            Answer::Task(_, TaskStatus::TimedOut) if wanted == "timed_out" => true,
            Answer::Task(no, status) => wanted == "the row" && task(before, *no).status == *status,
            _ => false,
        };
        if right {
            Ok(())
        } else {
            Err(format!("told {answer:?}, where {wanted} is right"))
        }
    }

    fn judge_commit(
        &self,
        before: &World,
        key: &TaskKey,
        by: ExecutorId,
        token: Option<[u8; 32]>,
        body: &Object,
        answer: &Answer,
    ) -> Outcome {
        let was = task(before, task_no(&self.db, key));
        if was.kind == TaskKind::Await {
            // Answered by whom it is addressed to; there is no token.
            let by_addressee = was.addressed.and_then(|a| a.executor) == Some(by);
            return match answer {
                Answer::Task(..) if !by_addressee => Err(format!("{key} was answered by {by:?}")),
                _ => Ok(()),
            };
        }
        let held = self
            .held
            .iter()
            .find(|h| h.key == *key && h.by == by && h.generation == was.generation);
        let right = held.is_some_and(|h| token.is_some() && h.tokens.last().copied() == token);
        let stored = self
            .accepted
            .iter()
            .find(|a| a.key == *key && a.generation == was.generation);
        match answer {
            Answer::Task(..) if !right => Err(format!("{key} was committed without its token")),
            Answer::Task(_, status) if !status.is_terminal() => {
                Err(format!("{key} was committed and is {status}"))
            }
            Answer::Task(..) if was.status.is_terminal() => match stored {
                Some(stored) if stored.body != *body => {
                    Err(format!("{key} has a result; another was answered 200"))
                }
                _ => Ok(()),
            },
            Answer::Refused("final_result_conflict") if stored.is_none_or(|s| s.body == *body) => {
                Err(format!("{key}: a conflict with no other result"))
            }
            Answer::Refused("stale_claim") if right => {
                Err(format!("{key}: the right token is stale"))
            }
            _ => Ok(()),
        }
    }

    /// Remembers what a client learned from an answer.
    fn note(&mut self, before: &World, command: &Command, answer: &Answer) {
        match (command, answer) {
            (
                Command::Commit {
                    key,
                    by,
                    token: Some(token),
                    body,
                    ..
                },
                Answer::Task(no, status),
            ) => {
                let fresh = !task(before, *no).status.is_terminal();
                let late = matches!(status, TaskStatus::TimedOut | TaskStatus::Uncertain);
                let generation = self.db.task(*no).generation;
                let known = self
                    .accepted
                    .iter()
                    .any(|a| a.key == *key && a.generation == generation);
                let accepted = matches!(status, TaskStatus::Completed)
                    || self
                        .db
                        .task(*no)
                        .error
                        .as_ref()
                        .is_some_and(|e| e.key == "tool_failed");
                self.tried.late += usize::from(fresh && late);
                if fresh && accepted && !known {
                    self.tried.commits += 1;
                    self.accepted.push(Accepted {
                        key: key.clone(),
                        generation,
                        by: *by,
                        token: *token,
                        body: body.clone(),
                    });
                }
            }
            (Command::Commit { .. }, Answer::Refused("final_result_conflict")) => {
                self.tried.conflicts += 1;
            }
            (Command::Commit { .. }, Answer::Refused("stale_claim")) => self.tried.stale += 1,
            (Command::Extend { .. }, Answer::Deadline(_)) => self.tried.extensions += 1,
            (Command::Expire(_), Answer::Count(n)) => self.tried.expiries += n,
            (Command::Revoke { .. }, Answer::Count(n)) => self.tried.revoked += n,
            (Command::Pause { .. }, Answer::Ok) => self.tried.paused += 1,
            (Command::Graceful, Answer::Ok) => self.tried.drained += 1,
            (Command::Retry(_), Answer::Ok) => self.tried.retried += 1,
            (Command::Abandon(_), Answer::Ok) => self.tried.abandoned += 1,
            (Command::Cancel(_), Answer::Ok) => self.tried.canceled += 1,
            (Command::Approve(_), Answer::Ok) => self.tried.approved += 1,
            (Command::Deny(..), Answer::Ok) => self.tried.denied += 1,
            (Command::Answer { .. }, Answer::Task(..)) => self.tried.answered += 1,
            (Command::Round { .. }, Answer::Ok) => self.tried.rounds += 1,
            (Command::Append(appending), Answer::Appended(accepted)) => {
                self.tried.appended += usize::from(!accepted.replayed);
                self.tried.replayed += usize::from(accepted.replayed);
                if !accepted.replayed && appending.under.is_some() {
                    let known = ((**appending).clone(), accepted.receipt.clone());
                    self.appended.push(known);
                }
            }
            (Command::Stop(_), Answer::Ok) => self.tried.stopped += 1,
            _ => {}
        }
        self.look_at_rows(before);
        let status = self.db.world.run.status;
        let was = before.run.status;
        self.tried.held += usize::from(status != was && status == RunStatus::NeedsAttention);
        self.tried.completed += usize::from(status != was && status == RunStatus::Completed);
    }

    /// How many appends were applied.
    pub(super) fn appends(&self) -> usize {
        self.tried.appended
    }

    fn look_at_rows(&mut self, before: &World) {
        for (was, is) in before.tasks.iter().zip(&self.db.world.tasks) {
            let settled = !was.status.is_terminal() && is.status.is_terminal();
            let why = is.error.as_ref().map_or("", |e| e.key.as_str());
            let tried = &mut self.tried;
            tried.races += usize::from(settled && is.kind == TaskKind::Join);
            tried.losers += usize::from(settled && why == "join_loser_canceled");
            tried.absorbed += usize::from(is.race_absorbed && !was.race_absorbed);
            tried.reopened +=
                usize::from(was.status == TaskStatus::Skipped && is.generation > was.generation);
            let observes = is.observes.is_some() && is.status == TaskStatus::Completed;
            tried.observed += usize::from(settled && observes);
        }
    }

    // ---------------------------------------------------------------- to the end

    /// The next thing that a willing world does to bring the run to its end; none when it is there.
    pub(super) fn next_to_the_end(&mut self) -> Option<Op> {
        let run = &mut self.db.world.run;
        self.db.version += u64::from(!run.creator_may_write);
        run.creator_may_write = true;
        let status = run.status;
        if !self.willing {
            self.willing = true;
            self.db.fleet = super::envelopes::fleet();
        }
        match status {
            RunStatus::Pending => return Some(Op::Start),
            RunStatus::Paused => return Some(Op::Resume),
            _ if self.db.world.run.schedulable => return Some(Op::Schedule),
            _ => {}
        }
        let runs = status == RunStatus::Running;
        let rounds = self.db.world.tasks.iter().any(|t| {
            t.kind == TaskKind::Model
                && (t.status == TaskStatus::Running
                    || (runs && t.status == TaskStatus::Queued && t.remaining == 0))
        });
        if rounds {
            return Some(Op::Round {
                row: 0,
                fails: false,
            });
        }
        let parks = &self.db.world.parks;
        // Observations end by themselves, if what they observe does.
        let at = parks
            .iter()
            .position(|p| p.kind != ParkKind::Wait)
            .unwrap_or(0);
        let park = parks.get(at)?;
        let due = self.db.world.now >= park.deadline_at;
        match park.kind {
            ParkKind::Approval if !due && status != RunStatus::Canceling => {
                let resting = parks.iter().filter(|p| p.kind == ParkKind::Approval);
                debug_assert!(resting.count() > 0);
                return Some(Op::Approve(0));
            }
            ParkKind::Ask if !due => {
                return Some(Op::Answer {
                    ask: 0,
                    what: What::Completed,
                    token: Token::Right,
                });
            }
            _ => {}
        }
        let held = self
            .held
            .iter()
            .position(|h| h.task == park.task && h.generation == park.generation);
        Some(match held {
            Some(held) if park.claim.is_some() && !due => Op::Commit {
                held,
                what: What::Completed,
                token: Token::Right,
                as_other: false,
                lost: false,
            },
            _ if due => {
                self.refused = false;
                Op::Batch(vec![])
            }
            _ if park.kind == ParkKind::ToolCall && park.claim.is_none() && !self.refused => {
                // Some provider of three is refused: the next one is asked.
                self.refused = true;
                let who = 3 + self.held.len() % 3;
                Op::Claim {
                    park: at,
                    who,
                    under: None,
                    split: false,
                }
            }
            _ => Op::ToDeadline { park: at, plus: 0 },
        })
    }

    /// Sweeps what is due.
    pub(super) fn sweep(&mut self, before: &World) -> Outcome {
        self.act(&Op::Scan, before)?;
        self.act(&Op::Sweep, before)
    }
}

/// The first row that differs.
fn difference(a: &World, b: &World) -> String {
    let tasks = a.tasks.iter().zip(&b.tasks).find(|(a, b)| a != b);
    let edges = a.edges.iter().zip(&b.edges).find(|(a, b)| a != b);
    let items = a.items.iter().zip(&b.items).find(|(a, b)| a != b);
    if let Some((a, b)) = tasks {
        format!("{a:?}\n{b:?}")
    } else if let Some((a, b)) = edges {
        format!("{a:?}\n{b:?}")
    } else if let Some((a, b)) = items {
        format!("{a:?}\n{b:?}")
    } else if a.run != b.run {
        format!("{:?}\n{:?}", a.run, b.run)
    } else {
        format!(
            "{:?}\n{:?}",
            (&a.parks, &a.failures, &a.results),
            (&b.parks, &b.failures, &b.results)
        )
    }
}

fn nth<T>(list: &[T], n: usize) -> Option<&T> {
    if list.is_empty() {
        None
    } else {
        list.get(n % list.len())
    }
}

fn task(world: &World, no: TaskNo) -> &Task {
    world
        .tasks
        .iter()
        .find(|t| t.no == no)
        .expect("a row of the run")
}

/// The rows without the items told so far, which no step looks at again.
pub(super) fn snapshot(world: &World) -> World {
    World {
        now: world.now,
        run: world.run.clone(),
        tasks: world.tasks.clone(),
        edges: world.edges.clone(),
        parks: world.parks.clone(),
        failures: world.failures.clone(),
        results: world.results.clone(),
        items: Vec::new(),
    }
}

fn task_no(db: &Db, key: &TaskKey) -> TaskNo {
    db.no(key.as_str()).expect("a key of the run")
}

fn said(what: What, key: &TaskKey) -> Object {
    let content = ("content", format!("said {key}").into());
    match what {
        What::Completed => body(&[content]),
        What::Errored => body(&[content, ("is_error", true.into())]),
        What::Failed => body(&[content, ("outcome", "failed".into())]),
        What::Linked => body(&[("content", vec![link(11), link(13)].into())]),
        What::BadLink => body(&[("content", vec![link(11), link(12)].into())]),
        What::BadOutcome => body(&[content, ("outcome", "maybe".into())]),
        What::Unstorable => body(&[("content", "a\0b".into())]),
    }
}
