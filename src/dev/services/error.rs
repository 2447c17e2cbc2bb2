//! Why a private service could not be started or changed: one sentence a person can act on.

use std::path::{Path, PathBuf};

use super::find::{PassedOver, Program};

/// Why services were not started, stopped or restarted.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No usable server program on this machine. One line: what to install, what was passed over.
    #[error("{}", not_found(*program, passed_over))]
    NotFound {
        /// The program that is missing.
        program: Program,
        /// What was looked at and why it does not do.
        passed_over: Vec<PassedOver>,
    },
    /// The data were written by a major version that is not installed (any more).
    #[error(
        "the data in {} were written by PostgreSQL {written_by}, which is not installed ({}): \
         install it, or remove the data with `make clean-data`",
        data.display(), reasons(passed_over)
    )]
    OtherMajor {
        /// The data folder.
        data: PathBuf,
        /// The major version in its `PG_VERSION`.
        written_by: u32,
        /// What was looked at and why it does not do.
        passed_over: Vec<PassedOver>,
    },
    /// Another copy holds this folder (and, for `nexus dev`, all folders beside it).
    #[error("{} is in use by another running copy: stop that one first", dir.display())]
    InUse {
        /// The folder that was asked for.
        dir: PathBuf,
    },
    /// The program ran and gave up.
    #[error("{name} did not start: {why}; its log is {}", log.display())]
    DidNotStart {
        /// `PostgreSQL`, `initdb`, `Redis`.
        name: &'static str,
        /// The last lines it wrote, or what was waited for in vain.
        why: String,
        /// Where it wrote them.
        log: PathBuf,
    },
    /// The service was given by an address (`DATABASE_URL`), so it is not ours to stop or restart.
    #[error("{name} was given by {variable}: it is not ours to stop or restart")]
    NotOurs {
        /// `PostgreSQL` or `Redis`.
        name: &'static str,
        /// The variable that gave it.
        variable: &'static str,
    },
    /// Somebody asked the program to stop while the services were starting.
    #[error("interrupted while the services were starting")]
    Interrupted,
    /// A file or process operation failed.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried, as a verb: `create`, `write`.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

impl StartError {
    pub(in crate::dev) fn io(
        what: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> StartError + use<> {
        let path = path.to_owned();
        move |source| StartError::Io { what, path, source }
    }

    /// The message with its cause, on one line, for a terminal.
    #[must_use]
    pub fn one_line(&self) -> String {
        let cause = std::error::Error::source(self).map(|source| format!(": {source}"));
        format!("{self}{}", cause.unwrap_or_default()).replace('\n', " ")
    }
}

fn not_found(program: Program, passed_over: &[PassedOver]) -> String {
    let looked = match passed_over {
        [] => String::new(),
        some => format!(" (passed over: {})", reasons(some)),
    };
    format!(
        "no {} found{looked}: {}",
        program.wanted(),
        program.how_to_install()
    )
}

fn reasons(passed_over: &[PassedOver]) -> String {
    let each: Vec<_> = passed_over.iter().map(ToString::to_string).collect();
    if each.is_empty() {
        "none found".to_owned()
    } else {
        each.join("; ")
    }
}
