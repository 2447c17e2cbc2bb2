//! Clients: executors, sweepers and people who act on what they saw a moment ago, at any replica,
//! beside each other. What each is told is judged where it is told, and the rest when all are done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use nexus::app::App;
use nexus::commands::{self, Error, append, approve};
use nexus::domain::event::Resolver;
use nexus::domain::json::{Object, Value, parse};
use nexus::domain::payload::Submission;
use nexus::domain::words::{ExecutorKind, ParkKind, RunStatus, TaskKind, TaskStatus};
use nexus::domain::{ExecutorId, PublicId, TaskKey, TaskNo};
use nexus::engine::approve::Decider;
use nexus::engine::facts::{Park, Task};
use nexus::engine::mint::token_digest;

use super::grammar::{self, Dice, Palette};
use super::rows::Look;
use super::scene::Scene;

/// A claim as its holder knows it.
#[derive(Debug, Clone)]
struct Held {
    key: TaskKey,
    by: ExecutorId,
    under: Option<String>,
    /// The latest is the right one.
    tokens: Vec<String>,
}

/// An accepted commit.
#[derive(Debug, Clone)]
struct Accepted {
    key: TaskKey,
    by: ExecutorId,
    token: String,
    body: Object,
}

/// An accepted append.
#[derive(Debug, Clone)]
struct Appended {
    under: Option<String>,
    body: Object,
    receipt: String,
}

/// What all clients of a case know together.
#[derive(Debug, Default)]
pub struct Known {
    held: Vec<Held>,
    accepted: Vec<Accepted>,
    appended: Vec<Appended>,
    /// Tokens of questions, by key.
    questions: BTreeMap<String, String>,
    /// How many bodies were made: each says its number, so that no two are alike.
    sent: u64,
    appends: i32,
    starts: usize,
    burst: Burst,
    /// What was done and told, for whoever reads a failure.
    pub log: Vec<String>,
    /// What was told that may not be.
    pub wrong: Vec<String>,
    /// How often something worth trying was accepted, by its word.
    pub tried: BTreeMap<&'static str, usize>,
}

/// What was accepted since the last look, by row.
#[derive(Debug, Default)]
struct Burst {
    grants: BTreeMap<TaskKey, i32>,
    retries: BTreeMap<TaskKey, i32>,
    decisions: BTreeMap<TaskKey, i32>,
    /// Rows that were shown as open to whoever committed them: retried in the same transaction.
    open: Vec<TaskKey>,
}

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Claim,
    ClaimAgain,
    Commit,
    CommitAgain,
    Extend,
    Expire,
    Tick,
    ToDeadline,
    Schedule,
    Pause,
    Resume,
    Stop,
    Graceful,
    Retry,
    Abandon,
    Cancel,
    Approve,
    Deny,
    Answer,
    AnswerAs,
    Append,
    AppendAgain,
    Standing,
    Drain,
    Announce,
    Start,
}

/// One in so many of all; what a person does to the whole run is rare, or nothing else would be tried.
const ACTS: &[(usize, Act)] = &[
    (28, Act::Claim),
    (3, Act::ClaimAgain),
    (34, Act::Commit),
    (5, Act::CommitAgain),
    (9, Act::Extend),
    (8, Act::Expire),
    (4, Act::Tick),
    (14, Act::ToDeadline),
    (4, Act::Schedule),
    (3, Act::Pause),
    (6, Act::Resume),
    (1, Act::Stop),
    (1, Act::Graceful),
    (8, Act::Retry),
    (5, Act::Abandon),
    (2, Act::Cancel),
    (9, Act::Approve),
    (9, Act::Deny),
    (8, Act::Answer),
    (3, Act::AnswerAs),
    (7, Act::Append),
    (3, Act::AppendAgain),
    (1, Act::Standing),
    (1, Act::Drain),
    (1, Act::Announce),
    (1, Act::Start),
];

fn drawn(dice: &mut Dice) -> Act {
    let all: usize = ACTS.iter().map(|(weight, _)| weight).sum();
    let mut at = dice.below(all);
    for (weight, act) in ACTS {
        match at.checked_sub(*weight) {
            Some(rest) => at = rest,
            None => return *act,
        }
    }
    unreachable!("the weights sum up")
}

