//! Faults at every statement (BR-026, BR-046, `conventions.md` §3): a command that writes is all or
//! nothing wherever it is cut, and the repeated call gives the stored result.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use nexus::domain::{AccountId, TaskNo};
use reqwest::Method;
use serde_json::json;
use tokio_postgres::Client;

use crate::support::database::TestDatabase;
use crate::support::fleet::{dump, number, parallel};
use crate::support::proxy::{Cut, Proxy, through};
use crate::support::seed::{World, door};
use crate::support::{Answer, TestApp, audit, text};

/// The commands that are walked through.
const VERBS: &[&str] = &[
    "create", "start", "claim", "extend", "commit", "fail", "late", "expire", "stop",
];

struct Scene {
    app: TestApp,
    sql: Client,
    world: World,
}

/// A run in the state the verb expects, and the verb on it, to be called as often as one likes.
struct Act {
    verb: &'static str,
    run: String,
    token: String,
    key: String,
}

impl Scene {
    async fn over(app: TestApp) -> Self {
        let sql = app.sql().await;
        let world = World::in_database(&sql, "a").await;
        Self { app, sql, world }
    }

    async fn ready(&self, verb: &'static str, key: String) -> Act {
        let world = &self.world;
        let steps = json!([
            parallel(vec![
                world.routed("a", "write_note"),
                world.routed("b", "write_note")
            ]),
            world.routed("c", "echo")
        ]);
        let (mut run, mut token) = (String::new(), String::new());
        if verb == "start" {
            let body = json!({"run": {"approval_mode": "bypass", "steps": steps}});
            let created = self
                .app
                .post(&world.runs(), &world.human.token, body)
                .await
                .ok(201);
            run = text(&created, "run.public_id").to_owned();
        } else if verb != "create" {
            run = world.run(&self.app, steps).await;
            let other = world.claim(&self.app, &run, "b").await;
            world.commit(&self.app, &run, "b", &other).await.ok(200);
            if verb != "claim" {
                token = world.claim(&self.app, &run, "a").await;
            }
            if ["late", "expire"].contains(&verb) {
                let past =
                    "UPDATE parks SET (deadline_at, due_at) = (SELECT t, t FROM nexus_now() AS t)";
                self.sql.execute(past, &[]).await.unwrap();
            }
        }
        Act {
            verb,
            run,
            token,
            key,
        }
    }

    /// Calls the verb; gives the answer, or none for the command without a door that met a fault.
    async fn call(&self, act: &Act) -> Option<Answer> {
        let world = &self.world;
        let (member, runner) = (&world.human.token, &world.runner.token);
        let path = |verb: &str| door(&act.run, "a", verb);
        let commit =
            |outcome: &str| json!({"claim_token": act.token, "content": "x", "outcome": outcome});
        let answer = match act.verb {
            "create" => {
                let steps = json!([
                    parallel(vec![world.routed("a", "echo"), world.routed("b", "echo")]),
                    world.routed("c", "echo")
                ]);
                let body = json!({"run": {"approval_mode": "bypass", "steps": steps}});
                self.app
                    .request(Method::POST, &world.runs(), member)
                    .header("idempotency-key", &act.key)
                    .json(body)
                    .send()
                    .await
            }
            "start" => {
                self.app
                    .command(&format!("{}/{}/start", world.runs(), act.run), member)
                    .await
            }
            "stop" => world.stop(&self.app, &act.run).await,
            "claim" => {
                let claim = self.app.request(Method::POST, &path("claim"), runner);
                claim.header("idempotency-key", &act.key).send().await
            }
            "extend" => {
                let body = json!({"claim_token": act.token, "timeout_ms": 60_000});
                self.app.post(&path("extend"), runner, body).await
            }
            "commit" | "late" => {
                self.app
                    .post(&path("commit"), runner, commit("completed"))
                    .await
            }
            "fail" => {
                self.app
                    .post(&path("commit"), runner, commit("failed"))
                    .await
            }
            _ => {
                let (account, run) = (AccountId(world.account), act.run.parse().unwrap());
                let swept =
                    nexus::commands::expire::expire(self.app.app(), account, run, vec![TaskNo(1)])
                        .await;
                return swept.ok().map(|_| Answer::empty());
            }
        };
        Some(answer)
    }

