//! The files that a postmaster leaves behind.

use super::*;
use crate::dev::services::account::new_temporary_folder;

#[test]
fn a_postmaster_is_known_by_its_whole_data_folder() {
    let data = Path::new("/x/dev/postgres");
    let ours = |line| is_postmaster_of(line, data);
    assert!(ours(
        "/usr/lib/postgresql/15/bin/postgres -D /x/dev/postgres -p 15000"
    ));
    assert!(!ours(
        "/usr/lib/postgresql/15/bin/postgres -D /x/dev/postgres-2 -p 15000"
    ));
    assert!(!ours(
        "/usr/lib/postgresql/15/bin/postgres -D /x/dev -p 15000"
    ));
    assert!(!ours("vi /x/dev/postgres"));
}

#[test]
fn a_pid_file_that_names_a_stranger_is_disarmed_and_keeps_the_rest() {
    let data = new_temporary_folder(0o700).unwrap();
    let file = data.join("postmaster.pid");
    disarm_stale_pid_file(&data).unwrap();
    assert!(!file.exists());

    let mut stranger = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let rest = "/x/dev/postgres\n1700000000\n15000\n/x/s\n127.0.0.1\n  123456  7\nready\n";
    let disarmed = format!("{}\n{rest}", std::process::id());
    fs::write(&file, format!("{}\n{rest}", stranger.id())).unwrap();
    disarm_stale_pid_file(&data).unwrap();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), disarmed);
    fs::remove_dir_all(data).unwrap();
}

#[test]
fn obstacles_that_pass_are_told_from_real_ones() {
    let taken = "could not bind IPv4 address \"127.0.0.1\": Address already in use";
    assert_eq!(Obstacle::in_log(taken), Some(Obstacle::PortTaken));
    let old = "FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use";
    assert_eq!(Obstacle::in_log(old), Some(Obstacle::OldBackends));
    assert_eq!(
        Obstacle::in_log("FATAL:  data directory has wrong ownership"),
        None
    );
}
