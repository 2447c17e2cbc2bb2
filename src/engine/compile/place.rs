//! The cursor: written order becomes rows, edges and reads (`steps.md` §5, §6).
//!
//! Steps are placed one after another; the cursor says what the next one waits on and which round
//! a model step would continue. Stage C (what a name means) and stage D (counts, races, the end)
//! are judged on the way; if any of C is wrong, D is not told.
//!
//! Invariant: a row points only to rows placed before it and to rows of the run, so the graph has
//! no cycle.

use std::collections::{BTreeMap, BTreeSet};

use super::compiled::{Barrier, Compiled, Edge, Ref, Row, WaitTarget, Work};
use super::envelope::Member;
use super::facts::{Batch, Door, Facts, StandingRow, Start};
use super::mint::Mint;
use super::report::{Report, Spot};
use super::values::{Ends, Group, Leaf, Race, Step, Until};
use crate::domain::ids::TaskKey;
use crate::domain::steps::{Bounds, Mirror, Refusal, StepCode, Verb};
use crate::domain::words::{
    AuthoredBy, EdgeState, JoinMode, Lifetime, Mark, TaskKind, Visibility, Wake,
};

/// Places checked steps.
pub(super) fn place(steps: Vec<Step>, facts: &Facts, bounds: Bounds) -> Result<Compiled, Refusal> {
    let mut written = BTreeSet::new();
    written_keys(&steps, &mut written);
    let placer = Placer {
        mint: Mint::new(facts, written.clone()),
        facts,
        bounds,
        written,
        placed: BTreeMap::new(),
        rows: Vec::new(),
        arms: Vec::new(),
        barriers: Vec::new(),
        mainline: None,
        references: Report::default(),
        graph: Report::default(),
    };
    placer.envelope(steps)
}

fn written_keys(steps: &[Step], keys: &mut BTreeSet<TaskKey>) {
    for step in steps {
        match step {
            Step::Leaf(leaf) => keys.extend(leaf.key.clone()),
            Step::Group(group) => {
                if let Ends::Race(race) = &group.ends {
                    keys.extend(race.key.clone());
                }
                for member in &group.members {
                    written_keys(member.steps(), keys);
                }
            }
        }
    }
}

/// A row to wait on or read, and what an edge from it is born as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source {
    row: Ref,
    structural: EdgeState,
    reference: EdgeState,
}

impl Source {
    fn new(row: usize) -> Self {
        Self {
            row: Ref::New(row),
            structural: EdgeState::Open,
            reference: EdgeState::Open,
        }
    }

    fn standing(row: &StandingRow) -> Self {
        Self {
            row: Ref::Existing(row.task),
            structural: row.settled,
            reference: if row.terminal {
                EdgeState::Met
            } else {
                row.settled
            },
        }
    }
}

/// Where the next step hangs.
#[derive(Clone)]
struct Cursor {
    /// `W`: the frontier.
    waits_on: Vec<Source>,
    /// `M`: the round a model step would continue.
    mainline: Option<Source>,
    /// The mark an attached model row gets.
    mark: Mark,
    lifetime: Lifetime,
    wake: Wake,
    /// The nearest race around the step.
    arm: Option<usize>,
}

impl Cursor {
    fn at(start: &Start) -> Self {
        Self {
            waits_on: start.waits_on.iter().map(Source::standing).collect(),
            mainline: start.mainline.as_ref().map(Source::standing),
            mark: Mark::Round,
            lifetime: Lifetime::Conversation,
            wake: Wake::Auto,
            arm: None,
        }
    }

    /// An operation's batch: it never continues the mainline.
    fn of(batch: &Batch) -> Self {
        Self {
            waits_on: batch.waits_on.iter().map(Source::standing).collect(),
            mainline: None,
            mark: Mark::Branch,
            lifetime: batch.lifetime,
            wake: batch.wake,
            arm: None,
        }
    }
}

