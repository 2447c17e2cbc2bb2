//! A run as text: pure functions of the run's document, what runners said of their progress, and
//! now.
//!
//! Text that came from outside (keys are safe, tool output is not) is shown without control
//! characters, so that no tool can move the reader's cursor.

use std::collections::BTreeMap;

use super::asks::{self, is_open_await};
pub use super::asks::{answer_words, command};
use super::tree::{self, Row};
use crate::client::answers::{JoinTerms, Run, Task};
use crate::client::words::{RunStatus, TaskKind, TaskStatus};
use crate::domain::{Timestamp, Value};

/// What is known beside the run's document.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// What runners said last, by task key.
    pub progress: BTreeMap<String, String>,
    /// What an await asks; nothing when it asks nobody.
    pub questions: BTreeMap<String, Option<Question>>,
    /// The terms of barriers.
    pub terms: BTreeMap<String, JoinTerms>,
    /// Tokens of questions that the caller asked.
    pub tokens: BTreeMap<String, String>,
    /// What the program is called where commands are shown.
    pub program: Option<String>,
}

/// What a question asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Its text.
    pub prompt: String,
    /// Its choices, if it has any.
    pub options: Vec<String>,
}

/// How to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Use ANSI colours.
    pub color: bool,
    /// Columns; longer rows are cut.
    pub width: usize,
    /// Lines; when there are more, settled and waiting rows are folded.
    pub height: usize,
}

impl Look {
    /// No colour and no bound: for files and tests.
    pub const PLAIN: Self = Self {
        color: false,
        width: usize::MAX,
        height: usize::MAX,
    };
}

/// The live tree: a line about the run, a line a task, and what the run waits for.
pub fn render(run: &Run, known: &Known, now: Timestamp, look: Look) -> String {
    let mut lines = vec![headline(run, now)];
    let mut tail: Vec<Line> = attention(run).into_iter().collect();
    tail.extend(asks::lines(asks::asks(run, known), known, look.width));
    // However much waits, half of the screen is the tree's.
    tail.truncate(look.height / 2);
    let room = look.height.saturating_sub(lines.len() + tail.len());
    lines.extend(rows(run, known, now, room));
    lines.extend(tail);
    let mut out = String::new();
    for line in lines {
        line.print(look, &mut out);
        out.push('\n');
    }
    out
}

/// What changed between two reads, a line a change: for output that is no terminal.
pub fn changes(before: Option<&Run>, run: &Run, known: &Known, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    let old: BTreeMap<&str, &TaskStatus> = before
        .map(|b| {
            b.tasks
                .iter()
                .map(|t| (t.key.as_str(), &t.status))
                .collect()
        })
        .unwrap_or_default();
    for task in &run.tasks {
        if old.get(task.key.as_str()) == Some(&&task.status) {
            continue;
        }
        let mut line = Line::default();
        line.add(Style::Plain, format!("{} {}", task.key, what(task, known)));
        line.add(Style::Plain, format!("  {}", task.status));
        details(task, None, now, &mut line);
        lines.push(line.text());
    }
    if before.is_none_or(|b| b.status != run.status) {
        lines.push(headline(run, now).text());
    }
    lines
}

/// What waits for a person, a line each: for output that is no terminal.
pub fn asked(run: &Run, known: &Known) -> Vec<String> {
    let asks = asks::asks(run, known).into_iter();
    asks.map(|ask| ask.text(known)).collect()
}

fn headline(run: &Run, now: Timestamp) -> Line {
    let mut line = Line::default();
    line.add(Style::Bold, format!("run {}", run.public_id));
    line.add(run_style(&run.status), format!("  {}", run.status));
    if let Some(reason) = &run.failure_reason {
        line.add(Style::Red, format!(" ({reason})"));
    }
    if let Some(began) = run.started_at {
        let until = run.completed_at.unwrap_or(now);
        line.add(Style::Dim, format!("  {}", elapsed(began, until)));
    }
    if let Some(since) = run.paused_at.filter(|_| run.status == RunStatus::Paused) {
        let paused = format!("  for {}, clocks stand", elapsed(since, now));
        line.add(Style::Yellow, paused);
    }
    let settled = run.tasks.iter().filter(|t| t.status.is_settled()).count();
    line.add(
        Style::Dim,
        format!("  {settled}/{} settled", run.tasks.len()),
    );
    line
}

