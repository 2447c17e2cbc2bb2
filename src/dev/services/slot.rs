//! A folder that one process at a time may run services in.
//!
//! Held by a lock on a file in it, which the system releases however the holder ends, so nothing
//! stale can block the next start.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use super::{Profile, StartError};

/// How many copies of `nexus dev` run beside each other in one checkout.
const COPIES: u32 = 9;

/// A folder, held.
#[derive(Debug)]
pub(super) struct Slot {
    /// The folder, as an absolute path without links.
    pub(super) dir: PathBuf,
    _lock: File,
}

impl Slot {
    /// Takes `dir`; for `nexus dev`, when a running copy holds it, the next of `dir-2`, `dir-3`, …
    /// that is free.
    pub(super) fn take(dir: &Path, profile: Profile) -> Result<Slot, StartError> {
        let copies = if profile == Profile::Dev { COPIES } else { 1 };
        for copy in 1..=copies {
            if let Some(slot) = Slot::try_take(&beside(dir, copy))? {
                return Ok(slot);
            }
        }
        Err(StartError::InUse {
            dir: dir.to_owned(),
        })
    }

    fn try_take(dir: &Path) -> Result<Option<Slot>, StartError> {
        fs::create_dir_all(dir).map_err(StartError::io("create", dir))?;
        let dir = fs::canonicalize(dir).map_err(StartError::io("enter", dir))?;
        let path = dir.join("lock");
        let lock = lock_file(&path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Slot { dir, _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(fault)) => Err(StartError::io("lock", &path)(fault)),
        }
    }
}

fn beside(dir: &Path, copy: u32) -> PathBuf {
    if copy == 1 {
        return dir.to_owned();
    }
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{copy}"));
    dir.with_file_name(name)
}

/// Opens a file to lock, and creates it at the first time.
pub(in crate::dev) fn lock_file(path: &Path) -> Result<File, StartError> {
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    file.map_err(StartError::io("open", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::services::account::new_temporary_folder;

    #[test]
    fn a_second_dev_copy_gets_the_folder_beside() {
        let top = new_temporary_folder(0o755).unwrap();
        let dir = top.join("dev");
        let first = Slot::take(&dir, Profile::Dev).unwrap();
        let second = Slot::take(&dir, Profile::Dev).unwrap();
        assert_eq!(first.dir, fs::canonicalize(&dir).unwrap());
        assert_eq!(second.dir, fs::canonicalize(top.join("dev-2")).unwrap());
        drop(first);
        assert_eq!(
            Slot::take(&dir, Profile::Dev).unwrap().dir,
            fs::canonicalize(&dir).unwrap()
        );
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_second_test_copy_is_refused_by_name() {
        let top = new_temporary_folder(0o755).unwrap();
        let _held = Slot::take(&top, Profile::Test).unwrap();
        let refused = Slot::take(&top, Profile::Test).unwrap_err().one_line();
        assert_eq!(
            refused,
            format!(
                "{} is in use by another running copy: stop that one first",
                top.display()
            )
        );
        fs::remove_dir_all(top).unwrap();
    }
}
