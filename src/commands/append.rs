//! Append: an envelope onto a run, and questions answered with it (`runs.md` §4, §5).

use std::collections::BTreeSet;

use super::lane::{Done, RunCommand};
use super::receipt::receipt;
use super::{Error, contexts, routes, run_again};
use crate::app::App;
use crate::domain::event::Resolver;
use crate::domain::idempotency::{self, Receipt};
use crate::domain::json::{Canonical, Object, Value, parse};
use crate::domain::payload::Submission;
use crate::domain::steps::{PromptMechanism, Refusal as StepsRefusal};
use crate::domain::{AccountId, PublicId};
pub use crate::engine::append::Refusal as Judged;
use crate::engine::append::{self, Resolve};
use crate::engine::compile::{self, Envelope, Facts};
use crate::engine::mint::Mint;
use crate::store::{self, First, Locked, RunTarget, shell};

/// Why an append is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A twin with the same key is still under way.
    #[error("a request with this Idempotency-Key is still under way; try again soon")]
    InProgress,
    /// A key that was used for another envelope.
    #[error("the Idempotency-Key was used for another envelope")]
    EnvelopeMismatch,
    /// A member that is no such thing.
    #[error("{message}")]
    Malformed {
        /// Which.
        parameter: &'static str,
        /// What is allowed.
        message: &'static str,
    },
    /// A member that says what is not allowed.
    #[error("{message}")]
    Member {
        /// The code.
        code: &'static str,
        /// Where.
        path: Option<String>,
        /// What is allowed.
        message: String,
    },
    /// The engine's.
    #[error(transparent)]
    Judged(#[from] append::Refusal),
}

impl Refusal {
    /// The word clients branch on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InProgress => "idempotency_in_progress",
            Self::EnvelopeMismatch => "idempotency_envelope_mismatch",
            Self::Malformed { .. } => "parameter_invalid",
            Self::Member { code, .. } => code,
            Self::Judged(refusal) => refusal.code(),
        }
    }
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The account.
    pub account: AccountId,
    /// The run, which the caller may write to.
    pub run: PublicId,
    /// Who appends.
    pub by: Resolver,
    /// The body.
    pub body: Object,
    /// The client's key.
    pub key: Option<String>,
}

/// An accepted append, or the one that the same key made before.
#[derive(Debug, Clone)]
pub struct Appended {
    /// The receipt, as first answered.
    pub receipt: Canonical,
    /// Whether this repeats an earlier append.
    pub replayed: bool,
}

/// How many minted keys of a verb may be taken beside one a step: beyond it a collision is a fault
/// of the transaction, never a row lost.
const SPARE_KEYS: usize = 32;

#[derive(Clone)]
struct Append {
    target: RunTarget,
    request: append::Request,
    /// Why the body is refused, told only after the receipt and the run's state were looked at.
    refused: Option<Refusal>,
    door: Facts,
    runners: append::Runners,
    first: store::Append,
    key: Option<String>,
    fingerprint: Option<[u8; 32]>,
}

impl RunCommand for Append {
    type Answer = Appended;
    type Refusal = Refusal;

    fn target(&self) -> RunTarget {
        self.target
    }

    fn first(&self) -> First {
        First::Append(self.first.clone())
    }

    fn decide(&self, locked: &mut Locked, mint: &mut Mint) -> Result<Appended, Refusal> {
        if let Some(replay) = self.replay(locked)? {
            return Ok(replay);
        }
        append::judge_run(&locked.graph, self.request.expected_revision)?;
        if let Some(refusal) = &self.refused {
            return Err(refusal.clone());
        }
        let graph = &mut locked.graph;
        let made = append::append(graph, &self.request, &self.door, &self.runners, mint)?;
        let standing = made.deliverable.as_ref();
        let body = match &made.compiled {
            Some(compiled) => receipt(compiled, standing, made.tokens),
            None => super::receipt::resolved(standing, made.revision),
        };
        graph.changes.receipts.push(Receipt {
            key: self
                .key
                .clone()
                .unwrap_or_else(|| mint.base62(idempotency::RUN_KEY_BYTES)),
            fingerprint: self.fingerprint.unwrap_or_else(|| mint.bytes()).to_vec(),
            body: body.clone(),
        });
        Ok(Appended {
            receipt: body,
            replayed: false,
        })
    }

