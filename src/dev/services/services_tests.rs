//! Real servers in temporary folders. They need PostgreSQL; what needs Redis says so when it is
//! missing.

use std::fs;
use std::net::TcpStream;

use tokio_postgres::NoTls;

use super::account::new_temporary_folder;
use super::*;

/// A folder for one test, removed after it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        Folder(new_temporary_folder(0o755).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn private(folder: &Folder, profile: Profile, redis: RedisNeed) -> ServicesConfig {
    ServicesConfig::private(folder.0.join("services"), profile, redis)
}

fn postgres(services: &Services) -> &Postgres {
    match &services.postgres {
        Service::Ours(postgres) => postgres,
        other => panic!("not ours: {other:?}"),
    }
}

fn redis(services: &Services) -> &Redis {
    match &services.redis {
        Service::Ours(redis) => redis,
        other => panic!("not ours: {other:?}"),
    }
}

/// Runs one statement and gives its single value.
async fn ask(url: &str, statement: &str) -> Result<String, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let driver = tokio::spawn(connection);
    let messages = client.simple_query(statement).await;
    drop(client);
    driver.await.unwrap().unwrap_or_default();
    let value = messages?.into_iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    Ok(value.unwrap_or_default())
}

#[tokio::test]
async fn servers_start_answer_stop_and_keep_their_data() {
    let folder = Folder::new();
    let config = private(&folder, Profile::Dev, RedisNeed::Wanted);
    let services = Services::start(config.clone()).await.unwrap();
    let url = services.database_url();
    ask(&url, "CREATE TABLE kept AS SELECT 42 AS n")
        .await
        .unwrap();
    assert_eq!(ask(&url, "SHOW fsync").await.unwrap(), "on");
    let redis_url = services.redis_url().unwrap();
    let redis_pid = redis(&services).pid().unwrap();
    assert_eq!(redis::answering_pid(&redis_url).await, Ok(redis_pid));
    let postgres_pid = postgres(&services).pid().unwrap();

    services.stop().await;
    assert_eq!(process::command_line(postgres_pid), None);
    assert_eq!(process::command_line(redis_pid), None);

    let services = Services::start(config).await.unwrap();
    assert_eq!(
        ask(&services.database_url(), "SELECT n FROM kept")
            .await
            .unwrap(),
        "42"
    );
    services.stop().await;
}

#[tokio::test]
async fn a_stranger_on_the_machine_needs_the_password() {
    let folder = Folder::new();
    let config = private(&folder, Profile::Test, RedisNeed::Wanted);
    let services = Services::start(config).await.unwrap();
    let (scheme, rest) = services
        .database_url()
        .split_once("nexus:")
        .map(owned)
        .unwrap();
    let (_, address) = rest.split_once('@').map(owned).unwrap();
    let refused = ask(&format!("{scheme}nexus:wrong@{address}"), "SELECT 1")
        .await
        .unwrap_err();
    assert_eq!(
        refused.code(),
        Some(&tokio_postgres::error::SqlState::INVALID_PASSWORD)
    );
    let port = redis(&services).port();
    let refused = redis::answering_pid(&format!("redis://127.0.0.1:{port}/"))
        .await
        .unwrap_err();
    assert!(refused.to_lowercase().contains("auth"), "{refused}");
    services.stop().await;
}

fn owned((left, right): (&str, &str)) -> (String, String) {
    (left.to_owned(), right.to_owned())
}

#[tokio::test]
async fn servers_can_be_killed_and_started_again_on_their_ports() {
    let folder = Folder::new();
    let config = private(&folder, Profile::Test, RedisNeed::Wanted);
    let mut services = Services::start(config).await.unwrap();
    let (url, redis_url) = (services.database_url(), services.redis_url().unwrap());
    // A connection that is busy when its postmaster dies: its backend lives on for a while.
    let busy = tokio::spawn({
        let url = url.clone();
        async move { ask(&url, "SELECT pg_sleep(60)").await }
    });
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    while ask(&url, asleep).await.unwrap() != "1" {
        tokio::task::yield_now().await;
    }
    for mode in [StopMode::Kill, StopMode::Immediate, StopMode::Fast] {
        services.restart_postgres(mode).await.unwrap();
        assert_eq!(services.database_url(), url);
        assert_eq!(ask(&url, "SELECT 1").await.unwrap(), "1");
    }
    assert!(busy.await.unwrap().is_err(), "its connection was cut");

    services.stop_redis(StopMode::Kill).await.unwrap();
    redis::answering_pid(&redis_url).await.unwrap_err();
    services.start_redis().await.unwrap();
    redis::answering_pid(&redis_url).await.unwrap();
    services.stop().await;
}

