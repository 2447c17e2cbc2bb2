//! `nexus test-services`: one PostgreSQL and one Redis for a whole test run.
//!
//! The runner starts a process a test, so the servers must live longer than any of them. `run`
//! brings them up, runs a command with their addresses in its environment and takes them down; the
//! last of several such commands in one checkout does. `up` and `down` are for a person who runs
//! tests again and again.
//!
//! In the folder: `services.json` (the record), `env` (two lines, `NAME=value`), `kept` (a person
//! asked for them: `run` leaves them up), `up.lock` (one change at a time), `in-use` (shared by the
//! running commands).
//!
//! A test that was killed leaves its database behind; each start takes those away.
//!
//! Does not know: templates, migrations; those are the test harness's.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::services::{
    self, Profile, Program, Record, RedisNeed, Services, ServicesConfig, StartError, Surroundings,
    lock_file, write_private,
};
use crate::config;
use crate::store::{Statements, test_databases};

/// On a server that others may use a test's database is left behind when it is older than any test.
const OLDER_THAN_ANY_TEST: Duration = Duration::from_secs(3600);

/// Tells a test where its database server is: the address of one where it may create databases.
pub const DATABASE_VARIABLE: &str = "NEXUS_TEST_DATABASE_URL";
/// Tells a test where its Redis is; unset when there is none.
pub const REDIS_VARIABLE: &str = "NEXUS_TEST_REDIS_URL";

/// The arguments of `nexus test-services`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Starts the servers unless they run; they stay up until `down`
    Up {
        /// The folder of the servers
        #[arg(long, default_value = ".nexus/test")]
        dir: PathBuf,
    },
    /// Ends the servers
    Down {
        /// The folder of the servers
        #[arg(long, default_value = ".nexus/test")]
        dir: PathBuf,
    },
    /// Runs a command with the servers up; ends with its exit code
    Run {
        /// The folder of the servers
        #[arg(long, default_value = ".nexus/test")]
        dir: PathBuf,
        /// The command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Hands the addresses of running servers to the test runner (a nextest set-up script)
    Env {
        /// The folder of the servers
        #[arg(long, default_value = ".nexus/test")]
        dir: PathBuf,
    },
    /// Removes the data of all servers below a folder; refuses while some are in use
    Clean {
        /// The folder of the servers' folders
        #[arg(long, default_value = ".nexus")]
        root: PathBuf,
    },
    /// Tells which server program would be used
    Find {
        /// `postgres` or `redis`
        #[arg(value_parser = ["postgres", "redis"])]
        program: String,
    },
}

/// Runs `nexus test-services`. Prints one line on failure and gives the exit code.
pub async fn main(arguments: Arguments) -> ExitCode {
    let done = match arguments.action {
        Action::Up { dir } => up(asked_for(dir)).await.map(|record| print_env(&record)),
        Action::Down { dir } => down(&dir).await.map(|()| ExitCode::SUCCESS),
        Action::Run { dir, command } => run(asked_for(dir), &command).await,
        Action::Env { dir } => env(&dir),
        Action::Clean { root } => clean(&root).await.map(|()| ExitCode::SUCCESS),
        Action::Find { program } => find(&program).await,
    };
    done.unwrap_or_else(|fault| {
        eprintln!("nexus test-services: {}", fault.one_line());
        ExitCode::FAILURE
    })
}

/// What the environment asks for in `dir`. CI does without nothing.
fn asked_for(dir: PathBuf) -> ServicesConfig {
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let need = if in_ci {
        RedisNeed::Wanted
    } else {
        RedisNeed::Optional
    };
    ServicesConfig::from_environment(dir, Profile::Test, need)
}

/// Starts the servers unless they run already, writes `env` in their folder, and leaves them up until
/// [`down`]. A given `DATABASE_URL` or `REDIS_URL` is passed on instead.
///
/// # Errors
/// [`StartError`].
async fn up(config: ServicesConfig) -> Result<Record, StartError> {
    let kept = config.dir.join("kept");
    let record = ensure_up(config).await?;
    write_private(&kept, "")?;
    Ok(record)
}

/// Ends the servers in `dir`, whoever started them there; fine when none run.
///
/// # Errors
/// [`StartError::InUse`] while a test run uses them.
async fn down(dir: &Path) -> Result<(), StartError> {
    if !dir.is_dir() {
        return Ok(());
    }
    let _one_at_a_time = one_at_a_time(dir)?;
    let users = lock_file(&dir.join("in-use"))?;
    if users.try_lock().is_err() {
        return Err(StartError::InUse {
            dir: dir.to_owned(),
        });
    }
    take_down(dir).await
}

