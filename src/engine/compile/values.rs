//! Stage B: the values of options, keys, and the bounds of the envelope (`steps.md` §1.1, §3).
//!
//! Order: the envelope's size, then its count, then the steps as written. Inside a step the first
//! problem counts: common options, then the verb's own, each in the order of the spec's tables.
//!
//! Does not know: edges, reads, what a reference names.

use std::collections::BTreeSet;

use super::compiled::{Observation, Question, WaitTarget, Work};
use super::envelope::{Envelope, GroupShape, LeafShape, Member, Shape};
use super::facts::{Door, Facts};
use super::fields::{Fields, list, non_blank, public_id};
use super::model::Models;
use super::report::{Bad, Report, Spot};
use super::tool;
use crate::domain::ids::TaskKey;
use crate::domain::json::Value;
use crate::domain::steps::{
    ASK_OPTIONS, Bounds, ENVELOPE_BYTES, Refusal, StepCode, StepError, Verb, WAIT_TIMEOUT_MS,
};
use crate::domain::words::{
    AuthoredBy, Holder, Lifetime, Losers, OnFailure, TaskKind, Visibility, Wake,
};

/// A step whose values are right.
pub(super) enum Step {
    Leaf(Box<Leaf>),
    Group(Group),
}

/// A leaf as typed data; its references are not resolved yet.
pub(super) struct Leaf {
    pub at: Spot,
    pub verb: Verb,
    pub key: Option<TaskKey>,
    pub detached: bool,
    pub lifetime: Option<Lifetime>,
    pub wake: Option<Wake>,
    pub on_failure: OnFailure,
    pub fan_on_failure: Option<OnFailure>,
    pub visibility: Visibility,
    pub after: Vec<TaskKey>,
    pub results: Vec<TaskKey>,
    pub work: Work,
}

/// A group as typed data.
pub(super) struct Group {
    pub at: Spot,
    pub ends: Ends,
    pub lifetime: Option<Lifetime>,
    pub wake: Option<Wake>,
    pub members: Vec<Member<Step>>,
}

/// What ends a group.
pub(super) enum Ends {
    /// All its members: no row.
    All,
    /// A race: one row.
    Race(Race),
}

/// The race of a group.
pub(super) struct Race {
    pub key: Option<TaskKey>,
    pub until: Until,
    pub losers: Losers,
    pub on_failure: OnFailure,
}

/// How many successes end a race.
#[derive(Clone, Copy)]
pub(super) enum Until {
    Any,
    Quorum(usize),
}

impl Step {
    /// How many attached rows a follower would wait on.
    fn exits(&self) -> usize {
        match self {
            Self::Leaf(leaf) => usize::from(!leaf.detached),
            Self::Group(group) => match group.ends {
                Ends::All => group.exits(),
                Ends::Race(_) => group.exits().min(1),
            },
        }
    }
}

impl Group {
    /// How many attached rows its members end on: what a follower, or its barrier, waits on.
    fn exits(&self) -> usize {
        let members = self.members.iter().map(|member| {
            let from_the_end = member.steps().iter().rev().map(Step::exits);
            from_the_end.into_iter().find(|exits| *exits > 0)
        });
        members.map(Option::unwrap_or_default).sum()
    }
}

/// Checks the whole envelope.
pub(super) fn check(
    envelope: &Envelope,
    facts: &Facts,
    bounds: Bounds,
) -> Result<Vec<Step>, Refusal> {
    if envelope.bytes > ENVELOPE_BYTES {
        return Err(whole(StepCode::StepsPayloadTooLarge));
    }
    if envelope.leaves() > bounds.steps {
        return Err(whole(StepCode::TooManySteps));
    }
    let mut checker = Checker {
        facts,
        bounds,
        models: Models::new(facts),
        report: Report::default(),
        written: BTreeSet::new(),
    };
    let steps = checker.steps(&envelope.steps);
    checker.report.finish()?;
    Ok(steps)
}

fn whole(code: StepCode) -> Refusal {
    Refusal::InvalidSteps(vec![StepError { code, path: None }])
}

struct Checker<'a> {
    facts: &'a Facts,
    bounds: Bounds,
    models: Models<'a>,
    report: Report,
    written: BTreeSet<TaskKey>,
}

