//! A private Redis or Valkey: started, restarted on its port, ended. It keeps nothing on disk, since
//! what it holds are hints.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::Instant;

use super::account::Account;
use super::postgres::tail;
use super::process::{self, Running, Signal};
use super::{StartError, StopMode, port, secret};

const NAME: &str = "Redis";
const READY_WITHIN: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_millis(10);

/// The Redis in one home folder.
#[derive(Debug)]
pub(super) struct Redis {
    program: PathBuf,
    account: Account,
    folder: PathBuf,
    log: PathBuf,
    secret: String,
    port: u16,
    running: Option<Running>,
}

fn folder_in(home: &Path) -> PathBuf {
    home.join("redis")
}

/// The file a Redis in `home` is configured by.
pub(super) fn config_in(home: &Path) -> PathBuf {
    folder_in(home).join("redis.conf")
}

/// Ends a Redis that still runs in `home`. Only the holder of the slot calls this.
pub(super) async fn end_left_behind(home: &Path) {
    let config = config_in(home);
    let pid_file = folder_in(home).join("redis.pid");
    let recorded = fs::read_to_string(pid_file)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let (Some(pid), Some(port)) = (recorded, port_in(&config)) else {
        return;
    };
    let ours = |line: &str| is_redis_of(line, &config, port);
    if process::end_stranger(pid, Signal::TERM, PATIENCE, ours).await {
        tracing::info!(pid, "ended a Redis that an earlier copy left behind");
    }
}

/// Whether a command line is that of the Redis with this configuration: it keeps its arguments, or
/// puts its address in their place.
pub(super) fn is_redis_of(line: &str, config: &Path, port: u16) -> bool {
    let program = ["redis", "valkey"].iter().any(|name| line.contains(name));
    let address = format!("127.0.0.1:{port}");
    let arguments = line.split_ascii_whitespace();
    program
        && (line.contains(&*config.to_string_lossy())
            || arguments.into_iter().any(|argument| argument == address))
}

fn port_in(config: &Path) -> Option<u16> {
    let text = fs::read_to_string(config).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("port "))?
        .trim()
        .parse()
        .ok()
}

impl Redis {
    /// Starts it, on its last port if that is free.
    pub(super) async fn start(
        program: PathBuf,
        account: Account,
        home: &Path,
    ) -> Result<Redis, StartError> {
        let folder = folder_in(home);
        account.private_folder(&folder)?;
        let mut redis = Redis {
            program,
            account,
            folder,
            log: home.join("redis.log"),
            secret: secret::kept_in(&home.join("secret"))?,
            port: port::free(port_in(&config_in(home)))?,
            running: None,
        };
        redis.run(true).await?;
        Ok(redis)
    }

    /// `redis://:password@127.0.0.1:port/`.
    pub(super) fn url(&self) -> String {
        format!("redis://:{}@127.0.0.1:{}/", self.secret, self.port)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder.join("redis.conf")
    }

    /// Ends it. Nothing happens when it does not run.
    pub(super) async fn stop(&mut self, mode: StopMode) {
        if let Some(running) = self.running.take() {
            running
                .end(if mode == StopMode::Kill {
                    Signal::KILL
                } else {
                    Signal::TERM
                })
                .await;
        }
    }

    /// Starts it again on the same port, empty. Nothing happens when it runs.
    pub(super) async fn start_again(&mut self) -> Result<(), StartError> {
        let alive = self
            .running
            .as_mut()
            .is_some_and(|running| running.ended().is_none());
        if alive {
            return Ok(());
        }
        self.running = None;
        self.run(false).await
    }

    /// Stops or continues it.
    pub(super) fn signal(&mut self, signal: Signal) {
        if let Some(running) = &mut self.running {
            running.signal(signal);
        }
    }

    /// Lets it live on without us.
    pub(super) fn release(mut self) {
        if let Some(running) = self.running.take() {
            running.release();
        }
    }

