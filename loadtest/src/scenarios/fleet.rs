//! Many runners that mostly wait: pushes, idle sockets, a herd at one row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use nexus::client::words::ExecutorKind;
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::{Claimed, Size, claim, claim_own, commit, row};
use crate::check::{self, Grants};
use crate::error::Error;
use crate::measure::{self, Seen, Work};
use crate::report::Finding;
use crate::world::{Party, Target, World};

const INBOX: &str = r#"{"channel":"AgentAPI::V1::ExecutorInboxChannel"}"#;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

fn lost(what: &str, why: &dyn std::fmt::Display) -> Error {
    Error::Connection {
        what: what.to_owned(),
        why: why.to_string(),
    }
}

/// A socket of that executor on that replica, subscribed to its inbox.
async fn subscribed(url: &str, who: &Party) -> Result<Socket, Error> {
    let what = "GET /agent_api/v1/cable";
    let ws = format!("ws://{}/agent_api/v1/cable", crate::http::authority(url)?);
    let mut request = ws.into_client_request().map_err(|e| lost(what, &e))?;
    let bearer = format!("Bearer {}", who.token);
    let bearer = bearer.parse().map_err(|e| lost(what, &e))?;
    request.headers_mut().insert("authorization", bearer);
    let dialect = "actioncable-v1-json".parse().map_err(|e| lost(what, &e))?;
    request
        .headers_mut()
        .insert("sec-websocket-protocol", dialect);
    let (mut socket, _) = tokio_tungstenite::connect_async(request)
        .await
        .map_err(|e| lost(what, &e))?;
    let subscribe = serde_json::json!({"command": "subscribe", "identifier": INBOX});
    socket
        .send(Message::text(subscribe.to_string()))
        .await
        .map_err(|e| lost(what, &e))?;
    loop {
        let text = frame(&mut socket).await?;
        if text.contains("confirm_subscription") {
            return Ok(socket);
        }
        if text.contains("disconnect") || text.contains("reject_subscription") {
            return Err(lost(what, &text));
        }
    }
}

/// The next text frame.
async fn frame(socket: &mut Socket) -> Result<String, Error> {
    let what = "the cable";
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text.to_string()),
            Some(Ok(_)) => {}
            Some(Err(e)) => return Err(lost(what, &e)),
            None => return Err(lost(what, &"closed")),
        }
    }
}

/// From the start of a run on one replica to `work_available` on a socket of another. The commit lies
/// between the call and its answer: `call to frame` bounds the time from above, `answer to frame` from
/// below.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn push(target: &Target, size: Size) -> Result<Finding, Error> {
    let world = World::provision(target, ExecutorKind::Runner, 1).await?;
    let mut socket = subscribed(target.url(1), &world.executors[0]).await?;
    let (frames, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        while let Ok(text) = frame(&mut socket).await {
            if text.contains("work_available") && frames.send(Instant::now()).is_err() {
                break;
            }
        }
    });
    let work = Work::new(size.load(size.units));
    let (shared, of) = (work.clone(), world.clone());
    let runner = async move {
        let (work, world) = (shared, of);
        let (mut member, mut conn) = (world.member(0)?, world.executor(0)?);
        let mut seen = Seen::default();
        let steps = format!("[{}]", world.step("call", Some(0)));
        while let Some(unit) = work.next().await {
            let run = world.create(&mut member, &steps).await?;
            while arrived.try_recv().is_ok() {}
            let called = Instant::now();
            world.start(&mut member, &run).await?;
            let answered = Instant::now();
            match tokio::time::timeout(Duration::from_secs(5), arrived.recv()).await {
                Ok(Some(at)) => {
                    seen.lasted("call to frame", at - called, unit);
                    let after = at.saturating_duration_since(answered);
                    seen.lasted("answer to frame", after, unit);
                    work.done(unit, 1, &mut seen);
                }
                _ => work.failed(),
            }
            let row = row(&run, "call");
            let token = claim_own(&mut conn, &row).await?;
            commit(&mut conn, &row, &token).await?;
        }
        Ok(seen)
    };
    let outcome = measure::run("push", work, [runner]).await?;
    reading.abort();
    let mut finding = Finding::of("push", "pushes", outcome);
    finding.checks = check::world(&world, &[]).await?;
    Ok(finding)
}

