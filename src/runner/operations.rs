//! A handler's own child work (`operations.md`): it starts calls, questions, batches and joins, and
//! reads their outcomes, by the doors of its claim.
//!
//! Keys are given in the order in which the handler asks (`op_0`, `op_1`, …), so a handler that is
//! started again under the same claim asks for the same operations: what was accepted is not accepted
//! twice, what was observed is told as it was. That holds as long as the handler asks in the same
//! order for the same things.
//!
//! A handler that waits gives its place back, so that the child it waits for may run in it.
//!
//! Invariants: one observation is under way at a time; an operation whose answer was lost is sent
//! again as it was, never under another key; nothing is observed twice.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;

use super::hub::Hub;
use crate::client::answers::{Answer, InboxRow};
use crate::client::{Error as ClientError, chain};
use crate::domain::{Object, Value};

/// How long one observation waits at the server.
const WAIT_MS: u64 = 20_000;
/// The pause before an operation that a paused run refused is sent again.
const PAUSED: Duration = Duration::from_millis(500);
/// How many events of a trace are read at a time.
const PAGE: u32 = 200;

/// Why an operation has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// It was recorded as refused: the program's own fault, and data to it.
    #[error("{code}: {message}")]
    Refused {
        /// The word (`operations.md` §10).
        code: String,
        /// What was wrong.
        message: String,
    },
    /// The claim takes no more: it expired, was stopped, or is somebody else's. The handler ends.
    #[error("the claim takes no more operations: {0}")]
    Over(#[source] ClientError),
    /// Nobody answered as the doors do.
    #[error(transparent)]
    Client(ClientError),
}

/// What an operation came to (`operations.md` §6).
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome(Value);

impl Outcome {
    /// The whole body: an envelope, or `{results}`.
    pub fn body(&self) -> &Value {
        &self.0
    }

    /// `completed`, `failed`, `canceled`, …; of a batch or a join, of its first result.
    pub fn status(&self) -> &str {
        let first = self.first();
        let status = first.and_then(|envelope| envelope.get("status")?.as_str());
        status.unwrap_or_default()
    }

    /// Whether it completed, whatever its tool says of itself.
    pub fn is_completed(&self) -> bool {
        self.status() == "completed"
    }

    /// Its text.
    pub fn text(&self) -> &str {
        let text = self
            .first()
            .and_then(|envelope| envelope.get("output")?.as_str());
        text.unwrap_or_default()
    }

    /// Its structured value, if there is one.
    pub fn structured(&self) -> Option<&Value> {
        let envelope = self.first()?;
        let present = envelope.get("structured_content_present")?.as_bool()?;
        envelope.get("structured_content").filter(|_| present)
    }

    /// Its content blocks, links included.
    pub fn content(&self) -> &[Value] {
        let content = self
            .first()
            .and_then(|envelope| envelope.get("content")?.as_array());
        content.unwrap_or_default()
    }

    /// Every result of a batch or a join, in order; of one step, itself.
    pub fn results(&self) -> Vec<Outcome> {
        match self.0.get("results").and_then(Value::as_array) {
            Some(results) => results.iter().cloned().map(Outcome).collect(),
            None => vec![self.clone()],
        }
    }

    fn first(&self) -> Option<&Value> {
        match self.0.get("results").and_then(Value::as_array) {
            Some(results) => results.first(),
            None => Some(&self.0),
        }
    }
}

/// An accepted operation.
#[derive(Clone)]
pub struct Op {
    key: String,
    receipt: Value,
    shared: Arc<Shared>,
}

impl Op {
    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What was allocated (`operations.md` §4.4).
    pub fn receipt(&self) -> &Value {
        &self.receipt
    }

    /// Waits for its outcome; meanwhile the handler's place is free.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn outcome(&self) -> Result<Outcome, OperationError> {
        self.shared.outcome(&self.key).await
    }
}

/// When a join settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Once all ended.
    All,
    /// With the first success.
    Any,
    /// With so many.
    Count(u32),
}

/// The doors of one claim.
pub struct Operations {
    shared: Arc<Shared>,
    asked: Arc<Mutex<u32>>,
}

impl Clone for Operations {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            asked: Arc::clone(&self.asked),
        }
    }
}

struct Shared {
    hub: Arc<Hub>,
    row: Arc<InboxRow>,
    token: String,
    seat: Seat,
    known: Mutex<Known>,
    /// Held by whoever observes.
    turn: tokio::sync::Mutex<()>,
}

