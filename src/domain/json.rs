//! JSON as Nexus keeps it: one parse, exact numbers, one canonical text (`conventions.md` §10).
//!
//! A body is parsed once into [`Value`]; everything that is digested, bounded, stored or served
//! back goes through [`Canonical`]. The parser accepts what JSON accepts (up to [`PARSE_DEPTH`]
//! levels) and keeps values that storage cannot hold, so that each door can refuse them with its
//! own code; [`Value::canonical`] is the one place that judges them.
//!
//! Does not know: doors, codes, columns.
//!
//! Invariants: integers are never rounded; of duplicate names the last one counts everywhere;
//! `1` and `1.0` stay different; no recursion deeper than [`PARSE_DEPTH`].

use std::collections::BTreeMap;
use std::fmt;

use jiter::{Jiter, JiterErrorType, JsonErrorType, Peek};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// How deep a body may nest before the parser gives up on it (a stored value: [`STORED_DEPTH`]).
pub const PARSE_DEPTH: usize = 128;
/// How deep a stored value may nest; its root container is level 1.
pub const STORED_DEPTH: usize = 100;
/// How deep a value may nest whose text is only digested: whatever the parser read, in one envelope.
const DIGEST_DEPTH: usize = PARSE_DEPTH + 1;
/// The most digits an integer token may have.
pub const INTEGER_DIGITS: usize = 256;

/// Members of an object, sorted by the UTF-8 bytes of the decoded key.
pub type Object = BTreeMap<String, Value>;

/// One JSON value with exact numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// An integer token: its exact digits.
    Int(Int),
    /// A float token: the nearest double; infinite when it does not fit (unstorable).
    Float(f64),
    /// A string; may hold U+0000 (unstorable).
    Str(String),
    /// An array.
    Array(Vec<Value>),
    /// An object.
    Object(Object),
}

/// An integer of any size: its decimal digits, `-` in front when negative, never `-0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Int(Box<str>);

impl Int {
    fn from_token(token: &str) -> Self {
        Self(if token == "-0" {
            "0".into()
        } else {
            token.into()
        })
    }

    /// The exact digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value, when it fits 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// The nearest value of 64 bits: for a bound that everything beyond it exceeds anyway.
    pub fn saturated(&self) -> i64 {
        self.as_i64().unwrap_or(if self.0.starts_with('-') {
            i64::MIN
        } else {
            i64::MAX
        })
    }

    fn digits(&self) -> usize {
        self.0.trim_start_matches('-').len()
    }
}

impl From<i64> for Int {
    fn from(n: i64) -> Self {
        Self(n.to_string().into())
    }
}

/// Why a text is no JSON body that Nexus can read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not JSON: syntax, encoding, BOM, lone surrogate, trailing bytes.
    #[error("{what} at byte {at}")]
    Malformed {
        /// The parser's words.
        what: String,
        /// Byte offset.
        at: usize,
    },
    /// JSON, but nested deeper than [`PARSE_DEPTH`].
    #[error("{}", Unstorable::TooDeep)]
    TooDeep,
}

/// Why a value cannot be stored. The sentence is fixed and user-visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unstorable {
    /// U+0000 in a string or key.
    #[error("A string carrying U+0000 cannot be stored: remove it before submitting.")]
    Nul,
    /// More than [`INTEGER_DIGITS`] digits.
    #[error("An integer of more than 256 digits cannot be stored: shorten it before submitting.")]
    IntegerTooLong,
    /// A float token beyond the range of a double.
    #[error("A number beyond the range of a 64-bit float cannot be stored: send it as a string.")]
    NumberTooLarge,
    /// Nested deeper than [`STORED_DEPTH`].
    #[error(
        "A value nested deeper than 100 levels cannot be stored: flatten it before submitting."
    )]
    TooDeep,
}

/// Parses one JSON text: exactly one value, nothing after it.
///
/// # Errors
/// [`ParseError`].
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    parse_enveloped(bytes, 0)
}

/// Parses a text whose values stand `envelope` levels deeper than they would alone: what is inside
/// may nest [`PARSE_DEPTH`] levels, as at the door that takes it alone.
///
/// # Errors
/// [`ParseError`].
pub fn parse_enveloped(bytes: &[u8], envelope: usize) -> Result<Value, ParseError> {
    let mut jiter = Jiter::new(bytes);
    let mut reader = Reader {
        jiter: &mut jiter,
        deepest: PARSE_DEPTH + envelope,
    };
    let value = reader.value(1)?;
    jiter.finish().map_err(|e| malformed(&e))?;
    Ok(value)
}

