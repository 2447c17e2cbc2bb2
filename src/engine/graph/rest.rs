//! Carrying a command to rest: releases, barriers, waits, starts; then whether the run ends, is held
//! or asks for a person (`engine.md` §7, `runs.md` §7.2).

use std::collections::BTreeSet;

use super::{Graph, Narration, Want};
use crate::domain::event::Event;
use crate::domain::words::{AttentionReason, OnFailure, ParkKind, RunStatus, TaskKind, TaskStatus};
use crate::domain::{TaskKey, TaskNo};
use crate::engine::approval;
use crate::engine::facts::{Attention, Park, Rest, Task};
use crate::engine::settlement::{is_candidate, is_unresolved};
use crate::engine::start;

impl Graph {
    /// Carries the consequences of what was decided. Returns what must be seen before it can go
    /// on, or nothing when the run is at rest.
    pub fn advance(&mut self) -> Option<Want> {
        loop {
            if let Some(want) = self.open_skipped() {
                return Some(want);
            }
            if let Some(want) = self.drain_releases() {
                return Some(want);
            }
            if let Some(want) = self.end_races() {
                return Some(want);
            }
            if let Some(want) = self.end_attached() {
                return Some(want);
            }
            if !self.released.is_empty() {
                continue;
            }
            if let Some(want) = self.absorb_failures() {
                return Some(want);
            }
            if let Some(want) = self.judge_waits() {
                return Some(want);
            }
            if !self.released.is_empty() {
                continue;
            }
            self.wake();
            if let Some(want) = self.owed_pass() {
                return Some(want);
            }
            if self.may_start() && !(self.ready.is_empty() && self.granted.is_empty()) {
                if let Some(want) = self.start_ready() {
                    return Some(want);
                }
                continue;
            }
            if let Some(want) = self.judge_rest() {
                return Some(want);
            }
            if self.released.is_empty() && !self.may_go_on() {
                if self.run.schedulable && self.run.counts.ready == 0 {
                    self.run.schedulable = false;
                    self.changes.run = true;
                }
                self.close_narration();
                return None;
            }
        }
    }

    /// Whether ready rows may start: nothing new starts in a run that is held or stopping.
    fn may_start(&self) -> bool {
        self.run.status == RunStatus::Running
    }

    fn may_go_on(&self) -> bool {
        self.may_start() && !(self.ready.is_empty() && self.granted.is_empty())
    }

    /// A settle that made work ready ends a hold (`runs.md` §7.1).
    fn wake(&mut self) {
        let counts = self.run.counts;
        if std::mem::take(&mut self.woken) && counts.ready + counts.rounds > 0 {
            self.end_hold();
        }
    }

    /// What became ready under a hold (approved there) starts in the transaction that ends it.
    fn owed_pass(&mut self) -> Option<Want> {
        if !(self.pass_owed && self.may_start()) {
            return None;
        }
        let loaded = i32::try_from(self.ready.len()).unwrap_or(i32::MAX);
        self.pass_owed = self.run.counts.ready > loaded;
        self.pass_owed.then_some(Want::Ready)
    }

    fn start_ready(&mut self) -> Option<Want> {
        if let Some(want) = self.unseen_of_starts() {
            return Some(want);
        }
        for (no, fact) in std::mem::take(&mut self.granted) {
            let candidates = self.addressees.remove(&no).unwrap_or_default();
            start::approved(self, no, fact, &candidates);
        }
        for no in std::mem::take(&mut self.ready) {
            let candidates = self.addressees.remove(&no).unwrap_or_default();
            let verdict = self.verdict_on(no);
            start::start(self, no, &candidates, verdict);
        }
        None
    }

    /// What must be seen before the ready rows start.
    fn unseen_of_starts(&self) -> Option<Want> {
        let calls = || {
            let ready = self.ready.iter().chain(self.granted.keys()).copied();
            ready.filter(|no| self.loaded(*no).kind == TaskKind::Tool)
        };
        if self.run.has_rules {
            let unread: Vec<TaskNo> = calls()
                .filter(|no| self.rules.is_none() || !self.inputs.contains_key(no))
                .collect();
            if !unread.is_empty() {
                return Some(Want::Rules(unread));
            }
        }
        let asks_somebody = self.ready.iter().any(|no| {
            let task = self.loaded(*no);
            start::asks_host(task) || self.verdict_on(*no) == Some(approval::Verdict::Park)
        });
        let has_host = self.run.principal.declaring_agent.is_some();
        if asks_somebody && has_host && self.host.is_none() {
            return Some(Want::Host);
        }
        let unseen: Vec<TaskNo> = calls()
            .filter(|no| !self.addressees.contains_key(no))
            .collect();
        (!unseen.is_empty()).then_some(Want::Addressees(unseen))
    }

