//! What an executor says it serves: tools, environment, documents (`executor.md` §4).
//!
//! Pure: a body in, an [`Announcement`] or the first reason against it out. Does not know who
//! announces, where it is stored, or what a name is offered to.
//!
//! Invariants: whatever is in an [`Announcement`] can be stored as it is; every refusal names the
//! spot (`tools[1].name …`) and never repeats what was sent; a present member of the wrong shape
//! is refused, never dropped.

use std::collections::BTreeSet;

use super::effect_profile::EffectProfile;
use super::json::{Canonical, Object, Unstorable, Value};

/// The most bytes of canonical JSON that each of the three lists may have.
pub const PART_BYTES: usize = 65_536;
/// The most that a tool's own budget may be: seven days.
pub const TIMEOUT_MS: i64 = 604_800_000;
/// The most bytes of a document's description.
pub const DOCUMENT_DESCRIPTION_BYTES: usize = 1_024;
const NAME_CHARACTERS: usize = 64;

/// Namespaces that belong to the kernel, in dotted spelling.
const RESERVED_NAMESPACES: &[&str] = &[
    "nexus.graph",
    "nexus.human",
    "nexus.conversation",
    "nexus.tools",
    "nexus.runners",
];

/// Names of the kernel's own tools as models see them.
const RESERVED_NAMES: &[&str] = &[
    "delegate_task",
    "ask",
    "spawn",
    "send",
    "wait",
    "tool_search",
    "tool_call",
    "runners_list",
    "session_search",
    "session_read",
];

/// Everything an executor serves; an announcement replaces all of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Announcement {
    /// Tools, in the announced order; names are unique.
    pub tools: Vec<Tool>,
    /// An opaque object.
    pub environment: Canonical,
    /// An array of `{name, description}`; names are unique.
    pub documents: Canonical,
}

/// A served tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// What it says of its effects.
    pub effect_profile: EffectProfile,
    /// Its own budget, 1 ms to seven days.
    pub timeout_ms: Option<i64>,
    /// What a model reads; not blank.
    pub description: Option<String>,
    /// A JSON schema of type `object`, verbatim; calls are never judged by it.
    pub input_schema: Option<Canonical>,
}

/// Why a body is no announcement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// `tools` is absent.
    #[error("tools is required")]
    ToolsMissing,
    /// A part holds a value that no column can.
    #[error("{why}")]
    Unstorable {
        /// `tools`, `environment` or `documents`.
        part: &'static str,
        /// The fixed sentence.
        why: Unstorable,
    },
    /// A rule of the table is broken; the message starts with the spot.
    #[error("{0}")]
    Invalid(String),
    /// A name belongs to the kernel; the message starts with the spot.
    #[error("{0}")]
    Reserved(String),
    /// A part is too large.
    #[error("{part} must have at most {PART_BYTES} bytes of canonical JSON")]
    TooLarge {
        /// `tools`, `environment` or `documents`.
        part: &'static str,
    },
}

impl Refused {
    /// The word that clients branch on.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ToolsMissing => "parameter_missing",
            Self::Unstorable { .. } => "parameter_invalid",
            Self::Invalid(_) => "invalid_announcement",
            Self::Reserved(_) => "reserved_namespace",
            Self::TooLarge { .. } => "validation_failed",
        }
    }
}

fn invalid<T>(message: String) -> Result<T, Refused> {
    Err(Refused::Invalid(message))
}

