//! Waits (`engine.md` §9, `orchestration.md` §5): kernel-held observations of other rows. A wait has
//! no edge to what it observes; it is judged when it starts and whenever that row moves.

use super::{Graph, NewResult, Outcome, Want};
use crate::domain::json::{Canonical, Value, parse};
use crate::domain::payload::cut;
use crate::domain::words::{Holder, TaskKind, TaskStatus};
use crate::domain::{PublicId, TaskNo};
use crate::engine::expire;
use crate::engine::facts::{Seen, Selection, Task};

/// How much of a call's input its reader is shown.
const CALL_BYTES: usize = 200;
/// How many characters of a brief its reader is shown.
const PROMPT_CHARS: usize = 80;

impl Graph {
    /// Judges the waits that started, and those that observe rows which settled.
    pub(super) fn judge_waits(&mut self) -> Option<Want> {
        if !self.moved.is_empty() {
            let moved = std::mem::take(&mut self.moved);
            let mut observed: Vec<TaskNo> =
                moved.iter().map(|no| self.loaded(*no).lineage).collect();
            observed.sort_unstable();
            observed.dedup();
            let here = self.tasks.values().filter(|t| {
                is_parked_wait(t) && t.observes.is_some_and(|no| observed.contains(&no))
            });
            let here: Vec<TaskNo> = here.map(|t| t.no).collect();
            self.watching.extend(here);
            if self.run.counts.waits > 0 {
                return Some(Want::Watchers(observed));
            }
        }
        while let Some(wait) = self.watching.first().copied() {
            let task = self.loaded(wait);
            let target = task.observes.filter(|_| is_parked_wait(task));
            if let Some(target) = target
                && let Some(want) = self.judge_wait(wait, target)
            {
                return Some(want);
            }
            self.watching.remove(&wait);
        }
        None
    }

    fn judge_wait(&mut self, wait: TaskNo, target: TaskNo) -> Option<Want> {
        let Some(authored) = self.tasks.get(&target) else {
            return Some(Want::Observed(vec![target]));
        };
        let Some(tip) = self.tasks.get(&authored.tip) else {
            return Some(Want::Observed(vec![authored.tip]));
        };
        if !tip.status.is_terminal() {
            return None;
        }
        let tip = tip.no;
        if self
            .park(wait)
            .is_some_and(|park| expire::is_due(self, park))
        {
            // The deadline wins.
            expire::settle_due(self, wait);
            return None;
        }
        let read = match self.read_by_name(tip) {
            Ok(read) => read,
            Err(unseen) => return Some(Want::Observed(unseen)),
        };
        let run = self.run.public_id;
        let tip = self.loaded(tip);
        let key = self.loaded(target).key.clone();
        let (status, is_error) = (tip.status, tip.status != TaskStatus::Completed);
        let results = read.iter().map(|(task, seen)| envelope(run, task, seen));
        let structured = Value::from([
            ("run_public_id", run.to_string().into()),
            ("task", key.as_str().into()),
            ("status", status.shown().into()),
            ("results", Value::Array(results.collect())),
        ]);
        let texts: Vec<String> = read.iter().map(|(task, seen)| told(task, seen)).collect();
        let block = Value::from([("type", "text".into()), ("text", texts.join("\n").into())]);
        let mut result = NewResult::empty(wait, self.loaded(wait).generation);
        let stored = "stored values are storable again";
        result.content = Some(Value::Array(vec![block]).canonical().expect(stored));
        result.structured = Some(structured.canonical().expect(stored));
        let outcome = Outcome {
            is_error,
            ..Outcome::default()
        };
        self.settle(wait, TaskStatus::Completed, outcome);
        self.store_result(result);
        None
    }

    /// What a row reads by that name (`engine.md` §6): its own result; of a race, what it selected,
    /// and then its failure if it failed. Or the rows whose bodies must be seen first.
    fn read_by_name(&self, no: TaskNo) -> Result<Vec<(Task, Seen)>, Vec<TaskNo>> {
        let task = self.loaded(no);
        let mut rows = Vec::new();
        let settled_race = task.kind == TaskKind::Join && task.status != TaskStatus::Canceled;
        if settled_race {
            let Some(selection) = self.selections.get(&no) else {
                return Err(vec![no]);
            };
            let selected = selection.selected.iter();
            let selected = selected.filter_map(|key| self.task_by_key(key.as_str()));
            // A key is that of the authored row: its answer is what stands for it.
            rows.extend(selected.map(|t| t.tip));
        }
        if !settled_race || task.status != TaskStatus::Completed {
            rows.push(no);
        }
        let unseen = rows.iter().copied();
        let unseen =
            unseen.filter(|no| !self.seen.contains_key(no) || !self.tasks.contains_key(no));
        let unseen: Vec<TaskNo> = unseen.collect();
        if !unseen.is_empty() {
            return Err(unseen);
        }
        Ok(rows.into_iter().map(|no| self.seen_now(no)).collect())
    }

