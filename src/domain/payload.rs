//! What a commit says: its content vocabulary, bounds and digest (`executor.md` §11).
//!
//! Reading is pure and total: a body gives a [`Submission`], whose payload may be refused. The
//! refusal is only spoken once the claim has been proven, so it is kept until then.

use sha2::{Digest, Sha256};

use super::ids::PublicId;
use super::json::{Canonical, Object, Unstorable, Value};
use super::words::Outcome;

/// The most blocks of one content.
pub const MAX_BLOCKS: usize = 32_768;
/// The most bytes of content and structured value, canonical.
pub const MAX_RESULT: usize = 1_048_576;
/// The most bytes of metadata, canonical.
pub const MAX_METADATA: usize = 65_536;
/// How many characters of a title are kept.
pub const TITLE_CHARS: usize = 200;
/// How many bytes of a failure's text are kept as its detail.
pub const DETAIL_BYTES: usize = 256;
/// The most bytes of a text that are shown as its preview.
pub const PREVIEW_BYTES: usize = 256;

/// How a link to a capture begins.
const UPLOADS: &str = "nexus://uploads/";

/// The capture that a stored block links, if it is a link.
pub fn linked_upload(block: &Value) -> Option<PublicId> {
    block
        .get("uri")?
        .as_str()?
        .strip_prefix(UPLOADS)?
        .parse()
        .ok()
}

/// Why a payload is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another word.
    #[error("outcome must be `completed` or `failed`")]
    InvalidOutcome,
    /// Another block type.
    #[error("content[{at}]: type must be `text` or `resource_link`")]
    UnsupportedContentKind {
        /// Which block.
        at: usize,
    },
    /// A bad shape.
    #[error("content{spot}")]
    InvalidContent {
        /// Which block and member, and what it takes.
        spot: String,
    },
    /// Too many blocks.
    #[error("content may have at most {MAX_BLOCKS} blocks")]
    TooManyContentBlocks,
    /// A link to what this executor may not bind.
    #[error("content[{at}]: uri must name a capture of this executor")]
    UnknownResultUpload {
        /// Which block.
        at: usize,
    },
    /// No object, or not storable.
    #[error("metadata must be a JSON object that can be stored: {0}")]
    InvalidMetadata(String),
    /// Too large.
    #[error("metadata may have at most {MAX_METADATA} bytes")]
    MetadataTooLarge,
    /// No string, or with U+0000.
    #[error("title must be a string without U+0000")]
    InvalidTitle,
    /// Another word.
    #[error("result_type must be absent or `complete`")]
    InvalidResultType,
    /// Too large.
    #[error("content and structured_content may have at most {MAX_RESULT} bytes together")]
    ResultTooLarge,
    /// What storage cannot hold: the one refusal that also settles the task.
    #[error("{0}")]
    ResultUnstorable(Unstorable),
}

impl Refusal {
    /// The word clients branch on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidOutcome => "invalid_outcome",
            Self::UnsupportedContentKind { .. } => "unsupported_content_kind",
            Self::InvalidContent { .. } => "invalid_content",
            Self::TooManyContentBlocks => "too_many_content_blocks",
            Self::UnknownResultUpload { .. } => "unknown_result_upload",
            Self::InvalidMetadata(_) => "invalid_metadata",
            Self::MetadataTooLarge => "metadata_too_large",
            Self::InvalidTitle => "invalid_title",
            Self::InvalidResultType => "invalid_result_type",
            Self::ResultTooLarge => "result_too_large",
            Self::ResultUnstorable(_) => "result_unstorable",
        }
    }
}

/// A link of a content, by the block that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Which block.
    pub at: usize,
    /// The upload it names.
    pub upload: PublicId,
}

/// A payload that was read and is within its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Whether the tool could run at all.
    pub outcome: Outcome,
    /// Whether it ran and errored; never with `failed`.
    pub is_error: bool,
    /// Blocks as stored; none when there is neither text nor link.
    pub content: Option<Canonical>,
    /// The text of all text blocks.
    pub text: String,
    /// Links, to be proven before they are bound.
    pub links: Vec<Link>,
    /// The structured value; absent is `None`, null is `Some("null")`.
    pub structured: Option<Canonical>,
    /// Title as stored.
    pub title: Option<String>,
    /// Metadata as stored.
    pub metadata: Option<Canonical>,
}

