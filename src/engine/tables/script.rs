//! The language of the tables.
//!
//! | before the first action | |
//! |---|---|
//! | `executor p1 provider read:30s write!` | `!`: not replayable; `:30s`: announced time-out; kinds `provider`, `runner`, `application` |
//! | `task b tool read for r1 timeout 9s halt waits a after c` | `for`: frozen runner; `as approval`, `as ask p1`, `as running`: at rest so |
//! | `steps [M(plan), P[T(a),T(b)] until any key race]` | the rows of that envelope (`steps.md` §9); calls are of the tool `t` |
//! | `rules [{…}]`, `mode ask` | of the approval stage |
//! | `answer b` | the row whose answer is the run's; the last row if none is named |
//! | `pending` | the run is not started by itself |
//!
//! | actions | |
//! |---|---|
//! | `claim a p1 key k` | `judge` and `take` do its two halves apart |
//! | `commit a p1 'text' failed token junk` | also `errored unstorable outcome=x title=x structured=x metadata=x content=x link=n result_type=x` |
//! | `extend a p1 30s token junk` | tokens: `right` (default), `junk`, `none`, `replaced` |
//! | `revoke p1 a b` | the executor leaves; rows that were sent to it |
//! | `retry a`, `abandon a`, `cancel a`, `approve a`, `deny a 'no'` | what persons do about rows |
//! | `reply a 'text' failed token junk` | a question is answered; tokens: `right` (default), `junk`, `none` |
//! | `round m`, `round m fails` | a worker takes the round, then brings what it came to |
//! | `append [T(x)] revision 2 under key resolve a,b failed` | an envelope |
//! | `drain`, `longdrain`, `pause force` | a graceful stop, the sweep's look at one |
//! | `race r` | what it selected, and its sources' words |
//! | `expire a b`, `sweep`, `start`, `stop`, `pause`, `resume`, `schedule` | |
//! | `clock 30s`, `standing none`, `make p1 draining`, `announce p1 read`, `set run paused` | facts |
//! | `show a`, `show run`, `hints` | the row, the run, whom the last action told |
//! | `batch` … `end` | one transaction |

use std::collections::BTreeMap;

use crate::domain::hint::Hint;
use crate::domain::json::{Value, parse};
use crate::domain::time::plus_ms;
use crate::domain::words::{
    ApprovalMode, AssignmentScope, AuthoredBy, EdgeState, ExecutorKind, ExecutorStatus, ParkKind,
    Role, RunStatus, TaskKind, TaskStatus, Visibility,
};
use crate::domain::{ExecutorId, TaskKey, TaskNo, Timestamp};
use crate::engine::approval::Rules;
use crate::engine::claim::Verdict;
use crate::engine::facts::{Addressed, Counts, Edge, Park, Task};
use crate::engine::invariants::{self, Item, Narrated, recount};
use crate::engine::sim::command::{Answer, Appending, Command, link};
use crate::engine::sim::db::{Db, Taking};
use crate::engine::sim::envelopes::{self, dawn, run, shown};
use crate::engine::sim::fleet::{self, Fleet};

/// Plays a table; panics at the first line that comes out otherwise, showing what did.
pub(super) fn check(table: &str) {
    let mut play = Play::default();
    let mut lines = table
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    while let Some(line) = lines.next() {
        if line == "batch" {
            let together: Vec<&str> = lines.by_ref().take_while(|l| *l != "end").collect();
            play.batch(&together);
            continue;
        }
        let (action, wanted) = match line.split_once("->") {
            Some((action, wanted)) => (action, Some(wanted.trim())),
            None => (line, None),
        };
        let action = action.trim();
        if let Some(steps) = action.strip_prefix("steps ") {
            play.steps(steps);
            continue;
        }
        if let Some(rules) = action.strip_prefix("rules ") {
            let value = parse(rules.as_bytes()).expect("JSON");
            play.rules = Some(Rules::read(&value).expect("rules").0);
            continue;
        }
        let told = match action.strip_prefix("append ") {
            Some(rest) => Some(play.action(&["append", rest])),
            None => play.line(&words(action)),
        };
        match (wanted, told) {
            (Some(wanted), Some(told)) => assert_eq!(told, wanted, "\nin line: {line}"),
            (None, None) => {}
            (wanted, told) => panic!("{line}: told {told:?}, wanted {wanted:?}"),
        }
    }
    assert!(play.asked > 0, "a table that asks nothing");
}

