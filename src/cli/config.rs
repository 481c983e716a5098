//! `highwater config`: what can be configured.

use std::io::Write;

use clap::Subcommand;

use super::CliError;

/// The commands below `config`.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print all settings as Markdown.
    Docs,
}

pub(super) fn run(command: &ConfigCommand) -> Result<(), CliError> {
    match command {
        ConfigCommand::Docs => {
            std::io::stdout().write_all(crate::config::markdown().as_bytes())?;
        }
    }
    Ok(())
}
