//! What one round trip of a transaction reads: the wants of all its runs, gathered kind by kind.

use super::statements::{
    LOAD_ADDRESSEES, LOAD_ARMS, LOAD_ATTACHED, LOAD_BEHIND, LOAD_BODIES, LOAD_BRANCH,
    LOAD_BRANCH_INTO, LOAD_CALLERS, LOAD_DOWNSTREAM, LOAD_FAILURES, LOAD_HOST, LOAD_INTO,
    LOAD_KEYS, LOAD_NOS, LOAD_OBSERVABLE, LOAD_OBSERVABLE_BODIES, LOAD_OBSERVABLE_ROWS,
    LOAD_OBSERVED, LOAD_OPEN, LOAD_OPERATION_INTO, LOAD_OPERATION_ROWS, LOAD_OPERATIONS,
    LOAD_READY, LOAD_RECEIPTS, LOAD_REPAIR, LOAD_REPAIR_INTO, LOAD_RESTING, LOAD_RESTS, LOAD_RULES,
    LOAD_SELECTIONS, LOAD_STANDING, LOAD_UPSTREAM, LOAD_UPSTREAM_SELECTIONS, LOAD_WATCHERS,
    LOCK_ALL_PARKS, LOCK_OPERATION_PARKS, LOCK_PARKS,
};
use super::{First, Locked, RunTarget};
use crate::domain::words::{AttentionReason, ParkKind};
use crate::domain::{TaskKey, TaskNo};
use crate::engine::graph::{PASS, Want};
use crate::store::Sql;
use crate::store::tx::Batch;

/// Columns of one kind of load, one entry a wanted row.
#[derive(Default)]
pub(super) struct Wanted {
    accounts: Vec<i64>,
    runs: Vec<uuid::Uuid>,
    keys: Vec<String>,
    nos: Vec<i32>,
}

impl Wanted {
    fn run(&mut self, target: &RunTarget) {
        self.accounts.push(target.account.0);
        self.runs.push(target.run.0);
    }

    fn key(&mut self, target: &RunTarget, key: &TaskKey) {
        self.run(target);
        self.keys.push(key.as_str().to_owned());
    }

    fn nos(&mut self, target: &RunTarget, nos: &[TaskNo]) {
        for no in nos {
            self.run(target);
            self.nos.push(no.0);
        }
    }
}

/// Everything that one load reads, kind by kind.
#[derive(Default)]
pub(super) struct Loads {
    callers: Wanted,
    caller_ids: Vec<i64>,
    keys: Wanted,
    parked: Wanted,
    nos: Wanted,
    downstream: Wanted,
    behind: Wanted,
    open: Wanted,
    ready: Wanted,
    ready_limit: i64,
    addressees: Wanted,
    tools: Vec<Option<String>>,
    targets: Vec<Option<i64>>,
    agents: Vec<Option<i64>>,
    run_ids: Vec<Option<i64>>,
    new_inputs: Vec<Option<String>>,
    failures: Wanted,
    repairs: Wanted,
    branches: Wanted,
    standing: Wanted,
    receipts: Wanted,
    arms: Wanted,
    parks: Wanted,
    rests: Wanted,
    resting: Wanted,
    hosts: Wanted,
    rules: Wanted,
    watchers: Wanted,
    observed: Wanted,
    into: Wanted,
    operations: Wanted,
    operation_keys: Vec<String>,
    observable: Wanted,
    attached: Wanted,
    upstream: Wanted,
}

/// What the rows of one statement of a load are.
#[derive(Clone, Copy)]
pub(super) enum Read {
    Locks,
    Slice,
    Ready,
    Callers,
    Addressees,
    Failures,
    Into,
    Rows,
    Selections,
    LockedParks,
    Rests,
    Resting,
    Hosts,
    Rules,
    Watchers,
    Bodies,
    Receipts,
    Operations,
}

