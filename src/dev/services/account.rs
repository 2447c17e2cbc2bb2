//! Under which account a service runs, and where that account can keep its data.
//!
//! PostgreSQL refuses to run as root. As root we drop to `nobody`, who owns the data then; a data
//! folder that somebody else owns already is served as that owner, so `sudo` changes nothing.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::StartError;
use super::secret;

/// `nobody` on Linux, used when `/etc/passwd` does not say otherwise.
const NOBODY: (u32, u32) = (65534, 65534);

/// Names, in the folder that was asked for, the folder that holds the data instead.
const ELSEWHERE: &str = "data-is-in";

/// How the names of our temporary folders begin.
const TEMPORARY_PREFIX: &str = "nexus-";

/// The account a service runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// The caller's own.
    Own,
    /// Another one; only root can do this.
    Other {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
}

impl Account {
    /// The account for data in `data`, which need not exist yet.
    pub(super) fn for_data(data: &Path) -> Account {
        if !rustix::process::geteuid().is_root() {
            return Account::Own;
        }
        let owner = fs::metadata(data).ok().filter(|meta| meta.uid() != 0);
        let nobody = || nobody_in(&fs::read_to_string("/etc/passwd").unwrap_or_default());
        let (uid, gid) = owner.map_or_else(nobody, |meta| (meta.uid(), meta.gid()));
        Account::Other { uid, gid }
    }

    /// A command that runs under this account, with no input, deaf to the terminal's Ctrl-C, and
    /// blind to `PG*` variables that would redirect it.
    pub(super) fn command(self, program: &Path, work_in: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(work_in)
            .stdin(std::process::Stdio::null())
            .process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C");
        if let Account::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Makes `path` belong to the account.
    pub(super) fn own(self, path: &Path) -> Result<(), StartError> {
        match self {
            Account::Own => Ok(()),
            Account::Other { uid, gid } => std::os::unix::fs::chown(path, Some(uid), Some(gid))
                .map_err(StartError::io("give away", path)),
        }
    }

    /// Creates `folder` for the account alone, or takes the one that is there.
    pub(super) fn private_folder(self, folder: &Path) -> Result<(), StartError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(StartError::io("create", folder))?;
        self.own(folder)
    }

    /// Writes a file that the account alone can read.
    pub(super) fn private_file(self, path: &Path, content: &str) -> Result<(), StartError> {
        write_private(path, content)?;
        self.own(path)
    }

    /// Whether the account may enter every folder down to `path` (by the permission bits).
    pub(super) fn reaches(self, path: &Path) -> bool {
        let Account::Other { uid, gid } = self else {
            return true;
        };
        let Ok(path) = fs::canonicalize(path) else {
            return false;
        };
        path.ancestors()
            .all(|folder| fs::metadata(folder).is_ok_and(|meta| may_enter(&meta, uid, gid)))
    }
}

fn may_enter(meta: &fs::Metadata, uid: u32, gid: u32) -> bool {
    let bit = match (meta.uid() == uid, meta.gid() == gid) {
        (true, _) => 0o100,
        (_, true) => 0o010,
        _ => 0o001,
    };
    meta.permissions().mode() & bit != 0
}

/// Writes a file that only its owner can read, whatever was there before.
pub(in crate::dev) fn write_private(path: &Path, content: &str) -> Result<(), StartError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    let write = || {
        let _ = fs::remove_file(path);
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(content.as_bytes())
    };
    write().map_err(StartError::io("write", path))
}

/// User and group of `nobody` in the text of a passwd file.
fn nobody_in(passwd: &str) -> (u32, u32) {
    // macOS writes -2, which is the same 32 bits.
    let id = |text: &str| {
        text.parse::<i64>()
            .ok()
            .and_then(|n| u32::try_from(n & 0xffff_ffff).ok())
    };
    passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&"nobody"))
        .and_then(|fields| Some((id(fields.get(2)?)?, id(fields.get(3)?)?)))
        .filter(|(uid, _)| *uid != 0)
        .unwrap_or(NOBODY)
}