fn attention(run: &Run) -> Option<Line> {
    let attention = run.attention.as_ref()?;
    let mut line = Line::default();
    let keys = attention.blocked_task_keys.join(", ");
    let more = match attention.blocked_task_overflow {
        Some(n @ 1..) => format!(" and {n} more"),
        _ => String::new(),
    };
    line.add(
        Style::Yellow,
        format!("waits for a person: {}", attention.reason),
    );
    line.add(Style::Plain, format!("  {}{more}", clean(&keys)));
    Some(line)
}

/// The task rows, folded to `room` lines.
fn rows(run: &Run, known: &Known, now: Timestamp, room: usize) -> Vec<Line> {
    let tasks: Vec<(&str, &[String])> = run
        .tasks
        .iter()
        .map(|t| (t.key.as_str(), t.after.as_slice()))
        .collect();
    let laid = tree::lay_out(&tasks);
    // A pause moves every deadline: nothing is left to count down.
    let runs_down = run.status != RunStatus::Paused;
    let draw = |row: &Row| task_line(row, &run.tasks[row.task], known, runs_down, now);
    for fold in [Fold::Nothing, Fold::Settled, Fold::Unstarted] {
        let folded = folded(&laid, &run.tasks, fold);
        if folded.len() <= room || fold == Fold::Unstarted {
            let mut lines: Vec<Line> = folded
                .into_iter()
                .map(|item| match item {
                    Item::Row(row) => draw(row),
                    Item::Folded(n) => fold_line(n),
                })
                .collect();
            if lines.len() > room {
                let left = lines.len() - room.saturating_sub(1);
                lines.truncate(room.saturating_sub(1));
                lines.push(fold_line(left));
            }
            return lines;
        }
    }
    Vec::new()
}

/// How much is folded away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fold {
    Nothing,
    /// What has ended without a failure.
    Settled,
    /// That, and what has not begun.
    Unstarted,
}

enum Item<'a> {
    Row(&'a Row),
    Folded(usize),
}

fn folded<'a>(laid: &'a [Row], tasks: &[Task], fold: Fold) -> Vec<Item<'a>> {
    let quiet = |status: &TaskStatus| {
        matches!(
            status,
            TaskStatus::Completed | TaskStatus::Canceled | TaskStatus::Skipped
        )
    };
    let hide = |row: &Row| match (fold, &tasks[row.task].status) {
        (Fold::Nothing, _) => false,
        (Fold::Unstarted, TaskStatus::Waiting) => true,
        (_, status) => quiet(status),
    };
    let mut items = Vec::new();
    for row in laid {
        if !hide(row) {
            items.push(Item::Row(row));
        } else if let Some(Item::Folded(n)) = items.last_mut() {
            *n += 1;
        } else {
            items.push(Item::Folded(1));
        }
    }
    items
}

fn fold_line(n: usize) -> Line {
    let mut line = Line::default();
    line.add(Style::Dim, format!("⋮  {n} more"));
    line
}

fn task_line(row: &Row, task: &Task, known: &Known, runs_down: bool, now: Timestamp) -> Line {
    let mut line = Line::default();
    let mut rails: String = row
        .rails
        .iter()
        .map(|on| if *on { "│  " } else { "   " })
        .collect();
    rails.push_str(if row.last { "└─ " } else { "├─ " });
    line.add(Style::Dim, rails);
    let (glyph, style) = glyph(task);
    line.add(style, format!("{glyph} "));
    line.add(Style::Bold, task.key.clone());
    line.add(Style::Plain, format!("  {}", what(task, known)));
    details(task, known.progress.get(&task.key), now, &mut line);
    if runs_down {
        left(task, now, &mut line);
    }
    if !row.nested && !task.after.is_empty() {
        line.add(Style::Dim, format!("  ⟵ {}", few(&task.after)));
    }
    line
}

