//! One claimed call: its handler runs, its clock is moved, its claim is watched, its result is
//! committed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::deliver;
use super::hub::{Hold, Hub, count};
use super::lease::Lease;
use super::operations::{Operations, Seat};
use super::work::{Ctx, Output, Progress};
use crate::client::answers::{Answer, Claim, ClaimGrant, ClaimState, InboxRow};
use crate::client::{Error, ProgressFrame, chain};
use crate::domain::{Object, Value};

/// Executes a granted row to its end. `sent` is when its claim was first asked for.
pub(super) async fn run(hub: Arc<Hub>, grant: ClaimGrant, sent: Instant, seat: Seat) {
    let row = Arc::new(grant.task);
    let token = grant.claim.claim_token;
    tracing::info!(run.id = %row.run_public_id, task.key = %row.task_key,
        tool = row.tool_name.as_deref(), "claimed");
    let hold = hub.hold(&row.run_public_id, &row.task_key);
    let name = row.tool_name.as_deref().unwrap_or_default();
    let Some((announced_ms, tool)) = hub.tools.get(name) else {
        let output = Output::failed(format!("tool `{name}` is not served by this runner"));
        return deliver::deliver(&hub, &row, token, output).await;
    };
    let canceled = CancellationToken::new();
    let (progress, frames) = watch::channel(Progress::default());
    let ctx = Ctx {
        row: Arc::clone(&row),
        client: hub.client.clone(),
        canceled: canceled.clone(),
        progress,
        operations: Operations::new(
            Arc::clone(&hub),
            Arc::clone(&row),
            token.clone(),
            seat.clone(),
        ),
    };
    let input = row.tool_input.clone().unwrap_or_else(empty);
    let _pump = AbortOnDrop(tokio::spawn(pump(
        Arc::clone(&hub),
        Arc::clone(&row),
        token.clone(),
        frames,
    )));
    let call = Call {
        lease: Lease::new(sent, row.timeout_ms, *announced_ms),
        handler: AbortOnDrop(tokio::spawn(tool.call(ctx, input))),
        check_at: Instant::now() + hub.timing.check,
        extending: None,
        checking: None,
        extend_failures: 0,
        hub: Arc::clone(&hub),
        row: Arc::clone(&row),
        token: token.clone(),
        canceled,
        hold,
    };
    match call.execute().await {
        Ended::Done(output) => deliver::deliver(&hub, &row, token, output).await,
        Ended::Lost => {
            count(&hub.counts.canceled);
            tracing::info!(run.id = %row.run_public_id, task.key = %row.task_key, "canceled");
        }
        Ended::Cut => {
            count(&hub.counts.abandoned);
            tracing::warn!(run.id = %row.run_public_id, task.key = %row.task_key,
                "cut before it was done: its deadline and its effect profile decide");
        }
    }
}

fn empty() -> Value {
    Value::Object(Object::new())
}

/// How a handler ended.
enum Ended {
    /// With a result.
    Done(Output),
    /// Its claim was over.
    Lost,
    /// The runner ends.
    Cut,
}

/// A request under way beside the handler.
type Pending<T> = Option<BoxFuture<'static, (Instant, Result<Answer<T>, Error>)>>;

struct Call {
    hub: Arc<Hub>,
    row: Arc<InboxRow>,
    token: String,
    canceled: CancellationToken,
    hold: Hold,
    handler: AbortOnDrop<Output>,
    lease: Lease,
    extending: Pending<Claim>,
    extend_failures: u32,
    checking: Pending<ClaimState>,
    check_at: Instant,
}

impl Call {
    async fn execute(mut self) -> Ended {
        loop {
            tokio::select! {
                biased;
                done = &mut self.handler.0 => {
                    let panicked = |_| Output::failed("the tool's handler panicked");
                    return Ended::Done(done.unwrap_or_else(panicked));
                }
                () = self.hub.cutting() => {
                    self.end_handler().await;
                    return Ended::Cut;
                }
                (sent, answer) = opt(&mut self.extending) => {
                    self.extending = None;
                    self.on_extend(sent, answer);
                }
                (_, answer) = opt(&mut self.checking) => {
                    self.checking = None;
                    if self.is_lost(answer) {
                        self.end_handler().await;
                        return Ended::Lost;
                    }
                }
                () = until(self.lease.due()), if self.extending.is_none() => self.extend(),
                () = self.hold.check.notified(), if self.checking.is_none() => self.check(),
                () = tokio::time::sleep_until(self.check_at), if self.checking.is_none() => {
                    self.check();
                }
            }
        }
    }

