//! The receipt of an accepted envelope (`runs.md` §3).

use std::collections::BTreeMap;

use crate::domain::TaskKey;
use crate::domain::json::Canonical;
use crate::engine::compile::Compiled;

/// The text of a receipt; `standing` is the run's answer, when the envelope did not move it.
pub(super) fn receipt(
    compiled: &Compiled,
    standing: Option<&TaskKey>,
    resolution_tokens: BTreeMap<String, String>,
) -> Canonical {
    #[derive(serde::Serialize)]
    struct Receipt<T: serde::Serialize> {
        #[serde(flatten)]
        parts: T,
        resolution_tokens: BTreeMap<String, String>,
    }
    let mut parts = compiled.receipt();
    parts.deliverable_task_key = parts.deliverable_task_key.or(standing);
    let receipt = Receipt {
        parts,
        resolution_tokens,
    };
    let text = serde_json::to_string(&receipt).expect("keys and numbers serialise");
    Canonical::trusted(text)
}

/// The receipt of an envelope that only answered questions.
pub(super) fn resolved(standing: Option<&TaskKey>, revision: i32) -> Canonical {
    let text = serde_json::json!({
        "accepted_task_keys": [],
        "steps": [],
        "deliverable_task_key": standing,
        "revision": revision,
        "resolution_tokens": {},
    });
    Canonical::trusted(text.to_string())
}
