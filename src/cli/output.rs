//! How commands print: the server's JSON as it came, or columns for a person.

use std::io::{self, Write};

use super::Failure;
use super::watch::render::clean;
use crate::client::Answer;

/// Standard output in one of two ways.
pub(super) struct Output {
    pub(super) json: bool,
    /// Print nothing: the caller shows what it came to.
    pub(super) quiet: bool,
}

impl Output {
    /// Prints an answer: its body, or what `human` makes of it.
    pub(super) fn answer<T>(
        &self,
        answer: &Answer<T>,
        human: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        if !self.json {
            return line(&human(&answer.value));
        }
        match std::str::from_utf8(&answer.body) {
            Ok(body) if !body.trim().is_empty() => line(body),
            _ => line("{}"),
        }
    }

    /// Prints a text.
    pub(super) fn text(&self, text: &str) -> Result<(), Failure> {
        if self.quiet || text.is_empty() {
            return Ok(());
        }
        line(text)
    }
}

/// Prints a line; a reader that went away is a failure, not a panic.
pub(super) fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(())
}

/// Rows in columns under their headings; what has no value is `-`.
pub(super) fn table<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [Option<String>; N]>,
) -> String {
    let mut cells = vec![headings.map(str::to_owned)];
    for row in rows {
        cells.push(row.map(|cell| match cell {
            Some(text) if !text.is_empty() => clean(&text),
            _ => "-".to_owned(),
        }));
    }
    let mut widths = [0; N];
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in &cells {
        let mut text = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let pad = width - cell.chars().count();
            text.push_str(cell);
            text.push_str(&" ".repeat(pad + 2));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// One resource, a member a line; members without a value are left out.
pub(super) fn fields(members: &[(&str, Option<String>)]) -> String {
    let given = members
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let width = given.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for (name, value) in given {
        out.push_str(&format!("{name:width$}  {}\n", clean(value)));
    }
    out
}

/// The words after a page that is not the last.
pub(super) fn more(next_after: Option<&str>) -> String {
    match next_after {
        Some(cursor) => format!("more: --after {cursor}\n"),
        None => String::new(),
    }
}

/// Any value as text.
pub(super) fn text(value: &Option<impl ToString>) -> Option<String> {
    value.as_ref().map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_moves_the_cursor() {
        let rows = [
            [Some("a\x1b[2J".to_owned()), Some("x".to_owned())],
            [Some("longer one".to_owned()), None],
        ];
        assert_eq!(
            table(["id", "name"], rows),
            "id          name\na [2J       x\nlonger one  -\n"
        );
    }

    #[test]
    fn fields_without_a_value_are_left_out() {
        let fields = fields(&[
            ("id", Some("1".to_owned())),
            ("handle", None),
            ("status", Some("active".to_owned())),
        ]);
        assert_eq!(fields, "id      1\nstatus  active\n");
    }
}