    /// What the approval stage says of a ready call; nothing of other rows.
    fn verdict_on(&self, no: TaskNo) -> Option<approval::Verdict> {
        let task = self.loaded(no);
        if task.kind != TaskKind::Tool {
            return None;
        }
        let rules = self.rules.as_deref();
        let input = self.inputs.get(&no);
        Some(approval::judge(self.run.approval_mode, rules, task, input))
    }

    // ---------------------------------------------------------------- rest

    /// Judges rest (`engine.md` §7) once nothing more can start.
    fn judge_rest(&mut self) -> Option<Want> {
        let counts = self.run.counts;
        match self.run.status {
            RunStatus::Canceling if counts.started == 0 && counts.open == 0 => {
                self.set_run_status(RunStatus::Canceled);
                None
            }
            RunStatus::Running => {
                let mut questions = false;
                if counts.ready > 0 {
                    // Ready rows that are not loaded, or that no pass of this transaction may start.
                    self.changes.run |= !self.run.schedulable;
                    self.run.schedulable = true;
                } else if counts.rounds == 0 && counts.unresolved > 0 {
                    match self.judge_hold() {
                        Err(want) => return Some(want),
                        Ok(Hold::Now) => return self.hold(AttentionReason::HaltFailure),
                        Ok(Hold::OnceAnswered) => questions = true,
                        Ok(Hold::NotYet) => {}
                    }
                } else if counts.rounds + counts.started + counts.approval == 0 {
                    return self.judge_quiescence();
                }
                self.judge_attention(questions)
            }
            RunStatus::NeedsAttention => {
                let over = self.run.attention.as_ref().is_some_and(|a| {
                    a.reason == AttentionReason::HaltFailure && counts.unresolved == 0
                });
                if over {
                    // What the hold was for has been taken over or resolved.
                    self.set_attention(None);
                    self.end_hold();
                    return self.owed_pass().or_else(|| self.judge_rest());
                }
                self.keep_keys()
            }
            RunStatus::Paused => self.judge_attention(false),
            _ => None,
        }
    }

    /// An unresolved failure holds the run once nothing runs in the kernel and every park that
    /// remains is a claimed call: a person hears of it while long claims go on.
    fn judge_hold(&mut self) -> Result<Hold, Want> {
        let counts = self.run.counts;
        if counts.started == 0 {
            return Ok(Hold::Now);
        }
        if counts.running > 0 || counts.waits > 0 {
            return Ok(Hold::NotYet);
        }
        let Some(rests) = &self.rests else {
            return Err(Want::Rests(self.changes.parks_gone.len() + 1));
        };
        let gone = |no: &TaskNo| self.changes.parks_gone.contains(no);
        let stored = rests.iter().filter(|(no, _)| !gone(no)).map(|(_, r)| *r);
        let new = self.changes.parks_new.iter();
        let new = new.filter_map(|no| self.parks.get(no).and_then(rest_of));
        let rests: Vec<Rest> = stored.chain(new).collect();
        Ok(
            if rests.contains(&Rest::Unclaimed) || rests.contains(&Rest::Wait) {
                Hold::NotYet
            } else if rests.contains(&Rest::Question) {
                Hold::OnceAnswered
            } else {
                Hold::Now
            },
        )
    }

    fn judge_quiescence(&mut self) -> Option<Want> {
        let Some(answer) = self.run.deliverable else {
            return self.hold(AttentionReason::DeliverableUnresolved);
        };
        let Some(task) = self.tasks.get(&answer) else {
            return Some(Want::Row(answer));
        };
        if task.status == TaskStatus::Completed {
            self.set_run_status(RunStatus::Completed);
            return None;
        }
        self.hold(AttentionReason::DeliverableUnresolved)
    }

    /// The rows that a hold names.
    fn failures_for(&self, reason: AttentionReason) -> Result<Vec<TaskKey>, Want> {
        let Some(failures) = self.failures.clone() else {
            return Err(Want::Failures);
        };
        let unseen = failures
            .iter()
            .copied()
            .filter(|no| !self.tasks.contains_key(no));
        let unseen: Vec<TaskNo> = unseen.collect();
        if !unseen.is_empty() {
            return Err(Want::Edges(unseen));
        }
        Ok(failures
            .iter()
            .map(|no| self.loaded(*no))
            .filter(|t| reason != AttentionReason::HaltFailure || t.on_failure == OnFailure::Halt)
            .map(|t| t.key.clone())
            .collect())
    }

    fn hold(&mut self, reason: AttentionReason) -> Option<Want> {
        match self.failures_for(reason) {
            Err(want) => Some(want),
            Ok(keys) => {
                self.set_attention(Some(Attention { reason, keys }));
                self.set_run_status(RunStatus::NeedsAttention);
                None
            }
        }
    }