/// Whether a tool's name belongs to the kernel, in wire or dotted spelling.
pub fn is_reserved(name: &str) -> bool {
    let in_namespace = |space: &&str| {
        name.strip_prefix(*space)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    RESERVED_NAMES.contains(&name) || RESERVED_NAMESPACES.iter().any(in_namespace)
}

/// Reads an announcement. Members beside `tools`, `environment` and `documents` are ignored.
///
/// # Errors
/// [`Refused`]: a missing `tools` first, then what cannot be stored, then shapes in the order
/// tools, environment, documents, then sizes.
pub fn parse(body: &Object) -> Result<Announcement, Refused> {
    let tools = body.get("tools").ok_or(Refused::ToolsMissing)?;
    let environment = body.get("environment");
    let documents = body.get("documents");
    let sizes = [
        (Some(tools), "tools"),
        (environment, "environment"),
        (documents, "documents"),
    ]
    .map(|(value, part)| Ok::<_, Refused>((canonical(value, part)?.len(), part)));
    let sizes: Vec<_> = sizes.into_iter().collect::<Result<_, _>>()?;
    let announcement = Announcement {
        tools: parse_tools(tools)?,
        environment: parse_environment(environment)?,
        documents: parse_documents(documents)?,
    };
    match sizes.iter().find(|(size, _)| *size > PART_BYTES) {
        Some((_, part)) => Err(Refused::TooLarge { part }),
        None => Ok(announcement),
    }
}

fn canonical(value: Option<&Value>, part: &'static str) -> Result<Canonical, Refused> {
    value
        .unwrap_or(&Value::Null)
        .canonical()
        .map_err(|why| Refused::Unstorable { part, why })
}

/// The text of a value that [`parse`] has measured already.
fn measured(value: &Value) -> Canonical {
    value
        .canonical()
        .expect("a part that was measured can be stored")
}

fn parse_tools(value: &Value) -> Result<Vec<Tool>, Refused> {
    let Some(items) = value.as_array() else {
        return invalid("tools must be an array of tools; [] serves none".to_owned());
    };
    let mut names = BTreeSet::new();
    items
        .iter()
        .enumerate()
        .map(|(i, item)| {
            let tool = parse_tool(&format!("tools[{i}]"), item)?;
            if names.insert(tool.name.clone()) {
                Ok(tool)
            } else {
                invalid(format!(
                    "tools[{i}].name is in the list already; names are unique"
                ))
            }
        })
        .collect()
}

fn object<'a>(at: &str, value: &'a Value) -> Result<&'a Object, Refused> {
    match value.as_object() {
        Some(members) => Ok(members),
        None => invalid(format!("{at} must be an object")),
    }
}

fn parse_tool(at: &str, value: &Value) -> Result<Tool, Refused> {
    let members = object(at, value)?;
    Ok(Tool {
        name: tool_name(at, members.get("name"))?,
        effect_profile: effect_profile(at, members.get("effect_profile"))?,
        timeout_ms: members
            .get("timeout_ms")
            .map(|v| timeout(at, v))
            .transpose()?,
        description: members
            .get("description")
            .map(|v| text_that_says_something(at, v))
            .transpose()?,
        input_schema: members
            .get("input_schema")
            .map(|v| input_schema(at, v))
            .transpose()?,
    })
}

/// Reserved names come before the format: a dotted kernel name is told what it is.
fn tool_name(at: &str, value: Option<&Value>) -> Result<String, Refused> {
    let takes = "must be 1 to 64 letters, digits, `_` or `-`";
    let Some(name) = value.and_then(Value::as_str) else {
        return invalid(format!("{at}.name {takes}"));
    };
    if is_reserved(name) {
        return Err(Refused::Reserved(format!(
            "{at}.name belongs to the kernel; choose a name outside its namespaces"
        )));
    }
    let fits = (1..=NAME_CHARACTERS).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if fits {
        Ok(name.to_owned())
    } else {
        invalid(format!("{at}.name {takes}"))
    }
}

/// The five members of a profile and the words each takes; `destructive` takes a flag.
const PROFILE: [(&str, &[&str]); 5] = [
    ("kind", &["pure", "read_only", "write"]),
    ("destructive", &[]),
    ("effect_scope", &["closed", "open"]),
    ("idempotency", &["intrinsic", "keyed", "none"]),
    ("reconciliation", &["none", "lookup"]),
];

