//! Operations of a claimed call: its trace, acceptance, observation (`operations.md`).

use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use super::lane::{Done, RunCommand};
use crate::app::App;
use crate::bus::{Channel, Message, Subscription};
use crate::domain::hint::FeedKind;
use crate::domain::json::Value;
use crate::domain::operation::Submitted;
use crate::domain::refusal::{self, Accept as Refusal, Observe};
use crate::domain::words::TaskKind;
use crate::domain::{PublicId, TaskKey, TaskNo};
use crate::engine::compile::Catalogue;
use crate::engine::mint::{self, Mint};
use crate::engine::operation::observe::{self, Observed};
use crate::engine::operation::{self, Accepted, Asked, Scope};
use crate::store::credentials::ExecutorCaller;
use crate::store::inbox::ClaimState;
use crate::store::operations::{TraceEvent, TracePage};
use crate::store::{First, Locked, OperationFirst, RunTarget};

/// How long a waiting observation trusts hints alone.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How long it lets hints of its run gather before it looks.
const GATHER: Duration = Duration::from_millis(2);

/// A page of a trace as its call may read it.
#[derive(Debug)]
pub struct Trace {
    /// The frozen context.
    pub context: Value,
    /// Events in order.
    pub events: Vec<Value>,
    /// The end of the whole trace.
    pub position: i32,
    /// Where the next page begins, if there is one.
    pub next_after: Option<i32>,
}

/// Reads a page of a call's trace: whoever holds its last claim may, whatever became of it. No lock.
///
/// # Errors
/// [`refusal::Trace`], or a fault.
pub async fn trace(
    app: &App,
    caller: &ExecutorCaller,
    at: (PublicId, &TaskKey),
    token: &str,
    after: i32,
    limit: i64,
) -> Result<Trace, Error<refusal::Trace>> {
    let state = claimed(app, caller, at, token).await?;
    let state = state.ok_or(Error::Refused(refusal::Trace::NotFound))?;
    let state = state.ok_or(Error::Refused(refusal::Trace::NotClaimant))?;
    let scope = app
        .store
        .operation_scope(caller.account, at.0, at.1)
        .await?;
    let context = scope.and_then(|scope| scope.context);
    let TracePage { events, end } = app
        .store
        .trace(caller.account, state.run, state.task, after, limit)
        .await?;
    let last = events.last().map(|event| event.position);
    Ok(Trace {
        context: observe::context(context.as_ref()),
        events: events.into_iter().map(shown).collect(),
        position: end,
        next_after: last.filter(|last| *last < end),
    })
}

/// The claim on a tool call, if there is one, if it is the caller's.
async fn claimed(
    app: &App,
    caller: &ExecutorCaller,
    (run, key): (PublicId, &TaskKey),
    token: &str,
) -> Result<Option<Option<ClaimState>>, crate::store::Error> {
    use subtle::ConstantTimeEq as _;
    let state = app.store.read_claim(caller.account, run, key).await?;
    let Some(state) = state.filter(|s| s.kind == TaskKind::Tool) else {
        return Ok(None);
    };
    let digest = mint::token_digest(token);
    let own = state.by == Some(caller.id)
        && state
            .digest
            .as_deref()
            .is_some_and(|d| d.ct_eq(&digest[..]).into());
    Ok(Some(own.then_some(state)))
}

fn shown(event: TraceEvent) -> Value {
    let mut members = vec![
        ("position".to_owned(), i64::from(event.position).into()),
        ("key".to_owned(), event.key.into()),
    ];
    match (event.accepted, event.observed) {
        (Some((request, response)), _) => {
            members.push(("type".to_owned(), "operation".into()));
            members.push(("request".to_owned(), request));
            members.push(match response {
                Ok(receipt) => ("receipt".to_owned(), receipt),
                Err(refusal) => ("refusal".to_owned(), refusal),
            });
        }
        (None, observed) => {
            members.push(("type".to_owned(), "observation".into()));
            let body = observed.as_ref().and_then(Value::as_object).cloned();
            members.extend(body.unwrap_or_default());
        }
    }
    Value::Object(members.into_iter().collect())
}

struct Accept {
    target: RunTarget,
    caller: ExecutorCaller,
    first: OperationFirst,
    request: operation::Request,
}

impl RunCommand for Accept {
    type Answer = Accepted;
    type Refusal = Refusal;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Operation(self.first.clone())
    }

    fn decide(&self, locked: &mut Locked, mint: &mut Mint) -> Result<Accepted, Refusal> {
        let no = row(locked, &self.first.key).ok_or(Refusal::NotFound)?;
        let caller = locked.callers.get(&self.caller.id).copied();
        let caller = caller.filter(|c| c.epoch == self.caller.epoch);
        let caller = caller.ok_or(Refusal::NotEligible)?;
        operation::accept(&mut locked.graph, no, &caller, &self.request, mint)
    }

    fn no_run(&self) -> Refusal {
        Refusal::NotFound
    }
}

fn row(locked: &Locked, key: &TaskKey) -> Option<TaskNo> {
    locked.graph.task_by_key(key.as_str()).map(|t| t.no)
}