/// Removes the data of all servers below `root`.
///
/// # Errors
/// [`StartError::InUse`] while a running copy or a test run uses some.
async fn clean(root: &Path) -> Result<(), StartError> {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.path().join("in-use").exists() {
            down(&entry.path()).await?;
        }
    }
    services::clean(root).await
}

async fn take_down(dir: &Path) -> Result<(), StartError> {
    services::end_left_behind(dir).await?;
    for name in ["services.json", "env", "kept"] {
        let _ = fs::remove_file(dir.join(name));
    }
    Ok(())
}

/// Runs a command with the servers up and gives its exit code. Ctrl-C goes to the command, which
/// shares the terminal; the servers are taken down after it, unless another one uses them.
async fn run(config: ServicesConfig, command: &[OsString]) -> Result<ExitCode, StartError> {
    let dir = &config.dir.clone();
    fs::create_dir_all(dir).map_err(StartError::io("create", dir))?;
    let path = dir.join("in-use");
    let using = lock_file(&path)?;
    using.lock_shared().map_err(StartError::io("lock", &path))?;
    let ran = match ensure_up(config).await {
        Ok(record) => run_with(&record, command).await,
        Err(fault) => Err(fault),
    };
    drop(using);
    take_down_if_unused(dir).await?;
    ran.map(exit_code)
}

async fn take_down_if_unused(dir: &Path) -> Result<(), StartError> {
    let _one_at_a_time = one_at_a_time(dir)?;
    let users = lock_file(&dir.join("in-use"))?;
    if users.try_lock().is_err() || dir.join("kept").exists() {
        return Ok(());
    }
    take_down(dir).await
}

async fn run_with(record: &Record, command: &[OsString]) -> Result<ExitStatus, StartError> {
    let (program, arguments) = command.split_first().expect("clap requires one");
    let mut child = tokio::process::Command::new(program);
    child
        .args(arguments)
        .env(DATABASE_VARIABLE, &record.database_url);
    match &record.redis_url {
        Some(url) => child.env(REDIS_VARIABLE, url),
        None => child.env_remove(REDIS_VARIABLE),
    };
    let mut child = child
        .spawn()
        .map_err(StartError::io("run", Path::new(program)))?;
    let pid = child.id();
    loop {
        tokio::select! {
            ended = child.wait() => {
                return ended.map_err(StartError::io("wait for", Path::new(program)));
            }
            Ok(()) = super::stop_requested() => pass_on(pid),
        }
    }
}

/// A Ctrl-C reached the command already; a second interruption does it no harm, and `kill` reached
/// us alone.
fn pass_on(pid: Option<u32>) {
    let pid = pid
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

async fn ensure_up(config: ServicesConfig) -> Result<Record, StartError> {
    let dir = &config.dir.clone();
    fs::create_dir_all(dir).map_err(StartError::io("create", dir))?;
    let _one_at_a_time = one_at_a_time(dir)?;
    if let Some(record) = recorded(dir) {
        if record.runs() && is_what(&config, &record).await {
            reclaim(&record, OLDER_THAN_ANY_TEST).await;
            return Ok(record);
        }
        services::end_left_behind(dir).await?;
    }
    let record = tokio::select! {
        started = Services::start(config) => started?.detach(),
        _ = super::stop_requested() => return Err(StartError::Interrupted),
    };
    if record.redis_url.is_none() {
        eprintln!("no Redis found: what needs it is skipped");
    }
    // Nobody else knows a server that was started just now.
    let is_ours = record.postgres_pid.is_some();
    reclaim(
        &record,
        if is_ours {
            Duration::ZERO
        } else {
            OLDER_THAN_ANY_TEST
        },
    )
    .await;
    write_record(dir, &record)?;
    Ok(record)
}

/// Drops what killed tests left behind; a failure costs room, never a test.
async fn reclaim(record: &Record, age: Duration) {
    let url = &record.database_url;
    let Ok(server) = config::Database::from_url(DATABASE_VARIABLE, url, 1, Statements::Unnamed)
    else {
        return;
    };
    match test_databases::reclaim(&server, age).await {
        Ok(0) => {}
        Ok(n) => eprintln!("dropped {n} databases that killed tests left behind"),
        Err(fault) => eprintln!(
            "databases of killed tests stay: {}",
            crate::telemetry::chain(&fault)
        ),
    }
}

/// Whether running servers are those that `config` asks for.
async fn is_what(config: &ServicesConfig, record: &Record) -> bool {
    let database = match &config.database_url {
        Some(url) => *url == record.database_url,
        None => record.postgres_pid.is_some(),
    };
    let redis = match (&config.redis_url, &record.redis_url) {
        (Some(wanted), there) => there.as_ref() == Some(wanted),
        (None, Some(_)) => record.redis_pid.is_some(),
        (None, None) => services::find(Program::Redis, &config.surroundings)
            .await
            .is_err(),
    };
    database && redis
}

fn write_record(dir: &Path, record: &Record) -> Result<(), StartError> {
    let text = serde_json::to_string_pretty(record).expect("a record is plain data");
    write_private(&dir.join("services.json"), &text)?;
    write_private(&dir.join("env"), &env_lines(record))
}

fn recorded(dir: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(dir.join("services.json")).ok()?).ok()
}

