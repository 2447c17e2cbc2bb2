//! What a file is, by its bytes, and what it may be called (`executor.md` §13).
//!
//! A type is only ever told from bytes: what a client claims is not trusted. Does not know where
//! bytes are kept, nor what a model accepts.
//!
//! Invariants: a filename has no path, no control character and at most [`NAME_BYTES`] bytes, and is
//! never empty; the extension of a file whose type is known as media is one of that type's.

/// How many bytes of a file's beginning tell its type.
pub const HEAD_BYTES: usize = 64;
/// The most bytes of a filename.
pub const NAME_BYTES: usize = 255;
/// The type of what nobody knows.
pub const UNKNOWN: &str = "application/octet-stream";
/// What a file is called that came without a usable name.
const UNNAMED: &str = "file";
/// The longest extension that a cut keeps, its dot included.
const EXTENSION_BYTES: usize = 16;

/// A type, the bytes that tell it, and the extensions it goes by, the usual one first.
struct Kind {
    content_type: &'static str,
    extensions: &'static [&'static str],
    marks: &'static [Mark],
}

/// All of these bytes at these places.
type Mark = &'static [(usize, &'static [u8])];

macro_rules! kinds {
    ($($content_type:literal: [$($extension:literal),+], $([$($at:literal $bytes:literal),+])|+;)*) => {
        &[$(Kind {
            content_type: $content_type,
            extensions: &[$($extension),+],
            marks: &[$(&[$(($at, $bytes)),+]),+],
        },)*]
    };
}

/// What is told apart: what models take and people look at, and the archives tools make.
const KINDS: &[Kind] = kinds! {
    "image/png": ["png"], [0 b"\x89PNG\r\n\x1a\n"];
    "image/jpeg": ["jpg", "jpeg", "jpe", "jfif"], [0 b"\xff\xd8\xff"];
    "image/gif": ["gif"], [0 b"GIF87a"] | [0 b"GIF89a"];
    "image/webp": ["webp"], [0 b"RIFF", 8 b"WEBP"];
    "image/bmp": ["bmp", "dib"], [0 b"BM", 6 b"\0\0\0\0"];
    "image/tiff": ["tiff", "tif"], [0 b"II*\0"] | [0 b"MM\0*"];
    "image/avif": ["avif"], [4 b"ftypavif"] | [4 b"ftypavis"];
    "image/heic": ["heic"], [4 b"ftypheic"] | [4 b"ftypheix"];
    "image/heif": ["heif"], [4 b"ftypmif1"] | [4 b"ftypmsf1"];
    "image/vnd.microsoft.icon": ["ico"], [0 b"\0\0\x01\0"];
    "application/pdf": ["pdf"], [0 b"%PDF-"];
    "audio/wav": ["wav"], [0 b"RIFF", 8 b"WAVE"];
    "audio/mpeg": ["mp3"], [0 b"ID3"] | [0 b"\xff\xfb"] | [0 b"\xff\xf3"];
    "audio/flac": ["flac"], [0 b"fLaC"];
    "audio/ogg": ["ogg", "oga", "opus"], [0 b"OggS"];
    "audio/mp4": ["m4a"], [4 b"ftypM4A "];
    "video/quicktime": ["mov", "qt"], [4 b"ftypqt  "];
    "video/mp4": ["mp4", "m4v"], [4 b"ftyp"];
    "video/webm": ["webm"], [0 b"\x1aE\xdf\xa3", 31 b"webm"] | [0 b"\x1aE\xdf\xa3", 24 b"webm"];
    "application/zip": ["zip"], [0 b"PK\x03\x04"] | [0 b"PK\x05\x06"];
    "application/gzip": ["gz"], [0 b"\x1f\x8b\x08"];
    "application/zstd": ["zst"], [0 b"\x28\xb5\x2f\xfd"];
};

impl Kind {
    fn of(head: &[u8]) -> Option<&'static Self> {
        KINDS
            .iter()
            .find(|kind| kind.marks.iter().any(|mark| fits(mark, head)))
    }

    /// Whether its extension is corrected: an archive may well be called `.docx` or `.jar`.
    fn is_media(&self) -> bool {
        !matches!(
            self.content_type,
            "application/zip" | "application/gzip" | "application/zstd"
        )
    }

    fn goes_by(&self, extension: &str) -> bool {
        self.extensions
            .iter()
            .any(|known| known.eq_ignore_ascii_case(extension))
    }
}

fn fits(mark: Mark, head: &[u8]) -> bool {
    mark.iter()
        .all(|(at, bytes)| head.get(*at..).is_some_and(|rest| rest.starts_with(bytes)))
}

/// The type that a file's first bytes ([`HEAD_BYTES`] are enough) tell, else [`UNKNOWN`].
pub fn detect(head: &[u8]) -> &'static str {
    Kind::of(head).map_or(UNKNOWN, |kind| kind.content_type)
}

