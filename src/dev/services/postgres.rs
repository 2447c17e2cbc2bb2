//! A private PostgreSQL cluster: made once, started, restarted on its port, ended.
//!
//! Safe because: the data folder belongs to one holder of the slot's lock; a postmaster that a
//! killed copy left behind is ended before a new one starts; a stale `postmaster.pid` keeps its
//! shared-memory key, by which PostgreSQL itself refuses to start beside orphaned backends.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::Instant;
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

use super::account::Account;
use super::process::{self, Running, Signal};
use super::{Profile, StartError, StopMode, account, port, secret};

const NAME: &str = "PostgreSQL";
/// Superuser and database of the private cluster.
const USER: &str = "nexus";
/// After a crash recovery comes first.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long a fast shutdown may take before it is forced.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pace of the questions "are you ready?".
const ASK_EVERY: Duration = Duration::from_millis(20);
/// A socket's whole path has to fit into 104 bytes (macOS; Linux has 108).
const SOCKET_FOLDER_MAX: usize = 104 - "/.s.PGSQL.65535.lock".len() - 1;
/// Names the folder of the sockets when it lies elsewhere.
const SOCKETS_ELSEWHERE: &str = "sockets-are-in";

/// The cluster in one home folder.
#[derive(Debug)]
pub(super) struct Postgres {
    bin: PathBuf,
    account: Account,
    home: PathBuf,
    secret: String,
    profile: Profile,
    port: u16,
    // Dropped before the sockets, which it uses.
    running: Option<Running>,
    sockets: Sockets,
}

/// The folder of the Unix sockets. Dropped, it is removed if it lies outside the home folder.
#[derive(Debug)]
struct Sockets {
    folder: PathBuf,
    home: Option<PathBuf>,
}

/// Where the cluster of a home folder keeps its data.
pub(super) fn data_in(home: &Path) -> PathBuf {
    home.join("postgres")
}

