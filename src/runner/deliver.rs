//! Commits one result: the same bytes until somebody answers (BR-016).

use bytes::Bytes;
use tokio::time::Instant;

use super::hub::{Hub, count};
use super::work::Output;
use crate::client::answers::InboxRow;
use crate::client::{CommitEntry, Error, chain};

/// What follows an unsuccessful commit.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The same bytes again.
    Again,
    /// The body itself is refused and the park stands: commit a failure that says why.
    SayWhy,
    /// An answer for good: conflict, stale claim, settled otherwise.
    Final,
    /// The credential is dead.
    Unauthorized,
}

fn next(e: &Error) -> Next {
    if e.is_transient() {
        return Next::Again;
    }
    match (e.status(), e.code()) {
        (Some(401), _) => Next::Unauthorized,
        // `result_unstorable` has settled the task (`executor.md` §11).
        (Some(422), Some("result_unstorable")) => Next::Final,
        (Some(400 | 413 | 422), _) => Next::SayWhy,
        _ => Next::Final,
    }
}

/// Delivers `output` under `token`.
pub(super) async fn deliver(hub: &Hub, row: &InboxRow, token: String, output: Output) {
    let body = output.into_commit(token.clone()).body();
    let refusal = match body {
        Ok(body) => match send(hub, row, body).await {
            Some(refusal) => refusal,
            None => return,
        },
        Err(e) => e.to_string(),
    };
    tracing::warn!(run.id = %row.run_public_id, task.key = %row.task_key,
        "the result was refused, committing a failure: {refusal}");
    let why = Output::failed(format!("the result was refused: {refusal}"));
    if let Ok(body) = why.into_commit(token).body()
        && send(hub, row, body).await.is_some()
    {
        count(&hub.counts.refused);
    }
}

/// Sends these bytes until they are answered. The refusal's words, when the body itself is refused;
/// everything else is counted here.
async fn send(hub: &Hub, row: &InboxRow, body: Bytes) -> Option<String> {
    let first_at = Instant::now();
    let mut made = 0;
    loop {
        let entry = CommitEntry {
            run_public_id: row.run_public_id.clone(),
            task_key: row.task_key.clone(),
            body: body.clone(),
        };
        let e = match hub.courier.commit(&hub.client, entry).await {
            Ok(task) => {
                tracing::info!(run.id = %row.run_public_id, task.key = %row.task_key,
                    status = %task.status, "committed");
                count(&hub.counts.committed);
                return None;
            }
            Err(e @ Error::Decode { .. }) => {
                // A success all the same: the result is stored.
                tracing::warn!(run.id = %row.run_public_id, task.key = %row.task_key, "{e}");
                count(&hub.counts.committed);
                return None;
            }
            Err(e) => e,
        };
        made += 1;
        match next(&e) {
            Next::SayWhy => return Some(e.to_string()),
            Next::Final => {
                tracing::warn!(run.id = %row.run_public_id, task.key = %row.task_key,
                    "not committed: {e}");
                count(&hub.counts.refused);
                return None;
            }
            Next::Unauthorized => {
                hub.unauthorized();
                count(&hub.counts.abandoned);
                return None;
            }
            Next::Again => {}
        }
        let wait = hub.timing.backoff.wait(made, e.retry_after());
        let spent = first_at.elapsed() + wait > hub.timing.commit_within;
        let cut = tokio::select! {
            () = tokio::time::sleep(wait), if !spent => false,
            () = hub.cutting() => true,
            else => true,
        };
        if spent || cut {
            tracing::error!(run.id = %row.run_public_id, task.key = %row.task_key,
                "the result was not delivered after {made} attempts: {}", chain(&e));
            count(&hub.counts.abandoned);
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Value;

    fn api(status: u16, code: &str) -> Error {
        Error::Api {
            status,
            code: code.to_owned(),
            message: String::new(),
            retry_after: None,
            body: Box::new(Value::Null),
        }
    }

    #[test]
    fn only_what_may_pass_is_sent_again() {
        for (status, code, then) in [
            (503, "unavailable", Next::Again),
            (429, "rate_limited", Next::Again),
            (409, "final_result_conflict", Next::Final),
            (409, "stale_claim", Next::Final),
            (409, "execution_stopped", Next::Final),
            (404, "not_found", Next::Final),
            (422, "result_unstorable", Next::Final),
            (422, "result_too_large", Next::SayWhy),
            (413, "content_too_large", Next::SayWhy),
            (401, "unauthorized", Next::Unauthorized),
        ] {
            assert_eq!(next(&api(status, code)), then, "{status} {code}");
        }
    }
}
