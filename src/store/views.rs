//! Tasks as members and executors see them (`steps.md` §8): one projection, whoever asks.

use std::collections::BTreeMap;

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::rows;
use super::{Error, Sql, Store};
use crate::domain::event;
use crate::domain::json::{Canonical, Value};
use crate::domain::payload;
use crate::domain::time::At;
use crate::domain::words::{
    FailureResolution, Lifetime, OnFailure, Role, TaskKind, TaskStatus, Visibility, Wake,
};
use crate::domain::{AccountId, PublicId, RunId, TaskKey, Timestamp};

/// An executor, by what may be shown.
#[derive(Debug, Clone, Serialize)]
pub struct ExecutorRef {
    /// Its public id.
    pub executor_public_id: PublicId,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// Whom a started row is for.
#[derive(Debug, Clone, Serialize)]
pub struct AddressedTo {
    /// As what.
    #[serde(serialize_with = "text")]
    pub role: Role,
    /// Which one; absent for a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executor_public_id: Option<PublicId>,
}

/// Why a row did not complete.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorView {
    /// The word.
    pub key: String,
    /// A sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

fn text<S: serde::Serializer>(word: &Role, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(word.as_str())
}

fn shown<S: serde::Serializer>(status: &TaskStatus, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(status.shown())
}

/// A row of the trace.
#[derive(Debug, Clone, Serialize)]
pub struct TaskView {
    /// Key.
    pub key: TaskKey,
    /// Kind.
    pub kind: TaskKind,
    /// Lifetime.
    pub lifetime: Lifetime,
    /// Wake.
    pub wake: Wake,
    /// State, in the product's words.
    #[serde(serialize_with = "shown")]
    pub status: TaskStatus,
    /// Policy.
    pub on_failure: OnFailure,
    /// Visibility.
    pub visibility: Visibility,
    /// Current dependency keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Upstream keys that have not settled, while nothing was spent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_on: Vec<String>,
    /// A person's stamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_resolution: Option<FailureResolution>,
    /// What model a round asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Canonical>,
    /// The served tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// How the model spelled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_alias: Option<String>,
    /// What a barrier captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Canonical>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
    /// The accepted runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<ExecutorRef>,
    /// Whom it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addressed_to: Option<AddressedTo>,
    /// Who took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<ExecutorRef>,
    /// Once decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Value>,
    /// Present, and true, on a completed row whose result says it errored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Once started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<At>,
    /// Once settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<At>,
    /// While parked, on the wall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<At>,
}

macro_rules! view_columns {
    () => {
        "t.key, t.kind, t.lifetime, t.wake, t.status, t.on_failure, t.visibility, t.after_keys, t.failure_resolution,
         t.tool_name, t.tool_alias, t.error_key, t.error_detail, t.addressed_role, t.addressed_executor_id,
         t.approval_origin, t.approval_decided_at, am.public_id AS approval_decided_by,
         t.is_error, t.started_at, t.completed_at, x.selection,
         te.public_id AS target_public_id, te.display_name AS target_name, ae.public_id AS addressed_public_id,
         ce.public_id AS claimed_public_id,
         CASE WHEN t.kind = 'model_task' THEN (SELECT (d.definition::json -> 'model')::text FROM task_inputs d
            WHERE d.account_id = t.account_id AND d.run_id = t.run_id AND d.task_no = t.task_no) END AS model,
         p.deadline_at + CASE WHEN r.status = 'paused' THEN nexus_now() - r.paused_at ELSE interval '0' END AS deadline_at,
         CASE WHEN t.status IN ('queued', 'needs_approval') AND t.remaining > 0 THEN
            ARRAY(SELECT u.key FROM edges e
                    CROSS JOIN LATERAL (SELECT * FROM tasks u WHERE u.account_id = e.account_id AND u.run_id = e.run_id
                                           AND u.task_no = e.from_no OFFSET 0) u
                   WHERE e.account_id + 0 = t.account_id AND e.run_id + 0 = t.run_id
                     AND e.to_no + 0 = t.task_no
                     AND u.completed_at IS NULL ORDER BY e.ordinal) END AS waiting_on"
    };
}

macro_rules! view_joins {
    () => {
        "  LEFT JOIN LATERAL (SELECT * FROM parks p WHERE p.account_id = t.account_id AND p.run_id = t.run_id
                                 AND p.task_no = t.task_no OFFSET 0) p ON true
           LEFT JOIN LATERAL (SELECT * FROM task_results x WHERE x.account_id = t.account_id AND x.run_id = t.run_id
                                 AND x.task_no = t.task_no AND x.generation = t.generation OFFSET 0) x ON t.kind = 'join_task'
           LEFT JOIN executors te ON te.account_id = t.account_id AND te.executor_id = t.target_executor_id
           LEFT JOIN executors ae ON ae.account_id = t.account_id AND ae.executor_id = t.addressed_executor_id
           LEFT JOIN executors ce ON ce.account_id = t.account_id AND ce.executor_id = coalesce(p.claimant_id, t.claimed_by_id)
           LEFT JOIN members am ON am.account_id = t.account_id AND am.member_id = t.approval_decided_by"
    };
}

