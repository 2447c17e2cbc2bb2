//! Private PostgreSQL and Redis servers for `nexus dev` and the tests (`operating.md` §1).
//!
//! [`Services::start`] finds the server programs, makes a cluster once, starts both on free
//! loopback ports (the last start's, if they are) and gives their addresses; it never touches the machine's own servers. Where an
//! address is given instead (`DATABASE_URL`, `REDIS_URL`), that server is used and none started.
//!
//! Invariants:
//! - `one_holder`: a folder's services belong to the one process that holds its lock.
//! - `nothing_left`: what was started is ended by [`Services::stop`], on drop, when a start fails
//!   half way, and, after a `kill -9`, by the next start in that folder.
//! - `only_ours`: no signal goes to a process that is not proven to be the one we started.
//!
//! Layout of a folder: `lock`; `secret` (the password); `postgres/`, `redis/` (owned by the account
//! that runs them); `s/` (the Unix socket); `*.log`. Where `nobody` cannot enter the folder, all but
//! `lock` lie in the folder that `data-is-in` names.

mod account;
mod error;
mod find;
mod port;
mod postgres;
mod process;
mod redis;
mod relocate;
mod secret;
mod slot;

#[cfg(test)]
#[path = "services_tests.rs"]
mod tests;

use std::path::{Path, PathBuf};

use self::account::Account;
pub use self::error::StartError;
pub use self::find::{
    Installation, Origin, POSTGRES_MAJORS, PassedOver, Program, Surroundings, Version,
};
use self::postgres::Postgres;
use self::process::Signal;
use self::redis::Redis;
use self::slot::Slot;
pub(in crate::dev) use self::{account::write_private, slot::lock_file};

/// What the services are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// A person tries things out: the data survive restarts and crashes.
    Dev,
    /// Tests: fast, for many connections, and nothing outlives the machine.
    Test,
}

/// Whether a Redis is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisNeed {
    /// Without one the start fails.
    Wanted,
    /// Started if one is found; [`Services::redis_url`] tells.
    Optional,
    /// None is started.
    No,
}

/// How a service is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// In order: connections are cut, nothing is lost.
    Fast,
    /// At once, as after a crash, but without leaving processes (Redis: the same as `Fast`).
    Immediate,
    /// `kill -9` of the server process: PostgreSQL's backends notice by themselves.
    Kill,
}

impl StopMode {
    fn signal(self) -> Signal {
        match self {
            StopMode::Fast => Signal::INT,
            StopMode::Immediate => Signal::QUIT,
            StopMode::Kill => Signal::KILL,
        }
    }
}

/// What to start, and where.
#[derive(Debug, Clone)]
pub struct ServicesConfig {
    /// Their folder, such as `.nexus/dev`; created when missing. Its absolute path may be long.
    pub dir: PathBuf,
    /// What they are for.
    pub profile: Profile,
    /// Whether a Redis is needed.
    pub redis: RedisNeed,
    /// An address to use instead of starting PostgreSQL.
    pub database_url: Option<String>,
    /// An address to use instead of starting Redis.
    pub redis_url: Option<String>,
    /// Where to look for server programs.
    pub surroundings: Surroundings,
}

impl ServicesConfig {
    /// A configuration that takes addresses and places from the environment of this process:
    /// `NEXUS_DATABASE_URL` or `DATABASE_URL`, `NEXUS_REDIS_URL` or `REDIS_URL`, `NEXUS_PG_BIN`,
    /// `NEXUS_REDIS_BIN`, `PATH`; wheels from `.venv` in the current folder.
    #[must_use]
    pub fn from_environment(dir: impl Into<PathBuf>, profile: Profile, redis: RedisNeed) -> Self {
        let url = |names: [&str; 2]| {
            let values = names
                .into_iter()
                .filter_map(|name| std::env::var(name).ok());
            values.into_iter().find(|value| !value.is_empty())
        };
        ServicesConfig {
            database_url: url(["NEXUS_DATABASE_URL", "DATABASE_URL"]),
            redis_url: url(["NEXUS_REDIS_URL", "REDIS_URL"]),
            ..ServicesConfig::private(dir, profile, redis)
        }
    }