fn env_lines(record: &Record) -> String {
    let redis = record
        .redis_url
        .as_ref()
        .map(|url| format!("{REDIS_VARIABLE}={url}\n"));
    format!(
        "{DATABASE_VARIABLE}={}\n{}",
        record.database_url,
        redis.unwrap_or_default()
    )
}

fn print_env(record: &Record) -> ExitCode {
    print!("{}", env_lines(record));
    ExitCode::SUCCESS
}

fn one_at_a_time(dir: &Path) -> Result<File, StartError> {
    let path = dir.join("up.lock");
    let file = lock_file(&path)?;
    file.lock().map_err(StartError::io("lock", &path))?;
    Ok(file)
}

/// Writes the addresses to the file that nextest names in `NEXTEST_ENV`; nothing to do when the
/// runner was started with them.
fn env(dir: &Path) -> Result<ExitCode, StartError> {
    use std::io::Write as _;

    if std::env::var_os(DATABASE_VARIABLE).is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    let Some(record) = recorded(dir).filter(Record::runs) else {
        eprintln!(
            "the test servers are not up: run `make test`, or `make services-up` before a series \
             of `cargo nextest run`"
        );
        return Ok(ExitCode::FAILURE);
    };
    let Some(path) = std::env::var_os("NEXTEST_ENV").map(PathBuf::from) else {
        return Ok(print_env(&record));
    };
    let opened = File::options().append(true).create(true).open(&path);
    opened
        .and_then(|mut file| file.write_all(env_lines(&record).as_bytes()))
        .map_err(StartError::io("write", &path))?;
    Ok(ExitCode::SUCCESS)
}

