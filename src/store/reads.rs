//! What the reads of a run are made of: its graph, its progress, a page of its transcript
//! (`runs.md` §9). No locks; the same few statements whatever the run's size.
//!
//! Invariants: a graph is one statement, so its edges and nodes are of one snapshot; a transcript
//! costs what its page holds, since its chain is walked backwards along primary keys.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::rows;
use super::{Error, Sql, Store};
use crate::domain::json::{self, Canonical, Value};
use crate::domain::payload;
use crate::domain::reads::graph;
use crate::domain::reads::phases;
use crate::domain::reads::transcript::{
    CALL_ITEMS, Call, Calls, METADATA_BYTES, Page, Round, RoundError,
};
use crate::domain::time::At;
use crate::domain::words::{JoinMode, Mark, TaskKind, Visibility};
use crate::domain::{AccountId, RunId, TaskKey, TaskNo, Timestamp};

static GRAPH: Sql = Sql::new(
    "reads.graph",
    "SELECT r.deliverable_no, t.task_no, t.key, t.kind, t.lifetime, t.wake, t.status, t.visibility, t.mark, t.error_key,
            t.join_mode, t.join_k, t.join_losers, t.input_from, t.result_from, t.expansion_parent_no,
            ARRAY(SELECT e.from_no FROM edges e WHERE e.account_id + 0 = t.account_id AND e.run_id + 0 = t.run_id
                     AND e.to_no + 0 = t.task_no ORDER BY e.from_no) AS edges_from,
            ARRAY(SELECT e.structural FROM edges e WHERE e.account_id + 0 = t.account_id AND e.run_id + 0 = t.run_id
                     AND e.to_no + 0 = t.task_no ORDER BY e.from_no) AS edges_structural
       FROM (SELECT * FROM runs r WHERE r.account_id = $1 AND r.run_id = $2 OFFSET 0) r
      CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id OFFSET 0) t
      ORDER BY t.task_no",
    &[Type::INT8, Type::INT8],
);

/// Receipts that stand, in write order: of one run they are written under its lock.
static RECEIPTS: Sql = Sql::new(
    "reads.receipts",
    "SELECT body FROM receipts
      WHERE account_id = $1 AND run_id = $2 AND created_at + interval '24 hours' >= nexus_now()
      ORDER BY receipt_id",
    &[Type::INT8, Type::INT8],
);

static PROGRESS: Sql = Sql::new(
    "reads.progress",
    "SELECT t.task_no, t.key, t.status, t.authored_by, t.on_failure, t.failure_resolution, t.race_absorbed, t.error_key,
            t.barrier_no IS NOT NULL AS in_arm, t.detached, coalesce(t.expansion_parent_no, t.owner_no) AS parent_no,
            t.lineage_no, t.input_from[1] AS continues_no,
            CASE WHEN t.detached THEN EXISTS (
                SELECT FROM edges e WHERE e.account_id = t.account_id AND e.run_id = t.run_id AND e.from_no = t.task_no)
            ELSE true END AS has_consumer
       FROM tasks t WHERE t.account_id = $1 AND t.run_id = $2
      ORDER BY t.task_no",
    &[Type::INT8, Type::INT8],
);

/// Where a transcript begins: the run's tail, the row of the cursor ($3), the call of a prefix ($4)
/// and the end of its latest branch.
static PLACE: Sql = Sql::new(
    "reads.place",
    "SELECT r.mainline_tail_no, c.task_no AS cursor_no, p.task_no AS call_no, b.tip_no AS branch_tip_no
       FROM (SELECT * FROM runs r WHERE r.account_id = $1 AND r.run_id = $2 OFFSET 0) r
       LEFT JOIN LATERAL (SELECT * FROM tasks c WHERE c.account_id = r.account_id AND c.run_id = r.run_id
                             AND c.key = $3 AND c.kind = 'model_task' OFFSET 0) c ON true
       LEFT JOIN LATERAL (SELECT * FROM tasks p WHERE p.account_id = r.account_id AND p.run_id = r.run_id
                             AND p.key = $4 AND p.kind = 'tool_task' OFFSET 0) p ON true
       LEFT JOIN LATERAL (SELECT h.tip_no FROM tasks h WHERE h.account_id = r.account_id AND h.run_id = r.run_id
                             AND h.expansion_parent_no = p.task_no AND h.kind = 'model_task' AND h.lineage_no = h.task_no
                           ORDER BY h.task_no DESC LIMIT 1) b ON true",
    &[Type::INT8, Type::INT8, Type::TEXT, Type::TEXT],
);

