//! `highwater metrics`: what the broker measures.

use clap::Subcommand;
use std::io::Write;

use super::CliError;
use crate::observe;

/// What to say about metrics.
#[derive(Debug, Subcommand)]
pub(super) enum MetricsCommand {
    /// Print all metrics with their types and labels, as Markdown.
    Docs,
}

pub(super) fn run(command: &MetricsCommand) -> Result<(), CliError> {
    match command {
        MetricsCommand::Docs => {
            std::io::stdout().write_all(observe::markdown().as_bytes())?;
        }
    }
    Ok(())
}
