//! Rows become facts of the slices: what each kind of load gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_postgres::Row;

use super::loads::Read;
use super::{Locked, RunTarget, RunTx, StoredAppend};
use crate::domain::json::{self, Canonical, Value};
use crate::domain::words::{EdgeState, ParkKind};
use crate::domain::{AccountId, ExecutorId, PublicId, TaskNo};
use crate::engine::approval::Rules;
use crate::engine::facts::{
    Caller, Candidate, Document, Edge, Host, Operation, Response, Rest, Seen, Served,
};
use crate::engine::graph::{Graph, Want};
use crate::store::{Error, rows};

impl RunTx {
    pub(super) fn take_run(&mut self, row: &Row) -> Result<(), Error> {
        let run = rows::run(row)?;
        let target = RunTarget {
            account: run.account,
            run: run.public_id,
        };
        let graph = Graph::new(run, row.get("now"));
        self.runs.insert(
            target,
            Locked {
                graph,
                callers: BTreeMap::new(),
                digests: BTreeMap::new(),
                receipts: BTreeMap::new(),
            },
        );
        Ok(())
    }

    pub(super) fn take(&mut self, reads: &[Read], answers: &[Vec<Row>]) -> Result<(), Error> {
        for (read, rows) in reads.iter().zip(answers) {
            match read {
                Read::Locks => {}
                Read::Slice => self.take_slice(rows, false)?,
                Read::Ready => self.take_slice(rows, true)?,
                Read::Callers => self.take_callers(rows)?,
                Read::Addressees => self.take_addressees(rows)?,
                Read::Failures => self.take_failures(rows),
                Read::Into => self.take_into(rows)?,
                Read::Rows | Read::Resting => self.take_rows(rows)?,
                Read::Selections => self.take_selections(rows)?,
                Read::LockedParks => self.take_locked_parks(rows)?,
                Read::Rests => self.take_rests(rows)?,
                Read::Hosts => self.take_hosts(rows),
                Read::Rules => self.take_rules(rows)?,
                Read::Watchers => {
                    self.take_slice(rows, false)?;
                    self.take_watchers(rows);
                }
                Read::Bodies => self.take_bodies(rows)?,
                Read::Receipts => self.take_receipts(rows),
                Read::Operations => self.take_operations(rows)?,
            }
        }
        Ok(())
    }

    fn take_slice(&mut self, rows: &[Row], ready: bool) -> Result<(), Error> {
        let mut edges: BTreeMap<(RunTarget, TaskNo), Vec<Edge>> = BTreeMap::new();
        for row in rows {
            let target = target_of(row);
            let Some(locked) = self.runs.get_mut(&target) else {
                continue;
            };
            let task = rows::task(row)?;
            let no = task.no;
            match row.get::<_, Option<i32>>("from_no").map(TaskNo) {
                Some(from) => {
                    edges
                        .entry((target, from))
                        .or_default()
                        .push(rows::edge(row, from, no)?);
                }
                None => {
                    edges.entry((target, no)).or_default();
                    if let Some(digest) = row.get::<_, Option<Vec<u8>>>("stored_digest") {
                        locked.digests.insert(no, digest);
                    }
                    if let Some(park) = rows::park(row, no)? {
                        locked.graph.put_park(park);
                    }
                    if row.get("unfinished") {
                        locked.graph.put_unfinished(no);
                    }
                }
            }
            locked.graph.put_task(task);
            if ready && row.get::<_, Option<i32>>("from_no").is_none() {
                locked.graph.consider_ready(no);
            }
        }
        for ((target, from), list) in edges {
            if let Some(locked) = self.runs.get_mut(&target) {
                locked.graph.put_edges(from, list);
            }
        }
        Ok(())
    }

    fn take_callers(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            let account = AccountId(row.get("account_id"));
            let caller = Caller {
                id: ExecutorId(row.get("executor_id")),
                public_id: PublicId(row.get("executor_public_id")),
                executor: rows::executor(row)?,
                epoch: row.get("credential_epoch"),
                announces: false,
            };
            for (_, locked) in self.runs.iter_mut().filter(|(t, _)| t.account == account) {
                locked.callers.insert(caller.id, caller);
            }
        }
        Ok(())
    }

    fn take_addressees(&mut self, rows: &[Row]) -> Result<(), Error> {
        let mut found: BTreeMap<(RunTarget, TaskNo), Vec<Candidate>> = BTreeMap::new();
        for row in rows {
            let candidate = Candidate {
                id: ExecutorId(row.get("executor_id")),
                public_id: PublicId(row.get("executor_public_id")),
                executor: rows::executor(row)?,
                serves: Some(Served {
                    effect_profile: row.get("effect_profile"),
                    replayable: row.get("replayable"),
                    timeout_ms: row.get("announced_timeout_ms"),
                }),
                document: document(row),
            };
            found
                .entry((target_of(row), TaskNo(row.get("task_no"))))
                .or_default()
                .push(candidate);
        }
        for ((target, no), candidates) in found {
            if let Some(locked) = self.runs.get_mut(&target) {
                locked.graph.put_addressees(no, candidates);
            }
        }
        Ok(())
    }

    fn take_failures(&mut self, rows: &[Row]) {
        let mut found: BTreeMap<RunTarget, Vec<TaskNo>> = BTreeMap::new();
        for row in rows {
            found
                .entry(target_of(row))
                .or_default()
                .push(TaskNo(row.get("task_no")));
        }
        for (target, failures) in found {
            if let Some(locked) = self.runs.get_mut(&target) {
                locked.graph.put_failures(failures);
            }
        }
    }
}

