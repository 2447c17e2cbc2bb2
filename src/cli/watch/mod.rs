//! `nexus runs watch`: follows a run until it has ended.
//!
//! The cable says when to look; the run is read over HTTP. Without the cable the feed is polled,
//! so nothing but time is lost. Progress frames are only shown, never kept.

pub mod render;
mod screen;
mod tree;

use std::time::Duration;

use tokio::time::Instant;

use self::render::Progress;
use self::screen::Screen;
use crate::client::answers::Run;
use crate::client::cable::{self, Cable, Event, frames};
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

/// Follows a run on standard output until it has ended; answers it as it ended.
///
/// # Errors
/// [`Error`] of a read that stays unanswered, or is refused; a closed standard output ends it too.
pub async fn follow(client: &Client, workspace: &str, run: &str, mode: Mode) -> Result<Run, Error> {
    follow_on(Screen::stdout(), client, workspace, run, mode).await
}

async fn follow_on(
    screen: Screen,
    client: &Client,
    workspace: &str,
    run: &str,
    mode: Mode,
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
        mode,
        events_id: identifiers[0].clone(),
        cursor: None,
        attached: false,
        cable,
        progress: Progress::new(),
        screen,
        shown: None,
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
    progress: Progress,
    screen: Screen,
    first: Run,
    shown: Option<Run>,
}

/// What a wait came to.
enum Woke {
    /// The run may have changed.
    Changed,
    /// Only its picture has.
    Redraw,
    /// Nothing was heard for a while.
    Poll,
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
            self.show(&run)?;
            if run_over {
                return Ok(run);
            }
            let changed = match self.wake(poll_at).await {
                Woke::Changed => true,
                Woke::Redraw => false,
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
        let Some(cable) = &mut self.cable else {
            tokio::time::sleep_until(poll_at).await;
            return Woke::Poll;
        };
        tokio::select! {
            event = cable.next() => self.on_event(event),
            () = tokio::time::sleep_until(poll_at) => Woke::Poll,
            () = tokio::time::sleep_until(redraw), if terminal => Woke::Redraw,
        }
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
            self.progress.insert(key, tail);
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
            let text = render::render(run, &self.progress, now(), look);
            return self.screen.draw(&text).map_err(output_gone);
        }
        for line in render::changes(self.shown.as_ref(), run, now()) {
            self.line(&line)?;
        }
        self.shown = Some(run.clone());
        Ok(())
    }

    fn line(&mut self, text: &str) -> Result<(), Error> {
        self.screen.line(text).map_err(output_gone)
    }
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