/// One client at work on a run. Cheap to clone: each copy is another client.
#[derive(Clone)]
pub struct Client {
    pub scene: Arc<Scene>,
    pub known: Arc<Mutex<Known>>,
    pub run: PublicId,
    /// Whether calls fail in this case.
    pub fails: bool,
    /// Whether clocks run out in this case.
    pub dawdles: bool,
}

type Told<T> = Option<T>;

impl Client {
    fn known<T>(&self, with: impl FnOnce(&mut Known) -> T) -> T {
        with(
            &mut self
                .known
                .lock()
                .expect("no client panics while it notes something"),
        )
    }

    fn replica(&self, dice: &mut Dice) -> &App {
        dice.of(&self.scene.replicas)
    }

    /// Notes what was told. A refusal is an answer; a fault is none.
    fn told<T, R: std::fmt::Debug>(
        &self,
        word: &'static str,
        what: &str,
        outcome: Result<T, Error<R>>,
    ) -> Told<T> {
        self.known(|known| match outcome {
            Ok(answer) => {
                known.log.push(format!("{word} {what}"));
                *known.tried.entry(word).or_default() += 1;
                Some(answer)
            }
            Err(Error::Refused(refusal)) => {
                known.log.push(format!("{word} {what}: {refusal:?}"));
                None
            }
            Err(Error::Fault(fault)) => {
                known.wrong.push(format!("{word} {what}: {fault:?}"));
                None
            }
        })
    }

    fn wrong(&self, what: String) {
        self.known(|known| known.wrong.push(what));
    }

    /// The tokens of a receipt's questions.
    pub fn learn(&self, receipt: &str) {
        let receipt = parse(receipt.as_bytes()).expect("a receipt is JSON");
        let tokens = receipt.get("resolution_tokens").and_then(Value::as_object);
        self.known(|known| {
            for (key, token) in tokens.into_iter().flatten() {
                let token = token.as_str().unwrap_or_default().to_owned();
                known.questions.insert(key.clone(), token);
            }
        });
    }

    /// Acts once, on what was seen in that look.
    pub async fn act(&self, dice: &mut Dice, look: &Look) {
        let act = drawn(dice);
        let app = self.replica(dice);
        self.perform(act, app, dice, look).await;
    }

