//! Why a command failed, in one sentence for the person who typed it.

use std::io;
use std::path::{Path, PathBuf};

use crate::client::ClientError;
use crate::config::ConfigError;
use crate::observe::LogError;
use crate::runtime::native::StartError;
use crate::runtime::IoError;
use crate::server::ServeError;
use crate::storage::inspect::InspectError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The broker did not start, or did not stop cleanly.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A setting cannot be used.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The log cannot be started.
    #[error("{0}")]
    Log(#[from] LogError),
    /// A file that the command line names cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An environment variable is not text.
    #[error("environment variable {0} is not UTF-8")]
    Variable(String),
    /// The executor of a tool cannot be started.
    #[error("{0}")]
    Start(#[from] StartError),
    /// A directory cannot be looked at.
    #[error("cannot {0}")]
    Io(#[from] IoError),
    /// A file of a log cannot be looked at.
    #[error("{}: {error}", path.display())]
    Inspect {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: InspectError,
    },
    /// Standard output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// The command line asks for what cannot be. Exit code 2, as for one that cannot be read.
    #[error("{0}")]
    Usage(String),
    /// A broker was not reached, or did not do what was asked.
    #[error("{error}{}", advice(error))]
    Client {
        /// Why.
        error: ClientError,
    },
    /// A command found something wrong, and has already said what.
    #[error("{0}")]
    Found(String),
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> CliError {
        CliError::Client { error }
    }
}

/// What a person may change about it.
fn advice(error: &ClientError) -> &'static str {
    match error {
        ClientError::Unreachable { .. } => {
            "; start a broker there, or name another with --broker HOST:PORT or HIGHWATER_BROKER"
        }
        ClientError::NotABroker { .. } => {
            "; name a plaintext listener of a Kafka broker with --broker HOST:PORT"
        }
        ClientError::UnsupportedVersion { .. } => "; this command needs a broker that does",
        ClientError::TimedOut { .. } => "; give it longer with --timeout SECONDS",
        _ => "",
    }
}

impl CliError {
    /// What the process ends with.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            CliError::Config(_)
            | CliError::Variable(_)
            | CliError::Serve(ServeError::Advertise(_)) => EX_CONFIG,
            CliError::Usage(_) => USAGE,
            _ => FAILURE,
        }
    }

    /// The file or directory at `path` cannot be looked at.
    pub(super) fn inspect(path: &Path, error: InspectError) -> CliError {
        CliError::Inspect {
            path: path.to_owned(),
            error,
        }
    }
}

const FAILURE: u8 = 1;
/// A command line that cannot be used; clap's, too.
const USAGE: u8 = 2;
/// A setting cannot be used (sysexits.h): a service manager need not try again.
const EX_CONFIG: u8 = 78;