/// What is known of the trace.
#[derive(Default)]
struct Known {
    /// Whether all that was observed is in `outcomes`.
    is_read: bool,
    /// How far the trace was read.
    read_to: i64,
    end: i64,
    outcomes: HashMap<String, Result<Outcome, (String, String)>>,
}

impl Operations {
    pub(super) fn new(hub: Arc<Hub>, row: Arc<InboxRow>, token: String, seat: Seat) -> Self {
        let shared = Shared {
            hub,
            row,
            token,
            seat,
            known: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            asked: Arc::default(),
        }
    }

    /// The same claim's doors, for a handler that is started again.
    pub(super) fn restarted(&self) -> Self {
        let shared = &self.shared;
        Self::new(
            Arc::clone(&shared.hub),
            Arc::clone(&shared.row),
            shared.token.clone(),
            shared.seat.clone(),
        )
    }

    /// Sends a request as it is written in `operations.md` §5. The key is taken when this is called,
    /// not when it is awaited.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn start(
        &self,
        request: Value,
    ) -> impl Future<Output = Result<Op, OperationError>> + use<> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("op_{asked}");
        *asked += 1;
        let shared = Arc::clone(&self.shared);
        async move { shared.accept(key, request).await }
    }
}

/// A request of that kind about that input.
pub(super) fn request(kind: &str, input: Value) -> Value {
    Value::from([("kind", kind.into()), ("input", input)])
}

/// A request of one call.
pub(super) fn call(name: &str, input: Value) -> Value {
    Value::from([
        ("kind", "tool".into()),
        ("name", name.into()),
        ("input", input),
    ])
}

/// A request that joins operations.
pub(super) fn join(operations: &[&Op], until: Until, cancels: bool) -> Value {
    let keys = operations.iter().map(|op| op.key.as_str().into());
    let mut input = Object::from([("operations".to_owned(), Value::Array(keys.collect()))]);
    let until = match until {
        Until::All => None,
        Until::Any => Some("any".into()),
        Until::Count(k) => Some(i64::from(k).into()),
    };
    if let Some(until) = until {
        let losers = if cancels { "cancel" } else { "run_out" };
        input.insert("until".to_owned(), until);
        input.insert("losers".to_owned(), losers.into());
    }
    request("join", Value::Object(input))
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an operation until somebody answers as the door does.
    async fn accept(self: Arc<Self>, key: String, request: Value) -> Result<Op, OperationError> {
        let operation = Value::from([("key", key.as_str().into()), ("request", request)]);
        let event = self.persist(|| {
            let (run, task) = (&self.row.run_public_id, &self.row.task_key);
            let accept = self
                .hub
                .client
                .accept_operation(run, task, &self.token, &operation);
            Box::pin(async { accept.await.map(Answer::into_inner) })
        });
        let event = event.await?;
        let position = event.get("position").and_then(Value::as_i64).unwrap_or(0);
        let mut known = self.known();
        // A repeated answer says where the operation stands, not where the trace ends.
        known.end = known.end.max(position);
        drop(known);
        if let Some(refusal) = event.get("refusal") {
            return Err(refused(refusal));
        }
        let receipt = event.get("receipt").cloned().unwrap_or(Value::Null);
        Ok(Op {
            key,
            receipt,
            shared: self,
        })
    }

    async fn outcome(&self, key: &str) -> Result<Outcome, OperationError> {
        let waiting = self.seat.give_up();
        let found = loop {
            if let Some(found) = self.known().outcomes.get(key).cloned() {
                break found;
            }
            let _turn = self.turn.lock().await;
            // Whoever had the turn may have been told.
            if self.known().outcomes.contains_key(key) {
                continue;
            }
            if !self.known().is_read {
                self.read_trace().await?;
                continue;
            }
            self.observe().await?;
        };
        drop(waiting);
        self.seat.take_back(&self.hub).await;
        found.map_err(|(code, message)| OperationError::Refused { code, message })
    }

    /// Reads what a handler of this claim was told before.
    async fn read_trace(&self) -> Result<(), OperationError> {
        let mut after = self.known().read_to;
        loop {
            let page = self.persist(|| {
                let (run, task) = (&self.row.run_public_id, &self.row.task_key);
                let read = self.hub.client.trace(run, task, &self.token, after, PAGE);
                Box::pin(async { read.await.map(Answer::into_inner) })
            });
            let page = page.await?;
            let events = page
                .get("trace")
                .and_then(Value::as_array)
                .unwrap_or_default();
            let mut known = self.known();
            for event in events {
                known.take(event);
            }
            let end = page.get("position").and_then(Value::as_i64).unwrap_or(0);
            known.end = known.end.max(end);
            match page.get("next_after").and_then(Value::as_i64) {
                Some(next) => after = next,
                None => {
                    known.read_to = end;
                    known.is_read = true;
                    return Ok(());
                }
            }
        }
    }

    /// Observes once; what was told is kept for whoever waits for it.
    async fn observe(&self) -> Result<(), OperationError> {
        let after = self.known().end;
        let (run, task) = (&self.row.run_public_id, &self.row.task_key);
        let look = self
            .hub
            .client
            .observe(run, task, &self.token, after, WAIT_MS);
        match look.await {
            Ok(answer) => {
                let answer = answer.into_inner();
                let position = answer
                    .get("position")
                    .and_then(Value::as_i64)
                    .unwrap_or(after);
                let mut known = self.known();
                known.end = known.end.max(position);
                if let Some(event) = answer.get("observation").filter(|o| !o.is_null()) {
                    known.take(event);
                }
                Ok(())
            }
            // Something was accepted meanwhile: read where the trace ends.
            Err(e) if e.is(409, "operation_position_changed") => {
                self.known().is_read = false;
                Ok(())
            }
            Err(e) if e.is_transient() => {
                // It may have been observed all the same.
                self.known().is_read = false;
                self.pause(1, &e).await;
                Ok(())
            }
            Err(e) => Err(over(e)),
        }
    }

    /// Repeats a request until it is answered; while the run is paused it waits.
    async fn persist<'a>(
        &self,
        send: impl Fn() -> BoxFuture<'a, Result<Value, ClientError>> + Send + Sync,
    ) -> Result<Value, OperationError> {
        let mut failures = 0;
        loop {
            match send().await {
                Ok(value) => return Ok(value),
                Err(e) if e.is(409, "execution_paused") => tokio::time::sleep(PAUSED).await,
                Err(e) if e.is_transient() => {
                    failures += 1;
                    self.pause(failures, &e).await;
                }
                Err(e) => return Err(over(e)),
            }
        }
    }

    async fn pause(&self, failures: u32, e: &ClientError) {
        tracing::debug!(run.id = %self.row.run_public_id, task.key = %self.row.task_key,
            "an operation is unanswered: {}", chain(e));
        let wait = self.hub.timing.backoff.wait(failures, e.retry_after());
        tokio::time::sleep(wait).await;
    }
}

