//! The graph of a run: its nodes, its edges and a drawing (`runs.md` §9, "graph").
//!
//! Invariants: nodes in authoring order, hidden rows included; edges by head, then source; every
//! end of an edge is among the nodes, since both come from one snapshot.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::mermaid;
use crate::domain::words::{
    JoinMode, Lifetime, Losers, Mark, TaskKind, TaskStatus, Visibility, Wake,
};
use crate::domain::{TaskKey, TaskNo};

/// A row of the graph, as stored.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its number.
    pub no: TaskNo,
    /// Its key.
    pub key: TaskKey,
    /// What it is.
    pub kind: TaskKind,
    /// Lifetime.
    pub lifetime: Lifetime,
    /// Wake.
    pub wake: Wake,
    /// State.
    pub status: TaskStatus,
    /// Visibility.
    pub visibility: Visibility,
    /// The main-thread mark, on model rows.
    pub mark: Option<Mark>,
    /// Why it did not complete.
    pub error_key: Option<String>,
    /// Barriers: mode, k, what becomes of losers.
    pub join: Option<(JoinMode, i32, Losers)>,
    /// What it reads as history.
    pub input_from: Vec<TaskNo>,
    /// What it reads as material.
    pub result_from: Vec<TaskNo>,
    /// The row it was expanded from.
    pub expansion_parent: Option<TaskNo>,
    /// Its incoming edges: source, and whether position made it.
    pub edges: Vec<(TaskNo, bool)>,
}

/// How many successes end a barrier, in write words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// `"any"`.
    Any,
    /// `"all"`.
    All,
    /// k.
    Count(i32),
}

impl Until {
    fn of(mode: JoinMode, k: i32) -> Self {
        match mode {
            JoinMode::Any => Self::Any,
            JoinMode::All => Self::All,
            JoinMode::Quorum => Self::Count(k),
        }
    }
}

impl std::fmt::Display for Until {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::All => f.write_str("all"),
            Self::Count(k) => write!(f, "{k}"),
        }
    }
}

impl Serialize for Until {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(k) => serializer.serialize_i32(*k),
            word => serializer.collect_str(word),
        }
    }
}

/// A barrier's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Join {
    /// When it is decided.
    pub until: Until,
    /// What becomes of the others.
    pub losers: Losers,
}

fn shown<S: Serializer>(status: &TaskStatus, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(status.shown())
}

/// A node.
#[derive(Debug, Clone, Serialize)]
pub struct Node {
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
    /// Visibility.
    pub visibility: Visibility,
    /// Whether it is the run's answer.
    pub deliverable: bool,
    /// On every model round, and only there: whether it is of the main thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mainline: Option<bool>,
    /// Why it did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_key: Option<String>,
    /// A barrier's terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<Join>,
    /// Keys it reads as history.
    pub input_from: Vec<TaskKey>,
    /// Keys it reads as material.
    pub result_from: Vec<TaskKey>,
    /// The key it was expanded from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expansion_parent: Option<TaskKey>,
}

/// An edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// Its source.
    pub from: TaskKey,
    /// Its head.
    pub to: TaskKey,
    /// Whether position made it, not a name.
    pub structural: bool,
}

/// The read.
#[derive(Debug, Clone, Serialize)]
pub struct GraphView {
    /// In authoring order.
    pub nodes: Vec<Node>,
    /// By head, then source.
    pub edges: Vec<Edge>,
    /// A drawing.
    pub mermaid: String,
}

