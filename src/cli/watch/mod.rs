//! `nexus runs watch`: follows a run until it has ended.
//!
//! The cable says when to look; the run is read over HTTP. Without the cable the feed is polled,
//! so nothing but time is lost. Progress frames are only shown, never kept.

mod asks;
pub mod render;
mod screen;
mod tree;

use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use self::render::{Known, Question};
use self::screen::Screen;
use crate::client::answers::{Run, Task};
use crate::client::cable::{self, Cable, Event, frames};
use crate::client::words::TaskKind;
use crate::client::{Client, Error, RetryPolicy};
use crate::domain::{Timestamp, Value};

/// Between two reads of the run, however many events come.
const READ_GAP: Duration = Duration::from_millis(100);
/// Polling while the cable is attached: a lost frame costs no more than this.
const POLL_ATTACHED: Duration = Duration::from_secs(5);
/// Polling while it is not.
const POLL_ALONE: Duration = Duration::from_secs(1);
/// Elapsed times go on even when nothing happens.
const REDRAW: Duration = Duration::from_secs(1);

/// How to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The live tree, or plain lines when standard output is no terminal.
    Tree,
    /// One JSON object a line: every event of the run's feed.
    Json,
}

/// Lines that somebody else wants shown, above the live tree.
pub type Notes = UnboundedReceiver<String>;

/// Follows a run on standard output until it has ended; answers it as it ended. `known` is what the
/// caller knows beforehand; `notes` are shown as they come.
///
/// # Errors
/// [`Error`] of a read that stays unanswered, or is refused; a closed standard output ends it too.
pub async fn follow(
    client: &Client,
    workspace: &str,
    run: &str,
    mode: Mode,
    known: Known,
    notes: Option<Notes>,
) -> Result<Run, Error> {
    let shown = Shown {
        screen: Screen::stdout(),
        mode,
        known,
        notes,
    };
    follow_on(shown, client, workspace, run).await
}

/// Where and how a run is shown.
struct Shown {
    screen: Screen,
    mode: Mode,
    known: Known,
    notes: Option<Notes>,
}

async fn follow_on(
    shown: Shown,
    client: &Client,
    workspace: &str,
    run: &str,
) -> Result<Run, Error> {
    let client = client.with_retry(RetryPolicy::default());
    let identifiers = [
        frames::run_channel(workspace, run, "events"),
        frames::run_channel(workspace, run, "progress"),
    ];
    let cable = cable::connect(&client, identifiers.to_vec(), cable::Options::default()).ok();
    let follower = Follower {
        first: client.run(workspace, run).await?.into_inner(),
        client: &client,
        workspace,
        run,
        mode: shown.mode,
        events_id: identifiers[0].clone(),
        cursor: None,
        attached: false,
        cable,
        known: shown.known,
        notes: shown.notes,
        screen: shown.screen,
        shown: None,
        asked: Vec::new(),
    };
    follower.follow().await
}

struct Follower<'a> {
    client: &'a Client,
    workspace: &'a str,
    run: &'a str,
    mode: Mode,
    events_id: String,
    cursor: Option<String>,
    attached: bool,
    cable: Option<Cable>,
    known: Known,
    notes: Option<Notes>,
    screen: Screen,
    first: Run,
    shown: Option<Run>,
    /// What was said to wait for a person, as it last stood.
    asked: Vec<String>,
}

/// What a wait came to.
enum Woke {
    /// The run may have changed.
    Changed,
    /// Only its picture has.
    Redraw,
    /// Nothing was heard for a while.
    Poll,
    /// Somebody has something to say.
    Note(String),
}

