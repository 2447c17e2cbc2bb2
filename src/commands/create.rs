//! Create: a run is born with its graph or not at all (`runs.md` §3, §4).

use super::receipt::receipt;
use super::{Error, contexts, routes, run_again, to_the_end};
use crate::app::App;
use crate::domain::event::{Event, TaskStatusItem};
use crate::domain::idempotency;
use crate::domain::json::{Canonical, Object, Value};
use crate::domain::steps::{self, PromptMechanism, WaitRefusal};
use crate::domain::words::{ApprovalMode, MemberKind, RunStatus};
use crate::domain::{ExecutorId, PublicId, WorkspaceId, shown};
use crate::engine::approval::Rules;
use crate::engine::author::{self, Births, Placed};
use crate::engine::compile::{self, Envelope, Facts};
use crate::store;
use crate::store::credentials::MemberCaller;
use crate::store::runs::{CREATE_RECEIPT, NewReceipt, NewRun, Runner};

/// Why a run is not created.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No `run` object.
    #[error("run is required")]
    RunMissing,
    /// `run` is no object.
    #[error("run must be an object")]
    RunInvalid,
    /// A twin with the same key is still under way.
    #[error("a request with this Idempotency-Key is still under way; try again soon")]
    InProgress,
    /// A key that was used for another body.
    #[error("the Idempotency-Key was used for another run")]
    EnvelopeMismatch,
    /// A member of `run` that says what is not allowed.
    #[error("{message}")]
    Member {
        /// The code.
        code: &'static str,
        /// Where, when that helps.
        path: Option<String>,
        /// What is allowed.
        message: String,
    },
    /// The steps.
    #[error("{0}")]
    Steps(#[from] steps::Refusal),
    /// A wait that observes nothing it may.
    #[error("a wait names no task that it may observe: an earlier step of this run")]
    Wait(WaitRefusal),
}

/// A created run, or the one that the same key created before.
#[derive(Debug)]
pub struct Created {
    /// Its id.
    pub run: PublicId,
    /// The receipt, as first answered.
    pub receipt: Canonical,
    /// Whether this repeats an earlier create.
    pub replayed: bool,
}

/// What is asked.
#[derive(Debug)]
pub struct Request {
    /// Who creates.
    pub caller: MemberCaller,
    /// Where, and whether it may write there was checked.
    pub workspace: WorkspaceId,
    /// The workspace's public id.
    pub workspace_public_id: PublicId,
    /// The body.
    pub body: Object,
    /// The client's key.
    pub key: Option<String>,
}

fn member(code: &'static str, path: &str, message: impl Into<String>) -> Refusal {
    Refusal::Member {
        code,
        path: Some(path.to_owned()),
        message: message.into(),
    }
}

/// Creates a run.
///
/// # Errors
/// [`Refusal`], or a fault; nothing is written on either.
pub async fn create(app: &App, request: Request) -> Result<Created, Error<Refusal>> {
    let app = app.clone();
    to_the_end(async move { run_again(|| create_once(&app, &request)).await }).await
}