    async fn perform(&self, act: Act, app: &App, dice: &mut Dice, look: &Look) {
        let (account, run) = (self.scene.account, self.run);
        match act {
            Act::Start => self.start(app).await,
            Act::Claim => {
                let parks = &look.world.parks;
                let calls = parks.iter().filter(|p| p.kind == ParkKind::ToolCall);
                let calls: Vec<_> = calls.map(|p| (p.task, p.executor)).collect();
                if let Some((no, executor)) = pick(dice, &calls) {
                    let by = self.claimant(dice, look, *no, *executor);
                    let under = dice.one_in(2).then(|| format!("k{}", dice.below(3)));
                    let key = look.task(*no).key.clone();
                    self.claim(app, key, by, under).await;
                }
            }
            Act::ClaimAgain => {
                let held = self.known(|known| pick(dice, &known.held).cloned());
                if let Some(held) = held.filter(|h| h.under.is_some()) {
                    self.claim(app, held.key, held.by, held.under).await;
                }
            }
            Act::Commit => {
                let held = self.known(|known| pick(dice, &known.held).cloned());
                if let Some(held) = held {
                    let body = self.body(dice, &held.key);
                    let token = match dice.below(12) {
                        0 => Some("junk".to_owned()),
                        1 => held.tokens.first().cloned(),
                        2 => None,
                        _ => held.tokens.last().cloned(),
                    };
                    let other = dice.below(self.scene.machines.len());
                    let by = if dice.one_in(12) {
                        self.scene.machines[other].caller.id
                    } else {
                        held.by
                    };
                    self.commit(app, &held.key, by, token, body).await;
                }
            }
            Act::CommitAgain => {
                let accepted = self.known(|known| pick(dice, &known.accepted).cloned());
                if let Some(mut again) = accepted {
                    if dice.one_in(3) {
                        again.body = self.body(dice, &again.key);
                    }
                    self.commit(app, &again.key, again.by, Some(again.token), again.body)
                        .await;
                }
            }
            Act::Extend => {
                let held = self.known(|known| pick(dice, &known.held).cloned());
                if let Some(held) = held {
                    let ms = *dice.of(&[1_000, 25_000, 60_000, 3_600_001]);
                    self.extend(app, &held, ms).await;
                }
            }
            Act::ToDeadline => {
                // The clock is everybody's: not so far that nothing else comes to its end.
                let left = look
                    .world
                    .parks
                    .iter()
                    .map(|p| p.deadline_at - look.world.now);
                let left = left
                    .map(|left| left.num_milliseconds().clamp(0, 60_000))
                    .min();
                if let Some(ms) = left.filter(|_| self.dawdles) {
                    self.scene.tick(u64::try_from(ms).unwrap_or(0)).await;
                    self.expire(app, look).await;
                }
            }
            Act::Expire => self.expire(app, look).await,
            Act::Tick => self.scene.tick(*dice.of(&[1, 100, 400, 5_000])).await,
            Act::Schedule => {
                let outcome = commands::schedule::schedule(app, account, run).await;
                self.told("schedule", "", fault(outcome));
            }
            Act::Pause => {
                let outcome = commands::pause::pause(app, account, run, dice.one_in(3)).await;
                self.told("pause", "", outcome);
            }
            Act::Resume => self.resume(app).await,
            Act::Stop => self.stop(app).await,
            Act::Graceful => {
                let outcome = commands::stop::graceful(app, account, run).await;
                self.told("graceful stop", "", outcome);
            }
            Act::Retry => self.retry(app, failure(dice, look)).await,
            Act::Abandon => self.abandon(app, failure(dice, look)).await,
            Act::Cancel => {
                let key = row(dice, look, |t| !t.status.is_terminal());
                let outcome = commands::cancel::cancel(app, account, run, key.clone()).await;
                self.told("cancel", key.as_str(), outcome);
            }
            Act::Approve => self.approve(app, resting(dice, look)).await,
            Act::Deny => {
                let key = resting(dice, look);
                let deny = approve::Decision::Deny(dice.one_in(2).then(|| "no".to_owned()));
                self.decide(app, "deny", key, deny).await;
            }
            Act::Answer => {
                let key = question(dice, look);
                let body = self.body(dice, &key);
                let junk = dice.one_in(8);
                self.answer(app, look, &key, &body, junk).await;
            }
            Act::AnswerAs => {
                let key = question(dice, look);
                let body = self.body(dice, &key);
                let by = self.scene.machines[3 - dice.below(4) / 3].caller.id;
                self.commit(app, &key, by, None, body).await;
            }
            Act::Append => {
                let body = self.appending(dice, look);
                let under = dice.one_in(2).then(|| format!("append{}", dice.below(4)));
                self.append(app, body, under).await;
            }
            Act::AppendAgain => {
                let appended = self.known(|known| pick(dice, &known.appended).cloned());
                if let Some(again) = appended.filter(|a| a.under.is_some()) {
                    let mut body = again.body;
                    if dice.one_in(3) {
                        body.insert("expected_revision".into(), 99_i64.into());
                    }
                    self.append(app, body, again.under).await;
                }
            }
            Act::Standing => self.scene.standing().await,
            Act::Drain => {
                self.scene
                    .drain(dice.below(self.scene.machines.len()))
                    .await
            }
            Act::Announce => {
                self.scene
                    .announce(dice.below(self.scene.machines.len()))
                    .await
            }
        }
    }

    // ---------------------------------------------------------------- executors

