//! The harness: a database a test, real routers on real sockets, a clock that moves, and an audit
//! of the whole database at the end.
//!
//! Wait on what happened or move the clock; never sleep.
#![allow(
    dead_code,
    unused_imports,
    reason = "a harness offers more than one test uses"
)]

pub mod audit;
pub mod audit_graph;
pub mod contract;
pub mod database;
pub mod fixture;
pub mod fleet;
pub mod http;
pub mod proxy;
pub mod raw;
pub mod seed;
pub mod source;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use database::TestDatabase;
pub use fixture::{Fixture, Party};
pub use http::{Answer, Door, IntoJson, at, find, items, text};
use nexus::app::App;
use nexus::config::{Config, Source};
use nexus::domain::Timestamp;
use nexus::serve::Server;
use nexus::store::test_clock;

/// The bootstrap operator bearer of every test server.
pub const OPERATOR: &str = "test-operator";

/// One replica on a socket and a runtime of its own.
pub struct Replica {
    /// Its parts.
    pub app: App,
    /// Its door.
    pub door: Door,
    server: Option<Server>,
}

impl Replica {
    async fn start(config: Config) -> Self {
        let server = Server::start(config)
            .await
            .expect("a test configuration works");
        server.ready().await;
        Self {
            door: Door::new(format!("http://{}", server.addr)),
            app: server.app.clone(),
            server: Some(server),
        }
    }

    /// Dies as by kill -9: everything ends where it stands, nothing is said.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How a test's servers differ from the ordinary.
pub struct Setup {
    replicas: usize,
    values: Vec<(String, String)>,
    server: Option<String>,
}

impl Setup {
    /// That many replicas on one database.
    pub fn replicas(mut self, n: usize) -> Self {
        self.replicas = n;
        self
    }

    /// One value of the environment that `nexus serve` would read.
    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.values.push((name.to_owned(), value.into()));
        self
    }

    /// A database of that server, given by a maintenance URL, in place of the shared one.
    pub fn on(mut self, server: &str) -> Self {
        self.server = Some(server.to_owned());
        self
    }

    /// Starts them.
    pub async fn start(self) -> TestApp {
        let database = match &self.server {
            Some(server) => TestDatabase::create_on(server.clone()).await,
            None => TestDatabase::create().await,
        };
        self.start_over(database).await
    }

    /// Starts them over that database.
    pub async fn start_over(self, database: TestDatabase) -> TestApp {
        let mut source = Source::of([
            ("NEXUS_DATABASE_URL".to_owned(), database.url.clone()),
            ("NEXUS_LISTEN".to_owned(), "127.0.0.1:0".to_owned()),
            ("NEXUS_ADMIN_LISTEN".to_owned(), "127.0.0.1:0".to_owned()),
            // Nothing happens behind a test's back; a test of sweeping asks for the role.
            ("NEXUS_ROLES".to_owned(), "api".to_owned()),
            ("NEXUS_DB_POOL".to_owned(), "8".to_owned()),
            ("NEXUS_OPERATOR_TOKEN".to_owned(), OPERATOR.to_owned()),
            ("NEXUS_RATE_LIMITS".to_owned(), "off".to_owned()),
            ("NEXUS_TEST_CLOCK".to_owned(), "1".to_owned()),
        ]);
        if let Ok(redis) = std::env::var("NEXUS_TEST_REDIS_URL") {
            source.set("NEXUS_REDIS_URL", redis);
            source.set("NEXUS_REDIS_PREFIX", database.name.clone());
        }
        for (name, value) in self.values {
            source.set(&name, value);
        }
        let mut replicas = Vec::new();
        for _ in 0..self.replicas {
            let config = Config::from_source(&source).expect("a test configuration reads");
            replicas.push(Replica::start(config).await);
        }
        TestApp {
            replicas,
            database,
            clock_moves: AtomicBool::new(false),
        }
    }
}

/// Nexus under test. Derefs to the first replica's [`Door`].
pub struct TestApp {
    /// The replicas.
    pub replicas: Vec<Replica>,
    /// Their database.
    pub database: TestDatabase,
    clock_moves: AtomicBool,
}

impl Deref for TestApp {
    type Target = Door;

    fn deref(&self) -> &Door {
        &self.replicas[0].door
    }
}

impl TestApp {
    /// One replica on a fresh database.
    pub async fn start() -> Self {
        Self::with().start().await
    }

    /// Several replicas on one fresh database.
    pub async fn replicas(n: usize) -> Self {
        Self::with().replicas(n).start().await
    }

    /// Another set-up.
    pub fn with() -> Setup {
        Setup {
            replicas: 1,
            values: Vec::new(),
            server: None,
        }
    }

    /// An account with a workspace, a human and an agent who may write there, and an executor of
    /// each kind; provisioned through the operator plane. Each call makes another account.
    pub async fn fixture(&self) -> Fixture {
        Fixture::provision(self).await
    }

    /// The parts of the first replica, for calling commands and store functions.
    pub fn app(&self) -> &App {
        &self.replicas[0].app
    }

    /// The door of one replica.
    pub fn on(&self, replica: usize) -> &Door {
        &self.replicas[replica].door
    }

    /// A plain connection to the test's database, for looking at rows and breaking things.
    pub async fn sql(&self) -> tokio_postgres::Client {
        self.database.connect().await
    }

    /// Moves the one clock of the database forward; gives the new time. The first move makes the
    /// clock a movable one: tests that never move it run on the production function.
    pub async fn advance(&self, by: Duration) -> Timestamp {
        let store = &self.app().store;
        if !self.clock_moves.swap(true, Ordering::SeqCst) {
            test_clock::enable(store)
                .await
                .expect("the clock can be replaced");
        }
        test_clock::advance(store, by)
            .await
            .expect("the clock moves")
    }

    /// The database's time.
    pub async fn now(&self) -> Timestamp {
        self.app()
            .store
            .now()
            .await
            .expect("the database tells its time")
    }

    /// Audits the whole database, then removes it. Every test ends with this.
    pub async fn finish(self) {
        let client = self.sql().await;
        audit::check(&client).await;
        drop(client);
        self.end().await;
    }

    /// Ends without the audit: for tests that wrote rows which no run could have.
    pub async fn end(self) {
        let Self {
            replicas, database, ..
        } = self;
        drop(replicas);
        database.remove().await;
    }
}
