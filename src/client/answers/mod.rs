//! What calls answer: the typed value beside its status and exact body.
//!
//! Every type tolerates members it does not know; what the specification marks optional, or what
//! only some reads carry, is an `Option` or an empty list.

mod executor;
mod member;
mod operator;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::value::RawValue;

use crate::domain::json::{self, Value};

pub(super) use executor::CommitResult;
pub use executor::{
    Claim, ClaimGrant, ClaimState, Credential, Executor, ExecutorBootstrap, ExecutorCredential,
    InboxRow, MachineExecutor, Upload,
};
pub use member::{
    AddressedTo, Appended, Attention, Event, EventPage, ExecutorRef, Graph, GraphEdge, GraphNode,
    JoinTerms, Receipt, Run, RunCreated, RunListRow, Task, TaskError, Turn,
};
pub use operator::{
    Account, Grant, Member, MemberCredential, Replica, Sweep, SweepLease, SweepRun, SweeperState,
    Workspace,
};

/// One answer: it dereferences to its value. Its `Debug` leaves the body out, which may hold tokens.
#[derive(Clone)]
pub struct Answer<T> {
    /// The HTTP status, a success.
    pub status: u16,
    /// `X-Request-Id`.
    pub request_id: Option<String>,
    /// `Idempotency-Replayed`, where the door sends it.
    pub replayed: Option<bool>,
    /// The body, byte for byte.
    pub body: Bytes,
    /// The typed value.
    pub value: T,
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("request_id", &self.request_id)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

impl<T> Answer<T> {
    /// The value alone.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// The body as exact JSON; `null` when it is empty or no JSON.
    pub fn json(&self) -> Value {
        json::parse(&self.body).unwrap_or(Value::Null)
    }
}

impl<T> Deref for Answer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// One page of a keyset list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Where the next page begins; nothing when this is the last.
    pub next_after: Option<String>,
}

/// Reads `{"<name>": T}`, whatever else is beside it.
pub(super) fn wrapped<T: DeserializeOwned>(body: &[u8], name: &str) -> Result<T, String> {
    let members: BTreeMap<String, &RawValue> = read(body)?;
    let raw = members
        .get(name)
        .ok_or_else(|| format!("member `{name}` is missing"))?;
    serde_json::from_str(raw.get()).map_err(|e| format!("`{name}`: {e}"))
}

/// Reads `{"<plural>": […], "pagination": {"next_after"}}`.
pub(super) fn page<T: DeserializeOwned>(body: &[u8], plural: &str) -> Result<Page<T>, String> {
    #[derive(serde::Deserialize, Default)]
    struct Pagination {
        #[serde(default)]
        next_after: Option<String>,
    }
    let items = wrapped(body, plural)?;
    let members: BTreeMap<String, &RawValue> = read(body)?;
    let pagination: Pagination = match members.get("pagination") {
        Some(raw) => serde_json::from_str(raw.get()).map_err(|e| format!("`pagination`: {e}"))?,
        None => Pagination::default(),
    };
    Ok(Page {
        items,
        next_after: pagination.next_after,
    })
}

/// Reads a whole body.
pub(super) fn read<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|e| e.to_string())
}

/// For members whose presence is a fact: `null` reads as `Some(Null)`, absence as `None`.
pub(super) fn present<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(d).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::words::{InboxKind, TaskStatus};

    #[test]
    fn a_page_reads_its_rows_and_cursor_and_ignores_the_rest() {
        let body = br#"{"tasks":[{"kind":"tool_call","run_public_id":"r","task_key":"k",
            "tool_name":"t","tool_input":{"n":12345678901234567890123},"claimed":false,
            "timeout_ms":5,"deadline_at":"2030-01-01T00:00:00Z","brand_new":{"x":1}}],
            "pagination":{"next_after":"c","other":1},"extra":true}"#;
        let page: Page<InboxRow> = page(body, "tasks").unwrap();
        assert_eq!(page.next_after.as_deref(), Some("c"));
        assert_eq!(page.items[0].kind, InboxKind::ToolCall);
        let input = page.items[0].tool_input.clone().unwrap();
        let digits = match input.get("n").unwrap() {
            Value::Int(n) => n.as_str().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(digits, "12345678901234567890123");
    }

    #[test]
    fn presence_of_a_structured_null_is_a_fact() {
        let read = |text: &str| serde_json::from_str::<Task>(text).unwrap();
        let with = read(r#"{"key":"a","kind":"tool_task","status":"x","structured_content":null}"#);
        assert_eq!(with.structured_content, Some(Value::Null));
        assert_eq!(with.status, TaskStatus::Other("x".to_owned()));
        let without = read(r#"{"key":"a","kind":"tool_task","status":"completed"}"#);
        assert_eq!(without.structured_content, None);
    }

    #[test]
    fn a_body_of_another_form_says_what_is_missing() {
        let error = wrapped::<Task>(br#"{"tusk":{}}"#, "task").unwrap_err();
        assert_eq!(error, "member `task` is missing");
    }
}