    /// What must be true once the verb was done, however it came to that.
    async fn check(&self, act: &Act) {
        let one = async |column: &str, table: &str, rest: &str| -> String {
            let sql = format!(
                "SELECT {column} FROM {table} x JOIN runs r USING (account_id, run_id) WHERE r.public_id = '{}' {rest}",
                act.run
            );
            self.sql.query_one(&sql, &[]).await.unwrap().get(0)
        };
        let task = async |key: &str| one("x.status", "tasks", &format!("AND key = '{key}'")).await;
        match act.verb {
            "create" => assert_eq!(
                number(
                    &self.sql,
                    &format!("SELECT count(*) FROM receipts WHERE key = '{}'", act.key)
                )
                .await,
                1
            ),
            "start" | "claim" | "extend" => assert_eq!(task("a").await, "dispatched"),
            "commit" => assert_eq!(
                (&*task("a").await, &*task("c").await),
                ("completed", "dispatched")
            ),
            "fail" => assert_eq!(
                (&*task("a").await, &*task("c").await),
                ("failed", "skipped")
            ),
            "late" | "expire" => assert_eq!(
                (&*task("a").await, &*task("c").await),
                ("uncertain", "skipped")
            ),
            _ => assert_eq!(
                (&*task("a").await, &*task("c").await),
                ("canceled", "canceled")
            ),
        }
    }

    /// Whether the repeated call says that the first one had been done, in the verb's own way.
    fn was_done(verb: &str, answer: &Answer) -> bool {
        match verb {
            "start" if answer.status == 409 => {
                answer.expect(409, "not_startable");
                true
            }
            "stop" if answer.status == 409 => {
                answer.expect(409, "already_terminal");
                true
            }
            _ => {
                let status = answer.status.as_u16();
                assert!(status == 200 || status == 201, "{verb}: {answer:?}");
                false
            }
        }
    }
}

/// Raises the wanted SQLSTATE in the nth writing statement from now, once; or ends the backend.
const FAULTY: &str = "
    CREATE SEQUENCE fault_seq;
    CREATE TABLE fault_plan (code text NOT NULL, at bigint NOT NULL);
    CREATE FUNCTION faulty() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE plan fault_plan%ROWTYPE;
    BEGIN
        SELECT * INTO plan FROM fault_plan;
        IF FOUND AND nextval('fault_seq') = plan.at THEN
            IF plan.code = 'terminate' THEN
                PERFORM pg_terminate_backend(pg_backend_pid());
            ELSE
                RAISE EXCEPTION 'injected' USING ERRCODE = plan.code;
            END IF;
        END IF;
        RETURN NULL;
    END $$;
    DO $$ DECLARE t text; BEGIN
        FOREACH t IN ARRAY ARRAY['runs','tasks','task_inputs','task_results','edges','parks','open_failures','run_events','receipts'] LOOP
            EXECUTE format('CREATE TRIGGER faulty BEFORE INSERT OR UPDATE OR DELETE ON %I FOR EACH STATEMENT EXECUTE FUNCTION faulty()', t);
        END LOOP;
    END $$;";

/// BR-046, BR-026: each writing statement of each command fails in turn, with each kind of fault.
/// Nothing of the command is left, or all of it; a deadlock or serialization failure is run again
/// within the command; any other fault is 503 or 500 and the same call then does it.
#[tokio::test]
async fn a_fault_in_any_writing_statement_leaves_all_or_nothing() {
    let scene = Scene::over(TestApp::start().await).await;
    scene.sql.batch_execute(FAULTY).await.unwrap();
    let mut walked: BTreeMap<&str, i64> = BTreeMap::new();
    for verb in VERBS {
        let codes: &[&str] = match *verb {
            "commit" => &["40P01", "40001", "57P01", "XX000", "terminate"],
            _ => &["40001", "terminate"],
        };
        for code in codes.iter().copied() {
            for nth in 1.. {
                let act = scene.ready(verb, format!("{verb}-{code}-{nth}")).await;
                let before = dump(&scene.sql).await;
                let plan = format!(
                    "SELECT setval('fault_seq', 1, false); DELETE FROM fault_plan; INSERT INTO fault_plan VALUES ('{code}', {nth})"
                );
                scene.sql.batch_execute(&plan).await.unwrap();
                let first = scene.call(&act).await;
                scene
                    .sql
                    .batch_execute("DELETE FROM fault_plan")
                    .await
                    .unwrap();
                let met = number(&scene.sql, "SELECT last_value FROM fault_seq").await >= nth
                    && number(&scene.sql, "SELECT is_called::int::bigint FROM fault_seq").await
                        == 1;
                let status = first.as_ref().map_or(503, |a| a.status.as_u16());
                if met && code.starts_with("40") {
                    assert!(
                        status < 300,
                        "{verb}, {code} at write {nth} is run again: {first:?}"
                    );
                } else if met {
                    let wanted = match code {
                        "XX000" if *verb != "expire" => 500,
                        _ => 503,
                    };
                    assert_eq!(status, wanted, "{verb}, {code} at write {nth}: {first:?}");
                    assert_eq!(
                        before,
                        dump(&scene.sql).await,
                        "{verb}, {code} at write {nth} left something"
                    );
                    let again = scene
                        .call(&act)
                        .await
                        .unwrap_or_else(|| panic!("{verb} after {code} at {nth}"));
                    assert!(
                        !Scene::was_done(verb, &again),
                        "{verb}, {code} at {nth}: it was not done before"
                    );
                }
                scene.check(&act).await;
                if !met {
                    walked.insert(verb, nth - 1);
                    break;
                }
            }
        }
        audit::check(&scene.sql).await;
    }
    println!("writing statements walked: {walked:?}");
    for (verb, writes) in &walked {
        assert!(*writes > 0, "{verb} was not met");
    }
    scene
        .sql
        .batch_execute("DROP TABLE fault_plan, runs, tasks CASCADE")
        .await
        .unwrap();
    drop(scene.sql);
    drop(scene.app.replicas);
    scene.app.database.remove().await;
}