impl RunTx {
    fn take_into(&mut self, rows: &[Row]) -> Result<(), Error> {
        let mut found: BTreeMap<(RunTarget, TaskNo), Vec<(TaskNo, EdgeState)>> = BTreeMap::new();
        for row in rows {
            let at = (target_of(row), TaskNo(row.get("task_no")));
            let into = found.entry(at).or_default();
            if let Some(from) = row.get::<_, Option<i32>>("from_no") {
                into.push((TaskNo(from), rows::word(row, "edges", "state")?));
            }
        }
        for ((target, no), into) in found {
            if let Some(locked) = self.runs.get_mut(&target) {
                locked.graph.put_into(no, into);
            }
        }
        Ok(())
    }

    fn take_rows(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            if let Some(locked) = self.runs.get_mut(&target_of(row)) {
                let task = rows::task(row)?;
                if let Some(park) = rows::park(row, task.no)? {
                    locked.graph.put_park(park);
                }
                locked.graph.put_task(task);
            }
        }
        Ok(())
    }

    fn take_selections(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            if let Some(locked) = self.runs.get_mut(&target_of(row)) {
                let no = TaskNo(row.get("task_no"));
                let selection = rows::selection(row, no)?;
                locked.graph.put_arms(&[], vec![(no, selection)]);
            }
        }
        Ok(())
    }

    fn take_locked_parks(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            let of_itself = row.get::<_, Option<i32>>("from_no").is_none();
            if let Some(locked) = self.runs.get_mut(&target_of(row)).filter(|_| of_itself) {
                let no = TaskNo(row.get("task_no"));
                let park = rows::park(row, no)?;
                locked
                    .graph
                    .put_locked_parks(&[no], park.into_iter().collect());
            }
        }
        self.take_slice(rows, false)
    }

    fn take_rests(&mut self, rows: &[Row]) -> Result<(), Error> {
        let mut found: BTreeMap<RunTarget, Vec<(TaskNo, Rest)>> = BTreeMap::new();
        for row in rows {
            let rest = match rows::word(row, "parks", "kind")? {
                ParkKind::ToolCall => Rest::Unclaimed,
                ParkKind::Ask => Rest::Question,
                ParkKind::Wait | ParkKind::Approval => Rest::Wait,
            };
            let no = TaskNo(row.get("task_no"));
            found.entry(target_of(row)).or_default().push((no, rest));
        }
        for (target, rests) in found {
            if let Some(locked) = self.runs.get_mut(&target) {
                locked.graph.put_rests(rests);
            }
        }
        Ok(())
    }

    fn take_hosts(&mut self, rows: &[Row]) {
        for row in rows {
            if let Some(locked) = self.runs.get_mut(&target_of(row)) {
                locked.graph.put_host(Some(Host {
                    id: ExecutorId(row.get("executor_id")),
                    public_id: PublicId(row.get("executor_public_id")),
                }));
            }
        }
    }

    fn take_rules(&mut self, rows: &[Row]) -> Result<(), Error> {
        let mut inputs: BTreeMap<RunTarget, Vec<(TaskNo, Value)>> = BTreeMap::new();
        let mut rules: BTreeMap<RunTarget, Rules> = BTreeMap::new();
        for row in rows {
            let (target, no) = (target_of(row), TaskNo(row.get("task_no")));
            if let Some(text) = row.get::<_, Option<&str>>("approval_rules") {
                let value = rows::json(text, "runs", "approval_rules")?;
                let read = Rules::read(&value)
                    .map_err(|e| Error::inconsistent("runs", "approval_rules", e))?;
                rules.insert(target, read.0);
            }
            let inputs = inputs.entry(target).or_default();
            // A row that this transaction adds has none yet: the slice knows it.
            if let Some(input) = row.get::<_, Option<&str>>("tool_input") {
                inputs.push((no, rows::json(input, "task_inputs", "tool_input")?));
            }
        }
        for (target, inputs) in inputs {
            if let Some(locked) = self.runs.get_mut(&target) {
                let rules = rules.remove(&target).unwrap_or_default();
                locked.graph.put_rules(Arc::new(rules), inputs);
            }
        }
        Ok(())
    }

    fn take_receipts(&mut self, rows: &[Row]) {
        for row in rows {
            if let Some(locked) = self.runs.get_mut(&target_of(row)) {
                let stored = StoredAppend {
                    fingerprint: row.get("fingerprint"),
                    body: Canonical::trusted(row.get("body")),
                };
                locked.receipts.insert(row.get("key"), stored);
            }
        }
    }

    fn take_operations(&mut self, rows: &[Row]) -> Result<(), Error> {
        const T: &str = "task_operations";
        for row in rows {
            let Some(locked) = self.runs.get_mut(&target_of(row)) else {
                continue;
            };
            let receipt: Option<String> = row.get("receipt");
            let refusal: Option<String> = row.get("refusal");
            let response = match (receipt, refusal) {
                (Some(receipt), None) => Response::Receipt(receipt),
                (None, Some(refusal)) => Response::Refusal(refusal),
                _ => return Err(Error::inconsistent(T, "receipt", "both or neither")),
            };
            let results: Vec<i32> = row.get("results");
            locked.graph.put_operation(Operation {
                parent: TaskNo(row.get("parent_no")),
                position: row.get("position"),
                key: row.get("operation_key"),
                kind: rows::word(row, T, "kind")?,
                request: row.get("request"),
                digest: row.get("request_digest"),
                response,
                background: row.get("background"),
                released: row.get("released_position"),
                observed: row.get("observed_position"),
                outcome: row.get("outcome"),
                results: results.into_iter().map(TaskNo).collect(),
                sources: row.get("sources"),
            });
        }
        Ok(())
    }

    fn take_watchers(&mut self, rows: &[Row]) {
        for row in rows {
            let of_itself = row.get::<_, Option<i32>>("from_no").is_none();
            if let Some(locked) = self.runs.get_mut(&target_of(row)).filter(|_| of_itself) {
                locked.graph.watch(TaskNo(row.get("task_no")));
            }
        }
    }

    fn take_bodies(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            if let Some(locked) = self.runs.get_mut(&target_of(row)) {
                let no = TaskNo(row.get("task_no"));
                if row.get::<_, Option<&str>>("selection").is_some() {
                    let selection = rows::selection(row, no)?;
                    locked.graph.put_arms(&[], vec![(no, selection)]);
                }
                locked.graph.put_seen(
                    no,
                    Seen {
                        content: row.get("content"),
                        structured: row.get("structured"),
                        tool_input: row.get("tool_input"),
                        definition: row.get("definition"),
                    },
                );
            }
        }
        Ok(())
    }
}

