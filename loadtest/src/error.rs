//! What can go wrong in a load test.

/// A fault that ends a scenario.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be done.
    #[error("{0}")]
    Setup(String),
    /// The server answered what the scenario has no use for.
    #[error("{what} was answered {status}: {body}")]
    Answer {
        /// The call.
        what: String,
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// No answer came.
    #[error("{what}: {why}")]
    Connection {
        /// The call.
        what: String,
        /// The transport's words.
        why: String,
    },
    /// The database refused.
    #[error("the database: {}", database(.0))]
    Database(#[from] tokio_postgres::Error),
    /// Provisioning failed.
    #[error(transparent)]
    Client(#[from] nexus::client::Error),
    /// A private server does not start.
    #[error(transparent)]
    Services(#[from] nexus::dev::services::StartError),
    /// A file cannot be read or written.
    #[error("{path}: {why}")]
    File {
        /// Its path.
        path: String,
        /// The system's words.
        why: String,
    },
}

fn database(e: &tokio_postgres::Error) -> String {
    nexus::client::chain(e)
}

impl Error {
    /// A fault about a file.
    pub fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |e| Self::File {
            path,
            why: e.to_string(),
        }
    }
}