    /// Mostly the addressee asks, or a provider of the pool; at times somebody else.
    fn claimant(
        &self,
        dice: &mut Dice,
        look: &Look,
        no: TaskNo,
        executor: Option<ExecutorId>,
    ) -> ExecutorId {
        let machines = &self.scene.machines;
        if dice.one_in(12) {
            return dice.of(machines).caller.id;
        }
        if let Some(executor) = executor {
            return executor;
        }
        let tool = look.task(no).tool_name.as_deref();
        let serving = machines.iter().filter(|m| {
            m.caller.kind == ExecutorKind::ToolProvider
                && m.serves.iter().any(|(name, ..)| Some(*name) == tool)
        });
        let serving: Vec<ExecutorId> = serving.map(|m| m.caller.id).collect();
        // The third is not eligible.
        let eligible = serving.len().clamp(1, 2);
        serving
            .get(dice.below(eligible))
            .copied()
            .unwrap_or(machines[0].caller.id)
    }

    async fn claim(&self, app: &App, key: TaskKey, by: ExecutorId, under: Option<String>) {
        let caller = self.scene.machine(by).expect("a machine").caller.clone();
        let outcome =
            commands::claim::claim(app, caller, self.run, key.clone(), under.clone()).await;
        let Some(claimed) = self.told("claim", key.as_str(), outcome) else {
            return;
        };
        self.known(|known| {
            let same = |h: &&mut Held| h.key == key && h.by == by && h.under == under;
            let held = known.held.iter_mut().rev().find(same);
            match held.filter(|h| h.under.is_some()) {
                // Recovered, or claimed under the same key in another generation.
                Some(held) => held.tokens.push(claimed.token),
                None => {
                    *known.burst.grants.entry(key.clone()).or_default() += 1;
                    known.held.push(Held {
                        key,
                        by,
                        under,
                        tokens: vec![claimed.token],
                    });
                }
            }
        });
    }

    /// A body that no other one is like.
    fn plain(&self, key: &TaskKey) -> Object {
        let n = self.known(|known| {
            known.sent += 1;
            known.sent
        });
        let mut body = Object::new();
        body.insert("content".into(), format!("said {key} #{n}#").into());
        body
    }

    /// The same, at times with something wrong about it.
    fn body(&self, dice: &mut Dice, key: &TaskKey) -> Object {
        let mut body = self.plain(key);
        match dice.below(20) {
            0..=3 if self.fails => drop(body.insert("outcome".into(), "failed".into())),
            4 => drop(body.insert("is_error".into(), true.into())),
            5 => drop(body.insert("outcome".into(), "maybe".into())),
            6 if self.fails => drop(body.insert("content".into(), "a\0b".into())),
            _ => {}
        }
        body
    }

    async fn commit(
        &self,
        app: &App,
        key: &TaskKey,
        by: ExecutorId,
        token: Option<String>,
        body: Object,
    ) {
        let caller = self.scene.machine(by).expect("a machine").caller.clone();
        let what = format!("{key} {}", said(&body));
        let entry = commands::commit::Entry {
            run: self.run,
            key: key.clone(),
            token: token.as_deref(),
            body: &body,
        };
        let outcome = commands::commit::commit(app, &caller, entry).await;
        let Some(view) = self.told("commit", &what, outcome) else {
            return;
        };
        if view.kind == TaskKind::Await {
            return;
        }
        self.known(|known| {
            if !view.status.is_terminal() {
                known.burst.open.push(key.clone());
            }
            let holds = |h: &Held| {
                h.key == *key && h.by == by && token.as_ref().is_some_and(|t| h.tokens.contains(t))
            };
            let Some(token) = token.clone().filter(|_| known.held.iter().any(holds)) else {
                let what = format!("{key} was committed without its token");
                known.wrong.push(what);
                return;
            };
            if view.status != TaskStatus::Completed {
                return;
            }
            // The same claim, whatever its token then was; a completed row is not retried.
            let twin = known.accepted.iter().find(|a| a.key == *key);
            match twin {
                Some(twin) if twin.body != body => known.wrong.push(format!(
                    "{key} completed as {} and as {}",
                    said(&twin.body),
                    said(&body)
                )),
                Some(_) => {}
                None => known.accepted.push(Accepted {
                    key: key.clone(),
                    by,
                    token,
                    body,
                }),
            }
        });
    }

    /// The sweep's scan may be stale; each row is judged anew.
    async fn expire(&self, app: &App, look: &Look) {
        let parks = look.world.parks.iter().map(|p| p.task).collect();
        let outcome = commands::expire::expire(app, self.scene.account, self.run, parks).await;
        if let Some(n) = self.told("expire", "", fault(outcome)) {
            self.known(|known| *known.tried.entry("expired rows").or_default() += n);
        }
    }