    /// The same, but always with own servers, whatever addresses the environment names. For tests
    /// that stop and kill them.
    #[must_use]
    pub fn private(dir: impl Into<PathBuf>, profile: Profile, redis: RedisNeed) -> Self {
        ServicesConfig {
            dir: dir.into(),
            profile,
            redis,
            database_url: None,
            redis_url: None,
            surroundings: Surroundings::of_machine(Path::new(".")),
        }
    }
}

/// Running services. Dropped, they are ended; [`Services::stop`] does so without blocking.
#[derive(Debug)]
pub struct Services {
    // Fields are dropped in this order: the lock is released last.
    postgres: Service<Postgres>,
    redis: Service<Redis>,
    home: PathBuf,
    slot: Slot,
}

#[derive(Debug)]
enum Service<T> {
    Ours(T),
    Given(String),
    Absent,
}

/// What is needed to find the services again from another process.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::dev) struct Record {
    /// The folder with the data.
    pub(in crate::dev) home: PathBuf,
    /// The address of the database.
    pub(in crate::dev) database_url: String,
    /// The address of Redis.
    pub(in crate::dev) redis_url: Option<String>,
    /// The postmaster, when it is ours.
    pub(in crate::dev) postgres_pid: Option<u32>,
    /// The Redis, when it is ours, and its port.
    pub(in crate::dev) redis_pid: Option<(u32, u16)>,
}

impl Record {
    /// Whether what was started then still runs, by the proof of its command line.
    pub(in crate::dev) fn runs(&self) -> bool {
        let data = postgres::data_in(&self.home);
        let config = redis::config_in(&self.home);
        let postgres = self.postgres_pid.is_none_or(|pid| {
            process::command_line(pid).is_some_and(|line| postgres::is_postmaster_of(&line, &data))
        });
        let redis = self.redis_pid.is_none_or(|(pid, port)| {
            process::command_line(pid).is_some_and(|line| redis::is_redis_of(&line, &config, port))
        });
        postgres && redis
    }
}

/// Ends whatever services an ended process left running in `dir`. A holder of its lock is not
/// disturbed.
///
/// # Errors
/// [`StartError::InUse`] while another process holds the folder; [`StartError::Io`].
pub(in crate::dev) async fn end_left_behind(dir: &Path) -> Result<(), StartError> {
    let slot = Slot::take(dir, Profile::Test)?;
    let home = account::home_of(&slot.dir)?;
    clear(&home).await;
    postgres::remove_sockets(&home);
    Ok(())
}

/// Removes all services' folders below `root` with their data, and `root`, after ending what ended
/// processes left running there.
///
/// # Errors
/// [`StartError::InUse`], before anything is removed, when a process holds one of them.
pub(in crate::dev) async fn clean(root: &Path) -> Result<(), StartError> {
    let folders = match std::fs::read_dir(root) {
        Ok(entries) => entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir()),
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(fault) => return Err(StartError::io("read", root)(fault)),
    };
    let slots: Vec<Slot> = folders
        .map(|dir| Slot::take(&dir, Profile::Test))
        .collect::<Result<_, _>>()?;
    for slot in &slots {
        let home = account::home_of(&slot.dir)?;
        clear(&home).await;
        postgres::remove_sockets(&home);
        postgres::remove_folder(&home)?;
    }
    postgres::remove_folder(root)
}

async fn clear(home: &Path) {
    postgres::end_left_behind(home).await;
    redis::end_left_behind(home).await;
}

impl Services {
    /// Starts what `config` asks for and waits until both answer. Dropped before it is done, it
    /// ends what it has started.
    ///
    /// # Errors
    /// [`StartError`]; whatever had been started by then is ended.
    pub async fn start(config: ServicesConfig) -> Result<Services, StartError> {
        let slot = Slot::take(&config.dir, config.profile)?;
        let home = account::home_of(&slot.dir)?;
        clear(&home).await;
        let redis = start_redis(&config, &home);
        let postgres = start_postgres(&config, &home);
        // Both at once; when one fails, dropping the other ends it.
        let (postgres, redis) = tokio::try_join!(postgres, redis)?;
        Ok(Services {
            postgres,
            redis,
            home,
            slot,
        })
    }

