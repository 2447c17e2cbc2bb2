//! The npm package `@rails/actioncable`, as a page would use it (`tests/foreign/actioncable`).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nexus::config::{Config, Source};
use nexus::serve::Server;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::cable::redis::Redis;
use crate::cable::work_available;
use crate::cable::world::World;
use crate::support::TestApp;

/// One running client.
struct Stock {
    lines: Lines<BufReader<ChildStdout>>,
    stdin: ChildStdin,
    process: Child,
}

/// Why the client cannot run here, if it cannot.
fn missing() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [root.join("tests/foreign/actioncable"), root.to_owned()];
    let packages = ["ws", "@rails/actioncable"];
    for package in packages {
        let found = places
            .iter()
            .any(|place| place.join("node_modules").join(package).is_dir());
        if !found {
            return Some(format!(
                "the npm package {package} is missing: run `make setup-node`, or `npm ci` in \
                 tests/foreign/actioncable"
            ));
        }
    }
    std::process::Command::new("node")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .err()
        .map(|_| "node is missing".to_owned())
}

impl Stock {
    fn start(base: &str, token: &str) -> Self {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/actioncable/test.mjs");
        let mut process = Command::new("node")
            .arg(script)
            .args([base, token])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node starts");
        let stdout = process.stdout.take().unwrap();
        Self {
            lines: BufReader::new(stdout).lines(),
            stdin: process.stdin.take().unwrap(),
            process,
        }
    }

    async fn saw(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(60), self.lines.next_line())
            .await
            .expect("the client sees something in time")
            .unwrap()
            .expect("the client lives");
        serde_json::from_str(&line).unwrap()
    }

    /// Nothing for that long.
    async fn sees_nothing_for(&mut self, time: Duration) {
        let seen = tokio::time::timeout(time, self.lines.next_line()).await;
        assert!(seen.is_err(), "{seen:?}");
    }

    async fn quit(mut self) {
        self.stdin.write_all(b"quit\n").await.unwrap();
        assert!(self.process.wait().await.unwrap().success());
    }
}

async fn replica(app: &TestApp, redis: u16, listen: &str) -> Server {
    let source = Source::of(
        [
            ("NEXUS_DATABASE_URL", app.database.url.clone()),
            ("NEXUS_DB_POOL", "4".to_owned()),
            ("NEXUS_REDIS_URL", format!("redis://127.0.0.1:{redis}/")),
            ("NEXUS_LISTEN", listen.to_owned()),
            ("NEXUS_ADMIN_LISTEN", "127.0.0.1:0".to_owned()),
            ("NEXUS_DRAIN_SECONDS", "2".to_owned()),
            ("NEXUS_ROLES", "api".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    let server = Server::start(Config::from_source(&source).unwrap())
        .await
        .unwrap();
    server.ready().await;
    let app = &server.app;
    crate::cable::until(async || app.bus.health() == "ok").await;
    server
}

#[tokio::test]
async fn a_stock_client_hears_another_replica_stays_and_comes_back_after_a_restart() {
    if let Some(why) = missing() {
        println!("skipped: foreign_clients::actioncable: {why}");
        assert!(std::env::var_os("CI").is_none(), "CI accepts no skip");
        return;
    }
    let app = TestApp::start().await;
    let mut world = World::new(&app).await;
    let executor = world.executor().await;
    let redis = Redis::start().await;
    let here = replica(&app, redis.port(), "127.0.0.1:0").await;
    let there = replica(&app, redis.port(), "127.0.0.1:0").await;
    let address = here.addr.to_string();
    let mut stock = Stock::start(&format!("http://{address}"), &executor.token);
    assert_eq!(
        stock.saw().await,
        json!({"saw": "connected", "reconnected": false})
    );
    let hint = |key| vec![work_available(executor.public_id, key)];
    let received = |key: &str| {
        let message: Value = serde_json::from_str(&crate::cable::available_message(key)).unwrap();
        json!({"saw": "received", "data": message})
    };
    there.app.bus.announce(hint("k")).await;
    assert_eq!(stock.saw().await, received("k"));
    // Two of the periods after which a stock client gives a silent server up.
    stock.sees_nothing_for(Duration::from_secs(13)).await;

    here.graceful_stop().await;
    assert_eq!(
        stock.saw().await,
        json!({"saw": "disconnected", "willAttemptReconnect": true})
    );
    let here = replica(&app, redis.port(), &address).await;
    let back = stock.saw().await;
    assert_eq!(back["saw"], "connected", "{back}");
    there.app.bus.announce(hint("l")).await;
    assert_eq!(stock.saw().await, received("l"));
    stock.quit().await;

    // A dead credential is the end, of its own accord.
    let mut refused = Stock::start(&format!("http://{address}"), "sk-nexus-x1-dead");
    assert_eq!(
        refused.saw().await,
        json!({"saw": "disconnected", "willAttemptReconnect": false})
    );
    refused.sees_nothing_for(Duration::from_secs(8)).await;
    refused.quit().await;
    here.kill();
    there.kill();
    app.finish().await;
}