/// How long the task's clock still runs.
fn left(task: &Task, now: Timestamp, line: &mut Line) {
    let Some(deadline) = task.deadline_at.filter(|_| !task.status.is_settled()) else {
        return;
    };
    let style = if (deadline - now).num_seconds() < 60 {
        Style::Yellow
    } else {
        Style::Dim
    };
    line.add(style, format!("  {} left", elapsed(now, deadline)));
}

/// State word where the glyph does not say it, time, error, progress.
fn details(task: &Task, progress: Option<&String>, now: Timestamp, line: &mut Line) {
    if let Some(began) = task.started_at {
        let until = task.completed_at.unwrap_or(now);
        line.add(Style::Dim, format!("  {}", elapsed(began, until)));
    }
    match &task.status {
        TaskStatus::NeedsApproval => line.add(Style::Yellow, "  needs approval".to_owned()),
        TaskStatus::AwaitingInput => line.add(Style::Yellow, "  awaits an answer".to_owned()),
        TaskStatus::Dispatched if task.claimed_by.is_none() && task.tool_name.is_some() => {
            line.add(Style::Dim, "  unclaimed".to_owned());
        }
        TaskStatus::Other(word) => line.add(Style::Plain, format!("  {}", clean(word))),
        _ => {}
    }
    if let Some(selected) = selected(task) {
        line.add(Style::Green, format!("  {selected}"));
    }
    if let Some(error) = &task.error {
        line.add(Style::Red, format!("  {}", clean(&error.key)));
        if let Some(detail) = &error.detail {
            line.add(Style::Plain, format!(": {}", clean(detail)));
        }
    }
    if task.is_error == Some(true) {
        line.add(Style::Yellow, "  answered an error".to_owned());
    }
    if let Some(resolution) = &task.failure_resolution {
        line.add(Style::Dim, format!("  ({})", clean(resolution)));
    }
    if let Some(text) = progress.filter(|_| !task.status.is_settled()) {
        line.add(Style::Cyan, format!("  {}", last_line(text)));
    }
}

/// Whom a barrier took, in the words of its result (`runs.md` §15).
fn selected(task: &Task) -> Option<String> {
    let keys = task.result.as_ref()?.get("selected")?.as_array()?;
    let keys = keys.iter().filter_map(Value::as_str).map(clean);
    let keys: Vec<String> = keys.collect();
    let verb = if keys.len() == 1 { "wins" } else { "win" };
    (!keys.is_empty()).then(|| format!("{} {verb}", few(&keys)))
}

/// What a task is, in a few words.
fn what(task: &Task, known: &Known) -> String {
    if let Some(name) = &task.tool_name {
        return clean(name);
    }
    let model = task.model.as_ref().and_then(|m| match m {
        Value::Str(text) => Some(text.as_str()),
        other => other.get("model").and_then(Value::as_str),
    });
    if let Some(model) = model {
        return clean(model);
    }
    if let Some(terms) = known.terms.get(&task.key) {
        return race(terms, task.after.len());
    }
    match (&task.kind, known.questions.get(&task.key)) {
        (TaskKind::Join, _) => "race".to_owned(),
        (TaskKind::Await, Some(Some(_))) => "question".to_owned(),
        (TaskKind::Await, Some(None)) => "wait".to_owned(),
        (kind, _) => kind.as_str().trim_end_matches("_task").to_owned(),
    }
}

/// `race for 1 of 3`, and what becomes of the others unless they are canceled.
fn race(terms: &JoinTerms, arms: usize) -> String {
    let until = match &terms.until {
        Value::Str(word) if word == "any" => "1".to_owned(),
        Value::Str(word) => clean(word),
        number => serde_json::to_string(number).unwrap_or_default(),
    };
    let run_out = terms.losers.as_deref() == Some("run_out");
    let losers = if run_out { ", losers run out" } else { "" };
    format!("race for {until} of {arms}{losers}")
}

