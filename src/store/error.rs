//! What can go wrong with the database. Rules are refused elsewhere; these are faults.

use std::fmt;

use tokio_postgres::error::SqlState;

/// A fault of the store. It carries its source and does not repeat it in its own message.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection, or it broke: the database is away, full, or restarting.
    #[error("the database cannot be reached")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// So much waits for the store already that nothing was begun.
    #[error("too many commands wait already")]
    Overloaded,
    /// A deadlock or serialization failure: the transaction did nothing and may be run again.
    #[error("the transaction was chosen to give way")]
    GaveWay(#[source] tokio_postgres::Error),
    /// A prepared statement that the connection no longer has, or that the schema has outgrown: the
    /// statement did nothing; on another connection it is prepared anew.
    #[error("a prepared statement went stale")]
    Stale(#[source] tokio_postgres::Error),
    /// A lock or statement time-out: the transaction did nothing.
    #[error("the database took too long")]
    Timeout(#[source] tokio_postgres::Error),
    /// A unique index said no; which one is for the caller to know.
    #[error("a unique index refused the row")]
    Duplicate {
        /// The index.
        constraint: String,
        /// The server's error.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A write met other rows than it was decided on: a claim, which takes no run lock, was quicker;
    /// the transaction did nothing and is decided anew.
    #[error("a write met other rows than it was decided on")]
    Expectation(#[source] tokio_postgres::Error),
    /// The place that keeps the bytes of files did not do what was asked.
    #[error("the files' store cannot be used")]
    Files(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A stored value that no domain type has.
    #[error("{table}.{column} of {key} holds what it never should")]
    Inconsistent {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
        /// Row, in words.
        key: String,
    },
    /// Any other answer of the server: a bug.
    #[error("the database refused a statement")]
    Database(#[source] tokio_postgres::Error),
}

/// What may help after a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Run the same transaction again at once (bounded).
    RunAgain,
    /// Tell the client to retry later (503).
    RetryLater,
    /// Nothing: a bug (500).
    None,
}

impl Error {
    /// What may help.
    pub fn remedy(&self) -> Remedy {
        match self {
            // A claim may slip in between a decision and its write: decided anew, it is seen.
            Self::GaveWay(_) | Self::Expectation(_) | Self::Stale(_) => Remedy::RunAgain,
            Self::Unavailable(_) | Self::Overloaded | Self::Timeout(_) | Self::Files(_) => {
                Remedy::RetryLater
            }
            _ => Remedy::None,
        }
    }

    /// Whether this is the refusal of that unique index.
    pub fn is_duplicate_of(&self, name: &str) -> bool {
        matches!(self, Self::Duplicate { constraint, .. } if constraint == name)
    }

    /// Whether the connection that it came through must not be used again: it is away, stale, in a
    /// transaction that nobody knows of, or leads to a server that takes no writes. An error of one
    /// statement or one transaction is none of these.
    pub(super) fn spoils_connection(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Stale(_) => true,
            Self::Database(source) => source.code().is_none_or(|code| {
                // What follows the first error of a transaction (25P02) ends with its ROLLBACK.
                let class = &code.code()[..2];
                ["25", "57", "58", "XX"].contains(&class)
                    && *code != SqlState::IN_FAILED_SQL_TRANSACTION
            }),
            Self::Overloaded
            | Self::GaveWay(_)
            | Self::Timeout(_)
            | Self::Duplicate { .. }
            | Self::Expectation(_)
            | Self::Files(_)
            | Self::Inconsistent { .. } => false,
        }
    }

    /// A stored value that does not fit.
    pub fn inconsistent(table: &'static str, column: &'static str, key: impl fmt::Display) -> Self {
        Self::Inconsistent {
            table,
            column,
            key: key.to_string(),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            // Closed or broken connection, or a protocol error: nobody knows the fate of what was
            // under way; every command is safe to repeat.
            return Self::Unavailable(Box::new(error));
        };
        match db.code() {
            code if *code == SqlState::T_R_DEADLOCK_DETECTED
                || *code == SqlState::T_R_SERIALIZATION_FAILURE =>
            {
                Self::GaveWay(error)
            }
            code if *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::QUERY_CANCELED => {
                Self::Timeout(error)
            }
            code if *code == SqlState::UNIQUE_VIOLATION => Self::Duplicate {
                constraint: db.constraint().unwrap_or_default().to_owned(),
                source: error,
            },
            code if is_stale(code.code(), db.message()) => Self::Stale(error),
            code if code.code() == "NX001" => Self::Expectation(error),
            code if is_away(code.code()) => Self::Unavailable(Box::new(error)),
            _ => Self::Database(error),
        }
    }
}

/// A named statement that is not there (26000) or is somebody else's (42P05, behind a pooler), or a
/// cached plan whose columns changed (0A000; other features that are not supported are bugs).
fn is_stale(code: &str, message: &str) -> bool {
    matches!(code, "26000" | "42P05") || (code == "0A000" && message.contains("cached plan"))
}

/// Classes 08 (connection), 53 (resources), 57P0x (shutdown, crash, starting up), and a read-only
/// primary during a failover.
fn is_away(code: &str) -> bool {
    code.starts_with("08")
        || code.starts_with("53")
        || matches!(
            code,
            "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "25P03"
        )
}

impl From<deadpool_postgres::PoolError> for Error {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(source) => match Self::from(source) {
                Self::Database(source) => Self::Unavailable(Box::new(source)),
                other => other,
            },
            other => Self::Unavailable(Box::new(other)),
        }
    }
}