    /// The database's address: `postgres://user:password@127.0.0.1:port/nexus`, or the given one.
    /// The user may create databases.
    #[must_use]
    pub fn database_url(&self) -> String {
        match &self.postgres {
            Service::Ours(postgres) => postgres.url(),
            Service::Given(url) => url.clone(),
            Service::Absent => unreachable!("a start without a database fails"),
        }
    }

    /// Redis' address: `redis://:password@127.0.0.1:port/`, or the given one, if there is one.
    #[must_use]
    pub fn redis_url(&self) -> Option<String> {
        match &self.redis {
            Service::Ours(redis) => Some(redis.url()),
            Service::Given(url) => Some(url.clone()),
            Service::Absent => None,
        }
    }

    /// The folder these services run in: the one asked for, or the one beside it when a running
    /// copy holds that.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.slot.dir
    }

    /// Ends both. Waits until their processes are gone and the data are safe.
    pub async fn stop(self) {
        if let Service::Ours(mut redis) = self.redis {
            redis.stop(StopMode::Fast).await;
        }
        if let Service::Ours(mut postgres) = self.postgres {
            postgres.stop(StopMode::Fast).await;
        }
    }

    /// Ends PostgreSQL and leaves it down. Nothing happens when it is down.
    ///
    /// # Errors
    /// [`StartError::NotOurs`].
    pub async fn stop_postgres(&mut self, mode: StopMode) -> Result<(), StartError> {
        our_postgres(&mut self.postgres)?.stop(mode).await;
        Ok(())
    }

    /// Starts PostgreSQL again on the same port. Nothing happens when it runs.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_postgres(&mut self) -> Result<(), StartError> {
        our_postgres(&mut self.postgres)?.start_again().await
    }

    /// Ends PostgreSQL and starts it again on the same port.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn restart_postgres(&mut self, mode: StopMode) -> Result<(), StartError> {
        self.stop_postgres(mode).await?;
        self.start_postgres().await
    }

    /// Ends Redis and leaves it down. Nothing happens when it is down.
    ///
    /// # Errors
    /// [`StartError::NotOurs`].
    pub async fn stop_redis(&mut self, mode: StopMode) -> Result<(), StartError> {
        our_redis(&mut self.redis)?.stop(mode).await;
        Ok(())
    }

    /// Starts Redis again on the same port, empty. Nothing happens when it runs.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_redis(&mut self) -> Result<(), StartError> {
        our_redis(&mut self.redis)?.start_again().await
    }

    /// Ends Redis and starts it again on the same port, empty.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn restart_redis(&mut self, mode: StopMode) -> Result<(), StartError> {
        self.stop_redis(mode).await?;
        self.start_redis().await
    }

    /// Freezes PostgreSQL, all its processes: connections stay open and nobody answers.
    ///
    /// # Errors
    /// [`StartError::NotOurs`].
    pub fn pause_postgres(&mut self) -> Result<(), StartError> {
        our_postgres(&mut self.postgres)?.signal_all(Signal::STOP);
        Ok(())
    }

    /// Lets a frozen PostgreSQL go on.
    ///
    /// # Errors
    /// [`StartError::NotOurs`].
    pub fn resume_postgres(&mut self) -> Result<(), StartError> {
        our_postgres(&mut self.postgres)?.signal_all(Signal::CONT);
        Ok(())
    }

    /// Freezes Redis: connections stay open and nobody answers.
    ///
    /// # Errors
    /// [`StartError::NotOurs`].
    pub fn pause_redis(&mut self) -> Result<(), StartError> {
        our_redis(&mut self.redis)?.signal(Signal::STOP);
        Ok(())
    }

    /// Lets a frozen Redis go on.
    ///
    /// # Errors
    /// [`StartError::NotOurs`].
    pub fn resume_redis(&mut self) -> Result<(), StartError> {
        our_redis(&mut self.redis)?.signal(Signal::CONT);
        Ok(())
    }

    /// Lets the services live on without this process, and tells how to find them.
    pub(in crate::dev) fn detach(self) -> Record {
        let database_url = self.database_url();
        let redis_url = self.redis_url();
        let (mut postgres_pid, mut redis_pid) = (None, None);
        if let Service::Ours(postgres) = self.postgres {
            postgres_pid = postgres.pid();
            postgres.release();
        }
        if let Service::Ours(redis) = self.redis {
            redis_pid = redis.pid().map(|pid| (pid, redis.port()));
            redis.release();
        }
        Record {
            home: self.home,
            database_url,
            redis_url,
            postgres_pid,
            redis_pid,
        }
    }
}