async fn create_once(app: &App, request: &Request) -> Result<Created, Error<Refusal>> {
    let body = match request.body.get("run") {
        None | Some(Value::Null) => return Err(Error::Refused(Refusal::RunMissing)),
        Some(run) if run.as_object().is_none() => return Err(Error::Refused(Refusal::RunInvalid)),
        Some(run) => run,
    };
    let path = [request.workspace_public_id.to_string()];
    // A body without a canonical form was never accepted under any key: it is refused below.
    let fingerprint = idempotency::fingerprint("run_create", &path, body).ok();
    if let Some(replay) = replay(app, request, fingerprint.as_ref()).await? {
        return Ok(replay);
    }
    let members = body.as_object().cloned().unwrap_or_default();
    let shell = Shell::read(&members).map_err(Error::Refused)?;
    let steps = members
        .get("steps")
        .cloned()
        .unwrap_or(Value::Array(Vec::new()));
    let envelope = Envelope::read(&steps).map_err(|e| Error::Refused(e.into()))?;
    let birth = app
        .store
        .run_birth(request.caller.account, request.caller.id)
        .await?;
    let account = request.caller.account;
    let runners = routes::runners(
        app,
        account,
        &birth.principal,
        &envelope,
        shell.default_runner,
    );
    let runners = runners.await?;
    let default_runner = default_runner(&shell, &runners).map_err(Error::Refused)?;
    let facts = facts(request, &shell, &envelope, &runners);
    let compiled = compile::compile(&envelope, &facts).map_err(|e| Error::Refused(e.into()))?;
    // A standalone run observes only itself (`steps.md` §3.5).
    compiled
        .check_waits(|_, _| false)
        .map_err(|wait| Error::Refused(Refusal::Wait(wait)))?;
    let mut mint = app.mint();
    let mut births = Births {
        runners: runners.iter().map(|r| (r.public_id, r.id)).collect(),
        ..Births::default()
    };
    let known = contexts::known(app, account, &birth.principal, shell.default_runner, &steps);
    births.freeze_contexts(&compiled, &known.await?);
    let tokens = births.mint_tokens(&compiled, &mut mint);
    let placed = author::place(&compiled, 1, &births);
    let receipt = NewReceipt {
        key: request
            .key
            .clone()
            .unwrap_or_else(|| mint.base62(idempotency::RUN_KEY_BYTES)),
        fingerprint: fingerprint.unwrap_or_else(|| mint.bytes()),
        body: receipt(&compiled, None, tokens),
    };
    let public_id = mint.public_id(birth.now);
    let new = NewRun {
        account: request.caller.account,
        run: birth.run,
        public_id,
        workspace: request.workspace,
        creator: request.caller.id,
        principal: birth.principal,
        now: birth.now,
        approval_mode: shell.approval_mode,
        approval_rules: shell.approval_rules,
        prompt_mechanism: shell.prompt_mechanism,
        default_runner,
        model_selection: shell.model_selection.clone(),
        fallback_models: shell.fallback_models.clone(),
        events: born(&placed),
        placed: &placed,
        receipt,
    };
    match app.store.run_insert(&new).await {
        Ok(()) => Ok(Created {
            run: public_id,
            receipt: new.receipt.body,
            replayed: false,
        }),
        Err(fault) if fault.is_duplicate_of(CREATE_RECEIPT) => {
            // A twin was quicker: its answer is ours.
            replay(app, request, fingerprint.as_ref())
                .await?
                .ok_or(Error::Fault(fault))
        }
        // Nothing else in an insert waits for a lock but the receipt, for its twin's.
        Err(store::Error::Timeout(_)) if request.key.is_some() => {
            Err(Error::Refused(Refusal::InProgress))
        }
        Err(fault) => Err(Error::Fault(fault)),
    }
}

async fn replay(
    app: &App,
    request: &Request,
    fingerprint: Option<&[u8; 32]>,
) -> Result<Option<Created>, Error<Refusal>> {
    let Some(key) = &request.key else {
        return Ok(None);
    };
    let caller = &request.caller;
    let stored = app
        .store
        .create_receipt(caller.account, request.workspace, caller.id, key)
        .await?;
    let Some(stored) = stored.filter(|s| !s.expired) else {
        return Ok(None);
    };
    if fingerprint.is_none_or(|f| stored.fingerprint[..] != f[..]) {
        return Err(Error::Refused(Refusal::EnvelopeMismatch));
    }
    Ok(Some(Created {
        run: stored.run,
        receipt: stored.receipt,
        replayed: true,
    }))
}

/// The members of `run` beside its steps.
struct Shell {
    approval_mode: ApprovalMode,
    approval_rules: Option<String>,
    prompts: PromptMechanism,
    prompt_mechanism: Option<&'static str>,
    default_runner: Option<PublicId>,
    selection: steps::ModelSelection,
    fallbacks: Vec<steps::Selector>,
    model_selection: Option<String>,
    fallback_models: Option<String>,
}

/// What `run` may say.
const MEMBERS: [&str; 8] = [
    "steps",
    "approval_mode",
    "approval_rules",
    "prompt_mechanism",
    "default_runner_executor_public_id",
    "billing_subject",
    "model_selection",
    "fallback_models",
];

impl Shell {
    fn read(run: &Object) -> Result<Self, Refusal> {
        compile::refuse_graph_words(run)?;
        refuse_other_members(run)?;
        let given = |name: &str| run.get(name).filter(|v| !v.is_null());
        if given("steps").is_none() {
            return Err(steps::Refusal::StepsRequired.into());
        }
        let approval_mode = given("approval_mode")
            .and_then(Value::as_str)
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| {
                member(
                    "invalid_approval_mode",
                    "run.approval_mode",
                    "run.approval_mode is required: `bypass`, `ask` or `rules`",
                )
            })?;
        let approval_rules = approval_rules(given("approval_rules"))?;
        let (prompts, prompt_mechanism) = prompt_mechanism(given("prompt_mechanism"))?;
        if given("billing_subject").is_some() {
            return Err(member(
                "billing_subject_not_owned",
                "run.billing_subject",
                "no billing subject is owned by this member",
            ));
        }
        let default_runner = default_runner_id(given("default_runner_executor_public_id"))?;
        let (selection, model_selection) = model_selection(given("model_selection"))?;
        let (fallbacks, fallback_models) = fallback_models(given("fallback_models"))?;
        Ok(Self {
            approval_mode,
            approval_rules,
            prompts,
            prompt_mechanism,
            default_runner,
            selection,
            fallbacks,
            model_selection,
            fallback_models,
        })
    }
}