/// The name under which a file that begins with `head` is kept: the last component of the claimed
/// name without control and direction characters, with the extension of its type if that is media,
/// cut to [`NAME_BYTES`] before its extension.
pub fn filename(claimed: &str, head: &[u8]) -> String {
    let last = claimed.rsplit(['/', '\\']).next().unwrap_or_default();
    let kept: String = last
        .chars()
        .filter(|c| !c.is_control() && !turns(*c))
        .map(|c| if r#"<>:"|?*"#.contains(c) { '-' } else { c })
        .collect();
    // Blanks and dots at the end are dropped by some file systems, which makes two names one.
    let kept = kept
        .trim_start()
        .trim_end_matches(|c: char| c.is_whitespace() || c == '.');
    let name = if kept.is_empty() { UNNAMED } else { kept };
    match Kind::of(head).filter(|kind| kind.is_media()) {
        Some(kind) => cut(&corrected(name, kind)),
        None => cut(name),
    }
}

/// Characters that change the direction of what follows: they can hide an extension.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Stem and extension; a leading dot begins no extension.
fn split(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(at) if at > 0 => (&name[..at], &name[at + 1..]),
        _ => (name, ""),
    }
}

fn corrected(name: &str, kind: &Kind) -> String {
    let (stem, extension) = split(name);
    if kind.goes_by(extension) {
        return name.to_owned();
    }
    // Another type's extension is wrong and goes; any other text behind a dot belongs to the name.
    let is_wrong = KINDS.iter().any(|other| other.goes_by(extension));
    let stem = if is_wrong { stem } else { name };
    format!("{stem}.{}", kind.extensions[0])
}

fn cut(name: &str) -> String {
    if name.len() <= NAME_BYTES {
        return name.to_owned();
    }
    let (stem, extension) = split(name);
    if extension.is_empty() || extension.len() >= EXTENSION_BYTES {
        return super::payload::cut(name, NAME_BYTES).to_owned();
    }
    let room = NAME_BYTES - extension.len() - 1;
    format!("{}.{extension}", super::payload::cut(stem, room))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    #[test]
    fn types_are_told_from_bytes() {
        let cases: &[(&[u8], &str)] = &[
            (PNG, "image/png"),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
            (b"GIF89a\x01\0", "image/gif"),
            (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
            (b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav"),
            (b"%PDF-1.7\n", "application/pdf"),
            (b"\0\0\0\x18ftypisom\0\0", "video/mp4"),
            (b"\0\0\0\x1cftypavif\0\0", "image/avif"),
            (b"PK\x03\x04\x14\0", "application/zip"),
            (b"<svg xmlns=\"http://www.w3.org/2000/svg\">", UNKNOWN),
            (b"<html><script>", UNKNOWN),
            (b"BMW is a maker of cars", UNKNOWN),
            (b"hello", UNKNOWN),
            (b"\x89PN", UNKNOWN),
            (b"", UNKNOWN),
        ];
        for (head, wanted) in cases {
            assert_eq!(detect(head), *wanted, "{head:?}");
        }
    }

    #[test]
    fn every_mark_lies_within_the_head() {
        for kind in KINDS {
            for (at, bytes) in kind.marks.iter().copied().flatten() {
                assert!(at + bytes.len() <= HEAD_BYTES, "{}", kind.content_type);
            }
        }
    }

    #[test]
    fn names_are_cleaned() {
        let cases: &[(&str, &[u8], &str)] = &[
            ("notes.txt", b"x", "notes.txt"),
            ("../../etc/passwd", b"x", "passwd"),
            (r"C:\temp\a.txt", b"x", "a.txt"),
            ("a\0b\r\nc.txt", b"x", "abc.txt"),
            ("photo\u{202e}gpj.exe", b"x", "photogpj.exe"),
            ("  spaced .txt. . ", b"x", "spaced .txt"),
            ("what?.txt", b"x", "what-.txt"),
            ("", b"x", "file"),
            ("..", b"x", "file"),
            ("dir/", b"x", "file"),
            (".env", b"x", ".env"),
            ("Grüße 你好.txt", b"x", "Grüße 你好.txt"),
        ];
        for (claimed, head, wanted) in cases {
            assert_eq!(filename(claimed, head), *wanted, "{claimed:?}");
        }
    }

    #[test]
    fn media_goes_by_an_extension_of_its_type() {
        let cases: &[(&str, &[u8], &str)] = &[
            ("shot.png", PNG, "shot.png"),
            ("SHOT.PNG", PNG, "SHOT.PNG"),
            ("shot.jpg", PNG, "shot.png"),
            ("shot", PNG, "shot.png"),
            ("shot.v2", PNG, "shot.v2.png"),
            ("evil.html", PNG, "evil.html.png"),
            (".png", PNG, ".png.png"),
            ("", PNG, "file.png"),
            ("a.jpeg", b"\xff\xd8\xff\xe0", "a.jpeg"),
            ("report.docx", b"PK\x03\x04", "report.docx"),
            ("unknown.png", b"hello", "unknown.png"),
        ];
        for (claimed, head, wanted) in cases {
            assert_eq!(filename(claimed, head), *wanted, "{claimed:?}");
        }
    }

    #[test]
    fn a_long_name_keeps_its_extension() {
        let name = filename(&format!("{}.txt", "ü".repeat(300)), b"x");
        assert!(
            name.len() <= NAME_BYTES && name.ends_with("ü.txt"),
            "{name}"
        );
        let name = filename(&"ü".repeat(300), PNG);
        assert!(
            name.len() <= NAME_BYTES && name.ends_with("ü.png"),
            "{name}"
        );
        assert_eq!(filename(&"a".repeat(300), b"x").len(), NAME_BYTES);
    }
}
