//! The comparison over the real database (`engine.md` §13): the random envelopes of the simulation,
//! driven by clients that race each other at three replicas. Whenever all are still, the whole run is
//! read in one snapshot and held against every invariant, a recount of the whole graph among them,
//! against the last such moment, and against what the clients were told.
//!
//! `NEXUS_COMPARISON_CASES` sets how many cases (default [`CASES`]); `NEXUS_COMPARISON_SEED` tries one
//! alone, [`AGAIN`] times, since its races are not in its seed.
//!
//! | file | job |
//! |---|---|
//! | `grammar` | the random envelopes, those of the simulation |
//! | `scene` | replicas, an account, executors |
//! | `client` | what executors, sweepers and people do, and what they are told |
//! | `rows` | a whole run, read and decoded independently of the store |

mod client;
#[path = "../../../src/engine/sim/grammar.rs"]
mod grammar;
mod rows;
mod scene;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nexus::commands::{self, create};
use nexus::domain::PublicId;
use nexus::domain::json::{Object, Value};
use nexus::engine::invariants::{self, Violation};
use nexus::store::due;

use crate::support::TestApp;
use crate::support::database::TestDatabase;
use client::{Client, Known};
use grammar::{Dice, Palette};
use rows::Look;
use scene::Scene;

/// Cases of one run of the tests, all parts together.
const CASES: u64 = 1_000;
/// Parts, which a runner may drive side by side; each has its own database and replicas.
const PARTS: u64 = 4;
/// Cases of a part that play at once.
const SCENES: u64 = 8;
/// How often one seed is tried alone.
const AGAIN: u64 = 64;

type Tried = BTreeMap<&'static str, usize>;

/// A case under way.
struct Case {
    dice: Dice,
    client: Client,
    /// The last moment at which all were still.
    last: Look,
}

impl Case {
    /// Creates the run of a seed, as it is before it starts.
    async fn create(scene: &Arc<Scene>, seed: u64) -> Result<Self, String> {
        let mut dice = Dice::new(seed);
        let palette = Palette {
            // Nobody works a round: a run with one comes to no rest by itself.
            rounds: dice.one_in(6),
            ..Palette::of_run(&mut dice)
        };
        let most = grammar::most_steps(&mut dice);
        let mode = *dice.of(&["bypass", "ask", "rules"]);
        let rules = dice.one_in(3).then(|| grammar::rules(&mut dice));
        let by_models = if dice.one_in(2) { dice.next() } else { 0 };
        let (fails, dawdles) = (dice.one_in(2), dice.one_in(3));
        let created = loop {
            let size = 1 + dice.below(most);
            let runners = scene.runners();
            let steps = grammar::steps(&mut dice, size, &runners, palette, 'k', Vec::new());
            let mut run = Object::new();
            run.insert("steps".into(), steps);
            run.insert("approval_mode".into(), mode.into());
            if let Some(rules) = &rules {
                run.insert("approval_rules".into(), rules.clone());
            }
            let mut body = Object::new();
            body.insert("run".into(), Value::Object(run));
            let request = create::Request {
                caller: scene.creator.clone(),
                workspace: scene.workspace.0,
                workspace_public_id: scene.workspace.1,
                body,
                key: None,
            };
            match create::create(dice.of(&scene.replicas), request).await {
                Ok(created) => break created,
                Err(commands::Error::Refused(create::Refusal::Steps(_))) => {}
                Err(other) => return Err(format!("create: {other:?}")),
            }
        };
        by_model(scene, created.run, by_models).await;
        let client = Client {
            scene: Arc::clone(scene),
            known: Arc::new(Mutex::new(Known::default())),
            run: created.run,
            fails,
            dawdles,
        };
        client.learn(created.receipt.as_str());
        let run = scene.reader.find(scene.account, created.run).await;
        let last = scene.reader.look(scene.account, run, &[]).await;
        Ok(Self { dice, client, last })
    }

    fn scene(&self) -> &Scene {
        &self.client.scene
    }

    /// Reads the run now that all are still, and holds it against everything.
    async fn look(&mut self) -> Result<(), String> {
        let mut look = self.still().await;
        if let Err(lost) = invariants::rest_is_judged(&look.world) {
            // Nobody waits for the judgement behind a claim: it comes by itself, or a sweep finds it.
            if self.is_unjudged().await? {
                let client = &self.client;
                let app = self.dice.of(&client.scene.replicas).clone();
                let judged = app.holds.judge(client.scene.account, client.run).await;
                judged.map_err(|e| e.to_string())?;
            }
            look = self.still().await;
            invariants::rest_is_judged(&look.world)
                .map_err(|v| format!("{v}; it was {lost}, and no sweep finds it"))?;
        }
        let holds = self.hold(&look);
        self.last = look;
        holds
    }