/// Projects rows in authoring order; `deliverable` is the run's answer.
pub fn view(rows: &[Row], deliverable: Option<TaskNo>) -> GraphView {
    let places: BTreeMap<TaskNo, usize> = rows.iter().enumerate().map(|(i, r)| (r.no, i)).collect();
    let key = |no: &TaskNo| places.get(no).map(|i| rows[*i].key.clone());
    let keys = |nos: &[TaskNo]| nos.iter().filter_map(key).collect();
    let nodes: Vec<Node> = rows
        .iter()
        .map(|row| Node {
            key: row.key.clone(),
            kind: row.kind,
            lifetime: row.lifetime,
            wake: row.wake,
            status: row.status,
            visibility: row.visibility,
            deliverable: deliverable == Some(row.no),
            mainline: (row.kind == TaskKind::Model).then_some(row.mark == Some(Mark::Round)),
            error_key: row.error_key.clone(),
            join: row.join.map(|(mode, k, losers)| Join {
                until: Until::of(mode, k),
                losers,
            }),
            input_from: keys(&row.input_from),
            result_from: keys(&row.result_from),
            expansion_parent: row.expansion_parent.as_ref().and_then(key),
        })
        .collect();
    let mut drawn = Vec::new();
    for (head, row) in rows.iter().enumerate() {
        let mut into: Vec<(usize, bool)> = row
            .edges
            .iter()
            .filter_map(|(from, structural)| Some((*places.get(from)?, *structural)))
            .collect();
        into.sort_unstable();
        drawn.extend(into.into_iter().map(|(from, by)| (from, head, by)));
    }
    let edges = drawn
        .iter()
        .map(|(from, to, structural)| Edge {
            from: rows[*from].key.clone(),
            to: rows[*to].key.clone(),
            structural: *structural,
        })
        .collect();
    let lines: Vec<(usize, usize)> = drawn.iter().map(|(from, to, _)| (*from, *to)).collect();
    GraphView {
        mermaid: mermaid::flowchart(&nodes, &lines),
        nodes,
        edges,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn row(no: i32, key: &str, kind: TaskKind) -> Row {
        Row {
            no: TaskNo(no),
            key: TaskKey::trusted(key.to_owned()),
            kind,
            lifetime: Lifetime::Conversation,
            wake: Wake::Auto,
            status: TaskStatus::Queued,
            visibility: Visibility::Visible,
            mark: (kind == TaskKind::Model).then_some(Mark::Round),
            error_key: None,
            join: None,
            input_from: Vec::new(),
            result_from: Vec::new(),
            expansion_parent: None,
            edges: Vec::new(),
        }
    }

    /// `runs.md` §9: authoring order, hidden rows included, edges by head then source, reads by key.
    #[test]
    fn nodes_are_in_authoring_order_and_edges_by_head_then_source() {
        let rows = [
            row(1, "a", TaskKind::Tool),
            Row {
                visibility: Visibility::Hidden,
                ..row(2, "gate", TaskKind::Await)
            },
            Row {
                edges: vec![(TaskNo(2), false), (TaskNo(1), true)],
                input_from: vec![TaskNo(1)],
                result_from: vec![TaskNo(2), TaskNo(1)],
                expansion_parent: Some(TaskNo(1)),
                ..row(3, "m", TaskKind::Model)
            },
        ];
        let view = view(&rows, Some(TaskNo(3)));
        let nodes = serde_json::to_value(&view.nodes).expect("nodes serialise");
        assert_eq!(
            nodes,
            serde_json::json!([
                {"key":"a","kind":"tool_task","lifetime":"conversation","wake":"auto","status":"waiting",
                 "visibility":"visible","deliverable":false,"input_from":[],"result_from":[]},
                {"key":"gate","kind":"await_task","lifetime":"conversation","wake":"auto","status":"waiting",
                 "visibility":"hidden","deliverable":false,"input_from":[],"result_from":[]},
                {"key":"m","kind":"model_task","lifetime":"conversation","wake":"auto","status":"waiting",
                 "visibility":"visible","deliverable":true,"mainline":true,"input_from":["a"],
                 "result_from":["gate","a"],"expansion_parent":"a"},
            ])
        );
        let edges = serde_json::to_value(&view.edges).expect("edges serialise");
        assert_eq!(
            edges,
            serde_json::json!([{"from":"a","to":"m","structural":true},{"from":"gate","to":"m","structural":false}])
        );
    }

    /// `runs.md` §9: `mainline` on every model round only.
    #[test]
    fn only_model_rounds_say_whether_they_are_of_the_mainline() {
        for kind in TaskKind::ALL {
            for mark in [Mark::Round, Mark::Branch] {
                let row = Row {
                    mark: Some(mark),
                    ..row(1, "k", *kind)
                };
                let said = view(&[row], None).nodes[0].mainline;
                let wanted = (*kind == TaskKind::Model).then_some(mark == Mark::Round);
                assert_eq!(said, wanted, "{kind} {mark}");
            }
        }
    }

    /// `runs.md` §9: `until` is `"any"`, `"all"` or k, in write words.
    #[test]
    fn a_barrier_says_until_in_write_words() {
        let cases = [
            (JoinMode::Any, serde_json::json!("any")),
            (JoinMode::All, serde_json::json!("all")),
            (JoinMode::Quorum, serde_json::json!(2)),
        ];
        for (mode, word) in cases {
            let race = Row {
                join: Some((mode, 2, Losers::RunOut)),
                ..row(1, "race", TaskKind::Join)
            };
            let node = serde_json::to_value(&view(&[race], None).nodes[0]).expect("it serialises");
            assert_eq!(
                node["join"],
                serde_json::json!({"until": word, "losers": "run_out"})
            );
        }
    }
}