impl Loads {
    pub(super) fn first(&mut self, target: &RunTarget, first: &First) {
        match first {
            First::Run => {}
            First::Task { key, caller } => {
                self.keys.key(target, key);
                self.callers.accounts.push(target.account.0);
                self.caller_ids.push(caller.0);
            }
            First::Parked(nos) => self.parked.nos(target, nos),
            First::OpenRows => self.open.run(target),
            First::Ready(limit) => self.ready(target, *limit),
            First::Row(key) => self.keys.key(target, key),
            First::Repair(key) => self.repairs.key(target, key),
            First::Branch(key) => self.branches.key(target, key),
            First::Operation(operation) => {
                self.keys.key(target, &operation.key);
                self.callers.accounts.push(target.account.0);
                self.caller_ids.push(operation.caller.0);
                for name in &operation.operations {
                    self.operations.key(target, &operation.key);
                    self.operation_keys.push(name.clone());
                }
                for key in &operation.waits {
                    self.standing.run(target);
                    self.standing.keys.push(key.clone());
                    self.standing.nos.push(0);
                }
            }
            First::Observe { key, caller, after } => {
                self.keys.key(target, key);
                self.callers.accounts.push(target.account.0);
                self.caller_ids.push(caller.0);
                self.observable.key(target, key);
                self.observable.nos.push(*after);
            }
            First::Append(append) => {
                // A run whose envelope names nothing still has an answer: no key is empty.
                let keys = append.keys.iter().map(String::as_str).chain([""]);
                for (at, key) in keys.enumerate() {
                    self.standing.run(target);
                    self.standing.keys.push(key.to_owned());
                    self.standing
                        .nos
                        .push(if at == 0 { append.minted } else { 0 });
                }
                if let Some(key) = &append.receipt {
                    self.receipts.run(target);
                    self.receipts.keys.push(key.clone());
                }
            }
        }
    }

    fn ready(&mut self, target: &RunTarget, limit: i64) {
        self.ready.run(target);
        self.ready_limit = self.ready_limit.max(limit);
    }

    pub(super) fn want(&mut self, target: &RunTarget, want: &Want, locked: Option<&Locked>) {
        match want {
            Want::Edges(nos) => self.nos.nos(target, nos),
            Want::Row(no) => self.nos.nos(target, &[*no]),
            Want::Downstream(nos) => self.downstream.nos(target, nos),
            Want::Behind(nos) => self.behind.nos(target, nos),
            Want::Addressees(nos) => {
                self.addressees.nos(target, nos);
                for no in nos {
                    let task = locked.and_then(|l| l.graph.task(*no));
                    self.tools.push(task.and_then(|t| t.tool_name.clone()));
                    self.targets.push(task.and_then(|t| t.target).map(|e| e.0));
                    let agent = locked.and_then(|l| l.graph.run.principal.declaring_agent);
                    self.agents.push(agent.map(|m| m.0));
                    self.run_ids.push(locked.map(|l| l.graph.run.id.0));
                    let skill = task.is_some_and(|t| {
                        t.tool_name.as_deref() == Some("skill") && t.target.is_some()
                    });
                    let new = locked.and_then(|l| l.graph.changes.tasks_new.get(no));
                    let input = new.filter(|_| skill).and_then(|n| n.tool_input.as_ref());
                    self.new_inputs.push(input.map(|i| i.as_str().to_owned()));
                }
            }
            Want::Failures => self.failures.run(target),
            Want::Ready => self.ready(target, PASS),
            Want::Arms(nos) => self.arms.nos(target, nos),
            Want::Parks(nos) => self.parks.nos(target, nos),
            Want::Rests(most) => {
                self.rests.run(target);
                self.rests
                    .nos
                    .push(i32::try_from(*most).unwrap_or(i32::MAX));
            }
            Want::Resting(reason) => {
                self.resting.run(target);
                self.resting
                    .keys
                    .push(resting_kind(*reason).as_str().to_owned());
            }
            Want::Host => self.hosts.run(target),
            Want::Rules(nos) => self.rules.nos(target, nos),
            Want::Watchers(nos) => self.watchers.nos(target, nos),
            Want::Observed(nos) => self.observed.nos(target, nos),
            Want::Into(nos) => self.into.nos(target, nos),
            Want::Attached(nos) => self.attached.nos(target, nos),
            Want::Upstream(nos) => self.upstream.nos(target, nos),
        }
    }

