//! Commands as the shell runs them (`commands/`): what each loads first, the decision it asks, and
//! the lane's way through a batch: decide one after another on one slice, each carried to rest
//! before the next, one apply.
//!
//! Model rows are worked by nobody yet: [`Command::Round`] stands in for the worker that takes a
//! ready round and brings its answer.

use super::db::{AGAIN, Append, Db, First, Locked, Taking};
use super::envelopes;
use crate::domain::event::Resolver;
use crate::domain::idempotency::Receipt;
use crate::domain::json::{Canonical, Object, Value};
use crate::domain::payload::Submission;
use crate::domain::words::{MemberKind, RunStatus, TaskKind, TaskStatus};
use crate::domain::{ExecutorId, PublicId, TaskKey, TaskNo, Timestamp, UploadId};
use crate::engine::approve::Decider;
use crate::engine::claim::{self, Verdict};
use crate::engine::compile::{Envelope, Facts};
use crate::engine::facts::Capture;
use crate::engine::graph::{Graph, NewResult, Outcome};
use crate::engine::mint::Mint;
use crate::engine::{
    append, approve, cancel, commit, expire, extend, pause, repair, resolve, revoke, stop,
};

/// A command over the run lock.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Start,
    Schedule,
    Stop(Option<String>),
    Graceful,
    /// The sweep's look at a drain.
    LongDrain,
    Pause {
        force: bool,
    },
    Resume,
    Retry(TaskKey),
    Abandon(TaskKey),
    Cancel(TaskKey),
    Approve(TaskKey),
    Deny(TaskKey, Option<String>),
    Answer {
        key: TaskKey,
        token: Option<[u8; 32]>,
        body: Object,
    },
    Append(Box<Appending>),
    /// A model worker takes the round, or brings what it came to.
    Round {
        key: TaskKey,
        fails: bool,
    },
    Expire(Vec<TaskNo>),
    Revoke {
        executor: ExecutorId,
        rows: Vec<TaskNo>,
    },
    Extend {
        key: TaskKey,
        by: ExecutorId,
        token: [u8; 32],
        timeout_ms: i64,
    },
    Commit {
        key: TaskKey,
        by: ExecutorId,
        token: Option<[u8; 32]>,
        body: Object,
    },
}

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok,
    /// How many rows.
    Count(usize),
    /// The row as it then stands (when the transaction was committed).
    Task(TaskNo, TaskStatus),
    Deadline(Timestamp),
    Appended(Box<Accepted>),
    Refused(&'static str),
}

/// An append as its door read it.
#[derive(Debug, Clone)]
pub(crate) struct Appending {
    pub(crate) steps: Value,
    pub(crate) envelope: Option<Envelope>,
    pub(crate) resolves: Vec<(String, Object)>,
    pub(crate) expected_revision: Option<i64>,
    /// The Idempotency-Key.
    pub(crate) under: Option<String>,
    /// What chance gives.
    pub(crate) seed: u64,
}

/// An accepted append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) receipt: String,
    pub(crate) replayed: bool,
}

/// A drain may go on for so long (`runs.md` §7).
const LONGEST_DRAIN_MS: i64 = 86_400_000;

/// Who the person of these runs is.
fn person() -> Decider {
    Decider {
        kind: MemberKind::Human,
        public_id: super::fleet::public(500),
    }
}

fn somebody() -> Resolver {
    Resolver {
        kind: MemberKind::Human,
        public_id: super::fleet::public(500),
        handle: "somebody".to_owned(),
    }
}

/// The most rows of one scheduling pass (`commands::schedule`).
pub(crate) const PASS: usize = 64;

/// How often a transaction that gave way is run again (`commands::lane`).
const RETRIES: usize = 3;

/// Uploads whose last group is odd are the executor's own; those of the stranger are even.
fn captures(payload: &Submission, by: ExecutorId) -> Vec<Capture> {
    let links = payload.links.clone().unwrap_or_default();
    let captures = links.iter().map(|link| Capture {
        id: UploadId(i64::try_from(link.upload.0.as_u128() & 0xffff).unwrap_or(0)),
        public_id: link.upload,
        sealed: false,
        creator: if link.upload.0.as_u128() & 1 == 1 {
            Some(by)
        } else {
            Some(ExecutorId(99))
        },
    });
    captures.collect()
}

