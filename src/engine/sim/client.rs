//! What executors, sweepers and people do to a run, as data that stays meaningful when parts of
//! it are dropped: an action names the n-th of what is there when it is done.

use std::collections::BTreeSet;

use super::command::{Answer, Command, body, link};
use super::db::{Db, Taking};
use super::envelopes::Dice;
use crate::domain::json::Object;
use crate::domain::words::{ExecutorKind, RunStatus, TaskStatus};
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
    Pause,
    Resume,
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
}

/// A random action.
pub(super) fn op(dice: &mut Dice, mood: Mood) -> Op {
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

/// A random action that takes the run lock: one of a batch, perhaps.
fn lane_op(dice: &mut Dice, mood: Mood) -> Op {
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
        29 if dice.one_in(2) => Op::Pause,
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
    by: ExecutorId,
    under: Option<Vec<u8>>,
    tokens: Vec<[u8; 32]>,
}

/// An accepted commit as its executor knows it.
#[derive(Debug, Clone)]
struct Accepted {
    key: TaskKey,
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
}

type Outcome = Result<(), String>;

impl Client {
    pub(super) fn new(db: Db) -> Self {
        Self {
            db,
            held: Vec::new(),
            accepted: Vec::new(),
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
                if !self.granted.insert(place) {
                    return Err(format!("{key} was granted twice in generation {}", place.1));
                }
                self.held.push(Held {
                    key: key.clone(),
                    task: taking.task,
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
            Op::Pause => Command::Pause,
            Op::Resume => Command::Resume,
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

    /// One command in a transaction of its own.
    fn alone(&mut self, command: Command, before: &World) -> Result<Answer, String> {
        let version = self.db.version;
        let answer = self.db.run(command.clone())?;
        let refused = matches!(answer, Answer::Refused(code) if code != "result_unstorable");
        if refused && self.db.version != version {
            return Err(format!("{answer:?}, yet something was written"));
        }
        self.judge(before, &command, &answer)?;
        self.note(before, &command, &answer);
        Ok(answer)
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
        for command in &commands {
            answers.push(single.run(command.clone())?);
        }
        let done = self.db.transact(&commands)?;
        self.tried.batches += 1;
        if done.answers != answers {
            return Err(format!(
                "together {:?}, one by one {answers:?}: {commands:?}",
                done.answers
            ));
        }
        if self.db.world != single.world {
            let difference = difference(&self.db.world, &single.world);
            return Err(format!(
                "together, then one by one: {difference}\n{commands:?}"
            ));
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
            _ => Ok(()),
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
        let held = self.held.iter().find(|h| h.key == *key && h.by == by);
        let right = held.is_some_and(|h| token.is_some() && h.tokens.last().copied() == token);
        let stored = self.accepted.iter().find(|a| a.key == *key);
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
                let known = self.accepted.iter().any(|a| a.key == *key);
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
            (Command::Pause, Answer::Ok) => self.tried.paused += 1,
            (Command::Stop(_), Answer::Ok) => self.tried.stopped += 1,
            _ => {}
        }
        let status = self.db.world.run.status;
        let was = before.run.status;
        self.tried.held += usize::from(status != was && status == RunStatus::NeedsAttention);
        self.tried.completed += usize::from(status != was && status == RunStatus::Completed);
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
        let park = self.db.world.parks.first()?;
        let held = self.held.iter().position(|h| h.task == park.task);
        let due = self.db.world.now >= park.deadline_at;
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
            _ if park.claim.is_none() && !self.refused => {
                // Some provider of three is refused: the next one is asked.
                self.refused = true;
                let who = 3 + self.held.len() % 3;
                Op::Claim {
                    park: 0,
                    who,
                    under: None,
                    split: false,
                }
            }
            _ => Op::ToDeadline { park: 0, plus: 0 },
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