    async fn extend(&self, app: &App, held: &Held, ms: i64) {
        let caller = self
            .scene
            .machine(held.by)
            .expect("a machine")
            .caller
            .clone();
        let token = held.tokens.last().expect("a claim has a token");
        let outcome =
            commands::extend::extend(app, caller, self.run, held.key.clone(), token, ms).await;
        if self.told("extend", held.key.as_str(), outcome).is_some() && ms > 3_600_000 {
            self.wrong(format!("{} was extended by {ms} ms", held.key));
        }
    }

    // ---------------------------------------------------------------- people

    async fn start(&self, app: &App) {
        let outcome = commands::start::start(app, self.scene.account, self.run).await;
        if self.told("start", "", outcome).is_some() {
            self.known(|known| known.starts += 1);
        }
    }

    /// Starts the run, here and beside it somewhere else.
    pub async fn start_twice(&self, dice: &mut Dice) {
        let (one, two) = (self.replica(dice), self.replica(dice));
        tokio::join!(self.start(one), self.start(two));
    }

    /// Stops the run by force.
    pub async fn stop(&self, app: &App) {
        let outcome = commands::stop::force(app, self.scene.account, self.run, None).await;
        self.told("stop", "", outcome);
    }

    async fn resume(&self, app: &App) {
        let outcome = commands::pause::resume(app, self.scene.account, self.run).await;
        self.told("resume", "", outcome);
    }

    async fn retry(&self, app: &App, key: TaskKey) {
        let (account, run) = (self.scene.account, self.run);
        let outcome = commands::repair::retry(app, account, run, key.clone(), false).await;
        if self.told("retry", key.as_str(), outcome).is_some() {
            self.known(|known| *known.burst.retries.entry(key).or_default() += 1);
        }
    }

    async fn abandon(&self, app: &App, key: TaskKey) {
        let (account, run) = (self.scene.account, self.run);
        let outcome = commands::repair::abandon(app, account, run, key.clone()).await;
        self.told("abandon", key.as_str(), outcome);
    }

    async fn approve(&self, app: &App, key: TaskKey) {
        self.decide(app, "approve", key, approve::Decision::Approve)
            .await;
    }

    async fn decide(
        &self,
        app: &App,
        word: &'static str,
        key: TaskKey,
        decision: approve::Decision,
    ) {
        let by = Decider {
            kind: self.scene.creator.kind,
            public_id: self.scene.creator.public_id,
        };
        let (account, run) = (self.scene.account, self.run);
        let outcome = approve::decide(app, account, run, key.clone(), by, decision).await;
        if self.told(word, key.as_str(), outcome).is_some() {
            self.known(|known| *known.burst.decisions.entry(key).or_default() += 1);
        }
    }

    fn resolver(&self) -> Resolver {
        let creator = &self.scene.creator;
        Resolver {
            kind: creator.kind,
            public_id: creator.public_id,
            handle: creator.handle.clone(),
        }
    }

    async fn answer(&self, app: &App, look: &Look, key: &TaskKey, body: &Object, junk: bool) {
        let tokened = look
            .named(key)
            .is_some_and(|t| t.resolution_digest.is_some());
        let token = self.known(|known| known.questions.get(key.as_str()).cloned());
        let token = match token.filter(|_| tokened) {
            _ if junk => Some("junk".to_owned()),
            other => other,
        };
        let outcome = commands::resolve::resolve(
            app,
            self.scene.account,
            self.run,
            key.clone(),
            token.as_deref(),
            self.resolver(),
            Submission::read(body),
        )
        .await;
        let told = self.told("answer", key.as_str(), outcome).is_some();
        if told && junk {
            self.wrong(format!("{key} was answered under a junk token"));
        }
    }