    pub(super) fn fill<'a>(&'a self, batch: &mut Batch<'a>) -> Vec<Read> {
        let mut reads = Vec::new();
        let by_key: [(Read, &'static Sql, &'a Wanted); 7] = [
            (Read::Slice, &LOAD_KEYS, &self.keys),
            (Read::Slice, &LOAD_REPAIR, &self.repairs),
            (Read::Into, &LOAD_REPAIR_INTO, &self.repairs),
            (Read::Slice, &LOAD_BRANCH, &self.branches),
            (Read::Into, &LOAD_BRANCH_INTO, &self.branches),
            (Read::Receipts, &LOAD_RECEIPTS, &self.receipts),
            (Read::Resting, &LOAD_RESTING, &self.resting),
        ];
        let mut add = |read: Read, sql: &'static Sql, wanted: &'a Wanted, by_no: bool| {
            if wanted.accounts.is_empty() {
                return;
            }
            if by_no {
                batch.add(sql, vec![&wanted.accounts, &wanted.runs, &wanted.nos]);
            } else {
                batch.add(sql, vec![&wanted.accounts, &wanted.runs]);
            }
            reads.push(read);
        };
        add(Read::Locks, &LOCK_PARKS, &self.parked, true);
        add(Read::Locks, &LOCK_ALL_PARKS, &self.open, false);
        add(Read::Locks, &LOCK_ALL_PARKS, &self.branches, false);
        add(Read::Locks, &LOCK_PARKS, &self.parks, true);
        add(Read::Slice, &LOAD_NOS, &self.parked, true);
        add(Read::Slice, &LOAD_NOS, &self.nos, true);
        add(Read::Slice, &LOAD_DOWNSTREAM, &self.downstream, true);
        add(Read::Slice, &LOAD_BEHIND, &self.behind, true);
        add(Read::Slice, &LOAD_OPEN, &self.open, false);
        add(Read::Failures, &LOAD_FAILURES, &self.failures, false);
        add(Read::Slice, &LOAD_ARMS, &self.arms, true);
        add(Read::Selections, &LOAD_SELECTIONS, &self.arms, true);
        add(Read::LockedParks, &LOAD_NOS, &self.parks, true);
        add(Read::Rests, &LOAD_RESTS, &self.rests, true);
        add(Read::Hosts, &LOAD_HOST, &self.hosts, false);
        add(Read::Rules, &LOAD_RULES, &self.rules, true);
        add(Read::Watchers, &LOAD_WATCHERS, &self.watchers, true);
        add(Read::Rows, &LOAD_OBSERVED, &self.observed, true);
        add(Read::Bodies, &LOAD_BODIES, &self.observed, true);
        add(Read::Into, &LOAD_INTO, &self.into, true);
        add(Read::Slice, &LOAD_ATTACHED, &self.attached, true);
        add(Read::Slice, &LOAD_UPSTREAM, &self.upstream, true);
        add(
            Read::Selections,
            &LOAD_UPSTREAM_SELECTIONS,
            &self.upstream,
            true,
        );
        let w = &self.operations;
        if !w.accounts.is_empty() {
            for (read, sql) in [
                (Read::Locks, &LOCK_OPERATION_PARKS),
                (Read::Operations, &LOAD_OPERATIONS),
                (Read::Slice, &LOAD_OPERATION_ROWS),
                (Read::Into, &LOAD_OPERATION_INTO),
            ] {
                let names = &self.operation_keys;
                batch.add(sql, vec![&w.accounts, &w.runs, &w.keys, names]);
                reads.push(read);
            }
        }
        let w = &self.observable;
        if !w.accounts.is_empty() {
            for (read, sql) in [
                (Read::Operations, &LOAD_OBSERVABLE),
                (Read::Rows, &LOAD_OBSERVABLE_ROWS),
                (Read::Bodies, &LOAD_OBSERVABLE_BODIES),
            ] {
                batch.add(sql, vec![&w.accounts, &w.runs, &w.keys, &w.nos]);
                reads.push(read);
            }
        }
        let calls = &self.addressees;
        if !calls.accounts.is_empty() {
            batch.add(
                &LOAD_ADDRESSEES,
                vec![
                    &calls.accounts,
                    &calls.runs,
                    &calls.nos,
                    &self.tools,
                    &self.targets,
                    &self.agents,
                    &self.run_ids,
                    &self.new_inputs,
                ],
            );
            reads.push(Read::Addressees);
        }
        let standing = &self.standing;
        if !standing.accounts.is_empty() {
            let w = standing;
            batch.add(&LOAD_STANDING, vec![&w.accounts, &w.runs, &w.keys, &w.nos]);
            reads.push(Read::Rows);
        }
        for (read, sql, wanted) in by_key {
            if !wanted.accounts.is_empty() {
                batch.add(sql, vec![&wanted.accounts, &wanted.runs, &wanted.keys]);
                reads.push(read);
            }
        }
        if !self.ready.accounts.is_empty() {
            let ready = &self.ready;
            batch.add(
                &LOAD_READY,
                vec![&ready.accounts, &ready.runs, &self.ready_limit],
            );
            reads.push(Read::Ready);
        }
        if !self.callers.accounts.is_empty() {
            batch.add(
                &LOAD_CALLERS,
                vec![&self.callers.accounts, &self.caller_ids],
            );
            reads.push(Read::Callers);
        }
        reads
    }
}

/// What kind of park the rows of a reason have.
fn resting_kind(reason: AttentionReason) -> ParkKind {
    match reason {
        AttentionReason::AwaitingHuman => ParkKind::Ask,
        _ => ParkKind::Approval,
    }
}