impl Known {
    fn take(&mut self, event: &Value) {
        if event.get("type").and_then(Value::as_str) != Some("observation") {
            return;
        }
        let Some(key) = event.get("key").and_then(Value::as_str) else {
            return;
        };
        let told = match (event.get("outcome"), event.get("refusal")) {
            (Some(outcome), _) => Ok(Outcome(outcome.clone())),
            (None, refusal) => Err(words(refusal.unwrap_or(&Value::Null))),
        };
        self.outcomes.insert(key.to_owned(), told);
    }
}

fn words(refusal: &Value) -> (String, String) {
    let word = |name: &str| {
        refusal
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    (word("code").to_owned(), word("message").to_owned())
}

fn refused(refusal: &Value) -> OperationError {
    let (code, message) = words(refusal);
    OperationError::Refused { code, message }
}

fn over(e: ClientError) -> OperationError {
    if e.status() == Some(409) {
        OperationError::Over(e)
    } else {
        OperationError::Client(e)
    }
}

/// A handler's place, which it gives back while it waits.
#[derive(Clone, Default)]
pub(super) struct Seat(Arc<Mutex<Sitting>>);

#[derive(Default)]
struct Sitting {
    place: Option<OwnedSemaphorePermit>,
    waiting: usize,
}

/// While this is held, the place is free.
struct Waiting<'a>(&'a Seat);

impl Seat {
    pub(super) fn new(place: Option<OwnedSemaphorePermit>) -> Self {
        Self(Arc::new(Mutex::new(Sitting { place, waiting: 0 })))
    }

    fn sitting(&self) -> MutexGuard<'_, Sitting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_up(&self) -> Waiting<'_> {
        let mut sitting = self.sitting();
        sitting.waiting += 1;
        sitting.place = None;
        Waiting(self)
    }

    /// Takes a place again once none of the handler's branches waits any more.
    async fn take_back(&self, hub: &Hub) {
        let sits = {
            let sitting = self.sitting();
            sitting.waiting > 0 || sitting.place.is_some()
        };
        if sits {
            return;
        }
        // The semaphore lives as long as the hub.
        if let Ok(place) = Arc::clone(&hub.places).acquire_owned().await {
            self.sitting().place.get_or_insert(place);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.sitting().waiting -= 1;
    }
}