/// Words; a quoted text is one.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in line.split('\'').enumerate() {
        if n % 2 == 1 {
            words.push(format!("'{part}"));
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// `30s`, `500ms`, `1h`, `7d`.
fn ms(text: &str) -> i64 {
    for (unit, factor) in [
        ("ms", 1),
        ("s", 1_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ] {
        let number = text.strip_suffix(unit).map(str::parse::<i64>);
        if let Some(Ok(n)) = number {
            return n * factor;
        }
    }
    panic!("{text} is no duration");
}

fn duration(ms: i64) -> String {
    if ms % 1_000 == 0 {
        format!("{}s", ms / 1_000)
    } else {
        format!("{ms}ms")
    }
}

fn since_dawn(at: Timestamp) -> String {
    duration((at - dawn()).num_milliseconds())
}

#[derive(Default)]
struct Play {
    fleet: Fleet,
    tasks: Vec<Task>,
    edges: Vec<Edge>,
    parks: Vec<Park>,
    answer: Option<TaskNo>,
    tail: Option<TaskNo>,
    authored: BTreeMap<TaskNo, crate::engine::sim::db::Authored>,
    rules: Option<Rules>,
    mode: Option<ApprovalMode>,
    pending: bool,
    db: Option<Db>,
    /// Tokens by row and executor, oldest first.
    tokens: BTreeMap<(String, ExecutorId), Vec<[u8; 32]>>,
    judged: Option<(Verdict, Taking)>,
    minted: u8,
    /// The run was put into a state that no action of this release brings about: what is told is
    /// still checked, the invariants are not.
    by_hand: bool,
    asked: usize,
    hints: usize,
}

impl Play {
    /// The rows of an envelope.
    fn steps(&mut self, text: &str) {
        let steps = crate::engine::compile::tests::dsl::steps(text);
        let placed = envelopes::place(&steps, &self.fleet)
            .unwrap_or_else(|| panic!("{text} does not compile"));
        self.authored = envelopes::authored(&placed);
        self.answer = placed.deliverable;
        self.tail = placed.mainline_tail;
        self.tasks = placed.tasks.into_iter().map(|new| new.task).collect();
        self.edges = placed.edges;
    }

    fn race(&mut self, key: &str) -> String {
        self.asked += 1;
        let db = self.db();
        let selection = db.selection(db.no(key).expect("a task"));
        selection.map_or_else(|| "open".to_owned(), |s| s.text)
    }

    fn append(&mut self, line: &str) -> Command {
        let end = line.rfind(']').filter(|_| line.starts_with('['));
        let (steps, rest) = line.split_at(end.map_or(0, |at| at + 1));
        let steps = match steps {
            "" => Value::Array(Vec::new()),
            text => crate::engine::compile::tests::dsl::steps(text),
        };
        let (mut revision, mut under, mut resolves) = (None, None, Vec::new());
        let failed = rest.contains("failed");
        let mut words = rest.split_whitespace();
        while let Some(word) = words.next() {
            let mut next = || words.next().expect("a word more");
            match word {
                "revision" => revision = Some(next().parse().expect("a number")),
                "under" => under = Some(next().to_owned()),
                "resolve" => resolves = next().split(',').map(str::to_owned).collect(),
                "failed" => {}
                other => panic!("no word {other} of an append"),
            }
        }
        let outcome = if failed { "failed" } else { "completed" };
        let said = |key: String| {
            let members = [("content", "yes".into()), ("outcome", outcome.into())];
            (key, crate::engine::sim::command::body(&members))
        };
        let resolves = resolves.into_iter().map(said).collect();
        let seed = u64::try_from(self.asked).expect("few");
        let appending = Appending::new(steps, resolves, revision, under, seed);
        Command::Append(Box::new(appending.expect("steps of the right shape")))
    }

    fn line(&mut self, words: &[String]) -> Option<String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["executor", name, kind, rest @ ..] => self.executor(name, kind, rest),
            ["task", key, kind, rest @ ..] => self.task(key, kind, rest),
            ["answer", key] => self.answer = Some(self.number(key)),
            ["answer"] => self.answer = None,
            ["mode", mode] => self.mode = Some(mode.parse().expect("a mode")),
            ["race", key] => return Some(self.race(key)),
            ["pending"] => self.pending = true,
            ["clock", at] => {
                let at = plus_ms(dawn(), ms(at));
                self.db().world.now = at;
            }
            ["standing", word] => self.db().world.run.creator_may_write = *word == "write",
            ["make", name, state] => self.make(name, state),
            ["announce", name, tools @ ..] => {
                let machine = self.db().fleet.named_mut(name);
                machine.serves = tools.iter().map(|t| serves(t)).collect();
            }
            ["set", "run", status] => {
                let now = self.db().world.now;
                let run = &mut self.db().world.run;
                run.status = status.parse().expect("a run status");
                run.paused_at = (run.status == RunStatus::Paused).then_some(now);
                self.by_hand = true;
            }
            ["set", "stopped"] => {
                self.db().world.run.force_stopped = true;
                self.by_hand = true;
            }
            ["show", "run"] => return Some(self.show_run()),
            ["show", key] => return Some(self.show(key)),
            ["hints"] => return Some(self.shown_hints()),
            _ => return Some(self.action(&words)),
        }
        None
    }

    // ---------------------------------------------------------------- before the first action

    fn executor(&mut self, name: &str, kind: &str, tools: &[&str]) {
        let kind = match kind {
            "provider" => ExecutorKind::ToolProvider,
            "runner" => ExecutorKind::Runner,
            "application" => ExecutorKind::AgentApplication,
            other => panic!("no executor kind {other}"),
        };
        let machine = self.fleet.add(name, kind);
        machine.serves = tools.iter().map(|t| serves(t)).collect();
    }

    fn number(&self, key: &str) -> TaskNo {
        let found = self.tasks.iter().find(|t| t.key.as_str() == key);
        found.unwrap_or_else(|| panic!("no task {key}")).no
    }

    fn task(&mut self, key: &str, kind: &str, rest: &[&str]) {
        let no = TaskNo(i32::try_from(self.tasks.len() + 1).expect("few"));
        let kind: TaskKind = format!("{kind}_task").parse().expect("a kind");
        let mut task = blank(no, key, kind);
        let mut park = None;
        let mut words = rest.iter().peekable();
        if kind == TaskKind::Tool {
            task.tool_name = words.next().map(|w| (*w).to_owned());
        }
        while let Some(word) = words.next() {
            let mut next = || *words.next().expect("a word more");
            match *word {
                "for" => task.target = Some(self.fleet.named(next()).caller.id),
                "timeout" => task.timeout_ms = Some(ms(next())),
                "waits" => next().split(',').for_each(|from| self.edge(from, no, true)),
                "after" => next()
                    .split(',')
                    .for_each(|from| self.edge(from, no, false)),
                "by" => task.authored_by = next().parse().expect("an author"),
                "detached" => task.detached = true,
                "as" => park = self.at_rest(&mut task, next()),
                policy => task.on_failure = policy.parse().expect("a policy"),
            }
        }
        task.remaining = count(self.edges.iter().filter(|e| e.to == no).count());
        self.parks.extend(park);
        self.tasks.push(task);
    }

    fn edge(&mut self, from: &str, to: TaskNo, structural: bool) {
        let ordinal = count(self.edges.iter().filter(|e| e.to == to).count());
        self.edges.push(Edge {
            from: self.number(from),
            to,
            ordinal,
            structural,
            source: None,
            state: EdgeState::Open,
        });
    }

    /// Rows that no decision of this release brings about: a call at rest for an approver, a
    /// question that is asked, a round at work.
    fn at_rest(&self, task: &mut Task, how: &str) -> Option<Park> {
        let (how, executor) = how.split_once('@').unwrap_or((how, ""));
        let (status, kind) = match how {
            "approval" => (TaskStatus::NeedsApproval, Some(ParkKind::Approval)),
            "ask" => (TaskStatus::AwaitingInput, Some(ParkKind::Ask)),
            "running" => (TaskStatus::Running, None),
            other => panic!("no rest {other}"),
        };
        task.status = status;
        let executor = (!executor.is_empty()).then(|| self.fleet.named(executor).caller.id);
        task.addressed = executor.map(|executor| Addressed {
            role: Role::AgentApplication,
            executor: Some(executor),
        });
        kind.map(|kind| Park {
            task: task.no,
            kind,
            executor,
            pool_name: None,
            deadline_at: plus_ms(dawn(), 86_400_000),
            timeout_ms: 86_400_000,
            announced_timeout_ms: None,
            effect_profile: None,
            replayable: false,
            generation: 0,
            started_at: dawn(),
            claim: None,
        })
    }

    /// The rows, once the first action needs them; started, unless the run is to be pending.
    fn db(&mut self) -> &mut Db {
        if self.db.is_none() {
            let answer = self.answer.or(self.tasks.last().map(|t| t.no));
            let mut world = invariants::World {
                now: dawn(),
                run: run(answer, Counts::default(), 0),
                tasks: std::mem::take(&mut self.tasks),
                edges: std::mem::take(&mut self.edges),
                parks: Vec::new(),
                failures: Vec::new(),
                results: Vec::new(),
                items: Vec::new(),
            };
            world.run.counts = recount(&world).counts;
            world.run.event_seq = 1;
            world.items.push(Item {
                seq: 1,
                what: Narrated::Run(RunStatus::Pending, None),
            });
            let mut db = Db::new(world, self.fleet.clone());
            db.keeps_events = true;
            db.authored = std::sync::Arc::new(std::mem::take(&mut self.authored));
            db.world.run.mainline_tail = self.tail;
            db.world.run.approval_mode = self.mode.unwrap_or(ApprovalMode::Bypass);
            db.world.run.has_rules = self.rules.is_some();
            db.rules = self.rules.take().map(std::sync::Arc::new);
            for park in self.parks.drain(..) {
                db.plant(park);
            }
            if !self.pending {
                db.run(Command::Start).expect("a start");
            }
            self.hints = db.hints.len();
            self.db = Some(db);
        }
        self.db.as_mut().expect("just made")
    }

    // ---------------------------------------------------------------- facts

    fn make(&mut self, name: &str, state: &str) {
        let caller = &mut self.db().fleet.named_mut(name).caller;
        let facts = &mut caller.executor;
        match state {
            "draining" => facts.shutting_down = true,
            "revoked" => facts.status = ExecutorStatus::Revoked,
            "tokenless" => facts.has_usable_token = false,
            "private" => {
                facts.scope = Some(AssignmentScope::UserPrivate);
                facts.manager = Some(fleet::STRANGER);
            }
            "mine" => facts.scope = Some(AssignmentScope::UserPrivate),
            "foreign" => facts.agent = Some(fleet::STRANGER),
            "retired" => facts.agent_active = false,
            "usable" => {
                facts.shutting_down = false;
                facts.status = ExecutorStatus::Active;
                facts.has_usable_token = true;
            }
            other => panic!("no state {other}"),
        }
    }

    // ---------------------------------------------------------------- actions

    /// Does it, checks every invariant, and says what was told.
    fn action(&mut self, words: &[&str]) -> String {
        self.asked += 1;
        self.hints = self.db().hints.len();
        let before = self.db().world.clone();
        let told = self.db().events.len();
        let answer = match words {
            ["claim", key, name, rest @ ..] => self.claim(key, name, rest, true),
            ["judge", key, name, rest @ ..] => self.claim(key, name, rest, false),
            ["take"] => {
                let judged = self.judged.take().expect("a judged claim");
                self.take(&judged)
            }
            ["sweep"] => {
                let rows = self.db().due();
                self.run(Command::Expire(rows))
            }
            _ => {
                let command = self.command(words);
                self.run(command)
            }
        };
        let by_hand = self.by_hand;
        let db = self.db();
        let after = &db.world;
        if !by_hand {
            invariants::check(after).unwrap_or_else(|v| panic!("{words:?}: {v}"));
            invariants::check_step(&before, after).unwrap_or_else(|v| panic!("{words:?}: {v}"));
            invariants::narrated_in_order(&before, after)
                .unwrap_or_else(|v| panic!("{words:?}: {v}"));
            invariants::the_reason_told_stands(&before, after)
                .unwrap_or_else(|v| panic!("{words:?}: {v}"));
        }
        let items: Vec<String> = db.events[told..].iter().map(shown).collect();
        said(&answer, &items)
    }

    fn run(&mut self, command: Command) -> String {
        let version = self.db().version;
        let answer = self.db().run(command).unwrap_or_else(|e| panic!("{e}"));
        let wrote = self.db().version != version;
        // These may settle the row that they refuse.
        let settles = [
            "result_unstorable",
            "not_awaiting_approval",
            "already_terminal",
        ];
        let refused = matches!(answer, Answer::Refused(code) if !settles.contains(&code));
        assert!(!(refused && wrote), "INV-30: {answer:?} wrote something");
        told(&answer)
    }

    fn batch(&mut self, lines: &[&str]) {
        self.asked += 1;
        self.hints = self.db().hints.len();
        let split = lines
            .iter()
            .map(|l| l.split_once("->").expect("an expectation"));
        let (actions, wanted): (Vec<_>, Vec<_>) = split.unzip();
        let commands: Vec<Command> = actions
            .iter()
            .map(|a| {
                let words = words(a);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.command(&words)
            })
            .collect();
        let db = self.db();
        let before = db.world.clone();
        let from = db.events.len();
        let done = db.transact(&commands).unwrap_or_else(|e| panic!("{e}"));
        invariants::check(&db.world).unwrap_or_else(|v| panic!("{v}"));
        invariants::check_step(&before, &db.world).unwrap_or_else(|v| panic!("{v}"));
        let mut at = before.run.event_seq;
        let mut events = db.events[from..].iter();
        for (n, line) in lines.iter().enumerate() {
            let told_here = usize::try_from(done.told[n] - at).expect("items count up");
            let items: Vec<String> = events.by_ref().take(told_here).map(shown).collect();
            at = done.told[n];
            assert_eq!(
                said(&told(&done.answers[n]), &items),
                wanted[n].trim(),
                "\nin line: {line}"
            );
        }
    }

    fn id(&mut self, name: &str) -> ExecutorId {
        self.db().fleet.named(name).caller.id
    }

    fn claim(&mut self, key: &str, name: &str, rest: &[&str], at_once: bool) -> String {
        let by = self.id(name);
        let under = match rest {
            ["key", key] => Some(key.as_bytes().to_vec()),
            _ => None,
        };
        self.minted += 1;
        let mut token = [1; 32];
        token[0] = self.minted;
        match self.db().judge_claim(key, by, under.as_deref(), token) {
            Err(code) => code.to_owned(),
            Ok(judged) => {
                self.tokens
                    .entry((key.to_owned(), by))
                    .or_default()
                    .push(token);
                if at_once {
                    return self.take(&judged);
                }
                self.judged = Some(judged);
                "judged".to_owned()
            }
        }
    }

    fn take(&mut self, judged: &(Verdict, Taking)) -> String {
        let (verdict, taking) = judged;
        let won = self.db().take(*verdict, taking);
        let word = match verdict {
            _ if !won => "lost",
            Verdict::Grant => "granted",
            Verdict::Recover => "recovered",
        };
        word.to_owned()
    }

    fn token(&mut self, key: &str, name: &str, which: &str) -> Option<[u8; 32]> {
        let by = self.id(name);
        let tokens = self.tokens.get(&(key.to_owned(), by));
        let of_holder = || {
            self.tokens
                .iter()
                .find(|((k, _), _)| k == key)
                .map(|(_, t)| t)
        };
        match which {
            "none" => None,
            "junk" => Some([0; 32]),
            "replaced" => tokens.and_then(|t| t.first()).copied(),
            "held" => of_holder().and_then(|t| t.last()).copied(),
            _ => Some(tokens.and_then(|t| t.last()).copied().unwrap_or([0; 32])),
        }
    }

    fn command(&mut self, words: &[&str]) -> Command {
        match words {
            ["start"] => Command::Start,
            ["schedule"] => Command::Schedule,
            ["stop"] => Command::Stop(None),
            ["stop", reason] => Command::Stop(Some((*reason).to_owned())),
            ["pause"] => Command::Pause { force: false },
            ["pause", "force"] => Command::Pause { force: true },
            ["drain"] => Command::Graceful,
            ["longdrain"] => Command::LongDrain,
            ["retry", key] => Command::Retry(named(key)),
            ["abandon", key] => Command::Abandon(named(key)),
            ["cancel", key] => Command::Cancel(named(key)),
            ["approve", key] => Command::Approve(named(key)),
            ["deny", key, reason @ ..] => {
                let reason = reason
                    .first()
                    .map(|r| r.trim_start_matches('\'').to_owned());
                Command::Deny(named(key), reason)
            }
            ["round", key, rest @ ..] => Command::Round {
                key: named(key),
                fails: *rest == ["fails"],
            },
            ["reply", key, rest @ ..] => {
                let (members, which) = commit_words(rest);
                let db = self.db();
                let no = db.no(key).expect("a task");
                let right = db.task(no).resolution_digest.clone();
                let right = right.map(|d| <[u8; 32]>::try_from(&d[..]).expect("a digest"));
                Command::Answer {
                    key: named(key),
                    token: match which {
                        "none" => None,
                        "junk" => Some([0; 32]),
                        _ => right,
                    },
                    body: members,
                }
            }
            ["append", line] => self.append(line),
            ["resume"] => Command::Resume,
            ["expire", keys @ ..] => {
                let rows = keys.iter().map(|key| self.db().no(key).expect("a task"));
                Command::Expire(rows.collect())
            }
            ["revoke", name, keys @ ..] => {
                let rows = keys.iter().map(|key| self.db().no(key).expect("a task"));
                let rows = rows.collect();
                Command::Revoke {
                    executor: self.id(name),
                    rows,
                }
            }
            ["extend", key, name, by, rest @ ..] => Command::Extend {
                key: TaskKey::trusted((*key).to_owned()),
                by: self.id(name),
                token: self
                    .token(key, name, rest.get(1).unwrap_or(&""))
                    .unwrap_or([0; 32]),
                timeout_ms: ms(by),
            },
            ["commit", key, name, rest @ ..] => {
                let (members, which) = commit_words(rest);
                Command::Commit {
                    key: TaskKey::trusted((*key).to_owned()),
                    by: self.id(name),
                    token: self.token(key, name, which),
                    body: members,
                }
            }
            other => panic!("no action {other:?}"),
        }
    }

    // ---------------------------------------------------------------- looking

    fn show(&mut self, key: &str) -> String {
        self.asked += 1;
        let db = self.db();
        let no = db.no(key).expect("a task");
        let (task, park) = (db.task(no).clone(), db.park(no).cloned());
        let name = |id: ExecutorId| {
            let found = db.fleet.machines.iter().find(|m| m.caller.id == id);
            found.map_or("?".to_owned(), |m| m.name.clone())
        };
        let mut parts = vec![task.status.shown().to_owned()];
        if let Some(addressed) = task.addressed {
            parts.push(addressed.role.to_string());
            parts.extend(addressed.executor.map(name));
        }
        if let Some(park) = &park {
            parts.extend(park.pool_name.as_ref().map(|p| format!("pool {p}")));
            parts.push(format!("timeout {}", duration(park.timeout_ms)));
            parts.push(format!("until {}", since_dawn(park.deadline_at)));
            parts.extend(
                park.announced_timeout_ms
                    .map(|ms| format!("announced {}", duration(ms))),
            );
            parts.extend(park.effect_profile.clone());
            parts.extend(
                park.claim
                    .as_ref()
                    .map(|c| format!("claimed by {}", name(c.by))),
            );
        }
        parts.extend(
            task.claim
                .as_ref()
                .map(|c| format!("claimed by {}", name(c.by))),
        );
        parts.extend(
            task.approval
                .as_ref()
                .map(|a| format!("approved by {}", a.origin)),
        );
        parts.extend(task.error.as_ref().map(|e| match &e.detail {
            Some(detail) => format!("error {}: {detail}", e.key),
            None => format!("error {}", e.key),
        }));
        if task.is_error {
            parts.push("is_error".to_owned());
        }
        parts.join(" ")
    }

    fn show_run(&mut self) -> String {
        self.asked += 1;
        let run = &self.db().world.run;
        let mut parts = vec![run.status.to_string()];
        parts.extend(run.attention.as_ref().map(|a| {
            let keys: Vec<&str> = a.keys.iter().map(|k| k.as_str()).collect();
            format!("{} [{}]", a.reason, keys.join(" "))
        }));
        parts.extend(run.failure_reason.clone());
        if run.schedulable {
            parts.push("schedulable".to_owned());
        }
        parts.join(" ")
    }

    fn shown_hints(&mut self) -> String {
        self.asked += 1;
        let from = self.hints;
        let db = self.db();
        let name = |id| {
            let found = db.fleet.machines.iter().find(|m| m.caller.public_id == id);
            found.map_or("?", |m| m.name.as_str())
        };
        let hints = db.hints[from..].iter().map(|hint| match hint {
            Hint::WorkAvailable {
                executor, task_key, ..
            } => {
                format!("{task_key} available to {}", name(*executor))
            }
            Hint::WorkCanceled {
                executor, task_key, ..
            } => {
                format!("{task_key} canceled for {}", name(*executor))
            }
            other => format!("{other:?}"),
        });
        hints.collect::<Vec<_>>().join(", ")
    }
}

