//! Bounded integers, ids and cursors of paths and queries (`conventions.md` §6, §7).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;

use super::error::ApiError;
use crate::domain::{PublicId, TaskKey, cursor};

/// The query string: of repeated names the last counts, unknown ones are ignored.
#[derive(Debug, Default)]
pub struct Params(BTreeMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::bad_request("the query string cannot be read"))?;
        Ok(Self(pairs.into_iter().collect()))
    }
}

impl Params {
    /// The text of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A whole number within a range; absent: the default. ASCII digits only: no sign, no leading
    /// zero unless `0`; out of range is refused, never clamped.
    ///
    /// # Errors
    /// 400 `parameter_invalid`.
    pub fn integer(
        &self,
        name: &'static str,
        default: i64,
        range: std::ops::RangeInclusive<i64>,
    ) -> Result<i64, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        let digits = !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        digits
            .then(|| text.parse().ok())
            .flatten()
            .filter(|n| range.contains(n))
            .ok_or_else(|| {
                let (low, high) = (range.start(), range.end());
                ApiError::parameter_invalid(
                    name,
                    format!("{name} must be an integer from {low} to {high}"),
                )
            })
    }

    /// The position that a cursor of that list holds; absent: from the start. One spelling a
    /// position, so a position that is counted is not negative.
    ///
    /// # Errors
    /// 400 `parameter_invalid`.
    pub fn cursor<T>(&self, name: &'static str, list: &str) -> Result<Option<T>, ApiError>
    where
        T: FromStr + Display,
    {
        let position = |text: &str| {
            let position = cursor::read(text, list)?;
            let known = position.parse::<T>().ok()?;
            (known.to_string() == position && !position.starts_with('-')).then_some(known)
        };
        self.get(name)
            .map(|text| {
                position(text).ok_or_else(|| {
                    let takes = format!("{name} must be a cursor that this list returned");
                    ApiError::parameter_invalid(name, takes)
                })
            })
            .transpose()
    }
}

/// A public id in a path: what is no id is absent.
///
/// # Errors
/// 404 `not_found`.
pub fn public_id(text: &str) -> Result<PublicId, ApiError> {
    text.parse().map_err(|_| ApiError::not_found())
}

/// A task key in a path: what is no key is absent.
///
/// # Errors
/// 404 `not_found`.
pub fn task_key(text: &str) -> Result<TaskKey, ApiError> {
    text.parse().map_err(|_| ApiError::not_found())
}
