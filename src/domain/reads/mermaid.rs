//! A run drawn as a Mermaid flowchart (`runs.md` §9).
//!
//! Invariants: nodes are named by position, so no key can break the drawing; a label keeps only
//! `[A-Za-z0-9_ .,()-]`; a label with parentheses is quoted, since Mermaid reads a bare one as the
//! start of another shape. Only scheduling edges are drawn.

use std::fmt::Write as _;

use super::graph::Node;

/// A label's text: what is not allowed becomes `_`.
fn label(node: &Node) -> String {
    let text = match &node.join {
        Some(join) => format!("{} ({}, {})", node.key, join.until, join.losers),
        None => node.key.as_str().to_owned(),
    };
    text.chars()
        .map(|c| {
            let kept = c.is_ascii_alphanumeric() || "_ .,()-".contains(c);
            if kept { c } else { '_' }
        })
        .collect()
}

/// Draws nodes in their order, and these edges: (source, head) by position.
pub fn flowchart(nodes: &[Node], edges: &[(usize, usize)]) -> String {
    let mut text = String::from("flowchart TD\n");
    for (i, node) in nodes.iter().enumerate() {
        let label = label(node);
        let quote = if label.contains(['(', ')']) { "\"" } else { "" };
        let (open, close) = if node.deliverable {
            ("[[", "]]")
        } else {
            ("[", "]")
        };
        let status = node.status.shown();
        let _ = writeln!(text, "  n{i}{open}{quote}{label}{quote}{close}:::{status}");
    }
    for (from, to) in edges {
        let _ = writeln!(text, "  n{from} --> n{to}");
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::graph::{Row, view};
    use crate::domain::words::{
        JoinMode, Lifetime, Losers, TaskKind, TaskStatus, Visibility, Wake,
    };
    use crate::domain::{TaskKey, TaskNo};

    fn row(no: i32, key: &str) -> Row {
        Row {
            no: TaskNo(no),
            key: TaskKey::trusted(key.to_owned()),
            kind: TaskKind::Tool,
            lifetime: Lifetime::Conversation,
            wake: Wake::Auto,
            status: TaskStatus::Queued,
            visibility: Visibility::Visible,
            mark: None,
            error_key: None,
            join: None,
            input_from: Vec::new(),
            result_from: Vec::new(),
            expansion_parent: None,
            edges: Vec::new(),
        }
    }

    fn after(row: Row, sources: &[i32]) -> Row {
        Row {
            edges: sources.iter().map(|no| (TaskNo(*no), true)).collect(),
            ..row
        }
    }

    /// `runs.md` §9, line by line: the head, names by position, status classes, the deliverable's
    /// shape, barriers, edges.
    #[test]
    fn drawings() {
        let status = |row: Row, status| Row { status, ..row };
        let race = |mode, k, losers| Row {
            kind: TaskKind::Join,
            join: Some((mode, k, losers)),
            ..row(3, "race")
        };
        let table: Vec<(Vec<Row>, Option<i32>, &str)> = vec![
            (vec![], None, "flowchart TD\n"),
            (
                vec![status(row(1, "gate"), TaskStatus::Completed)],
                None,
                "flowchart TD\n  n0[gate]:::completed\n",
            ),
            (
                vec![status(row(7, "gate"), TaskStatus::NeedsApproval)],
                Some(7),
                "flowchart TD\n  n0[[gate]]:::needs_approval\n",
            ),
            (
                vec![row(1, "a"), row(2, "b-1"), after(row(5, "c_2"), &[2, 1])],
                Some(5),
                "flowchart TD\n  n0[a]:::waiting\n  n1[b-1]:::waiting\n  n2[[c_2]]:::waiting\n  n0 --> n2\n  n1 --> n2\n",
            ),
            (
                vec![race(JoinMode::Any, 1, Losers::Cancel)],
                None,
                "flowchart TD\n  n0[\"race (any, cancel)\"]:::waiting\n",
            ),
            (
                vec![race(JoinMode::Quorum, 2, Losers::RunOut)],
                Some(3),
                "flowchart TD\n  n0[[\"race (2, run_out)\"]]:::waiting\n",
            ),
            (
                vec![race(JoinMode::All, 2, Losers::Cancel)],
                None,
                "flowchart TD\n  n0[\"race (all, cancel)\"]:::waiting\n",
            ),
            // Keys cannot hold these; the drawing does not rely on it.
            (
                vec![row(1, "a\"]\n;é<b>")],
                None,
                "flowchart TD\n  n0[a______b_]:::waiting\n",
            ),
        ];
        for (rows, deliverable, wanted) in table {
            let drawn = view(&rows, deliverable.map(TaskNo)).mermaid;
            assert_eq!(drawn, wanted);
        }
    }

    fn any_row(no: i32) -> impl Strategy<Value = Row> {
        let edges = prop::collection::btree_map(1..=no, any::<bool>(), 0..4);
        let join = prop::option::of((
            prop::sample::select(JoinMode::ALL),
            1..9i32,
            prop::sample::select(Losers::ALL),
        ));
        (
            "\\PC{0,20}",
            prop::sample::select(TaskStatus::ALL),
            join,
            edges,
        )
            .prop_map(move |(key, status, join, edges)| Row {
                status,
                join,
                edges: edges
                    .into_iter()
                    .filter(|(from, _)| *from < no)
                    .map(|(from, by)| (TaskNo(from), by))
                    .collect(),
                ..row(no, &key)
            })
    }

    fn any_graph() -> impl Strategy<Value = Vec<Row>> {
        (0..30i32).prop_flat_map(|n| (1..=n).map(any_row).collect::<Vec<_>>())
    }

    proptest! {
        /// `runs.md` §9: any graph draws one line a node and an edge, brackets and quotes balanced,
        /// labels of the allowed characters alone, edges between drawn nodes.
        #[test]
        fn any_graph_draws_balanced_lines_of_allowed_characters(rows in any_graph(), answer in 0..30i32) {
            let drawn = view(&rows, Some(TaskNo(answer)));
            let mut lines = drawn.mermaid.lines();
            prop_assert_eq!(lines.next(), Some("flowchart TD"));
            for (i, row) in rows.iter().enumerate() {
                let line = lines.next().expect("a line a node");
                let rest = line.strip_prefix(&format!("  n{i}[")).expect("named by position");
                let (label, class) = rest.rsplit_once("]:::").expect("closed, with a class");
                let label = match label.strip_prefix('[') {
                    Some(inner) => inner.strip_suffix(']').expect("as many brackets close"),
                    None => label,
                };
                let quoted = label.starts_with('"');
                prop_assert_eq!(quoted, label.contains(['(', ')']));
                let label = if quoted { label[1..].strip_suffix('"').expect("the quote ends") } else { label };
                prop_assert!(label.chars().all(|c| c.is_ascii_alphanumeric() || "_ .,()-".contains(c)), "{}", label);
                prop_assert_eq!(class, row.status.shown());
            }
            for edge in &drawn.edges {
                let line = lines.next().expect("a line an edge");
                let (from, to) = line[3..].split_once(" --> n").expect("an arrow");
                let place = |text: &str| text.parse::<usize>().expect("a position");
                prop_assert_eq!(&rows[place(from)].key, &edge.from);
                prop_assert_eq!(&rows[place(to)].key, &edge.to);
            }
            prop_assert_eq!(lines.next(), None);
        }
    }
}