/// The major version that wrote the data in `home`, if there are any.
pub(super) fn major_of_data(home: &Path) -> Option<u32> {
    fs::read_to_string(data_in(home).join("PG_VERSION"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Ends a postmaster that still runs on the data in `home`. Only the holder of the slot calls this.
pub(super) async fn end_left_behind(home: &Path) {
    let data = data_in(home);
    let Some(pid) = recorded_pid(&data) else {
        return;
    };
    let ours = |line: &str| is_postmaster_of(line, &data);
    if process::end_stranger(pid, Signal::INT, PATIENCE, ours).await {
        tracing::info!(pid, "ended a PostgreSQL that an earlier copy left behind");
    }
}

/// Whether a command line is that of the postmaster on `data`.
pub(super) fn is_postmaster_of(line: &str, data: &Path) -> bool {
    line.contains("postgres") && line.contains(&format!("-D {} ", data.display()))
}

fn recorded_pid(data: &Path) -> Option<u32> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

/// The port of the last start, which PostgreSQL keeps with its other arguments.
fn last_port(data: &Path) -> Option<u16> {
    let arguments = fs::read_to_string(data.join("postmaster.opts")).ok()?;
    let (_, rest) = arguments.split_once("\"-p\" \"")?;
    rest.split_once('"')?.0.parse().ok()
}

impl Postgres {
    /// Makes the cluster unless it is there, and starts it, on its last port if that is free.
    pub(super) async fn start(
        bin: PathBuf,
        account: Account,
        home: &Path,
        profile: Profile,
    ) -> Result<Postgres, StartError> {
        let mut postgres = Postgres {
            bin,
            account,
            home: home.to_owned(),
            sockets: Sockets::of(home, account)?,
            secret: secret::kept_in(&home.join("secret"))?,
            profile,
            port: port::free(last_port(&data_in(home)))?,
            running: None,
        };
        if major_of_data(home).is_none() {
            postgres.make_cluster().await?;
        }
        account.private_folder(&postgres.data())?;
        postgres.run(PortLost::TakeAnother).await?;
        postgres.make_database().await?;
        Ok(postgres)
    }

    /// `postgres://user:password@127.0.0.1:port/database`.
    pub(super) fn url(&self) -> String {
        format!(
            "postgres://{USER}:{}@127.0.0.1:{}/{USER}",
            self.secret, self.port
        )
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
    }

    pub(super) fn data(&self) -> PathBuf {
        data_in(&self.home)
    }

    /// Ends it; the data stay. Nothing happens when it does not run.
    pub(super) async fn stop(&mut self, mode: StopMode) {
        if let Some(running) = self.running.take() {
            running.end(mode.signal()).await;
        }
    }

    /// Starts it again on the same port. Nothing happens when it runs.
    pub(super) async fn start_again(&mut self) -> Result<(), StartError> {
        let alive = self
            .running
            .as_mut()
            .is_some_and(|running| running.ended().is_none());
        if alive {
            return Ok(());
        }
        self.running = None;
        self.run(PortLost::WaitForIt).await
    }

    /// Stops or continues all its processes.
    pub(super) fn signal_all(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            process::signal_family(pid, signal);
        }
    }

    /// Lets it live on without us.
    pub(super) fn release(mut self) {
        if let Some(running) = self.running.take() {
            running.release();
        }
        self.sockets.home = None;
    }

    /// `initdb` beside the final place, then a rename: a cluster is there whole or not at all.
    async fn make_cluster(&self) -> Result<(), StartError> {
        let unfinished = self.home.join("postgres.unfinished");
        remove_folder(&unfinished)?;
        remove_folder(&self.data())?;
        self.account.private_folder(&unfinished)?;
        let password = self.home.join("password-for-initdb");
        self.account.private_file(&password, &self.secret)?;
        let made = self.run_initdb(&unfinished, &password).await;
        fs::remove_file(&password).map_err(StartError::io("remove", &password))?;
        made?;
        fs::rename(&unfinished, self.data()).map_err(StartError::io("rename", &unfinished))
    }

    async fn run_initdb(&self, data: &Path, password: &Path) -> Result<(), StartError> {
        let log = self.home.join("initdb.log");
        let mut command = self.account.command(&self.bin.join("initdb"), &self.home);
        command.arg("-D").arg(data).arg("--pwfile").arg(password);
        // Strangers on the machine reach the port, so it asks for the password. It is 128 random
        // bits, which md5 guards as well as SCRAM does; SCRAM's 4096 rounds of hashing at each
        // connection are for passwords that people choose, and slow tests down.
        command.args(["-U", USER, "--auth-local=trust", "--auth-host=md5"]);
        command.args(["--encoding=UTF8", "--no-locale", "--no-instructions"]);
        if self.profile == Profile::Test {
            command.arg("--no-sync");
        }
        command.kill_on_drop(true);
        let file = fs::File::create(&log).map_err(StartError::io("write", &log))?;
        let copy = file.try_clone().map_err(StartError::io("write", &log))?;
        let ended = command.stdout(file).stderr(copy).status().await;
        let status = ended.map_err(StartError::io("run", &self.bin.join("initdb")))?;
        if status.success() {
            return Ok(());
        }
        Err(StartError::DidNotStart {
            name: "initdb",
            why: tail(&log),
            log,
        })
    }

    /// Starts the postmaster and waits until it answers.
    async fn run(&mut self, when_lost: PortLost) -> Result<(), StartError> {
        let log = self.home.join("postgres.log");
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            disarm_stale_pid_file(&self.data())?;
            empty_folder(&self.sockets.folder)?;
            let mut running = Running::start(self.command(), &log, Signal::INT, PATIENCE)?;
            let why = match self.until_ready(&mut running, deadline).await {
                Ok(()) => {
                    self.running = Some(running);
                    return Ok(());
                }
                Err(why) => why,
            };
            match (Obstacle::in_log(&why), when_lost) {
                (Some(Obstacle::PortTaken), PortLost::TakeAnother) => self.port = port::free(None)?,
                // Both go away by themselves: backends of a killed postmaster notice and leave.
                (Some(_), _) if Instant::now() < deadline => tokio::time::sleep(ASK_EVERY).await,
                _ => {
                    return Err(StartError::DidNotStart {
                        name: NAME,
                        why,
                        log,
                    });
                }
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = self.account.command(&self.bin.join("postgres"), &self.home);
        command
            .arg("-D")
            .arg(self.data())
            .arg("-p")
            .arg(self.port.to_string());
        command.arg("-k").arg(&self.sockets.folder);
        for setting in COMMON_SETTINGS
            .iter()
            .chain(self.profile.postgres_settings())
        {
            command.args(["-c", setting]);
        }
        command
    }

    /// Waits until a connection succeeds; the reason when that will not be.
    async fn until_ready(&self, running: &mut Running, deadline: Instant) -> Result<(), String> {
        let log = self.home.join("postgres.log");
        loop {
            if running.ended().is_some() {
                return Err(tail(&log));
            }
            match self.connect("postgres").await {
                // Somebody else could hold the port: then ours is about to give up.
                Ok(()) if recorded_pid(&self.data()) == Some(running.pid()) => return Ok(()),
                Err(fault) if fault.code() == Some(&SqlState::INVALID_PASSWORD) => {
                    return Err(format!("it refuses the password kept beside it ({fault})"));
                }
                _ if Instant::now() >= deadline => {
                    return Err(format!("no connection within {} s", READY_WITHIN.as_secs()));
                }
                _ => tokio::time::sleep(ASK_EVERY).await,
            }
        }
    }

    fn client(&self, database: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(self.port)
            .user(USER)
            .password(&self.secret);
        config
            .dbname(database)
            .connect_timeout(Duration::from_secs(5));
        config
    }

    async fn connect(&self, database: &str) -> Result<(), tokio_postgres::Error> {
        self.client(database).connect(NoTls).await.map(drop)
    }

    /// Creates the database unless it is there: an earlier start may have died before this.
    async fn make_database(&self) -> Result<(), StartError> {
        let fault = match self.connect(USER).await {
            Ok(()) => return Ok(()),
            Err(fault) if fault.code() == Some(&SqlState::INVALID_CATALOG_NAME) => {
                match self.create_database().await {
                    Ok(()) => return Ok(()),
                    Err(fault) => fault,
                }
            }
            Err(fault) => fault,
        };
        let log = self.home.join("postgres.log");
        Err(StartError::DidNotStart {
            name: NAME,
            why: fault.to_string(),
            log,
        })
    }

    async fn create_database(&self) -> Result<(), tokio_postgres::Error> {
        let (client, connection) = self.client("postgres").connect(NoTls).await?;
        let driver = tokio::spawn(connection);
        let created = client
            .batch_execute(&format!("CREATE DATABASE {USER}"))
            .await;
        drop(client);
        let _ = driver.await;
        created
    }
}

/// What to do when the chosen port turns out to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortLost {
    TakeAnother,
    WaitForIt,
}

/// Reasons to give up that pass.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    PortTaken,
    OldBackends,
}

impl Obstacle {
    fn in_log(text: &str) -> Option<Obstacle> {
        if text.contains("pre-existing shared memory block") {
            return Some(Obstacle::OldBackends);
        }
        let taken = [
            "Address already in use",
            "could not create any TCP/IP sockets",
        ];
        taken
            .iter()
            .any(|words| text.contains(words))
            .then_some(Obstacle::PortTaken)
    }
}

/// Settings of every private cluster.
const COMMON_SETTINGS: [&str; 6] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_permissions=0700",
    "timezone=UTC",
    "log_timezone=UTC",
    "logging_collector=off",
    "log_destination=stderr",
];

