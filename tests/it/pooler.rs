//! BR-085: everything works through a transaction pooler (`architecture.md` §4): no session state, no
//! named statements, server connections that are recycled under the server's feet.
//!
//! Needs `pgbouncer`, on the PATH, in /usr/sbin or named by `NEXUS_PGBOUNCER`. Where it is missing the
//! test says so and passes, but not under `CI`, which accepts no skip.
#![allow(clippy::unwrap_used, reason = "a helper of tests")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::database::TestDatabase;
use crate::support::fleet::{all, fan, number, until};
use crate::support::proxy::through;
use crate::support::seed::{World, claim_token, door};
use crate::support::{TestApp, items, text};

fn program() -> Option<PathBuf> {
    let named = std::env::var_os("NEXUS_PGBOUNCER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    named.or_else(|| dirs.map(|dir| dir.join("pgbouncer")).find(|p| p.is_file()))
}

/// A pooler in front of one database; ended and removed when dropped.
struct Pooler {
    child: Child,
    folder: PathBuf,
    url: String,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Pooler {
    async fn start(program: &Path, database: &TestDatabase) -> Self {
        let folder = std::env::temp_dir().join(format!("nexus-it-{}-pooler", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let port = {
            let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
            free.local_addr().unwrap().port()
        };
        let (_, target) = through(&database.url, ([127, 0, 0, 1], port).into());
        let (host, server_port) = target.split_once(':').unwrap();
        let user_info = database
            .url
            .split("://")
            .nth(1)
            .unwrap()
            .rsplit_once('@')
            .unwrap()
            .0;
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let secret = if password.is_empty() {
            String::new()
        } else {
            format!(" password={password}")
        };
        let config = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\npooled = host={host} port={server_port} dbname={name} user={user}{secret}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = 5\nmax_client_conn = 200\nserver_lifetime = 1\nserver_reset_query =\n\
             ignore_startup_parameters = extra_float_digits,options\n",
            name = database.name
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(program);
        // It refuses to be root.
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        let child = command
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pooler = Self {
            child,
            folder,
            url: format!("postgres://{user}@127.0.0.1:{port}/pooled"),
        };
        until("the pooler listens", || async {
            tokio::net::TcpStream::connect(("127.0.0.1", port))
                .await
                .is_ok()
        })
        .await;
        pooler
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_through_a_transaction_pooler() {
    let Some(program) = program() else {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI accepts no skip: pgbouncer is missing"
        );
        println!("skipped: pgbouncer is missing");
        return;
    };
    let database = TestDatabase::create().await;
    let pooler = Pooler::start(&program, &database).await;
    let app = TestApp::with()
        .replicas(2)
        .set("NEXUS_DATABASE_URL", pooler.url.clone())
        .set("NEXUS_DB_STATEMENTS", "unnamed")
        .start_over(database)
        .await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    for round in 0..6 {
        for _ in 0..2 {
            world.run(&app, fan(&world, 16)).await;
        }
        // More clients than the pooler has connections, on both replicas.
        let workers = (0..12_usize).map(|me| {
            let (door_, bearer) = (app.on(me % 2).clone(), world.runner.token.clone());
            async move {
                let mut done = 0;
                let mut patience = 6;
                while patience > 0 {
                    let call =
                        door_.request(Method::POST, "/agent_api/v1/executor/inbox/claims", &bearer);
                    let key = format!("{round}-{me}-{done}-{patience}");
                    let taken = call
                        .header("idempotency-key", &key)
                        .json(json!({"limit": 3, "wait_ms": 100}))
                        .send()
                        .await;
                    let taken = taken.ok(200);
                    if items(&taken, "claims").is_empty() {
                        patience -= 1;
                    }
                    for claim in items(&taken, "claims") {
                        let path = |verb| {
                            door(
                                text(claim, "task.run_public_id"),
                                text(claim, "task.task_key"),
                                verb,
                            )
                        };
                        let token = text(claim, "claim.claim_token");
                        let body = json!({"claim_token": token, "timeout_ms": 60_000});
                        door_.post(&path("extend"), &bearer, body).await.ok(200);
                        let body = json!({"claim_token": token, "content": "x"});
                        door_.post(&path("commit"), &bearer, body).await.ok(200);
                        done += 1;
                    }
                }
                done
            }
        });
        let done: i32 = all(workers).await.into_iter().sum();
        assert_eq!(done, 2 * 17, "every row once");
    }
    // Expiry, stop, a recovered claim.
    let run = world
        .run(&app, json!([world.routed("a", "write_note")]))
        .await;
    let claim = || {
        app.request(Method::POST, &door(&run, "a", "claim"), &world.runner.token)
            .header("idempotency-key", "k")
    };
    claim_token(&claim().send().await);
    claim_token(&claim().send().await);
    app.advance(Duration::from_secs(601)).await;
    assert_eq!(world.sweep(&app, 1, &run, &[1]).await, 1);
    let run = world.run(&app, json!([world.routed("a", "echo")])).await;
    world.stop(&app, &run).await.ok(200);
    assert_eq!(
        number(&sql, "SELECT count(*) FROM runs WHERE status = 'completed'").await,
        12
    );
    drop(sql);
    app.finish().await;
}