fn refuse_other_members(run: &Object) -> Result<(), Refusal> {
    for name in run.keys() {
        if compile::is_graph_word(name) {
            return Err(member(
                "edge_authoring_refused",
                &format!("run.{name}"),
                format!("run.{name} is not authored: a run is made of steps"),
            ));
        }
        if !MEMBERS.contains(&name.as_str()) {
            return Err(member(
                "unknown_run_option",
                &format!("run.{}", shown(name)),
                format!("run takes {}", MEMBERS.join(", ")),
            ));
        }
    }
    Ok(())
}

/// The rules as stored; none when there are none.
fn approval_rules(rules: Option<&Value>) -> Result<Option<String>, Refusal> {
    let Some(rules) = rules else {
        return Ok(None);
    };
    let (rules, text) = Rules::read(rules)
        .map_err(|bad| member("invalid_approval_rules", &bad.spot, bad.to_string()))?;
    Ok((!rules.is_empty()).then(|| text.into_string()))
}

fn prompt_mechanism(
    value: Option<&Value>,
) -> Result<(PromptMechanism, Option<&'static str>), Refusal> {
    match value.map(Value::as_str) {
        None => Ok((PromptMechanism::Raw, None)),
        Some(Some("raw")) => Ok((PromptMechanism::Raw, Some("raw"))),
        Some(Some("default")) => Ok((PromptMechanism::Default, Some("default"))),
        Some(Some("assembly")) => Ok((PromptMechanism::Assembly, Some("assembly"))),
        Some(_) => Err(member(
            "invalid_prompt_mechanism",
            "run.prompt_mechanism",
            "run.prompt_mechanism takes `raw`, `default` or `assembly`",
        )),
    }
}

fn default_runner_id(value: Option<&Value>) -> Result<Option<PublicId>, Refusal> {
    value
        .map(|v| {
            v.as_str()
                .and_then(|id| id.parse().ok())
                .ok_or_else(runner_not_eligible)
        })
        .transpose()
}

fn runner_not_eligible() -> Refusal {
    member(
        "runner_not_eligible",
        "run.default_runner_executor_public_id",
        "the default runner must be a live runner that may work for the creator",
    )
}

fn model_selection(
    value: Option<&Value>,
) -> Result<(steps::ModelSelection, Option<String>), Refusal> {
    let Some(value) = value else {
        return Ok((steps::ModelSelection::Auto, None));
    };
    let selection = compile::model_selection(value).ok_or_else(|| {
        member(
            "invalid_model_selection",
            "run.model_selection",
            "run.model_selection takes {\"mode\": \"auto\" | \"fixed\"}",
        )
    })?;
    Ok((
        selection,
        value.canonical().ok().map(Canonical::into_string),
    ))
}

fn fallback_models(
    value: Option<&Value>,
) -> Result<(Vec<steps::Selector>, Option<String>), Refusal> {
    let Some(value) = value else {
        return Ok((Vec::new(), None));
    };
    let models = compile::fallback_models(value).ok_or_else(|| {
        member(
            "invalid_fallback_models",
            "run.fallback_models",
            "run.fallback_models takes an array of at most 8 distinct model objects",
        )
    })?;
    Ok((models, value.canonical().ok().map(Canonical::into_string)))
}

fn default_runner(shell: &Shell, runners: &[Runner]) -> Result<Option<ExecutorId>, Refusal> {
    let Some(wanted) = shell.default_runner else {
        return Ok(None);
    };
    runners
        .iter()
        .find(|r| r.public_id == wanted && r.eligible)
        .map(|r| Some(r.id))
        .ok_or_else(runner_not_eligible)
}

fn facts(request: &Request, shell: &Shell, envelope: &Envelope, runners: &[Runner]) -> Facts {
    let mut facts = Facts::create(shell.prompts);
    facts.creator = match request.caller.kind {
        MemberKind::Human => MemberKind::Human,
        MemberKind::Agent => MemberKind::Agent,
    };
    facts.default_runner = shell.default_runner;
    facts.model_selection = shell.selection;
    facts.fallback_models = shell.fallbacks.clone();
    routes::tell(&mut facts, envelope, runners);
    facts
}

/// Births, and the run's first status.
fn born(placed: &Placed) -> Vec<Event> {
    let rows = placed.tasks.iter().map(|new| {
        let task = &new.task;
        Event::TaskStatus(Box::new(TaskStatusItem {
            task_key: task.key.clone(),
            kind: task.kind,
            lifetime: task.lifetime,
            wake: task.wake,
            status: task.status,
            after: task.after_keys.clone(),
            on_failure: task.on_failure,
            error_key: None,
            failure_resolution: None,
            approval: None,
            resolved_by: None,
        }))
    });
    let run = Event::TurnStatus {
        run_status: RunStatus::Pending,
        failure_reason: None,
        attention_reason: None,
    };
    rows.chain([run]).collect()
}