    async fn run(&mut self, any_port: bool) -> Result<(), StartError> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            self.account
                .private_file(&self.config(), &self.config_text())?;
            let mut running = Running::start(self.command(), &self.log, Signal::TERM, PATIENCE)?;
            let why = match self.until_ready(&mut running, deadline).await {
                Ok(()) => {
                    self.running = Some(running);
                    return Ok(());
                }
                Err(why) => why,
            };
            match why.contains("Address already in use") || why.contains("Failed listening") {
                true if any_port => self.port = port::free(None)?,
                true if Instant::now() < deadline => tokio::time::sleep(ASK_EVERY).await,
                _ => {
                    return Err(StartError::DidNotStart {
                        name: NAME,
                        why,
                        log: self.log.clone(),
                    });
                }
            }
        }
    }

    fn config_text(&self) -> String {
        let (port, secret) = (self.port, &self.secret);
        let folder = quoted(&self.folder);
        let pid_file = quoted(&self.folder.join("redis.pid"));
        format!(
            "bind 127.0.0.1\nport {port}\nrequirepass {secret}\ndir {folder}\npidfile {pid_file}\n\
             daemonize no\nsave \"\"\nappendonly no\n"
        )
    }

    fn command(&self) -> Command {
        let mut command = self.account.command(&self.program, &self.folder);
        command.arg(self.config());
        command
    }

    /// Waits until it answers to its password; the reason when that will not be.
    async fn until_ready(&self, running: &mut Running, deadline: Instant) -> Result<(), String> {
        loop {
            if running.ended().is_some() {
                return Err(tail(&self.log));
            }
            match answering_pid(&self.url()).await {
                Ok(pid) if pid == running.pid() => return Ok(()),
                answer if Instant::now() >= deadline => {
                    let waited = READY_WITHIN.as_secs();
                    return Err(format!("no answer within {waited} s: {answer:?}"));
                }
                _ => tokio::time::sleep(ASK_EVERY).await,
            }
        }
    }
}

/// The process id of the server that answers at `url`.
pub(super) async fn answering_pid(url: &str) -> Result<u32, String> {
    let ask = async {
        let client = redis::Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd("INFO")
            .arg("server")
            .query_async::<String>(&mut connection)
            .await
    };
    let text = tokio::time::timeout(Duration::from_secs(5), ask)
        .await
        .map_err(|_| "it does not answer".to_owned())?
        .map_err(|fault| fault.to_string())?;
    pid_in(&text).ok_or_else(|| "it does not tell its process id".to_owned())
}

fn pid_in(info: &str) -> Option<u32> {
    info.lines()
        .find_map(|line| line.strip_prefix("process_id:"))?
        .trim()
        .parse()
        .ok()
}

/// A path as a quoted argument of a Redis configuration file.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_is_known_by_its_configuration_or_its_address() {
        let config = Path::new("/x/redis/redis.conf");
        let ours = |line| is_redis_of(line, config, 15_001);
        assert!(ours("/usr/bin/redis-server 127.0.0.1:15001"));
        assert!(ours("/opt/valkey-server /x/redis/redis.conf"));
        assert!(!ours("/usr/bin/redis-server 127.0.0.1:1500"));
        assert!(!ours("/usr/bin/redis-server *:6379"));
        assert!(!ours("vi /x/notes 127.0.0.1:15001"));
    }

    #[test]
    fn the_process_id_is_read_from_what_the_server_tells() {
        assert_eq!(
            pid_in("# Server\r\nprocess_id:42\r\nrun_id:7\r\n"),
            Some(42)
        );
        assert_eq!(pid_in("# Server\r\n"), None);
    }

    #[test]
    fn a_path_with_blanks_and_quotes_stays_one_argument() {
        assert_eq!(quoted(Path::new("/a b/\"c\"")), r#""/a b/\"c\"""#);
    }
}
