//! Opaque cursors of lists (`conventions.md` §7): which list (kind, direction, host), and where in
//! it. Every list's cursors are written and read here; a position is whatever its list finds a row
//! by: a number that is public, an id, a look-up part.

use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The most characters of a cursor, whose text is `1:{list}/{position}`: no list's name has a `/`.
const LONGEST: usize = 512;

/// The cursor of a position of that list.
pub fn write(list: &str, position: impl Display) -> String {
    URL_SAFE_NO_PAD.encode(format!("1:{list}/{position}"))
}

/// The position that a cursor of that list holds; none of another list's, or of no cursor.
pub fn read(text: &str, list: &str) -> Option<String> {
    if text.len() > LONGEST {
        return None;
    }
    let plain = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let position = plain
        .strip_prefix("1:")?
        .strip_prefix(list)?
        .strip_prefix('/')?;
    (!position.is_empty()).then(|| position.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_of_one_list() {
        let cursor = write("runs:asc:w1", 17);
        assert_eq!(read(&cursor, "runs:asc:w1").as_deref(), Some("17"));
        for other in ["runs:desc:w1", "runs:asc:w2", "runs:asc:w", "runs", ""] {
            assert_eq!(read(&cursor, other), None, "{other}");
        }
        let long = URL_SAFE_NO_PAD.encode(format!("1:l/{}", "9".repeat(500)));
        let blank = write("l", "");
        for junk in ["", "17", "!", "MTpsLw==", blank.as_str(), long.as_str()] {
            assert_eq!(read(junk, "l"), None, "{junk}");
        }
    }
}