impl Payload {
    /// The detail of a failure: its text, cut to [`DETAIL_BYTES`] on a character boundary.
    pub fn failure_detail(&self) -> Option<String> {
        let text = cut(&self.text, DETAIL_BYTES);
        (!text.is_empty()).then(|| text.to_owned())
    }
}

/// The longest prefix of at most `bytes` bytes that ends between characters.
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A commit as it was submitted.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The links of its content, to be proven before anything that stands behind them is judged;
    /// or why outcome or content are refused.
    pub links: Result<Vec<Link>, Refusal>,
    /// What it says of the call, as far as that could be read.
    pub outcome: Option<Outcome>,
    /// What it says, or why that is refused.
    pub payload: Result<Payload, Refusal>,
    /// What an exact retry is recognised by; none when a value has no canonical form.
    pub digest: Option<[u8; 32]>,
}

impl Submission {
    /// Reads a body. `is_error` has been type-checked by the door.
    pub fn read(body: &Object) -> Self {
        let begun = read_outcome(body)
            .and_then(|outcome| Ok((outcome, read_blocks(given(body, "content"))?)));
        Self {
            outcome: read_outcome(body).ok(),
            links: begun
                .as_ref()
                .map(|(_, blocks)| blocks.links.clone())
                .map_err(Clone::clone),
            payload: begun.and_then(|(outcome, blocks)| read_payload(body, outcome, blocks)),
            digest: digest(body),
        }
    }
}

fn given<'a>(body: &'a Object, name: &str) -> Option<&'a Value> {
    body.get(name).filter(|v| !v.is_null())
}

/// SHA-256 of the canonical submission with its defaults filled in; null content, metadata and
/// title are absent, every other explicit null is a value of its own.
fn digest(body: &Object) -> Option<[u8; 32]> {
    let member = |name| given(body, name).cloned().unwrap_or(Value::Null);
    let defaulted = |name, default| body.get(name).cloned().unwrap_or(default);
    let present = body.contains_key("structured_content");
    let title = given(body, "title").filter(|t| t.as_str().is_none_or(|t| !t.trim().is_empty()));
    let value = Value::from([
        ("content", member("content")),
        (
            "structured_content",
            body.get("structured_content")
                .cloned()
                .unwrap_or(Value::Null),
        ),
        ("structured_content_present", present.into()),
        ("result_type", defaulted("result_type", "complete".into())),
        ("outcome", defaulted("outcome", "completed".into())),
        ("is_error", defaulted("is_error", false.into())),
        ("title", title.cloned().unwrap_or(Value::Null)),
        ("metadata", member("metadata")),
    ]);
    let text = value.digest_text().ok()?;
    Some(Sha256::digest(text.as_bytes()).into())
}

fn read_outcome(body: &Object) -> Result<Outcome, Refusal> {
    match body.get("outcome").map(Value::as_str) {
        None | Some(Some("completed")) => Ok(Outcome::Completed),
        Some(Some("failed")) => Ok(Outcome::Failed),
        Some(_) => Err(Refusal::InvalidOutcome),
    }
}

fn read_payload(body: &Object, outcome: Outcome, blocks: Blocks) -> Result<Payload, Refusal> {
    let is_error = body
        .get("is_error")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let metadata = read_metadata(given(body, "metadata"))?;
    let title = read_title(given(body, "title"))?;
    match body.get("result_type").map(Value::as_str) {
        None | Some(Some("complete")) => {}
        Some(_) => return Err(Refusal::InvalidResultType),
    }
    // What was submitted, not only what is stored of it: a digest covers all of it.
    if let Some(submitted) = given(body, "content") {
        submitted.canonical().map_err(Refusal::ResultUnstorable)?;
    }
    let content = (!blocks.stored.is_empty())
        .then(|| Value::Array(blocks.stored).canonical())
        .transpose()
        .map_err(Refusal::ResultUnstorable)?;
    let structured = body
        .get("structured_content")
        .map(Value::canonical)
        .transpose()
        .map_err(Refusal::ResultUnstorable)?;
    let size =
        content.as_ref().map_or(0, Canonical::len) + structured.as_ref().map_or(0, Canonical::len);
    if size > MAX_RESULT {
        return Err(Refusal::ResultTooLarge);
    }
    Ok(Payload {
        outcome,
        is_error: is_error && outcome == Outcome::Completed,
        content,
        text: blocks.text,
        links: blocks.links,
        structured,
        title,
        metadata,
    })
}