impl Profile {
    fn postgres_settings(self) -> &'static [&'static str] {
        match self {
            Profile::Dev => &["max_connections=200"],
            // Nothing in a test cluster outlives the machine, so nothing waits for the disk.
            Profile::Test => &[
                "fsync=off",
                "synchronous_commit=off",
                "full_page_writes=off",
                "max_connections=300",
                "checkpoint_timeout=30min",
                "max_wal_size=2GB",
            ],
        }
    }
}

/// PostgreSQL refuses to start when the id in `postmaster.pid` belongs to a live process, even if
/// that is by now a different program. So, unless it proves to be that postmaster, we put our own
/// id there, which PostgreSQL ignores as its parent's; the rest of the file stays, by which it
/// still checks that no old backend is left.
fn disarm_stale_pid_file(data: &Path) -> Result<(), StartError> {
    let path = data.join("postmaster.pid");
    let Some(pid) = recorded_pid(data) else {
        return Ok(());
    };
    if process::command_line(pid).is_some_and(|line| is_postmaster_of(&line, data)) {
        return Ok(());
    }
    let text = fs::read_to_string(&path).map_err(StartError::io("read", &path))?;
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    let disarmed = format!("{}\n{rest}", std::process::id());
    fs::write(&path, disarmed).map_err(StartError::io("write", &path))
}

impl Sockets {
    /// In the home folder, or where the path is short enough.
    fn of(home: &Path, account: Account) -> Result<Sockets, StartError> {
        remove_sockets(home);
        let mut folder = home.join("s");
        if folder.as_os_str().len() > SOCKET_FOLDER_MAX {
            folder = account::new_temporary_folder(0o700)?;
            let note = format!("{}\n", folder.display());
            account::write_private(&home.join(SOCKETS_ELSEWHERE), &note)?;
        }
        let sockets = Sockets {
            folder,
            home: Some(home.to_owned()),
        };
        account.private_folder(&sockets.folder)?;
        Ok(sockets)
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            remove_sockets(home);
        }
    }
}

/// Removes the folder of the sockets that lies outside the home folder.
pub(super) fn remove_sockets(home: &Path) {
    use std::os::unix::fs::MetadataExt as _;

    let note = home.join(SOCKETS_ELSEWHERE);
    let Some(folder) = account::named_in(&note) else {
        return;
    };
    let ours = fs::symlink_metadata(&folder).is_ok_and(|meta| {
        let me = rustix::process::geteuid();
        meta.is_dir() && (me.is_root() || meta.uid() == me.as_raw())
    });
    if ours && empty_folder(&folder).is_ok() {
        let _ = fs::remove_dir(&folder);
    }
    let _ = fs::remove_file(note);
}

/// Removes the files of a folder that holds only files.
fn empty_folder(folder: &Path) -> Result<(), StartError> {
    let entries = fs::read_dir(folder).map_err(StartError::io("read", folder))?;
    for entry in entries.flatten() {
        fs::remove_file(entry.path()).map_err(StartError::io("remove", &entry.path()))?;
    }
    Ok(())
}

/// Removes a folder and what is in it, if it is there.
pub(super) fn remove_folder(folder: &Path) -> Result<(), StartError> {
    match fs::remove_dir_all(folder) {
        Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => {
            Err(StartError::io("remove", folder)(fault))
        }
        _ => Ok(()),
    }
}

/// The last lines of a log, joined by slashes: enough to tell why a program gave up.
pub(super) fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(6)..].join(" / ")
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
