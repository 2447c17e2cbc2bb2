//! What a tool says of its effects, and what follows when nobody answers (`executor.md` §4, §12).

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::json::{Canonical, Object, Value};

/// What running the tool touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// Nothing.
    Pure,
    /// It looks.
    ReadOnly,
    /// It changes something.
    Write,
}

/// How far its effects reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectScope {
    /// Inside its own world.
    Closed,
    /// Anywhere.
    Open,
}

/// Whether running it twice is running it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idempotency {
    /// By nature.
    Intrinsic,
    /// With a key.
    Keyed,
    /// No.
    None,
}

/// Whether one can find out afterwards what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reconciliation {
    /// No.
    None,
    /// By asking.
    Lookup,
}

/// A tool's effect profile: exactly these five members, all closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectProfile {
    /// What it touches.
    pub kind: EffectKind,
    /// Whether it destroys.
    pub destructive: bool,
    /// How far it reaches.
    pub effect_scope: EffectScope,
    /// Whether it may run twice.
    pub idempotency: Idempotency,
    /// Whether its outcome can be looked up.
    pub reconciliation: Reconciliation,
}

impl EffectProfile {
    /// Whether a call that nobody answered may be run again: `pure`, `read_only`, or intrinsically
    /// idempotent. `keyed` is not.
    pub fn is_replayable(&self) -> bool {
        matches!(self.kind, EffectKind::Pure | EffectKind::ReadOnly)
            || self.idempotency == Idempotency::Intrinsic
    }

    /// Reads one from a body.
    ///
    /// # Errors
    /// The parser's words: a missing or sixth member, or an unknown word.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let text = value.canonical().map_err(|e| e.to_string())?;
        Self::from_str(text.as_str())
    }

    /// The stored text.
    pub fn to_canonical(self) -> Canonical {
        let word = |v: serde_json::Value| match v {
            serde_json::Value::String(s) => Value::Str(s),
            serde_json::Value::Bool(b) => Value::Bool(b),
            _ => Value::Null,
        };
        let members: Object = match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(map)) => {
                map.into_iter().map(|(k, v)| (k, word(v))).collect()
            }
            _ => Object::new(),
        };
        Value::Object(members)
            .canonical()
            .expect("words and flags are storable")
    }
}

impl FromStr for EffectProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| {
            let words = e.to_string();
            words
                .split(" at line")
                .next()
                .unwrap_or_default()
                .to_owned()
        })
    }
}