/// BR-046, `architecture.md` §4 ("a COMMIT of unknown fate is safe to retry"): the connection to the
/// database is cut before and after every message of every command, BEGIN and COMMIT included.
async fn cut_everywhere(cut: Cut) -> u32 {
    let database = TestDatabase::create().await;
    let (_, target) = through(&database.url, ([127, 0, 0, 1], 1).into());
    let proxy = Proxy::start(target).await;
    let (url, _) = through(&database.url, proxy.address);
    let app = TestApp::with()
        .set("NEXUS_DATABASE_URL", url)
        .start_over(database)
        .await;
    let scene = Scene::over(app).await;
    let (mut cuts, mut done_unheard) = (0, 0);
    // `fail` and `late` send the same messages as `commit`.
    for verb in VERBS.iter().filter(|v| !["fail", "late"].contains(v)) {
        for nth in 0.. {
            let act = scene.ready(verb, format!("{verb}-{nth}")).await;
            let before = dump(&scene.sql).await;
            proxy.cut_at(nth, cut);
            let first = scene.call(&act).await;
            if !proxy.was_cut() {
                assert!(first.is_some_and(|a| a.status.as_u16() < 300), "{verb}");
                scene.check(&act).await;
                break;
            }
            cuts += 1;
            let status = first.as_ref().map_or(503, |a| a.status.as_u16());
            // A cut after the commit may be met by a read that only renders the answer.
            assert!(
                status == 503 || status < 300,
                "{verb}, cut {cut:?} {nth}: {first:?}"
            );
            settle(&scene.sql).await;
            let nothing = before == dump(&scene.sql).await;
            let again = scene
                .call(&act)
                .await
                .unwrap_or_else(|| panic!("{verb} after a cut at {nth}"));
            let was_done = Scene::was_done(verb, &again);
            assert!(
                !(nothing && was_done),
                "{verb}: done, yet nothing was there"
            );
            done_unheard += u32::from(!nothing);
            scene.check(&act).await;
        }
        audit::check(&scene.sql).await;
    }
    println!("{cuts} cuts {cut:?}; in {done_unheard} the command had been done and nobody heard");
    scene.app.finish().await;
    done_unheard
}

#[tokio::test]
async fn a_connection_cut_before_any_message_leaves_all_or_nothing() {
    cut_everywhere(Cut::Before).await;
}

#[tokio::test]
async fn a_connection_cut_after_any_message_leaves_all_or_nothing() {
    assert!(
        cut_everywhere(Cut::After).await > 0,
        "a COMMIT of unknown fate was among them"
    );
}

/// Waits until the server has noticed the cut: nobody is inside a transaction any more.
async fn settle(sql: &Client) {
    crate::support::fleet::until("the cut connection's transaction ended", || async {
        number(
            sql,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                AND (state LIKE 'idle in transaction%' OR state = 'active')",
        )
        .await
            == 0
    })
    .await;
}

/// `conventions.md` §8: a twin of a create whose first sender is still under way is told so.
#[tokio::test]
async fn a_create_waits_for_its_twin_and_then_says_that_it_is_in_progress() {
    let scene = Scene::over(TestApp::start().await).await;
    let twin = scene.app.sql().await;
    twin.batch_execute(&format!(
        "BEGIN; INSERT INTO receipts (account_id, door, scope_id, caller_id, key, fingerprint, body, created_at)
         VALUES ({}, 'run_create', {}, {}, 'k', '', '', nexus_now())",
        scene.world.account, scene.world.workspace, scene.world.human.id
    ))
    .await
    .unwrap();
    let before = dump(&scene.sql).await;
    let act = scene.ready("create", "k".to_owned()).await;
    let waited = scene.call(&act).await.expect("a create has a door");
    waited.expect(409, "idempotency_in_progress");
    assert_eq!(waited.header("retry-after"), "1");
    assert_eq!(before, dump(&scene.sql).await);
    twin.batch_execute("ROLLBACK").await.unwrap();
    scene.call(&act).await.expect("a create has a door").ok(201);
    scene.app.finish().await;
}