impl Command {
    fn first(&self) -> First {
        match self {
            Self::Start | Self::Schedule | Self::Resume => First::Ready(PASS),
            Self::Stop(_) | Self::Graceful | Self::LongDrain => First::OpenRows,
            Self::Pause { .. } => First::Run,
            Self::Retry(key) | Self::Abandon(key) => First::Repair(key.clone()),
            Self::Cancel(key) => First::Branch(key.clone()),
            Self::Approve(key)
            | Self::Deny(key, _)
            | Self::Answer { key, .. }
            | Self::Round { key, .. } => First::Row(key.clone()),
            Self::Append(appending) => First::Append(appending.first()),
            Self::Expire(rows) | Self::Revoke { rows, .. } => First::Parked(rows.clone()),
            Self::Extend { key, by, .. } | Self::Commit { key, by, .. } => First::Task {
                key: key.clone(),
                caller: *by,
            },
        }
    }

    fn decide(&self, locked: &mut Locked, fleet: &super::fleet::Fleet) -> Answer {
        let graph = &mut locked.graph;
        match self {
            Self::Start if graph.run.status != RunStatus::Pending => {
                Answer::Refused("not_startable")
            }
            Self::Start => {
                graph.set_run_status(RunStatus::Running);
                Answer::Ok
            }
            Self::Schedule => Answer::Ok,
            Self::Stop(reason) => match stop::force(graph, reason.clone()) {
                Ok(()) => Answer::Ok,
                Err(refusal) => Answer::Refused(refusal.code()),
            },
            Self::Graceful => told(stop::graceful(graph), |r| r.code()),
            Self::LongDrain => {
                stop::force_drain(graph, LONGEST_DRAIN_MS);
                Answer::Ok
            }
            Self::Pause { force } => told(pause::pause(graph, *force), |r| r.code()),
            Self::Resume => told(pause::resume(graph), |r| r.code()),
            Self::Retry(key) => about(graph, key, |graph, no| {
                told(repair::retry(graph, no), |r| r.code())
            }),
            Self::Abandon(key) => about(graph, key, |graph, no| {
                told(repair::abandon(graph, no), |r| r.code())
            }),
            Self::Cancel(key) => about(graph, key, |graph, no| {
                told(cancel::cancel(graph, no), |r| r.code())
            }),
            Self::Approve(key) => about(graph, key, |graph, no| {
                told(approve::approve(graph, no, person()), |r| r.code())
            }),
            Self::Deny(key, reason) => about(graph, key, |graph, no| {
                let denied = approve::deny(graph, no, person(), reason.as_deref());
                told(denied, |r| r.code())
            }),
            Self::Answer { key, token, body } => about(graph, key, |graph, no| {
                let request = resolve::Request {
                    token: *token,
                    by: Some(somebody()),
                    submission: Submission::read(body),
                    captures: Vec::new(),
                };
                match resolve::member(graph, no, &request) {
                    Ok(no) => Answer::Task(no, TaskStatus::Queued),
                    Err(refusal) => Answer::Refused(refusal.code()),
                }
            }),
            Self::Append(appending) => appending.decide(locked, fleet),
            Self::Round { key, fails } => about(graph, key, |graph, no| round(graph, no, *fails)),
            Self::Expire(rows) => {
                Answer::Count(rows.iter().filter(|no| expire::expire(graph, **no)).count())
            }
            Self::Revoke { executor, rows } => Answer::Count(
                rows.iter()
                    .filter(|no| revoke::fail_unclaimed(graph, **no, *executor))
                    .count(),
            ),
            Self::Extend {
                key,
                by,
                token,
                timeout_ms,
            } => {
                let request = extend::Request {
                    token: *token,
                    timeout_ms: *timeout_ms,
                };
                let no = graph.task_by_key(key.as_str()).map(|t| t.no);
                match (no, locked.callers.get(by)) {
                    (_, None) => Answer::Refused("not_claimant"),
                    (None, _) => Answer::Refused("not_found"),
                    (Some(no), Some(caller)) => {
                        match extend::decide(&mut locked.graph, no, caller, &request) {
                            Ok(at) => Answer::Deadline(at),
                            Err(refusal) => Answer::Refused(refusal.code()),
                        }
                    }
                }
            }
            Self::Commit {
                key,
                by,
                token,
                body,
            } => {
                let submission = Submission::read(body);
                let captures = captures(&submission, *by);
                let request = commit::Request {
                    token: *token,
                    submission,
                    captures,
                };
                let no = graph.task_by_key(key.as_str()).map(|t| t.no);
                let Some(caller) = locked.callers.get(by).copied() else {
                    return Answer::Refused("not_eligible");
                };
                let stored = no.and_then(|no| locked.digests.get(&no)).cloned();
                match commit::decide(&mut locked.graph, no, &caller, stored.as_deref(), &request) {
                    Ok(no) => Answer::Task(no, TaskStatus::Queued),
                    Err(refusal) => Answer::Refused(refusal.code()),
                }
            }
        }
    }
}