/// The text of a row's result: its beginning, and how many bytes it has. From `t`.
macro_rules! preview {
    () => {
        "  LEFT JOIN LATERAL (
                SELECT left(s.text, $3) AS preview, octet_length(s.text)::bigint AS bytes, s.title, s.metadata
                  FROM (SELECT x.title, x.metadata,
                               (SELECT string_agg(b.block ->> 'text', '' ORDER BY b.place)
                                  FROM json_array_elements(CASE WHEN left(x.content, 1) = '[' THEN x.content ELSE '[]' END::json)
                                       WITH ORDINALITY AS b(block, place)
                                 WHERE b.block ->> 'type' = 'text') AS text
                          FROM task_results x
                         WHERE x.account_id = t.account_id AND x.run_id = t.run_id AND x.task_no = t.task_no
                           AND x.generation = t.generation OFFSET 0) s) x ON t.completed_at IS NOT NULL"
    };
}

/// From a chain (task_no, place, head_no) to its rounds.
macro_rules! rounds {
    () => {
        concat!(
            " SELECT c.place, t.task_no, t.key, t.mark, t.status, t.visibility, t.error_key, t.error_detail, t.started_at,
                     t.completed_at, x.preview, x.bytes
                FROM chain c
               CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = $1 AND t.run_id = $2
                                      AND t.task_no = c.task_no OFFSET 0) t ",
            preview!(),
            "  WHERE c.place > 0 ORDER BY c.place"
        )
    };
}

/// The mainline backwards from row $4, which has place $5, to place $6: each round continues the
/// first row that it reads.
static MAINLINE: Sql = Sql::new(
    "reads.mainline",
    concat!(
        "WITH RECURSIVE chain AS (
            SELECT t.task_no, $5::bigint AS place, t.input_from[1] AS before_no
              FROM tasks t WHERE t.account_id = $1 AND t.run_id = $2 AND t.task_no = $4
               AND t.kind = 'model_task' AND t.mark = 'round'
            UNION ALL
            SELECT t.task_no, c.place + 1, t.before_no
              FROM chain c
             CROSS JOIN LATERAL (SELECT t.task_no, t.input_from[1] AS before_no FROM tasks t
                                  WHERE t.account_id = $1 AND t.run_id = $2 AND t.task_no = c.before_no
                                    AND t.kind = 'model_task' AND t.mark = 'round' OFFSET 0) t
             WHERE c.place < $6)",
        rounds!()
    ),
    &[Type::INT8, Type::INT8, Type::INT4, Type::INT4, Type::INT8, Type::INT8],
);

/// The branches under call $7, backwards likewise: a branch's chain to the row that was authored,
/// then the end of the branch authored before it.
static BRANCH: Sql = Sql::new(
    "reads.branch",
    concat!(
        "WITH RECURSIVE chain AS (
            SELECT t.task_no, $5::bigint AS place, t.input_from[1] AS before_no, t.lineage_no AS head_no
              FROM tasks t WHERE t.account_id = $1 AND t.run_id = $2 AND t.task_no = $4 AND t.kind = 'model_task'
            UNION ALL
            SELECT t.task_no, c.place + 1, t.before_no, t.head_no
              FROM chain c
             CROSS JOIN LATERAL (
                    SELECT t.task_no, t.input_from[1] AS before_no, t.lineage_no AS head_no FROM tasks t
                     WHERE t.account_id = $1 AND t.run_id = $2 AND t.kind = 'model_task'
                       AND t.task_no = CASE WHEN c.task_no <> c.head_no THEN c.before_no ELSE (
                            SELECT h.tip_no FROM tasks h WHERE h.account_id = $1 AND h.run_id = $2
                               AND h.expansion_parent_no = $7 AND h.task_no < c.head_no AND h.kind = 'model_task'
                               AND h.lineage_no = h.task_no ORDER BY h.task_no DESC LIMIT 1) END OFFSET 0) t
             WHERE c.place < $6)",
        rounds!()
    ),
    &[
        Type::INT8, Type::INT8, Type::INT4, Type::INT4, Type::INT8, Type::INT8, Type::INT4,
    ],
);

