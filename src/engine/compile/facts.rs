//! What compiling must be told: plain data that the door looked up under the run lock.
//!
//! Does not know: how it was looked up. A fact that is missing refuses; it never lets through.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::ids::{PublicId, TaskKey, TaskNo};
use crate::domain::json::{Canonical, Value};
use crate::domain::steps::{Bounds, ModelSelection, PromptMechanism, Selector};
use crate::domain::words::{AuthoredBy, EdgeState, Lifetime, MemberKind, Wake};

/// Everything outside the envelope that decides how it compiles.
///
/// [`Facts::create`] and [`Facts::append`] give a run without runners, models, uploads or kernel
/// tools; the door fills in what [`Wants`](super::Wants) asked for.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Which door the envelope came through, and where it starts.
    pub door: Door,
    /// The revision this envelope produces: 1 on create. It is the `R` of minted keys.
    pub revision: i64,
    /// Who writes the rows: a member's envelope has the client's bounds and may name the run's
    /// rows, any other the kernel's bounds and only its own rows.
    pub authored_by: AuthoredBy,
    /// The run's public id, so that a `wait` which spells it is one on this run; none on create.
    pub run: Option<PublicId>,
    /// What the run's creator is: delegated compaction needs an agent.
    pub creator: MemberKind,
    /// The keys of the run that could collide: those of [`Wants::keys`](super::Wants::keys) that
    /// exist, and all that begin with [`minted_prefix`](super::minted_prefix). More do no harm.
    pub taken: BTreeSet<TaskKey>,
    /// The rows of this run that the envelope names, by the name it uses.
    pub rows: BTreeMap<TaskKey, StandingRow>,
    /// The run's default Runner.
    pub default_runner: Option<PublicId>,
    /// What is known of each routed call, by target and tool name. None known: not eligible.
    pub routes: BTreeMap<(PublicId, String), RouteVerdict>,
    /// The uploads among [`Wants::uploads`](super::Wants::uploads) that are alive and staged by
    /// the door's member.
    pub uploads: BTreeSet<PublicId>,
    /// The run's selection, for model steps that name none.
    pub model_selection: ModelSelection,
    /// The run's fallback list, for model steps that name none.
    pub fallback_models: Vec<Selector>,
    /// What is known of the models.
    pub catalogue: Catalogue,
    /// The kernel's tools, by canonical name (`nexus.graph.wait`).
    pub kernel_tools: BTreeMap<String, KernelTool>,
}

impl Facts {
    /// The facts of a create: revision 1, an empty start.
    pub fn create(prompts: PromptMechanism) -> Self {
        Self {
            door: Door::Create { prompts },
            revision: 1,
            authored_by: AuthoredBy::Author,
            run: None,
            creator: MemberKind::Human,
            taken: BTreeSet::new(),
            rows: BTreeMap::new(),
            default_runner: None,
            routes: BTreeMap::new(),
            uploads: BTreeSet::new(),
            model_selection: ModelSelection::Auto,
            fallback_models: Vec::new(),
            catalogue: Catalogue::NotConsulted,
            kernel_tools: BTreeMap::new(),
        }
    }

    /// The facts of an append that makes `revision` and starts at `start`.
    pub fn append(revision: i64, start: Start) -> Self {
        Self {
            door: Door::Append { start },
            revision,
            ..Self::create(PromptMechanism::Raw)
        }
    }

    /// Whether the run has a task of that key.
    pub fn is_taken(&self, key: &TaskKey) -> bool {
        self.taken.contains(key) || self.rows.contains_key(key)
    }

    /// The bounds of this envelope.
    pub fn bounds(&self) -> Bounds {
        match (&self.door, self.authored_by) {
            (Door::Operation(_), _) | (_, AuthoredBy::Author) => Bounds::CLIENT,
            (_, AuthoredBy::Model | AuthoredBy::Kernel) => Bounds::KERNEL,
        }
    }

    /// What an operation is compiled under, if this is one.
    pub fn operation(&self) -> Option<&Batch> {
        match &self.door {
            Door::Operation(batch) => Some(batch),
            Door::Create { .. } | Door::Append { .. } => None,
        }
    }
}

/// The door an envelope came through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    /// A new run.
    Create {
        /// How the seed's prompt is composed.
        prompts: PromptMechanism,
    },
    /// An existing one.
    Append {
        /// Where the envelope hangs.
        start: Start,
    },
    /// A batch of a claimed call's operation, already resolved against its scope
    /// (`operations.md` §5).
    Operation(Batch),
}

/// What a batch of an operation is compiled under, beside the run's facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The rows that its first steps wait on: of a replacement, what stood before the replaced.
    pub waits_on: Vec<StandingRow>,
    /// Rows that `after` and `results` may name beside its own.
    pub surviving: BTreeMap<TaskKey, StandingRow>,
    /// For steps that say nothing.
    pub lifetime: Lifetime,
    /// For steps that say nothing.
    pub wake: Wake,
}

/// Where an append hangs (`steps.md` §5, the cursor).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// The rows the first steps wait on: what stands for the run's answer.
    pub waits_on: Vec<StandingRow>,
    /// The mainline's tail, which the first top-level model step continues.
    pub mainline: Option<StandingRow>,
}

/// The row that now stands for a name: the tip of the named row's lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingRow {
    /// Its number.
    pub task: TaskNo,
    /// Its own key.
    pub key: TaskKey,
    /// Whether its status is terminal: a reference to it is then met at birth.
    pub terminal: bool,
    /// What a structural edge from it is born as: open while its settlement is pending (an
    /// unadjudicated `halt` failure included), met, or skip (`engine.md` §4, §5).
    pub settled: EdgeState,
}

/// What is known of a routed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteVerdict {
    /// The target may do this run's work and announces the tool.
    Served,
    /// It may, but does not announce it.
    NotServed,
    /// It is unknown, gone, no Runner, or not for this principal.
    NotEligible,
}

/// What is known of the models.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Catalogue {
    /// Nobody looked: references are checked for spelling only.
    #[default]
    NotConsulted,
    /// By `provider/ref`, at least those of [`Wants::models`](super::Wants::models); one that is
    /// missing is unknown.
    Consulted(BTreeMap<String, ModelVerdict>),
}

/// What the catalogue says of one model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelVerdict {
    /// There is none of that name, or not for this caller.
    Unknown,
    /// It exists and cannot run: disabled, hidden, invalid or without credential.
    Unavailable,
    /// It can run.
    Usable(ModelCapabilities),
}

/// What a model declares it can do, as far as acceptance looks at it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelCapabilities {
    /// Whether it calls tools.
    pub tool_calls: bool,
    /// The efforts it knows; empty when it declares no reasoning.
    pub efforts: BTreeSet<String>,
    /// The generation parameters it declares.
    pub parameters: BTreeMap<String, Parameter>,
}

/// One declared generation parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// What values it takes.
    pub kind: ParameterKind,
    /// The least number.
    pub minimum: Option<f64>,
    /// The greatest number.
    pub maximum: Option<f64>,
    /// The only values, when they are listed.
    pub allowed: Option<Vec<Value>>,
}

/// The values a generation parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterKind {
    /// An integer token.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A text.
    Text,
}

/// One tool of the kernel, as acceptance compares declarations with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelTool {
    /// The name on the wire: `wait`.
    pub wire_name: String,
    /// The declaration that a step must repeat byte for byte.
    pub definition: Canonical,
    /// Its parameters, and whether each is a boolean.
    pub parameters: BTreeMap<String, bool>,
}