/// Does it to the row of that key.
fn about(
    graph: &mut Graph,
    key: &TaskKey,
    act: impl FnOnce(&mut Graph, TaskNo) -> Answer,
) -> Answer {
    match graph.task_by_key(key.as_str()).map(|t| t.no) {
        Some(no) => act(graph, no),
        None => Answer::Refused("not_found"),
    }
}

fn told<R>(done: Result<(), R>, code: impl FnOnce(R) -> &'static str) -> Answer {
    match done {
        Ok(()) => Answer::Ok,
        Err(refusal) => Answer::Refused(code(refusal)),
    }
}

/// A worker takes a ready round of a running run; one that has it brings an answer or a failure.
fn round(graph: &mut Graph, no: TaskNo, fails: bool) -> Answer {
    let task = graph.task(no).expect("it was found");
    if task.kind != TaskKind::Model {
        return Answer::Refused("no_round");
    }
    let (now, generation) = (graph.now, task.generation);
    match task.status {
        TaskStatus::Queued if task.remaining == 0 && graph.run.status == RunStatus::Running => {
            graph.write(no, |task| task.started_at = Some(now));
            graph.set_status(no, TaskStatus::Running);
            Answer::Ok
        }
        TaskStatus::Running if fails => {
            graph.settle(
                no,
                TaskStatus::Failed,
                Outcome::error("provider_error", None),
            );
            Answer::Ok
        }
        TaskStatus::Running => {
            graph.settle(no, TaskStatus::Completed, Outcome::default());
            let mut result = NewResult::empty(no, generation);
            let block = Value::from([("type", "text".into()), ("text", "said".into())]);
            let content = Value::Array(vec![block]).canonical();
            result.content = Some(content.expect("storable"));
            graph.store_result(result);
            Answer::Ok
        }
        _ => Answer::Refused("no_round"),
    }
}

impl Appending {
    /// As the door reads a body.
    pub(crate) fn new(
        steps: Value,
        resolves: Vec<(String, Object)>,
        expected_revision: Option<i64>,
        under: Option<String>,
        seed: u64,
    ) -> Option<Self> {
        let is_empty = matches!(&steps, Value::Array(steps) if steps.is_empty());
        let envelope = if is_empty && !resolves.is_empty() {
            None
        } else {
            Some(Envelope::read(&steps).ok()?)
        };
        Some(Self {
            steps,
            envelope,
            resolves,
            expected_revision,
            under,
            seed,
        })
    }

    /// As `commands::append` asks for it, with fewer spare keys.
    fn first(&self) -> Append {
        let named = self.envelope.iter().flat_map(|e| e.wants().keys.iter());
        let named = named.map(|key| key.as_str().to_owned());
        let leaves = self.envelope.as_ref().map_or(0, Envelope::leaves);
        let minted = if leaves == 0 { 0 } else { leaves + 4 };
        Append {
            keys: named
                .chain(self.resolves.iter().map(|r| r.0.clone()))
                .collect(),
            minted: i32::try_from(minted).expect("few"),
            receipt: self.under.clone(),
        }
    }

    fn fingerprint(&self) -> Vec<u8> {
        let text = (&self.steps, &self.resolves, self.expected_revision);
        crate::engine::mint::token_digest(&format!("{text:?}")).to_vec()
    }

    fn decide(&self, locked: &mut Locked, fleet: &super::fleet::Fleet) -> Answer {
        if let Some(key) = &self.under {
            let new = locked.graph.changes.receipts.iter().find(|r| r.key == *key);
            let new = new.map(|r| (r.fingerprint.clone(), r.body.as_str().to_owned()));
            let kept = new.or_else(|| locked.receipts.get(key).cloned());
            if let Some((fingerprint, receipt)) = kept {
                if fingerprint != self.fingerprint() {
                    return Answer::Refused("idempotency_envelope_mismatch");
                }
                let replayed = true;
                return Answer::Appended(Box::new(Accepted { receipt, replayed }));
            }
        }
        let resolves = self.resolves.iter().map(|(task, body)| append::Resolve {
            task: task.clone(),
            submission: Submission::read(body),
        });
        let request = append::Request {
            envelope: self.envelope.clone(),
            expected_revision: self.expected_revision,
            resolves: resolves.collect(),
            by: somebody(),
        };
        let runners = append::Runners {
            ids: envelopes::runners(fleet),
            ..append::Runners::default()
        };
        let mut door = Facts::create(crate::domain::steps::PromptMechanism::Raw);
        if let Some(envelope) = &self.envelope {
            envelopes::routes(&mut door, envelope, &runners.ids);
        }
        let mut mint = Mint::seeded(self.seed);
        let graph = &mut locked.graph;
        match append::append(graph, &request, &door, &runners, &mut mint) {
            Err(refusal) => Answer::Refused(refusal.code()),
            Ok(made) => {
                let keys = made.compiled.iter().flat_map(|c| c.accepted_task_keys());
                let keys: Vec<&str> = keys.map(TaskKey::as_str).collect();
                let (answer, revision) = (&made.deliverable, made.revision);
                let text = format!("{keys:?} {answer:?} {revision} {:?}", made.tokens);
                let body = Value::from(text).canonical().expect("storable");
                let receipt = body.as_str().to_owned();
                graph.changes.receipts.push(Receipt {
                    key: self.under.clone().unwrap_or_else(|| mint.base62(36)),
                    fingerprint: self.fingerprint(),
                    body: Canonical::trusted(receipt.clone()),
                });
                let replayed = false;
                Answer::Appended(Box::new(Accepted { receipt, replayed }))
            }
        }
    }
}

