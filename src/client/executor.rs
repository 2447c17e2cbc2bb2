//! The executor plane (`executor.md`, `architecture.md` §8).

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::answers::{
    self, Answer, Claim, ClaimGrant, ClaimState, CommitResult, ExecutorBootstrap, InboxRow, Page,
    Task, Upload,
};
use super::error::Error;
use super::transport::{Call, Client, FILE_TIMEOUT, path};
use crate::domain::Value;
use crate::domain::effect_profile::EffectProfile;
use crate::domain::words::Outcome;

/// What is served (`executor.md` §4): replaces all three lists.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Announcement {
    /// The tools.
    pub tools: Vec<ServedTool>,
    /// An opaque object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<Value>,
    /// `{name, description}` entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documents: Option<Value>,
}

/// One announced tool.
#[derive(Debug, Clone, Serialize)]
pub struct ServedTool {
    /// Its name: `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// Its effects.
    pub effect_profile: EffectProfile,
    /// Its budget when the author names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What a model reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON schema with `"type":"object"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
}

impl ServedTool {
    /// A tool with nothing but a name and a profile.
    pub fn new(name: &str, effect_profile: EffectProfile) -> Self {
        Self {
            name: name.to_owned(),
            effect_profile,
            timeout_ms: None,
            description: None,
            input_schema: None,
        }
    }

    /// With what a model reads of it: words, and a schema of type `object`.
    #[must_use]
    pub fn described(mut self, description: &str, input_schema: Value) -> Self {
        self.description = Some(description.to_owned());
        self.input_schema = Some(input_schema);
        self
    }

    /// With a budget of its own.
    #[must_use]
    pub fn timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.timeout_ms = Some(timeout_ms);
        self
    }
}

/// A final result (`executor.md` §11). What is `None` is left out of the body, so presence of the
/// structured value stays a fact: `Some(Value::Null)` is sent as `null`.
#[derive(Clone, Default)]
pub struct Commit {
    /// The proof; left out for an ask.
    pub claim_token: Option<String>,
    /// A string, or blocks: the only channel a model reads.
    pub content: Option<Value>,
    /// Any JSON; never shown to a model.
    pub structured_content: Option<Value>,
    /// The tool ran and errored.
    pub is_error: Option<bool>,
    /// `completed` when left out.
    pub outcome: Option<Outcome>,
    /// A title.
    pub title: Option<String>,
    /// The executor's own.
    pub metadata: Option<Value>,
}

impl Commit {
    /// The body, serialised once: repeat these bytes, and the repeat is exact.
    ///
    /// # Errors
    /// [`Error::Setup`] when a value cannot be written as JSON.
    pub fn body(&self) -> Result<Bytes, Error> {
        let mut members = crate::domain::Object::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
        put("claim_token", self.claim_token.clone().map(Value::from));
        put("content", self.content.clone());
        put("structured_content", self.structured_content.clone());
        put("is_error", self.is_error.map(Value::from));
        put("outcome", self.outcome.map(|o| o.as_str().into()));
        put("title", self.title.clone().map(Value::from));
        put("metadata", self.metadata.clone());
        let bytes = serde_json::to_vec(&Value::Object(members))
            .map_err(|e| Error::Setup(format!("the result cannot be written as JSON: {e}")))?;
        Ok(bytes.into())
    }
}

/// One entry of a batch of commits: a row, and the bytes of its commit.
#[derive(Debug, Clone)]
pub struct CommitEntry {
    /// The run.
    pub run_public_id: String,
    /// The task.
    pub task_key: String,
    /// What [`Commit::body`] made.
    pub body: Bytes,
}

impl CommitEntry {
    /// How many bytes it takes in a batch, at most.
    pub fn size(&self) -> usize {
        const NAMES: usize = r#"{"run_public_id":"","task_key":"",},"#.len();
        NAMES + self.run_public_id.len() + self.task_key.len() + self.body.len()
    }