fn serves(text: &str) -> (String, crate::engine::facts::Served) {
    let (name, timeout) = match text.split_once(':') {
        Some((name, timeout)) => (name, Some(ms(timeout))),
        None => (text, None),
    };
    let replayable = !name.ends_with('!');
    (
        name.trim_end_matches('!').to_owned(),
        fleet::served(replayable, timeout),
    )
}

fn named(key: &str) -> TaskKey {
    TaskKey::trusted(key.to_owned())
}

fn count(n: usize) -> i32 {
    i32::try_from(n).expect("few")
}

/// A queued row of that kind with its kind's defaults.
pub(in crate::engine) fn blank(no: TaskNo, key: &str, kind: TaskKind) -> Task {
    Task {
        visibility: Visibility::Collapsed,
        ..crate::engine::author::blank(
            no,
            TaskKey::trusted(key.to_owned()),
            kind,
            AuthoredBy::Author,
        )
    }
}

/// A commit's body, and which token it brings.
fn commit_words<'w>(words: &[&'w str]) -> (crate::domain::json::Object, &'w str) {
    let mut members = crate::domain::json::Object::new();
    let mut which = "right";
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(text) = word.strip_prefix('\'') {
            members.insert("content".into(), text.into());
            continue;
        }
        match *word {
            "token" => which = words.next().expect("which token"),
            "failed" => drop(members.insert("outcome".into(), "failed".into())),
            "errored" => drop(members.insert("is_error".into(), true.into())),
            "unstorable" => drop(members.insert("content".into(), "a\0b".into())),
            "huge" => drop(members.insert("content".into(), "x".repeat(1_048_576).into())),
            word => {
                let (name, text) = word.split_once('=').expect("a member");
                let value = match name {
                    "link" => Value::Array(vec![link(text.parse().expect("a number"))]),
                    _ => parse(text.as_bytes()).unwrap_or_else(|_| text.into()),
                };
                let name = if name == "link" { "content" } else { name };
                let name = if name == "structured" {
                    "structured_content"
                } else {
                    name
                };
                members.insert(name.to_owned(), value);
            }
        }
    }
    (members, which)
}

fn told(answer: &Answer) -> String {
    match answer {
        Answer::Ok => "ok".to_owned(),
        Answer::Count(n) => n.to_string(),
        Answer::Task(_, status) => status.shown().to_owned(),
        Answer::Deadline(at) => format!("until {}", since_dawn(*at)),
        Answer::Appended(accepted) if accepted.replayed => "replayed".to_owned(),
        Answer::Appended(_) => "appended".to_owned(),
        Answer::Refused(code) => (*code).to_owned(),
    }
}

/// An answer with the items behind it.
fn said(answer: &str, items: &[String]) -> String {
    let mut shown: Vec<String> = Vec::new();
    for item in items {
        let started = item.strip_suffix(" dispatched").is_some_and(|key| {
            shown
                .last()
                .is_some_and(|last| *last == format!("{key} needs_approval"))
        });
        if started {
            let last = shown.last_mut().expect("just seen");
            *last = item.replace(" dispatched", " started");
        } else {
            shown.push(item.clone());
        }
    }
    if shown.is_empty() {
        answer.to_owned()
    } else {
        format!("{answer}; {}", shown.join(", "))
    }
}