/// Rows by number, in the order they were asked for.
pub(super) static TASKS_BY_NO: Sql = Sql::new(
    "views.tasks_by_no",
    concat!(
        "SELECT ", view_columns!(), "
           FROM unnest($1::bigint[], $2::uuid[], $3::int[]) WITH ORDINALITY AS w(account_id, public_id, task_no, ord)
          CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.account_id = w.account_id AND r.public_id = w.public_id OFFSET 0) r
          CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                                 AND t.task_no = w.task_no OFFSET 0) t ", view_joins!(), "
          ORDER BY w.ord"
    ),
    &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT4_ARRAY],
);

/// All rows of a run, in authoring order.
static TASKS_OF_RUN: Sql = Sql::new(
    "views.tasks_of_run",
    concat!(
        "SELECT ",
        view_columns!(),
        "
           FROM (SELECT * FROM runs r WHERE r.account_id = $1 AND r.run_id = $2 OFFSET 0) r
          CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id OFFSET 0) t ",
        view_joins!(),
        "
          ORDER BY t.task_no"
    ),
    &[Type::INT8, Type::INT8],
);

/// One row with its bodies.
static TASK_DETAIL: Sql = Sql::new(
    "views.task_detail",
    concat!(
        "SELECT ", view_columns!(), ", r.public_id AS run_public_id, i.tool_input, i.definition, b.content, b.structured, b.title, b.metadata
           FROM (SELECT * FROM runs r WHERE r.account_id = $1 AND r.run_id = $2 OFFSET 0) r
          CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id AND t.key = $3 OFFSET 0) t ",
            view_joins!(), "
           LEFT JOIN LATERAL (SELECT * FROM task_inputs i WHERE i.account_id = t.account_id AND i.run_id = t.run_id
                                 AND i.task_no = t.task_no OFFSET 0) i ON true
           LEFT JOIN LATERAL (SELECT * FROM task_results b WHERE b.account_id = t.account_id AND b.run_id = t.run_id
                                 AND b.task_no = t.task_no AND b.generation = t.generation OFFSET 0) b ON true"
    ),
    &[Type::INT8, Type::INT8, Type::TEXT],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&TASKS_BY_NO, &TASKS_OF_RUN, &TASK_DETAIL];

impl TaskView {
    pub(super) fn from_row(row: &Row) -> Result<Self, Error> {
        const T: &str = "tasks";
        let at = |column: &str| row.get::<_, Option<Timestamp>>(column).map(At);
        let id = |column: &str| row.get::<_, Option<uuid::Uuid>>(column).map(PublicId);
        let status: TaskStatus = rows::word(row, T, "status")?;
        Ok(Self {
            key: TaskKey::trusted(row.get("key")),
            kind: rows::word(row, T, "kind")?,
            lifetime: rows::word(row, T, "lifetime")?,
            wake: rows::word(row, T, "wake")?,
            status,
            on_failure: rows::word(row, T, "on_failure")?,
            visibility: rows::word(row, T, "visibility")?,
            after: row.get("after_keys"),
            waiting_on: row
                .get::<_, Option<Vec<String>>>("waiting_on")
                .unwrap_or_default(),
            failure_resolution: rows::word_opt(row, T, "failure_resolution")?,
            model: row
                .get::<_, Option<String>>("model")
                .map(Canonical::trusted),
            tool_name: row.get("tool_name"),
            tool_alias: row.get("tool_alias"),
            result: row
                .get::<_, Option<String>>("selection")
                .map(Canonical::trusted),
            error: row
                .get::<_, Option<String>>("error_key")
                .map(|key| ErrorView {
                    key,
                    detail: row.get("error_detail"),
                }),
            target: id("target_public_id").map(|executor_public_id| ExecutorRef {
                executor_public_id,
                display_name: row.get("target_name"),
            }),
            addressed_to: rows::addressed(row)?.map(|a| AddressedTo {
                role: a.role,
                executor_public_id: id("addressed_public_id"),
            }),
            claimed_by: id("claimed_public_id").map(|executor_public_id| ExecutorRef {
                executor_public_id,
                display_name: None,
            }),
            approval: rows::approval(row)?.as_ref().map(event::approval),
            is_error: row.get("is_error"),
            started_at: at("started_at"),
            completed_at: at("completed_at"),
            deadline_at: at("deadline_at"),
        })
    }
}

