//! The vocabulary: ids, the words of the protocol, JSON, hints, refusals.
//!
//! Knows serde, uuid and time types. Does not know: the engine, SQL, Redis, HTTP status codes.

pub mod announcement;
pub mod credential;
pub mod cursor;
pub mod effect_profile;
pub mod event;
pub mod feed;
pub mod hint;
pub mod idempotency;
pub mod ids;
pub mod json;
pub mod media;
pub mod operation;
pub mod payload;
pub mod progress;
pub mod reads;
pub mod refusal;
pub mod shown;
pub mod steps;
pub mod time;
pub mod words;

pub use ids::{
    AccountId, ExecutorId, MemberId, ParkNo, PublicId, RunId, TaskKey, TaskNo, UploadId,
    WorkspaceId,
};
pub use json::{Canonical, Object, Value};
pub use shown::shown;
pub use time::Timestamp;