    /// The body of a random append.
    fn appending(&self, dice: &mut Dice, look: &Look) -> Object {
        let resolves = dice.one_in(4);
        let tasks = &look.world.tasks;
        let named = (0..3).map(|_| dice.of(tasks).key.as_str().to_owned());
        let named: Vec<String> = named.collect();
        let palette = Palette::of_append(dice);
        let prefix = *dice.of(&['p', 'q', 'v', 'x', 'y']);
        let mut body = Object::new();
        if !resolves || dice.one_in(2) {
            let most = 1 + dice.below(4);
            let runners = self.scene.runners();
            let steps = grammar::steps(dice, most, &runners, palette, prefix, named);
            body.insert("steps".into(), steps);
        }
        if resolves {
            let mut entries = Vec::new();
            for _ in 0..1 + dice.below(2) {
                let key = question(dice, look);
                let mut entry = self.body(dice, &key);
                entry.insert("task".into(), key.as_str().into());
                entries.push(Value::Object(entry));
            }
            body.insert("resolve".into(), Value::Array(entries));
        }
        if dice.one_in(4) {
            let revision = i64::from(look.world.run.revision) - i64::from(dice.one_in(3));
            body.insert("expected_revision".into(), revision.into());
        }
        body
    }

    async fn append(&self, app: &App, body: Object, under: Option<String>) {
        let request = append::Request {
            account: self.scene.account,
            run: self.run,
            by: self.resolver(),
            body: body.clone(),
            key: under.clone(),
        };
        let what = format!("{under:?} {body:?}");
        let outcome = append::append(app, request).await;
        let Some(made) = self.told("append", &what, outcome) else {
            return;
        };
        self.learn(made.receipt.as_str());
        self.known(|known| {
            known.appends += i32::from(!made.replayed);
            let receipt = made.receipt.as_str().to_owned();
            let twin = known
                .appended
                .iter()
                .filter(|a| under.is_some() && a.under == under);
            let other = twin.filter(|twin| twin.receipt != receipt || twin.body != body);
            if let Some(other) = other.map(|t| t.receipt.clone()).next() {
                let both = format!("the append {under:?} was answered {other} and {receipt}");
                known.wrong.push(both);
            }
            known.appended.push(Appended {
                under,
                body,
                receipt,
            });
        });
    }

    // ---------------------------------------------------------------- the end

    /// What a willing world does next, all at once and at any replica; how many things it did.
    pub async fn go_on(&self, dice: &mut Dice, look: &Look) -> usize {
        let mut work: Vec<BoxFuture<'_, ()>> = Vec::new();
        match look.world.run.status {
            RunStatus::Pending => {
                let app = self.replica(dice);
                work.push(Box::pin(self.start(app)));
            }
            RunStatus::Paused => {
                let app = self.replica(dice);
                work.push(Box::pin(self.resume(app)));
            }
            _ => {
                for no in &look.world.failures {
                    let app = self.replica(dice);
                    work.push(Box::pin(self.adjudicate(app, look.task(*no))));
                }
                for park in look.world.parks.iter().filter(|p| p.kind != ParkKind::Wait) {
                    let by = self.claimant(dice, look, park.task, park.executor);
                    let app = self.replica(dice);
                    work.push(Box::pin(self.answer_park(app, look, park, by)));
                }
            }
        }
        let count = work.len();
        futures_util::future::join_all(work).await;
        count
    }

    /// Retries a failure, and lets it go when it failed again.
    async fn adjudicate(&self, app: &App, task: &Task) {
        if task.generation < 2 && task.kind != TaskKind::Join {
            self.retry(app, task.key.clone()).await;
        } else {
            self.abandon(app, task.key.clone()).await;
        }
    }

    /// Answers whatever is parked as it wants to be answered.
    async fn answer_park(&self, app: &App, look: &Look, park: &Park, by: ExecutorId) {
        let key = look.task(park.task).key.clone();
        let body = self.plain(&key);
        match park.kind {
            ParkKind::Wait => {}
            ParkKind::Approval => self.approve(app, key).await,
            ParkKind::Ask => self.answer(app, look, &key, &body, false).await,
            ParkKind::ToolCall => {
                let digest = park.claim.as_ref().map(|c| &c.digest[..]);
                if digest.is_none() {
                    self.claim(app, key.clone(), by, None).await;
                }
                // Of recoveries beside each other nobody knows which came last.
                let stands = |token: &String| match digest {
                    Some(digest) => token_digest(token)[..] == *digest,
                    None => true,
                };
                let held = self.known(|known| {
                    let of_row = known.held.iter().rev().filter(|h| h.key == key);
                    let mut found = of_row.filter_map(|h| {
                        let token = h.tokens.iter().rev().find(|t| stands(t))?;
                        Some((h.by, token.clone()))
                    });
                    found.next()
                });
                if let Some((by, token)) = held {
                    self.commit(app, &key, by, Some(token), body).await;
                }
            }
        }
    }