fn glyph(task: &Task) -> (char, Style) {
    match &task.status {
        TaskStatus::Waiting => ('○', Style::Dim),
        TaskStatus::NeedsApproval => ('◆', Style::Yellow),
        TaskStatus::AwaitingInput => ('?', Style::Yellow),
        TaskStatus::Running => ('●', Style::Cyan),
        TaskStatus::Dispatched if is_open_await(task) => ('?', Style::Yellow),
        TaskStatus::Dispatched if task.claimed_by.is_some() => ('●', Style::Cyan),
        TaskStatus::Dispatched => ('◌', Style::Cyan),
        TaskStatus::Completed if task.is_error == Some(true) => ('✔', Style::Yellow),
        TaskStatus::Completed => ('✔', Style::Green),
        TaskStatus::Failed | TaskStatus::TimedOut => ('✖', Style::Red),
        TaskStatus::Uncertain => ('‼', Style::Red),
        TaskStatus::Canceled => ('⊘', Style::Dim),
        TaskStatus::Skipped => ('-', Style::Dim),
        TaskStatus::Other(_) => ('·', Style::Plain),
    }
}

fn run_style(status: &RunStatus) -> Style {
    match status {
        RunStatus::Completed => Style::Green,
        RunStatus::Canceled | RunStatus::Canceling => Style::Red,
        RunStatus::Running => Style::Cyan,
        RunStatus::NeedsAttention | RunStatus::Paused => Style::Yellow,
        RunStatus::Pending | RunStatus::Other(_) => Style::Plain,
    }
}

/// The first three, and how many more.
fn few(keys: &[String]) -> String {
    let shown = keys.iter().take(3).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match keys.len() {
        n @ 4.. => format!("{shown} +{}", n - 3),
        _ => shown,
    }
}

/// `7s`, `2m05s`, `1h02m`; never negative, whatever the clocks say.
pub fn elapsed(from: Timestamp, to: Timestamp) -> String {
    let s = (to - from).num_seconds().max(0);
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        _ => format!("{}h{:02}m", s / 3600, s / 60 % 60),
    }
}

/// Without control characters, escapes included.
pub fn clean(text: &str) -> String {
    let space = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().map(space).collect();
    text.trim().to_owned()
}

fn last_line(text: &str) -> String {
    let lines = text.lines().rev();
    let mut lines = lines.map(clean).filter(|line| !line.is_empty());
    lines.next().unwrap_or_default()
}

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Style {
    fn code(self) -> Option<u8> {
        match self {
            Self::Plain => None,
            Self::Bold => Some(1),
            Self::Dim => Some(2),
            Self::Red => Some(31),
            Self::Green => Some(32),
            Self::Yellow => Some(33),
            Self::Cyan => Some(36),
        }
    }
}

/// One line in styled pieces.
#[derive(Default)]
pub(super) struct Line(Vec<(Style, String)>);

impl Line {
    pub(super) fn add(&mut self, style: Style, text: String) {
        self.0.push((style, text));
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// Cut to the width by columns; colours do not count.
    fn print(&self, look: Look, out: &mut String) {
        let whole: usize = self.0.iter().map(|(_, text)| columns(text)).sum();
        let cut = whole > look.width;
        let mut left = look.width - usize::from(cut).min(look.width);
        for (style, text) in &self.0 {
            let piece = fitting(text, left);
            left -= columns(piece);
            match style.code().filter(|_| look.color && !piece.is_empty()) {
                Some(code) => out.push_str(&format!("\x1b[{code}m{piece}\x1b[0m")),
                None => out.push_str(piece),
            }
            if piece.len() < text.len() {
                break;
            }
        }
        if cut {
            out.push('…');
        }
    }
}

/// The longest beginning that fits.
fn fitting(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += column(c);
        if used > room {
            return &text[..at];
        }
    }
    text
}

fn columns(text: &str) -> usize {
    text.chars().map(column).sum()
}

/// Columns a terminal gives a character: wide East Asian and emoji take two, combining marks none.
fn column(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036F | 0x200B..=0x200F | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F
        | 0x2E80..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1FAFF
        | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