    fn no_run(&self) -> Refusal {
        append::Refusal::NotFound.into()
    }
}

impl Append {
    /// The receipt under the key: this transaction's, or a stored one.
    fn replay(&self, locked: &Locked) -> Result<Option<Appended>, Refusal> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        let new = locked.graph.changes.receipts.iter();
        let new = new.filter(|r| r.key == *key);
        let mut known = new.map(|r| (&r.fingerprint, &r.body));
        let stored = locked.receipts.get(key).map(|r| (&r.fingerprint, &r.body));
        let Some((fingerprint, body)) = known.next().or(stored) else {
            return Ok(None);
        };
        if self.fingerprint.is_none_or(|f| f[..] != fingerprint[..]) {
            return Err(Refusal::EnvelopeMismatch);
        }
        Ok(Some(Appended {
            receipt: body.clone(),
            replayed: true,
        }))
    }
}

/// Appends to a run.
///
/// # Errors
/// [`Refusal`], or a fault; nothing is written on either.
pub async fn append(app: &App, request: Request) -> Result<Appended, Error<Refusal>> {
    let shell = shell::inherited(&app.store, request.account, request.run).await?;
    let Some(shell) = shell else {
        return Err(Error::Refused(append::Refusal::NotFound.into()));
    };
    let fingerprint = fingerprint(&request);
    let target = RunTarget {
        account: request.account,
        run: request.run,
    };
    let (envelope, resolves, expected_revision, refused) = match read(&request.body) {
        Ok((envelope, resolves, revision)) => (envelope, resolves, revision, None),
        Err(refusal @ Refusal::Malformed { .. }) => return Err(Error::Refused(refusal)),
        Err(refusal) => (None, Vec::new(), expected(&request.body), Some(refusal)),
    };
    let mut door = Facts::create(PromptMechanism::Raw);
    door.creator = shell.creator;
    door.default_runner = shell.default_runner;
    let stored = |text: &Option<String>| text.as_ref().and_then(|t| parse(t.as_bytes()).ok());
    if let Some(selection) = stored(&shell.model_selection) {
        door.model_selection = compile::model_selection(&selection).unwrap_or(door.model_selection);
    }
    if let Some(models) = stored(&shell.fallback_models) {
        door.fallback_models = compile::fallback_models(&models).unwrap_or_default();
    }
    let mut runners = append::Runners::default();
    if let Some(envelope) = &envelope {
        let unnamed = envelope.wants().routes.iter().any(|(id, _)| id.is_none());
        let default = shell.default_runner.filter(|_| unnamed);
        let found = routes::runners(app, request.account, &shell.principal, envelope, default);
        let found = found.await?;
        routes::tell(&mut door, envelope, &found);
        runners.ids = found.iter().map(|r| (r.public_id, r.id)).collect();
        let steps = request.body.get("steps").unwrap_or(&Value::Null);
        let known = contexts::known(
            app,
            request.account,
            &shell.principal,
            shell.default_runner,
            steps,
        );
        runners.known = known.await?;
    }
    let named = envelope.iter().flat_map(|e| e.wants().keys.iter());
    let named = named.map(|key| key.as_str().to_owned());
    let keys: BTreeSet<String> = named
        .chain(resolves.iter().map(|r| r.task.clone()))
        .collect();
    let leaves = envelope.as_ref().map_or(0, Envelope::leaves);
    let minted = if leaves == 0 { 0 } else { leaves + SPARE_KEYS };
    let first = store::Append {
        // The database cannot even read U+0000; such a key is no row's.
        keys: keys.into_iter().filter(|key| !key.contains('\0')).collect(),
        minted: i32::try_from(minted).unwrap_or(i32::MAX),
        receipt: request.key.clone(),
    };
    let command = Append {
        target,
        request: append::Request {
            envelope,
            expected_revision,
            resolves,
            by: request.by,
        },
        refused,
        door,
        runners,
        first,
        key: request.key,
        fingerprint,
    };
    let done = run_again(|| {
        let command = command.clone();
        async move { app.lanes.execute(command).await }
    });
    let Done { answer, .. } = done.await?;
    Ok(answer)
}