    // ---------------------------------------------------------------- attention

    /// The standing reason of a run that goes on: it stays while its rows are there; then the first
    /// of the order that has rows.
    fn judge_attention(&mut self, failures: bool) -> Option<Want> {
        use AttentionReason::{ApprovalRequired, AwaitingHuman, HaltFailure};
        let counts = self.run.counts;
        let stands = |reason: &AttentionReason| match reason {
            HaltFailure => counts.unresolved > 0,
            ApprovalRequired => counts.approval > 0,
            AwaitingHuman => counts.awaiting > 0,
            AttentionReason::DeliverableUnresolved => false,
        };
        let standing = self.run.attention.as_ref().map(|a| a.reason);
        let reason = standing.filter(stands).or_else(|| {
            let raised = failures.then_some(HaltFailure);
            raised
                .into_iter()
                .chain([ApprovalRequired, AwaitingHuman])
                .find(stands)
        });
        match reason {
            None => {
                self.set_attention(None);
                None
            }
            Some(reason) if Some(reason) == standing => self.keep_keys(),
            Some(HaltFailure) => match self.failures_for(HaltFailure) {
                Err(want) => Some(want),
                Ok(keys) => {
                    let reason = HaltFailure;
                    self.set_attention(Some(Attention { reason, keys }));
                    None
                }
            },
            Some(reason) => {
                if !self.resting.contains(&reason) {
                    return Some(Want::Resting(reason));
                }
                let keys = self.resting_keys(reason);
                self.set_attention(Some(Attention { reason, keys }));
                None
            }
        }
    }

    /// The rows that rest for that reason; all stored ones are loaded.
    fn resting_keys(&self, reason: AttentionReason) -> Vec<TaskKey> {
        let rows = self.tasks.values().filter(|t| is_named(reason, t));
        rows.map(|t| t.key.clone()).collect()
    }

    /// Brings the keys of the standing reason up to date with what this transaction wrote.
    fn keep_keys(&mut self) -> Option<Want> {
        let mut attention = self.run.attention.clone()?;
        let reason = attention.reason;
        let written = || self.changes.tasks.iter().map(|no| self.loaded(*no));
        let gone: BTreeSet<&TaskKey> = written()
            .filter(|t| !is_named(reason, t))
            .map(|t| &t.key)
            .collect();
        attention.keys.retain(|key| !gone.contains(key));
        let known: BTreeSet<TaskKey> = attention.keys.iter().cloned().collect();
        let new = written().filter(|t| is_named(reason, t) && !known.contains(&t.key));
        attention.keys.extend(new.map(|t| t.key.clone()));
        self.set_attention(Some(attention));
        None
    }

    pub(super) fn close_narration(&mut self) {
        self.rests = None;
        self.walks.clear();
        let Narration {
            first,
            mut rows,
            mut run,
            attention,
            ..
        } = std::mem::take(&mut self.narration);
        // Only now is known which reason stands. A status that another follows has none: nobody was
        // ever asked under it.
        if let Some(Event::TurnStatus {
            attention_reason, ..
        }) = run.last_mut()
        {
            *attention_reason = self.run.attention.as_ref().map(|a| a.reason);
        }
        rows.sort_by_key(|(no, _)| *no);
        let items = first
            .into_iter()
            .chain(rows.into_iter().map(|(_, e)| e))
            .chain(run)
            .chain(attention);
        let items: Vec<Event> = items.collect();
        for event in items {
            self.run.event_seq += 1;
            self.changes.run = true;
            self.changes.events.push((self.run.event_seq, event));
        }
    }
}

/// Whether a failure holds its run.
enum Hold {
    Now,
    /// A question is still parked: the reason stands, the run goes on.
    OnceAnswered,
    /// Something may still make work ready.
    NotYet,
}

fn rest_of(park: &Park) -> Option<Rest> {
    match park.kind {
        ParkKind::ToolCall if park.claim.is_none() => Some(Rest::Unclaimed),
        ParkKind::ToolCall | ParkKind::Approval => None,
        ParkKind::Ask => Some(Rest::Question),
        ParkKind::Wait => Some(Rest::Wait),
    }
}

/// Whether that reason names the row.
fn is_named(reason: AttentionReason, task: &Task) -> bool {
    match reason {
        AttentionReason::HaltFailure => is_unresolved(task),
        AttentionReason::DeliverableUnresolved => is_candidate(task),
        AttentionReason::ApprovalRequired => task.status == TaskStatus::NeedsApproval,
        AttentionReason::AwaitingHuman => task.status == TaskStatus::AwaitingInput,
    }
}