/// Accepts an operation; a repeated one is answered as it was.
///
/// # Errors
/// [`Refusal`], or a fault.
pub async fn accept(
    app: &App,
    caller: ExecutorCaller,
    run: PublicId,
    key: TaskKey,
    token: &str,
    submitted: Submitted,
) -> Result<Accepted, Error<Refusal>> {
    let account = caller.account;
    let scope = app.store.operation_scope(account, run, &key).await?;
    let stored = scope.ok_or(Error::Refused(Refusal::NotFound))?;
    let scope = Scope::read(stored.context.as_ref());
    let routed: Vec<PublicId> = scope.runners().collect();
    let runners = app.store.executor_ids(account, &routed).await?;
    let asked = Asked::read(&submitted);
    let named = asked.as_ref().map(Asked::operations).unwrap_or_default();
    let operations = [submitted.key.clone()].into_iter().chain(named).collect();
    let steps = asked.as_ref().ok().and_then(Asked::steps);
    let first = OperationFirst {
        key,
        caller: caller.id,
        operations,
        waits: steps.map(waited).unwrap_or_default(),
    };
    let command = Accept {
        target: RunTarget { account, run },
        caller,
        first,
        request: operation::Request {
            token: mint::token_digest(token),
            submitted,
            asked,
            scope,
            context_of: stored.context_of,
            runners,
            catalogue: Catalogue::NotConsulted,
            ancestors: stored.ancestors,
        },
    };
    let Done { answer, .. } = app.lanes.execute(command).await?;
    Ok(answer)
}

/// The keys that waits among the steps name, at any depth; what names no key finds no row.
fn waited(steps: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![steps];
    while let Some(value) = todo.pop() {
        match value {
            Value::Array(items) => todo.extend(items),
            Value::Object(members) => {
                let named = members.get("wait").and_then(|wait| wait.get("task"));
                let named = named.and_then(Value::as_str);
                found.extend(named.filter(|key| !key.contains('\0')).map(str::to_owned));
                todo.extend(members.get("parallel"));
            }
            _ => {}
        }
    }
    found
}

struct Look {
    target: RunTarget,
    key: TaskKey,
    caller: ExecutorCaller,
    request: observe::Request,
}

impl RunCommand for Look {
    type Answer = Observed;
    type Refusal = Observe;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Observe {
            key: self.key.clone(),
            caller: self.caller.id,
            after: i32::try_from(self.request.after).unwrap_or(i32::MAX),
        }
    }

    fn decide(&self, locked: &mut Locked, _mint: &mut Mint) -> Result<Observed, Observe> {
        let no = row(locked, &self.key).ok_or(Observe::NotFound)?;
        let caller = locked.callers.get(&self.caller.id).copied();
        let caller = caller.filter(|c| c.epoch == self.caller.epoch);
        let caller = caller.ok_or(Observe::NotEligible)?;
        observe::observe(&mut locked.graph, no, &caller, &self.request)
    }

    fn no_run(&self) -> Observe {
        Observe::NotFound
    }
}

/// Observes the next outcome; without one it may wait for work of the run to end.
///
/// # Errors
/// [`Observe`], or a fault.
pub async fn observe(
    app: &App,
    caller: ExecutorCaller,
    run: PublicId,
    key: TaskKey,
    (token, after): (&str, i64),
    wait: Duration,
) -> Result<Observed, Error<Observe>> {
    let request = observe::Request {
        token: mint::token_digest(token),
        after,
    };
    let until = Instant::now() + wait;
    // Listens before the first look, so that nothing falls between.
    let mut hints = None;
    if !wait.is_zero() {
        let channel = Channel::Feed(FeedKind::Run, run);
        hints = Some(app.bus.subscribe(channel).await);
    }
    loop {
        let command = Look {
            target: RunTarget {
                account: caller.account,
                run,
            },
            key: key.clone(),
            caller: caller.clone(),
            request: request.clone(),
        };
        let Done { answer, .. } = app.lanes.execute(command).await?;
        match &mut hints {
            Some(hints) if answer.observation.is_none() => {
                if !again(app, &caller, (run, &key), answer.position, hints, until).await? {
                    return Ok(answer);
                }
            }
            _ => return Ok(answer),
        }
    }
}

/// Waits until there is something to observe; false when patience ends first.
async fn again(
    app: &App,
    caller: &ExecutorCaller,
    (run, key): (PublicId, &TaskKey),
    end: i32,
    hints: &mut Subscription,
    until: Instant,
) -> Result<bool, crate::store::Error> {
    let Some(state) = app.store.read_claim(caller.account, run, key).await? else {
        return Ok(true);
    };
    loop {
        let is_observable = app
            .store
            .is_observable(caller.account, state.run, state.task, end);
        if is_observable.await? {
            return Ok(true);
        }
        let next_look = (Instant::now() + LOOK_AGAIN).min(until);
        loop {
            tokio::select! {
                message = hints.recv() => match message {
                    Message::Feed(item) if item.sequence.is_none() => {}
                    Message::Feed(_) | Message::Resynced | Message::Lagged => {
                        // A settle tells of several rows at once: one look is enough.
                        tokio::time::sleep_until((Instant::now() + GATHER).min(until)).await;
                        break;
                    }
                    _ => {}
                },
                () = tokio::time::sleep_until(next_look) => break,
                () = app.draining.cancelled() => return Ok(false),
            }
        }
        if Instant::now() >= until {
            return Ok(false);
        }
    }
}
