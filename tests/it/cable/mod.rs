//! The cable over real sockets (`cable.md` §8, and the faults BR-078, BR-080, BR-082).
//!
//! What needs the run engine (which commands announce what, to whom) is tested with the commands.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod authority;
mod backpressure;
mod client;
mod feeds;
mod handshake;
mod limits;
mod liveness;
mod memory;
pub mod redis;
mod replicas;
mod subscribing;
pub mod world;

pub use subscribing::until;

use nexus::domain::hint::{FeedItems, FeedKind, Hint};
use nexus::domain::words::ParkKind;
use nexus::domain::{Canonical, PublicId, TaskKey};
use uuid::Uuid;

/// A run that exists in hints only.
fn some_run() -> PublicId {
    PublicId(Uuid::from_u128(0x0199_c0de_0000_7000_8000_0000_0000_00aa))
}

pub fn work_available(executor: PublicId, key: &str) -> Hint {
    Hint::WorkAvailable {
        executor,
        kind: ParkKind::ToolCall,
        run: some_run(),
        task_key: TaskKey::trusted(key.to_owned()),
        tool_name: Some("read_file".to_owned()),
    }
}

fn work_canceled(executor: PublicId, key: &str) -> Hint {
    Hint::WorkCanceled {
        executor,
        run: some_run(),
        task_key: TaskKey::trusted(key.to_owned()),
    }
}

pub fn available_message(key: &str) -> String {
    format!(
        r#"{{"event":{{"type":"work_available","kind":"tool_call","run_public_id":"{}","task_key":"{key}","tool_name":"read_file"}}}}"#,
        some_run()
    )
}

fn canceled_message(key: &str) -> String {
    format!(
        r#"{{"event":{{"type":"work_canceled","run_public_id":"{}","task_key":"{key}"}}}}"#,
        some_run()
    )
}

fn feed(run: PublicId, items: FeedItems, message: Canonical) -> Hint {
    Hint::Feed {
        kind: FeedKind::Run,
        host: run,
        items,
        message,
    }
}

fn progress(run: PublicId, tail: &str) -> Hint {
    let message = format!(r#"{{"frame":{{"text_tail":"{tail}","type":"executor_progress"}}}}"#);
    feed(run, FeedItems::Progress, Canonical::trusted(message))
}
