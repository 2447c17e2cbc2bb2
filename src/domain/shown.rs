//! How a client's own word is told back to it: in paths and sentences of errors, which carry no raw
//! input (`conventions.md` §4).

/// The most characters of it.
const CHARACTERS: usize = 64;

/// The word, cut, and without control characters: a body that holds it can always be written.
pub fn shown(word: &str) -> String {
    let clean = word.chars().filter(|c| !c.is_control());
    clean.take(CHARACTERS).collect()
}
