//! Every scenario once, small, against a real server; and that its checks find what is wrong
//! (BR-082, BR-083, BR-090: the tool that measures them must itself be true).
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use nexus::client::words::ExecutorKind;
use nexus::config::{self, Config, Source};
use nexus::engine::mint::Mint;
use nexus::serve::Server;
use nexus::store::{Statements, migrate};
use nexus_loadtest::check;
use nexus_loadtest::measure::Load;
use nexus_loadtest::report::Finding;
use nexus_loadtest::scenarios::{
    Size, chains, contention, fan_in, fleet, history, hot_run, lifecycle, limit, races,
};
use nexus_loadtest::seed::Database;
use nexus_loadtest::world::{Target, World};

const OPERATOR: &str = "smoke-operator";

/// A server over a database of its own, named as the harness of the server's tests names its, so that
/// what a killed test leaves behind is dropped.
struct Smoke {
    maintenance: Database,
    name: String,
    server: Option<Server>,
    target: Target,
}

impl Smoke {
    async fn start() -> Self {
        let server = std::env::var("NEXUS_TEST_DATABASE_URL")
            .expect("NEXUS_TEST_DATABASE_URL is set by `make test`, or by `make services-up`");
        let maintenance = Database::connect(&server).await.unwrap();
        let name = format!("nexus_test_{}", Mint::new().base62(12).to_lowercase());
        let create = format!("CREATE DATABASE {name}");
        maintenance.client.batch_execute(&create).await.unwrap();
        let (base, _) = server.rsplit_once('/').unwrap();
        let url = format!("{base}/{name}");
        let database =
            config::Database::from_url("NEXUS_TEST_DATABASE_URL", &url, 1, Statements::Prepared);
        migrate::migrate(&database.unwrap()).await.unwrap();
        let source = Source::of(
            [
                ("NEXUS_DATABASE_URL", url.as_str()),
                ("NEXUS_LISTEN", "127.0.0.1:0"),
                ("NEXUS_ADMIN_LISTEN", "127.0.0.1:0"),
                ("NEXUS_ROLES", "api"),
                ("NEXUS_DB_POOL", "8"),
                ("NEXUS_OPERATOR_TOKEN", OPERATOR),
                ("NEXUS_RATE_LIMITS", "off"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let server = Server::start(Config::from_source(&source).unwrap())
            .await
            .unwrap();
        server.ready().await;
        let target = Target {
            urls: vec![format!("http://{}", server.addr)],
            operator: OPERATOR.to_owned(),
            database: Some(url),
        };
        Self {
            maintenance,
            name,
            server: Some(server),
            target,
        }
    }

    async fn stop(mut self) {
        self.server.take().unwrap().kill();
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        self.maintenance.client.batch_execute(&drop).await.unwrap();
    }
}

fn size(units: usize, runners: usize) -> Size {
    Size {
        units,
        runners,
        seconds: 20,
    }
}

#[track_caller]
fn holds(finding: &Finding) {
    print!("{}", nexus_loadtest::report::text(finding));
    assert_eq!(finding.breaches(), [""; 0], "{}", finding.name);
    assert!(!finding.checks.is_empty(), "{}", finding.name);
    assert!(finding.units > 0 && finding.rate > 0.0, "{finding:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_does_its_work_and_finds_it_whole() {
    let smoke = Smoke::start().await;
    let target = &smoke.target;
    holds(&lifecycle::single(target, size(60, 4), None).await.unwrap());
    let paced = lifecycle::single(target, size(40, 4), Some(400.0))
        .await
        .unwrap();
    holds(&paced);
    assert!(paced.rate < 500.0, "an open load keeps its pace: {paced:?}");
    holds(&lifecycle::batch(target, size(60, 2), 16).await.unwrap());
    let race = contention::race(target, size(20, 8)).await.unwrap();
    holds(&race);
    holds(
        &contention::one_inbox(target, size(60, 1), 8, 4)
            .await
            .unwrap(),
    );
    holds(&hot_run::hot_run(target, size(0, 8), 1, 100).await.unwrap());
    holds(&fan_in::fan_in(target, size(64, 8)).await.unwrap());
    holds(&chains::chains(target, size(10, 4)).await.unwrap());
    holds(&races::races(target, size(10, 4)).await.unwrap());
    holds(&limit::minimal(target, size(40, 2), 2).await.unwrap());
    holds(&limit::batched(target, size(64, 2), 2, 8).await.unwrap());
    holds(&limit::commands(target, size(40, 8)).await.unwrap());
    holds(&fleet::push(target, size(10, 1)).await.unwrap());
    holds(&fleet::sockets(target, size(0, 8), 80, None).await.unwrap());
    holds(&fleet::herd(target, size(0, 20), 3).await.unwrap());
    let (before, after) = history::history(target, size(20, 2), 200).await.unwrap();
    holds(&before);
    holds(&after);
    smoke.stop().await;
}

/// Without its database a server is loaded and checked through its doors alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_checked_through_its_doors_where_its_database_is_not_given() {
    let smoke = Smoke::start().await;
    let mut target = smoke.target.clone();
    target.database = None;
    let finding = lifecycle::single(&target, size(20, 2), None).await.unwrap();
    holds(&finding);
    let names: Vec<&String> = finding.checks.keys().collect();
    assert!(
        names.iter().any(|n| n.contains("20 of 20 runs read")),
        "{names:?}"
    );
    smoke.stop().await;
}

/// What a server must never do shows in the checks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_or_done_twice_breaks_a_check() {
    let smoke = Smoke::start().await;
    let world = World::provision(&smoke.target, ExecutorKind::Runner, 1)
        .await
        .unwrap();
    let runs = lifecycle::runs(&world, 10).await.unwrap();
    // The last two are left alone.
    let done: Vec<Arc<str>> = runs[..8].to_vec();
    let load = Load::of(8, std::time::Duration::from_secs(20));
    lifecycle::measured(&world, &done, size(8, 2), load, "partly")
        .await
        .unwrap();
    let database = world.target.database("a test").await.unwrap();
    let break_it = |run: &str, sql: &str| {
        sql.replace(
            "RUN",
            &format!("(SELECT run_id FROM runs WHERE public_id = '{run}')"),
        )
    };
    for (run, sql) in [
        (
            &runs[0],
            "DELETE FROM run_events WHERE host_id = RUN AND seq = 2",
        ),
        (
            &runs[1],
            "UPDATE task_results SET content = 'another''s' WHERE run_id = RUN",
        ),
        (&runs[2], "DELETE FROM task_results WHERE run_id = RUN"),
    ] {
        database
            .client
            .batch_execute(&break_it(run, sql))
            .await
            .unwrap();
    }
    let checks = check::world(&world, &runs).await.unwrap();
    let breaches = |name: &str| checks[name].len();
    assert_eq!(breaches("each run ended"), 2, "{checks:?}");
    assert_eq!(breaches("nothing is parked"), 2, "{checks:?}");
    assert_eq!(breaches("feeds are contiguous"), 1, "{checks:?}");
    assert_eq!(
        breaches("each result is stored once, of its own row"),
        2,
        "{checks:?}"
    );
    let grants = check::Grants::default();
    let row = nexus_loadtest::scenarios::row(&runs[0], "call");
    grants.granted(row.clone());
    grants.granted(row);
    let mut twice = check::Checks::new();
    grants.check(2, &mut twice);
    assert_eq!(twice["each row is granted once"].len(), 2, "{twice:?}");
    smoke.stop().await;
}
