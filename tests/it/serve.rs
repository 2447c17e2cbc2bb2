//! The life of a replica over real sockets: start, waiting for the schema, bounds, the graceful
//! stop, the kill; and the binary itself.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nexus::serve::Server;
use nexus::store::leases;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::scratch::{Scratch, eventually};

/// One connection that speaks HTTP/1.1.
struct Wire(BufReader<TcpStream>);

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: String,
    body: String,
}

impl Answer {
    fn has(&self, header: &str) -> bool {
        self.headers
            .to_ascii_lowercase()
            .contains(&header.to_ascii_lowercase())
    }
}

impl Wire {
    async fn open(addr: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(addr).await.unwrap()))
    }

    async fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    /// The next answer; none when the server closed instead.
    async fn answer(&mut self) -> Option<Answer> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await.unwrap_or(0) == 0 {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = String::new();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.ok()?;
            if line.trim().is_empty() {
                break;
            }
            headers.push_str(&line);
        }
        let lower = headers.to_ascii_lowercase();
        let length: usize = lower
            .lines()
            .find_map(|l| l.strip_prefix("content-length: "))
            .and_then(|n| n.trim().parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.ok()?;
        Some(Answer {
            status,
            headers,
            body: String::from_utf8(body).ok()?,
        })
    }

    async fn get(&mut self, path: &str) -> Option<Answer> {
        let text =
            format!("GET {path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer operator\r\n\r\n");
        self.send(&text).await;
        self.answer().await
    }

    /// Whether the server closes this connection, without a further answer.
    async fn is_closed(&mut self) -> bool {
        let mut rest = [0; 1];
        matches!(self.0.read(&mut rest).await, Ok(0) | Err(_))
    }
}

async fn get(addr: SocketAddr, path: &str) -> Answer {
    Wire::open(addr).await.get(path).await.unwrap()
}

async fn post(addr: SocketAddr, path: &str, body: &str) -> Answer {
    let mut wire = Wire::open(addr).await;
    wire.send(&head(path, body.len())).await;
    wire.send(body).await;
    wire.answer().await.unwrap()
}

fn head(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer operator\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

const RUN: &str = "/operator_api/v1/sweeper/run";
const BODY: &str = r#"{"sweep":"parks"}"#;

/// A request whose head and half of whose body have been sent.
async fn half_sent(addr: SocketAddr) -> Wire {
    let mut wire = Wire::open(addr).await;
    wire.send(&head(RUN, BODY.len())).await;
    wire.send(&BODY[..5]).await;
    // The server is in the handler once it counts the connection; its extractor waits for the rest.
    tokio::time::sleep(Duration::from_millis(50)).await;
    wire
}

async fn refuses(addr: SocketAddr) -> bool {
    match TcpStream::connect(addr).await {
        Err(_) => true,
        Ok(socket) => Wire(BufReader::new(socket)).is_closed().await,
    }
}

// ------------------------------------------------------------------ start

#[tokio::test]
async fn nothing_but_health_is_served_until_the_schema_is_there() {
    let scratch = Scratch::empty().await;
    let server = Server::start(scratch.config(&[])).await.unwrap();
    assert_eq!(get(server.addr, "/livez").await.status, 200);
    let answer = get(server.addr, "/readyz").await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("schema_outdated"), "{}", answer.body);
    let answer = get(server.addr, "/operator_api/v1/replicas").await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("\"unavailable\""), "{}", answer.body);
    assert!(answer.has("retry-after: 1"));
    scratch.migrate().await;
    tokio::time::timeout(Duration::from_secs(5), server.ready())
        .await
        .unwrap();
    assert_eq!(get(server.addr, "/readyz").await.status, 200);
    let answer = get(server.addr, "/operator_api/v1/replicas").await;
    assert_eq!(answer.status, 200);
    server.kill();
    scratch.finish().await;
}

