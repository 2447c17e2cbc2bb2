//! Rows at birth: what a create and an append insert, for one run or for many.
//!
//! Makes no choice: `engine::author` numbered and linked the rows.

use tokio_postgres::types::Type;

use super::tx::Batch;
use super::{Sql, rows};
use crate::domain::TaskNo;
use crate::domain::json::Canonical;
use crate::engine::author::NewTask;
use crate::engine::facts::Edge;

static TASKS: Sql = Sql::new(
    "births.tasks",
    "INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by, mark, detached, lifetime, wake,
            on_failure, fan_on_failure, visibility, barrier_no, lineage_no, tip_no, input_from, result_from, after_keys,
            remaining, tool_name, timeout_ms, target_executor_id, holder, join_mode, join_k, join_losers,
            join_successes, join_pending, resolution_digest, observes_no, owner_no, operation_no, is_tip, background,
            tool_alias, context_no, join_sources)
     SELECT v.account_id, v.run_id, v.task_no, v.key, v.kind, 'queued', v.authored_by, v.mark, v.detached, v.lifetime, v.wake,
            v.on_failure, v.fan_on_failure, v.visibility, v.barrier_no, v.task_no, v.task_no,
            v.input_from::int[], v.result_from::int[], v.after_keys::text[], v.remaining, v.tool_name, v.timeout_ms,
            v.target_executor_id, v.holder, v.join_mode, v.join_k, v.join_losers, v.join_successes, v.join_pending,
            v.resolution_digest, v.observes_no, v.owner_no, v.operation_no, v.is_tip, v.background, v.tool_alias,
            v.context_no, v.join_sources::int[]
       FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::boolean[],
            $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::int[], $15::text[], $16::text[],
            $17::text[], $18::int[], $19::text[], $20::bigint[], $21::bigint[], $22::text[], $23::text[], $24::int[],
            $25::text[], $26::int[], $27::int[], $28::bytea[], $29::int[], $30::int[], $31::int[], $32::boolean[],
            $33::boolean[], $34::text[], $35::int[], $36::text[])
         AS v(account_id, run_id, task_no, key, kind, authored_by, mark, detached, lifetime, wake, on_failure,
            fan_on_failure, visibility, barrier_no, input_from, result_from, after_keys, remaining, tool_name, timeout_ms,
            target_executor_id, holder, join_mode, join_k, join_losers, join_successes, join_pending,
            resolution_digest, observes_no, owner_no, operation_no, is_tip, background, tool_alias, context_no,
            join_sources)",
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::TEXT_ARRAY, Type::BOOL_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
        Type::TEXT_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY,
        Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY,
        Type::TEXT_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::BYTEA_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY,
        Type::INT4_ARRAY, Type::BOOL_ARRAY, Type::BOOL_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY,
    ],
);

static INPUTS: Sql = Sql::new(
    "births.inputs",
    "INSERT INTO task_inputs (account_id, run_id, task_no, tool_input, definition, context)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::text[], $6::text[])",
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY,
    ],
);

static EDGES: Sql = Sql::new(
    "births.edges",
    "INSERT INTO edges (account_id, run_id, from_no, to_no, ordinal, structural, state, source)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::int[], $6::boolean[], $7::text[], $8::int[])",
    &[
        Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::BOOL_ARRAY,
        Type::TEXT_ARRAY, Type::INT4_ARRAY,
    ],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&TASKS, &INPUTS, &EDGES];

/// Rows to insert, column by column.
#[derive(Default)]
pub(super) struct Births {
    accounts: Vec<i64>,
    runs: Vec<i64>,
    nos: Vec<i32>,
    keys: Vec<String>,
    kinds: Vec<&'static str>,
    authored_by: Vec<&'static str>,
    marks: Vec<Option<&'static str>>,
    detached: Vec<bool>,
    lifetimes: Vec<&'static str>,
    wakes: Vec<&'static str>,
    on_failure: Vec<&'static str>,
    fan_on_failure: Vec<Option<&'static str>>,
    visibility: Vec<&'static str>,
    barriers: Vec<Option<i32>>,
    input_from: Vec<String>,
    result_from: Vec<String>,
    after_keys: Vec<String>,
    remaining: Vec<i32>,
    tool_names: Vec<Option<String>>,
    timeouts: Vec<Option<i64>>,
    targets: Vec<Option<i64>>,
    holders: Vec<Option<&'static str>>,
    join_modes: Vec<Option<&'static str>>,
    join_ks: Vec<Option<i32>>,
    join_losers: Vec<Option<&'static str>>,
    join_successes: Vec<Option<i32>>,
    join_pending: Vec<Option<i32>>,
    inputs: Vec<Option<String>>,
    definitions: Vec<Option<String>>,
    contexts: Vec<Option<String>>,
    resolutions: Vec<Option<Vec<u8>>>,
    observes: Vec<Option<i32>>,
    owners: Vec<Option<i32>>,
    operations: Vec<Option<i32>>,
    tips: Vec<bool>,
    background: Vec<bool>,
    aliases: Vec<Option<String>>,
    contexts_of: Vec<Option<i32>>,
    sources: Vec<Option<String>>,
    edge_accounts: Vec<i64>,
    edge_runs: Vec<i64>,
    edge_from: Vec<i32>,
    edge_to: Vec<i32>,
    edge_ordinals: Vec<i32>,
    edge_structural: Vec<bool>,
    edge_states: Vec<&'static str>,
    edge_sources: Vec<Option<i32>>,
}

