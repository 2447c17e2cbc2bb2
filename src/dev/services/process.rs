//! A server process that we started, and processes that an earlier copy of us left behind.
//!
//! Invariant: a signal goes only to a child we still hold, or to a process whose command line
//! proves that it is the one we started. A process id read from a file proves nothing alone.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;

pub(super) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use tokio::process::Command;
use tokio::time::Instant;

use super::StartError;

/// How often a process is asked whether it has ended; only pace, nothing depends on it.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running child. Dropped, it is asked to stop, waited for, and killed if it does not.
#[derive(Debug)]
pub(super) struct Running {
    child: Option<Child>,
    stop_with: Signal,
    patience: Duration,
}

impl Running {
    /// Starts a command whose output goes to `log`. `stop_with` asks it to end, which it has
    /// `patience` to do.
    pub(super) fn start(
        mut command: Command,
        log: &Path,
        stop_with: Signal,
        patience: Duration,
    ) -> Result<Running, StartError> {
        let open = || -> std::io::Result<_> {
            let mut options = fs::OpenOptions::new();
            let file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(log)?;
            Ok((file.try_clone()?, file))
        };
        let (out, err) = open().map_err(StartError::io("write", log))?;
        command.stdout(out).stderr(err);
        let program = command.as_std().get_program().to_owned();
        // The runtime's child would need the runtime to be alive when this is dropped.
        let child = command
            .as_std_mut()
            .spawn()
            .map_err(StartError::io("start", Path::new(&program)))?;
        Ok(Running {
            child: Some(child),
            stop_with,
            patience,
        })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child
            .as_ref()
            .expect("held until stopped or released")
            .id()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child
            .as_mut()
            .and_then(|child| child.try_wait().ok().flatten())
    }

    /// Sends a signal; nothing happens when it has ended.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() && self.child.is_some() {
            send(self.pid(), signal);
        }
    }

    /// Lets it and its children go on if they were paused: they would not hear a request.
    fn wake(&mut self) {
        if self.child.is_some() && self.ended().is_none() {
            signal_family(self.pid(), Signal::CONT);
        }
    }

    /// Ends it with `signal`, by force when its patience runs out, and waits until it is gone.
    pub(super) async fn end(mut self, signal: Signal) {
        self.wake();
        self.signal(signal);
        let deadline = Instant::now() + self.patience;
        while self.ended().is_none() && Instant::now() < deadline {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.signal(Signal::KILL);
        // Killed or ended: this waits for the system alone.
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }

    /// Lets it live on without us.
    pub(super) fn release(mut self) {
        self.child = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.wake();
        self.signal(self.stop_with);
        let looks = self.patience.as_millis() / LOOK_EVERY.as_millis();
        for _ in 0..looks {
            if self.child.is_none() || self.ended().is_some() {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.signal(Signal::KILL);
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The only failure is that it has just ended, which is what a caller wants anyway.
        let _ = kill_process(pid, signal);
    }
}

/// The command line of a live process, its arguments parted by spaces; `None` when there is none.
pub(super) fn command_line(pid: u32) -> Option<String> {
    let text = if Path::new("/proc/self/cmdline").exists() {
        String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).ok()?).replace('\0', " ")
    } else {
        let mut ps = std::process::Command::new("ps");
        let output = ps
            .args(["-ww", "-o", "command=", "-p", &pid.to_string()])
            .output()
            .ok()?;
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The live children of a process.
pub(super) fn children_of(parent: u32) -> Vec<u32> {
    let mut ps = std::process::Command::new("ps");
    let listing = match fs::read_dir("/proc/self") {
        Ok(_) => parents_from_proc(),
        Err(_) => ps
            .args(["-A", "-o", "pid=,ppid="])
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default(),
    };
    children_in(&listing, parent)
}

fn parents_from_proc() -> String {
    let mut listing = String::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // `pid (name) state ppid …`, and the name may hold spaces and parentheses.
        let Some((before, after)) = stat.rsplit_once(')') else {
            continue;
        };
        let pid = before.split(' ').next().unwrap_or_default();
        let parent = after.split_ascii_whitespace().nth(1).unwrap_or_default();
        listing += &format!("{pid} {parent}\n");
    }
    listing
}

fn children_in(listing: &str, parent: u32) -> Vec<u32> {
    let pair = |line: &str| -> Option<(u32, u32)> {
        let mut numbers = line.split_ascii_whitespace();
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    };
    let pairs = listing.lines().filter_map(pair);
    pairs
        .filter(|(_, of)| *of == parent)
        .map(|(pid, _)| pid)
        .collect()
}

/// Sends `signal` to a process and all its children: the parent first, so that it starts no more.
pub(super) fn signal_family(parent: u32, signal: Signal) {
    send(parent, signal);
    for child in children_of(parent) {
        send(child, signal);
    }
}

/// Ends the process `pid` that is not our child, if `proof` accepts its command line; by force
/// after `patience`. Returns whether there was such a process.
pub(super) async fn end_stranger(
    pid: u32,
    signal: Signal,
    patience: Duration,
    proof: impl Fn(&str) -> bool,
) -> bool {
    let proven = || command_line(pid).is_some_and(|line| proof(&line));
    if !proven() {
        return false;
    }
    // A paused process would not hear the request.
    signal_family(pid, Signal::CONT);
    send(pid, signal);
    let deadline = Instant::now() + patience;
    let mut forced = false;
    while proven() {
        if !forced && Instant::now() >= deadline {
            send(pid, Signal::KILL);
            forced = true;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> std::process::Child {
        std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap()
    }

    #[test]
    fn children_are_read_from_pairs_of_ids() {
        assert_eq!(
            children_in(" 10 1\n 11 10\n12 10\nnonsense\n", 10),
            [11, 12]
        );
    }

    #[tokio::test]
    async fn a_process_that_is_not_proven_ours_is_left_alone() {
        let mut child = sleeper();
        let patience = Duration::from_secs(5);
        let ended = end_stranger(child.id(), Signal::KILL, patience, |line| {
            line.contains("postgres")
        });
        assert!(!ended.await);
        assert!(
            children_of(std::process::id()).contains(&child.id()),
            "it still lives"
        );
        let ours = |line: &str| line.starts_with("sleep 1000");
        assert!(end_stranger(child.id(), Signal::TERM, patience, ours).await);
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_process_deaf_to_the_request_is_ended_by_force() {
        let folder = std::env::temp_dir();
        let log = folder.join(format!("nexus-process-test-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"]);
        let mut running =
            Running::start(command, &log, Signal::TERM, Duration::from_millis(200)).unwrap();
        while fs::read_to_string(&log).unwrap() != "deaf\n" {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert!(running.ended().is_none());
        let pid = running.pid();
        running.end(Signal::TERM).await;
        assert_eq!(command_line(pid), None);
        fs::remove_file(log).unwrap();
    }
}