/// Which document a `skill` names (`input.name`), and which are announced; none on other tools.
fn document(row: &Row) -> Option<Document> {
    let name_of = |value: &Value| Some(value.as_object()?.get("name")?.as_str()?.to_owned());
    let input: Option<String> = row.get("skill_input");
    let announced: Option<String> = row.get("skill_documents");
    let announced = json::parse(announced?.as_bytes()).ok();
    let announced = announced.as_ref().and_then(Value::as_array);
    Some(Document {
        named: json::parse(input?.as_bytes())
            .ok()
            .as_ref()
            .and_then(name_of),
        announced: announced
            .into_iter()
            .flatten()
            .filter_map(name_of)
            .collect(),
    })
}

pub(super) fn target_of(row: &Row) -> RunTarget {
    RunTarget {
        account: AccountId(row.get("account_id")),
        run: PublicId(row.get("run_public_id")),
    }
}

/// Marks a want as seen, before its rows (if any) are taken.
pub(super) fn seen(locked: &mut Locked, want: &Want) {
    match want {
        Want::Addressees(nos) => {
            for no in nos {
                locked.graph.put_addressees(*no, Vec::new());
            }
        }
        Want::Failures => locked.graph.expect_failures(),
        Want::Ready => locked.graph.put_ready(),
        Want::Arms(nos) => locked.graph.put_arms(nos, Vec::new()),
        Want::Parks(nos) => locked.graph.put_locked_parks(nos, Vec::new()),
        Want::Rests(_) => locked.graph.put_rests(Vec::new()),
        Want::Resting(reason) => locked.graph.put_resting(*reason),
        Want::Host => locked.graph.put_host(None),
        Want::Attached(nos) => locked.graph.put_attached(nos),
        Want::Upstream(nos) => locked.graph.put_upstream(nos),
        Want::Rules(_)
        | Want::Watchers(_)
        | Want::Observed(_)
        | Want::Into(_)
        | Want::Edges(_)
        | Want::Downstream(_)
        | Want::Behind(_)
        | Want::Row(_) => {}
    }
}