    /// Tells the handler, gives it a moment, then drops it.
    async fn end_handler(&mut self) {
        self.canceled.cancel();
        let _ = tokio::time::timeout(self.hub.timing.cancel_grace, &mut self.handler.0).await;
    }

    fn extend(&mut self) {
        let (hub, row, token) = self.parts();
        let ask_ms = self.lease.ask_ms;
        self.extending = Some(Box::pin(async move {
            let sent = Instant::now();
            let extend = hub
                .client
                .extend(&row.run_public_id, &row.task_key, &token, ask_ms);
            (sent, extend.await)
        }));
    }

    fn on_extend(&mut self, sent: Instant, answer: Result<Answer<Claim>, Error>) {
        let Err(e) = answer else {
            self.extend_failures = 0;
            self.lease.extended(sent);
            return;
        };
        tracing::debug!(run.id = %self.row.run_public_id, task.key = %self.row.task_key,
            "not extended: {}", chain(&e));
        if e.is_transient() {
            self.extend_failures += 1;
            let wait = self
                .hub
                .timing
                .backoff
                .wait(self.extend_failures, e.retry_after());
            self.lease.unanswered(Instant::now(), wait);
        } else if e.is(409, "extension_too_long") {
            self.lease.too_long(Instant::now());
        } else {
            self.lease.give_up();
            self.on_refusal(&e);
            self.check_at = Instant::now();
        }
    }

    fn check(&mut self) {
        let (hub, row, token) = self.parts();
        self.checking = Some(Box::pin(async move {
            let read = hub
                .client
                .read_claim(&row.run_public_id, &row.task_key, &token);
            (Instant::now(), read.await)
        }));
        self.check_at = Instant::now() + self.hub.timing.check;
    }

    /// Whether the claim is over: inactive, missing, or somebody else's (`executor.md` §9).
    /// Anything else proves nothing.
    fn is_lost(&mut self, answer: Result<Answer<ClaimState>, Error>) -> bool {
        match answer {
            Ok(state) => !state.active,
            Err(e) if e.status() == Some(404) || e.is(409, "not_claimant") => true,
            Err(e) => {
                self.on_refusal(&e);
                let soon = Duration::from_secs(1).min(self.hub.timing.check);
                self.check_at = Instant::now() + soon;
                false
            }
        }
    }

    fn on_refusal(&self, e: &Error) {
        if e.is_unauthorized() {
            self.hub.unauthorized();
        }
    }

    fn parts(&self) -> (Arc<Hub>, Arc<InboxRow>, String) {
        (
            Arc::clone(&self.hub),
            Arc::clone(&self.row),
            self.token.clone(),
        )
    }
}

/// Sends the newest progress, at most one frame per space. Frames are lossy by nature: failures
/// are left alone, except one that says the claim is over.
async fn pump(
    hub: Arc<Hub>,
    row: Arc<InboxRow>,
    token: String,
    mut frames: watch::Receiver<Progress>,
) {
    while frames.changed().await.is_ok() {
        let Progress {
            text_tail,
            structured,
        } = frames.borrow_and_update().clone();
        let frame = ProgressFrame {
            run_public_id: row.run_public_id.clone(),
            task_key: row.task_key.clone(),
            claim_token: token.clone(),
            text_tail,
            structured,
        };
        if let Err(e) = hub.client.progress(&frame).await {
            tracing::debug!("progress not taken: {}", chain(&e));
            if e.is(409, "not_claimant") {
                hub.check(&row.run_public_id, &row.task_key);
            }
        }
        tokio::time::sleep(hub.timing.progress).await;
    }
}

/// A task that does not outlive its holder.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The pending request's answer; never, when there is none.
async fn opt<T>(pending: &mut Option<Pin<Box<T>>>) -> T::Output
where
    T: Future + ?Sized,
{
    match pending {
        Some(future) => future.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Sleeps until then; for ever, when there is no then.
async fn until(due: Option<Instant>) {
    match due {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