    // ---------------------------------------------------------------- what was told

    /// Holds what clients were told since the last look against what is stored now.
    pub fn judge(&self, before: &Look, after: &Look) -> Result<(), String> {
        let burst = self.known(|known| {
            if !known.wrong.is_empty() {
                return Err(known.wrong.join("\n"));
            }
            Ok(std::mem::take(&mut known.burst))
        })?;
        let raised = |key: &TaskKey| {
            let generation = |look: &Look| look.named(key).map_or(0, |t| t.generation);
            generation(after) - generation(before)
        };
        let bounds = [
            ("granted", &burst.grants, 1),
            ("retried", &burst.retries, 0),
            ("decided", &burst.decisions, 1),
        ];
        for (word, counts, more) in bounds {
            for (key, count) in counts {
                let most = raised(key) + more;
                if *count > most {
                    return Err(format!("{key} was {word} {count} times, {most} may be"));
                }
            }
        }
        if let Some(key) = burst.open.iter().find(|key| raised(key) == 0) {
            return Err(format!("{key} was committed and shown as open"));
        }
        self.known(|known| {
            let revision = after.world.run.revision;
            if revision != 1 + known.appends {
                let appends = known.appends;
                return Err(format!(
                    "INV-29: revision {revision} after {appends} appends"
                ));
            }
            if known.starts > 1 {
                return Err(format!("the run was started {} times", known.starts));
            }
            for accepted in &known.accepted {
                kept(accepted, after)?;
            }
            Ok(())
        })
    }
}

/// What was accepted is stored, under the claim that it was accepted under.
fn kept(accepted: &Accepted, look: &Look) -> Result<(), String> {
    let key = &accepted.key;
    let task = look.named(key).ok_or(format!("{key} is gone"))?;
    let stored = look.contents.get(&(task.no, task.generation));
    let said = said(&accepted.body);
    if task.status == TaskStatus::Completed && stored.is_some_and(|s| s.contains(&said)) {
        return Ok(());
    }
    Err(format!(
        "{key} was told completed by {said}; it is {} with {stored:?}",
        task.status
    ))
}

fn said(body: &Object) -> String {
    let text = body.get("content").and_then(Value::as_str);
    text.unwrap_or_default().replace('\0', "␀")
}

fn fault<T>(outcome: Result<T, nexus::store::Error>) -> Result<T, Error<&'static str>> {
    outcome.map_err(Error::Fault)
}

fn pick<'a, T>(dice: &mut Dice, list: &'a [T]) -> Option<&'a T> {
    if list.is_empty() {
        None
    } else {
        Some(dice.of(list))
    }
}

/// A row of which that holds; at times, and if there is none, any row.
fn row(dice: &mut Dice, look: &Look, holds: impl Fn(&Task) -> bool) -> TaskKey {
    let fit: Vec<_> = look.world.tasks.iter().filter(|t| holds(t)).collect();
    let any = fit.is_empty() || dice.one_in(16);
    let task = if any {
        dice.of(&look.world.tasks)
    } else {
        *dice.of(&fit)
    };
    task.key.clone()
}

fn failure(dice: &mut Dice, look: &Look) -> TaskKey {
    row(dice, look, |t| look.world.failures.contains(&t.no))
}

fn resting(dice: &mut Dice, look: &Look) -> TaskKey {
    row(dice, look, |t| t.status == TaskStatus::NeedsApproval)
}

fn question(dice: &mut Dice, look: &Look) -> TaskKey {
    row(dice, look, |t| {
        look.park(t.no).is_some_and(|p| p.kind == ParkKind::Ask)
    })
}