fn malformed(e: &jiter::JiterError) -> ParseError {
    match &e.error_type {
        JiterErrorType::JsonError(JsonErrorType::RecursionLimitExceeded) => ParseError::TooDeep,
        other => ParseError::Malformed {
            what: other.to_string(),
            at: e.index,
        },
    }
}

struct Reader<'a, 'j> {
    jiter: &'a mut Jiter<'j>,
    deepest: usize,
}

impl Reader<'_, '_> {
    fn value(&mut self, depth: usize) -> Result<Value, ParseError> {
        let peek = self.jiter.peek().map_err(|e| malformed(&e))?;
        self.known(peek, depth)
    }

    fn known(&mut self, peek: Peek, depth: usize) -> Result<Value, ParseError> {
        let container = peek == Peek::Array || peek == Peek::Object;
        if container && depth > self.deepest {
            return Err(ParseError::TooDeep);
        }
        match peek {
            Peek::Null => self
                .jiter
                .known_null()
                .map(|()| Value::Null)
                .map_err(|e| malformed(&e)),
            Peek::True | Peek::False => self
                .jiter
                .known_bool(peek)
                .map(Value::Bool)
                .map_err(|e| malformed(&e)),
            Peek::String => self
                .jiter
                .known_str()
                .map(|s| Value::Str(s.to_owned()))
                .map_err(|e| malformed(&e)),
            Peek::Array => self.array(depth),
            Peek::Object => self.object(depth),
            _ => self.number(peek),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, ParseError> {
        let mut items = Vec::new();
        let mut next = self.jiter.known_array().map_err(|e| malformed(&e))?;
        while let Some(peek) = next {
            items.push(self.known(peek, depth + 1)?);
            next = self.jiter.array_step().map_err(|e| malformed(&e))?;
        }
        Ok(Value::Array(items))
    }

    fn object(&mut self, depth: usize) -> Result<Value, ParseError> {
        let mut members = Object::new();
        let mut next = self
            .jiter
            .known_object()
            .map_err(|e| malformed(&e))?
            .map(str::to_owned);
        while let Some(key) = next {
            let value = self.value(depth + 1)?;
            members.insert(key, value);
            next = self
                .jiter
                .next_key()
                .map_err(|e| malformed(&e))?
                .map(str::to_owned);
        }
        Ok(Value::Object(members))
    }

    fn number(&mut self, peek: Peek) -> Result<Value, ParseError> {
        let at = self.jiter.current_index();
        let bytes = self
            .jiter
            .known_number_bytes(peek)
            .map_err(|e| malformed(&e))?;
        let token = std::str::from_utf8(bytes).map_err(|e| ParseError::Malformed {
            what: e.to_string(),
            at,
        })?;
        if token.contains(['.', 'e', 'E']) {
            token
                .parse()
                .map(Value::Float)
                .map_err(|_| ParseError::Malformed {
                    what: "invalid number".to_owned(),
                    at,
                })
        } else {
            Ok(Value::Int(Int::from_token(token)))
        }
    }
}

impl Value {
    /// The canonical text.
    ///
    /// # Errors
    /// The first reason, in canonical order, why the value cannot be stored.
    pub fn canonical(&self) -> Result<Canonical, Unstorable> {
        let mut out = String::new();
        write_value(self, 1, STORED_DEPTH, &mut out)?;
        Ok(Canonical(out))
    }

    /// The canonical text for a digest, of a value that holds storable values without being stored
    /// itself: an envelope is deeper than what it carries.
    ///
    /// # Errors
    /// As [`canonical`](Self::canonical), but for depth, which the parser bounds.
    pub fn digest_text(&self) -> Result<String, Unstorable> {
        let mut out = String::new();
        write_value(self, 1, DIGEST_DEPTH, &mut out)?;
        Ok(out)
    }

    /// The members, when this is an object.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The items, when this is an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The text, when this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The flag, when this is a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The number, when this is an integer token that fits 64 bits (`1.0` is none).
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(n) => n.as_i64(),
            _ => None,
        }
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The member of that name, when this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object().and_then(|members| members.get(name))
    }
}

