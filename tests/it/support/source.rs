//! The source of the program as text, for tests that keep its rules: comments and test modules
//! cut out, string literals apart from code.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// One file of `src`.
pub struct SourceFile {
    /// Relative to the repository: `src/http/router.rs`.
    pub path: String,
    /// The top-level module: `http`.
    pub module: String,
    /// Without comments and tests.
    pub text: String,
    /// The same, string literals emptied.
    pub code: String,
    /// The string literals.
    pub strings: Vec<String>,
}

/// Every file of `src` that is not a test; read once.
pub fn files() -> &'static [SourceFile] {
    static FILES: OnceLock<Vec<SourceFile>> = OnceLock::new();
    FILES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut paths = Vec::new();
        walk(&root.join("src"), &mut paths);
        paths.sort();
        paths
            .iter()
            .map(|path| read(root, path))
            .filter(|file| !is_test(&file.path))
            .collect()
    })
}

/// The files of one top-level module.
pub fn module(name: &str) -> Vec<&'static SourceFile> {
    files().iter().filter(|f| f.module == name).collect()
}

fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("src can be read") {
        let path = entry.expect("src can be read").path();
        if path.is_dir() {
            walk(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("/tests/") || path.starts_with("src/engine/sim")
}

fn read(root: &Path, path: &Path) -> SourceFile {
    let whole = std::fs::read_to_string(path).expect("a source file can be read");
    let path = path
        .strip_prefix(root)
        .expect("a file of src")
        .to_string_lossy()
        .replace('\\', "/");
    let module = path
        .trim_start_matches("src/")
        .split(['/', '.'])
        .next()
        .unwrap_or_default()
        .to_owned();
    let (text, code, strings) = split(without_tests(&whole));
    SourceFile {
        path,
        module,
        text,
        code,
        strings,
    }
}

/// Test modules stand last in their file.
fn without_tests(whole: &str) -> &str {
    whole
        .find("#[cfg(test)]\nmod ")
        .map_or(whole, |at| &whole[..at])
}

/// Text without comments, code without literals, literals.
fn split(source: &str) -> (String, String, Vec<String>) {
    let (mut text, mut code, mut strings) = (String::new(), String::new(), Vec::new());
    let mut rest = source;
    while !rest.is_empty() {
        // Nothing begins with another character.
        let plain = rest
            .find(['/', '"', '\'', 'r'])
            .filter(|at| *at > 0)
            .unwrap_or(if rest.starts_with(['/', '"', '\'', 'r']) {
                0
            } else {
                rest.len()
            });
        let taken = if plain > 0 {
            keep(&rest[..plain], &mut text, &mut code)
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if let Some((open, close)) = raw_string(rest) {
            literal(rest, open, close, &mut text, &mut code, &mut strings)
        } else if rest.starts_with('"') {
            literal(
                rest,
                1,
                closing_quote(rest),
                &mut text,
                &mut code,
                &mut strings,
            )
        } else {
            keep(
                &rest[..char_literal(rest).unwrap_or(1)],
                &mut text,
                &mut code,
            )
        };
        rest = &rest[taken..];
    }
    (text, code, strings)
}

fn keep(part: &str, text: &mut String, code: &mut String) -> usize {
    text.push_str(part);
    code.push_str(part);
    part.len()
}

/// Takes a literal whose content is `rest[open..close]`; gives the bytes taken.
fn literal(
    rest: &str,
    open: usize,
    close: usize,
    text: &mut String,
    code: &mut String,
    strings: &mut Vec<String>,
) -> usize {
    let end = (close + open).min(rest.len());
    strings.push(rest[open..close].to_owned());
    text.push_str(&rest[..end]);
    code.push_str("\"\"");
    // A raw opening has an `r` that the closing has not.
    if rest.starts_with('r') { end - 1 } else { end }
}

fn closing_quote(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    rest.len()
}

/// `r"`, `r#"`, …: where the content begins and ends.
fn raw_string(rest: &str) -> Option<(usize, usize)> {
    let hashes = rest.strip_prefix('r')?;
    let n = hashes.bytes().take_while(|b| *b == b'#').count();
    if hashes.as_bytes().get(n) != Some(&b'"') {
        return None;
    }
    let open = n + 2;
    let end = format!("\"{}", "#".repeat(n));
    let close = rest[open..].find(&end).map_or(rest.len(), |at| open + at);
    Some((open, close))
}

/// The length of a character literal, so that `'"'` opens no string; none for a lifetime.
fn char_literal(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    if inner.starts_with('\\') {
        return inner[1..].find('\'').map(|at| at + 3);
    }
    let c = inner.chars().next()?;
    inner[c.len_utf8()..]
        .starts_with('\'')
        .then(|| c.len_utf8() + 2)
}

#[test]
fn a_source_text_is_split_into_code_and_literals() {
    let source = r##"
        // SELECT in a comment
        let a = "x \" // no comment"; /* "none" */
        let b = r#"raw " one"#; let c = '"'; let d: &'static str = "";
    "##;
    let (text, code, strings) = split(source);
    assert_eq!(strings, [r#"x \" // no comment"#, r#"raw " one"#, ""]);
    assert!(!code.contains("raw") && !text.contains("SELECT") && !text.contains("none"));
    assert!(text.contains("raw \" one") && code.contains("let d: &'static str"));
}