    fn hold(&self, look: &Look) -> Result<(), String> {
        let told = |v: Violation| v.to_string();
        if let Some(breach) = look.breaches.first() {
            return Err(breach.clone());
        }
        if look.world.items.first().is_some_and(|i| i.seq != 1) {
            return Err("the feed does not begin with 1".to_owned());
        }
        invariants::check(&look.world).map_err(told)?;
        invariants::check_span(&self.last.world, &look.world).map_err(told)?;
        self.client.judge(&self.last, look)
    }

    /// The run as it stands, once every pass that is owed was made.
    async fn still(&mut self) -> Look {
        let (account, run) = (self.scene().account, self.client.run);
        loop {
            let known = &self.last.world.items;
            let inner = self.last.world.run.id;
            let look = self.scene().reader.look(account, inner, known).await;
            let runs = look.world.run.status == nexus::domain::words::RunStatus::Running;
            if !(runs && look.world.run.schedulable) {
                return look;
            }
            let app = self.dice.of(&self.client.scene.replicas).clone();
            let passed = commands::schedule::schedule(&app, account, run).await;
            passed.expect("a pass meets no fault");
        }
    }

    /// Whether the sweep would find that nobody judged the run.
    async fn is_unjudged(&self) -> Result<bool, String> {
        let store = &self.scene().replicas[0].store;
        let page = due::unjudged(store, due::Part::WHOLE, None, 4096).await;
        let (page, _) = page.map_err(|e| e.to_string())?;
        Ok(page.iter().any(|owed| owed.run_id == self.client.run))
    }

    /// Clients beside each other, each with a few things to do.
    async fn burst(&mut self) {
        let clients = 2 + self.dice.below(4);
        let many = 1 + self.dice.below(3);
        let look = &self.last;
        let work = (0..clients).map(|_| {
            let mut dice = Dice::new(self.dice.next());
            let client = self.client.clone();
            async move {
                for _ in 0..many {
                    client.act(&mut dice, look).await;
                }
            }
        });
        let work: Vec<_> = work.collect();
        futures_util::future::join_all(work).await;
    }

    async fn play(&mut self) -> Result<(), String> {
        if !self.dice.one_in(10) {
            let client = self.client.clone();
            client.start_twice(&mut self.dice).await;
        }
        self.look().await?;
        for _ in 0..1 + self.dice.below(6) {
            self.burst().await;
            self.look().await?;
            if self.last.world.run.status.is_terminal() {
                break;
            }
        }
        self.scene().mend().await;
        if !self.dice.one_in(4) {
            self.go_on().await?;
        }
        self.end().await
    }

    /// A willing world brings the run as far as it gets.
    async fn go_on(&mut self) -> Result<(), String> {
        // A row may be answered too late in each of three generations, since the clock is everybody's.
        let rounds = 8 + 6 * self.last.world.tasks.len();
        for _ in 0..rounds {
            if self.last.world.run.status.is_terminal() {
                return Ok(());
            }
            let client = self.client.clone();
            if client.go_on(&mut self.dice, &self.last).await == 0 {
                return Ok(());
            }
            self.look().await?;
        }
        Err("a willing world does not bring it to its end".to_owned())
    }

    /// A forced stop, with whoever is still at it beside; then nothing is left.
    async fn end(&mut self) -> Result<(), String> {
        let app = self.dice.of(&self.client.scene.replicas).clone();
        let client = self.client.clone();
        tokio::join!(self.burst(), async move { client.stop(&app).await });
        self.look().await?;
        let world = &self.last.world;
        if !world.run.status.is_terminal() || !world.parks.is_empty() {
            let parks = world.parks.len();
            return Err(format!(
                "stopped, it is {} with {parks} parks",
                world.run.status
            ));
        }
        if self.dice.one_in(4) {
            let app = self.dice.of(&self.client.scene.replicas).clone();
            let (account, run) = (self.scene().account, self.client.run);
            let deleted = commands::delete::delete(&app, account, run).await;
            deleted.map_err(|e| format!("delete: {e:?}"))?;
            self.burst().await;
            self.look().await?;
        }
        Ok(())
    }
}

/// Some calls are as if a model had asked for them, some questions for a person without a token: doors
/// for models come later, their rows are there.
async fn by_model(scene: &Scene, run: PublicId, rows: u64) {
    if rows == 0 {
        return;
    }
    let chosen = "(account_id, run_id) = (SELECT account_id, run_id FROM runs WHERE public_id = '";
    let drawn = format!(
        "{chosen}{run}') AND ({}::bigint >> (task_no % 60)) & 1 = 1",
        rows >> 4
    );
    scene
        .execute(&format!(
            "UPDATE tasks SET authored_by = 'model' WHERE kind = 'tool_task' AND {drawn};
             UPDATE tasks SET authored_by = 'model', holder = 'person', resolution_digest = NULL
              WHERE kind = 'await_task' AND holder = 'token' AND {drawn}"
        ))
        .await;
}