fn write_value(
    value: &Value,
    depth: usize,
    deepest: usize,
    out: &mut String,
) -> Result<(), Unstorable> {
    if depth > deepest && matches!(value, Value::Array(_) | Value::Object(_)) {
        return Err(Unstorable::TooDeep);
    }
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Int(n) if n.digits() > INTEGER_DIGITS => return Err(Unstorable::IntegerTooLong),
        Value::Int(n) => out.push_str(n.as_str()),
        Value::Float(f) => write_float(*f, out)?,
        Value::Str(text) => write_str(text, out)?,
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(item, depth + 1, deepest, out)?;
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (i, (key, member)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_str(key, out)?;
                out.push(':');
                write_value(member, depth + 1, deepest, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

/// Shortest round-trip digits, laid out by `conventions.md` §10: plain for 0 < P <= 16,
/// `0.0…` for -5 < P <= 0, otherwise an exponent without `+`.
fn write_float(f: f64, out: &mut String) -> Result<(), Unstorable> {
    if !f.is_finite() {
        return Err(Unstorable::NumberTooLarge);
    }
    if f == 0.0 {
        out.push_str("0.0");
        return Ok(());
    }
    if f < 0.0 {
        out.push('-');
    }
    // `{:e}` prints the shortest digits that read back: d[.ddd]e<exp>.
    let text = format!("{:e}", f.abs());
    let (mantissa, exponent) = text
        .split_once('e')
        .expect("{:e} always prints an exponent");
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let point = exponent
        .parse::<i32>()
        .expect("{:e} prints an integer exponent")
        + 1;
    let n = digits.len();
    if (1..=16).contains(&point) {
        let p = usize::try_from(point).expect("1..=16 is no negative number");
        if p >= n {
            out.push_str(&digits);
            out.extend(std::iter::repeat_n('0', p - n));
            out.push_str(".0");
        } else {
            out.push_str(&digits[..p]);
            out.push('.');
            out.push_str(&digits[p..]);
        }
    } else if (-4..=0).contains(&point) {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', point.unsigned_abs() as usize));
        out.push_str(&digits);
    } else {
        out.push_str(&digits[..1]);
        if n > 1 {
            out.push('.');
            out.push_str(&digits[1..]);
        }
        out.push('e');
        out.push_str(&(point - 1).to_string());
    }
    Ok(())
}

fn write_str(text: &str, out: &mut String) -> Result<(), Unstorable> {
    out.push('"');
    let mut rest = text;
    while let Some(i) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') {
        out.push_str(&rest[..i]);
        let c = rest.as_bytes()[i];
        match c {
            0 => return Err(Unstorable::Nul),
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x09 => out.push_str("\\t"),
            0x0a => out.push_str("\\n"),
            0x0c => out.push_str("\\f"),
            0x0d => out.push_str("\\r"),
            _ => out.push_str(&format!("\\u{c:04x}")),
        }
        rest = &rest[i + 1..];
    }
    out.push_str(rest);
    out.push('"');
    Ok(())
}

/// Canonical JSON text: what is stored, served back, digested and measured.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Canonical(String);

impl Canonical {
    /// Takes text that storage returned, or that this program wrote as canonical.
    pub fn trusted(text: String) -> Self {
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its size in bytes, as the bounds of `conventions.md` §11 count it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: the shortest JSON text has one byte.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// SHA-256 of the text.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The value again.
    pub fn value(&self) -> Value {
        parse(self.0.as_bytes()).expect("canonical text is JSON")
    }

    /// The text itself.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl fmt::Debug for Canonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Canonical({} bytes)", self.0.len())
    }
}

/// Serialises as the exact text (only through `serde_json`'s own serializers).
impl Serialize for Canonical {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Serialises numbers exactly (only through `serde_json`'s own serializers).
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(flag) => serializer.serialize_bool(*flag),
            Self::Int(n) => match n.as_i64() {
                Some(n) => serializer.serialize_i64(n),
                None => RawValue::from_string(n.as_str().to_owned())
                    .map_err(serde::ser::Error::custom)?
                    .serialize(serializer),
            },
            Self::Float(f) => serializer.serialize_f64(*f),
            Self::Str(text) => serializer.serialize_str(text),
            Self::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(item)?;
                }
                seq.end()
            }
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (key, member) in members {
                    map.serialize_entry(key, member)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        parse(raw.get().as_bytes()).map_err(serde::de::Error::custom)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text)
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Self::Int(n.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::Array(items)
    }
}

impl<const N: usize> From<[(&str, Value); N]> for Value {
    fn from(members: [(&str, Value); N]) -> Self {
        Self::Object(
            members
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canon(text: &str) -> String {
        parse(text.as_bytes())
            .unwrap()
            .canonical()
            .unwrap()
            .into_string()
    }

    #[test]
    fn the_vectors_of_the_conventions_hold() {
        // conventions.md §10, "Vectors"
        assert_eq!(canon(r#"{"b":1,"a":1.0}"#), r#"{"a":1.0,"b":1}"#);
        assert_eq!(canon("[1e2,1E-7,-0.0,-0]"), "[100.0,1e-7,0.0,0]");
        assert_eq!(canon(r#""\u0041\u000b""#), r#""A\u000b""#);
        assert_eq!(
            canon("[1e20,1.5e-9,1e16,1e15,0.0001,0.00001]"),
            "[1e20,1.5e-9,1e16,1000000000000000.0,0.0001,0.00001]"
        );
    }
}