/// The folder that holds the data of `dir`: `dir` itself, or, where `nobody` cannot get there (a
/// checkout below `/root`), a folder in the system's temporary place that `dir` names.
pub(super) fn home_of(dir: &Path) -> Result<PathBuf, StartError> {
    let note = dir.join(ELSEWHERE);
    if let Some(recorded) = recorded_home(&note) {
        return Ok(recorded);
    }
    if Account::for_data(&super::postgres::data_in(dir)).reaches(dir) {
        return Ok(dir.to_owned());
    }
    let home = new_temporary_folder(0o711)?;
    write_private(&note, &format!("{}\n", home.display()))?;
    Ok(home)
}

/// What an earlier start recorded, if it is still there and still ours.
fn recorded_home(note: &Path) -> Option<PathBuf> {
    let home = named_in(note)?;
    let meta = fs::symlink_metadata(&home).ok()?;
    let ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    ours.then_some(home)
}

/// The temporary folder that a note names. Such folders are emptied and removed one day, so a note
/// that names any other place is not believed.
pub(super) fn named_in(note: &Path) -> Option<PathBuf> {
    let folder = PathBuf::from(fs::read_to_string(note).ok()?.trim_end());
    let named_so = folder.file_name()?.to_str()?.starts_with(TEMPORARY_PREFIX);
    (named_so && folder.parent()? == temporary_place()).then_some(folder)
}

/// Where temporary folders lie: in the place that survives a reboot, if there is one.
fn temporary_place() -> PathBuf {
    let lasting = Path::new("/var/tmp");
    if lasting.is_dir() {
        lasting.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// A new folder under an unguessable name in the temporary place.
pub(super) fn new_temporary_folder(mode: u32) -> Result<PathBuf, StartError> {
    let name = format!("{TEMPORARY_PREFIX}{}", &secret::mint()?[..12]);
    let folder = temporary_place().join(name);
    fs::DirBuilder::new()
        .mode(mode)
        .create(&folder)
        .map_err(StartError::io("create", &folder))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_read_from_the_passwd_file_of_linux_and_of_macos() {
        let linux = "root:x:0:0:root:/root:/bin/sh\nnobody:x:99:98::/:/sbin/nologin\n";
        assert_eq!(nobody_in(linux), (99, 98));
        let macos = "##\nnobody:*:-2:-2:Unprivileged User:/var/empty:/usr/bin/false\n";
        assert_eq!(nobody_in(macos), (4_294_967_294, 4_294_967_294));
        assert_eq!(nobody_in(""), NOBODY);
        assert_eq!(nobody_in("nobody:x:0:0::/:/bin/sh"), NOBODY, "never root");
    }

    #[test]
    fn a_stranger_does_not_reach_what_lies_below_a_private_folder() {
        let top = new_temporary_folder(0o755).unwrap();
        let inner = top.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let stranger = Account::Other {
            uid: 4_000_000,
            gid: 4_000_000,
        };
        assert!(stranger.reaches(&inner));
        fs::set_permissions(top.join("a"), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!stranger.reaches(&inner));
        assert!(Account::Own.reaches(&inner));
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_recorded_home_is_used_only_when_it_is_ours_and_temporary() {
        let top = new_temporary_folder(0o755).unwrap();
        let real = new_temporary_folder(0o711).unwrap();
        let note = top.join(ELSEWHERE);
        let named = |path: &Path| {
            write_private(&note, &format!("{}\n", path.display())).unwrap();
            recorded_home(&note)
        };
        assert_eq!(recorded_home(&note), None, "there is no note");
        assert_eq!(named(&real), Some(real.clone()));
        assert_eq!(named(&real.with_extension("gone")), None);
        let link = real.with_extension("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(named(&link), None);
        fs::create_dir(top.join("nexus-inner")).unwrap();
        assert_eq!(named(&top.join("nexus-inner")), None);
        assert_eq!(named(Path::new("/")), None);
        assert_eq!(named(&real.join("..")), None);
        fs::remove_file(link).unwrap();
        fs::remove_dir_all(real).unwrap();
        fs::remove_dir_all(top).unwrap();
    }
}