/// The calls that these rounds ($4) read, in call order, at most $5 of each, with how many each read.
static CALLS: Sql = Sql::new(
    "reads.calls",
    concat!(
        "SELECT q.round_no, q.count, t.key, t.tool_call_id, coalesce(t.tool_alias, t.tool_name, '') AS name,
                CASE WHEN t.tool_alias IS NOT NULL THEN t.tool_name END AS tool, t.status, t.is_error, t.started_at,
                t.completed_at, x.preview, x.bytes, x.title,
                CASE WHEN octet_length(x.metadata) <= $6 THEN x.metadata END AS metadata,
                EXISTS (SELECT FROM tasks h WHERE h.account_id = t.account_id AND h.run_id = t.run_id
                           AND h.expansion_parent_no = t.task_no AND h.kind = 'model_task') AS has_branch
           FROM (SELECT w.round_no, c.task_no,
                        row_number() OVER (PARTITION BY w.round_no ORDER BY i.place) AS place,
                        count(*) OVER (PARTITION BY w.round_no) AS count
                   FROM unnest($4::int[]) AS w(round_no)
                  CROSS JOIN LATERAL (SELECT t.input_from FROM tasks t WHERE t.account_id = $1 AND t.run_id = $2
                                         AND t.task_no = w.round_no OFFSET 0) t
                  CROSS JOIN LATERAL unnest(t.input_from) WITH ORDINALITY AS i(no, place)
                  CROSS JOIN LATERAL (SELECT c.task_no FROM tasks c WHERE c.account_id = $1 AND c.run_id = $2
                                         AND c.task_no = i.no AND c.kind = 'tool_task' AND c.visibility <> 'hidden'
                                      OFFSET 0) c OFFSET 0) q
          CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.account_id = $1 AND t.run_id = $2
                                 AND t.task_no = q.task_no OFFSET 0) t ",
        preview!(),
        " WHERE q.place <= $5 ORDER BY q.round_no, q.place"
    ),
    &[
        Type::INT8, Type::INT8, Type::INT4, Type::INT4_ARRAY, Type::INT8, Type::INT4,
    ],
);

static KIND: Sql = Sql::new(
    "reads.kind",
    "SELECT kind FROM tasks WHERE account_id = $1 AND run_id = $2 AND key = $3",
    &[Type::INT8, Type::INT8, Type::TEXT],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &GRAPH, &RECEIPTS, &PROGRESS, &PLACE, &MAINLINE, &BRANCH, &CALLS, &KIND,
];

/// A run's graph, as stored.
#[derive(Debug)]
pub struct Graph {
    /// In authoring order.
    pub rows: Vec<graph::Row>,
    /// The answer.
    pub deliverable: Option<TaskNo>,
}

/// What a run's progress is read from.
#[derive(Debug)]
pub struct Progress {
    /// Receipts that stand, in write order.
    pub receipts: Vec<Value>,
    /// In authoring order.
    pub rows: Vec<phases::Row>,
}

/// Which page of a transcript is asked for.
#[derive(Debug, Clone, Copy)]
pub struct PageOf<'a> {
    /// Strictly before this row.
    pub before: Option<&'a TaskKey>,
    /// The most rows to look at.
    pub limit: i64,
    /// The call whose branches are asked for; the mainline without.
    pub prefix: Option<&'a TaskKey>,
}

/// What a page comes to.
#[derive(Debug)]
pub enum Found {
    /// The page.
    Page(Page),
    /// The prefix is no call of the run.
    NoSuchCall,
    /// The cursor's row is not there.
    NoSuchPlace,
}

/// What the database cuts a text to: no fewer bytes than a preview has.
const PREVIEW_CHARS: i32 = 256;

fn preview(row: &Row) -> Option<String> {
    const { assert!(PREVIEW_CHARS as usize >= payload::PREVIEW_BYTES) };
    let text: Option<&str> = row.get("preview");
    text.map(|text| payload::cut(text, payload::PREVIEW_BYTES).to_owned())
}

fn numbers(row: &Row, column: &str) -> Vec<TaskNo> {
    let nos: Vec<i32> = row.get(column);
    nos.into_iter().map(TaskNo).collect()
}

fn number(row: &Row, column: &str) -> Option<TaskNo> {
    row.get::<_, Option<i32>>(column).map(TaskNo)
}