impl Checker<'_> {
    /// The steps that are right; the others are in the report.
    fn steps(&mut self, shapes: &[Shape]) -> Vec<Step> {
        shapes.iter().filter_map(|s| self.step(s)).collect()
    }

    fn step(&mut self, shape: &Shape) -> Option<Step> {
        match shape {
            Shape::Leaf(leaf) => {
                let read = self.leaf(leaf);
                self.keep(&leaf.at, read)
                    .map(|leaf| Step::Leaf(Box::new(leaf)))
            }
            Shape::Group(group) => self.group(group).map(Step::Group),
        }
    }

    fn keep<T>(&mut self, at: &Spot, read: Result<T, Bad>) -> Option<T> {
        read.map_err(|bad| bad.at(at, &mut self.report)).ok()
    }

    fn leaf(&mut self, shape: &LeafShape) -> Result<Leaf, Bad> {
        let fields = Fields::of(&shape.options);
        self.seed(&shape.at, Some(shape.verb))?;
        let key = self.key(&fields)?;
        let detached = fields.flag("detached", StepCode::InvalidDetached)?;
        let (lifetime, wake) = context(&fields)?;
        let on_failure = fields.word("on_failure", StepCode::InvalidOnFailure)?;
        let visibility = fields.word("visibility", StepCode::InvalidVisibility)?;
        let after = fields.references("after")?;
        let work = self.work(shape.verb, &fields)?;
        self.seed_instructions(&shape.at, &fields, &work)?;
        let fan_on_failure = match shape.verb {
            Verb::Model => Some(fields.fan_policy()?.unwrap_or(OnFailure::Absorb)),
            Verb::Tool | Verb::Ask | Verb::Wait => None,
        };
        Ok(Leaf {
            at: shape.at.clone(),
            verb: shape.verb,
            key,
            detached: detached.unwrap_or(false),
            lifetime,
            wake,
            on_failure: on_failure.unwrap_or(self.default_on_failure(shape.verb)),
            fan_on_failure,
            visibility: visibility.unwrap_or(shape.verb.default_visibility()),
            after,
            results: fields.references("results")?,
            work,
        })
    }

    /// Programs read the failures of their calls as data; a model child has its scope's policy
    /// written on it by now, if the scope has one (`operations.md` §5).
    fn default_on_failure(&self, verb: Verb) -> OnFailure {
        match verb {
            Verb::Tool | Verb::Model if self.facts.operation().is_some() => OnFailure::Absorb,
            verb => verb.default_on_failure(),
        }
    }

    /// The first step of a run whose prompts are assembled is a model (`runs.md` §3).
    fn seed(&self, at: &Spot, verb: Option<Verb>) -> Result<(), Bad> {
        if self.is_assembled_seed(at) && verb != Some(Verb::Model) {
            return Err(Bad {
                code: StepCode::SeedNotAModelStep,
                field: None,
            });
        }
        Ok(())
    }

    /// … and leaves the system channel to the kernel.
    fn seed_instructions(&self, at: &Spot, fields: &Fields, work: &Work) -> Result<(), Bad> {
        match work {
            Work::Model(round)
                if self.is_assembled_seed(at) && round.context.instructions.is_some() =>
            {
                Err(fields.bad("instructions", StepCode::InstructionsRawOnly))
            }
            _ => Ok(()),
        }
    }

    fn is_assembled_seed(&self, at: &Spot) -> bool {
        at.ordinal == 0
            && matches!(&self.facts.door, Door::Create { prompts } if prompts.is_assembled())
    }

    fn key(&mut self, fields: &Fields) -> Result<Option<TaskKey>, Bad> {
        let key: Option<TaskKey> = fields.word("key", StepCode::InvalidTaskKey)?;
        match &key {
            Some(key) if !self.written.insert(key.clone()) => {
                Err(fields.bad("key", StepCode::DuplicateTaskKey))
            }
            _ => Ok(key),
        }
    }

    fn work(&self, verb: Verb, fields: &Fields) -> Result<Work, Bad> {
        match verb {
            Verb::Tool => tool::read(fields, self.facts, &self.models).map(Work::Tool),
            Verb::Model => {
                let round = self.models.round(fields)?;
                Ok(Work::Model(Box::new(round)))
            }
            Verb::Ask => self.ask(fields).map(Work::Ask),
            Verb::Wait => wait(fields).map(Work::Wait),
        }
    }

    fn ask(&self, fields: &Fields) -> Result<Question, Bad> {
        Ok(Question {
            prompt: fields.prompt()?,
            options: fields.read("options", StepCode::InvalidAskOptions, |value| {
                let options = list(value, non_blank)?;
                (1..=ASK_OPTIONS)
                    .contains(&options.len())
                    .then_some(options)
            })?,
            multi: fields.flag("multi", StepCode::InvalidAskMulti)?,
            timeout_ms: fields.timeout_ms()?,
            holder: match self.facts.authored_by {
                AuthoredBy::Author if self.facts.operation().is_none() => Holder::Token,
                _ => Holder::Person,
            },
        })
    }

    fn group(&mut self, shape: &GroupShape) -> Option<Group> {
        let members: Vec<_> = shape
            .members
            .iter()
            .filter_map(|member| match member {
                Member::Step(step) => self.step(step).map(Member::Step),
                Member::Sequence(steps) => Some(Member::Sequence(self.steps(steps))),
            })
            .collect();
        // A barrier is placed after its members: of two equal keys its own is the second.
        let head = self.head(shape);
        let (ends, lifetime, wake) = self.keep(&shape.at, head)?;
        let group = Group {
            at: shape.at.clone(),
            ends,
            lifetime,
            wake,
            members,
        };
        if group.exits() > self.bounds.fan {
            self.report.whole(&group.at, StepCode::TooWideAFan);
        }
        Some(group)
    }

    fn head(&mut self, shape: &GroupShape) -> Result<(Ends, Option<Lifetime>, Option<Wake>), Bad> {
        let fields = Fields::of(&shape.options);
        self.seed(&shape.at, None)?;
        let until = fields.read("until", StepCode::InvalidUntil, until)?;
        let ends = match until.flatten() {
            None => all(&fields)?,
            Some(until) => Ends::Race(Race {
                until,
                losers: fields
                    .word("losers", StepCode::InvalidLosers)?
                    .unwrap_or(Losers::Cancel),
                key: self.key(&fields)?,
                on_failure: fields
                    .word("on_failure", StepCode::InvalidOnFailure)?
                    .unwrap_or(TaskKind::Join.default_on_failure()),
            }),
        };
        let (lifetime, wake) = context(&fields)?;
        if shape.members.len() > self.bounds.fan {
            return Err(Bad {
                code: StepCode::TooWideAFan,
                field: None,
            });
        }
        Ok((ends, lifetime, wake))
    }
}