#[tokio::test]
async fn a_paused_server_neither_answers_nor_hangs_up() {
    let folder = Folder::new();
    let config = private(&folder, Profile::Test, RedisNeed::Wanted);
    let mut services = Services::start(config).await.unwrap();
    let url = services.database_url();
    services.pause_postgres().unwrap();
    services.pause_redis().unwrap();
    let redis_url = services.redis_url().unwrap();
    let asked = async { tokio::join!(ask(&url, "SELECT 1"), redis::answering_pid(&redis_url)) };
    let mut asked = std::pin::pin!(asked);
    let early = tokio::time::timeout(std::time::Duration::from_millis(300), &mut asked).await;
    assert!(early.is_err(), "nobody answered yet");
    services.resume_postgres().unwrap();
    services.resume_redis().unwrap();
    let (answer, redis_answer) = asked.await;
    assert_eq!(answer.unwrap(), "1");
    redis_answer.unwrap();
    // Stopping a paused one must not wait for ever.
    services.pause_postgres().unwrap();
    services.stop().await;
}

#[tokio::test]
async fn what_a_killed_copy_left_behind_is_ended_by_the_next_start() {
    let folder = Folder::new();
    let config = private(&folder, Profile::Dev, RedisNeed::Wanted);
    let services = Services::start(config.clone()).await.unwrap();
    ask(
        &services.database_url(),
        "CREATE TABLE kept AS SELECT 42 AS n",
    )
    .await
    .unwrap();
    let ports = (postgres(&services).port(), redis(&services).port());
    let left = services.detach();
    assert!(left.runs());

    let services = Services::start(config).await.unwrap();
    assert!(!left.runs(), "the old ones are gone");
    assert_eq!((postgres(&services).port(), redis(&services).port()), ports);
    assert_eq!(
        ask(&services.database_url(), "SELECT n FROM kept")
            .await
            .unwrap(),
        "42"
    );
    services.stop().await;
}

