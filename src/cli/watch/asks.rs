//! What of a run waits for a person, and what the person can type about it. Pure.

use super::render::{Known, Line, Style, clean};
use crate::client::answers::{Run, Task};
use crate::client::words::{RunStatus, TaskKind, TaskStatus};

/// How many are shown at once.
const SHOWN: usize = 4;

/// One thing that waits for a person.
pub struct Ask {
    what: Line,
    /// What could be typed behind the program's name, one command each.
    commands: Vec<Vec<String>>,
}

/// Everything of the run that waits for a person: questions and approvals in authoring order, then
/// failures that hold it, then a pause.
pub fn asks(run: &Run, known: &Known) -> Vec<Ask> {
    let mut asks: Vec<Ask> = run
        .tasks
        .iter()
        .filter_map(|task| of_task(run, task, known))
        .collect();
    asks.extend(failures(run));
    if run.status == RunStatus::Paused {
        asks.push(Ask::new(
            "‖ the run is paused".to_owned(),
            vec![words(&["runs", "resume", &run.public_id])],
        ));
    }
    asks
}

fn of_task(run: &Run, task: &Task, known: &Known) -> Option<Ask> {
    let id = &run.public_id;
    if task.status == TaskStatus::NeedsApproval {
        let tool = task.tool_name.as_deref().map(clean).unwrap_or_default();
        let what = format!("◆ {} asks to call {tool}", task.key);
        let approve = words(&["runs", "approve", id, &task.key]);
        let deny = words(&["runs", "deny", id, &task.key, "--reason", "TEXT"]);
        return Some(Ask::new(what, vec![approve, deny]));
    }
    let question = known.questions.get(&task.key);
    let asks = is_open_await(task) && question.is_some_and(Option::is_some);
    if !asks {
        return None;
    }
    let question = question.and_then(Option::as_ref)?;
    let mut what = format!("? {} asks: {}", task.key, clean(&question.prompt));
    if !question.options.is_empty() {
        let options: Vec<String> = question.options.iter().map(|o| clean(o)).collect();
        what.push_str(&format!("  ({})", options.join(" / ")));
    }
    let answer = answer_words(id, &task.key, known);
    Some(Ask::new(what, vec![answer]))
}

/// Whether it is a question or a wait that has begun and not ended.
pub fn is_open_await(task: &Task) -> bool {
    task.kind == TaskKind::Await
        && matches!(
            task.status,
            TaskStatus::Dispatched | TaskStatus::AwaitingInput
        )
}

/// The failures that hold the run, a command each for trying again and for giving up.
fn failures(run: &Run) -> Vec<Ask> {
    let Some(attention) = &run.attention else {
        return Vec::new();
    };
    let id = run.public_id.as_str();
    match attention.reason.as_str() {
        "halt_failure" => attention
            .blocked_task_keys
            .iter()
            .map(|key| {
                let commands = vec![
                    words(&["runs", "retry", id, key]),
                    words(&["runs", "abandon", id, key]),
                ];
                Ask::new(format!("✖ {key} holds the run"), commands)
            })
            .collect(),
        "deliverable_unresolved" => vec![Ask::new(
            "✖ the run has no answer".to_owned(),
            vec![words(&["runs", "append", id, "FILE"])],
        )],
        _ => Vec::new(),
    }
}

/// What answers a question.
pub fn answer_words(run: &str, key: &str, known: &Known) -> Vec<String> {
    let mut answer = words(&["runs", "answer", run, key, "TEXT"]);
    if let Some(token) = known.tokens.get(key) {
        answer.extend(words(&["--resolution-token", token]));
    }
    answer
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What to type, with the program's name.
pub fn command(known: &Known, words: &[String]) -> String {
    let program = known.program.as_deref().unwrap_or("nexus");
    format!("{program} {}", words.join(" "))
}

impl Ask {
    fn new(what: String, commands: Vec<Vec<String>>) -> Self {
        let mut line = Line::default();
        line.add(Style::Yellow, what);
        Self {
            what: line,
            commands,
        }
    }

    /// One line: for output that is no terminal.
    pub fn text(&self, known: &Known) -> String {
        let commands: Vec<String> = self.commands.iter().map(|c| command(known, c)).collect();
        format!("{}  →  {}", self.what.text(), commands.join("  or  "))
    }
}

/// The lines under a tree: what waits, each with its commands, which are broken so that a shell
/// takes the pieces as one.
pub fn lines(asks: Vec<Ask>, known: &Known, width: usize) -> Vec<Line> {
    let more = asks.len().saturating_sub(SHOWN);
    let mut lines = Vec::new();
    for ask in asks.into_iter().take(SHOWN) {
        lines.push(ask.what);
        for words in &ask.commands {
            for piece in broken(&command(known, words), width.saturating_sub(6)) {
                let mut line = Line::default();
                line.add(Style::Plain, format!("    {piece}"));
                lines.push(line);
            }
        }
    }
    if more > 0 {
        let mut line = Line::default();
        line.add(Style::Dim, format!("and {more} more"));
        lines.push(line);
    }
    lines
}

/// Broken between words, with the shell's mark of a line that goes on.
fn broken(command: &str, width: usize) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in command.split(' ') {
        match pieces.last_mut() {
            Some(piece) if piece.chars().count() + 1 + word.chars().count() <= width => {
                piece.push(' ');
                piece.push_str(word);
            }
            Some(piece) => {
                piece.push_str(" \\");
                pieces.push(format!("  {word}"));
            }
            None => pieces.push(word.to_owned()),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_broken_so_that_a_shell_takes_it_whole() {
        let command = "nexus runs answer 0123 gate TEXT --resolution-token abcdef";
        let pieces = broken(command, 28);
        assert_eq!(
            pieces,
            [
                "nexus runs answer 0123 gate \\",
                "  TEXT --resolution-token \\",
                "  abcdef"
            ]
        );
        let joined = pieces.join("\n").replace("\\\n", "");
        let typed: Vec<&str> = joined.split_whitespace().collect();
        assert_eq!(typed.join(" "), command);
        assert_eq!(broken(command, usize::MAX), [command]);
    }
}