#[derive(Default)]
struct Blocks {
    stored: Vec<Value>,
    text: String,
    links: Vec<Link>,
}

fn invalid(at: usize, what: &str) -> Refusal {
    Refusal::InvalidContent {
        spot: format!("[{at}]{what}"),
    }
}

fn read_blocks(content: Option<&Value>) -> Result<Blocks, Refusal> {
    let mut blocks = Blocks::default();
    match content {
        None => {}
        Some(Value::Str(text)) => push_text(&mut blocks, text),
        Some(Value::Array(items)) if items.len() > MAX_BLOCKS => {
            return Err(Refusal::TooManyContentBlocks);
        }
        Some(Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                read_block(&mut blocks, at, item)?;
            }
        }
        Some(_) => {
            let spot = " must be a string or an array of blocks".to_owned();
            return Err(Refusal::InvalidContent { spot });
        }
    }
    Ok(blocks)
}

fn push_text(blocks: &mut Blocks, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    blocks.text.push_str(text);
    blocks.stored.push(Value::from([
        ("text", text.into()),
        ("type", "text".into()),
    ]));
}

fn read_block(blocks: &mut Blocks, at: usize, item: &Value) -> Result<(), Refusal> {
    let block = item
        .as_object()
        .ok_or_else(|| invalid(at, " must be an object"))?;
    match block.get("type").map(Value::as_str) {
        Some(Some("text")) => {
            let text = block.get("text").and_then(Value::as_str);
            push_text(
                blocks,
                text.ok_or_else(|| invalid(at, ".text must be a string"))?,
            );
            Ok(())
        }
        Some(Some("resource_link")) => {
            let (link, stored) = read_link(at, block)?;
            blocks.links.push(link);
            blocks.stored.push(stored);
            Ok(())
        }
        Some(Some(_)) => Err(Refusal::UnsupportedContentKind { at }),
        Some(None) | None => Err(invalid(at, ".type must be `text` or `resource_link`")),
    }
}

fn read_link(at: usize, block: &Object) -> Result<(Link, Value), Refusal> {
    let upload = block
        .get("uri")
        .and_then(Value::as_str)
        .and_then(|uri| uri.strip_prefix(UPLOADS))
        .and_then(|id| id.parse::<PublicId>().ok())
        .ok_or_else(|| invalid(at, ".uri must be nexus://uploads/ and the id of a capture"))?;
    let name = block
        .get("name")
        .and_then(Value::as_str)
        .filter(|name| !name.trim().is_empty())
        .ok_or_else(|| invalid(at, ".name must be a string that is not blank"))?;
    let mut stored = Object::new();
    stored.insert("type".to_owned(), "resource_link".into());
    stored.insert("uri".to_owned(), format!("{UPLOADS}{upload}").into());
    stored.insert("name".to_owned(), name.into());
    for option in ["mimeType", "title", "description"] {
        match given(block, option) {
            None => {}
            Some(Value::Str(text)) => {
                stored.insert(option.to_owned(), text.as_str().into());
            }
            Some(_) => return Err(invalid(at, &format!(".{option} must be a string"))),
        }
    }
    match given(block, "size") {
        None => {}
        Some(size) if size.as_i64().is_some_and(|n| n >= 0) => {
            stored.insert("size".to_owned(), size.clone());
        }
        Some(_) => return Err(invalid(at, ".size must be an integer that is not negative")),
    }
    Ok((Link { at, upload }, Value::Object(stored)))
}

fn read_metadata(value: Option<&Value>) -> Result<Option<Canonical>, Refusal> {
    let Some(value) = value else { return Ok(None) };
    if value.as_object().is_none() {
        return Err(Refusal::InvalidMetadata("it is no object".to_owned()));
    }
    let text = value
        .canonical()
        .map_err(|e| Refusal::InvalidMetadata(e.to_string()))?;
    if text.len() > MAX_METADATA {
        return Err(Refusal::MetadataTooLarge);
    }
    Ok(Some(text))
}

fn read_title(value: Option<&Value>) -> Result<Option<String>, Refusal> {
    let Some(value) = value else { return Ok(None) };
    let title = value
        .as_str()
        .filter(|t| !t.contains('\0'))
        .ok_or(Refusal::InvalidTitle)?;
    let kept: String = title.chars().take(TITLE_CHARS).collect();
    Ok((!kept.trim().is_empty()).then_some(kept))
}