impl Follower<'_> {
    async fn follow(mut self) -> Result<Run, Error> {
        let mut run = self.first.clone();
        let mut read_at = Instant::now();
        let mut poll_at = Instant::now();
        loop {
            let run_over = run.status.is_terminal();
            if self.mode == Mode::Json {
                self.print_events().await?;
            }
            self.learn(&run).await;
            self.show(&run)?;
            if run_over {
                return Ok(run);
            }
            let changed = match self.wake(poll_at).await {
                Woke::Changed => true,
                Woke::Redraw => false,
                Woke::Note(text) => {
                    self.note(&text)?;
                    false
                }
                Woke::Poll => {
                    let every = if self.attached {
                        POLL_ATTACHED
                    } else {
                        POLL_ALONE
                    };
                    poll_at = Instant::now() + every;
                    self.mode == Mode::Json || self.has_news().await?
                }
            };
            if changed {
                tokio::time::sleep_until(read_at + READ_GAP).await;
                self.drain_cable();
                read_at = Instant::now();
                run = self
                    .client
                    .run(self.workspace, self.run)
                    .await?
                    .into_inner();
            }
        }
    }

    async fn wake(&mut self, poll_at: Instant) -> Woke {
        let redraw = Instant::now() + REDRAW;
        let terminal = self.screen.is_terminal() && self.mode == Mode::Tree;
        let (cable, notes) = (&mut self.cable, &mut self.notes);
        let pushed = async {
            match cable {
                Some(cable) => cable.next().await,
                None => std::future::pending().await,
            }
        };
        let noted = async {
            match notes {
                Some(notes) => notes.recv().await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            event = pushed => event,
            note = noted => {
                return note.map_or_else(|| {
                    self.notes = None;
                    Woke::Redraw
                }, Woke::Note);
            }
            () = tokio::time::sleep_until(poll_at) => return Woke::Poll,
            () = tokio::time::sleep_until(redraw), if terminal => return Woke::Redraw,
        };
        self.on_event(event)
    }

    fn on_event(&mut self, event: Option<Event>) -> Woke {
        match event {
            None => {
                self.cable = None;
                self.attached = false;
                Woke::Redraw
            }
            Some(Event::Confirmed(id)) if id == self.events_id => {
                self.attached = true;
                Woke::Changed
            }
            Some(Event::Message {
                identifier,
                message,
            }) => {
                if identifier == self.events_id {
                    return Woke::Changed;
                }
                self.on_frame(&message);
                Woke::Redraw
            }
            Some(Event::Lost { .. }) => {
                self.attached = false;
                Woke::Redraw
            }
            Some(_) => Woke::Redraw,
        }
    }

    fn on_frame(&mut self, message: &Value) {
        let text = |name: &str| {
            let member = message.get("frame")?.get(name)?;
            member.as_str().map(str::to_owned)
        };
        if text("type").as_deref() != Some("executor_progress") {
            return;
        }
        if let (Some(key), Some(tail)) = (text("task_key"), text("text_tail")) {
            self.known.progress.insert(key, tail);
        }
    }

    /// Takes what already waits, so that a burst of events costs one read.
    fn drain_cable(&mut self) {
        while let Some(event) = self.cable.as_mut().and_then(Cable::ready) {
            self.on_event(Some(event));
        }
    }

    /// Whether the feed has gone on since it was last read.
    async fn has_news(&mut self) -> Result<bool, Error> {
        let mut news = false;
        loop {
            let after = self.cursor.as_deref();
            let page = self
                .client
                .events(self.workspace, self.run, after, Some(200))
                .await?;
            let Some(last) = page.events.last() else {
                return Ok(news);
            };
            news = true;
            self.cursor = Some(last.cursor.clone());
        }
    }

    /// Reads what the run's document does not hold: what its questions ask, its barriers' terms.
    /// What cannot be read now is asked for at the next change.
    async fn learn(&mut self, run: &Run) {
        if self.mode == Mode::Json {
            return;
        }
        for task in run.tasks.iter().filter(|task| asks::is_open_await(task)) {
            if self.known.questions.contains_key(&task.key) {
                continue;
            }
            let read = self.client.task(self.workspace, self.run, &task.key).await;
            if let Ok(read) = read {
                let question = question(&read);
                self.known.questions.insert(task.key.clone(), question);
            }
        }
        let joins = run.tasks.iter().filter(|t| t.kind == TaskKind::Join);
        if joins
            .map(|t| &t.key)
            .all(|k| self.known.terms.contains_key(k))
        {
            return;
        }
        if let Ok(graph) = self.client.graph(self.workspace, self.run).await {
            let nodes = graph.into_inner().nodes.into_iter();
            let terms = nodes.filter_map(|node| Some((node.key, node.join?)));
            self.known.terms.extend(terms);
        }
    }

    async fn print_events(&mut self) -> Result<(), Error> {
        loop {
            let after = self.cursor.as_deref();
            let page = self
                .client
                .events(self.workspace, self.run, after, Some(200))
                .await?;
            let Some(last) = page.events.last() else {
                return Ok(());
            };
            self.cursor = Some(last.cursor.clone());
            let body = page.json();
            for event in body
                .get("events")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.line(&serde_json::to_string(event).unwrap_or_default())?;
            }
        }
    }

    fn show(&mut self, run: &Run) -> Result<(), Error> {
        if self.mode == Mode::Json {
            return Ok(());
        }
        if self.screen.is_terminal() {
            let look = self.screen.look();
            let text = render::render(run, &self.known, now(), look);
            return self.screen.draw(&text).map_err(output_gone);
        }
        for line in render::changes(self.shown.as_ref(), run, &self.known, now()) {
            self.line(&line)?;
        }
        let asked = render::asked(run, &self.known);
        for line in asked.iter().filter(|line| !self.asked.contains(line)) {
            self.screen.line(line).map_err(output_gone)?;
        }
        self.asked = asked;
        self.shown = Some(run.clone());
        Ok(())
    }

    fn note(&mut self, text: &str) -> Result<(), Error> {
        if self.mode == Mode::Json {
            return Ok(());
        }
        self.line(text)
    }

    fn line(&mut self, text: &str) -> Result<(), Error> {
        self.screen.line(text).map_err(output_gone)
    }
}

/// What an await asks a person; nothing for one that waits for another task.
fn question(task: &Task) -> Option<Question> {
    Some(Question {
        prompt: task.prompt.clone()?,
        options: task.options.clone().unwrap_or_default(),
    })
}

fn output_gone(e: std::io::Error) -> Error {
    Error::Setup(format!("standard output cannot be written: {e}"))
}

/// This machine's clock: it only shows how long something has been going on.
#[allow(
    clippy::disallowed_methods,
    reason = "shown to a person, decides nothing"
)]
pub fn now() -> Timestamp {
    chrono::Utc::now()
}

#[cfg(test)]
mod tests;