    /// Writes it: the bytes of the commit stay as they are, the row's names before them.
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let unusable = || Error::Setup("a commit's body must be a JSON object".to_owned());
        let members = self.body.strip_prefix(b"{").ok_or_else(unusable)?;
        let row = Value::from([
            ("run_public_id", self.run_public_id.as_str().into()),
            ("task_key", self.task_key.as_str().into()),
        ]);
        let row = serde_json::to_vec(&row).map_err(|_| unusable())?;
        out.extend_from_slice(&row[..row.len() - 1]);
        if !members.starts_with(b"}") {
            out.push(b',');
        }
        out.extend_from_slice(members);
        Ok(())
    }
}

/// The body of a batch.
fn batch(entries: &[CommitEntry]) -> Result<Bytes, Error> {
    let size = entries.iter().map(CommitEntry::size).sum::<usize>();
    let mut body = Vec::with_capacity(size + r#"{"commits":[]}"#.len());
    body.extend_from_slice(br#"{"commits":["#);
    for (at, entry) in entries.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        entry.write(&mut body)?;
    }
    body.extend_from_slice(b"]}");
    Ok(body.into())
}

/// One ephemeral frame of a claimed call (`executor.md` §14).
#[derive(Clone, Serialize)]
pub struct ProgressFrame {
    /// The run.
    pub run_public_id: String,
    /// The task.
    pub task_key: String,
    /// The proof.
    pub claim_token: String,
    /// The end of its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_tail: Option<String>,
    /// Any JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
}

/// Bytes of a bound file.
#[derive(Debug, Clone)]
pub struct FileBytes {
    /// 200, or 206 for a range.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Content-Range`, on a range.
    pub content_range: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

/// How long calls that keep a claim alive may take: a hanging one must not eat the window.
const LIVE_TIMEOUT: Duration = Duration::from_secs(10);

fn at(segments: &[&str]) -> String {
    let mut all = vec!["agent_api", "v1", "executor"];
    all.extend(segments);
    path(&all)
}

fn row(run: &str, key: &str, rest: &[&str]) -> String {
    let mut all = vec!["inbox", run, key];
    all.extend(rest);
    at(&all)
}

impl Client {
    /// `GET /executor`: which address the credential is.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn bootstrap(&self) -> Result<Answer<ExecutorBootstrap>, Error> {
        self.send(Call::get(at(&[]))).await?.whole()
    }

    /// `PUT /executor/announcement`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn announce(
        &self,
        announcement: &Announcement,
    ) -> Result<Answer<ExecutorBootstrap>, Error> {
        let call = Call::put(at(&["announcement"]))
            .json(announcement)?
            .repeatable();
        self.send(call).await?.whole()
    }

    /// `GET /executor/inbox`, one page; with `wait_ms` an empty inbox is answered when something
    /// comes or the wait is over.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn inbox(
        &self,
        after: Option<&str>,
        limit: Option<u32>,
        wait_ms: Option<u64>,
    ) -> Result<Answer<Page<InboxRow>>, Error> {
        let call = Call::get(at(&["inbox"]))
            .query("after", after)
            .query("limit", limit)
            .query("wait_ms", wait_ms)
            .waiting(wait_ms.unwrap_or(0));
        self.send(call).await?.page("tasks")
    }

    /// `POST …/claim`. Without a key a lost answer cannot be recovered and the call is never
    /// repeated; with one, the same key answers a standing claim again, with a new token.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn claim(
        &self,
        run: &str,
        task_key: &str,
        key: Option<&str>,
    ) -> Result<Answer<ClaimGrant>, Error> {
        let call = Call::post(row(run, task_key, &["claim"])).idempotency_key(key)?;
        self.send(call).await?.whole()
    }

    /// `POST /executor/inbox/claims`: up to `limit` (1 to 64) claimable rows, oldest first. Keys as
    /// for [`claim`](Self::claim).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn claims(
        &self,
        limit: u32,
        wait_ms: u64,
        key: Option<&str>,
    ) -> Result<Answer<Vec<ClaimGrant>>, Error> {
        let wait = i64::try_from(wait_ms).unwrap_or(i64::MAX);
        let body = Value::from([("limit", i64::from(limit).into()), ("wait_ms", wait.into())]);
        let call = Call::post(at(&["inbox", "claims"]))
            .json(&body)?
            .waiting(wait_ms)
            .idempotency_key(key)?;
        self.send(call).await?.wrapped("claims")
    }

    /// `GET …/claim`: whether the claim is alive.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn read_claim(
        &self,
        run: &str,
        task_key: &str,
        claim_token: &str,
    ) -> Result<Answer<ClaimState>, Error> {
        let call = Call::get(row(run, task_key, &["claim"]))
            .header("claim-token", claim_token)?
            .timeout(LIVE_TIMEOUT);
        self.send(call).await?.wrapped("claim")
    }

    /// `POST …/extend`: moves the deadline to `timeout_ms` from now; the same token
    /// stands.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn extend(
        &self,
        run: &str,
        task_key: &str,
        claim_token: &str,
        timeout_ms: u64,
    ) -> Result<Answer<Claim>, Error> {
        let window = i64::try_from(timeout_ms).unwrap_or(i64::MAX);
        let body = Value::from([
            ("claim_token", claim_token.into()),
            ("timeout_ms", window.into()),
        ]);
        let call = Call::post(row(run, task_key, &["extend"]))
            .json(&body)?
            .timeout(LIVE_TIMEOUT)
            .repeatable();
        self.send(call).await?.wrapped("claim")
    }

    /// `POST …/commit`: answers the task in the member projection.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn commit(
        &self,
        run: &str,
        task_key: &str,
        commit: &Commit,
    ) -> Result<Answer<Task>, Error> {
        self.commit_bytes(run, task_key, commit.body()?).await
    }

    /// [`commit`](Self::commit) with a body made by [`Commit::body`]: repeating the same bytes is
    /// safe by nature.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn commit_bytes(
        &self,
        run: &str,
        task_key: &str,
        body: Bytes,
    ) -> Result<Answer<Task>, Error> {
        let call = Call::post(row(run, task_key, &["commit"]))
            .json_bytes(body)
            .repeatable();
        self.send(call).await?.wrapped("task")
    }

    /// `GET …/operations`: a page of the trace of a claimed call, with its frozen context.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn trace(
        &self,
        run: &str,
        task_key: &str,
        claim_token: &str,
        after: i64,
        limit: u32,
    ) -> Result<Answer<Value>, Error> {
        let call = Call::get(row(run, task_key, &["operations"]))
            .header("claim-token", claim_token)?
            .query("after", Some(after))
            .query("limit", Some(limit));
        self.send(call).await?.wrapped("operations")
    }

    /// `POST …/operations`: accepts `operation` (`{key, request}`); its event, also when it is
    /// repeated. Repeating it is safe by its key.
    ///
    /// # Errors
    /// [`Error`]. What is recorded as refused is no error.
    pub async fn accept_operation(
        &self,
        run: &str,
        task_key: &str,
        claim_token: &str,
        operation: &Value,
    ) -> Result<Answer<Value>, Error> {
        let body = Value::from([
            ("claim_token", claim_token.into()),
            ("operation", operation.clone()),
        ]);
        let call = Call::post(row(run, task_key, &["operations"]))
            .json(&body)?
            .repeatable();
        self.send(call).await?.wrapped("operation")
    }

    /// `POST …/observation`: the next outcome behind `after`, `{observation, position}`; with
    /// `wait_ms` it is answered when there is one or the wait is over.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn observe(
        &self,
        run: &str,
        task_key: &str,
        claim_token: &str,
        after: i64,
        wait_ms: u64,
    ) -> Result<Answer<Value>, Error> {
        let wait = i64::try_from(wait_ms).unwrap_or(i64::MAX);
        let body = Value::from([
            ("claim_token", claim_token.into()),
            ("after", after.into()),
            ("wait_ms", wait.into()),
        ]);
        let call = Call::post(row(run, task_key, &["observation"]))
            .json(&body)?
            .waiting(wait_ms)
            .repeatable();
        self.send(call).await?.whole()
    }

    /// `POST /executor/inbox/commits`: 1 to 64 commits, each answered as it would be alone, in their
    /// order. Repeating the same entries is safe by nature.
    ///
    /// # Errors
    /// [`Error`]: nothing was answered about any of them.
    pub async fn commits(
        &self,
        entries: &[CommitEntry],
    ) -> Result<Answer<Vec<Result<Task, Error>>>, Error> {
        const WHAT: &str = "POST /agent_api/v1/executor/inbox/commits";
        let call = Call::post(at(&["inbox", "commits"]))
            .json_bytes(batch(entries)?)
            .repeatable();
        let raw = self.send(call).await?;
        raw.answer(|body| {
            let results: Vec<CommitResult> = answers::wrapped(body, "results")?;
            if results.len() != entries.len() {
                let (got, sent) = (results.len(), entries.len());
                return Err(format!("{got} results for {sent} entries"));
            }
            Ok(results.into_iter().map(|r| r.outcome(WHAT)).collect())
        })
    }

    /// `POST /executor/uploads`: stages a capture, a new one at each call.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn upload(&self, filename: &str, bytes: Bytes) -> Result<Answer<Upload>, Error> {
        let call = Call::post(at(&["uploads"])).file(filename, bytes);
        self.send(call).await?.wrapped("upload")
    }

    /// `GET …/attachments/{upload}`: a bound file's descriptor.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn attachment(
        &self,
        run: &str,
        task_key: &str,
        upload: &str,
        claim_token: &str,
    ) -> Result<Answer<Upload>, Error> {
        let call = Call::get(row(run, task_key, &["attachments", upload]))
            .header("claim-token", claim_token)?;
        self.send(call).await?.wrapped("upload")
    }

    /// `GET …/attachments/{upload}/bytes`; `range` is a `Range` header's value (`bytes=0-3`).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn attachment_bytes(
        &self,
        run: &str,
        task_key: &str,
        upload: &str,
        claim_token: &str,
        range: Option<&str>,
    ) -> Result<FileBytes, Error> {
        let call = Call::get(row(run, task_key, &["attachments", upload, "bytes"]))
            .header("claim-token", claim_token)?
            .range(range)?
            .timeout(FILE_TIMEOUT);
        let raw = self.send(call).await?;
        let text = |name: &str| {
            let value = raw.headers.get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        Ok(FileBytes {
            status: raw.status(),
            content_type: text("content-type"),
            content_range: text("content-range"),
            bytes: raw.body.clone(),
        })
    }

    /// `POST /executor/progress`: broadcast or dropped; never stored.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn progress(&self, frame: &ProgressFrame) -> Result<Answer<()>, Error> {
        #[derive(Serialize)]
        struct Wire<'a> {
            frame: &'a ProgressFrame,
        }
        let call = Call::post(at(&["progress"]))
            .json(&Wire { frame })?
            .timeout(LIVE_TIMEOUT);
        self.send(call).await?.empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_carries_the_bytes_of_its_commits() {
        let entry = |body: &'static str| CommitEntry {
            run_public_id: "r".to_owned(),
            task_key: "a\"".to_owned(),
            body: Bytes::from_static(body.as_bytes()),
        };
        let entries = [entry(r#"{"content":1.50}"#), entry("{}")];
        let body = batch(&entries).unwrap();
        assert_eq!(
            body,
            concat!(
                r#"{"commits":[{"run_public_id":"r","task_key":"a\"","content":1.50},"#,
                r#"{"run_public_id":"r","task_key":"a\""}]}"#
            )
        );
        assert!(batch(&[entry("[]")]).is_err());
    }

    #[test]
    fn a_commit_sends_what_is_present_and_nothing_else() {
        let commit = Commit {
            claim_token: Some("t".to_owned()),
            structured_content: Some(Value::Null),
            outcome: Some(Outcome::Failed),
            ..Commit::default()
        };
        assert_eq!(
            commit.body().unwrap(),
            r#"{"claim_token":"t","outcome":"failed","structured_content":null}"#
        );
    }
}
