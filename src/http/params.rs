//! Bounded integers, ids and cursors of paths and queries (`conventions.md` §6, §7).

use std::collections::BTreeMap;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::error::ApiError;
use crate::domain::{PublicId, TaskKey};

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

    /// An opaque cursor of that list; absent: from the start.
    ///
    /// # Errors
    /// 400 `parameter_invalid`.
    pub fn cursor(&self, name: &'static str, list: &str) -> Result<Option<i64>, ApiError> {
        self.get(name)
            .map(|text| {
                read_cursor(text, list).ok_or_else(|| {
                    ApiError::parameter_invalid(
                        name,
                        format!("{name} must be a cursor that this list returned"),
                    )
                })
            })
            .transpose()
    }
}

/// An opaque cursor: the list it belongs to (kind, direction, host) and a position.
pub fn cursor(list: &str, position: i64) -> String {
    URL_SAFE_NO_PAD.encode(format!("1:{list}:{position}"))
}

/// The position a cursor of that list holds.
pub fn read_cursor(text: &str, list: &str) -> Option<i64> {
    if text.len() > 512 {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let plain = String::from_utf8(bytes).ok()?;
    let position = plain
        .strip_prefix("1:")?
        .strip_prefix(list)?
        .strip_prefix(':')?;
    position
        .parse()
        .ok()
        .filter(|n: &i64| *n >= 0 && position == n.to_string())
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

/// An opaque cursor that holds a public id.
pub fn id_cursor(list: &str, id: PublicId) -> String {
    URL_SAFE_NO_PAD.encode(format!("1:{list}:{id}"))
}

impl Params {
    /// An opaque cursor of that list, holding a public id; absent: from the start.
    ///
    /// # Errors
    /// 400 `parameter_invalid`.
    pub fn id_cursor(&self, name: &'static str, list: &str) -> Result<Option<PublicId>, ApiError> {
        let read = |text: &str| {
            let bytes = URL_SAFE_NO_PAD
                .decode(text)
                .ok()
                .filter(|_| text.len() <= 512)?;
            let plain = String::from_utf8(bytes).ok()?;
            plain
                .strip_prefix("1:")?
                .strip_prefix(list)?
                .strip_prefix(':')?
                .parse()
                .ok()
        };
        self.get(name)
            .map(|text| {
                read(text).ok_or_else(|| {
                    let takes = format!("{name} must be a cursor that this list returned");
                    ApiError::parameter_invalid(name, takes)
                })
            })
            .transpose()
    }
}