#[tokio::test]
async fn a_database_that_is_away_at_the_start_is_waited_for() {
    let scratch = Scratch::migrated().await;
    let mut config = scratch.config(&[]);
    // Nobody listens there.
    config.database = nexus::config::Database::from_url(
        "NEXUS_DATABASE_URL",
        "postgres://postgres@127.0.0.1:1/none",
        4,
        nexus::store::Statements::Prepared,
    )
    .unwrap();
    let server = Server::start(config).await.unwrap();
    assert_eq!(get(server.addr, "/livez").await.status, 200);
    let answer = get(server.addr, "/readyz").await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("\"database\":\"unavailable\""));
    let started = Instant::now();
    server.graceful_stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "a stop needs no database"
    );
    scratch.finish().await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let scratch = Scratch::migrated().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let config = scratch.config(&[("NEXUS_LISTEN", &addr)]);
    let problem = Server::start(config).await.unwrap_err().to_string();
    assert!(
        problem.starts_with("NEXUS_LISTEN: cannot listen on"),
        "{problem}"
    );
    scratch.finish().await;
}

// ------------------------------------------------------------------ views and metrics

#[tokio::test]
async fn operators_see_replicas_and_sweeps_and_force_a_cycle() {
    let scratch = Scratch::migrated().await;
    let server = Server::start(scratch.config(&[("NEXUS_SWEEPER_TTL_MS", "1000")]))
        .await
        .unwrap();
    server.ready().await;
    let id = server.app.replica_id.to_string();
    eventually(Duration::from_secs(3), "listed and leading", async || {
        let replicas = get(server.addr, "/operator_api/v1/replicas").await.body;
        let sweeper = get(server.addr, "/operator_api/v1/sweeper").await.body;
        replicas.contains(&id)
            && replicas.contains(r#""roles":["api","worker","sweeper"]"#)
            && sweeper.contains(r#""name":"sweep:0""#)
            && sweeper.contains(&id)
            && sweeper.contains(r#""name":"parks""#)
    })
    .await;
    let answer = post(server.addr, RUN, BODY).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert_eq!(answer.body, r#"{"rows":0,"sweep":"parks"}"#);
    for (body, status, code) in [
        ("{}", 400, "parameter_missing"),
        (r#"{"sweep":"dust"}"#, 400, "parameter_invalid"),
        (r#"{"sweep":"parks","x":1}"#, 422, "unknown_fields"),
    ] {
        let answer = post(server.addr, RUN, body).await;
        assert_eq!(answer.status, status, "{body}");
        assert!(answer.body.contains(code), "{}", answer.body);
    }
    for path in ["/operator_api/v1/replicas", "/operator_api/v1/sweeper"] {
        let mut wire = Wire::open(server.addr).await;
        wire.send(&format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"))
            .await;
        assert_eq!(wire.answer().await.unwrap().status, 401);
    }
    let metrics = get(server.admin_addr, "/metrics").await;
    assert_eq!(metrics.status, 200);
    for name in [
        "nexus_http_requests_total{",
        "nexus_http_request_duration_seconds_bucket{",
        "nexus_db_pool_connections{",
        "nexus_sweep_lag_seconds{sweep=\"parks\"}",
        "nexus_sweep_rows_total{",
        "nexus_sweeper_lease_age_seconds ",
    ] {
        assert!(metrics.body.contains(name), "{name} in {}", metrics.body);
    }
    assert!(!metrics.body.contains(&id), "no ids as labels");
    // Not on the public listener.
    assert_eq!(get(server.addr, "/metrics").await.status, 404);
    server.kill();
    scratch.finish().await;
}

#[tokio::test]
async fn a_replica_without_the_role_api_serves_health_alone() {
    let scratch = Scratch::migrated().await;
    let server = Server::start(scratch.config(&[("NEXUS_ROLES", "sweeper")]))
        .await
        .unwrap();
    server.ready().await;
    assert_eq!(get(server.addr, "/readyz").await.status, 200);
    let answer = get(server.addr, "/operator_api/v1/replicas").await;
    assert_eq!(answer.status, 503);
    server.kill();
    scratch.finish().await;
}

#[tokio::test]
async fn what_is_too_long_is_refused_with_the_envelope() {
    let scratch = Scratch::migrated().await;
    let server = Server::start(scratch.config(&[])).await.unwrap();
    server.ready().await;
    let path = format!("/livez?{}", "a".repeat(8 * 1024));
    let answer = get(server.addr, &path).await;
    assert_eq!(answer.status, 414);
    assert!(answer.body.contains("request_id"), "{}", answer.body);
    let mut wire = Wire::open(server.addr).await;
    let long = "a".repeat(33 * 1024);
    wire.send(&format!(
        "GET /livez HTTP/1.1\r\nHost: t\r\nX-Much: {long}\r\n\r\n"
    ))
    .await;
    let answer = wire.answer().await.unwrap();
    assert_eq!(answer.status, 431);
    assert!(answer.body.contains("request_id"), "{}", answer.body);
    server.kill();
    scratch.finish().await;
}

// ------------------------------------------------------------------ stop

#[tokio::test]
async fn a_graceful_stop_lets_requests_finish_and_turns_new_ones_away() {
    let scratch = Scratch::migrated().await;
    let config = scratch.config(&[
        ("NEXUS_DRAIN_SECONDS", "4"),
        ("NEXUS_SWEEPER_TTL_MS", "600000"),
    ]);
    let server = Server::start(config).await.unwrap();
    server.ready().await;
    let addr = server.addr;
    let store = server.app.store.clone();
    eventually(Duration::from_secs(2), "a leader", async || {
        leases::list(&store).await.unwrap().len() == 1
    })
    .await;
    let mut busy = half_sent(addr).await;
    let mut resting = Wire::open(addr).await;
    assert_eq!(resting.get("/livez").await.unwrap().status, 200);
    let started = Instant::now();
    let stop = tokio::spawn(server.graceful_stop());
    // 1: readiness fails at once.
    eventually(Duration::from_secs(1), "not ready", async || {
        get(addr, "/readyz").await.status == 503
    })
    .await;
    // 2: the lease is given back, long before its ten minutes.
    eventually(Duration::from_secs(1), "lease given back", async || {
        scratch
            .count("SELECT count(*) FROM sweeper_leases WHERE expires_at > nexus_now()")
            .await
            == 0
    })
    .await;
    // 3: new connections are served for a while, and told to go.
    let answer = get(addr, "/operator_api/v1/replicas").await;
    assert_eq!(answer.status, 200);
    assert!(answer.has("connection: close"), "{answer:?}");
    assert!(answer.body.contains("\"draining\":true"), "{}", answer.body);
    let mut upgrade = Wire::open(addr).await;
    upgrade
        .send("GET /agent_api/v1/cable HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    let answer = upgrade.answer().await.unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("\"draining\""), "{}", answer.body);
    // Then no more; a resting connection goes with the window.
    eventually(Duration::from_secs(4), "no new connections", async || {
        refuses(addr).await
    })
    .await;
    assert!(resting.is_closed().await);
    // 5: what runs finishes.
    assert!(!stop.is_finished());
    busy.send(&BODY[5..]).await;
    let answer = busy.answer().await.unwrap();
    assert_eq!(answer.status, 202);
    assert!(answer.has("connection: close"), "{answer:?}");
    stop.await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "within the drain time"
    );
    assert_eq!(scratch.count("SELECT count(*) FROM replicas").await, 0);
    scratch.finish().await;
}

#[tokio::test]
async fn the_drain_time_ends_a_request_that_does_not() {
    let scratch = Scratch::migrated().await;
    let server = Server::start(scratch.config(&[("NEXUS_DRAIN_SECONDS", "1")]))
        .await
        .unwrap();
    server.ready().await;
    let mut busy = half_sent(server.addr).await;
    let started = Instant::now();
    server.graceful_stop().await;
    let took = started.elapsed();
    assert!((1000..2500).contains(&took.as_millis()), "{took:?}");
    assert!(busy.is_closed().await);
    scratch.finish().await;
}

#[tokio::test]
async fn a_killed_replica_drops_everything_and_another_leads_once_its_lease_ends() {
    let scratch = Scratch::migrated().await;
    let values = [("NEXUS_SWEEPER_TTL_MS", "1500")];
    let first = Server::start(scratch.config(&values)).await.unwrap();
    first.ready().await;
    let leads = async |server: &Server| {
        let holder = server.app.replica_id;
        scratch
            .sql
            .query_one(
                "SELECT count(*) FROM sweeper_leases WHERE expires_at > nexus_now() AND holder = $1",
                &[&holder],
            )
            .await
            .unwrap()
            .get::<_, i64>(0)
            == 1
    };
    eventually(Duration::from_secs(2), "the first leads", async || {
        leads(&first).await
    })
    .await;
    let second = Server::start(scratch.config(&values)).await.unwrap();
    second.ready().await;
    let mut busy = half_sent(first.addr).await;
    let addr = first.addr;
    let started = Instant::now();
    first.kill();
    assert!(busy.is_closed().await);
    assert!(refuses(addr).await);
    // Nothing was given back: the lease had to end.
    eventually(Duration::from_secs(4), "the second leads", async || {
        leads(&second).await
    })
    .await;
    assert!(
        started.elapsed() >= Duration::from_millis(800),
        "{:?}",
        started.elapsed()
    );
    second.kill();
    scratch.finish().await;
}

// ------------------------------------------------------------------ the binary

/// A child that is killed with its test.
struct Nexus(Child);

impl Nexus {
    fn start(scratch: &Scratch, values: &[(&str, &str)]) -> Self {
        let mut command = command(&["serve"]);
        command
            .env("NEXUS_DATABASE_URL", &scratch.url)
            .env("NEXUS_ADMIN_LISTEN", "127.0.0.1:0")
            .env("NEXUS_OPERATOR_TOKEN", "operator")
            .stderr(Stdio::null());
        for (name, value) in values {
            command.env(name, value);
        }
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }

    async fn exit(&mut self, limit: Duration) -> std::process::ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < limit, "still running after {limit:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Nexus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The binary with no variable of this test's environment.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nexus"));
    command.args(args).env_clear();
    command
}

fn free_port() -> SocketAddr {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

async fn up(addr: SocketAddr) {
    eventually(
        Duration::from_secs(10),
        "ready",
        async || match TcpStream::connect(addr).await {
            Err(_) => false,
            Ok(socket) => {
                let mut wire = Wire(BufReader::new(socket));
                wire.get("/readyz").await.is_some_and(|a| a.status == 200)
            }
        },
    )
    .await;
}

#[tokio::test]
async fn sigterm_stops_within_the_drain_time_and_a_second_one_at_once() {
    let scratch = Scratch::migrated().await;
    let addr = free_port();
    let listen = addr.to_string();
    let values = [
        ("NEXUS_LISTEN", listen.as_str()),
        ("NEXUS_DRAIN_SECONDS", "2"),
    ];
    let mut nexus = Nexus::start(&scratch, &values);
    up(addr).await;
    nexus.signal("-TERM");
    let status = nexus.exit(Duration::from_secs(3)).await;
    assert_eq!(status.code(), Some(0));
    // A busy connection holds the first signal's stop, not the second's.
    let values = [
        ("NEXUS_LISTEN", listen.as_str()),
        ("NEXUS_DRAIN_SECONDS", "60"),
    ];
    let mut nexus = Nexus::start(&scratch, &values);
    up(addr).await;
    let mut busy = half_sent(addr).await;
    nexus.signal("-TERM");
    eventually(Duration::from_secs(2), "draining", async || {
        get(addr, "/readyz").await.status == 503
    })
    .await;
    nexus.signal("-INT");
    let status = nexus.exit(Duration::from_secs(2)).await;
    assert_eq!(status.code(), Some(0));
    assert!(busy.is_closed().await);
    scratch.finish().await;
}

#[tokio::test]
async fn a_process_under_sigstop_is_replaced_and_steps_down_when_it_goes_on() {
    // BR-027 and admission.md §11 check 8, with the real signal.
    let scratch = Scratch::migrated().await;
    let values = [
        ("NEXUS_LISTEN", "127.0.0.1:0"),
        ("NEXUS_SWEEPER_TTL_MS", "1000"),
    ];
    let first = Nexus::start(&scratch, &values);
    let lease = async || {
        let row = scratch
            .sql
            .query_opt(
                "SELECT token, holder::text FROM sweeper_leases WHERE expires_at > nexus_now()",
                &[],
            )
            .await
            .unwrap();
        row.map(|r| (r.get::<_, i64>(0), r.get::<_, String>(1)))
    };
    eventually(Duration::from_secs(10), "a leader", async || {
        lease().await.is_some()
    })
    .await;
    let before = lease().await.unwrap();
    first.signal("-STOP");
    let second = Nexus::start(&scratch, &values);
    eventually(Duration::from_secs(10), "another leads", async || {
        lease().await.is_some_and(|now| now.1 != before.1)
    })
    .await;
    first.signal("-CONT");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let now = lease().await.unwrap();
    assert_ne!(now.1, before.1, "the old leader took its lease back");
    assert_eq!(now.0, before.0 + 1, "one change of hands");
    drop((first, second));
    scratch.finish().await;
}

#[test]
fn a_missing_variable_stops_the_start_with_one_line() {
    let output = command(&["serve"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.starts_with("nexus: NEXUS_DATABASE_URL: is required"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn the_printed_configuration_hides_secrets() {
    let output = command(&["serve", "--print-config", "--drain-seconds", "7"])
        .env("DATABASE_URL", "postgres://u:hidden@h/d")
        .env("NEXUS_OPERATOR_TOKEN", "hidden")
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("hidden"), "{text}");
    assert!(text.contains("NEXUS_DRAIN_SECONDS=7\n"), "{text}");
    assert!(text.contains("NEXUS_OPERATOR_TOKEN=***\n"), "{text}");
}

/// `operating.md` §2, `conventions.md` §1: the first operator token comes straight from the
/// database, and opens the operator plane until it is revoked.
#[tokio::test]
async fn an_operator_token_is_minted_and_revoked_from_the_command_line() {
    let scratch = Scratch::migrated().await;
    let server = Server::start(scratch.config(&[])).await.unwrap();
    server.ready().await;
    let run = |args: &[&str]| {
        let mut command = command(&["operator-token"]);
        command.args(args).env("NEXUS_DATABASE_URL", &scratch.url);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), said)
    };
    let (code, plain) = run(&["create", "--label", "ada"]);
    assert_eq!(code, Some(0));
    let plain = plain.trim_end().to_owned();
    let (code, object) = run(&["create", "--json"]);
    assert_eq!(code, Some(0));
    let object: serde_json::Value = serde_json::from_str(&object).unwrap();
    let labels = "SELECT count(*) FROM operator_tokens WHERE label = 'ada'";
    assert_eq!(scratch.count(labels).await, 1);
    let status = async |token: &str| {
        let mut wire = Wire::open(server.addr).await;
        wire.send(&format!(
            "GET /operator_api/v1/accounts HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {token}\r\n\r\n"
        ))
        .await;
        wire.answer().await.unwrap().status
    };
    for token in [plain.as_str(), object["token"].as_str().unwrap()] {
        assert!(token.starts_with("sk-nexus-o1-"), "{token}");
        assert_eq!(status(token).await, 200);
    }
    let lookup = plain.split('-').nth(3).unwrap();
    let (code, said) = run(&["revoke", lookup]);
    assert_eq!((code, said.trim_end()), (Some(0), lookup));
    assert_eq!(status(&plain).await, 401);
    assert_eq!(run(&["revoke", "0123456789abcdef"]).0, Some(3));
    assert_eq!(run(&["mint"]).0, Some(2));
    server.kill();
    scratch.finish().await;
}

#[tokio::test]
async fn migrate_check_tells_by_its_exit_code() {
    let scratch = Scratch::empty().await;
    let run = |args: &[&str]| {
        let mut command = command(args);
        command.env("NEXUS_DATABASE_URL", &scratch.url);
        command.stdout(Stdio::null()).status().unwrap().code()
    };
    assert_eq!(run(&["migrate", "--check"]), Some(1));
    assert_eq!(run(&["migrate"]), Some(0));
    assert_eq!(run(&["migrate", "--check"]), Some(0));
    scratch.finish().await;
}