fn at(row: &Row, column: &str) -> Option<At> {
    row.get::<_, Option<Timestamp>>(column).map(At)
}

fn node(row: &Row) -> Result<graph::Row, Error> {
    const T: &str = "tasks";
    let join = match rows::word_opt::<JoinMode>(row, T, "join_mode")? {
        Some(mode) => {
            let k: Option<i32> = row.get("join_k");
            Some((mode, k.unwrap_or(0), rows::word(row, T, "join_losers")?))
        }
        None => None,
    };
    let structural: Vec<bool> = row.get("edges_structural");
    Ok(graph::Row {
        no: TaskNo(row.get("task_no")),
        key: TaskKey::trusted(row.get("key")),
        kind: rows::word(row, T, "kind")?,
        lifetime: rows::word(row, T, "lifetime")?,
        wake: rows::word(row, T, "wake")?,
        status: rows::word(row, T, "status")?,
        visibility: rows::word(row, T, "visibility")?,
        mark: rows::word_opt(row, T, "mark")?,
        error_key: row.get("error_key"),
        join,
        input_from: numbers(row, "input_from"),
        result_from: numbers(row, "result_from"),
        expansion_parent: number(row, "expansion_parent_no"),
        edges: numbers(row, "edges_from")
            .into_iter()
            .zip(structural)
            .collect(),
    })
}

fn progress(row: &Row) -> Result<phases::Row, Error> {
    const T: &str = "tasks";
    Ok(phases::Row {
        no: TaskNo(row.get("task_no")),
        key: TaskKey::trusted(row.get("key")),
        status: rows::word(row, T, "status")?,
        authored_by: rows::word(row, T, "authored_by")?,
        on_failure: rows::word(row, T, "on_failure")?,
        failure_resolution: rows::word_opt(row, T, "failure_resolution")?,
        race_absorbed: row.get("race_absorbed"),
        error_key: row.get("error_key"),
        in_arm: row.get("in_arm"),
        detached: row.get("detached"),
        has_consumer: row.get("has_consumer"),
        parent: number(row, "parent_no"),
        lineage: TaskNo(row.get("lineage_no")),
        continues: number(row, "continues_no"),
        result_delivered_at: None,
    })
}

fn round(row: &Row) -> Result<Round, Error> {
    const T: &str = "tasks";
    let error_key: Option<String> = row.get("error_key");
    Ok(Round {
        task_key: TaskKey::trusted(row.get("key")),
        mainline: rows::word_opt(row, T, "mark")? == Some(Mark::Round),
        status: rows::word(row, T, "status")?,
        visibility: rows::word(row, T, "visibility")?,
        text_preview: preview(row),
        text_bytes: row.get("bytes"),
        error: error_key.map(|key| RoundError {
            key,
            detail: row.get("error_detail"),
        }),
        started_at: at(row, "started_at"),
        completed_at: at(row, "completed_at"),
        calls: Calls::default(),
        branches: Vec::new(),
    })
}

fn call(row: &Row) -> Result<Call, Error> {
    let metadata: Option<String> = row.get("metadata");
    Ok(Call {
        task_key: TaskKey::trusted(row.get("key")),
        tool_call_id: row.get("tool_call_id"),
        name: row.get("name"),
        tool: row.get("tool"),
        status: rows::word(row, "tasks", "status")?,
        is_error: row.get("is_error"),
        title: row.get("title"),
        metadata: metadata.map(Canonical::trusted),
        output_preview: preview(row),
        output_bytes: row.get("bytes"),
        started_at: at(row, "started_at"),
        completed_at: at(row, "completed_at"),
    })
}

/// A run's rows and edges. Takes a run that was found.
///
/// # Errors
/// A fault of the database.
pub async fn graph(store: &Store, account: AccountId, run: RunId) -> Result<Graph, Error> {
    let conn = store.conn().await?;
    let found = conn.query(&GRAPH, &[&account.0, &run.0]).await?;
    Ok(Graph {
        deliverable: found.first().and_then(|row| number(row, "deliverable_no")),
        rows: found.iter().map(node).collect::<Result<_, _>>()?,
    })
}