/// Of `steps`, `resolve` and `expected_revision` (`runs.md` §4).
fn fingerprint(request: &Request) -> Option<[u8; 32]> {
    let members = ["steps", "resolve", "expected_revision"];
    let body = members.iter().filter_map(|name| {
        let value = request.body.get(*name).filter(|v| !v.is_null());
        value.map(|v| ((*name).to_owned(), v.clone()))
    });
    let path = [request.run.to_string()];
    idempotency::fingerprint("run_append", &path, &Value::Object(body.collect())).ok()
}

/// A number that no revision can be is stale like any other that it is not.
fn expected(body: &Object) -> Option<i64> {
    match body.get("expected_revision")? {
        revision @ Value::Int(_) => Some(revision.as_i64().unwrap_or(i64::MAX)),
        _ => None,
    }
}

type Read = (Option<Envelope>, Vec<Resolve>, Option<i64>);

fn read(body: &Object) -> Result<Read, Refusal> {
    let given = |name: &str| body.get(name).filter(|v| !v.is_null());
    let revision = match given("expected_revision") {
        None => None,
        Some(Value::Int(_)) => expected(body),
        Some(_) => {
            return Err(Refusal::Malformed {
                parameter: "expected_revision",
                message: "expected_revision must be an integer",
            });
        }
    };
    let resolves = match given("resolve") {
        None => Vec::new(),
        Some(Value::Array(entries)) => entries.iter().map(resolve).collect::<Result<_, _>>()?,
        Some(_) => {
            return Err(Refusal::Malformed {
                parameter: "resolve",
                message: "resolve must be an array of keys or of objects with a task",
            });
        }
    };
    if let Some(word) = body.keys().find(|name| compile::is_graph_word(name)) {
        return Err(Refusal::Member {
            code: "edge_authoring_refused",
            path: Some(word.clone()),
            message: format!("{word} is not authored: a run is made of steps"),
        });
    }
    let steps_refused = |refusal: StepsRefusal| Refusal::Judged(refusal.into());
    compile::refuse_graph_words(body).map_err(steps_refused)?;
    let none = Value::Array(Vec::new());
    let steps = given("steps").unwrap_or(&none);
    let is_empty = matches!(steps, Value::Array(steps) if steps.is_empty());
    if is_empty && !resolves.is_empty() {
        return Ok((None, resolves, revision));
    }
    let envelope = Envelope::read(steps).map_err(steps_refused)?;
    Ok((Some(envelope), resolves, revision))
}

/// One entry: a key alone, or `{task, content?, structured_content?, outcome?}`.
fn resolve(entry: &Value) -> Result<Resolve, Refusal> {
    let (task, body) = match entry {
        Value::Str(task) => (task.clone(), Object::new()),
        Value::Object(members) => match members.get("task").and_then(Value::as_str) {
            Some(task) => (task.to_owned(), members.clone()),
            None => return Err(malformed_entry()),
        },
        _ => return Err(malformed_entry()),
    };
    Ok(Resolve {
        task,
        submission: Submission::read(&body),
    })
}

fn malformed_entry() -> Refusal {
    Refusal::Malformed {
        parameter: "resolve",
        message: "an entry of resolve is a key, or an object with a task",
    }
}