fn effect_profile(at: &str, value: Option<&Value>) -> Result<EffectProfile, Refused> {
    let at = format!("{at}.effect_profile");
    let takes = "takes exactly kind, destructive, effect_scope, idempotency and reconciliation";
    let Some(value) = value else {
        return invalid(format!("{at} is required: it {takes}"));
    };
    let members = object(&at, value)?;
    let is_known = |name: &String| PROFILE.iter().any(|(known, _)| known == name);
    if members.len() != PROFILE.len() || !members.keys().all(is_known) {
        return invalid(format!("{at} {takes}"));
    }
    for (name, words) in PROFILE {
        let member = &members[name];
        if words.is_empty() && member.as_bool().is_none() {
            return invalid(format!("{at}.{name} must be true or false"));
        }
        if !words.is_empty() && !member.as_str().is_some_and(|w| words.contains(&w)) {
            return invalid(format!("{at}.{name} must be one of: {}", words.join(", ")));
        }
    }
    EffectProfile::from_value(value).or_else(|_| invalid(format!("{at} {takes}")))
}

fn timeout(at: &str, value: &Value) -> Result<i64, Refused> {
    match value.as_i64().filter(|ms| (1..=TIMEOUT_MS).contains(ms)) {
        Some(ms) => Ok(ms),
        None => invalid(format!(
            "{at}.timeout_ms must be an integer from 1 to {TIMEOUT_MS}"
        )),
    }
}

fn text_that_says_something(at: &str, value: &Value) -> Result<String, Refused> {
    match value.as_str().filter(|text| !text.trim().is_empty()) {
        Some(text) => Ok(text.to_owned()),
        None => invalid(format!("{at}.description must be a text that is not blank")),
    }
}

fn input_schema(at: &str, value: &Value) -> Result<Canonical, Refused> {
    match value.get("type").and_then(Value::as_str) {
        Some("object") => Ok(measured(value)),
        _ => invalid(format!(
            "{at}.input_schema must be an object whose type is \"object\""
        )),
    }
}

fn parse_environment(value: Option<&Value>) -> Result<Canonical, Refused> {
    let Some(value) = value else {
        return Ok(Canonical::trusted("{}".to_owned()));
    };
    object("environment", value)?;
    Ok(measured(value))
}

fn parse_documents(value: Option<&Value>) -> Result<Canonical, Refused> {
    let Some(value) = value else {
        return Ok(Canonical::trusted("[]".to_owned()));
    };
    let Some(items) = value.as_array() else {
        return invalid("documents must be an array of documents".to_owned());
    };
    let mut names = BTreeSet::new();
    let kept: Vec<Value> = items
        .iter()
        .enumerate()
        .map(|(i, item)| document(i, item, &mut names))
        .collect::<Result<_, _>>()?;
    Ok(measured(&Value::Array(kept)))
}

/// Keeps the name and the description; other members of an entry are dropped.
fn document<'a>(
    i: usize,
    value: &'a Value,
    names: &mut BTreeSet<&'a str>,
) -> Result<Value, Refused> {
    let at = format!("documents[{i}]");
    let members = object(&at, value)?;
    let name = members.get("name").and_then(Value::as_str);
    let Some(name) = name.filter(|name| is_document_name(name)) else {
        return invalid(format!(
            "{at}.name must be groups of lower-case letters and digits joined by single hyphens, \
             at most 64 characters"
        ));
    };
    if !names.insert(name) {
        return invalid(format!(
            "{at}.name is in the list already; names are unique"
        ));
    }
    let description = members.get("description").and_then(Value::as_str);
    let fits = |text: &&str| !text.trim().is_empty() && text.len() <= DOCUMENT_DESCRIPTION_BYTES;
    let Some(description) = description.filter(fits) else {
        return invalid(format!(
            "{at}.description must be a text that is not blank, at most {DOCUMENT_DESCRIPTION_BYTES} bytes"
        ));
    };
    Ok(Value::from([
        ("name", name.into()),
        ("description", description.into()),
    ]))
}

