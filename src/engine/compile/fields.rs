//! Reading the options of a step: types, `null` as omission, and where a bad one stands.

use std::str::FromStr;

use super::report::Bad;
use crate::domain::ids::{PublicId, TaskKey};
use crate::domain::json::{Object, Value};
use crate::domain::steps::{StepCode, TIMEOUT_MS_MAX};
use crate::domain::words::OnFailure;

/// The options of one step, or of its `model_defaults`.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    members: &'a Object,
    prefix: &'static str,
}

type Read<T> = Result<T, Bad>;

impl<'a> Fields<'a> {
    /// A step's own options.
    pub fn of(members: &'a Object) -> Self {
        Self {
            members,
            prefix: "",
        }
    }

    /// The members of a step's `model_defaults`.
    pub fn of_defaults(members: &'a Object) -> Self {
        Self {
            members,
            prefix: "model_defaults.",
        }
    }

    /// A refusal of that option.
    pub fn bad(&self, name: &str, code: StepCode) -> Bad {
        Bad {
            code,
            field: Some(format!("{}{name}", self.prefix)),
        }
    }

    /// The option, an explicit `null` included.
    pub fn written(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name)
    }

    /// The option; `null` is omission (`steps.md` §1).
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.written(name).filter(|value| !value.is_null())
    }

    /// The option, read by `read`; what it cannot read is refused with `code`.
    pub fn read<T>(
        &self,
        name: &str,
        code: StepCode,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Read<Option<T>> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => match read(value) {
                None => Err(self.bad(name, code)),
                some => Ok(some),
            },
        }
    }

    /// A word of a closed vocabulary.
    pub fn word<T: FromStr>(&self, name: &str, code: StepCode) -> Read<Option<T>> {
        self.read(name, code, |value| value.as_str()?.parse().ok())
    }

    /// A boolean.
    pub fn flag(&self, name: &str, code: StepCode) -> Read<Option<bool>> {
        self.read(name, code, Value::as_bool)
    }

    /// A storable text.
    pub fn text(&self, name: &str, code: StepCode) -> Read<Option<String>> {
        self.read(name, code, text)
    }

    /// `fan_on_failure`: a fan's calls never hold the run by themselves.
    pub fn fan_policy(&self) -> Read<Option<OnFailure>> {
        self.read("fan_on_failure", StepCode::InvalidFanOnFailure, |value| {
            let policy = value.as_str()?.parse().ok()?;
            matches!(policy, OnFailure::Absorb | OnFailure::Propagate).then_some(policy)
        })
    }

    /// `timeout_ms`.
    pub fn timeout_ms(&self) -> Read<Option<i64>> {
        self.read("timeout_ms", StepCode::InvalidTimeoutMs, |value| {
            let ms = value.as_i64()?;
            (1..=TIMEOUT_MS_MAX).contains(&ms).then_some(ms)
        })
    }

    /// The required `prompt` of a model or ask.
    pub fn prompt(&self) -> Read<String> {
        let prompt = self.text("prompt", StepCode::InvalidPrompt)?;
        match prompt {
            Some(text) if !text.trim().is_empty() => Ok(text),
            _ => Err(self.bad("prompt", StepCode::PromptRequired)),
        }
    }

    /// `after` or `results`: an array of keys.
    pub fn references(&self, name: &str) -> Read<Vec<TaskKey>> {
        let keys = self.read(name, StepCode::InvalidTaskReferences, |value| {
            list(value, |item| item.as_str()?.parse().ok())
        })?;
        Ok(keys.unwrap_or_default())
    }
}

/// A text that storage can hold.
pub(super) fn text(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    (!text.contains('\0')).then(|| text.to_owned())
}

/// A text that says something.
pub(super) fn non_blank(value: &Value) -> Option<String> {
    text(value).filter(|text| !text.trim().is_empty())
}

/// A public id.
pub(super) fn public_id(value: &Value) -> Option<PublicId> {
    value.as_str()?.parse().ok()
}

/// Every item of an array, if each can be read.
pub(super) fn list<T>(value: &Value, item: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(item).collect()
}

/// Every item of an array, if each can be read and none stands twice.
pub(super) fn distinct<T: PartialEq>(
    value: &Value,
    item: impl Fn(&Value) -> Option<T>,
) -> Option<Vec<T>> {
    let items = list(value, item)?;
    let repeated = (1..items.len()).any(|i| items[..i].contains(&items[i]));
    (!repeated).then_some(items)
}

/// The members of an object that has no others than `names`; `null` members are left out.
pub(super) fn closed<'a>(value: &'a Value, names: &[&str]) -> Option<Fields<'a>> {
    let members = value.as_object()?;
    let known = members.keys().all(|name| names.contains(&name.as_str()));
    known.then(|| Fields::of(members))
}