/// A group that waits for all its members places no row that options could be about.
fn all(fields: &Fields) -> Result<Ends, Bad> {
    for (name, code) in [
        ("losers", StepCode::InvalidLosers),
        ("key", StepCode::KeyNeedsARace),
        ("on_failure", StepCode::InvalidOnFailure),
    ] {
        if fields.get(name).is_some() {
            return Err(fields.bad(name, code));
        }
    }
    Ok(Ends::All)
}

/// `"all"` (no race), `"any"`, or an integer from 1; a number beyond any fan is left to stage D.
fn until(value: &Value) -> Option<Option<Until>> {
    match value {
        Value::Str(word) if word == "all" => Some(None),
        Value::Str(word) if word == "any" => Some(Some(Until::Any)),
        Value::Int(n) if n.as_str() != "0" && !n.as_str().starts_with('-') => {
            let k = n.as_str().parse().unwrap_or(usize::MAX);
            Some(Some(Until::Quorum(k)))
        }
        _ => None,
    }
}

fn context(fields: &Fields) -> Result<(Option<Lifetime>, Option<Wake>), Bad> {
    let lifetime = fields.word("lifetime", StepCode::InvalidLifetime)?;
    let wake = fields.word("wake", StepCode::InvalidWake)?;
    Ok((lifetime, wake))
}

fn wait(fields: &Fields) -> Result<Observation, Bad> {
    let task = fields.word("task", StepCode::InvalidTaskKey)?;
    Ok(Observation {
        task: task.ok_or_else(|| fields.bad("task", StepCode::InvalidTaskKey))?,
        target: WaitTarget::Nothing,
        run_public_id: fields.read("run_public_id", StepCode::InvalidRunPublicId, public_id)?,
        timeout_ms: fields.timeout_ms()?.unwrap_or(WAIT_TIMEOUT_MS),
    })
}