/// Resident memory of a process, in bytes; `None` where the system does not tell.
pub fn resident(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// `sockets` idle sockets of 64 executors on one replica; what each costs in its memory, when `server`
/// is that replica's process id; then all are cut and come back at once.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn sockets(
    target: &Target,
    size: Size,
    sockets: usize,
    server: Option<u32>,
) -> Result<Finding, Error> {
    let world = Arc::new(World::provision(target, ExecutorKind::Runner, 64).await?);
    let idle = server.and_then(resident);
    let mut finding = Finding::default();
    let mut all = Vec::new();
    for round in ["first", "again"] {
        let work = Work::new(crate::measure::Load {
            warm_up: 0,
            ..size.load(sockets)
        });
        let open = Arc::new(tokio::sync::Mutex::new(Vec::with_capacity(sockets)));
        let runners = (0..size.runners).map(|_| {
            let (work, world, open) = (work.clone(), world.clone(), open.clone());
            async move {
                let mut seen = Seen::default();
                while let Some(unit) = work.next().await {
                    let who = &world.executors[unit.no % 64];
                    let socket = subscribed(world.target.url(0), who).await?;
                    seen.took("subscribed", unit.due, unit);
                    work.done(unit, 1, &mut seen);
                    open.lock().await.push(socket);
                }
                Ok(seen)
            }
        });
        let outcome = measure::run("sockets", work.clone(), runners).await?;
        if round == "first" {
            finding = Finding::of("sockets", "sockets", outcome);
            let memory = server.and_then(resident).zip(idle);
            if let Some((full, idle)) = memory {
                let each = full.saturating_sub(idle) as f64 / sockets as f64;
                finding.numbers.insert("bytes_per_socket".to_owned(), each);
                let idle = idle as f64 / f64::from(1 << 20);
                finding.numbers.insert("idle_mebibytes".to_owned(), idle);
            }
        } else {
            let back = outcome.rate;
            finding
                .numbers
                .insert("reconnects_per_second".to_owned(), back);
        }
        all = std::mem::take(&mut *open.lock().await);
        if round == "first" {
            all.clear();
        }
    }
    let kept = all.len();
    drop(all);
    let breaches = (kept != sockets).then(|| format!("{kept} of {sockets} stood"));
    finding.checks.insert(
        "each socket is subscribed".to_owned(),
        breaches.into_iter().collect(),
    );
    Ok(finding)
}

/// One pool row after the other, and every runner claims each at the same moment.
///
/// # Errors
/// A fault that ends the scenario.
pub async fn herd(target: &Target, size: Size, rounds: usize) -> Result<Finding, Error> {
    let world = World::provision(target, ExecutorKind::ToolProvider, size.runners).await?;
    let runs = world
        .open_runs(rounds, 1, |_| format!("[{}]", world.step("call", None)))
        .await?;
    let work = Work::new(size.load(rounds * size.runners));
    let (grants, barrier) = (
        Arc::new(Grants::default()),
        Arc::new(Barrier::new(size.runners)),
    );
    let shared: Arc<[Arc<str>]> = runs.as_slice().into();
    let runners = (0..size.runners).map(|r| {
        let (work, grants, runs) = (work.clone(), grants.clone(), shared.clone());
        let barrier = barrier.clone();
        let conn = world.executor(r);
        async move {
            let (mut conn, mut seen) = (conn?, Seen::default());
            conn.get("/livez").await?; // connected before the first race
            for (i, run) in runs.iter().enumerate() {
                barrier.wait().await;
                let row = row(run, "call");
                let Some(unit) = work.at(i, i * size.runners + r).await else {
                    break;
                };
                let won = match claim(&mut conn, &row).await? {
                    Claimed::Granted(token) => {
                        seen.took("grant", unit.due, unit);
                        grants.granted(row.clone());
                        Some(token)
                    }
                    Claimed::Refused => {
                        seen.took("refusal", unit.due, unit);
                        None
                    }
                };
                work.done(unit, 1, &mut seen);
                barrier.wait().await; // all have their answers
                if let Some(token) = won {
                    commit(&mut conn, &row, &token).await?;
                }
            }
            Ok(seen)
        }
    });
    let outcome = measure::run("herd", work.clone(), runners).await?;
    let mut finding = Finding::of("herd", "claims", outcome);
    finding.checks = check::world(&world, &runs).await?;
    grants.check(runs.len(), &mut finding.checks);
    Ok(finding)
}
