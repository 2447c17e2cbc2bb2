//! A run's graph as SVG: laid out by `layout-rs`, coloured by state. Pure.

use std::collections::BTreeMap;

use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::color::Color;
use layout::core::geometry::Point;
use layout::core::style::{LineStyleKind, StyleAttr};
use layout::std_shapes::render::get_shape_size;
use layout::std_shapes::shapes::{Arrow, Element, LineEndKind, ShapeKind};
use layout::topo::layout::VisualGraph;

use crate::client::answers::{Graph, GraphEdge, GraphNode, JoinTerms};
use crate::client::words::TaskStatus;
use crate::domain::Value;

/// The layout takes the square of this in time: a second or so.
pub const MOST_PIECES: usize = 1_000;

const FONT: usize = 14;

/// How many pieces the layout has to place: the nodes, and each edge once a row it crosses.
pub fn pieces(graph: &Graph) -> usize {
    let keys = graph.nodes.iter().map(|node| node.key.as_str());
    let rows: BTreeMap<&str, usize> = keys.map(|key| (key, 0)).collect();
    let rows = settled_rows(graph, rows);
    let crossed = |edge: &GraphEdge| {
        let row = |key: &str| rows.get(key).copied().unwrap_or_default();
        row(&edge.to).saturating_sub(row(&edge.from))
    };
    graph.nodes.len() + graph.edges.iter().map(crossed).sum::<usize>()
}

/// Each node one row below the lowest that it follows; a circle (no run has any) goes down no
/// further than there are nodes.
fn settled_rows<'a>(
    graph: &'a Graph,
    mut rows: BTreeMap<&'a str, usize>,
) -> BTreeMap<&'a str, usize> {
    for _ in 0..graph.nodes.len() {
        let mut moved = false;
        for edge in &graph.edges {
            let from = rows.get(edge.from.as_str()).copied();
            let to = rows.get_mut(edge.to.as_str());
            if let (Some(from), Some(to)) = (from, to)
                && *to <= from
            {
                *to = from + 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    rows
}

/// Draws it, from top to bottom; edges that position made are whole, those that a name made dashed.
pub fn svg(graph: &Graph) -> String {
    let mut drawing = VisualGraph::new(Orientation::TopToBottom);
    let mut handles = BTreeMap::new();
    for node in &graph.nodes {
        let handle = drawing.add_node(element(node));
        handles.insert(node.key.as_str(), handle);
    }
    for edge in &graph.edges {
        let ends = (
            handles.get(edge.from.as_str()),
            handles.get(edge.to.as_str()),
        );
        if let (Some(from), Some(to)) = ends {
            drawing.add_edge(arrow(edge.structural), *from, *to);
        }
    }
    let mut writer = SVGWriter::new();
    if !graph.nodes.is_empty() {
        drawing.do_it(false, false, false, &mut writer);
    }
    writer.finalize()
}

fn element(node: &GraphNode) -> Element {
    let shape = ShapeKind::new_box(&label(node));
    let color = Color::fast(fill(&node.status));
    let width = if node.deliverable { 3 } else { 1 };
    let look = StyleAttr::new(Color::fast("dimgray"), width, Some(color), 8, FONT);
    let orientation = Orientation::TopToBottom;
    let size = get_shape_size(orientation, &shape, FONT, false);
    Element::create(shape, look, orientation, Point::new(size.x + 10., size.y))
}

/// The key, a barrier's terms, the state.
fn label(node: &GraphNode) -> String {
    let status = node.error_key.as_deref().unwrap_or(node.status.as_str());
    match &node.join {
        Some(join) => format!("{}\n{}\n{status}", node.key, terms(join)),
        None => format!("{}\n{status}", node.key),
    }
}

/// `any, cancel`.
pub fn terms(join: &JoinTerms) -> String {
    let until = match &join.until {
        Value::Str(word) => word.clone(),
        other => serde_json::to_string(other).unwrap_or_default(),
    };
    match &join.losers {
        Some(losers) => format!("{until}, {losers}"),
        None => until,
    }
}

fn arrow(structural: bool) -> Arrow {
    let line = if structural {
        LineStyleKind::Normal
    } else {
        LineStyleKind::Dashed
    };
    let look = StyleAttr::new(Color::fast("dimgray"), 1, None, 0, FONT);
    Arrow::new(
        LineEndKind::None,
        LineEndKind::Arrow,
        line,
        "",
        &look,
        &None,
        &None,
    )
}

fn fill(status: &TaskStatus) -> &'static str {
    match status {
        TaskStatus::Completed => "palegreen",
        TaskStatus::Failed | TaskStatus::TimedOut | TaskStatus::Uncertain => "lightcoral",
        TaskStatus::Running | TaskStatus::Dispatched => "lightskyblue",
        TaskStatus::NeedsApproval | TaskStatus::AwaitingInput => "khaki",
        TaskStatus::Canceled | TaskStatus::Skipped => "lightgray",
        TaskStatus::Waiting | TaskStatus::Other(_) => "white",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: &str, edges: &str) -> Graph {
        let text = format!(r#"{{"nodes":[{nodes}],"edges":[{edges}],"mermaid":""}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn node(key: &str, more: &str) -> String {
        format!(r#"{{"key":"{key}","kind":"tool_task","status":"completed"{more}}}"#)
    }

    fn edge(from: &str, to: &str) -> String {
        format!(r#"{{"from":"{from}","to":"{to}","structural":true}}"#)
    }

    /// Every node and edge of the read is drawn (`runs.md` §9, graph), a barrier with its terms.
    #[test]
    fn every_node_and_edge_is_drawn() {
        let race = r#","join":{"until":"any","losers":"cancel"}"#;
        let nodes = [
            node("a", ""),
            node("b", r#","error_key":"join_loser_canceled""#),
            node("race", race),
        ];
        let edges = [edge("a", "race"), edge("b", "race"), edge("a", "gone")];
        let drawn = svg(&graph(&nodes.join(","), &edges.join(",")));
        assert!(drawn.starts_with("<?xml"), "{drawn}");
        assert!(drawn.trim_end().ends_with("</svg>"));
        assert_eq!(drawn.matches("<rect").count(), 3);
        assert_eq!(drawn.matches("<path").count(), 2);
        for words in [">race<", ">any, cancel<", ">join_loser_canceled<"] {
            assert!(drawn.contains(words), "{words} in {drawn}");
        }
    }

    #[test]
    fn a_graph_without_nodes_is_an_empty_drawing() {
        assert!(svg(&graph("", "")).contains("<svg"));
    }

    /// A chain, with an edge from its head to every one of its nodes when `spread`.
    fn chain(count: usize, spread: bool) -> Graph {
        let key = |n: usize| format!("k{n}");
        let nodes: Vec<String> = (0..=count).map(|n| node(&key(n), "")).collect();
        let mut edges: Vec<String> = (1..=count).map(|n| edge(&key(n - 1), &key(n))).collect();
        if spread {
            edges.extend((2..=count).map(|n| edge(&key(0), &key(n))));
        }
        graph(&nodes.join(","), &edges.join(","))
    }

    /// Long edges cost a piece a row, so it is the pieces that are bounded.
    #[test]
    fn the_largest_drawings_are_drawn() {
        for graph in [chain(MOST_PIECES / 2 - 1, false), chain(42, true)] {
            let pieces = pieces(&graph);
            assert!(
                (MOST_PIECES - 20..=MOST_PIECES).contains(&pieces),
                "{pieces}"
            );
            assert_eq!(svg(&graph).matches("<path").count(), graph.edges.len());
        }
    }
}