fn is_document_name(name: &str) -> bool {
    name.len() <= NAME_CHARACTERS
        && name.split('-').all(|group| {
            !group.is_empty()
                && group
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json;

    const PROFILE: &str = r#"{"kind":"read_only","destructive":false,"effect_scope":"closed","idempotency":"intrinsic","reconciliation":"none"}"#;

    fn read(text: &str) -> Result<Announcement, Refused> {
        match json::parse(text.as_bytes()).unwrap() {
            Value::Object(body) => parse(&body),
            other => panic!("{other:?}"),
        }
    }

    /// One tool with these members beside its profile.
    fn tool(members: &str) -> String {
        format!(r#"{{"tools":[{{"effect_profile":{PROFILE},{members}}}]}}"#)
    }

    /// A second tool with that profile, behind a good one.
    fn profile(text: &str) -> String {
        format!(
            r#"{{"tools":[{{"name":"ok","effect_profile":{PROFILE}}},{{"name":"b","effect_profile":{text}}}]}}"#
        )
    }

    fn refuses(body: &str, code: &str, start: &str) {
        let refused = read(body).unwrap_err();
        assert_eq!(refused.code(), code, "{body}: {refused}");
        let message = refused.to_string();
        assert!(message.starts_with(start), "{body}: {message}");
    }

    #[test]
    fn the_example_of_the_specification_reads() {
        let read = read(&format!(
            r#"{{"tools":[{{"name":"read_file","effect_profile":{PROFILE},"timeout_ms":30000,"description":"Read one file",
                "input_schema":{{"type":"object","properties":{{"path":{{"type":"string"}}}}}}}}],
              "environment":{{"root":"/w"}},"documents":[{{"name":"deploy-notes","description":"How releases go out"}}]}}"#
        ))
        .unwrap();
        assert_eq!(read.tools[0].timeout_ms, Some(30_000));
        assert!(read.tools[0].effect_profile.is_replayable());
        assert_eq!(read.environment.as_str(), r#"{"root":"/w"}"#);
        assert_eq!(
            read.documents.as_str(),
            r#"[{"description":"How releases go out","name":"deploy-notes"}]"#
        );
    }

    #[test]
    fn what_is_left_out_is_empty_and_unknown_members_are_dropped() {
        let empty = read(r#"{"tools":[],"more":1}"#).unwrap();
        assert!(empty.tools.is_empty());
        assert_eq!(empty.environment.as_str(), "{}");
        assert_eq!(empty.documents.as_str(), "[]");
        let extra = read(r#"{"tools":[],"documents":[{"name":"a","description":"b","body":"c"}]}"#);
        assert_eq!(
            extra.unwrap().documents.as_str(),
            r#"[{"description":"b","name":"a"}]"#
        );
    }

    #[test]
    fn the_lists_have_their_shapes() {
        refuses("{}", "parameter_missing", "tools is required");
        for body in [r#"{"tools":{}}"#, r#"{"tools":null}"#, r#"{"tools":"x"}"#] {
            refuses(body, "invalid_announcement", "tools must be an array");
        }
        refuses(
            r#"{"tools":[1]}"#,
            "invalid_announcement",
            "tools[0] must be",
        );
        for (body, start) in [
            (r#"{"tools":[],"environment":[]}"#, "environment must be"),
            (r#"{"tools":[],"environment":null}"#, "environment must be"),
            (r#"{"tools":[],"documents":{}}"#, "documents must be"),
            (r#"{"tools":[],"documents":null}"#, "documents must be"),
            (r#"{"tools":[],"documents":["a"]}"#, "documents[0] must be"),
        ] {
            refuses(body, "invalid_announcement", start);
        }
    }

    #[test]
    fn kernel_names_are_reserved_in_both_spellings() {
        let dotted = RESERVED_NAMESPACES
            .iter()
            .flat_map(|space| [(*space).to_owned(), format!("{space}.x")]);
        let names = RESERVED_NAMES.iter().map(|n| (*n).to_owned()).chain(dotted);
        for name in names {
            refuses(
                &tool(&format!(r#""name":"{name}""#)),
                "reserved_namespace",
                "tools[0].name belongs to the kernel",
            );
        }
    }

    #[test]
    fn names_beside_the_reserved_ones_are_free_or_badly_formed() {
        let longest = "x".repeat(64);
        for name in [
            "skill",
            "memory_read",
            "memory_write",
            "memory_edit",
            "memory_ls",
            "memory_grep",
            "memory_delete",
            "Ask",
            "asked",
            "nexus_graph",
            "-",
            "9",
            &longest,
        ] {
            read(&tool(&format!(r#""name":"{name}""#))).unwrap();
        }
        let too_long = "x".repeat(65);
        for name in [
            "nexus.memory.read",
            "nexus.graphs.x",
            "nexus.toolsmith",
            "a.b",
            "",
            " ",
            "ä",
            &too_long,
        ] {
            refuses(
                &tool(&format!(r#""name":"{name}""#)),
                "invalid_announcement",
                "tools[0].name must be",
            );
        }
        refuses(
            &tool(r#""name":7"#),
            "invalid_announcement",
            "tools[0].name must be",
        );
        refuses(
            &tool(r#""nam":"a""#),
            "invalid_announcement",
            "tools[0].name must be",
        );
    }

    #[test]
    fn a_name_is_unique_in_its_list() {
        let body = format!(
            r#"{{"tools":[{{"name":"a","effect_profile":{PROFILE}}},{{"name":"b","effect_profile":{PROFILE}}},{{"name":"a","effect_profile":{PROFILE}}}]}}"#
        );
        refuses(
            &body,
            "invalid_announcement",
            "tools[2].name is in the list",
        );
        refuses(
            r#"{"tools":[],"documents":[{"name":"a","description":"x"},{"name":"a","description":"y"}]}"#,
            "invalid_announcement",
            "documents[1].name is in the list",
        );
    }

    #[test]
    fn a_profile_has_exactly_five_closed_members() {
        let with = |from: &str, to: &str| profile(&PROFILE.replace(from, to));
        for (body, start) in [
            (
                with(r#""kind":"read_only","#, ""),
                "tools[1].effect_profile takes exactly",
            ),
            (
                with("{", r#"{"sixth":1,"#),
                "tools[1].effect_profile takes exactly",
            ),
            (
                with("kind", "kinds"),
                "tools[1].effect_profile takes exactly",
            ),
            (
                with("read_only", "readonly"),
                "tools[1].effect_profile.kind must be one of: pure",
            ),
            (
                with(r#""read_only""#, r#"{"pure":null}"#),
                "tools[1].effect_profile.kind must",
            ),
            (
                with(r#""read_only""#, "null"),
                "tools[1].effect_profile.kind must",
            ),
            (
                with("false", r#""false""#),
                "tools[1].effect_profile.destructive must be true",
            ),
            (
                with("closed", "wide"),
                "tools[1].effect_profile.effect_scope must",
            ),
            (
                with("intrinsic", "yes"),
                "tools[1].effect_profile.idempotency must",
            ),
            (
                with(r#"reconciliation":"none"#, r#"reconciliation":"ask"#),
                "tools[1].effect_profile.reconciliation must",
            ),
            (profile("null"), "tools[1].effect_profile must be an object"),
            (profile("[]"), "tools[1].effect_profile must be an object"),
            (
                r#"{"tools":[{"name":"a"}]}"#.to_owned(),
                "tools[0].effect_profile is required",
            ),
        ] {
            refuses(&body, "invalid_announcement", start);
        }
    }

    #[test]
    fn optional_members_have_their_shapes_when_they_are_there() {
        for ms in ["1", "604800000"] {
            read(&tool(&format!(r#""name":"a","timeout_ms":{ms}"#))).unwrap();
        }
        for ms in ["0", "-1", "604800001", "1.0", r#""5""#, "null", "1e3"] {
            let body = tool(&format!(r#""name":"a","timeout_ms":{ms}"#));
            refuses(&body, "invalid_announcement", "tools[0].timeout_ms must be");
        }
        for text in [r#""""#, r#"" \t\n""#, "null", "1"] {
            let body = tool(&format!(r#""name":"a","description":{text}"#));
            refuses(
                &body,
                "invalid_announcement",
                "tools[0].description must be",
            );
        }
        for schema in [
            "{}",
            "null",
            "[]",
            r#"{"type":"string"}"#,
            r#"{"type":["object"]}"#,
        ] {
            let body = tool(&format!(r#""name":"a","input_schema":{schema}"#));
            refuses(
                &body,
                "invalid_announcement",
                "tools[0].input_schema must be",
            );
        }
    }

    #[test]
    fn documents_have_names_of_groups_and_short_descriptions() {
        let document = |name: &str, description: &str| {
            format!(
                r#"{{"tools":[],"documents":[{{"name":"{name}","description":"{description}"}}]}}"#
            )
        };
        let longest = "d".repeat(1024);
        read(&document("a1-b2-c3", &longest)).unwrap();
        read(&document(&"x".repeat(64), "d")).unwrap();
        for name in [
            "",
            "-a",
            "a-",
            "a--b",
            "A",
            "a_b",
            "a.b",
            "ä",
            &"x".repeat(65),
        ] {
            refuses(
                &document(name, "d"),
                "invalid_announcement",
                "documents[0].name must",
            );
        }
        // 1,025 bytes in fewer characters.
        let too_long = format!("{}ä", "d".repeat(1023));
        for description in ["", "  ", &too_long] {
            refuses(
                &document("a", description),
                "invalid_announcement",
                "documents[0].description must",
            );
        }
    }

    #[test]
    fn each_part_has_at_most_64_kib_of_canonical_json() {
        let filler = |n: usize| "x".repeat(n);
        // {"a":"…"} has 8 bytes around its filler.
        let environment = |n: usize| {
            format!(
                r#"{{"tools":[],"environment":{{ "a" : "{}" }}}}"#,
                filler(n)
            )
        };
        read(&environment(PART_BYTES - 8)).unwrap();
        refuses(
            &environment(PART_BYTES - 7),
            "validation_failed",
            "environment must have at most",
        );
        let wide = tool(&format!(
            r#""name":"a","description":"{}""#,
            filler(PART_BYTES)
        ));
        refuses(&wide, "validation_failed", "tools must have at most");
        let long: Vec<String> = (0..80)
            .map(|i| format!(r#"{{"name":"d{i}","description":"{}"}}"#, filler(1000)))
            .collect();
        let long = format!(r#"{{"tools":[],"documents":[{}]}}"#, long.join(","));
        refuses(&long, "validation_failed", "documents must have at most");
    }

    #[test]
    fn what_no_column_can_hold_is_refused_by_its_sentence() {
        let nul = "A string carrying U+0000 cannot be stored";
        for body in [
            tool(r#""name":"a","description":"x\u0000""#),
            r#"{"tools":[],"environment":{"\u0000":1}}"#.to_owned(),
            r#"{"tools":[],"documents":[{"name":"a","description":"\u0000"}]}"#.to_owned(),
        ] {
            refuses(&body, "parameter_invalid", nul);
        }
        let deep = format!(
            r#"{{"tools":[],"environment":{{"a":{}{}}}}}"#,
            "[".repeat(100),
            "]".repeat(100)
        );
        refuses(&deep, "parameter_invalid", "A value nested deeper");
        refuses(
            r#"{"tools":[],"environment":{"a":1e400}}"#,
            "parameter_invalid",
            "A number beyond",
        );
    }

    #[test]
    fn an_unusual_integer_of_a_schema_is_kept_exactly() {
        let body = tool(
            r#""name":"a","input_schema":{"type":"object","maximum":123456789012345678901234567890}"#,
        );
        let schema = read(&body).unwrap().tools.remove(0).input_schema.unwrap();
        assert_eq!(
            schema.as_str(),
            r#"{"maximum":123456789012345678901234567890,"type":"object"}"#
        );
    }
}
