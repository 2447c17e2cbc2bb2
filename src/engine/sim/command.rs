//! Commands as the shell runs them (`commands/`): what each loads first, the decision it asks, and
//! the lane's way through a batch: decide one after another on one slice, each carried to rest
//! before the next, one apply.
//!
//! Pause and resume are not offered by the doors yet; they are set here by hand, so that what the
//! engine does around them is tried.

use super::db::{AGAIN, Db, First, Locked, Taking};
use crate::domain::json::{Object, Value};
use crate::domain::payload::Submission;
use crate::domain::words::{RunStatus, TaskStatus};
use crate::domain::{ExecutorId, PublicId, TaskKey, TaskNo, Timestamp, UploadId};
use crate::engine::claim::{self, Verdict};
use crate::engine::facts::Capture;
use crate::engine::{commit, expire, extend, revoke, stop};

/// A command over the run lock.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Start,
    Schedule,
    Stop(Option<String>),
    Pause,
    Resume,
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
    Refused(&'static str),
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
            Self::Stop(_) => First::OpenRows,
            Self::Pause => First::Run,
            Self::Expire(rows) | Self::Revoke { rows, .. } => First::Parked(rows.clone()),
            Self::Extend { key, by, .. } | Self::Commit { key, by, .. } => First::Task {
                key: key.clone(),
                caller: *by,
            },
        }
    }

    fn decide(&self, locked: &mut Locked) -> Answer {
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
            Self::Pause if graph.run.status != RunStatus::Running => {
                Answer::Refused("not_pausable")
            }
            Self::Pause => {
                graph.run.paused_at = Some(graph.now);
                graph.set_run_status(RunStatus::Paused);
                Answer::Ok
            }
            Self::Resume if graph.run.status != RunStatus::Paused => Answer::Refused("not_paused"),
            Self::Resume => {
                graph.run.paused_at = None;
                graph.set_run_status(RunStatus::Running);
                Answer::Ok
            }
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
            let (locked, mut done, pause) = self.decide(commands)?;
            if let Some(beside) = beside.take() {
                beside(self);
            }
            if pause > 0 {
                // A resume is a command of its own: nothing of its transaction looked at a park.
                self.pay_clock_debt(pause);
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

    /// Decides the commands one after another, each carried to rest; and by how much clocks move.
    fn decide(&mut self, commands: &[Command]) -> Result<(Locked, Done, i64), String> {
        let firsts: Vec<First> = commands.iter().map(Command::first).collect();
        let mut locked = self.lock(&firsts);
        let mut done = Done {
            answers: Vec::new(),
            told: Vec::new(),
        };
        let mut pause = 0;
        for command in commands {
            let paused_at = locked.graph.run.paused_at;
            done.answers.push(command.decide(&mut locked));
            if let (Command::Resume, Some(Answer::Ok)) = (command, done.answers.last()) {
                let now = locked.graph.now;
                pause += paused_at.map_or(0, |at| (now - at).num_milliseconds());
            }
            self.rest(&mut locked)?;
            done.told.push(locked.graph.run.event_seq);
        }
        Ok((locked, done, pause))
    }

    fn rest(&mut self, locked: &mut Locked) -> Result<(), String> {
        let limit = 16 + 4 * self.world.tasks.len();
        for _ in 0..limit {
            match locked.graph.advance() {
                None => return Ok(()),
                Some(want) => self.load(locked, &want),
            }
        }
        Err(format!("no rest after {limit} loads"))
    }

    fn pay_clock_debt(&mut self, pause_ms: i64) {
        for no in self.world.parks.iter().map(|p| p.task).collect::<Vec<_>>() {
            self.delay(no, pause_ms);
        }
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