    /// A loaded row's bodies, those of this transaction first.
    pub(in crate::engine) fn seen_of(&self, no: TaskNo) -> Seen {
        self.seen_now(no).1
    }

    /// What a loaded race or join selected.
    pub(in crate::engine) fn selection_of(&self, no: TaskNo) -> Option<&Selection> {
        self.selections.get(&no)
    }

    /// A row with its bodies, those of this transaction first.
    fn seen_now(&self, no: TaskNo) -> (Task, Seen) {
        let task = self.loaded(no).clone();
        let mut seen = self.seen.get(&no).cloned().unwrap_or_default();
        let of_row = |r: &&NewResult| r.task == no && r.generation == task.generation;
        if let Some(new) = self.changes.results.iter().find(of_row) {
            let text = |c: &Option<Canonical>| c.as_ref().map(|c| c.as_str().to_owned());
            seen.content = text(&new.content);
            seen.structured = text(&new.structured);
        }
        (task, seen)
    }
}

fn is_parked_wait(task: &Task) -> bool {
    task.kind == TaskKind::Await
        && task.holder == Some(Holder::Kernel)
        && task.status == TaskStatus::Dispatched
}

fn value(text: Option<&String>) -> Option<Value> {
    text.and_then(|t| parse(t.as_bytes()).ok())
}

/// The text blocks of a content, together.
fn text_of(content: &Value) -> String {
    let blocks = content.as_array().unwrap_or_default().iter();
    let texts = blocks.filter_map(|b| b.get("text").and_then(Value::as_str));
    texts.collect::<Vec<_>>().join("\n")
}

/// One result as an observation carries it (`operations.md` §6).
pub(in crate::engine) fn envelope(run: PublicId, task: &Task, seen: &Seen) -> Value {
    let content = value(seen.content.as_ref());
    let structured = value(seen.structured.as_ref());
    let error = task.error.as_ref().map_or(Value::Null, |e| {
        let mut members = vec![("key".to_owned(), Value::from(e.key.as_str()))];
        let detail = e.detail.as_deref();
        members.extend(detail.map(|d| ("detail".to_owned(), Value::from(d))));
        Value::Object(members.into_iter().collect())
    });
    Value::from([
        ("run_public_id", run.to_string().into()),
        ("task_key", task.key.as_str().into()),
        ("status", task.status.shown().into()),
        ("is_error", task.is_error.into()),
        ("error", error),
        ("output_present", content.is_some().into()),
        (
            "output",
            content.as_ref().map_or(Value::Null, |c| text_of(c).into()),
        ),
        ("content", content.unwrap_or(Value::Null)),
        ("structured_content_present", structured.is_some().into()),
        ("structured_content", structured.unwrap_or(Value::Null)),
    ])
}

/// The same as text (`orchestration.md` §8).
fn told(task: &Task, seen: &Seen) -> String {
    let brief = match task.kind {
        TaskKind::Tool => {
            let input = seen.tool_input.as_deref().unwrap_or("{}");
            let name = task.tool_name.as_deref().unwrap_or_default();
            format!(
                "<call>{}</call>\n",
                escaped(cut(&format!("{name} {input}"), CALL_BYTES))
            )
        }
        _ => {
            let definition = value(seen.definition.as_ref());
            let prompt = definition.as_ref().and_then(|d| d.get("prompt")?.as_str());
            let prompt = prompt.map(|p| p.chars().take(PROMPT_CHARS).collect::<String>());
            prompt.map_or_else(String::new, |p| {
                format!("<prompt>{}</prompt>\n", escaped(&p))
            })
        }
    };
    let output = value(seen.content.as_ref()).map(|c| text_of(&c));
    let body = match (&task.error, output) {
        (Some(error), _) => match &error.detail {
            Some(detail) => format!("{}: {detail}", error.key),
            None => error.key.clone(),
        },
        (None, Some(text)) if !text.is_empty() => text,
        _ => "(no output)".to_owned(),
    };
    let (key, status) = (&task.key, task.status.shown());
    format!(
        "<task_result task=\"{key}\" status=\"{status}\">\n{brief}{}\n</task_result>",
        escaped(&body)
    )
}

/// Text that cannot end or begin an envelope.
fn escaped(text: &str) -> String {
    let mut text = text.to_owned();
    for tag in ["</task_result", "</message", "<task_result ", "<message "] {
        text = text.replace(tag, &format!("&lt;{}", &tag[1..]));
    }
    text
}
