//! Keyset lists: `?after=<cursor>&limit=n&order=asc|desc` (`conventions.md` §7).
//!
//! A cursor names the last row shown by a word that is public (an id, a look-up part), bound to
//! the list's kind, direction and host; the list finds its row again. Positions inside the
//! database never leave it.
//!
//! Does not know what is listed.

use axum::http::StatusCode;
use axum::response::Response;

use super::error::ApiError;
use super::params::Params;
use super::view;
use crate::domain::json::Value;
use crate::domain::{PublicId, cursor};
use crate::store::page::Order;

/// The most rows of one page, and how many there are unless asked.
const MAX: i64 = 200;
const DEFAULT: i64 = 100;

/// What a request asks of a list.
#[derive(Debug)]
pub struct List {
    tag: String,
    after: Option<String>,
    /// The most rows to answer.
    pub limit: i64,
    /// Direction.
    pub order: Order,
}

impl List {
    /// Reads `after`, `limit` and `order`; `kind` and `host` say which list this is.
    ///
    /// # Errors
    /// 400 `parameter_invalid`.
    pub fn read(params: &Params, kind: &str, host: &str) -> Result<Self, ApiError> {
        let (order, direction) = match params.get("order") {
            None | Some("asc") => (Order::Ascending, "asc"),
            Some("desc") => (Order::Descending, "desc"),
            Some(_) => {
                return Err(ApiError::parameter_invalid(
                    "order",
                    "order must be asc or desc",
                ));
            }
        };
        let tag = format!("{kind}:{direction}:{host}");
        let limit = params.integer("limit", DEFAULT, 1..=MAX)?;
        let after = params
            .get("after")
            .map(|text| cursor::read(text, &tag).ok_or_else(bad_cursor))
            .transpose()?;
        Ok(Self {
            tag,
            after,
            limit,
            order,
        })
    }

    /// The word of the last row shown.
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// The same, of a list whose rows are named by public ids.
    ///
    /// # Errors
    /// 400 `parameter_invalid`.
    pub fn after_id(&self) -> Result<Option<PublicId>, ApiError> {
        self.after
            .as_deref()
            .map(|text| text.parse().map_err(|_| bad_cursor()))
            .transpose()
    }

    /// How many rows to fetch: one more than answered tells whether there is a next page.
    pub fn fetch(&self) -> i64 {
        self.limit + 1
    }

    /// Answers fetched rows: `{"<plural>": […], "pagination": {"next_after"}}`.
    pub fn answer<T>(
        &self,
        plural: &str,
        mut rows: Vec<T>,
        word: impl Fn(&T) -> String,
        view: impl Fn(&T) -> Value,
    ) -> Response {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(word);
        self.page(plural, rows.iter().map(view).collect(), next.as_deref())
    }

    /// Answers a page whose next one begins after that word.
    pub fn page(&self, plural: &str, rows: Vec<Value>, next: Option<&str>) -> Response {
        let next = next.map(|word| cursor::write(&self.tag, word));
        let pagination = Value::from([("next_after", view::or_null(next, Value::from))]);
        view::json(
            StatusCode::OK,
            &Value::from([(plural, Value::Array(rows)), ("pagination", pagination)]),
        )
    }
}

/// A cursor that is none of this list's.
pub fn bad_cursor() -> ApiError {
    ApiError::parameter_invalid("after", "after must be a cursor that this list returned")
}