/// What placing a step did.
struct Placed {
    mirror: Mirror,
    /// Whether the cursor moved: something attached was placed.
    moved: bool,
}

struct Placer<'a> {
    facts: &'a Facts,
    bounds: Bounds,
    mint: Mint<'a>,
    written: BTreeSet<TaskKey>,
    /// What a name of this envelope means, as far as it was placed.
    placed: BTreeMap<TaskKey, usize>,
    rows: Vec<Row>,
    /// The race each row was placed in.
    arms: Vec<Option<usize>>,
    /// The row of each race; none while its members are being placed.
    barriers: Vec<Option<usize>>,
    mainline: Option<usize>,
    references: Report,
    graph: Report,
}

impl Placer<'_> {
    fn envelope(mut self, steps: Vec<Step>) -> Result<Compiled, Refusal> {
        let mut cursor = match &self.facts.door {
            Door::Create { .. } => Cursor::at(&Start::default()),
            Door::Append { start } => Cursor::at(start),
            Door::Operation(batch) => Cursor::of(batch),
        };
        let mut mirror = Vec::new();
        let mut first = None;
        let mut last_moved = None;
        for step in steps {
            let at = step.at().clone();
            let placed = self.step(step, &mut cursor);
            mirror.push(placed.mirror);
            first.get_or_insert_with(|| at.clone());
            if placed.moved {
                last_moved = Some(at);
            }
        }
        if self.facts.operation().is_none() {
            self.end(&cursor, first.as_ref(), last_moved.as_ref());
        }
        self.references.finish()?;
        self.graph.finish()?;
        let of_the_run = last_moved.filter(|_| self.facts.operation().is_none());
        let answer = match (of_the_run, cursor.waits_on.as_slice()) {
            (Some(_), [tip]) => match tip.row {
                Ref::New(row) => Some(row),
                Ref::Existing(_) => None,
            },
            _ => None,
        };
        for (row, arm) in self.rows.iter_mut().zip(&self.arms) {
            row.barrier = arm.and_then(|race| self.barriers[race]);
        }
        Ok(Compiled {
            revision: self.facts.revision,
            rows: self.rows,
            answer,
            mainline: self.mainline,
            mirror,
        })
    }

    /// The end rule: one tip; on a create, at least one.
    fn end(&mut self, cursor: &Cursor, first: Option<&Spot>, last_moved: Option<&Spot>) {
        match (last_moved, first) {
            (Some(at), _) if cursor.waits_on.len() > 1 => {
                self.graph.whole(at, StepCode::FanNeedsFollower);
            }
            (None, Some(at)) if matches!(self.facts.door, Door::Create { .. }) => {
                self.graph.whole(at, StepCode::SeedNeedsATip);
            }
            _ => {}
        }
    }

    fn step(&mut self, step: Step, cursor: &mut Cursor) -> Placed {
        match step {
            Step::Leaf(leaf) => self.leaf(*leaf, cursor),
            Step::Group(group) => self.group(group, cursor),
        }
    }

    fn leaf(&mut self, leaf: Leaf, cursor: &mut Cursor) -> Placed {
        let structural = cursor.waits_on.iter();
        let mut edges: Vec<Edge> = structural.map(structural_edge).collect();
        let after = self.resolve(&leaf.at, "after", &leaf.after);
        let results = self.resolve(&leaf.at, "results", &leaf.results);
        for source in after.iter().chain(&results) {
            refer(&mut edges, source);
        }
        let mark = match leaf.verb {
            Verb::Model if leaf.detached => Some(Mark::Branch),
            Verb::Model => Some(cursor.mark),
            Verb::Tool | Verb::Ask | Verb::Wait => None,
        };
        let continued = cursor.mainline.filter(|_| mark == Some(Mark::Round));
        let key = self.mint.key(leaf.verb.as_str(), leaf.key.as_ref());
        let row = Row {
            kind: leaf.verb.kind(),
            authored_by: self.facts.authored_by,
            mark,
            detached: leaf.detached,
            lifetime: leaf.lifetime.unwrap_or(cursor.lifetime),
            wake: leaf.wake.unwrap_or(cursor.wake),
            on_failure: leaf.on_failure,
            fan_on_failure: leaf.fan_on_failure,
            visibility: leaf.visibility,
            barrier: None,
            input_from: continued.iter().map(|round| round.row).collect(),
            result_from: once_each(&results),
            edges,
            work: self.aimed(leaf.work, &key),
            key: key.clone(),
        };
        self.count(&leaf.at, &row);
        let arm = cursor.arm.filter(|_| !leaf.detached);
        let row = self.push(row, arm);
        if !leaf.detached {
            cursor.waits_on = vec![Source::new(row)];
            if mark == Some(Mark::Round) {
                cursor.mainline = Some(Source::new(row));
                self.mainline = Some(row);
            }
        }
        Placed {
            mirror: Mirror::Key(key),
            moved: !leaf.detached,
        }
    }

    fn push(&mut self, row: Row, arm: Option<usize>) -> usize {
        let index = self.rows.len();
        self.placed.insert(row.key.clone(), index);
        self.rows.push(row);
        self.arms.push(arm);
        index
    }

    fn count(&mut self, at: &Spot, row: &Row) {
        if row.edges.len() > self.bounds.dependencies {
            self.graph.whole(at, StepCode::TooManyDependencies);
        }
        if row.input_from.len() + row.result_from.len() > self.bounds.reads {
            self.graph.whole(at, StepCode::TooManyReads);
        }
    }

    fn group(&mut self, group: Group, cursor: &mut Cursor) -> Placed {
        let race = matches!(group.ends, Ends::Race(_)).then(|| {
            self.barriers.push(None);
            self.barriers.len() - 1
        });
        let inside = Cursor {
            mainline: None,
            mark: Mark::Branch,
            lifetime: group.lifetime.unwrap_or(cursor.lifetime),
            wake: group.wake.unwrap_or(cursor.wake),
            arm: race.or(cursor.arm),
            ..cursor.clone()
        };
        let mut exits = Vec::new();
        let mut parallel = Vec::new();
        for member in group.members {
            let mut own = inside.clone();
            let placed = self.member(member, &mut own);
            if placed.moved {
                exits.append(&mut own.waits_on);
            }
            parallel.push(placed.mirror);
        }
        let key = match (group.ends, race) {
            (Ends::Race(ends), Some(race)) => {
                Some(self.barrier(&group.at, ends, race, &inside, cursor, &mut exits))
            }
            _ => None,
        };
        let moved = !exits.is_empty();
        if moved {
            cursor.waits_on = exits;
        }
        Placed {
            mirror: Mirror::Group { parallel, key },
            moved,
        }
    }

    fn member(&mut self, member: Member<Step>, cursor: &mut Cursor) -> Placed {
        let steps = match member {
            Member::Step(step) => return self.step(step, cursor),
            Member::Sequence(steps) => steps,
        };
        let mut moved = false;
        let mut mirror = Vec::new();
        for step in steps {
            let placed = self.step(step, cursor);
            moved |= placed.moved;
            mirror.push(placed.mirror);
        }
        Placed {
            mirror: Mirror::Sequence(mirror),
            moved,
        }
    }

    /// Places a race's row behind its members' exits; it becomes the group's one exit.
    fn barrier(
        &mut self,
        at: &Spot,
        ends: Race,
        race: usize,
        inside: &Cursor,
        outside: &Cursor,
        exits: &mut Vec<Source>,
    ) -> TaskKey {
        let (mode, k) = match ends.until {
            Until::Any => (JoinMode::Any, 1),
            Until::Quorum(k) => (JoinMode::Quorum, k),
        };
        if k > exits.len() {
            self.graph.field(at, "until", StepCode::UnsatisfiableUntil);
        }
        let key = self.mint.key("parallel", ends.key.as_ref());
        let row = Row {
            key: key.clone(),
            kind: TaskKind::Join,
            authored_by: self.facts.authored_by,
            mark: None,
            detached: false,
            lifetime: inside.lifetime,
            wake: inside.wake,
            on_failure: ends.on_failure,
            fan_on_failure: None,
            visibility: Visibility::Hidden,
            barrier: None,
            input_from: Vec::new(),
            result_from: Vec::new(),
            edges: exits.iter().map(structural_edge).collect(),
            work: Work::Join(Barrier {
                mode,
                k,
                losers: ends.losers,
            }),
        };
        let row = self.push(row, outside.arm);
        self.barriers[race] = Some(row);
        *exits = vec![Source::new(row)];
        key
    }

    /// Stage C: what the entries of one list name; what names nothing is reported and left out.
    fn resolve(&mut self, at: &Spot, list: &str, names: &[TaskKey]) -> Vec<Source> {
        let mut sources = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let named = match self.named(name) {
                _ if names[..i].contains(name) => Err(StepCode::DuplicateTaskReference),
                Some(source) => Ok(source),
                None => Err(StepCode::UnknownTaskReference),
            };
            match named {
                Ok(source) => sources.push(source),
                Err(code) => self.references.field(at, &format!("{list}[{i}]"), code),
            }
        }
        sources
    }

    /// The row a name means here: one placed earlier, or, on a member's envelope, one of the run.
    /// A key written in the envelope means the envelope's own row and nothing else.
    fn named(&self, name: &TaskKey) -> Option<Source> {
        if let Some(row) = self.placed.get(name) {
            return Some(Source::new(*row));
        }
        let may_name = !self.written.contains(name);
        let row = match self.facts.operation() {
            Some(batch) => batch.surviving.get(name),
            None if self.facts.authored_by == AuthoredBy::Author => self.facts.rows.get(name),
            None => None,
        };
        let row = row.filter(|_| may_name);
        row.map(Source::standing)
    }

    /// Says what a `wait` observes (`steps.md` §3.5). It depends on nothing for that.
    fn aimed(&self, work: Work, own: &TaskKey) -> Work {
        let Work::Wait(mut wait) = work else {
            return work;
        };
        let other = wait
            .run_public_id
            .filter(|run| self.facts.run != Some(*run));
        wait.target = match (other, self.placed.get(&wait.task)) {
            (Some(run), _) => WaitTarget::Elsewhere(run),
            (None, _) if wait.task == *own => WaitTarget::Itself,
            (None, Some(row)) => WaitTarget::Here(Ref::New(*row)),
            (None, None) if self.written.contains(&wait.task) => WaitTarget::Nothing,
            (None, None) => match self.facts.rows.get(&wait.task) {
                Some(row) => WaitTarget::Here(Ref::Existing(row.task)),
                None => WaitTarget::Nothing,
            },
        };
        Work::Wait(wait)
    }
}

fn structural_edge(source: &Source) -> Edge {
    Edge {
        from: source.row,
        structural: true,
        state: source.structural,
    }
}

/// One edge a pair; written order wins.
fn refer(edges: &mut Vec<Edge>, source: &Source) {
    if !edges.iter().any(|edge| edge.from == source.row) {
        edges.push(Edge {
            from: source.row,
            structural: false,
            state: source.reference,
        });
    }
}

/// Two names may stand for one row by now; it is read once, where it was first named.
fn once_each(sources: &[Source]) -> Vec<Ref> {
    let mut rows = Vec::new();
    for source in sources {
        if !rows.contains(&source.row) {
            rows.push(source.row);
        }
    }
    rows
}

impl Step {
    fn at(&self) -> &Spot {
        match self {
            Self::Leaf(leaf) => &leaf.at,
            Self::Group(group) => &group.at,
        }
    }
}