async fn try_seed(scene: &Arc<Scene>, seed: u64) -> Result<Tried, String> {
    let mut case = Case::create(scene, seed).await?;
    let outcome = case.play().await;
    let known = case.client.known.lock().expect("nobody is at work");
    outcome.map_err(|failure| {
        let log = known.log.join("\n  ");
        let (run, world) = (case.client.run, &case.last.world);
        let rows = world.tasks.iter().map(|t| {
            let edges = world.edges.iter().filter(|e| e.to == t.no);
            let edges = edges.map(|e| {
                let mark = if e.structural { "" } else { "~" };
                format!("{mark}{}:{}", world.tasks[e.from.0 as usize - 1].key, e.state)
            });
            let edges = edges.collect::<Vec<_>>().join(" ");
            let error = t.error.as_ref().map_or("", |e| e.key.as_str());
            let (key, kind, status) = (&t.key, t.kind, t.status);
            format!("{key} {kind} {status} {error} {} {} <- {edges}", t.generation, t.on_failure)
        });
        let rows = rows.collect::<Vec<_>>().join("\n  ");
        format!(
            "NEXUS_COMPARISON_SEED={seed}\n{failure}\nrun {run}, last seen {}\n  {rows}\nacts\n  {log}",
            world.run.status
        )
    })?;
    let mut tried = known.tried.clone();
    *tried
        .entry(case.last.world.run.status.as_str())
        .or_default() += 1;
    for task in &case.last.world.tasks {
        let why = task.error.as_ref().map_or("", |e| e.key.as_str());
        let lost = why == "join_loser_canceled";
        *tried.entry("losers").or_default() += usize::from(lost);
        *tried.entry("failures taken over").or_default() += usize::from(task.race_absorbed);
        *tried.entry("generations").or_default() += usize::try_from(task.generation).unwrap_or(0);
    }
    Ok(tried)
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

async fn compare(part: u64) {
    let alone = env("NEXUS_COMPARISON_SEED");
    let cases = env("NEXUS_COMPARISON_CASES").unwrap_or(CASES);
    if alone.is_some() && part > 0 {
        return;
    }
    let seeds: Vec<u64> = match alone {
        Some(seed) => (0..AGAIN).map(|_| seed).collect(),
        None => (0..cases).filter(|seed| seed % PARTS == part).collect(),
    };
    let database = TestDatabase::create().await;
    let generic = format!(
        "ALTER DATABASE {} SET plan_cache_mode = force_generic_plan",
        database.name
    );
    let client = database.connect().await;
    client.batch_execute(&generic).await.expect("a setting");
    let app = TestApp::with().replicas(3).start_over(database).await;
    app.advance(Duration::ZERO).await;
    let (seeds, next) = (Arc::new(seeds), Arc::new(AtomicU64::new(0)));
    let mut players = Vec::new();
    for n in 0..SCENES {
        let scene = Arc::new(Scene::new(&app, &format!("scene {n}")).await);
        let (seeds, next) = (Arc::clone(&seeds), Arc::clone(&next));
        players.push(tokio::spawn(async move {
            let mut tried = Tried::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(seed) = usize::try_from(at).ok().and_then(|at| seeds.get(at)) else {
                    return Ok(tried);
                };
                let outcome = try_seed(&scene, *seed).await;
                if outcome.is_err() {
                    next.store(u64::from(u32::MAX), Ordering::Relaxed); // the others end too
                }
                for (word, n) in outcome? {
                    *tried.entry(word).or_default() += n;
                }
                scene.mend().await;
            }
        }));
    }
    let (mut sum, mut failures) = (Tried::new(), Vec::<String>::new());
    for player in players {
        match player.await.expect("a player ends") {
            Ok(tried) => tried
                .into_iter()
                .for_each(|(word, n)| *sum.entry(word).or_default() += n),
            Err(failure) => failures.push(failure),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    println!("{sum:?}");
    if alone.is_none() && cases >= CASES {
        is_worth_it(&sum);
    }
    app.finish().await;
}

/// Each kind of thing happened often: a comparison that tries nothing proves nothing.
fn is_worth_it(tried: &Tried) {
    for word in [
        "start",
        "claim",
        "commit",
        "extend",
        "expired rows",
        "schedule",
        "pause",
        "resume",
        "stop",
        "graceful stop",
        "retry",
        "abandon",
        "cancel",
        "approve",
        "deny",
        "answer",
        "append",
        "completed",
        "canceled",
        "losers",
        "generations",
    ] {
        let count = tried.get(word).copied().unwrap_or(0);
        assert!(count >= 10, "only {count} of {word}");
    }
}

macro_rules! parts {
    ($($name:ident: $part:literal,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            compare($part).await;
        }
    )*};
}

parts! {
    every_invariant_holds_at_three_replicas_1: 0,
    every_invariant_holds_at_three_replicas_2: 1,
    every_invariant_holds_at_three_replicas_3: 2,
    every_invariant_holds_at_three_replicas_4: 3,
}