fn our_postgres(service: &mut Service<Postgres>) -> Result<&mut Postgres, StartError> {
    match service {
        Service::Ours(postgres) => Ok(postgres),
        _ => Err(StartError::NotOurs {
            name: "PostgreSQL",
            variable: "DATABASE_URL",
        }),
    }
}

fn our_redis(service: &mut Service<Redis>) -> Result<&mut Redis, StartError> {
    match service {
        Service::Ours(redis) => Ok(redis),
        _ => Err(StartError::NotOurs {
            name: "Redis",
            variable: "REDIS_URL",
        }),
    }
}

async fn start_postgres(
    config: &ServicesConfig,
    home: &Path,
) -> Result<Service<Postgres>, StartError> {
    if let Some(url) = &config.database_url {
        return Ok(Service::Given(url.clone()));
    }
    let data = postgres::data_in(home);
    let account = Account::for_data(&data);
    let found = installation_for(config, account, home).await?;
    let found = relocate::reachable(found, account, home)?;
    let postgres = Postgres::start(found.path, account, home, config.profile).await?;
    tracing::info!(version = %found.version, port = postgres.port(), "started a private PostgreSQL");
    Ok(Service::Ours(postgres))
}

/// The installation that can open the data in `home`; data of tests are given up instead.
async fn installation_for(
    config: &ServicesConfig,
    account: Account,
    home: &Path,
) -> Result<Installation, StartError> {
    let Some(written_by) = postgres::major_of_data(home) else {
        return config.surroundings.postgres(account, None).await;
    };
    match config
        .surroundings
        .postgres(account, Some(written_by))
        .await
    {
        Err(StartError::NotFound { .. }) if config.profile == Profile::Test => {
            let found = config.surroundings.postgres(account, None).await?;
            postgres::remove_folder(&postgres::data_in(home))?;
            Ok(found)
        }
        Err(StartError::NotFound { passed_over, .. }) => Err(StartError::OtherMajor {
            data: postgres::data_in(home),
            written_by,
            passed_over,
        }),
        found => found,
    }
}

async fn start_redis(config: &ServicesConfig, home: &Path) -> Result<Service<Redis>, StartError> {
    if config.redis == RedisNeed::No {
        return Ok(Service::Absent);
    }
    if let Some(url) = &config.redis_url {
        return Ok(Service::Given(url.clone()));
    }
    let account = Account::for_data(&postgres::data_in(home));
    let found = match config.surroundings.redis(account).await {
        Err(missing) if config.redis == RedisNeed::Optional => {
            tracing::info!("going on without Redis: {missing}");
            return Ok(Service::Absent);
        }
        found => relocate::reachable(found?, account, home)?,
    };
    let redis = Redis::start(found.path, account, home).await?;
    tracing::info!(version = %found.version, port = redis.port(), "started a private Redis");
    Ok(Service::Ours(redis))
}

/// Looks for a server program as a start would, and starts nothing.
///
/// # Errors
/// [`StartError::NotFound`].
pub async fn find(
    program: Program,
    surroundings: &Surroundings,
) -> Result<Installation, StartError> {
    let account = Account::for_data(Path::new("/nonexistent"));
    match program {
        Program::Postgres => surroundings.postgres(account, None).await,
        Program::Redis => surroundings.redis(account).await,
    }
}