#[tokio::test]
async fn a_pid_file_left_by_a_crash_does_not_block_the_start_when_a_stranger_has_the_id() {
    let folder = Folder::new();
    let config = private(&folder, Profile::Dev, RedisNeed::No);
    let mut services = Services::start(config.clone()).await.unwrap();
    let pid_file = postgres(&services).data().join("postmaster.pid");
    services.stop_postgres(StopMode::Kill).await.unwrap();
    let left = fs::read_to_string(&pid_file).unwrap();
    services.stop().await;

    let mut stranger = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let (_, rest) = left.split_once('\n').unwrap();
    fs::write(&pid_file, format!("{}\n{rest}", stranger.id())).unwrap();
    let services = Services::start(config).await.unwrap();
    assert!(
        stranger.try_wait().unwrap().is_none(),
        "the stranger was left alone"
    );
    services.stop().await;
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn two_dev_copies_run_beside_each_other() {
    let folder = Folder::new();
    let config = private(&folder, Profile::Dev, RedisNeed::No);
    let first = Services::start(config.clone()).await.unwrap();
    let second = Services::start(config).await.unwrap();
    assert_ne!(first.dir(), second.dir());
    for services in [&first, &second] {
        assert_eq!(
            ask(&services.database_url(), "SELECT 1").await.unwrap(),
            "1"
        );
    }
    first.stop().await;
    assert_eq!(ask(&second.database_url(), "SELECT 1").await.unwrap(), "1");
    second.stop().await;
}

#[tokio::test]
async fn a_start_that_fails_half_way_leaves_nothing_running() {
    let folder = Folder::new();
    let config = private(&folder, Profile::Test, RedisNeed::Wanted);
    // PostgreSQL comes up first; then its data cannot be opened, and Redis must go with it.
    Services::start(config.clone()).await.unwrap().stop().await;
    let data = folder.0.join("services/postgres");
    fs::remove_file(data.join("global/pg_control")).unwrap();
    let fault = Services::start(config.clone()).await.unwrap_err();
    assert!(
        matches!(
            fault,
            StartError::DidNotStart {
                name: "PostgreSQL",
                ..
            }
        ),
        "{fault}"
    );
    assert!(
        fault.one_line().contains("pg_control"),
        "{}",
        fault.one_line()
    );
    let left = fs::read_to_string(folder.0.join("services/redis/redis.conf")).unwrap();
    let port = left
        .lines()
        .find_map(|line| line.strip_prefix("port "))
        .unwrap();
    let port: u16 = port.parse().unwrap();
    assert!(
        TcpStream::connect(("127.0.0.1", port)).is_err(),
        "Redis is gone"
    );
}

#[tokio::test]
async fn dropped_services_are_ended() {
    let folder = Folder::new();
    let config = private(&folder, Profile::Test, RedisNeed::Wanted);
    let services = Services::start(config).await.unwrap();
    let pids = [postgres(&services).pid(), redis(&services).pid()].map(Option::unwrap);
    drop(services);
    assert_eq!(pids.map(process::command_line), [None, None]);
}

#[tokio::test]
async fn a_long_path_with_blanks_and_quotes_is_no_obstacle() {
    let folder = Folder::new();
    let long = folder
        .0
        .join("it's a \"long\" name ".repeat(4))
        .join("b".repeat(80));
    let config = ServicesConfig::private(long, Profile::Test, RedisNeed::Wanted);
    let services = Services::start(config).await.unwrap();
    assert_eq!(
        ask(&services.database_url(), "SELECT 1").await.unwrap(),
        "1"
    );
    let note = services.home.join("sockets-are-in");
    let sockets = PathBuf::from(fs::read_to_string(note).unwrap().trim_end());
    assert!(sockets.is_dir());
    services.stop().await;
    assert!(!sockets.exists(), "what lies outside is removed");
}

#[tokio::test]
async fn a_given_address_is_used_and_its_server_left_alone() {
    let folder = Folder::new();
    let config = ServicesConfig {
        database_url: Some("postgres://given/db".to_owned()),
        redis_url: Some("redis://given/".to_owned()),
        ..private(&folder, Profile::Dev, RedisNeed::Optional)
    };
    let mut services = Services::start(config).await.unwrap();
    assert_eq!(services.database_url(), "postgres://given/db");
    assert_eq!(services.redis_url().as_deref(), Some("redis://given/"));
    let refused = services.restart_postgres(StopMode::Kill).await.unwrap_err();
    assert!(matches!(refused, StartError::NotOurs { .. }), "{refused}");
    services.stop().await;
}

#[tokio::test]
async fn without_redis_an_optional_one_is_absent_and_a_wanted_one_is_named() {
    let folder = Folder::new();
    let mut config = ServicesConfig {
        database_url: Some("postgres://given/db".to_owned()),
        ..private(&folder, Profile::Dev, RedisNeed::Optional)
    };
    config.surroundings.path.clear();
    config.surroundings.homebrew.clear();
    config.surroundings.redis_bin = None;
    config.surroundings.venv = folder.0.join("no-venv");
    assert_eq!(
        Services::start(config.clone()).await.unwrap().redis_url(),
        None
    );
    config.redis = RedisNeed::Wanted;
    let fault = Services::start(config).await.unwrap_err();
    assert!(
        matches!(
            fault,
            StartError::NotFound {
                program: Program::Redis,
                ..
            }
        ),
        "{fault}"
    );
}

#[tokio::test]
async fn as_root_servers_run_as_somebody_else_even_below_a_closed_folder() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let folder = Folder::new();
    let config = private(&folder, Profile::Test, RedisNeed::Wanted);
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    let services = Services::start(config.clone()).await.unwrap();
    assert_eq!(
        ask(&services.database_url(), "SELECT 1").await.unwrap(),
        "1"
    );
    let home = services.home.clone();
    let owner = fs::metadata(postgres(&services).data()).unwrap().uid();
    if rustix::process::geteuid().is_root() {
        assert_ne!(owner, 0);
        assert!(
            !home.starts_with(&folder.0),
            "{} is out of reach",
            home.display()
        );
    } else {
        assert_eq!(owner, rustix::process::geteuid().as_raw());
        assert!(home.starts_with(&folder.0));
    }
    services.stop().await;
    // The next start finds the same place.
    let services = Services::start(config).await.unwrap();
    assert_eq!(services.home, home);
    services.stop().await;
    fs::remove_dir_all(home).unwrap();
}
