//! The flat bodies of the operator plane: members are taken one by one, and what is left over is
//! refused (`conventions.md` §5).
//!
//! `null` is absence. Shapes (400) are judged as they are taken, unknown members (422) at the end.

use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::domain::PublicId;
use crate::domain::json::{Object, Unstorable, Value};
use crate::http::ApiError;
use crate::http::body::Body;

/// Members of a body that nobody took yet.
#[derive(Debug)]
pub struct Fields(Object);

impl Fields {
    /// Of that body.
    pub fn of(body: Body) -> Self {
        Self(body.0)
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    fn required<T>(name: &'static str, value: Option<T>) -> Result<T, ApiError> {
        value.ok_or_else(|| ApiError::parameter_missing(name))
    }

    /// A text of 1 to `max` characters, not blank, on one line.
    ///
    /// # Errors
    /// 400.
    pub fn text(&mut self, name: &'static str, max: usize) -> Result<String, ApiError> {
        let value = self.optional_text(name, max)?;
        Self::required(name, value)
    }

    /// The same, which may be absent.
    ///
    /// # Errors
    /// 400.
    pub fn optional_text(
        &mut self,
        name: &'static str,
        max: usize,
    ) -> Result<Option<String>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let text = value.as_str().unwrap_or_default();
        if text.contains('\0') {
            return Err(ApiError::parameter_invalid(
                name,
                Unstorable::Nul.to_string(),
            ));
        }
        let fits = !text.trim().is_empty()
            && text.chars().count() <= max
            && !text.chars().any(char::is_control);
        if fits {
            Ok(Some(text.to_owned()))
        } else {
            Err(ApiError::parameter_invalid(
                name,
                format!("{name} must be a text of 1 to {max} characters on one line, not blank"),
            ))
        }
    }

    /// A handle: 1 to 64 characters without white space.
    ///
    /// # Errors
    /// 400.
    pub fn handle(&mut self, name: &'static str) -> Result<String, ApiError> {
        let text = self.text(name, 64)?;
        if text.chars().any(char::is_whitespace) {
            return Err(ApiError::parameter_invalid(
                name,
                format!("{name} must be 1 to 64 characters without white space"),
            ));
        }
        Ok(text)
    }

    /// A word of a closed vocabulary; `takes` lists it for people.
    ///
    /// # Errors
    /// 400.
    pub fn word<T: FromStr>(&mut self, name: &'static str, takes: &str) -> Result<T, ApiError> {
        let value = self.optional_word(name, takes)?;
        Self::required(name, value)
    }

    /// The same, which may be absent.
    ///
    /// # Errors
    /// 400.
    pub fn optional_word<T: FromStr>(
        &mut self,
        name: &'static str,
        takes: &str,
    ) -> Result<Option<T>, ApiError> {
        self.take(name)
            .map(|value| {
                let word = value.as_str().and_then(|text| text.parse().ok());
                word.ok_or_else(|| {
                    ApiError::parameter_invalid(name, format!("{name} must be {takes}"))
                })
            })
            .transpose()
    }

    /// A public id. A text that is no id names nothing: 404.
    ///
    /// # Errors
    /// 400, 404.
    pub fn id(&mut self, name: &'static str) -> Result<PublicId, ApiError> {
        let value = self.optional_id(name)?;
        Self::required(name, value)
    }

    /// The same, which may be absent.
    ///
    /// # Errors
    /// 400, 404.
    pub fn optional_id(&mut self, name: &'static str) -> Result<Option<PublicId>, ApiError> {
        self.take(name)
            .map(|value| match value.as_str() {
                Some(text) => text.parse().map_err(|_| ApiError::not_found()),
                None => Err(ApiError::parameter_invalid(
                    name,
                    format!("{name} must be a public id"),
                )),
            })
            .transpose()
    }

    /// An integer within a range.
    ///
    /// # Errors
    /// 400.
    pub fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<i64, ApiError> {
        let value = Self::required(name, self.take(name))?;
        let (low, high) = (range.start(), range.end());
        value.as_i64().filter(|n| range.contains(n)).ok_or_else(|| {
            ApiError::parameter_invalid(
                name,
                format!("{name} must be an integer from {low} to {high}"),
            )
        })
    }

    /// Refuses a member that this call has no use for.
    ///
    /// # Errors
    /// 400.
    pub fn absent(&mut self, name: &'static str, why: &str) -> Result<(), ApiError> {
        match self.take(name) {
            None => Ok(()),
            Some(_) => Err(ApiError::parameter_invalid(name, why)),
        }
    }

    /// Refuses what is left over.
    ///
    /// # Errors
    /// 422 `unknown_fields`, naming the first.
    pub fn finish(self) -> Result<(), ApiError> {
        let Some(name) = self.0.into_keys().next() else {
            return Ok(());
        };
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        Err(ApiError::unprocessable(
            "unknown_fields",
            "the body has a member that is not known here",
        )
        .with("parameter", shown))
    }
}