/// A run's receipts and rows. Receipts first: what they name is then among the rows.
///
/// # Errors
/// A fault of the database.
pub async fn phases(store: &Store, account: AccountId, run: RunId) -> Result<Progress, Error> {
    let conn = store.conn().await?;
    let receipts = conn.query(&RECEIPTS, &[&account.0, &run.0]).await?;
    let found = conn.query(&PROGRESS, &[&account.0, &run.0]).await?;
    let receipts = receipts.iter().map(|row| {
        json::parse(row.get::<_, &str>("body").as_bytes())
            .map_err(|_| Error::inconsistent("receipts", "body", run.0))
    });
    Ok(Progress {
        receipts: receipts.collect::<Result<_, _>>()?,
        rows: found.iter().map(progress).collect::<Result<_, _>>()?,
    })
}

/// A page of a run's mainline, or of the branches under a call: four statements, whatever there is.
///
/// # Errors
/// A fault of the database.
pub async fn transcript(
    store: &Store,
    account: AccountId,
    run: RunId,
    wanted: PageOf<'_>,
) -> Result<Found, Error> {
    let conn = store.conn().await?;
    let prefix = wanted.prefix.map(TaskKey::as_str);
    let before = wanted.before.map(TaskKey::as_str);
    let place = conn
        .query_opt(&PLACE, &[&account.0, &run.0, &before, &prefix])
        .await?;
    let place = |column: &str| place.as_ref().and_then(|row| number(row, column));
    let branch_of = place("call_no");
    if prefix.is_some() && branch_of.is_none() {
        return Ok(Found::NoSuchCall);
    }
    let cursor = place("cursor_no");
    if wanted.before.is_some() && cursor.is_none() {
        return Ok(Found::NoSuchPlace);
    }
    let end = if branch_of.is_some() {
        place("branch_tip_no")
    } else {
        place("mainline_tail_no")
    };
    // The cursor's own row was shown: it stands before the first place. One row more than the page
    // tells whether there are older ones.
    let start = cursor.or(end).map(|no| no.0);
    let (first, last) = (i64::from(cursor.is_none()), wanted.limit + 1);
    let common = (&account.0, &run.0, &PREVIEW_CHARS, &start, &first, &last);
    let mut chain = match branch_of {
        Some(call) => {
            let (a, r, p, s, f, l) = common;
            conn.query(&BRANCH, &[a, r, p, s, f, l, &call.0]).await?
        }
        None => {
            let (a, r, p, s, f, l) = common;
            conn.query(&MAINLINE, &[a, r, p, s, f, l]).await?
        }
    };
    let limit = usize::try_from(wanted.limit).unwrap_or(usize::MAX);
    let has_older = chain.len() > limit;
    chain.truncate(limit);
    let shown: Vec<&Row> = chain
        .iter()
        .rev()
        .filter(|row| row.get::<_, &str>("visibility") != Visibility::Hidden.as_str())
        .collect();
    let nos: Vec<i32> = shown.iter().map(|row| row.get("task_no")).collect();
    let calls = conn
        .query(
            &CALLS,
            &[
                &account.0,
                &run.0,
                &PREVIEW_CHARS,
                &nos,
                &CALL_ITEMS,
                &METADATA_BYTES,
            ],
        )
        .await?;
    let mut rounds: Vec<Round> = shown
        .iter()
        .map(|row| round(row))
        .collect::<Result<_, _>>()?;
    for row in &calls {
        let no: i32 = row.get("round_no");
        let Some(round) = nos
            .iter()
            .position(|n| *n == no)
            .and_then(|i| rounds.get_mut(i))
        else {
            continue;
        };
        let call = call(row)?;
        round.calls.count = row.get("count");
        if row.get("has_branch") {
            round.branches.push(call.task_key.clone());
        }
        round.calls.items.push(call);
    }
    Ok(Found::Page(Page {
        rounds,
        oldest: chain.last().map(|row| TaskKey::trusted(row.get("key"))),
        has_older,
    }))
}

/// What a task of a run is; none when it has no such row.
///
/// # Errors
/// A fault of the database.
pub async fn kind(
    store: &Store,
    account: AccountId,
    run: RunId,
    key: &TaskKey,
) -> Result<Option<TaskKind>, Error> {
    let conn = store.conn().await?;
    let row = conn
        .query_opt(&KIND, &[&account.0, &run.0, &key.as_str()])
        .await?;
    row.map(|row| rows::word(&row, "tasks", "kind")).transpose()
}