/// An SQL array literal of numbers: a column of arrays cannot be unnested as one.
pub(super) fn numbers(nos: &[TaskNo]) -> String {
    let list: Vec<String> = nos.iter().map(|no| no.0.to_string()).collect();
    format!("{{{}}}", list.join(","))
}

/// The same of keys: quoted, since a bare `null` would be no text; they have neither quotes nor
/// backslashes.
pub(super) fn words(keys: &[String]) -> String {
    let quoted: Vec<String> = keys.iter().map(|k| format!("\"{k}\"")).collect();
    format!("{{{}}}", quoted.join(","))
}

impl Births {
    /// Adds an edge as it stands.
    pub(super) fn edge(&mut self, account: i64, run: i64, edge: &Edge) {
        self.edge_accounts.push(account);
        self.edge_runs.push(run);
        self.edge_from.push(edge.from.0);
        self.edge_to.push(edge.to.0);
        self.edge_ordinals.push(edge.ordinal);
        self.edge_structural.push(edge.structural);
        self.edge_states.push(edge.state.as_str());
        self.edge_sources.push(edge.source);
    }

    /// Adds a row as it was born.
    pub(super) fn task(&mut self, account: i64, run: i64, new: &NewTask) {
        let task = &new.task;
        self.accounts.push(account);
        self.runs.push(run);
        self.nos.push(task.no.0);
        self.keys.push(task.key.as_str().to_owned());
        self.kinds.push(task.kind.as_str());
        self.authored_by.push(task.authored_by.as_str());
        self.marks.push(task.mark.map(|m| m.as_str()));
        self.detached.push(task.detached);
        self.lifetimes.push(task.lifetime.as_str());
        self.wakes.push(task.wake.as_str());
        self.on_failure.push(task.on_failure.as_str());
        self.fan_on_failure
            .push(task.fan_on_failure.map(|p| p.as_str()));
        self.visibility.push(task.visibility.as_str());
        self.barriers.push(task.barrier.map(|no| no.0));
        self.input_from.push(numbers(&task.input_from));
        self.result_from.push(numbers(&task.result_from));
        self.after_keys.push(words(&task.after_keys));
        self.remaining.push(task.remaining);
        self.tool_names.push(task.tool_name.clone());
        self.timeouts.push(task.timeout_ms);
        self.targets.push(task.target.map(|e| e.0));
        self.holders.push(task.holder.map(|h| h.as_str()));
        self.join_modes.push(task.join.map(|j| j.mode.as_str()));
        self.join_ks.push(task.join.map(|j| j.k));
        self.join_losers.push(task.join.map(|j| j.losers.as_str()));
        self.join_successes.push(task.join.map(|j| j.successes));
        self.join_pending.push(task.join.map(|j| j.pending));
        let text = |c: &Option<Canonical>| c.as_ref().map(|c| c.as_str().to_owned());
        self.inputs.push(text(&new.tool_input));
        self.definitions.push(text(&new.definition));
        self.contexts.push(text(&new.context));
        self.resolutions.push(task.resolution_digest.clone());
        self.observes.push(task.observes.map(|no| no.0));
        self.owners.push(task.owner.map(|no| no.0));
        self.operations.push(task.operation);
        self.tips.push(task.is_tip);
        self.background.push(task.background);
        self.aliases.push(task.tool_alias.clone());
        self.contexts_of.push(task.context_of.map(|no| no.0));
        self.sources.push(rows::sources_text(&task.sources));
    }

    /// Adds the statements that have rows to insert.
    pub(super) fn fill<'a>(&'a self, batch: &mut Batch<'a>) {
        if !self.nos.is_empty() {
            batch.add(
                &TASKS,
                vec![
                    &self.accounts,
                    &self.runs,
                    &self.nos,
                    &self.keys,
                    &self.kinds,
                    &self.authored_by,
                    &self.marks,
                    &self.detached,
                    &self.lifetimes,
                    &self.wakes,
                    &self.on_failure,
                    &self.fan_on_failure,
                    &self.visibility,
                    &self.barriers,
                    &self.input_from,
                    &self.result_from,
                    &self.after_keys,
                    &self.remaining,
                    &self.tool_names,
                    &self.timeouts,
                    &self.targets,
                    &self.holders,
                    &self.join_modes,
                    &self.join_ks,
                    &self.join_losers,
                    &self.join_successes,
                    &self.join_pending,
                    &self.resolutions,
                    &self.observes,
                    &self.owners,
                    &self.operations,
                    &self.tips,
                    &self.background,
                    &self.aliases,
                    &self.contexts_of,
                    &self.sources,
                ],
            );
            batch.add(
                &INPUTS,
                vec![
                    &self.accounts,
                    &self.runs,
                    &self.nos,
                    &self.inputs,
                    &self.definitions,
                    &self.contexts,
                ],
            );
        }
        if !self.edge_from.is_empty() {
            batch.add(
                &EDGES,
                vec![
                    &self.edge_accounts,
                    &self.edge_runs,
                    &self.edge_from,
                    &self.edge_to,
                    &self.edge_ordinals,
                    &self.edge_structural,
                    &self.edge_states,
                    &self.edge_sources,
                ],
            );
        }
    }
}
