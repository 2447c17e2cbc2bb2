//! Logs and metrics: one subscriber, one Prometheus recorder, the names of what is measured
//! (`conventions.md` §13, §14; `admission.md` §6).
//!
//! Knows `tracing` and `metrics`. Does not know: HTTP, SQL, what a number means to a rule.
//!
//! Invariants:
//! - never a token, a body, an input or a result in a log; no id is a metric's label;
//! - a process has one recorder: several servers in one process (tests) share it.

use std::io::IsTerminal as _;
use std::sync::OnceLock;

use metrics::{describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config;

/// Requests answered, by method, route template and status.
pub const HTTP_REQUESTS: &str = "nexus_http_requests_total";
/// How long requests took, by route template and status.
pub const HTTP_SECONDS: &str = "nexus_http_request_duration_seconds";
/// Connections of the database pool, by state.
pub const POOL_CONNECTIONS: &str = "nexus_db_pool_connections";
/// Open API connections.
pub const HTTP_CONNECTIONS: &str = "nexus_http_connections";
/// How far a sweep is behind its oldest due row.
pub const SWEEP_LAG: &str = "nexus_sweep_lag_seconds";
/// Claims, by what became of them: `granted`, `refused`, `failed`.
pub const CLAIMS: &str = "nexus_claims_total";
/// Commits, by what became of them: `accepted`, `refused`, `failed`.
pub const COMMITS: &str = "nexus_commits_total";
/// Rows that settled by their deadline.
pub const EXPIRIES: &str = "nexus_expiries_total";
/// Rows a sweep met, by what became of them.
pub const SWEEP_ROWS: &str = "nexus_sweep_rows_total";
/// Since the least recently renewed sweeper lease was renewed.
pub const LEASE_AGE: &str = "nexus_sweeper_lease_age_seconds";
/// Sweeper leases this replica holds.
pub const LEASES_HELD: &str = "nexus_sweeper_leases_held";
/// Times the database's clock was seen to step back by more than a second.
pub const CLOCK_STEPS: &str = "nexus_database_clock_steps_total";
/// Open cable sockets.
pub const CABLE_SOCKETS: &str = "nexus_cable_sockets";
/// Pushes that a slow reader's queue dropped.
pub const CABLE_DROPPED: &str = "nexus_cable_frames_dropped_total";
/// Cable sockets ended by the server, by reason.
pub const CABLE_DISCONNECTS: &str = "nexus_cable_disconnects_total";
/// Hints handed to Redis.
pub const HINTS_PUBLISHED: &str = "nexus_bus_hints_published_total";
/// Hints that were not, by why.
pub const HINTS_DROPPED: &str = "nexus_bus_hints_dropped_total";

/// Bounds of latency histograms, in seconds.
const LATENCY_BOUNDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Starts the process's logs: text or one JSON object a line, to standard error (standard output is
/// for results), and panics among them. A second call changes nothing.
///
/// # Errors
/// A filter that does not parse, by variable.
pub fn init(log: &config::Log) -> Result<(), config::Error> {
    let filter = EnvFilter::try_new(&log.filter).map_err(|e| {
        config::Error::new(
            "NEXUS_LOG",
            format!("takes a filter such as `info` or `nexus=debug,warn`: {e}"),
        )
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = if log.json {
        builder
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .try_init()
    } else {
        builder.try_init()
    };
    if started.is_ok() {
        log_panics();
    }
    metrics();
    Ok(())
}

/// A panic is a log line like any other, with its place.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place, message = panic_message(panic.payload()), "a panic");
    }));
}

/// An error and its sources, in one line. Of a database's error the code, message and place only:
/// its detail may quote a row.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = shown(error);
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&shown(cause));
        source = cause.source();
    }
    text
}

fn shown(error: &(dyn std::error::Error + 'static)) -> String {
    let Some(db) = error.downcast_ref::<tokio_postgres::error::DbError>() else {
        return error.to_string();
    };
    let place = [db.table(), db.constraint()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ");
    format!("{} {} ({place})", db.code().code(), db.message())
}

/// The text of a panic.
pub fn panic_message(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// The process's metrics; the first call installs the recorder. Render with
/// [`PrometheusHandle::render`].
pub fn metrics() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), LATENCY_BOUNDS)
            .expect("the bounds are not empty")
            .build_recorder();
        let handle = recorder.handle();
        // Another recorder in place means that the embedder measures for itself.
        let _ = metrics::set_global_recorder(recorder);
        describe();
        handle
    })
}

fn describe() {
    describe_counter!(
        HTTP_REQUESTS,
        "Requests answered, by method, route template and status"
    );
    describe_histogram!(
        HTTP_SECONDS,
        "Seconds to answer, by route template and status"
    );
    describe_gauge!(
        POOL_CONNECTIONS,
        "Connections of the database pool, by state"
    );
    describe_gauge!(HTTP_CONNECTIONS, "Open API connections");
    describe_gauge!(
        SWEEP_LAG,
        "Seconds a sweep is behind its oldest due row, by sweep"
    );
    describe_counter!(CLAIMS, "Claims, by what became of them");
    describe_counter!(COMMITS, "Commits, by what became of them");
    describe_counter!(EXPIRIES, "Rows that settled by their deadline");
    describe_counter!(
        SWEEP_ROWS,
        "Rows a sweep met, by sweep and what became of them"
    );
    describe_gauge!(
        LEASE_AGE,
        "Seconds since the least recently renewed sweeper lease was renewed"
    );
    describe_gauge!(LEASES_HELD, "Sweeper leases this replica holds");
    describe_counter!(
        CLOCK_STEPS,
        "Times the database clock stepped back by more than a second"
    );
    describe_gauge!(CABLE_SOCKETS, "Open cable sockets");
    describe_counter!(
        CABLE_DROPPED,
        "Pushes that a slow reader's queue dropped (progress, work_available)"
    );
    describe_counter!(
        CABLE_DISCONNECTS,
        "Cable sockets ended by the server, by reason"
    );
    describe_counter!(HINTS_PUBLISHED, "Hints handed to Redis");
    describe_counter!(HINTS_DROPPED, "Hints dropped before Redis, by why");
}