/// What a transaction came to: its commands' answers, and after which item each was at rest.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) answers: Vec<Answer>,
    pub(crate) told: Vec<i64>,
}

impl Db {
    /// One transaction over these commands, as a lane runs it.
    ///
    /// # Errors
    /// A guarded write that met no row, an unwritten change, or no rest.
    pub(crate) fn transact(&mut self, commands: &[Command]) -> Result<Done, String> {
        self.transact_beside(commands, |_| ())
    }

    /// The same, with somebody who takes no run lock (a claim) between decision and apply; decided
    /// anew if that changed what was decided on.
    pub(crate) fn transact_beside(
        &mut self,
        commands: &[Command],
        beside: impl FnOnce(&mut Self),
    ) -> Result<Done, String> {
        let mut beside = Some(beside);
        for _ in 0..=RETRIES {
            let (locked, mut done) = self.decide(commands)?;
            if let Some(beside) = beside.take() {
                beside(self);
            }
            match self.apply(locked) {
                Err(fault) if fault == AGAIN => continue,
                outcome => outcome?,
            }
            for answer in &mut done.answers {
                if let Answer::Task(no, status) = answer {
                    *status = self.task(*no).status;
                }
            }
            return Ok(done);
        }
        Err(AGAIN.to_owned())
    }

    /// Decides the commands one after another, each carried to rest.
    fn decide(&mut self, commands: &[Command]) -> Result<(Locked, Done), String> {
        let firsts: Vec<First> = commands.iter().map(Command::first).collect();
        let mut locked = self.lock(&firsts);
        let mut done = Done {
            answers: Vec::new(),
            told: Vec::new(),
        };
        for command in commands {
            done.answers.push(command.decide(&mut locked, &self.fleet));
            self.rest(&mut locked)?;
            done.told.push(locked.graph.run.event_seq);
        }
        Ok((locked, done))
    }

    fn rest(&mut self, locked: &mut Locked) -> Result<(), String> {
        let limit = 16 + 4 * self.world.tasks.len();
        let mut asked = None;
        for _ in 0..limit {
            let Some(want) = locked.graph.advance() else {
                return Ok(());
            };
            if asked.as_ref() == Some(&want) {
                return Err(format!("{want:?} has no rows"));
            }
            self.load(locked, &want);
            asked = Some(want);
        }
        Err(format!("no rest after {limit} loads"))
    }

    /// One command, refused or not.
    pub(crate) fn run(&mut self, command: Command) -> Result<Answer, String> {
        let mut done = self.transact(&[command])?;
        Ok(done.answers.remove(0))
    }

    /// A claim whose facts have been read: what it will ask of the store, or its refusal.
    pub(crate) fn judge_claim(
        &self,
        key: &str,
        by: ExecutorId,
        under: Option<&[u8]>,
        digest: [u8; 32],
    ) -> Result<(Verdict, Taking), &'static str> {
        let facts = self.claim_facts(key, by).ok_or("not_found")?;
        let verdict = claim::decide(&facts, under).map_err(|refusal| refusal.code())?;
        let taking = Taking {
            task: facts.task,
            generation: facts.generation,
            by,
            epoch: facts.caller.epoch,
            key: under.map(<[u8]>::to_vec),
            digest,
        };
        Ok((verdict, taking))
    }

    /// The guarded write of a judged claim; false: it must look again.
    pub(crate) fn take(&mut self, verdict: Verdict, taking: &Taking) -> bool {
        match verdict {
            Verdict::Grant => self.grant(taking),
            Verdict::Recover => self.recover(taking),
        }
    }
}

/// A commit's body.
pub(crate) fn body(members: &[(&str, Value)]) -> Object {
    let members = members.iter();
    members
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

/// A link to an upload of that number: odd ones are the committing executor's own.
pub(crate) fn link(upload: u128) -> Value {
    let id = PublicId(uuid::Uuid::from_u128(upload));
    Value::from([
        ("type", "resource_link".into()),
        ("uri", format!("nexus://uploads/{id}").into()),
        ("name", "a.png".into()),
    ])
}
