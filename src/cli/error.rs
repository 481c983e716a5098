//! Why a command failed, in one sentence for the person who typed it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
    /// A command found something wrong, and has already said what.
    #[error("{0}")]
    Found(String),
}

impl CliError {
    /// What the process ends with.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Config(_)
            | CliError::Variable(_)
            | CliError::Serve(ServeError::Advertise(_)) => ExitCode::from(EX_CONFIG),
            _ => ExitCode::FAILURE,
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

/// A setting cannot be used (sysexits.h): a service manager need not try again.
const EX_CONFIG: u8 = 78;