async fn find(program: &str) -> Result<ExitCode, StartError> {
    let program = if program == "redis" {
        Program::Redis
    } else {
        Program::Postgres
    };
    let found = services::find(program, &Surroundings::of_machine(Path::new("."))).await?;
    println!("{found}");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("nexus-test-services-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }

        fn config(&self) -> ServicesConfig {
            ServicesConfig::private(&self.0, Profile::Test, RedisNeed::Wanted)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn command(script: &str) -> Vec<OsString> {
        ["sh", "-c", script].map(OsString::from).to_vec()
    }

    async fn exits_with(config: ServicesConfig, script: &str, code: u8) {
        let ended = run(config, &command(script)).await.unwrap();
        assert_eq!(format!("{ended:?}"), format!("{:?}", ExitCode::from(code)));
    }

    #[tokio::test]
    async fn servers_stay_up_until_down_and_are_started_once() {
        let folder = Folder::new("kept");
        let first = up(folder.config()).await.unwrap();
        assert_eq!(
            up(folder.config()).await.unwrap(),
            first,
            "they run already"
        );
        let env = fs::read_to_string(folder.0.join("env")).unwrap();
        let redis_url = first.redis_url.as_deref().unwrap();
        assert_eq!(
            env,
            format!(
                "NEXUS_TEST_DATABASE_URL={}\nNEXUS_TEST_REDIS_URL={redis_url}\n",
                first.database_url
            )
        );
        exits_with(folder.config(), "exit 0", 0).await;
        assert!(first.runs(), "a person asked for them");
        down(&folder.0).await.unwrap();
        assert!(!first.runs());
        assert!(!folder.0.join("env").exists());
        down(&folder.0).await.unwrap();
    }

    #[tokio::test]
    async fn a_command_runs_with_the_addresses_and_nothing_is_left_after_it() {
        let folder = Folder::new("run");
        let out = folder.0.join("seen");
        let script = format!(
            "echo $NEXUS_TEST_DATABASE_URL $NEXUS_TEST_REDIS_URL > '{0}'; \
             cp '{1}' '{0}.record'; exit 7",
            out.display(),
            folder.0.join("services.json").display(),
        );
        exits_with(folder.config(), &script, 7).await;
        let record = fs::read(folder.0.join("seen.record")).unwrap();
        let record: Record = serde_json::from_slice(&record).unwrap();
        let redis_url = record.redis_url.as_deref().unwrap();
        assert_eq!(
            fs::read_to_string(&out).unwrap(),
            format!("{} {redis_url}\n", record.database_url)
        );
        assert!(!record.runs());
        exits_with(folder.config(), "kill -9 $$", 137).await;
    }

    async fn databases(client: &tokio_postgres::Client) -> Vec<String> {
        let rows = client
            .query(
                "SELECT datname::text FROM pg_database WHERE datname LIKE 'nexus_%' ORDER BY 1",
                &[],
            )
            .await
            .unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn connected(url: &str) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        client
    }

    #[tokio::test]
    async fn databases_of_killed_tests_are_reclaimed_at_the_next_start() {
        const LEFT: &str = "nexus_test_abcdefghij12";
        const IN_USE: &str = "nexus_test_0123456789ab";
        const OTHERS: [&str; 3] = [
            "nexus_template_0f",
            "nexus_test_mine",
            "nexus_test_of_somebody_else",
        ];
        let folder = Folder::new("reclaimed");
        let first = up(folder.config()).await.unwrap();
        let client = connected(&first.database_url).await;
        for name in [LEFT, IN_USE].iter().chain(&OTHERS) {
            client
                .batch_execute(&format!("CREATE DATABASE {name}"))
                .await
                .unwrap();
        }
        let (server, _) = first.database_url.rsplit_once('/').unwrap();
        let guest = connected(&format!("{server}/{IN_USE}")).await;
        // They run already: what is young may be a test's of another run.
        up(folder.config()).await.unwrap();
        assert_eq!(databases(&client).await.len(), 5);
        reclaim(&first, Duration::ZERO).await;
        let kept = databases(&client).await;
        assert!(!kept.iter().any(|name| name == LEFT), "{kept:?}");
        assert!(
            kept.iter().any(|name| name == IN_USE),
            "somebody is inside: {kept:?}"
        );
        drop((guest, client));
        down(&folder.0).await.unwrap();
        let second = up(folder.config()).await.unwrap();
        let client = connected(&second.database_url).await;
        assert_eq!(databases(&client).await, OTHERS, "nobody can be inside");
        drop(client);
        down(&folder.0).await.unwrap();
    }

    #[tokio::test]
    async fn one_that_died_is_noticed_and_both_are_started_anew() {
        let folder = Folder::new("died");
        let first = up(folder.config()).await.unwrap();
        let (pid, _) = first.redis_pid.unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        while first.runs() {
            tokio::task::yield_now().await;
        }
        let second = up(folder.config()).await.unwrap();
        assert!(second.runs());
        assert_ne!(second.redis_pid, first.redis_pid);
        down(&folder.0).await.unwrap();
    }

    #[tokio::test]
    async fn servers_in_use_are_neither_taken_down_nor_cleaned() {
        let folder = Folder::new("in-use");
        let dir = folder.0.join("root/test");
        let config = ServicesConfig {
            dir: dir.clone(),
            ..folder.config()
        };
        let record = ensure_up(config.clone()).await.unwrap();
        let using = lock_file(&dir.join("in-use")).unwrap();
        using.lock_shared().unwrap();
        for refused in [down(&dir).await, clean(&folder.0.join("root")).await] {
            assert!(
                matches!(refused, Err(StartError::InUse { .. })),
                "{refused:?}"
            );
        }
        exits_with(config.clone(), "exit 0", 0).await;
        assert!(record.runs(), "another run uses them");
        drop(using);
        exits_with(config.clone(), "exit 0", 0).await;
        assert!(!record.runs(), "the last one has left");

        let dev = folder.0.join("root/dev");
        let config = ServicesConfig {
            dir: dev.clone(),
            redis: RedisNeed::No,
            ..config
        };
        let held = Services::start(config).await.unwrap();
        let refused = clean(&folder.0.join("root")).await;
        assert!(
            matches!(refused, Err(StartError::InUse { .. })),
            "{refused:?}"
        );
        assert!(dev.join("secret").exists() && dir.join("secret").exists());
        let left = held.detach();
        clean(&folder.0.join("root")).await.unwrap();
        assert!(!left.runs() && !folder.0.join("root").exists());
    }
}
