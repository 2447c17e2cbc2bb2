//! One durable item of a member feed, as every reader sees it: HTTP replay and cable alike
//! (`runs.md` §13, `cable.md` §4).

use super::cursor;
use super::ids::PublicId;
use super::json::Canonical;
use super::time::{At, Timestamp};

/// One durable item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its position among its host's items: contiguous from 1.
    pub sequence: i64,
    /// `turn_status`, `task_status`, ….
    pub r#type: String,
    /// What it says: a canonical JSON object.
    pub payload: String,
    /// When it was written.
    pub created_at: Timestamp,
}

impl Item {
    /// The projection of an item of a standalone run's feed:
    /// `{sequence, cursor, type, payload, resource, created_at}` as canonical JSON.
    pub fn of_run(&self, run: PublicId) -> String {
        format!(
            r#"{{"created_at":"{}","cursor":"{}","payload":{},"resource":{{"public_id":"{run}","type":"run"}},"sequence":{},"type":"{}"}}"#,
            At(self.created_at),
            cursor(run, self.sequence),
            self.payload,
            self.sequence,
            self.r#type,
        )
    }

    /// The `message` of its cable frame: `{"event":{…}}`.
    pub fn run_message(&self, run: PublicId) -> Canonical {
        Canonical::trusted(format!(r#"{{"event":{}}}"#, self.of_run(run)))
    }
}

/// The name of a host's replay list, which its cursors carry.
pub fn list(host: PublicId) -> String {
    format!("events:asc:{host}")
}

/// The opaque cursor of a position.
pub fn cursor(host: PublicId, sequence: i64) -> String {
    cursor::write(&list(host), sequence)
}

/// Whether items of this type are also of the `lifecycle` part of a feed: the state of the run as a
/// whole.
pub fn is_lifecycle(r#type: &str) -> bool {
    matches!(r#type, "turn_status" | "attention_required")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_canonical_and_its_cursor_is_one_of_its_list() {
        let run = PublicId(uuid::Uuid::from_u128(1));
        let item = Item {
            sequence: 12,
            r#type: "turn_status".to_owned(),
            payload: r#"{"run_status":"running"}"#.to_owned(),
            created_at: chrono::DateTime::from_timestamp(1_893_553_445, 900_000_000).unwrap(),
        };
        let text = item.of_run(run);
        let value = crate::domain::json::parse(text.as_bytes()).unwrap();
        assert_eq!(value.canonical().unwrap().as_str(), text);
        assert!(text.contains(r#""created_at":"2030-01-02T03:04:05Z""#));
        let position = crate::domain::cursor::read(&cursor(run, 12), &list(run));
        assert_eq!(position.as_deref(), Some("12"));
    }
}