/// A row with its bodies: the single read.
#[derive(Debug, Clone, Serialize)]
pub struct TaskDetail {
    /// What the trace shows.
    #[serde(flatten)]
    pub task: TaskView,
    /// What only the single read shows.
    #[serde(flatten)]
    pub bodies: Bodies,
}

/// What only the single read shows. Serialised beside the trace's members.
#[derive(Debug, Clone, Serialize)]
pub struct Bodies {
    /// What was authored: `prompt`, a question's `options` and `multi`, a wait's `wait`, a round's
    /// `instructions` and `tool_definitions`.
    #[serde(flatten)]
    pub authored: BTreeMap<&'static str, Canonical>,
    /// A call's input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_input: Option<Canonical>,
    /// The text of a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Its beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_preview: Option<String>,
    /// A result's blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Canonical>,
    /// The structured value; the member is absent when it was, `null` when it was null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Canonical>,
    /// Title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Canonical>,
}

/// What a row was authored with, as the single read shows it (`steps.md` §8).
fn authored(row: &Row) -> Result<BTreeMap<&'static str, Canonical>, Error> {
    let mut shown = BTreeMap::new();
    let Some(text) = row.get::<_, Option<&str>>("definition") else {
        return Ok(shown);
    };
    let definition = rows::json(text, "task_inputs", "definition")?;
    let mut show = |name: &'static str, value: Option<Value>| {
        if let Some(text) = value.and_then(|v| v.canonical().ok()) {
            shown.insert(name, text);
        }
    };
    for name in ["prompt", "options", "multi", "instructions"] {
        show(name, definition.get(name).cloned());
    }
    show("tool_definitions", definition.get("tools").cloned());
    if let Some(task) = definition.get("task") {
        let run = PublicId(row.get("run_public_id")).to_string();
        let run = definition
            .get("run_public_id")
            .cloned()
            .unwrap_or(run.into());
        let timeout = definition.get("timeout_ms").cloned();
        let wait = Value::from([
            ("run_public_id", run),
            ("task", task.clone()),
            ("timeout_ms", timeout.unwrap_or(Value::Null)),
        ]);
        show("wait", Some(wait));
    }
    Ok(shown)
}

/// Whether a call completed without text or link: it reads as the empty text.
fn answered_nothing(row: &Row) -> bool {
    let is = |column: &str, word: &str| row.get::<_, &str>(column) == word;
    is("kind", TaskKind::Tool.as_str()) && is("status", TaskStatus::Completed.as_str())
}

fn output(content: Option<&Canonical>) -> Option<String> {
    let value = content?.value();
    let text: String = value
        .as_array()?
        .iter()
        .filter(|block| block.get("type").and_then(Value::as_str) == Some("text"))
        .filter_map(|block| block.get("text").and_then(Value::as_str))
        .collect();
    Some(text)
}

impl Store {
    /// All rows of a run, in authoring order.
    ///
    /// # Errors
    /// A fault.
    pub async fn tasks_of_run(
        &self,
        account: AccountId,
        run: RunId,
    ) -> Result<Vec<TaskView>, Error> {
        let rows = self
            .conn()
            .await?
            .query(&TASKS_OF_RUN, &[&account.0, &run.0])
            .await?;
        rows.iter().map(TaskView::from_row).collect()
    }

    /// One row with its bodies.
    ///
    /// # Errors
    /// A fault.
    pub async fn task_detail(
        &self,
        account: AccountId,
        run: RunId,
        key: &TaskKey,
    ) -> Result<Option<TaskDetail>, Error> {
        let conn = self.conn().await?;
        let row = conn
            .query_opt(&TASK_DETAIL, &[&account.0, &run.0, &key.as_str()])
            .await?;
        row.map(|row| {
            let text = |column: &str| row.get::<_, Option<String>>(column).map(Canonical::trusted);
            let content = text("content");
            let output =
                output(content.as_ref()).or_else(|| answered_nothing(&row).then(String::new));
            Ok(TaskDetail {
                task: TaskView::from_row(&row)?,
                bodies: Bodies {
                    authored: authored(&row)?,
                    tool_input: text("tool_input"),
                    output_preview: output
                        .as_deref()
                        .map(|text| payload::cut(text, payload::PREVIEW_BYTES).to_owned()),
                    output,
                    content,
                    structured_content: text("structured"),
                    title: row.get("title"),
                    metadata: text("metadata"),
                },
            })
        })
        .transpose()
    }
}
