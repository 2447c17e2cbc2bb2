//! Where a live drawing goes: redrawn in place on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use super::render::Look;

/// How old a measured terminal size may be.
const MEASURED_FOR: Duration = Duration::from_secs(2);

/// A place to draw.
pub struct Screen {
    out: Box<dyn Write + Send>,
    terminal: bool,
    drawn: usize,
    size: (usize, usize),
    measured: Option<Instant>,
}

impl Screen {
    /// Standard output, whatever it is.
    pub fn stdout() -> Self {
        Self::to(Box::new(io::stdout()), io::stdout().is_terminal())
    }

    /// Any writer; a `terminal` is redrawn in place.
    pub fn to(out: Box<dyn Write + Send>, terminal: bool) -> Self {
        Self {
            out,
            terminal,
            drawn: 0,
            size: (80, 24),
            measured: None,
        }
    }

    /// Whether drawings are replaced in place.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// How to draw here now.
    pub fn look(&mut self) -> Look {
        if self.measured.is_none_or(|at| at.elapsed() > MEASURED_FOR) {
            self.size = measure().unwrap_or(self.size);
            self.measured = Some(Instant::now());
        }
        let (width, height) = self.size;
        Look {
            color: std::env::var_os("NO_COLOR").is_none(),
            width,
            // The last line is the cursor's.
            height: height.saturating_sub(1).max(3),
        }
    }

    /// Replaces what was drawn before.
    ///
    /// # Errors
    /// Whatever the writer answers.
    pub fn draw(&mut self, text: &str) -> io::Result<()> {
        if self.drawn == 0 {
            write!(self.out, "\x1b[?25l")?;
        } else {
            write!(self.out, "\x1b[{}F\x1b[0J", self.drawn)?;
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        self.drawn = text.lines().count();
        Ok(())
    }

    /// Prints a line that stays; what was drawn is taken away, and drawn again below it.
    ///
    /// # Errors
    /// Whatever the writer answers.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        if self.drawn > 0 {
            write!(self.out, "\x1b[{}F\x1b[0J\x1b[?25h", self.drawn)?;
            self.drawn = 0;
        }
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }
}

impl Drop for Screen {
    /// Gives the cursor back.
    fn drop(&mut self) {
        if self.drawn > 0 {
            let _ = write!(self.out, "\x1b[?25h");
            let _ = self.out.flush();
        }
    }
}

/// Columns and lines, from `stty` (there on every system this runs on).
fn measure() -> Option<(usize, usize)> {
    let mut stty = Command::new("stty");
    stty.arg("size").stderr(Stdio::null());
    if let Ok(tty) = std::fs::File::open("/dev/tty") {
        stty.stdin(tty);
    }
    let out = stty.output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(out.stdout).ok()?;
    let (lines, columns) = text.trim().split_once(' ')?;
    let size = (columns.parse().ok()?, lines.parse().ok()?);
    (size.0 > 0 && size.1 > 0).then_some(size)
}
